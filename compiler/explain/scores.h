/* explain/scores: what positions make of scores, by displacement, over all pairs of tokens of a grid.
 *
 * A score is that of a query and a key of length 1: <rho(r) q, rho(s) k>, 1 where they are equal and positions change
 * nothing. Where it depends on more than the displacement s - r, pairs of the same displacement differ: the mean, the
 * lowest and the highest are told. What is added to scores (biases) stands apart, in units of scale q . k.
 */
#pragma once

#include "explain/operand_values.h"

enum { SCORE_QUANTILES = 5, SCORE_MOST_TOKENS = 1024 };
extern const double score_quantile[SCORE_QUANTILES];

typedef struct score_map {
  int64_t grid[SPEC_MAX_AXES], size[SPEC_MAX_AXES]; /* displacements of an axis: -(grid - 1) ... grid - 1 */
  int64_t tokens, count;                            /* of the grid; of displacements, the last axis fastest */
  int n_heads, *head;                               /* that are shown, evenly spread where all would take too long */
  const char *meaning;                              /* of equal: what is compared */
  double *equal, *lowest, *highest; /* [n_heads][count], of equal queries and keys; NULL: positions turn nothing */
  double *random; /* [SCORE_QUANTILES][count], of random queries and keys, heads together; NULL: not of this kind */
  double *bias;   /* [n_heads][count]; -infinity hides the key; NULL: none */
} score_map;

/* Sets what is known of the grid; false after a diag_error: more tokens than SCORE_MOST_TOKENS, or another number of
 * axes. */
bool scores_open(const spec *s, const explain_request *request, score_map *out);
/* Fills one that was opened: seconds of work. */
void scores_measure(arena *a, const spec *s, const operand_values *operands, score_map *out);
