/* cpu/attention/squares: as many registers as a register has lanes, turned or summed, by functions of the module where
 * there are many of them. */
#ifndef PEGEN_CPU_ATTENTION_SQUARES_H
#define PEGEN_CPU_ATTENTION_SQUARES_H

#include "cpu/attention/tile.h"

/* turn_T and sum_lanes_T, which emitters with calls_squares call; once for each target. Of dot products turn_pairs_T,
 * which turns without a factor. */
void emit_square_functions(const attention_emitter *e);

/* Where squares of float32 stand: the first one's first row, bytes from row to row and from square to square. */
typedef struct square_rows {
  ir_value at;
  int64_t row, next;
} square_rows;

/* `count` squares: lane j of row i of `from`, times the factor of lane j (a register; null: 1), becomes lane i of row j
 * of `to`, which may be `from` itself. */
void emit_turn(const attention_emitter *e, square_rows from, square_rows to, int64_t count, ir_value factor);
/* Lane i of `to` is the sum of the lanes of row i of a contiguous square, two at a time; `to` may be in the square.
 * By a call always. */
void emit_lane_sums(const attention_emitter *e, ir_value from, ir_value to);

#endif
