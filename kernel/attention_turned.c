/* attention_turned.c: attention whose rows of q and k are turned at their own positions, each once (or once for some
 * tiles): R(s - r) = R(r)^-1 R(s), compiler/algebra/relative.h.
 *
 * Tiles of queries that follow each other and have their keys in common go through these together, a panel at a time:
 * its rows are read as float32 and turned by encode's own functions, and then every tile takes it, remembering its
 * queries, sums and outputs from panel to panel. How many go together changes no bit, since panels are tiles of keys
 * and a tile of queries knows nothing of others. All of it is on the stack of the call, however many keys there are.
 *
 * Phases count from the place of the first key that has a finite one, as displacements do.
 */
#include "attention_walk.h"

enum { CACHE_LINE = 64, NO_LIMIT = 1 << 30 };

typedef struct turned {
  pegen_attention_walk *w;
  const pegen_attention_turned *form;
  const pegen_target_code *code;
  pegen_attention_read_function *read;
  pegen_attention_tile *tiles;
  float *states, *panel; /* panel: of keys, and of a tile's queries on their way into its state */
  double *places;        /* [axes][keys] */
  double *leaves;        /* of rotors */
  char *prepared;
  int64_t head;          /* whose rotors are prepared; -1: none */
  int64_t n_tiles, width;
} turned;

/* ---- rows ---- */

/* `count` float32 rows, `token` bytes apart, into the panel, at their coordinates [axes][stride]. */
static void turn(turned *t, const char *rows, int64_t token, int64_t count, const double *places, int64_t stride) {
  pegen_loop loop;
  char *bytes = (char *)&loop;
  for (size_t i = 0; i < sizeof loop; i++) bytes[i] = 0;
  pegen_rows *of = &loop.rows[0];
  of->in = rows;
  of->out = (char *)t->panel;
  of->heads = 1;
  of->in_token = token;
  of->out_token = t->width * (int64_t)sizeof(float);
  of->gain = 1;
  loop.rows[1] = *of;
  loop.rows[1].heads = 0;
  loop.token_end = count;
  loop.batch_end = loop.head_end = 1;
  loop.tile_tokens = PEGEN_ATTENTION_TURNED_ROTORS;
  loop.group_rows = NO_LIMIT;
  loop.positions = (const char *)places;
  loop.position_type = PEGEN_POSITION_F64;
  loop.position_token = sizeof(double);
  loop.position_axis = stride * (int64_t)sizeof(double);
  loop.prepared = t->prepared;
  loop.prepared_stride = t->form->rows->prepared_bytes;
  loop.rotor = t->code->rotor;
  loop.unfold = t->code->unfold;
  t->code->encode[PEGEN_NUMBER_F32][0](&loop);
}

/* `count` rows of the call's type, `token` bytes apart, into the panel; turned where they have coordinates. */
static void take_rows(turned *t, const char *from, int64_t token, int64_t count, const double *places, int64_t stride) {
  if (places && t->w->call->type == PEGEN_NUMBER_F32) {
    turn(t, from, token, count, places, stride);
    return;
  }
  t->read(from, token, count, t->panel);
  if (places) turn(t, (const char *)t->panel, t->width * (int64_t)sizeof(float), count, places, stride);
}

/* ---- tiles ---- */

static void attend(const turned *t, pegen_attention_tile *tile, int64_t stages, int64_t begin, int64_t end) {
  int64_t all = tile->end;
  tile->stages = stages;
  tile->begin = begin;
  tile->end = end;
  t->w->attend(tile);
  tile->end = all;
}

/* A tile's queries into its state, a register at a time: that many rows of them are no more than a panel has. */
static void take_queries(turned *t, pegen_attention_tile *tile, int64_t stages, int turns) {
  const pegen_attention_walk *w = t->w;
  for (int64_t first = 0; first < w->queries; first += w->lanes, stages = 0) {
    int64_t left = tile->queries - first, count = left < 0 ? 0 : left < w->lanes ? left : w->lanes;
    const char *rows = count ? tile->q[0] + tile->tokens[first] * tile->q_token : 0;
    if (count)
      take_rows(t, rows, tile->q_token, count, turns ? &tile->positions[0][first] : 0, PEGEN_ATTENTION_QUERIES);
    for (int64_t i = count * t->width; i < w->lanes * t->width; i++) t->panel[i] = 0;
    tile->vector = first / w->lanes;
    tile->rows = t->panel;
    attend(t, tile, stages | PEGEN_STAGE_QUERIES, 0, 0);
  }
}

