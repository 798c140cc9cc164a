/* gradient.h: what all backward calls have in common: elements of operands, their gradients, the workspace. */
#pragma once

#include "driver.h"

PEGEN_INTERNAL int64_t pegen_operand_elements(const pegen_kernel *kernel, int operand);
/* These count the elements of the operands before one, and of all operands: gradients of operands stand in one line. */
PEGEN_INTERNAL int64_t pegen_elements_before(const pegen_kernel *kernel, int operand);
PEGEN_INTERNAL int64_t pegen_all_elements(const pegen_kernel *kernel);

/* 1: float32 or float64. */
PEGEN_INTERNAL int pegen_is_gradient_type(const DLTensor *tensor);
/* A call's args->grad and its flags, which may be `flags`. */
PEGEN_INTERNAL int pegen_check_grad(const pegen_grad_args *grad, uint32_t flags);
/* What a call asks gradients of beside rows: bits of operands and inputs. */
typedef struct pegen_gained {
  int64_t operands, inputs, positions;
} pegen_gained;

/* Lists of gradients are as long as those of the arguments: MISSING_OPERAND, MISSING_INPUT. */
PEGEN_INTERNAL int pegen_find_gained(const pegen_kernel *kernel, const pegen_args *args, const pegen_grad_args *grad,
                                     pegen_gained *gained);
/* Shape, type and memory of gradients of operands, positions and inputs, which are those of args but for strides.
 * Views are empty where there is no gradient. */
PEGEN_INTERNAL int pegen_check_gradients(const pegen_kernel *kernel, const pegen_args *args,
                                         const pegen_grad_args *grad, const int64_t is_bare[2], pegen_view positions[2],
                                         pegen_view *inputs);
/* That there is one of `bytes`; fills *view where that is not 0. */
PEGEN_INTERNAL int pegen_check_workspace(const pegen_args *args, int64_t bytes, pegen_view *view);

/* Writes a gradient's element, or adds to it. */
static inline void pegen_gain(char *at, int64_t is_f64, int64_t adds, double value) {
  if (is_f64) *(double *)at = adds ? *(double *)at + value : value;
  else *(float *)at = (float)(adds ? *(float *)at + value : value);
}
/* Writes an element of an operand's gradient, by the element's number, or adds to it. */
static inline void pegen_gain_element(const DLTensor *tensor, int64_t element, int64_t adds, double value) {
  pegen_gain((char *)tensor->data + tensor->byte_offset + element * (tensor->dtype.bits / 8), tensor->dtype.bits == 64,
             adds, value);
}
