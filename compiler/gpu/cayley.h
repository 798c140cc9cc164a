/* gpu/cayley: the Cayley transform C = (I - A)(I + A)^-1 of a skew matrix of up to 64 rows by a team of threads.
 *
 * C = 2 (I + A)^-1 - I, inverted in place by Gauss and Jordan's elimination: 2 D^3 operations in a D^2 that stays in
 * registers, a row and a column of it passing through shared memory at every step. Without pivoting: the symmetric part
 * of I + A is the identity, that of every Schur complement is not less, so no pivot is below 1. In two-float
 * arithmetic, because float32's error would be multiplied by the condition of I + A.
 */
#pragma once

#include "gpu/exponential.h"

/* The left matrix is A, complete but for a barrier; then it is C (or, is_transposed, its transpose), complete, and the
 * right one is free. An A that is not finite gives NaN everywhere. All threads of the block come here. */
void team_cayley(matrix_team *g, bool is_transposed);
