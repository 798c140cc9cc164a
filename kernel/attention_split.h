/* attention_split.h: keys in chunks, each an item's part; see attention_split.c. */
#ifndef PEGEN_KERNEL_ATTENTION_SPLIT_H
#define PEGEN_KERNEL_ATTENTION_SPLIT_H

#include "attention_walk.h"

/* Bytes of a call's workspace that has begun; 0: its keys are not split; -1: too many. */
PEGEN_INTERNAL int64_t pegen_attention_split_bytes(const pegen_attention_walk *w, int target);
/* Chunks of items of a call that is split, and [begin, end) of them; behind the barrier what those of items
 * [begin, end) add up to. */
PEGEN_INTERNAL int64_t pegen_attention_split_items(pegen_attention_walk *w, int target);
PEGEN_INTERNAL void pegen_attention_split_run(pegen_attention_walk *w, int target, int64_t begin, int64_t end);
PEGEN_INTERNAL void pegen_attention_split_finish(pegen_attention_walk *w, int target, int64_t begin, int64_t end);

#endif
