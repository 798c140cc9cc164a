/* algebra/relative: whether what two positions do to a query and a key is a function of their difference.
 *
 * Where generators commute and phases are linear in the position, rotors of positions are a group with their sum:
 *
 *     R(s - r) = R(r)^-1 R(s)
 *
 * So a rotation of every pair of rows can leave the pairs: q . R(s - r) k = R(r) q . R(s) k, each row turned once at
 * its own position. Proofs from the description: true means that it holds for all operands and positions.
 */
#pragma once

#include "spec/spec.h"

/* R(r)^T R(s) is a function of s - r, of generators that commute or not and act by skew matrices or not. */
bool rotations_are_relative(const spec *s, bool commute, bool orthogonal);

/* Why rotations of a pairwise description must stay on its pairs, in words; NULL where R(s - r) is that of the two
 * rows. Generators on blades. */
const char *rotations_stay_on_pairs(arena *a, const spec *s);
/* The separable description of one of the two rows. */
const spec *rotations_of_rows(arena *a, const spec *s);
