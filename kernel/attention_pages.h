/* attention_pages.h: keys and values in pages; see attention_pages.c. */
#pragma once

#include "attention_walk.h"
#include "pages.h"

/* A cache of keys and values in pages, and which of them sequences have. */
typedef struct pegen_pages {
  int64_t sequences, most; /* B, most_pages */
  int64_t count, size;     /* pages of the cache, tokens of one */
  int64_t keys;            /* that a sequence may have at most */
  const int32_t *lengths;  /* [sequences] */
  pegen_permuted k, v; /* as rows of a call without pages: [B,Hkv,keys,D] or, where queries of sequences follow
                        * each other, [keys,Hkv,D]; of which one token's memory is */
  pegen_permuted k_rows, v_rows; /* [pages,Hkv,page_size,D] */
  pegen_permuted k_positions; /* those of one sequence, where q has one batch for all */
  pegen_permuted input[PEGEN_MAX_INPUTS], input_rows[PEGEN_MAX_INPUTS]; /* the same as of k, of inputs of keys */
  const DLTensor *inputs[PEGEN_MAX_INPUTS]; /* of that call */
  const pegen_kernel *kernel;
  pegen_view k_view, v_view, table_view, lengths_view;
  pegen_view input_view[PEGEN_MAX_INPUTS]; /* empty of those of queries */
} pegen_pages;

/* 1: k and v are in pages. */
static inline int pegen_has_pages(const pegen_args *args) {
  return args && (PEGEN_GIVEN(args, block_table) || PEGEN_GIVEN(args, lengths));
}

/* Reads shapes, and sets k, v, inputs and k_positions of `flat`, a call without pages that the checks of such a call
 * are to see: of *batches batches, or without that dimension where that is NULL. 0 or a pegen_error. */
PEGEN_INTERNAL int pegen_pages_flatten(pegen_pages *p, const pegen_driver *driver, const pegen_args *args,
                                       const int64_t *batches, pegen_args *flat);
/* The rest, once that call was found sound: memory, lengths, pages, and what is written against what is read. Sets the
 * views of keys, values, their inputs and positions in *call. */
PEGEN_INTERNAL int pegen_pages_check(pegen_pages *p, const pegen_args *args, int64_t sequences,
                                     pegen_attention_call *call);
/* Adds what is read of them: the caches, their table, lengths and positions, and boundaries of queries. */
PEGEN_INTERNAL void pegen_memory_of_pages(pegen_memory *m, const pegen_pages *p, const pegen_attention_call *call);
/* Makes the keys of a checked call those of a sequence. */
PEGEN_INTERNAL void pegen_pages_set(const pegen_pages *p, int64_t sequence, pegen_attention_call *call);
