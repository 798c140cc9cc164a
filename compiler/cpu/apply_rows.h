/* cpu/apply_rows: rows times the matrices of the blocks at hand, as cpu/apply.c walks them. */
#pragma once

#include "cpu/apply.h"

/* Rows of one head, of q and k in some batches, that are multiplied together. Batches often lie a multiple of 4096
 * bytes apart, so that their lines share a set of the first cache: eight are as many as stay there. */
enum { APPLY_LISTED = 8 };

enum { APPLY_VECTORS = 4 }; /* of a column that are walked at once, at most */

/* How a target walks matrices of a size. */
typedef struct apply_shape {
  matrix_layout layout;
  int n_pieces;
  int start[64], width[64]; /* a column cut into vectors: whole ones, then halves of halves */
  bool resident;            /* a matrix stays in registers */
  int together;             /* blocks whose matrices do at once */
} apply_shape;

apply_shape apply_shape_of(const cpu_target *target, int size, matrix_layout layout);

typedef struct applier {
  ir *b;
  const apply_request *of;
  const cpu_target *target;
  apply_shape shape;
  int dtype, size, channel_bytes;
  bool contiguous;                   /* a block's channels are neighbours in order, and so are blocks */
  ir_value work;                     /* const pegen_apply * */
  ir_value x_scratch, y_scratch;     /* float32 [APPLY_LISTED][2][size], [lanes] */
  ir_value action_scratch;           /* float32 [3][APPLY_LISTED][size], for MATRIX_EXPONENT */
  ir_value list;                     /* of rows that one head's matrix turns */
  const char *channel_table;         /* the name of it */
  ir_value channels;                 /* int32 [n_blocks][size], where they are not contiguous */
  ir_value shift;                    /* i64: components that the pieces at hand lie further, in a loop over pieces */
  ir_value matrix, block;            /* of the block at hand, or the first of those that are taken together */
  ir_value held[64]; /* resident: [blocks together][size][pieces], or diagonals as they lie in memory */
} applier;

/* What is known before the function `name` begins, and, in it, memory that is worked on. */
applier emit_begin_applier(ir *b, arena *a, const apply_request *request, const cpu_target *target, const char *name);
void emit_open_applier(applier *e);

/* The channels of block `which` of a row into scratch row i, as float32, whose address it gives; and a piece of a
 * block's sums to where its channels are. */
ir_value emit_fetch(applier *e, int which, ir_value row, int i);
void emit_put(applier *e, int which, ir_value sum, ir_value row, int piece);

/* Vectors of a column that are walked at once for `rows` rows, each with a sum in a register. */
int apply_vectors_of(const cpu_target *target, const apply_shape *s, int rows);
/* Adds to sums[row][vector] the columns' vectors [first, first + count) times the float32 channels at x[row]. */
void emit_column_sums(applier *e, const ir_value *x, int rows, int first, int count, ir_value *sums);

/* Loads the matrices of `blocks` blocks where they stay in registers. */
void emit_hold(applier *e, int blocks);
/* in, out: addresses of the first of `blocks` blocks (of the row where channels are not contiguous). Every row is read
 * before any is written, as far as sums fit in registers: a store that lies a multiple of 4096 bytes from a load to
 * come, as other batches and k often do, holds that load up. */
void emit_rows_of_blocks(applier *e, const ir_value *in, const ir_value *out, int rows, int blocks);

/* Rows times exp(M) without exp(M) (cpu/exponential_action). The first coefficient is that of exp(M) x - x, which is
 * what is summed: x is added last, so that turns by little are rounded by less. The matrix at hand is 2 N, column by
 * column; coefficients and their number are the work's (kernel/dense.h). */
void emit_action_rows(applier *e, const ir_value *in, const ir_value *out, int rows);
