/* attention_backward.c: gradients of attention, by tiles of queries as attention itself.
 *
 * An item is a head of k and v of a batch, with all heads of q that share it. What its keys gain is summed in the
 * workspace over those heads and their tiles, in order; what a query gains is written with its tile. A part takes a
 * contiguous run of whole items. Where there are more parts than items, those of one item share its tiles for what
 * queries gain and its keys for what keys gain, and make scores for either: two products of seven again. Any number is
 * the same sum in the same order either way, so results are the same to the bit for any number of parts.
 *
 * Where operands have gradients, a unit of items (one, or some where there are many) has chunks of its tiles, whose
 * number the call's sizes alone decide; what a chunk gives the elements of operands has a place of its own in the
 * workspace, in float64, and `finish` adds chunks in order.
 *
 * Where operands are read at computed places and batches share positions, pairs of all batches have the same biases and
 * give to the same places: a unit is batches of one head, which go through a tile of queries one after the other. The
 * first computes the biases, and the last gives what all of them summed.
 */
#include "attention_backward_walk.h"

typedef pegen_attention_backward_walk backward;

/* ---- an item ---- */

void pegen_attention_backward_set_head(backward *w, int64_t batch, int64_t head, int64_t is_spoilt) {
  const pegen_attention_backward_call *c = w->call;
  pegen_attention_gradient_tile *t = &w->tile;
  w->walk.spoilt = is_spoilt | pegen_attention_spoils(&w->walk, &c->forward.q, &c->g_out, batch, head);
  t->g_out = pegen_at(&c->g_out, batch, head, 0);
  t->g_out_token = c->g_out.stride[PEGEN_TOKEN];
  t->g_lse = c->g_lse.empty ? 0 : pegen_at(&c->g_lse, batch, head, 0);
  t->g_lse_token = c->g_lse.empty ? 0 : c->g_lse.stride[PEGEN_TOKEN];
  t->g_q_token = c->g_q.empty ? 0 : c->g_q.stride[PEGEN_TOKEN];
  if (w->weights.unweigh) pegen_weights_set_head(&w->weights, batch, head);
}

/* What a head's sums are of elements. */
static void add_head(backward *w, double *chunk, int64_t head) {
  const pegen_attention *form = w->walk.form;
  if (w->weights.unweigh) pegen_weights_add_head(&w->weights, head, chunk);
  for (int64_t i = 0; i < form->n_scatters; i++) {
    const pegen_leaf *leaf = &form->scatters[i];
    const int32_t *offsets = leaf->operand < 0 ? 0 : leaf->offsets + (leaf->n_heads > 1 ? head * form->n_blocks : 0);
    double *elements = chunk + pegen_elements_before(w->walk.driver->kernel, leaf->operand);
    double *sums = w->head_sums + i * form->n_blocks;
    for (int64_t block = 0; block < form->n_blocks; block++) {
      if (offsets) elements[offsets[block]] += sums[block];
      sums[block] = 0;
    }
  }
}

/* What is computed of pairs is not kept for other tiles. */
static void set_alone(backward *w) {
  w->walk.tile.biases = w->tile.pair_sums = 0;
  w->walk.tile.is_first = w->tile.is_last = 1;
  w->run_begin = w->run_end = 0;
}

/* Room for what keys gain, or NULL where nothing is wanted of them. */
static void set_sums(backward *w, float *sums) {
  int64_t of_keys = w->walk.keys * pegen_attention_pitch(w->walk.driver->kernel->head_dim);
  w->key_sums = w->call->g_k.empty ? 0 : sums;
  w->value_sums = w->call->g_v.empty ? 0 : sums + (w->key_sums ? of_keys : 0);
}

static void set_chunk(backward *w, double *chunk) {
  const pegen_kernel *kernel = w->walk.driver->kernel;
  w->tile.operand_sums = chunk ? w->head_sums : 0;
  w->weights.work.sums = chunk ? w->weights.sums : 0;
  for (int i = 0; chunk && i < kernel->n_operands; i++) {
    w->tables[i] = chunk;
    chunk += pegen_operand_elements(kernel, i);
  }
  w->tile.tables = w->tables;
}

/* What a tile's weights gained goes on to its queries' inputs, and to sums. */
static void run_weights(backward *w, int64_t index) {
  int64_t first = w->tile.tile.tokens[0], count = w->tile.tile.queries; /* they follow each other */
  if (index < w->walk.prefix_tiles) pegen_weights_skip(&w->weights, first, count);
  else pegen_weights_run(&w->weights, first, count);
}

