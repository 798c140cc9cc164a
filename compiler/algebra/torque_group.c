/* algebra/torque_group: see algebra/torque_group.h. */
#include "algebra/torque_group.h"

#include "algebra/torque_five.h"

static const expr *number(expr_pool *pool, double value) { return expr_const(pool, value); }
static const expr *scaled(expr_pool *pool, const expr *x, double c) { return expr_mul(pool, x, number(pool, c)); }
static const expr *squared(expr_pool *pool, const expr *x) { return expr_mul(pool, x, x); }

/* What is float64 where `wide`, and float32 elsewhere. */
static const expr *as(expr_pool *pool, bool wide, const expr *x) { return wide ? x : torque_narrow(pool, x); }

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

/* ---- not simple ---- */

static spec_bivector bivector_of(const torque_group *g, const expr *const *m) {
  spec_bivector b = {0};
  for (int k = 0; k < g->basis->count; k++) {
    if (vanishes(m[k])) continue;
    b.blade[b.count] = g->basis->element[k].blade;
    b.coefficient[b.count++] = m[k];
  }
  return b;
}

/* Blocks of 4 channels come as halves, whose elements' planes are no blades. */
static bool is_split(const torque_group *g, const spec_bivector *m) {
  const spec *s = g->basis->spec;
  return !s->dense && clifford_dimensions(s->algebra) > 3 && !split_is_simple(s, m);
}

/* Whether an element of the basis does not commute with a plane of a bivector. */
static bool is_moved(const torque_basis *b, int element, const spec_bivector *by) {
  for (int i = 0; i < b->count; i++)
    for (int t = 0; t < by->count; t++)
      if (b->element[i].blade == by->blade[t] && b->sign[i][element]) return true;
  return false;
}

static bool move_nothing_together(const torque_basis *b, const spec_bivector *first, const spec_bivector *second) {
  for (int k = 0; k < b->count; k++)
    if (is_moved(b, k, first) && is_moved(b, k, second)) return false;
  return true;
}

/* Whether bivectors of the basis, and all that they rotate, lie among four vectors. */
static bool are_of_four(const torque_basis *b) {
  unsigned vectors = 0;
  for (int k = 0; k < b->count; k++) vectors |= b->element[k].blade;
  return clifford_grade(vectors) <= 4;
}

/* (first + second J)^T x of a bivector's Z, J = e_0123. */
static void scaled_by_pair(const torque_group *g, unsigned four, const expr *real, const expr *dual,
                           const expr *const *x, const expr **out) {
  const torque_basis *b = g->basis;
  for (int k = 0; k < b->count; k++) {
    unsigned blade = b->element[k].blade;
    int sign = clifford_reorder_sign(four, blade);
    for (unsigned left = blade; left; left &= left - 1) sign *= clifford_square(b->spec->algebra, __builtin_ctz(left));
    out[k] = expr_mul(g->pool, real, x[k]);
    for (int i = 0; i < b->count && sign; i++)
      if (b->element[i].blade == (four ^ blade))
        out[k] = expr_add(g->pool, out[k], expr_mul(g->pool, dual, scaled(g->pool, x[i], sign)));
  }
}

