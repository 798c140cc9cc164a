/* verify/trial_attention_backward: see verify/trial_attention_backward.h. */
#include "verify/trial_attention_backward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a call ---- */

static bool is_sampled(const attention_gradients *g, int64_t token, int64_t step) {
  return token % step == 0 || token == g->forward.q->shape[2] - 1 || token <= g->forward.spec->skip_tokens;
}

static void choose_incoming(attention_gradients *g, int64_t step, uint64_t *random) {
  EACH_ROW(g->g_out, b, h, n) {
    bool some = is_sampled(g, n, step);
    for (int64_t c = 0; c < g->g_out->shape[3]; c++)
      tensor_set(g->g_out, b, h, n, c, some ? random_uniform(random, -1, 1) : 0);
    if (g->g_lse) *attention_trial_lse_at(g->g_lse, b, h, n) = some ? (float)random_uniform(random, -1, 1) : 0;
  }
}

DLTensor *attention_gradients_operand(arena *a, const spec *s, int i) {
  return tensor_contiguous(a, NUMBER_F64, s->operand[i].rank, s->operand[i].shape, NULL);
}

DLTensor *attention_gradients_input(arena *a, const attention_trial *t, int i) {
  const DLTensor *of = t->inputs.tensors[i];
  int64_t size = of->ndim == 4 ? of->shape[3] : 1;
  DLTensor *rows = tensor_rows(a, number_type_of(of->dtype), ROWS_GAPS, of->shape[0], of->shape[1], of->shape[2], size);
  rows->ndim = of->ndim;
  return rows;
}

void attention_gradients_lay(arena *a, attention_gradients *g, const attention_trial *forward,
                             const pegen_kernel *kernel, bool has_lse, int64_t step, row_order order,
                             uint64_t *random) {
  *g = (attention_gradients){.kernel = kernel, .forward = *forward};
  attention_trial *t = &g->forward;
  number_type type = number_type_of(t->q->dtype);
  const int64_t *q = t->q->shape, *v = t->v->shape;
  t->lse = attention_trial_lse(a, t);
  g->out = attention_trial_out(a, t, order);
  g->g_out = attention_trial_out(a, t, order);
  if (has_lse) g->g_lse = attention_trial_lse(a, t);
  g->q = tensor_rows(a, type, order, q[0], q[1], q[2], q[3]);
  g->k = tensor_rows(a, type, order, v[0], v[1], v[2], q[3]);
  g->v = tensor_rows(a, type, order, v[0], v[1], v[2], v[3]);
  if (kernel->attention_backward_finish && t->spec->n_operands > 0) {
    g->operands = arena_array(a, DLTensor *, t->spec->n_operands);
    for (int i = 0; i < t->spec->n_operands; i++) g->operands[i] = attention_gradients_operand(a, t->spec, i);
  }
  if (t->spec->n_inputs > 0) g->inputs = arena_array(a, DLTensor *, t->spec->n_inputs);
  for (int i = 0; i < t->spec->n_inputs; i++) g->inputs[i] = attention_gradients_input(a, t, i);
  choose_incoming(g, step, random);
}

int attention_gradients_fill(arena *a, attention_gradients *g, const attention_trial *forward,
                             const pegen_kernel *kernel, bool has_lse, int64_t step, row_order order,
                             uint64_t *random) {
  attention_gradients_lay(a, g, forward, kernel, has_lse, step, order, random);
  return attention_trial_call(kernel, &g->forward, g->out, 1);
}

static DLTensor *like_positions(arena *a, const DLTensor *of, number_type type) {
  return of ? tensor_contiguous(a, type, of->ndim, of->shape, NULL) : NULL;
}

void attention_gradients_of_positions(arena *a, attention_gradients *g, number_type type) {
  g->positions = like_positions(a, g->forward.positions, type);
  g->k_positions = like_positions(a, g->forward.k_positions, type);
}

static bool same_numbers(const DLTensor *x, const DLTensor *y) {
  return !x || !y || !memcmp(x->data, y->data, (size_t)(tensor_elements(x) * number_bytes(number_type_of(x->dtype))));
}

/* With the same gaps and other numbers, so that rows which a call does not write are not the same. */
static DLTensor *like_rows(arena *a, const DLTensor *of) {
  uint64_t random = 1;
  if (!of) return NULL;
  DLTensor *rows = tensor_copy(a, of);
  tensor_randomize(rows, &random);
  return rows;
}

