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
#include "attention_turner.h"

typedef struct turned {
  pegen_attention_walk *w;
  const pegen_attention_turned *form;
  pegen_attention_turner turner;
  pegen_attention_write_function *write;
  pegen_attention_tile *tiles;
  float *states;
  pegen_attention_panel panel; /* a tile's queries are in it on their way into its state, outputs on their way out */
  int64_t n_tiles, width;
} turned;

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
  float *panel = t->panel.keys;
  for (int64_t first = 0; first < w->queries; first += w->lanes, stages = 0) {
    int64_t left = tile->queries - first, count = left < 0 ? 0 : left < w->lanes ? left : w->lanes;
    const char *rows = count ? tile->q[0] + tile->tokens[first] * tile->q_token : 0;
    if (count) {
      pegen_turned_rows both[2] = {pegen_attention_take(&t->turner, rows, tile->q_token, count, panel, turns)};
      if (turns) pegen_attention_turn(&t->turner, both, count, &tile->positions[0][first], PEGEN_ATTENTION_QUERIES);
    }
    for (int64_t i = count * t->width; i < w->lanes * t->width; i++) panel[i] = 0;
    pegen_attention_narrow_rows(&t->turner, panel, w->lanes);
    tile->vector = first / w->lanes;
    tile->rows = panel;
    attend(t, tile, stages | PEGEN_STAGE_QUERIES, 0, 0);
  }
}

/* The panel's keys [first, last), or those of them that a tile sees; lost: some value became no number when it was
 * turned, and is left out where it is not seen. */
static void attend_panel(const turned *t, pegen_attention_tile *tile, int64_t first, int64_t last, int lost) {
  pegen_attention_walk *w = t->w;
  int64_t spoilt = w->spoilt, free = tile->free;
  if (lost) w->spoilt = 1;
  if (lost && w->form->hides) tile->free = 0;
  attend(t, tile, 0, first, tile->end < last ? tile->end : last);
  w->spoilt = spoilt;
  tile->free = free;
}

/* Keys [begin, end), or those of them that each tile sees. */
static void run_keys(turned *t, int64_t begin, int64_t end, int turns) {
  for (int64_t first = begin, last; first < end; first = last) {
    last = first + t->form->keys < end ? first + t->form->keys : end;
    int lost = pegen_attention_fill(&t->turner, &t->panel, first, last - first, turns) && t->panel.values;
    for (int64_t i = 0; i < t->n_tiles; i++) {
      pegen_attention_tile *tile = &t->tiles[i];
      if (tile->end <= first) continue;
      pegen_attention_use(&t->turner, &t->panel, first, tile);
      attend_panel(t, tile, first, last, lost);
    }
  }
}

/* Outputs of tiles whose values came turned, turned back. */
static void give_outputs(const turned *t, pegen_attention_tile *tile) {
  int64_t bytes = t->width * (int64_t)sizeof(float), out_token = tile->out_token;
  char *out = tile->out[0] + tile->tokens[0] * out_token;
  tile->out[0] = (char *)((uintptr_t)t->panel.values - (uintptr_t)(tile->tokens[0] * bytes));
  tile->out_token = bytes;
  attend(t, tile, PEGEN_STAGE_OUT, 0, 0);
  pegen_attention_turn_back(&t->turner, t->panel.values, bytes, tile->queries, tile->positions[0],
                            PEGEN_ATTENTION_QUERIES);
  for (int64_t i = 0; i < tile->queries; i++) t->write(t->panel.values + i * t->width, out + i * out_token);
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
  for (int64_t i = 0; i < t->n_tiles; i++)
    if (t->panel.values) give_outputs(t, &t->tiles[i]);
    else attend(t, &t->tiles[i], PEGEN_STAGE_OUT, 0, 0);
  t->n_tiles = 0;
}

/* ---- items ---- */

static void add_tile(turned *t, int64_t index) {
  pegen_attention_tile *tile = &t->tiles[t->n_tiles];
  pegen_attention_set_tile(t->w, index);
  pegen_attention_copy_tile(t->w, tile, &t->w->tile);
  if (t->panel.values) tile->stage = 0, tile->pages = 0; /* of panels */
  tile->state = t->states + t->n_tiles++ * t->form->state_numbers;
}

/* Items of a group have a head of k in common, its rotors, and what is read of it; prefix tokens stay among themselves.
 */
static int64_t group_of(const pegen_attention_walk *w, int64_t item) {
  int64_t row = item / w->tiles, heads = w->groups, batch = row / heads, head = row - batch * heads,
          prefix = item - row * w->tiles < w->prefix_tiles;
  return ((w->driver->per_head || w->driver->kernel->key_inputs ? row : batch * heads + head / w->call->group) << 1) |
         prefix;
}

static void run_groups(turned *t, int64_t begin, int64_t end) {
  pegen_attention_walk *w = t->w;
  for (int64_t item = begin; item < end; item++) {
    int64_t row = item / w->tiles, batch = row / w->groups, head = row - batch * w->groups;
    pegen_attention_set_heads(w, batch, head);
    pegen_attention_turner_set_head(&t->turner, head);
    add_tile(t, item - row * w->tiles);
    if (t->n_tiles == t->form->tiles || item + 1 == end || group_of(w, item + 1) != group_of(w, item)) run_tiles(t);
  }
}

void pegen_attention_run_turned(pegen_attention_walk *w, int target, int64_t begin, int64_t end) {
  const pegen_attention_turned *form = &w->form->turned[target];
  turned t = {.w = w,
              .form = form,
              .write = w->form->targets[target].write[w->call->type],
              .width = w->driver->kernel->head_dim};
  pegen_attention_turner_begin(&t.turner, w, target);
  pegen_attention_turner_narrow(&t.turner);
  PEGEN_ATTENTION_TURNER_ROOM(&t.turner);
  t.tiles = __builtin_alloca(sizeof(pegen_attention_tile) * (size_t)form->tiles);
  t.states = PEGEN_STACK(sizeof(float) * (size_t)(form->tiles * form->state_numbers));
  int64_t keys = form->keys > w->lanes ? form->keys : w->lanes,
          outputs = form->keys > w->queries ? form->keys : w->queries;
  PEGEN_ATTENTION_PANEL_ROOM(&t.panel, t.width, keys, form->values ? outputs : 0);
  run_groups(&t, begin, end);
}
