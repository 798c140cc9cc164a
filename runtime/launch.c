/* launch.c: entry, grid and parameters of a call; see launch.h and kernel/launch.h.
 *
 * The work of a call lies on a plane: along x the threads that share nothing (units of
 * channels, tokens, and batches or heads), along y the rows that could share a rotor.
 * Few rows a thread make many threads and many rotors, many rows the opposite: y is cut
 * just finely enough to keep the device busy.
 */
#include "launch.h"

#include "launch_names.h"

#include "../kernel/backward.h"
#include "../kernel/driver.h"
#include "../kernel/loop.h"

#include <string.h>

/* Threads along x and rows are counted in 32 bits, and y has 16. */
static const int64_t MOST_X = INT32_MAX - 1024, MOST_ROWS = INT32_MAX / 2, MOST_Y = 65535;

/* One pass over the tensors that share tokens and positions. */
typedef struct pass {
  const pegen_launch_request *request;
  const pegen_call *call;
  const pegen_stream *stream[2];
  int n;
} pass;

static int64_t at_least_one(int64_t x) { return x > 1 ? x : 1; }
static int64_t smaller(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t divide_up(int64_t x, int64_t y) { return (x + y - 1) / y; }

/* Whether rows of a thread are batches of one head. */
static int by_head(const pegen_ptx *ptx) { return ptx->per_head == PEGEN_PER_HEAD_ALL; }

/* ---- checks ---- */

static int check(const pegen_kernel *kernel, const pegen_args *args, pegen_call *call) {
  pegen_driver driver;
  memset(&driver, 0, sizeof driver);
  driver.kernel = kernel;
  driver.per_head = kernel->ptx->per_head;
  return pegen_check(&driver, args, 0, 1, 0, call);
}

/* Of a form that has gradients of rows alone, as the entries for them. */
static int check_backward(const pegen_launch_request *request, pegen_backward_call *call) {
  pegen_driver driver;
  pegen_blades rows_alone;
  memset(&driver, 0, sizeof driver);
  memset(&rows_alone, 0, sizeof rows_alone);
  driver.kernel = request->kernel;
  driver.per_head = request->kernel->ptx->per_head;
  driver.form = &rows_alone;
  return pegen_check_backward(&driver, request->args, 0, 1, 0, call);
}

int pegen_launch_check(const pegen_launch_request *request) {
  pegen_call call;
  pegen_backward_call back;
  if (request->entry == PEGEN_LAUNCH_ATTENTION) return pegen_launch_plan_attention(request, NULL, NULL);
  if (request->entry == PEGEN_LAUNCH_ENCODE_BACKWARD) return check_backward(request, &back);
  return check(request->kernel, request->args, &call);
}

/* ---- what there is ---- */

const pegen_ptx_attention *pegen_launch_attention_of(const pegen_kernel *kernel) {
  return kernel->attention ? kernel->ptx->attention
                           : NULL; /* older kernels with PTX had no attention, nor that field */
}

static int has_field(const pegen_kernel *kernel, size_t end) { return kernel->struct_size >= end; }
#define HAS(kernel, field) has_field(kernel, offsetof(pegen_kernel, field) + sizeof(kernel)->field)

/* Entries of gradients, the last ones; older kernels with PTX had none, nor that field. */
static int n_backward_of(const pegen_kernel *kernel) {
  return HAS(kernel, encode_backward) && kernel->encode_backward ? kernel->ptx->n_backward : 0;
}

pegen_launch_entry pegen_launch_find(const pegen_kernel *kernel, const char *name) {
  const pegen_ptx_attention *attention = pegen_launch_attention_of(kernel);
  int encodes = attention ? attention->first_entry > 0 : kernel->ptx->n_entries > 0;
  if (encodes && (!name || strcmp(name, "encode") == 0)) return PEGEN_LAUNCH_ENCODE;
  if (name && strcmp(name, "encode_backward") == 0)
    return n_backward_of(kernel) ? PEGEN_LAUNCH_ENCODE_BACKWARD : PEGEN_LAUNCH_NONE;
  return attention && (!name || strcmp(name, "attention") == 0) ? PEGEN_LAUNCH_ATTENTION : PEGEN_LAUNCH_NONE;
}

/* Whether encode appends columns: then rows of q and k are not encoded alike. */
static int has_columns(const pegen_kernel *kernel) {
  return HAS(kernel, n_columns) && (kernel->n_columns > 0 || (HAS(kernel, widths) && kernel->widths));
}

/* Inputs of a query; older kernels have none. */
static int n_inputs_of(const pegen_kernel *kernel) { return HAS(kernel, n_inputs) ? kernel->n_inputs : 0; }

/* ---- devices ---- */

static int is_elsewhere(const DLTensor *t, const DLTensor *first, int (*fits)(DLDevice)) {
  return t && (!fits(t->device) || t->device.device_id != first->device.device_id);
}

int pegen_launch_on_device(const pegen_launch_request *request, int (*fits)(DLDevice)) {
  const pegen_kernel *kernel = request->kernel;
  const pegen_args *args = request->args;
  pegen_backward_call back;
  if (request->entry == PEGEN_LAUNCH_ENCODE_BACKWARD) {
    if (check_backward(request, &back)) return 0;
    args = &back.args; /* gradients in the places of rows */
  }
  int attends = request->entry == PEGEN_LAUNCH_ATTENTION, placed = !attends || kernel->ptx->attention->placed;
  const DLTensor *positions[] = {args->q || !args->k_positions ? args->positions : NULL,
                                 args->k ? args->k_positions : NULL};
  const DLTensor *tensors[] = {args->q,
                               args->k,
                               attends ? args->v : args->q_out,
                               attends ? args->out : args->k_out,
                               placed ? positions[0] : NULL,
                               placed ? positions[1] : NULL,
                               attends ? NULL : PEGEN_GIVEN(args, q_scale),
                               attends ? NULL : PEGEN_GIVEN(args, k_scale)};
  const DLTensor *first = args->q ? args->q : args->k;
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
    if (is_elsewhere(tensors[i], first, fits)) return 0;
  for (int i = 0; i < kernel->n_operands; i++)
    if (is_elsewhere(args->operands[i], first, fits)) return 0;
  for (int i = 0; args->q && i < n_inputs_of(kernel); i++)
    if (is_elsewhere(args->inputs[i], first, fits)) return 0;
  return 1;
}

const DLTensor *pegen_launch_rows(const pegen_launch_request *request) {
  const pegen_args *args = request->args;
  if (request->entry == PEGEN_LAUNCH_ENCODE_BACKWARD)
    return args->grad->q ? args->grad->q_out : args->grad->k_out; /* no others are looked at */
  return args->q ? args->q : args->k;
}

/* ---- entry ---- */

static int is_aligned(const pegen_view *view, int64_t access) {
  uint64_t bits = (uint64_t)view->base;
  for (int i = 0; i < PEGEN_VIEW_DIMS; i++) bits |= (uint64_t)view->stride[i];
  return (bits & (uint64_t)(access - 1)) == 0;
}

/* Bytes of an access to what is written for those of one to what is read. */
static int64_t out_access(const pegen_stream *stream, int64_t access) {
  return pegen_converts(stream)
             ? access * pegen_number_at(stream->out_type)->bits / pegen_number_at(stream->in_type)->bits
             : access;
}

static const pegen_ptx_entry *choose_entry(const pass *p, uint32_t dtype) {
  const pegen_ptx *ptx = p->request->kernel->ptx;
  const pegen_ptx_attention *attention = pegen_launch_attention_of(p->request->kernel);
  int n_backward = n_backward_of(p->request->kernel), end = attention ? attention->first_entry : ptx->n_entries;
  int is_backward = p->request->entry == PEGEN_LAUNCH_ENCODE_BACKWARD;
  for (int i = is_backward ? end - n_backward : 0; i < (is_backward ? end : end - n_backward); i++) {
    const pegen_ptx_entry *entry = &ptx->entries[i];
    int fits = entry->dtype == dtype;
    for (int s = 0; fits && s < p->n; s++)
      fits = is_aligned(&p->stream[s]->in, entry->access) &&
             is_aligned(p->stream[s]->out, out_access(p->stream[s], entry->access));
    if (fits) return entry;
  }
  return NULL;
}

/* ---- parameters ---- */

static void set_tensor(int64_t *parameter, const pegen_stream *stream, int64_t batch) {
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

static void set_positions(int64_t *parameter, const pegen_stream *stream, int64_t batch) {
  if (stream->grid) return; /* all zero: the built-in grid */
  const pegen_view *positions = &stream->positions;
  parameter[PEGEN_PTX_POSITIONS] = (int64_t)positions->base + batch * positions->stride[PEGEN_POSITION_BATCH];
  parameter[PEGEN_PTX_POSITION_TYPE] = stream->position_type;
  parameter[PEGEN_PTX_POSITION_BATCH] = positions->stride[PEGEN_POSITION_BATCH];
  parameter[PEGEN_PTX_POSITION_TOKEN] = positions->stride[PEGEN_POSITION_TOKEN];
  parameter[PEGEN_PTX_POSITION_AXIS] = positions->stride[PEGEN_POSITION_AXIS];
}

/* Of the types that the check let through. */
static int64_t operand_type(DLDataType type) { return pegen_number_at(pegen_number_of(type))->operand; }

void pegen_launch_set_operands(int64_t *parameter, const pegen_kernel *kernel, const pegen_args *args) {
  for (int i = 0; i < kernel->n_operands; i++) {
    const DLTensor *operand = args->operands[i];
    int64_t *of = parameter + i * PEGEN_PTX_OPERAND_COUNT;
    of[PEGEN_PTX_OPERAND_ADDRESS] = (int64_t)((uintptr_t)operand->data + operand->byte_offset);
    of[PEGEN_PTX_OPERAND_TYPE] = operand_type(operand->dtype);
  }
}

void pegen_launch_set_inputs(int64_t *parameter, const pegen_launch_request *request, const pegen_view *inputs,
                             int64_t batch) {
  for (int i = 0; i < n_inputs_of(request->kernel); i++) {
    const pegen_view *view = &inputs[i];
    int64_t *of = parameter + i * PEGEN_PTX_INPUT_COUNT;
    of[PEGEN_PTX_INPUT_ADDRESS] = (int64_t)view->base + batch * view->stride[PEGEN_BATCH];
    of[PEGEN_PTX_INPUT_TYPE] = operand_type(request->args->inputs[i]->dtype);
    of[PEGEN_PTX_INPUT_BATCH] = view->stride[PEGEN_BATCH];
    of[PEGEN_PTX_INPUT_TOKEN] = view->stride[PEGEN_TOKEN];
    of[PEGEN_PTX_INPUT_HEAD] = view->stride[PEGEN_HEAD];
  }
}

/* ---- grid ---- */

/* Rows of a thread: just few enough that the device is busy, whole groups of those under way together. */
static int64_t rows_of_thread(const pass *p, const pegen_ptx_entry *entry, int64_t threads, int64_t rows) {
  int64_t groups = smaller(divide_up(p->request->threads, threads), divide_up(rows, entry->flight));
  int64_t each = divide_up(rows, at_least_one(groups));
  each = divide_up(each, entry->flight) * entry->flight;
  return each > divide_up(rows, MOST_Y) ? each : divide_up(rows, MOST_Y);
}

/* Blocks along x for this many tokens of batches, or of heads where rotors differ by head. */
static int64_t blocks_of(const pegen_ptx *ptx, const pegen_ptx_entry *entry, int64_t columns) {
  enum { WARP = 32 };
  return entry->columns ? divide_up(columns, entry->columns * (ptx->block / WARP))
                        : divide_up(columns * entry->units, ptx->block);
}

static int first_scale(const pegen_kernel *kernel) {
  return PEGEN_PTX_OPERANDS + kernel->n_operands * PEGEN_PTX_OPERAND_COUNT +
         n_inputs_of(kernel) * PEGEN_PTX_INPUT_COUNT;
}

static int launch_batches(const pass *p, const pegen_ptx_entry *entry, int64_t first, int64_t batches,
                          pegen_launch_run *run, void *context) {
  const pegen_ptx *ptx = p->request->kernel->ptx;
  const pegen_stream *stream = p->stream[0];
  int64_t tokens = stream->in.size[PEGEN_TOKEN], rows = 0, others = by_head(ptx) ? p->request->kernel->heads : batches;
  int64_t blocks = blocks_of(ptx, entry, tokens * others);
  pegen_launch_step step;
  memset(&step, 0, sizeof step);
  step.entry = entry;
  for (int s = 0; s < p->n; s++) {
    int is_second = s || (has_columns(p->request->kernel) && p->stream[s]->keys);
    set_tensor(step.parameter + (is_second ? PEGEN_PTX_K : PEGEN_PTX_Q), p->stream[s], first);
    if (pegen_converts(p->stream[s]) && !p->stream[s]->scale.empty)
      step.parameter[first_scale(p->request->kernel) + (is_second ? PEGEN_PTX_SCALE_K : PEGEN_PTX_SCALE_Q)] =
          (int64_t)p->stream[s]->scale.base;
    rows += by_head(ptx) ? batches : p->stream[s]->in.size[PEGEN_HEAD];
  }
  set_positions(step.parameter, stream, first);
  pegen_launch_set_operands(step.parameter + PEGEN_PTX_OPERANDS, p->request->kernel, p->request->args);
  if (p->request->args->q)
    pegen_launch_set_inputs(step.parameter + PEGEN_PTX_OPERANDS +
                                p->request->kernel->n_operands * PEGEN_PTX_OPERAND_COUNT,
                            p->request, p->call->input, first);
  int64_t each = rows_of_thread(p, entry, blocks * ptx->block, rows);
  if (by_head(ptx) && step.parameter[PEGEN_PTX_POSITION_BATCH]) each = p->n; /* a batch has its own rotors */
  step.parameter[PEGEN_PTX_BATCHES] = batches;
  step.parameter[PEGEN_PTX_TOKENS] = tokens;
  step.parameter[PEGEN_PTX_ROWS] = each;
  step.grid_x = (uint32_t)blocks;
  step.grid_y = (uint32_t)divide_up(rows, each);
  return run(context, &step);
}

/* Batches at a time as the grid allows: as a rule all of them. Without run: only whether it would. */
static int launch_pass(const pass *p, uint32_t dtype, pegen_launch_run *run, void *context) {
  if (p->n == 0) return 0;
  const pegen_kernel *kernel = p->request->kernel;
  const pegen_stream *stream = p->stream[0];
  const pegen_ptx_entry *entry = choose_entry(p, dtype);
  if (!entry) return PEGEN_ERROR_DTYPE;
  int64_t batches = stream->in.size[PEGEN_BATCH], tokens = stream->in.size[PEGEN_TOKEN];
  int64_t per_batch =
      blocks_of(kernel->ptx, entry, tokens * (by_head(kernel->ptx) ? kernel->heads : 1)) * kernel->ptx->block;
  int64_t heads = 0;
  for (int s = 0; s < p->n; s++) heads += p->stream[s]->in.size[PEGEN_HEAD];
  if (per_batch > MOST_X || heads > MOST_ROWS) return PEGEN_ERROR_SIZE_OVERFLOW;
  int64_t most = by_head(kernel->ptx) ? MOST_Y : MOST_X / per_batch;
  for (int64_t first = 0; run && first < batches; first += most) {
    int error = launch_batches(p, entry, first, smaller(most, batches - first), run, context);
    if (error) return error;
  }
  return 0;
}

static uint32_t pass_dtype(const pass *p) {
  return p->n ? pegen_number_pair(p->stream[0]->in_type, p->stream[0]->out_type) : 0;
}

static int launch_passes(const pegen_launch_request *request, const pegen_call *call, pegen_launch_run *run,
                         void *context) {
  pass p = {.request = request, .call = call};
  int error = 0;
  for (int s = 0; s < 2 && !error; s++) {
    const pegen_stream *stream = &call->stream[s];
    /* An entry writes one type. */
    if (p.n > 0 && stream->given && p.stream[0]->out_type != stream->out_type) {
      error = launch_pass(&p, pass_dtype(&p), run, context);
      p.n = 0;
    }
    if (error) break;
    if (stream->given && !stream->in.empty) p.stream[p.n++] = stream;
    if (!call->joint || s == 1) {
      error = launch_pass(&p, pass_dtype(&p), run, context);
      p.n = 0;
    }
  }
  return error;
}

/* A launch whose rows are gradients. */
static int plan_backward(const pegen_launch_request *request, pegen_launch_run *run, void *context) {
  pegen_backward_call call;
  int error = check_backward(request, &call);
  pegen_launch_request rows = *request;
  rows.args = &call.args;
  if (!error) error = launch_passes(&rows, &call.rows, NULL, NULL);
  return error ? error : launch_passes(&rows, &call.rows, run, context);
}

int pegen_launch_plan(const pegen_launch_request *request, pegen_launch_run *run, void *context) {
  pegen_call call;
  if (request->entry == PEGEN_LAUNCH_ATTENTION) return pegen_launch_plan_attention(request, run, context);
  if (request->entry == PEGEN_LAUNCH_ENCODE_BACKWARD) return plan_backward(request, run, context);
  int error = check(request->kernel, request->args, &call);
  if (!error) error = launch_passes(request, &call, NULL, NULL); /* k is refused before q is launched */
  return error ? error : launch_passes(request, &call, run, context);
}
