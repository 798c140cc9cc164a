/* gpu/gains: what gradients of operands and positions have in common, whoever sums torques: items, what was kept of
 * rows, sums of chunks, shares of positions and of inputs (kernel/launch.h, from PEGEN_PTX_KEPT_Q on). */
#pragma once

#include "gpu/body.h"

typedef struct gpu_gains {
  gpu_body *body;
  const plan_gradient *of;
  const plan_gradient_row *row; /* of which `of` is number `part`; NULL: it is all */
  int part;
  const ir_value *own;    /* parameters, from PEGEN_PTX_KEPT_Q on */
  ir_value chunk, item;   /* i32 */
  ir_value stores;        /* i1: the thread stores what it gives; null: it does */
  ir_value from_input;    /* i1: what was kept of rows is what encode read; of gpu_open_gains */
} gpu_gains;

/* A body whose entry makes gradients: what it gains, its rows, and those beside them that encode wrote or read. */
void gpu_open_gains(gpu_gains *g, gpu_body *t, const gpu_program *program, row_thread *kept);
/* Items [begin, end) of a chunk (i32) of up to `size`, whether there is one; all i32, i1. */
typedef struct gpu_chunk {
  ir_value begin, end, size, exists;
} gpu_chunk;
gpu_chunk gpu_open_chunk(gpu_gains *g, ir_value chunk);
/* Which token and which rows an item (i32) is. */
void gpu_set_item(gpu_gains *g, ir_value item);
/* i1: the gradient of a row (i32) goes out. */
ir_value gpu_is_written(gpu_body *t, ir_value row);

/* What torques give is made of these; their operands are to be loaded. Appends them; their number. */
int gpu_gain_roots(const gpu_gains *g, const expr **roots);
/* The thread's sums of its chunk: 0; and more by what a token's torques give (of all blocks of the thread). */
void gpu_clear_sums(gpu_gains *g);
void gpu_add_gains(gpu_gains *g);

/* What generators of a matrix gain, as gpu_matrices has it: where the chunk's sums of generator k begin, of a block
 * (i32) and the head at hand; and a branch where they are wanted and the thread stores them (i1). */
ir_value gpu_matrix_sums(gpu_gains *g, const program_op *matrix, int k, ir_value block);
ir_branch gpu_if_matrices_wanted(gpu_gains *g, ir_value stores);
