/* group: from the description to the block program, by the cheapest exact form of its group.
 *
 * In: struct spec. Out: the matrix by which a block of channels is multiplied, its
 * entries float32 expressions of positions and operands. Closed forms only (a
 * simple bivector satisfies M^3 = beta M in its action on vectors, so exp(M) =
 * I + S M + C M^2); grades follow from vectors by the outermorphism.
 */
#ifndef PEGEN_GROUP_H
#define PEGEN_GROUP_H

#include "clifford.h"
#include "spec.h"

typedef struct block_program {
  const spec *spec;
  expr_matrix matrix; /* [n_components][n_components]; zeros are the constant 0 */
} block_program;

/* False after a diag_error where the description has no closed form (a sum that is not simple). */
bool group_build(arena *a, const spec *s, block_program *out);

#endif
