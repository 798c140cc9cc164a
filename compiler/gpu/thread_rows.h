/* gpu/thread_rows: where the rows of a GPU thread lie, and its channels of a row in whole accesses. */
#pragma once

#include "gpu/thread.h"
#include "program/program.h"

/* The owner of rows, which share its coefficients, i32. head: where rotors differ from head to head. */
typedef struct row_owner {
  ir_value token, batch, head;
} row_owner;

typedef struct row_thread {
  ir *b;
  arena *memory;
  const plan *p;
  bool per_head;             /* rows of an owner are batches of a head, not heads */
  const program_op *turn;    /* of a row: what its blocks are multiplied by, or what is added; NULL: it is copied */
  /* Maps of its blocks' channels before they are multiplied, and from what was read and the gradient of the map's
   * result to its own, behind; NULL: there is none. */
  const program_op *map, *map_back;
  const thread_tile *t;
  int dtype;
  int other;                 /* number_type that rows are converted to; 0: none */
  ir_value gain[2];          /* float32, of q and k, of rows that are converted */
  unsigned native;           /* of mlir/number.h */
  thread_emitter *exprs;     /* unit */
  const ir_value *parameter;
  ir_value *coefficient;     /* [blocks][n_components][n_components]; null: 0 */
  /* filled by emit_row_accesses and emit_row_blocks */
  ir_value streams;                  /* i32: 2 where k is given */
  ir_value *delta, *present;         /* [n_accesses]: bytes from the first access; i1, null: always */
  ir_value *block_present;           /* [n_blocks] i1; null: always */
} row_thread;

/* Where the rows of an owner begin: addresses of row 0 and bytes from row to row, i64. */
typedef struct row_origin {
  ir_value base[2][2], stride[2][2]; /* [in, out][q, k] */
} row_origin;

/* A row: addresses, and what was loaded. */
typedef struct row_place row_place;
struct row_place {
  ir_value in, out; /* pointers */
  ir_value gain;    /* of rows that are converted */
  ir_value *raw;    /* [n_accesses] as loaded */
  const row_place *kept; /* what encode read, loaded too, where map_back asks for it */
};

/* Tensors given: 2 where k has heads, else 1 (i32). */
ir_value row_streams(ir *b, const ir_value *parameter);

void emit_row_accesses(row_thread *r);
void emit_row_blocks(row_thread *r);
/* Reads the scales of outputs that are converted, whose addresses these are. */
void emit_row_gains(row_thread *r, const ir_value *scales);
/* offset: i64, bytes into the row that is read. */
row_origin emit_row_origin(row_thread *r, const row_owner *owner, ir_value offset);
row_place emit_row_place(row_thread *r, const row_origin *origin, ir_value row);
/* The thread's accesses of a row; row_place points at the first of them. */
void emit_row_load(row_thread *r, row_place *place);
/* What was loaded as float32: n_accesses * lanes of them. */
void emit_row_unpack(row_thread *r, const row_place *place, ir_value *x);
/* What the row's blocks are turned of: a channel, or its map. */
ir_value emit_row_mapped(row_thread *r, ir_value x);
/* A block's channels x[component] (null: not of the row) by the transpose of the matrix that it is encoded with. */
void emit_row_transposed(row_thread *r, int slot, const ir_value *x, ir_value *y);
/* A number in the tensors' type, as it is stored. */
ir_value emit_row_number(row_thread *r, ir_value x);
/* An access of numbers, lanes of them, as it is stored. */
ir_value emit_row_pack(row_thread *r, const ir_value *y);
/* What the ops of a row make of the one that was loaded, stored where valid (a null value: always). */
void emit_row_store(row_thread *r, const row_place *place, ir_value valid);