/* Whether the tile's queries are in the first register. */
static int is_narrow(const backward *w) { return w->attend_narrow && w->tile.tile.queries <= w->walk.lanes; }

/* ---- what is read next ---- */

enum { CACHE_LINE = 64 };

static void add_ahead(backward *w, const pegen_view *view, int64_t batch, int64_t head, int64_t begin, int64_t end) {
  int64_t stride = view->stride[PEGEN_TOKEN];
  const char *row = pegen_at(view, batch, head, 0) + begin * stride;
  if (end > begin + PEGEN_ATTENTION_QUERIES) end = begin + PEGEN_ATTENTION_QUERIES;
  if (end > begin + PEGEN_BACKWARD_AHEAD - w->tile.n_ahead) end = begin + PEGEN_BACKWARD_AHEAD - w->tile.n_ahead;
  for (int64_t i = begin; i < end; i++, row += stride) w->ahead[w->tile.n_ahead++] = row;
}

/* Item `item`: its batch, and head of k and v. */
static int64_t batch_of(const backward *w, int64_t item) {
  const pegen_view *k = &w->call->forward.k;
  return w->cut.keeps ? item % k->size[PEGEN_BATCH] : item / k->size[PEGEN_HEAD];
}

static int64_t head_of(const backward *w, int64_t item) {
  const pegen_view *k = &w->call->forward.k;
  return w->cut.keeps ? item / k->size[PEGEN_BATCH] : item % k->size[PEGEN_HEAD];
}

/* Lists for prefetch the rows of the tile that follows the item's tile `index`: queries, outputs, inputs and their
 * gradients. */
static void ahead_of_queries(backward *w, int64_t batch, int64_t shared, int64_t index) {
  const pegen_attention_call *c = &w->call->forward;
  if (w->run_end && ++batch == w->run_end) batch = w->run_begin;
  if ((!w->run_end || batch == w->run_begin) && ++index == w->group * w->walk.tiles) {
    if (w->next < 0) return;
    batch = batch_of(w, w->next), shared = head_of(w, w->next), index = 0;
  }
  int64_t head = shared * w->group + index / w->walk.tiles, begin = index % w->walk.tiles * w->walk.queries,
          end = begin + w->walk.queries < w->walk.tokens ? begin + w->walk.queries : w->walk.tokens;
  add_ahead(w, &c->q, batch, head, begin, end);
  add_ahead(w, &w->call->g_out, batch, head, begin, end);
  add_ahead(w, &c->out, batch, head, begin, end);
  if (!w->call->g_q.empty) add_ahead(w, &w->call->g_q, batch, head, begin, end);
  if (!w->weights.unweigh) return;
  for (int i = 0; i < w->walk.driver->kernel->n_inputs; i++) {
    if (pegen_input_is_of_pairs(w->walk.driver->kernel, i)) continue;
    add_ahead(w, &c->input[i], batch, head, begin, end);
    if (!w->call->g_input[i].empty) add_ahead(w, &w->call->g_input[i], batch, head, begin, end);
  }
}

/* During tile `index` of the item's: the rows of the next tile's queries, a share of the next item's keys, and of what
 * this one's gain where the walk is all of the item's; in a run of batches, of which the first tile alone brings
 * another item's, all of the keys. What is written is asked for, too: a store of a line that is far away is waited for
 * when there are as many as the processor holds. */
static void set_ahead(backward *w, int64_t batch, int64_t shared, int64_t index, int is_whole) {
  const pegen_attention_call *c = &w->call->forward;
  int64_t tiles = w->group * w->walk.tiles, begin, end;
  w->tile.n_ahead = 0;
  if (!w->looks_ahead) return;
  ahead_of_queries(w, batch, shared, index);
  pegen_share(w->walk.keys, w->run_end ? 0 : (int)index, w->run_end ? 1 : (int)tiles, &begin, &end);
  if (w->next >= 0) {
    add_ahead(w, &c->k, batch_of(w, w->next), head_of(w, w->next), begin, end);
    add_ahead(w, &c->v, batch_of(w, w->next), head_of(w, w->next), begin, end);
  }
  if (!is_whole || w->run_end) return;
  if (!w->call->g_k.empty) add_ahead(w, &w->call->g_k, batch, shared, begin, end);
  if (!w->call->g_v.empty) add_ahead(w, &w->call->g_v, batch, shared, begin, end);
}

