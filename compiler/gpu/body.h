/* gpu/body: what the bodies of all GPU entries share: parameters, columns of tokens, rows, positions. */
#ifndef PEGEN_GPU_BODY_H
#define PEGEN_GPU_BODY_H

#include "gpu/entries.h"
#include "gpu/staged_rows.h"

typedef struct ptx_body {
  ir *b;
  const plan *p;
  const ptx_entry *entry;
  const ir_value *parameter; /* i64 */
  ir_value block, group, thread; /* i32 */
  row_column column;
  ir_value begin, end; /* i32: rows [begin, end) */
  thread_emitter exprs;
  row_thread rows;
} ptx_body;

/* An entry's function: its indices and parameters. */
typedef struct ptx_function {
  const ir_value *parameter;     /* [count] i64 */
  ir_value block, group, thread; /* i32 */
} ptx_function;

/* blocks: of ir_kernel. */
ptx_function ptx_open_function(ir *b, arena *a, const char *name, int count, int blocks, bool host);
/* Coordinates of a token: [axes]. parameter: those from PEGEN_PTX_POSITIONS on, or others in their order. */
void ptx_coordinates(ir *b, const spec *described, const ir_value *parameter, ir_value batch, ir_value token,
                     two_float *out);

/* Opens the entry's function. rows.exprs is the caller's to set, to where the body's exprs then lie. */
ptx_body ptx_open(ir *b, arena *a, const plan *p, const ptx_entry *entry, unsigned native, bool host);
/* Columns: tokens of all batches, or of all heads where rotors differ by head (i32). */
ir_value ptx_columns(ptx_body *t);
/* A stage_column of the body. */
row_column ptx_column_of(void *body, ir_value index);
/* Sets the rows of the thread's group. */
void ptx_range(ptx_body *t);
/* The thread's unit and column, for expressions and positions. */
void ptx_set_column(ptx_body *t, ir_value unit, ir_value column);
/* Loads the column's coordinates. */
void ptx_positions(ptx_body *t);
/* A loop over the rows, `flight` at a time; first: the number of the first. */
ir_loop ptx_begin_rows(ptx_body *t, ir_value *first);

#endif
