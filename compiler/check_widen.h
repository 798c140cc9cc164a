/* check_widen: `pegen check` of descriptions that widen q and k; see check.h. Scores of the widened rows against the
 * product plus the bias as it is written:
 *
 *   f32        within 2^-18 of the largest score in the row
 *   bf16 f16   within 2^-13 (with columns split)
 *   to the bit parts, memory orders, q and k apart, position types
 */
#ifndef PEGEN_CHECK_WIDEN_H
#define PEGEN_CHECK_WIDEN_H

#include "check.h"

int check_widen(arena *a, const spec *s, const check_options *options);

#endif
