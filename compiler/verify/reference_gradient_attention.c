/* verify/reference_gradient_attention: see verify/reference_gradient_attention.h. */
#include "verify/reference_gradient_attention.h"

#include "verify/reference.h"

#include <math.h>

static void add(gradient_sum *sum, long double value, long double size) {
  sum->value += value;
  sum->size += size;
}

/* ---- a pair's score ---- */

typedef struct pair {
  const spec *spec;
  const reference_query *query;
  const reference_query_gradients *to;
  int64_t key;
  const double *k;
  double delta[SPEC_MAX_AXES];
  gradient_sum g;    /* of the score */
  const double *const *magnitudes; /* of operands, where the bias is a polynomial */
  long double scale; /* of the product */
} pair;

static gradient_sum scaled(gradient_sum g, long double factor) {
  return (gradient_sum){g.value * factor, g.size * fabsl(factor)};
}

static void displace(pair *p) {
  for (int axis = 0; axis < p->spec->n_axes; axis++)
    p->delta[axis] = p->query->positions[p->key * p->spec->n_axes + axis] - p->query->position[axis];
}

/* The displacement is the key's position less the query's. */
static void give_positions(const pair *p, const gradient_sum *delta) {
  for (int axis = 0; axis < p->spec->n_axes; axis++) {
    if (p->to->position) add(&p->to->position[axis], -delta[axis].value, delta[axis].size);
    if (p->to->k_positions)
      add(&p->to->k_positions[p->key * p->spec->n_axes + axis], delta[axis].value, delta[axis].size);
  }
}

/* scale q . k of channels [n] at channel[i * step]; NULL: all. */
static void plain_product(const pair *p, const bool *is_blocked) {
  gradient_sum g = scaled(p->g, p->scale);
  for (int c = 0; c < p->spec->head_dim; c++) {
    if (is_blocked && is_blocked[c]) continue;
    long double q = p->query->q[c], k = p->k[c];
    if (p->to->q) add(&p->to->q[c], g.value * k, g.size * fabsl(k));
    if (p->to->k) add(&p->to->k[p->key * p->spec->head_dim + c], g.value * q, g.size * fabsl(q));
  }
}

/* scale q . M k of a block, M of the displacement; gains NULL: nobody asks for what M is made of. */
static void turned_block(const pair *p, int block, const reference_gains *gains) {
  const spec *s = p->spec;
  int n = s->n_components;
  gradient_sum g = scaled(p->g, p->scale);
  long double matrix[SPEC_MAX_BLOCK * SPEC_MAX_BLOCK], outer[SPEC_MAX_BLOCK * SPEC_MAX_BLOCK], q_square = 0,
                                                                                               k_square = 0;
  reference_block(s, p->delta, p->query->operands, p->query->head, block, matrix);
  for (int i = 0; i < n; i++) {
    int at = s->channel[i * s->n_blocks + block];
    long double q = p->query->q[at], k = p->k[at], turned = 0, back = 0;
    q_square += q * q, k_square += k * k;
    for (int j = 0; j < n; j++) {
      int other = s->channel[j * s->n_blocks + block];
      turned += matrix[i * n + j] * p->k[other];
      back += matrix[j * n + i] * p->query->q[other];
      outer[i * n + j] = g.value * q * p->k[other];
    }
    if (p->to->q) p->to->q[at].value += g.value * turned;
    if (p->to->k) p->to->k[p->key * s->head_dim + at].value += g.value * back;
  }
  for (int i = 0; i < n; i++) {
    int at = s->channel[i * s->n_blocks + block];
    if (p->to->q) p->to->q[at].size += g.size * sqrtl(k_square);
    if (p->to->k) p->to->k[p->key * s->head_dim + at].size += g.size * sqrtl(q_square);
  }
  if (!gains) return;
  expr_environment env = reference_environment(s, p->delta, p->query->operands, p->query->head, block);
  reference_block_backward(s, &env, (reference_outer){outer, g.size * sqrtl(q_square * k_square)}, gains);
}

static void turned_product(const pair *p, const reference_gains *gains) {
  const spec *s = p->spec;
  bool is_blocked[SPEC_MAX_HEAD_DIM] = {false};
  for (int i = 0; i < s->n_components * s->n_blocks; i++) is_blocked[s->channel[i]] = true;
  plain_product(p, is_blocked);
  for (int block = 0; block < s->n_blocks; block++) turned_block(p, block, gains);
}

/* How far a kernel that multiplies a polynomial out counts. */
static double reach(const pair *p, int axis) {
  const double *origin = p->query->origin;
  if (!origin) return fabs(p->delta[axis]);
  return fabs(p->query->positions[p->key * p->spec->n_axes + axis] - origin[axis]) +
         fabs(p->query->position[axis] - origin[axis]);
}

