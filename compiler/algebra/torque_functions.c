/* algebra/torque_functions: see algebra/torque_functions.h. */
#include "algebra/torque_functions.h"

static const double QUARTER_TURNS_PER_RADIAN = 0.63661977236758134308;

/* Below this an angle counts as it: sin(t)/t is 1 there in any case. */
static const double TINY_ANGLE = 0x1p-50;

static const expr *number(expr_pool *pool, double value) { return expr_const(pool, value); }
static const expr *scaled(expr_pool *pool, const expr *x, double c) { return expr_mul(pool, x, number(pool, c)); }
static const expr *squared(expr_pool *pool, const expr *x) { return expr_mul(pool, x, x); }

const expr *torque_narrow(expr_pool *pool, const expr *x) {
  return x->is_f32 || expr_is_fixed(x) ? x : expr_unary(pool, EXPR_NARROW, x);
}

const expr *torque_widen(expr_pool *pool, const expr *x) { return x->is_f32 ? expr_unary(pool, EXPR_WIDEN, x) : x; }

/* ---- entire functions ---- */

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
static const expr *as(expr_pool *pool, bool wide, const expr *x) { return wide ? x : torque_narrow(pool, x); }

torque_functions torque_circular(expr_pool *pool, const expr *t, bool wide) {
  t = expr_binary(pool, EXPR_MAX, t, number(pool, TINY_ANGLE));
  const expr *size = as(pool, wide, t), *square = squared(pool, size), *one = number(pool, 1);
  /* Both are made of the half angle's sine and cosine, which share a reduction. */
  const expr *half = scaled(pool, t, 0.5 * QUARTER_TURNS_PER_RADIAN);
  const expr *part = expr_div(pool, as(pool, wide, expr_unary(pool, EXPR_SINQ, half)), size);
  const expr *cosine = as(pool, wide, expr_unary(pool, EXPR_COSQ, half));
  torque_functions f = {.sine = scaled(pool, expr_mul(pool, part, cosine), 2),
                        .cosine = scaled(pool, squared(pool, part), 2)};
  const expr *far = rest_of(pool, f.sine, expr_binary(pool, EXPR_MAX, square, one));
  f.rest = expr_select(pool, expr_binary(pool, EXPR_LESS, square, one), series(pool, square, 3), far);
  return f;
}

/* sinh(t)/t, (cosh t - 1)/t^2 and (sinh t - t)/t^3 of size = t^2, which is not small. */
static torque_functions hyperbolic(expr_pool *pool, const expr *size, bool wide) {
  const expr *t = expr_unary(pool, EXPR_SQRT, size), *grow = expr_unary(pool, EXPR_EXP, t);
  const expr *decay = expr_div(pool, number(pool, 1), grow);
  const expr *sine = expr_div(pool, scaled(pool, expr_sub(pool, grow, decay), 0.5), t);
  const expr *cosh = scaled(pool, expr_add(pool, grow, decay), 0.5);
  return (torque_functions){
      .sine = as(pool, wide, sine),
      .cosine = as(pool, wide, expr_div(pool, expr_sub(pool, cosh, number(pool, 1)), size)),
      .rest = as(pool, wide, expr_neg(pool, rest_of(pool, sine, size))),
  };
}

torque_functions torque_functions_of(expr_pool *pool, const expr *square, bool is_circular, bool wide) {
  if (is_circular) return torque_circular(pool, expr_unary(pool, EXPR_SQRT, square), wide);
  const expr *size = expr_binary(pool, EXPR_MAX, expr_unary(pool, EXPR_ABS, square), number(pool, 1));
  const expr *narrow = as(pool, wide, square);
  torque_functions c = torque_circular(pool, expr_unary(pool, EXPR_SQRT, size), wide), h = hyperbolic(pool, size, wide);
  const expr *is_far = expr_binary(pool, EXPR_LESS, number(pool, 1), narrow);
  const expr *is_grown = expr_binary(pool, EXPR_LESS, narrow, number(pool, -1));
  const expr *turned[] = {c.sine, c.cosine, c.rest}, *grown[] = {h.sine, h.cosine, h.rest}, *f[3];
  for (int i = 0; i < 3; i++) {
    const expr *near = series(pool, narrow, i + 1);
    f[i] = expr_select(pool, is_far, turned[i], expr_select(pool, is_grown, grown[i], near));
  }
  return (torque_functions){f[0], f[1], f[2]};
}

/* ---- of Z = a + 2 pf J ---- */

/* x = u + v J of values u + v and u - v. */
static void from_values(expr_pool *pool, const expr *plus, const expr *minus, const expr **real, const expr **dual) {
  *real = scaled(pool, expr_add(pool, plus, minus), 0.5);
  *dual = scaled(pool, expr_sub(pool, plus, minus), 0.5);
}

