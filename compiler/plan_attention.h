/* plan_attention: how attention is computed: what is a constant of the kernel, and the shape of its tiles.
 *
 *     out_i = sum_j p_ij v_j / sum_j p_ij,   p_ij = 2^(s_ij - max_j s_ij),
 *     s_ij = log2(e) (scale q_i . k_j + bias(r_j - r_i))
 *
 * over tiles of keys with a running maximum (Milakov and Gimelshein's online softmax), so that scores
 * are never stored beyond a tile.
 */
#ifndef PEGEN_PLAN_ATTENTION_H
#define PEGEN_PLAN_ATTENTION_H

#include "spec.h"
#include "target.h"

#include <stdio.h>

typedef struct attention_plan {
  const spec *spec;
  int head_dim, value_dim;
  const expr *bias;      /* of the displacement, in powers of two, float32; NULL: none */
  const expr **matrix;   /* [n_components][n_components] of a block, of the displacement, float32; NULL: no rotation */
  int n_leaves;          /* numbers that the driver gathers for a head */
  const expr **leaf;
  int *leaf_index;       /* by expr id; -1: none */
  unsigned indexed;      /* operands that are read by index */
  bool per_head;
  bool by_rows;          /* on the grid: pair functions are tabulated along its last axis */
  int operations;        /* arithmetic nodes of a pair's bias and of a block's rotation */
} attention_plan;

attention_plan *attention_plan_build(arena *a, const spec *s);
void attention_plan_print(FILE *out, const attention_plan *p);

/* Tiles of a target. Queries are in the lanes: a score's row holds vectors * lanes of them. The accumulators,
 * rows * vectors and channels * vectors, fill the registers. */
typedef struct attention_shape {
  int lanes;    /* float32 in a register */
  int vectors;  /* registers of queries */
  int queries;  /* vectors * lanes */
  int rows;     /* keys whose scores are summed together */
  int channels; /* channels of the output that are summed together */
  int keys;     /* of a tile, a multiple of rows */
} attention_shape;

attention_shape attention_shape_of(const attention_plan *p, const cpu_target *target);

#endif
