/* gradient_table.c: tables of torques; see gradient_table.h. */
#include "gradient_table.h"

/* "pggrads", and behind it the frame and whose layout rows have. */
static uint64_t magic_of(const pegen_backward_facts *facts, int from_input) {
  return 0x0073646172676770u | (uint64_t)(2 * facts->torque_layout + (from_input ? 1 : 0)) << 56;
}

void pegen_gradient_table_plan(const pegen_backward_facts *facts, const pegen_table_header *of, int from_input,
                               pegen_table_header *header) {
  pegen_table_like(of, magic_of(facts, from_input), facts->torque_bytes, header);
}

int pegen_check_gradient_table(const pegen_grad_args *grad, const pegen_table_header *planned, int is_read,
                               pegen_view *view) {
  const uint64_t *given = grad->table, *right = (const uint64_t *)planned;
  if ((uintptr_t)grad->table & 63) return PEGEN_ERROR_ALIGNMENT;
  if (planned->bytes < 0) return PEGEN_ERROR_SIZE_OVERFLOW;
  PEGEN_TRY(pegen_view_memory(grad->table, planned->bytes, view));
  if (grad->table_bytes < (uint64_t)planned->bytes) return PEGEN_ERROR_TABLE_BYTES;
  for (size_t i = 0; i < sizeof *planned / sizeof *right && is_read; i++)
    if (given[i] != right[i]) return PEGEN_ERROR_GRADIENT_TABLE;
  return 0;
}

void pegen_gradient_table_sign(const pegen_backward_call *call) {
  const uint64_t *from = (const uint64_t *)&call->torques;
  uint64_t *to = call->grad->table;
  for (size_t i = 0; i < sizeof call->torques / sizeof *from; i++) to[i] = from[i];
}

void pegen_torque_rows_of(const pegen_backward_call *call, int section, pegen_torque_rows *rows) {
  const pegen_table_header *h = &call->torques;
  rows->at = (char *)call->grad->table + pegen_table_section(h, section);
  rows->batches = h->batches[section];
  rows->tokens = h->tokens[section];
  rows->heads = h->heads;
  rows->head = h->row_bytes;
  rows->token = h->heads * h->row_bytes;
  rows->batch = rows->batches > 1 ? rows->tokens * rows->token : 0;
}

void pegen_clear_torques(const pegen_torque_rows *rows, int64_t batch_begin, int64_t batch_end, int64_t begin,
                         int64_t end) {
  if (batch_end > rows->batches) batch_end = rows->batches;
  for (int64_t batch = batch_begin; batch < batch_end; batch++) {
    double *at = (double *)(rows->at + batch * rows->batch + begin * rows->token);
    for (int64_t i = 0; i < (end - begin) * rows->token / 8; i++) at[i] = 0;
  }
}

void pegen_clear_torques_without_rows(const pegen_backward_call *call, int part, int parts) {
  for (int section = 0; section < call->torques.sections; section++) {
    pegen_torque_rows rows;
    int64_t begin, end, any = 0;
    for (int s = 0; s < 2; s++)
      any |= pegen_has_rows(call, s) && pegen_torque_section(call, &call->rows.stream[s]) == section;
    pegen_torque_rows_of(call, section, &rows);
    if (!any && pegen_share(rows.tokens, part, parts, &begin, &end))
      pegen_clear_torques(&rows, 0, rows.batches, begin, end);
  }
}
