/* check_backward.c: every argument of a call for the gradients of an encoding, in this order, before a byte is written:
 *
 *   1. args, struct_size, part                   NULL_ARGS STRUCT_SIZE UNKNOWN_FIELD PART
 *   2. grad, its struct_size and flags           MISSING_GRADIENT STRUCT_SIZE UNKNOWN_FIELD GRADIENT_FLAGS
 *      what is asked for, what comes in          MISSING_OPERAND MISSING_INPUT NO_GRADIENT MISSING_GRADIENT
 *      of what, where channels are mapped        NEEDS_INPUT
 *   3. gradients of rows, positions, operands,   as check.c of an encode call whose rows they are; where encode widens
 *      inputs                                    rows, as wide as it writes them, and going out as it reads them
 *      that nothing is converted                 DTYPE_MISMATCH
 *   where an operand, positions or inputs have a gradient, or channels are mapped
 *   4. what encode wrote or read                 MISSING_KEPT RANK .. HEAD_DIM SHAPE_MISMATCH DTYPE_MISMATCH
 *   5. gradients of operands, positions, inputs  GRADIENT_SHAPE GRADIENT_DTYPE
 *   6. memory of all, workspace                  DEVICE .. STRIDE WORKSPACE ALIGNMENT
 *   7. what is written, the workspace too, against every other tensor  OVERLAP
 *
 * With grad->table 4. and 7. are asked, too, and it is checked between them: in 2. NO_GRADIENT MISSING_TABLE, then
 * ALIGNMENT SIZE_OVERFLOW TABLE_BYTES GRADIENT_TABLE.
 */
#include "gradient_table.h"
#include "memory.h"

/* Whether more than rows has a gradient. */
static int is_more(const pegen_backward_call *call) {
  return call->of_operands || call->of_positions || call->of_inputs;
}

/* ---- 2. what is asked for ---- */

/* Positions of k are those of q where it has none of its own. */
static int asks_for_less(const pegen_args *args, const pegen_backward_call *call) {
  const pegen_grad_args *grad = call->grad;
  int q = grad->q_out != 0, k = grad->k_out != 0;
  if (call->of_inputs && !q && call->facts->widens) return 0;
  if (grad->positions && (!args->positions || !(q || (k && !args->k_positions)))) return 0;
  if (grad->k_positions && (!args->k_positions || !k)) return 0;
  return 1;
}

static int find_wanted(const pegen_driver *driver, const pegen_args *args, const pegen_grad_args *grad,
                       pegen_backward_call *call) {
  const pegen_backward_facts *of = call->facts;
  pegen_gained gained;
  PEGEN_TRY(pegen_find_gained(driver->kernel, args, grad, &gained));
  call->of_operands = gained.operands != 0;
  call->of_positions = gained.positions;
  call->of_inputs = gained.inputs != 0;
  call->of_table = PEGEN_GRAD_GIVEN(grad, table) != 0;
  if (grad->out || grad->lse || grad->v || (grad->inputs && !of->has_inputs) ||
      (call->of_operands && !of->has_operands) || (call->of_positions && !of->has_positions))
    return PEGEN_ERROR_NO_GRADIENT;
  if (call->of_table && (!of->torque_bytes || call->of_operands || call->of_positions)) return PEGEN_ERROR_NO_GRADIENT;
  if (call->of_table && !PEGEN_GIVEN(args, table)) return PEGEN_ERROR_MISSING_TABLE;
  if (!grad->q_out && !grad->k_out) return PEGEN_ERROR_MISSING_GRADIENT;
  if ((grad->q && !grad->q_out) || (grad->k && !grad->k_out)) return PEGEN_ERROR_MISSING_GRADIENT;
  if (!asks_for_less(args, call)) return PEGEN_ERROR_NO_GRADIENT;
  return of->needs_input && !call->from_input ? PEGEN_ERROR_NEEDS_INPUT : 0;
}

/* ---- 3. the forward call that turns gradients as the backward one does ---- */

