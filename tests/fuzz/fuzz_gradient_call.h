/* fuzz_gradient_call: from bytes to a call of a backward entry: a sound one, then edits of it. */
#ifndef PEGEN_TESTS_FUZZ_GRADIENT_CALL_H
#define PEGEN_TESTS_FUZZ_GRADIENT_CALL_H

#include "entries.h"
#include "fuzz_call.h"

/* A kernel with gradients, and which of them may be asked for. */
typedef struct fuzz_gradient_kernel {
  fuzz_kernel of;
  unsigned operands; /* bits */
  bool positions;
  bool keeps_nothing; /* what encode wrote is not needed: it adds to rows, or appends to them */
  bool is_twin; /* its sums are the same in any order */
} fuzz_gradient_kernel;

unsigned fuzz_gradient_kernels(void);
fuzz_gradient_kernel fuzz_gradient_kernel_at(unsigned index);

enum { FUZZ_WORKSPACE = 512 * 1024 };

typedef struct fuzz_gradient_call {
  fuzz_call forward; /* whose args are the call's; first */
  fuzz_gradient_kernel of;
  pegen_entry_kind entry; /* of the CALL */
  union {
    pegen_grad_args grad;
    unsigned char room[PEGEN_ARGS_MOST_SIZE];
  };
  DLTensor *operands[FUZZ_OPERANDS], *inputs[FUZZ_INPUTS];
  unsigned char *placed; /* where the workspace of the sound call begins, ... */
  size_t placed_bytes; /* ... behind which memory ends */
  unsigned char *room_of_table; /* where grad.table was placed, or NULL; edits move it or change what lies there */
} fuzz_gradient_call;

/* The functions of a row of PEGEN_ENTRIES, of its finish and of its workspace's size; NULL: the kernel has none. */
pegen_entry *fuzz_gradient_entry(const pegen_kernel *kernel, pegen_entry_kind entry);
pegen_entry *fuzz_gradient_finish(const pegen_kernel *kernel, pegen_entry_kind entry);
pegen_workspace_entry *fuzz_gradient_size(const pegen_kernel *kernel, pegen_entry_kind entry);

void fuzz_gradient_call_read(fuzz_gradient_call *call, const uint8_t *data, size_t size);

#endif
