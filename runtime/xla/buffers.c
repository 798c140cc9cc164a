/* buffers.c: XLA's dense buffers as the tensors of a kernel's arguments. */
#include "call.h"

#include <string.h>

/* ---- what roles are ---- */

static bool is_row(int64_t role) {
  switch (role) {
  case PEGEN_XLA_Q:
  case PEGEN_XLA_K:
  case PEGEN_XLA_V:
  case PEGEN_XLA_Q_OUT:
  case PEGEN_XLA_K_OUT:
  case PEGEN_XLA_OUT:
  case PEGEN_XLA_GRAD_Q_OUT:
  case PEGEN_XLA_GRAD_K_OUT:
  case PEGEN_XLA_GRAD_Q:
  case PEGEN_XLA_GRAD_K:
  case PEGEN_XLA_GRAD_OUT:
  case PEGEN_XLA_GRAD_V: return true;
  default: return false;
  }
}

static bool is_position(int64_t role) { return role == PEGEN_XLA_POSITIONS || role == PEGEN_XLA_K_POSITIONS; }

/* By the entry: what attention writes its gradient reads. */
static bool is_written(int64_t role, int64_t entry) {
  if (role == PEGEN_XLA_OUT || role == PEGEN_XLA_LSE) return entry != PEGEN_XLA_ATTENTION_BACKWARD;
  return role == PEGEN_XLA_Q_OUT || role == PEGEN_XLA_K_OUT || role == PEGEN_XLA_GRAD_V ||
         (role >= PEGEN_XLA_GRAD_Q && role <= PEGEN_XLA_WORKSPACE) || role >= PEGEN_XLA_GRAD_OPERAND;
}

/* Whether batches are its first dimension. */
static bool has_batches(const xla_tensor *t) {
  if (is_row(t->role) || t->role == PEGEN_XLA_LSE || t->role == PEGEN_XLA_GRAD_LSE) return true;
  if (t->role >= PEGEN_XLA_INPUT && t->role < PEGEN_XLA_GRAD_OPERAND) return true;
  return t->role >= PEGEN_XLA_GRAD_INPUT || (is_position(t->role) && t->tensor.ndim == 3);
}

/* Where args or its grad point to the tensor of a role; NULL: they do not. */
static DLTensor **field_of(xla_call *call, int64_t role) {
  pegen_args *a = &call->args;
  pegen_grad_args *g = &call->grad;
  switch (role) {
  case PEGEN_XLA_Q: return (DLTensor **)&a->q;
  case PEGEN_XLA_K: return (DLTensor **)&a->k;
  case PEGEN_XLA_V: return (DLTensor **)&a->v;
  case PEGEN_XLA_Q_OUT: return &a->q_out;
  case PEGEN_XLA_K_OUT: return &a->k_out;
  case PEGEN_XLA_OUT: return &a->out;
  case PEGEN_XLA_POSITIONS: return (DLTensor **)&a->positions;
  case PEGEN_XLA_K_POSITIONS: return (DLTensor **)&a->k_positions;
  case PEGEN_XLA_GRAD_Q_OUT: return (DLTensor **)&g->q_out;
  case PEGEN_XLA_GRAD_K_OUT: return (DLTensor **)&g->k_out;
  case PEGEN_XLA_GRAD_Q: return &g->q;
  case PEGEN_XLA_GRAD_K: return &g->k;
  case PEGEN_XLA_GRAD_POSITIONS: return &g->positions;
  case PEGEN_XLA_GRAD_K_POSITIONS: return &g->k_positions;
  case PEGEN_XLA_LSE: return &a->lse;
  case PEGEN_XLA_GRAD_OUT: return (DLTensor **)&g->out;
  case PEGEN_XLA_GRAD_LSE: return (DLTensor **)&g->lse;
  case PEGEN_XLA_GRAD_V: return &g->v;
  case PEGEN_XLA_CU_SEQLENS: return (DLTensor **)&a->cu_seqlens;
  case PEGEN_XLA_K_CU_SEQLENS: return (DLTensor **)&a->k_cu_seqlens;
  default: break;
  }
  int64_t index = role % PEGEN_XLA_OPERAND;
  if (role < PEGEN_XLA_OPERAND || index >= PEGEN_XLA_MOST_BUFFERS) return NULL;
  switch (role - index) {
  case PEGEN_XLA_OPERAND:
    if (index >= a->n_operands) a->n_operands = (int32_t)index + 1;
    a->operands = call->operands;
    return (DLTensor **)&call->operands[index];
  case PEGEN_XLA_INPUT:
    if (index >= a->n_inputs) a->n_inputs = (int32_t)index + 1;
    a->inputs = call->inputs;
    return (DLTensor **)&call->inputs[index];
  case PEGEN_XLA_GRAD_OPERAND: g->operands = call->operand_gradients; return &call->operand_gradients[index];
  case PEGEN_XLA_GRAD_INPUT: g->inputs = call->input_gradients; return &call->input_gradients[index];
  default: return NULL;
  }
}

/* ---- one buffer ---- */

static bool number_type(int dtype, DLDataType *type) {
  static const struct {
    int xla;
    DLDataType type;
  } types[] = {
      {XLA_F32, {kDLFloat, 32, 1}},
      {XLA_BF16, {kDLBfloat, 16, 1}},
      {XLA_F16, {kDLFloat, 16, 1}},
      {XLA_F64, {kDLFloat, 64, 1}},
      {XLA_S32, {kDLInt, 32, 1}},
      {XLA_S64, {kDLInt, 64, 1}},
      {XLA_U8, {kDLUInt, 8, 1}},
      {XLA_F8E4M3FN, {PEGEN_DL_FLOAT8_E4M3FN, 8, 1}},
      {XLA_F8E5M2, {PEGEN_DL_FLOAT8_E5M2, 8, 1}},
  };
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (types[i].xla == dtype) {
      *type = types[i].type;
      return true;
    }
  return false;
}

