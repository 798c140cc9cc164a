/* bench/rows: measures a kernel through its C interface; see bench/rows.h.
 *
 * A contender is the kernel or a limit loop over the same buffers. Contenders take
 * turns; a sample is as many calls as fill SAMPLE_SECONDS after some that are not
 * timed, and what is printed are medians of REPETITIONS samples.
 */
#include "bench/rows.h"

#include "base/diag.h"
#include "base/number.h"
#include "bench/limits.h"
#include "bench/report.h"
#include "bench/shapes.h"
#include "verify/run.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum {
  REPETITIONS = 23,
  REPETITIONS_PREPARING = 7,
  WARM_UP_CALLS = 2,
  CONTENDERS_MOST = 8,
  HUGE_PAGE = 2 * 1024 * 1024,
  PATTERN = 65521
};
static const double SAMPLE_SECONDS = 250e-6;

/* Everything one shape needs: tensors, their memory, and the call. */
enum { TENSOR_Q, TENSOR_K, TENSOR_Q_OUT, TENSOR_K_OUT, TENSOR_COUNT };
typedef struct bed {
  bench_shape size;
  number_type type;
  size_t bytes;             /* of q, of k */
  size_t out_bytes;         /* of an output, which may have more channels */
  size_t moved;             /* what a call reads and writes, inputs included; a table is read beside it */
  void *table;              /* that calls use; or NULL */
  size_t table_bytes;
  void *data[TENSOR_COUNT]; /* outputs are NULL in place */
  void *scratch[TENSOR_COUNT]; /* what limit loops read and write instead, where outputs have other sizes; or NULL */
  void *input[SPEC_MAX_INPUTS];
  DLTensor input_tensor[SPEC_MAX_INPUTS];
  const DLTensor *inputs[SPEC_MAX_INPUTS];
  const char *pattern;      /* random values, repeated over q and k */
  size_t pattern_bytes;
  int64_t dims[4], strides[4], out_dims[4], out_strides[4];
  DLTensor tensor[TENSOR_COUNT], positions, *operand;
  const DLTensor **operands;
  pegen_args args;
  struct { /* of gradients: rows alone, and those of inputs and operands (or, without them, of positions), too */
    void *kept[2], *input[SPEC_MAX_INPUTS], *workspace;
    DLTensor tensor[2], positions, *operand, input_tensor[SPEC_MAX_INPUTS];
    DLTensor **operands, *inputs[SPEC_MAX_INPUTS];
    pegen_grad_args rows_grad, all_grad;
    pegen_args rows, all;
    bool rows_alone; /* of kernels whose operands and positions have no gradients */
  } backward;
} bed;

typedef struct contender {
  const char *name;
  crew *threads;
  crew_work *work;
  const bed *on;
  pegen_entry *entry; /* of the kernel */
  const pegen_args *args; /* of the call; NULL: the bed's */
  pegen_entry *finish; /* called after all parts; or NULL */
  limit_function *limit; /* of a limit loop */
  bool then_read; /* a call is followed by one reading of what it wrote */
  atomic_int error; /* the kernel's, if it refused */
  int calls; /* in a sample */
  double sample[REPETITIONS];
  double seconds; /* median of a call */
} contender;

double bench_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the bed ------------------------------------------------------------------------ */

/* Aligned to huge pages, so that no run depends on which small pages it got. */
static void *allocate(size_t bytes) {
  size_t room = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  void *memory = aligned_alloc(HUGE_PAGE, room);
  if (!memory) return NULL;
  madvise(memory, room, MADV_HUGEPAGE);
  return memset(memory, 0, room);
}

static void fill(const bed *b) {
  for (int t = TENSOR_Q; t <= TENSOR_K; t++)
    for (size_t at = 0; at < b->bytes; at += b->pattern_bytes) {
      size_t left = b->bytes - at;
      memcpy((char *)b->data[t] + at, b->pattern, left < b->pattern_bytes ? left : b->pattern_bytes);
    }
}

