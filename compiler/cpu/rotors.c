/* cpu/rotors: the functions of one target; prepare and rotor here, encode in cpu/encode.c. */
#include "cpu/rotors.h"

#include "cpu/encode.h"
#include "cpu/place.h"
#include "cpu/plain.h"
#include "cpu/rows.h"
#include "cpu/schedule.h"
#include "mlir/arith.h"

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
  ir_declare(b, "pegen_driver_position", "piip");
  ir_declare(b, "pegen_driver_centre", "piip");
  ir_declare(b, "pegen_driver_position_gradient", "piip");
  ir_declare(b, "pegen_driver_input_gradient", "piiip");
}

/* ---- prepare and rotor: blocks in the lanes ---- */

chunk_walk emit_chunks_of(ir *b, arena *a, const plan *p, const plan_tile *t, const cpu_target *target) {
  return (chunk_walk){.b = b,
                      .memory = a,
                      .p = p,
                      .t = t,
                      .target = target,
                      .has_table = arena_array(a, bool, 2 * expr_pool_count(p->spec->pool)),
                      .whole = p->spec};
}

chunk_emitter emit_chunk(const chunk_walk *w, int chunk) {
  return chunk_emitter_create(w->b, w->memory, w->p, w->target, w->has_table, w->t->chunk_begin[chunk],
                              w->t->chunk_width[chunk]);
}

/* Opens the loop over the first chunks; *e evaluates chunk 0, shifted to the one at hand. */
static ir_loop emit_begin_chunks(const chunk_walk *w, chunk_emitter *e) {
  ir_loop loop = ir_for(w->b, i64(w->b, 0), i64(w->b, w->t->n_looped));
  *e = emit_chunk(w, 0);
  e->shift = mul(w->b, loop.index, i64(w->b, w->t->width));
  return loop;
}

void emit_each_chunk(const chunk_walk *w, chunk_body *body, const void *context) {
  chunk_emitter e;
  if (w->t->n_looped) {
    ir_loop loop = emit_begin_chunks(w, &e);
    body(w, &e, context);
    ir_end_for(w->b, loop);
  }
  for (int chunk = w->t->n_looped; chunk < w->t->n_chunks; chunk++) {
    e = emit_chunk(w, chunk);
    body(w, &e, context);
  }
}

static void prepare_chunk(const chunk_walk *w, chunk_emitter *e, const void *context) {
  const ir_value *arguments = context;
  e->has_leaves = true;
  e->leaves = arguments[0];
  for (int i = 0; i < w->p->n_prepared; i++)
    ir_store(w->b, emit_expr_lanes(&e->walker, w->p->prepared[i]), emit_prepared_at(e, arguments[1], i), 4, false);
}

void emit_prepare(const chunk_walk *w) {
  ir *b = w->b;
  ir_value arguments[2];
  ir_open(b, emit_prepare_name(w->memory, w->target), "pp", arguments);
  for (; w; w = w->next) {
    ir_value own[] = {ir_offset_const(b, arguments[0], w->leaves), ir_offset_const(b, arguments[1], w->prepared)};
    emit_each_chunk(w, prepare_chunk, own);
  }
  ir_return(b);
}

/* Where a token's coefficients come from: positions and what was prepared, or values of a table. out: where the latter
 * go that are computed. */
typedef struct token_source {
  ir_value *positions, prepared, values, out;
} token_source;

/* Where the chunk's part of value i lies. */
static ir_value value_at(const chunk_emitter *e, ir_value values, int i) {
  ir *b = e->b;
  ir_value at = ir_offset_const(b, values, ((int64_t)i * e->p->lanes + e->begin) * 4);
  return e->shift.ptr ? ir_offset(b, at, mul(b, e->shift, i64(b, 4))) : at;
}

static void connect(chunk_emitter *e, const token_source *from) {
  ir *b = e->b;
  e->prepared = from->prepared;
  e->positions = from->positions;
  e->input = from->positions ? emit_place_inputs(e->p->spec, from->positions) : NULL;
  e->input_dtype = NUMBER_F32;
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
    ir_value bytes = i64(b, (int64_t)t->looped_slots * t->width * 4);
    emit_coefficients(b, w->memory, w->p, t, emitters, true, ir_offset(b, out, mul(b, loop.index, bytes)));
    ir_end_for(b, loop);
  }
  for (int chunk = 0; chunk < t->n_chunks; chunk++) {
    emitters[chunk] = emit_chunk(w, chunk);
    connect(&emitters[chunk], from);
  }
  emit_coefficients(b, w->memory, w->p, t, emitters, false, out);
}

ir_value *emit_place_of_part(const chunk_walk *w, ir_value *positions, ir_value *own) {
  const spec_part *part = w->p->part;
  if (!part) return positions;
  for (int axis = 0; axis < part->of->n_axes; axis++) own[axis] = positions[part->axis[axis]];
  return own;
}

