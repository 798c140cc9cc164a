/* algebra/torque_group: see algebra/torque_group.h. */
#include "algebra/torque_group.h"

#include "algebra/split.h"
#include "algebra/torque_five.h"

/* What is float64 where `wide`, and float32 elsewhere. */
static const expr *as(expr_pool *pool, bool wide, const expr *x) { return wide ? x : expr_narrow(pool, x); }

/* ---- on torques ---- */

/* ad_M^T tau. Returns whether any of it is not 0. */
static bool turn_torque(const torque_basis *b, const expr *const *m, const expr *const *tau, const expr **out) {
  expr_pool *pool = b->spec->pool;
  bool any = false;
  for (int j = 0; j < b->count; j++) {
    out[j] = expr_const(pool, 0);
    for (int i = 0; i < b->count; i++) {
      if (!b->sign[i][j]) continue;
      const expr *term = expr_mul(pool, m[i], tau[b->to[i][j]]);
      out[j] = b->sign[i][j] > 0 ? expr_add(pool, out[j], term) : expr_sub(pool, out[j], term);
    }
    any = any || !expr_is_const(out[j], 0);
  }
  return any;
}

/* The product of the squares of a plane's vectors. */
static int plane_sign(const torque_basis *b, int k) {
  unsigned blade = b->element[k].blade;
  int first = clifford_square(b->spec->algebra, __builtin_ctz(blade));
  return first * clifford_square(b->spec->algebra, 31 - __builtin_clz(blade));
}

static bool is_euclidean(const torque_basis *b) {
  bool is = true;
  for (int k = 0; k < b->count; k++) is = is && plane_sign(b, k) > 0;
  return is;
}

/* -B^2 of a simple bivector. */
static const expr *square_of(const torque_basis *b, const expr *const *m) {
  expr_pool *pool = b->spec->pool;
  const expr *sum = expr_const(pool, 0);
  for (int k = 0; k < b->count; k++)
    sum = expr_add(pool, sum, expr_scaled(pool, expr_squared(pool, m[k]), plane_sign(b, k)));
  return sum;
}

/* tau + first ad^T tau + second ad^T^2 tau. */
static void combine(const torque_basis *b, const expr *const *tau, const expr *const *once, const expr *const *twice,
                    const expr *first, const expr *second, const expr **out) {
  expr_pool *pool = b->spec->pool;
  for (int k = 0; k < b->count; k++) {
    const expr *sum = expr_add(pool, tau[k], expr_mul(pool, first, once[k]));
    out[k] = expr_add(pool, sum, expr_mul(pool, second, twice[k]));
  }
}

const expr *torque_length(const torque_basis *b, const expr *const *m) {
  return is_euclidean(b) ? expr_unary(b->spec->pool, EXPR_SQRT, square_of(b, m)) : NULL;
}

enum { THREE = 3, FOUR = 4 };

/* ---- simple bivectors ---- */

/* In three dimensions ad_M^2 tau = (M . tau) M - t^2 tau: at right angles to M little is left of tau, 1/t of it,
 * which a generator multiplies by t again. So nothing may be added there that goes away: what is along M is multiplied
 * with M in float64, and the rest is small term by term. */
static void through_three(const torque_factor *x, const expr *length, const expr *const *tau, const expr **out) {
  const torque_basis *b = x->basis;
  expr_pool *pool = b->spec->pool;
  const expr *low[THREE], *of[THREE], *once[THREE], *dot = expr_const(pool, 0);
  for (int k = 0; k < THREE; k++) {
    low[k] = expr_narrow(pool, x->m[k]);
    of[k] = expr_narrow(pool, tau[k]);
    dot = expr_add(pool, dot, expr_mul(pool, low[k], of[k]));
  }
  turn_torque(b, low, of, once);
  entire_functions f = entire_circular(pool, length, false);
  const expr *along = expr_widen(pool, expr_mul(pool, f.rest, dot)), *odd = expr_scaled(pool, f.cosine, x->sense);
  for (int k = 0; k < THREE; k++) {
    const expr *across = expr_add(pool, expr_mul(pool, f.sine, of[k]), expr_mul(pool, odd, once[k]));
    out[k] = expr_add(pool, expr_widen(pool, across), expr_mul(pool, along, x->m[k]));
  }
}