static DLTensor tensor_of(void *data, number_type type, int rank, int64_t *dims, int64_t *strides) {
  return (DLTensor){.data = data,
                    .device = {kDLCPU, 0},
                    .ndim = rank,
                    .dtype = number_type_info(type)->dl,
                    .shape = dims,
                    .strides = strides};
}

static void lay_operands(arena *a, bed *b, const spec *s, uint64_t *seed) {
  b->operand = arena_array(a, DLTensor, s->n_operands);
  b->operands = arena_array(a, const DLTensor *, s->n_operands);
  for (int i = 0; i < s->n_operands; i++) {
    const spec_operand *o = &s->operand[i];
    int64_t count = 1, *dims = arena_array(a, int64_t, o->rank);
    for (int d = 0; d < o->rank; d++) count *= dims[d] = o->shape[d];
    float *values = arena_array(a, float, count);
    for (int64_t j = 0; j < count; j++) values[j] = (float)random_uniform(seed, -o->test_scale, o->test_scale);
    b->operand[i] = tensor_of(values, NUMBER_F32, o->rank, dims, NULL);
    b->operands[i] = &b->operand[i];
  }
}

static const char *lay_pattern(arena *a, bed *b, uint64_t *seed) {
  size_t element = (size_t)number_type_info(b->type)->bytes;
  char *pattern = arena_alloc(a, PATTERN * element);
  for (size_t i = 0; i < PATTERN; i++) number_store(b->type, pattern + i * element, random_uniform(seed, -1, 1));
  b->pattern_bytes = PATTERN * element;
  return pattern;
}

static void clear_bed(bed *b) {
  for (int t = 0; t < TENSOR_COUNT; t++) free(b->data[t]), free(b->scratch[t]);
  for (int i = 0; i < SPEC_MAX_INPUTS; i++) free(b->input[i]);
  free(b->table);
  for (int i = 0; i < 2; i++) free(b->backward.kept[i]);
  for (int i = 0; i < SPEC_MAX_INPUTS; i++) free(b->backward.input[i]);
  free(b->backward.workspace);
}

static void set_strides(int64_t *strides, const bench_shape *size, bench_layout layout, int64_t channels) {
  bench_shape rows = *size;
  rows.head_dim = channels;
  bench_strides(&rows, layout, strides);
}

/* Inputs of the query tokens, in the memory order of q. */
static bool lay_inputs(arena *a, bed *b, const spec *s, bench_layout layout, uint64_t *seed) {
  size_t element = (size_t)number_type_info(b->type)->bytes;
  for (int i = 0; i < s->n_inputs; i++) {
    int64_t size = s->input[i].size ? s->input[i].size : 1, count = b->dims[0] * b->dims[1] * b->dims[2] * size;
    int64_t *dims = arena_array(a, int64_t, 4), *strides = arena_array(a, int64_t, 4);
    memcpy(dims, b->dims, 3 * sizeof *dims);
    dims[3] = size;
    set_strides(strides, &b->size, layout, size);
    if (!(b->input[i] = allocate((size_t)count * element))) return false;
    for (int64_t k = 0; k < count; k++)
      number_store(b->type, (char *)b->input[i] + (size_t)k * element,
                   random_uniform(seed, -s->input[i].test_scale, s->input[i].test_scale));
    b->input_tensor[i] = tensor_of(b->input[i], b->type, s->input[i].size ? 4 : 3, dims, strides);
    b->inputs[i] = &b->input_tensor[i];
    b->moved += (size_t)count * element;
  }
  return true;
}

/* Where outputs are wider than inputs, the limit copies as many bytes between tensors of one size. */
static bool lay_scratch(bed *b) {
  for (int t = 0; t < TENSOR_COUNT && b->out_bytes != b->bytes; t++)
    if (!(b->scratch[t] = allocate(b->moved / 4))) return false;
  return true;
}

