/* attention_few.c: a checked call with few queries becomes calls of the functions of attention_few.h.
 *
 * An item is the rows of queries of all heads that share keys, or 32 of them at most, prefix tokens apart from the
 * others, of which no pair has a bias. It goes through the keys once.
 */
#include "attention_few_walk.h"

typedef pegen_few_walk walk;

/* Whether heads of a group have keys of their own, which are one for all rows of an item: keys that are turned apart,
 * or other inputs. */
static int has_own_keys(const pegen_attention_walk *w) {
  const pegen_attention_call *c = w->call;
  int has = w->form->turned && w->driver->per_head;
  for (int64_t i = 0; i < w->form->n_numbers; i++) {
    const pegen_attention_number *n = &w->form->numbers[i];
    has |= n->input >= 0 && n->of_key && c->input[n->input].size[PEGEN_HEAD] > c->k.size[PEGEN_HEAD];
  }
  return has;
}

int pegen_attention_is_few(const pegen_attention_walk *w, int target) {
  const pegen_attention_few_code *code = w->form->few ? &w->form->few[target] : 0;
  return code && code->keys && w->tokens < code->queries;
}

/* Items of `rows` rows: as many of them as there must be, of nearly one size. */
static int64_t sets_of(int64_t rows) { return (rows + PEGEN_FEW_ROWS - 1) / PEGEN_FEW_ROWS; }

void pegen_few_begin(walk *f, pegen_attention_walk *w, int target) {
  f->w = w;
  f->code = &w->form->few[target];
  f->group = has_own_keys(w) ? 1 : w->call->group;
  f->heads = w->call->q.size[PEGEN_HEAD] / f->group;
  f->prefix_rows = w->prefix * f->group;
  f->rows = w->tokens * f->group;
  f->prefix_sets = sets_of(f->prefix_rows);
  f->sets = f->prefix_sets + sets_of(f->rows - f->prefix_rows);
  f->items = w->call->k.size[PEGEN_BATCH] * f->heads * f->sets;
  f->batch = f->head = -1;
  f->few.tile.k_token = w->call->k.stride[PEGEN_TOKEN];
  f->few.tile.v_token = w->call->v.stride[PEGEN_TOKEN];
  f->few.tile.pages = w->tile.pages;
  f->few.tile.scale = w->tile.scale;
  f->few.tile.operands = w->tile.operands;
  f->few.tile.keys = &w->key_places;
  f->few.tile.places = &w->places;
  f->few.tile.seen = &w->seen;
  f->keys = f->code->keys * (w->call->type == PEGEN_NUMBER_F32 || pegen_few_has_panel(f) ? 1 : 2);
  f->state = 0;
  if (pegen_few_has_panel(f)) pegen_attention_turner_begin(&f->turner, w, target);
  f->few.sinks = 1;
}

/* ---- an item ---- */

/* Leaves of all heads of the group; of one where they do not differ. */
static void gather(walk *f, int64_t head) {
  const pegen_attention *form = f->w->form;
  int64_t apart = f->w->driver->per_head ? f->group : 1, room = form->n_leaves * form->lanes;
  for (int64_t i = 0; i < apart; i++)
    pegen_gather_leaves(form->leaves, form->n_leaves, form->n_blocks, form->lanes, f->w->args, head + i,
                        f->leaves + i * room);
}

static void set_head(walk *f, int64_t batch, int64_t head) {
  const pegen_attention_call *c = f->w->call;
  pegen_attention_set_inputs(f->w, batch, head * f->group);
  if (batch != f->batch) pegen_attention_set_batch(f->w, batch);
  if (f->w->driver->per_head || f->head < 0) gather(f, head * f->group);
  f->batch = batch;
  f->head = head;
  f->few.tile.k[0] = pegen_at(&c->k, batch, head * f->group / c->group, 0);
  f->few.tile.v[0] = pegen_at(&c->v, batch, head * f->group / c->group, 0);
  if (!f->panel.keys) return;
  f->w->tile.k[0] = f->few.tile.k[0];
  f->w->tile.v[0] = f->few.tile.v[0];
  pegen_attention_turner_set_head(&f->turner, head * f->group);
}