attention_gradients attention_gradients_room(arena *a, const attention_gradients *g) {
  const spec *s = g->forward.spec;
  attention_gradients other = *g;
  other.q = like_rows(a, g->q);
  other.k = like_rows(a, g->k);
  other.v = like_rows(a, g->v);
  if (g->positions) other.positions = like_positions(a, g->positions, number_type_of(g->positions->dtype));
  if (g->k_positions) other.k_positions = like_positions(a, g->k_positions, number_type_of(g->k_positions->dtype));
  if (g->inputs) other.inputs = arena_array(a, DLTensor *, s->n_inputs);
  for (int i = 0; i < s->n_inputs && g->inputs; i++) other.inputs[i] = like_rows(a, g->inputs[i]);
  if (g->operands) other.operands = arena_array(a, DLTensor *, s->n_operands);
  for (int i = 0; i < s->n_operands && g->operands; i++)
    other.operands[i] = g->operands[i] ? attention_gradients_operand(a, s, i) : NULL;
  return other;
}

static bool same_rows(const DLTensor *x, const DLTensor *y) { return !x || !y || tensor_identical(x, y); }

bool attention_gradients_same(const attention_gradients *x, const attention_gradients *y) {
  const spec *s = x->forward.spec;
  for (int i = 0; i < s->n_operands && x->operands && y->operands; i++)
    if (!same_numbers(x->operands[i], y->operands[i])) return false;
  if (!same_numbers(x->positions, y->positions) || !same_numbers(x->k_positions, y->k_positions)) return false;
  for (int i = 0; i < s->n_inputs && x->inputs && y->inputs; i++)
    if (!tensor_identical(x->inputs[i], y->inputs[i])) return false;
  return same_rows(x->q, y->q) && same_rows(x->k, y->k) && same_rows(x->v, y->v);
}

pegen_grad_args attention_gradients_args(const attention_gradients *g) {
  return (pegen_grad_args){.struct_size = sizeof(pegen_grad_args),
                           .flags = g->flags,
                           .out = g->g_out,
                           .lse = g->g_lse,
                           .q = g->q,
                           .k = g->k,
                           .v = g->v,
                           .operands = g->operands,
                           .inputs = g->inputs,
                           .positions = g->positions,
                           .k_positions = g->k_positions};
}

bool attention_gradients_has_finish(const attention_gradients *g) {
  return g->operands || g->inputs || g->positions || g->k_positions;
}

int attention_gradients_call(const pegen_kernel *kernel, const attention_gradients *g, int parts) {
  pegen_grad_args grad = attention_gradients_args(g);
  pegen_args args = attention_trial_args(kernel, &g->forward, g->out);
  args.grad = &grad;
  return trial_run(&args, kernel->attention_backward_workspace, kernel->attention_backward,
                   attention_gradients_has_finish(g) ? kernel->attention_backward_finish : NULL, parts);
}

static bool rounds_weights(const attention_gradients *g, bool backward) {
  pegen_grad_args grad = attention_gradients_args(g);
  pegen_args args = attention_trial_args(g->kernel, &g->forward, g->out);
  args.grad = backward ? &grad : NULL;
  return attention_trial_rounds_weights(g->forward.spec, g->kernel, backward, &args);
}

static bool rounds_rows(const attention_gradients *g) {
  pegen_grad_args grad = attention_gradients_args(g);
  pegen_args args = attention_trial_args(g->kernel, &g->forward, g->out);
  args.grad = &grad;
  return attention_trial_rounds_rows(g->forward.spec, g->kernel, true, &args);
}

/* With u, half a unit in the last place of 1, and dS = P (dP - <out, dout>): outputs are stored with an error of u
 * |out| at most, behind weights that tensor cores, and dot products of bfloat16, round with one of u times the sum of P
 * |v|, so dS is wrong by u times a summand of its own unit for each; there P and dS are then rounded themselves. Rows
 * that are turned for tensor cores are rounded, too: those that P is made of, where a score counts as the product of
 * two rows' lengths, those that dP is made of, the other factor of a summand, and what rows gain before it is turned
 * back.
 */
long double attention_gradients_bound(const attention_gradients *g) {
  number_type type = number_type_of(g->q->dtype);
  int roundings = type == NUMBER_F32 ? 0 : 1 + rounds_weights(g, false) + rounds_weights(g, true);
  if (rounds_rows(g)) roundings += 4;
  return 0x1p-18L + roundings * number_half_ulp(type, 1);
}

