/* launch_weights.h: of a backward call of attention whose bias is a polynomial, the launches from what weights gain to
 * what inputs and operands do; see launch_weights.c. */
#pragma once

#include "launch.h"

#include "../kernel/attention_backward.h"

typedef struct pegen_weights_cut {
  int is_wanted; /* 1: of some input or operand */
  int64_t items, chunk, chunks; /* tokens of batches; of a chunk; chunks */
  int64_t heads, numbers; /* whose sums are kept apart; sums of a chunk */
  int64_t gains, sums, groups, gained; /* where they begin in the workspace, bytes */
} pegen_weights_cut;

/* Whether the kernel has the entries. */
PEGEN_HIDDEN int pegen_launch_has_weights(const pegen_kernel *kernel);
/* Returns how many weights the polynomial bias of attention has for a query. 0: the bias is no polynomial, or has no
 * gradients. */
PEGEN_HIDDEN int64_t pegen_launch_n_weights(const pegen_kernel *kernel);
/* By the call's sizes alone; adds to the bytes of the workspace. 0: the sizes are more than can be counted. */
PEGEN_HIDDEN int pegen_launch_cut_weights(const pegen_kernel *kernel, const pegen_attention_backward_call *call,
                                          int64_t *bytes, pegen_weights_cut *cut);
/* Behind the launch of queries; without run only whether there is an entry for the rows' type. */
PEGEN_HIDDEN int pegen_launch_weights(const pegen_launch_request *request, const pegen_attention_backward_call *call,
                                      const pegen_weights_cut *cut, pegen_launch_run *run, void *context);
/* Launches what adds up the gradients of operands, where any are wanted. */
PEGEN_HIDDEN int pegen_launch_finish_weights(const pegen_launch_request *request,
                                             const pegen_attention_backward_call *call, const pegen_weights_cut *cut,
                                             pegen_launch_run *run, void *context);
