/* algebra/torque_five: see algebra/torque_five.h. */
#include "algebra/torque_five.h"

#include "algebra/five.h"
#include "spec/adjoint.h"

enum { ENTRIES = FIVE * FIVE };

static expr_matrix transposed(arena *a, expr_matrix m) {
  expr_matrix back = {FIVE, arena_array(a, const expr *, ENTRIES)};
  for (int i = 0; i < ENTRIES; i++) back.entry[i % FIVE * FIVE + i / FIVE] = m.entry[i];
  return back;
}

/* Where the action of a plane e_ij has s_j and -s_i. */
typedef struct place {
  int upper, lower, by_upper, by_lower;
} place;

static place place_of(spec_algebra g, unsigned blade) {
  int i = __builtin_ctz(blade), j = 31 - __builtin_clz(blade);
  return (place){i * FIVE + j, j * FIVE + i, clifford_square(g, j), -clifford_square(g, i)};
}

/* A matrix whose inner product with the action of any bivector is that of tau with its coefficients. Planes of two null
 * vectors do not act, and have no torque. */
static expr_matrix torque_matrix(arena *a, const torque_basis *basis, const expr *const *tau) {
  expr_pool *pool = basis->spec->pool;
  expr_matrix t = {FIVE, arena_array(a, const expr *, ENTRIES)};
  for (int i = 0; i < ENTRIES; i++) t.entry[i] = expr_const(pool, 0);
  for (int k = 0; k < basis->count; k++) {
    place p = place_of(basis->spec->algebra, basis->element[k].blade);
    const expr *value = expr_scaled(pool, expr_widen(pool, tau[k]), p.by_upper && p.by_lower ? 0.5 : 1);
    t.entry[p.upper] = expr_scaled(pool, value, p.by_upper);
    t.entry[p.lower] = expr_scaled(pool, value, p.by_lower);
  }
  return t;
}

/* M/rho as leaves that differ, whatever of M's coefficients is alike, and what they stand for. */
typedef struct exponent {
  spec spec; /* of five vectors: those that the description lacks are null */
  int count, element[SPEC_MAX_BIVECTORS];
  const expr *leaf[SPEC_MAX_BIVECTORS], *value[SPEC_MAX_BIVECTORS], *share;
  expr_matrix there, back; /* exp(M) and exp(-M) */
} exponent;

static exponent exponent_of(arena *a, const torque_factor *f) {
  const torque_basis *basis = f->basis;
  const expr *const *m = f->m;
  exponent x = {.spec = *basis->spec};
  expr_pool *pool = x.spec.pool;
  x.spec.algebra.r = FIVE - x.spec.algebra.p - x.spec.algebra.q;
  spec_bivector whole = {0}, of_leaves = {0};
  for (int k = 0; k < basis->count; k++) {
    if (expr_is_const(m[k], 0)) continue;
    x.element[x.count] = k;
    x.leaf[x.count] = expr_cotangent(pool, TORQUE_FIRST_LEAF + k, m[k]->depends);
    whole.blade[x.count] = of_leaves.blade[x.count] = basis->element[k].blade;
    whole.coefficient[x.count] = expr_scaled(pool, expr_widen(pool, m[k]), f->sense);
    of_leaves.coefficient[x.count] = x.leaf[x.count];
    whole.count = of_leaves.count = ++x.count;
  }
  five_bivector of = five_bivector_of(&x.spec, &whole);
  const expr *size = five_size(pool, of.square, of.product), *factor[FIVE_TERMS];
  x.share = expr_div(pool, expr_const(pool, 1), five_rho(pool, size));
  for (int i = 0; i < x.count; i++) x.value[i] = expr_mul(pool, whole.coefficient[i], x.share);
  of = five_bivector_of(&x.spec, &of_leaves);
  five_factors_of(pool, of.square, of.product, size, factor);
  x.there = five_sum(a, &x.spec, &of, factor);
  factor[FIVE_M] = expr_neg(pool, factor[FIVE_M]); /* M and W are odd */
  factor[FIVE_W] = expr_neg(pool, factor[FIVE_W]);
  x.back = five_sum(a, &x.spec, &of, factor);
  return x;
}

void torque_through_five(const torque_factor *of, torque_map map, const expr *const *tau, const expr **out) {
  const torque_basis *basis = of->basis;
  arena *memory = arena_create();
  expr_pool *pool = basis->spec->pool;
  exponent x = exponent_of(memory, of);
  const expr *gained[SPEC_MAX_BIVECTORS];
  expr_matrix torque = torque_matrix(memory, basis, tau), back = transposed(memory, x.back);
  for (int k = 0; k < basis->count; k++) out[k] = expr_const(pool, 0);
  if (map == TORQUE_ROTOR) {
    torque = expr_matrix_product(memory, pool, transposed(memory, x.there), torque);
    torque = expr_matrix_product(memory, pool, torque, back);
    for (int k = 0; k < basis->count; k++) {
      place p = place_of(basis->spec->algebra, basis->element[k].blade);
      const expr *lower = expr_scaled(pool, torque.entry[p.lower], p.by_lower);
      gained[k] = expr_add(pool, expr_scaled(pool, torque.entry[p.upper], p.by_upper), lower);
    }
    adjoint_replaced(memory, pool, gained, basis->count, x.leaf, x.value, x.count, out);
  } else {
    adjoint_output outputs[ENTRIES];
    torque = expr_matrix_product(memory, pool, torque, back);
    for (int i = 0; i < ENTRIES; i++) outputs[i] = (adjoint_output){x.there.entry[i], torque.entry[i]};
    adjoint_of(memory, pool, outputs, ENTRIES, x.leaf, x.count, gained);
    adjoint_replaced(memory, pool, gained, x.count, x.leaf, x.value, x.count, gained);
    for (int i = 0; i < x.count; i++) out[x.element[i]] = expr_mul(pool, gained[i], x.share);
  }
  arena_destroy(memory);
}
