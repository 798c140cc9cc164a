/* cpu/gain: the parts of encode_T_grad (cpu/gradient) that compute what operands and positions gain of rows: torques of
 * rows, their sums over a token, and the call that takes them. */
#pragma once

#include "cpu/rotors.h"
#include "cpu/rows.h"
#include "plan/gradient.h"

typedef struct gradient_code {
  arena *memory;
  const plan_gradient *of;
  const cpu_target *target; /* under which the functions have their names */
  bool frames_differ; /* of one of the parts */
  /* For one of a row's parts: what comes behind it, which part it is, and how many torques, sums and scatters are
   * before its own in what the parts share. */
  const struct gradient_code *next;
  const spec *whole; /* of positions */
  int part, torques, sums, scatters;
} gradient_code;

/* What a call of encode_T_grad has: pegen_gradient_loop's fields, and scratch. */
typedef struct gradient_values {
  ir_value from_input; /* i1 */
  ir_value sums, sums_stride, prepared, prepared_stride; /* addresses, i64 */
  ir_value chunk_tokens, chunk_bytes; /* i64 */
  ir_value positions; /* i64: 0 where no gradient of them is wanted */
  ir_value torques, torque_token, torque_head; /* address, 0: none; i64 */
  ir_value inputs; /* i64: 0 where no gradient of them is wanted, or rows have none of their own */
  ir_value tau, gained; /* float64 [n_torques][lanes], [emit_gained_numbers] */
  ir_value of_rows; /* sums of the rows of one tensor that are not held */
} gradient_values;

const cpu_target *emit_gradient_target(arena *a, const cpu_target *target);
const char *emit_gradient_name(arena *a, const cpu_target *target, int dtype);
/* gain_T_grad_FRAME. */
const char *emit_gain_name(const gradient_code *g, torque_frame frame);
/* The gradient code of those parts of a row that have gradients: the first of a list. */
const gradient_code *emit_gradient_codes(arena *a, const spec *s, const plan_gradient_row *of,
                                         const cpu_target *target);

/* Vectors in which a token's torques are summed, and their bytes: of a part, and of all. */
int emit_torque_slots(const gradient_code *g, const plan_tile *t);
int64_t emit_torque_bytes(const gradient_code *g, const plan_tile *t);
int64_t emit_row_torque_bytes(const gradient_code *g, const row_code *row);
gradient_values emit_load_gradient(const gradient_code *g, ir *b, const row_code *row, ir_value loop);
/* A token's rows of one tensor are summed apart, in registers (held [slots]) where there is room for them, else (NULL)
 * in memory, and then added to the token's sums: no sum is longer than the rows of a tensor, or as many as them. So
 * many slots of all parts; 0: in memory. */
int emit_held_torques(const gradient_code *g, const row_code *row);
/* Begins the torques of all parts; r: [parts], at: of the first. */
void emit_begin_torques(const gradient_code *g, row_emitter *r, const gradient_values *v, ir_value *held);
void emit_add_torques(const gradient_code *g, row_emitter *r, const gradient_values *v, const ir_value *held,
                      ir_value at);
/* Adds a row's pairs, of one group of a part's vectors; of_rows: where the part's sums are that are not held, and held
 * its own of those that are. turned: the gradient in the frame of x; it and y: NULL of sums. */
void emit_row_torques(const gradient_code *g, row_emitter *r, int group, const gradient_values *v, ir_value of_rows,
                      const row_vectors *gradient, const row_vectors *turned, const row_vectors *y, ir_value *held);
/* spread_T_grad; of the rows. */
void emit_spread(const gradient_code *g, ir *b, const row_code *row);
/* Emits NAME(from, to): adds `count` numbers to as many others, all float64 or float32. */
void emit_collect(ir *b, const cpu_target *target, bool is_f64, int64_t count, const char *name);
/* collect_T_grad: a token's torques to those of all calls. */
void emit_collect_torques(const gradient_code *g, ir *b);
/* From the sums at `at` to what boundaries and coordinates gain; head: i64, counted from the loop's first. Where there
 * is a table of torques they are added to it instead, and the position is not asked for. */
typedef struct gradient_token {
  ir_value at, position, token, head;
  void (*find_position)(void *of); /* fills `position`; NULL: it is there */
  void *of;
} gradient_token;
void emit_gradient_of_token(const gradient_code *g, ir *b, const gradient_values *v, const gradient_token *t);
/* Around the heads of a token whose coordinates gain. */
void emit_begin_position_gradient(const gradient_code *g, ir *b, const gradient_values *v);
/* And what the inputs of the row at hand do. */
void emit_end_input_gradient(const gradient_code *g, ir *b, const gradient_values *v, ir_value loop, ir_value batch,
                             ir_value token, ir_value head);
/* What a token or row gains: its coordinates and, behind them, elements of its rows of inputs, of input i from
 * emit_gained_input on. */
int64_t emit_gained_input(const spec *s, int i);
int64_t emit_gained_numbers(const spec *s);
void emit_end_position_gradient(const gradient_code *g, ir *b, const gradient_values *v, ir_value loop, ir_value token);
