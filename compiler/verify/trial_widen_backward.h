/* verify/trial_widen_backward: gradients of kernels that widen q and k, compared with the reference's of scores.
 *
 * Which columns there are is the compiler's affair, so that gradients of widened rows are those that scores give them:
 * of a loss that is a sum over pairs of numbers times q_out . k_out, where the numbers of a query add up to 0, for
 * scores are the description's up to a constant of each query.
 */
#pragma once

#include "verify/trial_attention_backward.h"
#include "verify/trial_widen.h"

/* A call: what forward is given and gives, what comes in, what goes out. */
typedef struct widen_gradients {
  widen_trial forward; /* its outputs the kernel's */
  const double *of_score; /* [B][H][N][M] */
  DLTensor *q_out, *k_out; /* coming in */
  attention_gradients out; /* going out: q, k, operands, inputs, positions, k_positions; NULL is not asked for */
} widen_gradients;

/* Random numbers of scores, of every step-th query alone and of few of its keys, what rows gain of them, and room in a
 * memory order for all gradients that there are. The forward call's error. */
int widen_gradients_fill(arena *a, widen_gradients *g, const widen_trial *forward, const pegen_kernel *kernel,
                         int64_t step, row_order order, uint64_t *random);

/* One call in parts, from the last to the first, and then those of the sums; the first error. flags: PEGEN_GRAD_. */
int widen_gradients_call(const pegen_kernel *kernel, const widen_gradients *g, const attention_gradients *out,
                         uint32_t flags, int parts);

/* What the reference says of it; rows of v have none. */
attention_answer widen_gradients_answer(arena *a, const widen_gradients *g);

/* What errors may be: 2^-18 of the sum of absolute values of what is added, where displacements count as far as
 * columns do; of rows of 16 bits half a unit in their last place more, which is what came in. */
long double widen_gradients_bound(number_type type);
