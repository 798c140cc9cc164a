/* cpu/attention/pairwise: bias and rotations of a tile's pairs; see cpu/attention/attention.h.
 *
 * A bias is a float32 expression per pair, added while the score is in registers. A rotation multiplies every
 * pair by its own matrices, so its part of the scores is summed block by block in memory: the queries' components
 * of the block stay in registers over all keys of the tile.
 */
#include "cpu/attention/delta.h"
#include "mlir/arith.h"

#include "kernel/attention.h"

#include <stddef.h>
#include <string.h>

static const char *channel_table(attention_emitter *e) {
  return arena_printf(e->memory, "channels_%s", e->target->suffix);
}

static const char *bias_name(arena *a, const cpu_target *target) { return arena_printf(a, "bias_%s", target->suffix); }

void emit_pairwise_tables(ir *b, arena *a, const attention_plan *p, const cpu_target *target) {
  const spec *s = p->spec;
  if (p->matrix)
    ir_table(b, arena_printf(a, "channels_%s", target->suffix), s->n_components * s->n_blocks, NULL,
             (const int32_t *)s->channel);
}

/* ---- coordinates of keys ---- */

static int key_room_of(const attention_shape *s) { return (s->keys + s->lanes - 1) / s->lanes * s->lanes; }

void emit_key_places_begin(attention_emitter *e) {
  int axes = e->p->spec->n_axes;
  e->key_room = key_room_of(&e->shape);
  e->wide_places = ir_alloca(e->b, (int64_t)axes * e->key_room * 8, 64);
  e->key_places = ir_alloca(e->b, (int64_t)axes * e->key_room * 4, 64);
}

void emit_key_places(attention_emitter *e, const key_tile *t) {
  ir *b = e->b;
  int lanes = e->shape.lanes;
  ir_value places = ir_load(b, b->ptr, ir_offset_const(b, e->tile, offsetof(pegen_attention_tile, keys)), 8);
  ir_value arguments[] = {places, t->first, t->count, i64(b, e->key_room), e->wide_places};
  ir_call(b, "pegen_attention_rows", 5, arguments);
  if (e->p->matrix && !e->p->bias) return;
  ir_loop loop = ir_for(b, e->zero, i64(b, (int64_t)e->p->spec->n_axes * (e->key_room / lanes)));
  ir_value wide = ir_load(b, ir_vector(b, lanes, b->f64),
                          ir_offset(b, e->wide_places, attention_mul(b, loop.index, (int64_t)lanes * 8)), 8);
  ir_store(b, ir_cast(b, "arith.truncf", wide, b->f32),
           ir_offset(b, e->key_places, attention_mul(b, loop.index, (int64_t)lanes * 4)), 4, false);
  ir_end_for(b, loop);
}

/* ---- a bias that is computed pair by pair ---- */

void emit_delta_begin(attention_emitter *e) {
  ir *b = e->b;
  int axes = e->p->spec->n_axes;
  e->fixed = delta_memo(e);
  delta_emitter d = delta_emitter_create(e, e->fixed);
  if (e->p->bias && !e->p->by_tiles) emit_expr_fixed(&d.walker, e->p->bias);
  if (e->p->by_rows) {
    emit_grid_begin(e);
    return;
  }
  emit_key_places_begin(e);
  if (e->p->by_tiles) e->bias_table = ir_alloca(b, (int64_t)e->shape.keys * e->shape.queries * 4, 64);
  if (e->p->bias) {
    e->query_places = ir_alloca(b, (int64_t)axes * e->shape.queries * 4, 64);
    for (int axis = 0; axis < axes; axis++) {
      ir_loop lanes = ir_for(b, e->zero, i64(b, e->shape.queries));
      ir_value from = ir_offset_const(
          b, e->tile, (int64_t)offsetof(pegen_attention_tile, positions) + (int64_t)axis * PEGEN_ATTENTION_QUERIES * 8);
      ir_value r = ir_load(b, b->f64, ir_offset(b, from, attention_mul(b, lanes.index, 8)), 8);
      ir_value to = ir_offset_const(b, e->query_places, (int64_t)axis * e->shape.queries * 4);
      ir_store(b, ir_cast(b, "arith.truncf", r, b->f32), ir_offset(b, to, attention_mul(b, lanes.index, 4)), 4, false);
      ir_end_for(b, lanes);
    }
  }
}

