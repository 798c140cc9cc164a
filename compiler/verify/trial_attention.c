/* verify/trial_attention: see verify/trial_attention.h. */
#include "verify/trial_attention.h"

#include "plan/attention.h"
#include "verify/reference.h"
#include "verify/reference_attention.h"
#include "verify/run_threads.h"

#include <math.h>
#include <stdlib.h>

void attention_trial_fill(arena *a, attention_trial *t, const attention_sizes *sizes, number_type type, row_order order,
                          uint64_t *random) {
  const spec *s = t->spec;
  t->q = tensor_rows(a, type, order, sizes->batch, sizes->heads, sizes->tokens, s->head_dim);
  t->k = tensor_rows(a, type, order, sizes->batch, sizes->k_heads, sizes->keys, s->head_dim);
  t->v = tensor_rows(a, type, order, sizes->batch, sizes->k_heads, sizes->keys, s->pairwise->value_dim);
  tensor_randomize(t->q, random);
  tensor_randomize(t->k, random);
  tensor_randomize(t->v, random);
  t->inputs = trial_pair_inputs(a, s, type, t->q->shape, sizes->keys, random);
}

DLTensor *attention_trial_out(arena *a, const attention_trial *t, row_order order) {
  const int64_t *shape = t->q->shape;
  return tensor_rows(a, number_type_of(t->q->dtype), order, shape[0], shape[1], shape[2], t->spec->pairwise->value_dim);
}

float *attention_trial_lse_at(const DLTensor *lse, int64_t batch, int64_t head, int64_t token) {
  const int64_t *stride = lse->strides;
  return (float *)lse->data + batch * stride[0] + head * stride[1] + token * stride[2];
}

DLTensor *attention_trial_lse(arena *a, const attention_trial *t) {
  const int64_t *shape = t->q->shape;
  DLTensor *lse = tensor_contiguous(a, NUMBER_F32, 3, shape, NULL);
  lse->strides = arena_array(a, int64_t, 3);
  lse->strides[0] = shape[1] * shape[2], lse->strides[1] = 1, lse->strides[2] = shape[1];
  return lse;
}

pegen_args attention_trial_args(const pegen_kernel *kernel, const attention_trial *t, DLTensor *out) {
  pegen_args args = trial_args(kernel, &t->operands, t->positions);
  args.q = t->q, args.k = t->k, args.v = t->v, args.out = out, args.lse = t->lse;
  args.k_positions = t->k_positions;
  args.inputs = t->inputs.tensors;
  args.causal = t->causal, args.scale = t->scale, args.split_keys = t->splits;
  return args;
}

int attention_trial_call(const pegen_kernel *kernel, const attention_trial *t, DLTensor *out, int parts) {
  pegen_args args = attention_trial_args(kernel, t, out);
  return trial_run(&args, kernel->attention_workspace, kernel->attention, t->splits ? kernel->attention_finish : NULL,
                   parts);
}

/* ---- comparison ---- */

/* Coordinates of all tokens of a batch, whatever they are given as. */
static const double *places(arena *a, const spec *s, const DLTensor *positions, int64_t batch, int64_t tokens) {
  double *values = arena_array(a, double, tokens * s->n_axes + 1);
  for (int64_t n = 0; n < tokens; n++)
    for (int axis = 0; axis < s->n_axes; axis++) {
      if (!positions) {
        if (s->grid[0] && n >= s->skip_tokens) reference_grid(s, n, values + n * s->n_axes);
        continue;
      }
      int64_t index = ((positions->ndim == 3 ? batch : 0) * tokens + n) * s->n_axes + axis;
      values[n * s->n_axes + axis] =
          number_load(number_type_of(positions->dtype), (char *)positions->data + index * (positions->dtype.bits / 8));
    }
  return values;
}

static long double largest(const double *values, int64_t count) {
  long double size = 0;
  for (int64_t i = 0; i < count; i++) size = fmaxl(size, fabsl(values[i]));
  return size;
}

/* What a query is compared with, and what is compared. */
typedef struct comparison {
  const attention_trial *trial;
  const DLTensor *out; /* NULL: the trial's lse */
  bool rounds_weights, rounds_rows;
  long double *scores, *exact, *rounding;
  trial_error *worst;
} comparison;

/* The largest finite score, 1 at least. */
static long double largest_score(const comparison *c, const reference_query *query) {
  long double score = 1;
  for (int64_t key = 0; key < query->visible; key++)
    if (isfinite(c->scores[key])) score = fmaxl(score, fabsl(c->scores[key]));
  return score;
}

/* The root of a row's squares. */
static long double length_of(const double *row, int width) {
  long double sum = 0;
  for (int i = 0; i < width; i++) sum += (long double)row[i] * row[i];
  return sqrtl(sum);
}

long double attention_trial_product(const spec *s, const reference_query *query, int64_t key) {
  long double lengths = length_of(query->q, s->head_dim) * length_of(query->k + key * s->head_dim, s->head_dim);
  double scale = query->scale == 0 ? spec_scale(s) : query->scale;
  return fabsl(lengths * scale) * fmax(1, s->amplitude);
}

