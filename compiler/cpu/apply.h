/* cpu/apply: rows of q and k times the matrices of their blocks.
 *
 * A matrix lies in memory column by column, so a row's block is the sum of its columns times the block's
 * channels, each spread over the lanes. Where heads share a matrix, columns that fit in registers stay there over a
 * token's heads; larger matrices, and those of one head, are walked once for several rows, of q and k in some batches.
 */
#pragma once

#include "base/arena.h"
#include "mlir/ir.h"
#include "program/program.h"
#include "target/processor.h"

/* How a matrix lies in memory, float32:
 *     columns    [block][k][i], entry (i, k)
 *     diagonals  [block][k][i], entry (i, i ^ k), for sizes that are powers of two: a row times diagonals takes
 *                exchanges of lanes in registers where columns take a load for every channel. The k-th ones of two
 *                blocks are neighbours, [pair][k][2][i],
 *                but for the last of an odd number of blocks. */
typedef enum matrix_layout {
  MATRIX_COLUMNS,
  MATRIX_DIAGONALS,
  MATRIX_EXPONENT, /* columns, of 2 M / rho: rows are to be multiplied with exp(M), see cpu/exponential_action */
} matrix_layout;

/* Rows of a program's op `apply`, and how they are walked. */
typedef struct apply_request {
  program_blocks blocks;
  int channels;  /* of a row */
  bool per_head; /* matrices differ from head to head */
  matrix_layout layout;
  int dtype;
  bool streaming; /* stores go past the caches */
  double factor;  /* of MATRIX_EXPONENT: of the rows */
} apply_request;

/* Whether every pair of blocks of 8 float32 channels is a line of its row, as streaming stores want it. */
bool emit_apply_in_lines(const program_blocks *blocks, int channels);

/* Emits NAME(const pegen_apply *). */
void emit_apply(ir *b, arena *a, const apply_request *request, const cpu_target *target, const char *name);
