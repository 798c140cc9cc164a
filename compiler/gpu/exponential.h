/* gpu/exponential: exp(M) of skew matrices of more than 8 channels by the threads of a block.
 *
 * Matrices are padded to 16, 32 or 64 rows; n^2 / 32 threads, a group, have one, so that a block of 128 threads forms
 * 16, 4 or 1 of them together. A thread has 4 x 8 elements of a product in registers: rows 4 row ... 4 row + 3, and
 * columns from 4 column and from 4 column + n / 2 on. Two matrices of a group lie in shared memory, where the 16-byte
 * quads of a row change places with the row: then the quads that lanes side by side read or write, of one row or of a
 * column of tiles, are in different banks.
 *
 * The Taylor polynomial of degree 12 in M scaled to a norm of at most GROUP_REACH, five products by Paterson and
 * Stockmeyer's scheme, and as many squarings as the scale needs. No product needs a transposed read: M and M^3 are
 * skew, M^2 is symmetric, and what is squared is kept beside its transpose.
 */
#ifndef PEGEN_GPU_EXPONENTIAL_H
#define PEGEN_GPU_EXPONENTIAL_H

#include "mlir/ir.h"

/* 1.45^13 / 13! is 2^-25.5. */
#define GROUP_REACH 1.45

typedef struct matrix_group {
  ir *b;
  const char *name;        /* of the shared memory */
  int size, padded;
  int threads;             /* of a group */
  ir_value thread;         /* i32: of the block */
  ir_value group, lane;    /* i32: of the block; of the group */
  ir_value row, column;    /* i32: quads of the thread's tile, see above */
} matrix_group;

/* The group's matrices. */
enum { GROUP_LEFT, GROUP_RIGHT };

int group_padded(int size);
int group_threads(int size);

/* name: of the entry; declares its shared memory. thread: i32, of the block. */
matrix_group group_open(ir *b, const char *name, int size, ir_value thread);

/* The address of quad `quad` (i32) of row `row` (i32) of a matrix: four float32. */
ir_value group_quad(matrix_group *g, int matrix, ir_value row, ir_value quad);
/* The address of byte `at` (i32) of the group's right matrix, for other uses. */
ir_value group_bytes(matrix_group *g, ir_value at);

/* The thread's tile: element (i * 2 + side) * 4 + j of it is in row 4 row + i, column 4 group_side(side) + j. */
enum { GROUP_QUAD = 4, GROUP_SIDES = 2, GROUP_TILE = GROUP_QUAD * GROUP_SIDES * GROUP_QUAD };
ir_value group_side(matrix_group *g, int side);
void group_read(matrix_group *g, int matrix, ir_value *tile);
void group_write(matrix_group *g, int matrix, const ir_value *tile);
void group_write_transposed(matrix_group *g, int matrix, const ir_value *tile);
/* x, and `value` more where element i of the tile is on the diagonal. */
ir_value group_plus_diagonal(matrix_group *g, int i, ir_value x, ir_value value);

/* The left matrix is M, complete but for a barrier; then it is the transpose of exp(M), complete, and the right one is
 * free. An M that is not finite gives NaN everywhere. All threads of the block come here. */
void group_exponential(matrix_group *g);

#endif
