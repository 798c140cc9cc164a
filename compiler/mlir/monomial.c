/* mlir/monomial: see mlir/monomial.h. */
#include "mlir/monomial.h"

#include "mlir/arith.h"

static ir_value power_of(power_table *t, int axis, int exponent) {
  ir_value *v = &t->at[axis][exponent];
  if (!v->ptr) {
    ir_value half = power_of(t, axis, exponent / 2);
    *v = mul(t->b, half, half);
    if (exponent & 1) *v = mul(t->b, *v, t->at[axis][1]);
  }
  return *v;
}

ir_value emit_monomial(power_table *t, const monomial *m, double factor) {
  ir_value product = {NULL};
  for (int axis = 0; axis < SPEC_MAX_AXES; axis++) {
    if (!m->power[axis]) continue;
    ir_value x = power_of(t, axis, m->power[axis]);
    product = product.ptr ? mul(t->b, product, x) : x;
  }
  if (product.ptr && factor == 1) return product;
  ir_value c = ir_float(t->b, t->type, factor);
  return product.ptr ? mul(t->b, product, c) : c;
}

ir_value emit_shape_slope(power_table *t, const polynomial_weight *weight, int axis) {
  ir_value sum = {NULL};
  for (int i = 0; i < weight->n_monomials; i++) {
    monomial m = weight->monomial[i];
    if (m.power[axis] == 0) continue;
    double factor = weight->factor[i] * m.power[axis]--;
    ir_value term = emit_monomial(t, &m, factor);
    sum = sum.ptr ? add(t->b, sum, term) : term;
  }
  return sum;
}
