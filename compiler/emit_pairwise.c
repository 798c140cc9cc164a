/* emit_pairwise: bias and rotations of a tile's pairs; see emit_attention.h.
 *
 * A bias is a float32 expression per pair, added while the score is in registers. A rotation multiplies every
 * pair by its own matrices, so its part of the scores is summed block by block in memory: the queries' components
 * of the block stay in registers over all keys of the tile.
 */
#include "emit_delta.h"

#include "../kernel/attention.h"

#include <stddef.h>
#include <string.h>

static ir_value i64(ir *b, int64_t value) { return ir_int(b, b->i64, value); }

static const char *channel_table(attention_emitter *e) { return arena_printf(e->memory, "channels_%s", e->target->suffix); }

void emit_pairwise_tables(ir *b, arena *a, const attention_plan *p, const cpu_target *target) {
  const spec *s = p->spec;
  if (p->matrix) ir_table(b, arena_printf(a, "channels_%s", target->suffix), s->n_components * s->n_blocks, NULL, (const int32_t *)s->channel);
}

static ir_value *memo(attention_emitter *e) { return arena_array(e->memory, ir_value, expr_pool_count(e->p->spec->pool)); }

void emit_delta_begin(attention_emitter *e) {
  ir *b = e->b;
  int axes = e->p->spec->n_axes;
  e->fixed = memo(e);
  delta_emitter d = {.e = e, .fixed = e->fixed};
  if (e->p->bias) {
    emit_delta_fixed(&d, e->p->bias);
    e->places = ir_alloca(b, (int64_t)e->shape.keys * axes * 4, 64);
    e->query_places = ir_alloca(b, (int64_t)axes * e->shape.queries * 4, 64);
    for (int axis = 0; axis < axes; axis++) {
      ir_loop lanes = ir_for(b, e->zero, i64(b, e->shape.queries));
      ir_value from = ir_offset_const(b, e->tile, (int64_t)offsetof(pegen_attention_tile, positions) + (int64_t)axis * PEGEN_ATTENTION_QUERIES * 8);
      ir_value r = ir_load(b, b->f64, ir_offset(b, from, attention_mul(b, lanes.index, 8)), 8);
      ir_value to = ir_offset_const(b, e->query_places, (int64_t)axis * e->shape.queries * 4);
      ir_store(b, ir_cast(b, "arith.truncf", r, b->f32), ir_offset(b, to, attention_mul(b, lanes.index, 4)), 4, false);
      ir_end_for(b, lanes);
    }
  }
  if (e->p->matrix) e->wide_places = ir_alloca(b, (int64_t)e->shape.keys * axes * 8, 64);
}

void emit_delta_keys(attention_emitter *e, const key_tile *t) {
  ir *b = e->b;
  ir_value places = ir_load(b, b->ptr, ir_offset_const(b, e->tile, offsetof(pegen_attention_tile, keys)), 8);
  ir_value arguments[] = {places, t->first, t->count, e->places};
  if (e->p->bias) ir_call(b, "pegen_attention_coordinates_f32", 4, arguments);
  arguments[3] = e->wide_places;
  if (e->p->matrix) ir_call(b, "pegen_attention_coordinates", 4, arguments);
}

ir_value emit_delta_bias(attention_emitter *e, ir_value key, int vector) {
  ir *b = e->b;
  ir_value narrow[SPEC_MAX_AXES];
  int axes = e->p->spec->n_axes;
  ir_value at = ir_offset(b, e->places, attention_mul(b, key, axes * 4));
  for (int axis = 0; axis < axes; axis++) {
    ir_value k = ir_broadcast(b, e->lanes, ir_load(b, b->f32, ir_offset_const(b, at, axis * 4), 4));
    ir_value q = ir_load(b, e->lanes, ir_offset_const(b, e->query_places, ((int64_t)axis * e->shape.queries + (int64_t)vector * e->shape.lanes) * 4), 4);
    narrow[axis] = ir_op2(b, "arith.subf", k, q);
  }
  delta_emitter d = {.e = e, .fixed = e->fixed, .varying = memo(e), .narrow = narrow};
  return emit_delta_f32(&d, e->p->bias);
}

