/* cpu/place: see cpu/place.h. */
#include "cpu/place.h"

#include "mlir/arith.h"

#include "kernel/loop.h"

#include <stddef.h>

/* Row-major coordinates of the built-in grid, the last axis fastest. */
static void grid_position(ir *b, const spec *s, ir_value token, ir_value out) {
  ir_value rest = sub(b, token, i64(b, s->skip_tokens));
  for (int axis = s->n_axes - 1; axis >= 0; axis--) {
    ir_value coordinate = axis ? ir_op2(b, "arith.remui", rest, i64(b, s->grid[axis])) : rest;
    ir_store(b, ir_cast(b, "arith.sitofp", coordinate, b->f64), ir_offset_const(b, out, axis * 8), 8, false);
    if (axis) rest = ir_op2(b, "arith.divui", rest, i64(b, s->grid[axis]));
  }
}

/* Writes coordinates of a token as float64 [axes] to out: those of the call's positions or of the built-in grid. */
static void emit_token_position(ir *b, const spec *s, ir_value loop, ir_value token, ir_value out) {
  ir_value arguments[] = {loop, token, i64(b, s->n_axes), out};
  if (s->grid[0] == 0) {
    ir_call(b, "pegen_driver_position", 4, arguments);
    return;
  }
  ir_value given = ir_load(b, b->i64, ir_offset_const(b, loop, offsetof(pegen_loop, positions)), 8);
  ir_branch branch = ir_if(b, ir_compare_int(b, "eq", given, i64(b, 0)));
  grid_position(b, s, token, out);
  ir_else(b, &branch);
  ir_call(b, "pegen_driver_position", 4, arguments);
  ir_end_if(b, branch);
}

void emit_centred_position(ir *b, const spec *s, ir_value loop, ir_value token, ir_value out) {
  ir_value arguments[] = {loop, token, i64(b, s->n_axes), out};
  emit_token_position(b, s, loop, token, out);
  ir_call(b, "pegen_driver_centre", 4, arguments);
}

void emit_token_place(ir *b, const spec *s, ir_value loop, ir_value token, ir_value out) {
  emit_token_position(b, s, loop, token, out);
  if (!spec_has_sides(s)) return;
  ir_value side = ir_load(b, b->f64, ir_offset_const(b, loop, offsetof(pegen_loop, side)), 8);
  ir_store(b, side, ir_offset_const(b, out, s->n_axes * 8), 8, false);
}

static int place_of_inputs(const spec *s) { return s->n_axes + spec_has_sides(s); }

int emit_place_numbers(const spec *s) { return place_of_inputs(s) + s->n_inputs; }

void emit_load_place(ir *b, const spec *s, ir_value from, ir_value *numbers) {
  for (int i = 0; i < emit_place_numbers(s); i++) {
    bool is_row = i >= place_of_inputs(s);
    numbers[i] = ir_load(b, is_row ? b->ptr : b->f64, ir_offset_const(b, from, i * 8), 8);
  }
}

const ir_value *emit_place_inputs(const spec *s, const ir_value *numbers) { return numbers + place_of_inputs(s); }