/* False where memory ran out. */
static bool lay_bed(arena *a, bed *b, const spec *s, const pegen_kernel *kernel, const bench_shape *size,
                    number_type type, bench_layout layout, bool in_place) {
  uint64_t seed = 1;
  *b = (bed){.size = *size, .type = type};
  int64_t B = size->batches, N = size->tokens, H = size->heads, D = size->head_dim;
  b->bytes = (size_t)(B * N * H * D) * (size_t)number_type_info(type)->bytes;
  b->pattern = lay_pattern(a, b, &seed);
  int64_t E = kernel->widths ? kernel->widths[type].out_dim : kernel->out_dim;
  b->out_bytes = b->bytes / (size_t)D * (size_t)E;
  b->moved = 2 * (b->bytes + b->out_bytes);
  memcpy(b->dims, (int64_t[]){B, H, N, D}, sizeof b->dims);
  memcpy(b->out_dims, (int64_t[]){B, H, N, E}, sizeof b->out_dims);
  set_strides(b->strides, size, layout, D);
  set_strides(b->out_strides, size, layout, E);
  for (int t = 0; t < TENSOR_COUNT; t++) {
    bool is_out = t >= TENSOR_Q_OUT, shared = in_place && is_out;
    if (!shared && !(b->data[t] = allocate(is_out ? b->out_bytes : b->bytes))) {
      clear_bed(b);
      return false;
    }
    b->tensor[t] = tensor_of(b->data[shared ? t - TENSOR_Q_OUT : t], type, 4, is_out ? b->out_dims : b->dims,
                             is_out ? b->out_strides : b->strides);
  }
  if (!lay_inputs(a, b, s, layout, &seed) || !lay_scratch(b)) {
    clear_bed(b);
    return false;
  }
  fill(b);
  int64_t *dims = arena_array(a, int64_t, 2);
  dims[0] = N, dims[1] = kernel->n_axes;
  b->positions = tensor_of(bench_positions(a, N, kernel->n_axes), NUMBER_F32, 2, dims, NULL);
  lay_operands(a, b, s, &seed);
  b->args = (pegen_args){.struct_size = sizeof(pegen_args),
                         .n_operands = s->n_operands,
                         .operands = b->operands,
                         .q = &b->tensor[TENSOR_Q],
                         .k = &b->tensor[TENSOR_K],
                         .q_out = &b->tensor[TENSOR_Q_OUT],
                         .k_out = &b->tensor[TENSOR_K_OUT],
                         .positions = kernel->grid ? NULL : &b->positions,
                         .inputs = b->inputs,
                         .n_inputs = s->n_inputs};
  return true;
}

/* Room for the table, which the kernel then finds in its arguments. The kernel's error, or 0 (without room: b->table is
 * NULL). */
static int lay_table(bed *b, const pegen_kernel *kernel) {
  b->table_bytes = kernel->table_bytes(&b->args);
  if (!(b->table = allocate(b->table_bytes ? b->table_bytes : 1))) return 0;
  b->args.table = b->table;
  b->args.table_bytes = b->table_bytes;
  return kernel->prepare(&b->args, 0, 1);
}

static bool lay_input_gradients(bed *b, const spec *s) {
  for (int i = 0; i < s->n_inputs; i++) {
    DLTensor *of = &b->backward.input_tensor[i];
    size_t count = 1;
    for (int d = 0; d < b->input_tensor[i].ndim; d++) count *= (size_t)b->input_tensor[i].shape[d];
    if (!(b->backward.input[i] = allocate(count * (size_t)number_type_info(b->type)->bytes))) return false;
    *of = b->input_tensor[i];
    of->data = b->backward.input[i];
    b->backward.inputs[i] = of;
  }
  return true;
}

/* Rows' gradients come in where q and k are and go out where their outputs are; of outputs that are wider, the other
 * way around. */
static pegen_grad_args rows_gradients(bed *b) {
  bool widens = b->out_bytes != b->bytes;
  int in = widens ? TENSOR_Q_OUT : TENSOR_Q, out = widens ? TENSOR_Q : TENSOR_Q_OUT;
  return (pegen_grad_args){.struct_size = sizeof(pegen_grad_args),
                           .q_out = &b->tensor[in],
                           .k_out = &b->tensor[in + 1],
                           .q = &b->tensor[out],
                           .k = &b->tensor[out + 1]};
}

/* What encode wrote is kept beside the gradients. The kernel's error, or 0 (without room: b->backward.workspace is
 * NULL). */
