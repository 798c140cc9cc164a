/* verify/reference_attention: see verify/reference_attention.h. */
#include "verify/reference_attention.h"

#include "verify/reference.h"

#include <math.h>

/* q . k with the key's blocks turned by the displacement. */
static long double turned_product(const spec *s, const reference_query *query, const double *k, const double *delta) {
  long double sum = 0, row[SPEC_MAX_HEAD_DIM];
  reference_row(s, delta, query->operands, query->head, k, row);
  for (int i = 0; i < s->head_dim; i++) sum += query->q[i] * row[i];
  return sum;
}

static long double product(const spec *s, const double *q, const double *k) {
  long double sum = 0;
  for (int i = 0; i < s->head_dim; i++) sum += (long double)q[i] * k[i];
  return sum;
}

bool reference_pair_is_plain(const spec *s, const reference_query *query, int64_t key) {
  return s->skip_tokens && (query->index < s->skip_tokens || key < s->skip_tokens);
}

static void displace(const spec *s, const reference_query *query, int64_t key, double *delta) {
  for (int axis = 0; axis < s->n_axes; axis++)
    delta[axis] = query->positions[key * s->n_axes + axis] - query->position[axis];
}

void reference_pair_inputs(const spec *s, const reference_query *query, int64_t key, const double **rows) {
  for (int i = 0; i < s->n_inputs; i++) {
    const spec_input *in = &s->input[i];
    rows[i] = query->inputs[i] + (in->of_keys || spec_input_is_pair(in) ? key * spec_input_numbers(in) : 0);
  }
}

long double reference_pair_product(const spec *s, const reference_query *query, int64_t key) {
  const double *k = query->k + key * s->head_dim;
  long double scale = query->scale == 0 ? spec_scale(s) : query->scale;
  if (reference_pair_is_plain(s, query, key)) return scale * product(s, query->q, k);
  double delta[SPEC_MAX_AXES];
  displace(s, query, key, delta);
  long double score = scale * (s->pairwise->rotates ? turned_product(s, query, k, delta) : product(s, query->q, k));
  if (!s->polynomial) return score;
  const double *inputs[SPEC_MAX_INPUTS];
  reference_pair_inputs(s, query, key, inputs);
  return score + scale * reference_bias(s, delta, query->operands, inputs, query->head);
}

void reference_score_places(const spec *s, const reference_query *query, int64_t key, long double product,
                            double *delta) {
  displace(s, query, key, delta);
  delta[SPEC_OF_SCORE] = (double)product;
  delta[SPEC_OF_QUERY] = (double)query->index;
  delta[SPEC_OF_KEY] = (double)key;
}

/* A key that would be hidden whatever finite product it had is hidden. */
static long double final_score(const spec *s, const expr_environment *env, double *delta) {
  if (isfinite(delta[SPEC_OF_SCORE])) return expr_eval_long(s->pairwise->score, env);
  double product = delta[SPEC_OF_SCORE];
  delta[SPEC_OF_SCORE] = 0;
  if (expr_eval_long(s->pairwise->score, env) == -INFINITY) return -INFINITY;
  delta[SPEC_OF_SCORE] = product;
  return expr_eval_long(s->pairwise->score, env);
}

static long double score_of(const spec *s, const reference_query *query, int64_t key) {
  long double product = reference_pair_product(s, query, key);
  const spec_pairwise *pair = s->pairwise;
  if (reference_pair_is_plain(s, query, key) || (!pair->bias && !pair->score)) return product;
  double delta[SPEC_MAX_PLACES];
  const double *inputs[SPEC_MAX_INPUTS];
  reference_score_places(s, query, key, product, delta);
  reference_pair_inputs(s, query, key, inputs);
  expr_environment env = {.head = query->head,
                          .blocks = expr_pool_blocks(s->pool),
                          .positions = delta,
                          .operands = query->operands,
                          .inputs = inputs};
  return pair->score ? final_score(s, &env, delta) : product + expr_eval_long(pair->bias, &env);
}

/* Writes a key's row of v [value_dim], turned where the description says so. */
static void reference_value(const spec *s, const reference_query *query, int64_t key, long double *row) {
  const double *v = query->v + key * s->pairwise->value_dim;
  double delta[SPEC_MAX_AXES];
  for (int c = 0; c < s->pairwise->value_dim; c++) row[c] = v[c];
  if (!s->pairwise->turns_values || reference_pair_is_plain(s, query, key)) return;
  displace(s, query, key, delta);
  reference_row(s, delta, query->operands, query->head, v, row);
}

long double reference_sink(const spec *s, const reference_query *query) {
  expr_environment env = {.head = query->head, .blocks = expr_pool_blocks(s->pool), .operands = query->operands};
  return s->pairwise->sink ? expr_eval_long(s->pairwise->sink, &env) : -INFINITY;
}

long double reference_log_sum(const spec *s, const reference_query *query, const long double *scores) {
  long double sink = reference_sink(s, query), most = sink, sum = 0;
  for (int64_t key = 0; key < query->visible; key++)
    if (!(scores[key] <= most) && !isnan(most)) most = scores[key]; /* NaN stays */
  if (most == -INFINITY) return most;
  for (int64_t key = 0; key < query->visible; key++) sum += expl(scores[key] - most);
  return most + logl(sum + expl(sink - most));
}

void reference_attention(const spec *s, const reference_query *query, long double *scores, long double *out) {
  int width = s->pairwise->value_dim;
  long double sink = reference_sink(s, query), largest = sink, sum, row[SPEC_MAX_HEAD_DIM];
  for (int64_t key = 0; key < query->keys; key++) {
    scores[key] = key < query->visible ? score_of(s, query, key) : -INFINITY;
    if (!(scores[key] <= largest) && !isnan(largest)) largest = scores[key]; /* NaN stays */
  }
  for (int c = 0; c < width; c++) out[c] = 0;
  if (largest == -INFINITY) return;
  sum = expl(sink - largest);
  for (int64_t key = 0; key < query->keys; key++) {
    long double p = expl(scores[key] - largest);
    if (scores[key] == -INFINITY) continue; /* 0 times what may be no number */
    sum += p;
    reference_value(s, query, key, row);
    for (int c = 0; c < width; c++) out[c] += p * row[c];
  }
  for (int c = 0; c < width; c++) out[c] /= sum;
}
