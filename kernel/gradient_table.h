/* gradient_table.h: tables of what rows give each token and head (torques), which encode_backward of calls that read a
 * table adds to and prepare_backward reads.
 *
 * They are tables (table.h) of the same tokens, batches and heads, whose rows are a form's own affair and, of dense
 * blocks, of the processor's code. A header is not looked into: it must be, bit by bit, what the call at hand would
 * write. What is added to a row is added by one part alone, rows of one call in a fixed order: of heads and batches
 * that share the row, too.
 */
#pragma once

#include "backward.h"

/* The header of one of torques in the frame of what encode wrote, or (from_input) read. of: a table's, of the call. */
PEGEN_INTERNAL void pegen_gradient_table_plan(const pegen_backward_facts *facts, const pegen_table_header *of,
                                              int from_input, pegen_table_header *header);
/* Is there memory for it at grad->table, and, where it is read, does it begin so? Fills *view.
 * ALIGNMENT SIZE_OVERFLOW TABLE_BYTES GRADIENT_TABLE */
PEGEN_INTERNAL int pegen_check_gradient_table(const pegen_grad_args *grad, const pegen_table_header *planned,
                                              int is_read, pegen_view *view);
PEGEN_INTERNAL void pegen_gradient_table_sign(const pegen_backward_call *call);

/* Rows of a section: of batch, token and head 0, and strides in bytes; that of batches is 0 where they share rows. */
typedef struct pegen_torque_rows {
  char *at;
  int64_t batch, token, head;
  int64_t batches, tokens, heads;
} pegen_torque_rows;

PEGEN_INTERNAL void pegen_torque_rows_of(const pegen_backward_call *call, int section, pegen_torque_rows *rows);
/* The section that rows of a stream belong to. */
static inline int pegen_torque_section(const pegen_backward_call *call, const pegen_stream *stream) {
  return call->torques.sections > 1 && stream->keys;
}

/* Clears the torques of tokens [begin, end) of batches [batch_begin, batch_end). */
PEGEN_INTERNAL void pegen_clear_torques(const pegen_torque_rows *rows, int64_t batch_begin, int64_t batch_end,
                                        int64_t begin, int64_t end);
/* A part's share of sections that no rows of the call belong to. */
PEGEN_INTERNAL void pegen_clear_torques_without_rows(const pegen_backward_call *call, int part, int parts);

/* A call of prepare_backward, checked as check_prepare_backward.c states. Its rows are those of the table. */
PEGEN_INTERNAL int pegen_check_prepare_backward(const pegen_driver *driver, const pegen_backward_facts *facts,
                                                const pegen_args *args, int part, int parts, int with_workspace,
                                                pegen_backward_call *call);
/* What the entries of sizes say: 0 where the call would be refused, too. */
PEGEN_INTERNAL size_t pegen_prepare_backward_needs(const pegen_driver *driver, const pegen_backward_facts *facts,
                                                   const pegen_args *args);
PEGEN_INTERNAL size_t pegen_gradient_table_size(const pegen_driver *driver, const pegen_backward_facts *facts,
                                                const pegen_args *args);
