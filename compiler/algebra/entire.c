/* algebra/entire: see algebra/entire.h. */
#include "algebra/entire.h"

static const double QUARTER_TURNS_PER_RADIAN = 0.63661977236758134308;

/* Below this an angle counts as it: sin(t)/t is 1 there in any case. */
static const double TINY_ANGLE = 0x1p-50;

enum { TERMS = 9 };

/* (2k + first)! of k. */
static void find_factorials(int first, double factorial[TERMS]) {
  for (int k = 0; k < TERMS; k++) {
    factorial[k] = 1;
    for (int i = 2; i <= 2 * k + first; i++) factorial[k] *= i;
  }
}

/* sum over k of (-square)^k / (2k + first)!: below 1 to the last digits of a float64. */
static const expr *series(expr_pool *pool, const expr *square, int first) {
  double factorial[TERMS];
  find_factorials(first, factorial);
  const expr *sum = expr_const(pool, 1 / factorial[TERMS - 1]), *minus = expr_neg(pool, square);
  for (int k = TERMS - 2; k >= 0; k--)
    sum = expr_add(pool, expr_mul(pool, sum, minus), expr_const(pool, 1 / factorial[k]));
  return sum;
}

/* (1 - sine)/size: exact where size is not small. */
static const expr *rest_of(expr_pool *pool, const expr *sine, const expr *size) {
  return expr_div(pool, expr_sub(pool, expr_const(pool, 1), sine), size);
}

/* What is float64 where `wide`, and float32 elsewhere. */
static const expr *as(expr_pool *pool, bool wide, const expr *x) { return wide ? x : expr_narrow(pool, x); }

entire_functions entire_circular(expr_pool *pool, const expr *t, bool wide) {
  t = expr_binary(pool, EXPR_MAX, t, expr_const(pool, TINY_ANGLE));
  const expr *size = as(pool, wide, t), *square = expr_squared(pool, size), *one = expr_const(pool, 1);
  const expr *turns = expr_scaled(pool, t, QUARTER_TURNS_PER_RADIAN);
  const expr *half = expr_scaled(pool, t, 0.5 * QUARTER_TURNS_PER_RADIAN);
  const expr *part = expr_div(pool, as(pool, wide, expr_unary(pool, EXPR_SINQ, half)), size);
  const expr *cosine = as(pool, wide, expr_unary(pool, EXPR_COSQ, half));
  entire_functions f = {.sine = expr_scaled(pool, expr_mul(pool, part, cosine), 2),
                        .cosine = expr_scaled(pool, expr_squared(pool, part), 2)};
  f.whole_sine = expr_div(pool, as(pool, wide, expr_unary(pool, EXPR_SINQ, turns)), size);
  f.whole_cosine = as(pool, wide, expr_unary(pool, EXPR_COSQ, turns));
  const expr *far = rest_of(pool, f.sine, expr_binary(pool, EXPR_MAX, square, one));
  f.rest = expr_select(pool, expr_binary(pool, EXPR_LESS, square, one), series(pool, square, 3), far);
  return f;
}

/* sinh(t)/t, (cosh t - 1)/t^2, (sinh t - t)/t^3 and cosh t of size = t^2, which is not small. */
static entire_functions hyperbolic(expr_pool *pool, const expr *size, bool wide) {
  const expr *t = expr_unary(pool, EXPR_SQRT, size), *grow = expr_unary(pool, EXPR_EXP, t);
  const expr *decay = expr_div(pool, expr_const(pool, 1), grow);
  const expr *sine = expr_div(pool, expr_scaled(pool, expr_sub(pool, grow, decay), 0.5), t);
  const expr *cosh = expr_scaled(pool, expr_add(pool, grow, decay), 0.5);
  return (entire_functions){
      .sine = as(pool, wide, sine),
      .cosine = as(pool, wide, expr_div(pool, expr_sub(pool, cosh, expr_const(pool, 1)), size)),
      .rest = as(pool, wide, expr_neg(pool, rest_of(pool, sine, size))),
      .whole_sine = as(pool, wide, sine),
      .whole_cosine = as(pool, wide, cosh),
  };
}

entire_functions entire_functions_of(expr_pool *pool, const expr *square, entire_range range, bool wide) {
  if (range == ENTIRE_TURN) return entire_circular(pool, expr_unary(pool, EXPR_SQRT, square), wide);
  const expr *size = expr_binary(pool, EXPR_MAX, expr_unary(pool, EXPR_ABS, square), expr_const(pool, 1));
  const expr *narrow = as(pool, wide, square), *f[5];
  entire_functions c = {NULL}, h = hyperbolic(pool, size, wide);
  if (range == ENTIRE_EITHER) c = entire_circular(pool, expr_unary(pool, EXPR_SQRT, size), wide);
  const expr *is_far = expr_binary(pool, EXPR_LESS, expr_const(pool, 1), narrow);
  const expr *is_grown = expr_binary(pool, EXPR_LESS, narrow, expr_const(pool, -1));
  const expr *turned[] = {c.sine, c.cosine, c.rest, c.whole_sine, c.whole_cosine};
  const expr *grown[] = {h.sine, h.cosine, h.rest, h.whole_sine, h.whole_cosine};
  const int first[] = {1, 2, 3, 1, 0};
  for (int i = 0; i < 5; i++) {
    f[i] = expr_select(pool, is_grown, grown[i], series(pool, narrow, first[i]));
    if (range == ENTIRE_EITHER) f[i] = expr_select(pool, is_far, turned[i], f[i]);
  }
  return (entire_functions){f[0], f[1], f[2], f[3], f[4]};
}

/* ---- of complex numbers ---- */

