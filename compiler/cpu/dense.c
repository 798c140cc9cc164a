/* cpu/dense: angles, matrices and rows; see cpu/dense.h. */
#include "cpu/dense.h"

#include "cpu/apply.h"
#include "cpu/exponential.h"
#include "cpu/rotors.h"
#include "cpu/torus.h"
#include "mlir/expr.h"

const char *emit_angles_name(arena *a, const cpu_target *target) {
  return arena_printf(a, "angles_%s", target->suffix);
}

const char *emit_form_name(arena *a, const cpu_target *target, bool rest) {
  return arena_printf(a, "%s_%s", rest ? "form_rest" : "form", target->suffix);
}

const char *emit_apply_name(arena *a, const cpu_target *target, int dtype) {
  return arena_printf(a, "apply_%s_%s", target->suffix, number_name(dtype));
}

const char *emit_stream_name(arena *a, const cpu_target *target) {
  return arena_printf(a, "stream_%s", target->suffix);
}

const char *emit_act_name(arena *a, const cpu_target *target, int dtype) {
  return arena_printf(a, "act_%s_%s", target->suffix, number_name(dtype));
}

/* angles_T(position, prepared, out): float64 [axes][angle lanes]. */
static void emit_angles(const plan_dense *p, const chunk_walk *w) {
  ir *b = w->b;
  const spec *s = p->spec;
  MlirType types[] = {b->ptr, b->ptr, b->ptr};
  ir_value arguments[3], positions[SPEC_MAX_AXES];
  ir_function(b, emit_angles_name(w->memory, w->target), true, (MlirType){NULL}, 3, types, arguments);
  for (int axis = 0; axis < s->n_axes; axis++)
    positions[axis] = ir_load(b, b->f64, ir_offset_const(b, arguments[0], axis * 8), 8);
  for (int chunk = 0; chunk < w->t->n_chunks; chunk++) {
    chunk_emitter e = emit_chunk(w, chunk);
    e.prepared = arguments[1];
    e.positions = positions;
    for (int i = 0; i < p->n_generators; i++) {
      int64_t at = ((int64_t)i * plan_dense_angle_lanes(p) + e.begin) * 8;
      ir_store(b, emit_expr_lanes(&e.walker, p->angle[i]), ir_offset_const(b, arguments[2], at), 8, false);
    }
  }
  ir_return(b);
}

static void emit_form(ir *b, arena *a, const plan_dense *p, const cpu_target *target) {
  const spec *s = p->spec;
  int size = s->n_components, unit = plan_dense_unit(p, target);
  int64_t step = (int64_t)plan_dense_angle_lanes(p) * 8;
  double amplitude = s->inverse ? 1 / s->amplitude : s->amplitude;
  if (s->dense->schur) {
    emit_turns(b, target, size, emit_form_name(a, target, false), amplitude);
    return;
  }
  if (size > DENSE_IN_LANES) {
    matrix_shape m = matrix_shape_of(b, target, size, p->is_f64);
    emit_exponential(b, &m, emit_form_name(a, target, false), p->n_generators, step, amplitude);
    if (p->acts) emit_exponential_sum(b, &m, emit_form_name(a, target, false), p->n_generators, step);
    return;
  }
  int rest = s->n_blocks % unit;
  if (s->n_blocks >= unit)
    emit_exponential_lanes(b, target, p->is_f64, size, plan_dense_layout(p), unit, unit,
                           emit_form_name(a, target, false), p->n_generators, step, amplitude);
  if (rest)
    emit_exponential_lanes(b, target, p->is_f64, size, plan_dense_layout(p), unit, rest,
                           emit_form_name(a, target, true), p->n_generators, step, amplitude);
}

void emit_dense(ir *b, arena *a, const plan_dense *p, const cpu_target *target, unsigned dtypes) {
  plan_tile *t = plan_tile_build(a, p->angles, target->lanes);
  t->n_looped = 0; /* angles are short */
  chunk_walk walk = emit_chunks_of(b, a, p->angles, t, target);
  b->target_cpu = target->cpu;
  b->target_features = target->features;
  if (p->angles->n_leaves > 0) emit_prepare(&walk);
  emit_angles(p, &walk);
  emit_form(b, a, p, target);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype)) continue;
    emit_apply(b, a, p->spec, target, dtype, p->per_head, plan_dense_layout(p), false,
               emit_apply_name(a, target, dtype));
    if (p->acts)
      emit_apply(b, a, p->spec, target, dtype, true, MATRIX_EXPONENT, false, emit_act_name(a, target, dtype));
  }
  /* Where blocks of 8 are stored as lines: of larger ones the arithmetic is what takes time. */
  if (dtypes & 1u << NUMBER_F32 && target->has_streaming && plan_dense_layout(p) == MATRIX_DIAGONALS &&
      emit_apply_in_lines(p->spec))
    emit_apply(b, a, p->spec, target, NUMBER_F32, p->per_head, MATRIX_DIAGONALS, true, emit_stream_name(a, target));
  b->target_cpu = b->target_features = NULL;
}
