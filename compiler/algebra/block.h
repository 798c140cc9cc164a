/* algebra/block: from the description to the block program, by the cheapest exact form of its group.
 *
 * In: struct spec. Out: the matrix by which a block of channels is multiplied, its
 * entries float32 expressions of positions and operands. Closed forms only (a
 * simple bivector satisfies M^3 = beta M in its action on vectors, so exp(M) =
 * I + S M + C M^2, one that is not is split into two that commute, algebra/split.h, or
 * taken by their two squares, algebra/five.h); grades follow from vectors by the outermorphism.
 */
#pragma once

#include "algebra/clifford.h"
#include "spec/spec.h"

/* How one rotor of the product becomes a matrix.                    ORDER CLOSED_FORM */
typedef enum closed_form {
  CLOSED_IDENTITY,
  CLOSED_BASIS_PLANE,   /* circular, parabolic or hyperbolic in one plane e_ij */
  CLOSED_RODRIGUES,     /* a unit plane whose vectors square to +1 */
  CLOSED_ANY_SIGNATURE, /* entire functions of B^2 */
  CLOSED_HALVES,        /* what is not simple, by its two commuting parts (algebra/split.h), ORDER SPLIT_KIND */
  CLOSED_BOOST_AND_TURN,
  CLOSED_SCREW,
  CLOSED_FIVE,          /* what is not simple and mixes five vectors (algebra/five.h) */
  CLOSED_QUATERNIONS,   /* two unit quaternions, from the left and from the right (algebra/block_of_four.h) */
  CLOSED_HALF_ANGLE,    /* a factor of a product of unit quaternions */
  CLOSED_ENTRIES,       /* a matrix that the description writes */
  CLOSED_FUNCTION,      /* of the axes' unit quaternions (algebra/rotors.h) */
  CLOSED_FORM_COUNT
} closed_form;

/* A palindrome of the axes, each of them two commuting rotors at most. */
enum { BLOCK_MOST_TURNS = 4 * SPEC_MAX_AXES };

typedef struct block_program {
  const spec *spec;
  expr_matrix matrix; /* [n_components][n_components]; zeros are the constant 0 */
  int n_turns;        /* rotors that are multiplied */
  closed_form turn[BLOCK_MOST_TURNS];
} block_program;

/* That a block's matrix may take, and all blocks of a head: its rows are written out, so that this is how much code
 * there will be. It takes minutes of a compilation, and no encoding that is known takes a tenth of it. */
enum { BLOCK_MOST_OPERATIONS = 16384, BLOCK_MOST_OF_HEAD = 1 << 18 };

/* False after a diag_error where the description has no closed form, a function of rotors in more dimensions than
 * quaternions have or a matrix that clears channels, and where it is too large. */
bool block_build(arena *a, const spec *s, block_program *out);

/* A rotation whose axes all share a vector e of the basis, as two reflections (Cartan and Dieudonné): with D = I - 2 e
 * e^T,
 *
 *     matrix = (I - t t^T) D,   t = sqrt 2 (cos(phi/2) e + sin(phi/2) U e)
 *
 * for the unit plane U and the angle phi: n entries in place of n^2. True where the block has that form; then mirror
 * is t, [n_components], float32, and flipped the diagonal of D: true where it is -1. */
bool block_mirror(arena *a, const spec *s, const expr **mirror, bool *flipped);

/* Writes several rotations in three Euclidean dimensions as a product of unit quaternions: half the
 * multiplications, and sines of half the angles, whose errors count twice. So those are of float64, EXPR_SIN_FOLDED and
 * EXPR_COS_FOLDED: for targets where these are as cheap as float32's with their quadrants. False where there are no
 * such rotations; no message. */
bool block_build_quaternions(arena *a, const spec *s, block_program *out);

/* The normal form in words, for a person. */
const char *block_normal_form(arena *a, const block_program *program);
