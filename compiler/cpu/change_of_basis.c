/* cpu/change_of_basis: see cpu/change_of_basis.h. */
#include "cpu/change_of_basis.h"

#include "cpu/rows.h"

int64_t emit_coefficient_bytes(arena *a, const plan *p, const cpu_target *target) {
  const plan_tile *t = plan_tile_build(a, p, target->lanes);
  return (int64_t)t->n_slots * t->width * 4;
}

void emit_turned_columns(const chunk_walk *w, int size, int stride, int out_stride, const char *name) {
  ir *b = w->b;
  MlirType types[] = {b->ptr, b->ptr, b->ptr};
  ir_value arguments[3], zero;
  row_emitter rows = {.b = b, .memory = w->memory, .p = w->p, .t = w->t, .target = w->target, .dtype = NUMBER_F32};
  ir_function(b, name, true, (MlirType){NULL}, 3, types, arguments);
  zero = ir_int(b, b->i64, 0);
  ir_value in_place = ir_compare_int(b, "ne", zero, zero);
  emit_load_slots(&rows, arguments[1]);
  ir_loop columns = ir_for(b, zero, ir_int(b, b->i64, size));
  ir_value in_at = ir_op2(b, "arith.muli", columns.index, ir_int(b, b->i64, (int64_t)stride * 4));
  ir_value out_at = ir_op2(b, "arith.muli", columns.index, ir_int(b, b->i64, (int64_t)out_stride * 4));
  ir_value out = ir_offset(b, arguments[2], out_at), in = ir_offset(b, arguments[0], in_at);
  for (int group = 0; group < w->t->n_vectors; group++) {
    row_vectors x = emit_vectors_load(&rows, group, in), y = emit_vectors_apply(&rows, group, &x);
    emit_vectors_store(&rows, group, &y, out, in_place);
  }
  ir_end_for(b, columns);
  ir_return(b);
}