static void set_row(walk *f, int64_t lane, int64_t token, int64_t of_group) {
  pegen_attention_walk *w = f->w;
  const pegen_attention_call *c = w->call;
  pegen_attention_few *few = &f->few;
  int64_t head = f->head * f->group + of_group, limit = w->keys, ahead = w->keys - w->tokens;
  double place[PEGEN_MAX_ROTOR_AXES];
  f->q[lane] = few->q[lane] = pegen_at(&c->q, f->batch, head, 0) + token * c->q.stride[PEGEN_TOKEN];
  f->out[lane] = few->out[lane] = pegen_at(&c->out, f->batch, head, 0) + token * c->out.stride[PEGEN_TOKEN];
  if (!c->lse.empty) few->lse[lane] = pegen_at(&c->lse, f->batch, head, 0) + token * c->lse.stride[PEGEN_TOKEN];
  few->leaves[lane] = f->leaves + (w->driver->per_head ? of_group * w->form->n_leaves * w->form->lanes : 0);
  if (c->causal) limit = token + ahead + 1 < 0 ? 0 : token + ahead + 1 < w->keys ? token + ahead + 1 : w->keys;
  few->tile.tokens[lane] = token;
  few->tile.limits[lane] = (int32_t)limit;
  f->most = limit > f->most ? limit : f->most;
  f->least = limit < f->least ? limit : f->least;
  if (!w->form->paired || token < w->prefix) return;
  pegen_attention_set_inputs(w, f->batch, head);
  pegen_attention_place(&w->places, token, place);
  for (int64_t axis = 0; axis < w->places.axes + w->form->n_numbers; axis++)
    few->tile.positions[axis][lane] = place[axis];
}

void pegen_few_set_item(walk *f, int64_t item) {
  int64_t pair = item / f->sets, set = item - pair * f->sets;
  int64_t batch = pair / f->heads, head = pair - batch * f->heads, prefix = set < f->prefix_sets;
  int64_t base = prefix ? 0 : f->prefix_rows, rows = prefix ? f->prefix_rows : f->rows - base,
          sets = prefix ? f->prefix_sets : f->sets - f->prefix_sets, index = prefix ? set : set - f->prefix_sets;
  int64_t first = base + rows * index / sets, end = base + rows * (index + 1) / sets;
  if (batch != f->batch || head != f->head) set_head(f, batch, head);
  f->most = 0;
  f->least = f->w->keys;
  f->first_row = first;
  f->knows_states = 0;
  f->few.rows = end - first;
  for (int64_t row = first; row < end; row++) set_row(f, row - first, row / f->group, row % f->group);
  f->plain = prefix || f->w->skip > f->most ? f->most : f->w->skip;
}

/* ---- panels ---- */

static int64_t row_width(const walk *f) { return f->w->driver->kernel->head_dim; }

/* Type of rows of queries and keys; of values and outputs. */
static int64_t type_of_keys(const walk *f) { return f->panel.keys ? PEGEN_NUMBER_F32 : f->w->call->type; }
static int64_t type_of_values(const walk *f) { return f->panel.values ? PEGEN_NUMBER_F32 : f->w->call->type; }

/* The item's queries, turned where `turns`. */
static void take_queries(walk *f, int turns) {
  int64_t bytes = row_width(f) * (int64_t)sizeof(float);
  for (int64_t i = 0; i < f->few.rows && f->panel.keys; i++) {
    float *row = f->row_room + i * row_width(f);
    f->turner.read(f->q[i], 0, 1, row);
    f->few.q[i] = (const char *)row;
  }
  pegen_turned_rows both[2] = {{(const char *)f->row_room, bytes, f->row_room, bytes}, {0, 0, 0, 0}};
  if (turns) pegen_attention_turn(&f->turner, both, f->few.rows, f->few.tile.positions[0], PEGEN_ATTENTION_QUERIES);
  f->few.type = type_of_keys(f);
  f->code->load(&f->few);
}

/* Where keys of a tensor of pages are: so that a key's number times `token` leads from there to a row, that of key `of`
 * from number `key`. */
static const char *place_rows(const walk *f, const char *rows, int64_t page, int64_t token, int64_t key, int64_t of) {
  return (const char *)(pegen_paged_row(f->few.tile.pages, rows, page, token, of) - (uintptr_t)(key * token));
}

enum { LINE = 64 };

/* Asks for rows of a tile's keys, or of its values, that are read later. */
static void ask_for(const walk *f, int of_values, int64_t first) {
  const pegen_attention_tile *t = &f->w->tile;
  const pegen_attention_pages *p = t->pages;
  const char *rows = of_values ? t->v[0] : t->k[0];
  int64_t token = of_values ? t->v_token : t->k_token, end = pegen_smaller(first + f->keys, f->most),
          width = (of_values ? &f->w->call->v : &f->w->call->k)->width;
  for (int64_t key = first; key < end; key++) {
    const char *row = p ? place_rows(f, rows, of_values ? p->v_page : p->k_page, token, 0, key) : rows + key * token;
    for (int64_t at = 0; at < width; at += LINE) __builtin_prefetch(row + at, 0, 2);
  }
}

