/* verify/trial_widen_backward: see verify/trial_widen_backward.h. */
#include "verify/trial_widen_backward.h"

#include "verify/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KEYS = 12 }; /* of a query, whose scores have gradients */

long double widen_gradients_bound(number_type type) {
  return type == NUMBER_F32 ? 0x1p-18L : 0x1p-18L + number_half_ulp(type, 1);
}

/* ---- what comes in ---- */

static bool is_sampled(const widen_trial *t, int64_t token, int64_t step) {
  return token % step == 0 || token == t->q->shape[2] - 1 || token <= t->spec->skip_tokens;
}

/* Neighbours differ by their number, the last takes it back. */
static void choose_scores(double *numbers, int64_t keys, uint64_t *random) {
  int64_t step = keys / MOST_KEYS + 1, last = (int64_t)random_below(random, (uint64_t)step);
  double sum = 0;
  for (int64_t key = last; key + step < keys; key += step) {
    sum += numbers[key] = rint(64 * random_uniform(random, -1, 1)) / 64;
    last = key + step;
  }
  numbers[last] = -sum;
}

static const double *choose_of_scores(arena *a, const widen_trial *t, int64_t step, uint64_t *random) {
  int64_t rows = t->q->shape[0] * t->q->shape[1] * t->q->shape[2], keys = t->k->shape[2];
  double *numbers = arena_array(a, double, rows *keys + 1);
  for (int64_t row = 0; row < rows; row++)
    if (is_sampled(t, row % t->q->shape[2], step)) choose_scores(numbers + row * keys, keys, random);
  return numbers;
}

/* A row gains the sum of the others times their numbers. */
static void add_row(double number, const DLTensor *other, int64_t b, int64_t h, int64_t n, double *sum) {
  for (int64_t c = 0; c < other->shape[3]; c++) sum[c] += number * tensor_get(other, b, h, n, c);
}

static void store_row(const double *sum, DLTensor *to, int64_t b, int64_t h, int64_t n) {
  for (int64_t c = 0; c < to->shape[3]; c++) tensor_set(to, b, h, n, c, sum[c]);
}

static void fill_incoming(arena *a, widen_gradients *g) {
  const widen_trial *t = &g->forward;
  const int64_t *q = t->q->shape, *k = t->k->shape;
  int64_t width = g->q_out->shape[3], group = q[1] / k[1];
  double *of_key = arena_array(a, double, q[0] * k[1] * k[2] * width + 1), *sum = arena_array(a, double, width + 1);
  const double *number = g->of_score;
  for (int64_t b = 0; b < q[0]; b++)
    for (int64_t h = 0; h < q[1]; h++)
      for (int64_t i = 0; i < q[2]; i++) {
        memset(sum, 0, sizeof *sum * (size_t)width);
        for (int64_t j = 0; j < k[2]; j++, number++) {
          if (*number == 0) continue;
          add_row(*number, t->k_out, b, h / group, j, sum);
          add_row(*number, t->q_out, b, h, i, of_key + ((b * k[1] + h / group) * k[2] + j) * width);
        }
        store_row(sum, g->q_out, b, h, i);
      }
  for (int64_t row = 0; row < q[0] * k[1] * k[2]; row++)
    store_row(of_key + row * width, g->k_out, row / (k[1] * k[2]), row / k[2] % k[1], row % k[2]);
}

int widen_gradients_fill(arena *a, widen_gradients *g, const widen_trial *forward, const pegen_kernel *kernel,
                         int64_t step, row_order order, uint64_t *random) {
  const spec *s = forward->spec;
  const int64_t *q = forward->q->shape, *k = forward->k->shape;
  number_type type = forward->type;
  *g = (widen_gradients){.forward = *forward};
  int error = widen_trial_call(kernel, forward, forward->q_out, forward->k_out, 3, 1);
  g->of_score = choose_of_scores(a, forward, step, random);
  g->q_out = tensor_rows(a, type, order, q[0], q[1], q[2], forward->q_out->shape[3]);
  g->k_out = tensor_rows(a, type, order, k[0], k[1], k[2], forward->k_out->shape[3]);
  fill_incoming(a, g);
  attention_gradients *out = &g->out;
  out->forward = (attention_trial){
      .spec = s, .inputs = forward->inputs, .positions = forward->positions, .k_positions = forward->k_positions};
  out->q = tensor_rows(a, type, order, q[0], q[1], q[2], s->head_dim);
  out->k = tensor_rows(a, type, order, k[0], k[1], k[2], s->head_dim);
  if (s->n_operands > 0) out->operands = arena_array(a, DLTensor *, s->n_operands);
  for (int i = 0; i < s->n_operands; i++) out->operands[i] = attention_gradients_operand(a, s, i);
  if (s->n_inputs > 0) out->inputs = arena_array(a, DLTensor *, s->n_inputs);
  for (int i = 0; i < s->n_inputs; i++) out->inputs[i] = attention_gradients_input(a, &out->forward, i);
  attention_gradients_of_positions(a, out, NUMBER_F64);
  return error;
}

