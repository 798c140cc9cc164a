/* check_gradient.c: what the checks of all backward calls have in common: gradients of operands, and the workspace. */
#include "gradient.h"

int64_t pegen_operand_elements(const pegen_kernel *kernel, int operand) {
  int64_t size = 1;
  for (int d = 0; d < kernel->operands[operand].rank; d++) size *= kernel->operands[operand].shape[d];
  return size;
}

int64_t pegen_elements_before(const pegen_kernel *kernel, int operand) {
  int64_t count = 0;
  for (int i = 0; i < operand; i++) count += pegen_operand_elements(kernel, i);
  return count;
}

int64_t pegen_all_elements(const pegen_kernel *kernel) { return pegen_elements_before(kernel, kernel->n_operands); }

int pegen_is_gradient_type(const DLTensor *tensor) {
  return pegen_one_of(tensor, kDLFloat, 32) || pegen_one_of(tensor, kDLFloat, 64);
}

int pegen_check_grad(const pegen_grad_args *grad, uint32_t flags) {
  if (!grad) return PEGEN_ERROR_MISSING_GRADIENT;
  int error = pegen_check_struct(grad, grad->struct_size, PEGEN_GRAD_ARGS_FIRST_SIZE, sizeof *grad);
  return error || !(grad->flags & ~flags) ? error : PEGEN_ERROR_GRADIENT_FLAGS;
}

int pegen_find_gained(const pegen_kernel *kernel, const pegen_args *args, const pegen_grad_args *grad,
                      pegen_gained *gained) {
  gained->operands = gained->inputs = 0;
  gained->positions = grad->positions || grad->k_positions;
  if (grad->operands && args->n_operands < kernel->n_operands) return PEGEN_ERROR_MISSING_OPERAND;
  if (grad->inputs && PEGEN_GIVEN(args, n_inputs) < kernel->n_inputs) return PEGEN_ERROR_MISSING_INPUT;
  for (int i = 0; grad->operands && i < kernel->n_operands; i++)
    gained->operands |= (int64_t)(grad->operands[i] != 0) << i;
  for (int i = 0; grad->inputs && i < kernel->n_inputs; i++) gained->inputs |= (int64_t)(grad->inputs[i] != 0) << i;
  return 0;
}

static int check_operand(const pegen_operand *operand, const DLTensor *tensor) {
  pegen_view view;
  PEGEN_TRY(pegen_check_operand_shape(operand, tensor, PEGEN_ERROR_GRADIENT_SHAPE));
  if (!pegen_is_gradient_type(tensor)) return PEGEN_ERROR_GRADIENT_DTYPE;
  return pegen_on_host(tensor) ? pegen_view_contiguous(tensor, &view) : PEGEN_ERROR_DEVICE;
}

/* A tensor like another one, which may have its own strides. */
static int check_like(const DLTensor *like, const DLTensor *tensor, int has_type) {
  if (tensor->ndim != like->ndim || !tensor->shape) return PEGEN_ERROR_GRADIENT_SHAPE;
  for (int i = 0; i < tensor->ndim; i++)
    if (tensor->shape[i] != like->shape[i]) return PEGEN_ERROR_GRADIENT_SHAPE;
  if (!has_type) return PEGEN_ERROR_GRADIENT_DTYPE;
  return pegen_on_host(tensor) ? 0 : PEGEN_ERROR_DEVICE;
}

static int check_nests(const pegen_view *view) {
  return view->empty || pegen_view_nests(view) ? 0 : PEGEN_ERROR_STRIDE;
}

static int check_positions(const DLTensor *of, const DLTensor *tensor, int64_t is_bare, pegen_view *view) {
  view->empty = 1;
  if (!tensor) return 0;
  PEGEN_TRY(check_like(of, tensor, pegen_is_gradient_type(tensor)));
  PEGEN_TRY(pegen_view_positions(tensor, is_bare, view));
  return check_nests(view);
}

int pegen_check_gradients(const pegen_kernel *kernel, const pegen_args *args, const pegen_grad_args *grad,
                          const int64_t is_bare[2], pegen_view positions[2], pegen_view *inputs) {
  int error = 0;
  for (int i = 0; grad->operands && i < kernel->n_operands && !error; i++)
    if (grad->operands[i]) error = check_operand(&kernel->operands[i], grad->operands[i]);
  if (error || (error = check_positions(args->positions, grad->positions, is_bare[0], &positions[0])) != 0 ||
      (error = check_positions(args->k_positions, grad->k_positions, is_bare[1], &positions[1])) != 0)
    return error;
  for (int i = 0; i < kernel->n_inputs; i++) {
    inputs[i].empty = 1;
    const DLTensor *tensor = grad->inputs ? grad->inputs[i] : 0;
    int is_pair = kernel->inputs[i].size == PEGEN_SIZE_OF_KEYS, /* whose gradient is float32, whatever it is */
        has_type = tensor && (is_pair ? pegen_one_of(tensor, kDLFloat, 32) : pegen_same_type(tensor, args->inputs[i]));
    if (tensor && ((error = check_like(args->inputs[i], tensor, has_type)) != 0 ||
                   (error = pegen_view_like_rows(tensor, kernel->inputs[i].size != 0, &inputs[i])) != 0 ||
                   (error = check_nests(&inputs[i])) != 0))
      return error;
  }
  return 0;
}

int pegen_check_workspace(const pegen_args *args, int64_t bytes, pegen_view *view) {
  if (!bytes) return 0;
  if (!args->workspace) return PEGEN_ERROR_WORKSPACE;
  if ((uintptr_t)args->workspace & 7) return PEGEN_ERROR_ALIGNMENT;
  PEGEN_TRY(pegen_view_memory(args->workspace, bytes, view));
  size_t given = PEGEN_GIVEN(args, workspace_bytes);
  return given && given < (uint64_t)bytes ? PEGEN_ERROR_WORKSPACE : 0;
}
