/* cpu/attention/place_sums: see cpu/attention/place_sums.h.
 *
 * A query's sums stay in the lanes, in float64. A key's are lanes, too, until all of a tile's queries and blocks have
 * been added, and are then summed as those of its channels are.
 */
#include "cpu/attention/place_sums.h"

#include "cpu/attention/queries.h"
#include "cpu/attention/squares.h"

static int axes_of(const place_sums *s) { return s->pairs->e->p->n_sums; }

static int key_room(const place_sums *s) { return key_places_room(&s->pairs->e->shape); }

static ir_value key_at(const place_sums *s, int axis, ir_value key) {
  const attention_emitter *e = s->pairs->e;
  int64_t lanes = (int64_t)e->shape.lanes * 4;
  return nth(e->b, ir_offset_const(e->b, s->keys, axis * key_room(s) * lanes), key, lanes);
}

place_sums emit_place_sums_begin(const pair_emitter *pairs) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  place_sums s = {.pairs = pairs};
  ir_value of_keys = attention_is_given(e, GRADIENT_TILE(e, key_place_sums, b->ptr)),
           of_queries = attention_is_given(e, GRADIENT_TILE(e, place_sums, b->ptr));
  s.is_wanted = ir_op2(b, "arith.ori", of_queries, of_keys);
  s.queries = ir_alloca(b, (int64_t)axes_of(&s) * e->shape.queries * 8, CACHE_LINE);
  s.keys = ir_alloca(b, (int64_t)axes_of(&s) * key_room(&s) * e->shape.lanes * 4, CACHE_LINE);
  emit_zeros(e, s.queries, (int64_t)axes_of(&s) * e->shape.queries * 2);
  delta_emitter d = delta_emitter_create(e, pairs->fixed);
  for (int axis = 0; axis < axes_of(&s); axis++)
    if (e->p->place[axis]) emit_expr_fixed(&d.walker, e->p->place[axis]);
  return s;
}

void emit_place_sums_open(const place_sums *s) {
  const attention_emitter *e = s->pairs->e;
  ir_branch wanted = ir_if(e->b, s->is_wanted);
  emit_zeros(e, s->keys, (int64_t)axes_of(s) * key_room(s) * e->shape.lanes);
  ir_end_if(e->b, wanted);
}

void emit_place_gain(const place_sums *s, int axis, ir_value key, ir_value vector, ir_value gain) {
  const attention_emitter *e = s->pairs->e;
  ir *b = e->b;
  MlirType wide_type = ir_vector(b, e->shape.lanes, b->f64);
  bool is_wide = mlirTypeEqual(ir_type(gain), wide_type);
  ir_value wide = is_wide ? gain : ir_cast(b, "arith.extf", gain, b->f64),
           narrow = is_wide ? ir_cast(b, "arith.truncf", gain, b->f32) : gain;
  ir_value query =
      nth(b, ir_offset_const(b, s->queries, (int64_t)axis * e->shape.queries * 8), vector, (int64_t)e->shape.lanes * 8);
  ir_store(b, add(b, ir_load(b, wide_type, query, 8), wide), query, 8, false);
  ir_value at = key_at(s, axis, key);
  store(e, add(b, load(e, at), narrow), at);
}

/* Of a pair that is not seen nothing, whatever its displacement is. */
static void visit(void *context, delta_emitter *d) {
  const place_sums *s = context;
  const attention_emitter *e = s->pairs->e;
  ir *b = e->b;
  ir_value zero = ir_float(b, e->lanes, 0), counts = ir_compare_float(b, "une", d->cotangent, zero);
  for (int axis = 0; axis < axes_of(s); axis++)
    if (e->p->place[axis]) {
      ir_value gain = emit_expr_f32(&d->walker, e->p->place[axis]);
      emit_place_gain(s, axis, d->key, d->vector, ir_select(b, counts, gain, zero));
    }
}

void emit_bias_place_gains(const place_sums *s, const key_tile *t, ir_value gains) {
  ir *b = s->pairs->e->b;
  ir_branch wanted = ir_if(b, s->is_wanted);
  emit_pair_gains(s->pairs, t, gains, (ir_value){NULL}, visit, (void *)s);
  ir_end_if(b, wanted);
}

/* Sums of a register of keys, from `first` of the tile on, along an axis, to [key][axes]. */
static void add_keys(const place_sums *s, const key_tile *t, int axis, ir_value first, ir_value to) {
  const attention_emitter *e = s->pairs->e;
  ir *b = e->b;
  ir_value sums = key_at(s, axis, first);
  emit_lane_sums(e, sums, sums);
  ir_loop keys = ir_for(b, e->zero, smaller(b, sub(b, t->count, first), i64(b, e->shape.lanes)));
  ir_value key = add(b, t->first, add(b, first, keys.index)),
           at = ir_offset_const(b, nth(b, to, key, axes_of(s) * 8), axis * 8);
  ir_value sum = ir_load(b, b->f32, nth(b, sums, keys.index, 4), 4), wide = ir_cast(b, "arith.extf", sum, b->f64);
  ir_store(b, add(b, ir_load(b, b->f64, at, 8), wide), at, 8, false);
  ir_end_for(b, keys);
}

void emit_place_sums_close(const place_sums *s, const key_tile *t) {
  const attention_emitter *e = s->pairs->e;
  ir *b = e->b;
  int lanes = e->shape.lanes;
  ir_value to = GRADIENT_TILE(e, key_place_sums, b->ptr);
  ir_branch wanted = ir_if(b, attention_is_given(e, to));
  ir_loop groups = ir_for(b, e->zero, attention_groups(b, t->count, lanes));
  for (int axis = 0; axis < axes_of(s); axis++) add_keys(s, t, axis, attention_mul(b, groups.index, lanes), to);
  ir_end_for(b, groups);
  ir_end_if(b, wanted);
}

/* What the queries gain, written: each of them is of this tile alone. */
void emit_place_sums_end(const place_sums *s) {
  const attention_emitter *e = s->pairs->e;
  ir *b = e->b;
  ir_value to = GRADIENT_TILE(e, place_sums, b->ptr);
  ir_branch wanted = ir_if(b, attention_is_given(e, to));
  ir_loop lanes = ir_for(b, e->zero, i64(b, e->shape.queries));
  ir_value token = attention_lane_token(e, e->zero, lanes.index);
  ir_branch given = ir_if(b, ir_compare_int(b, "sge", token, e->zero));
  for (int axis = 0; axis < axes_of(s); axis++) {
    ir_value from = ir_offset_const(b, s->queries, (int64_t)axis * e->shape.queries * 8),
             sum = ir_load(b, b->f64, nth(b, from, lanes.index, 8), 8), row = nth(b, to, token, axes_of(s) * 8);
    ir_store(b, sub(b, ir_float(b, b->f64, 0), sum), ir_offset_const(b, row, axis * 8), 8, false);
  }
  ir_end_if(b, given);
  ir_end_for(b, lanes);
  ir_end_if(b, wanted);
}