int widen_gradients_call(const pegen_kernel *kernel, const widen_gradients *g, const attention_gradients *out,
                         uint32_t flags, int parts) {
  const widen_trial *t = &g->forward;
  pegen_grad_args grad = attention_gradients_args(out);
  grad.flags = flags;
  grad.q_out = g->q_out;
  grad.k_out = g->k_out;
  pegen_args args = trial_args(kernel, &t->operands, t->positions);
  args.k_positions = t->k_positions;
  args.inputs = t->inputs.tensors;
  args.grad = &grad;
  return trial_run(&args, kernel->encode_backward_workspace, kernel->encode_backward,
                   out->operands ? kernel->encode_backward_finish : NULL, parts);
}

/* ---- what the reference says ---- */

/* Positions of all tokens, [tokens][axes]; of those that are skipped anything. */
static const double *places_of(arena *a, const widen_trial *t, const double *values, int64_t tokens) {
  if (values) return values;
  double *places = arena_array(a, double, tokens * t->spec->n_axes + 1);
  for (int64_t n = t->spec->skip_tokens; n < tokens; n++) reference_grid(t->spec, n, places + n * t->spec->n_axes);
  return places;
}

typedef struct answering {
  const widen_gradients *g;
  attention_answer *answer;
  const double *places, *k_places;
} answering;

/* All queries of a head. */
static void answer_head(const answering *w, int64_t b, int64_t h) {
  const widen_trial *t = &w->g->forward;
  const spec *s = t->spec;
  const attention_answer *to = w->answer;
  arena *a = arena_create();
  int64_t tokens = t->q->shape[2], keys = t->k->shape[2], first = (b * t->q->shape[1] + h) * tokens,
          k_heads = t->k->shape[1], shared = h / (t->q->shape[1] / k_heads);
  const double *q = tensor_head(a, t->q, b, h), *k = tensor_head(a, t->k, b, shared);
  gradient_sum *scores = arena_array(a, gradient_sum, keys + 1), *input[SPEC_MAX_INPUTS],
               *of_k = to->k_positions && t->k_positions ? to->k_positions : to->positions;
  const double *rows[SPEC_MAX_INPUTS];
  for (int64_t i = 0; i < tokens; i++) {
    const double *number = w->g->of_score + (first + i) * keys;
    for (int64_t j = 0; j < keys; j++) scores[j] = (gradient_sum){number[j], fabs(number[j])};
    trial_input_rows(s, &t->inputs, first + i, rows);
    for (int n = 0; n < s->n_inputs; n++)
      input[n] = to->input[n] + (first + i) * (s->input[n].size ? s->input[n].size : 1);
    reference_query query = {.q = q + i * s->head_dim,
                             .position = w->places + i * s->n_axes,
                             .token = i,
                             .index = i,
                             .k = k,
                             .positions = w->k_places,
                             .keys = keys,
                             .visible = keys,
                             .head = (int)(s->heads > 1 ? h : 0),
                             .scale = 1,
                             .operands = t->operands.values,
                             .inputs = rows,
                             .origin = t->from};
    reference_query_gradients gradients = {.q = to->q + (first + i) * s->head_dim,
                                           .k = to->k + (b * k_heads + shared) * keys * s->head_dim,
                                           .position = to->positions + i * s->n_axes,
                                           .k_positions = of_k,
                                           .operand = to->operand,
                                           .input = input};
    reference_scores_backward(s, &query, scores, &gradients);
  }
  arena_destroy(a);
}

attention_answer widen_gradients_answer(arena *a, const widen_gradients *g) {
  const widen_trial *t = &g->forward;
  const spec *s = t->spec;
  attention_answer answer = attention_answer_new(a, s, t->q, t->k, t->inputs.tensors);
  answering w = {g, &answer, places_of(a, t, t->q_values, t->q->shape[2]),
                 places_of(a, t, t->k_values, t->k->shape[2])};
  for (int64_t b = 0; b < t->q->shape[0]; b++)
    for (int64_t h = 0; h < t->q->shape[1]; h++) answer_head(&w, b, h);
  return answer;
}