/* Kernels multiply a polynomial out: its errors are those of its products, whose sizes are what it is of magnitudes. */
static void polynomial_bias(const pair *p, expr_environment *env, const reference_gains *gains) {
  const spec *s = p->spec;
  gradient_sum g = scaled(p->g, p->scale), value = {g.value, 0}, size = {0, g.size};
  double delta[SPEC_MAX_AXES];
  for (int axis = 0; axis < s->n_axes; axis++) delta[axis] = reach(p, axis);
  for (env->block = 0; env->block < s->polynomial->n_terms; env->block++) {
    expr_environment magnitude = *env;
    magnitude.positions = delta;
    magnitude.operands = p->magnitudes;
    reference_expr_backward(s->pool, env, &s->polynomial->value, 1, &value, gains);
    reference_expr_backward(s->pool, &magnitude, &s->polynomial->value, 1, &size, gains);
  }
}

/* Rows of inputs of a pair, and of what they gain. */
typedef struct pair_inputs {
  const double *row[SPEC_MAX_INPUTS];
  gradient_sum *gained[SPEC_MAX_INPUTS];
} pair_inputs;

static expr_environment environment_of(const pair *p, const double *at, pair_inputs *inputs, reference_gains *gains) {
  const spec *s = p->spec;
  reference_pair_inputs(s, p->query, p->key, inputs->row);
  for (int i = 0; gains->input && i < s->n_inputs; i++)
    inputs->gained[i] = gains->input[i] + (inputs->row[i] - p->query->inputs[i]);
  if (gains->input) gains->input = inputs->gained;
  return (expr_environment){.head = p->query->head,
                            .blocks = expr_pool_blocks(s->pool),
                            .positions = at,
                            .operands = p->query->operands,
                            .inputs = inputs->row};
}

static void bias(const pair *p, const reference_gains *gains) {
  const spec *s = p->spec;
  pair_inputs inputs;
  reference_gains of_pair = *gains;
  expr_environment env = environment_of(p, p->delta, &inputs, &of_pair);
  if (s->polynomial) polynomial_bias(p, &env, &of_pair);
  else if (s->pairwise->bias) reference_expr_backward(s->pool, &env, &s->pairwise->bias, 1, &p->g, &of_pair);
}

/* What scale q . k gains of the score that is a function of it, which gives the rest what it is made of. */
static gradient_sum through_score(const pair *p, const reference_gains *gains) {
  const spec *s = p->spec;
  double at[SPEC_MAX_PLACES];
  pair_inputs inputs;
  reference_gains of_pair = *gains;
  reference_score_places(s, p->query, p->key, reference_pair_product(s, p->query, p->key), at);
  expr_environment env = environment_of(p, at, &inputs, &of_pair);
  reference_expr_backward(s->pool, &env, &s->pairwise->score, 1, &p->g, &of_pair);
  return gains->position[SPEC_OF_SCORE];
}

static void pair_backward(pair *p) {
  const spec *s = p->spec;
  if (reference_pair_is_plain(s, p->query, p->key)) {
    plain_product(p, NULL);
    return;
  }
  gradient_sum delta[SPEC_MAX_PLACES] = {{0, 0}};
  reference_gains gains = {.operand = p->to->operand, .position = delta, .input = p->to->input};
  bool gain = p->to->operand || p->to->position || p->to->k_positions;
  if (s->pairwise && s->pairwise->score) p->g = through_score(p, &gains);
  if (s->pairwise && s->pairwise->rotates) turned_product(p, gain ? &gains : NULL); /* dear */
  else plain_product(p, NULL);
  bias(p, &gains);
  give_positions(p, delta);
}

static const double *const *magnitudes_of(arena *a, const spec *s, const double *const *operands) {
  const double **all = arena_array(a, const double *, s->n_operands + 1);
  for (int i = 0; i < s->n_operands; i++) {
    int64_t count = spec_operand_elements(&s->operand[i]);
    double *of = arena_array(a, double, count + 1);
    for (int64_t k = 0; k < count; k++) of[k] = fabs(operands[i][k]);
    all[i] = of;
  }
  return all;
}

void reference_scores_backward(const spec *s, const reference_query *query, const gradient_sum *g,
                               const reference_query_gradients *to) {
  arena *a = arena_create();
  pair p = {.spec = s, .query = query, .to = to, .scale = query->scale == 0 ? spec_scale(s) : query->scale};
  if (s->polynomial) p.magnitudes = magnitudes_of(a, s, query->operands);
  for (p.key = 0; p.key < query->visible; p.key++) {
    p.g = g[p.key];
    if (p.g.value == 0 && p.g.size == 0) continue;
    p.k = query->k + p.key * s->head_dim;
    displace(&p);
    pair_backward(&p);
  }
  arena_destroy(a);
}

/* ---- softmax ---- */

/* <g, v> of channels that are not turned, and what those of v gain of p of it. */
static gradient_sum plain_value(const pair *p, const double *g, long double weight, const bool *is_blocked) {
  int width = p->spec->pairwise->value_dim;
  const double *v = p->query->v + p->key * width;
  gradient_sum sum = {0, 0};
  for (int c = 0; c < width; c++) {
    if (is_blocked && is_blocked[c]) continue;
    add(&sum, (long double)g[c] * v[c], fabsl((long double)g[c] * v[c]));
    if (p->to->v) add(&p->to->v[p->key * width + c], weight * g[c], weight * fabs(g[c]));
  }
  return sum;
}