/* ad^3 = Z ad among planes of four vectors. All float64: parts of Z's two values cancel. */
static void through_four(const torque_group *g, which what, const spec_bivector *b, const expr *const *m, double sense,
                         const expr *const *tau, const expr **out) {
  const expr *of[SPEC_MAX_BIVECTORS] = {NULL}, *once[SPEC_MAX_BIVECTORS], *twice[SPEC_MAX_BIVECTORS];
  unsigned four = split_vectors(b);
  for (int k = 0; k < g->basis->count; k++) of[k] = torque_widen(g->pool, tau[k]);
  turn_torque(g, m, of, once);
  turn_torque(g, m, once, twice);
  torque_pair f = torque_functions_of_split(g->basis->spec, b);
  bool is_rotor = what == OF_ROTOR;
  const expr *odd = is_rotor ? f.real.sine : f.real.cosine, *odd_dual = is_rotor ? f.dual.sine : f.dual.cosine;
  const expr *even = is_rotor ? f.real.cosine : f.real.rest, *even_dual = is_rotor ? f.dual.cosine : f.dual.rest;
  odd = scaled(g->pool, odd, sense);
  odd_dual = scaled(g->pool, odd_dual, sense);
  const expr *first[SPEC_MAX_BIVECTORS], *second[SPEC_MAX_BIVECTORS];
  scaled_by_pair(g, four, odd, odd_dual, once, first);
  scaled_by_pair(g, four, even, even_dual, twice, second);
  for (int k = 0; k < g->basis->count; k++) out[k] = expr_add(g->pool, expr_add(g->pool, of[k], first[k]), second[k]);
}

static void through(const torque_group *g, which what, const expr *const *m, const expr *length, double sense,
                    const expr *const *tau, const expr **out);

/* For a bivector whose planes are of two groups that commute: goes through one and then through the other. */
static void through_groups(const torque_group *g, which what, const spec_bivector *group, const expr *const *m,
                           double sense, const expr *const *tau, const expr **out) {
  const expr *part[SPEC_MAX_BIVECTORS], *between[SPEC_MAX_BIVECTORS];
  for (int i = 0; i < SPLIT_MOST_GROUPS; i++) {
    unsigned vectors = split_vectors(&group[i]);
    for (int k = 0; k < g->basis->count; k++)
      part[k] = g->basis->element[k].blade & vectors && !vanishes(m[k]) ? m[k] : number(g->pool, 0);
    through(g, what, part, NULL, sense, i ? between : tau, i ? out : between);
  }
}

static bool through_split(const torque_group *g, which what, const expr *const *m, double sense, const expr *const *tau,
                          const expr **out) {
  spec_bivector whole = bivector_of(g, m), group[SPLIT_MOST_GROUPS];
  if (!is_split(g, &whole)) return false;
  bool is_apart = split_groups(&whole, group) == SPLIT_MOST_GROUPS;
  if (is_apart && (what == OF_ROTOR || move_nothing_together(g->basis, &group[0], &group[1])))
    through_groups(g, what, group, m, sense, tau, out);
  else if (are_of_four(g->basis)) through_four(g, what, &whole, m, sense, tau, out);
  else if (what == OF_ROTOR) torque_five_rotor(g->basis, m, sense, tau, out);
  else torque_five_exponential(g->basis, m, sense, tau, out);
  return true;
}

static void through(const torque_group *g, which what, const expr *const *m, const expr *length, double sense,
                    const expr *const *tau, const expr **out) {
  const expr *low[SPEC_MAX_BIVECTORS], *of[SPEC_MAX_BIVECTORS], *once[SPEC_MAX_BIVECTORS], *twice[SPEC_MAX_BIVECTORS];
  if (through_split(g, what, m, sense, tau, out)) return;
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
  torque_functions f = length ? torque_circular(g->pool, expr_unary(g->pool, EXPR_ABS, length), wide)
                              : torque_functions_of(g->pool, square_of(g, m), is_euclidean(g), wide);
  const expr *odd = what == OF_ROTOR ? f.sine : f.cosine, *even = what == OF_ROTOR ? f.cosine : f.rest;
  combine(g, of, once, twice, scaled(g->pool, odd, sense), even, out);
}

void torque_through_rotor(const torque_group *g, const expr *const *m, const expr *length, double sense,
                          const expr *const *tau, const expr **out) {
  through(g, OF_ROTOR, m, length, sense, tau, out);
}

/* In three dimensions ad_M^2 tau = (M . tau) M - t^2 tau: at right angles to M little is left of tau, 1/t of it,
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
  torque_functions f = torque_circular(g->pool, length, false);
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
