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

ir_value attention_mul(ir *b, ir_value x, int64_t y) { return mul(b, x, i64(b, y)); }

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

/* ---- rows that are wanted soon ----
 *
 * The driver lists rows that the next tile of queries will read, and rows that will be written; a few of them are asked
 * for between groups of sums, into the second cache. Some 16 lines can be under way: as many requests at once are
 * waited for, one row or two after each 500 cycles of multiply-adds are not.
 */

enum { SECOND_CACHE = 2 };

ir_value emit_ahead_begin(const attention_emitter *e, ir_value keys, int calls) {
  ir *b = e->b;
  ir_value state = ir_alloca(b, 16, 8), count = GRADIENT_TILE(e, n_ahead, b->i64),
           groups = attention_groups(b, keys, e->shape.rows), all = add(b, attention_mul(b, groups, calls), i64(b, 1));
  ir_store(b, e->zero, state, 8, false);
  ir_value step = add(b, ir_op2(b, "arith.divui", count, all), i64(b, 1)), to = ir_offset_const(b, state, 8);
  ir_store(b, step, to, 8, false);
  return state;
}

static const char *ahead_name(const attention_emitter *e) {
  return arena_printf(e->memory, "ask_ahead_%s", e->target->suffix);
}

/* ask_ahead_T(tile, state) */
void emit_ahead_function(attention_emitter of) {
  ir *b = of.b;
  ir_value x[2];
  ir_open(b, ahead_name(&of), "pp", x);
  of.tile = x[0];
  ir_value first = ir_load(b, b->i64, x[1], 8), step = ir_load(b, b->i64, ir_offset_const(b, x[1], 8), 8),
           count = GRADIENT_TILE(&of, n_ahead, b->i64), all = GRADIENT_TILE(&of, ahead, b->ptr),
           lines = GRADIENT_TILE(&of, ahead_lines, b->i64), end = smaller(b, add(b, first, step), count),
           zero = i64(b, 0);
  ir_loop rows = ir_for(b, first, end);
  ir_value row = ir_load(b, b->ptr, nth(b, all, rows.index, 8), 8);
  ir_loop each = ir_for(b, zero, lines);
  ir_prefetch(b, nth(b, row, each.index, CACHE_LINE), SECOND_CACHE);
  ir_end_for(b, each);
  ir_end_for(b, rows);
  ir_store(b, end, x[1], 8, false);
  ir_return(b);
}

void emit_ahead(const attention_emitter *e, ir_value state) {
  ir_value given[] = {e->tile, state};
  ir_call(e->b, ahead_name(e), 2, given);
}
