/* cpu/attention/seen: which keys a tile of queries goes through where a bias may hide some: those of blocks that are
 * not proved unseen (plan/mask). */
#pragma once

#include "cpu/attention/pairwise.h"

/* Visits keys [begin, end) tile by tile, paired: with bias and rotation. Where the plan has a mask those of blocks
 * alone that some query may see, in runs of which a tile knows its own. Where it goes by rows tiles are whole runs of
 * the grid. */
void emit_key_tiles(const pair_emitter *pairs, ir_value begin, ir_value end, bool paired, emit_key_tile_function *visit,
                    void *context);
/* The states of all blocks, for the leaves of the tile: of those that were unseen and are so again, unseen. */
void emit_unseen_blocks(attention_emitter *e);
/* i1: keys [first, end) of the tile are seen by all of its queries, for all that the bias and `causal` say. */
ir_value emit_is_whole(const attention_emitter *e, const key_tile *t, ir_value first, ir_value end);

/* ---- at the edges of what a tile sees, keys that only one of its two registers of queries sees ---- */

/* Whether it is asked: where registers are wide, of biases whose tiles are told apart that are seen whole. */
bool attention_has_lone(const attention_plan *p, const attention_shape *s);
/* i64, of `rows` keys of a tile, from `key` on: LONE_BOTH, or the register that may see some (any, where none does). */
enum { LONE_BOTH, LONE_FIRST, LONE_SECOND };
ir_value emit_lone(const attention_emitter *e, const pair_emitter *pairs, const key_tile *t, ir_value key, int rows);
/* i64, what emit_lone said of the group of keys at `group`, which t->lone remembers. */
void emit_keep_lone(const attention_emitter *e, const key_tile *t, ir_value group, ir_value lone);
/* sums [rows][2] of the products of a group of whole rows: 0 of the register that sees none. */
void emit_lone_products(const attention_emitter *e, const ir_value *rows, ir_value lone, ir_value *sums);
/* i1: the second register is the one. */
ir_value emit_is_second(const attention_emitter *e, ir_value lone);

/* Keys of a tile that one register sees: [0, begin) and [end, count). */
typedef struct lone_edges {
  ir_value begin, end; /* i64 */
  ir_value first, last; /* what emit_lone said of them */
} lone_edges;

lone_edges emit_lone_edges(const attention_emitter *e, const key_tile *t);
