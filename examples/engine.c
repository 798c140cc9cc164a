/* engine: an attention block of a vision transformer, end to end, with any kernel that pegen made.
 *
 *   pegen specs/geope2d.lua -o geope2d.so -D skip_tokens=1
 *   cc -O2 engine.c -lpegen -lm -pthread -o engine
 *   ./engine ./geope2d.so geope2d 4      4 threads; a fourth word is a step that all positions move by
 *
 * The kernel is found at run time by its name in a shared object, libpegen_kernels.so among them, and says of itself
 * what it needs. Queries and keys lie as their projections write them, [B,N,H,D], prefix tokens first. All stages run
 * on the program's own threads (pool.h): a kernel's entry is a stage like any other, and a thread its part.
 */
#include <pegen/pegen.h>

#include "pool.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the block ---- */

typedef struct block {
  int64_t batches, tokens, heads, dim, wide, width; /* wide: channels of encoded rows; width = heads * dim */
  float *x, *weight[4], *q, *k, *v, *q_wide, *k_wide, *mixed, *y;
} block;
typedef struct product {
  const float *in, *weight;
  float *out;
  int64_t rows, width;
} product;

static int project(const void *context, int part, int parts) {
  const product *p = context;
  for (int64_t row = p->rows * part / parts; row < p->rows * (part + 1) / parts; row++) {
    memset(p->out + row * p->width, 0, sizeof(float) * (size_t)p->width);
    for (int64_t i = 0; i < p->width; i++)
      for (int64_t j = 0; j < p->width; j++)
        p->out[row * p->width + j] += p->in[row * p->width + i] * p->weight[i * p->width + j];
  }
  return 0;
}

/* softmax(q k^T / sqrt(dim)) v; encoded rows have `wide` channels. */
static int attend(const void *context, int part, int parts) {
  const block *b = context;
  float *score = malloc(sizeof(float) * (size_t)b->tokens);
  int64_t rows = b->batches * b->tokens * b->heads;
  for (int64_t row = rows * part / parts; score && row < rows * (part + 1) / parts; row++) {
    int64_t head = row % b->heads, batch = row / b->heads / b->tokens;
    const float *q = b->q_wide + row * b->wide;
    float most = -INFINITY, sum = 0, *out = b->mixed + row * b->dim;
    for (int64_t n = 0; n < b->tokens; n++) {
      const float *k = b->k_wide + ((batch * b->tokens + n) * b->heads + head) * b->wide;
      float dot = 0;
      for (int64_t c = 0; c < b->wide; c++) dot += q[c] * k[c];
      score[n] = dot / sqrtf((float)b->dim);
      most = fmaxf(most, score[n]);
    }
    for (int64_t n = 0; n < b->tokens; n++) sum += score[n] = expf(score[n] - most);
    memset(out, 0, sizeof(float) * (size_t)b->dim);
    for (int64_t n = 0; n < b->tokens; n++)
      for (int64_t c = 0; c < b->dim; c++)
        out[c] += score[n] / sum * b->v[((batch * b->tokens + n) * b->heads + head) * b->dim + c];
  }
  free(score);
  return score ? 0 : PEGEN_ERROR_WORKSPACE;
}

static void run(stage *f, const void *context) {
  int error = pool_run(f, context);
  if (error) fprintf(stderr, "engine: %s\n", pegen_strerror(error)), exit(1);
}

static void forward(const block *b, const pegen_kernel *kernel, const pegen_args *args) {
  int64_t rows = b->batches * b->tokens;
  float *const out[] = {b->q, b->k, b->v};
  for (int i = 0; i < 3; i++) run(project, &(product){b->x, b->weight[i], out[i], rows, b->width});
  if (kernel->encode) run(enter, &(entry_call){kernel->encode, args});
  if (kernel->encode) run(attend, b);
  else run(enter, &(entry_call){kernel->attention, args}); /* positions that act on pairs of tokens */
  run(project, &(product){b->mixed, b->weight[3], b->y, rows, b->width});
}

/* ---- memory ---- */

static float *numbers(int64_t count, float scale) {
  float *out = aligned_alloc(64, ((size_t)count * sizeof *out + 63) / 64 * 64);
  for (int64_t i = 0; out && i < count; i++) out[i] = scale * (2 * (float)rand() / (float)RAND_MAX - 1);
  return out;
}

static DLTensor *tensor(void *data, int rank, const int64_t *shape, const int64_t *strides) {
  DLTensor *t = calloc(1, sizeof *t);
  *t = pegen_tensor(data, kDLFloat, 32, rank, (int64_t *)shape, (int64_t *)strides);
  return t;
}

/* [B,H,N,channels] as it lies in memory: [B,N,H,channels]. */
static DLTensor *rows(const block *b, float *data, int64_t channels) {
  int64_t *s = calloc(8, sizeof *s);
  memcpy(s,
         (int64_t[]){b->batches, b->heads, b->tokens, channels, b->tokens * b->heads * channels, channels,
                     b->heads * channels, 1},
         8 * sizeof *s);
  return tensor(data, 4, s, s + 4);
}