/* Keys [begin, end), or those of them that each tile sees. */
static void run_keys(turned *t, int64_t begin, int64_t end, int turns) {
  const pegen_attention_walk *w = t->w;
  const char *k = w->tile.k[0];
  int64_t bytes = t->width * (int64_t)sizeof(float);
  for (int64_t first = begin, last; first < end; first = last) {
    last = first + t->form->keys < end ? first + t->form->keys : end;
    if (turns) pegen_attention_rows(&w->key_places, first, last - first, last - first, t->places);
    take_rows(t, k + first * w->tile.k_token, w->tile.k_token, last - first, turns ? t->places : 0, last - first);
    for (int64_t i = 0; i < t->n_tiles; i++) {
      pegen_attention_tile *tile = &t->tiles[i];
      if (tile->end <= first) continue;
      tile->k[0] = (const char *)((uintptr_t)t->panel - (uintptr_t)(first * bytes));
      tile->k_token = bytes;
      attend(t, tile, 0, first, tile->end < last ? tile->end : last);
    }
  }
}

/* Prefix tokens have neither bias nor rotation: with them rows are as they are. */
static void run_tiles(turned *t) {
  int64_t plain = 0, end = 0;
  for (int64_t i = 0; i < t->n_tiles; i++) {
    const pegen_attention_tile *tile = &t->tiles[i];
    plain = tile->plain > plain ? tile->plain : plain;
    end = tile->end > end ? tile->end : end;
  }
  for (int64_t i = 0; i < t->n_tiles; i++) take_queries(t, &t->tiles[i], PEGEN_STAGE_EMPTY, plain == 0);
  run_keys(t, 0, plain, 0);
  for (int64_t i = 0; plain && plain < end && i < t->n_tiles; i++) take_queries(t, &t->tiles[i], 0, 1);
  run_keys(t, plain, end, 1);
  for (int64_t i = 0; i < t->n_tiles; i++) attend(t, &t->tiles[i], PEGEN_STAGE_OUT, 0, 0);
  t->n_tiles = 0;
}

/* ---- items ---- */

static void prepare(turned *t, int64_t head) {
  const pegen_blades *rows = t->form->rows;
  if (!t->code->prepare || t->head == head || (t->head >= 0 && !t->w->driver->per_head)) return;
  t->head = head;
  pegen_gather_leaves(rows->leaves, rows->n_leaves, rows->n_blocks, rows->lanes, t->w->args, head, t->leaves);
  t->code->prepare(t->leaves, t->prepared);
}

static void add_tile(turned *t, int64_t index) {
  pegen_attention_tile *tile = &t->tiles[t->n_tiles];
  const char *from = (const char *)&t->w->tile;
  pegen_attention_set_tile(t->w, index);
  for (size_t i = 0; i < sizeof *tile; i++) ((char *)tile)[i] = from[i];
  tile->state = t->states + t->n_tiles++ * t->form->state_numbers;
}

/* Items of a group have a head of k in common, and its rotors; prefix tokens stay among themselves. */
static int64_t group_of(const pegen_attention_walk *w, int64_t item) {
  int64_t row = item / w->tiles, heads = w->groups, batch = row / heads, head = row - batch * heads,
          prefix = item - row * w->tiles < w->prefix_tiles;
  return ((w->driver->per_head ? row : batch * heads + head / w->call->group) << 1) | prefix;
}

static void run_groups(turned *t, int64_t begin, int64_t end) {
  pegen_attention_walk *w = t->w;
  for (int64_t item = begin; item < end; item++) {
    int64_t row = item / w->tiles, batch = row / w->groups, head = row - batch * w->groups;
    pegen_attention_set_heads(w, batch, head);
    prepare(t, head);
    add_tile(t, item - row * w->tiles);
    if (t->n_tiles == t->form->tiles || item + 1 == end || group_of(w, item + 1) != group_of(w, item)) run_tiles(t);
  }
}

void pegen_attention_run_turned(pegen_attention_walk *w, int target, int64_t begin, int64_t end) {
  const pegen_attention_turned *form = &w->form->turned[target];
  turned t = {.w = w,
              .form = form,
              .code = &form->rows->targets[target],
              .read = w->form->targets[target].read[w->call->type],
              .head = -1,
              .width = w->driver->kernel->head_dim};
  size_t keys = (size_t)form->keys, lanes = (size_t)form->rows->lanes;
  size_t rows = form->keys > w->lanes ? keys : (size_t)w->lanes;
  t.tiles = __builtin_alloca(sizeof(pegen_attention_tile) * (size_t)form->tiles);
  t.states = __builtin_alloca_with_align(sizeof(float) * (size_t)(form->tiles * form->state_numbers), 8 * CACHE_LINE);
  t.panel = __builtin_alloca_with_align(sizeof(float) * rows * (size_t)t.width, 8 * CACHE_LINE);
  t.places = __builtin_alloca(sizeof(double) * keys * PEGEN_MAX_ROTOR_AXES);
  t.prepared = __builtin_alloca_with_align((size_t)form->rows->prepared_bytes + CACHE_LINE, 8 * CACHE_LINE);
  t.leaves =
      __builtin_alloca_with_align(sizeof(double) * (size_t)form->rows->n_leaves * lanes + CACHE_LINE, 8 * CACHE_LINE);
  run_groups(&t, begin, end);
}
