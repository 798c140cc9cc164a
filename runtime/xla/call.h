/* call.h: from a call of XLA's to calls of a kernel's entry. */
#pragma once

#include "pegen/pegen.h"
#include "pegen/xla.h"

#include "abi.h"

#include <stdbool.h>

#define PEGEN_HIDDEN __attribute__((visibility("hidden")))

/* What attributes say. */
typedef struct xla_request {
  const pegen_kernel *kernel;
  int64_t number, entry, layout, flags, causal;
  double scale;
  const int64_t *roles[2]; /* of arguments and of results */
} xla_request;

enum { MOST_FRONT = 4, MOST_RANK = 8 };

/* A buffer as kernels take it: the first element of its dimensions in front. */
typedef struct xla_tensor {
  int64_t role;
  DLTensor tensor;
  int64_t shape[MOST_RANK], strides[MOST_RANK];
  int64_t step[MOST_FRONT]; /* bytes from one element in front to the next; 0 of a size of 1 */
  bool is_result;
} xla_tensor;

typedef struct xla_call {
  xla_request request;
  int n_tensors, n_front;
  bool has_workspace; /* among its buffers */
  int64_t front[MOST_FRONT]; /* sizes in front that all buffers share */
  xla_tensor tensors[PEGEN_XLA_MOST_BUFFERS];
  pegen_args args;
  pegen_grad_args grad;
  const DLTensor *operands[PEGEN_XLA_MOST_BUFFERS], *inputs[PEGEN_XLA_MOST_BUFFERS];
  DLTensor *operand_gradients[PEGEN_XLA_MOST_BUFFERS], *input_gradients[PEGEN_XLA_MOST_BUFFERS];
} xla_call;

/* Whether rows of sequences follow each other: the rows of a call have no batches. */
static inline bool pegen_xla_has_bounds(const xla_call *call) {
  return call->args.cu_seqlens || call->args.k_cu_seqlens;
}

PEGEN_HIDDEN const pegen_kernel *pegen_xla_find(int64_t number);

/* Fill a call from a frame, step after step; NULL, or what is wrong with it in words. */
PEGEN_HIDDEN const char *pegen_xla_read_request(const xla_frame *frame, xla_request *request);
PEGEN_HIDDEN const char *pegen_xla_read_buffers(const xla_frame *frame, xla_call *call, DLDevice device);
/* One call with all that is in front as batches, where that is the same as one for each. */
PEGEN_HIDDEN void pegen_xla_fold(xla_call *call);

/* entry(args, part, parts) for all parts, on threads of XLA's pool and the caller's; the error of the first part. */
PEGEN_HIDDEN int pegen_xla_run_parts(const xla_frame *frame, pegen_entry *entry, const pegen_args *args, int64_t bytes);
