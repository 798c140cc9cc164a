/* cpu/attention/places: coordinates of a tile's keys. */
#ifndef PEGEN_CPU_ATTENTION_PLACES_H
#define PEGEN_CPU_ATTENTION_PLACES_H

#include "cpu/attention/tile.h"

typedef struct key_places {
  ir_value narrow, wide; /* [axis][room]: float32 and float64 */
  int room;              /* keys of a tile, rounded up to registers */
} key_places;

int key_places_room(const attention_shape *s);
/* Their room, once. */
key_places emit_key_places_begin(const attention_emitter *e);
/* What stands in it, for each tile. */
void emit_key_places(const attention_emitter *e, const key_places *places, const key_tile *t);

#endif