/* What the coordinates of a head of q, or of its keys, gain; NULL: not wanted. */
static double *place_sums_of(const backward *w, int of_keys, int64_t batch, int64_t head) {
  int64_t sizes[PEGEN_VIEW_DIMS];
  if (!w->place_sums[of_keys] || !w->of_pairs) return 0;
  pegen_attention_place_sizes(w->walk.driver, w->call, of_keys, sizes);
  if (sizes[PEGEN_HEAD] < w->call->forward.q.size[PEGEN_HEAD]) head /= w->group;
  return w->place_sums[of_keys] + (batch * sizes[PEGEN_HEAD] + head) * sizes[PEGEN_TOKEN] * w->walk.form->n_sums;
}

/* ---- elements of inputs' rows ---- */

static int wants_pairs(const backward *w, int of_keys) { return w->place_sums[of_keys] || w->row_gains[of_keys].at; }

/* What rows of inputs gain of a head: rows that are not kept have the room of the item that w->room tells. */
static double *row_gains_of(const backward *w, int of_keys, int64_t batch, int64_t head) {
  const pegen_row_gains *g = &w->row_gains[of_keys];
  if (!g->at || !w->of_pairs) return 0;
  int is_own = g->is_kept || w->room < 0;
  return pegen_row_gains_of_head(g, w->call, is_own ? batch : batch_of(w, w->room),
                                 is_own ? head : head_of(w, w->room) * w->group + head % w->group);
}

static void clear_doubles(double *at, int64_t count) {
  for (int64_t i = 0; i < count; i++) at[i] = 0;
}

/* Rows of the tile's queries, 0 before it. In a room that serves tile after tile they are the first ones. */
static void begin_rows(backward *w, int64_t batch, int64_t head, int of_queries) {
  const pegen_row_gains *g = &w->row_gains[0];
  double *room = of_queries ? row_gains_of(w, 0, batch, head) : 0;
  int64_t next = 0;
  w->tile.row_gains = room ? w->rows : 0;
  for (int64_t lane = 0; lane < w->walk.queries && room; lane++) {
    int64_t token = w->tile.tile.tokens[lane];
    w->rows[lane] = lane ? w->rows[0] : room;
    if (token < 0) continue;
    w->rows[lane] = room + (g->is_kept || w->room < 0 ? token : next++) * g->pitch;
    clear_doubles(w->rows[lane], g->elements);
  }
}

static void end_rows(const backward *w, int64_t batch, int64_t head) {
  const pegen_row_gains *g = &w->row_gains[0];
  if (!w->tile.row_gains || g->is_kept) return;
  for (int64_t lane = 0; lane < w->walk.queries; lane++)
    if (w->tile.tile.tokens[lane] >= 0)
      pegen_row_gains_store(w->walk.driver, g, w->call, batch, head, w->tile.tile.tokens[lane], w->rows[lane]);
}

/* Rows of keys [begin, end) of an item: they are 0; */
static void begin_key_rows(const backward *w, int64_t batch, int64_t shared, int64_t begin, int64_t end) {
  int64_t elements = w->row_gains[1].elements;
  for (int64_t i = 0; i < w->group; i++) {
    double *rows = row_gains_of(w, 1, batch, shared * w->group + i);
    if (rows) clear_doubles(rows + begin * elements, (end - begin) * elements);
  }
}

/* and they are stored. */
static void end_key_rows(const backward *w, int64_t batch, int64_t shared, int64_t begin, int64_t end) {
  const pegen_row_gains *g = &w->row_gains[1];
  for (int64_t i = 0; i < w->group && !g->is_kept; i++) {
    double *rows = row_gains_of(w, 1, batch, shared * w->group + i);
    for (int64_t key = begin; key < end && rows; key++)
      pegen_row_gains_store(w->walk.driver, g, w->call, batch, shared * w->group + i, key, rows + key * g->elements);
  }
}

/* Heads that share values may turn them by rotors of their own: sums of keys [begin, end) into the frame of another. */
static void set_frame(backward *w, int64_t head, int64_t begin, int64_t end, int of_keys) {
  int64_t pitch = pegen_attention_pitch(w->walk.form->value_dim);
  float *sums = of_keys ? w->value_sums : 0;
  if (sums) pegen_attention_backward_reframe(w, sums, pitch, begin, end, &w->value_frame, head, 0);
  pegen_attention_turner_set_head(&w->turner, head);
}

/* What numbers of pairs gain is added up tile by tile: a tile's rows are 0 when the first head and batch comes to them
 * of those that share them. */
