/* attention_strips.c: which coordinates a batch's keys have, axis by axis.
 *
 * What a score computes of a query and one coordinate of the key is the same for all keys that have it: on a grid of
 * 64 by 64 for one in 64. Tiles of queries compute it once for each coordinate, where these are few (attention.h).
 */
#include "attention_walk.h"

/* A table of places by their bits; 0: empty, else 1 more than their number. */
enum { BUCKETS = 256, SHIFT = 64 - 8, AT_ONCE = 64 };
static const uint64_t SPREAD = 0x9e3779b97f4a7c15ull;

typedef struct table {
  uint8_t number[BUCKETS];
  pegen_attention_strip *strip;
} table;

static uint64_t bits_of(float x) {
  union {
    float number;
    uint32_t bits;
  } both;
  both.number = x;
  return both.bits;
}

/* Places that tiles count as near the origin, which float32 holds or as good as holds
 * (compiler/cpu/attention/places.c).
 */
static int is_near(double place) {
  double size = __builtin_fabs(place);
  return size <= 64 || (size < 0x1p53 && (double)(float)place == place);
}

/* The place's number, or -1 where there are too many, or it is far. */
static int64_t number_of(table *t, float place) {
  pegen_attention_strip *s = t->strip;
  for (uint64_t at = bits_of(place) * SPREAD >> SHIFT;; at = (at + 1) % BUCKETS) {
    int64_t number = t->number[at] - 1;
    if (number >= 0 && s->places[number] == place) return number;
    if (number >= 0) continue;
    if (s->count == PEGEN_STRIP_PLACES) return -1;
    s->places[s->count] = place;
    t->number[at] = (uint8_t)(s->count + 1);
    return s->count++;
  }
}

/* Numbers the places of `count` keys from `first` on; 0: one has none. */
static int number_keys(table *t, const double *place, int64_t first, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    int64_t number = is_near(place[i]) ? number_of(t, (float)place[i]) : -1;
    if (number < 0) return 0;
    t->strip->of_key[first + i] = (uint8_t)number;
  }
  return 1;
}

void pegen_attention_find_strips(pegen_attention_walk *w) {
  pegen_attention_places *keys = &w->key_places;
  double place[PEGEN_MAX_ROTOR_AXES * AT_ONCE];
  table tables[PEGEN_MAX_ROTOR_AXES];
  int64_t asked = w->keys > PEGEN_STRIP_KEYS ? 0 : w->form->strips;
  for (int64_t axis = 0; axis < keys->axes; axis++) {
    keys->strips[axis].count = 0;
    tables[axis].strip = &keys->strips[axis];
    for (int64_t i = 0; i < BUCKETS; i++) tables[axis].number[i] = 0;
  }
  keys->n_numbers = 0; /* which are of heads, and are not looked at */
  for (int64_t first = w->skip; asked && first < w->keys; first += AT_ONCE) {
    int64_t now = pegen_smaller(w->keys - first, AT_ONCE);
    pegen_attention_rows(keys, first, now, AT_ONCE, place);
    for (int64_t axis = 0; axis < keys->axes; axis++) {
      if (!(asked >> axis & 1) || number_keys(&tables[axis], place + axis * AT_ONCE, first, now)) continue;
      keys->strips[axis].count = 0;
      asked &= ~((int64_t)1 << axis);
    }
  }
  keys->n_numbers = w->form->n_numbers;
}
