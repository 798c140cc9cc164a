/* fuzz_sequences: a call of attention, or of encode, as one of sequences of different lengths, rows [total,H,D] and
 * boundaries. */
#ifndef PEGEN_TESTS_FUZZ_SEQUENCES_H
#define PEGEN_TESTS_FUZZ_SEQUENCES_H

#include "fuzz_call.h"

typedef struct fuzz_sequences {
  DLTensor of[2]; /* boundaries of q's sequences and of k's, in memory of exactly their length */
  int64_t count[2], stride[2];
  bool sound; /* they are what the rows' tokens make of a sound call of attention */
} fuzz_sequences;

/* Rows of the call's first batch alone, and cu_seqlens and k_cu_seqlens beside them. */
void fuzz_sequences_make(reader *r, fuzz_call *call, fuzz_sequences *sequences);
void fuzz_sequences_free(fuzz_sequences *sequences);

#endif
