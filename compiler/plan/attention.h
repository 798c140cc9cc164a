/* plan/attention: how attention is computed: what is a constant of the kernel, and the shape of its tiles.
 *
 *     out_i = sum_j p_ij v_j / sum_j p_ij,   p_ij = 2^(s_ij - max_j s_ij),
 *     s_ij = log2(e) (scale q_i . k_j + bias(r_j - r_i)), or log2(e) scale (q_i . k_j + bias(r_j - r_i)) of a
 *     polynomial,
 *
 * over tiles of keys with a running maximum (Milakov and Gimelshein's online softmax), so that scores
 * are never stored beyond a tile.
 */
#ifndef PEGEN_PLAN_ATTENTION_H
#define PEGEN_PLAN_ATTENTION_H

#include "plan/widen.h"
#include "target/processor.h"

#include <stdio.h>

typedef struct attention_plan {
  const spec *spec;
  int head_dim, value_dim;
  const plan_widen *columns; /* of a bias that is a polynomial: monomials of the key's position, and a query's factors
                              * of them, which are summed as further channels of q . k; NULL: none */
  const expr *bias;      /* of the displacement, in powers of two, float32; NULL: none */
  bool hides;            /* the bias may be -infinity: the key is not seen */
  const expr **matrix; /* [n_components][n_components] of a block, of the displacement, float32; NULL: no rotation */
  const expr *
      *mirror; /* [n_components]: the matrix is (I - t t^T) D (algebra/block.h), and this is t; NULL: it is not */
  bool *flipped;       /* [n_components]: D is -1 there */
  int n_coefficients;  /* what a pair is turned by: t, or [n_components][n_components] of the matrix */
  int n_entries; /* distinct ones of them, those that differ in sign alone counted once */
  const expr **entry;
  int *entry_of; /* [n_coefficients]: index of entry; -1: it is 0 */
  bool *entry_negated; /* [n_coefficients] */
  int n_shared; /* what the entries compute of a displacement that does not differ from block to block */
  const expr **shared;
  int n_leaves; /* numbers that the driver gathers for a head */
  const expr **leaf;
  int *leaf_index; /* by expr id; -1: none */
  unsigned indexed; /* operands that are read by index */
  bool per_head;
  bool by_tiles; /* a dear bias off the grid: computed for a tile of keys, by one code that all number types share */
  bool by_rows; /* on the grid: pair functions are tabulated along its last axis */
  int operations; /* arithmetic nodes of a pair's bias and of a block's rotation */
} attention_plan;

/* Whether there is something of positions in it. */
bool attention_is_placed(const attention_plan *p);

attention_plan *attention_plan_build(arena *a, const spec *s);
void attention_plan_print(FILE *out, const attention_plan *p);

/* Tiles of a target. Queries are in the lanes: a score's row holds vectors * lanes of them. The accumulators,
 * rows * vectors and channels * vectors, fill the registers. */
typedef struct attention_shape {
  int lanes; /* float32 in a register */
  int vectors; /* registers of queries */
  int queries; /* vectors * lanes */
  int rows; /* keys whose scores are summed together */
  int channels; /* channels of the output that are summed together */
  int keys; /* of a tile, a multiple of rows */
  int heads; /* of a tile: some where their pairs are rotated alike, else 1 */
  int unroll; /* channels of a score, and keys of the output, in one turn of the innermost loops */
} attention_shape;

/* Tables of pair functions on the grid. A run is a row of the grid, or one of the equal segments of a row that is
 * longer than a tile of keys. */
typedef struct grid_shape {
  int64_t width; /* of the grid's last axis */
  int segments; /* of a row */
  int segment; /* keys of a run; the last segment of a row may have fewer */
  int runs; /* of a tile of keys */
  bool is_shared; /* the tile's registers are neighbours in one row, and share tables */
  int groups; /* tables of a run: 1, or one for each register */
  int vectors; /* registers of a table */
  int blocks; /* whose tables stand at the same time: as many as fit the nearest cache beside queries, keys and scores
               */
  int keys; /* whose scores are summed together over those blocks */
} grid_shape;

attention_shape attention_shape_of(const attention_plan *p, const cpu_target *target);

#endif
