/* attention_walk.c: batches, heads and tiles of queries; see attention_walk.h.
 *
 * Prefix tokens have tiles of their own: no pair of theirs has a bias or a rotation. Where pair functions are tabulated
 * along the grid's last axis, each register of queries is a run of such neighbours.
 */
#include "attention_walk.h"

/* Rows further apart than this begin in the same few sets of a cache when they are a power of two apart. */
enum { UNKIND_STRIDE = 1024 };

typedef pegen_attention_walk walk;

/* ---- coordinates ---- */

/* Coordinates of one batch; those of keys begin at their first token, the queries' at the same. */
static void set_places(pegen_attention_places *p, const pegen_driver *driver, const pegen_view *view, int64_t type,
                       int64_t batch) {
  const pegen_kernel *kernel = driver->kernel;
  const pegen_attention *form = driver->form;
  p->axes = form->placed ? kernel->n_axes : 0;
  p->n_numbers = form->n_numbers;
  p->numbers = form->numbers;
  p->skip = kernel->skip_tokens;
  p->grid = kernel->grid;
  p->type = type;
  p->positions = type < 0 ? 0 : (const char *)(view->base + (uintptr_t)(batch * view->stride[PEGEN_POSITION_BATCH]));
  p->token = type < 0 ? 0 : view->stride[PEGEN_POSITION_TOKEN];
  p->axis = type < 0 ? 0 : view->stride[PEGEN_POSITION_AXIS];
  for (int64_t axis = 0; axis < PEGEN_MAX_ROTOR_AXES; axis++) p->origin[axis] = 0;
}

/* ---- batches, heads, tiles ---- */

/* Batches may share their positions, heads the inputs that are read of keys. */
void pegen_attention_bound(walk *w) {
  if (!w->form->paired || !w->form->skips || (w->is_bounded && w->bounded == w->key_places.positions)) return;
  for (int64_t axis = 0; axis < w->key_places.axes && w->seen.wide; axis++) w->key_places.origin[axis] = 0;
  pegen_attention_bound_keys(&w->seen, &w->key_places, w->form->bounded, w->keys - w->skip);
  w->is_bounded = 1;
  w->bounded = w->key_places.positions;
}

/* Below 2^63, so that an int64 can count from it. */
static double origin_at(double place) { return place < 0x1p63 ? place : 0x1p63 - 1024; }

/* Coordinates count from the key in the middle, or the next that has finite ones: the first and the last may be class
 * tokens far from the others, and from a key that is nowhere, which a mask may hide, all would be nowhere. */
static void set_origin(walk *w) {
  double place[PEGEN_MAX_ROTOR_AXES];
  int64_t keys = w->keys - w->skip;
  for (int64_t i = 0; i < keys; i++) {
    int is_finite = 1;
    pegen_attention_place(&w->key_places, w->skip + (keys / 2 + i) % keys, place);
    for (int64_t axis = 0; axis < w->places.axes; axis++) is_finite &= __builtin_isfinite(place[axis]) != 0;
    if (!is_finite) continue;
    for (int64_t axis = 0; axis < w->places.axes; axis++)
      w->places.origin[axis] = w->key_places.origin[axis] = origin_at(place[axis]);
    return;
  }
}

void pegen_attention_set_batch(walk *w, int64_t batch) {
  const pegen_attention_call *c = w->call;
  if (!w->form->paired) return;
  set_places(&w->places, w->driver, &c->positions, c->position_type, batch);
  set_places(&w->key_places, w->driver, &c->k_positions, c->k_position_type, batch);
  w->places.of_keys = 0;
  w->places.ahead = w->keys - w->tokens;
  w->key_places.of_keys = 1;
  w->key_places.ahead = 0;
  if (w->form->placed && c->k_position_type >= 0 && c->position_type >= 0) set_origin(w);
}

/* Sets *spoilt, of the tile's first head of k and v. */
static void look(walk *w) {
  pegen_attention_tile *t = &w->tile;
  const pegen_attention_pages *p = t->pages;
  if (!p) {
    w->look(t);
    return;
  }
  const char *k = t->k[0], *v = t->v[0];
  int64_t some = 0;
  for (int64_t key = 0; key < w->keys; key += t->n_keys) {
    t->n_keys = pegen_page_end(p, key, w->keys) - key;
    t->k[0] = (const char *)pegen_paged_row(p, k, p->k_page, t->k_token, key);
    t->v[0] = (const char *)pegen_paged_row(p, v, p->v_page, t->v_token, key);
    w->look(t);
    some |= w->spoilt;
  }
  t->k[0] = k;
  t->v[0] = v;
  t->n_keys = w->keys;
  w->spoilt = some;
}

