/* cpu/attention/queries: queries and outputs, turned so that queries are in the lanes. */
#pragma once

#include "cpu/attention/rows.h"

/* The tile's scale in all lanes, and what queries are multiplied by; null: scores are scaled instead, since pairs are
 * not numbers. */
ir_value attention_scale(const attention_emitter *e);
ir_value attention_query_factor(const attention_emitter *e);
/* The caller's own factor of scores, in all lanes. */
ir_value attention_natural_scale(const attention_emitter *e);
/* Rows of the tile's queries, scaled (but for dot products); 0 in empty lanes. */
void emit_attention_queries(const attention_emitter *e, const attention_rows *r);
/* Scales the queries of register `vector` (i64), whose rows come as float32 [lanes][head_dim]. */
void emit_attention_columns(const attention_emitter *e, ir_value vector, ir_value rows);
/* output / sums as rows of the tensor; 0 where a query saw nothing. */
void emit_attention_output(const attention_emitter *e, const attention_rows *r, ir_value output, ir_value sums);

/* What the online softmax knows of a query at its end, as one number:
 *
 *     lse = ln 2 (maximum + what the columns of a polynomial left out) + ln sum
 *
 * in float64, rounded once: beside a maximum of some hundreds the logarithm has no digits to lose.
 * constant: what the columns of a polynomial left out; null: nothing. */
ir_value attention_lse(const attention_emitter *e, ir_value maximum, ir_value constant, ir_value sum);
/* Writes the lse of all the tile's queries, where it has room for them; the maxima are lost. */
void emit_attention_lse(const attention_emitter *e, ir_value maxima, ir_value sums);

/* The token of lane `lane` of register `vector`, both i64; -1: the lane is empty. */
ir_value attention_lane_token(const attention_emitter *e, ir_value vector, ir_value lane);

/* `squares` times as many numbers as a register has lanes, of as many rows `row` bytes apart: row i becomes lane i of
 * columns of [number][queries]; and the other way round. All but addresses: i64. */
void emit_numbers_to_lanes(const attention_emitter *e, ir_value from, ir_value row, ir_value to, ir_value squares);
void emit_lanes_to_numbers(const attention_emitter *e, ir_value from, ir_value to, ir_value row, ir_value squares);

/* Rows of the tile's queries on their way into lanes. */
typedef struct turned_rows {
  row_view rows;    /* of token 0 */
  ir_value read;    /* a number type's function, as attention_rows has them */
  int width, pitch; /* channels of a row, and float32 from row to row of the room */
  ir_value room;    /* of a register's rows as float32 */
  bool keeps;       /* it is room for all of them, and they stay there */
  ir_value columns; /* [width][queries] */
  bool by_lane;     /* row i is of lane i, not of its token */
} turned_rows;

/* Columns = rows times a factor (lanes that are all the same; null: 1); 0 in empty lanes. */
void emit_turned_rows(const attention_emitter *e, const turned_rows *t, ir_value factor);

/* And on their way back. */
typedef struct turned_back {
  row_view rows;
  ir_value write;
  int width;
  ir_value room, columns;
} turned_back;

/* The factor of a register's lanes; vector: i64. */
typedef ir_value lane_factor(const attention_emitter *e, void *context, ir_value vector);
/* Rows = columns times factors. */
void emit_turned_back(const attention_emitter *e, const turned_back *t, lane_factor *factor, void *context);

/* ---- as many registers as a register has lanes, turned or summed ---- */

/* Emits turn_T and sum_lanes_T, once for each target, which emitters with calls_squares call. Dot products also need
 * turn_pairs_T, which turns without a factor. */
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
