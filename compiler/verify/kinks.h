/* verify/kinks: operands on both sides of where a description's functions change.
 *
 * A maximum, a floor or a choice that no drawn operand crosses would be checked on one side alone, and a kernel that
 * lacks the other would pass.
 */
#pragma once

#include "base/number.h"
#include "spec/spec.h"

/* Moves elements of operands (numbers of the type, inputs behind them) across the kinks that they do not cross: in half
 * of the heads and blocks, where these have elements of their own. What a kink is in stays moderate. */
void kinks_cross(const spec *s, number_type type, uint64_t *random, double *const *operands);

/* Whether rounding decides in a place on which side of a step the expression is, as before a floor of a sum that is
 * whole in exact arithmetic alone. A kernel and the reference may differ there, and both be right. */
bool kinks_are_rounded(const spec *s, const expr *x, const expr_environment *env);
