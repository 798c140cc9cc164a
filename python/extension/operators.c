/* operators.c: libpegen_torch, the operators of pegen_kernels.torch on processors and on CUDA devices
 * (python/pegen_kernels/torch/ defines them, and has their fakes, gradients and batches). Each is a boxed kernel of
 * PyTorch's stable C interface: arguments stand on a stack in the order of the schema, references on it are taken,
 * results are left there.
 */
#include "call.h"

/* What every operator has: positions, operands, and behind them (of all but attention's, whose schema has a list of
 * them) inputs. */
static void take_places(struct call *call, torch_value positions, torch_value operands, int n_inputs) {
  pegen_args *args = &call->args;
  args->positions = optional_of(call, positions);
  int n = list_of(call, operands, call->operands, false, "operands");
  args->operands = call->operands;
  args->n_operands = n - n_inputs;
  args->inputs = call->operands + args->n_operands;
  args->n_inputs = n_inputs;
  int expected = call->kernel->n_operands + n_inputs;
  if (n != expected) fail_call(call, "operands: %d given; %s takes %d", n, call->kernel->name, expected);
}

/* Channels of an encoded row, of which there may be more of 16 bits. */
static int64_t width_of(const pegen_kernel *kernel, const DLTensor *rows) {
  if (!kernel->widths || !rows) return kernel->out_dim;
  return kernel->widths[rows->dtype.bits == 32 ? 0 : rows->dtype.code == kDLBfloat ? 1 : 2].out_dim;
}

/* encode(Tensor q, Tensor k, Tensor? positions, Tensor[] operands, str kernel) -> (Tensor, Tensor); encode_one without
 * k
 */
static void encode_rows(torch_value *stack, int n) {
  struct call call;
  begin_call(&call, stack[n + 2]);
  DLTensor *q = rows_of(&call, stack[0]), *k = n > 1 ? rows_of(&call, stack[1]) : NULL;
  take_places(&call, stack[n], stack[n + 1], call.kernel->n_inputs);
  call.args.q = q;
  call.args.k = k;
  call.args.q_out = new_rows(&call, q, width_of(call.kernel, q));
  call.args.k_out = new_rows(&call, k, width_of(call.kernel, k));
  const struct torch_entry entry = {"encode", call.kernel->encode, NULL, call.kernel->workspace};
  run_entry(&call, &entry, count_elements(q) + count_elements(k));
  end_call(&call, stack, false);
}

static void encode(torch_value *stack, uint64_t n_arguments, uint64_t n_results) {
  (void)n_arguments, (void)n_results;
  encode_rows(stack, 2);
}

static void encode_one(torch_value *stack, uint64_t n_arguments, uint64_t n_results) {
  (void)n_arguments, (void)n_results;
  encode_rows(stack, 1);
}

/* encode_backward(Tensor grad_q, Tensor grad_k, Tensor? positions, Tensor[] operands, str kernel) -> (Tensor, Tensor);
 * encode_one_backward without grad_k */
static void backward_of_rows(torch_value *stack, int n) {
  struct call call;
  begin_call(&call, stack[n + 2]);
  const pegen_kernel *kernel = call.kernel;
  DLTensor *q = rows_of(&call, stack[0]), *k = n > 1 ? rows_of(&call, stack[1]) : NULL;
  take_places(&call, stack[n], stack[n + 1], kernel->n_inputs);
  call.args.grad = &call.grad;
  call.grad.q_out = q;
  call.grad.k_out = k;
  call.grad.q = new_rows(&call, q, kernel->head_dim);
  call.grad.k = new_rows(&call, k, kernel->head_dim);
  const struct torch_entry entry = {"encode_backward", kernel->encode_backward, NULL,
                                    kernel->encode_backward_workspace};
  run_entry(&call, &entry, count_elements(q) + count_elements(k));
  end_call(&call, stack, false);
}

static void encode_backward(torch_value *stack, uint64_t n_arguments, uint64_t n_results) {
  (void)n_arguments, (void)n_results;
  backward_of_rows(stack, 2);
}

static void encode_one_backward(torch_value *stack, uint64_t n_arguments, uint64_t n_results) {
  (void)n_arguments, (void)n_results;
  backward_of_rows(stack, 1);
}

/* encode_all_backward(Tensor[] gradients, Tensor[] kept, Tensor? positions, Tensor[] operands, bool from_input,
 * bool with_operands, bool with_positions, str kernel) -> Tensor[]: of rows, of operands and inputs, of positions */
