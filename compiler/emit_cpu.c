/* emit_cpu: the functions of one target; prepare and rotor here, encode in emit_encode.c. */
#include "emit_cpu.h"

#include "emit_encode.h"
#include "emit_expr.h"
#include "emit_rows.h"

enum { CACHE_LINE = 64 };

const char *emit_prepare_name(arena *a, const cpu_target *target) { return arena_printf(a, "prepare_%s", target->suffix); }

const char *emit_encode_name(arena *a, const cpu_target *target, int dtype, bool streaming) {
  return arena_printf(a, "encode_%s_%s_%s", target->suffix, dtype_name[dtype], streaming ? "streaming" : "cached");
}

const char *emit_rotor_name(arena *a, const cpu_target *target) { return arena_printf(a, "rotor_%s", target->suffix); }

int64_t emit_prepared_bytes(const plan *p) {
  int64_t bytes = (int64_t)p->n_prepared * p->lanes * 8;
  return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

void emit_cpu_imports(ir *b) {
  MlirType types[] = {b->ptr, b->i64, b->i64, b->ptr};
  ir_declare(b, "pegen_driver_position", (MlirType){NULL}, 4, types);
}

/* ---- prepare and rotor: blocks in the lanes ---- */

static expr_emitter chunk_emitter(ir *b, arena *a, const plan *p, const plan_tile *t, const cpu_target *target, int chunk) {
  expr_emitter e = {.b = b, .p = p, .has_fma = target->has_fma, .begin = t->chunk_begin[chunk], .width = t->chunk_width[chunk]};
  e.memo = arena_array(a, ir_value, expr_pool_count(p->spec->pool));
  return e;
}

static void emit_prepare(ir *b, arena *a, const plan *p, const plan_tile *t, const cpu_target *target) {
  MlirType types[] = {b->ptr, b->ptr};
  ir_value arguments[2];
  ir_function(b, emit_prepare_name(a, target), true, (MlirType){NULL}, 2, types, arguments);
  for (int chunk = 0; chunk < t->n_chunks; chunk++) {
    expr_emitter e = chunk_emitter(b, a, p, t, target, chunk);
    e.has_leaves = true;
    e.leaves = arguments[0];
    for (int i = 0; i < p->n_prepared; i++) {
      int64_t at = emit_prepared_offset(p, i, e.begin, p->prepared[i]->is_f32);
      ir_store(b, emit_expr_lanes(&e, p->prepared[i]), ir_offset_const(b, arguments[1], at), 4, false);
    }
  }
  ir_return(b);
}

static void emit_rotor(ir *b, arena *a, const plan *p, const plan_tile *t, const cpu_target *target) {
  MlirType types[] = {b->ptr, b->ptr, b->ptr};
  ir_value arguments[3], positions[SPEC_MAX_AXES];
  ir_function(b, emit_rotor_name(a, target), true, (MlirType){NULL}, 3, types, arguments);
  for (int axis = 0; axis < p->spec->n_axes; axis++)
    positions[axis] = ir_load(b, b->f64, ir_offset_const(b, arguments[0], axis * 8), 8);
  expr_emitter *emitters = arena_array(a, expr_emitter, t->n_chunks + 1);
  for (int chunk = 0; chunk < t->n_chunks; chunk++) {
    emitters[chunk] = chunk_emitter(b, a, p, t, target, chunk);
    emitters[chunk].prepared = arguments[1];
    emitters[chunk].positions = positions;
  }
  emit_coefficients(b, p, t, emitters, arguments[2]);
  ir_return(b);
}

void emit_cpu(ir *b, arena *a, const plan *p, const cpu_target *target, unsigned dtypes) {
  plan_tile *t = plan_tile_build(a, p, target->lanes);
  b->target_cpu = target->cpu;
  b->target_features = target->features;
  if (p->n_leaves > 0) emit_prepare(b, a, p, t, target);
  emit_rotor(b, a, p, t, target);
  for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
    for (int streaming = 0; streaming <= target->has_streaming; streaming++)
      if (dtypes & 1u << dtype) emit_encode(b, a, p, t, target, dtype, streaming);
  b->target_cpu = b->target_features = NULL;
}
