/* algebra/torque_group: see algebra/torque_group.h. */
#include "algebra/torque_group.h"

#include "algebra/clifford.h"

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

static const expr *sine_of_radians(expr_pool *pool, const expr *t, double factor) {
  return expr_unary(pool, EXPR_SINQ, scaled(pool, t, factor * QUARTER_TURNS_PER_RADIAN));
}

/* Of an angle t >= 0: its sines are those of the float64, all else is float32 unless wide. */
static torque_functions circular(expr_pool *pool, const expr *t, bool wide) {
  t = expr_binary(pool, EXPR_MAX, t, number(pool, TINY_ANGLE));
  const expr *size = as(pool, wide, t), *square = squared(pool, size), *one = number(pool, 1);
  torque_functions f = {.sine = expr_div(pool, as(pool, wide, sine_of_radians(pool, t, 1)), size)};
  f.cosine = scaled(pool, squared(pool, expr_div(pool, as(pool, wide, sine_of_radians(pool, t, 0.5)), size)), 2);
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
  if (is_circular) return circular(pool, expr_unary(pool, EXPR_SQRT, square), wide);
  const expr *size = expr_binary(pool, EXPR_MAX, expr_unary(pool, EXPR_ABS, square), number(pool, 1));
  const expr *narrow = as(pool, wide, square);
  torque_functions c = circular(pool, expr_unary(pool, EXPR_SQRT, size), wide), h = hyperbolic(pool, size, wide);
  const expr *is_far = expr_binary(pool, EXPR_LESS, number(pool, 1), narrow);
  const expr *is_grown = expr_binary(pool, EXPR_LESS, narrow, number(pool, -1));
  const expr *turned[] = {c.sine, c.cosine, c.rest}, *grown[] = {h.sine, h.cosine, h.rest}, *f[3];
  for (int i = 0; i < 3; i++) {
    const expr *near = series(pool, narrow, i + 1);
    f[i] = expr_select(pool, is_far, turned[i], expr_select(pool, is_grown, grown[i], near));
  }
  return (torque_functions){f[0], f[1], f[2]};
}

/* ---- on torques ---- */

static bool vanishes(const expr *x) { return expr_is_const(x, 0); }

/* ad_M^T tau. Returns whether any of it is not 0. */
static bool turn_torque(const torque_group *g, const expr *const *m, const expr *const *tau, const expr **out) {
  const torque_basis *b = g->basis;
  bool any = false;
  for (int j = 0; j < b->count; j++) {
    out[j] = number(g->pool, 0);
    for (int i = 0; i < b->count; i++) {
      if (!b->sign[i][j]) continue;
      const expr *term = expr_mul(g->pool, m[i], tau[b->to[i][j]]);
      out[j] = b->sign[i][j] > 0 ? expr_add(g->pool, out[j], term) : expr_sub(g->pool, out[j], term);
    }
    any = any || !vanishes(out[j]);
  }
  return any;
}

static bool is_euclidean(const torque_group *g) {
  return g->basis->spec->dense || (g->basis->spec->algebra.q == 0 && g->basis->spec->algebra.r == 0);
}

/* -B^2 of a simple bivector. */
static const expr *square_of(const torque_group *g, const expr *const *m) {
  const expr *sum = number(g->pool, 0);
  for (int k = 0; k < g->basis->count; k++) {
    unsigned blade = g->basis->element[k].blade;
    int first = __builtin_ctz(blade), second = 31 - __builtin_clz(blade), sign = 1;
    if (!g->basis->spec->dense)
      sign = clifford_square(g->basis->spec->algebra, first) * clifford_square(g->basis->spec->algebra, second);
    sum = expr_add(g->pool, sum, scaled(g->pool, squared(g->pool, m[k]), sign));
  }
  return sum;
}

