/* verify/reference_gradient_attention: see verify/reference_gradient_attention.h. */
#include "verify/reference_gradient_attention.h"

#include "verify/reference.h"

#include <math.h>
#include <string.h>

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
  long double scale; /* of the product */
} pair;

static gradient_sum scaled(gradient_sum g, long double factor) {
  return (gradient_sum){g.value * factor, g.size * fabsl(factor)};
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

/* scale q . M k of a block, M of the displacement. */
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
  reference_block_backward(s, p->delta, p->query->operands, p->query->head, block, outer,
                           g.size * sqrtl(q_square * k_square), gains);
}

static void turned_product(const pair *p, const reference_gains *gains) {
  const spec *s = p->spec;
  bool is_blocked[SPEC_MAX_HEAD_DIM] = {false};
  for (int i = 0; i < s->n_components * s->n_blocks; i++) is_blocked[s->channel[i]] = true;
  plain_product(p, is_blocked);
  for (int block = 0; block < s->n_blocks; block++) turned_block(p, block, gains);
}

static void bias(const pair *p, const reference_gains *gains) {
  const spec *s = p->spec;
  const expr *x = s->polynomial ? s->polynomial->value : s->pairwise->bias;
  gradient_sum g = s->polynomial ? scaled(p->g, p->scale) : p->g;
  if (!x) return;
  for (int term = 0; term < (s->polynomial ? s->polynomial->n_terms : 1); term++) {
    expr_environment env = {.head = p->query->head,
                            .block = term,
                            .blocks = expr_pool_blocks(s->pool),
                            .positions = p->delta,
                            .operands = p->query->operands,
                            .inputs = p->query->inputs};
    reference_expr_backward(s->pool, &env, &x, 1, &g, gains);
  }
}

static void pair_backward(const pair *p) {
  const spec *s = p->spec;
  if (p->query->token < s->skip_tokens || p->key < s->skip_tokens) {
    plain_product(p, NULL);
    return;
  }
  gradient_sum delta[SPEC_MAX_AXES] = {{0, 0}};
  reference_gains gains = {.operand = p->to->operand, .position = delta, .input = p->to->input};
  if (s->pairwise && s->pairwise->rotates) turned_product(p, &gains);
  else plain_product(p, NULL);
  bias(p, &gains);
  give_positions(p, delta);
}

void reference_scores_backward(const spec *s, const reference_query *query, const gradient_sum *g,
                               const reference_query_gradients *to) {
  pair p = {.spec = s, .query = query, .to = to, .scale = query->scale == 0 ? 1 / sqrtl(s->head_dim) : query->scale};
  for (p.key = 0; p.key < query->visible; p.key++) {
    p.g = g[p.key];
    if (p.g.value == 0 && p.g.size == 0) continue;
    p.k = query->k + p.key * s->head_dim;
    for (int axis = 0; axis < s->n_axes; axis++)
      p.delta[axis] = query->positions[p.key * s->n_axes + axis] - query->position[axis];
    pair_backward(&p);
  }
}

/* ---- softmax ---- */

/* <g, v>. */
static gradient_sum gained_by(const double *g, const double *v, int width) {
  gradient_sum sum = {0, 0};
  for (int c = 0; c < width; c++) add(&sum, (long double)g[c] * v[c], fabsl((long double)g[c] * v[c]));
  return sum;
}

void reference_attention_backward(const spec *s, const reference_query *query, const double *g, double g_lse,
                                  const reference_query_gradients *to) {
  int width = s->pairwise->value_dim;
  arena *a = arena_create();
  long double *p = arena_array(a, long double, query->keys + 1), *out = arena_array(a, long double, width + 1);
  gradient_sum *scores = arena_array(a, gradient_sum, query->keys + 1);
  reference_attention(s, query, p, out);
  long double largest = -INFINITY, sum = 0, delta = 0, size = fabsl(g_lse);
  for (int64_t key = 0; key < query->keys; key++) largest = fmaxl(largest, p[key]);
  for (int64_t key = 0; key < query->keys; key++) sum += p[key] = p[key] == -INFINITY ? 0 : expl(p[key] - largest);
  for (int64_t key = 0; key < query->keys; key++) {
    if (p[key] == 0) continue; /* whatever its value holds */
    scores[key] = gained_by(g, query->v + key * width, width);
    p[key] /= sum;
    delta += p[key] * scores[key].value;
    size += p[key] * scores[key].size;
    for (int c = 0; c < width && to->v; c++) add(&to->v[key * width + c], p[key] * g[c], p[key] * fabs(g[c]));
  }
  for (int64_t key = 0; key < query->keys; key++)
    scores[key] = (gradient_sum){p[key] * (scores[key].value - delta + g_lse), p[key] * (scores[key].size + size)};
  reference_scores_backward(s, query, scores, to);
  arena_destroy(a);
}
