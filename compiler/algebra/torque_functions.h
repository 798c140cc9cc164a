/* algebra/torque_functions: entire functions of a bivector's square, of which Ad and dexp are made.
 *
 * The square of a simple bivector is a number -t^2. One of four vectors that is not simple squares to Z = a + 2 pf J
 * with J = e_0123, which commutes with all bivectors: a number of R[J], J^2 = D = the product of the vectors' squares.
 * Functions of Z are such numbers, too: of D = 1 two real ones, of Z's values a +- 2 pf at J = +-1; of D = -1 complex
 * ones, Z = (b + i alpha)^2 with the rapidity and the angle of the two parts; of D = 0 f(a) + 2 pf f'(a) J.
 */
#ifndef PEGEN_ALGEBRA_TORQUE_FUNCTIONS_H
#define PEGEN_ALGEBRA_TORQUE_FUNCTIONS_H

#include "algebra/split.h"

/* (t - sin t)/t^3, (1 - cos t)/t^2 and sin(t)/t of square = t^2; where it may be negative (is_circular false), the
 * hyperbolic functions. */
typedef struct torque_functions {
  const expr *sine, *cosine, *rest;
} torque_functions;
torque_functions torque_functions_of(expr_pool *pool, const expr *square, bool is_circular, bool wide);

/* Functions of an angle t >= 0. Its sines are those of the float64, all else is float32 unless wide. */
torque_functions torque_circular(expr_pool *pool, const expr *t, bool wide);

/* Functions of Z of a bivector whose planes lie among four vectors: their parts by 1 and by J. */
typedef struct torque_pair {
  torque_functions real, dual;
} torque_pair;
torque_pair torque_functions_of_split(const spec *s, const spec_bivector *plane);

const expr *torque_narrow(expr_pool *pool, const expr *x);
const expr *torque_widen(expr_pool *pool, const expr *x);

#endif
