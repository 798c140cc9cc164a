/* cpu/attention/strips: parts of a score that are made of the query and one coordinate of the key, computed once for
 * each coordinate (plan/attention.h). */
#pragma once

#include "cpu/attention/pair_places.h"

/* Rooms, and values of all coordinates where the driver knows those of all keys (is_known); once, behind the queries'
 * places. */
void emit_strips_begin(pair_emitter *pairs);
/* Values of a tile's keys, where it does not; and which coordinates they have. */
void emit_strips_keys(const pair_emitter *pairs, const key_tile *t);
/* A register of values of each strip, behind the pair's places. key, vector: i64. */
void emit_strip_values(const pair_emitter *pairs, ir_value key, ir_value vector, ir_value *numbers);

/* Sums of what strips gain, float64, of each coordinate: 0 at first. */
void emit_strip_sums_begin(const pair_emitter *pairs);
void emit_strip_gain(const pair_emitter *pairs, int strip, ir_value key, ir_value vector, ir_value gain);
/* Calls for each coordinate's sum of a register of queries, d standing at its displacement, and clears it: of the tile
 * behind it, where coordinates are not known; else (t NULL) of all behind the last one. */
typedef void strip_visitor(void *context, delta_emitter *d, int strip, ir_value vector, ir_value sum);
void emit_strip_sums(const pair_emitter *pairs, const key_tile *t, strip_visitor *visit, void *context);
