/* weight_gains.h: from what the weights of a polynomial bias gain to what inputs and operands do, head by head.
 *
 * Whoever walks a head's queries finds what their weights gain (work.weights), some at a time; see weight_gains.c.
 */
#pragma once

#include "gradient.h"

typedef struct pegen_weights {
  const pegen_driver *driver;
  const pegen_args *args;
  const pegen_gradient *of;
  const pegen_gradient_code *code;
  pegen_weight_gains_function *unweigh; /* NULL: neither inputs nor operands have a gradient that is wanted */
  int64_t n_blocks, lanes;
  const pegen_view *input, *gain; /* [inputs]; gain: empty where it is not wanted */
  const char *input_row[PEGEN_MAX_INPUTS]; /* of token 0 of the head at hand */
  char *gain_row[PEGEN_MAX_INPUTS];        /* the same; NULL: not wanted */
  int64_t head; /* whose values are prepared; -1: none */
  double *leaves, *gained;
  char *prepared;
  double *sums; /* of a head: work.sums, where they are wanted */
  pegen_weight_gains work;
} pegen_weights;

/* type: PEGEN_NUMBER_ of inputs. Room is the caller's (PEGEN_WEIGHTS_ROOM). */
PEGEN_INTERNAL void pegen_weights_begin(pegen_weights *w, const pegen_driver *driver, const pegen_args *args,
                                        const pegen_gradient *of, int target, int64_t type, const pegen_view *input,
                                        const pegen_view *gain);
PEGEN_INTERNAL void pegen_weights_set_head(pegen_weights *w, int64_t batch, int64_t head);
/* Queries from `token` on, whose weights gain work.weights; or which are skipped, and gain nothing. */
PEGEN_INTERNAL void pegen_weights_run(pegen_weights *w, int64_t token, int64_t count);
PEGEN_INTERNAL void pegen_weights_skip(pegen_weights *w, int64_t token, int64_t count);
/* Adds a head's sums to elements of all operands in one line, and begins new ones. */
PEGEN_INTERNAL void pegen_weights_add_head(pegen_weights *w, int64_t head, double *elements);

static inline int64_t pegen_weights_leaves(const pegen_gradient *of) {
  return of->n_leaves > of->n_scatter_leaves ? of->n_leaves : of->n_scatter_leaves;
}

/* On the stack of the call, also where nothing is wanted: `of` NULL. count: weights. */
#define PEGEN_WEIGHTS_ROOM(w, of, lanes, count) \
  do { \
    size_t row = sizeof(double) * (size_t)(lanes); \
    (w)->leaves = PEGEN_STACK(((of) ? (size_t)pegen_weights_leaves(of) * row : 0) + 64); \
    (w)->gained = PEGEN_STACK(((of) ? (size_t)(of)->n_scatters * row : 0) + 64); \
    (w)->sums = PEGEN_STACK(((of) ? (size_t)(of)->n_sums * row : 0) + 64); \
    (w)->prepared = PEGEN_STACK(((of) ? (size_t)(of)->prepared_bytes : 0) + 64); \
    (w)->work.weights = PEGEN_STACK(sizeof(float) * (size_t)((count) * PEGEN_WEIGHT_QUERIES) + 64); \
  } while (0)