/* `look` asks of the first of the tile's heads. */
int64_t pegen_attention_is_spoilt(walk *w) {
  const pegen_attention_call *c = w->call;
  int64_t before = w->batch * c->k.size[PEGEN_HEAD], first = before + w->head / c->group,
          last = before + (w->head + w->tile.heads - 1) / c->group, spoilt = w->spoilt, some = 0;
  if (!w->look || (first == w->looked && last == w->looked_last)) return w->found;
  const char *k = w->tile.k[0], *v = w->tile.v[0];
  for (int64_t shared = first; shared <= last; shared++) {
    w->tile.k[0] = pegen_at(&c->k, w->batch, shared - before, 0);
    w->tile.v[0] = pegen_at(&c->v, w->batch, shared - before, 0);
    look(w);
    some |= w->spoilt;
  }
  w->tile.k[0] = k;
  w->tile.v[0] = v;
  w->spoilt = spoilt;
  w->looked = first;
  w->looked_last = last;
  return w->found = some;
}

void pegen_attention_set_inputs(walk *w, int64_t batch, int64_t head) {
  const pegen_attention_call *c = w->call;
  for (int64_t i = 0; i < w->form->n_numbers; i++) {
    const pegen_attention_number *n = &w->form->numbers[i];
    if (n->input < 0) continue;
    const pegen_view *view = &c->input[n->input];
    pegen_attention_places *p = n->of_key ? &w->key_places : &w->places;
    const char *rows = pegen_at(view, view->size[PEGEN_BATCH] == 1 ? 0 : batch,
                                pegen_attention_input_head(view, head, c->q.size[PEGEN_HEAD]), 0);
    if (n->of_key && rows != p->input[n->input] && w->form->bounded >> (p->axes + i) & 1) w->is_bounded = 0;
    p->input[n->input] = rows;
    p->input_token[n->input] = view->stride[PEGEN_TOKEN];
    p->data[n->input] = pegen_at(view, 0, 0, 0);
    p->number[n->input] = pegen_number_of(w->args->inputs[n->input]->dtype);
  }
}

void pegen_attention_set_heads(walk *w, int64_t batch, int64_t head) {
  if (batch == w->batch && head == w->head) return;
  pegen_attention_set_inputs(w, batch, head);
  if (batch != w->batch) {
    pegen_attention_set_batch(w, batch);
    if (w->form->strips) pegen_attention_find_strips(w);
  }
  pegen_attention_bound(w);
  const pegen_attention_call *c = w->call;
  int is_first = w->head < 0;
  w->batch = batch;
  w->head = head;
  int64_t left = c->q.size[PEGEN_HEAD] - head;
  w->tile.heads = left < w->heads ? left : w->heads;
  for (int64_t i = 0; i < w->tile.heads; i++) {
    int64_t shared = (head + i) / c->group;
    w->tile.q[i] = pegen_at(&c->q, batch, head + i, 0);
    w->tile.k[i] = pegen_at(&c->k, batch, shared, 0);
    w->tile.v[i] = pegen_at(&c->v, batch, shared, 0);
    w->tile.out[i] = pegen_at(&c->out, batch, head + i, 0);
    w->tile.lse[i] = c->lse.empty ? 0 : pegen_at(&c->lse, batch, head + i, 0);
  }
  w->spoilt = w->is_late ? 0 : pegen_attention_is_spoilt(w);
  for (int i = 0; i < w->driver->kernel->n_inputs && w->weigh; i++)
    if (!pegen_input_is_of_pairs(w->driver->kernel, i)) w->tile.input[i] = pegen_at(&c->input[i], batch, head, 0);
  if (!w->driver->per_head && !is_first) return;
  pegen_gather_leaves(w->form->leaves, w->form->n_leaves, w->form->n_blocks, w->form->lanes, w->args, head, w->leaves);
  if (w->prepare) w->prepare(w->leaves, w->prepared);
}

/* Tokens of the lanes of tile `index` of a head; those of [begin, end) that follow each other, or runs of the grid. */
static void set_tokens(walk *w, int64_t index) {
  int64_t *tokens = w->tile.tokens;
  int prefix = index < w->prefix_tiles;
  int64_t base = prefix ? 0 : w->prefix, end = prefix ? w->prefix : w->tokens,
          first = prefix ? index : index - w->prefix_tiles;
  if (prefix || !w->runs) {
    for (int64_t lane = 0; lane < w->queries; lane++) {
      int64_t token = base + first * w->queries + lane;
      tokens[lane] = token < end ? token : -1;
    }
    return;
  }
  int64_t row = w->driver->kernel->grid[w->driver->kernel->n_axes - 1];
  for (int64_t lane = 0; lane < w->queries; lane++) {
    int64_t run = first * (w->queries / w->lanes) + lane / w->lanes,
            column = run % w->runs * w->lanes + lane % w->lanes;
    int64_t token = base + run / w->runs * row + column;
    tokens[lane] = column < row && token < end ? token : -1;
  }
}

