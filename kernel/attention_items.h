/* attention_items.h: what a call of attention is cut into; see attention_items.c. */
#ifndef PEGEN_KERNEL_ATTENTION_ITEMS_H
#define PEGEN_KERNEL_ATTENTION_ITEMS_H

#include "attention_walk.h"

/* How many items a call has that has begun, and items [begin, end). */
PEGEN_INTERNAL int64_t pegen_attention_items(pegen_attention_walk *w, int target);
PEGEN_INTERNAL void pegen_attention_run_items(pegen_attention_walk *w, int target, int64_t begin, int64_t end);

#endif
