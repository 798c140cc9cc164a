/* cpu/attention/pair_sums: what operands, coordinates and the weights of a polynomial bias gain of a tile of queries'
 * pairs, beside their rows. A displacement is the key's coordinate less the query's. */
#pragma once

#include "cpu/attention/columns.h"
#include "cpu/attention/pairwise.h"

/* Each sum is there where the plan has what gains it. */
typedef struct pair_sums {
  const pair_emitter *pairs;
  const column_emitter *columns;
  ir_value wants_operands, wants_places, wants_rows, wants_weights; /* i1 */
  ir_value operands;      /* float64 [scatters][lanes] */
  ir_value operand_table; /* of a plan by rows: emit_grid_sums_room */
  ir_value torques;       /* float64 [scatter][block][lanes], of operands that rotate */
  ir_value queries;       /* float64 [axis][queries]: coordinates of the tile's */
  ir_value keys;          /* float32 [axis][key][lanes]: coordinates of a tile of keys */
  ir_value weights; /* [monomials][queries] */
  int n_monomials; /* of the weights' shapes, one after the other */
  const monomial **monomial;
  ir_value scale; /* the caller's factor of scores, which biases have too: lanes */
} pair_sums;

/* Once, at the head of the function, behind that of pairs and columns. */
pair_sums emit_pair_sums_begin(const pair_emitter *pairs, const column_emitter *columns);
/* A tile of keys, whose scores gain [key][queries]; of a score these become what its products gain. Then what its
 * blocks give, and what is done behind them. */
void emit_pair_sums(const pair_sums *s, const key_tile *t, ir_value gains);
void emit_pair_sums_close(const pair_sums *s, const key_tile *t);
/* Pairs that are rotated, off the grid. Once a block, for its emitter of displacements; */
void emit_torque_sums_fixed(const pair_sums *s, delta_emitter *d);
/* and a block of key `key` with the queries of a register: g = S' q, y = R k, `counts` (lanes of i1) where S' is not 0;
 * d stands at their displacements. */
void emit_torque_sums(const pair_sums *s, delta_emitter *d, const ir_value *g, const ir_value *y, ir_value counts,
                      ir_value key, int vector);
/* Behind all tiles of keys. */
void emit_pair_sums_end(const pair_sums *s);