static void make_forward(const pegen_args *args, pegen_backward_call *call) {
  const pegen_grad_args *grad = call->grad;
  pegen_args *rows = &call->args;
  int made = is_more(call), torques = made || call->of_table;
  char *bytes = (char *)rows;
  for (size_t i = 0; i < sizeof *rows; i++) bytes[i] = 0;
  rows->struct_size = sizeof *rows;
  rows->n_operands = args->n_operands;
  rows->operands = args->operands;
  rows->positions = args->positions;
  rows->k_positions = args->k_positions;
  rows->inputs = PEGEN_GIVEN(args, inputs);
  rows->n_inputs = PEGEN_GIVEN(args, n_inputs);
  rows->table = made ? 0 : PEGEN_GIVEN(args, table); /* which does not say what its values were made of */
  rows->table_bytes = PEGEN_GIVEN(args, table_bytes);
  rows->cu_seqlens = PEGEN_GIVEN(args, cu_seqlens);
  rows->k_cu_seqlens = PEGEN_GIVEN(args, k_cu_seqlens);
  rows->origin = PEGEN_GIVEN(args, origin);
  call->is_written[0] = grad->q != 0;
  call->is_written[1] = grad->k != 0;
  /* A gradient that does not go out is read where it is, and written nowhere. */
  if (grad->q || torques) rows->q = grad->q_out;
  if (grad->k || torques) rows->k = grad->k_out;
  rows->q_out = grad->q || !rows->q ? grad->q : (DLTensor *)(uintptr_t)grad->q_out;
  rows->k_out = grad->k || !rows->k ? grad->k : (DLTensor *)(uintptr_t)grad->k_out;
}

/* ---- 7. overlap ---- */

/* Gradients of positions and inputs meet nothing where they are not wanted. */
int pegen_check_gained_memory(const pegen_driver *driver, const pegen_args *args, int with_workspace,
                              const pegen_backward_call *call) {
  pegen_view workspace;
  workspace.empty = 1;
  if (with_workspace) PEGEN_TRY(pegen_check_workspace(args, pegen_backward_workspace(driver, call), &workspace));
  const pegen_stream *stream = call->rows.stream;
  const pegen_view *const written[2] = {call->is_written[0] ? stream[0].out : 0,
                                        call->is_written[1] ? stream[1].out : 0};
  pegen_memory memory;
  pegen_memory_of_rows(&memory, driver, args, &call->rows, written);
  for (int s = 0; s < 2; s++) {
    pegen_memory_reads(&memory, &call->kept[s]);
    pegen_memory_writes(&memory, &call->positions[s]);
  }
  for (int i = 0; i < driver->kernel->n_inputs; i++) pegen_memory_writes(&memory, &call->inputs[i]);
  if (call->of_table && call->rows.tabled) pegen_memory_writes(&memory, &call->torque_memory);
  else pegen_memory_reads(&memory, &call->torque_memory); /* the rows of the call are its own */
  pegen_memory_writes(&memory, &workspace);
  memory.gained = call->grad->operands;
  return pegen_check_memory(&memory);
}

/* ---- the workspace ---- */

/* Long chunks are long runs of memory where batches are walked together; few of them are work for few threads. */
enum { FEW_CHUNKS = 8, LONG_CHUNK = 16 };

int64_t pegen_backward_chunks(const pegen_backward_call *call) {
  int64_t tokens = 1;
  for (int s = 0; s < 2; s++)
    if (call->rows.stream[s].given && call->rows.stream[s].in.size[PEGEN_TOKEN] > tokens)
      tokens = call->rows.stream[s].in.size[PEGEN_TOKEN];
  int64_t few = tokens < FEW_CHUNKS ? tokens : FEW_CHUNKS, chunks = tokens / LONG_CHUNK;
  if (chunks < few) chunks = few;
  return chunks < call->facts->most_chunks ? chunks : call->facts->most_chunks;
}

/* Sums by chunk; elements of operands; what those who finish have of a head. Launches have a workspace of their own
 * (runtime/launch_chunks.c). */
#ifndef PEGEN_CHECK_ANY_DEVICE
int64_t pegen_backward_sums(const pegen_driver *driver, const pegen_backward_call *call) {
  if (!call->of_operands) return 0;
  return pegen_backward_chunks(call) * call->facts->sums_bytes + pegen_all_elements(driver->kernel) * 8 +
         PEGEN_FINISHERS * call->facts->finish_bytes;
}

