/* verify/reference_gradient_attention: gradients of attention, one query at a time, in long double.
 *
 * Softmax is differentiated as it is written; a pair's score by what verify/reference_gradient knows of expressions and
 * of blocks. A key that is not seen leaves no trace, whatever it holds.
 */
#pragma once

#include "verify/reference_attention.h"
#include "verify/reference_gradient.h"

/* All gradients are added to; any may be NULL. */
typedef struct reference_query_gradients {
  gradient_sum *q;           /* [head_dim] */
  gradient_sum *k, *v;       /* [keys][head_dim], [keys][value_dim] */
  gradient_sum *position;    /* [axes] of the query */
  gradient_sum *k_positions; /* [keys][axes] */
  gradient_sum *const *operand;
  gradient_sum *const *input; /* [n_inputs] the query's rows; of keys those of all, from key 0 on */
} reference_query_gradients;

/* Gradients of the loss <out, g> + lse g_lse, lse being ln of the sum of exp(score). */
void reference_attention_backward(const spec *s, const reference_query *query, const double *g, double g_lse,
                                  const reference_query_gradients *to);

/* Gradients of the sum of score times g [keys]: of scores alone, as widened rows give them. */
void reference_scores_backward(const spec *s, const reference_query *query, const gradient_sum *g,
                               const reference_query_gradients *to);
