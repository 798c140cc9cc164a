/* algebra/entire: see algebra/entire.h. */
#include "algebra/entire.h"

static const double QUARTER_TURNS_PER_RADIAN = 0.63661977236758134308;

/* Below this an angle counts as it: sin(t)/t is 1 there in any case. */
static const double TINY_ANGLE = 0x1p-50;

static const expr *number(expr_pool *pool, double value) { return expr_const(pool, value); }
static const expr *scaled(expr_pool *pool, const expr *x, double c) { return expr_mul(pool, x, number(pool, c)); }
static const expr *squared(expr_pool *pool, const expr *x) { return expr_mul(pool, x, x); }

enum { TERMS = 9 };

/* sum over k of (-square)^k / (2k + first)!: below 1 to the last digits of a float64. */
static const expr *series(expr_pool *pool, const expr *square, int first) {
  double factorial[TERMS];
  for (int k = 0; k < TERMS; k++) {
    factorial[k] = 1;
    for (int i = 2; i <= 2 * k + first; i++) factorial[k] *= i;
  }
  const expr *sum = number(pool, 1 / factorial[TERMS - 1]), *minus = expr_neg(pool, square);
  for (int k = TERMS - 2; k >= 0; k--) sum = expr_add(pool, expr_mul(pool, sum, minus), number(pool, 1 / factorial[k]));
  return sum;
}

/* (1 - sine)/size: exact where size is not small. */
static const expr *rest_of(expr_pool *pool, const expr *sine, const expr *size) {
  return expr_div(pool, expr_sub(pool, number(pool, 1), sine), size);
}

/* What is float64 where `wide`, and float32 elsewhere. */
static const expr *as(expr_pool *pool, bool wide, const expr *x) { return wide ? x : expr_narrow(pool, x); }

entire_functions entire_circular(expr_pool *pool, const expr *t, bool wide) {
  t = expr_binary(pool, EXPR_MAX, t, number(pool, TINY_ANGLE));
  const expr *size = as(pool, wide, t), *square = squared(pool, size), *one = number(pool, 1);
  /* Both are made of the half angle's sine and cosine, which share a reduction. */
  const expr *half = scaled(pool, t, 0.5 * QUARTER_TURNS_PER_RADIAN);
  const expr *part = expr_div(pool, as(pool, wide, expr_unary(pool, EXPR_SINQ, half)), size);
  const expr *cosine = as(pool, wide, expr_unary(pool, EXPR_COSQ, half));
  entire_functions f = {.sine = scaled(pool, expr_mul(pool, part, cosine), 2),
                        .cosine = scaled(pool, squared(pool, part), 2)};
  const expr *far = rest_of(pool, f.sine, expr_binary(pool, EXPR_MAX, square, one));
  f.rest = expr_select(pool, expr_binary(pool, EXPR_LESS, square, one), series(pool, square, 3), far);
  return f;
}

/* sinh(t)/t, (cosh t - 1)/t^2 and (sinh t - t)/t^3 of size = t^2, which is not small. */
static entire_functions hyperbolic(expr_pool *pool, const expr *size, bool wide) {
  const expr *t = expr_unary(pool, EXPR_SQRT, size), *grow = expr_unary(pool, EXPR_EXP, t);
  const expr *decay = expr_div(pool, number(pool, 1), grow);
  const expr *sine = expr_div(pool, scaled(pool, expr_sub(pool, grow, decay), 0.5), t);
  const expr *cosh = scaled(pool, expr_add(pool, grow, decay), 0.5);
  return (entire_functions){
      .sine = as(pool, wide, sine),
      .cosine = as(pool, wide, expr_div(pool, expr_sub(pool, cosh, number(pool, 1)), size)),
      .rest = as(pool, wide, expr_neg(pool, rest_of(pool, sine, size))),
  };
}

entire_functions entire_functions_of(expr_pool *pool, const expr *square, entire_range range, bool wide) {
  if (range == ENTIRE_TURN) return entire_circular(pool, expr_unary(pool, EXPR_SQRT, square), wide);
  const expr *size = expr_binary(pool, EXPR_MAX, expr_unary(pool, EXPR_ABS, square), number(pool, 1));
  const expr *narrow = as(pool, wide, square), *f[3];
  entire_functions c = {NULL}, h = hyperbolic(pool, size, wide);
  if (range == ENTIRE_EITHER) c = entire_circular(pool, expr_unary(pool, EXPR_SQRT, size), wide);
  const expr *is_far = expr_binary(pool, EXPR_LESS, number(pool, 1), narrow);
  const expr *is_grown = expr_binary(pool, EXPR_LESS, narrow, number(pool, -1));
  const expr *turned[] = {c.sine, c.cosine, c.rest}, *grown[] = {h.sine, h.cosine, h.rest};
  for (int i = 0; i < 3; i++) {
    f[i] = expr_select(pool, is_grown, grown[i], series(pool, narrow, i + 1));
    if (range == ENTIRE_EITHER) f[i] = expr_select(pool, is_far, turned[i], f[i]);
  }
  return (entire_functions){f[0], f[1], f[2]};
}
