/* attention_few.h: the border between the driver of attention with few queries (attention_few.c) and the code that the
 * compiler emits for it (compiler/cpu/attention/few.h).
 *
 * A tile of attention.h has its queries in the lanes, which are empty where there is one query. Here rows of queries
 * stand as they are: those of all heads that share a head of k and v, against the same keys, which are read once and
 * where they lie. The driver walks tiles of keys; for each it calls scores for a few rows at a time, soften for all of
 * them and values for a few rows at a time. Only int64_t, double and pointers, as in loop.h.
 */
#pragma once

#include "attention.h"

/* Most rows of an item; most rows that share what is read of a key; most keys of a tile. */
enum { PEGEN_FEW_ROWS = 32, PEGEN_FEW_BLOCK = 4, PEGEN_FEW_KEYS = 128 };

/* One item: rows of queries and what became of the keys so far. In a panel, rows of keys come as float32 (see
 * attention_turner.h). */
typedef struct pegen_attention_few {
  /* First. k[0] and v[0], strides, the scale, operands and the keys' places are of all rows; row r has lane r of
   * limits and positions. Seen and reach are of all rows, too, where blocks of keys are asked for, and leaves then
   * of one head after the other. Nothing else of it is set. */
  pegen_attention_tile tile;
  int64_t type; /* of the rows that the next function reads or writes: PEGEN_NUMBER_ */
  int64_t rows;
  int64_t row, count; /* of scores and values: the first of their rows; of soften too: keys [first, first + count) */
  int64_t shared; /* of pair_scores: so many rows from `row` on, of one token, have the displacements of its pairs */
  int64_t first;
  int64_t sinks; /* 1: of begin: the description's sink, if it has one, counts */
  const char
      *ahead; /* of scores and values: with a key's row one is asked for that comes next, where its number times */
  int64_t ahead_token; /* ahead_token leads from here */
  const char *q[PEGEN_FEW_ROWS]; /* of row r */
  char *out[PEGEN_FEW_ROWS];
  char *lse[PEGEN_FEW_ROWS]; /* set where it is wanted */
  const double *leaves[PEGEN_FEW_ROWS]; /* of row r's head */
  float *queries; /* [row][head_dim, whole registers]: scaled, in the order that scores take */
  float *scores; /* [row][PEGEN_FEW_KEYS]: scores of a tile, and then their powers */
  float *decay; /* [row][PEGEN_ATTENTION_PITCH]: what sums so far are multiplied by */
  char *state; /* [row]: see pegen_few_state_bytes */
  const char *other; /* the same of keys that follow those of state, for merge */
  int64_t most_is_zero, some_are_zero; /* of a bias that hides, written by soften: all powers of the tile are 0; some */
} pegen_attention_few;

/* A row's state: output [value_dim, rounded up to PEGEN_ATTENTION_PITCH], maximum and sum [PEGEN_ATTENTION_PITCH each],
 * all float32; the maximum is the same in all lanes, and the sum that of all lanes. */
static inline int64_t pegen_few_state_bytes(int64_t value_dim) {
  return ((value_dim + PEGEN_ATTENTION_PITCH - 1) / PEGEN_ATTENTION_PITCH + 2) * PEGEN_ATTENTION_PITCH * 4;
}

typedef void pegen_few_function(pegen_attention_few *few);

/* The emitted functions of one target. A type is asked for where rows are read: a function of each would take as long
 * again to compile, and a branch that always goes the same way takes next to nothing beside the products. */
typedef struct pegen_attention_few_code {
  int64_t keys; /* of a tile of float32, half of those of 16 bits; 0: this target has none of them */
  int64_t queries; /* fewer queries of a head are few */
  int64_t block; /* most rows that share what is read of a key */
  pegen_few_function *begin; /* nothing seen yet */
  pegen_few_function *load; /* queries from q */
  pegen_few_function *scores[PEGEN_FEW_BLOCK]; /* of 1, 2, .. rows, as far as block, from `row` on; NULL: no pair goes
                                                  without rotation */
  pegen_few_function *pair_scores; /* the same of `shared` rows whose pairs are rotated, one by one: of float32 rows of
                                      q and of keys in a panel of `keys` rows; NULL: none are */
  pegen_few_function *soften; /* bias, mask, maximum and powers of all rows */
  pegen_few_function *soften_plain; /* the same without bias; NULL: all keys have it */
  pegen_few_function *values[PEGEN_FEW_BLOCK]; /* the same; of one row without keys whose power is 0 */
  pegen_few_function *merge; /* what keys of `other` add to `state` */
  pegen_few_function *end; /* out */
  pegen_few_function *lse;
  pegen_few_function *seen; /* of tile.leaves, the rows' reach and blocks of keys (attention_seen.c): those that were
                               unseen stay so if no row sees any of their keys; NULL: nothing is asked */
} pegen_attention_few_code;