/* Row-major cells of a cube, moved by a step, after the prefix tokens, which have none. */
static float *grid(const pegen_kernel *kernel, int64_t side, int64_t tokens, float step) {
  float *positions = calloc((size_t)(tokens * kernel->n_axes), sizeof *positions);
  for (int64_t n = kernel->skip_tokens; n < tokens; n++)
    for (int64_t cell = n - kernel->skip_tokens, axis = kernel->n_axes - 1; axis >= 0; cell /= side, axis--)
      positions[n * kernel->n_axes + axis] = (float)(cell % side) + step;
  return positions;
}

/* Learned operands, and what some encodings read of each query token, as a model would compute it: small random
 * numbers. */
static const DLTensor **operands(const pegen_kernel *kernel) {
  const DLTensor **list = calloc((size_t)kernel->n_operands + 1, sizeof *list);
  for (int i = 0; i < kernel->n_operands; i++)
    list[i] =
        tensor(numbers(pegen_operand_size(kernel, i), 0.5f), kernel->operands[i].rank, kernel->operands[i].shape, NULL);
  return list;
}

static const DLTensor **inputs(const block *b, const pegen_kernel *kernel) {
  const DLTensor **list = calloc((size_t)kernel->n_inputs + 1, sizeof *list);
  for (int i = 0; i < kernel->n_inputs; i++) {
    int64_t size = kernel->inputs[i].size;
    DLTensor *t = rows(b, numbers(b->batches * b->heads * b->tokens * (size ? size : 1), 1), size ? size : 1);
    t->ndim = size ? 4 : 3;
    list[i] = t;
  }
  return list;
}

/* A block of the kernel's size for two images (sequences, volumes) of so many cells. */
static block make_block(const pegen_kernel *kernel, int64_t cells) {
  block b = {.batches = 2,
             .tokens = cells + kernel->skip_tokens,
             .heads = kernel->heads ? kernel->heads : 4,
             .dim = kernel->head_dim,
             .wide = kernel->out_dim};
  b.width = b.heads * b.dim;
  int64_t count = b.batches * b.tokens * b.width;
  for (int i = 0; i < 4; i++) b.weight[i] = numbers(b.width * b.width, 2 / sqrtf((float)b.width));
  float **buffers[] = {&b.x, &b.q, &b.k, &b.v, &b.mixed, &b.y};
  for (int i = 0; i < 6; i++) *buffers[i] = numbers(count, 1);
  b.q_wide =
      b.wide == b.dim ? b.q : numbers(count / b.dim * b.wide, 0); /* in place where rows stay as long as they are */
  b.k_wide = b.wide == b.dim ? b.k : numbers(count / b.dim * b.wide, 0);
  return b;
}

int main(int argc, char **argv) {
  void *library = argc > 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
  char symbol[128];
  snprintf(symbol, sizeof symbol, "%s_kernel", argc > 2 ? argv[2] : "");
  const pegen_kernel *kernel = library ? dlsym(library, symbol) : NULL;
  if (!kernel || !pegen_kernel_supported(kernel))
    return fprintf(stderr, "usage: engine KERNEL.so NAME [THREADS [STEP]]; %s\n", argc > 2 ? dlerror() : ""), 2;
  pool_start(argc > 3 ? atoi(argv[3]) : 1);
  int64_t side = kernel->n_axes == 1 ? 49 : kernel->n_axes == 2 ? 7 : 4, cells = 1;
  for (int axis = 0; axis < kernel->n_axes; axis++) cells *= kernel->grid ? kernel->grid[axis] : side;
  block b = make_block(kernel, cells);
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = kernel->n_operands,
                     .operands = operands(kernel),
                     .n_inputs = kernel->n_inputs,
                     .inputs = inputs(&b, kernel)};
  DLTensor *q = rows(&b, b.q, b.dim), *k = rows(&b, b.k, b.dim); /* the tensors of an output in place are its input's */
  args.q = q, args.q_out = b.q_wide == b.q ? q : rows(&b, b.q_wide, b.wide);
  args.k = k, args.k_out = b.k_wide == b.k ? k : rows(&b, b.k_wide, b.wide);
  args.v = rows(&b, b.v, b.dim), args.out = rows(&b, b.mixed, b.dim);
  const int64_t shape[] = {b.tokens, kernel->n_axes};
  if (!kernel->grid)
    args.positions = tensor(grid(kernel, side, b.tokens, argc > 4 ? (float)atof(argv[4]) : 0), 2, shape, NULL);
  size_t bytes = kernel->workspace ? kernel->workspace(&args) : 0;
  if (bytes) args.workspace = aligned_alloc(64, (bytes + 63) / 64 * 64), args.workspace_bytes = bytes;
  forward(&b, kernel, &args);
  double sum = 0, square = 0; /* with weights that no rearrangement of the output keeps */
  int64_t count = b.batches * b.tokens * b.width;
  for (int64_t i = 0; i < count; i++) sum += b.y[i] * cos((double)i), square += (double)b.y[i] * b.y[i];
  printf("%s (%s)\n[%d,%d,%d,%d], %d prefix tokens, %d threads\nchecksum %.6f, root mean square %.6f\n", kernel->name,
         kernel->doc, (int)b.batches, (int)b.tokens, (int)b.heads, (int)b.dim, kernel->skip_tokens, pool.threads, sum,
         sqrt(square / (double)count));
  return 0;
}
