/* Runs golden cases on another architecture: cross_run CASES.
 *
 * Linked with the kernels that cross_write compiled and with nothing of pegen but its
 * headers. Every kernel and number type: q and k in one call against what is expected,
 * then each alone, in place, in parts, as [B,N,H,D] memory, and in every floating-point state of
 * the caller's, which must give the same bits. See cross.h for the file.
 */
#include "cross.h"
#include "pegen/pegen.h"

#include "../interface/float_states.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const pegen_kernel *const cross_kernels[];

static const struct {
  const char *name;
  unsigned bit;
  DLDataType dl;
} types[CROSS_TYPES] = {{"f32", PEGEN_DTYPE_F32, {kDLFloat, 32, 1}},
                        {"bf16", PEGEN_DTYPE_BF16, {kDLBfloat, 16, 1}},
                        {"f16", PEGEN_DTYPE_F16, {kDLFloat, 16, 1}}};

enum { MAX_OPERANDS = 8, MAX_SHOWN = 5 };

typedef struct stream {
  const char *input; /* [B,H,N,D] */
  const double *expected, *tolerance;
  char *output; /* of the first call */
} stream;

typedef struct fixture {
  const pegen_kernel *kernel;
  cross_sizes sizes;
  const double *positions, *operands[MAX_OPERANDS];
  int type;
  size_t bytes; /* of an element */
  stream streams[CROSS_STREAMS];
} fixture;

static int failures;
static const char *cursor, *end;

static _Noreturn void fail(const char *what) {
  fprintf(stderr, "cross_run: %s\n", what);
  exit(1);
}

static void complain(const fixture *f, const char *what, const char *detail) {
  if (failures++ < MAX_SHOWN) printf("%s %s: %s%s\n", f->kernel->name, types[f->type].name, what, detail);
}

static const void *take(int64_t size) {
  const char *at = cursor;
  size = (size + 7) / 8 * 8;
  if (size < 0 || size > end - cursor) fail("the file of cases is too short");
  cursor += size;
  return at;
}

static void *allocate(size_t size) {
  void *memory = malloc(size ? size : 1);
  if (!memory) fail("out of memory");
  return memory;
}

static void open_cases(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) fail("cannot read the cases");
  long size = ftell(file);
  char *bytes = allocate((size_t)size);
  rewind(file);
  if (fread(bytes, 1, (size_t)size, file) != (size_t)size) fail("cannot read the cases");
  fclose(file);
  cursor = bytes;
  end = bytes + size;
}

static double half(uint16_t bits) {
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double size = exponent == 31  ? (mantissa ? NAN : INFINITY)
                : exponent == 0 ? ldexp(mantissa, -24)
                                : ldexp(mantissa + 1024, exponent - 25);
  return bits >> 15 ? -size : size;
}

