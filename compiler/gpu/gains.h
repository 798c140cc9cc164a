/* gpu/gains: what gradients of operands and positions have in common, whoever sums torques: items, what was kept of
 * rows, sums of chunks, shares of positions and of inputs (kernel/launch.h, from PEGEN_PTX_KEPT_Q on). */
#ifndef PEGEN_GPU_GAINS_H
#define PEGEN_GPU_GAINS_H

#include "gpu/body.h"

typedef struct gpu_gains {
  gpu_body *body;
  const plan_gradient *of;
  const plan_gradient_row *row; /* of which `of` is number `part`; NULL: it is all */
  int part;
  const ir_value *own;    /* parameters, from PEGEN_PTX_KEPT_Q on */
  ir_value chunk, item;   /* i32 */
  ir_value stores;        /* i1: the thread stores what it gives; null: it does */
} gpu_gains;

/* A body whose entry makes gradients: what it gains, its rows, and those beside them that encode wrote or read. */
void gpu_open_gains(gpu_gains *g, gpu_body *t, const gpu_program *program, row_thread *kept);
/* Which token and which rows an item (i32) is. */
void gpu_set_item(gpu_gains *g, ir_value item);
/* i1: the gradient of a row (i32) goes out. */
ir_value gpu_is_written(gpu_body *t, ir_value row);

/* What torques give is made of these; their operands are to be loaded. Appends them; their number. */
int gpu_gain_roots(const gpu_gains *g, const expr **roots);
/* The thread's sums of its chunk: 0; and more by what a token's torques give (of all blocks of the thread). */
void gpu_clear_sums(gpu_gains *g);
void gpu_add_gains(gpu_gains *g);

#endif
