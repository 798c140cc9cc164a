/* cpu/attention/strips: see cpu/attention/strips.h.
 *
 * A strip has a row of values for each coordinate, the queries of the tile in it. Where the driver knows the keys'
 * coordinates (kernel/attention_strips.c) rows are theirs, and a key has the number of its row; else a tile of keys has
 * a row for each key.
 */
#include "cpu/attention/strips.h"

#include "cpu/attention/delta.h"
#include "cpu/attention/runs.h"
#include "cpu/product.h"

static int rows_of(const attention_emitter *e) {
  int keys = key_places_room(&e->shape);
  return keys > PEGEN_STRIP_PLACES ? keys : PEGEN_STRIP_PLACES;
}

static ir_value row_at(const attention_emitter *e, ir_value room, int strip, ir_value row, ir_value vector, int bytes) {
  ir *b = e->b;
  int64_t row_bytes = (int64_t)e->shape.queries * bytes;
  ir_value rows = ir_offset_const(b, room, strip * rows_of(e) * row_bytes);
  return nth(b, nth(b, rows, row, row_bytes), vector, (int64_t)e->shape.lanes * bytes);
}

static ir_value number_at(const pair_emitter *pairs, int strip, ir_value key) {
  const attention_emitter *e = pairs->e;
  int64_t before = (int64_t)strip * key_places_room(&e->shape) * 8;
  return nth(e->b, ir_offset_const(e->b, pairs->strips.numbers, before), key, 8);
}

static int64_t sum_numbers(const attention_emitter *e) {
  return (int64_t)e->p->n_strips * rows_of(e) * e->shape.queries;
}

static bool is_of_displacement(const attention_emitter *e, int strip) {
  return e->p->strip[strip].axis == ATTENTION_OF_DISPLACEMENT;
}

/* A field of what the driver knows of the strip's axis. */
static ir_value known(const attention_emitter *e, int strip, size_t field, MlirType type) {
  ir *b = e->b;
  ir_value keys = ir_load(b, b->ptr, ir_offset_const(b, e->tile, offsetof(pegen_attention_tile, keys)), 8);
  int64_t at = (int64_t)offsetof(pegen_attention_places, strips) +
               e->p->strip[strip].axis * (int64_t)sizeof(pegen_attention_strip) + (int64_t)field;
  return ir_load(b, type, ir_offset_const(b, keys, at), 8);
}

static ir_value is_known(const pair_emitter *pairs, int strip) {
  ir *b = pairs->e->b;
  ir_value count = known(pairs->e, strip, offsetof(pegen_attention_strip, count), b->i64);
  ir_value is_near = ir_op2(b, "arith.xori", pairs->is_far, ir_int(b, b->i1, 1));
  return ir_op2(b, "arith.andi", is_near, ir_compare_int(b, "ne", count, pairs->e->zero));
}

/* The places of a coordinate's row: that of the axis, and what is read of queries. */
static void places_of_row(const pair_emitter *pairs, int strip, ir_value row, ir_value vector, ir_value *numbers) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  ir_value places = known(e, strip, offsetof(pegen_attention_strip, places), b->ptr),
           place = ir_load(b, b->f32, nth(b, places, row, 4), 4);
  emit_places_of_queries(pairs, vector, numbers);
  int axis = e->p->strip[strip].axis;
  numbers[axis] = ir_op2(b, "arith.addf", ir_broadcast(b, e->lanes, place), numbers[axis]);
}

static void emit_row(const pair_emitter *pairs, int strip, ir_value row, ir_value vector, const ir_value *numbers) {
  const attention_emitter *e = pairs->e;
  delta_emitter d = delta_emitter_at(e, pairs->fixed, numbers);
  store(e, emit_expr_f32(&d.walker, e->p->strip[strip].value), row_at(e, pairs->strips.values, strip, row, vector, 4));
}

void emit_strips_begin(pair_emitter *pairs) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  int count = e->p->n_strips;
  if (!count) return;
  pairs->strips.values = ir_alloca(b, (int64_t)count * rows_of(e) * e->shape.queries * 4, CACHE_LINE);
  int64_t keys = (int64_t)count * key_places_room(&e->shape);
  pairs->strips.numbers = ir_alloca(b, keys * 8, CACHE_LINE);
  pairs->strips.sums = ir_alloca(b, sum_numbers(e) * 8, CACHE_LINE);
  emit_zeros(e, pairs->strips.numbers, 2 * keys); /* keys behind a tile's last one have a row, too */
  for (int i = 0; i < count; i++) {
    if (is_of_displacement(e, i)) continue;
    ir_value rows = known(e, i, offsetof(pegen_attention_strip, count), b->i64);
    ir_loop loop = ir_for(b, e->zero, ir_select(b, is_known(pairs, i), rows, e->zero));
    ir_loop vectors = ir_for(b, e->zero, i64(b, e->shape.vectors));
    ir_value numbers[PAIR_NUMBERS] = {{NULL}};
    places_of_row(pairs, i, loop.index, vectors.index, numbers);
    emit_row(pairs, i, loop.index, vectors.index, numbers);
    ir_end_for(b, vectors);
    ir_end_for(b, loop);
  }
}

