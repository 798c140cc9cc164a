/* bench/gpu: calls and copies on the default stream between events; see bench/gpu.h. */
#include "bench/gpu.h"

#include "base/diag.h"
#include "base/number.h"
#include "bench/cuda.h"
#include "bench/report.h"
#include "bench/shapes.h"
#include "pegen/cuda.h"
#include "verify/trial.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { REPETITIONS = 23, WARM_UP = 3, MOST_SETS = 64, PATTERN_ELEMENTS = 1 << 20 };
static const size_t CYCLED_BYTES = (size_t)512 << 20; /* several times the largest L2 cache */

/* ---- the bed ---- */

enum { Q, K, Q_OUT, K_OUT, TENSORS };

/* Buffers of one call. */
typedef struct buffers {
  cuda_address memory[TENSORS]; /* outputs: 0 in place */
  DLTensor tensor[TENSORS];
  pegen_args args;
} buffers;

typedef struct bed {
  const pegen_kernel *kernel;
  size_t bytes; /* of one tensor */
  bool in_place;
  int n_sets;
  buffers set[MOST_SETS];
  DLTensor positions, *operand;
  const DLTensor **operands;
  cuda_address own[SPEC_MAX_AXES + 64]; /* of positions and operands */
  int n_own;
} bed;

typedef struct request {
  arena *memory;
  const spec *spec;
  const pegen_kernel *kernel;
  number_type type;
  const cuda_device *device;
  const bench_options *bench;
} request;

static DLTensor tensor_of(cuda_address memory, number_type type, int rank, int64_t *dims, int64_t *strides) {
  return (DLTensor){.data = (void *)(uintptr_t)memory,
                    .device = {kDLCUDA, 0},
                    .ndim = rank,
                    .dtype = number_type_info(type)->dl,
                    .shape = dims,
                    .strides = strides};
}

static bool upload(bed *b, const void *data, size_t bytes, cuda_address *memory) {
  if (!cuda_upload(data, bytes, memory)) return false;
  b->own[b->n_own++] = *memory;
  return true;
}

static bool lay_inputs(const request *r, bed *b, const bench_shape *size) {
  const spec *s = r->spec;
  cuda_address memory;
  uint64_t seed = 1;
  int64_t *dims = arena_array(r->memory, int64_t, 2);
  dims[0] = size->tokens, dims[1] = s->n_axes;
  const float *positions = bench_positions(r->memory, size->tokens, s->n_axes);
  if (!upload(b, positions, sizeof *positions * (size_t)(size->tokens * s->n_axes), &memory)) return false;
  b->positions = tensor_of(memory, NUMBER_F32, 2, dims, NULL);
  b->operand = arena_array(r->memory, DLTensor, s->n_operands + 1);
  b->operands = arena_array(r->memory, const DLTensor *, s->n_operands + 1);
  for (int i = 0; i < s->n_operands; i++) {
    const spec_operand *o = &s->operand[i];
    int64_t count = pegen_operand_size(r->kernel, i), *shape = arena_array(r->memory, int64_t, o->rank + 1);
    float *values = arena_array(r->memory, float, count + 1);
    for (int d = 0; d < o->rank; d++) shape[d] = o->shape[d];
    for (int64_t j = 0; j < count; j++) values[j] = (float)random_uniform(&seed, -o->test_scale, o->test_scale);
    if (!upload(b, values, sizeof *values * (size_t)count, &memory)) return false;
    b->operand[i] = tensor_of(memory, NUMBER_F32, o->rank, shape, NULL);
    b->operands[i] = &b->operand[i];
  }
  return true;
}

/* Random numbers, repeated: what is measured must not depend on zeros. */
static bool fill(const request *r, const bed *b, cuda_address to, uint64_t *seed) {
  size_t element = (size_t)number_type_info(r->type)->bytes, pattern = PATTERN_ELEMENTS * element;
  char *values = arena_alloc(r->memory, pattern);
  for (size_t i = 0; i < PATTERN_ELEMENTS; i++)
    number_store(r->type, values + i * element, random_uniform(seed, -1, 1));
  for (size_t at = 0; at < b->bytes; at += pattern)
    if (!cuda_works(cuda.cuMemcpyHtoD_v2(to + at, values, b->bytes - at < pattern ? b->bytes - at : pattern), "upload"))
      return false;
  return true;
}

