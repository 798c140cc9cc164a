/* cpu/attention/blocks: a block of channels that a pair's displacement turns. */
#pragma once

#include "cpu/attention/tile.h"

/* The table of a target's channels; once, before its functions. */
void emit_block_channels(ir *b, arena *a, const attention_plan *p, const cpu_target *target);

/* The channels of a block's components, i64. */
void emit_block_channel(const attention_emitter *e, ir_value index, ir_value *channel);
/* A block's channels, and the queries' components there: [register][component]. */
typedef struct block_rows {
  ir_value channel[SPEC_MAX_BLADES], q[ATTENTION_MAX_VECTORS][SPEC_MAX_BLADES];
} block_rows;
void emit_block_rows(const attention_emitter *e, ir_value index, block_rows *block);
/* A key's components in the block, spread over the lanes; in n channels. */
void emit_key_components(const attention_emitter *e, ir_value row, const block_rows *block, ir_value *k);
void emit_components(const attention_emitter *e, ir_value row, const ir_value *channel, int n, ir_value *k);
/* score + q . (R k); entry: lanes of the plan's distinct entries. */
ir_value emit_turned_score(const attention_emitter *e, const ir_value *entry, const ir_value *q, const ir_value *k,
                           ir_value score);
/* R x, or back: R^T x. */
void emit_turned_components(const attention_emitter *e, const ir_value *entry, const ir_value *x, bool back,
                            ir_value *turned);