static void set_pair_gains(backward *w, int64_t batch, int64_t head, int of_queries) {
  pegen_attention_gradient_tile *t = &w->tile;
  const pegen_kernel *kernel = w->walk.driver->kernel;
  for (int i = 0; i < kernel->n_inputs; i++) {
    const pegen_view *view = &w->call->g_input[i];
    t->pair_gains[i] = 0;
    if (kernel->inputs[i].size != PEGEN_SIZE_OF_KEYS || view->empty || !of_queries) continue;
    int64_t own = view->size[PEGEN_BATCH] == 1 ? 0 : batch, heads = w->call->forward.q.size[PEGEN_HEAD],
            group = heads / view->size[PEGEN_HEAD];
    t->pair_gains[i] = pegen_at(view, own, head / group, 0);
    t->pair_gains_token[i] = view->stride[PEGEN_TOKEN];
    if (own != batch || head % group || w->call->grad->flags & PEGEN_GRAD_ACCUMULATE) continue;
    for (int64_t lane = 0; lane < w->walk.queries; lane++) {
      if (t->tile.tokens[lane] < 0) continue;
      float *row = (float *)(void *)(t->pair_gains[i] + t->tile.tokens[lane] * t->pair_gains_token[i]);
      for (int64_t key = 0; key < w->walk.keys; key++) row[key] = 0;
    }
  }
}

/* Tiles [first, last) of the item's heads, against keys [begin, end). */
static void run_tiles(backward *w, int64_t batch, int64_t shared, int64_t first, int64_t last, int64_t begin,
                      int64_t end, int of_queries, int of_keys) {
  pegen_attention_gradient_tile *t = &w->tile;
  int64_t of_group = -1, is_spoilt = 0;
  for (int64_t i = first; i < last; i++) {
    int64_t head = shared * w->group + i / w->walk.tiles;
    if (head != of_group) {
      if (of_group < 0) w->walk.looked = -1;
      pegen_attention_set_heads(&w->walk, batch, head);
      if (of_group < 0) is_spoilt = w->walk.spoilt;
      pegen_attention_backward_set_head(w, batch, head, is_spoilt);
      if (w->turns_values) set_frame(w, head, begin, end, of_keys);
      of_group = head;
    }
    if (w->turns) { /* all of the head's at once */
      int64_t stop = (head - shared * w->group + 1) * w->walk.tiles, left = last < stop ? last : stop;
      int64_t before = (head - shared * w->group) * w->walk.tiles;
      pegen_attention_backward_turned(w, batch, head, i - before, left - before, begin, end, of_queries, of_keys);
      i = left - 1;
      continue;
    }
    if (w->walk.tile.is_first || w->walk.look)
      pegen_attention_set_tile(&w->walk, i % w->walk.tiles); /* else it stands */
    pegen_attention_copy_tile(&w->walk, &t->tile, &w->walk.tile);
    if (w->turns_values)
      pegen_attention_turn_gradient(&w->turner, t, &w->call->forward.out, &w->call->g_out, batch, head);
    set_ahead(w, batch, shared, i, of_queries && of_keys);
    if (t->tile.end > end) t->tile.end = end;
    t->begin = begin;
    t->g_q = of_queries && !w->call->g_q.empty ? pegen_at(&w->call->g_q, batch, head, 0) : 0;
    t->key_sums = of_keys ? w->key_sums : 0;
    t->value_sums = of_keys ? w->value_sums : 0;
    t->weight_gains = of_queries && w->weights.unweigh ? (float *)(uintptr_t)w->weights.work.weights : 0;
    t->place_sums = of_queries ? place_sums_of(w, 0, batch, head) : 0;
    t->key_place_sums = of_keys ? place_sums_of(w, 1, batch, head) : 0;
    t->key_row_gains = of_keys ? row_gains_of(w, 1, batch, head) : 0;
    set_pair_gains(w, batch, head, of_queries);
    begin_rows(w, batch, head, of_queries);
    (is_narrow(w) ? w->attend_narrow : w->attend)(t);
    end_rows(w, batch, head);
    if (t->weight_gains) run_weights(w, i % w->walk.tiles);
  }
}

/* Runs chunks [first, last) of the item's unit. Each chunk has its own sums of gradients of operands. */
static void run_chunks(backward *w, int64_t batch, int64_t shared, int64_t unit, int64_t first, int64_t last,
                       int of_keys) {
  int64_t tiles = w->group * w->walk.tiles, elements = pegen_all_elements(w->walk.driver->kernel);
  for (int64_t c = first; c < last; c++) {
    double *chunk = w->chunk_sums + (unit * w->cut.chunks + c) * elements;
    int64_t begin, end;
    pegen_share(tiles, (int)c, (int)w->cut.chunks, &begin, &end);
    set_chunk(w, chunk);
    while (begin < end) { /* head by head */
      int64_t head = begin / w->walk.tiles, stop = (head + 1) * w->walk.tiles;
      run_tiles(w, batch, shared, begin, stop < end ? stop : end, 0, w->walk.keys, !w->of_operands_alone, of_keys);
      add_head(w, chunk, shared * w->group + head);
      begin = stop;
    }
  }
  set_chunk(w, 0);
}

