/* cpu/attention/columns: a bias that is a polynomial, as further channels of q and k. */
#pragma once

#include "cpu/attention/places.h"

typedef struct column_emitter {
  const attention_emitter *e;
  key_places places;
  ir_value queries, keys; /* [column][queries], [column][room of places] of a tile of keys */
} column_emitter;

/* weigh_T_INPUT(tile) for each number type of inputs, and prepare_T. */
void emit_weigh(ir *b, arena *a, const attention_plan *p, const cpu_target *target, unsigned dtypes);
/* The queries' columns; once, at the head of the function. */
column_emitter emit_columns_begin(const attention_emitter *e);
/* The columns of a tile of keys, before its scores. */
void emit_columns_keys(const column_emitter *columns, const key_tile *t);
/* A coordinate of a register of queries, from the tile's origin: float64 lanes. */
ir_value emit_query_coordinate(const attention_emitter *e, int axis, int vector);
/* A weight of theirs. */
ir_value emit_query_weight(const attention_emitter *e, int weight, int vector);
/* What the columns leave out of the scores of a register of queries, for it is the same of all keys: float32 lanes, in
 * the units of scores. Null: nothing. */
ir_value emit_columns_constant(const attention_emitter *e, int vector);
/* Adds to the scores [rows][vectors] of keys from `key` on. */
void emit_columns_products(const column_emitter *columns, ir_value key, ir_value *sums);
