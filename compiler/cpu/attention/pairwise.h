/* cpu/attention/pairwise: what a pair adds, pair by pair or, on the built-in grid, from tables. */
#pragma once

#include "cpu/attention/grid.h"
#include "cpu/attention/places.h"

typedef struct pair_emitter {
  const attention_emitter *e;
  two_float *fixed;      /* by expr id: values that are the same for all pairs of the call */
  grid_emitter grid;     /* by_rows; else what follows */
  key_places places;
  /* What is taken off the coordinates of a tile's keys, [row][axis][queries], float32: row 0 has the queries' own.
   * Where the tile's coordinates are far from the origin key j takes row 1 + j, which has its displacements, negative,
   * and its own coordinates are 0. step (in memory, i64): bytes from a key's row to the next one's, or 0. */
  ir_value query_places, step;
  ir_value query_numbers; /* [number][queries], float32: of tokens, behind coordinates */
  ir_value numbers;       /* numbers of pairs of a tile, [place][key][queries], and what they gain behind them */
  ir_value gained_rows;   /* the same of a register, [lane][key] */
  ir_value is_far;        /* i1: some query is, whatever the keys are */
  ir_value biases;       /* by_tiles: those of a tile, [key][queries] */
  ir_value gains;        /* of a tile's scores, while they become those of its products */
  ir_value products;     /* of a score, where products are not at hand: those of a tile, [key][queries] */
} pair_emitter;

/* bias_T(tile, places of keys, places of queries, keys, biases) of a plan by_tiles: one code for all number types, in
 * a loop, since an elementary function is long. */
void emit_pair_biases(ir *b, arena *a, const attention_plan *p, const cpu_target *target);

/* Values that do not differ from pair to pair; once, at the head of the function. places: rooms of keys' coordinates
 * that columns have already; NULL: there are none. */
pair_emitter emit_pairs_begin(const attention_emitter *e, const key_places *places);
/* Before the scores of a tile of keys: the coordinates of its keys, or their tables. */
void emit_pairs_keys(const pair_emitter *pairs, const key_tile *t);
/* The same in two steps, of a plan by_tiles: coordinates, and from these the biases. */
void emit_pairs_places(const pair_emitter *pairs, const key_tile *t);
void emit_pairs_biases(const pair_emitter *pairs, const key_tile *t);
/* bias of key `key` (counted from the tile's first) with the queries of register `vector`. */
ir_value emit_pair_bias(const pair_emitter *pairs, ir_value key, int vector);
/* What the description makes of their product: a bias added, or the score. open: all pairs of the tile are seen
 * (mask->open). checked: some may be hidden, whatever their products are. */
ir_value emit_pair_score(const pair_emitter *pairs, ir_value key, int vector, ir_value product, bool open,
                         bool checked);
/* What numbers of pairs gain, of place `place`: where it is laid for a register of queries, and, when all of the tile's
 * keys are, added to where it belongs. */
void emit_lay_pair_gain(const pair_emitter *pairs, int place, ir_value key, ir_value vector, ir_value gain);
void emit_give_pair_gains(const pair_emitter *pairs, const key_tile *t, int place);
/* The score of a product at given displacements. */
ir_value emit_score_at(const attention_emitter *e, two_float *fixed, ir_value *narrow, ir_value product, bool checked);
/* Gains of a tile's scores become gains of its products, [key][queries]; pairs->products are these. */
void emit_product_gains(const pair_emitter *pairs, const key_tile *t, ir_value gains);
/* What the pairs of a tile of keys gain, [key][queries], with their displacements, a register at a time; room: of
 * emit_grid_sums_room, where the plan goes by rows. */
void emit_pair_gains(const pair_emitter *pairs, const key_tile *t, ir_value gains, ir_value room,
                     emit_displacement_visitor *visit, void *context);
/* Off the grid: the entries of block `block` (i64), of its pairs; once a block, and then those of key `key` (counted
 * from the tile's first) with the queries of register `vector`. wide: room for their displacements, which *d then
 * stands at. */
delta_emitter emit_pair_entries_begin(const pair_emitter *pairs, ir_value block);
void emit_pair_entries(const pair_emitter *pairs, delta_emitter *d, ir_value key, int vector, ir_value *wide,
                       ir_value *entry);
/* Adds the rotated part of the scores of a tile. */
void emit_pair_rotations(const pair_emitter *pairs, const key_tile *t);