enum { MOST_OF_RUN = 16 }; /* sums of pairs over so many batches are float32 */

/* Rooms of what chunk `chunk` of a unit keeps of its pairs. */
static void set_rooms(backward *w, int64_t unit, int64_t chunk) {
  int64_t numbers = pegen_attention_pair_numbers(w->call);
  w->walk.tile.biases = w->pair_rooms + 2 * (unit * w->cut.chunks + chunk) * numbers;
  w->tile.pair_sums = w->walk.tile.biases + numbers;
}

/* Chunks [first, last) of a unit, of batches [begin, end) of a head, whose pairs are kept: tile by tile. sums: of the
 * keys of each batch, so many numbers; NULL: what they gain is not wanted. */
static void run_kept(backward *w, int64_t unit, int64_t shared, int64_t first, int64_t last, int64_t begin, int64_t end,
                     float *sums, int64_t item_numbers) {
  int64_t tiles = w->group * w->walk.tiles, elements = pegen_all_elements(w->walk.driver->kernel), after = w->next,
          item = shared * w->call->forward.k.size[PEGEN_BATCH];
  w->run_begin = begin;
  w->run_end = end;
  for (int64_t c = first; c < last; c++) {
    double *chunk = w->chunk_sums + (unit * w->cut.chunks + c) * elements;
    int64_t tile, start, stop;
    pegen_share(tiles, (int)c, (int)w->cut.chunks, &start, &stop);
    set_chunk(w, chunk);
    if (end - begin > 1) set_rooms(w, unit, c);
    for (tile = start; tile < stop; tile++) {
      for (int64_t batch = begin; batch < end; batch++) {
        int is_opening = c == first && tile == start, is_closing = c == last - 1 && tile == stop - 1;
        w->next = batch == end - 1 ? (is_closing ? after : -1) : is_opening ? item + batch + 1 : -1;
        w->walk.tile.is_first = batch == begin;
        w->tile.is_last = batch == end - 1;
        if (sums) set_sums(w, sums + (batch - begin) * item_numbers);
        run_tiles(w, batch, shared, tile, tile + 1, 0, w->walk.keys, 1, sums != 0);
      }
      add_head(w, chunk, shared * w->group + tile / w->walk.tiles);
    }
  }
  set_alone(w);
  set_chunk(w, 0);
}

static void clear(float *sums, int64_t from, int64_t to) {
  for (int64_t i = from; sums && i < to; i++) sums[i] = 0;
}

static void store(const pegen_view *rows, pegen_attention_store_function *write, const float *sums, int64_t pitch,
                  int64_t batch, int64_t shared, int64_t begin, int64_t end, double factor) {
  if (!sums || begin >= end) return;
  char *to = pegen_at(rows, batch, shared, 0) + begin * rows->stride[PEGEN_TOKEN];
  write(sums + begin * pitch, to, rows->stride[PEGEN_TOKEN], end - begin, factor);
}

/* Chunks of share `share` of `shares` of an item. */
static void run_operands(backward *w, int64_t unit, int64_t item, int share, int shares) {
  int64_t first, last;
  pegen_share(w->cut.chunks, share, shares, &first, &last);
  run_chunks(w, batch_of(w, item), head_of(w, item), unit, first, last, 0);
}

/* Keys [begin, end) are those of share `share` of `shares` of an item. */
static void share_keys(const backward *w, int share, int shares, int64_t *begin, int64_t *end) {
  int64_t keys = w->walk.keys, skip = w->walk.skip < keys ? w->walk.skip : keys, step = w->step;
  pegen_share((keys - skip + step - 1) / step, share, shares, begin, end);
  *end = skip + *end * step < keys && share < shares - 1 ? skip + *end * step : keys;
  *begin = share == 0 ? 0 : skip + *begin * step < keys ? skip + *begin * step : keys;
}