/* -(a +- 2 pf), sums of one sign where all vectors square to one: e = eta_i eta_j is eta_k eta_l, too, and
 * e (b_ij^2 + b_kl^2) -+ 2 s b_ij b_kl is e (b_ij -+ s e b_kl)^2, s the sign of the pair in the Pfaffian. */
static const expr *value_at(const spec *s, const spec_bivector *plane, int sign) {
  const expr *coefficient[SPEC_MAX_BLADES], *sum = number(s->pool, 0);
  unsigned vectors = split_vectors(plane), first = vectors & -vectors, rest = vectors & ~first;
  for (int i = 0; i < SPEC_MAX_BLADES; i++) coefficient[i] = number(s->pool, 0);
  for (int t = 0; t < plane->count; t++) coefficient[plane->blade[t]] = plane->coefficient[t];
  int e_first = clifford_square(s->algebra, __builtin_ctz(first));
  for (int k = 1; rest; k++, rest &= rest - 1) {
    unsigned blade = first | (rest & -rest);
    int e = e_first * clifford_square(s->algebra, __builtin_ctz(rest)), by = -sign * e * (k == 2 ? -1 : 1);
    const expr *part = scaled(s->pool, coefficient[vectors & ~blade], by);
    sum = expr_add(s->pool, sum, scaled(s->pool, squared(s->pool, expr_add(s->pool, coefficient[blade], part)), e));
  }
  return sum;
}

static bool is_definite(const spec *s, unsigned vectors) {
  int sum = 0, count = clifford_grade(vectors);
  for (; vectors; vectors &= vectors - 1) sum += clifford_square(s->algebra, __builtin_ctz(vectors));
  return sum == count || sum == -count;
}

static torque_pair of_halves(const spec *s, const spec_bivector *plane) {
  bool is_circular = is_definite(s, split_vectors(plane));
  const expr *square = value_at(s, plane, 1);
  torque_functions f = torque_functions_of(s->pool, square, is_circular, true);
  square = value_at(s, plane, -1);
  torque_functions g = torque_functions_of(s->pool, square, is_circular, true);
  torque_pair p;
  from_values(s->pool, f.sine, g.sine, &p.real.sine, &p.dual.sine);
  from_values(s->pool, f.cosine, g.cosine, &p.real.cosine, &p.dual.cosine);
  from_values(s->pool, f.rest, g.rest, &p.real.rest, &p.dual.rest);
  return p;
}

