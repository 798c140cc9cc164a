/* emit_apply: rows of q and k times the matrices of their blocks.
 *
 * A matrix lies in memory column by column, so a row's block is the sum of its columns times the block's
 * channels, each spread over the lanes. Columns that fit in registers stay there over all rows (all batches, of
 * q and k); larger matrices are walked once for a few rows at a time.
 */
#ifndef PEGEN_EMIT_APPLY_H
#define PEGEN_EMIT_APPLY_H

#include "arena.h"
#include "ir.h"
#include "spec.h"
#include "target.h"

/* How a target walks matrices of a size, for --emit expr. */
typedef struct apply_shape {
  int n_pieces;
  int start[64], width[64]; /* a column cut into vectors: whole ones, then halves of halves */
  bool resident;            /* columns stay in registers */
  int together;             /* blocks whose columns do at once */
  int rows, vectors;        /* of one walk, where they do not */
} apply_shape;

apply_shape apply_shape_of(const cpu_target *target, int size);

/* Emits NAME(const pegen_apply *). per_head: matrices differ from head to head. */
void emit_apply(ir *b, arena *a, const spec *s, const cpu_target *target, int dtype, bool per_head, const char *name);

#endif
