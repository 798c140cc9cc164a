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
 */
#include "attention_backward.h"

#include "attention_walk.h"
#include "weight_gains.h"

typedef struct backward {
  pegen_attention_walk walk;
  const pegen_attention_backward_call *call;
  const pegen_attention_gradient_code *code;
  pegen_attention_gradient_tile tile;
  pegen_attend_gradient_function *attend, *attend_narrow;
  int of_operands_alone;    /* in a walk of its own, behind that of rows */
  int64_t group;            /* heads of q of an item */
  float *key_sums, *value_sums; /* of the item; NULL: not wanted */
  pegen_attention_cut cut;
  int64_t next;    /* item, after this one; -1: none */
  int looks_ahead; /* 1: rows that are read next are asked for */
  const char *ahead[5 * PEGEN_ATTENTION_QUERIES]; /* of q, k, v, out and its gradient */
  double *chunk_sums; /* [unit][chunk][elements] */
  double *head_sums;  /* [n_scatters][n_blocks] */
  double *place_sums[2]; /* of queries and keys, all heads; NULL: not wanted */
  double **tables;    /* [n_operands] */
  pegen_weights weights; /* of a bias that is a polynomial */
} backward;

/* ---- an item ---- */

static void copy_tile(backward *w) {
  const char *from = (const char *)&w->walk.tile;
  char *to = (char *)&w->tile.tile;
  for (size_t i = 0; i < sizeof w->tile.tile; i++) to[i] = from[i];
}

static void set_head(backward *w, int64_t batch, int64_t head, int64_t is_spoilt) {
  const pegen_attention_backward_call *c = w->call;
  pegen_attention_gradient_tile *t = &w->tile;
  w->walk.spoilt = is_spoilt | pegen_attention_spoils(&w->walk, &c->forward.q, &c->g_out, batch, head);
  t->g_out = (const char *)row_zero(&c->g_out, batch, head);
  t->g_out_token = c->g_out.stride[PEGEN_TOKEN];
  t->g_lse = c->g_lse.empty ? 0 : (const char *)row_zero(&c->g_lse, batch, head);
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

static int64_t larger_of(int64_t x, int64_t y) { return x > y ? x : y; }

static void add_ahead(backward *w, const pegen_view *view, int64_t batch, int64_t head, int64_t begin, int64_t end) {
  int64_t stride = view->stride[PEGEN_TOKEN];
  const char *row = (const char *)row_zero(view, batch, head) + begin * stride;
  if (end > begin + PEGEN_ATTENTION_QUERIES) end = begin + PEGEN_ATTENTION_QUERIES;
  for (int64_t i = begin; i < end; i++, row += stride) w->ahead[w->tile.n_ahead++] = row;
}

/* During tile `index` of the item's: the rows of the next tile's queries, and a share of the next item's keys. */
static void set_ahead(backward *w, int64_t batch, int64_t shared, int64_t index) {
  const pegen_attention_call *c = &w->call->forward;
  int64_t heads = c->k.size[PEGEN_HEAD], tiles = w->group * w->walk.tiles, begin, end;
  w->tile.n_ahead = 0;
  if (!w->looks_ahead) return;
  if (w->next >= 0) {
    pegen_share(w->walk.keys, (int)index, (int)tiles, &begin, &end);
    add_ahead(w, &c->k, w->next / heads, w->next % heads, begin, end);
    add_ahead(w, &c->v, w->next / heads, w->next % heads, begin, end);
  }
  if (++index == tiles) {
    if (w->next < 0) return;
    batch = w->next / heads, shared = w->next % heads, index = 0;
  }
  int64_t head = shared * w->group + index / w->walk.tiles;
  begin = index % w->walk.tiles * w->walk.queries;
  end = begin + w->walk.queries < w->walk.tokens ? begin + w->walk.queries : w->walk.tokens;
  add_ahead(w, &c->q, batch, head, begin, end);
  add_ahead(w, &c->out, batch, head, begin, end);
  add_ahead(w, &w->call->g_out, batch, head, begin, end);
}

/* What the coordinates of a head of q, or of k, gain; NULL: not wanted. */
static double *place_sums_of(const backward *w, int of_keys, int64_t batch, int64_t head) {
  const pegen_view *rows = of_keys ? &w->call->forward.k : &w->call->forward.q;
  int64_t of_head = rows->size[PEGEN_TOKEN] * w->walk.driver->kernel->n_axes;
  if (!w->place_sums[of_keys]) return 0;
  return w->place_sums[of_keys] + (batch * rows->size[PEGEN_HEAD] + head) * of_head;
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
      set_head(w, batch, head, is_spoilt);
      of_group = head;
    }
    pegen_attention_set_tile(&w->walk, i % w->walk.tiles);
    copy_tile(w);
    set_ahead(w, batch, shared, i);
    if (t->tile.end > end) t->tile.end = end;
    t->begin = begin;
    t->g_q = of_queries && !w->call->g_q.empty ? (char *)row_zero(&w->call->g_q, batch, head) : 0;
    t->key_sums = of_keys ? w->key_sums : 0;
    t->value_sums = of_keys ? w->value_sums : 0;
    t->weight_gains = of_queries && w->weights.unweigh ? (float *)(uintptr_t)w->weights.work.weights : 0;
    t->place_sums = of_queries ? place_sums_of(w, 0, batch, head) : 0;
    t->key_place_sums = of_keys ? place_sums_of(w, 1, batch, shared) : 0;
    (is_narrow(w) ? w->attend_narrow : w->attend)(t);
    if (t->weight_gains) run_weights(w, i % w->walk.tiles);
  }
}

