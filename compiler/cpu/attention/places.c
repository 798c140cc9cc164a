/* cpu/attention/places: see cpu/attention/places.h. */
#include "cpu/attention/places.h"

#include "mlir/arith.h"

int key_places_room(const attention_shape *s) { return (s->keys + s->lanes - 1) / s->lanes * s->lanes; }

key_places emit_key_places_begin(const attention_emitter *e) {
  key_places places = {.room = key_places_room(&e->shape)};
  int64_t numbers = (int64_t)e->p->n_places * places.room;
  places.wide = ir_alloca(e->b, numbers * 8, 64);
  places.narrow = ir_alloca(e->b, numbers * 4, 64);
  return places;
}

void emit_key_places(const attention_emitter *e, const key_places *places, const key_tile *t) {
  ir *b = e->b;
  if (e->p->n_places == 0) return;
  int lanes = e->shape.lanes;
  ir_value where = ir_load(b, b->ptr, ir_offset_const(b, e->tile, offsetof(pegen_attention_tile, keys)), 8);
  ir_value arguments[] = {where, t->first, t->count, i64(b, places->room), places->wide};
  ir_call(b, "pegen_attention_rows", 5, arguments);
  if (e->p->matrix && !e->p->bias && !e->p->score) return; /* all is of float64 */
  ir_loop loop = ir_for(b, e->zero, i64(b, (int64_t)e->p->n_places * (places->room / lanes)));
  ir_value wide = ir_load(b, ir_vector(b, lanes, b->f64),
                          ir_offset(b, places->wide, attention_mul(b, loop.index, (int64_t)lanes * 8)), 8);
  ir_store(b, ir_cast(b, "arith.truncf", wide, b->f32),
           ir_offset(b, places->narrow, attention_mul(b, loop.index, (int64_t)lanes * 4)), 4, false);
  ir_end_for(b, loop);
}