static void encode_all_backward(torch_value *stack, uint64_t n_arguments, uint64_t n_results) {
  (void)n_arguments, (void)n_results;
  struct call call;
  begin_call(&call, stack[7]);
  const pegen_kernel *kernel = call.kernel;
  const DLTensor *gradients[MOST_LISTED] = {NULL}, *kept[MOST_LISTED] = {NULL};
  int n = list_of(&call, stack[0], gradients, true, "gradients");
  if (list_of(&call, stack[1], kept, true, "kept") != n) fail_call(&call, "kept: expected as many as gradients");
  take_places(&call, stack[2], stack[3], kernel->n_inputs);
  pegen_args *args = &call.args;
  pegen_grad_args *grad = &call.grad;
  args->grad = grad;
  grad->flags = stack[4] & 1 ? PEGEN_GRAD_FROM_INPUT : 0;
  args->q = kept[0];
  args->k = kept[1];
  grad->q_out = gradients[0];
  grad->k_out = gradients[1];
  grad->q = new_rows(&call, gradients[0], kernel->head_dim);
  grad->k = new_rows(&call, gradients[1], kernel->head_dim);
  if (stack[5] & 1) {
    for (int i = 0; i < args->n_operands; i++) call.grad_operands[i] = new_gradient(&call, args->operands[i]);
    grad->operands = call.grad_operands;
    for (int i = 0; i < args->n_inputs; i++) call.grad_inputs[i] = new_like(&call, args->inputs[i]);
    if (args->n_inputs) grad->inputs = call.grad_inputs;
  }
  if (stack[6] & 1) grad->positions = new_gradient(&call, args->positions);
  const struct torch_entry entry = {"encode_backward", kernel->encode_backward, kernel->encode_backward_finish,
                                    kernel->encode_backward_workspace};
  run_entry(&call, &entry, 2 * (count_elements(gradients[0]) + count_elements(gradients[1])));
  end_call(&call, stack, true);
}

/* What forward and backward of attention have: positions, k_positions, operands, inputs, causal, scale, from `stack`
 * on. */
static void take_attention(struct call *call, torch_value *stack) {
  pegen_args *args = &call->args;
  take_places(call, stack[0], stack[2], 0);
  args->k_positions = optional_of(call, stack[1]);
  args->n_inputs = list_of(call, stack[3], call->inputs, false, "inputs");
  args->inputs = call->inputs;
  if (args->n_inputs != call->kernel->n_inputs)
    fail_call(call, "inputs: %d given; %s takes %d", args->n_inputs, call->kernel->name, call->kernel->n_inputs);
  args->causal = stack[4] & 1;
  union {
    torch_value value;
    double number;
  } scale = {stack[5]};
  args->scale = scale.number;
}

static int64_t attention_work(const DLTensor *q, const DLTensor *k) {
  return count_elements(q) * (k && k->ndim > 2 ? k->shape[2] : 1) / 8;
}

/* Boundaries of sequences, the last arguments of attention's operators. */
static void take_bounds(struct call *call, torch_value *stack) {
  call->args.cu_seqlens = optional_of(call, stack[0]);
  call->args.k_cu_seqlens = optional_of(call, stack[1]);
}

/* attention(Tensor q, Tensor k, Tensor v, Tensor? positions, Tensor? k_positions, Tensor[] operands, Tensor[] inputs,
 * bool causal, float scale, str kernel, Tensor? cu_seqlens=None, Tensor? k_cu_seqlens=None) -> Tensor;
 * attention_with_lse -> (Tensor, Tensor) */
static void attend(torch_value *stack, bool with_lse) {
  struct call call;
  begin_call(&call, stack[9]);
  pegen_args *args = &call.args;
  DLTensor *q = rows_of(&call, stack[0]), *k = rows_of(&call, stack[1]), *v = rows_of(&call, stack[2]);
  take_attention(&call, stack + 3);
  take_bounds(&call, stack + 10);
  args->q = q;
  args->k = k;
  args->v = v;
  args->out = new_rows(&call, q, last_size(v));
  if (with_lse) args->lse = new_numbers(&call, q);
  const pegen_kernel *kernel = call.kernel;
  bool splits = kernel->struct_size >= offsetof(pegen_kernel, attention_workspace) + sizeof kernel->attention_workspace;
  pegen_workspace_entry *size = splits ? kernel->attention_workspace : NULL;
  if (is_on_device(&call) && args->cu_seqlens) size = NULL;
  args->split_keys = size != NULL;
  const struct torch_entry entry = {"attention", kernel->attention, size ? kernel->attention_finish : NULL,
                                    size ? size : kernel->workspace};
  run_entry(&call, &entry, attention_work(q, k));
  end_call(&call, stack, false);
}

static void attention(torch_value *stack, uint64_t n_arguments, uint64_t n_results) {
  (void)n_arguments, (void)n_results;
  attend(stack, false);
}

