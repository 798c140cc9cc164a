/* launch_parameters.c: what launches of all entries set alike; see launch.h and kernel/launch.h. */
#include "launch.h"

#include "../kernel/check_attention.h"
#include "../kernel/driver.h"
#include "../kernel/loop.h"

#include <string.h>

pegen_launch_step pegen_launch_threads(const pegen_kernel *kernel, const pegen_ptx_entry *entry, int64_t threads) {
  pegen_launch_step step;
  memset(&step, 0, sizeof step);
  step.entry = entry;
  step.grid_x = (uint32_t)pegen_divide_up(threads, kernel->ptx->block);
  step.grid_y = 1;
  return step;
}

pegen_launch_step pegen_launch_sums(const pegen_kernel *kernel, const char *word, int64_t from, int64_t to,
                                    int64_t numbers, int64_t chunks) {
  const pegen_ptx_entry *entry = &kernel->ptx->entries[pegen_launch_next(kernel, word, 0)];
  pegen_launch_step step = pegen_launch_threads(kernel, entry, pegen_divide_up(chunks, PEGEN_PTX_SUM_MOST) * numbers);
  step.parameter[PEGEN_PTX_SUM_FROM] = from;
  step.parameter[PEGEN_PTX_SUM_TO] = to;
  step.parameter[PEGEN_PTX_SUM_NUMBERS] = numbers;
  step.parameter[PEGEN_PTX_SUM_CHUNKS] = chunks;
  return step;
}

int pegen_launch_turns_rows(const pegen_kernel *kernel) { return kernel->ptx->per_head == PEGEN_PER_HEAD_ROWS; }

void pegen_launch_driver(const pegen_kernel *kernel, pegen_driver *driver) {
  memset(driver, 0, sizeof *driver);
  driver->kernel = kernel;
  driver->has_sides = pegen_launch_has_sides(kernel);
  driver->turns_rows = pegen_launch_turns_rows(kernel);
  driver->per_head = !driver->turns_rows ? kernel->ptx->per_head
                     : kernel->heads     ? PEGEN_PER_HEAD_ALL
                                         : PEGEN_PER_HEAD_NONE;
}

int pegen_launch_inputs_of(const pegen_kernel *kernel) {
  return PEGEN_LAUNCH_HAS(kernel, n_inputs) ? kernel->n_inputs : 0;
}

int pegen_launch_behind_inputs(const pegen_kernel *kernel, int operands) {
  return pegen_ptx_behind_inputs(operands, kernel->n_operands, pegen_launch_inputs_of(kernel));
}

int pegen_launch_is_aligned(const pegen_view *view, int64_t access) {
  uint64_t bits = (uint64_t)view->base;
  for (int i = 0; i < PEGEN_VIEW_DIMS; i++) bits |= (uint64_t)view->stride[i];
  return view->empty || (bits & (uint64_t)(access - 1)) == 0;
}

void pegen_launch_set_tensor(int64_t *parameter, const pegen_stream *stream, int64_t batch) {
  const pegen_view *in = &stream->in, *out = stream->out;
  parameter[PEGEN_PTX_TENSOR_IN] = (int64_t)in->base + batch * in->stride[PEGEN_BATCH];
  parameter[PEGEN_PTX_TENSOR_OUT] = (int64_t)out->base + batch * out->stride[PEGEN_BATCH];
  parameter[PEGEN_PTX_TENSOR_HEADS] = in->size[PEGEN_HEAD];
  parameter[PEGEN_PTX_TENSOR_IN_BATCH] = in->stride[PEGEN_BATCH];
  parameter[PEGEN_PTX_TENSOR_IN_TOKEN] = in->stride[PEGEN_TOKEN];
  parameter[PEGEN_PTX_TENSOR_IN_HEAD] = in->stride[PEGEN_HEAD];
  parameter[PEGEN_PTX_TENSOR_OUT_BATCH] = out->stride[PEGEN_BATCH];
  parameter[PEGEN_PTX_TENSOR_OUT_TOKEN] = out->stride[PEGEN_TOKEN];
  parameter[PEGEN_PTX_TENSOR_OUT_HEAD] = out->stride[PEGEN_HEAD];
}

void pegen_launch_set_rows(int64_t *parameter, const pegen_view *rows, int64_t batch) {
  parameter[PEGEN_PTX_ROWS_ADDRESS] = (int64_t)rows->base + batch * rows->stride[PEGEN_BATCH];
  parameter[PEGEN_PTX_ROWS_BATCH] = rows->stride[PEGEN_BATCH];
  parameter[PEGEN_PTX_ROWS_TOKEN] = rows->stride[PEGEN_TOKEN];
  parameter[PEGEN_PTX_ROWS_HEAD] = rows->stride[PEGEN_HEAD];
}