/* Nothing has been gained by keys [begin, end) of an item; sums: its room. Whether anything is wanted of them. */
static int begin_keys(backward *w, int64_t item, int64_t begin, int64_t end, float *sums) {
  int64_t k_pitch = pegen_attention_pitch(w->walk.driver->kernel->head_dim),
          v_pitch = pegen_attention_pitch(w->walk.form->value_dim), sums_of_key = w->walk.form->n_sums;
  set_sums(w, sums);
  clear(w->key_sums, begin * k_pitch, end * k_pitch);
  clear(w->value_sums, begin * v_pitch, end * v_pitch);
  w->key_frame = w->value_frame = PEGEN_FRAME_EMPTY;
  for (int64_t i = 0; i < w->group; i++) { /* more than once where heads have them in common */
    double *places = place_sums_of(w, 1, batch_of(w, item), head_of(w, item) * w->group + i);
    if (places) clear_doubles(places + begin * sums_of_key, (end - begin) * sums_of_key);
  }
  begin_key_rows(w, batch_of(w, item), head_of(w, item), begin, end);
  return w->key_sums || w->value_sums || (w->of_pairs && wants_pairs(w, 1));
}

/* What keys [begin, end) of an item gained is stored. */
static void end_keys(backward *w, int64_t item, int64_t begin, int64_t end, float *sums) {
  const pegen_attention_call *c = &w->call->forward;
  int64_t k_pitch = pegen_attention_pitch(w->walk.driver->kernel->head_dim),
          v_pitch = pegen_attention_pitch(w->walk.form->value_dim), batch = batch_of(w, item),
          shared = head_of(w, item), placed = begin > w->walk.skip ? begin : w->walk.skip;
  set_sums(w, sums);
  if (w->turns && w->key_sums)
    pegen_attention_backward_reframe(w, w->key_sums, k_pitch, placed, end, &w->key_frame, PEGEN_FRAME_NONE, 0);
  store(&w->call->g_k, w->code->store_keys[c->type], w->key_sums, k_pitch, batch, shared, begin, end, c->scale);
  if (w->turns_values && w->value_sums)
    pegen_attention_backward_reframe(w, w->value_sums, v_pitch, begin, end, &w->value_frame, PEGEN_FRAME_NONE, 0);
  store(&w->call->g_v, w->code->store_values[c->type], w->value_sums, v_pitch, batch, shared, begin, end, 1);
  end_key_rows(w, batch, shared, begin, end);
}

/* What keys of share `share` of `shares` of an item gain, in a walk of their own. */
static void run_keys(backward *w, int64_t item, int share, int shares, float *sums) {
  int64_t begin, end;
  share_keys(w, share, shares, &begin, &end);
  if (begin_keys(w, item, begin, end, sums) && begin < end)
    run_tiles(w, batch_of(w, item), head_of(w, item), 0, w->group * w->walk.tiles, begin, end, 0, 1);
  end_keys(w, item, begin, end, sums);
}

/* Share `share` of `shares` of an item: tiles of queries, and keys; one share does both in one walk. sums: room of one
 * item. */
static void run_item(backward *w, int64_t unit, int64_t item, int share, int shares, float *sums) {
  int64_t batch = batch_of(w, item), shared = head_of(w, item), tiles = w->group * w->walk.tiles, first, last;
  int is_whole = shares == 1, of_queries = !w->call->g_q.empty || w->call->of_inputs || w->place_sums[0],
      of_keys = is_whole && begin_keys(w, item, 0, w->walk.keys, sums);
  if (w->cut.chunks) {
    pegen_share(w->cut.chunks, share, shares, &first, &last);
    run_chunks(w, batch, shared, unit, first, last, of_keys);
  } else {
    int64_t cuts = w->cut.shares ? w->group : 1; /* a part has the same tiles of each head */
    for (int64_t i = 0; i < cuts && (is_whole || of_queries); i++) {
      pegen_share(tiles / cuts, share, shares, &first, &last);
      first += i * (tiles / cuts), last += i * (tiles / cuts);
      run_tiles(w, batch, shared, first, last, 0, w->walk.keys, 1, of_keys);
    }
  }
  if (is_whole) end_keys(w, item, 0, w->walk.keys, sums);
  else run_keys(w, item, share, shares, sums);
}

/* Runs items [first, last), which are batches of one head whose pairs are kept. Each item has room for its sums. */
static void run_batches(backward *w, int64_t unit, int64_t first, int64_t last, int share, int shares, float *sums,
                        int64_t item_numbers) {
  int64_t batch = batch_of(w, first), keys = w->walk.keys, begin, end;
  int is_whole = shares == 1, of_keys = 0;
  for (int64_t i = first; i < last && is_whole; i++)
    of_keys = begin_keys(w, i, 0, keys, sums + (i - first) * item_numbers);
  pegen_share(w->cut.chunks, share, shares, &begin, &end);
  run_kept(w, unit, head_of(w, first), begin, end, batch, batch + last - first, of_keys ? sums : 0, item_numbers);
  for (int64_t i = first; i < last; i++) {
    if (is_whole) end_keys(w, i, 0, keys, sums + (i - first) * item_numbers);
    else run_keys(w, i, share, shares, sums + (i - first) * item_numbers);
  }
}

