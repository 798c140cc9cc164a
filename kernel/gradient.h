/* gradient.h: what all backward calls have in common: elements of operands, their gradients, the workspace. */
#ifndef PEGEN_KERNEL_GRADIENT_H
#define PEGEN_KERNEL_GRADIENT_H

#include "driver.h"

PEGEN_INTERNAL int64_t pegen_operand_elements(const pegen_kernel *kernel, int operand);
/* Of the operands before one, and of all: they stand in one line. */
PEGEN_INTERNAL int64_t pegen_elements_before(const pegen_kernel *kernel, int operand);
PEGEN_INTERNAL int64_t pegen_all_elements(const pegen_kernel *kernel);

/* 1: float32 or float64. */
PEGEN_INTERNAL int pegen_is_gradient_type(const DLTensor *tensor);
/* Shape, type and memory of an operand's gradient. */
PEGEN_INTERNAL int pegen_check_operand_gradient(const pegen_operand *operand, const DLTensor *tensor, pegen_view *view);
/* The same of the gradient of a query's rows of an input: of its shape and type, with any strides. */
PEGEN_INTERNAL int pegen_check_input_gradient(const pegen_input *info, const DLTensor *input, const DLTensor *tensor,
                                              pegen_view *view);
/* The same of positions'. */
PEGEN_INTERNAL int pegen_check_position_gradient(const DLTensor *positions, const DLTensor *tensor, int64_t is_bare,
                                                 pegen_view *view);
/* That there is one of `bytes`; fills *view where that is not 0. */
PEGEN_INTERNAL int pegen_check_workspace(const pegen_args *args, int64_t bytes, pegen_view *view);

/* Writes a gradient's element, or adds to it. */
static inline void pegen_gain(char *at, int64_t is_f64, int64_t adds, double value) {
  if (is_f64) *(double *)at = adds ? *(double *)at + value : value;
  else *(float *)at = (float)(adds ? *(float *)at + value : value);
}
/* The same of an operand's, by its number. */
static inline void pegen_gain_element(const DLTensor *tensor, int64_t element, int64_t adds, double value) {
  pegen_gain((char *)tensor->data + tensor->byte_offset + element * (tensor->dtype.bits / 8), tensor->dtype.bits == 64,
             adds, value);
}

#endif
