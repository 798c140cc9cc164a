/* attention_turner.c: see attention_turner.h. */
#include "attention_turner.h"

_Static_assert((int)PEGEN_ATTENTION_TURNED_KEYS >= (int)PEGEN_ATTENTION_QUERIES,
               "a tile's outputs are turned back at once");

enum { NO_LIMIT = 1 << 30 };

void pegen_attention_turner_begin(pegen_attention_turner *t, const pegen_attention_walk *w, int target) {
  t->w = w;
  t->rows = w->form->turned ? w->form->turned[target].rows : 0;
  t->code = t->rows ? &t->rows->targets[target] : 0;
  t->attention = &w->form->targets[target];
  t->read = t->attention->read[w->call->type];
  t->head = -1;
  pegen_attention_turner_widen(t);
}

void pegen_attention_turner_widen(pegen_attention_turner *t) {
  t->row = t->w->driver->kernel->head_dim * (int64_t)sizeof(float);
  t->narrow = 0;
}

void pegen_attention_turner_narrow(pegen_attention_turner *t) {
  if (!t->w->dots) return;
  t->row /= 2;
  t->narrow = t->attention->narrow;
}

void pegen_attention_turner_set_head(pegen_attention_turner *t, int64_t head) {
  const pegen_blades *rows = t->rows;
  if (!rows || !t->code->prepare || t->head == head || (t->head >= 0 && !t->w->driver->per_head)) return;
  t->head = head;
  pegen_gather_leaves(rows->leaves, rows->n_leaves, rows->n_blocks, rows->lanes, t->w->args, head, t->leaves);
  t->code->prepare(t->leaves, t->prepared);
}

static void set_rows(pegen_rows *of, const pegen_turned_rows *rows) {
  of->in = rows->in;
  of->out = (char *)rows->out;
  of->heads = rows->in != 0;
  of->in_token = rows->in_token;
  of->out_token = rows->out_token;
  of->gain = 1;
}

void pegen_attention_turn(const pegen_attention_turner *t, const pegen_turned_rows rows[2], int64_t count,
                          const double *places, int64_t stride) {
  pegen_loop loop;
  char *bytes = (char *)&loop;
  for (size_t i = 0; i < sizeof loop; i++) bytes[i] = 0;
  set_rows(&loop.rows[0], &rows[0]);
  set_rows(&loop.rows[1], &rows[rows[1].in != 0]);
  if (!rows[1].in) loop.rows[1].heads = 0;
  loop.token_end = count;
  loop.batch_end = loop.head_end = 1;
  loop.tile_tokens = PEGEN_ATTENTION_TURNED_ROTORS;
  loop.group_rows = NO_LIMIT;
  loop.positions = (const char *)places;
  loop.position_type = PEGEN_POSITION_F64;
  loop.position_token = sizeof(double);
  loop.position_axis = stride * (int64_t)sizeof(double);
  loop.prepared = t->prepared;
  loop.prepared_stride = t->rows->prepared_bytes;
  loop.rotor = t->code->rotor;
  loop.rotor_own = 0;
  loop.unfold = t->code->unfold;
  t->code->rows.encode[PEGEN_NUMBER_F32][0](&loop);
}

/* ---- panels ---- */

static int64_t row_bytes(const pegen_attention_turner *t) {
  return t->w->driver->kernel->head_dim * (int64_t)sizeof(float);
}

pegen_turned_rows pegen_attention_take(const pegen_attention_turner *t, const char *from, int64_t token, int64_t count,
                                       float *to, int turns) {
  if (turns && t->w->call->type == PEGEN_NUMBER_F32) return (pegen_turned_rows){from, token, to, row_bytes(t)};
  t->read(from, token, count, to);
  return (pegen_turned_rows){(const char *)to, row_bytes(t), to, row_bytes(t)};
}

