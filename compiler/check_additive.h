/* check_additive: `pegen check` of descriptions that add something of the position to the channels; see check.h.
 *
 *   f32        within 2^-22 of the largest of 1 and what is added, for positions up to 2^20
 *   bf16 f16   half a unit in the last place more
 *   to the bit in place, parts, memory orders
 */
#ifndef PEGEN_CHECK_ADDITIVE_H
#define PEGEN_CHECK_ADDITIVE_H

#include "check.h"
#include "trial.h"

int check_additive(arena *a, const spec *s, const check_options *options);

/* The largest difference of out from in plus what is added, in those units; positions [tokens][axes] or NULL: the grid. Infinity
 * where a token that passes through was changed or a value is not finite. */
long double additive_error(const spec *s, const DLTensor *in, const DLTensor *out, const double *positions, const trial_operands *operands);

#endif
