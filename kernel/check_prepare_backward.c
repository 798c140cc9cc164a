/* check_prepare_backward.c: every argument of a call of prepare_backward, in this order, before a byte is written:
 *
 *   1. args, struct_size, part                 NULL_ARGS STRUCT_SIZE UNKNOWN_FIELD PART
 *   2. grad, its struct_size and flags         MISSING_GRADIENT STRUCT_SIZE UNKNOWN_FIELD GRADIENT_FLAGS
 *      what is asked for                       MISSING_OPERAND NO_GRADIENT MISSING_TABLE
 *   3. positions and operands                  as check.c of a call of prepare
 *   4. the table                               ALIGNMENT SIZE_OVERFLOW TABLE_BYTES GRADIENT_TABLE
 *   5. gradients of operands and positions     GRADIENT_SHAPE GRADIENT_DTYPE DEVICE .. STRIDE
 *   6. the workspace                           WORKSPACE ALIGNMENT
 *   7. what is written, the workspace too, against every other tensor and the table  OVERLAP
 */
#include "gradient_table.h"

/* Gradients of rows have gone into the table, or have been those of its calls. */
static int asks_for_rows(const pegen_grad_args *grad) {
  return grad->q_out || grad->k_out || grad->out || grad->lse || grad->q || grad->k || grad->v || grad->inputs;
}

static int find_wanted(const pegen_driver *driver, const pegen_args *args, pegen_backward_call *call) {
  const pegen_grad_args *grad = call->grad;
  const pegen_backward_facts *of = call->facts;
  pegen_gained gained;
  PEGEN_TRY(pegen_find_gained(driver->kernel, args, grad, &gained));
  call->of_operands = gained.operands != 0;
  call->of_positions = gained.positions;
  call->of_inputs = 0;
  if (!of->torque_bytes || asks_for_rows(grad)) return PEGEN_ERROR_NO_GRADIENT;
  if ((call->of_operands && !of->has_operands) || (call->of_positions && !of->has_positions))
    return PEGEN_ERROR_NO_GRADIENT;
  if ((grad->positions && !args->positions) || (grad->k_positions && !args->k_positions))
    return PEGEN_ERROR_NO_GRADIENT;
  return 0;
}

/* Sections are the rows of the call, of which there is nothing to write. */
static void set_rows(pegen_backward_call *call) {
  call->rows.joint = call->rows.tabled = 0;
  for (int s = 0; s < 2; s++) {
    pegen_no_bounds(&call->rows.bounds[s]);
    call->rows.as_batches[s] = 0;
    pegen_stream *stream = &call->rows.stream[s];
    pegen_torque_rows rows;
    stream->keys = s;
    stream->out = &stream->in;
    stream->in.empty = stream->scale.empty = 1;
    call->is_written[s] = 0;
    if (!stream->given) continue;
    pegen_torque_rows_of(call, s, &rows);
    stream->in.base = stream->in.low = stream->in.high =
        (uintptr_t)rows.at; /* torque_memory is what they may not meet */
    stream->in.width = rows.head;
    stream->in.empty = rows.batches == 0 || rows.tokens == 0;
    stream->in.size[PEGEN_BATCH] = rows.batches;
    stream->in.size[PEGEN_HEAD] = rows.heads;
    stream->in.size[PEGEN_TOKEN] = rows.tokens;
    stream->in.stride[PEGEN_BATCH] = rows.batch;
    stream->in.stride[PEGEN_HEAD] = rows.head;
    stream->in.stride[PEGEN_TOKEN] = rows.token;
  }
}

/* Positions and operands, and what a table of them would be. */
static int check_prepare(const pegen_driver *driver, const pegen_args *args, int part, int parts,
                         pegen_backward_call *call, pegen_table_header *table) {
  pegen_copy_args(&call->args, args);
  int error = pegen_check_prepare(driver, &call->args, part, parts, &call->rows);
  if (!error) pegen_table_plan(driver, &call->rows, call->facts->row_bytes, table);
  return error;
}

static int check_table(pegen_backward_call *call, const pegen_table_header *table) {
  int error = PEGEN_ERROR_GRADIENT_TABLE;
  for (int from_input = 0; from_input < 2 && error == PEGEN_ERROR_GRADIENT_TABLE; from_input++) {
    pegen_gradient_table_plan(call->facts, table, from_input, &call->torques);
    error = pegen_check_gradient_table(call->grad, &call->torques, 1, &call->torque_memory);
    call->from_input = from_input;
  }
  return error;
}

int pegen_check_prepare_backward(const pegen_driver *driver, const pegen_backward_facts *facts, const pegen_args *args,
                                 int part, int parts, int with_workspace, pegen_backward_call *call) {
  pegen_table_header table;
  PEGEN_TRY(pegen_check_part(args, part, parts, PEGEN_USE_prepare_backward));
  const pegen_grad_args *grad = call->grad = PEGEN_GIVEN(args, grad);
  PEGEN_TRY(pegen_check_grad(grad, PEGEN_GRAD_ACCUMULATE | PEGEN_GRAD_FROM_INPUT));
  pegen_clear_backward_call(facts, call);
  PEGEN_TRY(find_wanted(driver, args, call));
  call->of_table = 1;
  if (!PEGEN_GRAD_GIVEN(grad, table)) return PEGEN_ERROR_MISSING_TABLE;
  PEGEN_TRY(check_prepare(driver, args, part, parts, call, &table));
  PEGEN_TRY(check_table(call, &table));
  set_rows(call);
  PEGEN_TRY(pegen_check_gained(driver, args, call));
  return pegen_check_gained_memory(driver, args, with_workspace, call);
}

size_t pegen_prepare_backward_needs(const pegen_driver *driver, const pegen_backward_facts *facts,
                                    const pegen_args *args) {
  pegen_backward_call call;
  if (pegen_check_prepare_backward(driver, facts, args, 0, 1, 0, &call)) return 0;
  return (size_t)pegen_backward_workspace(driver, &call);
}

size_t pegen_gradient_table_size(const pegen_driver *driver, const pegen_backward_facts *facts,
                                 const pegen_args *args) {
  pegen_backward_call call;
  pegen_table_header table;
  call.facts = facts;
  if (!facts->torque_bytes || pegen_check_part(args, 0, 1, PEGEN_USE_prepare_backward) ||
      check_prepare(driver, args, 0, 1, &call, &table))
    return 0;
  pegen_gradient_table_plan(facts, &table, 0, &call.torques);
  return call.torques.bytes < 0 ? 0 : (size_t)call.torques.bytes;
}