static int64_t token_of(const walk *w, int64_t lane) {
  return w->tile.tokens[lane] < 0 ? w->tile.tokens[0] : w->tile.tokens[lane];
}

/* Whether a query has finite coordinates. */
static int place_query(const walk *w, int64_t lane, double *place) {
  int is_finite = 1;
  pegen_attention_place(&w->places, token_of(w, lane), place);
  for (int64_t axis = 0; axis < w->places.axes; axis++) is_finite &= __builtin_isfinite(place[axis]) != 0;
  return is_finite;
}

/* Positions count from the query in the middle, or the next that is somewhere: a polynomial is multiplied out in
 * coordinates no larger than they must be. */
static void centre(walk *w) {
  double place[PEGEN_MAX_ROTOR_AXES];
  int64_t middle = w->queries / 2, lane = 0;
  for (int64_t axis = 0; axis < w->places.axes; axis++) w->places.origin[axis] = 0;
  while (lane < w->queries && !place_query(w, (middle + lane) % w->queries, place)) lane++;
  if (lane == w->queries) place_query(w, middle, place);
  for (int64_t axis = 0; axis < w->places.axes; axis++)
    w->places.origin[axis] = w->key_places.origin[axis] = origin_at(place[axis]);
  if (w->seen.wide) pegen_attention_shift_keys(&w->seen, &w->key_places);
}

/* Coordinates of the tile's queries; empty lanes are where the first one is. */
static void place_queries(walk *w, int64_t axes, int follow) {
  pegen_attention_tile *t = &w->tile;
  double place[PEGEN_MAX_ROTOR_AXES];
  if (follow) {
    pegen_attention_rows(&w->places, t->tokens[0], t->queries, PEGEN_ATTENTION_QUERIES, t->positions[0]);
    for (int64_t axis = 0; axis < axes; axis++)
      for (int64_t lane = t->queries; lane < w->queries; lane++) t->positions[axis][lane] = t->positions[axis][0];
    return;
  }
  for (int64_t lane = 0; lane < w->queries; lane++) {
    pegen_attention_place(&w->places, token_of(w, lane), place);
    for (int64_t axis = 0; axis < axes; axis++) t->positions[axis][lane] = place[axis];
  }
}

/* What the queries see, and where they are. */
static void set_queries(walk *w, int64_t index) {
  pegen_attention_tile *t = &w->tile;
  int64_t most = 0, least = w->keys, ahead = w->keys - w->tokens, axes = w->places.axes + w->form->n_numbers;
  int prefix = index < w->prefix_tiles, is_placed = !prefix && w->form->paired;
  if (w->weigh && !prefix) centre(w);
  for (int64_t lane = 0; lane < w->queries; lane++) {
    int64_t token = token_of(w, lane), limit = w->keys;
    if (w->call->causal) limit = token + ahead + 1 < 0 ? 0 : token + ahead + 1 < w->keys ? token + ahead + 1 : w->keys;
    t->limits[lane] = (int32_t)limit;
    most = limit > most ? limit : most;
    least = limit < least ? limit : least;
    for (int64_t axis = 0; axis < axes && !is_placed; axis++) t->positions[axis][lane] = 0;
  }
  if (is_placed) place_queries(w, axes, !w->runs);
  if (w->form->skips && !prefix)
    pegen_attention_bound_queries((const double (*)[PEGEN_ATTENTION_QUERIES])t->positions, axes, w->queries, t->reach);
  t->end = most;
  t->limit = least;
  t->free = w->spoilt && w->form->hides ? 0 : least;
  t->plain = prefix || w->skip > most ? most : w->skip;
}

int64_t pegen_attention_spoils(walk *w, const pegen_view *keys, const pegen_view *values, int64_t batch, int64_t head) {
  if (!w->look) return 0;
  pegen_attention_tile *t = &w->tile;
  const char *k = t->k[0], *v = t->v[0];
  int64_t k_token = t->k_token, v_token = t->v_token, n_keys = t->n_keys, spoilt = w->spoilt, found;
  t->k[0] = pegen_at(keys, batch, head, 0);
  t->v[0] = pegen_at(values, batch, head, 0);
  t->k_token = keys->stride[PEGEN_TOKEN];
  t->v_token = values->stride[PEGEN_TOKEN];
  t->n_keys = keys->size[PEGEN_TOKEN];
  w->look(t);
  found = w->spoilt;
  w->spoilt = spoilt;
  t->k[0] = k;
  t->v[0] = v;
  t->k_token = k_token;
  t->v_token = v_token;
  t->n_keys = n_keys;
  return found;
}