static int lay_backward(arena *a, bed *b, const spec *s, const pegen_kernel *kernel) {
  for (int i = 0; i < 2; i++) {
    if (!(b->backward.kept[i] = allocate(b->bytes))) return 0;
    memcpy(b->backward.kept[i], b->data[i], b->bytes);
    b->backward.tensor[i] = tensor_of(b->backward.kept[i], b->type, 4, b->dims, b->strides);
  }
  b->backward.operand = arena_array(a, DLTensor, s->n_operands + 1);
  b->backward.operands = arena_array(a, DLTensor *, s->n_operands + 1);
  for (int i = 0; i < s->n_operands; i++) {
    int64_t count = pegen_operand_size(kernel, i);
    b->backward.operand[i] = b->operand[i];
    b->backward.operand[i].data = arena_array(a, float, count);
    b->backward.operands[i] = &b->backward.operand[i];
  }
  b->backward.positions = b->positions;
  b->backward.positions.data = arena_array(a, float, b->positions.shape[0] * b->positions.shape[1]);
  if (!lay_input_gradients(b, s)) return 0;
  b->backward.rows_grad = rows_gradients(b);
  b->backward.rows = b->args;
  b->backward.rows.grad = &b->backward.rows_grad;
  b->backward.rows.q = b->backward.rows.k = NULL;
  b->backward.all_grad = b->backward.rows_grad;
  if (s->n_inputs) b->backward.all_grad.inputs = b->backward.inputs;
  if (s->n_operands) b->backward.all_grad.operands = b->backward.operands;
  else if (!s->n_inputs) b->backward.all_grad.positions = &b->backward.positions;
  b->backward.all = b->args;
  b->backward.all.q = &b->backward.tensor[0];
  b->backward.all.k = &b->backward.tensor[1];
  b->backward.all.grad = &b->backward.all_grad;
  size_t bytes = kernel->encode_backward_workspace(&b->backward.all);
  if (!(b->backward.workspace = allocate(bytes ? bytes : 1))) return 0;
  b->backward.all.workspace = b->backward.workspace;
  int error = kernel->encode_backward(&b->backward.all, 0, 1);
  b->backward.rows_alone = error == PEGEN_ERROR_NO_GRADIENT;
  return b->backward.rows_alone ? kernel->encode_backward(&b->backward.rows, 0, 1) : error;
}

/* ---- contenders --------------------------------------------------------------------- */

static void work_kernel(void *context, int part, int parts) {
  contender *c = context;
  int error = c->entry(c->args ? c->args : &c->on->args, part, parts);
  if (error) atomic_store(&c->error, error);
}

/* Reads a part of whole units at `from`. */
static void read_part(const void *from, size_t bytes, int part, int parts) {
  _Alignas(64) char sink[LIMIT_SINK];
  size_t units = bytes / LIMIT_SINK, first = units * (size_t)part / (size_t)parts,
         last = units * (size_t)(part + 1) / (size_t)parts;
  if (last > first) limit_read()(sink, (const char *)from + first * LIMIT_SINK, (last - first) * LIMIT_SINK);
}

/* What comes next: an attention reads the outputs once. */
static void work_reader(void *context, int part, int parts) {
  const contender *c = context;
  const bed *b = c->on;
  bool is_apart = c->limit && b->scratch[0];
  for (int t = TENSOR_Q_OUT; t <= TENSOR_K_OUT; t++)
    read_part(is_apart ? b->scratch[t] : b->tensor[t].data, is_apart ? b->moved / 4 : b->out_bytes, part, parts);
}

/* A part is the same share of q and of k, cut at cache lines as rows are. */
static void work_limit(void *context, int part, int parts) {
  const contender *c = context;
  const bed *b = c->on;
  size_t bytes = b->scratch[0] ? b->moved / 4 : b->bytes, lines = (bytes + 63) / 64;
  size_t begin = lines * (size_t)part / (size_t)parts * 64, end = lines * (size_t)(part + 1) / (size_t)parts * 64;
  if (end > bytes) end = bytes;
  for (int t = TENSOR_Q; t <= TENSOR_K; t++)
    if (b->scratch[t])
      c->limit((char *)b->scratch[t + TENSOR_Q_OUT] + begin, (const char *)b->scratch[t] + begin, end - begin);
    else c->limit((char *)b->tensor[t + TENSOR_Q_OUT].data + begin, (const char *)b->data[t] + begin, end - begin);
  if (b->table) read_part(b->table, b->table_bytes, part, parts);
}

