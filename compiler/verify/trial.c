/* verify/trial: kernels on tensors, compared with the reference; see verify/trial.h. */
#include "verify/trial.h"

#include "base/diag.h"
#include "compile.h"
#include "gpu/target.h"
#include "verify/kinks.h"
#include "verify/reference.h"
#include "verify/run_threads.h"

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

size_t tensor_bytes(const DLTensor *t) {
  size_t last = 0;
  for (int i = 0; i < t->ndim; i++) {
    if (t->shape[i] == 0) return 0;
    last += (size_t)((t->shape[i] - 1) * t->strides[i]);
  }
  return (last + 1) * element_bytes(t);
}

DLTensor *tensor_rows(arena *a, number_type type, row_order order, int64_t batch, int64_t heads, int64_t tokens,
                      int64_t channels) {
  DLTensor *t = tensor_new(a, type, 4, (int64_t[]){batch, heads, tokens, channels});
  if (order == ROWS_BNHD) {
    t->strides[1] = channels;
    t->strides[2] = channels * heads;
  } else if (order == ROWS_GAPS) {
    t->strides[2] = channels + 3;
    t->strides[1] = tokens * t->strides[2] + 5;
    t->strides[0] = heads * t->strides[1] + 7;
  }
  size_t bytes = tensor_bytes(t);
  t->data = arena_alloc(a, bytes + 16);
  memset(t->data, 0x5a, bytes);
  return t;
}

DLTensor *tensor_contiguous(arena *a, number_type type, int rank, const int64_t *shape, const double *values) {
  DLTensor *t = tensor_new(a, type, rank, shape);
  size_t bytes = tensor_bytes(t), step = element_bytes(t);
  t->data = arena_alloc(a, bytes + 16);
  for (size_t i = 0; i < bytes / step; i++) number_store(type, (char *)t->data + i * step, values ? values[i] : 0);
  return t;
}

int64_t tensor_elements(const DLTensor *t) {
  int64_t count = 1;
  for (int i = 0; i < t->ndim; i++) count *= t->shape[i];
  return count;
}

DLTensor *tensor_copy(arena *a, const DLTensor *rows) {
  DLTensor *t = arena_new(a, DLTensor);
  *t = *rows;
  size_t bytes = tensor_bytes(rows);
  t->data = memcpy(arena_alloc(a, bytes + 16), (char *)rows->data + rows->byte_offset, bytes);
  t->byte_offset = 0;
  return t;
}

void *tensor_at(const DLTensor *t, int64_t b, int64_t h, int64_t n, int64_t c) {
  int64_t element = b * t->strides[0] + h * t->strides[1] + n * t->strides[2] + c * t->strides[3];
  return (char *)t->data + t->byte_offset + element * (int64_t)element_bytes(t);
}

double tensor_get(const DLTensor *t, int64_t b, int64_t h, int64_t n, int64_t c) {
  return number_load(number_type_of(t->dtype), tensor_at(t, b, h, n, c));
}

void tensor_set(const DLTensor *t, int64_t b, int64_t h, int64_t n, int64_t c, double value) {
  number_store(number_type_of(t->dtype), tensor_at(t, b, h, n, c), value);
}

const double *tensor_head(arena *a, const DLTensor *t, int64_t b, int64_t h) {
  double *values = arena_array(a, double, t->shape[2] * t->shape[3] + 1), *at = values;
  for (int64_t n = 0; n < t->shape[2]; n++)
    for (int64_t c = 0; c < t->shape[3]; c++) *at++ = tensor_get(t, b, h, n, c);
  return values;
}

DLTensor *tensor_like(arena *a, const DLTensor *rows, number_type type, row_order order) {
  const int64_t *shape = rows->shape;
  return tensor_rows(a, type, order, shape[0], shape[1], shape[2], shape[3]);
}

DLTensor *tensor_converted(arena *a, const DLTensor *rows, number_type type, row_order order, float factor) {
  DLTensor *to = tensor_like(a, rows, type, order);
  EACH_NUMBER(rows, b, h, n, c) tensor_set(to, b, h, n, c, (float)tensor_get(rows, b, h, n, c) * factor);
  return to;
}

void tensor_randomize(DLTensor *rows, uint64_t *random) {
  EACH_NUMBER(rows, b, h, n, c) tensor_set(rows, b, h, n, c, random_uniform(random, -1, 1));
}

