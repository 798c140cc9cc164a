/* backward.h: gradients of encodings whose rows are turned by rotors or added to; see backward.c. */
#ifndef PEGEN_KERNEL_BACKWARD_H
#define PEGEN_KERNEL_BACKWARD_H

#include "driver.h"

/* A backward call, checked: a forward call whose rows are gradients, coming in and going out. */
typedef struct pegen_backward_call {
  pegen_call rows;
  pegen_args args; /* of that forward call */
  const pegen_grad_args *grad;
  int64_t of_operands, of_positions; /* 1: some are wanted */
  int64_t is_written[2]; /* 1: gradients of q's, k's rows go out */
  pegen_view kept[2]; /* what encode wrote or read, where the gradient of an operand or of positions is wanted */
  pegen_view positions[2]; /* gradients of positions and k_positions; empty: not wanted */
  int64_t position_is_f64[2];
} pegen_backward_call;

/* Checks everything in the order that check_backward.c states; fills *call where it returns 0. with_workspace: also
 * that there is one of so many bytes as pegen_backward_workspace says. */
PEGEN_INTERNAL int pegen_check_backward(const pegen_driver *driver, const pegen_args *args, int part, int parts,
                                        int with_workspace, pegen_backward_call *call);

/* Chunks of tokens whose sums are kept apart: a matter of the call's sizes alone. */
PEGEN_INTERNAL int64_t pegen_backward_chunks(const pegen_backward_call *call);
PEGEN_INTERNAL int64_t pegen_backward_size(const pegen_kernel *kernel, int operand); /* elements */
/* Bytes of one chunk's sums, of the operands' elements in float64, and of all of the workspace (0: none). */
PEGEN_INTERNAL int64_t pegen_backward_sums(const pegen_driver *driver);
PEGEN_INTERNAL int64_t pegen_backward_elements(const pegen_driver *driver);
PEGEN_INTERNAL int64_t pegen_backward_workspace(const pegen_driver *driver, const pegen_backward_call *call);

/* What encode does once its call is checked, with the functions of `target`. */
PEGEN_INTERNAL int pegen_encode_checked(const pegen_driver *driver, const pegen_args *args, pegen_call *call,
                                        const pegen_target_code *target, const pegen_tuning *tuning, int part,
                                        int parts);

#endif
