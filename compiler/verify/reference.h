/* verify/reference: the slow and sure evaluator that check and the tests compare kernels with.
 *
 * Long double; multivector products by the Cayley table, exp by scaling, Taylor
 * series and squaring in the algebra, or among matrices; the sandwich is multiplied out. It knows no
 * normal form and shares nothing with algebra/block.c.
 */
#pragma once

#include "spec/spec.h"

/* The sign of the product of two blades of the algebra, whose blade is a ^ b: +-1, 0 where a null vector is squared. */
int reference_sign(const spec_algebra *algebra, unsigned a, unsigned b);

/* Where an expression is evaluated of a block (of a sum: a channel) and head, by the conventions of reference_block:
 * inputs follow operands. */
static inline expr_environment reference_environment(const spec *s, const double *positions,
                                                     const double *const *operands, int head, int block) {
  return (expr_environment){.head = head,
                            .block = block,
                            .blocks = s->n_blocks,
                            .positions = positions,
                            .operands = operands,
                            .inputs = spec_turns_rows(s) ? operands + s->n_operands : NULL};
}

/* The matrix by which block `block` of head `head` is encoded at `positions` [n_axes]:
 * out component i = sum_j matrix[i * n_components + j] * in component j. The
 * amplitude, the gain and `inverse` are included. operands[i]: elements of operand i as doubles, and where inputs turn
 * rows, operands[n_operands + i]: the row of input i. Where rows of q and k differ it is of q; spec_of_side makes a
 * description of either. */
void reference_block(const spec *s, const double *positions, const double *const *operands, int head, int block,
                     long double *matrix);

/* By how much its rows are longer for the gain, or shorter with `inverse`; 1 where there is none. */
long double reference_gain_of(const spec *s, const double *positions, const double *const *operands, int head,
                              int block);

/* The matrix of a description with dense blocks; reference_block calls it. Where dense->map == DENSE_SCHUR it is the
 * matrix in the channels' own basis: what the kernel gives is this up to one rotation for all tokens of a head. */
void reference_dense_block(const spec *s, const expr_environment *env, long double *matrix);

/* A skew n x n matrix of a head and block, as the description makes it of the raw one; blocks: of its offsets. */
void reference_skew(const spec_skew *m, int n, int head, int block, int blocks, const double *const *operands,
                    long double *matrix);

/* The spectral norm of M in exp(M) of a dense block, to 4 %; errors of its exponential are measured by it. */
long double reference_norm(const spec *s, const double *positions, const double *const *operands, int head, int block);

/* For a function of rotors: by how much the block's matrix moves where the axes' rotations move by 2^-42 and 2^-48 of
 * their angles, which float64 and pairs of float32 leave open however well they are used; large at its cuts, where
 * nearby rotations have far values. */
long double reference_reach(const spec *s, const double *positions, const double *const *operands, int head, int block);

/* C [head_dim][head_dim] of a description with a basis: a row is C x before its blocks are turned, and with
 * `inverse` C^T of it afterwards. */
void reference_basis(const spec *s, const double *const *operands, int head, long double *matrix);

/* system x = right, both [n][n]: elimination with pivots. right becomes x; system is spoilt. */
void reference_solve(int n, long double *system, long double *right);

/* One row of head_dim channels; channels of no block are copied, but for a change of basis. */
void reference_row(const spec *s, const double *positions, const double *const *operands, int head, const double *in,
                   long double *out);

/* A part's coordinates [its n_axes] among the whole's. */
void reference_place_of_part(const spec_part *part, const double *positions, double *own);

/* What an additive description adds to a channel. */
long double reference_sum(const spec *s, const double *positions, const double *const *operands, int head, int channel);

/* The bias of a polynomial description at delta = r_j - r_i [n_axes], term by term as it is written; inputs[i]: the
 * query's row of input i. */
long double reference_bias(const spec *s, const double *delta, const double *const *operands,
                           const double *const *inputs, int head);

/* Positions of token n of a spec with a built-in grid (row-major, after the skipped tokens). */
void reference_grid(const spec *s, int64_t token, double *positions);
/* A token's coordinates: among values [tokens][axes], or (NULL) the grid's, for which there is room. */
const double *reference_place(const spec *s, const double *values, int64_t token, double *room);
