/* mlir/number: numbers in memory as float32 and back, by the target's instructions or by integer arithmetic.
 *
 * What varies from type to type is a row of the table in number.c; the types themselves are rows of
 * kernel/number_types.h. `native`: bits 1 << NUMBER_ of the types that the target's own instructions convert.
 */
#pragma once

#include "base/number.h"
#include "mlir/ir.h"

/* Integers of the type's size. */
MlirType number_bits(ir *b, int type);

/* `width` channels (0: a scalar) as float32, and float32 as channels; any alignment. A streaming store goes past the
 * caches and must be aligned to its own size. */
ir_value emit_load_channels(ir *b, unsigned native, int type, int width, ir_value at);
void emit_store_channels(ir *b, unsigned native, int type, ir_value v, ir_value at, bool streaming);
/* 2 `width` channels as two registers, in an order that is the type's and the cheapest to read: of a type that is the
 * upper half of a float32 those of even numbers and those of odd ones, an instruction each. What is stored as a pair
 * goes back in the tensor's order. */
void emit_load_channel_pair(ir *b, unsigned native, int type, int width, ir_value at, ir_value *x);
void emit_store_channel_pair(ir *b, unsigned native, int type, const ir_value *x, ir_value at);
bool number_takes_turns(int type); /* a pair is of even numbers and of odd ones */
/* A pair of a type that takes turns from words (i32) of two numbers, the even one in the lower half. */
void emit_unpack_pair(ir *b, ir_value words, ir_value *x);
/* A pair in memory's order, rounded, in elements of any size; null where it is not stored as a whole. nan_is_cut: NaN
 * are as math_cut_nan leaves them. */
ir_value emit_pack_pair(ir *b, unsigned native, int type, const ir_value *x, bool nan_is_cut);
/* The even or the odd lanes of two registers in the tensor's order, and the lower or the upper half of two whose lanes
 * take turns. */
ir_value emit_taking_turns(ir *b, const ir_value *x, int odd);
ir_value emit_in_order(ir *b, const ir_value *x, int upper);
/* float32 rounded to a number type, as float32. */
ir_value emit_rounded(ir *b, unsigned native, int type, ir_value v);

/* One number as integer bits and back; float32 is left as it is. */
ir_value emit_number_bits(ir *b, unsigned native, int type, ir_value x);
ir_value emit_number_value(ir *b, unsigned native, int type, ir_value bits);
/* The 4 / bytes numbers of an i32, the lowest first, as GPUs read and write registers; not of 32-bit types. */
void emit_unpack_word(ir *b, unsigned native, int type, ir_value word, ir_value *x);
ir_value emit_pack_word(ir *b, unsigned native, int type, const ir_value *x);
