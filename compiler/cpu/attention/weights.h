/* cpu/attention/weights: the softmax's weights P = 2^(S - lse), from the log-sum-exp that forward wrote. Gradients and
 * tangents begin with them, and go through the same keys. */
#pragma once

#include "cpu/attention/scores.h"

/* Writes a number of each query, `empty` in empty lanes, to room [queries]; pointer: of token 0. */
void emit_query_numbers(const attention_emitter *e, ir_value pointer, ir_value token_bytes, double empty,
                        ir_value room);
/* Writes lse in powers of two, as scores are, to room [queries]. A query that saw nothing, and an empty lane, have an
 * infinite one, so that their weights are 0. */
void emit_score_lse(const attention_emitter *e, ir_value room);
/* Writes P of a tile of keys to t->scores. A pair that is not seen has P = 0, whatever its score is. */
void emit_tile_weights(const score_emitter *s, ir_value lse, const key_tile *t);
/* Visits keys [begin, end): those that have neither bias nor rotation, and then those of the others that may be seen.
 */
void emit_keys_between(const pair_emitter *pairs, ir_value begin, ir_value end, emit_key_tile_function *visit,
                       void *context);
