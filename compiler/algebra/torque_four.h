/* algebra/torque_four: torques of dense blocks of 4, whose rotations are two commuting ones of 3-vectors.
 *
 * so(4) is so(3) + so(3): E_01 + E_23, E_02 + E_31, E_03 + E_12 and the three differences. M is the sum of one element
 * of each, and each goes through dexp on its own (algebra/block_of_four.h).
 */
#ifndef PEGEN_ALGEBRA_TORQUE_FOUR_H
#define PEGEN_ALGEBRA_TORQUE_FOUR_H

#include "algebra/torque.h"

/* E_ij, i < j: 1 at (i, j), -1 at (j, i). */
void torque_four_basis(torque_basis *t);

int torque_four_outputs(arena *a, const spec *s, double sense, const expr *const *tau, const adjoint_output **out);

#endif
