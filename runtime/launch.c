/* launch.c: what is launched, by entry: who plans it (launch_encode.c, launch_attention.c, launch_gradient.c,
 * launch_attention_backward.c), and
 * which tensors of the call must be on one device; see launch.h. */
#include "launch.h"

#include "../kernel/backward.h"

/* Tensors of a call beside operands and inputs, some of them NULL. */
enum { MOST_TENSORS = 14 };
typedef const DLTensor *tensor_list[MOST_TENSORS];

static void set_rows_of(const pegen_args *args, tensor_list list) {
  list[0] = args->q;
  list[1] = args->k;
  list[2] = args->q || !args->k_positions ? args->positions : NULL;
  list[3] = args->k ? args->k_positions : NULL;
}

static void tensors_of_encode(const pegen_launch_request *request, tensor_list list) {
  const pegen_args *args = request->args;
  set_rows_of(args, list);
  list[4] = args->q_out;
  list[5] = args->k_out;
  list[6] = PEGEN_GIVEN(args, q_scale);
  list[7] = PEGEN_GIVEN(args, k_scale);
}

static void tensors_of_attention(const pegen_launch_request *request, tensor_list list) {
  set_rows_of(request->args, list);
  if (!request->kernel->ptx->attention->placed) list[2] = list[3] = NULL;
  list[4] = request->args->v;
  list[5] = request->args->out;
  list[6] = PEGEN_GIVEN(request->args, lse);
}

static void tensors_of_backward(const pegen_launch_request *request, tensor_list list) {
  pegen_backward_call call;
  if (pegen_launch_check_backward(request, 1, &call)) return;
  set_rows_of(&call.args, list); /* gradients in the places of rows */
  list[4] = call.args.q_out;
  list[5] = call.args.k_out;
  int needs_input = pegen_launch_needs_input(request->kernel);
  if (!call.of_operands && !call.of_positions && !call.of_inputs && !needs_input) return;
  int is_kept = needs_input || pegen_launch_gradient_of(request->kernel)->needs_kept;
  list[6] = call.grad->positions;
  list[7] = call.grad->k_positions;
  list[8] = is_kept && call.grad->q_out ? request->args->q : NULL;
  list[9] = is_kept && call.grad->k_out ? request->args->k : NULL;
}

static void tensors_of_attention_backward(const pegen_launch_request *request, tensor_list list) {
  const pegen_grad_args *grad = request->args->grad;
  tensors_of_attention(request, list);
  list[7] = grad->out;
  list[8] = grad->lse;
  list[9] = grad->q;
  list[10] = grad->k;
  list[11] = grad->v;
  list[12] = grad->positions;
  list[13] = grad->k_positions;
}

static const DLTensor *rows_of_call(const pegen_launch_request *request) {
  return request->args->q ? request->args->q : request->args->k;
}

static const DLTensor *rows_of_backward(const pegen_launch_request *request) {
  const pegen_grad_args *grad = request->args->grad;
  if (grad->q || grad->k) return grad->q ? grad->q_out : grad->k_out; /* of rows alone no others are looked at */
  return grad->q_out ? grad->q_out : grad->k_out;
}

static const struct launch_kind {
  int (*plan)(const pegen_launch_request *request, pegen_launch_run *run, void *context);
  void (*tensors)(const pegen_launch_request *request, tensor_list list); /* of a call that was checked */
  const DLTensor *(*rows)(const pegen_launch_request *request);           /* those that tell the device */
  size_t (*workspace)(const pegen_launch_request *request); /* 0 where it would be refused; NULL: never any */
} kinds[PEGEN_LAUNCH_COUNT] = {
    [PEGEN_LAUNCH_encode] = {pegen_launch_plan_encode, tensors_of_encode, rows_of_call, NULL},
    [PEGEN_LAUNCH_attention] = {pegen_launch_plan_attention, tensors_of_attention, rows_of_call,
                                pegen_launch_split_bytes},
    [PEGEN_LAUNCH_attention_finish] = {pegen_launch_plan_attention_finish, tensors_of_attention, rows_of_call,
                                       pegen_launch_split_bytes},
    [PEGEN_LAUNCH_encode_backward] = {pegen_launch_plan_backward, tensors_of_backward, rows_of_backward,
                                      pegen_launch_backward_bytes},
    [PEGEN_LAUNCH_encode_backward_finish] = {pegen_launch_plan_finish, tensors_of_backward, rows_of_backward,
                                             pegen_launch_backward_bytes},
    [PEGEN_LAUNCH_attention_backward] = {pegen_launch_plan_attention_backward, tensors_of_attention_backward,
                                         rows_of_call, pegen_launch_attention_bytes},
    [PEGEN_LAUNCH_attention_backward_finish] = {pegen_launch_plan_attention_backward_finish,
                                                tensors_of_attention_backward, rows_of_call,
                                                pegen_launch_attention_bytes},
};

int pegen_launch_plan(const pegen_launch_request *request, pegen_launch_run *run, void *context) {
  return kinds[request->entry].plan(request, run, context);
}

size_t pegen_launch_workspace(const pegen_launch_request *request) {
  if (request->entry == PEGEN_LAUNCH_NONE || !kinds[request->entry].workspace) return 0;
  return kinds[request->entry].workspace(request);
}

int pegen_launch_check(const pegen_launch_request *request) { return pegen_launch_plan(request, NULL, NULL); }

const DLTensor *pegen_launch_rows(const pegen_launch_request *request) { return kinds[request->entry].rows(request); }

static int is_backward(pegen_launch_entry entry) {
  return entry != PEGEN_LAUNCH_encode && entry != PEGEN_LAUNCH_attention && entry != PEGEN_LAUNCH_attention_finish;
}

static int is_elsewhere(const DLTensor *t, const DLTensor *first, int (*fits)(DLDevice)) {
  return t && (!fits(t->device) || t->device.device_id != first->device.device_id);
}

int pegen_launch_on_device(const pegen_launch_request *request, int (*fits)(DLDevice)) {
  const pegen_args *args = request->args;
  tensor_list tensors = {NULL};
  kinds[request->entry].tensors(request, tensors);
  const DLTensor *first = pegen_launch_rows(request);
  for (int i = 0; i < MOST_TENSORS; i++)
    if (is_elsewhere(tensors[i], first, fits)) return 0;
  for (int i = 0; i < request->kernel->n_operands; i++)
    if (is_elsewhere(args->operands[i], first, fits)) return 0;
  DLTensor *const *gained = is_backward(request->entry) ? args->grad->operands : NULL;
  for (int i = 0; gained && i < request->kernel->n_operands; i++)
    if (is_elsewhere(gained[i], first, fits)) return 0;
  /* Of columns' gradients, inputs are read where rows of q come in; of rows that turn by them always;
   * of attention's they are where it is. */
  int of_columns = request->entry == PEGEN_LAUNCH_encode_backward && pegen_launch_has_columns(request->kernel);
  int of_attention =
      request->entry == PEGEN_LAUNCH_attention_backward || request->entry == PEGEN_LAUNCH_attention_backward_finish;
  int turns_rows = pegen_launch_turns_rows(request->kernel);
  int has_gained = of_columns || of_attention || (turns_rows && is_backward(request->entry));
  int reads_inputs = turns_rows || (of_columns ? args->grad->q_out != NULL : args->q != NULL);
  for (int i = 0; reads_inputs && i < pegen_launch_inputs_of(request->kernel); i++) {
    if (is_elsewhere(args->inputs[i], first, fits)) return 0;
    if (has_gained && args->grad->inputs && is_elsewhere(args->grad->inputs[i], first, fits)) return 0;
  }
  return 1;
}
