/* verify/trial_attention: attention kernels on tensors, compared with the reference; verify/trial.h's of the other
 * entry. */
#pragma once

#include "verify/oracle.h"
#include "verify/reference_attention.h"
#include "verify/trial.h"

/* A call: tensors, and what the reference reads of them. */
typedef struct attention_trial {
  const spec *spec;
  DLTensor *q, *k, *v;
  const DLTensor *positions, *k_positions; /* k_positions NULL: the same; both NULL: the grid's, or none are needed */
  trial_operands operands;
  trial_inputs inputs;
  int causal;
  double scale;
  DLTensor *lse; /* that a call fills; NULL: not asked for */
  bool splits; /* calls have split_keys, the workspace for it, and finish behind them */
} attention_trial;

/* Sizes of a random trial. */
typedef struct attention_sizes {
  int64_t batch, heads, k_heads, tokens, keys;
} attention_sizes;

/* Random q, k, v of a type and memory order, and inputs of the type. */
void attention_trial_fill(arena *a, attention_trial *t, const attention_sizes *sizes, number_type type, row_order order,
                          uint64_t *random);

DLTensor *attention_trial_out(arena *a, const attention_trial *t, row_order order);
/* [B,H,N] float32, for t->lse; in memory [B,N,H]. */
DLTensor *attention_trial_lse(arena *a, const attention_trial *t);

/* Where such a tensor has a query's number. */
float *attention_trial_lse_at(const DLTensor *lse, int64_t batch, int64_t head, int64_t token);

/* The arguments of a call, without memory for a workspace. */
pegen_args attention_trial_args(const pegen_kernel *kernel, const attention_trial *t, DLTensor *out);

/* No score of the query with a key is larger before a bias or a score's function; what rounding a row by 1 unit of each
 * block's length changes is no more than a unit of it. */
long double attention_trial_product(const spec *s, const reference_query *query, int64_t key);

/* Which element of input i a query's row begins at, or of keys the row of key 0. */
int64_t attention_trial_input(const attention_trial *t, int i, int64_t batch, int64_t head, int64_t token);

/* One call, as `parts` parts from the last to the first; the first error. */
int attention_trial_call(const pegen_kernel *kernel, const attention_trial *t, DLTensor *out, int parts);

/* Whether a call rounds weights to the rows' type before it multiplies them. Nothing is run. */
bool attention_trial_rounds_weights(const spec *s, const pegen_kernel *kernel, bool backward, const pegen_args *args);
/* Whether rows that turn are rounded to their type before they meet. */
bool attention_trial_rounds_rows(const spec *s, const pegen_kernel *kernel, bool backward, const pegen_args *args);

/* The largest error of `out`, which the kernel wrote, in units of the row's largest score (1 at least) times the
 * largest number of v: beyond half a unit in the last place of 16-bit types, and beyond what it costs that tensor
 * cores, and dot products of bfloat16, round weights, and tensor cores turned rows, to the rows' type. step: rows that
 * are looked at. */
void attention_trial_compare(arena *a, const pegen_kernel *kernel, const attention_trial *t, DLTensor *out,
                             int64_t step, trial_error *worst);
/* The largest error of t->lse, in units of the row's largest score (1 at least). */
void attention_trial_compare_lse(arena *a, const pegen_kernel *kernel, const attention_trial *t, int64_t step,
                                 trial_error *worst);

/* Every step-th query, the first and the last, as the reference is asked about it; what it points to lasts as long as
 * the visit. */
typedef void attention_query_visitor(void *context, const reference_query *query, int64_t batch, int64_t head);
void attention_trial_queries(arena *a, const attention_trial *t, int64_t step, attention_query_visitor *visit,
                             void *context);