/* What rounding turned rows to their type changes a score by: (1 + u)^2 - 1 of what it is at most. */
static long double score_rounding(const comparison *c, const reference_query *query, int64_t key) {
  if (!c->rounds_rows) return 0;
  long double u = number_half_ulp(number_type_of(c->trial->q->dtype), 1);
  return (2 * u + u * u) * attention_trial_product(c->trial->spec, query, key);
}

static long double largest_rounding(const comparison *c, const reference_query *query) {
  long double most = 0;
  for (int64_t key = 0; key < query->visible; key++)
    if (isfinite(c->scores[key])) most = fmaxl(most, score_rounding(c, query, key));
  return most;
}

static void compare_lse(const comparison *c, const reference_query *query, int64_t b, int64_t h) {
  const attention_trial *t = c->trial;
  long double exact = reference_log_sum(t->spec, query, c->scores);
  double got = *attention_trial_lse_at(t->lse, b, h, query->token);
  long double error =
      got == exact ? 0 : fmaxl(0, fabsl(got - exact) - largest_rounding(c, query)) / largest_score(c, query);
  trial_note(c->worst, (trial_error){error, isnan(got), b, h, query->token, 0, got, exact});
}

/* What rounding weights to a type may cost each channel of a row.
 *
 * A weight P = 2^(score - maximum up to here) becomes P (1 + e), |e| at most u, half the distance of neighbours at 1;
 * of one below the least normal number of the type u times that number is lost at most. The sum of weights, which the
 * row is divided by, is of those not rounded, and 1 at least. So a channel is wrong by at most u times the sum over
 * keys of (weight + least normal number) |v|, weights being those of the softmax. */
static void find_rounding(const comparison *c, const reference_query *query, number_type type) {
  int width = c->trial->spec->pairwise->value_dim;
  long double u = number_half_ulp(type, 1), least = number_least_normal(type);
  for (int i = 0; i < width; i++) c->rounding[i] = 0;
  if (!c->rounds_weights) return;
  long double lse = reference_log_sum(c->trial->spec, query, c->scores);
  for (int64_t key = 0; key < query->visible && lse > -INFINITY; key++) {
    long double weight = expl(c->scores[key] - lse);
    if (weight == 0) continue; /* whatever its value holds */
    for (int i = 0; i < width; i++) c->rounding[i] += u * (weight + least) * fabsl(query->v[key * width + i]);
  }
}

/* What rounding turned rows to a type may cost, added to the same. A score is wrong by d at most, so a weight by a
 * factor of e^d, and by another of e^d in their sum. Where values rotate, a row and what the query gathers are wrong by
 * u of a block's length each, which no row's is less than. */
static void add_row_rounding(const comparison *c, const reference_query *query, number_type type) {
  const spec *s = c->trial->spec;
  int width = s->pairwise->value_dim;
  if (!c->rounds_rows) return;
  long double u = number_half_ulp(type, 1), length = 0, largest = largest_rounding(c, query),
              lse = reference_log_sum(s, query, c->scores);
  for (int64_t key = 0; key < query->visible && lse > -INFINITY; key++) {
    long double weight = expl(c->scores[key] - lse);
    if (weight == 0) continue;
    const double *v = query->v + key * width;
    long double row = weight * length_of(v, width), off = expm1l(largest + score_rounding(c, query, key));
    if (!s->pairwise->turns_values)
      for (int i = 0; i < width; i++) c->rounding[i] += off * weight * fabsl(v[i]);
    else length += (off + 2 * u) * row;
  }
  for (int i = 0; i < width; i++) c->rounding[i] += length * fmax(1, s->amplitude);
}

static void compare_row(const comparison *c, const reference_query *query, int64_t b, int64_t h) {
  const DLTensor *out = c->out;
  number_type type = number_type_of(out->dtype);
  int width = c->trial->spec->pairwise->value_dim;
  long double score = largest_score(c, query), size = largest(query->v, query->keys * width), *exact = c->exact;
  find_rounding(c, query, type);
  add_row_rounding(c, query, type);
  for (int i = 0; i < width; i++) {
    double got = tensor_get(out, b, h, query->token, i);
    long double error = fabsl(got - exact[i]);
    if (type != NUMBER_F32) error = fmaxl(0, error - c->rounding[i] - number_half_ulp(type, exact[i]));
    if (error > 0) error /= score * size;
    trial_note(c->worst, (trial_error){error, !isfinite(got), b, h, query->token, i, got, exact[i]});
  }
}

/* The element of a tensor [B,H,N] or [B,H,N,size] that a head's row `token` begins at, whose B or H may be one for all.
 */
static int64_t row_of_input(const DLTensor *t, int64_t heads, int64_t b, int64_t h, int64_t token) {
  int64_t batch = t->shape[0] == 1 ? 0 : b, head = h / (heads / t->shape[1]);
  return ((batch * t->shape[1] + head) * t->shape[2] + token) * (t->ndim == 4 ? t->shape[3] : 1);
}

int64_t attention_trial_input(const attention_trial *t, int i, int64_t b, int64_t h, int64_t token) {
  return row_of_input(t->inputs.tensors[i], t->q->shape[1], b, h, t->spec->input[i].of_keys ? 0 : token);
}

