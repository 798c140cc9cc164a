/* cpu/exponential_adjoint: what the matrices in exponentials gain of torques (algebra/torque_dense.h).
 *
 * Functions work on N = sum of angles times generators as exponentials are made of it, which is minus the matrix whose
 * exponential rows are multiplied with; so what that matrix gains of the torque of what encode wrote is
 *
 *     dexp_N tau,   dexp_N = 1/2 (1 + Ad(exp(N/2))) dexp_(N/2),
 *
 * with as many halvings as the exponential itself takes; the last factor is Chebyshev's series of (e^z - 1)/z on the
 * imaginary axis, in commutators. From exp(N/2^s) on each halving is undone as the exponential is squared.
 */
#pragma once

#include "cpu/product.h"

/* Emits, beside emit_exponential's functions of the same name and with its arguments,
 *     NAME_adjoint(generators, angles, outer, gains, sums)
 *         outer  elements of m [padded][padded]: the sum over rows of g y^T, g the gradient of y; zeros beyond size
 *         gains  float64; what theta_a gains, at a * angle_step bytes
 *         sums   float64 [n_axes][padded][padded], theta_a times what the matrix gains is added to; NULL: not wanted
 *     NAME_turn(generators, angles, outer): of the sum of g x^T, x what encode read, that of g y^T, in its place */
void emit_exponential_adjoint(ir *b, const matrix_shape *m, const char *name, int n_axes, int64_t angle_step,
                              double amplitude);

/* The adjoint of emit_exponential_lanes, for `lanes` matrices: outer [size][size][lanes], gains at a * angle_step +
 * lane * 8 bytes, sums [n_axes][pairs][lanes]. */
void emit_exponential_lanes_adjoint(ir *b, const cpu_target *target, bool is_f64, int size, int lanes, const char *name,
                                    int n_axes, int64_t angle_step, double amplitude);