void pegen_launch_set_positions(int64_t *parameter, const pegen_view *view, int64_t type, int64_t batch) {
  enum { ADDRESS, TYPE, BATCH, TOKEN, AXIS }; /* ORDER PEGEN_PTX_POSITIONS, PEGEN_PTX_POSITIONS_OUT */
  if (type < 0 || view->empty) return;
  parameter[ADDRESS] = (int64_t)view->base + batch * view->stride[PEGEN_POSITION_BATCH];
  parameter[TYPE] = type;
  parameter[BATCH] = view->stride[PEGEN_POSITION_BATCH];
  parameter[TOKEN] = view->stride[PEGEN_POSITION_TOKEN];
  parameter[AXIS] = view->stride[PEGEN_POSITION_AXIS];
}

pegen_launch_step pegen_launch_gained_positions(const pegen_kernel *kernel, const char *word, const pegen_view *out,
                                                int is_f64, const pegen_launch_shares *of) {
  int64_t sets = out->size[PEGEN_POSITION_BATCH], tokens = out->size[PEGEN_POSITION_TOKEN];
  const pegen_ptx_entry *entry = &kernel->ptx->entries[pegen_launch_next(kernel, word, 0)];
  pegen_launch_step step = pegen_launch_threads(kernel, entry, sets * tokens * out->size[PEGEN_POSITION_AXIS]);
  step.parameter[PEGEN_PTX_POSITIONS_SHARES] = of->at;
  step.parameter[PEGEN_PTX_POSITIONS_SETS] = sets;
  step.parameter[PEGEN_PTX_POSITIONS_BATCHES] = of->batches / sets;
  step.parameter[PEGEN_PTX_POSITIONS_TOKENS] = tokens;
  step.parameter[PEGEN_PTX_POSITIONS_COUNT] = of->count;
  step.parameter[PEGEN_PTX_POSITIONS_ADDS] = of->adds;
  pegen_launch_set_positions(step.parameter + PEGEN_PTX_POSITIONS_OUT, out,
                             is_f64 ? PEGEN_PTX_OPERAND_F64 : PEGEN_PTX_OPERAND_F32, 0);
  return step;
}

void pegen_launch_set_origin(int64_t *parameter, const pegen_kernel *kernel, const pegen_origin *o, int64_t batch) {
  if (!pegen_has_origin(kernel) || o->type < 0) return; /* all zero: the description's own */
  int64_t step, middle = pegen_middle_token(o->view.size[PEGEN_POSITION_TOKEN], kernel->skip_tokens, &step),
                of_token = o->view.stride[PEGEN_POSITION_TOKEN],
                of_batch = o->is_given ? of_token : o->view.stride[PEGEN_POSITION_BATCH];
  if (!o->is_given && middle < 0) return;
  parameter[0] = (int64_t)o->view.base + batch * of_batch + (o->is_given ? 0 : (middle - step) * of_token);
  parameter[PEGEN_PTX_POSITION_TYPE - PEGEN_PTX_POSITIONS] = o->type;
  parameter[PEGEN_PTX_POSITION_BATCH - PEGEN_PTX_POSITIONS] = of_batch;
  parameter[PEGEN_PTX_POSITION_TOKEN - PEGEN_PTX_POSITIONS] = o->is_given ? 0 : step * of_token;
  parameter[PEGEN_PTX_POSITION_AXIS - PEGEN_PTX_POSITIONS] = o->view.stride[PEGEN_POSITION_AXIS];
}

/* Returns the PEGEN_PTX_OPERAND_ of an operand's type, which is one that the check let through. */
static int64_t operand_type(DLDataType type) { return pegen_number_at(pegen_number_of(type))->operand; }

void pegen_launch_set_operands(int64_t *parameter, const pegen_kernel *kernel, const pegen_args *args) {
  for (int i = 0; i < kernel->n_operands; i++) {
    const DLTensor *operand = args->operands[i];
    int64_t *of = parameter + i * PEGEN_PTX_OPERAND_COUNT;
    of[PEGEN_PTX_OPERAND_ADDRESS] = (int64_t)((uintptr_t)operand->data + operand->byte_offset);
    of[PEGEN_PTX_OPERAND_TYPE] = operand_type(operand->dtype);
  }
}

void pegen_launch_set_gained(int64_t *parameter, const pegen_kernel *kernel, const pegen_grad_args *grad) {
  for (int i = 0; i < kernel->n_operands; i++) {
    const DLTensor *tensor = grad->operands[i];
    int64_t *of = parameter + i * PEGEN_PTX_OPERAND_COUNT;
    if (!tensor) continue;
    of[PEGEN_PTX_OPERAND_ADDRESS] = (int64_t)((uintptr_t)tensor->data + tensor->byte_offset);
    of[PEGEN_PTX_OPERAND_TYPE] = tensor->dtype.bits == 64 ? PEGEN_PTX_OPERAND_F64 : PEGEN_PTX_OPERAND_F32;
  }
}