/* Keys of a tile, turned where their pairs are. */
static void fill_panel(walk *f, int64_t first, int64_t count) {
  pegen_attention_fill(&f->turner, &f->panel, first, count, f->paired && f->w->form->turned);
  pegen_attention_use(&f->turner, &f->panel, first, &f->few.tile);
  ask_for(f, 0, first + count);
  ask_for(f, 1, f->panel.values ? first + count : first);
}

/* Outputs turned back, as rows of the call's type. */
static void give_outputs(walk *f) {
  int64_t width = row_width(f);
  for (int64_t i = 0; i < f->few.rows; i++) f->few.out[i] = (char *)(f->row_room + i * width);
  f->code->end(&f->few);
  pegen_attention_turn_back(&f->turner, f->row_room, width * (int64_t)sizeof(float), f->few.rows,
                            f->few.tile.positions[0], PEGEN_ATTENTION_QUERIES);
  for (int64_t i = 0; i < f->few.rows; i++)
    f->turner.attention->write[f->w->call->type](f->row_room + i * width, f->out[i]);
}

/* ---- its keys ---- */

/* What comes next is asked for by the first rows alone. */
static void asked_already(walk *f, int of_values) {
  f->few.ahead = of_values ? f->few.tile.v[0] : f->few.tile.k[0];
  f->few.ahead_token = of_values ? f->few.tile.v_token : f->few.tile.k_token;
}

/* Rows that share what is read of a key: as few times as can be, nearly equally many. */
static void run_blocks(walk *f, pegen_few_function *const code[PEGEN_FEW_BLOCK], int of_values) {
  int64_t most = f->code->block;
  for (int64_t row = 0, rows; row < f->few.rows; row += rows) {
    int64_t left = f->few.rows - row, times = (left + most - 1) / most;
    rows = (left + times - 1) / times;
    f->few.row = row;
    code[rows - 1](&f->few);
    asked_already(f, of_values);
  }
}

/* Adds weighted values to one row at a time, without keys whose weight is 0. Keys that some row does not see are left
 * out one by one, since 0 times infinity or NaN is NaN. */
static void run_seen_values(walk *f) {
  for (f->few.row = 0; f->few.row < f->few.rows; f->few.row++) {
    f->code->values[0](&f->few);
    asked_already(f, 1);
  }
}

/* Rows of a token have their rotations in common, where heads do not differ in them. */
static void run_pair_scores(walk *f) {
  int64_t apart = f->w->driver->per_head ? 1 : f->group;
  for (int64_t row = 0; row < f->few.rows; row += f->few.shared) {
    f->few.row = row;
    f->few.shared = pegen_smaller(apart - (f->first_row + row) % apart, f->few.rows - row);
    f->code->pair_scores(&f->few);
  }
}

static void run_scores(walk *f) { run_blocks(f, f->code->scores, 0); }
static void run_values(walk *f) { run_blocks(f, f->code->values, 1); }

/* Where rows go through a panel, they are asked for as it is filled. Elsewhere: what is asked for while keys from `key`
 * on of a tile are read: as scores go, their values, and as values go, keys of the next tile. So a tile's rows and as
 * many again are to be in the nearest cache, and no more. */
static void look_ahead(walk *f, int of_values, int64_t key, const char *k, const char *v) {
  pegen_attention_few *few = &f->few;
  const pegen_attention_pages *p = few->tile.pages;
  int64_t keys = f->keys, later = key + keys;
  few->ahead_token = of_values ? few->tile.k_token : few->tile.v_token;
  if (f->panel.keys) asked_already(f, of_values);
  else if (!p) few->ahead = of_values ? k + keys * few->ahead_token : v;
  else if (!of_values) few->ahead = place_rows(f, v, p->v_page, few->ahead_token, key, key);
  else if (later < f->most) few->ahead = place_rows(f, k, p->k_page, few->ahead_token, key, later);
  else asked_already(f, 1);
}

/* What is added to the values of a tile's first page is not multiplied again. */
static void end_decay(walk *f) {
  for (int64_t i = 0; i < f->few.rows * PEGEN_ATTENTION_PITCH; i++) f->few.decay[i] = 1;
}

/* One stage of a tile's keys, page by page where they are in pages. */
static void run_stage(walk *f, void (*stage)(walk *f), int of_values) {
  pegen_attention_few *few = &f->few;
  const pegen_attention_pages *p = (of_values ? f->panel.values : f->panel.keys) ? 0 : few->tile.pages;
  const char *k = few->tile.k[0], *v = few->tile.v[0];
  int64_t first = few->first, count = few->count;
  float *scores = few->scores;
  if (!p) {
    look_ahead(f, of_values, first, k, v);
    stage(f);
    return;
  }
  for (int64_t key = first; key < first + count; key += few->count) {
    few->first = key;
    few->count = pegen_page_end(p, key, first + count) - key;
    few->scores = scores + (key - first);
    if (of_values) few->tile.v[0] = place_rows(f, v, p->v_page, few->tile.v_token, key, key);
    else few->tile.k[0] = place_rows(f, k, p->k_page, few->tile.k_token, key, key);
    look_ahead(f, of_values, key, k, v);
    stage(f);
    if (of_values && key == first) end_decay(f);
  }
  few->tile.k[0] = k;
  few->tile.v[0] = v;
  few->first = first;
  few->count = count;
  few->scores = scores;
}

