/* algebra/torque_five: see algebra/torque_five.h. */
#include "algebra/torque_five.h"

#include "algebra/five.h"
#include "algebra/torque_functions.h"

enum { ENTRIES = FIVE * FIVE };

typedef struct action {
  arena *memory;
  const spec *spec;
  expr_pool *pool;
  const torque_basis *basis;
  const expr *share; /* 1/rho */
  five_bivector of;  /* M/rho */
  expr_matrix term[FIVE_TERMS]; /* M, W, M^2 and M W, of it */
  five_factors factors;
} action;

static const expr *number(expr_pool *pool, double value) { return expr_const(pool, value); }
static const expr *scaled(expr_pool *pool, const expr *x, double c) { return expr_mul(pool, x, number(pool, c)); }

static expr_matrix empty(const action *x) {
  expr_matrix m = {FIVE, arena_array(x->memory, const expr *, ENTRIES)};
  for (int i = 0; i < ENTRIES; i++) m.entry[i] = number(x->pool, 0);
  return m;
}

static expr_matrix transposed(const action *x, expr_matrix m) {
  expr_matrix back = empty(x);
  for (int i = 0; i < ENTRIES; i++) back.entry[i % FIVE * FIVE + i / FIVE] = m.entry[i];
  return back;
}

static expr_matrix product(const action *x, expr_matrix first, expr_matrix second) {
  return expr_matrix_product(x->memory, x->pool, first, second);
}

/* sum += c m. */
static void add(const action *x, expr_matrix sum, expr_matrix m, const expr *c) {
  for (int i = 0; i < ENTRIES; i++) sum.entry[i] = expr_add(x->pool, sum.entry[i], expr_mul(x->pool, m.entry[i], c));
}

static const expr *inner(const action *x, expr_matrix first, expr_matrix second) {
  const expr *sum = number(x->pool, 0);
  for (int i = 0; i < ENTRIES; i++) sum = expr_add(x->pool, sum, expr_mul(x->pool, first.entry[i], second.entry[i]));
  return sum;
}

/* ---- blades and matrices ---- */

/* Where the action of a plane e_ij has s_j and -s_i. */
typedef struct place {
  int upper, lower, by_upper, by_lower;
} place;

static place place_of(const action *x, unsigned blade) {
  int i = __builtin_ctz(blade), j = 31 - __builtin_clz(blade);
  return (place){i * FIVE + j, j * FIVE + i, clifford_square(x->spec->algebra, j),
                 -clifford_square(x->spec->algebra, i)};
}

/* What a blade's coefficient gains of a gradient of its action's entries. */
static const expr *gained(const action *x, expr_matrix gradient, unsigned blade) {
  place p = place_of(x, blade);
  const expr *lower = scaled(x->pool, gradient.entry[p.lower], p.by_lower);
  return expr_add(x->pool, scaled(x->pool, gradient.entry[p.upper], p.by_upper), lower);
}

/* A matrix whose inner product with the action of any bivector is that of tau with its coefficients. Planes of two null
 * vectors do not act, and have no torque. */
static expr_matrix torque_matrix(const action *x, const expr *const *tau) {
  expr_matrix t = empty(x);
  for (int k = 0; k < x->basis->count; k++) {
    place p = place_of(x, x->basis->element[k].blade);
    double share = p.by_upper && p.by_lower ? 0.5 : 1;
    const expr *value = scaled(x->pool, torque_widen(x->pool, tau[k]), share);
    t.entry[p.upper] = scaled(x->pool, value, p.by_upper);
    t.entry[p.lower] = scaled(x->pool, value, p.by_lower);
  }
  return t;
}

static action action_of(arena *memory, const torque_basis *basis, const expr *const *m, double sense) {
  action x = {.memory = memory, .spec = basis->spec, .pool = basis->spec->pool, .basis = basis};
  spec_bivector whole = {0};
  for (int k = 0; k < basis->count; k++) {
    whole.blade[whole.count] = basis->element[k].blade;
    whole.coefficient[whole.count++] = scaled(x.pool, torque_widen(x.pool, m[k]), sense);
  }
  x.of = five_bivector_of(x.spec, &whole);
  x.factors = five_factors_of(x.pool, x.of.square, x.of.product);
  x.share = expr_div(x.pool, number(x.pool, 1), x.factors.rho);
  five_scale(x.spec, &x.of, x.share);
  x.term[FIVE_M] = five_action(memory, x.spec, x.of.b);
  x.term[FIVE_W] = five_action(memory, x.spec, x.of.w);
  x.term[FIVE_MM] = product(&x, x.term[FIVE_M], x.term[FIVE_M]);
  x.term[FIVE_MW] = five_crossed(memory, x.spec, &x.of);
  return x;
}

/* exp(M), or exp(-M) of side -1: M and W are odd. */
static expr_matrix exponential(const action *x, int side) {
  expr_matrix v = expr_matrix_identity(x->memory, x->pool, FIVE);
  for (int k = 0; k < FIVE_TERMS; k++)
    add(x, v, x->term[k], scaled(x->pool, x->factors.of[k].value, k == FIVE_M || k == FIVE_W ? side : 1));
  return v;
}

/* ---- the differential ---- */

/* What b and the Pfaffians gain. */
typedef struct gains {
  const expr *b[SPEC_MAX_BLADES], *pfaffian[FIVE], *square, *product;
} gains;

static void give(const action *x, const expr **sum, const expr *first, const expr *second, double c) {
  *sum = expr_add(x->pool, *sum, scaled(x->pool, expr_mul(x->pool, first, second), c));
}

