/* cpu/attention/rows: rows of tensors as float32 and back, where alone the number type matters. */
#pragma once

#include "cpu/attention/tile.h"

/* Rows of a number type, as attend_T is given them: functions. */
typedef struct attention_rows {
  ir_value read_keys, read_values; /* (from, stride in bytes, count, to): rows as float32, or as dot
                                      products take them */
  ir_value write;                  /* (from, to): a row of float32 as a row of the output */
  ir_value copied;                 /* i64: 0 where rows of keys and values are float32 and used where they are */
  ir_value woven_room; /* of dot products: pairs of values, [keys / 2][value_dim] */
  ir_value key_room, value_room; /* of a tile of keys as float32: [keys][head_dim] (of each head), [keys][value_dim] */
} attention_rows;

typedef struct row_view {
  ir_value at, stride; /* bytes */
} row_view;

/* Opens attend_T; its room follows. */
attention_rows emit_attend_begin(attention_emitter *e);
int64_t emit_key_room_bytes(const attention_emitter *e); /* of a head's tile of keys */
void emit_attend_room(const attention_emitter *e, attention_rows *r);
/* A number type's functions; and attend_T_DTYPE, which calls attend_T with them, or with those of float32. */
void emit_row_functions(attention_emitter *e, int dtype);
void emit_attend_rows(attention_emitter *e, int dtype);
/* The functions of rows that attend_dots_T and gradients by dot products are called with, and attend_dots_T. */
void emit_dot_rows(attention_emitter *e);
/* WHAT_T_DTYPE: attend; read: rows of q and k as float32; write: a row of out of them; of gradients store_keys,
 * store_values. */
const char *attention_name(arena *a, const cpu_target *target, const char *what, int dtype);

/* Rows of float32 that become bfloat16 where they are, one behind the other, for dot products of rows that turn. */
const char *attention_narrow_name(arena *a, const cpu_target *target);

/* Opens the emitter's function of gradients. attend_gradient_T has a `write` for rows of q's gradient;
 * attend_narrow_gradient_T is that of the narrow shape, attend_operands_gradient_T that of a plan of operands alone.
 * attend_tangent_T and attend_turned_tangent_T are of an emitter of tangents. */
attention_rows emit_gradient_begin(attention_emitter *e);
/* A number type's functions for all shapes, store_keys_T_DTYPE and store_values_T_DTYPE. They share those of
 * emit_row_functions, which come first. */
void emit_gradient_rows(attention_emitter *e, int dtype);
/* A number type's entry, which calls the emitter's own function. */
void emit_gradient_entry(attention_emitter *e, int dtype);
/* What rows that come turned are read and added to by, whatever the types of the call. */
void emit_turned_gradient_rows(attention_emitter *e, unsigned dtypes);
typedef enum attend_gradient_kind {
  ATTEND_GRADIENT,
  ATTEND_GRADIENT_NARROW,
  ATTEND_GRADIENT_OF_OPERANDS,
  ATTEND_GRADIENT_OF_TURNED,
  ATTEND_GRADIENT_DOTS,
  ATTEND_GRADIENT_NARROW_DOTS,
  ATTEND_GRADIENT_OF_TURNED_DOTS,
  ATTEND_TANGENT,
  ATTEND_TANGENT_OF_TURNED,
  ATTEND_GRADIENTS
} attend_gradient_kind;
extern const char *const attention_gradients[ATTEND_GRADIENTS]; /* their names, before T_DTYPE */

/* Rows first, first + 1, ... of keys and of values as float32: where they are, or in their room. */
row_view emit_key_rows(const attention_emitter *e, const attention_rows *r, ir_value first, ir_value count);
row_view emit_value_rows(const attention_emitter *e, const attention_rows *r, ir_value first, ir_value count);
/* Where those of values will be: nothing is copied. */
row_view emit_value_place(const attention_emitter *e, const attention_rows *r, ir_value first);