/* ---- what the reference says ---- */

typedef struct answering {
  arena *memory;
  const attention_gradients *call;
  attention_answer *answer;
  int64_t step;
  long double least; /* that a factor counts as */
  bool by_lengths;   /* a score counts as the product of its rows' lengths */
} answering;

/* What a factor of less than the least normal number loses of a sum is in proportion to that number. */
static void add_least(const reference_query *query, const spec *s, const double *incoming, long double least,
                      const reference_query_gradients *to) {
  int width = s->pairwise->value_dim;
  long double scale = least * fabsl(query->scale == 0 ? 1 / sqrtl(s->head_dim) : query->scale);
  for (int64_t key = 0; key < query->visible; key++) {
    const double *k = query->k + key * s->head_dim;
    for (int c = 0; c < s->head_dim; c++) {
      if (isfinite(k[c])) to->q[c].size += scale * fabs(k[c]);
      to->k[key * s->head_dim + c].size += scale * fabs(query->q[c]);
    }
    for (int c = 0; c < width; c++) to->v[key * width + c].size += least * fabs(incoming[c]);
  }
}

static long double largest_score(const spec *s, const reference_query *query, bool by_lengths, arena *a) {
  long double *scores = arena_array(a, long double, query->keys + 1), score = 1,
              *out = arena_array(a, long double, s->pairwise->value_dim);
  reference_attention(s, query, scores, out);
  for (int64_t key = 0; key < query->visible; key++)
    if (isfinite(scores[key]))
      score = fmaxl(score, by_lengths ? attention_trial_product(s, query, key) : fabsl(scores[key]));
  return score;
}

/* Sums of [tokens][axes], or of [batches][tokens][axes] where each batch has positions of its own. */
static gradient_sum *positions_of_batch(gradient_sum *sums, const DLTensor *positions, int64_t b) {
  bool own = positions && positions->ndim == 3 && positions->shape[0] > 1;
  return own ? sums + b * positions->shape[1] * positions->shape[2] : sums;
}

static void answer_query(void *context, const reference_query *query, int64_t b, int64_t h) {
  const answering *w = context;
  const attention_gradients *g = w->call;
  const attention_trial *t = &g->forward;
  const spec *s = t->spec;
  attention_answer *to = w->answer;
  if (!is_sampled(g, query->token, w->step)) return;
  int64_t heads = t->q->shape[1], k_heads = t->k->shape[1], tokens = t->q->shape[2], keys = t->k->shape[2],
          row = (b * heads + h) * tokens + query->token, shared = b * k_heads + h / (heads / k_heads);
  arena *scratch = arena_create();
  double *incoming = arena_array(scratch, double, s->pairwise->value_dim);
  for (int c = 0; c < s->pairwise->value_dim; c++) incoming[c] = tensor_get(g->g_out, b, h, query->token, c);
  double g_lse = g->g_lse ? *attention_trial_lse_at(g->g_lse, b, h, query->token) : 0;
  gradient_sum *input[SPEC_MAX_INPUTS];
  for (int i = 0; i < s->n_inputs; i++) input[i] = to->input[i] + attention_trial_input(t, i, b, h, query->token);
  reference_query_gradients gradients = {.q = to->q + row * s->head_dim,
                                         .k = to->k + shared * keys * s->head_dim,
                                         .v = to->v + shared * keys * s->pairwise->value_dim,
                                         .operand = g->operands ? to->operand : NULL,
                                         .input = g->inputs ? input : NULL};
  if (g->positions) gradients.position = positions_of_batch(to->positions, t->positions, b) + query->token * s->n_axes;
  if (g->positions || g->k_positions)
    gradients.k_positions = t->k_positions ? positions_of_batch(to->k_positions, t->k_positions, b)
                                           : positions_of_batch(to->positions, t->positions, b);
  reference_attention_backward(s, query, incoming, g_lse, &gradients);
  if (w->least > 0) add_least(query, s, incoming, w->least, &gradients);
  to->score = fmaxl(to->score, largest_score(s, query, w->by_lengths, scratch));
  arena_destroy(scratch);
}

