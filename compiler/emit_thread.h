/* emit_thread: expressions as scalar code of one GPU thread, for each of the blocks it owns.
 *
 * float64 nodes become pairs of float32 (emit_pair). What differs from block to block
 * is read from constant tables at the thread's unit; what does not is computed once.
 */
#ifndef PEGEN_EMIT_THREAD_H
#define PEGEN_EMIT_THREAD_H

#include "emit_pair.h"
#include "ir.h"
#include "plan_thread.h"

typedef struct thread_emitter {
  ir *b;
  arena *memory;
  const plan *p;
  const thread_tile *t;
  const char *prefix;       /* of the tables' names: one an entry */
  ir_value unit;            /* i32 */
  ir_value head;            /* i32; where rotors differ from head to head */
  const ir_value *operands; /* i64: PEGEN_PTX_OPERAND_COUNT parameters each (kernel/launch.h) */
  pair *positions;          /* [axes] */
  pair *memo;               /* [nodes][blocks] */
  signed char *turned;      /* by node id: 1: a sine or cosine is in it, -1: none, 0: not yet asked */
  bool *has_table;          /* by node id: its table is in the module */
  int n_tables;
} thread_emitter;

thread_emitter thread_emitter_create(ir *b, arena *a, const plan *p, const thread_tile *t, const char *prefix);

/* Loads the elements of operands that the roots need, all of an operand's together: its number type is asked once.
 * Before the values that are made of them. */
void emit_thread_operands(thread_emitter *e, const expr *const *roots, int count);

/* Elements of one operand at offsets (i32) that the caller has, count of them. */
void emit_thread_elements(thread_emitter *e, int operand, int count, const ir_value *offsets, pair *values);
/* The offset of an operand's leaf at the thread's unit and head, of block `slot` of the template. */
ir_value emit_thread_offset(thread_emitter *e, const expr *leaf, int slot);
/* A node of any type. */
pair emit_thread_pair(thread_emitter *e, const expr *x, int slot);

/* The value of a float32 node (or a constant) for block `slot` of the template. */
ir_value emit_thread_f32(thread_emitter *e, const expr *x, int slot);

/* values[units] at this thread's unit, as i32: a constant, a line over the units where they lie on one,
 * or read from a table. Values of -1 mean "any". */
ir_value emit_thread_index(thread_emitter *e, const int *values);
/* Whether values[units] is not -1 at this thread's unit: i1; a null value where it is at all units. */
ir_value emit_thread_present(thread_emitter *e, const int *values);

#endif