/* How many items from `item` on, of those before `last`, keep what is computed of pairs together. */
static int64_t batches_from(const backward *w, int64_t item, int64_t last) {
  int64_t count = w->call->forward.k.size[PEGEN_BATCH] - batch_of(w, item);
  if (count > last - item) count = last - item;
  return !w->cut.keeps ? 1 : count < MOST_OF_RUN ? count : MOST_OF_RUN;
}

/* Units [begin, end), or share `share` of `shares` of one. */
static void run_units(backward *w, int64_t begin, int64_t end, int share, int shares, char *workspace) {
  int64_t item_numbers = w->walk.keys * pegen_attention_key_numbers(w->call),
          elements = pegen_all_elements(w->walk.driver->kernel), first, last, own = 0;
  for (int64_t unit = begin; unit < end; unit++) {
    pegen_share(w->cut.chunks, share, shares, &first, &last);
    double *sums = w->chunk_sums + unit * w->cut.chunks * elements;
    for (int64_t i = first * elements; i < last * elements; i++) sums[i] = 0;
    pegen_share(w->cut.items, (int)unit, (int)w->cut.units, &first, &last);
    if (unit == begin) own = first; /* of its items: other parts may share theirs, one room each */
    int64_t count;
    for (int64_t item = first; item < last; item += count) { /* one room for all, so that it stays in the cache */
      float *room = (float *)(void *)workspace + (shares == 1 ? own : item) * item_numbers;
      count = batches_from(w, item, last);
      w->room = shares == 1 ? own : -1;
      w->next = shares == 1 && (item + count < last || unit + 1 < end) ? item + count : -1;
      if (w->of_operands_alone) run_operands(w, unit, item, share, shares);
      else if (w->cut.keeps) run_batches(w, unit, item, item + count, share, shares, room, item_numbers);
      else run_item(w, unit, item, share, shares, room);
    }
  }
}

static void run_part(backward *w, int part, int parts, char *workspace) {
  int64_t begin, end;
  if (parts <= w->cut.units) {
    pegen_share(w->cut.units, part, parts, &begin, &end);
    run_units(w, begin, end, 0, 1, workspace);
    return;
  }
  for (int64_t unit = 0; unit < w->cut.units; unit++) {
    pegen_share(parts, (int)unit, (int)w->cut.units, &begin, &end);
    if (part >= begin && part < end) run_units(w, unit, unit + 1, part - (int)begin, (int)(end - begin), workspace);
  }
}

static int wants_rows(const backward *w) { return !w->call->g_q.empty || !w->call->g_k.empty || !w->call->g_v.empty; }

/* Rows as where no operand gains, and then operands, by tiles of another cut. */
static void run_apart(backward *w, int part, int parts, char *workspace) {
  int64_t chunks = w->cut.chunks;
  w->cut.chunks = 0;
  if (wants_rows(w)) run_part(w, part, parts, workspace);
  w->cut.chunks = chunks;
  w->of_operands_alone = 1;
  w->attend = w->code->attend_operands[w->call->forward.type];
  w->attend_narrow = 0;
  pegen_attention_cut_tiles(&w->walk, 0);
  run_part(w, part, parts, workspace);
}

/* Its room is given back before pairs' code takes its own. */
static __attribute__((noinline)) void run_together(backward *w, int part, int parts, char *workspace) {
  PEGEN_BACKWARD_TILES_ROOM(w);
  w->attend = w->turns->attend[w->call->forward.type];
  if (w->walk.dots && w->turns->attend_dots) {
    w->attend = w->turns->attend_dots;
    pegen_attention_turner_narrow(&w->turner);
  }
  w->step = w->turns->step;
  pegen_attention_cut_tiles(&w->walk, 0);
  run_part(w, part, parts, workspace);
  pegen_attention_turner_widen(&w->turner);
}

/* Rows that come turned; what gains pair by pair does so in a walk of its own behind that: coordinates, and operands
 * where some rotate. Rows have the same bits whatever else is asked for. */
