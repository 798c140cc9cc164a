/* verify/oracle: the reference's answers, computed once per (positions, token, head, block) however many kernels are
 * compared with them, and the comparisons.
 */
#pragma once

#include "verify/trial.h"

typedef struct oracle oracle;

/* positions [batches][tokens][axes], batches 1 where shared; NULL where the spec has a grid. Where q and k of a
 * description differ it is the oracle of q (spec_of_side). */
oracle *oracle_create(arena *a, const spec *s, int64_t batches, int64_t tokens, const double *positions,
                      const trial_operands *operands);
/* Sets inputs, where they rotate rows: those of `batches` batches, or of all where there is one, and of `heads`
 * heads; else the typical row stands for all. */
void oracle_set_inputs(oracle *o, const trial_inputs *inputs, int64_t batches, int64_t heads);
/* Comparisons look at the first and last tokens and at every step-th; 1 where not called. */
void oracle_sample(oracle *o, int64_t step);
/* The oracle of one of the head's parts. */
oracle *oracle_part(const oracle *o, int part);
/* matrix [n_components][n_components] of a token that is encoded. *scale: what errors of its entries are
 * measured by: the amplitude (or its inverse) in a compact group, otherwise the largest
 * number that a float32 product of the axes' actions passes through; of a dense block exp(M) the larger
 * of 1 and ||M||, unless float64 was asked for. */
const long double *oracle_matrix(oracle *o, int64_t batch, int64_t token, int head, int block, long double *scale);

/* One row [head_dim], exact in the channels' basis, and what errors of its channels are measured by: scale times the
 * block's norm, or the row's where a change of basis mixes all channels; -1: the channel passes through. */
void oracle_row(oracle *o, int64_t batch, int64_t token, int head, const double *in, long double *exact,
                long double *unit);

/* The largest difference that was seen, and where. */
typedef struct trial_error {
  long double
      error;  /* beyond the rounding of the type, in units of scale * block's norm (rows) or of scale (entries) */
  bool spoilt;        /* a leftover channel or skipped token was changed, or a number is not finite */
  int64_t batch, head, token;
  int channel;
  double got;
  long double exact;
} trial_error;
/* Keeps the worse of two errors. What is not finite is worst, and the first of its kind stays. */
void trial_note(trial_error *worst, trial_error now);

/* Rows of a q or k against the reference; adds to *worst. f32: the whole difference counts; bf16 and
 * f16: what exceeds half a unit in the last place. `in` may hold float64 numbers that the rows were made of: then
 * channels that pass through are compared as numbers, in units of themselves. Where the output stays in the kernel's
 * own basis (dense->map == DENSE_SCHUR), the inner products of all pairs of rows of a head's block are compared, of
 * which the basis leaves no trace. */
void trial_compare_rows(oracle *o, const DLTensor *in, const DLTensor *out, trial_error *worst);

/* What products that are rounded to `type` leave of a block's channels, in units of the block's norm: a rounding of the
 * matrix's entry and one of the product, and a third of what comes near a power of two. */
long double trial_product_rounding(const spec *s, number_type type);

/* Tensor whose batch j has a one in component j of every block: then rows are matrix columns. */
DLTensor *trial_unit_rows(arena *a, const spec *s, number_type type, int64_t heads, int64_t tokens);
/* `out` of such a tensor against the reference; tokens of [from, to) only. */
void trial_compare_entries(oracle *o, const DLTensor *out, int64_t from, int64_t to, trial_error *worst);

/* "batch 0 head 1 token 2 channel 3: got ..., exact ...", in the arena. */
const char *trial_error_text(arena *a, const trial_error *e);
