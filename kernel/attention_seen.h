/* attention_seen.h: where keys and queries are, by blocks, so that tiles of pairs that a bias hides are not computed.
 */
#pragma once

#include "attention.h"
#include "driver.h"

/* Most blocks of a call, whose room is on the stack: more keys have larger ones. Coordinates are read some at a time.
 */
enum { PEGEN_ATTENTION_BLOCKS = 512, PEGEN_ATTENTION_BLOCK_PITCH = 16, PEGEN_ATTENTION_PIECE = 16 };

/* Blocks of `keys` keys behind the prefix, multiples of `block` each; room is the caller's. */
PEGEN_INTERNAL void pegen_attention_set_blocks(pegen_attention_seen *seen, int64_t keys, int64_t block);
/* Writes rows as pegen_attention_rows does, of positions and of those numbers that `wanted` has bits of. Rows of other
 * numbers stay as they are. */
PEGEN_INTERNAL void pegen_attention_rows_of(const pegen_attention_places *places, int64_t wanted, int64_t first,
                                            int64_t count, int64_t stride, double *out);
/* Where the keys of a batch are. */
PEGEN_INTERNAL void pegen_attention_bound_keys(pegen_attention_seen *seen, const pegen_attention_places *places,
                                               int64_t wanted, int64_t keys);
/* Rewrites the bounds of keys to another origin, from the bounds of their positions in seen->wide. */
PEGEN_INTERNAL void pegen_attention_shift_keys(pegen_attention_seen *seen, const pegen_attention_places *places);
/* Where `count` queries are, by axis. */
PEGEN_INTERNAL void pegen_attention_bound_queries(const double (*positions)[PEGEN_ATTENTION_QUERIES], int64_t axes,
                                                  int64_t count, float (*reach)[2]);