/* Emits the rotors of all parts, or (own) of those whose heads differ. */
static void emit_rotor_of(const chunk_walk *w, const char *name, bool own) {
  ir_value arguments[3], positions[PEGEN_MAX_PLACE + SPEC_MAX_INPUTS];
  ir *b = w->b;
  ir_open(b, name, "ppp", arguments);
  emit_load_place(b, w->whole, arguments[0], positions);
  for (; w; w = w->next) {
    ir_value place[PEGEN_MAX_PLACE + SPEC_MAX_INPUTS];
    if (own && emit_is_shared(w->p)) continue;
    token_source from = {.positions = emit_place_of_part(w, positions, place)};
    from.prepared = ir_offset_const(b, arguments[1], w->prepared);
    emit_all_coefficients(w, &from, ir_offset_const(b, arguments[2], w->slots));
  }
  ir_return(b);
}

void emit_rotor(const chunk_walk *w) {
  bool shared = false;
  for (const chunk_walk *part = w; part; part = part->next) shared = shared || emit_is_shared(part->p);
  emit_rotor_of(w, emit_rotor_name(w->memory, w->target), false);
  if (shared) emit_rotor_of(w, emit_rotor_own_name(w->memory, w->target), true);
}

void emit_unfold(const chunk_walk *w) {
  ir_value arguments[2];
  ir_open(w->b, emit_unfold_name(w->memory, w->target), "pp", arguments);
  ir *b = w->b;
  for (; w; w = w->next) {
    token_source from = {.values = ir_offset_const(b, arguments[0], w->values)};
    emit_all_coefficients(w, &from, ir_offset_const(b, arguments[1], w->slots));
  }
  ir_return(b);
}

static void values_of_chunk(const chunk_walk *w, chunk_emitter *e, const void *context) {
  const token_source *from = context;
  connect(e, from);
  for (int i = 0; i < w->p->n_values; i++)
    ir_store(w->b, emit_expr_f32(&e->walker, w->p->value[i]), value_at(e, from->out, i), 4, false);
}

static void emit_values(const chunk_walk *w) {
  ir *b = w->b;
  ir_value arguments[3], positions[PEGEN_MAX_PLACE + SPEC_MAX_INPUTS];
  ir_open(b, emit_values_name(w->memory, w->target), "ppp", arguments);
  emit_load_place(b, w->whole, arguments[0], positions);
  for (; w; w = w->next) {
    ir_value own[PEGEN_MAX_PLACE + SPEC_MAX_INPUTS];
    token_source from = {.positions = emit_place_of_part(w, positions, own)};
    from.prepared = ir_offset_const(b, arguments[1], w->prepared);
    from.out = ir_offset_const(b, arguments[2], w->values);
    emit_each_chunk(w, values_of_chunk, &from);
  }
  ir_return(b);
}

/* ---- a change of basis ---- */

int64_t emit_coefficient_bytes(arena *a, const plan *p, const cpu_target *target) {
  const plan_tile *t = plan_tile_build(a, p, target->lanes);
  return (int64_t)t->n_slots * t->width * 4;
}

void emit_turned_columns(const chunk_walk *w, int size, int stride, int out_stride, const char *name) {
  ir *b = w->b;
  ir_value arguments[3], zero;
  row_emitter rows = {.b = b, .memory = w->memory, .p = w->p, .t = w->t, .target = w->target, .dtype = NUMBER_F32};
  ir_open(b, name, "ppp", arguments);
  zero = i64(b, 0);
  ir_value in_place = ir_compare_int(b, "ne", zero, zero);
  emit_load_slots(&rows, arguments[1]);
  ir_loop columns = ir_for(b, zero, i64(b, size));
  ir_value in_at = mul(b, columns.index, i64(b, (int64_t)stride * 4));
  ir_value out_at = mul(b, columns.index, i64(b, (int64_t)out_stride * 4));
  ir_value out = ir_offset(b, arguments[2], out_at), in = ir_offset(b, arguments[0], in_at);
  for (int group = 0; group < w->t->n_vectors; group++) {
    row_vectors x = emit_vectors_load(&rows, group, in), y = emit_vectors_apply(&rows, group, &x);
    emit_vectors_store(&rows, group, &y, out, in_place);
  }
  ir_end_for(b, columns);
  ir_return(b);
}

/* ---- the functions of a target ---- */

/* Vectors of a row that parts share, as no matrix cuts them. */
static const plan_tile *whole_row(arena *a, const spec *s, const plan *of_part, const cpu_target *target) {
  plan all = *of_part;
  all.begin = 0;
  all.end = s->head_dim;
  all.n_terms = 0;
  return plan_tile_build(a, &all, target->lanes);
}

row_code emit_row_code(arena *a, const spec *s, const plan *const *plans, int count, const cpu_target *target) {
  row_code row = {.spec = s, .n_parts = count};
  for (int i = 0; i < count; i++) {
    const plan_tile *t = plan_tile_looped(a, plans[i], target->lanes, target->is_compact ? 2 : PLAN_LEAST_LOOPED);
    row.part[i].p = plans[i];
    row.part[i].t = t;
    row.part[i].slots = row.slot_bytes;
    row.slot_bytes += (int64_t)t->n_slots * t->width * 4;
    row.prepared_bytes += emit_prepared_bytes(plans[i]);
  }
  row.whole = count == 1 ? row.part[0].t : whole_row(a, s, plans[0], target);
  return row;
}

