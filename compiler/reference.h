/* reference: the slow and sure evaluator that check and the tests compare kernels with.
 *
 * Long double; multivector products by the Cayley table, exp by scaling, Taylor
 * series and squaring in the algebra; the sandwich is multiplied out. It knows no
 * normal form and shares nothing with group.c.
 */
#ifndef PEGEN_REFERENCE_H
#define PEGEN_REFERENCE_H

#include "spec.h"

/* The matrix by which block `block` of head `head` is encoded at `positions` [n_axes]:
 * out component i = sum_j matrix[i * n_components + j] * in component j. The
 * amplitude and `inverse` are included. operands[i]: elements of operand i as doubles. */
void reference_block(const spec *s, const double *positions, const double *const *operands, int head, int block,
                     long double *matrix);

/* One row of head_dim channels; channels of no block are copied. */
void reference_row(const spec *s, const double *positions, const double *const *operands, int head,
                   const double *in, long double *out);

/* Positions of token n of a spec with a built-in grid (row-major, after the skipped tokens). */
void reference_grid(const spec *s, int64_t token, double *positions);

#endif