static void through_simple(const torque_factor *x, torque_map map, const expr *const *tau, const expr **out) {
  const torque_basis *b = x->basis;
  expr_pool *pool = b->spec->pool;
  const expr *low[SPEC_MAX_BIVECTORS], *of[SPEC_MAX_BIVECTORS], *once[SPEC_MAX_BIVECTORS], *twice[SPEC_MAX_BIVECTORS];
  bool wide = map == TORQUE_EXPONENTIAL; /* what a generator gains is multiplied by its angle; see through_three */
  const expr *length = x->length ? expr_unary(pool, EXPR_ABS, x->length) : torque_length(b, x->m);
  if (length && b->count == THREE && wide) {
    through_three(x, length, tau, out);
    return;
  }
  for (int k = 0; k < b->count; k++) {
    low[k] = as(pool, wide, x->m[k]);
    of[k] = wide ? expr_widen(pool, tau[k]) : expr_narrow(pool, tau[k]);
  }
  if (!turn_torque(b, low, of, once)) { /* M commutes with all */
    for (int k = 0; k < b->count; k++) out[k] = of[k];
    return;
  }
  turn_torque(b, low, once, twice);
  entire_functions f =
      length ? entire_circular(pool, length, wide) : entire_functions_of(pool, square_of(b, x->m), ENTIRE_EITHER, wide);
  const expr *odd = map == TORQUE_ROTOR ? f.sine : f.cosine, *even = map == TORQUE_ROTOR ? f.cosine : f.rest;
  combine(b, of, once, twice, expr_scaled(pool, odd, x->sense), even, out);
}

/* ---- four vectors ---- */

/* The vectors of the basis where there are four, whose squares are alike and not 0. */
static bool find_four(const torque_basis *b, unsigned e[FOUR]) {
  unsigned vectors = 0;
  for (int k = 0; k < b->count; k++) vectors |= b->element[k].blade;
  if (clifford_grade(vectors) != FOUR || !is_euclidean(b)) return false;
  int sum = 0;
  for (int i = 0; i < FOUR; i++, vectors &= vectors - 1) {
    e[i] = vectors & -vectors;
    sum += clifford_square(b->spec->algebra, __builtin_ctz(e[i]));
  }
  return sum == FOUR || sum == -FOUR;
}

/* One so(3), by halves of E_0k + side * E_partner, whose commutators are -side times the third where squares are 1. */
static torque_basis half_basis(const spec *s, const unsigned e[FOUR], int side) {
  torque_basis half = {.spec = s, .count = THREE};
  int sign = -side * clifford_square(s->algebra, __builtin_ctz(e[0]));
  for (int k = 0; k < THREE; k++) {
    int next = (k + 1) % THREE, third = (k + 2) % THREE;
    half.element[k].blade = e[0] | e[1];
    half.to[k][next] = half.to[next][k] = (signed char)third;
    half.sign[k][next] = (signed char)sign;
    half.sign[next][k] = (signed char)-sign;
  }
  return half;
}

static const expr *at(const torque_basis *b, const expr *const *x, unsigned blade) {
  int k = torque_find(b, blade);
  return k < 0 ? expr_const(b->spec->pool, 0) : x[k];
}

static void through_halves(const torque_factor *x, torque_map map, const unsigned e[FOUR], const expr *const *tau,
                           const expr **out) {
  const torque_basis *b = x->basis;
  expr_pool *pool = b->spec->pool;
  const unsigned partner[THREE] = {e[2] | e[3], e[1] | e[3], e[1] | e[2]}; /* E_23, E_31, E_12 */
  const expr *gained[2][THREE];
  for (int h = 0; h < 2; h++) {
    torque_basis half = half_basis(b->spec, e, h ? -1 : 1);
    const expr *part[THREE], *torque[THREE];
    for (int k = 0; k < THREE; k++) {
      expr_op op = (k == 1) != h ? EXPR_SUB : EXPR_ADD;
      part[k] = expr_binary(pool, op, at(b, x->m, e[0] | e[k + 1]), at(b, x->m, partner[k]));
      torque[k] = expr_binary(pool, op, at(b, tau, e[0] | e[k + 1]), at(b, tau, partner[k]));
      torque[k] = expr_scaled(pool, torque[k], 0.5);
    }
    through_simple(&(torque_factor){&half, part, NULL, x->sense}, map, torque, gained[h]);
  }
  for (int k = 0; k < THREE; k++) {
    const expr *difference = expr_sub(pool, gained[0][k], gained[1][k]);
    int first = torque_find(b, e[0] | e[k + 1]), second = torque_find(b, partner[k]);
    if (first >= 0) out[first] = expr_add(pool, gained[0][k], gained[1][k]);
    if (second >= 0) out[second] = k == 1 ? expr_neg(pool, difference) : difference;
  }
}