/* Keys [first, end) of a tile. */
static void run_tile(walk *f, int64_t first, int64_t end) {
  pegen_attention_few *few = &f->few;
  int64_t paired = f->paired, hides = f->w->form->hides && paired;
  few->first = first;
  few->count = end - first;
  if (f->panel.keys) fill_panel(f, first, end - first);
  few->type = type_of_keys(f);
  run_stage(f, paired && f->code->pair_scores ? run_pair_scores : run_scores, 0);
  few->type = type_of_values(f);
  (paired || !f->code->soften_plain ? f->code->soften : f->code->soften_plain)(few);
  if (hides && few->most_is_zero) return; /* and no maximum has changed */
  run_stage(f, end > f->least || (hides && few->some_are_zero) ? run_seen_values : run_values, 1);
}

/* Tiles end at multiples of their keys, wherever they begin, and so between pages' rows by 16. */
static void run_range(walk *f, int64_t begin, int64_t end, int paired) {
  int64_t keys = f->keys;
  f->paired = paired;
  for (int64_t first = begin, next; first < end; first = next) {
    next = (first / keys + 1) * keys;
    if (next > end) next = end;
    run_tile(f, first, next);
  }
}

/* A block of keys is unseen where each head's rows, wherever they all are, see none of it. */
static void find_states(walk *f) {
  pegen_attention_walk *w = f->w;
  const pegen_attention *form = w->form;
  pegen_attention_tile *t = &f->few.tile;
  int64_t heads = w->driver->per_head ? f->group : 1;
  pegen_attention_bound(w);
  pegen_attention_bound_queries((const double (*)[PEGEN_ATTENTION_QUERIES])t->positions,
                                w->places.axes + form->n_numbers, f->few.rows, t->reach);
  for (int64_t block = 0; block < w->seen.pitch; block++) w->seen.states[block] = PEGEN_ATTENTION_UNSEEN;
  for (int64_t head = 0; head < heads; head++) {
    t->leaves = f->leaves + head * form->n_leaves * form->lanes;
    f->code->seen(&f->few);
  }
  f->knows_states = 1;
}

/* Keys [begin, end), which have a bias: those of blocks that some row may see. */
static void run_seen(walk *f, int64_t begin, int64_t end) {
  pegen_attention_seen *seen = &f->w->seen;
  if (begin >= end || !f->w->form->skips || !f->code->seen) {
    run_range(f, begin, end, 1);
    return;
  }
  if (!f->knows_states) find_states(f);
  pegen_attention_runs(seen, f->w->skip, begin, end, 1);
  for (int64_t i = 0; i < seen->n_runs; i++) run_range(f, seen->runs[i].begin, seen->runs[i].end, 1);
}

void pegen_few_run(walk *f, int64_t begin, int64_t end, char *state) {
  int64_t last = end < f->most ? end : f->most, plain = f->plain < last ? f->plain : last;
  int turns = f->w->form->turned && (begin > plain ? begin : plain) < last;
  f->few.state = state;
  f->code->begin(&f->few);
  if (begin < plain || !turns) take_queries(f, 0);
  run_range(f, begin, plain, 0);
  if (turns) take_queries(f, 1);
  run_seen(f, begin > plain ? begin : plain, last);
}

void pegen_few_end(walk *f, char *state) {
  f->few.state = state;
  f->few.type = type_of_values(f);
  if (f->panel.values) give_outputs(f);
  else f->code->end(&f->few);
  if (!f->w->call->lse.empty) f->code->lse(&f->few);
}

int64_t pegen_attention_few_items(pegen_attention_walk *w, int target) {
  walk f;
  pegen_few_begin(&f, w, target);
  return f.items;
}

void pegen_attention_few_run(pegen_attention_walk *w, int target, int64_t begin, int64_t end) {
  walk f;
  pegen_few_begin(&f, w, target);
  PEGEN_FEW_ROOM(&f);
  for (int64_t item = begin; item < end; item++) {
    pegen_few_set_item(&f, item);
    pegen_few_run(&f, 0, w->keys, f.state);
    pegen_few_end(&f, f.state);
  }
}