/* Goes back through the factors. */
static void through_factors(const action *x, expr_matrix gradient, gains *g) {
  for (int k = 0; k < FIVE_TERMS; k++) {
    const expr *gained_by_factor = inner(x, gradient, x->term[k]);
    give(x, &g->square, gained_by_factor, x->factors.of[k].by_square, 1);
    give(x, &g->product, gained_by_factor, x->factors.of[k].by_product, 1);
  }
}

/* Goes back through M and M^2. */
static void through_powers(const action *x, expr_matrix gradient, gains *g) {
  expr_matrix m = transposed(x, x->term[FIVE_M]), of_m = empty(x);
  const expr *even = x->factors.of[FIVE_MM].value;
  add(x, of_m, gradient, x->factors.of[FIVE_M].value);
  add(x, of_m, product(x, gradient, m), even);
  add(x, of_m, product(x, m, gradient), even);
  for (int k = 0; k < x->basis->count; k++) {
    unsigned blade = x->basis->element[k].blade;
    g->b[blade] = expr_add(x->pool, g->b[blade], gained(x, of_m, blade));
  }
}

/* Goes back through M W, whose entries are (-1)^(i + j) D_i pf_i pf_j, less q on the diagonal. */
static void through_crossed(const action *x, expr_matrix gradient, gains *g) {
  const expr *factor = x->factors.of[FIVE_MW].value;
  for (int i = 0; i < FIVE; i++) {
    int four = five_square(x->spec->algebra, ((1u << FIVE) - 1) & ~(1u << i));
    for (int j = 0; j < FIVE; j++) {
      const expr *entry = expr_mul(x->pool, factor, gradient.entry[i * FIVE + j]);
      double sign = (i + j) % 2 ? -four : four;
      give(x, &g->pfaffian[i], entry, x->of.pfaffian[j], sign);
      give(x, &g->pfaffian[j], entry, x->of.pfaffian[i], sign);
    }
    give(x, &g->product, factor, gradient.entry[i * FIVE + i], -1);
  }
}

/* Goes back through W: w is the sum of pf_k times duals. */
static void through_duals(const action *x, expr_matrix gradient, const five_matching *all, gains *g) {
  const expr *factor = x->factors.of[FIVE_W].value;
  for (const five_matching *m = all; m < all + FIVE_MATCHINGS; m++)
    for (int i = 0; i < 2; i++) {
      unsigned blade = i ? m->second : m->first, other = i ? m->first : m->second;
      const expr *entry = expr_mul(x->pool, factor, gained(x, gradient, blade));
      double sign = m->sign * five_square(x->spec->algebra, other);
      give(x, &g->pfaffian[m->without], entry, x->of.b[other], sign);
      give(x, &g->b[other], entry, x->of.pfaffian[m->without], sign);
    }
}

/* Goes back through a, q and the Pfaffians to b. */
static void through_invariants(const action *x, const five_matching *all, gains *g) {
  for (int k = 0; k < FIVE; k++) {
    int four = five_square(x->spec->algebra, ((1u << FIVE) - 1) & ~(1u << k));
    give(x, &g->pfaffian[k], g->product, x->of.pfaffian[k], 2 * four);
  }
  for (const five_matching *m = all; m < all + FIVE_MATCHINGS; m++) {
    give(x, &g->b[m->first], g->pfaffian[m->without], x->of.b[m->second], m->sign);
    give(x, &g->b[m->second], g->pfaffian[m->without], x->of.b[m->first], m->sign);
  }
  for (int k = 0; k < x->basis->count; k++) {
    unsigned blade = x->basis->element[k].blade;
    give(x, &g->b[blade], g->square, x->of.b[blade], -2 * five_square(x->spec->algebra, blade));
  }
}

/* ---- transposed ---- */

void torque_five_rotor(const torque_basis *basis, const expr *const *m, double sense, const expr *const *tau,
                       const expr **out) {
  arena *memory = arena_create();
  action x = action_of(memory, basis, m, sense);
  expr_matrix there = transposed(&x, exponential(&x, 1)), back = transposed(&x, exponential(&x, -1));
  expr_matrix turned = product(&x, product(&x, there, torque_matrix(&x, tau)), back);
  for (int k = 0; k < basis->count; k++) out[k] = gained(&x, turned, basis->element[k].blade);
  arena_destroy(memory);
}

void torque_five_exponential(const torque_basis *basis, const expr *const *m, double sense, const expr *const *tau,
                             const expr **out) {
  arena *memory = arena_create();
  action x = action_of(memory, basis, m, sense);
  five_matching all[FIVE_MATCHINGS];
  gains g;
  five_matchings(all);
  g.square = g.product = number(x.pool, 0);
  for (int i = 0; i < SPEC_MAX_BLADES; i++) g.b[i] = number(x.pool, 0);
  for (int k = 0; k < FIVE; k++) g.pfaffian[k] = number(x.pool, 0);
  expr_matrix gradient = product(&x, torque_matrix(&x, tau), transposed(&x, exponential(&x, -1)));
  through_factors(&x, gradient, &g);
  through_powers(&x, gradient, &g);
  through_crossed(&x, gradient, &g);
  through_duals(&x, gradient, all, &g);
  through_invariants(&x, all, &g);
  for (int k = 0; k < basis->count; k++) out[k] = expr_mul(x.pool, g.b[basis->element[k].blade], x.share);
  arena_destroy(memory);
}
