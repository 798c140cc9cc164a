/* check_attention.h: a checked call of attention. */
#pragma once

#include "attention.h"
#include "memory.h"

typedef struct pegen_attention_call {
  pegen_view q, k, v, out;
  pegen_view lse; /* empty where it is not wanted */
  pegen_view positions, k_positions; /* unset where the grid's are used */
  int64_t position_type, k_position_type; /* pegen_position_type; -1: the built-in grid's */
  int64_t bare, k_bare; /* 1: positions have no dimension of axes */
  pegen_bounds bounds[2]; /* of q's rows and k's, as many sequences; 0: the call is one of batches */
  pegen_view input[PEGEN_MAX_INPUTS]; /* of the query tokens, or of keys */
  int64_t wide_inputs; /* 1: inputs are float32, and q is not */
  pegen_attention_pages pages; /* of k and v, whose views are those of one sequence; size 0: there are none */
  int64_t group;  /* heads of q that share a head of k and v */
  int64_t type;   /* row of pegen_attention_code.attend */
  int64_t causal;
  double scale;   /* the caller's, or the kernel's own */
} pegen_attention_call;

/* Whether there are batches, and their pairs have the same places. */
static inline int pegen_attention_shares_places(const pegen_attention_call *c) {
  return c->k.size[PEGEN_BATCH] > 1 && (c->position_type < 0 || c->positions.stride[PEGEN_POSITION_BATCH] == 0) &&
         (c->k_position_type < 0 || c->k_positions.stride[PEGEN_POSITION_BATCH] == 0);
}

/* Checks everything in the order that check_attention.c states; fills *call where it returns 0. */
PEGEN_INTERNAL int pegen_check_attention(const pegen_driver *driver, const pegen_args *args, int part, int parts,
                                         pegen_attention_call *call);
/* Checks a call that only reads out and lse, as backward calls do. */
PEGEN_INTERNAL int pegen_check_attention_read(const pegen_driver *driver, const pegen_args *args, int part, int parts,
                                              pegen_attention_call *call);
/* A call's views, of sequence `from` (0 at first, and as if it began with the first one), become those of `to`. */
PEGEN_INTERNAL void pegen_attention_go_to(const pegen_driver *driver, pegen_attention_call *call, int64_t from,
                                          int64_t to);
/* These check an lse, or the gradient of one, for shape and type, and fill its view. NULL: none is given. */
PEGEN_INTERNAL int pegen_check_lse(const DLTensor *lse, const DLTensor *q);
PEGEN_INTERNAL int pegen_view_lse(const DLTensor *lse, pegen_view *view);
/* Begins with all that a call reads, but for out and lse. */
PEGEN_INTERNAL void pegen_memory_of_attention(pegen_memory *m, const pegen_driver *driver, const pegen_args *args,
                                              const pegen_attention_call *call);
/* The workspace of a checked call whose keys are split, of `bytes`; 0: they are not. It is another tensor's memory
 * nowhere. */
PEGEN_INTERNAL int pegen_check_split(const pegen_driver *driver, const pegen_args *args,
                                     const pegen_attention_call *call, int64_t bytes);
