/* attention_tangent.c: forward mode of attention. What out and lse change by when rows of q, k and v change by q', k'
 * and v' (cpu/attention/tangent.c has the formulas): a tile of queries sums S', S' v and P v' over its keys, and then
 *
 *     out' = S' v + P v' - m out,   lse' = m = sum_j S'.
 *
 * Rows that attention turns at their own positions are linear in what they were made of, so that their tangents are
 * turned by the same rotors. A part takes a run of tiles; tiles share nothing, so that the bits are those of one part.
 */
#include "attention.h"
#include "attention_backward.h"
#include "attention_turner.h"

typedef struct tangent {
  pegen_attention_walk walk;
  pegen_attention_walk tangents; /* of the head at hand, with rows of q', k' and v' */
  const pegen_attention_backward_call *call;
  const pegen_attention_gradient_code *code;
  pegen_attend_tangent_function *attend;
  pegen_attention_tangent_tile tile;
  float *rows; /* [queries][pitch] of a tile's out' */
  const pegen_attention_turned_gradient *turns; /* rows of q and k come turned; NULL: they do not */
  int turns_values;
  pegen_attention_tile turned; /* tangents.tile with rows that come turned */
  pegen_attention_turner turner, tangent_turner;
  pegen_attention_panel panel, tangent_panel;
  float *queries, *tangent_queries; /* [queries][head_dim], turned */
} tangent;

/* ---- where rows are ---- */

/* The tile of tangents: the walk's tile, with rows of q', k' and v' in place of q, k and v. */
static void set_tangents(tangent *w) {
  const pegen_attention_backward_call *c = w->call;
  int64_t batch = w->walk.batch, head = w->walk.head, shared = head / c->forward.group;
  pegen_attention_tile *tile = &w->tangents.tile;
  pegen_attention_copy_tile(&w->walk, tile, &w->walk.tile);
  tile->q[0] = pegen_at(&c->g_q, batch, head, 0);
  tile->k[0] = pegen_at(&c->g_k, batch, shared, 0);
  tile->v[0] = pegen_at(&c->g_v, batch, shared, 0);
  tile->q_token = c->g_q.stride[PEGEN_TOKEN];
  tile->k_token = c->g_k.stride[PEGEN_TOKEN];
  tile->v_token = c->g_v.stride[PEGEN_TOKEN];
}

static void set_head(tangent *w, int64_t batch, int64_t head) {
  if (batch == w->walk.batch && head == w->walk.head) return;
  pegen_attention_set_heads(&w->walk, batch, head);
  w->walk.spoilt |=
      pegen_attention_spoils(&w->walk, &w->call->g_k, &w->call->g_v, batch, head / w->call->forward.group);
  if (!w->turns) return;
  pegen_attention_turner_set_head(&w->turner, head);
  pegen_copy_bytes(&w->tangents, &w->walk, sizeof w->tangents);
  pegen_copy_bytes(&w->tangent_turner, &w->turner, sizeof w->turner);
  w->tangent_turner.w = &w->tangents;
}

/* ---- rows that come turned ---- */

/* The tile's queries, as float32 of its own. */
static void take_queries(const pegen_attention_turner *t, const pegen_attention_tile *queries, float *to, int turns,
                         pegen_attention_tile *tile) {
  int64_t bytes = t->w->driver->kernel->head_dim * (int64_t)sizeof(float), before = queries->tokens[0];
  pegen_turned_rows both[2] = {pegen_attention_take(t, queries->q[0] + before * queries->q_token, queries->q_token,
                                                    queries->queries, to, turns)};
  if (turns) pegen_attention_turn(t, both, queries->queries, queries->positions[0], PEGEN_ATTENTION_QUERIES);
  tile->q[0] = (const char *)((uintptr_t)to - (uintptr_t)(before * bytes));
  tile->q_token = bytes;
}

