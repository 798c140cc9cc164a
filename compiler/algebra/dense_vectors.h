/* algebra/dense_vectors: dense blocks of 2 and 3 channels are vectors of Cl(2,0) and Cl(3,0), whose exponentials have
 * closed forms: A = sum over i < j of A_ij e_ij as a bivector (algebra/block.c). So they take the road of blades. */
#pragma once

#include "spec/spec.h"

/* Whether the description can be written so: dense blocks of 2 or 3 channels in their own basis. */
bool dense_is_vectors(const spec *s);

/* Writes the description with blades in place of its dense blocks. */
const spec *dense_as_vectors(arena *a, const spec *s);
