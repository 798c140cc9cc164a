/* trial: kernels on tensors, compared with the reference; see trial.h. */
#include "trial.h"

#include "compile.h"
#include "diag.h"
#include "reference.h"
#include "run_threads.h"
#include "target_ptx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- tensors ---- */

static DLTensor *tensor_new(arena *a, number_type type, int rank, const int64_t *shape) {
  DLTensor *t = arena_new(a, DLTensor);
  t->device = (DLDevice){kDLCPU, 0};
  t->dtype = number_type_info(type)->dl;
  t->ndim = rank;
  t->shape = arena_array(a, int64_t, rank + 1);
  t->strides = arena_array(a, int64_t, rank + 1);
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; i--) {
    t->shape[i] = shape[i];
    t->strides[i] = stride;
    stride *= shape[i];
  }
  return t;
}

static size_t element_bytes(const DLTensor *t) { return t->dtype.bits / 8u; }

/* From the first element to behind the last one; strides are not negative here. */
static size_t storage_bytes(const DLTensor *t) {
  size_t last = 0;
  for (int i = 0; i < t->ndim; i++) {
    if (t->shape[i] == 0) return 0;
    last += (size_t)((t->shape[i] - 1) * t->strides[i]);
  }
  return (last + 1) * element_bytes(t);
}

DLTensor *tensor_rows(arena *a, number_type type, row_order order, int64_t batch, int64_t heads, int64_t tokens, int64_t channels) {
  DLTensor *t = tensor_new(a, type, 4, (int64_t[]){batch, heads, tokens, channels});
  if (order == ROWS_BNHD) {
    t->strides[1] = channels;
    t->strides[2] = channels * heads;
  } else if (order == ROWS_GAPS) {
    t->strides[2] = channels + 3;
    t->strides[1] = tokens * t->strides[2] + 5;
    t->strides[0] = heads * t->strides[1] + 7;
  }
  size_t bytes = storage_bytes(t);
  t->data = arena_alloc(a, bytes + 16);
  memset(t->data, 0x5a, bytes);
  return t;
}

DLTensor *tensor_contiguous(arena *a, number_type type, int rank, const int64_t *shape, const double *values) {
  DLTensor *t = tensor_new(a, type, rank, shape);
  size_t bytes = storage_bytes(t), step = element_bytes(t);
  t->data = arena_alloc(a, bytes + 16);
  for (size_t i = 0; i < bytes / step; i++) number_store(type, (char *)t->data + i * step, values[i]);
  return t;
}

DLTensor *tensor_copy(arena *a, const DLTensor *rows) {
  DLTensor *t = arena_new(a, DLTensor);
  *t = *rows;
  size_t bytes = storage_bytes(rows);
  t->data = memcpy(arena_alloc(a, bytes + 16), (char *)rows->data + rows->byte_offset, bytes);
  t->byte_offset = 0;
  return t;
}

void *tensor_at(const DLTensor *t, int64_t b, int64_t h, int64_t n, int64_t c) {
  int64_t element = b * t->strides[0] + h * t->strides[1] + n * t->strides[2] + c * t->strides[3];
  return (char *)t->data + t->byte_offset + element * (int64_t)element_bytes(t);
}

/* Loops over all rows. */
#define EACH_ROW(t, b, h, n)                   \
  for (int64_t b = 0; b < (t)->shape[0]; b++)  \
    for (int64_t h = 0; h < (t)->shape[1]; h++) \
      for (int64_t n = 0; n < (t)->shape[2]; n++)

void tensor_randomize(DLTensor *rows, uint64_t *random) {
  number_type type = number_type_of(rows->dtype);
  EACH_ROW(rows, b, h, n)
    for (int64_t c = 0; c < rows->shape[3]; c++) number_store(type, tensor_at(rows, b, h, n, c), random_uniform(random, -1, 1));
}

bool tensor_identical(const DLTensor *x, const DLTensor *y) {
  size_t bytes = (size_t)x->shape[3] * element_bytes(x);
  EACH_ROW(x, b, h, n)
    if (memcmp(tensor_at(x, b, h, n, 0), tensor_at(y, b, h, n, 0), bytes) != 0) return false;
  return true;
}

bool tensor_gaps_identical(const DLTensor *x, const DLTensor *y) {
  size_t bytes = storage_bytes(x), row = (size_t)x->shape[3] * element_bytes(x);
  char *merged = malloc(bytes ? bytes : 1);
  if (!merged) return false;
  DLTensor view = *x;
  view.data = memcpy(merged, x->data, bytes);
  EACH_ROW(x, b, h, n) memcpy(tensor_at(&view, b, h, n, 0), tensor_at(y, b, h, n, 0), row);
  bool same = memcmp(merged, y->data, bytes) == 0;
  free(merged);
  return same;
}

