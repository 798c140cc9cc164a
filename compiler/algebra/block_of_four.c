/* algebra/block_of_four: see algebra/block_of_four.h. */
#include "algebra/block_of_four.h"

static const double QUARTER_TURNS_PER_RADIAN = 0.636619772367581343076;

/* Returns entry (i, j), i < j, of an axis' generator. */
static const expr *block_four_entry(arena *a, const spec *s, int axis, int i, int j) {
  const spec_skew *g = &s->dense->generator[axis];
  int n = s->n_components, count = g->n_heads * s->n_blocks;
  int32_t *upper = arena_array(a, int32_t, count), *lower = arena_array(a, int32_t, count);
  for (int k = 0; k < count; k++) {
    upper[k] = g->offset[k] + i * n + j;
    lower[k] = g->offset[k] + j * n + i;
  }
  const expr *x = expr_operand(s->pool, g->operand, g->n_heads, upper);
  return g->rule == SKEW_DIFFERENCE ? expr_sub(s->pool, x, expr_operand(s->pool, g->operand, g->n_heads, lower)) : x;
}

/* Places of a quaternion's three parts: the left one has + at the second place, the right one -. */
static const int PLACE[3][2][2] = {{{0, 1}, {2, 3}}, {{0, 2}, {3, 1}}, {{0, 3}, {1, 2}}};

typedef struct quaternion {
  const expr *w, *v[3];
} quaternion;

/* cos |p| and sin |p| p/|p|. At p = 0 the unit vector is 0, and so is the sine. */
static quaternion unit_quaternion(expr_pool *pool, const expr *const *p) {
  const double tiny = 1e-280;
  const expr *square = expr_const(pool, 0);
  for (int i = 0; i < 3; i++) square = expr_add(pool, square, expr_mul(pool, p[i], p[i]));
  const expr *length = expr_unary(pool, EXPR_SQRT, expr_binary(pool, EXPR_MAX, square, expr_const(pool, tiny)));
  const expr *turns = expr_mul(pool, length, expr_const(pool, QUARTER_TURNS_PER_RADIAN));
  quaternion q = {expr_unary(pool, EXPR_COSQ, turns), {NULL}};
  const expr *sine = expr_unary(pool, EXPR_SINQ, turns);
  for (int i = 0; i < 3; i++) q.v[i] = expr_mul(pool, sine, expr_div(pool, p[i], length));
  return q;
}

/* The matrix of w + v: w on the diagonal, v[k] at its places and - below. */
static expr_matrix action(arena *a, expr_pool *pool, const quaternion *q, bool right) {
  expr_matrix m = {4, arena_array(a, const expr *, 16)};
  for (int i = 0; i < 16; i++) m.entry[i] = i % 5 ? NULL : q->w;
  for (int k = 0; k < 3; k++)
    for (int side = 0; side < 2; side++) {
      int i = PLACE[k][side][0], j = PLACE[k][side][1];
      bool minus = side == 1 && right;
      const expr *x = q->v[k], *y = expr_neg(pool, x);
      m.entry[i * 4 + j] = minus ? y : x;
      m.entry[j * 4 + i] = minus ? x : y;
    }
  return m;
}

void block_four_build(arena *a, const spec *s, block_program *out) {
  expr_pool *pool = s->pool;
  const expr *left[3], *right[3];
  for (int k = 0; k < 3; k++) {
    const expr *entry[2];
    for (int side = 0; side < 2; side++) {
      int i = PLACE[k][side][0], j = PLACE[k][side][1];
      const expr *sum = expr_const(pool, 0);
      for (int axis = 0; axis < s->n_axes; axis++) {
        const expr *g = i < j ? block_four_entry(a, s, axis, i, j) : expr_neg(pool, block_four_entry(a, s, axis, j, i));
        sum = expr_add(pool, sum, expr_mul(pool, s->angle[axis], g));
      }
      entry[side] = expr_mul(pool, sum, expr_const(pool, s->inverse ? -0.5 : 0.5));
    }
    left[k] = expr_add(pool, entry[0], entry[1]);
    right[k] = expr_sub(pool, entry[0], entry[1]);
  }
  /* Rounded once, at the end: two rounded quaternions are orthogonal to 2^-21.3 alone. */
  quaternion p = unit_quaternion(pool, left), q = unit_quaternion(pool, right);
  expr_matrix product = expr_matrix_product(a, pool, action(a, pool, &p, false), action(a, pool, &q, true));
  double amplitude = s->inverse ? 1 / s->amplitude : s->amplitude;
  for (int i = 0; i < 16; i++)
    product.entry[i] = expr_unary(pool, EXPR_NARROW, expr_mul(pool, product.entry[i], expr_const(pool, amplitude)));
  out->spec = s;
  out->n_turns = 1;
  out->turn[0] = CLOSED_QUATERNIONS;
  out->matrix = product;
}
