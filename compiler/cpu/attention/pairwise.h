/* cpu/attention/pairwise: what a pair adds, pair by pair or, on the built-in grid, from tables. */
#pragma once

#include "cpu/attention/pair_places.h"

/* bias_T(tile, places of keys, places of queries, keys, biases) of a plan by_tiles: one code for all number types, in
 * a loop, since an elementary function is long. */
void emit_pair_biases(ir *b, arena *a, const attention_plan *p, const cpu_target *target);

/* Values that do not differ from pair to pair; once, at the head of the function. places: rooms of keys' coordinates
 * that columns have already; NULL: there are none. */
pair_emitter emit_pairs_begin(const attention_emitter *e, const key_places *places);
/* Before the scores of a tile of keys: the coordinates of its keys, or their tables. */
void emit_pairs_keys(const pair_emitter *pairs, const key_tile *t);
/* A plan by_tiles does this in two steps: coordinates of the keys, and from these the biases. */
void emit_pairs_places(const pair_emitter *pairs, const key_tile *t);
void emit_pairs_biases(const pair_emitter *pairs, const key_tile *t);
/* Biases of a plan by_tiles where some batches have the same pairs: the first computes them. Returns pairs whose
 * biases are where they are kept. is_placed: i1: coordinates of keys are asked for of other batches, too. */
pair_emitter emit_kept_pairs(const pair_emitter *pairs, const key_tile *t, ir_value is_placed);
/* bias of key `key` (counted from the tile's first) with the queries of register `vector`. */
ir_value emit_pair_bias(const pair_emitter *pairs, ir_value key, int vector);
/* What the description makes of their product: a bias added, or the score. open: all pairs of the tile are seen
 * (mask->open). checked: some may be hidden, whatever their products are. */
ir_value emit_pair_score(const pair_emitter *pairs, ir_value key, int vector, ir_value product, bool open,
                         bool checked);
/* The score of a product at given displacements. */
ir_value emit_score_at(const attention_emitter *e, two_float *fixed, ir_value *narrow, ir_value product, bool checked);
/* Gains of a tile's scores become gains of its products, [key][queries]; pairs->products are these. */
void emit_product_gains(const pair_emitter *pairs, const key_tile *t, ir_value gains);
/* What the pairs of a tile of keys gain, [key][queries], with their displacements, a register at a time.
 * by_displacement: pairs of the same displacement may be summed first. room: of emit_grid_sums_room, where the plan
 * goes by rows. */
void emit_pair_gains(const pair_emitter *pairs, const key_tile *t, ir_value gains, bool by_displacement, ir_value room,
                     emit_displacement_visitor *visit, void *context);
/* Off the grid: the entries of block `block` (i64), of its pairs; once a block, and then those at displacements wide
 * [axis], or of key `key` (counted from the tile's first) with the queries of register `vector`: wide is then room for
 * them. *d stands at them in the end. */
delta_emitter emit_pair_entries_begin(const attention_emitter *e, ir_value block);
void emit_pair_entries_at(delta_emitter *d, const ir_value *wide, ir_value *entry);
void emit_pair_entries(const pair_emitter *pairs, delta_emitter *d, ir_value key, int vector, ir_value *wide,
                       ir_value *entry);
/* Adds the rotated part of the scores of a tile. */
void emit_pair_rotations(const pair_emitter *pairs, const key_tile *t);