static void run(contender *c, crew_work *work) {
  if (c->threads) crew_run(c->threads, work, c);
  else work(c, 0, 1);
}

static void call(contender *c) {
  run(c, c->work);
  int error = c->finish ? c->finish(c->args, 0, 1) : 0;
  if (error) atomic_store(&c->error, error);
  if (c->then_read) run(c, work_reader); /* all parts are written by then */
}

static int ascending(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

static void calibrate(contender *c) {
  for (c->calls = 1;; c->calls *= 2) {
    double start = bench_now();
    for (int i = 0; i < c->calls; i++) call(c);
    double seconds = bench_now() - start;
    if (atomic_load(&c->error)) return;
    if (seconds >= SAMPLE_SECONDS) return;
  }
}

/* The kernel's error, or 0. */
static int measure(contender *contenders, int count, const bed *b, int repetitions) {
  for (int i = 0; i < count; i++) {
    calibrate(&contenders[i]);
    if (atomic_load(&contenders[i].error)) return atomic_load(&contenders[i].error);
  }
  for (int r = 0; r < repetitions; r++) {
    fill(b); /* an encoding that grows (or shrinks) vectors must not reach infinity (or subnormals) */
    for (int i = 0; i < count; i++) {
      contender *c = &contenders[(i + r) % count]; /* so that none always follows the same one */
      for (int n = 0; n < WARM_UP_CALLS; n++) call(c);
      double start = bench_now();
      for (int n = 0; n < c->calls; n++) call(c);
      c->sample[r] = (bench_now() - start) / c->calls;
    }
  }
  for (int i = 0; i < count; i++) {
    qsort(contenders[i].sample, (size_t)repetitions, sizeof(double), ascending);
    contenders[i].seconds = contenders[i].sample[repetitions / 2];
  }
  return 0;
}

/* ---- the table ---------------------------------------------------------------------- */

/* The fastest of the limit loops. */
static const contender *limit_of(const contender *contenders, int count) {
  const contender *limit = NULL;
  for (int i = 0; i < count; i++)
    if (contenders[i].limit && (!limit || contenders[i].seconds < limit->seconds)) limit = &contenders[i];
  return limit;
}

static double bytes_of(const bed *b, const contender *kernel) {
  return (double)(b->moved + b->table_bytes + (kernel->then_read ? 2 * b->out_bytes : 0));
}

/* Rows alone move what encode moves; with operands what encode wrote is read, too. */
static void print_backward(const bed *b, const contender *forward, const contender *backward) {
  const pegen_grad_args *all = &b->backward.all_grad;
  const char *const names[] = {"gradients of rows", all->inputs ? all->operands ? "of inputs and operands" : "of inputs"
                                                    : all->operands ? "and of operands"
                                                                    : "and of positions"};
  for (int i = 0; i < (b->backward.rows_alone ? 1 : 2); i++) {
    printf("         %-25s", names[i]);
    bench_print_time(backward[i].seconds);
    printf(" %8.2fx of encode\n", backward[i].seconds / forward->seconds);
  }
}

static void print_row(const bed *b, bench_layout layout, bool in_place, const contender *contenders, int count,
                      int n_kernels, const contender *preparing, const contender *backward) {
  char dims[64];
  snprintf(dims, sizeof dims, "[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "]", b->size.batches, b->size.tokens,
           b->size.heads, b->size.head_dim);
  printf("%-8s %-16s %-4s %-3s", b->size.name, dims, layout == LAYOUT_BNHD ? "bnhd" : "bhnd", in_place ? "in" : "out");
  const contender *kernel = &contenders[n_kernels - 1];
  bench_print_time(kernel->seconds);
  if (!b->size.time_only) {
    const contender *limit = limit_of(contenders, count);
    double bytes = bytes_of(b, kernel); /* q, k, inputs and table read, outputs written, and read where they are */
    printf(" %8.2f MB %7.1f %7.1f  %-9s %5.2f", bytes * 1e-6, bytes / kernel->seconds * 1e-9,
           bytes / limit->seconds * 1e-9, limit->name, limit->seconds / kernel->seconds);
  }
  if (n_kernels > 1)
    printf("%s  %.2fx of one thread", b->size.time_only ? "    " : "", contenders[0].seconds / kernel->seconds);
  if (b->table) {
    printf("  table %.2f MB, prepared in", (double)b->table_bytes * 1e-6);
    bench_print_time(preparing->seconds);
  }
  puts("");
  if (b->backward.workspace) print_backward(b, kernel, backward);
  fflush(stdout);
}