static bool lay_bed(const request *r, bed *b, const bench_shape *size, bench_layout layout) {
  uint64_t seed = 1;
  int64_t *dims = arena_array(r->memory, int64_t, 4), *strides = arena_array(r->memory, int64_t, 4);
  dims[0] = size->batches, dims[1] = size->heads, dims[2] = size->tokens, dims[3] = size->head_dim;
  bench_strides(size, layout, strides);
  b->bytes = (size_t)(dims[0] * dims[1] * dims[2] * dims[3]) * (size_t)number_type_info(r->type)->bytes;
  int tensors = b->in_place ? Q_OUT : TENSORS;
  size_t sets = CYCLED_BYTES / (b->bytes * (size_t)tensors);
  b->n_sets = sets < 1 ? 1 : sets > MOST_SETS ? MOST_SETS : (int)sets;
  if (!lay_inputs(r, b, size)) return false;
  for (int i = 0; i < b->n_sets; i++) {
    buffers *set = &b->set[i];
    for (int t = 0; t < tensors; t++) {
      if (!cuda_allocate(b->bytes, &set->memory[t])) return false;
      if (!(i ? cuda_works(cuda.cuMemcpyDtoDAsync_v2(set->memory[t], b->set[0].memory[t], b->bytes, NULL), "copy")
              : fill(r, b, set->memory[t], &seed)))
        return false;
    }
    for (int t = 0; t < TENSORS; t++)
      set->tensor[t] = tensor_of(set->memory[t < tensors ? t : t - Q_OUT], r->type, 4, dims, strides);
    set->args = (pegen_args){.struct_size = sizeof(pegen_args),
                             .n_operands = r->kernel->n_operands,
                             .operands = b->operands,
                             .q = &set->tensor[Q],
                             .k = &set->tensor[K],
                             .q_out = &set->tensor[Q_OUT],
                             .k_out = &set->tensor[K_OUT],
                             .positions = r->kernel->grid ? NULL : &b->positions};
  }
  return true;
}

static void clear_bed(bed *b) {
  for (int i = 0; i < b->n_sets; i++)
    for (int t = 0; t < TENSORS; t++)
      if (b->set[i].memory[t]) cuda.cuMemFree_v2(b->set[i].memory[t]);
  for (int i = 0; i < b->n_own; i++) cuda.cuMemFree_v2(b->own[i]);
}

/* ---- samples ---- */

static bool call(const bed *b, int set) {
  int error = pegen_launch(b->kernel, NULL, &b->set[set].args, NULL);
  if (error)
    diag_error(NULL, 0, "bench: the launch was refused: %s %s", pegen_strerror(error), pegen_cuda_error_name());
  return !error;
}

/* Reads and writes what a call does: two tensors. */
static bool copy(const bed *b, int set) {
  const cuda_address *m = b->set[set].memory;
  cuda_address to[2] = {b->in_place ? m[K] : m[Q_OUT], b->in_place ? m[Q] : m[K_OUT]};
  for (int t = 0; t < 2; t++)
    if (!cuda_works(cuda.cuMemcpyDtoDAsync_v2(to[t], m[t], b->bytes, NULL), "copy")) return false;
  return true;
}

/* Seconds of one call, from one on every set. */
static bool sample(const request *r, const bed *b, bool (*run)(const bed *, int), double *seconds) {
  if (!cuda_begin(r->device)) return false;
  for (int i = 0; i < b->n_sets; i++)
    if (!run(b, i)) return false;
  if (!cuda_end(r->device, seconds)) return false;
  *seconds /= b->n_sets;
  return true;
}

static bool measure(const request *r, const bed *b, double medians[2]) {
  double samples[2][WARM_UP + REPETITIONS];
  for (int i = 0; i < WARM_UP + REPETITIONS; i++)
    if (!sample(r, b, call, &samples[0][i]) || !sample(r, b, copy, &samples[1][i])) return false;
  for (int c = 0; c < 2; c++) {
    qsort(samples[c] + WARM_UP, REPETITIONS, sizeof(double), number_compare);
    medians[c] = samples[c][WARM_UP + REPETITIONS / 2];
  }
  return true;
}