static void swap(int64_t *sizes) {
  int64_t tokens = sizes[1];
  sizes[1] = sizes[2];
  sizes[2] = tokens;
}

static const char *read_buffer(const xla_buffer *buffer, xla_call *call, xla_tensor *t, DLDevice device) {
  int front = call->n_front, rank = (int)buffer->rank - front;
  if (rank < 0 || rank > MOST_RANK) return "a buffer has too few or too many dimensions";
  t->tensor =
      (DLTensor){.data = buffer->data, .device = device, .ndim = rank, .shape = t->shape, .strides = t->strides};
  if (!number_type(buffer->dtype, &t->tensor.dtype)) return "a buffer is of a number type that no kernel takes";
  int64_t step = 1, bytes = t->tensor.dtype.bits / 8;
  for (int i = rank - 1; i >= 0; i--) {
    t->shape[i] = buffer->dims[front + i];
    t->strides[i] = step;
    step *= t->shape[i];
  }
  for (int i = front - 1; i >= 0; i--) {
    int64_t size = buffer->dims[i];
    t->step[i] = size == 1 ? 0 : step * bytes;
    if (size != 1 && call->front[i] != 1 && call->front[i] != size) return "sizes in front of two buffers disagree";
    if (size != 1) call->front[i] = size;
    step *= size;
  }
  if (call->request.layout && is_row(t->role) && rank == 4) {
    swap(t->shape);
    swap(t->strides);
  }
  return NULL;
}

/* What rows have of their own: [total,H,D] beside boundaries, which are not read yet. */
static int row_rank(const xla_frame *frame, const xla_call *call) {
  for (int64_t i = 0; i < frame->arguments.size; i++) {
    int64_t role = call->request.roles[0][i];
    if (role == PEGEN_XLA_CU_SEQLENS || role == PEGEN_XLA_K_CU_SEQLENS) return 3;
  }
  return 4;
}

/* Dimensions in front are what rows have beside their own. */
static bool count_front(const xla_frame *frame, xla_call *call) {
  for (int64_t i = 0; i < frame->arguments.size; i++)
    if (is_row(call->request.roles[0][i]) && frame->arguments.types[i] == XLA_BUFFER) {
      int64_t front = ((const xla_buffer *)frame->arguments.buffers[i])->rank - row_rank(frame, call);
      call->n_front = front < 0 ? 0 : (int)front;
      return front <= MOST_FRONT;
    }
  return false;
}

static const char *read_all(const xla_buffers *from, const int64_t *roles, xla_call *call, DLDevice device,
                            bool is_result) {
  for (int64_t i = 0; i < from->size; i++) {
    xla_tensor *t = &call->tensors[call->n_tensors++];
    DLTensor **field = field_of(call, roles[i]);
    if (from->types[i] != XLA_BUFFER || is_written(roles[i], call->request.entry) != is_result || (field && *field))
      return "a buffer has a role that it cannot have";
    t->role = roles[i];
    t->is_result = is_result;
    const char *wrong = read_buffer(from->buffers[i], call, t, device);
    if (wrong) return wrong;
    if (field) {
      *field = &t->tensor;
    } else if (t->role == PEGEN_XLA_WORKSPACE && t->tensor.ndim == 1) {
      call->has_workspace = true;
      call->args.workspace = t->tensor.data;
      call->args.workspace_bytes = (size_t)t->shape[0];
    } else {
      return "a buffer has a role that there is not";
    }
  }
  return NULL;
}

const char *pegen_xla_read_buffers(const xla_frame *frame, xla_call *call, DLDevice device) {
  call->n_tensors = 0;
  call->has_workspace = false;
  for (int i = 0; i < MOST_FRONT; i++) call->front[i] = 1;
  if (frame->arguments.size + frame->results.size > PEGEN_XLA_MOST_BUFFERS) return "a call has too many buffers";
  if (!count_front(frame, call)) return "a call without rows, or with too many dimensions in front of them";
  const char *wrong = read_all(&frame->arguments, call->request.roles[0], call, device, false);
  if (!wrong) wrong = read_all(&frame->results, call->request.roles[1], call, device, true);
  return wrong;
}

/* ---- one call for all that is in front ---- */

/* Whether a buffer has all sizes in front (or, none: all of them are 1). */
static bool has_front(const xla_call *call, const xla_tensor *t, bool all) {
  for (int i = 0; i < call->n_front; i++)
    if (call->front[i] != 1 && (t->step[i] != 0) != all) return false;
  return true;
}

void pegen_xla_fold(xla_call *call) {
  int64_t size = 1;
  for (int i = 0; i < call->n_front; i++) size *= call->front[i];
  if (size <= 1 || pegen_xla_has_bounds(call)) return;
  for (int i = 0; i < call->n_tensors; i++) {
    const xla_tensor *t = &call->tensors[i];
    if (!has_front(call, t, has_batches(t)) || (!has_batches(t) && t->is_result)) return;
  }
  for (int i = 0; i < call->n_tensors; i++)
    if (has_front(call, &call->tensors[i], true)) call->tensors[i].shape[0] *= size;
  for (int i = 0; i < call->n_front; i++) call->front[i] = 1;
}