/* (real + dual J)^T x of a bivector's Z, J = e_0123. */
static void scaled_by_pair(const torque_basis *b, unsigned four, const expr *real, const expr *dual,
                           const expr *const *x, const expr **out) {
  expr_pool *pool = b->spec->pool;
  for (int k = 0; k < b->count; k++) {
    int sign = clifford_reorder_sign(four, b->element[k].blade) * plane_sign(b, k);
    int other = torque_find(b, four ^ b->element[k].blade);
    out[k] = expr_mul(pool, real, x[k]);
    if (other >= 0) out[k] = expr_add(pool, out[k], expr_mul(pool, dual, expr_scaled(pool, x[other], sign)));
  }
}

/* ad^3 = Z ad among planes of four vectors whose squares' product is -1. */
static void through_boost_and_turn(const torque_factor *x, torque_map map, const spec_bivector *whole,
                                   const expr *const *tau, const expr **out) {
  const torque_basis *b = x->basis;
  expr_pool *pool = b->spec->pool;
  const expr *of[SPEC_MAX_BIVECTORS] = {NULL}, *once[SPEC_MAX_BIVECTORS], *twice[SPEC_MAX_BIVECTORS];
  const expr *first[SPEC_MAX_BIVECTORS], *second[SPEC_MAX_BIVECTORS];
  unsigned four = split_vectors(whole);
  split_invariants z = split_invariants_of(b->spec, whole);
  entire_pair f = entire_of_complex(pool, z.square, expr_scaled(pool, z.pfaffian, 2));
  for (int k = 0; k < b->count; k++) of[k] = expr_widen(pool, tau[k]);
  turn_torque(b, x->m, of, once);
  turn_torque(b, x->m, once, twice);
  bool is_rotor = map == TORQUE_ROTOR;
  const expr *odd = expr_scaled(pool, is_rotor ? f.real.sine : f.real.cosine, x->sense);
  const expr *odd_dual = expr_scaled(pool, is_rotor ? f.dual.sine : f.dual.cosine, x->sense);
  scaled_by_pair(b, four, odd, odd_dual, once, first);
  scaled_by_pair(b, four, is_rotor ? f.real.cosine : f.real.rest, is_rotor ? f.dual.cosine : f.dual.rest, twice,
                 second);
  for (int k = 0; k < b->count; k++) out[k] = expr_add(pool, expr_add(pool, of[k], first[k]), second[k]);
}

/* Whether the bivector has a boost and a turn, and the basis its four vectors alone. */
static bool is_boost_and_turn(const torque_basis *b, const spec_bivector *whole) {
  unsigned vectors = split_vectors(whole);
  for (int k = 0; k < b->count; k++)
    if (b->element[k].blade & ~vectors) return false;
  return clifford_grade(vectors) == FOUR && split_kind_of(b->spec->algebra, vectors) == SPLIT_BOOST_AND_TURN;
}

/* ---- all ---- */

static spec_bivector bivector_of(const torque_basis *b, const expr *const *m) {
  spec_bivector whole = {0};
  for (int k = 0; k < b->count; k++) {
    if (expr_is_const(m[k], 0)) continue;
    whole.blade[whole.count] = b->element[k].blade;
    whole.coefficient[whole.count++] = m[k];
  }
  return whole;
}

void torque_through(const torque_factor *x, torque_map map, const expr *const *tau, const expr **out) {
  unsigned four[FOUR];
  const spec *s = x->basis->spec;
  spec_bivector whole = bivector_of(x->basis, x->m);
  if (clifford_dimensions(s->algebra) <= THREE || split_is_simple(s, &whole)) through_simple(x, map, tau, out);
  else if (find_four(x->basis, four)) through_halves(x, map, four, tau, out);
  else if (is_boost_and_turn(x->basis, &whole)) through_boost_and_turn(x, map, &whole, tau, out);
  else torque_through_five(x, map, tau, out);
}