static void emit_rows_of_keys(const pair_emitter *pairs, int strip, const key_tile *t) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  ir_loop keys = ir_for(b, e->zero, t->count);
  ir_store(b, keys.index, number_at(pairs, strip, keys.index), 8, false);
  ir_loop vectors = ir_for(b, e->zero, i64(b, e->shape.vectors));
  ir_value numbers[PAIR_NUMBERS] = {{NULL}};
  emit_places_of_pair(pairs, keys.index, vectors.index, numbers);
  emit_row(pairs, strip, keys.index, vectors.index, numbers);
  ir_end_for(b, vectors);
  ir_end_for(b, keys);
}

/* Rows of keys whose values are made of displacements. */
static void emit_rows_of_displacements(const pair_emitter *pairs, int strip, const key_tile *t) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  ir_value values = row_at(e, pairs->strips.values, strip, e->zero, e->zero, 4);
  displaced_pairs of = emit_displaced(pairs, t, values);
  ir_loop keys = ir_for(b, e->zero, of.count);
  ir_loop vectors = ir_for(b, e->zero, i64(b, e->shape.vectors));
  ir_value numbers[PAIR_NUMBERS] = {{NULL}}, row = nth(b, of.numbers, keys.index, (int64_t)e->shape.queries * 4);
  emit_places_of_pair(&of.pairs, keys.index, vectors.index, numbers);
  delta_emitter d = delta_emitter_at(e, pairs->fixed, numbers);
  store(e, emit_expr_f32(&d.walker, e->p->strip[strip].value), nth(b, row, vectors.index, (int64_t)e->shape.lanes * 4));
  ir_end_for(b, vectors);
  ir_end_for(b, keys);
  emit_displaced_end(&of, t, values);
}

void emit_strips_keys(const pair_emitter *pairs, const key_tile *t) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  for (int i = 0; i < e->p->n_strips; i++) {
    if (is_of_displacement(e, i)) {
      emit_rows_of_displacements(pairs, i, t);
      continue;
    }
    ir_branch branch = ir_if(b, is_known(pairs, i));
    ir_value of_key = known(e, i, offsetof(pegen_attention_strip, of_key), b->ptr);
    ir_loop keys = ir_for(b, e->zero, t->count);
    ir_value number = ir_load(b, b->i8, ir_offset(b, of_key, add(b, t->first, keys.index)), 1);
    ir_store(b, ir_cast(b, "arith.extui", number, b->i64), number_at(pairs, i, keys.index), 8, false);
    ir_end_for(b, keys);
    ir_else(b, &branch);
    emit_rows_of_keys(pairs, i, t);
    ir_end_if(b, (ir_branch){branch.outer, {NULL}});
  }
}

static ir_value row_of_key(const pair_emitter *pairs, int strip, ir_value key) {
  if (is_of_displacement(pairs->e, strip)) return key;
  return ir_load(pairs->e->b, pairs->e->b->i64, number_at(pairs, strip, key), 8);
}

void emit_strip_values(const pair_emitter *pairs, ir_value key, ir_value vector, ir_value *numbers) {
  const attention_emitter *e = pairs->e;
  for (int i = 0; i < e->p->n_strips; i++)
    numbers[SPEC_MAX_PLACES + i] = load(e, row_at(e, pairs->strips.values, i, row_of_key(pairs, i, key), vector, 4));
}

/* ---- what they gain ---- */

void emit_strip_sums_begin(const pair_emitter *pairs) {
  emit_zeros(pairs->e, pairs->strips.sums, 2 * sum_numbers(pairs->e));
}

static ir_value sum_at(const pair_emitter *pairs, int strip, ir_value row, ir_value vector) {
  return row_at(pairs->e, pairs->strips.sums, strip, row, vector, 8);
}

void emit_strip_gain(const pair_emitter *pairs, int strip, ir_value key, ir_value vector, ir_value gain) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  MlirType wide = ir_vector(b, e->shape.lanes, b->f64);
  ir_value at = sum_at(pairs, strip, row_of_key(pairs, strip, key), vector);
  ir_store(b, add(b, ir_load(b, wide, at, 8), ir_cast(b, "arith.extf", gain, b->f64)), at, 8, false);
}

void emit_strip_sums(const pair_emitter *pairs, const key_tile *t, strip_visitor *visit, void *context) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  MlirType wide = ir_vector(b, e->shape.lanes, b->f64);
  for (int i = 0; i < e->p->n_strips && !is_of_displacement(e, i); i++) {
    ir_value known_count = known(e, i, offsetof(pegen_attention_strip, count), b->i64), is = is_known(pairs, i);
    ir_value rows = t ? ir_select(b, is, e->zero, t->count) : ir_select(b, is, known_count, e->zero);
    ir_loop loop = ir_for(b, e->zero, rows);
    ir_loop vectors = ir_for(b, e->zero, i64(b, e->shape.vectors));
    ir_value numbers[PAIR_NUMBERS] = {{NULL}}, at = sum_at(pairs, i, loop.index, vectors.index);
    if (t) emit_places_of_pair(pairs, loop.index, vectors.index, numbers);
    else places_of_row(pairs, i, loop.index, vectors.index, numbers);
    delta_emitter d = delta_emitter_at(e, pairs->fixed, numbers);
    visit(context, &d, i, vectors.index, ir_load(b, wide, at, 8));
    ir_store(b, ir_float(b, wide, 0), at, 8, false);
    ir_end_for(b, vectors);
    ir_end_for(b, loop);
  }
}
