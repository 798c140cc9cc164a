/* cpu/torus_adjoint: what generators that commute gain of torques in the basis in which they are plane rotations.
 *
 * Rows hold y = R S^T x there; S y would be exp(theta A) x in the channels' own basis, whose scores are the same, and
 * it is of those that gradients are taken: what A gains of a token's torque tau is S G S^T with
 *
 *     G = integral over u from 0 to theta of exp(-u Lambda) tau exp(u Lambda),   Lambda = S^T A S = (+ lambda_k J).
 *
 * The 2 x 2 block of tau between planes k and l is two complex numbers, the part that commutes with turns and the one
 * that reflects; they are multiplied by the integrals of exp(iu (lambda_l - lambda_k)) and exp(-iu (lambda_k +
 * lambda_l)), entire functions of the eigenvalues, so that nothing diverges where some coincide. The matrix that tau is
 * the skew part of is treated alike, made skew, and taken back to the channels, once a call (kernel/dense_finish.c).
 */
#ifndef PEGEN_CPU_TORUS_ADJOINT_H
#define PEGEN_CPU_TORUS_ADJOINT_H

#include "mlir/ir.h"
#include "target/processor.h"

/* Emits, beside emit_turns' function of the same name and with its arguments,
 *     NAME_adjoint(basis, angle, outer, gain, sums)
 *         outer  float32 [padded][padded]: the sum over rows of g y^T, g the gradient of y; zeros beyond size
 *         gain   float64: what theta gains
 *         sums   float64 [padded][padded], to which the integral is added; NULL: not wanted
 *     NAME_turn(basis, angle, outer): of the sum of g x^T, x what encode read, that of g y^T, in its place */
void emit_turns_adjoint(ir *b, const cpu_target *target, int size, const char *name, double amplitude);

#endif