/* ---- kernels ---- */

bool trial_runnable(const char *target) {
  if (strcmp(target, "native") == 0 || ptx_target_find(target)) return true;
#if defined(__x86_64__)
  if (strcmp(target, "x86-64-v2") == 0) return __builtin_cpu_supports("x86-64-v2");
  if (strcmp(target, "x86-64-v3") == 0) return __builtin_cpu_supports("x86-64-v3");
  if (strcmp(target, "x86-64-v4") == 0) return __builtin_cpu_supports("x86-64-v4");
#elif defined(__aarch64__)
  if (strcmp(target, "aarch64") == 0) return true;
#endif
  return false;
}

int trial_targets(arena *a, const char *list, const char ***names) {
  const target_info *known;
  int n_known = target_list(&known), count = 0;
  *names = arena_array(a, const char *, n_known + (list ? (int)strlen(list) : 0) + 1);
  if (!list) {
    for (int i = 0; i < n_known; i++)
      if (strcmp(known[i].name, "native") != 0 && !ptx_target_find(known[i].name) && trial_runnable(known[i].name)) (*names)[count++] = known[i].name;
    return count;
  }
  char *rest = arena_strdup(a, list);
  for (char *name = strtok(rest, ","); name; name = strtok(NULL, ",")) {
    bool is_known = false;
    for (int i = 0; i < n_known; i++) is_known = is_known || strcmp(known[i].name, name) == 0;
    if (!is_known || trial_runnable(name)) (*names)[count++] = name;
  }
  return count;
}

/* Few enough that a thread has several rows, enough that there are several groups of them. */
enum { PRETENDED_THREADS = 512 };

loaded_kernel *trial_load(arena *a, const spec *s, const char *targets, unsigned dtypes, int optimize) {
  if (targets && ptx_target_find(targets)) return run_load_threads(a, s, targets, dtypes, optimize, PRETENDED_THREADS);
  compile_options options = {.emit = EMIT_OBJ, .targets = targets, .dtypes = dtypes, .optimize = optimize};
  compile_output object = {0};
  if (!compile(a, s, &options, &object)) return NULL;
  loaded_kernel *loaded = run_load(object.data, object.size, s->name);
  free(object.data);
  return loaded;
}

static int64_t operand_size(const spec_operand *operand) {
  int64_t size = 1;
  for (int d = 0; d < operand->rank; d++) size *= operand->shape[d];
  return size;
}

trial_operands trial_random_operands(arena *a, const spec *s, number_type type, uint64_t *random) {
  trial_operands result = {arena_array(a, const double *, s->n_operands + 1), arena_array(a, const DLTensor *, s->n_operands + 1)};
  for (int i = 0; i < s->n_operands; i++) {
    const spec_operand *operand = &s->operand[i];
    int64_t size = operand_size(operand);
    double *values = arena_array(a, double, size + 1);
    for (int64_t j = 0; j < size; j++)
      values[j] = number_round(type, random_uniform(random, -operand->test_scale, operand->test_scale));
    result.values[i] = values;
    result.tensors[i] = tensor_contiguous(a, type, operand->rank, operand->shape, values);
  }
  return result;
}

trial_operands trial_given_operands(arena *a, const spec *s, const double *const *values) {
  return trial_rounded_operands(a, s, values, NUMBER_F64);
}

trial_operands trial_rounded_operands(arena *a, const spec *s, const double *const *values, number_type type) {
  trial_operands result = {arena_array(a, const double *, s->n_operands + 1), arena_array(a, const DLTensor *, s->n_operands + 1)};
  for (int i = 0; i < s->n_operands; i++) {
    int64_t size = operand_size(&s->operand[i]);
    double *rounded = arena_array(a, double, size + 1);
    for (int64_t j = 0; j < size; j++) rounded[j] = number_round(type, values[i][j]);
    result.values[i] = rounded;
    result.tensors[i] = tensor_contiguous(a, type, s->operand[i].rank, s->operand[i].shape, rounded);
  }
  return result;
}

int trial_call(const pegen_kernel *kernel, const DLTensor *positions, const trial_operands *operands, const DLTensor *q,
               DLTensor *q_out, const DLTensor *k, DLTensor *k_out, int parts) {
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = kernel->n_operands,
                     .q = q,
                     .k = k,
                     .q_out = q_out,
                     .k_out = k_out,
                     .positions = positions,
                     .operands = operands->tensors};
  size_t workspace = kernel->workspace ? kernel->workspace(&args) : 0;
  if (workspace) args.workspace = malloc(workspace);
  int error = 0;
  /* From the last part to the first: their order must not matter. */
  for (int part = parts - 1; part >= 0; part--) {
    int failed = kernel->encode(&args, part, parts);
    if (failed) error = failed;
  }
  free(args.workspace);
  return error;
}

