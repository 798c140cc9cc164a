/* cpu/attention/seen: which keys a tile of queries goes through where a bias may hide some: those of blocks that are
 * not proved unseen (plan/mask). */
#ifndef PEGEN_CPU_ATTENTION_SEEN_H
#define PEGEN_CPU_ATTENTION_SEEN_H

#include "cpu/attention/pairwise.h"

/* Keys [begin, end); those of [whole_begin, whole_end) are seen by all queries but for `causal` (null: none are). */
typedef void emit_seen_visitor(void *context, ir_value begin, ir_value end, ir_value whole_begin, ir_value whole_end);

/* Of a plan with a mask: the states of the tile's blocks among keys [begin, end), and then each run of them. Runs are
 * of whole tiles where the plan goes by rows. */
void emit_seen_keys(const pair_emitter *pairs, ir_value begin, ir_value end, emit_seen_visitor *visit, void *context);
/* Whether tiles are told apart that are seen whole: their bias is mask->open. */
bool attention_opens(const attention_plan *p);
/* The states of all blocks, for the leaves of the tile: of those that were unseen and are so again, unseen. */
void emit_unseen_blocks(attention_emitter *e);
/* i1: keys [first, end) of the tile are seen by all of its queries, for all that the bias and `causal` say. */
ir_value emit_is_whole(const attention_emitter *e, const key_tile *t, ir_value first, ir_value end);

#endif
