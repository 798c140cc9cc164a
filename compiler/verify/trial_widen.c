/* verify/trial_widen: scores against the definition; see verify/trial_widen.h. */
#include "verify/trial_widen.h"

#include "plan/widen.h"
#include "verify/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

long double widen_trial_bound(const spec *s, number_type type) {
  if (type == NUMBER_F32) return 0x1p-18L;
  return s->polynomial->split_columns ? ldexpl(1, -widen_split_bits(s)) : 0x1p-5L;
}

static int64_t out_dim(const pegen_kernel *kernel, number_type type) {
  return kernel->widths ? kernel->widths[type].out_dim : kernel->out_dim;
}

/* The middle of positions that calls give, where the kernel counts from there. */
static void set_origin(arena *a, widen_trial *t, const pegen_kernel *kernel, int64_t tokens) {
  const spec *s = t->spec;
  int64_t encoded = tokens - s->skip_tokens, middle = s->skip_tokens + encoded / 2;
  t->from = s->polynomial->origin;
  if (!kernel->has_origin || !t->positions || encoded < 1) return;
  double *from = arena_array(a, double, s->n_axes);
  for (int axis = 0; axis < s->n_axes; axis++) {
    double x[3];
    for (int i = 0; i < 3; i++) x[i] = t->q_values[(middle + (i - 1) * (encoded / 3)) * s->n_axes + axis];
    qsort(x, 3, sizeof *x, number_compare);
    from[axis] = x[1];
  }
  t->from = from;
  t->origin = tensor_contiguous(a, NUMBER_F64, 1, (int64_t[]){s->n_axes}, from);
}

widen_trial widen_trial_create(arena *a, const spec *s, const pegen_kernel *kernel, number_type type,
                               number_type input_type, row_order order, const widen_shape *shape,
                               const double *positions, const double *k_positions, uint64_t *random) {
  widen_trial t = {.spec = s, .type = type, .q_values = positions, .k_values = k_positions ? k_positions : positions};
  int64_t width = out_dim(kernel, type);
  t.q = tensor_rows(a, type, order, shape->batch, shape->heads, shape->tokens, s->head_dim);
  t.k = tensor_rows(a, type, order, shape->batch, shape->k_heads, shape->k_tokens, s->head_dim);
  t.q_out = tensor_rows(a, type, order, shape->batch, shape->heads, shape->tokens, width);
  t.k_out = tensor_rows(a, type, order, shape->batch, shape->k_heads, shape->k_tokens, width);
  tensor_randomize(t.q, random);
  tensor_randomize(t.k, random);
  if (positions) t.positions = tensor_contiguous(a, NUMBER_F64, 2, (int64_t[]){shape->tokens, s->n_axes}, positions);
  if (k_positions)
    t.k_positions = tensor_contiguous(a, NUMBER_F64, 2, (int64_t[]){shape->k_tokens, s->n_axes}, k_positions);
  set_origin(a, &t, kernel, shape->tokens);
  t.operands = trial_random_operands(a, s, NUMBER_F32, random);
  t.inputs = trial_random_inputs(a, s, input_type, shape->batch, shape->heads, shape->tokens, random);
  return t;
}

int widen_trial_call(const pegen_kernel *kernel, const widen_trial *t, DLTensor *q_out, DLTensor *k_out, int which,
                     int parts) {
  pegen_args args = trial_args(kernel, &t->operands, t->positions);
  if (which & 1) args.q = t->q, args.q_out = q_out;
  if (which & 2) args.k = t->k, args.k_out = k_out;
  args.k_positions = t->k_positions;
  args.inputs = t->inputs.tensors;
  args.origin = which == 3 ? NULL : t->origin;
  return trial_run(&args, NULL, kernel->encode, NULL, parts);
}