const chunk_walk *emit_walks_of(ir *b, arena *a, const row_code *row, const cpu_target *target) {
  chunk_walk *walks = arena_array(a, chunk_walk, row->n_parts);
  int64_t leaves = 0, prepared = 0, values = 0;
  for (int i = 0; i < row->n_parts; i++) {
    const plan *p = row->part[i].p;
    walks[i] = emit_chunks_of(b, a, p, row->part[i].t, target);
    walks[i].whole = row->spec;
    walks[i].next = i + 1 < row->n_parts ? &walks[i + 1] : NULL;
    walks[i].leaves = leaves;
    walks[i].prepared = prepared;
    walks[i].values = values;
    walks[i].slots = row->part[i].slots;
    leaves += (int64_t)p->n_leaves * p->lanes * 8;
    prepared += emit_prepared_bytes(p);
    values += emit_values_bytes(p);
  }
  return walks;
}

static row_code row_of(arena *a, const program *encode, const cpu_target *target) {
  const plan *plans[SPEC_MAX_PARTS];
  int count = program_plans(encode, plans);
  return emit_row_code(a, encode->spec, plans, count, target);
}

static bool has_leaves(const row_code *row) {
  for (int i = 0; i < row->n_parts; i++)
    if (row->part[i].p->n_leaves > 0) return true;
  return false;
}

static bool has_table(const row_code *row) {
  for (int i = 0; i < row->n_parts; i++)
    if (row->part[i].p->n_values > 0 && !row->part[i].p->of_rows) return true;
  return false;
}

void emit_float_encoder(ir *b, arena *a, const program *encode, const cpu_target *target) {
  row_code row = row_of(a, encode, target);
  const chunk_walk *walk = emit_walks_of(b, a, &row, target);
  if (has_leaves(&row)) emit_prepare(walk);
  emit_rotor(walk);
  emit_encode(b, a,
              &(encode_kind){cpu_schedule(a, encode), &row, target, NUMBER_F32, NUMBER_F32, false, false, NULL, false,
                             PEGEN_ATTENTION_TURNED_ROTORS});
}

/* Normalised rows of larger blocks round by integers: a function for both kinds would leave too few registers. */
static bool has_planes(const row_code *row) {
  for (int i = 0; i < row->n_parts; i++)
    if (row->part[i].p->spec->n_components != 2) return false;
  return true;
}

/* Rows of a type, and in bfloat16 once more for processors that round it by an instruction. */
static void emit_rows_of_type(ir *b, arena *a, const program *scheduled, const row_code *row, const cpu_target *target,
                              int dtype) {
  for (int rounds = 0; rounds <= (dtype == NUMBER_BF16 && target->dots); rounds++) {
    if (rounds) b->target_features = target_dot_features(a, target);
    for (int streaming = 0; streaming <= target->has_streaming; streaming++) {
      bool normalises = !streaming && (!rounds || has_planes(row));
      emit_encode(b, a, &(encode_kind){scheduled, row, target, dtype, dtype, streaming, normalises, NULL, rounds, 0});
    }
  }
  b->target_features = target->features;
}

void emit_encoders(ir *b, arena *a, const program *encode, const cpu_target *target, unsigned dtypes) {
  const program *scheduled = cpu_schedule(a, encode), *of_tokens = NULL;
  row_code row = row_of(a, encode, target);
  const plan *first = row.part[0].p;
  if (first->of_rows && !first->per_head) of_tokens = cpu_schedule_of_tokens(a, encode);
  const chunk_walk *walk = emit_walks_of(b, a, &row, target);
  if (has_leaves(&row)) emit_prepare(walk);
  emit_rotor(walk);
  if (has_table(&row)) {
    emit_values(walk);
    emit_unfold(walk);
  }
  emit_encode_tables(b, a, row.spec, target);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    unsigned reads = 1u << dtype;
    for (int out = NUMBER_CHANNEL_TYPES; out < NUMBER_OUT_TYPES; out++) reads |= number_pair(dtype, out);
    if (dtypes & reads) emit_factors(b, a, row.whole, target, dtype);
    if (!(dtypes & 1u << dtype)) continue;
    emit_rows_of_type(b, a, scheduled, &row, target, dtype);
    if (of_tokens) emit_rows_of_type(b, a, of_tokens, &row, target, dtype);
    if (row.spec->skip_tokens > 0) emit_norm(b, a, row.whole, target, dtype);
  }
  for (int in = 0; in < NUMBER_CHANNEL_TYPES; in++)
    for (int out = NUMBER_CHANNEL_TYPES; out < NUMBER_OUT_TYPES; out++)
      if (dtypes & number_pair(in, out)) {
        emit_encode(b, a, &(encode_kind){scheduled, &row, target, in, out, false, true, NULL, false, 0});
        emit_convert(b, a, row.whole, target, in, out, row.spec->skip_tokens > 0);
      }
}
