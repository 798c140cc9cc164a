/* gpu/widen_gains: what inputs, operands and positions gain of rows that columns widened, on a GPU.
 *
 * Neighbouring lanes have a chunk of items (tokens of batches), and go through it one by one as encode does: monomials
 * and gains of the token, then its rows, whose channels move back. What the columns of a row of q gain is, times the
 * gains, what the weights do (a weight a lane); of these each lane goes back through as many of the bias' terms as the
 * others. What a term's inputs gain is gathered by element in shared memory, and what operands' halves of products gain
 * is added to the chunk's sums, of which a lane has its own terms' (gpu/finish takes them on). What coordinates gain of
 * columns is the slopes of gains and keys, from tables, in two-float arithmetic.
 */
#pragma once

#include "gpu/entries.h"
#include "plan/widen.h"

/* Whether what a token has fits in shared memory. of: NULL: positions alone gain. */
bool gpu_widen_gains_fit(arena *a, const plan_widen *p, const plan_gradient *of);
/* Writes the entries of a call's gradients and those that finish it. Returns their number, 0 where they do not fit. */
int gpu_widen_gain_entries(arena *a, const plan_widen *p, const plan_gradient *of, unsigned dtypes, gpu_entry *entries);
