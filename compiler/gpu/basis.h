/* gpu/basis: a team of threads that has a change of basis of the head, and the blocks that turn behind it; what
 * gpu/change_of_basis and gpu/basis_gradient have in common.
 */
#pragma once

#include "gpu/team.h"

typedef struct basis {
  const program_op *change, *turn; /* the matrices: of all channels, of blocks in closed form */
  const program_blocks *blocks;    /* that turn */
  bool is_transposed;              /* both are applied so */
  team_rows rows;
  int lanes;               /* of a block: rows are dealt out to them */
  ir_value lane;           /* i32: which of them the thread is */
  ir_value turns;          /* i1: the thread has a block, and the token is turned; null: always */
  ir_value coefficient[SPEC_MAX_BLADES * SPEC_MAX_BLADES]; /* null: 0 */
} basis;

/* The matrices of a program, whose rows are multiplied with two. */
basis basis_of(const program *p);
/* Which block the thread turns, and which of the rows. */
void basis_deal_out(basis *m);
/* The left matrix becomes the transpose of C as it is applied; complete. */
void basis_make_matrix(basis *m);
/* Computes the coefficients of the thread's block, as it is applied; operands and coordinates are loaded. */
void basis_make_coefficients(basis *m);
/* The thread's channel `component` of a row. */
ir_value basis_channel(basis *m, int component);
/* The block's numbers at addresses [size] in shared memory, by such coefficients. */
void basis_turn(basis *m, const ir_value *coefficient, const ir_value *at);
/* The body's rows in shared memory by one matrix after the other: ops of a row. The right matrix is free, here and
 * after a barrier. */
void basis_turn_rows(basis *m, const program_op *ops);
