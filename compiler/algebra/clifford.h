/* algebra/clifford: the algebra Cl(p,q,r) on bit-mask blades, and what versors do to grades.
 *
 * Numbers only: signs and metric factors of blade products. Expressions enter
 * through matrices: clifford_compound turns the action on vectors into the action
 * on any grade (outermorphism), so no sandwich product is ever expanded.
 */
#pragma once

#include "spec/expr.h"
#include "spec/spec.h"

static inline int clifford_dimensions(spec_algebra g) { return g.p + g.q + g.r; }
static inline int clifford_grade(unsigned blade) { return __builtin_popcount(blade); }

/* e_i squared: +1, -1 or 0; i counts from 0. */
int clifford_square(spec_algebra g, int i);

/* Sign of the permutation that sorts the factors of blade a followed by blade b, no metric. */
int clifford_reorder_sign(unsigned a, unsigned b);

/* A square matrix of expressions, [size][size] row-major: out_i = sum_j entry[i * size + j] in_j. */
typedef struct expr_matrix {
  int size;
  const expr **entry;
} expr_matrix;

expr_matrix expr_matrix_identity(arena *a, expr_pool *pool, int size);
expr_matrix expr_matrix_product(arena *a, expr_pool *pool, expr_matrix x, expr_matrix y);

/* The matrix of x -> 1/2 (B x - x B) on vectors: e_i -> -s_i e_j, e_j -> s_j e_i for B = e_ij. */
expr_matrix clifford_bivector_action(arena *a, expr_pool *pool, spec_algebra g, const spec_bivector *plane);

/* The entry (row blade, column blade) of the outermorphism of the vector action v, both of one
 * grade: the minor of v on the blades' rows and columns. v must be in the identity component of
 * the orthogonal group of g (determinant 1): grades above half are then taken from the complementary
 * minor, which for grade n-1 is an entry of v itself. */
const expr *clifford_compound(expr_pool *pool, spec_algebra g, expr_matrix v, unsigned row, unsigned column);