static void run_turned(backward *w, int part, int parts, char *workspace) {
  const pegen_attention_turned_gradient *turns = w->turns;
  pegen_attend_gradient_function *attend = w->attend;
  pegen_attention_backward_call others;
  int64_t chunks = w->cut.chunks, runs = w->walk.runs;
  int of_operands = chunks && turns->of_operands,
      of_pairs = wants_pairs(w, 0) || wants_pairs(w, 1) || (chunks && !of_operands);
  w->cut.chunks = of_operands ? chunks : 0;
  w->of_pairs = 0;
  if (wants_rows(w) || of_operands) run_together(w, part, parts, workspace);
  w->turns = 0;
  w->cut.chunks = of_operands ? 0 : chunks;
  if (!of_pairs) return;
  pegen_copy_bytes(&others, w->call, sizeof others);
  others.g_q.empty = others.g_k.empty = others.g_v.empty = 1;
  w->call = &others;
  w->attend = attend;
  w->step = w->code->step;
  w->of_pairs = 1;
  pegen_attention_cut_tiles(&w->walk, runs != 0);
  (w->cut.chunks && w->code->attend_operands[others.forward.type] ? run_apart : run_part)(w, part, parts, workspace);
}

/* ---- one call ---- */

void pegen_attention_backward_run(const pegen_driver *driver, const pegen_args *args,
                                  const pegen_attention_backward_call *call, int target, const pegen_tuning *tuning,
                                  int part, int parts, char *workspace) {
  backward w;
  pegen_attention_begin(&w.walk, driver, args, &call->forward, target, tuning);
  w.call = call;
  w.code = &w.walk.form->gradients[target];
  w.attend = w.code->attend[call->forward.type];
  w.attend_narrow = w.code->attend_narrow[call->forward.type];
  if (call->forward.type == PEGEN_NUMBER_BF16 && tuning->dots && w.code->attend_dots) {
    w.attend = w.code->attend_dots;
    w.attend_narrow = w.code->attend_narrow_dots;
  }
  w.walk.heads = 1; /* of a tile */
  w.of_operands_alone = 0;
  w.group = call->forward.group;
  w.looks_ahead = tuning->attention_ahead != 0;
  w.tile.ahead = w.ahead;
  w.tile.ahead_lines = (pegen_larger(call->forward.q.width, call->forward.out.width) + CACHE_LINE - 1) / CACHE_LINE;
  PEGEN_ATTENTION_ROOM(&w.walk);
  int64_t n_sums = w.walk.form->n_scatters * w.walk.form->n_blocks;
  w.head_sums = __builtin_alloca(sizeof(double) * (size_t)(n_sums + 1));
  w.of_pairs = 1;
  for (int of_keys = 0; of_keys < 2; of_keys++) {
    w.place_sums[of_keys] = pegen_attention_place_sums(driver, args, call, workspace, of_keys);
    w.row_gains[of_keys] = pegen_attention_row_gains(driver, args, call, workspace, of_keys);
  }
  w.tables = __builtin_alloca(sizeof(double *) * (size_t)(driver->kernel->n_operands + 1));
  const pegen_gradient *weights = call->of_inputs || call->of_operands ? w.walk.form->weights : 0;
  w.weights.lanes = w.walk.form->lanes;
  w.weights.n_blocks = w.walk.form->n_blocks;
  w.weights.unweigh = 0;
  PEGEN_WEIGHTS_ROOM(&w.weights, weights, w.weights.lanes, w.walk.form->n_weights);
  if (weights)
    pegen_weights_begin(&w.weights, driver, args, weights, target,
                        call->forward.wide_inputs || !driver->kernel->n_inputs ? PEGEN_NUMBER_F32 : call->forward.type,
                        call->forward.input, call->g_input);
  for (int64_t i = 0; i < n_sums; i++) w.head_sums[i] = 0;
  w.step = w.code->step;
  w.turns = w.code->turned.attend[call->forward.type] ? &w.code->turned : 0;
  w.turns_values = w.walk.form->turned && w.walk.form->turned[target].values;
  if (w.turns) {
    pegen_attention_turner_begin(&w.turner, &w.walk, target);
    PEGEN_ATTENTION_TURNER_ROOM(&w.turner);
  }
  if (w.turns_values) {
    size_t lanes = sizeof(float) * (size_t)(2 * w.walk.queries * driver->kernel->head_dim);
    w.turner.lanes = PEGEN_STACK(lanes);
  }
  pegen_attention_cut_of(driver, call, &w.cut);
  w.chunk_sums = (double *)(void *)(workspace + pegen_attention_key_bytes(call));
  w.pair_rooms = w.cut.keeps ? pegen_attention_pair_rooms(driver, args, call, workspace) : 0;
  set_chunk(&w, 0);
  set_alone(&w);
  int apart = w.cut.chunks && w.code->attend_operands[call->forward.type];
  (w.turns ? run_turned : apart ? run_apart : run_part)(&w, part, parts, workspace);
}
