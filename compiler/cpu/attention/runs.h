/* cpu/attention/runs: pair functions of tokens in order. Where coordinates of a tile's queries, and of its keys, count
 * up by one, pairs have fewer displacements than there are pairs, and each is computed once.
 *
 * A run of pairs is a tile of a few keys of its own, whose displacements from the tile's queries follow each other: key
 * r, query l and displacement D - (r queries + l), where D is the largest. Results are the same bits. */
#pragma once

#include "cpu/attention/pair_places.h"

/* Rooms, and whether the tile's queries are a run; once, behind their places. */
void emit_runs_begin(pair_emitter *pairs);
/* Whether the tile's keys are one, too: behind their places. */
void emit_run_of_keys(const pair_emitter *pairs, const key_tile *t);
/* i1: what emit_run_of_keys found. */
ir_value emit_is_run(const pair_emitter *pairs);
/* The run's own keys and queries, and how many its keys are; */
pair_emitter emit_run_places(const pair_emitter *pairs);
ir_value emit_run_count(const pair_emitter *pairs, const key_tile *t);
/* or the tile's, where it is no run. */
pair_emitter emit_displaced(const pair_emitter *pairs, const key_tile *t, ir_value *count);
/* From biases of the run's pairs, [key][queries], to those of the tile's; and from what the tile's pairs gain to sums
 * of the run's. */
void emit_run_to_pairs(const pair_emitter *pairs, const key_tile *t, ir_value of_run, ir_value of_pairs);
void emit_pairs_to_run(const pair_emitter *pairs, const key_tile *t, ir_value of_pairs, ir_value of_run);