/* Keys [begin, end), a panel at a time. */
static void run_panels(tangent *w, int64_t begin, int64_t end, int turns) {
  int64_t spoilt = w->walk.spoilt;
  take_queries(&w->turner, &w->walk.tile, w->queries, turns, &w->tile.tile);
  take_queries(&w->tangent_turner, &w->tangents.tile, w->tangent_queries, turns, &w->turned);
  if (turns)
    w->walk.spoilt |= pegen_some_are_nowhere(w->walk.tile.positions[0], w->walk.places.axes, w->walk.tile.queries,
                                             PEGEN_ATTENTION_QUERIES);
  for (int64_t first = begin, last; first < end; first = last) {
    last = pegen_smaller(end, first + w->turns->keys);
    w->walk.spoilt |= pegen_attention_fill(&w->turner, &w->panel, first, last - first, turns);
    pegen_attention_fill(&w->tangent_turner, &w->tangent_panel, first, last - first, turns);
    pegen_attention_use(&w->turner, &w->panel, first, &w->tile.tile);
    pegen_attention_use(&w->tangent_turner, &w->tangent_panel, first, &w->turned);
    if (w->walk.spoilt && w->walk.form->hides) w->tile.tile.free = 0;
    w->tile.begin = first;
    w->tile.tile.end = last;
    w->attend(&w->tile);
  }
  w->walk.spoilt = spoilt;
}

/* Prefix tokens have neither bias nor rotation: with them rows are as they are. */
static void run_turned(tangent *w) {
  int64_t end = w->walk.tile.end, plain = pegen_smaller(w->walk.tile.plain, end);
  pegen_attention_copy_tile(&w->walk, &w->turned, &w->tangents.tile);
  w->tile.tangents = &w->turned;
  for (int64_t axis = 0; axis < w->walk.places.axes; axis++) /* it may be the tile's */
    w->tangents.key_places.origin[axis] = w->walk.key_places.origin[axis];
  if (plain) run_panels(w, 0, plain, 0);
  if (plain < end) run_panels(w, plain, end, 1);
}

/* ---- tiles ---- */

/* The sums of a tile as rows of float32. */
static void turn_columns(const tangent *w, int64_t width, int64_t pitch) {
  for (int64_t lane = 0; lane < w->walk.queries; lane++)
    for (int64_t i = 0; i < width; i++) w->rows[lane * pitch + i] = w->tile.columns[i * w->walk.queries + lane];
}

/* out' and lse' of the tile's queries. */
static void give_rows(const tangent *w, int64_t width, int64_t pitch) {
  const pegen_attention_backward_call *c = w->call;
  const pegen_attention_tile *tile = &w->walk.tile;
  int64_t type = c->forward.type, bytes = pegen_number_at(type)->bits / 8;
  for (int64_t lane = 0; lane < w->walk.queries; lane++) {
    int64_t token = tile->tokens[lane];
    if (token < 0) continue;
    float *row = w->rows + lane * pitch;
    const char *out = tile->out[0] + token * tile->out_token;
    for (int64_t i = 0; i < width; i++) row[i] -= w->tile.sums[lane] * (float)pegen_number_load(type, out + i * bytes);
    char *to = pegen_at(&c->g_out, w->walk.batch, w->walk.head, token);
    w->code->store_values[type](row, to, c->g_out.stride[PEGEN_TOKEN], 1, 1);
    if (c->g_lse.empty) continue;
    *(float *)(void *)pegen_at(&c->g_lse, w->walk.batch, w->walk.head, token) = w->tile.sums[lane];
  }
}