int64_t pegen_backward_workspace(const pegen_driver *driver, const pegen_backward_call *call) {
  int64_t bytes = pegen_backward_sums(driver, call);
  for (int s = 0; s < 2 && (call->of_operands || call->of_positions); s++)
    if (pegen_has_rows(call, s)) bytes += call->rows.stream[s].in.size[PEGEN_TOKEN] * call->facts->token_bytes;
  return bytes;
}
#endif

/* ---- all of them ---- */

void pegen_clear_backward_call(const pegen_backward_facts *facts, pegen_backward_call *call) {
  call->facts = facts;
  call->torque_memory.empty = 1;
  for (int s = 0; s < 2; s++) {
    pegen_view_memory(0, 0, &call->kept[s]);
    call->positions[s].empty = 1;
  }
  for (int i = 0; i < PEGEN_MAX_INPUTS; i++) call->inputs[i].empty = 1;
}

int pegen_check_gained(const pegen_driver *driver, const pegen_args *args, pegen_backward_call *call) {
  const pegen_grad_args *grad = call->grad;
  const DLTensor *rows[2] = {grad->q_out, grad->k_out}, *kept[2] = {args->q, args->k};
  const pegen_stream *stream = call->rows.stream;
  const int64_t is_bare[2] = {stream[!stream[0].given].bare, stream[1].bare};
  int error = 0;
  for (int s = 0; s < 2; s++) {
    if (!rows[s] || !call->facts->needs_kept) continue;
    if (!kept[s]) return PEGEN_ERROR_MISSING_KEPT;
    error = pegen_check_rows_like(kept[s], rows[s], driver->kernel->head_dim, 0, &call->kept[s]);
    if (error) return error;
  }
  error = pegen_check_gradients(driver->kernel, args, grad, is_bare, call->positions, call->inputs);
  call->position_is_f64[0] = grad->positions && grad->positions->dtype.bits == 64;
  call->position_is_f64[1] = grad->k_positions && grad->k_positions->dtype.bits == 64;
  for (int s = 0; s < 2 && !error; s++) pegen_as_batches(&call->kept[s], call->rows.as_batches[s]);
  for (int i = 0; i < PEGEN_MAX_INPUTS && !error; i++) pegen_as_batches(&call->inputs[i], call->rows.as_batches[0]);
  return error;
}

/* The table of torques, after args->table. */
static int check_table(const pegen_args *args, pegen_backward_call *call) {
#ifdef PEGEN_CHECK_ANY_DEVICE /* tables are for processors: of_table was refused */
  (void)args;
  (void)call;
  return 0;
#else
  const pegen_grad_args *grad = call->grad;
  if (!call->of_table) return 0;
  pegen_gradient_table_plan(call->facts, args->table, call->from_input != 0, &call->torques);
  return pegen_check_gradient_table(grad, &call->torques, (grad->flags & PEGEN_GRAD_ACCUMULATE) != 0,
                                    &call->torque_memory);
#endif
}

int pegen_check_backward(const pegen_driver *driver, const pegen_backward_facts *facts, const pegen_args *args,
                         int part, int parts, int with_workspace, pegen_backward_call *call) {
  PEGEN_TRY(pegen_check_part(args, part, parts, PEGEN_USE_encode_backward));
  const pegen_grad_args *grad = call->grad = PEGEN_GIVEN(args, grad);
  PEGEN_TRY(pegen_check_grad(grad, PEGEN_GRAD_ACCUMULATE | PEGEN_GRAD_FROM_INPUT));
  pegen_clear_backward_call(facts, call);
  call->from_input = (grad->flags & PEGEN_GRAD_FROM_INPUT) != 0;
  PEGEN_TRY(find_wanted(driver, args, grad, call));
  make_forward(args, call);
  PEGEN_TRY(pegen_check_written(driver, &call->args, facts->row_bytes, call->is_written, facts->widens, &call->rows));
  for (int s = 0; s < 2; s++)
    if (call->rows.stream[s].given && pegen_converts(&call->rows.stream[s])) return PEGEN_ERROR_DTYPE_MISMATCH;
  if (!is_more(call) && !call->of_table && !facts->needs_input) return 0;
  PEGEN_TRY(pegen_check_gained(driver, args, call));
  PEGEN_TRY(check_table(args, call));
  /* Where k has positions of its own, they gain of k alone, be they the same tensor as q's. */
  if (call->of_positions && args->k_positions) call->rows.joint = 0;
  return pegen_check_gained_memory(driver, args, with_workspace, call);
}