/* The same with what operands gain: chunks [first, last) of the unit that the item is of. */
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

static void clear(float *sums, int64_t from, int64_t to) {
  for (int64_t i = from; sums && i < to; i++) sums[i] = 0;
}

static void store(const pegen_view *rows, pegen_attention_store_function *write, const float *sums, int64_t pitch,
                  int64_t batch, int64_t shared, int64_t begin, int64_t end, double factor) {
  if (!sums || begin >= end) return;
  char *to = (char *)row_zero(rows, batch, shared) + begin * rows->stride[PEGEN_TOKEN];
  write(sums + begin * pitch, to, rows->stride[PEGEN_TOKEN], end - begin, factor);
}

/* Chunks of share `share` of `shares` of an item. */
static void run_operands(backward *w, int64_t unit, int64_t item, int share, int shares) {
  int64_t heads = w->call->forward.k.size[PEGEN_HEAD], first, last;
  pegen_share(w->cut.chunks, share, shares, &first, &last);
  run_chunks(w, item / heads, item % heads, unit, first, last, 0);
}

/* Share `share` of `shares` of an item: tiles of queries, and keys; one share does both in one walk. sums: room of one
 * item. */
static void run_item(backward *w, int64_t unit, int64_t item, int share, int shares, float *sums) {
  const pegen_attention_call *c = &w->call->forward;
  int64_t heads = c->k.size[PEGEN_HEAD], batch = item / heads, shared = item - batch * heads, keys = w->walk.keys;
  int64_t k_pitch = pegen_attention_pitch(w->walk.driver->kernel->head_dim),
          v_pitch = pegen_attention_pitch(w->walk.form->value_dim);
  int64_t tiles = w->group * w->walk.tiles, first, last, begin, end, skip = w->walk.skip < keys ? w->walk.skip : keys;
  w->key_sums = w->call->g_k.empty ? 0 : sums;
  w->value_sums = w->call->g_v.empty ? 0 : sums + (w->key_sums ? keys * k_pitch : 0);
  pegen_share(tiles, share, shares, &first, &last);
  pegen_share((keys - skip + w->code->step - 1) / w->code->step, share, shares, &begin, &end);
  end = skip + end * w->code->step < keys && share < shares - 1 ? skip + end * w->code->step : keys;
  begin = share == 0 ? 0 : skip + begin * w->code->step < keys ? skip + begin * w->code->step : keys;
  clear(w->key_sums, begin * k_pitch, end * k_pitch);
  clear(w->value_sums, begin * v_pitch, end * v_pitch);
  double *places = place_sums_of(w, 1, batch, shared);
  int64_t axes = w->walk.driver->kernel->n_axes;
  for (int64_t i = begin * axes; places && i < end * axes; i++) places[i] = 0;
  int of_keys = w->key_sums || w->value_sums || places, is_whole = shares == 1,
      of_queries = !w->call->g_q.empty || w->call->of_inputs || w->place_sums[0];
  if (w->cut.chunks) {
    pegen_share(w->cut.chunks, share, shares, &first, &last);
    run_chunks(w, batch, shared, unit, first, last, is_whole && of_keys);
  } else if (is_whole) run_tiles(w, batch, shared, 0, tiles, 0, keys, 1, of_keys);
  if (!is_whole) {
    if (!w->cut.chunks && of_queries) run_tiles(w, batch, shared, first, last, 0, keys, 1, 0);
    if (of_keys && begin < end) run_tiles(w, batch, shared, 0, tiles, begin, end, 0, 1);
  }
  store(&w->call->g_k, w->code->store_keys[c->type], w->key_sums, k_pitch, batch, shared, begin, end, c->scale);
  store(&w->call->g_v, w->code->store_values[c->type], w->value_sums, v_pitch, batch, shared, begin, end, 1);
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
    for (int64_t item = first; item < last; item++) { /* one room for all, so that it stays in the cache */
      int64_t room = shares == 1 ? own : item;
      w->next = shares == 1 && (item + 1 < last || unit + 1 < end) ? item + 1 : -1;
      if (w->of_operands_alone) run_operands(w, unit, item, share, shares);
      else run_item(w, unit, item, share, shares, (float *)(void *)workspace + room * item_numbers);
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

/* Rows as where no operand gains, and then operands, by tiles of another cut. */
static void run_apart(backward *w, int part, int parts, char *workspace) {
  int64_t chunks = w->cut.chunks;
  w->cut.chunks = 0;
  if (!w->call->g_q.empty || !w->call->g_k.empty || !w->call->g_v.empty) run_part(w, part, parts, workspace);
  w->cut.chunks = chunks;
  w->of_operands_alone = 1;
  w->attend = w->code->attend_operands[w->call->forward.type];
  w->attend_narrow = 0;
  pegen_attention_cut_tiles(&w->walk, 0);
  run_part(w, part, parts, workspace);
}

/* ---- the entries ---- */

int pegen_driver_attention_backward(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  pegen_attention_backward_call call;
  backward w;
  pegen_tuning tuning;
  int error = pegen_check_attention_backward(driver, args, part, parts, 1, &call);
  if (error) return error;
  int target = pegen_dispatch(driver, &tuning);
  if (target < 0) return PEGEN_ERROR_PROCESSOR;
  pegen_attention_begin(&w.walk, driver, args, &call.forward, target);
  w.call = &call;
  w.code = &w.walk.form->gradients[target];
  w.attend = w.code->attend[call.forward.type];
  w.attend_narrow = w.code->attend_narrow[call.forward.type];
  if (!w.attend) return PEGEN_ERROR_DTYPE;
  w.walk.heads = 1; /* of a tile */
  w.of_operands_alone = 0;
  w.group = call.forward.group;
  w.looks_ahead = tuning.attention_ahead != 0;
  w.tile.ahead = w.ahead;
  w.tile.ahead_lines = (larger_of(call.forward.q.width, call.forward.out.width) + CACHE_LINE - 1) / CACHE_LINE;
  PEGEN_ATTENTION_ROOM(&w.walk);
  int64_t n_sums = w.walk.form->n_scatters * w.walk.form->n_blocks;
  w.head_sums = __builtin_alloca(sizeof(double) * (size_t)(n_sums + 1));
  for (int of_keys = 0; of_keys < 2; of_keys++)
    w.place_sums[of_keys] = pegen_attention_place_sums(driver, args, &call, of_keys);
  w.tables = __builtin_alloca(sizeof(double *) * (size_t)(driver->kernel->n_operands + 1));
  const pegen_gradient *weights = call.of_inputs || call.of_operands ? w.walk.form->weights : 0;
  w.weights.lanes = w.walk.form->lanes;
  w.weights.n_blocks = w.walk.form->n_blocks;
  w.weights.unweigh = 0;
  PEGEN_WEIGHTS_ROOM(&w.weights, weights, w.weights.lanes, w.walk.form->n_weights);
  if (weights)
    pegen_weights_begin(&w.weights, driver, args, weights, target,
                        call.forward.wide_inputs || !driver->kernel->n_inputs ? PEGEN_NUMBER_F32 : call.forward.type,
                        call.forward.input, call.g_input);
  for (int64_t i = 0; i < n_sums; i++) w.head_sums[i] = 0;
  char *workspace = args->workspace;
  pegen_attention_cut_of(driver, &call, &w.cut);
  w.chunk_sums = (double *)(void *)(workspace + pegen_attention_key_bytes(&call));
  set_chunk(&w, 0);
  int apart = w.cut.chunks && w.code->attend_operands[call.forward.type];
  (apart ? run_apart : run_part)(&w, part, parts, workspace);
  return 0;
}

int pegen_driver_attention_backward_finish(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  pegen_attention_backward_call call;
  pegen_attention_cut cut;
  int error = pegen_check_attention_backward(driver, args, part, parts, 1, &call);
  if (error) return error;
  pegen_attention_finish_places(driver, args, &call, part, parts);
  if (!call.of_operands) return 0;
  pegen_attention_cut_of(driver, &call, &cut);
  int64_t all = pegen_all_elements(driver->kernel), before = 0, begin, end;
  const double *sums = (const double *)(const void *)((const char *)args->workspace + pegen_attention_key_bytes(&call));
  pegen_share(all, part, parts, &begin, &end);
  for (int i = 0; i < driver->kernel->n_operands; i++) {
    int64_t size = pegen_operand_elements(driver->kernel, i);
    const DLTensor *tensor = call.grad->operands[i];
    for (int64_t element = before; tensor && element < before + size; element++) {
      if (element < begin || element >= end) continue;
      double sum = 0;
      for (int64_t chunk = 0; chunk < cut.units * cut.chunks; chunk++) sum += sums[chunk * all + element];
      pegen_gain_element(tensor, element - before, call.grad->flags & PEGEN_GRAD_ACCUMULATE, sum);
    }
    before += size;
  }
  return 0;
}

size_t pegen_driver_attention_backward_workspace(const pegen_driver *driver, const pegen_args *args) {
  pegen_attention_backward_call call;
  if (pegen_check_attention_backward(driver, args, 0, 1, 0, &call)) return 0;
  int64_t bytes = pegen_attention_backward_bytes(driver, args, &call);
  return bytes < 0 ? 0 : (size_t)bytes;
}