static pegen_turned_rows take_keys(const pegen_attention_turner *t, int64_t first, int64_t count, int of_values,
                                   float *to, int turns) {
  const pegen_attention_tile *tile = &t->w->tile;
  const char *from = of_values ? tile->v[0] : tile->k[0];
  int64_t token = of_values ? tile->v_token : tile->k_token;
  if (!to) return (pegen_turned_rows){0, 0, 0, 0};
  if (!tile->pages) return pegen_attention_take(t, from + first * token, token, count, to, turns);
  pegen_attention_read_pages(tile, from, of_values, first, count, t->read, to, t->w->driver->kernel->head_dim);
  return (pegen_turned_rows){(const char *)to, row_bytes(t), to, row_bytes(t)};
}

/* Keys that are values, too, are turned alike. */
static int are_one(const pegen_attention_tile *tile) {
  const pegen_attention_pages *p = tile->pages;
  return tile->k[0] == tile->v[0] && tile->k_token == tile->v_token && (!p || p->k_page == p->v_page);
}

int pegen_attention_fill(const pegen_attention_turner *t, pegen_attention_panel *panel, int64_t first, int64_t count,
                         int turns) {
  panel->is_one = panel->values && are_one(&t->w->tile);
  pegen_turned_rows both[2] = {take_keys(t, first, count, 0, panel->keys, turns),
                               take_keys(t, first, count, 1, panel->is_one ? 0 : panel->values, turns)};
  if (turns) {
    pegen_attention_rows(&t->w->key_places, first, count, count, panel->places);
    pegen_attention_turn(t, both, count, panel->places, count);
  }
  pegen_attention_narrow_rows(t, both[0].out, count);
  pegen_attention_narrow_rows(t, both[1].out, count);
  return turns && pegen_some_are_nowhere(panel->places, t->w->places.axes, count, count);
}

void pegen_attention_use(const pegen_attention_turner *t, const pegen_attention_panel *panel, int64_t first,
                         pegen_attention_tile *tile) {
  tile->k[0] = (const char *)((uintptr_t)panel->keys - (uintptr_t)(first * t->row));
  tile->k_token = t->row;
  if (!panel->values) return;
  float *values = panel->is_one ? panel->keys : panel->values;
  tile->v[0] = (const char *)((uintptr_t)values - (uintptr_t)(first * t->row));
  tile->v_token = t->row;
}

/* Rows where they are, `token` bytes apart. */
static void turn_rows(const pegen_attention_turner *t, float *rows, int64_t token, int64_t count, const double *places,
                      int64_t stride) {
  pegen_turned_rows both[2] = {{(const char *)rows, token, rows, token}, {0, 0, 0, 0}};
  pegen_attention_turn(t, both, count, places, stride);
}

/* A row of zeros, of which nothing was seen, stays one also where its position is no number. */
static void settle(const pegen_attention_turner *t, const float *rows, int64_t token, int64_t count, double *places) {
  int64_t axes = t->w->places.axes, width = t->w->driver->kernel->head_dim;
  for (int64_t i = 0; i < count; i++) {
    const float *row = (const float *)(const void *)((const char *)rows + i * token);
    int is_settled = 1;
    for (int64_t axis = 0; axis < axes; axis++)
      is_settled &= __builtin_isfinite(places[axis * PEGEN_ATTENTION_TURNED_KEYS + i]) != 0;
    for (int64_t c = 0; !is_settled && c < width; c++)
      if (row[c] != 0) is_settled = 1;
    for (int64_t axis = 0; !is_settled && axis < axes; axis++) places[axis * PEGEN_ATTENTION_TURNED_KEYS + i] = 0;
  }
}

void pegen_attention_turn_back(const pegen_attention_turner *t, float *rows, int64_t token, int64_t count,
                               const double *places, int64_t stride) {
  double back[PEGEN_MAX_ROTOR_AXES * PEGEN_ATTENTION_TURNED_KEYS];
  for (int64_t axis = 0; axis < t->w->places.axes; axis++)
    for (int64_t i = 0; i < count; i++) back[axis * PEGEN_ATTENTION_TURNED_KEYS + i] = -places[axis * stride + i];
  settle(t, rows, token, count, back);
  turn_rows(t, rows, token, count, back, PEGEN_ATTENTION_TURNED_KEYS);
}

