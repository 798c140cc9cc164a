/* cpu/gain: the parts of encode_T_grad (cpu/gradient) that compute what operands and positions gain of rows: torques of
 * rows, their sums over a token, and the call that takes them. */
#ifndef PEGEN_CPU_GAIN_H
#define PEGEN_CPU_GAIN_H

#include "cpu/rows.h"
#include "plan/gradient.h"

typedef struct gradient_code {
  arena *memory;
  const plan_gradient *of;
  const cpu_target *target; /* under which the functions have their names */
  bool frames_differ;
} gradient_code;

/* What a call of encode_T_grad has: pegen_gradient_loop's fields, and scratch. */
typedef struct gradient_values {
  ir_value from_input; /* i1 */
  ir_value sums, sums_stride, prepared, prepared_stride; /* addresses, i64 */
  ir_value chunk_tokens, chunk_bytes; /* i64 */
  ir_value positions; /* i64: 0 where no gradient of them is wanted */
  ir_value torques, torque_token, torque_head; /* address, 0: none; i64 */
  ir_value tau, gained; /* float64 [n_torques][lanes], [axes] */
  ir_value of_rows; /* sums of the rows of one tensor that are not held */
} gradient_values;

const cpu_target *emit_gradient_target(arena *a, const cpu_target *target);
const char *emit_gradient_name(arena *a, const cpu_target *target, int dtype);
/* gain_T_grad_FRAME. */
const char *emit_gain_name(const gradient_code *g, torque_frame frame);
const char *emit_scatter_name(arena *a, const cpu_target *target);
/* Of what the functions of a target are. */
gradient_code emit_gradient_code(arena *a, const plan_gradient *of, const cpu_target *target);

/* Vectors in which a token's torques are summed. */
int emit_torque_slots(const gradient_code *g, const plan_tile *t);
gradient_values emit_load_gradient(const gradient_code *g, ir *b, const plan_tile *t, ir_value loop);
/* A token's rows of one tensor are summed apart, in registers (held [slots]) where there is room for them, else (NULL)
 * in memory, and then added to the token's sums: no sum is longer than the rows of a tensor, or as many as them. */
bool emit_holds_torques(const gradient_code *g, const plan_tile *t);
void emit_begin_torques(const gradient_code *g, row_emitter *r, const gradient_values *v, ir_value *held);
void emit_add_torques(const gradient_code *g, row_emitter *r, const gradient_values *v, const ir_value *held,
                      ir_value at);
/* Adds a row's pairs, of one group of its vectors. turned: the gradient in the frame of x; it and y: NULL of sums. */
void emit_row_torques(const gradient_code *g, row_emitter *r, int group, const gradient_values *v,
                      const row_vectors *gradient, const row_vectors *turned, const row_vectors *y, ir_value *held);
/* spread_T_grad; p, t: of the rows. */
void emit_spread(const gradient_code *g, ir *b, const plan *p, const plan_tile *t);
/* collect_T_grad: a token's torques to those of all calls. */
void emit_collect_torques(const gradient_code *g, ir *b);
/* From the sums at `at` to what boundaries and coordinates gain; head: i64, counted from the loop's first. Where there
 * is a table of torques they are added to it instead, and the position is not asked for. */
typedef struct gradient_token {
  ir_value at, position, token, head;
  void (*find_position)(void *of); /* fills `position`; NULL: it is there */
  void *of;
} gradient_token;
void emit_gradient_of_token(const gradient_code *g, row_emitter *r, const gradient_values *v, const gradient_token *t);
/* Around the heads of a token whose coordinates gain. */
void emit_begin_position_gradient(const gradient_code *g, ir *b, const gradient_values *v);
void emit_end_position_gradient(const gradient_code *g, ir *b, const gradient_values *v, ir_value loop, ir_value token);

#endif
