/* attention_row_gains.h: gradients of elements of inputs' rows that scores read at computed places.
 *
 * Sums are float64. Where each row of an input is of one head and batch alone, it is stored as soon as its sums are
 * whole: a query's behind its tile, a key's behind its item. The room serves the next tile or item then. Otherwise
 * there is room for the rows of all heads, and `finish` adds those that share one.
 */
#pragma once

#include "attention_backward.h"

/* Rows of one side, queries or keys. */
typedef struct pegen_row_gains {
  int of_keys;
  int is_kept;      /* 1: for `finish` */
  int64_t elements; /* of a token, input by input */
  int64_t pitch;    /* numbers from row to row */
  int64_t rows;     /* of a head: one a token */
  double *at;       /* [B][H][rows][pitch]; NULL: not wanted */
} pegen_row_gains;

/* Whether an input's elements are read at computed places, or are numbers of their own. */
PEGEN_INTERNAL int pegen_reads_numbers(const pegen_attention *form, int64_t input, int at_places);
/* Returns what a call's sums are, without their room; rows: 0 where none are wanted. */
PEGEN_INTERNAL pegen_row_gains pegen_row_gains_of(const pegen_driver *driver, const pegen_attention_backward_call *call,
                                                  int of_keys);
/* Returns them with their room in the workspace (check_attention_backward.c). */
PEGEN_INTERNAL pegen_row_gains pegen_attention_row_gains(const pegen_driver *driver, const pegen_args *args,
                                                         const pegen_attention_backward_call *call, char *workspace,
                                                         int of_keys);
/* Returns the bytes of the room. -1: more than can be addressed. */
PEGEN_INTERNAL int64_t pegen_row_gains_bytes(const pegen_driver *driver, const pegen_attention_backward_call *call,
                                             int of_keys);
/* The first row of a head of q. */
static inline double *pegen_row_gains_of_head(const pegen_row_gains *g, const pegen_attention_backward_call *call,
                                              int64_t batch, int64_t head) {
  return g->at + (batch * call->forward.q.size[PEGEN_HEAD] + head) * g->rows * g->pitch;
}
/* The first element of an input in a token's row. */
PEGEN_INTERNAL int64_t pegen_row_gains_first(const pegen_driver *driver, const pegen_row_gains *g, int64_t input);
/* Stores a token's row, or adds it, as the gradients of its inputs. */
PEGEN_INTERNAL void pegen_row_gains_store(const pegen_driver *driver, const pegen_row_gains *g,
                                          const pegen_attention_backward_call *call, int64_t batch, int64_t head,
                                          int64_t token, const double *row);
