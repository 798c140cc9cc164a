/* dense.h: the border between dense.c and the code emitted for blocks that turn by exponentials of skew matrices; see
 * loop.h for what both kinds of kernel share. Only int64_t, double and pointers.
 */
#pragma once

#include "loop.h"

/* Rows of one call of an emitted apply function: tokens [token_begin, token_end), batches [batch_begin, batch_end),
 * heads [head_begin, head_end) (all of each tensor's where heads are alike), blocks [block_begin, block_end).
 * A block's matrix is float32 [b][b], column by column (entry (i, k) at k * b + i) or, for b = 8 and exponentials, by
 * diagonals: compiler/cpu/apply.h. */
typedef struct pegen_apply {
  int64_t token_begin, token_end;
  int64_t batch_begin, batch_end;
  int64_t head_begin, head_end;
  int64_t block_begin, block_end;
  pegen_rows rows[2];      /* q, k; the second has 0 heads where only one is given */
  const char *matrices;    /* of block 0 of token 0 and head 0 */
  int64_t matrix_token, matrix_head; /* strides in bytes; blocks follow one another */
  const float *coefficients;         /* of the action alone: [terms], at least 2 */
  int64_t terms;
} pegen_apply;

typedef void pegen_apply_function(const pegen_apply *work);

/* float64 [terms][lanes]: the angles of a head's blocks at a token's float64 [axes] position; with a change of basis
 * float32 coefficient vectors in that room (emit_basis.h). */
typedef void pegen_angles_function(const double *position, const char *prepared, double *angles);

/* The matrices of a unit of blocks: see compiler/cpu/exponential.h, torus.h and dense.h. */
typedef void pegen_matrix_function(const char *generators, const double *angles, char *matrices);

/* The transposes of `blocks` matrices, in the layout that apply takes; the last of an odd number may be alone. */
typedef void pegen_transpose_function(const char *matrices, int64_t blocks, char *transposed);

/* What a norm does not exceed: see emit_exponential_sum. */
typedef void pegen_bound_function(const char *generators, const double *angles, double *bound);

/* The cost model of encode without a table, in multiply-adds of a block of `size` channels: forming exp(M) takes
 * products of size^3, the action of the exponential (compiler/cpu/exponential_action.c) size^2 a term and row. Norms
 * are bounds; not a number: formed. */
enum { PEGEN_ACTION_TERMS = 512 }; /* at most */
static inline double pegen_action_terms(double norm) { return norm + 3 * __builtin_sqrt(norm) + 8; }
static inline int pegen_acts(double norm, int64_t rows, int64_t size) {
  double products = 3.5;
  if (!(norm <= 400)) return 0;
  for (double reached = 2.25; reached < norm; reached *= 2) products += 1;
  return (double)rows * pegen_action_terms(norm) < products * (double)size;
}

/* What rows add to the torques of `count` blocks from `block` on, what these give generators and angles, and torques of
 * what encode wrote from those of what it read: see compiler/cpu/dense_backward.h, exponential.h, torus.h,
 * basis_adjoint.h. */
typedef void pegen_wedge_function(const char *gradient, const char *row, int64_t block, int64_t count, char *outer);
typedef void pegen_adjoint_function(const char *generators, const double *angles, const char *outer, double *gains,
                                    double *sums);

/* What angles' operands and a token's coordinates gain of its angles' gradients, double [gain_terms][leaf_lanes]: added
 * to sums (an address; 0: not wanted) and, where positions is not 0, to gained. */
typedef void pegen_gain_function(const double *position, const char *prepared, const double *of_angles, int64_t sums,
                                 int64_t positions, double *gained);

/* Adds a unit's torques to those of all calls that have read a table: compiler/cpu/gain.h. */
typedef void pegen_collect_function(const char *outer, char *to);

/* The emitted functions of one target. */
typedef struct pegen_dense_code {
  int64_t unit; /* blocks that one call of matrix takes */
  int64_t lanes, padded; /* how generators lie: [terms][pairs][lanes], or where lanes is 0 [terms][padded][padded] */
  pegen_prepare_function *prepare; /* NULL: angles need no operand */
  pegen_angles_function *angles;
  pegen_angles_function *back; /* of a change of basis: coefficient vectors of the transposed turns, and of boosts and
                                 translations those of their inverse behind them; else NULL */
  pegen_matrix_function *matrix,
      *matrix_rest; /* of whole units, and of what is left of the last one; NULL where nothing is */
  pegen_apply_function *apply[PEGEN_ROW_TYPES]; /* by PEGEN_NUMBER_ */
  pegen_transpose_function *transpose; /* NULL where there are no gradients */
  pegen_wedge_function *wedge[PEGEN_ROW_TYPES]; /* these NULL where operands and positions have none */
  pegen_adjoint_function *adjoint;
  pegen_matrix_function *turn;
  pegen_gain_function *gain; /* NULL: angles depend on nothing that gains */
  pegen_collect_function *collect;
  pegen_apply_function *rounding; /* bfloat16 that the processor rounds (tuning->rounds); NULL: there is none */
  pegen_apply_function *stream; /* f32 that is stored past the caches, to rows of whole lines; NULL: there is none */
  pegen_matrix_function
      *sum; /* of generators times angles, where the action may be taken; else NULL, and the others, too */
  pegen_bound_function *bound;
  pegen_apply_function *act[PEGEN_ROW_TYPES];
} pegen_dense_code;

/* A skew matrix for each head and block, out of the raw ones of an operand. */
typedef struct pegen_skew {
  int64_t operand;
  int64_t difference; /* 0: A_ij = F_ij for i < j; 1: F_ij - F_ji */
  int64_t n_heads; /* rows of offset; 1 where all heads share them */
  const int32_t *offset; /* [n_heads][n_blocks]: the element where the raw matrix begins */
} pegen_skew;

/* The forms of dense blocks (compiler/forms/dense.c) and of a change of basis (compiler/forms/change_of_basis.c). */
typedef struct pegen_dense {
  int64_t size, n_blocks, terms; /* terms: generators that a block's matrix is a sum of */
  int64_t angle_lanes; /* row length of angles */
  int64_t gain_terms, gain_lanes; /* numbers of a block that `adjoint` gives gradients of, and their row length */
  int64_t inverse; /* 1: turn back */
  int64_t is_f64; /* matrices are formed in float64 */
  int64_t schur; /* 1: the output stays in the basis of the real Schur form, of every token */
  const pegen_skew *generators; /* [terms] */
  const pegen_skew
      *basis; /* the head is one block, whose matrix is the turns of its channels times the Cayley transform of this,
                 or to turn back the transpose of such a product; every token's; NULL: blocks of generators */
  int64_t leaf_blocks; /* that operand leaves have elements for: n_blocks, or what turns after a change of basis */
  int64_t leaf_lanes, n_leaves;
  const pegen_leaf *leaves;
  int64_t prepared_bytes; /* of one head, a multiple of 64 */
  const pegen_gradient *gradient; /* of angles; NULL: they have none */
  const pegen_dense_code *targets; /* [n_targets] */
} pegen_dense;