static void attention_trial_inputs(const attention_trial *t, int64_t b, int64_t h, int64_t token, const double **rows) {
  for (int i = 0; i < t->spec->n_inputs; i++) rows[i] = t->inputs.values[i] + attention_trial_input(t, i, b, h, token);
}

void attention_trial_queries(arena *a, const attention_trial *t, int64_t step, attention_query_visitor *visit,
                             void *context) {
  const spec *s = t->spec;
  int64_t heads = t->q->shape[1], tokens = t->q->shape[2], keys = t->k->shape[2],
          group = t->k->shape[1] ? heads / t->k->shape[1] : 1;
  const DLTensor *of_keys = t->k_positions ? t->k_positions : t->positions;
  for (int64_t b = 0; b < t->q->shape[0]; b++) {
    const double *at = places(a, s, t->positions, b, tokens), *keys_at = places(a, s, of_keys, b, keys);
    for (int64_t h = 0; h < heads; h++) {
      const double *q = tensor_head(a, t->q, b, h), *k = tensor_head(a, t->k, b, h / group),
                   *v = tensor_head(a, t->v, b, h / group);
      for (int64_t n = 0; n < tokens; n++) {
        if (n % step && n != tokens - 1 && n > s->skip_tokens) continue;
        const double *inputs[SPEC_MAX_INPUTS];
        attention_trial_inputs(t, b, h, n, inputs);
        int64_t visible = t->causal ? n + keys - tokens + 1 : keys;
        reference_query query = {.q = q + n * s->head_dim,
                                 .position = at + n * s->n_axes,
                                 .token = n,
                                 .index = n + keys - tokens,
                                 .k = k,
                                 .v = v,
                                 .positions = keys_at,
                                 .keys = keys,
                                 .visible = visible < 0 ? 0 : visible,
                                 .head = s->heads > 1 ? (int)h : 0,
                                 .scale = t->scale,
                                 .operands = t->operands.values,
                                 .inputs = inputs};
        visit(context, &query, b, h);
      }
    }
  }
}

static void compare_query(void *context, const reference_query *query, int64_t b, int64_t h) {
  const comparison *c = context;
  reference_attention(c->trial->spec, query, c->scores, c->exact);
  (c->out ? compare_row : compare_lse)(c, query, b, h);
}

static void compare_all(arena *a, comparison *c, int64_t step) {
  c->scores = arena_array(a, long double, c->trial->k->shape[2] + 1);
  c->exact = arena_array(a, long double, c->trial->spec->pairwise->value_dim);
  c->rounding = arena_array(a, long double, c->trial->spec->pairwise->value_dim);
  attention_trial_queries(a, c->trial, step, compare_query, c);
}

/* Whether a kernel with dot products of bfloat16 runs them here. */
static bool has_dots(const spec *s, const pegen_kernel *kernel) {
  if (!target_wants_dots()) return false;
  arena *scratch = arena_create();
  const cpu_target *targets[TARGET_MAX];
  char *names = arena_strdup(scratch, kernel->targets);
  for (char *at = names; *at; at++)
    if (*at == ' ') *at = ',';
  int count = target_parse(scratch, names, targets);
  const attention_plan *p = attention_plan_build(scratch, s);
  bool found = false;
  for (int i = 0; i < count; i++) found = found || attention_has_dots(p, targets[i]);
  arena_destroy(scratch);
  return found;
}

bool attention_trial_rounds_weights(const spec *s, const pegen_kernel *kernel, bool backward, const pegen_args *args) {
  if (kernel->ptx) return run_threads_rounds_weights(kernel, backward, args);
  return number_type_of(args->q->dtype) == NUMBER_BF16 && has_dots(s, kernel);
}

bool attention_trial_rounds_rows(const spec *s, const pegen_kernel *kernel, bool backward, const pegen_args *args) {
  if (kernel->ptx) return run_threads_rounds_rows(kernel, backward, args);
  return s->pairwise->rotates && attention_trial_rounds_weights(s, kernel, backward, args);
}

void attention_trial_compare(arena *a, const pegen_kernel *kernel, const attention_trial *t, DLTensor *out,
                             int64_t step, trial_error *worst) {
  pegen_args args = attention_trial_args(kernel, t, out);
  comparison c = {.trial = t,
                  .out = out,
                  .worst = worst,
                  .rounds_weights = attention_trial_rounds_weights(t->spec, kernel, false, &args),
                  .rounds_rows = attention_trial_rounds_rows(t->spec, kernel, false, &args)};
  compare_all(a, &c, step);
}

void attention_trial_compare_lse(arena *a, const pegen_kernel *kernel, const attention_trial *t, int64_t step,
                                 trial_error *worst) {
  DLTensor *out = attention_trial_out(a, t, ROWS_BHND);
  pegen_args args = attention_trial_args(kernel, t, out);
  comparison c = {
      .trial = t, .worst = worst, .rounds_rows = attention_trial_rounds_rows(t->spec, kernel, false, &args)};
  compare_all(a, &c, step);
}
