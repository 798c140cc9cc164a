/* verify/trial_attention_tangent: tangents of attention kernels against the reference's gradients. Forward mode is the
 * transpose of reverse mode, so that for gradients g that come in and rows q', k', v' that q, k and v change by
 *
 *     <g_out, out'> + <g_lse, lse'> = <g_q, q'> + <g_k, k'> + <g_v, v'>.
 */
#pragma once

#include "verify/trial_attention_backward.h"

typedef struct attention_tangents {
  DLTensor *q, *k, *v; /* coming in */
  DLTensor *out, *lse; /* going out; lse NULL where the call has no gradient of it */
} attention_tangents;

/* Random tangents of a call's rows, and room for what out and lse change by. */
attention_tangents attention_tangents_lay(arena *a, const attention_gradients *g, row_order order, uint64_t *random);
/* Calls in parts, from the last to the first. Returns the first error. */
int attention_tangents_call(const pegen_kernel *kernel, const attention_gradients *g, const attention_tangents *t,
                            int parts);
/* The largest difference of the two sides above, for each batch and head of k, in units of what is added times the
 * largest score. */
void attention_tangents_compare(const attention_gradients *g, const attention_tangents *t,
                                const attention_answer *exact, trial_error *worst);
bool attention_tangents_same(const attention_tangents *x, const attention_tangents *y);
