/* attention_turner.h: panels of keys as float32, and rows turned at their own positions by a kernel's own encode
 * functions of float32, for attention whose rotations leave the pairs and for its gradients. */
#pragma once

#include "attention_walk.h"

typedef struct pegen_attention_turner {
  const pegen_attention_walk *w;
  const pegen_blades *rows; /* NULL: nothing is turned */
  const pegen_target_code *code;
  const pegen_attention_code *attention;
  double *leaves; /* of rotors */
  char *prepared;
  float *lanes; /* of gradients: [2][queries of a tile][head_dim] */
  pegen_attention_read_function *read; /* rows of the call's type */
  int64_t head; /* whose rotors are prepared; -1: none */
  int64_t row; /* bytes of a row as tiles take it */
  pegen_attention_narrow_function *narrow; /* to which rows come; NULL: they are float32 there */
} pegen_attention_turner;

/* Float32 rows of head_dim channels, strides in bytes; in NULL: none. */
typedef struct pegen_turned_rows {
  const char *in;
  int64_t in_token;
  float *out; /* which `in` may be */
  int64_t out_token;
} pegen_turned_rows;

/* Keys of a head that some tiles of queries go through together, float32 [keys][head_dim]: turned, or as they came. */
typedef struct pegen_attention_panel {
  float *keys, *values; /* values: NULL: they stay where they are */
  double *places;       /* [axes][keys] */
  int is_one; /* 1: keys are values, too: those of one tensor */
} pegen_attention_panel;

/* All but the room, which is the caller's. */
PEGEN_INTERNAL void pegen_attention_turner_begin(pegen_attention_turner *t, const pegen_attention_walk *w, int target);
/* Tiles take rows as dot products do, where the call has them, or, as in the beginning, as float32. */
PEGEN_INTERNAL void pegen_attention_turner_narrow(pegen_attention_turner *t);
PEGEN_INTERNAL void pegen_attention_turner_widen(pegen_attention_turner *t);
/* `count` rows of head_dim float32 as tiles take them, in place. */
static inline void pegen_attention_narrow_rows(const pegen_attention_turner *t, float *rows, int64_t count) {
  if (t->narrow && rows) t->narrow(rows, count);
}
/* What follows is of this head of q. */
PEGEN_INTERNAL void pegen_attention_turner_set_head(pegen_attention_turner *t, int64_t head);
/* Whether one of `count` places, [axes][stride], is nowhere: what is turned by it is no number, either. */
static inline int pegen_some_are_nowhere(const double *places, int64_t axes, int64_t count, int64_t stride) {
  int lost = 0;
  for (int64_t axis = 0; axis < axes; axis++)
    for (int64_t i = 0; i < count; i++) lost |= !__builtin_isfinite(places[axis * stride + i]);
  return lost;
}
/* `count` rows of each by the rotors of coordinates places[axes][stride]. */
PEGEN_INTERNAL void pegen_attention_turn(const pegen_attention_turner *t, const pegen_turned_rows rows[2],
                                         int64_t count, const double *places, int64_t stride);
/* `count` rows of the call's type, `token` bytes apart, as float32 in `to`; rows that are to be turned on the way, and
 * are float32, stay where they are. */
PEGEN_INTERNAL pegen_turned_rows pegen_attention_take(const pegen_attention_turner *t, const char *from, int64_t token,
                                                      int64_t count, float *to, int turns);
/* Fills a panel with keys [first, first + count) of the walk's head. Returns 1 where some are turned and nowhere. */
PEGEN_INTERNAL int pegen_attention_fill(const pegen_attention_turner *t, pegen_attention_panel *panel, int64_t first,
                                        int64_t count, int turns);
/* The tile finds keys from `first` on in the panel. */
PEGEN_INTERNAL void pegen_attention_use(const pegen_attention_turner *t, const pegen_attention_panel *panel,
                                        int64_t first, pegen_attention_tile *tile);
/* `count` rows where they are, `token` bytes apart, by R(-r) = R(r)^-1: at most PEGEN_ATTENTION_TURNED_KEYS, which are
 * no fewer than PEGEN_ATTENTION_QUERIES. */
PEGEN_INTERNAL void pegen_attention_turn_back(const pegen_attention_turner *t, float *rows, int64_t token,
                                              int64_t count, const double *places, int64_t stride);

/* Gradients of attention whose values are turned are those of attention whose values are not, of
 *
 *     v' = R(s) v,   out' = R(r) out,   g' = R(r) g_out,   and then g_v = R(s)^-1 g_v',
 *
 * since out = R(r)^-1 out', and R is its own inverse's transpose. */
/* The tile's rows of out and of its gradient, by lane. */
PEGEN_INTERNAL void pegen_attention_turn_gradient(const pegen_attention_turner *t, pegen_attention_gradient_tile *tile,
                                                  const pegen_view *out, const pegen_view *g_out, int64_t batch,
                                                  int64_t head);
/* What values of keys [begin, end) gain, `pitch` numbers from row to row: back, or once more as values are. */
PEGEN_INTERNAL void pegen_attention_turn_sums(const pegen_attention_turner *t, float *sums, int64_t pitch,
                                              int64_t begin, int64_t end, int back);

#define PEGEN_ATTENTION_PANEL_ROOM(panel, width, n_keys, n_values) \
  do { \
    size_t row_bytes = sizeof(float) * (size_t)(width); \
    (panel)->keys = PEGEN_STACK(row_bytes * (size_t)(n_keys)); \
    (panel)->values = (n_values) ? PEGEN_STACK(row_bytes * (size_t)(n_values)) : 0; \
    (panel)->places = __builtin_alloca(sizeof(double) * (size_t)((n_keys) * PEGEN_MAX_ROTOR_AXES)); \
  } while (0)

#define PEGEN_ATTENTION_TURNER_ROOM(t) \
  do { \
    size_t line = 64, leaves = (t)->rows ? (size_t)((t)->rows->n_leaves * (t)->rows->lanes) : 0; \
    (t)->prepared = PEGEN_STACK(((t)->rows ? (t)->rows->prepared_bytes : 0) + line); \
    (t)->leaves = PEGEN_STACK(sizeof(double) * leaves + line); \
  } while (0)
