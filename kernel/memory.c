/* memory.c: does anything that a call writes share memory with another tensor of it? See memory.h. */
#include "memory.h"

#include "table.h"

void pegen_memory_of_rows(pegen_memory *m, const pegen_driver *driver, const pegen_args *args, const pegen_call *call,
                          const pegen_view *const written[2]) {
  pegen_memory_begin(m, driver->kernel, args, call->tabled != 0);
  for (int s = 0; s < 2; s++) {
    const pegen_stream *stream = &call->stream[s];
    if (!stream->given) continue;
    if (!written[s] || !stream->in_place) pegen_memory_reads(m, &stream->in);
    if (written[s]) pegen_memory_writes(m, written[s]);
    if (!stream->grid) pegen_memory_reads(m, &stream->positions);
    pegen_memory_reads(m, &stream->scale);
  }
  for (int i = 0; i < driver->kernel->n_inputs; i++) pegen_memory_reads(m, &call->input[i]);
  for (int s = 0; s < 2; s++) pegen_memory_reads(m, &call->bounds[s].view);
  pegen_memory_reads(m, &call->origin.view);
}

/* Does `view` overlap one of so many? */
static int overlaps(const pegen_view *view, const pegen_view *const *others, int n) {
  for (int i = 0; i < n; i++)
    if (pegen_views_meet(view, others[i])) return 1;
  return 0;
}

/* Does one of so many overlap an operand, or the table? */
static int overlap_operand(const pegen_memory *m, const pegen_view *const *views, int n) {
  pegen_view operand;
  if (m->tabled) {
    pegen_view_memory(m->args->table, pegen_table_extent(m->args), &operand); /* it was checked */
    return overlaps(&operand, views, n);
  }
  for (int i = 0; m->kernel && i < m->kernel->n_operands; i++)
    if (pegen_view_contiguous(m->args->operands[i], &operand) || overlaps(&operand, views, n)) return 1;
  return 0;
}

int pegen_check_memory(const pegen_memory *m) {
  pegen_view view, other;
  const pegen_view *gained = &view;
  for (int i = 0; i < m->n_written; i++)
    if (overlaps(m->written[i], m->read, m->n_read) || overlaps(m->written[i], m->written, i))
      return PEGEN_ERROR_OVERLAP;
  if (m->n_written && overlap_operand(m, m->written, m->n_written)) return PEGEN_ERROR_OVERLAP;
  for (int i = 0; m->gained && i < m->kernel->n_operands; i++) {
    if (!m->gained[i]) continue;
    pegen_view_contiguous(m->gained[i], &view);
    if (overlaps(&view, m->read, m->n_read) || overlaps(&view, m->written, m->n_written) ||
        overlap_operand(m, &gained, 1))
      return PEGEN_ERROR_OVERLAP;
    for (int k = 0; k < i; k++)
      if (m->gained[k] && !pegen_view_contiguous(m->gained[k], &other) && pegen_views_meet(&view, &other))
        return PEGEN_ERROR_OVERLAP;
  }
  return 0;
}