/* sum over k of Z^k / (2k + first)! of complex Z = a + i b: what a Horner scheme makes of |Z| < 1. */
static void series_of_complex(expr_pool *pool, const expr *a, const expr *b, int first, const expr **real,
                              const expr **dual) {
  double factorial[TERMS];
  find_factorials(first, factorial);
  const expr *u = expr_const(pool, 1 / factorial[TERMS - 1]), *v = expr_const(pool, 0);
  for (int k = TERMS - 2; k >= 0; k--) {
    const expr *crossed = expr_mul(pool, v, b), *whole = expr_mul(pool, u, a);
    const expr *next = expr_add(pool, expr_mul(pool, u, b), expr_mul(pool, v, a));
    u = expr_add(pool, expr_sub(pool, whole, crossed), expr_const(pool, 1 / factorial[k]));
    v = next;
  }
  *real = u;
  *dual = v;
}

/* x / Z of complex numbers. */
static void divide(expr_pool *pool, const expr *x, const expr *y, const expr *a, const expr *b, const expr *norm,
                   const expr **real, const expr **dual) {
  const expr *along = expr_add(pool, expr_mul(pool, x, a), expr_mul(pool, y, b));
  const expr *across = expr_sub(pool, expr_mul(pool, y, a), expr_mul(pool, x, b));
  *real = expr_div(pool, along, norm);
  *dual = expr_div(pool, across, norm);
}

/* Z = (b + i t)^2, of size 1 and more: sinh(z)/z, 2 sinh(z/2)^2/z^2 and (sinh(z)/z - 1)/z^2 of z = b + i t. */
static void complex_functions(expr_pool *pool, const expr *b, const expr *t, const expr *a, const expr *p,
                              const expr *size, entire_pair *out) {
  const expr *h = expr_scaled(pool, b, 0.5), *grow = expr_unary(pool, EXPR_EXP, h);
  const expr *decay = expr_unary(pool, EXPR_EXP, expr_neg(pool, h));
  const expr *turns = expr_scaled(pool, t, 0.5 * QUARTER_TURNS_PER_RADIAN);
  const expr *sinh = expr_scaled(pool, expr_sub(pool, grow, decay), 0.5);
  const expr *cosh = expr_scaled(pool, expr_add(pool, grow, decay), 0.5);
  const expr *sine = expr_unary(pool, EXPR_SINQ, turns), *cosine = expr_unary(pool, EXPR_COSQ, turns);
  const expr *u = expr_mul(pool, sinh, cosine), *v = expr_mul(pool, cosh, sine);   /* sinh(z/2) */
  const expr *cu = expr_mul(pool, cosh, cosine), *cv = expr_mul(pool, sinh, sine); /* cosh(z/2) */
  const expr *whole_u = expr_sub(pool, expr_mul(pool, u, cu), expr_mul(pool, v, cv));
  const expr *whole_v = expr_add(pool, expr_mul(pool, u, cv), expr_mul(pool, v, cu)); /* sinh(z)/2 */
  const expr *norm = expr_squared(pool, size), *double_b = expr_scaled(pool, b, 2), *double_t = expr_scaled(pool, t, 2);
  divide(pool, whole_u, whole_v, double_b, double_t, size, &out->real.sine, &out->dual.sine);
  const expr *square_u = expr_scaled(pool, expr_sub(pool, expr_squared(pool, u), expr_squared(pool, v)), 2);
  const expr *square_v = expr_scaled(pool, expr_mul(pool, u, v), 4);
  divide(pool, square_u, square_v, a, p, norm, &out->real.cosine, &out->dual.cosine);
  const expr *less = expr_sub(pool, out->real.sine, expr_const(pool, 1));
  divide(pool, less, out->dual.sine, a, p, norm, &out->real.rest, &out->dual.rest);
}

static entire_functions chosen(expr_pool *pool, const expr *is_near, entire_functions near, entire_functions far) {
  return (entire_functions){.sine = expr_select(pool, is_near, near.sine, far.sine),
                            .cosine = expr_select(pool, is_near, near.cosine, far.cosine),
                            .rest = expr_select(pool, is_near, near.rest, far.rest)};
}

entire_pair entire_of_complex(expr_pool *pool, const expr *a, const expr *p) {
  const expr *size = expr_unary(pool, EXPR_SQRT, expr_add(pool, expr_squared(pool, a), expr_squared(pool, p)));
  const expr *is_near = expr_binary(pool, EXPR_LESS, size, expr_const(pool, 1));
  const expr *far = expr_binary(pool, EXPR_MAX, size, expr_const(pool, 1));
  const expr *large = expr_scaled(pool, expr_add(pool, far, expr_unary(pool, EXPR_ABS, a)), 0.5); /* of b^2 and t^2 */
  const expr *small = expr_div(pool, expr_scaled(pool, expr_squared(pool, p), 0.25), large);
  const expr *is_turn = expr_binary(pool, EXPR_LESS, a, expr_const(pool, 0));
  const expr *b = expr_unary(pool, EXPR_SQRT, expr_select(pool, is_turn, small, large));
  const expr *t = expr_unary(pool, EXPR_SQRT, expr_select(pool, is_turn, large, small));
  t = expr_select(pool, expr_binary(pool, EXPR_LESS, p, expr_const(pool, 0)), expr_neg(pool, t), t);
  entire_pair near, distant;
  complex_functions(pool, b, t, a, p, far, &distant);
  series_of_complex(pool, a, p, 1, &near.real.sine, &near.dual.sine);
  series_of_complex(pool, a, p, 2, &near.real.cosine, &near.dual.cosine);
  series_of_complex(pool, a, p, 3, &near.real.rest, &near.dual.rest);
  return (entire_pair){chosen(pool, is_near, near.real, distant.real), chosen(pool, is_near, near.dual, distant.dual)};
}
