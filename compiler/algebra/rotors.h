/* algebra/rotors: a function of the axes' rotors (spec_function) as unit quaternions.
 *
 * In two and three Euclidean dimensions a rotor is a unit quaternion, in two with v along e12 alone, and whatever is
 * done to rotations is done to these in float64:
 *
 *     product, inverse      q p, the conjugate
 *     log                   the rotation vector of the shortest turn: with the sign for which w >= 0, halved three
 *                           times by roots, then the series of atan(t)/t. Where w is 0, a turn by pi, it is the one
 * along v exp                   cos and sin of half its length, by their series chordal mean          of rotations R_a
 * with shares s_a it is the R with the largest tr(R^T sum of s_a R_a), and tr(R^T R_a) = 4 (q . q_a)^2 - 1: q is the
 * dominant eigenvector of sum of s_a q_a q_a^T (Markley, Cheng, Crassidis and Oshman, "Averaging quaternions", 2007)
 *
 * Where there are no more rotations than numbers in a rotor the eigenvector is sought among their combinations, as that
 * of Gram's matrix sqrt(s_a s_b) q_a . q_b: of two by a root, of more by squaring the matrix 20 times. Where the two
 * largest eigenvalues are nearer than 2^-15 of their size, squaring leaves some of the second one's vector: a rotation
 * that is as near to the mean as that. Where they are equal there are many nearest rotations, and it gives one.
 *
 * Rounding cannot make anything but a rotation of it: what comes out is normalized, or a product of what was.
 */
#pragma once

#include "algebra/quaternion.h"

typedef struct rotors {
  const spec *spec;
  expr_pool *pool;
  const expr *turn[SPEC_MAX_AXES][3]; /* the rotation vector of an axis' generator, for an angle of 1 */
  quaternion *value;                  /* [nodes]; of bivectors v alone, a rotation vector */
} rotors;

/* Whether the algebra's bivectors are rotation vectors: two or three dimensions whose vectors square to one sign. */
bool rotors_are_quaternions(const spec *s);

/* The dimension along which a basis bivector of such an algebra turns, and in which sense: +1 or -1. */
int rotors_direction(const spec *s, unsigned blade, int *sense);

/* The rotors of a description whose combine is a function. */
rotors rotors_build(arena *a, const spec *s);