/* tau + first ad^T tau + second ad^T^2 tau. */
static void combine(const torque_group *g, const expr *const *tau, const expr *const *once, const expr *const *twice,
                    const expr *first, const expr *second, const expr **out) {
  for (int k = 0; k < g->basis->count; k++) {
    const expr *sum = expr_add(g->pool, tau[k], expr_mul(g->pool, first, once[k]));
    out[k] = expr_add(g->pool, sum, expr_mul(g->pool, second, twice[k]));
  }
}

const expr *torque_length(const torque_group *g, const expr *const *m) {
  return is_euclidean(g) ? expr_unary(g->pool, EXPR_SQRT, square_of(g, m)) : NULL;
}

enum { THREE = 3 };

typedef enum which { OF_ROTOR, OF_EXPONENTIAL } which;

static void through(const torque_group *g, which what, const expr *const *m, const expr *length, double sense,
                    const expr *const *tau, const expr **out) {
  const expr *low[SPEC_MAX_BIVECTORS], *of[SPEC_MAX_BIVECTORS], *once[SPEC_MAX_BIVECTORS], *twice[SPEC_MAX_BIVECTORS];
  bool wide = what == OF_EXPONENTIAL; /* what a generator gains is multiplied by its angle; see through_three */
  for (int k = 0; k < g->basis->count; k++) {
    low[k] = as(g->pool, wide, m[k]);
    of[k] = wide ? torque_widen(g->pool, tau[k]) : torque_narrow(g->pool, tau[k]);
  }
  if (!turn_torque(g, low, of, once)) { /* M commutes with all */
    for (int k = 0; k < g->basis->count; k++) out[k] = of[k];
    return;
  }
  turn_torque(g, low, once, twice);
  torque_functions f = length ? circular(g->pool, expr_unary(g->pool, EXPR_ABS, length), wide)
                              : torque_functions_of(g->pool, square_of(g, m), is_euclidean(g), wide);
  const expr *odd = what == OF_ROTOR ? f.sine : f.cosine, *even = what == OF_ROTOR ? f.cosine : f.rest;
  combine(g, of, once, twice, scaled(g->pool, odd, sense), even, out);
}

void torque_through_rotor(const torque_group *g, const expr *const *m, const expr *length, double sense,
                          const expr *const *tau, const expr **out) {
  through(g, OF_ROTOR, m, length, sense, tau, out);
}

/* Of three dimensions, where ad_M^2 tau = (M . tau) M - t^2 tau: at right angles to M little is left of tau, 1/t of it,
 * which a generator multiplies by t again. So nothing may be added there that goes away: what is along M is multiplied
 * with M in float64, and the rest is small term by term. */
static void through_three(const torque_group *g, const expr *const *m, const expr *length, double sense,
                          const expr *const *tau, const expr **out) {
  const expr *low[THREE], *of[THREE], *once[THREE], *dot = number(g->pool, 0);
  for (int k = 0; k < THREE; k++) {
    low[k] = torque_narrow(g->pool, m[k]);
    of[k] = torque_narrow(g->pool, tau[k]);
    dot = expr_add(g->pool, dot, expr_mul(g->pool, low[k], of[k]));
  }
  turn_torque(g, low, of, once);
  length = length ? expr_unary(g->pool, EXPR_ABS, length) : torque_length(g, m);
  torque_functions f = circular(g->pool, length, false);
  const expr *along = torque_widen(g->pool, expr_mul(g->pool, f.rest, dot)), *odd = scaled(g->pool, f.cosine, sense);
  for (int k = 0; k < THREE; k++) {
    const expr *across = expr_add(g->pool, expr_mul(g->pool, f.sine, of[k]), expr_mul(g->pool, odd, once[k]));
    out[k] = expr_add(g->pool, torque_widen(g->pool, across), expr_mul(g->pool, along, m[k]));
  }
}

void torque_through_exponential(const torque_group *g, const expr *const *m, const expr *length, double sense,
                                const expr *const *tau, const expr **out) {
  if (g->basis->count == THREE && is_euclidean(g)) through_three(g, m, length, sense, tau, out);
  else through(g, OF_EXPONENTIAL, m, length, sense, tau, out);
}
