/* cpu/attention/tile: see cpu/attention/tile.h. */
#include "cpu/attention/tile.h"

#include "base/diag.h"

attention_emitter attention_emitter_create(ir *b, arena *a, const attention_plan *p, const cpu_target *target) {
  attention_emitter e = {.b = b, .memory = a, .p = p, .target = target, .shape = attention_shape_of(p, target)};
  if (e.shape.rows > ATTENTION_MAX_ROWS || e.shape.channels > ATTENTION_MAX_ROWS ||
      e.shape.vectors > ATTENTION_MAX_VECTORS)
    diag_bug("emit_attention", "the tile is too large");
  e.lanes = ir_vector(b, e.shape.lanes, b->f32);
  return e;
}

ir_value attention_add(ir *b, ir_value x, ir_value y) { return ir_op2(b, "arith.addi", x, y); }
ir_value attention_mul(ir *b, ir_value x, int64_t y) { return ir_op2(b, "arith.muli", x, ir_int(b, b->i64, y)); }

ir_value attention_multiply_add(ir *b, ir_value x, ir_value y, ir_value z) {
  return ir_op2(b, "arith.addf", ir_op2(b, "arith.mulf", x, y), z);
}

ir_value attention_at(const attention_emitter *e, ir_value base, ir_value row, int vector) {
  ir_value at = ir_offset(e->b, base, attention_mul(e->b, row, e->shape.queries * 4));
  return ir_offset_const(e->b, at, (int64_t)vector * e->shape.lanes * 4);
}

ir_value attention_at_constant(const attention_emitter *e, ir_value base, int row, int vector) {
  return ir_offset_const(e->b, base, ((int64_t)row * e->shape.queries + (int64_t)vector * e->shape.lanes) * 4);
}
