/* algebra/block_of_four: the closed form of exp for skew matrices of 4 channels, as a block program.
 *
 * so(4) = so(3) + so(3): M is a sum of two quaternions' actions, from the left and from the right, which commute.
 * (2 and 3 channels are vectors of Cl(n,0), algebra/dense_vectors.h.)
 */
#pragma once

#include "algebra/block.h"

/* The program of a description with dense blocks of 4 channels. */
void block_four_build(arena *a, const spec *s, block_program *out);