bool tensor_identical(const DLTensor *x, const DLTensor *y) {
  size_t bytes = (size_t)x->shape[3] * element_bytes(x);
  EACH_ROW(x, b, h, n)
  if (memcmp(tensor_at(x, b, h, n, 0), tensor_at(y, b, h, n, 0), bytes) != 0) return false;
  return true;
}

bool tensor_gaps_identical(const DLTensor *x, const DLTensor *y) {
  size_t bytes = tensor_bytes(x), row = (size_t)x->shape[3] * element_bytes(x);
  char *merged = arena_must(malloc(bytes ? bytes : 1));
  DLTensor view = *x;
  view.data = memcpy(merged, x->data, bytes);
  EACH_ROW(x, b, h, n) memcpy(tensor_at(&view, b, h, n, 0), tensor_at(y, b, h, n, 0), row);
  bool same = memcmp(merged, y->data, bytes) == 0;
  free(merged);
  return same;
}

/* ---- kernels ---- */

bool trial_runnable(const char *target) {
  if (strcmp(target, "native") == 0 || gpu_target_find(target)) return true;
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
      if (strcmp(known[i].name, "native") != 0 && !gpu_target_find(known[i].name) && trial_runnable(known[i].name))
        (*names)[count++] = known[i].name;
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

loaded_kernel *trial_load_as(arena *a, const spec *s, const compile_options *options) {
  compile_output object = {0};
  if (!compile(a, s, options, &object)) return NULL;
  loaded_kernel *loaded = run_load(object.data, object.size, s->name);
  free(object.data);
  return loaded;
}

loaded_kernel *trial_load(arena *a, const spec *s, const char *targets, unsigned dtypes, int optimize) {
  if (targets && gpu_target_find(targets))
    return run_load_threads(a, s, targets, dtypes, optimize, PRETENDED_THREADS, false);
  return trial_load_as(
      a, s, &(compile_options){.targets = targets, .dtypes = dtypes, .optimize = optimize, .no_gradients = true});
}

loaded_kernel *trial_load_gradients(arena *a, const spec *s, const char *targets, unsigned dtypes, int optimize) {
  if (targets && gpu_target_find(targets))
    return run_load_threads(a, s, targets, dtypes, optimize, PRETENDED_THREADS, true);
  const form *f = form_of(s);
  return trial_load_as(
      a, s,
      &(compile_options){
          .targets = targets, .dtypes = dtypes, .optimize = optimize, .tangents = f && f->kind == FORM_ATTENTION});
}

static int64_t input_size(const spec_input *in) { return spec_input_numbers(in); }

void trial_typical_inputs(arena *a, const spec *s, uint64_t *random, const double **rows) {
  bool is_asked = spec_turns_rows(s) || (s->pairwise && !s->polynomial);
  for (int i = 0; is_asked && i < s->n_inputs; i++) {
    const spec_input *in = &s->input[i];
    double *row = arena_array(a, double, input_size(in));
    for (int64_t k = 0; k < input_size(in); k++)
      row[k] = number_round(NUMBER_F32, random_uniform(random, -in->test_scale, in->test_scale));
    rows[i] = row;
  }
}

static trial_operands new_operands(arena *a, const spec *s) {
  return (trial_operands){arena_array(a, const double *, s->n_operands + s->n_inputs + 1),
                          arena_array(a, const DLTensor *, s->n_operands + 1), NULL};
}

trial_operands trial_random_operands(arena *a, const spec *s, number_type type, uint64_t *random) {
  trial_operands result = new_operands(a, s);
  double **drawn = arena_array(a, double *, s->n_operands + s->n_inputs + 1);
  for (int i = 0; i < s->n_operands; i++) {
    const spec_operand *operand = &s->operand[i];
    int64_t size = spec_operand_elements(operand);
    double *values = arena_array(a, double, size + 1);
    for (int64_t j = 0; j < size; j++)
      values[j] = number_round(type, random_uniform(random, -operand->test_scale, operand->test_scale));
    result.values[i] = drawn[i] = values;
  }
  for (int i = 0; i < s->n_inputs; i++) drawn[s->n_operands + i] = arena_array(a, double, input_size(&s->input[i]));
  kinks_cross(s, type, random, drawn);
  for (int i = 0; i < s->n_operands; i++)
    result.tensors[i] = tensor_contiguous(a, type, s->operand[i].rank, s->operand[i].shape, drawn[i]);
  trial_typical_inputs(a, s, random, result.values + s->n_operands);
  return result;
}

trial_inputs trial_random_inputs(arena *a, const spec *s, number_type type, int64_t batch, int64_t heads,
                                 int64_t tokens, uint64_t *random) {
  trial_inputs result = {arena_array(a, const double *, s->n_inputs + 1),
                         arena_array(a, const DLTensor *, s->n_inputs + 1)};
  for (int i = 0; i < s->n_inputs; i++) {
    const spec_input *in = &s->input[i];
    int64_t size = input_size(in), count = batch * heads * tokens * size;
    double *values = arena_array(a, double, count + 1);
    for (int64_t k = 0; k < count; k++)
      values[k] = number_round(type, random_uniform(random, -in->test_scale, in->test_scale));
    result.values[i] = values;
    result.tensors[i] = tensor_contiguous(a, type, in->size ? 4 : 3, (int64_t[]){batch, heads, tokens, size}, values);
  }
  return result;
}

trial_inputs trial_pair_inputs(arena *a, const spec *s, number_type type, const int64_t *q_sizes, int64_t keys,
                               uint64_t *random) {
  trial_inputs result = {arena_array(a, const double *, s->n_inputs + 1),
                         arena_array(a, const DLTensor *, s->n_inputs + 1)};
  for (int i = 0; i < s->n_inputs; i++) {
    spec one = *s;
    spec_input in = s->input[i];
    one.n_inputs = 1;
    one.input = &in;
    if (spec_input_is_pair(&in)) in.size = keys;
    trial_inputs of = trial_random_inputs(a, &one, spec_input_is_of_pairs(s, i) ? NUMBER_F32 : type, q_sizes[0],
                                          q_sizes[1], s->input[i].of_keys ? keys : q_sizes[2], random);
    result.values[i] = of.values[0];
    result.tensors[i] = of.tensors[0];
  }
  return result;
}

void trial_input_rows(const spec *s, const trial_inputs *inputs, int64_t query, const double **rows) {
  for (int i = 0; i < s->n_inputs; i++) rows[i] = inputs->values[i] + query * input_size(&s->input[i]);
}

trial_operands trial_given_operands(arena *a, const spec *s, const double *const *values) {
  return trial_rounded_operands(a, s, values, NUMBER_F64);
}

trial_operands trial_rounded_operands(arena *a, const spec *s, const double *const *values, number_type type) {
  trial_operands result = new_operands(a, s);
  uint64_t random = 1;
  trial_typical_inputs(a, s, &random, result.values + s->n_operands);
  for (int i = 0; i < s->n_operands; i++) {
    int64_t size = spec_operand_elements(&s->operand[i]);
    double *rounded = arena_array(a, double, size + 1);
    for (int64_t j = 0; j < size; j++) rounded[j] = number_round(type, values[i][j]);
    result.values[i] = rounded;
    result.tensors[i] = tensor_contiguous(a, type, s->operand[i].rank, s->operand[i].shape, rounded);
  }
  return result;
}

int trial_run(pegen_args *args, size_t (*needs)(const pegen_args *args), trial_entry *entry, trial_entry *finish,
              int parts) {
  int error = 0;
  args->workspace_bytes = needs ? needs(args) : 0;
  /* There is one also where the call is refused, so that the entry says why. */
  if (needs) args->workspace = arena_must(malloc(args->workspace_bytes + 8));
  for (int part = parts - 1; part >= 0 && !error; part--) error = entry(args, part, parts);
  for (int part = parts - 1; part >= 0 && !error && finish; part--) error = finish(args, part, parts);
  free(args->workspace);
  return error;
}

pegen_args trial_args(const pegen_kernel *kernel, const trial_operands *operands, const DLTensor *positions) {
  return (pegen_args){.struct_size = sizeof(pegen_args),
                      .n_operands = kernel->n_operands,
                      .operands = operands->tensors,
                      .positions = positions,
                      .n_inputs = kernel->n_inputs,
                      .inputs = operands->inputs};
}

int trial_call(const pegen_kernel *kernel, const DLTensor *positions, const trial_operands *operands, const DLTensor *q,
               DLTensor *q_out, const DLTensor *k, DLTensor *k_out, int parts) {
  return trial_call_scaled(kernel, positions, operands, q, q_out, k, k_out, NULL, NULL, parts);
}

const DLTensor **trial_repeated_inputs(arena *a, const pegen_kernel *kernel, const trial_operands *operands,
                                       int64_t tokens) {
  const DLTensor **list = arena_array(a, const DLTensor *, kernel->n_inputs + 1);
  for (int i = 0; i < kernel->n_inputs; i++) {
    int64_t size = kernel->inputs[i].size ? kernel->inputs[i].size : 1;
    DLTensor *row =
        tensor_contiguous(a, NUMBER_F32, 4, (int64_t[]){1, 1, 1, size}, operands->values[kernel->n_operands + i]);
    row->shape[2] = tokens;
    row->strides[2] = 0;
    row->ndim = kernel->inputs[i].size ? 4 : 3;
    list[i] = row;
  }
  return list;
}

int trial_call_scaled(const pegen_kernel *kernel, const DLTensor *positions, const trial_operands *operands,
                      const DLTensor *q, DLTensor *q_out, const DLTensor *k, DLTensor *k_out, const DLTensor *q_scale,
                      const DLTensor *k_scale, int parts) {
  pegen_args args = trial_args(kernel, operands, positions);
  arena *scratch = arena_create();
  args.q = q, args.q_out = q_out, args.q_scale = q_scale;
  args.k = k, args.k_out = k_out, args.k_scale = k_scale;
  if (kernel->n_inputs && !args.inputs)
    args.inputs = trial_repeated_inputs(scratch, kernel, operands, (q ? q : k)->shape[2]);
  int error = trial_run(&args, kernel->workspace, kernel->encode, NULL, parts);
  arena_destroy(scratch);
  return error;
}

/* ---- phases ---- */

double trial_largest_phase(const spec *s, const double *positions, const trial_operands *operands) {
  double largest_phase = 0, own[SPEC_MAX_AXES];
  for (int i = 0; i < s->n_parts; i++) {
    reference_place_of_part(&s->part[i], positions, own);
    largest_phase = fmax(largest_phase, trial_largest_phase(s->part[i].of, own, operands));
  }
  if (s->n_parts) return largest_phase;
  for (int head = 0; head < s->heads; head++)
    for (int block = 0; block < s->n_blocks; block++) {
      if (s->dense) {
        largest_phase = fmax(largest_phase, (double)reference_norm(s, positions, operands->values, head, block));
        continue;
      }
      expr_environment env = reference_environment(s, positions, operands->values, head, block);
      for (int axis = 0; axis < s->n_axes; axis++) {
        double square = 0;
        for (int i = 0; i < s->generator[axis].count; i++)
          square += pow(expr_eval(s->generator[axis].coefficient[i], &env), 2);
        largest_phase = fmax(largest_phase, fabs(expr_eval(s->angle[axis], &env)) * sqrt(square));
      }
    }
  return largest_phase;
}

double trial_unit(const spec *s, const trial_operands *operands) {
  const double most = 0x1p24;
  double unit = 1, far[SPEC_MAX_AXES];
  for (int step = 0; step < 64; step++) {
    for (int axis = 0; axis < s->n_axes; axis++) far[axis] = 16 * unit;
    double phase = trial_largest_phase(s, far, operands);
    if (!(phase > most)) break;
    unit = ldexp(unit, ilogb(most) - ilogb(phase) - 1);
  }
  return unit;
}

void trial_warn_of_phases(const spec *s, const trial_operands *operands) {
  const double phase_to_20_bits = 0x1p33, usual_extent = 0x1p16;
  double one[SPEC_MAX_AXES];
  for (int axis = 0; axis < s->n_axes; axis++) one[axis] = 1;
  double rate = trial_largest_phase(s, one, operands);
  if (rate * usual_extent > phase_to_20_bits)
    diag_warning(s->file, s->line,
                 "'%s' turns by up to %.3g radians at position 1; float64 keeps phases to 2^-20 radians up to %.3g, "
                 "which is reached at position %.3g",
                 s->name, rate, phase_to_20_bits, phase_to_20_bits / rate);
}