void pegen_attention_values(const pegen_attention_tile *tile, int64_t first, int64_t count, float *out) {
  const pegen_attention_turner *t = tile->turner;
  double places[PEGEN_MAX_ROTOR_AXES * PEGEN_ATTENTION_TURNED_KEYS];
  int64_t bytes = t->w->driver->kernel->head_dim * (int64_t)sizeof(float);
  t->read(tile->v[0] + first * tile->v_token, tile->v_token, count, out);
  pegen_attention_rows(&t->w->key_places, first, count, PEGEN_ATTENTION_TURNED_KEYS, places);
  turn_rows(t, out, bytes, count, places, PEGEN_ATTENTION_TURNED_KEYS);
}

/* ---- of gradients ---- */

/* Rows of the tile's tokens, by lane; 0 of empty lanes. */
static void take_lanes(const pegen_attention_turner *t, const pegen_attention_tile *tile, const pegen_view *view,
                       int64_t batch, int64_t head, float *rows) {
  int64_t width = t->w->driver->kernel->head_dim, token = view->stride[PEGEN_TOKEN];
  const char *from = pegen_at(view, batch, head, 0);
  for (int64_t lane = 0; lane < tile->queries; lane++) {
    float *row = rows + lane * width;
    if (tile->tokens[lane] >= 0) t->read(from + tile->tokens[lane] * token, token, 1, row);
    for (int64_t i = 0; tile->tokens[lane] < 0 && i < width; i++) row[i] = 0;
  }
}

void pegen_attention_turn_gradient(const pegen_attention_turner *t, pegen_attention_gradient_tile *tile,
                                   const pegen_view *out, const pegen_view *g_out, int64_t batch, int64_t head) {
  int64_t width = t->w->driver->kernel->head_dim, bytes = width * (int64_t)sizeof(float);
  float *rows = t->lanes, *gained = rows + t->w->queries * width;
  take_lanes(t, &tile->tile, out, batch, head, rows);
  take_lanes(t, &tile->tile, g_out, batch, head, gained);
  pegen_turned_rows both[2] = {{(const char *)rows, bytes, rows, bytes}, {(const char *)gained, bytes, gained, bytes}};
  pegen_attention_turn(t, both, tile->tile.queries, tile->tile.positions[0], PEGEN_ATTENTION_QUERIES);
  pegen_attention_narrow_rows(t, rows, t->w->queries);
  pegen_attention_narrow_rows(t, gained, t->w->queries);
  tile->tile.turner = t;
  tile->tile.out[0] = (char *)rows;
  tile->g_out = (const char *)gained;
  tile->tile.out_token = tile->g_out_token = t->row;
}

void pegen_attention_turn_sums(const pegen_attention_turner *t, float *sums, int64_t pitch, int64_t begin, int64_t end,
                               int back) {
  double places[PEGEN_MAX_ROTOR_AXES * PEGEN_ATTENTION_TURNED_KEYS];
  int64_t token = pitch * (int64_t)sizeof(float);
  for (int64_t count; begin < end; begin += count) {
    count = end - begin < PEGEN_ATTENTION_TURNED_KEYS ? end - begin : PEGEN_ATTENTION_TURNED_KEYS;
    pegen_attention_rows(&t->w->key_places, begin, count, PEGEN_ATTENTION_TURNED_KEYS, places);
    if (!back) settle(t, sums + begin * pitch, token, count, places);
    (back ? pegen_attention_turn_back : turn_rows)(t, sums + begin * pitch, token, count, places,
                                                   PEGEN_ATTENTION_TURNED_KEYS);
  }
}
