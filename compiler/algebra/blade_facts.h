/* algebra/blade_facts: what signs and coefficients show of the axes' generators on blades.
 *
 * Proofs from the description: true means that it holds for all operands and positions.
 */
#pragma once

#include "spec/spec.h"

/* Every generator acts by a skew matrix, so that rotors are orthogonal. */
bool blades_are_orthogonal(const spec *s);
/* What generators that act by no skew matrix do to lengths, in words; NULL where all are skew. */
const char *blades_distortion(const spec *s);
/* Some axes boost, in planes whose two vectors square to different signs, and all others turn: then R^-T is a rotor of
 * the same axes, the boosts' angles negated (spec.dual_axes). */
bool blades_have_duals(const spec *s);

/* The axes' generators commute in every block that listens to more than one; and why, in words. */
#define BLADES_COMMUTE "the axes' generators are multiples of one, of planes apart, or their commutator's terms cancel"
bool blades_commute(const spec *s);
/* The most axes that any block listens to. */
int blades_axes_of_a_block(const spec *s);

/* Measured where it is not proved: the largest commutator of two axes' generators in a block, relative to their sizes.
 */
long double blades_commutator(const spec *s, const double *const *operands);
