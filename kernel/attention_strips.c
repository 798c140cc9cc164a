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

static int find_strip(const pegen_attention_places *keys, int64_t axis, int64_t skip, int64_t count,
                      pegen_attention_strip *strip) {
  double place[PEGEN_MAX_ROTOR_AXES * AT_ONCE];
  table t;
  for (int64_t i = 0; i < BUCKETS; i++) t.number[i] = 0;
  t.strip = strip;
  for (int64_t first = skip; first < count; first += AT_ONCE) {
    int64_t now = pegen_smaller(count - first, AT_ONCE);
    pegen_attention_rows(keys, first, now, AT_ONCE, place);
    for (int64_t i = 0; i < now; i++) {
      double at = place[axis * AT_ONCE + i];
      int64_t number = is_near(at) ? number_of(&t, (float)at) : -1;
      if (number < 0) return 0;
      strip->of_key[first + i] = (uint8_t)number;
    }
  }
  return 1;
}

void pegen_attention_find_strips(pegen_attention_walk *w) {
  pegen_attention_places *keys = &w->key_places;
  keys->n_numbers = 0; /* which are of heads, and are not looked at */
  for (int64_t axis = 0; axis < keys->axes; axis++) {
    pegen_attention_strip *strip = &keys->strips[axis];
    strip->count = 0;
    if (!(w->form->strips >> axis & 1) || w->keys > PEGEN_STRIP_KEYS) continue;
    if (!find_strip(keys, axis, w->skip, w->keys, strip)) strip->count = 0;
  }
  keys->n_numbers = w->form->n_numbers;
}
