/* algebra/torque_four: see algebra/torque_four.h. */
#include "algebra/torque_four.h"

#include "algebra/block_of_four.h"
#include "algebra/torque_group.h"

enum { CHANNELS = 4, ELEMENTS = 6 };

/* Which element E_ij is, i < j. */
static int element_of(int i, int j) { return i * (2 * CHANNELS - 1 - i) / 2 + j - i - 1; }

void torque_four_basis(torque_basis *t) {
  t->count = ELEMENTS;
  for (int i = 0; i < CHANNELS; i++)
    for (int j = i + 1; j < CHANNELS; j++)
      t->element[element_of(i, j)] =
          (torque_element){.blade = 1u << i | 1u << j, .n_entries = 2, .entry = {{i, j, 1}, {j, i, -1}}};
}

/* The second plane of each pair, E_23, E_31, E_12, as a sign and an element; the first is E_0k. */
static const int PARTNER[3][3] = {{2, 3, 1}, {1, 3, -1}, {1, 2, 1}};

static int first_of(int k) { return element_of(0, k + 1); }
static int partner_of(int k) { return element_of(PARTNER[k][0], PARTNER[k][1]); }

/* x_0k + side * x_partner. */
static const expr *half_of(expr_pool *pool, const expr *const *x, int k, int side) {
  int sign = side * PARTNER[k][2];
  return expr_binary(pool, sign > 0 ? EXPR_ADD : EXPR_SUB, x[first_of(k)], x[partner_of(k)]);
}

/* One so(3), by halves of E_0k + side * E_partner, whose commutators are -side times the third. */
static void half_basis(const spec *s, int side, torque_basis *out) {
  *out = (torque_basis){.spec = s, .count = 3};
  for (int k = 0; k < 3; k++) {
    int next = (k + 1) % 3, third = (k + 2) % 3;
    out->element[k].blade = 3;
    out->to[k][next] = out->to[next][k] = (signed char)third;
    out->sign[k][next] = (signed char)-side;
    out->sign[next][k] = (signed char)side;
  }
}

/* What the entries of M gain. */
static void through_halves(const spec *s, double sense, const expr *const *m, const expr *const *tau,
                           const expr **gradient) {
  expr_pool *pool = s->pool;
  const expr *gained[2][3];
  for (int h = 0; h < 2; h++) {
    int side = h ? -1 : 1;
    torque_basis basis;
    const expr *part[3], *torque[3];
    half_basis(s, side, &basis);
    for (int k = 0; k < 3; k++) {
      part[k] = half_of(pool, m, k, side);
      torque[k] = expr_mul(pool, half_of(pool, tau, k, side), expr_const(pool, 0.5));
    }
    torque_through_exponential(&(torque_group){pool, &basis}, part, NULL, sense, torque, gained[h]);
  }
  for (int k = 0; k < 3; k++) {
    const expr *difference = expr_sub(pool, gained[0][k], gained[1][k]);
    gradient[first_of(k)] = expr_add(pool, gained[0][k], gained[1][k]);
    gradient[partner_of(k)] = PARTNER[k][2] > 0 ? difference : expr_neg(pool, difference);
  }
}

int torque_four_outputs(arena *a, const spec *s, double sense, const expr *const *tau, const adjoint_output **out) {
  expr_pool *pool = s->pool;
  const expr *m[ELEMENTS], *gradient[ELEMENTS], *entry[SPEC_MAX_AXES][ELEMENTS], *angle[SPEC_MAX_AXES];
  for (int k = 0; k < ELEMENTS; k++) m[k] = expr_const(pool, 0);
  for (int axis = 0; axis < s->n_axes; axis++) {
    angle[axis] = s->inverse ? expr_neg(pool, s->angle[axis]) : s->angle[axis];
    for (int i = 0; i < CHANNELS; i++)
      for (int j = i + 1; j < CHANNELS; j++) {
        int k = element_of(i, j);
        entry[axis][k] = block_four_entry(a, s, axis, i, j);
        m[k] = expr_add(pool, m[k], expr_mul(pool, angle[axis], entry[axis][k]));
      }
  }
  through_halves(s, sense, m, tau, gradient);
  adjoint_output *list = arena_array(a, adjoint_output, s->n_axes * (1 + ELEMENTS));
  int count = 0;
  for (int axis = 0; axis < s->n_axes; axis++) {
    const expr *sum = expr_const(pool, 0);
    for (int k = 0; k < ELEMENTS; k++) {
      sum = expr_add(pool, sum, expr_mul(pool, entry[axis][k], gradient[k]));
      list[count++] = (adjoint_output){entry[axis][k], torque_widen(pool, expr_mul(pool, angle[axis], gradient[k]))};
    }
    list[count++] = (adjoint_output){s->angle[axis], torque_widen(pool, s->inverse ? expr_neg(pool, sum) : sum)};
  }
  *out = list;
  return count;
}
