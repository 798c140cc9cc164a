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
/* A walk over pairs with all displacements of a tile: of a run's own pairs, or else of the tile's. */
typedef struct displaced_pairs {
  pair_emitter pairs; /* whose places they have */
  ir_value count;     /* of keys */
  ir_value numbers;   /* [key][queries]: of the run's pairs, or those given for the tile's */
  ir_value is_run;    /* i1; NULL: no tile is one */
} displaced_pairs;
displaced_pairs emit_displaced(const pair_emitter *pairs, const key_tile *t, ir_value numbers);
/* Numbers that the walk stored become those of all pairs. */
void emit_displaced_end(const displaced_pairs *d, const key_tile *t, ir_value numbers);
/* Before a walk: what the tile's pairs gain is summed for the run's. */
void emit_displaced_sums(const displaced_pairs *d, const key_tile *t, ir_value gains);
