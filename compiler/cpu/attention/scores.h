/* cpu/attention/scores: q k^T of a tile of keys, rows of keys by registers of queries, with what pairs add and masks.
 */
#pragma once

#include "cpu/attention/columns.h"
#include "cpu/attention/pairwise.h"

typedef struct score_emitter {
  const attention_emitter *e;
  const pair_emitter *pairs;     /* of a plan with a bias, a score or a matrix */
  const column_emitter *columns; /* of one with columns */
  ir_value products; /* of a score: where products are kept, [key][queries]; null: nowhere */
  bool alone;        /* products are all that is wanted: no columns, no biases, no maxima */
} score_emitter;

/* The next run [result, *end) of channels from `from` on that no rotation changes; empty behind the last one. */
int attention_plain_run(const attention_plan *p, int from, int *end);
/* Begins what scores are made of beside products: columns and pairs, where the plan has any. */
void emit_scores_begin(const attention_emitter *e, column_emitter *columns, pair_emitter *pairs);
/* The tile's scores, and their maxima with those so far: [register]. A rotated tile has the scores of channels that no
 * rotation turns, and no maxima yet. A tile with a score of its own has its products, and no maxima either. */
void emit_scores(const score_emitter *s, const key_tile *t, ir_value *maxima);
/* The maxima when rotations have been added, with biases, scores and masks. */
void emit_final_maxima(const score_emitter *s, const key_tile *t, ir_value *maxima);