/* ---- the table ---- */

static void print_row(const bed *b, const bench_shape *size, bench_layout layout, const double *seconds) {
  char dims[64];
  double bytes = 4.0 * (double)b->bytes; /* q and k, read and written */
  snprintf(dims, sizeof dims, "[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "]", size->batches, size->tokens,
           size->heads, size->head_dim);
  printf("%-8s %-17s %-4s %-3s", size->name, dims, layout == LAYOUT_BNHD ? "bnhd" : "bhnd", b->in_place ? "in" : "out");
  bench_print_time(seconds[0]);
  if (!size->time_only)
    printf(" %8.2f MB %7.1f %7.1f %5.3f", bytes * 1e-6, bytes / seconds[0] * 1e-9, bytes / seconds[1] * 1e-9,
           seconds[1] / seconds[0]);
  puts("");
  fflush(stdout);
}

static void write_row(json_writer *w, const request *r, const bed *b, const bench_shape *size, bench_layout layout,
                      const double *seconds) {
  report_kernel(w, r->kernel->name, r->kernel->options, r->kernel->ptx->chip, number_type_info(r->type)->name);
  json_text(w, "device", r->device->name);
  report_sizes(w, size->name, size->batches, size->tokens, size->heads, size->head_dim);
  json_text(w, "layout", layout == LAYOUT_BNHD ? "bnhd" : "bhnd");
  json_bool(w, "in_place", b->in_place);
  json_integer(w, "samples", REPETITIONS);
  json_number(w, "seconds", seconds[0]);
  json_number(w, "bytes", 4.0 * (double)b->bytes);
  if (!size->time_only) {
    json_number(w, "copy_seconds", seconds[1]);
    json_number(w, "ratio", seconds[1] / seconds[0]);
  }
  report_row_end(w);
}

static int visit(void *context, const bench_shape *size, bench_layout layout, bool in_place) {
  const request *r = context;
  bed *b = arena_new(r->memory, bed);
  double seconds[2];
  b->kernel = r->kernel;
  b->in_place = in_place;
  bool ok = lay_bed(r, b, size, layout) && measure(r, b, seconds);
  json_writer *w = ok ? report_row(r->bench) : NULL;
  if (w) write_row(w, r, b, size, layout, seconds);
  else if (ok) print_row(b, size, layout, seconds);
  clear_bed(b);
  return ok ? STATUS_OK : STATUS_ERROR;
}

static void print_head(const request *r) {
  printf("%s %s\n%s, PTX of %s, %s; times are medians of %d; the copy, device to device, moves the same bytes\n",
         r->kernel->name, r->kernel->options, r->device->name, r->kernel->ptx->chip, number_type_info(r->type)->name,
         REPETITIONS);
  printf("%-8s %-17s %-4s %-3s %12s %11s %7s %7s %5s\n", "shape", "[B,N,H,D]", "mem", "to", "a call", "bytes", "GB/s",
         "copy", "ratio");
}

int bench_gpu_spec(arena *a, const spec *s, const compile_options *options, const bench_options *bench) {
  compile_options compiling = *options;
  cuda_device device;
  if (!cuda_open(a, options->targets, &device)) return STATUS_ERROR;
  compiling.emit = EMIT_OBJ;
  compiling.no_gradients = true;
  compiling.targets = arena_printf(a, "native,%s", options->targets);
  if (!compiling.dtypes) compiling.dtypes = PEGEN_DTYPE_BF16;
  loaded_kernel *loaded = trial_load_as(a, s, &compiling);
  int status = loaded ? STATUS_OK : STATUS_ERROR;
  for (int type = 0; type < NUMBER_CHANNEL_TYPES && !status; type++) {
    if (!(compiling.dtypes & number_type_info((number_type)type)->dtype)) continue;
    request r = {a, s, run_kernel(loaded), (number_type)type, &device, bench};
    if (!bench->report) print_head(&r);
    status = bench_each_shape(r.kernel, bench, BENCH_ON_GPU, visit, &r);
  }
  if (loaded) run_unload(loaded);
  cuda_close(&device);
  return status;
}
