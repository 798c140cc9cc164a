/* attention_items.h: what a call of attention is cut into; see attention_items.c. */
#pragma once

#include "attention_walk.h"

/* Items of a call that has begun. Where its keys go in chunks, an item has some, and behind the barrier `finish` adds
 * up each item's: they are counted and run by one pair of functions. */
typedef struct pegen_attention_work {
  int64_t bytes;         /* of the workspace; 0: keys are not split; -1: too many */
  int64_t items, chunks; /* chunks of all items, or the items */
} pegen_attention_work;

PEGEN_INTERNAL void pegen_attention_work_of(pegen_attention_walk *w, int target, pegen_attention_work *work);
/* Chunks [begin, end) of all items; or what those of items [begin, end) add up to. */
PEGEN_INTERNAL void pegen_attention_run_work(pegen_attention_walk *w, int target, const pegen_attention_work *work,
                                             int64_t begin, int64_t end, int finishes);
