/* cpu/torus: matrices of blocks whose generators commute, in the basis in which they are plane rotations.
 *
 * With A = S (+ lambda_k J) S^T the output is kept in that basis: x -> (+ R(theta lambda_k)) S^T x, for the S in front
 * cancels in scores. So a block's matrix is S^T with its rows turned in pairs: two multiplications an entry.
 *
 * What generators gain of torques: rows hold y = R S^T x there. S y would be exp(theta A) x in the channels' own basis,
 * whose scores are the same, and it is of those that gradients are taken: what A gains of a token's torque tau is
 * S G S^T with
 *
 *     G = integral over u from 0 to theta of exp(-u Lambda) tau exp(u Lambda),   Lambda = S^T A S = (+ lambda_k J).
 *
 * The 2 x 2 block of tau between planes k and l is two complex numbers, the part that commutes with turns and the one
 * that reflects; they are multiplied by the integrals of exp(iu (lambda_l - lambda_k)) and exp(-iu (lambda_k +
 * lambda_l)), entire functions of the eigenvalues, so that nothing diverges where some coincide. The matrix that tau is
 * the skew part of is treated alike, made skew, and taken back to the channels, once a call (kernel/dense_finish.c).
 */
#pragma once

#include "mlir/ir.h"
#include "target/processor.h"

/* Emits NAME(basis, angle, out), one block at a time, with `padded` the block's size in whole vectors of float32:
 *     basis  float64 [padded] eigenvalues, one a component: -lambda_k at 2k, lambda_k at 2k + 1, then 0; then
 *            float32 [size][padded], S^T column by column
 *     angle  float64, radians per unit of an eigenvalue
 *     out    float32 [size][size] column by column, times `amplitude` */
void emit_turns(ir *b, const cpu_target *target, int size, const char *name, double amplitude);

/* Emits, beside emit_turns' function of the same name and with its arguments,
 *     NAME_adjoint(basis, angle, outer, gain, sums)
 *         outer  float32 [padded][padded]: the sum over rows of g y^T, g the gradient of y; zeros beyond size
 *         gain   float64: what theta gains
 *         sums   float64 [padded][padded], to which the integral is added; NULL: not wanted
 *     NAME_turn(basis, angle, outer): of the sum of g x^T, x what encode read, that of g y^T, in its place */
void emit_turns_adjoint(ir *b, const cpu_target *target, int size, const char *name, double amplitude);
