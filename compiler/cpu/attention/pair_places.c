/* cpu/attention/pair_places: see cpu/attention/pair_places.h. */
#include "cpu/attention/pair_places.h"

#include "cpu/attention/queries.h"
#include "mlir/arith.h"
#include "mlir/number.h"

/* ---- displacements ---- */

static ir_value whole(ir *b, ir_value x) { return ir_cast(b, "arith.fptosi", x, b->i64); }

static int64_t pair_numbers_bytes(const attention_emitter *e) {
  return (int64_t)key_places_room(&e->shape) * e->shape.queries * 4;
}

static int count_pair_places(const attention_plan *p) { return pair_places_before(p, p->n_places); }

/* A register of numbers of pairs, or of what they gain. */
static ir_value pair_number_at(const pair_emitter *pairs, int place, bool gains, ir_value key, ir_value vector) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  int before = pair_places_before(e->p, place) + (gains ? count_pair_places(e->p) : 0);
  ir_value row = nth(b, ir_offset_const(b, pairs->numbers, before * pair_numbers_bytes(e)), key, e->shape.queries * 4);
  return nth(b, row, vector, (int64_t)e->shape.lanes * 4);
}

static int64_t row_bytes(const attention_emitter *e) { return (int64_t)key_places_axes(e->p) * e->shape.queries * 4; }

/* Coordinates of a register of queries, rounded; i1 lanes: which are far. */
static ir_value emit_rounded_queries(const attention_emitter *e, int axis, ir_value vector, ir_value to) {
  ir *b = e->b;
  ir_value from = ir_offset_const(
      b, e->tile, (int64_t)offsetof(pegen_attention_tile, positions) + (int64_t)axis * PEGEN_ATTENTION_QUERIES * 8);
  from = nth(b, from, vector, (int64_t)e->shape.lanes * 8);
  ir_value wide = ir_load(b, ir_vector(b, e->shape.lanes, b->f64), from, 8),
           narrow = ir_cast(b, "arith.truncf", wide, b->f32);
  ir_store(b, narrow, nth(b, to, vector, (int64_t)e->shape.lanes * 4), 4, false);
  return emit_is_far(b, wide, narrow);
}

/* Queries are laid once. */
void emit_query_places(pair_emitter *pairs) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  int axes = key_places_axes(e->p);
  int64_t row = (int64_t)e->shape.queries * 4;
  pairs->query_places = ir_alloca(b, row_bytes(e) * (1 + e->shape.keys), 64);
  if (e->p->n_numbers) pairs->query_numbers = ir_alloca(b, row * e->p->n_numbers, 64);
  pairs->step = ir_alloca(b, 8, 8);
  ir_store(b, e->zero, pairs->step, 8, false); /* beside columns it stays: these are of coordinates near the tile's */
  ir_value far = ir_int(b, ir_vector(b, e->shape.lanes, b->i1), 0), now;
  ir_loop vectors = ir_for_with(b, e->zero, i64(b, e->shape.vectors), 1, &far, &now);
  for (int axis = 0; axis < e->p->n_places; axis++) {
    ir_value to = axis < axes ? ir_offset_const(b, pairs->query_places, axis * row)
                              : ir_offset_const(b, pairs->query_numbers, (axis - axes) * row);
    ir_value is_far = emit_rounded_queries(e, axis, vectors.index, to);
    if (axis < axes) now = ir_op2(b, "arith.ori", now, is_far);
  }
  ir_end_for_with(b, vectors, 1, &now, &far);
  pairs->is_far = axes ? emit_some(e, far) : ir_int(b, b->i1, 0);
  if (!count_pair_places(e->p)) return;
  pairs->numbers = ir_alloca(b, 2 * count_pair_places(e->p) * pair_numbers_bytes(e), 64);
  pairs->rows = ir_alloca(b, (int64_t)key_places_room(&e->shape) * e->shape.lanes * 4, 64);
}

/* Rows of displacements where a coordinate of the tile is far; keys_are_far: i1. */
static void emit_displacements(const pair_emitter *pairs, const key_tile *t, ir_value keys_are_far) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  ir_value is_far = ir_op2(b, "arith.ori", keys_are_far, pairs->is_far), row = i64(b, row_bytes(e));
  ir_store(b, ir_select(b, is_far, row, e->zero), pairs->step, 8, false);
  ir_branch far = ir_if(b, is_far);
  ir_value arguments[] = {e->tile,
                          t->first,
                          t->count,
                          i64(b, pairs->places.room),
                          pairs->places.wide,
                          pairs->places.narrow,
                          i64(b, e->shape.queries),
                          ir_offset_const(b, pairs->query_places, row_bytes(e))};
  ir_call(b, "pegen_attention_displace", 8, arguments);
  ir_end_if(b, far);
}

/* ---- numbers of pairs ---- */

