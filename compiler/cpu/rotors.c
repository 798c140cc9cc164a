/* cpu/rotors: the functions of one target; prepare and rotor here, encode in cpu/encode.c. */
#include "cpu/rotors.h"

#include "cpu/encode.h"
#include "cpu/rows.h"
#include "cpu/schedule.h"

#include "kernel/attention.h"

enum { CACHE_LINE = 64 };

int64_t emit_values_bytes(const plan *p) {
  int64_t bytes = (int64_t)p->n_values * p->lanes * 4;
  return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

int64_t emit_prepared_bytes(const plan *p) {
  int64_t bytes = (int64_t)p->n_prepared * p->lanes * 8;
  return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

void emit_encoder_imports(ir *b) {
  MlirType types[] = {b->ptr, b->i64, b->i64, b->ptr};
  ir_declare(b, "pegen_driver_position", (MlirType){NULL}, 4, types);
  ir_declare(b, "pegen_driver_position_gradient", (MlirType){NULL}, 4, types);
}

/* ---- prepare and rotor: blocks in the lanes ---- */

chunk_walk emit_chunks_of(ir *b, arena *a, const plan *p, const plan_tile *t, const cpu_target *target) {
  return (chunk_walk){b, a, p, t, target, arena_array(a, bool, 2 * expr_pool_count(p->spec->pool))};
}

chunk_emitter emit_chunk(const chunk_walk *w, int chunk) {
  return chunk_emitter_create(w->b, w->memory, w->p, w->target, w->has_table, w->t->chunk_begin[chunk],
                              w->t->chunk_width[chunk]);
}

/* Opens the loop over the first chunks; *e evaluates chunk 0, shifted to the one at hand. */
ir_loop emit_begin_chunks(const chunk_walk *w, chunk_emitter *e) {
  ir_loop loop = ir_for(w->b, ir_int(w->b, w->b->i64, 0), ir_int(w->b, w->b->i64, w->t->n_looped));
  *e = emit_chunk(w, 0);
  e->shift = ir_op2(w->b, "arith.muli", loop.index, ir_int(w->b, w->b->i64, w->t->width));
  return loop;
}

static void prepare_chunk(const chunk_walk *w, chunk_emitter *e, const ir_value *arguments) {
  e->has_leaves = true;
  e->leaves = arguments[0];
  for (int i = 0; i < w->p->n_prepared; i++)
    ir_store(w->b, emit_expr_lanes(&e->walker, w->p->prepared[i]), emit_prepared_at(e, arguments[1], i), 4, false);
}

void emit_prepare(const chunk_walk *w) {
  ir *b = w->b;
  MlirType types[] = {b->ptr, b->ptr};
  ir_value arguments[2];
  ir_function(b, emit_prepare_name(w->memory, w->target), true, (MlirType){NULL}, 2, types, arguments);
  chunk_emitter e;
  if (w->t->n_looped) {
    ir_loop loop = emit_begin_chunks(w, &e);
    prepare_chunk(w, &e, arguments);
    ir_end_for(b, loop);
  }
  for (int chunk = w->t->n_looped; chunk < w->t->n_chunks; chunk++) {
    e = emit_chunk(w, chunk);
    prepare_chunk(w, &e, arguments);
  }
  ir_return(b);
}

/* Where a token's coefficients come from: positions and what was prepared, or values of a table. */
typedef struct token_source {
  ir_value *positions, prepared, values;
} token_source;

/* Where the chunk's part of value i lies. */
static ir_value value_at(const chunk_emitter *e, ir_value values, int i) {
  ir *b = e->b;
  ir_value at = ir_offset_const(b, values, ((int64_t)i * e->p->lanes + e->begin) * 4);
  return e->shift.ptr ? ir_offset(b, at, ir_op2(b, "arith.muli", e->shift, ir_int(b, b->i64, 4))) : at;
}

static void connect(chunk_emitter *e, const token_source *from) {
  ir *b = e->b;
  e->prepared = from->prepared;
  e->positions = from->positions;
  for (int i = 0; i < e->p->n_values && from->values.ptr; i++) {
    const expr *x = e->p->value[i];
    MlirType type = x->depends & DEPENDS_BLOCK ? ir_vector(b, e->width, b->f32) : b->f32;
    expr_known(&e->walker, x)->hi = ir_load(b, type, value_at(e, from->values, i), 4);
  }
}

static void emit_all_coefficients(const chunk_walk *w, const token_source *from, ir_value out) {
  ir *b = w->b;
  const plan_tile *t = w->t;
  chunk_emitter *emitters = arena_array(w->memory, chunk_emitter, t->n_chunks + 1);
  if (t->n_looped) {
    ir_loop loop = emit_begin_chunks(w, &emitters[0]);
    connect(&emitters[0], from);
    ir_value bytes = ir_int(b, b->i64, (int64_t)t->looped_slots * t->width * 4);
    emit_coefficients(b, w->memory, w->p, t, emitters, true,
                      ir_offset(b, out, ir_op2(b, "arith.muli", loop.index, bytes)));
    ir_end_for(b, loop);
  }
  for (int chunk = 0; chunk < t->n_chunks; chunk++) {
    emitters[chunk] = emit_chunk(w, chunk);
    connect(&emitters[chunk], from);
  }
  emit_coefficients(b, w->memory, w->p, t, emitters, false, out);
}

static void load_positions(const chunk_walk *w, ir_value from, ir_value *positions) {
  for (int axis = 0; axis < emit_place_numbers(w->p->spec); axis++)
    positions[axis] = ir_load(w->b, w->b->f64, ir_offset_const(w->b, from, axis * 8), 8);
}

void emit_rotor(const chunk_walk *w) {
  MlirType types[] = {w->b->ptr, w->b->ptr, w->b->ptr};
  ir_value arguments[3], positions[PEGEN_MAX_PLACE];
  ir_function(w->b, emit_rotor_name(w->memory, w->target), true, (MlirType){NULL}, 3, types, arguments);
  load_positions(w, arguments[0], positions);
  emit_all_coefficients(w, &(token_source){positions, arguments[1], {NULL}}, arguments[2]);
  ir_return(w->b);
}

void emit_unfold(const chunk_walk *w) {
  MlirType types[] = {w->b->ptr, w->b->ptr};
  ir_value arguments[2];
  ir_function(w->b, emit_unfold_name(w->memory, w->target), true, (MlirType){NULL}, 2, types, arguments);
  emit_all_coefficients(w, &(token_source){NULL, {NULL}, arguments[0]}, arguments[1]);
  ir_return(w->b);
}

static void values_of_chunk(const chunk_walk *w, chunk_emitter *e, const token_source *from, ir_value out) {
  connect(e, from);
  for (int i = 0; i < w->p->n_values; i++)
    ir_store(w->b, emit_expr_f32(&e->walker, w->p->value[i]), value_at(e, out, i), 4, false);
}

static void emit_values(const chunk_walk *w) {
  ir *b = w->b;
  MlirType types[] = {b->ptr, b->ptr, b->ptr};
  ir_value arguments[3], positions[PEGEN_MAX_PLACE];
  ir_function(b, emit_values_name(w->memory, w->target), true, (MlirType){NULL}, 3, types, arguments);
  load_positions(w, arguments[0], positions);
  token_source from = {positions, arguments[1], {NULL}};
  chunk_emitter e;
  if (w->t->n_looped) {
    ir_loop loop = emit_begin_chunks(w, &e);
    values_of_chunk(w, &e, &from, arguments[2]);
    ir_end_for(b, loop);
  }
  for (int chunk = w->t->n_looped; chunk < w->t->n_chunks; chunk++) {
    e = emit_chunk(w, chunk);
    values_of_chunk(w, &e, &from, arguments[2]);
  }
  ir_return(b);
}

void emit_float_encoder(ir *b, arena *a, const program *encode, const cpu_target *target) {
  const plan *p = program_plan(encode);
  plan_tile *t = plan_tile_build(a, p, target->lanes);
  b->target_cpu = target->cpu;
  b->target_features = target->features;
  chunk_walk walk = emit_chunks_of(b, a, p, t, target);
  if (p->n_leaves > 0) emit_prepare(&walk);
  emit_rotor(&walk);
  emit_encode_few(b, a, cpu_schedule(a, encode), p, t, target, PEGEN_ATTENTION_TURNED_ROTORS);
  b->target_cpu = b->target_features = NULL;
}

void emit_encoders(ir *b, arena *a, const program *encode, const cpu_target *target, unsigned dtypes) {
  const program *scheduled = cpu_schedule(a, encode);
  const plan *p = program_plan(encode);
  plan_tile *t = plan_tile_build(a, p, target->lanes);
  b->target_cpu = target->cpu;
  b->target_features = target->features;
  chunk_walk walk = emit_chunks_of(b, a, p, t, target);
  if (p->n_leaves > 0) emit_prepare(&walk);
  emit_rotor(&walk);
  if (p->n_values > 0) {
    emit_values(&walk);
    emit_unfold(&walk);
  }
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    for (int streaming = 0; streaming <= target->has_streaming; streaming++)
      if (dtypes & 1u << dtype) emit_encode(b, a, scheduled, p, t, target, dtype, dtype, streaming);
  for (int in = 0; in < NUMBER_CHANNEL_TYPES; in++)
    for (int out = NUMBER_CHANNEL_TYPES; out < NUMBER_OUT_TYPES; out++)
      if (dtypes & number_pair(in, out)) emit_encode(b, a, scheduled, p, t, target, in, out, false);
  b->target_cpu = b->target_features = NULL;
}