attention_answer attention_answer_new(arena *a, const spec *s, const DLTensor *q, const DLTensor *k,
                                      const DLTensor *const *inputs) {
  int64_t batches = q->shape[0] > 1 ? q->shape[0] : 1; /* of positions, also where there are no rows */
  attention_answer answer = {.q = arena_array(a, gradient_sum, tensor_elements(q) + 1),
                             .k = arena_array(a, gradient_sum, tensor_elements(k) + 1),
                             .operand = reference_operand_sums(a, s),
                             .input = arena_array(a, gradient_sum *, s->n_inputs + 1),
                             .positions = arena_array(a, gradient_sum, batches * q->shape[2] * s->n_axes + 1),
                             .k_positions = arena_array(a, gradient_sum, batches * k->shape[2] * s->n_axes + 1),
                             .score = 1};
  for (int i = 0; i < s->n_inputs; i++) answer.input[i] = arena_array(a, gradient_sum, tensor_elements(inputs[i]) + 1);
  return answer;
}

attention_answer attention_gradients_answer(arena *a, const attention_gradients *g, int64_t step) {
  const attention_trial *t = &g->forward;
  const spec *s = t->spec;
  attention_answer answer = attention_answer_new(a, s, t->q, t->k, t->inputs.tensors);
  answer.v = arena_array(a, gradient_sum, tensor_elements(t->v) + 1);
  long double least = rounds_weights(g, true) ? number_least_normal(number_type_of(g->q->dtype)) : 0;
  attention_trial_queries(a, t, step, answer_query, &(answering){a, g, &answer, step, least, rounds_rows(g)});
  return answer;
}

/* ---- comparisons ---- */

/* Weights of less than 2^-100 of a query's largest count as 0. */
static const long double LEAST_SIZE = 0x1p-64L;

/* Notes `at`, whose error is a difference yet, where it is the worst that was seen, or no number. */
static void note(trial_error *worst, trial_error at, const gradient_sum *exact, long double score) {
  at.exact = exact->value;
  at.spoilt = !isfinite(at.got);
  if (at.error > 0) at.error /= fmaxl(exact->size, LEAST_SIZE) * score;
  trial_note(worst, at);
}

/* Element `element` of a contiguous tensor; its place among others is the caller's to say. */
static void note_element(trial_error *worst, trial_error at, const DLTensor *tensor, int64_t element,
                         const gradient_sum *exact, long double score) {
  number_type type = number_type_of(tensor->dtype);
  at.got = number_load(type, (char *)tensor->data + element * number_bytes(type));
  at.error = fabsl(at.got - exact->value);
  note(worst, at, exact, score);
}

void attention_gradients_compare_inputs(const attention_gradients *g, const attention_answer *exact,
                                        trial_error *worst) {
  for (int i = 0; i < g->forward.spec->n_inputs; i++) {
    DLTensor rows = *g->inputs[i];
    rows.ndim = 4; /* whose last dimension may be left out where it is 1 */
    attention_gradients_compare(&rows, exact->input[i], exact->score, worst);
  }
}

void attention_gradients_compare_operands(const attention_gradients *g, const attention_answer *exact,
                                          trial_error *worst) {
  const spec *s = g->forward.spec;
  for (int i = 0; i < s->n_operands; i++) {
    const DLTensor *tensor = g->operands[i];
    for (int64_t k = 0; tensor && k < spec_operand_elements(&s->operand[i]); k++)
      note_element(worst, (trial_error){.token = i, .channel = (int)k}, tensor, k, &exact->operand[i][k], exact->score);
  }
}

void attention_gradients_compare(const DLTensor *rows, const gradient_sum *exact, long double score,
                                 trial_error *worst) {
  number_type type = number_type_of(rows->dtype);
  EACH_NUMBER(rows, b, h, n, c) {
    trial_error at = {.batch = b, .head = h, .token = n, .channel = c, .got = tensor_get(rows, b, h, n, c)};
    at.error = fabsl(at.got - exact->value);
    if (type != NUMBER_F32) at.error = fmaxl(0, at.error - number_half_ulp(type, exact->value));
    note(worst, at, exact++, score);
  }
}

void attention_gradients_compare_positions(const attention_gradients *g, const attention_answer *exact,
                                           trial_error *worst) {
  const DLTensor *tensors[] = {g->positions, g->k_positions};
  const gradient_sum *sums[] = {exact->positions, exact->k_positions};
  int axes = g->forward.spec->n_axes;
  for (int own = 0; own < 2; own++)
    for (int64_t i = 0; tensors[own] && i < tensor_elements(tensors[own]); i++)
      note_element(worst, (trial_error){.head = own, .token = i / axes, .channel = (int)(i % axes)}, tensors[own], i,
                   &sums[own][i], exact->score);
}