void pegen_attention_set_tile(walk *w, int64_t index) {
  set_tokens(w, index);
  w->tile.queries = w->queries;
  while (w->tile.queries > 1 && w->tile.tokens[w->tile.queries - 1] < 0) w->tile.queries--;
  set_queries(w, index);
  if (w->weigh) /* of prefix tokens nobody asks for weights, but the sums that nobody reads should be numbers */
    w->weigh(&w->tile);
}

/* ---- calls ---- */

static int is_unkind(const pegen_view *view) {
  int64_t stride = view->stride[PEGEN_TOKEN] < 0 ? -view->stride[PEGEN_TOKEN] : view->stride[PEGEN_TOKEN];
  return stride > view->width && stride % UNKIND_STRIDE == 0;
}

void pegen_attention_cut_tiles(walk *w, int64_t by_rows) {
  const pegen_kernel *kernel = w->driver->kernel;
  int64_t row = by_rows ? kernel->grid[kernel->n_axes - 1] : 0, vectors = w->queries / w->lanes;
  w->runs = by_rows ? (row + w->lanes - 1) / w->lanes : 0;
  int64_t rest = w->tokens - w->prefix;
  w->prefix_tiles = (w->prefix + w->queries - 1) / w->queries;
  int64_t registers = by_rows ? rest / row * w->runs : (rest + w->lanes - 1) / w->lanes;
  w->tiles = w->prefix_tiles + (registers + vectors - 1) / vectors;
}

void pegen_attention_begin(walk *w, const pegen_driver *driver, const pegen_args *args,
                           const pegen_attention_call *call, int target, const pegen_tuning *tuning) {
  const pegen_attention *form = driver->form;
  const pegen_attention_code *code = &form->targets[target];
  const pegen_kernel *kernel = driver->kernel;
  w->driver = driver;
  w->form = form;
  w->args = args;
  w->call = call;
  w->attend = code->attend[call->type];
  w->dots = call->type == PEGEN_NUMBER_BF16 && tuning->dots && code->attend_dots;
  if (w->dots) w->attend = code->attend_dots;
  w->look = call->causal || form->hides ? code->look[call->type] : 0;
  w->looked = w->looked_last = -1;
  w->heads = code->heads;
  w->groups = (call->q.size[PEGEN_HEAD] + code->heads - 1) / code->heads;
  w->found = w->spoilt = w->lost = 0;
  w->is_late = 0;
  w->asks = code->asks != 0;
  w->tile.lost = 0;
  w->tile.spoilt = &w->spoilt;
  w->prepare = code->prepare;
  w->weigh = form->n_weights ? code->weigh[call->wide_inputs || !kernel->n_inputs ? 0 : call->type] : 0;
  w->lanes = code->lanes;
  w->queries = code->lanes * code->vectors;
  w->tokens = call->q.size[PEGEN_TOKEN];
  w->keys = call->k.size[PEGEN_TOKEN];
  w->skip = form->paired ? kernel->skip_tokens : 0;
  w->prefix = pegen_attention_prefix(w->skip, w->tokens, w->keys);
  pegen_attention_cut_tiles(w, code->by_rows);
  w->batch = w->head = -1;
  w->is_bounded = 0;
  if (form->skips) pegen_attention_set_blocks(&w->seen, w->keys - w->skip, code->block);
  w->places.axes = form->placed ? kernel->n_axes : 0;
  for (int i = 0; i < kernel->n_inputs; i++) w->places.input[i] = w->key_places.input[i] = 0;
  w->tile.q_token = call->q.stride[PEGEN_TOKEN];
  w->tile.k_token = call->k.stride[PEGEN_TOKEN];
  w->tile.v_token = call->v.stride[PEGEN_TOKEN];
  w->tile.out_token = call->out.stride[PEGEN_TOKEN];
  w->tile.lse_token = call->lse.empty ? 0 : call->lse.stride[PEGEN_TOKEN];
  w->tile.n_keys = w->keys;
  w->tile.pages = call->pages.size ? &call->pages : 0;
  w->tile.stage = w->tile.pages || is_unkind(&call->k) || is_unkind(&call->v);
  for (int i = 0; i < kernel->n_inputs; i++) w->tile.input_token[i] = call->input[i].stride[PEGEN_TOKEN];
  w->tile.scale = call->scale * 1.44269504088896340736;
  w->tile.biases = 0;
  w->tile.is_first = 1;
  w->tile.keys = &w->key_places;
  w->tile.places = &w->places;
  w->places.pages = 0;
  w->key_places.pages = w->tile.pages;
}