void emit_delta_keys(attention_emitter *e, const key_tile *t) {
  if (e->p->by_rows) {
    if (e->p->bias) emit_grid_bias_table(e, t);
    return;
  }
  emit_key_places(e, t);
  if (!e->p->by_tiles) return;
  ir_value arguments[] = {e->tile, e->key_places, e->query_places, t->count, e->bias_table};
  ir_call(e->b, bias_name(e->memory, e->target), 5, arguments);
}

/* vector: i64, the register of queries. */
static ir_value pair_bias(attention_emitter *e, ir_value key, ir_value vector) {
  ir *b = e->b;
  ir_value narrow[SPEC_MAX_AXES];
  int axes = e->p->spec->n_axes;
  ir_value queries = ir_offset(b, e->query_places, attention_mul(b, vector, e->shape.lanes * 4));
  ir_value at = ir_offset(b, e->key_places, attention_mul(b, key, 4));
  for (int axis = 0; axis < axes; axis++) {
    ir_value k =
        ir_broadcast(b, e->lanes, ir_load(b, b->f32, ir_offset_const(b, at, (int64_t)axis * e->key_room * 4), 4));
    ir_value q = ir_load(b, e->lanes, ir_offset_const(b, queries, (int64_t)axis * e->shape.queries * 4), 4);
    narrow[axis] = ir_op2(b, "arith.subf", k, q);
  }
  delta_emitter d = delta_emitter_create(e, e->fixed);
  d.walker.varying = delta_memo(e);
  d.narrow = narrow;
  return emit_expr_f32(&d.walker, e->p->bias);
}

ir_value emit_delta_bias(attention_emitter *e, ir_value key, int vector) {
  if (e->p->by_rows) return emit_grid_bias(e, key, vector);
  if (!e->p->by_tiles) return pair_bias(e, key, i64(e->b, vector));
  return ir_load(e->b, e->lanes, attention_at(e, e->bias_table, key, vector), 4);
}

void emit_pair_biases(ir *b, arena *a, const attention_plan *p, const cpu_target *target) {
  attention_emitter e = {.b = b, .memory = a, .p = p, .target = target, .shape = attention_shape_of(p, target)};
  MlirType types[] = {b->ptr, b->ptr, b->ptr, b->i64, b->ptr};
  ir_value arguments[5];
  ir_function(b, bias_name(a, target), true, (MlirType){NULL}, 5, types, arguments);
  e.lanes = ir_vector(b, e.shape.lanes, b->f32);
  e.zero = i64(b, 0);
  e.tile = arguments[0];
  e.key_places = arguments[1];
  e.query_places = arguments[2];
  e.key_room = key_room_of(&e.shape);
  e.fixed = delta_memo(&e);
  delta_emitter d = delta_emitter_create(&e, e.fixed);
  emit_expr_fixed(&d.walker, p->bias);
  ir_loop keys = ir_for(b, e.zero, arguments[3]);
  ir_loop vectors = ir_for(b, e.zero, i64(b, e.shape.vectors));
  ir_value row = ir_offset(b, arguments[4], attention_mul(b, keys.index, e.shape.queries * 4));
  ir_value at = ir_offset(b, row, attention_mul(b, vectors.index, e.shape.lanes * 4));
  ir_store(b, pair_bias(&e, keys.index, vectors.index), at, 4, false);
  ir_end_for(b, vectors);
  ir_end_for(b, keys);
  ir_return(b);
}

/* ---- rotations ---- */

/* Displacements of a key and the queries of a register, float64. */
static void emit_wide(attention_emitter *e, ir_value key, int vector, ir_value *wide) {
  ir *b = e->b;
  int axes = e->p->spec->n_axes;
  MlirType lanes = ir_vector(b, e->shape.lanes, b->f64);
  ir_value at = ir_offset(b, e->wide_places, attention_mul(b, key, 8));
  for (int axis = 0; axis < axes; axis++) {
    ir_value k = ir_broadcast(b, lanes, ir_load(b, b->f64, ir_offset_const(b, at, (int64_t)axis * e->key_room * 8), 8));
    int64_t from = (int64_t)offsetof(pegen_attention_tile, positions) +
                   ((int64_t)axis * PEGEN_ATTENTION_QUERIES + (int64_t)vector * e->shape.lanes) * 8;
    wide[axis] = ir_op2(b, "arith.subf", k, ir_load(b, lanes, ir_offset_const(b, e->tile, from), 8));
  }
}

