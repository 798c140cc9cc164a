/* gpu/exponential: exp(M) of skew matrices of more than 8 channels by the threads of a block.
 *
 * Matrices are padded to 16, 32 or 64 rows; n^2 / 32 threads, a team, have one, so that a block of 128 threads forms
 * 16, 4 or 1 of them together. A thread has 4 x 8 elements of a product in registers: rows 4 row ... 4 row + 3, and
 * columns from 4 column and from 4 column + n / 2 on. Two matrices of a team lie in shared memory, where the 16-byte
 * quads of a row change places with the row: then the quads that lanes side by side read or write, of one row or of a
 * column of tiles, are in different banks.
 *
 * The Taylor polynomial of degree 12 in M scaled to a norm of at most TEAM_REACH, five products by Paterson and
 * Stockmeyer's scheme, and as many squarings as the scale needs. No product needs a transposed read: M and M^3 are
 * skew, M^2 is symmetric, and what is squared is kept beside its transpose.
 */
#pragma once

#include "mlir/ir.h"

/* 1.45^13 / 13! is 2^-25.5. */
#define TEAM_REACH 1.45

typedef struct matrix_team {
  ir *b;
  const char *name;        /* of the shared memory */
  int size, padded;
  int threads;             /* of a team */
  ir_value thread;         /* i32: of the block */
  ir_value index, lane;    /* i32: of the block; of the team */
  ir_value row, column;    /* i32: quads of the thread's tile, see above */
} matrix_team;

/* The team's matrices. */
enum { TEAM_LEFT, TEAM_RIGHT };

int team_padded(int size);
int team_threads(int size);

/* name: of the entry; declares its shared memory. thread: i32, of the block. */
matrix_team team_open(ir *b, const char *name, int size, ir_value thread);

/* The address of quad `quad` (i32) of row `row` (i32) of a matrix: four float32. */
ir_value team_quad(matrix_team *g, int matrix, ir_value row, ir_value quad);
/* The address of byte `at` (i32) of the team's right matrix, for other uses. */
ir_value team_bytes(matrix_team *g, ir_value at);

/* The thread's tile: element (i * 2 + side) * 4 + j of it is in row 4 row + i, column 4 team_side(side) + j. */
enum { TEAM_QUAD = 4, TEAM_SIDES = 2, TEAM_TILE = TEAM_QUAD * TEAM_SIDES * TEAM_QUAD };
ir_value team_side(matrix_team *g, int side);
void team_read(matrix_team *g, int matrix, ir_value *tile);
void team_write(matrix_team *g, int matrix, const ir_value *tile);
void team_write_transposed(matrix_team *g, int matrix, const ir_value *tile);
/* x, and `value` more where element i of the tile is on the diagonal. */
ir_value team_plus_diagonal(matrix_team *g, int i, ir_value x, ir_value value);

/* The thread's tile of the transpose of `left` times `right`, both complete. */
void team_product(matrix_team *g, int left, int right, ir_value *tile);
/* The sum over the team's threads. Barriers before others' numbers are read and after. */
ir_value team_sum(matrix_team *g, ir_value own);

/* Half of an exponential. The left matrix is M, complete but for a barrier; then the right one is D = exp(M / 2^count)
 * - 1, complete, the left one free, and m the tile of M / 2^count. Returns count (i32). */
ir_value team_exponential_begin(matrix_team *g, ir_value *m);
/* The other half: D is squared count times; the left matrix is then the transpose of exp(M), complete, and the right
 * one free. before: called ahead of each squaring, the left matrix being D^T and the right one D, complete, as it must
 * leave them, more (i1) whether the team's is squared once more; NULL: nothing. All threads of the block come here. */
typedef void team_step(void *context, ir_value more);
void team_exponential_end(matrix_team *g, ir_value count, team_step *before, void *context);

/* The left matrix is M, complete but for a barrier; then it is the transpose of exp(M), complete, and the right one is
 * free. An M that is not finite gives NaN everywhere. All threads of the block come here. */
void team_exponential(matrix_team *g);