/* <g, M v> of a block. */
static gradient_sum turned_value(const pair *p, const double *g, long double weight, int block,
                                 const reference_gains *gains) {
  const spec *s = p->spec;
  int n = s->n_components;
  const double *v = p->query->v + p->key * s->head_dim;
  gradient_sum sum = {0, 0};
  long double matrix[SPEC_MAX_BLOCK * SPEC_MAX_BLOCK], outer[SPEC_MAX_BLOCK * SPEC_MAX_BLOCK], g_square = 0,
                                                                                               v_square = 0;
  reference_block(s, p->delta, p->query->operands, p->query->head, block, matrix);
  for (int i = 0; i < n; i++) {
    int at = s->channel[i * s->n_blocks + block];
    g_square += (long double)g[at] * g[at], v_square += (long double)v[at] * v[at];
    for (int j = 0; j < n; j++) {
      int other = s->channel[j * s->n_blocks + block];
      sum.value += g[at] * matrix[i * n + j] * v[other];
      outer[i * n + j] = weight * g[at] * v[other];
      if (p->to->v) p->to->v[p->key * s->head_dim + other].value += weight * matrix[i * n + j] * g[at];
    }
  }
  sum.size = sqrtl(g_square * v_square);
  for (int i = 0; i < n && p->to->v; i++)
    p->to->v[p->key * s->head_dim + s->channel[i * s->n_blocks + block]].size += weight * sqrtl(g_square);
  expr_environment env = reference_environment(s, p->delta, p->query->operands, p->query->head, block);
  if (gains) reference_block_backward(s, &env, (reference_outer){outer, weight * sum.size}, gains);
  return sum;
}

/* <g, v>, v being turned where the description says so; what v and what turns it gain of `weight` of it. */
static gradient_sum value_backward(pair *p, const double *g, long double weight) {
  const spec *s = p->spec;
  if (!s->pairwise->turns_values) return plain_value(p, g, weight, NULL);
  bool is_blocked[SPEC_MAX_HEAD_DIM] = {false};
  gradient_sum delta[SPEC_MAX_PLACES] = {{0, 0}};
  reference_gains gains = {.operand = p->to->operand, .position = delta, .input = p->to->input};
  bool gain = p->to->operand || p->to->position || p->to->k_positions;
  displace(p);
  for (int i = 0; i < s->n_components * s->n_blocks; i++) is_blocked[s->channel[i]] = true;
  gradient_sum sum = plain_value(p, g, weight, is_blocked);
  for (int block = 0; block < s->n_blocks; block++) {
    gradient_sum of_block = turned_value(p, g, weight, block, gain ? &gains : NULL);
    add(&sum, of_block.value, of_block.size);
  }
  give_positions(p, delta);
  return sum;
}

/* g: what the sink gains, a score whose value is 0. */
static void sink_backward(const spec *s, const reference_query *query, gradient_sum g,
                          const reference_query_gradients *to) {
  gradient_sum nowhere[SPEC_MAX_PLACES] = {{0, 0}};
  expr_environment env = {.head = query->head, .blocks = expr_pool_blocks(s->pool), .operands = query->operands};
  reference_gains gains = {.operand = to->operand, .position = nowhere};
  reference_expr_backward(s->pool, &env, &s->pairwise->sink, 1, &g, &gains);
}

void reference_attention_backward(const spec *s, const reference_query *query, const double *g, double g_lse,
                                  const reference_query_gradients *to) {
  pair value = {.spec = s, .query = query, .to = to};
  arena *a = arena_create();
  long double *p = arena_array(a, long double, query->keys + 1),
              *out = arena_array(a, long double, s->pairwise->value_dim + 1);
  gradient_sum *scores = arena_array(a, gradient_sum, query->keys + 1);
  reference_attention(s, query, p, out);
  long double lse = reference_log_sum(s, query, p), delta = 0, size = fabsl(g_lse);
  for (int64_t key = 0; key < query->keys; key++) {
    p[key] = p[key] == -INFINITY ? 0 : expl(p[key] - lse);
    if (p[key] == 0) continue; /* whatever its value holds */
    value.key = key;
    scores[key] = value_backward(&value, g, p[key]);
    delta += p[key] * scores[key].value;
    size += p[key] * scores[key].size;
  }
  for (int64_t key = 0; key < query->keys; key++)
    scores[key] = (gradient_sum){p[key] * (scores[key].value - delta + g_lse), p[key] * (scores[key].size + size)};
  reference_scores_backward(s, query, scores, to);
  long double weight = expl(reference_sink(s, query) - lse);
  if (s->pairwise->sink && to->operand)
    sink_backward(s, query, (gradient_sum){weight * (g_lse - delta), weight * size}, to);
  arena_destroy(a);
}
