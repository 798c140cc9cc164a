/* launch.c: what is launched, by entry: who plans it (launch_encode.c, launch_attention.c, launch_gradient.c,
 * launch_attention_backward.c), and
 * which tensors of the call must be on one device; see launch.h. */
#include "launch.h"
#include "arguments.h"

#include <string.h>

/* ---- which tensors a call looks at, of those that it is given; it was checked ---- */

static int has_torques(const pegen_kernel *kernel, const pegen_grad_args *grad) {
  int found = grad->positions || grad->k_positions;
  for (int i = 0; grad->operands && i < kernel->n_operands; i++) found |= grad->operands[i] != NULL;
  for (int i = 0; grad->inputs && i < pegen_launch_inputs_of(kernel); i++) found |= grad->inputs[i] != NULL;
  return found;
}

/* Gradients stand in the places of rows, which are looked at where gradients are made of what encode wrote or read. */
static int is_looked_at_backward(const pegen_launch_request *request, pegen_argument argument) {
  const pegen_kernel *kernel = request->kernel;
  const pegen_args *args = request->args;
  const pegen_grad_args *grad = args->grad;
  int torques = has_torques(kernel, grad), needs_input = pegen_launch_needs_input(kernel),
      is_kept = needs_input || (torques && pegen_launch_gradient_of(kernel)->needs_kept),
      q = grad->q_out && (grad->q || torques), k = grad->k_out && (grad->k || torques);
  switch (argument) {
  case PEGEN_ARGUMENT_grad_q_out: return q;
  case PEGEN_ARGUMENT_grad_k_out: return k;
  case PEGEN_ARGUMENT_args_q: return is_kept && grad->q_out;
  case PEGEN_ARGUMENT_args_k: return is_kept && grad->k_out;
  case PEGEN_ARGUMENT_args_positions: return q || !args->k_positions;
  case PEGEN_ARGUMENT_args_k_positions: return k;
  case PEGEN_ARGUMENT_args_inputs: return pegen_launch_turns_rows(kernel) || grad->q_out;
  default: return 1;
  }
}

static int is_looked_at(const pegen_launch_request *request, pegen_argument argument) {
  const pegen_args *args = request->args;
  const pegen_ptx_attention *attention = pegen_launch_attention_of(request->kernel);
  int placed = !attention || attention->placed;
  switch (argument) {
  case PEGEN_ARGUMENT_args_positions: return placed && (args->q || !args->k_positions);
  case PEGEN_ARGUMENT_args_k_positions: return placed && args->k;
  case PEGEN_ARGUMENT_args_inputs: return pegen_launch_turns_rows(request->kernel) || args->q;
  default: return 1;
  }
}

static const DLTensor *rows_of_backward(const pegen_launch_request *request) {
  const pegen_grad_args *grad = request->args->grad;
  if (grad->q || grad->k) return grad->q ? grad->q_out : grad->k_out; /* of rows alone no others are looked at */
  return grad->q_out ? grad->q_out : grad->k_out;
}

static const struct launch_kind {
  pegen_argument_use use;
  int (*plan)(const pegen_launch_request *request, pegen_launch_run *run, void *context);
  size_t (*workspace)(const pegen_launch_request *request); /* 0 where it would be refused; NULL: never any */
} kinds[PEGEN_LAUNCH_COUNT] = {
#define KIND(entry, use, plan, bytes) [PEGEN_LAUNCH_##entry] = {PEGEN_USE_##use, pegen_launch_plan_##plan, bytes}
    KIND(encode, encode, encode, NULL),
    KIND(attention, attention, attention, pegen_launch_split_bytes),
    KIND(attention_finish, attention, attention_finish, pegen_launch_split_bytes),
    KIND(encode_backward, encode_backward, backward, pegen_launch_backward_bytes),
    KIND(encode_backward_finish, encode_backward, finish, pegen_launch_backward_bytes),
    KIND(attention_backward, attention_backward, attention_backward, pegen_launch_attention_bytes),
    KIND(attention_backward_finish, attention_backward, attention_backward_finish, pegen_launch_attention_bytes),
#undef KIND
};

int pegen_launch_plan(const pegen_launch_request *request, pegen_launch_run *run, void *context) {
  return kinds[request->entry].plan(request, run, context);
}

size_t pegen_launch_workspace(const pegen_launch_request *request) {
  if (request->entry == PEGEN_LAUNCH_NONE || !kinds[request->entry].workspace) return 0;
  return kinds[request->entry].workspace(request);
}

int pegen_launch_check(const pegen_launch_request *request) { return pegen_launch_plan(request, NULL, NULL); }

const DLTensor *pegen_launch_rows(const pegen_launch_request *request) {
  if (kinds[request->entry].use == PEGEN_USE_encode_backward) return rows_of_backward(request);
  return request->args->q ? request->args->q : request->args->k;
}

static int is_elsewhere(const DLTensor *t, const DLTensor *first, int (*fits)(DLDevice)) {
  return t && (!fits(t->device) || t->device.device_id != first->device.device_id);
}

int pegen_launch_on_device(const pegen_launch_request *request, int (*fits)(DLDevice)) {
  const pegen_args *args = request->args;
  pegen_args known;
  pegen_grad_args grad;
  const DLTensor *first = pegen_launch_rows(request);
  pegen_argument_use use = kinds[request->entry].use;
  memset(&known, 0, sizeof known);
  memset(&grad, 0, sizeof grad);
  memcpy(&known, args, args->struct_size < sizeof known ? args->struct_size : sizeof known);
  if (known.grad && use >= PEGEN_USE_encode_backward)
    memcpy(&grad, known.grad, known.grad->struct_size < sizeof grad ? known.grad->struct_size : sizeof grad);
  for (int i = 0; i < PEGEN_ARGUMENT_COUNT; i++) {
    const pegen_argument_row *row = &pegen_argument_rows[i];
    const void *given;
    int count = row->shape[0] == 'o' ? request->kernel->n_operands : pegen_launch_inputs_of(request->kernel);
    if (row->uses[use] == '.' || row->kind > PEGEN_ARGUMENT_LIST ||
        !(use == PEGEN_USE_encode_backward ? is_looked_at_backward : is_looked_at)(request, (pegen_argument)i))
      continue;
    memcpy(&given, pegen_argument_field(row, &known, &grad), sizeof given);
    if (!given) continue;
    if (row->kind == PEGEN_ARGUMENT_TENSOR && is_elsewhere(given, first, fits)) return 0;
    for (int n = 0; row->kind == PEGEN_ARGUMENT_LIST && n < count; n++)
      if (is_elsewhere(((const DLTensor *const *)given)[n], first, fits)) return 0;
  }
  return 1;
}