static void attention_with_lse(torch_value *stack, uint64_t n_arguments, uint64_t n_results) {
  (void)n_arguments, (void)n_results;
  attend(stack, true);
}

/* attention_backward(Tensor grad, Tensor? grad_lse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse,
 * Tensor? positions, Tensor? k_positions, Tensor[] operands, Tensor[] inputs, bool causal, float scale, str kernel,
 * int wanted=0, Tensor? cu_seqlens=None, Tensor? k_cu_seqlens=None) -> Tensor[]: of q, k, v, and of the operands and,
 * behind them, the inputs and positions and k_positions whose bits are in `wanted` */
static void attention_backward(torch_value *stack, uint64_t n_arguments, uint64_t n_results) {
  (void)n_arguments, (void)n_results;
  struct call call;
  begin_call(&call, stack[13]);
  pegen_args *args = &call.args;
  pegen_grad_args *grad = &call.grad;
  grad->out = rows_of(&call, stack[0]);
  grad->lse = optional_of(&call, stack[1]);
  DLTensor *q = rows_of(&call, stack[2]), *k = rows_of(&call, stack[3]), *v = rows_of(&call, stack[4]);
  args->out = rows_of(&call, stack[5]);
  args->lse = tensor_of(&call, stack[6]);
  take_attention(&call, stack + 7);
  take_bounds(&call, stack + 15);
  args->q = q;
  args->k = k;
  args->v = v;
  args->grad = grad;
  grad->q = new_rows(&call, q, last_size(q));
  grad->k = new_rows(&call, k, last_size(k));
  grad->v = new_rows(&call, v, last_size(v));
  const pegen_kernel *kernel = call.kernel;
  for (int i = 0; i < args->n_operands; i++) {
    call.grad_operands[i] = stack[14] >> i & 1 ? new_gradient(&call, args->operands[i]) : NULL;
    if (call.grad_operands[i]) grad->operands = call.grad_operands;
  }
  for (int i = 0; i < args->n_inputs; i++) {
    bool is_wanted = stack[14] >> args->n_operands >> i & 1,
         is_pair = kernel->inputs[i].size == PEGEN_SIZE_OF_KEYS; /* whose gradient is float32, whatever it is */
    call.grad_inputs[i] = is_wanted ? (is_pair ? new_gradient : new_like)(&call, args->inputs[i]) : NULL;
    if (is_wanted) grad->inputs = call.grad_inputs;
  }
  torch_value of_places = stack[14] >> args->n_operands >> args->n_inputs;
  if (of_places & 1) grad->positions = new_gradient(&call, args->positions);
  if (of_places & 2) grad->k_positions = new_gradient(&call, args->k_positions);
  pegen_entry *finish = grad->operands || grad->inputs || of_places ? kernel->attention_backward_finish : NULL;
  const struct torch_entry entry = {"attention_backward", kernel->attention_backward, finish,
                                    kernel->attention_backward_workspace};
  run_entry(&call, &entry, 3 * attention_work(q, k));
  end_call(&call, stack, true);
}

/* ---- what Python calls ---- */

__attribute__((visibility("default"))) const char *pegen_torch_start(const struct torch_answers *answers);
__attribute__((visibility("default"))) int pegen_torch_add(const char *name, int device, const pegen_kernel *kernel);

static const char *register_operators(const char *name_space, const char *dispatch_key) {
  static const struct {
    const char *name;
    torch_kernel *run;
  } operators[] = {
#define OPERATOR(name) {#name, name}, {#name ".kernel", name}, {#name ".alone", name}
      OPERATOR(encode),
      OPERATOR(encode_one),
      OPERATOR(encode_backward),
      OPERATOR(encode_one_backward),
      OPERATOR(encode_all_backward),
      OPERATOR(attention),
      OPERATOR(attention_with_lse),
      OPERATOR(attention_backward)
#undef OPERATOR
  };
  torch_library *library = NULL; /* kept for as long as the process lives: it holds the operators */
  if (torch.library_init_impl(name_space, dispatch_key, __FILE__, __LINE__, &library)) return "library_init_impl";
  for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
    if (torch.library_impl(library, operators[i].name, operators[i].run, TORCH_INTERFACE)) return operators[i].name;
  return NULL;
}

/* NULL, or why the operators cannot be had from here: what the PyTorch of this process does not have. */
const char *pegen_torch_start(const struct torch_answers *answers) {
  const char *missing = torch_find_shim();
  if (missing) return missing;
  set_answers(answers);
  missing = register_operators(answers->operators, "CPU");
  return missing ? missing : register_operators(answers->operators, "CUDA");
}

/* 0 where there is no memory. */
int pegen_torch_add(const char *name, int device, const pegen_kernel *kernel) {
  return add_kernel(name, device, kernel);
}
