/* algebra/identity: which expressions are 0 for all positions, operands and inputs, proved by structure.
 *
 * A proof may choose a kernel's formula, so none rests on values at chosen points: a maximum, a floor or a choice can
 * be 0 at all of them and not elsewhere. Sums, products and quotients are expanded into monomials. Whatever else a
 * node is (a leaf, a sine, a maximum), it is an atom that may have any value. The expression is 0 where every
 * monomial's factors add up to 0.
 */
#pragma once

#include "spec/spec.h"

/* Whether x is 0 in every head and block, but for the rounding of constants. False: it is not, or no proof was found.
 */
bool identity_is_zero(const spec *s, const expr *x);
