/* attention_sequences.h: calls with cu_seqlens, or whose keys are in pages; see attention_sequences.c. */
#ifndef PEGEN_KERNEL_ATTENTION_SEQUENCES_H
#define PEGEN_KERNEL_ATTENTION_SEQUENCES_H

#include "attention_pages.h"

/* 1: keys of different lengths, and maybe queries. */
static inline int pegen_has_sequences(const pegen_args *args) {
  return args && (PEGEN_GIVEN(args, cu_seqlens) || PEGEN_GIVEN(args, k_cu_seqlens) || pegen_has_pages(args));
}

/* All of a call that has: 0 or a pegen_error; or its finish, behind chunks of keys; and the bytes of its workspace, 0
 * where there are none or the arguments are wrong. */
PEGEN_INTERNAL int pegen_attention_sequences(const pegen_driver *driver, const pegen_args *args, int part, int parts,
                                             int finishes);
PEGEN_INTERNAL size_t pegen_attention_sequences_workspace(const pegen_driver *driver, const pegen_args *args);

#endif