static void set_input(int64_t *parameter, const pegen_view *view, int64_t type, int64_t batch) {
  parameter[PEGEN_PTX_INPUT_ADDRESS] = (int64_t)view->base + batch * view->stride[PEGEN_BATCH];
  parameter[PEGEN_PTX_INPUT_TYPE] = type;
  parameter[PEGEN_PTX_INPUT_BATCH] = view->stride[PEGEN_BATCH];
  parameter[PEGEN_PTX_INPUT_TOKEN] = view->stride[PEGEN_TOKEN];
  parameter[PEGEN_PTX_INPUT_HEAD] = view->stride[PEGEN_HEAD];
}

void pegen_launch_set_inputs(int64_t *operands, const pegen_launch_request *request, const pegen_view *inputs,
                             int64_t batch) {
  int64_t *parameter = operands + pegen_ptx_inputs(0, request->kernel->n_operands);
  for (int i = 0; i < pegen_launch_inputs_of(request->kernel); i++)
    set_input(parameter + i * PEGEN_PTX_INPUT_COUNT, &inputs[i], operand_type(request->args->inputs[i]->dtype), batch);
}

void pegen_launch_set_gained_inputs(int64_t *parameter, const pegen_kernel *kernel, const int64_t *in,
                                    const pegen_view *gained) {
  for (int i = 0; i < pegen_launch_inputs_of(kernel); i++) {
    int at = i * PEGEN_PTX_INPUT_COUNT;
    if (!gained[i].empty && !pegen_launch_is_pair_input(kernel, i))
      set_input(parameter + at, &gained[i], in[at + PEGEN_PTX_INPUT_TYPE], 0);
  }
}

/* ---- attention ---- */

/* Whether attention's score reads inputs; older kernels' do not. */
int pegen_launch_has_pair_inputs(const pegen_kernel *kernel) {
  return PEGEN_LAUNCH_HAS(kernel, key_inputs) && kernel->pair_inputs;
}

int pegen_launch_is_pair_input(const pegen_kernel *kernel, int input) {
  return pegen_launch_has_pair_inputs(kernel) && pegen_input_is_of_pairs(kernel, input);
}

int pegen_launch_lse_parameter(const pegen_kernel *kernel) {
  return pegen_launch_behind_inputs(kernel, PEGEN_PTX_ATTENTION_OPERANDS);
}

static int64_t float_bits(double x) {
  float narrow = (float)x;
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof bits);
  return (int64_t)bits;
}

/* Heads of q that read one head of each input, 1 at least. */
static void set_groups(int64_t *parameter, const pegen_kernel *kernel, const pegen_attention_call *call) {
  int64_t *group = parameter + pegen_ptx_behind_lse(kernel->n_operands, kernel->n_inputs);
  for (int i = 0; i < kernel->n_inputs; i++) {
    int64_t heads = call->input[i].size[PEGEN_HEAD];
    group[i] = heads && call->q.size[PEGEN_HEAD] > heads ? call->q.size[PEGEN_HEAD] / heads : 1;
  }
}

void pegen_launch_set_attention(int64_t *parameter, const pegen_launch_request *request,
                                const pegen_attention_call *call) {
  parameter[PEGEN_PTX_ATTENTION_TOKENS] = call->q.size[PEGEN_TOKEN];
  parameter[PEGEN_PTX_ATTENTION_KEYS] = call->k.size[PEGEN_TOKEN];
  parameter[PEGEN_PTX_ATTENTION_HEADS] = call->q.size[PEGEN_HEAD];
  parameter[PEGEN_PTX_ATTENTION_GROUP] = call->group;
  parameter[PEGEN_PTX_ATTENTION_CAUSAL] = call->causal;
  parameter[PEGEN_PTX_ATTENTION_SCALE] = float_bits(call->scale * 1.44269504088896340736);
  pegen_launch_set_positions(parameter + PEGEN_PTX_ATTENTION_POSITIONS, &call->positions, call->position_type, 0);
  pegen_launch_set_positions(parameter + PEGEN_PTX_ATTENTION_KEY_POSITIONS,
                             call->k.empty ? &call->positions : &call->k_positions,
                             call->k.empty ? call->position_type : call->k_position_type, 0);
  pegen_launch_set_rows(parameter + PEGEN_PTX_ATTENTION_Q, &call->q, 0);
  pegen_launch_set_rows(parameter + PEGEN_PTX_ATTENTION_K, call->k.empty ? &call->q : &call->k, 0);
  pegen_launch_set_rows(parameter + PEGEN_PTX_ATTENTION_V, &call->v, 0);
  pegen_launch_set_rows(parameter + PEGEN_PTX_ATTENTION_OUT, &call->out, 0);
  pegen_launch_set_operands(parameter + PEGEN_PTX_ATTENTION_OPERANDS, request->kernel, request->args);
  pegen_launch_set_inputs(parameter + PEGEN_PTX_ATTENTION_OPERANDS, request, call->input, 0);
  if (!call->lse.empty) pegen_launch_set_rows(parameter + pegen_launch_lse_parameter(request->kernel), &call->lse, 0);
  if (pegen_launch_has_pair_inputs(request->kernel)) set_groups(parameter, request->kernel, call);
}
