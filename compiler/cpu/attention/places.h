/* cpu/attention/places: coordinates of a tile's keys. */
#pragma once

#include "cpu/attention/tile.h"

typedef struct key_places {
  ir_value narrow, wide; /* [axis][room]: float32 and float64 */
  int room;              /* keys of a tile, rounded up to registers */
} key_places;

/* Coordinates of positions, which come first: numbers of tokens stand behind them. */
static inline int key_places_axes(const attention_plan *p) { return p->n_places - p->n_numbers; }

/* Whether a place is where rows of an input are; whether it is a pair's number of one. */
static inline bool is_row_place(const attention_plan *p, int place) {
  return place >= key_places_axes(p) && attention_is_row(p, place - key_places_axes(p));
}
static inline bool is_pair_place(const attention_plan *p, int place) {
  return place >= key_places_axes(p) && attention_is_pair(p, place - key_places_axes(p));
}
/* Numbers of pairs: of which input, and which of them; how many there are. */
static inline int pair_place_input(const attention_plan *p, int place) {
  return p->number[place - key_places_axes(p)].input;
}
int pair_places_before(const attention_plan *p, int place);
/* Numbers of pairs of a tile's queries from lane `lane` on, `lanes` of them, with keys [key, count) of the tile,
 * [key][pitch] at `to`; 0 of keys behind the last one. */
void emit_pair_numbers(const attention_emitter *e, const key_tile *t, int place, ir_value lane, int lanes, ir_value key,
                       int pitch, ir_value to);

int key_places_room(const attention_shape *s);
/* Their room, once. */
key_places emit_key_places_begin(const attention_emitter *e);
/* What stands in it, for each tile. i1: some coordinate is far and no float32, so that differences of such as are
 * rounded would not be those of the coordinates. */
ir_value emit_key_places(const attention_emitter *e, const key_places *places, const key_tile *t);
/* i1 lanes: the same of coordinates, float64, and what they are rounded to. */
ir_value emit_is_far(ir *b, ir_value wide, ir_value narrow);
/* Whether lanes of i1 are not all 0. */
ir_value emit_some(const attention_emitter *e, ir_value lanes);
