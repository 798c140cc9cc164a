/* plan/change_of_basis: how a kernel turns blocks after an orthogonal change of basis of the whole head, x -> R C x
 * with C the Cayley transform of a learned skew matrix (STRING).
 *
 * R is what a plan of blades does to a row, so R C is what it does to every column of C: a token's matrix is formed
 * by D such rows, and to the rest of the machinery the head is one dense block of D channels. To turn back takes (C^T
 * R^-1): the transpose of what R^-T does to the columns of C. Gradients of C go back through R^-1, which of boosts and
 * translations is no multiple of R^T: a plan of its own beside that of R.
 */
#pragma once

#include "plan/plan.h"

enum { PLAN_BASIS_MOST = 128 }; /* channels of the head: matrices are formed on the stack of the call (cli/pegen.h) */

typedef struct plan_basis {
  const spec *spec;
  const plan *turns; /* of R, with `inverse` where R^T is no multiple of that, or of R^-T */
  bool per_head;     /* matrices differ from head to head */
} plan_basis;

/* Blocks whose action is a block program: of blades, and dense ones of up to 4 channels. */
bool plan_basis_takes(const spec *s);
/* NULL after a diag_error. */
plan_basis *plan_basis_build(arena *a, const spec *s);

void plan_basis_print(FILE *out, const plan_basis *p);
