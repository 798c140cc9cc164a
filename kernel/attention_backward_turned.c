/* attention_backward_turned.c: gradients of attention whose rows of q and k are turned at their own positions, as
 * attention_turned.c does for what they are of: with q' = A(r) q and k' = A(s) k, where A is sqrt(stretch) times a
 * rotation,
 *
 *     g_q = A(r)^T g_q',   g_k = A(s)^T g_k',   A(r)^T = A(-r).
 *
 * Tiles of queries that follow each other go through the keys together, a panel at a time: its rows are turned once for
 * all of them, and what a tile's queries gain of a panel is added to what they gained of those before. Panels begin
 * where they do whatever the parts are, and what a key gains is summed tile by tile, so that neither parts nor how many
 * tiles go together change a bit. Sums of keys stay turned until the last tile of an item, or until a head comes that
 * has other rotors: what prefix tokens give them, which are not turned, is summed in no frame.
 *
 * A position that is no number makes none of what comes of its row. Where no pair with it is seen, its products are
 * left out, as those of rows that are no numbers are.
 */
#include "attention_backward_walk.h"

typedef pegen_attention_backward_walk backward;

/* What a group of tiles does. */
typedef struct group {
  backward *w;
  int64_t batch, head;
  int of_queries, of_keys;
} group;

static int64_t row_bytes(const backward *w) { return w->walk.driver->kernel->head_dim * (int64_t)sizeof(float); }

static int64_t pitch_of(const backward *w) { return pegen_attention_pitch(w->walk.driver->kernel->head_dim); }

static float *queries_of(const backward *w, int64_t tile) {
  return w->together.queries + tile * w->walk.queries * w->walk.driver->kernel->head_dim;
}

static float *gained_of(const backward *w, int64_t tile) {
  return w->together.gained + tile * w->walk.queries * pitch_of(w);
}

/* ---- frames of sums ---- */

/* Sums that A(s) turned, of which it is A(s)^-T that was wanted: less A(0)^T A(0), which is diagonal. */
static void unstretch(const backward *w, float *sums, int64_t pitch, int64_t begin, int64_t end) {
  int64_t width = w->walk.driver->kernel->head_dim;
  double origin[PEGEN_MAX_ROTOR_AXES];
  float *row = w->together.panel.keys; /* nothing is in it between groups */
  for (int axis = 0; axis < PEGEN_MAX_ROTOR_AXES; axis++) origin[axis] = 0;
  for (int64_t i = 0; i < width; i++) row[i] = 1;
  for (int i = 0; i < 2; i++) pegen_attention_turn_back(&w->turner, row, row_bytes(w), 1, origin, 1);
  for (int64_t key = begin; key < end; key++)
    for (int64_t i = 0; i < width; i++) sums[key * pitch + i] /= row[i];
}

void pegen_attention_backward_reframe(backward *w, float *sums, int64_t pitch, int64_t begin, int64_t end,
                                      int64_t *frame, int64_t head, int stretches) {
  int stays = *frame == head || *frame == PEGEN_FRAME_EMPTY || (*frame >= 0 && head >= 0 && !w->walk.driver->per_head);
  if (!stays && *frame >= 0) {
    pegen_attention_turner_set_head(&w->turner, *frame);
    pegen_attention_turn_sums(&w->turner, sums, pitch, begin, end, 1);
  }
  if (!stays && head >= 0) {
    pegen_attention_turner_set_head(&w->turner, head);
    pegen_attention_turn_sums(&w->turner, sums, pitch, begin, end, 0);
    if (stretches) unstretch(w, sums, pitch, begin, end);
  }
  *frame = head;
}

/* ---- rows ---- */

static void take_queries(const group *g, int turns) {
  const backward *w = g->w;
  for (int64_t i = 0; i < w->together.count; i++) {
    const pegen_attention_tile *tile = &w->together.tiles[i]; /* whose tokens follow each other */
    const char *rows = tile->q[0] + tile->tokens[0] * tile->q_token;
    pegen_turned_rows both[2] = {
        pegen_attention_take(&w->turner, rows, tile->q_token, tile->queries, queries_of(w, i), turns)};
    if (turns) pegen_attention_turn(&w->turner, both, tile->queries, tile->positions[0], PEGEN_ATTENTION_QUERIES);
    pegen_attention_narrow_rows(&w->turner, queries_of(w, i), tile->queries);
  }
}

/* ---- tiles ---- */

/* Tile `index` of the group against keys [first, last), which are in the panel. */
static void attend(const group *g, int64_t index, int64_t first, int64_t last) {
  backward *w = g->w;
  pegen_attention_gradient_tile *t = &w->tile;
  const pegen_attention_tile *tile = &w->together.tiles[index];
  int64_t bytes = w->turner.row, token = pitch_of(w) * (int64_t)sizeof(float), before = tile->tokens[0];
  pegen_attention_copy_tile(&w->walk, &t->tile, tile);
  if (w->turns_values)
    pegen_attention_turn_gradient(&w->turner, t, &w->call->forward.out, &w->call->g_out, g->batch, g->head);
  if (w->walk.spoilt && w->walk.form->hides) t->tile.free = 0;
  t->tile.q[0] = (const char *)((uintptr_t)queries_of(w, index) - (uintptr_t)(before * bytes));
  t->tile.q_token = bytes;
  pegen_attention_use(&w->turner, &w->together.panel, first, &t->tile);
  t->tile.end = pegen_smaller(tile->end, last);
  t->begin = first;
  t->g_q = 0;
  if (g->of_queries && !w->call->g_q.empty && first < last)
    t->g_q = (char *)((uintptr_t)gained_of(w, index) - (uintptr_t)(before * token));
  t->g_q_token = token;
  t->key_sums = g->of_keys ? w->key_sums : 0;
  t->value_sums = g->of_keys ? w->value_sums : 0;
  t->weight_gains = 0;
  t->place_sums = t->key_place_sums = t->key_row_gains = 0;
  t->row_gains = 0;
  t->n_ahead = 0;
  w->attend(t);
}