void emit_block_rows(attention_emitter *e, ir_value index, block_rows *block) {
  ir *b = e->b;
  const spec *s = e->p->spec;
  ir_value channels = ir_offset(b, ir_table_address(b, channel_table(e)), attention_mul(b, index, 4));
  for (int i = 0; i < s->n_components; i++) {
    ir_value at = ir_offset_const(b, channels, (int64_t)i * s->n_blocks * 4);
    block->channel[i] = ir_cast(b, "arith.extsi", ir_load(b, b->i32, at, 4), b->i64);
    for (int x = 0; x < e->shape.vectors; x++)
      block->q[x][i] = ir_load(b, e->lanes, attention_at(e, e->queries, block->channel[i], x), 4);
  }
}

void emit_key_components(attention_emitter *e, ir_value row, const block_rows *block, ir_value *k) {
  ir *b = e->b;
  for (int i = 0; i < e->p->spec->n_components; i++)
    k[i] = ir_broadcast(b, e->lanes, ir_load(b, b->f32, ir_offset(b, row, attention_mul(b, block->channel[i], 4)), 4));
}

/* sum + x y, or sum - x y; a sum that is null is 0. */
static ir_value emit_signed_product(ir *b, ir_value sum, bool negated, ir_value x, ir_value y) {
  ir_value product = ir_op2(b, "arith.mulf", x, y);
  if (sum.ptr) return ir_op2(b, negated ? "arith.subf" : "arith.addf", sum, product);
  return negated ? ir_op1(b, "arith.negf", product) : product;
}

/* R = (I - t t^T) D: q . (D k - t (t . D k)). */
static ir_value emit_mirrored_score(attention_emitter *e, const ir_value *entry, const ir_value *q, const ir_value *k,
                                    ir_value score) {
  ir *b = e->b;
  const attention_plan *p = e->p;
  int n = p->spec->n_components;
  ir_value product = {NULL};
  for (int i = 0; i < n; i++)
    if (p->entry_of[i] >= 0)
      product = emit_signed_product(b, product, p->entry_negated[i] != p->flipped[i], entry[p->entry_of[i]], k[i]);
  for (int i = 0; i < n; i++) { /* up to the sign of D */
    ir_value turned = k[i];
    if (p->entry_of[i] >= 0)
      turned = emit_signed_product(b, turned, p->entry_negated[i] == p->flipped[i], entry[p->entry_of[i]], product);
    score = emit_signed_product(b, score, p->flipped[i], q[i], turned);
  }
  return score;
}

ir_value emit_turned_score(attention_emitter *e, const ir_value *entry, const ir_value *q, const ir_value *k,
                           ir_value score) {
  ir *b = e->b;
  const attention_plan *p = e->p;
  int n = p->spec->n_components;
  if (p->mirror) return emit_mirrored_score(e, entry, q, k, score);
  for (int i = 0; i < n; i++) {
    ir_value turned = {NULL};
    for (int j = i * n; j < (i + 1) * n; j++)
      if (p->entry_of[j] >= 0)
        turned = emit_signed_product(b, turned, p->entry_negated[j], entry[p->entry_of[j]], k[j - i * n]);
    if (turned.ptr) score = attention_multiply_add(b, q[i], turned, score);
  }
  return score;
}

void emit_delta_rotations(attention_emitter *e, const key_tile *t) {
  ir *b = e->b;
  const spec *s = e->p->spec;
  if (e->p->by_rows) {
    emit_grid_rotations(e, t);
    return;
  }
  ir_loop blocks = ir_for(b, e->zero, i64(b, s->n_blocks));
  block_rows block;
  emit_block_rows(e, blocks.index, &block);
  delta_emitter d = delta_emitter_create(e, delta_memo(e));
  d.block = blocks.index;
  for (int i = 0; i < e->p->n_entries; i++) emit_expr_fixed(&d.walker, e->p->entry[i]);
  ir_loop keys = ir_for(b, e->zero, t->count);
  ir_value k[SPEC_MAX_BLADES];
  emit_key_components(e, ir_offset(b, t->rows, mul(b, keys.index, t->stride)), &block, k);
  for (int x = 0; x < e->shape.vectors; x++) {
    ir_value wide[SPEC_MAX_AXES], entry[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
    emit_wide(e, keys.index, x, wide);
    d.walker.varying = delta_memo(e);
    d.wide = wide;
    for (int i = 0; i < e->p->n_entries; i++) entry[i] = emit_expr_f32(&d.walker, e->p->entry[i]);
    ir_value at = attention_at(e, e->scores, keys.index, x);
    ir_store(b, emit_turned_score(e, entry, block.q[x], k, ir_load(b, e->lanes, at, 4)), at, 4, false);
  }
  ir_end_for(b, keys);
  ir_end_for(b, blocks);
}
