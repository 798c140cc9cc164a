/* bench/shapes: the built-in shapes, and those of --shape; see bench/shapes.h. */
#include "bench/shapes.h"

#include "base/diag.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const bench_shape shapes[] = {
    {"vit_b1", 1, 196, 12, .on = BENCH_ON_CPU},
    {"vit_b8", 8, 196, 12, .on = BENCH_ON_CPU},
    {"vit_b64", 64, 196, 12, .on = BENCH_ON_GPU},
    {"vit1024", 8, 4096, 12, .on = BENCH_ON_CPU | BENCH_ON_GPU},
    {"llm", 8, 4096, 32, .on = BENCH_ON_GPU},
    {"decode", 1, 1, 32, .time_only = true, .on = BENCH_ON_CPU | BENCH_ON_GPU},
};
enum { SHAPE_COUNT = sizeof shapes / sizeof *shapes };

/* Reads "B,N,H" or "B,N,H,D": how many numbers, or 0 where it is something else. */
static int read_sizes(const char *text, int64_t value[4]) {
  memset(value, 0, 4 * sizeof *value);
  for (int count = 0; count < 4;) {
    char *end;
    value[count] = strtoll(text, &end, 10);
    if (end == text || value[count] < 1 || value[count] > 1 << 30) return 0;
    count++;
    if (!*end) return count >= 3 ? count : 0;
    if (*end != ',') return 0;
    text = end + 1;
  }
  return 0;
}

const bench_shape *bench_shape_find(const char *name) {
  for (int i = 0; i < SHAPE_COUNT; i++)
    if (!strcmp(name, shapes[i].name)) return &shapes[i];
  return NULL;
}

bool bench_shape_known(const char *text) {
  int64_t value[4];
  return bench_shape_find(text) || read_sizes(text, value) > 0;
}

const char *bench_shape_name(int i) { return i < SHAPE_COUNT ? shapes[i].name : NULL; }

/* False after a message. */
static bool read_shape(const char *text, const pegen_kernel *kernel, bench_shape *out) {
  int64_t value[4];
  int count = read_sizes(text, value);
  if (count < 4) value[3] = kernel->head_dim;
  *out =
      (bench_shape){.name = "given", .batches = value[0], .tokens = value[1], .heads = value[2], .head_dim = value[3]};
  double size = (double)value[0] * (double)value[1] * (double)value[2] * (double)value[3];
  if (!count) diag_error(NULL, 0, "--shape %s: expected B,N,H or B,N,H,D", text);
  else if (size > 1e10) diag_error(NULL, 0, "--shape %s: expected at most 1e10 elements", text);
  else if (value[3] != kernel->head_dim)
    diag_error(NULL, 0, "--shape %s: the kernel's head_dim is %d", text, kernel->head_dim);
  else return true;
  return false;
}

/* What the kernel was made for replaces what a shape says. */
static bench_shape fit(bench_shape size, const pegen_kernel *kernel) {
  size.head_dim = kernel->head_dim;
  if (kernel->heads) size.heads = kernel->heads;
  if (kernel->grid) {
    size.tokens = 1;
    for (int axis = 0; axis < kernel->n_axes; axis++) size.tokens *= kernel->grid[axis];
    size.tokens += kernel->skip_tokens;
  }
  return size;
}

void bench_strides(const bench_shape *size, bench_layout layout, int64_t strides[4]) {
  int64_t N = size->tokens, H = size->heads, D = size->head_dim;
  if (layout == LAYOUT_BNHD) memcpy(strides, (int64_t[]){N * H * D, D, H * D, 1}, 4 * sizeof *strides);
  else memcpy(strides, (int64_t[]){H * N * D, N * D, D, 1}, 4 * sizeof *strides);
}

static int each_place(const pegen_kernel *kernel, const bench_shape *size, const bench_options *bench,
                      bench_visit *visit, void *context) {
  unsigned wanted = bench->layouts ? bench->layouts : (unsigned)LAYOUT_BNHD;
  bool both = bench->in_place == bench->out_of_place,
       can_stay = kernel->out_dim == kernel->head_dim; /* wider rows do not fit where they were */
  int status = STATUS_OK;
  for (unsigned layout = LAYOUT_BNHD; layout <= LAYOUT_BHND; layout <<= 1)
    for (int in_place = 1; in_place >= 0; in_place--)
      if (wanted & layout && (both || bench->in_place == in_place) && (can_stay || !in_place) && !status)
        status = visit(context, size, (bench_layout)layout, in_place);
  return status;
}

int bench_each_shape(const pegen_kernel *kernel, const bench_options *bench, unsigned on, bench_visit *visit,
                     void *context) {
  int status = STATUS_OK, matched = 0;
  for (int i = 0; i < SHAPE_COUNT && !status; i++) {
    if (bench->shape ? strcmp(bench->shape, shapes[i].name) != 0 : !(shapes[i].on & on)) continue;
    matched++;
    if (!bench->shape && kernel->grid && shapes[i].time_only) continue; /* a grid cannot be one token */
    bench_shape size = fit(shapes[i], kernel);
    size.shares_inputs = bench->shared_inputs;
    status = each_place(kernel, &size, bench, visit, context);
  }
  bench_shape given;
  if (matched) return status;
  if (!read_shape(bench->shape, kernel, &given)) return STATUS_ERROR;
  given.shares_inputs = bench->shared_inputs;
  return each_place(kernel, &given, bench, visit, context);
}

float *bench_positions(arena *a, int64_t tokens, int axes) {
  float *out = arena_array(a, float, tokens *axes);
  int64_t side = 1;
  for (;; side++) {
    double volume = 1;
    for (int axis = 0; axis < axes; axis++) volume *= (double)side;
    if (volume >= (double)tokens) break;
  }
  for (int64_t n = 0; n < tokens; n++) {
    int64_t rest = n;
    for (int axis = axes - 1; axis >= 0; axis--) {
      out[n * axes + axis] = (float)(axis ? rest % side : rest);
      rest /= side;
    }
  }
  return out;
}

void bench_print_shape(const bench_shape *size, bench_layout layout, bool in_place) {
  char dims[64];
  snprintf(dims, sizeof dims, "[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "]", size->batches, size->tokens,
           size->heads, size->head_dim);
  printf("%-8s %-16s %-4s %-3s", size->name, dims, layout == LAYOUT_BNHD ? "bnhd" : "bhnd", in_place ? "in" : "out");
}

int bench_no_memory(const bench_shape *size) {
  diag_error(NULL, 0, "bench: not enough memory for the shape %s", size->name);
  return STATUS_ERROR;
}
