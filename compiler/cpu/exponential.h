/* cpu/exponential: exp(M) of skew matrices M = sum_a theta_a A_a, by scaling and squaring.
 *
 * With X = M^2, which is symmetric, exp(M) = C + S, C = sum X^k / (2k)! symmetric and S = M sum X^k / (2k + 1)!
 * skew. M is scaled by a power of two until its norm is at most EXPONENTIAL_REACH; then the series up to M^15 are
 * enough, and Paterson and Stockmeyer's scheme needs X, X^2, X^3, X^4 and three products more, all of which are
 * symmetric or skew and cost half. What was scaled by 2^-s is squared s times. The norm comes from X^2:
 * the eigenvalues of M are +- i lambda, so ||M||^8 <= 1/2 sum of the squares of the entries of M^4.
 *
 * Not finite entries of M make every entry of its exponential NaN.
 */
#pragma once

#include "algebra/exponential.h"
#include "cpu/apply.h"
#include "cpu/product.h"
#include "mlir/exp2.h"

/* Emits NAME(generators, angles, out) and what it calls, for one matrix at a time:
 *     generators  elements of m [n_axes][padded][padded]: A_a, zeros beyond size
 *     angles      float64; theta_a at a * angle_step bytes
 *     out         float32 [size][size]: row k, column i is the entry (k, i) of exp(M), times `amplitude`
 * The work is on the stack: 8 matrices. */
void emit_exponential(ir *b, const matrix_shape *m, const char *name, int n_axes, int64_t angle_step, double amplitude);

/* For the action of the exponential (cpu/exponential_action), beside emit_exponential's functions of the same name
 * and with its arguments:
 *     NAME_sum    out float32 [size][size]: the sum of the generators itself
 *     NAME_bound  out float64: what the norm of that sum does not exceed, and not less than .8 of the norm */
void emit_exponential_sum(ir *b, const matrix_shape *m, const char *name, int n_axes, int64_t angle_step);

/* The exponential for size 5 to 8 with a matrix in each lane, `lanes` (a power of two) at a time:
 *     generators  elements [n_axes][pairs i < j, row by row][lanes]
 *     angles      float64; lane's theta_a at a * angle_step + lane * 8 bytes
 *     out         float32 [lanes][size][size] or as the layout says, of which the first `used` lanes are written */
void emit_exponential_lanes(ir *b, const cpu_target *target, bool is_f64, int size, matrix_layout layout, int lanes,
                            int used, const char *name, int n_axes, int64_t angle_step, double amplitude);

/* ---- what the matrices in exponentials gain of torques (algebra/torque_dense.h) ----
 *
 * Functions work on N = sum of angles times generators as exponentials are made of it, which is minus the matrix whose
 * exponential rows are multiplied with; so what that matrix gains of the torque of what encode wrote is
 *
 *     dexp_N tau,   dexp_N = 1/2 (1 + Ad(exp(N/2))) dexp_(N/2),
 *
 * with as many halvings as the exponential itself takes; the last factor is Chebyshev's series of (e^z - 1)/z on the
 * imaginary axis, in commutators. From exp(N/2^s) on each halving is undone as the exponential is squared.
 */

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

/* ---- shared by all of them ---- */

/* Stores `count` leading lanes of a vector, nothing beyond. */
void emit_store_lanes(ir *b, ir_value v, int count, ir_value pointer, int element_bytes);

/* A power of the scale, or 0 where what it multiplies is lost beside 1: higher ones would be denormal. */
ir_value exponential_kept(ir *b, ir_value power);