/* ---- the reference, remembered ---- */

typedef struct remembered {
  long double *matrix; /* NULL: not yet asked for */
  long double scale;
} remembered;

struct oracle {
  arena *memory;
  const spec *spec;
  int64_t batches, tokens, step;
  const double *positions;
  const double *const *operands;
  remembered *block; /* [batches][tokens][heads][n_blocks] */
};

oracle *oracle_create(arena *a, const spec *s, int64_t batches, int64_t tokens, const double *positions,
                      const trial_operands *operands) {
  oracle *o = arena_new(a, oracle);
  *o = (oracle){a, s, batches, tokens, 1, positions, operands->values, NULL};
  o->block = arena_array(a, remembered, batches * tokens * s->heads * s->n_blocks + 1);
  return o;
}

void oracle_sample(oracle *o, int64_t step) { o->step = step; }

static bool is_sampled(const oracle *o, int64_t token) {
  return token <= o->spec->skip_tokens || token == o->tokens - 1 || token % o->step == 0;
}

static long double largest(const long double *entries, int count) {
  long double size = 0;
  for (int i = 0; i < count; i++)
    if (!(fabsl(entries[i]) <= size)) size = fabsl(entries[i]); /* NaN stays */
  return size;
}

/* The product over axes of the largest entry of each axis' action on vectors, to the power of the highest
 * grade that is built from minors: how large numbers get on the way to a matrix that may be small again.
 * Above half the dimensions a grade is as small as its complement, unless the metric is degenerate. */
static long double growth(const spec *s, const double *positions, const double *const *operands, int head, int block) {
  int n = s->algebra.p + s->algebra.q + s->algebra.r, power = 1;
  for (int i = 0; i < s->n_components; i++) {
    int grade = __builtin_popcount(s->component[i].blade);
    if (s->algebra.r == 0 && n - grade < grade) grade = n - grade;
    if (grade > power) power = grade;
  }
  long double product = 1, matrix[SPEC_MAX_DIMENSIONS * SPEC_MAX_DIMENSIONS];
  spec one = *s;
  one.amplitude = 1;
  one.combine = COMBINE_SUM;
  one.n_components = n;
  for (int i = 0; i < n; i++) one.component[i] = (spec_component){1u << i, 1};
  bool together = s->combine == COMBINE_SUM || s->combine == COMBINE_MEAN;
  if (!together) one.n_axes = 1;
  for (int axis = 0; axis < (together ? 1 : s->n_axes); axis++) {
    if (!together) {
      one.angle[0] = s->angle[axis];
      one.generator[0] = s->generator[axis];
    }
    reference_block(&one, positions, operands, head, block, matrix);
    long double size = largest(matrix, n * n);
    if (size > 1) product *= size;
  }
  return powl(product, power);
}

const long double *oracle_matrix(oracle *o, int64_t batch, int64_t token, int head, int block, long double *scale) {
  const spec *s = o->spec;
  if (o->batches == 1) batch = 0;
  if (s->heads == 1) head = 0;
  remembered *r = &o->block[((batch * o->tokens + token) * s->heads + head) * s->n_blocks + block];
  if (!r->matrix) {
    int size = s->n_components * s->n_components;
    double grid[SPEC_MAX_AXES];
    const double *positions = o->positions ? o->positions + (batch * o->tokens + token) * s->n_axes : grid;
    if (!o->positions) reference_grid(s, token, grid);
    r->matrix = arena_array(o->memory, long double, size);
    reference_block(s, positions, o->operands, head, block, r->matrix);
    r->scale = fabsl(s->inverse ? 1 / (long double)s->amplitude : (long double)s->amplitude);
    if (s->algebra.q || s->algebra.r) r->scale *= growth(s, positions, o->operands, head, block);
  }
  *scale = r->scale;
  return r->matrix;
}

/* Which channels belong to a block. */
static bool *blocked_channels(arena *a, const spec *s) {
  bool *blocked = arena_array(a, bool, s->head_dim);
  for (int i = 0; i < s->n_components * s->n_blocks; i++) blocked[s->channel[i]] = true;
  return blocked;
}

static void note(trial_error *worst, long double error, bool spoilt, int64_t b, int64_t h, int64_t n, int channel, double got,
                 long double exact) {
  if (isnan(error)) error = INFINITY;
  if (worst->spoilt || (!spoilt && error <= worst->error)) return;
  *worst = (trial_error){error, spoilt, b, h, n, channel, got, exact};
}

