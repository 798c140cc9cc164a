/* algebra/torus: generators of dense blocks that commute, as far as the description shows.
 *
 * In: struct spec with dense blocks. Out: the one matrix A of each block and the sum of
 * its angles, so that the block turns by exp(angle * A); with the real Schur form A = S (+ lambda_k J) S^T
 * (kernel/skew.h) that is S^T, plane rotations by angle * lambda_k, and S. Blocks are seen to commute where
 * at most one matrix acts on each: one axis there is (P = 1), or one listens to the block,
 * or all axes that do name the same matrix.
 */
#pragma once

#include "spec/spec.h"

typedef struct torus {
  const char
      *why_not; /* NULL: the blocks commute. Otherwise a clause that says why that is not seen; nothing else is set */
  spec_skew generator; /* A of each block */
  const expr *angle;   /* radians per unit of an eigenvalue, position included */
} torus;

void torus_find(arena *a, const spec *s, torus *out);
