/* mlir/monomial: monomials of coordinates as code, scalars or lanes of either float. */
#pragma once

#include "algebra/polynomial.h"
#include "mlir/ir.h"

/* Powers of the coordinates, each made once, where it is first asked for: at[axis][1] is the caller's. */
typedef struct power_table {
  ir *b;
  MlirType type; /* of the coordinates */
  ir_value at[SPEC_MAX_AXES][SPEC_MAX_DEGREE + 1];
} power_table;

/* factor * s^power. */
ir_value emit_monomial(power_table *t, const monomial *m, double factor);

/* The derivative of a weight's shape along an axis; null: 0. */
ir_value emit_shape_slope(power_table *t, const polynomial_weight *weight, int axis);
