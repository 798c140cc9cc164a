/* algebra/torque_functions: entire functions of a bivector's square, of which exp, Ad and dexp are made. */
#ifndef PEGEN_ALGEBRA_TORQUE_FUNCTIONS_H
#define PEGEN_ALGEBRA_TORQUE_FUNCTIONS_H

#include "spec/expr.h"

/* (t - sin t)/t^3, (1 - cos t)/t^2 and sin(t)/t of square = t^2; where it may be negative (is_circular false), the
 * hyperbolic functions. */
typedef struct torque_functions {
  const expr *sine, *cosine, *rest;
} torque_functions;
torque_functions torque_functions_of(expr_pool *pool, const expr *square, bool is_circular, bool wide);

/* Functions of an angle t >= 0. Its sines are those of the float64, all else is float32 unless wide. */
torque_functions torque_circular(expr_pool *pool, const expr *t, bool wide);

const expr *torque_narrow(expr_pool *pool, const expr *x);
const expr *torque_widen(expr_pool *pool, const expr *x);

#endif
