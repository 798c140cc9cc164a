/* check_backward.c: every argument of a call for the gradients of an encoding, in this order, before a byte is written:
 *
 *   1. args, struct_size, part                   NULL_ARGS STRUCT_SIZE UNKNOWN_FIELD PART
 *   2. grad, its struct_size and flags           MISSING_GRADIENT STRUCT_SIZE UNKNOWN_FIELD GRADIENT_FLAGS
 *      what is asked for, what comes in          NO_GRADIENT MISSING_GRADIENT
 *   3. gradients of rows, positions, operands    as check.c of an encode call whose rows they are
 *      that nothing is converted                 DTYPE_MISMATCH
 */
#include "backward.h"

/* Does the call ask for a gradient that encodings of this kind do not have? */
static int asks_for_more(const pegen_kernel *kernel, const pegen_grad_args *grad) {
  for (int i = 0; grad->operands && i < kernel->n_operands; i++)
    if (grad->operands[i]) return 1;
  return grad->out || grad->lse || grad->v || grad->inputs || grad->positions || grad->k_positions;
}

/* The forward call that turns gradients as the backward one does. */
static void make_forward(const pegen_args *args, const pegen_grad_args *grad, pegen_args *rows) {
  char *bytes = (char *)rows;
  for (size_t i = 0; i < sizeof *rows; i++) bytes[i] = 0;
  rows->struct_size = sizeof *rows;
  rows->n_operands = args->n_operands;
  rows->operands = args->operands;
  rows->positions = args->positions;
  rows->k_positions = args->k_positions;
  rows->table = PEGEN_GIVEN(args, table);
  rows->table_bytes = PEGEN_GIVEN(args, table_bytes);
  rows->q = grad->q_out;
  rows->k = grad->k_out;
  rows->q_out = grad->q;
  rows->k_out = grad->k;
}

int pegen_check_backward(const pegen_driver *driver, const pegen_args *args, int part, int parts, int64_t row_bytes,
                         pegen_backward_call *call) {
  int error = pegen_check_args(args, part, parts);
  if (error) return error;
  const pegen_grad_args *grad = PEGEN_GIVEN(args, grad);
  if (!grad) return PEGEN_ERROR_MISSING_GRADIENT;
  if ((error = pegen_check_struct(grad, grad->struct_size, sizeof *grad, sizeof *grad)) != 0) return error;
  if (grad->flags & ~(uint32_t)(PEGEN_GRAD_ACCUMULATE | PEGEN_GRAD_FROM_INPUT)) return PEGEN_ERROR_GRADIENT_FLAGS;
  if (asks_for_more(driver->kernel, grad)) return PEGEN_ERROR_NO_GRADIENT;
  if (!grad->q_out && !grad->k_out) return PEGEN_ERROR_MISSING_GRADIENT;
  make_forward(args, grad, &call->args);
  if ((error = pegen_check(driver, &call->args, part, parts, row_bytes, &call->rows)) != 0) return error;
  for (int s = 0; s < 2; s++)
    if (call->rows.stream[s].given && pegen_converts(&call->rows.stream[s])) return PEGEN_ERROR_DTYPE_MISMATCH;
  return 0;
}