static double value_at(const fixture *f, const char *at) {
  if (f->bytes == 4) {
    float value;
    memcpy(&value, at, sizeof value);
    return value;
  }
  uint16_t bits;
  memcpy(&bits, at, sizeof bits);
  if (types[f->type].bit == PEGEN_DTYPE_F16) return half(bits);
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static int64_t elements(const fixture *f) {
  return f->sizes.batch * f->sizes.heads * f->sizes.tokens * f->sizes.channels;
}

/* Heads and tokens exchanged: from [B,H,N,D] memory to [B,N,H,D], or back. */
static void exchange(const fixture *f, char *to, const char *from, int back) {
  const cross_sizes *s = &f->sizes;
  size_t row = (size_t)s->channels * f->bytes;
  for (int64_t b = 0; b < s->batch; b++)
    for (int64_t h = 0; h < s->heads; h++)
      for (int64_t n = 0; n < s->tokens; n++) {
        size_t headed = (size_t)((b * s->heads + h) * s->tokens + n) * row;
        size_t mixed = (size_t)((b * s->tokens + n) * s->heads + h) * row;
        memcpy(to + (back ? headed : mixed), from + (back ? mixed : headed), row);
      }
}

/* ---- one call ---- */

typedef struct call {
  const char *name;
  int streams; /* bit 0: q, bit 1: k */
  int in_place, parts, mixed;
  int state; /* of the caller's: float_states.h */
} call;

static DLTensor contiguous(const void *data, DLDataType dl, int rank, const int64_t *shape) {
  return (DLTensor){(void *)(uintptr_t)data, {kDLCPU, 0}, rank, dl, (int64_t *)(uintptr_t)shape, NULL, 0};
}

/* The output of stream i of the call in [B,H,N,D] order, allocated; NULL where it was not asked for. */
static void run(const fixture *f, const call *c, char *result[CROSS_STREAMS]) {
  const DLDataType f64 = {kDLFloat, 64, 1};
  const cross_sizes *s = &f->sizes;
  size_t size = (size_t)elements(f) * f->bytes;
  int64_t shape[4] = {s->batch, s->heads, s->tokens, s->channels};
  int64_t strides[4] = {s->heads * s->tokens * s->channels, s->channels, s->heads * s->channels, 1};
  int64_t position_shape[3] = {s->position_batches, s->tokens, s->axes};
  int shared = s->position_batches == 0;
  DLTensor in[CROSS_STREAMS], out[CROSS_STREAMS], operands[MAX_OPERANDS];
  DLTensor positions = contiguous(f->positions, f64, shared ? 2 : 3, position_shape + shared);
  const DLTensor *operand_pointers[MAX_OPERANDS];
  for (int i = 0; i < s->operands; i++) {
    operands[i] = contiguous(f->operands[i], f64, f->kernel->operands[i].rank, f->kernel->operands[i].shape);
    operand_pointers[i] = &operands[i];
  }
  for (int i = 0; i < CROSS_STREAMS; i++) {
    char *from = allocate(size), *to = c->in_place ? from : allocate(size);
    if (c->mixed) exchange(f, from, f->streams[i].input, 0);
    else memcpy(from, f->streams[i].input, size);
    if (!c->in_place) memset(to, 0xA5, size);
    in[i] = contiguous(from, types[f->type].dl, 4, shape);
    out[i] = contiguous(to, types[f->type].dl, 4, shape);
    if (c->mixed) in[i].strides = out[i].strides = strides;
  }
  pegen_args args = {.struct_size = sizeof args, .n_operands = (int32_t)s->operands, .positions = &positions};
  args.operands = operand_pointers;
  if (c->streams & 1) args.q = &in[0], args.q_out = &out[0];
  if (c->streams & 2) args.k = &in[1], args.k_out = &out[1];
  for (int part = c->parts - 1; part >= 0; part--) {
    uint64_t entered = float_states_enter(c->state);
    int error = f->kernel->encode(&args, part, c->parts);
    if (!float_states_leave(entered)) complain(f, c->name, ": the floating-point state is not as it was");
    if (error) complain(f, c->name, ": the kernel refused");
  }
  for (int i = 0; i < CROSS_STREAMS; i++) {
    result[i] = NULL;
    if (c->streams & 1 << i) {
      result[i] = allocate(size);
      if (c->mixed) exchange(f, result[i], out[i].data, 1);
      else memcpy(result[i], out[i].data, size);
    }
    if (!c->in_place) free(out[i].data);
    free(in[i].data);
  }
}

static void check_expected(const fixture *f, const stream *s) {
  for (int64_t i = 0; i < elements(f); i++) {
    double got = value_at(f, s->output + (size_t)i * f->bytes);
    if (fabs(got - s->expected[i]) <= s->tolerance[i]) continue; /* false for NaN */
    char text[128];
    snprintf(text, sizeof text, " %lld: got %.9g, expected %.9g within %.3g", (long long)i, got, s->expected[i],
             s->tolerance[i]);
    complain(f, s == f->streams ? "q element" : "k element", text);
  }
}

static void check_type(fixture *f) {
  static const call first = {"q and k", 3, 0, 1, 0, 0};
  static const call others[] = {{"q alone", 1, 0, 1, 0, 0},
                                {"k alone", 2, 0, 1, 0, 0},
                                {"in place", 3, 1, 1, 0, 0},
                                {"three parts", 3, 0, 3, 0, 0},
                                {"[B,N,H,D]", 3, 0, 1, 1, 0},
                                {"[B,N,H,D] in place", 3, 1, 2, 1, 0},
                                {"q alone in place", 1, 1, 1, 0, 0},
                                {"rounding up", 3, 0, 1, 0, 1},
                                {"rounding to zero, flushing", 3, 1, 1, 0, 15},
                                {"rounding down, trapping", 3, 0, 2, 0, 18}};
  char *output[CROSS_STREAMS], *again[CROSS_STREAMS];
  run(f, &first, output);
  for (int i = 0; i < CROSS_STREAMS; i++) {
    f->streams[i].output = output[i];
    check_expected(f, &f->streams[i]);
  }
  for (size_t c = 0; c < sizeof others / sizeof *others; c++) {
    run(f, &others[c], again);
    for (int i = 0; i < CROSS_STREAMS; i++) {
      if (again[i] && memcmp(again[i], output[i], (size_t)elements(f) * f->bytes))
        complain(f, others[c].name, ": other bits than the first call");
      free(again[i]);
    }
  }
  for (int i = 0; i < CROSS_STREAMS; i++) free(output[i]);
}

static void check_case(const pegen_kernel *kernel) {
  fixture f = {.kernel = kernel};
  memcpy(&f.sizes, take(sizeof f.sizes), sizeof f.sizes);
  const cross_sizes *s = &f.sizes;
  if (kernel->abi_version != PEGEN_ABI_VERSION || kernel->n_operands != s->operands || s->operands > MAX_OPERANDS ||
      kernel->head_dim != s->channels)
    fail("a kernel is not the one of its case");
  f.positions = take((s->position_batches ? s->position_batches : 1) * s->tokens * s->axes * 8);
  for (int i = 0; i < s->operands; i++) {
    int64_t size = 8;
    for (int d = 0; d < kernel->operands[i].rank; d++) size *= kernel->operands[i].shape[d];
    f.operands[i] = take(size);
  }
  int before = failures;
  for (f.type = 0; f.type < CROSS_TYPES; f.type++) {
    f.bytes = types[f.type].dl.bits / 8;
    for (int i = 0; i < CROSS_STREAMS; i++) {
      f.streams[i].input = take(elements(&f) * (int64_t)f.bytes);
      f.streams[i].expected = take(elements(&f) * 8);
      f.streams[i].tolerance = take(elements(&f) * 8);
    }
    check_type(&f);
  }
  printf("%s %s (%s)\n", failures == before ? "ok    " : "FAILED", kernel->name, kernel->targets);
}

int main(int argc, char **argv) {
  if (argc != 2) fail("usage: cross_run CASES");
  open_cases(argv[1]);
  int64_t header[2];
  memcpy(header, take(sizeof header), sizeof header);
  if (header[0] != CROSS_MAGIC || header[1] <= 0) fail("not a file of cases");
  for (int64_t i = 0; i < header[1]; i++) check_case(cross_kernels[i]);
  if (cursor != end) fail("the file of cases is too long");
  if (failures) printf("%d failures\n", failures);
  return failures != 0;
}
