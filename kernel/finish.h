/* finish.h: how backward entries begin, what positions gain, and from chunks' sums to operands.
 *
 * A part has a range of the elements that are wanted, all operands' in one line, and walks the heads that some of them
 * are read by: whoever adds an element up, its terms come in one order.
 */
#pragma once

#include "backward.h"

typedef struct pegen_finish {
  const pegen_gradient *of; /* set by the form, as the next three */
  const pegen_gradient_code *code;
  int64_t n_blocks, lanes;
  const pegen_driver *driver;
  const pegen_args *args;
  const pegen_backward_call *call;
  int64_t begin, end; /* of the line */
  double *elements; /* of the line */
  double *sums; /* of the head at hand, and behind them what comes of them */
} pegen_finish;

/* 0: the part has nothing to do. Else its elements are cleared. */
PEGEN_INTERNAL int pegen_finish_begin(pegen_finish *f, const pegen_driver *driver, const pegen_args *args,
                                      const pegen_backward_call *call, int part, int parts);
/* Where an operand's elements begin in the line; the line's end where operand is n_operands. */
PEGEN_INTERNAL int64_t pegen_finish_line(const pegen_finish *f, int64_t operand);
/* Adds what a head's sums give, which begin `at` numbers behind the chunk's first. */
PEGEN_INTERNAL void pegen_finish_head(const pegen_finish *f, int64_t head, int64_t at);
PEGEN_INTERNAL void pegen_finish_store(const pegen_finish *f);
/* All of it, where sums of heads are all that chunks have. */
PEGEN_INTERNAL void pegen_finish_heads(pegen_finish *f, int target);

/* What the entry of the workspace's size says: 0 where the call would be refused, too. */
PEGEN_INTERNAL size_t pegen_backward_needs(const pegen_driver *driver, const pegen_backward_facts *facts,
                                           const pegen_args *args);

/* An entry of gradients, of a form: the call is checked, by pegen_check_backward or pegen_check_prepare_backward, and
 * the processor's functions are chosen. */
#define PEGEN_BACKWARD_ENTRY(name, find_facts, check, run) \
  int name(const pegen_driver *driver, const pegen_args *args, int part, int parts) { \
    pegen_backward_call call; \
    pegen_backward_facts facts; \
    find_facts(driver, &facts); \
    PEGEN_TRY(check(driver, &facts, args, part, parts, 1, &call)); \
    int target = pegen_dispatch(driver, &call.tuning); \
    return target < 0 ? PEGEN_ERROR_PROCESSOR : run(driver, args, &call, target, part, parts); \
  }

/* An entry of a size, which is not entered by way of enter.c. */
#define PEGEN_SIZE_ENTRY(name, find_facts, size) \
  size_t name(const pegen_driver *driver, const pegen_args *args) { \
    pegen_own_driver own; \
    pegen_backward_facts facts; \
    driver = pegen_from_first_token(driver, args, &own); \
    find_facts(driver, &facts); \
    return size(driver, &facts, args); \
  }

/* Positions of streams without rows gain nothing; where others share them, those see to it. A part's share of tokens.
 */
PEGEN_INTERNAL void pegen_gain_without_rows(const pegen_backward_call *call, int part, int parts);
PEGEN_INTERNAL void pegen_clear(char *at, int64_t bytes);
