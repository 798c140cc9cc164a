/* gpu/warp_exponential: exp(M) of skew matrices of up to 8 channels in two-float arithmetic, by the lanes of a warp.
 *
 * `size` lanes have a block, and lane i row i of its matrix; the other rows are in shared memory. M is scaled to a norm
 * below 1/2, a Taylor polynomial summed row by row, and the result squared. Lanes that are left over do what the first
 * of the last block do, with shared memory of their own.
 */
#pragma once

#include "gpu/thread.h"
#include "program/program.h"

enum { WARP_LANES = 32, WARP_MOST_SIZE = 8 };
/* The bound of M's norm as M is scaled, which is the largest of its rows' sums of magnitudes. */
#define WARP_REACH 0.5

typedef struct warp_exponential {
  ir *b;
  arena *memory;
  const char *name; /* of the entry: its shared memory, its tables */
  const program_op *matrix, *angles, *apply;
  const program_blocks *blocks;
  const expr **generator; /* [skew matrices]: a leaf with the offsets of the raw ones */
  int size, teams, slots; /* channels of a block; blocks at a time; times */
  int64_t more; /* bytes of shared memory of a warp's own, for other uses */
  thread_emitter *exprs;
  ir_value warp, lane; /* i32: of the thread block; of the warp */
  ir_value team, row;  /* i32: of the lane: its block among those at hand, its row */
} warp_exponential;

/* The exponential of a program that applies one. Its emitter is still to set what it brings, up to warp and lane. */
warp_exponential warp_exponential_of(arena *a, const program *p);
/* Declares shared memory of so many warps, and finds the lane's place. */
void warp_open(warp_exponential *e, int warps, ir_value thread);
int64_t warp_scratch_bytes(int size, int64_t more);

/* Byte `at` (i32) of the bytes of other uses. */
ir_value warp_more(warp_exponential *e, ir_value at);
/* The sum over the lanes of a block of a number of each. Barriers before and after. */
ir_value warp_sum(warp_exponential *e, ir_value own);
/* The lane's block in `slot`, the last one beyond it. */
ir_value warp_block(warp_exponential *e, ir_value slot);
/* The lane's row of generator `which`, as it is applied, times factor (hi null: as it is), in sum[size]; where `first`
 * is set it is not added to what is there. begin: i32, where the raw matrix begins. */
void warp_add_generator(warp_exponential *e, int which, ir_value begin, two_float factor, bool first, two_float *sum);

/* Matrices of the lane's block: M as it was scaled, and what becomes exp(M). */
enum { WARP_GENERATOR, WARP_POWER };
/* From lane to lane, bytes: an odd number of pairs, so that lanes side by side meet different banks. */
int warp_lane_bytes(int size);
/* The address of a lane's row: size numbers in two-float arithmetic. */
ir_value warp_row(warp_exponential *e, int matrix, ir_value lane);
two_float warp_entry(warp_exponential *e, ir_value row, int column);
/* Row k of the lane's block. */
ir_value warp_row_of_block(warp_exponential *e, int matrix, int k);

/* Half of an exponential, of the emitter's unit, whose operands are loaded: then the power is exp(M / 2^count),
 * complete but for a barrier; most: of all blocks of the warp. */
typedef struct warp_squarings {
  ir_value count, most; /* i32 */
} warp_squarings;
warp_squarings warp_exponential_begin(warp_exponential *e);
/* The other half: it is squared. before: called ahead of each squaring, the power complete, more (i1) whether the
 * block's is squared once more; NULL: nothing. */
typedef void warp_step(void *context, ir_value more);
void warp_exponential_end(warp_exponential *e, const warp_squarings *s, warp_step *before, void *context);
