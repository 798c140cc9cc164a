/* bench/bed_backward: the calls of gradients; see bench/bed.h. */
#include "bench/bed.h"

#include <stdlib.h>
#include <string.h>

static bool lay_input_gradients(bed *b, const spec *s) {
  for (int i = 0; i < s->n_inputs; i++) {
    DLTensor *of = &b->backward.input_tensor[i];
    size_t count = 1;
    for (int d = 0; d < b->input_tensor[i].ndim; d++) count *= (size_t)b->input_tensor[i].shape[d];
    if (!(b->backward.input[i] = bed_allocate(count * (size_t)number_type_info(b->type)->bytes))) return false;
    *of = b->input_tensor[i];
    of->data = b->backward.input[i];
    b->backward.inputs[i] = of;
  }
  return true;
}

/* Rows' gradients come in where q and k are and go out where their outputs are; of outputs that are wider, the other
 * way around. */
static pegen_grad_args rows_gradients(bed *b, const pegen_kernel *kernel) {
  bool widens = b->out_bytes != b->bytes;
  int in = widens ? TENSOR_Q_OUT : TENSOR_Q, out = widens ? TENSOR_Q : TENSOR_Q_OUT;
  return (pegen_grad_args){.struct_size = sizeof(pegen_grad_args),
                           .flags = kernel->needs_input ? PEGEN_GRAD_FROM_INPUT : 0,
                           .q_out = &b->tensor[in],
                           .k_out = &b->tensor[in + 1],
                           .q = &b->tensor[out],
                           .k = &b->tensor[out + 1]};
}

/* What encode wrote; where channels are mapped before they turn, what it read. */
static bool lay_kept(bed *b) {
  for (int i = 0; i < 2; i++) {
    if (!(b->backward.kept[i] = bed_allocate(b->bytes))) return false;
    memcpy(b->backward.kept[i], b->data[i], b->bytes);
    b->backward.tensor[i] = bed_tensor(b->backward.kept[i], b->type, 4, b->dims, b->strides);
  }
  return true;
}

static void lay_operand_gradients(arena *a, bed *b, const spec *s, const pegen_kernel *kernel) {
  b->backward.operand = arena_array(a, DLTensor, s->n_operands + 1);
  b->backward.operands = arena_array(a, DLTensor *, s->n_operands + 1);
  for (int i = 0; i < s->n_operands; i++) {
    int64_t count = pegen_operand_size(kernel, i);
    b->backward.operand[i] = b->operand[i];
    b->backward.operand[i].data = arena_array(a, float, count);
    b->backward.operands[i] = &b->backward.operand[i];
  }
  b->backward.positions = b->positions;
  b->backward.positions.data = arena_array(a, float, b->positions.shape[0] * b->positions.shape[1]);
}

static void ask_for_operands(bed *b, const spec *s, pegen_grad_args *grad) {
  if (s->n_operands) grad->operands = b->backward.operands;
  else grad->positions = &b->backward.positions;
}

static int lay_at_once(bed *b, const spec *s, const pegen_kernel *kernel) {
  if (s->n_inputs) b->backward.all_grad.inputs = b->backward.inputs;
  if (s->n_operands || !s->n_inputs) ask_for_operands(b, s, &b->backward.all_grad);
  size_t bytes = kernel->encode_backward_workspace(&b->backward.all);
  if (!(b->backward.workspace = bed_allocate(bytes ? bytes : 1))) return 0;
  b->backward.all.workspace = b->backward.workspace;
  return kernel->encode_backward(&b->backward.all, 0, 1);
}

/* The table of gradients is begun once; what is timed adds to it, as the calls of all layers but the first do. */
static int lay_by_table(bed *b, const spec *s, const pegen_kernel *kernel) {
  pegen_grad_args *all = &b->backward.all_grad, *grad = &b->backward.prepare_grad;
  pegen_args *prepare = &b->backward.prepare;
  *grad = (pegen_grad_args){.struct_size = sizeof *grad};
  *prepare = (pegen_args){.struct_size = sizeof *prepare,
                          .n_operands = b->args.n_operands,
                          .operands = b->operands,
                          .positions = b->args.positions,
                          .grad = grad};
  ask_for_operands(b, s, grad);
  b->backward.torque_bytes = kernel->gradient_table_bytes ? kernel->gradient_table_bytes(prepare) : 0;
  all->table_bytes = grad->table_bytes = b->backward.torque_bytes;
  if (all->table_bytes && !(all->table = grad->table = b->backward.torques = bed_allocate(all->table_bytes))) return 0;
  int error = all->table ? kernel->encode_backward(&b->backward.all, 0, 1) : PEGEN_ERROR_NO_GRADIENT;
  size_t bytes = error ? 0 : kernel->prepare_backward_workspace(prepare);
  if (!(prepare->workspace = b->backward.prepare_workspace = bed_allocate(bytes ? bytes : 1))) return 0;
  b->backward.workspace = bed_allocate(1);
  all->flags |= PEGEN_GRAD_ACCUMULATE;
  return error;
}

int bed_lay_backward(arena *a, bed *b, const spec *s, const pegen_kernel *kernel) {
  if (!lay_kept(b) || !lay_input_gradients(b, s)) return 0;
  lay_operand_gradients(a, b, s, kernel);
  b->backward.rows_grad = b->backward.all_grad = rows_gradients(b, kernel);
  b->backward.rows = b->backward.all = b->args;
  b->backward.rows.q = kernel->needs_input ? &b->backward.tensor[0] : NULL;
  b->backward.rows.k = kernel->needs_input ? &b->backward.tensor[1] : NULL;
  b->backward.rows.grad = &b->backward.rows_grad;
  b->backward.all.q = &b->backward.tensor[0];
  b->backward.all.k = &b->backward.tensor[1];
  b->backward.all.grad = &b->backward.all_grad;
  int error = b->table ? lay_by_table(b, s, kernel) : lay_at_once(b, s, kernel);
  b->backward.rows_alone = error == PEGEN_ERROR_NO_GRADIENT;
  return b->backward.rows_alone ? kernel->encode_backward(&b->backward.rows, 0, 1) : error;
}
