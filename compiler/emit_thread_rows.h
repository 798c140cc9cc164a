/* emit_thread_rows: where the rows of a GPU thread lie, and its channels of a row in whole accesses. */
#ifndef PEGEN_EMIT_THREAD_ROWS_H
#define PEGEN_EMIT_THREAD_ROWS_H

#include "emit_thread.h"

typedef struct row_thread {
  ir *b;
  arena *memory;
  const plan *p;
  const thread_tile *t;
  int dtype;
  bool has_bf16;             /* the machine converts to bfloat16 */
  thread_emitter *exprs;     /* unit and head */
  const ir_value *parameter;
  ir_value token, batch;     /* i32 */
  ir_value *coefficient;     /* [blocks][n_components][n_components]; null: 0 */
  /* filled by emit_row_bases and emit_row_blocks */
  ir_value base[2][2], stride[2][2]; /* [in, out][q, k]: of the thread's first access in row 0; from row to row */
  ir_value streams;                  /* i32: 2 where k is given */
  ir_value *delta, *present;         /* [n_accesses]: bytes from the first access; i1, null: always */
  ir_value *block_present;           /* [n_blocks] i1; null: always */
} row_thread;

/* A row: addresses, and what was loaded. */
typedef struct row_place {
  ir_value in, out; /* i64 */
  ir_value *raw;    /* [n_accesses] as loaded */
} row_place;

/* Tensors given: 2 where k has heads, else 1 (i32). */
ir_value row_streams(ir *b, const ir_value *parameter);

void emit_row_bases(row_thread *r);
void emit_row_blocks(row_thread *r);
row_place emit_row_place(row_thread *r, ir_value row);
void emit_row_load(row_thread *r, row_place *place);
/* Stores the encoded row where valid (a null value: always); copy: as it was loaded. */
void emit_row_store(row_thread *r, const row_place *place, ir_value valid, bool copy);

#endif
