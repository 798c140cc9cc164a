/* gpu/widen: columns of a polynomial bias on a GPU.
 *
 * 8 neighbouring lanes (more where there are many columns) have one token. One of them makes the monomials of its
 * coordinates in two-float arithmetic; all of them what the columns need of those, from tables, into shared memory; and
 * then they walk over the token's rows: each row is moved in pieces of 16 bytes, one a lane. A row of k ends in the
 * token's keys. For a row of q each lane evaluates every eighth term of the bias, the sums over terms are gathered, and
 * each lane makes every eighth column of them. What is a constant of the columns (plan/widen.h) stands in tables, so
 * that the code does not grow with their number.
 */
#ifndef PEGEN_GPU_WIDEN_H
#define PEGEN_GPU_WIDEN_H

#include "gpu/entries.h"
#include "plan/widen.h"

/* NULL after a diag_error where columns are too many for shared memory. */
const gpu_program *gpu_widen_program(arena *a, const program *encode, unsigned dtypes, bool gradients);

#endif
