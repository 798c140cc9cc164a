/* algebra/torque_rotors: torques through a function of rotors (algebra/rotors.h), from its value to the axes' rotors.
 *
 * Torques are vectors here, of variations R -> exp(d) R; of a bivector b it is its gradient. From the last node to the
 * first:
 *
 *     z = x y             x gains T, y gains x^-1 T x
 *     z = x^-1            x gains -x T x^-1
 *     b = log x           x gains J^-T G, J the left Jacobian: J^-T = 1 + 1/2 [b] + (1 - (t/2) cot(t/2))/t^2 [b]^2
 *     x = exp b           b gains J^T T = (1 - (1 - cos t)/t^2 [b] + (t - sin t)/t^3 [b]^2) T
 *     chordal mean        the sum M of s_a R_a has M R^T symmetric, whatever varies. With the quaternions (c_a, v_a) of
 *                         R_a R^-1 and H = sum of s_a (c_a^2 - v_a v_a^T), u = H^-1 T:
 *                         R_a gains s_a (c_a^2 u - v_a (v_a . u) + c_a v_a x u), s_a gains 2 c_a (v_a . u)
 *
 * so that no squaring of the mean's eigenvector is walked back. t is at most pi; where it is, and where H has no
 * inverse (several rotations are nearest), gradients are finite: of a cut's one side, or 0.
 */
#pragma once

#include "algebra/rotors.h"
#include "algebra/torque.h"

/* tau: of the function's rotor over the basis, in the frame. axis_tau[axis]: of the axes' rotors, in that of y;
 * factors: what the factors of nodes gain that are not numbers, room for [SPEC_MAX_ROTORS * SPEC_MAX_ARGUMENTS].
 * Returns the number of these. */
int torque_through_function(arena *a, const torque_basis *basis, torque_frame frame, const expr *const *tau,
                            const expr *axis_tau[SPEC_MAX_AXES][SPEC_MAX_BIVECTORS], adjoint_output *factors);