/* Channels that are moved, and the appended ones that pass through or pad. */
static void compare_channels(const widen_trial *t, const DLTensor *in, const DLTensor *out, trial_error *worst) {
  int64_t d = in->shape[3], bytes = in->dtype.bits / 8;
  EACH_NUMBER(out, b, h, n, c) {
    double got = tensor_get(out, b, h, n, c);
    bool is_moved = c < d, is_wrong = n < t->spec->skip_tokens && got != 0;
    if (is_moved) is_wrong = memcmp(tensor_at(in, b, h, n, c), tensor_at(out, b, h, n, c), (size_t)bytes) != 0;
    if (is_wrong) trial_note(worst, (trial_error){0, true, b, h, n, c, got, is_moved ? tensor_get(in, b, h, n, c) : 0});
  }
}

static long double dot(const DLTensor *x, const DLTensor *y, int64_t b, const int64_t *h, const int64_t *n) {
  long double sum = 0;
  for (int64_t c = 0; c < x->shape[3]; c++)
    sum += (long double)tensor_get(x, b, h[0], n[0], c) * tensor_get(y, b, h[1], n[1], c);
  return sum;
}

/* One query: the spread of the differences over its keys, against its largest score. */
static void compare_row(arena *a, const widen_trial *t, const DLTensor *q_out, const DLTensor *k_out, int64_t b,
                        int64_t h, int64_t i, trial_error *worst) {
  const spec *s = t->spec;
  const double *rows[SPEC_MAX_INPUTS];
  double grid[2][SPEC_MAX_AXES], delta[SPEC_MAX_AXES];
  int64_t keys = t->k->shape[2], heads[2] = {h, h * t->k->shape[1] / t->q->shape[1]};
  long double largest = 0, low = INFINITY, high = -INFINITY, *difference = arena_array(a, long double, keys + 1);
  trial_input_rows(s, &t->inputs, (b * t->q->shape[1] + h) * t->q->shape[2] + i, rows);
  const double *at = i >= s->skip_tokens ? reference_place(s, t->q_values, i, grid[0]) : NULL;
  for (int64_t j = 0; j < keys; j++) {
    int64_t tokens[2] = {i, j};
    long double exact = dot(t->q, t->k, b, heads, tokens);
    if (i >= s->skip_tokens && j >= s->skip_tokens) {
      const double *key = reference_place(s, t->k_values, j, grid[1]);
      for (int axis = 0; axis < s->n_axes; axis++) delta[axis] = key[axis] - at[axis];
      exact += reference_bias(s, delta, t->operands.values, rows, (int)(s->heads > 1 ? h : 0));
    }
    difference[j] = dot(q_out, k_out, b, heads, tokens) - exact;
    if (!isfinite(difference[j]))
      trial_note(worst, (trial_error){0, true, b, h, i, (int)j, (double)(difference[j] + exact), exact});
    largest = fmaxl(largest, fabsl(exact));
    low = fminl(low, difference[j]);
    high = fmaxl(high, difference[j]);
  }
  bool keeps = plan_widen_keeps_constant(s);
  long double middle = keeps ? 0 : (low + high) / 2;
  long double error = fmaxl(fabsl(high - middle), fabsl(low - middle)) / largest;
  trial_note(worst, (trial_error){error, false, b, h, i, 0, (double)high, low});
}

void widen_trial_compare(const widen_trial *t, const DLTensor *q_out, const DLTensor *k_out, trial_error *worst) {
  enum { ENOUGH = 24 }; /* the reference computes every term of every pair */
  const spec *s = t->spec;
  int64_t step = 1 + t->q->shape[2] / ENOUGH;
  arena *scratch = arena_create();
  compare_channels(t, t->q, q_out, worst);
  compare_channels(t, t->k, k_out, worst);
  for (int64_t b = 0; b < t->q->shape[0]; b++)
    for (int64_t h = 0; h < t->q->shape[1]; h++)
      for (int64_t i = 0; i < t->q->shape[2]; i += i < s->skip_tokens ? 1 : step)
        compare_row(scratch, t, q_out, k_out, b, h, i, worst);
  arena_destroy(scratch);
}
