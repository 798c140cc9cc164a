/* gpu/thread: expressions as scalar code of one GPU thread, for each of the blocks it owns.
 *
 * float64 nodes become two-float numbers (mlir/two_float). What differs from block to block
 * is read from constant tables at the thread's unit; what does not is computed once.
 */
#pragma once

#include "mlir/expr.h"
#include "plan/thread.h"

typedef struct thread_emitter {
  expr_walker walker; /* first: a leaf is asked for by it */
  ir *b;
  arena *memory;
  const spec *spec;
  const thread_tile *t;
  const char *prefix;       /* of the tables' names: one an entry */
  ir_value unit;            /* i32 */
  ir_value head;            /* i32; where rotors differ from head to head */
  const ir_value *operands; /* i64: PEGEN_PTX_OPERAND_COUNT parameters each (kernel/launch.h) */
  two_float *positions;          /* [axes], and the side (spec_side); of a score [SPEC_MAX_PLACES] */
  const ir_value *inputs; /* [inputs] i64: addresses of the rows at hand, of float32, or of 16 bits but where
                             wide_inputs */
  ir_value wide_inputs;     /* i1: inputs are float32; null: they are in any case */
  int input_type;           /* number_type of those that are not wide */
  const two_float *cotangents; /* [blocks][n_cotangents]: those from first_cotangent on; NULL: there are none */
  int n_cotangents, first_cotangent;
  unsigned native;          /* of mlir/number.h */
  two_float *memo;               /* [nodes][blocks] */
  int slot;                 /* the block that the walker is at */
  bool *has_table;          /* by node id: its table is in the module */
  int n_tables;
} thread_emitter;

thread_emitter thread_emitter_create(ir *b, arena *a, const spec *s, const thread_tile *t, const char *prefix);

/* Where the rows of inputs lie, of a batch, token and head (i32), from now on. parameter: those of the first input;
 * dtype: number_type of inputs that are not float32; NUMBER_F32: all are. */
void emit_thread_inputs(thread_emitter *e, const ir_value *parameter, ir_value batch, ir_value token, ir_value head,
                        int dtype);

/* Begins anew with what was computed up to here: what is made from now on is forgotten by emit_thread_forget, as
 * what is computed inside of a loop must be at its end. Returns what to forget to. */
two_float *emit_thread_remember(thread_emitter *e);
void emit_thread_forget(thread_emitter *e, two_float *remembered);

/* Loads the elements of operands that the roots need, all of an operand's together: its number type is asked once.
 * Before the values that are made of them. */
void emit_thread_operands(thread_emitter *e, const expr *const *roots, int count);
/* Loads a number of 16 bits as float32; is_bf16 (i1), else float16. */
ir_value emit_load_16(ir *b, ir_value at, ir_value is_bf16);

/* Elements of one operand at offsets (i32) that the caller has, count of them. */
void emit_thread_elements(thread_emitter *e, int operand, int count, const ir_value *offsets, two_float *values);
/* The offset of an operand's leaf at the thread's unit and head, of block `slot` of the template. */
ir_value emit_thread_offset(thread_emitter *e, const expr *leaf, int slot);
/* The offset of an element that is read at a computed place, inside the operand whatever was computed. */
ir_value emit_thread_place(thread_emitter *e, const expr *element);
/* A node of any type. */
two_float emit_thread_value(thread_emitter *e, const expr *x, int slot);

/* What a node is, of which the caller has the value. */
void emit_thread_know(thread_emitter *e, const expr *x, two_float value);

/* The value of a float32 node (or a constant) for block `slot` of the template. */
ir_value emit_thread_f32(thread_emitter *e, const expr *x, int slot);

/* values[units] at this thread's unit, as i32: a constant, a line over the units where they lie on one,
 * or read from a table. Values of -1 mean "any". */
ir_value emit_thread_index(thread_emitter *e, const int *values);
/* Whether values[units] is not -1 at this thread's unit: i1; a null value where it is at all units. */
ir_value emit_thread_present(thread_emitter *e, const int *values);
