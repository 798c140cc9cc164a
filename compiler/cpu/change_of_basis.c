/* cpu/change_of_basis: see cpu/change_of_basis.h. */
#include "cpu/change_of_basis.h"

#include "cpu/apply.h"
#include "cpu/dense.h"
#include "cpu/rotors.h"
#include "cpu/rows.h"

int64_t emit_basis_coefficient_bytes(arena *a, const plan_basis *p, const cpu_target *target) {
  const plan_tile *t = plan_tile_build(a, p->turns, target->lanes);
  return (int64_t)t->n_slots * t->width * 4;
}

/* form_T(basis, coefficients, out): each column of the basis, float32 [D][D] column by column, turned as a row is. */
static void emit_form(const chunk_walk *w, const plan_basis *p) {
  ir *b = w->b;
  MlirType types[] = {b->ptr, b->ptr, b->ptr};
  ir_value arguments[3], zero;
  row_emitter rows = {.b = b, .memory = w->memory, .p = p->turns, .t = w->t, .target = w->target, .dtype = NUMBER_F32};
  ir_function(b, emit_form_name(w->memory, w->target, false), true, (MlirType){NULL}, 3, types, arguments);
  zero = ir_int(b, b->i64, 0);
  ir_value in_place = ir_compare_int(b, "ne", zero, zero);
  emit_load_slots(&rows, arguments[1]);
  ir_loop columns = ir_for(b, zero, ir_int(b, b->i64, p->spec->head_dim));
  ir_value at = ir_op2(b, "arith.muli", columns.index, ir_int(b, b->i64, (int64_t)p->spec->head_dim * 4));
  ir_value out = ir_offset(b, arguments[2], at), in = ir_offset(b, arguments[0], at);
  for (int group = 0; group < w->t->n_vectors; group++) {
    row_vectors x = emit_vectors_load(&rows, group, in), y = emit_vectors_apply(&rows, group, &x);
    emit_vectors_store(&rows, group, &y, out, in_place);
  }
  ir_end_for(b, columns);
  ir_return(b);
}

void emit_basis(ir *b, arena *a, const plan_basis *p, const cpu_target *target, unsigned dtypes) {
  plan_tile *t = plan_tile_build(a, p->turns, target->lanes);
  chunk_walk walk = emit_chunks_of(b, a, p->turns, t, target);
  b->target_cpu = target->cpu;
  b->target_features = target->features;
  if (p->turns->n_leaves > 0) emit_prepare(&walk);
  emit_rotor(&walk);
  emit_form(&walk, p);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    if (dtypes & 1u << dtype)
      emit_apply(b, a, p->whole, target, dtype, p->per_head, MATRIX_COLUMNS, false, emit_apply_name(a, target, dtype));
  b->target_cpu = b->target_features = NULL;
}
