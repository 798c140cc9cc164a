/* cpu/attention/seen: which keys a tile of queries goes through where a bias may hide some: those of blocks that are
 * not proved unseen (plan/mask). */
#ifndef PEGEN_CPU_ATTENTION_SEEN_H
#define PEGEN_CPU_ATTENTION_SEEN_H

#include "cpu/attention/pairwise.h"

/* Visits keys [begin, end) tile by tile, paired: with bias and rotation. Where the plan has a mask those of blocks
 * alone that some query may see, in runs of which a tile knows its own. Where it goes by rows tiles are whole runs of
 * the grid. */
void emit_key_tiles(const pair_emitter *pairs, ir_value begin, ir_value end, bool paired, emit_key_tile_function *visit,
                    void *context);
/* Whether tiles are told apart that are seen whole: their bias is mask->open. */
bool attention_opens(const attention_plan *p);
/* The states of all blocks, for the leaves of the tile: of those that were unseen and are so again, unseen. */
void emit_unseen_blocks(attention_emitter *e);
/* i1: keys [first, end) of the tile are seen by all of its queries, for all that the bias and `causal` say. */
ir_value emit_is_whole(const attention_emitter *e, const key_tile *t, ir_value first, ir_value end);

#endif