static void write_row(json_writer *w, const pegen_kernel *kernel, const bed *b, bench_layout layout, bool in_place,
                      int threads, const contender *contenders, int count, int n_kernels, const contender *preparing,
                      const contender *backward) {
  report_kernel(w, kernel->name, kernel->options, kernel->targets, number_type_info(b->type)->name);
  report_sizes(w, b->size.name, b->size.batches, b->size.tokens, b->size.heads, b->size.head_dim);
  json_text(w, "layout", layout == LAYOUT_BNHD ? "bnhd" : "bhnd");
  json_bool(w, "in_place", in_place);
  json_integer(w, "threads", threads);
  json_integer(w, "samples", REPETITIONS);
  json_number(w, "seconds", contenders[n_kernels - 1].seconds);
  if (n_kernels > 1) json_number(w, "seconds_of_one_thread", contenders[0].seconds);
  json_bool(w, "then_read", contenders[0].then_read);
  json_number(w, "bytes", bytes_of(b, &contenders[0]));
  if (b->table) {
    json_integer(w, "table_bytes", (long long)b->table_bytes);
    json_number(w, "prepare_seconds", preparing->seconds);
  }
  if (b->backward.workspace) {
    json_number(w, "backward_rows_seconds", backward[0].seconds);
    if (!b->backward.rows_alone) json_number(w, "backward_seconds", backward[1].seconds);
  }
  if (!b->size.time_only) {
    json_begin(w, "limits", '[');
    for (int i = n_kernels; i < count; i++) {
      if (!contenders[i].limit) continue;
      json_begin(w, NULL, '{');
      json_text(w, "loop", contenders[i].name);
      json_number(w, "seconds", contenders[i].seconds);
      json_end(w, '}');
    }
    json_end(w, ']');
    json_number(w, "ratio", limit_of(contenders, count)->seconds / contenders[n_kernels - 1].seconds);
  }
  report_row_end(w);
}

static int no_memory(const bench_shape *size) {
  diag_error(NULL, 0, "bench: not enough memory for the shape %s", size->name);
  return STATUS_ERROR;
}

