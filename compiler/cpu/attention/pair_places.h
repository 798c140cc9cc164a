/* cpu/attention/pair_places: what pairs of a tile are computed from: displacements, numbers of tokens and of pairs, and
 * where rows are that elements are read of. */
#pragma once

#include "cpu/attention/grid.h"
#include "cpu/attention/places.h"

/* Rooms of cpu/attention/strips. */
typedef struct strip_rooms {
  ir_value values, sums; /* [strip][row][queries], float32 and float64 */
  ir_value numbers; /* [strip][key] i64: rows of a tile's keys */
} strip_rooms;

/* Rooms of cpu/attention/runs; none where a plan has no runs. */
typedef struct run_rooms {
  ir_value of_queries; /* i1 */
  ir_value flag; /* in memory, i64: the tile's keys are one, too */
  ir_value queries, keys; /* float32: their coordinates */
  ir_value numbers; /* [key][queries], float32 */
  ir_value step; /* in memory, i64: 0 */
} run_rooms;

typedef struct pair_emitter {
  const attention_emitter *e;
  two_float *fixed; /* by expr id: values that are the same for all pairs of the call */
  grid_emitter grid; /* by_rows; else what follows */
  key_places places;
  /* What is taken off the coordinates of a tile's keys, [row][axis][queries], float32: row 0 has the queries' own.
   * Where the tile's coordinates are far from the origin key j takes row 1 + j, which has its displacements, negative,
   * and its own coordinates are 0. step (in memory, i64): bytes from a key's row to the next one's, or 0. */
  ir_value query_places, step;
  ir_value query_numbers; /* [number][queries], float32: of tokens, behind coordinates */
  ir_value numbers; /* numbers of pairs of a tile, [place][key][queries], and what they gain behind them */
  ir_value rows; /* of a register, [lane][key]: numbers of 16 bits as float32, and what numbers gain */
  strip_rooms strips;
  run_rooms run;
  ir_value is_far; /* i1: some query is, whatever the keys are */
  ir_value biases; /* by_tiles: those of a tile, [key][queries] */
  ir_value gains; /* of a tile's scores, while they become those of its products */
  ir_value products; /* of a score, where products are not at hand: those of a tile, [key][queries] */
} pair_emitter;

/* Lays what is read of the queries, and makes rooms for the rest; once. */
void emit_query_places(pair_emitter *pairs);
/* Lays what is read of a tile of keys, and of its pairs. */
void emit_tile_places(const pair_emitter *pairs, const key_tile *t);
/* Displacements of key `key` and the queries of register `vector`, both i64, float32 (delta_emitter.narrow), and their
 * products, where they stand in memory; and those of the origin, of what is read of queries alone. */
void emit_places_of_pair(const pair_emitter *pairs, ir_value key, ir_value vector, ir_value *narrow);
void emit_places_of_queries(const pair_emitter *pairs, ir_value vector, ir_value *narrow);
/* What numbers of pairs gain, of place `place`: where it is laid for a register of queries, and, when all of the tile's
 * keys are, added to where it belongs. */
void emit_lay_pair_gain(const pair_emitter *pairs, int place, ir_value key, ir_value vector, ir_value gain);
void emit_give_pair_gains(const pair_emitter *pairs, const key_tile *t, int place);
