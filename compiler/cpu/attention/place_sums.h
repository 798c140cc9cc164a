/* cpu/attention/place_sums: what coordinates of queries and keys gain of a tile of queries. A displacement is the key's
 * coordinate less the query's. */
#ifndef PEGEN_CPU_ATTENTION_PLACE_SUMS_H
#define PEGEN_CPU_ATTENTION_PLACE_SUMS_H

#include "cpu/attention/pairwise.h"

typedef struct place_sums {
  const pair_emitter *pairs;
  ir_value is_wanted; /* i1 */
  ir_value queries; /* float64 [axis][queries], of the tile */
  ir_value keys; /* float32 [axis][key][lanes], of a tile of keys */
} place_sums;

/* Once, at the head of the function; of pairs off the grid. */
place_sums emit_place_sums_begin(const pair_emitter *pairs);
/* Around a tile of keys. */
void emit_place_sums_open(const place_sums *s);
void emit_place_sums_close(const place_sums *s, const key_tile *t);
/* What an axis of the displacement of key `key` (of the tile) and register `vector` (i64) gains: lanes. */
void emit_place_gain(const place_sums *s, int axis, ir_value key, ir_value vector, ir_value gain);
/* What displacements gain of a tile's biases, whose scores gain [key][queries]. */
void emit_bias_place_gains(const place_sums *s, const key_tile *t, ir_value gains);
/* Behind all tiles of keys. */
void emit_place_sums_end(const place_sums *s);

#endif
