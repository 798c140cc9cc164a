/* cpu/attention/key_sums: what keys gain of a tile of queries, and queries of a tile of keys: channels in the lanes. */
#pragma once

#include "cpu/attention/tile.h"

/* Rows of the tile's queries, float32 [queries][pitch], or, of dot products, pairs of them, [queries / 2][pitch]; the
 * pitch is a multiple of a register. */
typedef struct query_rows {
  ir_value room;
  int pitch;
  ir_value nowhere; /* room of KEY_SUMS_NOWHERE bytes for what is not wanted */
} query_rows;

enum { KEY_SUMS_NOWHERE = 2 * CACHE_LINE };

/* Functions key_sums_T_PITCH for the rows of keys and of values, and query_sums_T_PITCH where a plan's queries gain so,
 * once a module: the tiles of all plans and shapes of the target call them, and stand behind them. */
void emit_key_sums_functions(const attention_emitter *e);
/* sums [key][pitch], from key 0 on, += weights [key][queries] of a tile of keys times the queries' rows. guarded (i1):
 * products of weights of 0 are left out. Weights of dot products are pairs of queries. */
void emit_key_sums(const attention_emitter *e, const key_tile *t, ir_value weights, const query_rows *rows,
                   ir_value sums, ir_value guarded);
/* sums [query][pitch] += weights [key][queries] of a tile of keys times the keys' rows, in order of the keys: for plans
 * whose pairs are not turned and whose rows of keys are as long as those of sums; others gain by emit_weighted_rows.
 * Weights and rows of dot products are pairs of keys. */
bool query_sums_by_channels(const attention_emitter *e);
void emit_query_sums(const attention_emitter *e, const key_tile *t, ir_value weights, const query_rows *sums,
                     ir_value guarded);
