/* jit: a kernel compiled while the program runs, as an engine does for a model whose encoding it has never seen.
 *
 *   cc -O2 jit.c -lpegen -o jit
 *   ./jit specs/geope3d.lua head_dim=32 grid=4,4,4
 *
 * The first run compiles (the program pegen beside libpegen, or what PEGEN names); later ones, of any process, find the
 * kernel in the cache. No compiler, linker or LLVM needs to be installed. The kernel says of itself what it takes; here
 * are two heads of zeros and ones at every position of a line, and the operands are zeros.
 */
#include <pegen/compiler.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { HEADS = 2, TOKENS = 64, MOST_AXES = 16, MOST_OPERANDS = 16 };

static DLTensor tensor(void *data, int32_t rank, int64_t *shape, DLDataType type) {
  return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = type, .shape = shape};
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Encodes q, and says how long its rows are before and after. */
static int encode(const pegen_kernel *kernel) {
  static const DLDataType f32 = {kDLFloat, 32, 1}, i64 = {kDLInt, 64, 1};
  int64_t heads = kernel->heads ? kernel->heads : HEADS, tokens = TOKENS;
  if (kernel->grid) {
    tokens = kernel->skip_tokens;
    int64_t cells = 1;
    for (int a = 0; a < kernel->n_axes; a++) cells *= kernel->grid[a];
    tokens += cells;
  }
  int64_t in_shape[] = {1, heads, tokens, kernel->head_dim}, out_shape[] = {1, heads, tokens, kernel->out_dim};
  int64_t place_shape[] = {tokens, kernel->n_axes};
  size_t in_size = (size_t)(heads * tokens * kernel->head_dim), out_size = (size_t)(heads * tokens * kernel->out_dim);
  float *in = calloc(in_size, sizeof *in), *out = calloc(out_size, sizeof *out);
  int64_t *place = calloc((size_t)(tokens * kernel->n_axes), sizeof *place);
  DLTensor operand[MOST_OPERANDS];
  const DLTensor *operands[MOST_OPERANDS];
  if (!in || !out || !place || kernel->n_operands > MOST_OPERANDS || kernel->n_inputs) return 1;
  for (size_t i = 0; i < in_size; i++) in[i] = (float)(i % 2);
  for (int64_t t = 0; t < tokens; t++)
    for (int a = 0; a < kernel->n_axes; a++) place[t * kernel->n_axes + a] = t;
  for (int i = 0; i < kernel->n_operands; i++) {
    float *zeros = calloc((size_t)pegen_operand_size(kernel, i), sizeof *zeros);
    operand[i] = tensor(zeros, kernel->operands[i].rank, (int64_t *)kernel->operands[i].shape, f32);
    operands[i] = &operand[i];
  }
  DLTensor q = tensor(in, 4, in_shape, f32), q_out = tensor(out, 4, out_shape, f32);
  DLTensor positions = tensor(place, 2, place_shape, i64);
  pegen_args args = {.struct_size = sizeof args,
                     .q = &q,
                     .q_out = &q_out,
                     .positions = &positions,
                     .operands = operands,
                     .n_operands = kernel->n_operands};
  if (kernel->workspace && kernel->workspace(&args)) args.workspace = malloc(kernel->workspace(&args));
  int error = kernel->encode(&args, 0, 1);
  double before = 0, after = 0;
  for (size_t i = 0; i < in_size; i++) before += (double)in[i] * (double)in[i];
  for (size_t i = 0; i < out_size; i++) after += (double)out[i] * (double)out[i];
  if (error) fprintf(stderr, "%s: %s\n", kernel->name, pegen_strerror(error));
  else printf("length of all rows: %.6f before, %.6f after\n", sqrt(before), sqrt(after));
  free(args.workspace);
  for (int i = 0; i < kernel->n_operands; i++) free(operand[i].data);
  free(place);
  free(out);
  free(in);
  return error;
}

int main(int argc, char **argv) {
  if (argc < 2) return fprintf(stderr, "usage: jit SPEC.lua [NAME=VALUE...]\n"), 2;
  pegen_compile_request request = {
      .struct_size = sizeof request, .file = argv[1], .defines = (const char **)argv + 2, .n_defines = argc - 2};
  double begin = seconds();
  pegen_compiled *compiled = pegen_compile(&request);
  if (!compiled || !compiled->kernel) {
    fprintf(stderr, "%s\n", compiled ? compiled->error : "no memory");
    pegen_compiled_free(compiled);
    return 1;
  }
  const pegen_kernel *kernel = compiled->kernel;
  printf("%s: %s (%s), %s in %.0f ms\n", kernel->name, kernel->doc, kernel->targets,
         compiled->from_cache ? "found" : "compiled", 1e3 * (seconds() - begin));
  int error = kernel->encode ? encode(kernel) : 0;
  pegen_compiled_free(compiled);
  return error != 0;
}