/* The next tile's numbers of a register's rows: they are too many rows for the processor to follow by itself. */
static void prefetch_pairs(const attention_emitter *e, const key_tile *t, ir_value row, ir_value row_bytes,
                           ir_value bytes) {
  ir *b = e->b;
  ir_loop lanes = ir_for(b, e->zero, i64(b, e->shape.lanes));
  ir_value next = ir_offset(b, ir_offset(b, row, mul(b, lanes.index, row_bytes)), mul(b, t->count, bytes));
  for (int at = 0; at < e->shape.keys * 4; at += CACHE_LINE) ir_prefetch(b, ir_offset_const(b, next, at), 2);
  ir_end_for(b, lanes);
}

/* Rows of a register's queries as float32. squares: whole registers of keys. */
static void emit_wide_rows(const pair_emitter *pairs, int type, ir_value row, ir_value row_bytes, ir_value squares) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  int lanes = e->shape.lanes;
  ir_loop rows = ir_for(b, e->zero, i64(b, lanes));
  ir_value from = ir_offset(b, row, mul(b, rows.index, row_bytes)),
           to = nth(b, pairs->rows, rows.index, 4LL * key_places_room(&e->shape));
  ir_loop keys = ir_for(b, e->zero, squares);
  ir_value at = nth(b, from, keys.index, (int64_t)lanes * number_bytes(type));
  store(e, emit_load_channels(b, e->target->native, type, lanes, at), nth(b, to, keys.index, 4LL * lanes));
  ir_end_for(b, keys);
  ir_end_for(b, rows);
}

/* Rows of a register's queries that follow each other are turned in squares, those of 16 bits once they are float32;
 * others, and keys that fill no square, go number by number. */
static void emit_read_pairs(const pair_emitter *pairs, const key_tile *t, int place) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  int lanes = e->shape.lanes, input = pair_place_input(e->p, place);
  int64_t positions = (int64_t)offsetof(pegen_attention_tile, positions) + (int64_t)place * PEGEN_ATTENTION_QUERIES * 8,
          data = (int64_t)offsetof(pegen_attention_places, data) + input * 8,
          token_bytes = (int64_t)offsetof(pegen_attention_places, input_token) + input * 8,
          number = (int64_t)offsetof(pegen_attention_places, number) + input * 8, room = key_places_room(&e->shape);
  ir_value places = ir_load(b, b->ptr, ir_offset_const(b, e->tile, offsetof(pegen_attention_tile, places)), 8),
           first_row = ir_load(b, b->ptr, ir_offset_const(b, places, data), 8),
           row_bytes = ir_load(b, b->i64, ir_offset_const(b, places, token_bytes), 8),
           type = ir_load(b, b->i64, ir_offset_const(b, places, number), 8),
           is_narrow = ir_compare_int(b, "ne", type, i64(b, NUMBER_F32)),
           bytes = ir_select(b, is_narrow, i64(b, 2), i64(b, 4));
  ir_loop vectors = ir_for(b, e->zero, i64(b, e->shape.vectors));
  ir_value lane = attention_mul(b, vectors.index, lanes),
           to = pair_number_at(pairs, place, false, e->zero, vectors.index);
  ir_value first = attention_lane_token(e, e->zero, lane),
           last = attention_lane_token(e, e->zero, add(b, lane, i64(b, lanes - 1)));
  ir_value follow = ir_compare_int(b, "eq", sub(b, last, first), i64(b, lanes - 1));
  ir_value squares = ir_select(b, follow, ir_op2(b, "arith.divsi", t->count, i64(b, lanes)), e->zero);
  ir_value offset = ir_load(b, b->f64, nth(b, ir_offset_const(b, e->tile, positions), lane, 8), 8);
  ir_value row = ir_offset(b, ir_offset(b, first_row, whole(b, offset)), mul(b, t->first, bytes));
  prefetch_pairs(e, t, row, row_bytes, bytes);
  ir_branch narrow = ir_if(b, is_narrow), is_bf16 = ir_if(b, ir_compare_int(b, "eq", type, i64(b, NUMBER_BF16)));
  emit_wide_rows(pairs, NUMBER_BF16, row, row_bytes, squares);
  ir_else(b, &is_bf16);
  emit_wide_rows(pairs, NUMBER_F16, row, row_bytes, squares);
  ir_end_if(b, is_bf16);
  ir_end_if(b, narrow);
  ir_value from = ir_select(b, is_narrow, pairs->rows, row),
           apart = ir_select(b, is_narrow, i64(b, 4 * room), row_bytes);
  emit_numbers_to_lanes(e, from, apart, to, squares);
  ir_value key = attention_mul(b, squares, lanes);
  emit_pair_numbers(e, t, place, lane, lanes, key, e->shape.queries, nth(b, to, key, (int64_t)e->shape.queries * 4));
  ir_end_for(b, vectors);
}

void emit_lay_pair_gain(const pair_emitter *pairs, int place, ir_value key, ir_value vector, ir_value gain) {
  store(pairs->e, gain, pair_number_at(pairs, place, true, key, vector));
}

