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

int64_t pegen_launch_tiles(int64_t rows, int64_t tile, int64_t heads, int64_t batches) {
  int64_t blocks;
  if (!rows || !heads || !batches) return 0;
  if (rows > MOST_BLOCKS || __builtin_mul_overflow(pegen_divide_up(rows, tile), heads, &blocks) ||
      __builtin_mul_overflow(blocks, batches, &blocks) || blocks > MOST_BLOCKS)
    return -1;
  return blocks;
}

/* Whether attention's score reads inputs; older kernels' do not. */
int pegen_launch_has_pair_inputs(const pegen_kernel *kernel) {
  return PEGEN_LAUNCH_HAS(kernel, key_inputs) && kernel->pair_inputs;
}

int pegen_launch_attention_parameters(const pegen_kernel *kernel) {
  int count = pegen_ptx_behind_lse(kernel->n_operands, pegen_launch_inputs_of(kernel));
  return count + (pegen_launch_has_pair_inputs(kernel) ? kernel->n_inputs : 0);
}

int pegen_launch_lse_parameter(const pegen_kernel *kernel) {
  return pegen_launch_behind_inputs(kernel, PEGEN_PTX_ATTENTION_OPERANDS);
}

/* Kernels of before lse have no parameters for it. */
static int has_lse(const pegen_kernel *kernel) {
  return kernel->ptx->attention->n_parameters >= pegen_launch_lse_parameter(kernel) + PEGEN_PTX_ROWS_COUNT;
}

void pegen_launch_attention_driver(const pegen_kernel *kernel, pegen_driver *driver, pegen_attention *form) {
  const pegen_ptx_attention *of = kernel->ptx->attention;
  memset(driver, 0, sizeof *driver);
  memset(form, 0, sizeof *form);
  form->value_dim = of->value_dim;
  form->placed = of->placed;
  form->by_rows = of->grid_only;
  form->indexed = of->indexed;
  driver->kernel = kernel;
  driver->per_head = kernel->ptx->per_head;
  driver->turns_rows = 0;
  driver->form = form;
}

static int check(const pegen_launch_request *request, pegen_attention_call *call) {
  pegen_driver driver;
  pegen_attention form;
  pegen_launch_attention_driver(request->kernel, &driver, &form);
  int error = pegen_check_attention(&driver, request->args, 0, 1, call);
  return error || call->lse.empty || has_lse(request->kernel) ? error : PEGEN_ERROR_UNKNOWN_FIELD;
}

/* Entries of a type come in the order in which they are taken. */
static const pegen_ptx_entry *choose_entry(const pegen_launch_request *request, const pegen_attention_call *call) {
  const pegen_kernel *kernel = request->kernel;
  const pegen_ptx *ptx = kernel->ptx;
  for (int i = 0; i < ptx->n_entries; i++) {
    const pegen_ptx_entry *entry = &ptx->entries[i];
    int64_t access = entry->access;
    if (pegen_launch_is_for(kernel, i, PEGEN_LAUNCH_attention) && pegen_launch_fits(request, entry) &&
        entry->dtype == pegen_number_at(call->type)->dtype && pegen_launch_is_aligned(&call->q, access) &&
        pegen_launch_is_aligned(&call->k, access) && pegen_launch_is_aligned(&call->v, access) &&
        pegen_launch_is_aligned(&call->out, access))
      return entry;
  }
  return NULL;
}

/* ---- parameters ---- */

void pegen_launch_set_rows(int64_t *parameter, const pegen_view *view) {
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
  set_places(parameter + PEGEN_PTX_ATTENTION_POSITIONS, &call->positions, call->position_type);
  set_places(parameter + PEGEN_PTX_ATTENTION_KEY_POSITIONS, call->k.empty ? &call->positions : &call->k_positions,
             call->k.empty ? call->position_type : call->k_position_type);
  pegen_launch_set_rows(parameter + PEGEN_PTX_ATTENTION_Q, &call->q);
  pegen_launch_set_rows(parameter + PEGEN_PTX_ATTENTION_K, call->k.empty ? &call->q : &call->k);
  pegen_launch_set_rows(parameter + PEGEN_PTX_ATTENTION_V, &call->v);
  pegen_launch_set_rows(parameter + PEGEN_PTX_ATTENTION_OUT, &call->out);
  pegen_launch_set_operands(parameter + PEGEN_PTX_ATTENTION_OPERANDS, request->kernel, request->args);
  pegen_launch_set_inputs(parameter + PEGEN_PTX_ATTENTION_OPERANDS, request, call->input, 0);
  if (!call->lse.empty) pegen_launch_set_rows(parameter + pegen_launch_lse_parameter(request->kernel), &call->lse);
  if (pegen_launch_has_pair_inputs(request->kernel)) set_groups(parameter, request->kernel, call);
}

/* The checks and the one launch, step->entry NULL where there is nothing to do. Not inlined: the scale is computed in
 * it. */
static __attribute__((noinline)) int plan(const pegen_launch_request *request, pegen_launch_step *step) {
  pegen_attention_call call;
  memset(step, 0, sizeof *step);
  int error = check(request, &call);
  if (error) return error;
  const pegen_ptx_entry *entry = choose_entry(request, &call);
  if (!entry) return PEGEN_ERROR_DTYPE;
  if (call.out.empty) return 0;
  const int64_t *size = call.q.size;
  int64_t blocks = pegen_launch_tiles(size[PEGEN_TOKEN], entry->columns, size[PEGEN_HEAD], size[PEGEN_BATCH]);
  if (blocks < 0 || call.k.size[PEGEN_TOKEN] > MOST_BLOCKS) return PEGEN_ERROR_SIZE_OVERFLOW;
  step->entry = entry;
  step->grid_x = (uint32_t)blocks;
  step->grid_y = 1;
  pegen_launch_set_attention(step->parameter, request, &call);
  return 0;
}

int pegen_launch_plan_attention(const pegen_launch_request *request, pegen_launch_run *run, void *context) {
  pegen_launch_step step;
  uint64_t found = pegen_float_begin();
  int error = plan(request, &step);
  pegen_float_end(found);
  return error || !step.entry || !run ? error : run(context, &step);
}
