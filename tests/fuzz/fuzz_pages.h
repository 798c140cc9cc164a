/* fuzz_pages: a call of attention as one whose keys and values are in pages: a block table and lengths;
 * and of encode as one that writes rows of k at slots, or as append's, with norms and v beside. */
#ifndef PEGEN_TESTS_FUZZ_PAGES_H
#define PEGEN_TESTS_FUZZ_PAGES_H

#include "fuzz_call.h"

typedef struct fuzz_pages {
  DLTensor k, v;           /* [pages,page_size,Hkv,D] of the call's k and v: a page is a batch of theirs */
  int64_t shape[2][4], stride[2][4];
  DLTensor inputs[FUZZ_INPUTS]; /* [pages,page_size,H,size] of the inputs of keys, likewise */
  int64_t input_shape[FUZZ_INPUTS][4], input_stride[FUZZ_INPUTS][4];
  DLTensor table, lengths; /* in memory of exactly their length */
  int64_t table_shape[2], table_stride[2], lengths_shape[1];
  bool sound; /* they are what a sound call may have */
} fuzz_pages;

void fuzz_pages_make(reader *r, fuzz_call *call, fuzz_pages *pages);
void fuzz_pages_free(fuzz_pages *pages);

/* A call of encode as one whose rows of k go to slots of a cache in pages, its k_out. */
typedef struct fuzz_slots {
  DLTensor k_out, slots; /* slots: in memory of exactly their length */
  int64_t shape[4], stride[4], slots_shape[2];
} fuzz_slots;

void fuzz_slots_make(reader *r, fuzz_call *call, fuzz_slots *slots);
void fuzz_slots_free(fuzz_slots *slots);

/* A call with slots as one of append: v is k, its cache and the weights of norms in memory of exactly their length. */
typedef struct fuzz_append {
  DLTensor v_out, norms[2];
  int64_t shape[4], width[2], step[2];
  float *weights[2];
  unsigned char *cache; /* between guards */
  size_t bytes;
} fuzz_append;

void fuzz_append_make(reader *r, fuzz_call *call, fuzz_append *append);
void fuzz_append_check(const fuzz_append *append);
void fuzz_append_free(fuzz_append *append);

#endif