static void run_tile(tangent *w, int64_t index) {
  int64_t width = w->walk.form->value_dim, pitch = pegen_attention_pitch(width);
  pegen_attention_set_tile(&w->walk, index);
  pegen_attention_copy_tile(&w->walk, &w->tile.tile, &w->walk.tile);
  set_tangents(w);
  w->tile.tangents = &w->tangents.tile;
  w->tile.begin = 0;
  for (int64_t i = 0; i < width * w->walk.queries; i++) w->tile.columns[i] = 0;
  for (int64_t lane = 0; lane < w->walk.queries; lane++) w->tile.sums[lane] = 0;
  if (w->turns) run_turned(w);
  else w->attend(&w->tile);
  turn_columns(w, width, pitch);
  if (w->turns_values)
    pegen_attention_turn_back(&w->turner, w->rows, pitch * (int64_t)sizeof(float), w->walk.tile.queries,
                              w->walk.tile.positions[0], PEGEN_ATTENTION_QUERIES);
  give_rows(w, width, pitch);
}

/* ---- calls ---- */

static void run(const pegen_driver *driver, const pegen_args *args, const pegen_attention_backward_call *call,
                int target, const pegen_tuning *tuning, int part, int parts) {
  tangent w;
  int64_t begin, end, heads = call->forward.q.size[PEGEN_HEAD];
  w.call = call;
  pegen_attention_begin(&w.walk, driver, args, &call->forward, target, tuning);
  w.code = &w.walk.form->gradients[target];
  w.attend = w.code->tangent[call->forward.type];
  w.walk.heads = 1; /* of a tile */
  PEGEN_ATTENTION_ROOM(&w.walk);
  size_t row = sizeof(float) * (size_t)w.walk.queries, width = (size_t)w.walk.form->value_dim;
  w.tile.columns = PEGEN_STACK(row * width);
  w.tile.sums = PEGEN_STACK(row);
  w.rows = PEGEN_STACK(row * (size_t)pegen_attention_pitch((int64_t)width));
  w.turns = w.code->turned.attend[call->forward.type] ? &w.code->turned : 0;
  w.turns_values = w.turns && w.walk.form->turned[target].values;
  if (w.turns) {
    int64_t dim = driver->kernel->head_dim, values = w.turns_values ? w.turns->keys : 0;
    pegen_attention_turner_begin(&w.turner, &w.walk, target);
    pegen_attention_cut_tiles(&w.walk, 0);
    PEGEN_ATTENTION_TURNER_ROOM(&w.turner);
    PEGEN_ATTENTION_PANEL_ROOM(&w.panel, dim, w.turns->keys, values);
    PEGEN_ATTENTION_PANEL_ROOM(&w.tangent_panel, dim, w.turns->keys, values);
    w.queries = PEGEN_STACK(row * (size_t)dim);
    w.tangent_queries = PEGEN_STACK(row * (size_t)dim);
  }
  pegen_share(call->forward.q.size[PEGEN_BATCH] * heads * w.walk.tiles, part, parts, &begin, &end);
  for (int64_t item = begin; item < end; item++) {
    int64_t row_of = item / w.walk.tiles, batch = row_of / heads;
    set_head(&w, batch, row_of - batch * heads);
    run_tile(&w, item - row_of * w.walk.tiles);
  }
}

int pegen_driver_attention_tangent(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  pegen_attention_backward_call call;
  pegen_tuning tuning;
  PEGEN_TRY(pegen_check_attention_tangent(driver, args, part, parts, &call));
  int target = pegen_dispatch(driver, &tuning);
  if (target < 0) return PEGEN_ERROR_PROCESSOR;
  if (!((const pegen_attention *)driver->form)->gradients[target].tangent[call.forward.type]) return PEGEN_ERROR_DTYPE;
  int64_t sequences = call.forward.bounds[0].sequences;
  for (int64_t i = 0; i < (sequences ? sequences : 1); i++) {
    if (sequences) pegen_attention_backward_go_to(driver, &call, i ? i - 1 : 0, i);
    int turned = (int)((part + i) % parts); /* first parts have more of few tiles */
    if (!call.g_out.empty && call.forward.q.size[PEGEN_TOKEN]) run(driver, args, &call, target, &tuning, turned, parts);
  }
  return 0;
}
