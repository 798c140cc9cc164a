/* algebra/split: exponentials of bivectors that are not simple, through their split into commuting simple parts.
 *
 * M = b eta is the action of B = sum of b_ij e_ij on four vectors of the basis with squares eta, pf = b_01 b_23 -
 * b_02 b_13 + b_03 b_12 (B ^ B = 2 pf e_0123), and K the action of B's dual, of coefficients eta_k eta_l b_kl with
 * signs. Then
 *
 *     M^3 = a M + pf K,     M K = -pf D,     M^2 + D K^2 = a,     a = B . B,  D = det eta,
 *
 * and the squares x, y of B's two parts are the roots of z^2 - a z + pf^2 D (M. Roelfs and S. De Keninck, "Graded
 * symmetry groups: plane and simple"). By D:
 *
 *     +1  M = L + R, (M +- K)/2, which commute and square to (a -+ 2 pf)/4: exp(L) exp(R), nothing to divide by.
 *         Isoclinic turns, x = y, are those with L or R = 0
 *     -1  x >= 0 >= y: B_x = (x B + pf K)/(x - y), a boost, and B_y = B - B_x, a turn. Where both squares vanish any
 *         share of B may be the boost, and what is left of it is 0
 *      0  y = 0, and its part need not be known: exp(M) = 1 + S M + C M^2 + (1 - S)/(-x) pf K
 *
 * Nothing is a difference of near numbers at any of the degenerate points.
 */
#pragma once

#include "algebra/clifford.h"

/* Whether B ^ B = 0, the Plücker relations, is proved for all operands and positions; below four dimensions it is.
 * Where it is not, the other closed forms are right of simple bivectors too. */
bool split_is_simple(const spec *s, const spec_bivector *plane);

/* The most groups that share no vector: two planes in five dimensions. */
enum { SPLIT_MOST_GROUPS = 2 };

/* Planes that share a vector, directly or by others, are of one group; groups commute. Returns their number. */
int split_groups(const spec_bivector *plane, spec_bivector group[SPLIT_MOST_GROUPS]);

/* The vectors that a bivector's planes have, as a blade. */
unsigned split_vectors(const spec_bivector *plane);

/* Planes whose coefficient is the constant 0 left out. */
spec_bivector split_without_zeros(const spec_bivector *plane);

/* What B's parts are, by the metric of its four vectors.                 ORDER SPLIT_KIND */
typedef enum split_kind { SPLIT_HALVES, SPLIT_BOOST_AND_TURN, SPLIT_SCREW } split_kind;
split_kind split_kind_of(spec_algebra g, unsigned vectors);

/* a, pf and the dual of B. */
typedef struct split_invariants {
  const expr *square, *pfaffian;
  spec_bivector dual;
} split_invariants;
split_invariants split_invariants_of(const spec *s, const spec_bivector *plane);

/* exp of `quarters` quarter turns times a bivector of planes among four vectors, as it acts on vectors: float64. */
expr_matrix split_exponential(arena *a, const spec *s, const expr *quarters, const spec_bivector *plane);
