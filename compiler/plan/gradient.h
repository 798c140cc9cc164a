/* plan/gradient: how the gradients of operands and positions of a block program are computed.
 *
 * Rows give torques (algebra/torque.h): sums over rows of g_i y_j, for the pairs (i, j) of components that some element
 * of the torque's basis has, laid out as terms of a row are (plan/plan.h): a fixed permutation of g times y, lane by
 * lane. What the matrix of g is applied by are the same permutations, as a rule. Where coefficients are added to rows
 * the torque is the sum of g itself.
 *
 * Once a token (and head, where heads differ) torques become gradients of *boundaries*, which are whatever the rotors
 * take from operands alone, and of the token's coordinates; once a call and head the boundaries' sums over tokens
 * become those of operands' elements. Either way it is expressions (spec/adjoint.h).
 */
#pragma once

#include "algebra/torque.h"
#include "plan/plan.h"

typedef struct plan_gradient {
  torque_basis basis;
  int n_torques;      /* elements of the basis; 1 of a sum */
  const expr **tau;   /* [n_torques] leaves that stand for them */
  plan *pairs;        /* its terms: the pairs whose products are summed */
  int n_boundaries;   /* 0 where no element of an operand gains */
  const expr **boundary, **sum;      /* [n_boundaries] and the leaves that stand for their gradients' sums */
  const expr **of_boundary[2];       /* [torque_frame][n_boundaries] what they gain of a token's torques */
  const expr **of_position[2];       /* [torque_frame][axes] */
  bool has_positions;                /* some of which are not 0 */
  int n_inputs;
  const adjoint_scatter *of_input;   /* what elements of the query's inputs gain of the same */
  int n_row_inputs[2];               /* [torque_frame] where rows turn by inputs: */
  const adjoint_scatter *of_row_input[2]; /* what elements of the row's own gain of its torques */
  plan *token;                       /* what is gathered and prepared for the two above */
  int n_scatters;
  const adjoint_scatter *scatter;    /* of `sum`: what each leaf's element gains */
  plan *leaves;                      /* what is gathered for them */
} plan_gradient;

/* The gradients of a head's parts, each with torques, boundaries and sums of its own. */
typedef struct plan_gradient_row {
  int n_parts;
  const plan_gradient *part[SPEC_MAX_PARTS]; /* NULL: neither its operands nor its positions have one */
} plan_gradient_row;

/* What is computed of a token is added to rows. */
static inline bool plan_is_sum(const plan *p) { return p->spec->additive != NULL; }

/* In the parts before number `part` (n_parts: in all): sums over tokens and what leaves gain of them, one part's behind
 * the other's. */
int plan_gradient_sums(const plan_gradient_row *row, int part);
int plan_gradient_scatters(const plan_gradient_row *row, int part);
/* The most blocks of a part; whether some part's positions gain; the first part that has any gradient. */
int plan_gradient_blocks(const plan_gradient_row *row);
bool plan_gradient_has_positions(const plan_gradient_row *row);
const plan_gradient *plan_gradient_first(const plan_gradient_row *row);

/* NULL: neither operands nor positions have a gradient. */
const plan_gradient *plan_gradient_build(arena *a, const plan *p);
/* Builds the gradients of several parts; NULL where none has any. */
const plan_gradient_row *plan_gradient_build_row(arena *a, const plan *const *plans, int count);
/* A row of one; NULL of NULL. */
const plan_gradient_row *plan_gradient_row_of(arena *a, const plan_gradient *of);
/* Builds the gradients of expressions of a token, whose own gradients stand for torques: count numbers of each block
 * (and head, where per_head). */
const plan_gradient *plan_gradient_of_values(arena *a, const plan *p, bool per_head, const expr *const *values,
                                             int count);
/* Builds the gradients of numbers of a query, float32 sums over blocks of what its inputs and operands are: what a sum
 * gains is one number for all of its blocks. p: where those expressions are evaluated. */
const plan_gradient *plan_gradient_of_sums(arena *a, const plan *p, const expr *const *sums, int count);
