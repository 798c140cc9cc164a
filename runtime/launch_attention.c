/* launch_attention.c: a call of attention becomes one launch: a block for each tile of queries of each head of each
 * batch, all along x; see launch.h and kernel/launch.h. Rows of k that are not there are never many: with no keys at
 * all, the row that a block reads before it counts them is q's. */
#include "launch.h"

#include "launch_names.h"

#include "../kernel/check_attention.h"
#include "../kernel/float_state.h"

#include <string.h>

/* Blocks are counted in 32 bits, tokens and heads too. */
static const int64_t MOST_BLOCKS = INT32_MAX - 1024;

static int check(const pegen_launch_request *request, pegen_attention_call *call) {
  const pegen_ptx_attention *of = request->kernel->ptx->attention;
  pegen_driver driver;
  pegen_attention form;
  memset(&driver, 0, sizeof driver);
  memset(&form, 0, sizeof form);
  form.value_dim = of->value_dim;
  form.placed = of->placed;
  form.by_rows = of->grid_only;
  form.indexed = of->indexed;
  driver.kernel = request->kernel;
  driver.per_head = request->kernel->ptx->per_head;
  driver.form = &form;
  return pegen_check_attention(&driver, request->args, 0, 1, call);
}

static int is_aligned(const pegen_view *view, int64_t access) {
  uint64_t bits = (uint64_t)view->base;
  for (int i = 0; i < PEGEN_VIEW_DIMS; i++) bits |= (uint64_t)view->stride[i];
  return view->empty || (bits & (uint64_t)(access - 1)) == 0;
}

static const pegen_ptx_entry *choose_entry(const pegen_kernel *kernel, const pegen_attention_call *call) {
  const pegen_ptx *ptx = kernel->ptx;
  for (int i = ptx->attention->first_entry; i < ptx->n_entries; i++) {
    const pegen_ptx_entry *entry = &ptx->entries[i];
    int64_t access = entry->access;
    if (entry->dtype == pegen_number_at(call->type)->dtype && is_aligned(&call->q, access) &&
        is_aligned(&call->k, access) && is_aligned(&call->v, access) && is_aligned(&call->out, access))
      return entry;
  }
  return NULL;
}

/* ---- parameters ---- */

static void set_rows(int64_t *parameter, const pegen_view *view) {
  parameter[PEGEN_PTX_ROWS_ADDRESS] = (int64_t)view->base;
  parameter[PEGEN_PTX_ROWS_BATCH] = view->stride[PEGEN_BATCH];
  parameter[PEGEN_PTX_ROWS_TOKEN] = view->stride[PEGEN_TOKEN];
  parameter[PEGEN_PTX_ROWS_HEAD] = view->stride[PEGEN_HEAD];
}

/* type -1: the built-in grid's, or none. */
static void set_places(int64_t *parameter, const pegen_view *view, int64_t type) {
  enum { ADDRESS, TYPE, BATCH, TOKEN, AXIS }; /* ORDER PEGEN_PTX_POSITIONS */
  if (type < 0 || view->empty) return;
  parameter[ADDRESS] = (int64_t)view->base;
  parameter[TYPE] = type;
  parameter[BATCH] = view->stride[PEGEN_POSITION_BATCH];
  parameter[TOKEN] = view->stride[PEGEN_POSITION_TOKEN];
  parameter[AXIS] = view->stride[PEGEN_POSITION_AXIS];
}

static int64_t float_bits(double x) {
  float narrow = (float)x;
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof bits);
  return (int64_t)bits;
}

static void set_parameters(int64_t *parameter, const pegen_launch_request *request, const pegen_attention_call *call) {
  parameter[PEGEN_PTX_ATTENTION_TOKENS] = call->q.size[PEGEN_TOKEN];
  parameter[PEGEN_PTX_ATTENTION_KEYS] = call->k.size[PEGEN_TOKEN];
  parameter[PEGEN_PTX_ATTENTION_HEADS] = call->q.size[PEGEN_HEAD];
  parameter[PEGEN_PTX_ATTENTION_GROUP] = call->group;
  parameter[PEGEN_PTX_ATTENTION_CAUSAL] = call->causal;
  parameter[PEGEN_PTX_ATTENTION_SCALE] = float_bits(call->scale * 1.44269504088896340736);
  set_places(parameter + PEGEN_PTX_ATTENTION_POSITIONS, &call->positions, call->position_type);
  set_places(parameter + PEGEN_PTX_ATTENTION_KEY_POSITIONS, call->k.empty ? &call->positions : &call->k_positions,
             call->k.empty ? call->position_type : call->k_position_type);
  set_rows(parameter + PEGEN_PTX_ATTENTION_Q, &call->q);
  set_rows(parameter + PEGEN_PTX_ATTENTION_K, call->k.empty ? &call->q : &call->k);
  set_rows(parameter + PEGEN_PTX_ATTENTION_V, &call->v);
  set_rows(parameter + PEGEN_PTX_ATTENTION_OUT, &call->out);
  pegen_launch_set_operands(parameter + PEGEN_PTX_ATTENTION_OPERANDS, request->kernel, request->args);
  pegen_launch_set_inputs(parameter + PEGEN_PTX_ATTENTION_OPERANDS +
                              request->kernel->n_operands * PEGEN_PTX_OPERAND_COUNT,
                          request, call->input, 0);
}

/* The checks and the one launch, step->entry NULL where there is nothing to do. Not inlined: the scale is computed in
 * it. */
static __attribute__((noinline)) int plan(const pegen_launch_request *request, pegen_launch_step *step) {
  pegen_attention_call call;
  int64_t blocks;
  memset(step, 0, sizeof *step);
  int error = check(request, &call);
  if (error) return error;
  const pegen_ptx_entry *entry = choose_entry(request->kernel, &call);
  if (!entry) return PEGEN_ERROR_DTYPE;
  if (call.out.empty) return 0;
  int64_t tokens = call.q.size[PEGEN_TOKEN], keys = call.k.size[PEGEN_TOKEN];
  if (tokens > MOST_BLOCKS || keys > MOST_BLOCKS ||
      __builtin_mul_overflow((tokens - 1) / entry->columns + 1, call.q.size[PEGEN_HEAD], &blocks) ||
      __builtin_mul_overflow(blocks, call.q.size[PEGEN_BATCH], &blocks) || blocks > MOST_BLOCKS)
    return PEGEN_ERROR_SIZE_OVERFLOW;
  step->entry = entry;
  step->grid_x = (uint32_t)blocks;
  step->grid_y = 1;
  set_parameters(step->parameter, request, &call);
  return 0;
}

int pegen_launch_plan_attention(const pegen_launch_request *request, pegen_launch_run *run, void *context) {
  pegen_launch_step step;
  uint64_t found = pegen_float_begin();
  int error = plan(request, &step);
  pegen_float_end(found);
  return error || !step.entry || !run ? error : run(context, &step);
}
