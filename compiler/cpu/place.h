/* cpu/place: what a token's rotors are functions of, from the call's struct pegen_loop. */
#pragma once

#include "mlir/ir.h"
#include "spec/spec.h"

/* Emits a position counted from the loop's origin. */
void emit_centred_position(ir *b, const spec *s, ir_value loop, ir_value token, ir_value out);
/* Coordinates and, behind them, the side where rows of q and k differ (spec_side), and room for the address of the row
 * of each input: of 8 bytes each, emit_place_numbers of them. */
void emit_token_place(ir *b, const spec *s, ir_value loop, ir_value token, ir_value out);
int emit_place_numbers(const spec *s);
/* Its numbers [emit_place_numbers], and among them the rows of inputs, which are pointers. */
void emit_load_place(ir *b, const spec *s, ir_value from, ir_value *numbers);
const ir_value *emit_place_inputs(const spec *s, const ir_value *numbers);
