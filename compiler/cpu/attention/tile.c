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

void emit_zeros(const attention_emitter *e, ir_value at, int64_t numbers) {
  ir *b = e->b;
  ir_loop loop = ir_for(b, e->zero, i64(b, numbers / e->shape.lanes));
  store(e, ir_float(b, e->lanes, 0), nth(b, at, loop.index, e->shape.lanes * 4));
  ir_end_for(b, loop);
}

void emit_add_lanes(const attention_emitter *e, ir_value lanes, ir_value to) {
  ir *b = e->b;
  ir_value sum = ir_load(b, b->f64, to, 8);
  for (int lane = 0; lane < e->shape.lanes; lane++)
    sum = add(b, sum, ir_load(b, b->f64, ir_offset_const(b, lanes, (int64_t)lane * 8), 8));
  ir_store(b, sum, to, 8, false);
}

ir_value attention_mul(ir *b, ir_value x, int64_t y) { return mul(b, x, ir_int(b, b->i64, y)); }

ir_value attention_groups(ir *b, ir_value count, int64_t n) {
  return ir_op2(b, "arith.divui", add(b, count, i64(b, n - 1)), i64(b, n));
}

ir_value attention_is_given(const attention_emitter *e, ir_value pointer) {
  return ir_compare_int(e->b, "ne", ir_address(e->b, pointer), e->zero);
}

ir_value attention_multiply_add(ir *b, ir_value x, ir_value y, ir_value z) { return add(b, mul(b, x, y), z); }

ir_value attention_at(const attention_emitter *e, ir_value base, ir_value row, int vector) {
  ir_value at = nth(e->b, base, row, e->shape.queries * 4);
  return ir_offset_const(e->b, at, (int64_t)vector * e->shape.lanes * 4);
}

ir_value attention_at_constant(const attention_emitter *e, ir_value base, int row, int vector) {
  return ir_offset_const(e->b, base, ((int64_t)row * e->shape.queries + (int64_t)vector * e->shape.lanes) * 4);
}

/* ---- heads ---- */

head_loop attention_heads_begin(const attention_emitter *e) {
  head_loop heads = {.is_loop = e->heads.ptr != NULL};
  if (heads.is_loop) heads.loop = ir_for(e->b, e->zero, e->heads);
  return heads;
}

void attention_heads_end(const attention_emitter *e, head_loop heads) {
  if (heads.is_loop) ir_end_for(e->b, heads.loop);
}

ir_value attention_heads_room(const attention_emitter *e, int64_t bytes) {
  return ir_alloca(e->b, e->shape.heads * bytes, CACHE_LINE);
}

ir_value attention_of_head(const attention_emitter *e, const head_loop *heads, ir_value room, int64_t bytes) {
  return heads->is_loop ? nth(e->b, room, heads->loop.index, bytes) : room;
}

attention_emitter attention_emitter_of_head(const attention_emitter *e, const head_loop *heads) {
  attention_emitter of = *e;
  if (heads->is_loop) of.head = heads->loop.index;
  of.queries = attention_of_head(e, heads, e->queries, (int64_t)e->p->head_dim * e->shape.queries * 4);
  return of;
}

key_tile key_tile_of_head(const attention_emitter *e, const head_loop *heads, const key_tile *t) {
  key_tile of = *t;
  of.scores = attention_of_head(e, heads, t->scores, (int64_t)e->shape.keys * e->shape.queries * 4);
  if (heads->is_loop) of.rows = ir_load(e->b, e->b->ptr, attention_of_head(e, heads, t->row_table, 8), 8);
  return of;
}

ir_value attention_head_pointer(const attention_emitter *e, int64_t offset) {
  ir *b = e->b;
  ir_value at = ir_offset_const(b, e->tile, offset);
  return ir_load(b, b->ptr, e->head.ptr ? nth(b, at, e->head, 8) : at, 8);
}