/* ---- rotations ---- */

/* Displacements of a key and the queries of a register, float64. */
static void emit_wide(attention_emitter *e, ir_value key, int vector, ir_value *wide) {
  ir *b = e->b;
  int axes = e->p->spec->n_axes;
  MlirType lanes = ir_vector(b, e->shape.lanes, b->f64);
  ir_value at = ir_offset(b, e->wide_places, attention_mul(b, key, axes * 8));
  for (int axis = 0; axis < axes; axis++) {
    ir_value k = ir_broadcast(b, lanes, ir_load(b, b->f64, ir_offset_const(b, at, axis * 8), 8));
    int64_t from = (int64_t)offsetof(pegen_attention_tile, positions) + ((int64_t)axis * PEGEN_ATTENTION_QUERIES + (int64_t)vector * e->shape.lanes) * 8;
    wide[axis] = ir_op2(b, "arith.subf", k, ir_load(b, lanes, ir_offset_const(b, e->tile, from), 8));
  }
}

/* score + q . (R k) of one block; entry: the lanes of each matrix entry that is no constant 0, else null. */
static ir_value emit_turned_product(attention_emitter *e, const ir_value *entry, const ir_value *q, const ir_value *k, ir_value score) {
  ir *b = e->b;
  int n = e->p->spec->n_components;
  for (int i = 0; i < n; i++) {
    ir_value turned = {NULL};
    for (int j = 0; j < n; j++) {
      if (!entry[i * n + j].ptr) continue;
      turned = turned.ptr ? attention_multiply_add(b, entry[i * n + j], k[j], turned) : ir_op2(b, "arith.mulf", entry[i * n + j], k[j]);
    }
    if (turned.ptr) score = attention_multiply_add(b, q[i], turned, score);
  }
  return score;
}

void emit_delta_rotations(attention_emitter *e, const key_tile *t) {
  ir *b = e->b;
  const spec *s = e->p->spec;
  int n = s->n_components;
  ir_value channels = ir_table_address(b, channel_table(e));
  ir_loop blocks = ir_for(b, e->zero, i64(b, s->n_blocks));
  ir_value channel[SPEC_MAX_BLADES], q[ATTENTION_MAX_VECTORS][SPEC_MAX_BLADES];
  for (int i = 0; i < n; i++) {
    ir_value at = ir_offset_const(b, ir_offset(b, channels, attention_mul(b, blocks.index, 4)), (int64_t)i * s->n_blocks * 4);
    channel[i] = ir_cast(b, "arith.extsi", ir_load(b, b->i32, at, 4), b->i64);
    for (int x = 0; x < e->shape.vectors; x++) q[x][i] = ir_load(b, e->lanes, attention_at(e, e->queries, channel[i], x), 4);
  }
  delta_emitter d = {.e = e, .block = blocks.index, .fixed = memo(e)};
  for (int i = 0; i < n * n; i++) emit_delta_fixed(&d, e->p->matrix[i]);
  ir_loop keys = ir_for(b, e->zero, t->count);
  ir_value row = ir_offset(b, t->rows, ir_op2(b, "arith.muli", keys.index, t->stride)), k[SPEC_MAX_BLADES];
  for (int i = 0; i < n; i++) k[i] = ir_broadcast(b, e->lanes, ir_load(b, b->f32, ir_offset(b, row, attention_mul(b, channel[i], 4)), 4));
  for (int x = 0; x < e->shape.vectors; x++) {
    ir_value wide[SPEC_MAX_AXES], entry[SPEC_MAX_BLADES * SPEC_MAX_BLADES] = {{NULL}};
    emit_wide(e, keys.index, x, wide);
    d.varying = memo(e);
    d.wide = wide;
    for (int i = 0; i < n * n; i++)
      if (!expr_is_const(e->p->matrix[i], 0)) entry[i] = emit_delta_f32(&d, e->p->matrix[i]);
    ir_value at = attention_at(e, e->scores, keys.index, x);
    ir_store(b, emit_turned_product(e, entry, q[x], k, ir_load(b, e->lanes, at, 4)), at, 4, false);
  }
  ir_end_for(b, keys);
  ir_end_for(b, blocks);
}