static void run_panels(const group *g, int64_t begin, int64_t end, int turns) {
  backward *w = g->w;
  int64_t seen = 0;
  for (int64_t i = 0; i < w->together.count; i++)
    if (w->together.tiles[i].end > seen) seen = w->together.tiles[i].end;
  end = pegen_smaller(end, seen);
  for (int64_t first = begin, last; first < end; first = last) {
    last = pegen_smaller(end, first + w->turns->keys);
    w->walk.spoilt |= pegen_attention_fill(&w->turner, &w->together.panel, first, last - first, turns);
    for (int64_t i = 0; i < w->together.count; i++)
      if (w->together.tiles[i].end > first) attend(g, i, first, last);
  }
}

/* A tile that sees no key still has its sink, whose score is log-sum-exp itself. */
static void run_sinks(const group *g, int64_t begin) {
  if (begin || !g->w->tile.operand_sums) return;
  for (int64_t i = 0; i < g->w->together.count; i++)
    if (g->w->together.tiles[i].end <= 0) attend(g, i, 0, 0);
}

/* What keys from behind the prefix on gained is turned by the head's rotors from here on, or by none. */
static void set_key_frame(const group *g, int64_t begin, int64_t end, int64_t head) {
  backward *w = g->w;
  int64_t placed = begin > w->walk.skip ? begin : w->walk.skip;
  int stretches = w->turns->stretches != 0;
  if (g->of_keys && w->key_sums)
    pegen_attention_backward_reframe(w, w->key_sums, pitch_of(w), placed, end, &w->key_frame, head, stretches);
  pegen_attention_turner_set_head(&w->turner, g->head);
}

static void give_queries(const group *g) {
  const backward *w = g->w;
  const pegen_view *rows = &w->call->g_q;
  for (int64_t i = 0; i < w->together.count; i++) {
    const pegen_attention_tile *tile = &w->together.tiles[i];
    char *to = pegen_at(rows, g->batch, g->head, 0) + tile->tokens[0] * rows->stride[PEGEN_TOKEN];
    w->code->store_keys[w->call->forward.type](gained_of(w, i), to, rows->stride[PEGEN_TOKEN], tile->queries, 1);
  }
}

static void turn_queries_back(const group *g) {
  const backward *w = g->w;
  for (int64_t i = 0; i < w->together.count; i++) {
    const pegen_attention_tile *tile = &w->together.tiles[i];
    pegen_attention_turn_back(&w->turner, gained_of(w, i), pitch_of(w) * (int64_t)sizeof(float), tile->queries,
                              tile->positions[0], PEGEN_ATTENTION_QUERIES);
  }
}

/* Prefix tokens have neither bias nor rotation: with them rows are as they are. */
static void run_group(const group *g, int is_prefix, int64_t begin, int64_t end) {
  backward *w = g->w;
  int64_t plain = is_prefix ? w->walk.keys : w->walk.skip, placed = begin > plain ? begin : plain;
  int wants_queries = g->of_queries && !w->call->g_q.empty;
  for (int64_t i = 0; i < w->together.count * w->walk.queries * pitch_of(w); i++) w->together.gained[i] = 0;
  set_key_frame(g, begin, end, is_prefix ? PEGEN_FRAME_NONE : g->head);
  if (!is_prefix) {
    take_queries(g, 1);
    run_panels(g, placed, end, 1);
    if (wants_queries) turn_queries_back(g);
  }
  if (begin < plain) {
    take_queries(g, 0);
    run_panels(g, begin, pegen_smaller(plain, end), 0);
  }
  run_sinks(g, begin);
  if (wants_queries) give_queries(g);
}

static void add_tile(backward *w, int64_t index) {
  pegen_attention_tile *tile = &w->together.tiles[w->together.count++];
  pegen_attention_set_tile(&w->walk, index);
  pegen_attention_copy_tile(&w->walk, tile, &w->walk.tile);
  w->walk.spoilt |=
      pegen_some_are_nowhere(tile->positions[0], w->walk.places.axes, tile->queries, PEGEN_ATTENTION_QUERIES);
}

void pegen_attention_backward_turned(backward *w, int64_t batch, int64_t head, int64_t first, int64_t last,
                                     int64_t begin, int64_t end, int of_queries, int of_keys) {
  group g = {w, batch, head, of_queries, of_keys};
  for (int64_t stop; first < last; first = stop) {
    int is_prefix = first < w->walk.prefix_tiles;
    stop = pegen_smaller(last, first + w->turns->tiles);
    if (is_prefix) stop = pegen_smaller(stop, w->walk.prefix_tiles);
    w->together.count = 0;
    for (int64_t i = first; i < stop; i++) add_tile(w, i);
    run_group(&g, is_prefix, begin, end);
  }
}