static void compare_block(oracle *o, const DLTensor *in, const DLTensor *out, int64_t b, int64_t h, int64_t n, int block,
                          trial_error *worst) {
  const spec *s = o->spec;
  number_type type = number_type_of(in->dtype);
  long double scale, norm = 0, x[SPEC_MAX_BLADES];
  const long double *matrix = oracle_matrix(o, b, n, (int)h, block, &scale);
  for (int j = 0; j < s->n_components; j++) {
    x[j] = number_load(type, tensor_at(in, b, h, n, s->channel[j * s->n_blocks + block]));
    norm += x[j] * x[j];
  }
  norm = sqrtl(norm);
  for (int i = 0; i < s->n_components; i++) {
    int channel = s->channel[i * s->n_blocks + block];
    long double exact = 0;
    for (int j = 0; j < s->n_components; j++) exact += matrix[i * s->n_components + j] * x[j];
    double got = number_load(type, tensor_at(out, b, h, n, channel));
    long double error = fabsl(got - exact);
    if (type != NUMBER_F32) error = fmaxl(0, error - number_half_ulp(type, exact));
    if (error > 0) error /= scale * norm;
    note(worst, error, !isfinite(got), b, h, n, channel, got, exact);
  }
}

void trial_compare_rows(oracle *o, const DLTensor *in, const DLTensor *out, trial_error *worst) {
  const spec *s = o->spec;
  size_t bytes = element_bytes(in);
  number_type type = number_type_of(in->dtype);
  arena *scratch = arena_create();
  const bool *blocked = blocked_channels(scratch, s);
  EACH_ROW(in, b, h, n) {
    if (!is_sampled(o, n)) continue;
    bool skipped = n < s->skip_tokens;
    for (int c = 0; c < s->head_dim; c++) {
      const void *from = tensor_at(in, b, h, n, c), *to = tensor_at(out, b, h, n, c);
      if ((skipped || !blocked[c]) && memcmp(from, to, bytes) != 0)
        note(worst, 0, true, b, h, n, c, number_load(type, to), number_load(type, from));
    }
    for (int block = 0; block < s->n_blocks && !skipped; block++) compare_block(o, in, out, b, h, n, block, worst);
  }
  arena_destroy(scratch);
}

DLTensor *trial_unit_rows(arena *a, const spec *s, number_type type, int64_t heads, int64_t tokens) {
  DLTensor *t = tensor_rows(a, type, ROWS_BHND, s->n_components, heads, tokens, s->head_dim);
  memset(t->data, 0, storage_bytes(t));
  EACH_ROW(t, b, h, n)
    for (int block = 0; block < s->n_blocks; block++) number_store(type, tensor_at(t, b, h, n, s->channel[b * s->n_blocks + block]), 1);
  return t;
}

void trial_compare_entries(oracle *o, const DLTensor *out, int64_t from, int64_t to, trial_error *worst) {
  const spec *s = o->spec;
  number_type type = number_type_of(out->dtype);
  EACH_ROW(out, b, h, n) {
    if (n < from || n >= to || n < s->skip_tokens || !is_sampled(o, n)) continue;
    for (int block = 0; block < s->n_blocks; block++) {
      long double scale;
      /* The batch only says which column; positions are shared. */
      const long double *matrix = oracle_matrix(o, 0, n, (int)h, block, &scale);
      for (int i = 0; i < s->n_components; i++) {
        int channel = s->channel[i * s->n_blocks + block];
        double got = number_load(type, tensor_at(out, b, h, n, channel));
        long double exact = matrix[i * s->n_components + b];
        /* Bounds are absolute: a factor below 1 does not tighten them. */
        note(worst, fabsl(got - exact) / fmaxl(1, scale), !isfinite(got), b, h, n, channel, got, exact);
      }
    }
  }
}

const char *trial_error_text(arena *a, const trial_error *e) {
  return arena_printf(a, "batch %lld head %lld token %lld channel %d: got %.9g, exact %.9Lg, error %.3Lg%s", (long long)e->batch,
                      (long long)e->head, (long long)e->token, e->channel, e->got, e->exact, e->error,
                      e->spoilt ? " (not finite, or a channel that passes through was changed)" : "");
}

double trial_largest_phase(const spec *s, const double *positions, const trial_operands *operands) {
  double largest_phase = 0;
  for (int head = 0; head < s->heads; head++)
    for (int block = 0; block < s->n_blocks; block++) {
      expr_environment env = {.head = head, .block = block, .blocks = s->n_blocks, .positions = positions, .operands = operands->values};
      for (int axis = 0; axis < s->n_axes; axis++) {
        double square = 0;
        for (int i = 0; i < s->generator[axis].count; i++) square += pow(expr_eval(s->generator[axis].coefficient[i], &env), 2);
        largest_phase = fmax(largest_phase, fabs(expr_eval(s->angle[axis], &env)) * sqrt(square));
      }
    }
  return largest_phase;
}
