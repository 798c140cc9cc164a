/* verify/trial_widen: kernels that widen q and k, called on data of its own making and compared by the scores
 * that their rows give, with the bias as the description writes it.
 */
#pragma once

#include "verify/oracle.h"
#include "verify/trial.h"

/* A call of such a kernel and what the reference needs to know of it. */
typedef struct widen_trial {
  const spec *spec;
  number_type type;        /* of q and k */
  DLTensor *q, *k, *q_out, *k_out;
  const double *q_values, *k_values; /* positions [tokens][axes], the same for all batches; NULL: the built-in grid's */
  const DLTensor *positions, *k_positions; /* NULL: the built-in grid; the same as positions */
  const double *from; /* [axes] that columns count from */
  const DLTensor *origin; /* the same of calls that need to be told; NULL: none is taken */
  trial_operands operands;
  trial_inputs inputs;
} widen_trial;

/* Sizes of a trial's tensors. */
typedef struct widen_shape {
  int64_t batch, heads, k_heads, tokens, k_tokens;
} widen_shape;

/* Random rows, operands and inputs (of input_type); positions as given. Outputs have the kernel's widths. */
widen_trial widen_trial_create(arena *a, const spec *s, const pegen_kernel *kernel, number_type type,
                               number_type input_type, row_order order, const widen_shape *shape,
                               const double *positions, const double *k_positions, uint64_t *random);

/* One call, as `parts` parts from the last to the first; the first error. which: 1 q, 2 k, 3 both. */
int widen_trial_call(const pegen_kernel *kernel, const widen_trial *t, DLTensor *q_out, DLTensor *k_out, int which,
                     int parts);

/* q_out . k_out over all channels against q . k plus the bias, of some 24 queries of each head; adds to *worst. Errors
 * are relative to the largest score in the row, where a constant for each query is free unless the kernel keeps it.
 * Spoilt: a channel that should be moved was changed, padding is not zero, a score is not finite. */
void widen_trial_compare(const widen_trial *t, const DLTensor *q_out, const DLTensor *k_out, trial_error *worst);

/* What that error may be: 2^-18 in float32; 2^-13 in 16 bits with columns split, 2^-11 where the
 * degree is above 3. */
long double widen_trial_bound(const spec *s, number_type type);