/* sum over k of Z^k / (2k + first)! in R[J], J^2 = D: what a Horner scheme makes of |Z| < 1. */
static void series_of_pair(expr_pool *pool, const expr *a, const expr *b, int determinant, int first, const expr **real,
                           const expr **dual) {
  double factorial[TERMS];
  for (int k = 0; k < TERMS; k++) {
    factorial[k] = 1;
    for (int i = 2; i <= 2 * k + first; i++) factorial[k] *= i;
  }
  const expr *u = number(pool, 1 / factorial[TERMS - 1]), *v = number(pool, 0);
  for (int k = TERMS - 2; k >= 0; k--) {
    const expr *crossed = scaled(pool, expr_mul(pool, v, b), determinant), *whole = expr_mul(pool, u, a);
    const expr *next = expr_add(pool, expr_mul(pool, u, b), expr_mul(pool, v, a));
    u = expr_add(pool, expr_add(pool, whole, crossed), number(pool, 1 / factorial[k]));
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
                              const expr *size, torque_pair *out) {
  const expr *h = scaled(pool, b, 0.5), *grow = expr_unary(pool, EXPR_EXP, h);
  const expr *decay = expr_unary(pool, EXPR_EXP, expr_neg(pool, h));
  const expr *turns = scaled(pool, t, 0.5 * QUARTER_TURNS_PER_RADIAN);
  const expr *sinh = scaled(pool, expr_sub(pool, grow, decay), 0.5);
  const expr *cosh = scaled(pool, expr_add(pool, grow, decay), 0.5);
  const expr *sine = expr_unary(pool, EXPR_SINQ, turns), *cosine = expr_unary(pool, EXPR_COSQ, turns);
  const expr *u = expr_mul(pool, sinh, cosine), *v = expr_mul(pool, cosh, sine);   /* sinh(z/2) */
  const expr *cu = expr_mul(pool, cosh, cosine), *cv = expr_mul(pool, sinh, sine); /* cosh(z/2) */
  const expr *whole_u = expr_sub(pool, expr_mul(pool, u, cu), expr_mul(pool, v, cv));
  const expr *whole_v = expr_add(pool, expr_mul(pool, u, cv), expr_mul(pool, v, cu)); /* sinh(z)/2 */
  const expr *norm = squared(pool, size), *double_b = scaled(pool, b, 2), *double_t = scaled(pool, t, 2);
  divide(pool, whole_u, whole_v, double_b, double_t, size, &out->real.sine, &out->dual.sine);
  const expr *square_u = scaled(pool, expr_sub(pool, squared(pool, u), squared(pool, v)), 2);
  const expr *square_v = scaled(pool, expr_mul(pool, u, v), 4);
  divide(pool, square_u, square_v, a, p, norm, &out->real.cosine, &out->dual.cosine);
  const expr *less = expr_sub(pool, out->real.sine, number(pool, 1));
  divide(pool, less, out->dual.sine, a, p, norm, &out->real.rest, &out->dual.rest);
}

static torque_functions chosen(expr_pool *pool, const expr *is_near, torque_functions near, torque_functions far) {
  return (torque_functions){.sine = expr_select(pool, is_near, near.sine, far.sine),
                            .cosine = expr_select(pool, is_near, near.cosine, far.cosine),
                            .rest = expr_select(pool, is_near, near.rest, far.rest)};
}

static torque_pair of_boost_and_turn(const spec *s, const split_invariants *of) {
  expr_pool *pool = s->pool;
  const expr *a = of->square, *p = scaled(pool, of->pfaffian, 2);
  const expr *size = expr_unary(pool, EXPR_SQRT, expr_add(pool, squared(pool, a), squared(pool, p)));
  const expr *is_near = expr_binary(pool, EXPR_LESS, size, number(pool, 1));
  const expr *far = expr_binary(pool, EXPR_MAX, size, number(pool, 1));
  const expr *large = scaled(pool, expr_add(pool, far, expr_unary(pool, EXPR_ABS, a)), 0.5); /* of b^2 and t^2 */
  const expr *small = expr_div(pool, squared(pool, of->pfaffian), large);
  const expr *is_turn = expr_binary(pool, EXPR_LESS, a, number(pool, 0));
  const expr *b = expr_unary(pool, EXPR_SQRT, expr_select(pool, is_turn, small, large));
  const expr *t = expr_unary(pool, EXPR_SQRT, expr_select(pool, is_turn, large, small));
  t = expr_select(pool, expr_binary(pool, EXPR_LESS, p, number(pool, 0)), expr_neg(pool, t), t);
  torque_pair near, distant;
  complex_functions(pool, b, t, a, p, far, &distant);
  series_of_pair(pool, a, p, -1, 1, &near.real.sine, &near.dual.sine);
  series_of_pair(pool, a, p, -1, 2, &near.real.cosine, &near.dual.cosine);
  series_of_pair(pool, a, p, -1, 3, &near.real.rest, &near.dual.rest);
  return (torque_pair){chosen(pool, is_near, near.real, distant.real), chosen(pool, is_near, near.dual, distant.dual)};
}

/* With the functions S, C, R of z: S' = (C - R)/2, C' = R/2 - (C - 1/2)/z, R' = (C - 3 R)/(2 z). */
static torque_pair of_screw(const spec *s, const split_invariants *of) {
  expr_pool *pool = s->pool;
  const expr *z = of->square, *size = expr_unary(pool, EXPR_ABS, z), *slope = scaled(pool, of->pfaffian, 2);
  torque_pair near, distant;
  series_of_pair(pool, z, slope, 0, 1, &near.real.sine, &near.dual.sine);
  series_of_pair(pool, z, slope, 0, 2, &near.real.cosine, &near.dual.cosine);
  series_of_pair(pool, z, slope, 0, 3, &near.real.rest, &near.dual.rest);
  const expr *is_near = expr_binary(pool, EXPR_LESS, size, number(pool, 1));
  distant.real = torque_functions_of(pool, expr_neg(pool, z), false, true);
  const expr *far = expr_select(pool, is_near, number(pool, 1), z);
  const expr *c = distant.real.cosine, *r = distant.real.rest;
  const expr *less = expr_div(pool, expr_sub(pool, c, number(pool, 0.5)), far);
  const expr *third = expr_div(pool, expr_sub(pool, c, scaled(pool, r, 3)), scaled(pool, far, 2));
  distant.dual.sine = expr_mul(pool, slope, scaled(pool, expr_sub(pool, c, r), 0.5));
  distant.dual.cosine = expr_mul(pool, slope, expr_sub(pool, scaled(pool, r, 0.5), less));
  distant.dual.rest = expr_mul(pool, slope, third);
  return (torque_pair){chosen(pool, is_near, near.real, distant.real), chosen(pool, is_near, near.dual, distant.dual)};
}

torque_pair torque_functions_of_split(const spec *s, const spec_bivector *plane) {
  split_invariants of = split_invariants_of(s, plane);
  switch (split_kind_of(s->algebra, split_vectors(plane))) {
  case SPLIT_BOOST_AND_TURN: return of_boost_and_turn(s, &of);
  case SPLIT_SCREW: return of_screw(s, &of);
  default: return of_halves(s, plane);
  }
}