void emit_give_pair_gains(const pair_emitter *pairs, const key_tile *t, int place) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  int input = pair_place_input(e->p, place);
  int64_t offset = (int64_t)offsetof(pegen_attention_gradient_tile, pair_gains) + input * 8;
  ir_branch wanted = ir_if(b, attention_is_given(e, ir_load(b, b->ptr, ir_offset_const(b, e->tile, offset), 8)));
  int lanes = e->shape.lanes;
  ir_value room = i64(b, key_places_room(&e->shape)), squares = attention_groups(b, t->count, lanes);
  ir_loop vectors = ir_for(b, e->zero, i64(b, e->shape.vectors));
  ir_value gains = pair_number_at(pairs, place, true, e->zero, vectors.index),
           lane = attention_mul(b, vectors.index, lanes);
  emit_lanes_to_numbers(e, gains, pairs->rows, attention_mul(b, room, 4), squares);
  ir_value arguments[] = {e->tile, i64(b, input), lane, i64(b, lanes), t->first, t->count, room, pairs->rows};
  ir_call(b, "pegen_attention_gain_pairs", 8, arguments);
  ir_end_for(b, vectors);
  ir_end_if(b, wanted);
}

void emit_tile_places(const pair_emitter *pairs, const key_tile *t) {
  const attention_plan *p = pairs->e->p;
  ir_value are_far = emit_key_places(pairs->e, &pairs->places, t);
  if (pairs->query_places.ptr) emit_displacements(pairs, t, are_far);
  for (int place = 0; place < p->n_places; place++)
    if (is_pair_place(p, place)) emit_read_pairs(pairs, t, place);
}

/* ---- a pair's ---- */

/* Where rows are that are read at computed places: of the queries of a register, or of a key. */
static ir_value row_at(const pair_emitter *pairs, int place, ir_value key, ir_value vector) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  if (e->p->number[place - key_places_axes(e->p)].of_key) {
    ir_value rows = ir_offset_const(b, pairs->places.wide, (int64_t)place * pairs->places.room * 8);
    return whole(b, ir_load(b, b->f64, nth(b, rows, key, 8), 8));
  }
  int64_t rows = (int64_t)offsetof(pegen_attention_tile, positions) + (int64_t)place * PEGEN_ATTENTION_QUERIES * 8;
  ir_value at = nth(b, ir_offset_const(b, e->tile, rows), vector, (int64_t)e->shape.lanes * 8);
  return whole(b, ir_load(b, ir_vector(b, e->shape.lanes, b->f64), at, 8));
}

void emit_places_of_pair(const pair_emitter *pairs, ir_value key, ir_value vector, ir_value *narrow) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  int axes = e->p->n_places;
  if (pairs->products.ptr) {
    ir_value row = nth(b, pairs->products, key, (int64_t)e->shape.queries * 4);
    narrow[SPEC_OF_SCORE] = load(e, nth(b, row, vector, (int64_t)e->shape.lanes * 4));
  }
  int own = key_places_axes(e->p);
  ir_value place = attention_mul(b, vector, e->shape.lanes * 4), step = ir_load(b, b->i64, pairs->step, 8);
  ir_value row = mul(b, add(b, key, i64(b, 1)), step), queries = ir_offset(b, pairs->query_places, add(b, row, place));
  ir_value at = nth(b, pairs->places.narrow, key, 4);
  for (int axis = 0; axis < axes; axis++) {
    if (axis == own) queries = ir_offset(b, pairs->query_numbers, place);
    if (is_row_place(e->p, axis)) narrow[axis] = row_at(pairs, axis, key, vector);
    if (is_pair_place(e->p, axis)) narrow[axis] = load(e, pair_number_at(pairs, axis, false, key, vector));
    if (is_row_place(e->p, axis) || is_pair_place(e->p, axis)) continue;
    ir_value k = ir_broadcast(b, e->lanes,
                              ir_load(b, b->f32, ir_offset_const(b, at, (int64_t)axis * pairs->places.room * 4), 4));
    int64_t before = (int64_t)(axis < own ? axis : axis - own) * e->shape.queries * 4;
    narrow[axis] = sub(b, k, ir_load(b, e->lanes, ir_offset_const(b, queries, before), 4));
  }
}

void emit_places_of_queries(const pair_emitter *pairs, ir_value vector, ir_value *narrow) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  int own = key_places_axes(e->p);
  ir_value place = attention_mul(b, vector, e->shape.lanes * 4), none = ir_float(b, e->lanes, 0);
  for (int axis = 0; axis < e->p->n_places; axis++) {
    const pegen_attention_number *number = axis < own ? NULL : &e->p->number[axis - own];
    ir_value queries = axis < own ? pairs->query_places : pairs->query_numbers;
    if (number && (number->of_key || is_pair_place(e->p, axis))) continue;
    int64_t before = (int64_t)(axis < own ? axis : axis - own) * e->shape.queries * 4;
    if (is_row_place(e->p, axis)) narrow[axis] = row_at(pairs, axis, e->zero, vector);
    else narrow[axis] = sub(b, none, load(e, ir_offset_const(b, ir_offset(b, queries, place), before)));
  }
}