static int bench_row(arena *a, const spec *s, const pegen_kernel *kernel, const bench_shape *size, number_type type,
                     bench_layout layout, bool in_place, crew *threads, const bench_options *bench) {
  bool tabled = bench->table;
  static contender contenders[CONTENDERS_MOST];
  bed b;
  if (!lay_bed(a, &b, s, kernel, size, type, layout, in_place)) return no_memory(size);
  int error = tabled ? lay_table(&b, kernel) : bench->backward ? lay_backward(a, &b, s, kernel) : 0;
  if ((tabled && !b.table) || (bench->backward && !b.backward.workspace)) {
    clear_bed(&b);
    return no_memory(size);
  }
  int count = 0;
  memset(contenders, 0, sizeof contenders);
  contenders[count++] = (contender){.name = "kernel", .work = work_kernel, .on = &b, .entry = kernel->encode};
  if (threads)
    contenders[count++] =
        (contender){.name = "kernel", .work = work_kernel, .on = &b, .entry = kernel->encode, .threads = threads};
  int n_kernels = count;
  const contender *backward = &contenders[count];
  int n_backward = !bench->backward ? 0 : b.backward.rows_alone ? 1 : 2;
  for (int i = 0; i < n_backward; i++)
    contenders[count++] = (contender){.name = "backward",
                                      .work = work_kernel,
                                      .on = &b,
                                      .entry = kernel->encode_backward,
                                      .args = i ? &b.backward.all : &b.backward.rows,
                                      .finish = i ? kernel->encode_backward_finish : NULL,
                                      .threads = threads};
  const limit_loop *loops;
  int n_loops = size->time_only ? 0 : limit_loops(in_place, &loops);
  for (int i = 0; i < n_loops; i++)
    contenders[count++] =
        (contender){.name = loops[i].name, .work = work_limit, .on = &b, .limit = loops[i].run, .threads = threads};
  for (int i = 0; i < count; i++) contenders[i].then_read = bench->then_read;
  static contender preparing;
  preparing =
      (contender){.name = "prepare", .work = work_kernel, .on = &b, .entry = kernel->prepare, .threads = threads};
  if (!error && tabled) error = measure(&preparing, 1, &b, REPETITIONS_PREPARING);
  if (!error) error = measure(contenders, count, &b, REPETITIONS);
  json_writer *w = error ? NULL : report_row(bench);
  if (w) write_row(w, kernel, &b, layout, in_place, bench->threads, contenders, count, n_kernels, &preparing, backward);
  else if (!error) print_row(&b, layout, in_place, contenders, count, n_kernels, &preparing, backward);
  else diag_error(NULL, 0, "bench: the kernel refused the shape %s: %s", size->name, pegen_strerror(error));
  clear_bed(&b);
  return error ? STATUS_ERROR : STATUS_OK;
}

typedef struct row_request {
  arena *memory;
  const spec *spec;
  const pegen_kernel *kernel;
  number_type type;
  crew *threads;
  const bench_options *bench;
} row_request;

static int visit_row(void *context, const bench_shape *size, bench_layout layout, bool in_place) {
  const row_request *r = context;
  return bench_row(r->memory, r->spec, r->kernel, size, r->type, layout, in_place, r->threads, r->bench);
}

static void print_head(const pegen_kernel *kernel, number_type type, const bench_options *bench) {
  printf("%s %s\n%s, %s, %d thread%s; times are medians of %d; the limit moves the same bytes%s%s\n", kernel->name,
         kernel->options, kernel->targets, number_type_info(type)->name, bench->threads, bench->threads > 1 ? "s" : "",
         REPETITIONS, bench->table ? " and reads the table" : "",
         bench->then_read ? "; each is followed by one reading of q and k" : "");
  printf("%-8s %-16s %-4s %-3s %12s %11s %7s %7s  %-9s %5s\n", "shape", "[B,N,H,D]", "mem", "to", "a call", "bytes",
         "GB/s", "limit", "(loop)", "ratio");
}

int bench_refuse_table(const spec *s, const char *what) {
  diag_error(
      s->file, s->line,
      "bench: --table, but %s of '%s' has no NAME_prepare; the kernel of a rotation, for a processor, was expected",
      what, s->name);
  return STATUS_ERROR;
}

int bench_kernel(arena *a, const spec *s, const pegen_kernel *kernel, unsigned dtype, const bench_options *bench) {
  if (bench->table && !kernel->prepare) return bench_refuse_table(s, "the kernel");
  if (bench->backward && !kernel->encode_backward) {
    diag_error(s->file, s->line, "bench: --backward, but the kernel has no NAME_encode_backward");
    return STATUS_ERROR;
  }
  number_type type = NUMBER_F32;
  while (number_type_info(type)->dtype != dtype) type++;
  crew *threads = bench->threads > 1 ? crew_create(bench->threads) : NULL;
  if (bench->threads > 1 && !threads) {
    diag_error(NULL, 0, "bench: cannot start %d threads", bench->threads);
    return STATUS_ERROR;
  }
  if (!bench->report) print_head(kernel, type, bench);
  row_request request = {a, s, kernel, type, threads, bench};
  int status = bench_each_shape(kernel, bench, BENCH_ON_CPU, visit_row, &request);
  crew_destroy(threads);
  return status;
}
