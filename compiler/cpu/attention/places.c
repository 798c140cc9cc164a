/* cpu/attention/places: see cpu/attention/places.h. */
#include "cpu/attention/places.h"

#include "cpu/product.h"
#include "mlir/arith.h"

/* Coordinates below it from the origin are as good as exact: their differences are 2^-18 off at most. */
static const double NEAR = 64;
/* From here on the float64 of an int64 is rounded already. */
static const double ROUNDED = 0x1p53;

int key_places_room(const attention_shape *s) { return (s->keys + s->lanes - 1) / s->lanes * s->lanes; }

key_places emit_key_places_begin(const attention_emitter *e) {
  key_places places = {.room = key_places_room(&e->shape)};
  int64_t numbers = (int64_t)e->p->n_places * places.room;
  places.wide = ir_alloca(e->b, numbers * 8, 64);
  places.narrow = ir_alloca(e->b, numbers * 4, 64);
  return places;
}

int pair_places_before(const attention_plan *p, int place) {
  int count = 0;
  for (int i = 0; i < place; i++) count += is_pair_place(p, i);
  return count;
}

void emit_pair_numbers(const attention_emitter *e, const key_tile *t, int place, ir_value lane, int lanes, ir_value key,
                       int pitch, ir_value to) {
  ir *b = e->b;
  ir_value arguments[] = {e->tile,
                          i64(b, pair_place_input(e->p, place)),
                          i64(b, place),
                          lane,
                          i64(b, lanes),
                          add(b, t->first, key),
                          sub(b, t->count, key),
                          sub(b, i64(b, key_places_room(&e->shape)), key),
                          i64(b, pitch),
                          to};
  ir_call(b, "pegen_attention_read_pairs", 10, arguments);
}

ir_value emit_is_far(ir *b, ir_value wide, ir_value narrow) {
  ir_value is_rounded = ir_compare_float(b, "one", ir_cast(b, "arith.extf", narrow, b->f64), wide);
  ir_value size = ir_op1(b, "math.absf", wide), least = ir_float(b, ir_type(size), NEAR);
  ir_value may_be_rounded = ir_compare_float(b, "oge", size, ir_float(b, ir_type(size), ROUNDED));
  is_rounded = ir_op2(b, "arith.andi", is_rounded, ir_compare_float(b, "ogt", size, least));
  return ir_op2(b, "arith.ori", is_rounded, may_be_rounded);
}

ir_value emit_some(const attention_emitter *e, ir_value lanes) {
  ir *b = e->b;
  ir_value one = ir_float(b, e->lanes, 1), zero = ir_float(b, e->lanes, 0);
  ir_value most = emit_across(b, ir_select(b, lanes, one, zero), larger);
  return ir_compare_float(b, "ogt", most, ir_float(b, b->f32, 0));
}

ir_value emit_key_places(const attention_emitter *e, const key_places *places, const key_tile *t) {
  ir *b = e->b;
  ir_value none = ir_int(b, b->i1, 0);
  if (e->p->n_places == 0) return none;
  int lanes = e->shape.lanes;
  ir_value where = ir_load(b, b->ptr, ir_offset_const(b, e->tile, offsetof(pegen_attention_tile, keys)), 8);
  ir_value arguments[] = {where, t->first, t->count, i64(b, places->room), places->wide};
  ir_call(b, "pegen_attention_rows", 5, arguments);
  if (e->p->matrix && !e->p->bias && !e->p->score) return none; /* all is of float64 */
  ir_value far = ir_int(b, ir_vector(b, lanes, b->i1), 0), now;
  ir_loop loop = ir_for_with(b, e->zero, i64(b, (int64_t)e->p->n_places * (places->room / lanes)), 1, &far, &now);
  ir_value wide = ir_load(b, ir_vector(b, lanes, b->f64), nth(b, places->wide, loop.index, (int64_t)lanes * 8), 8);
  ir_value narrow = ir_cast(b, "arith.truncf", wide, b->f32);
  ir_store(b, narrow, nth(b, places->narrow, loop.index, (int64_t)lanes * 4), 4, false);
  /* Numbers behind coordinates are what they are. */
  ir_value is_place =
      ir_compare_int(b, "slt", loop.index, i64(b, (int64_t)key_places_axes(e->p) * (places->room / lanes)));
  ir_value is_far = ir_op2(b, "arith.andi", emit_is_far(b, wide, narrow), ir_broadcast(b, ir_type(far), is_place));
  ir_value next = ir_op2(b, "arith.ori", now, is_far);
  ir_end_for_with(b, loop, 1, &next, &far);
  return key_places_axes(e->p) ? emit_some(e, far) : none;
}
