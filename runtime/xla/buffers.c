/* buffers.c: XLA's dense buffers as the tensors of a kernel's arguments. */
#include "call.h"

#include "../arguments.h"

/* ---- what roles are ---- */

enum { LISTS = 4 };

/* NULL: there is no such role. */
static const pegen_argument_row *row_of(int64_t role) {
  static const pegen_argument fields[] = {
      [PEGEN_XLA_Q] = PEGEN_ARGUMENT_args_q,
      [PEGEN_XLA_K] = PEGEN_ARGUMENT_args_k,
      [PEGEN_XLA_V] = PEGEN_ARGUMENT_args_v,
      [PEGEN_XLA_Q_OUT] = PEGEN_ARGUMENT_args_q_out,
      [PEGEN_XLA_K_OUT] = PEGEN_ARGUMENT_args_k_out,
      [PEGEN_XLA_OUT] = PEGEN_ARGUMENT_args_out,
      [PEGEN_XLA_POSITIONS] = PEGEN_ARGUMENT_args_positions,
      [PEGEN_XLA_K_POSITIONS] = PEGEN_ARGUMENT_args_k_positions,
      [PEGEN_XLA_GRAD_Q_OUT] = PEGEN_ARGUMENT_grad_q_out,
      [PEGEN_XLA_GRAD_K_OUT] = PEGEN_ARGUMENT_grad_k_out,
      [PEGEN_XLA_GRAD_Q] = PEGEN_ARGUMENT_grad_q,
      [PEGEN_XLA_GRAD_K] = PEGEN_ARGUMENT_grad_k,
      [PEGEN_XLA_GRAD_POSITIONS] = PEGEN_ARGUMENT_grad_positions,
      [PEGEN_XLA_GRAD_K_POSITIONS] = PEGEN_ARGUMENT_grad_k_positions,
      [PEGEN_XLA_WORKSPACE] = PEGEN_ARGUMENT_args_workspace,
      [PEGEN_XLA_LSE] = PEGEN_ARGUMENT_args_lse,
      [PEGEN_XLA_GRAD_OUT] = PEGEN_ARGUMENT_grad_out,
      [PEGEN_XLA_GRAD_LSE] = PEGEN_ARGUMENT_grad_lse,
      [PEGEN_XLA_GRAD_V] = PEGEN_ARGUMENT_grad_v,
      [PEGEN_XLA_CU_SEQLENS] = PEGEN_ARGUMENT_args_cu_seqlens,
      [PEGEN_XLA_K_CU_SEQLENS] = PEGEN_ARGUMENT_args_k_cu_seqlens,
  };
  static const pegen_argument lists[LISTS] = {PEGEN_ARGUMENT_args_operands, PEGEN_ARGUMENT_args_inputs,
                                              PEGEN_ARGUMENT_grad_operands, PEGEN_ARGUMENT_grad_inputs};
  int64_t list = role / PEGEN_XLA_OPERAND - 1;
  if (role >= 0 && role < (int64_t)(sizeof fields / sizeof *fields)) return &pegen_argument_rows[fields[role]];
  if (list < 0 || list >= LISTS || role % PEGEN_XLA_OPERAND >= PEGEN_XLA_MOST_BUFFERS) return NULL;
  return &pegen_argument_rows[lists[list]];
}

static bool is_row(int64_t role) {
  const pegen_argument_row *row = row_of(role);
  return row && pegen_argument_is_rows(row);
}

/* Whether an entry reads, or writes, what has the role: what attention writes its gradient reads. */
static bool fits_entry(int64_t role, int64_t entry, bool is_result) {
  static const char *const entries[] = {"encode", "attention", "encode_backward", "attention_backward",
                                        "attention_tangent"};
  const pegen_argument_row *row = row_of(role);
  const char *name;
  int column = pegen_argument_column(entries[entry], &name);
  return row && row->uses[column] != '.' && pegen_argument_is_written(row, column) == is_result;
}

/* Whether batches are its first dimension. */
static bool has_batches(const xla_tensor *t) {
  const pegen_argument_row *row = row_of(t->role);
  return row->shape[0] == 'B' || row->shape[0] == 'i' || (row->type == PEGEN_TYPE_POSITION && t->tensor.ndim == 3);
}

/* Where args or its grad point to the tensor of a role; NULL: they do not. */
static DLTensor **field_of(xla_call *call, int64_t role) {
  pegen_args *a = &call->args;
  pegen_grad_args *g = &call->grad;
  const pegen_argument_row *row = row_of(role);
  int64_t index = role % PEGEN_XLA_OPERAND;
  if (!row || row->kind == PEGEN_ARGUMENT_MEMORY) return NULL;
  if (row->kind == PEGEN_ARGUMENT_TENSOR) return pegen_argument_field(row, a, g);
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
  default: g->inputs = call->input_gradients; return &call->input_gradients[index];
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
    if (!row_of(roles[i])) return "a buffer has a role that there is not";
    if (from->types[i] != XLA_BUFFER || !fits_entry(roles[i], call->request.entry, is_result) || (field && *field))
      return "a buffer has a role that it cannot have";
    t->role = roles[i];
    t->is_result = is_result;
    const char *wrong = read_buffer(from->buffers[i], call, t, device);
    if (wrong) return wrong;
    if (field) {
      *field = &t->tensor;
    } else if (t->tensor.ndim == 1) {
      call->has_workspace = true;
      call->args.workspace = t->tensor.data;
      call->args.workspace_bytes = (size_t)t->shape[0];
    } else {
      return "a workspace has one dimension";
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
