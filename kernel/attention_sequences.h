/* attention_sequences.h: calls with cu_seqlens; see attention_sequences.c. */
#ifndef PEGEN_KERNEL_ATTENTION_SEQUENCES_H
#define PEGEN_KERNEL_ATTENTION_SEQUENCES_H

#include "attention_walk.h"

/* 1: sequences follow each other in rows of three dimensions. */
static inline int pegen_has_sequences(const pegen_args *args) {
  return args && (PEGEN_GIVEN(args, cu_seqlens) || PEGEN_GIVEN(args, k_cu_seqlens));
}

/* All of a call that has; is_run 0: its checks alone. */
PEGEN_INTERNAL int pegen_attention_sequences(const pegen_driver *driver, const pegen_args *args, int part, int parts,
                                             int is_run);

/* A call that has begun, sequences or not (attention.c): how many items it is cut into, and items [begin, end). */
PEGEN_INTERNAL int64_t pegen_attention_items(pegen_attention_walk *w, int target);
PEGEN_INTERNAL void pegen_attention_run_items(pegen_attention_walk *w, int target, int64_t begin, int64_t end);

#endif
