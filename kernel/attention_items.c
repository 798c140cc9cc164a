/* attention_items.c: items of a call that has begun, one for each tile of queries.
 *
 * Each head of each batch has its own items, batch outermost; heads that share what their pairs are rotated by count as
 * one. A part is a contiguous run of items, and an item is computed alike in any part. So results are the same to the
 * bit however the work is parted.
 *
 * Where all batches have the same biases, batches are innermost: the tiles of queries of one are those of all.
 *
 * Keys of few queries may go in chunks, so that many threads have work where there are few heads.
 * A chunk is so many keys whatever a call's parts are, and counted from a sequence's first key: a part writes the
 * states (attention_few.h) of its items' chunks into the workspace, and after the caller's barrier finish adds up each
 * item's, in their order. So results are the same to the bit for any number of parts of either, and those of a sequence
 * do not depend on what else is in the call.
 */
#include "attention_items.h"
#include "attention_few_walk.h"

/* CHUNK: keys of a chunk: long enough that what is written of it is next to nothing beside what is read. */
enum { CHUNK = 512, LINE = 64 };
enum { KEPT_KEYS = 208 }; /* whose biases are kept: 27 KiB of the stack, where a tile has 32 queries */

/* Rows that the next tile of the head's queries reads and writes are asked for before this one is computed: a tile that
 * sees few keys is over soon, and would wait for its own. */
static void look_ahead(const pegen_attention_walk *w) {
  const pegen_attention_tile *t = &w->tile;
  int64_t first = t->tokens[0] + w->queries, end = first + w->queries < w->tokens ? first + w->queries : w->tokens;
  for (int64_t token = first; token < end; token++) {
    for (int64_t at = 0; at < w->call->q.width; at += LINE) __builtin_prefetch(t->q[0] + token * t->q_token + at, 0, 2);
    for (int64_t at = 0; at < w->call->out.width; at += LINE)
      __builtin_prefetch(t->out[0] + token * t->out_token + at, 0, 2);
  }
}

/* Only where a tile has lost outputs are the heads looked through, by which they were lost: it is computed again, and
 * what its queries do not see is left out. Every tile begins so, whatever was found before: it is computed alike in any
 * part. */
static void attend(pegen_attention_walk *w) {
  pegen_attention_tile *t = &w->tile;
  w->lost = 0;
  w->attend(t);
  if (!w->lost) return;
  w->spoilt = pegen_attention_is_spoilt(w);
  if (!w->spoilt) return;
  if (w->form->hides) t->free = 0;
  w->attend(t);
  w->spoilt = 0;
}

static void run_item(pegen_attention_walk *w, int64_t item) {
  int64_t row = item / w->tiles, batch = row / w->groups;
  pegen_attention_set_heads(w, batch, (row - batch * w->groups) * w->heads);
  pegen_attention_set_tile(w, item - row * w->tiles);
  if (w->form->skips && !w->asks) look_ahead(w);
  attend(w);
}

/* Items whose batches have their biases in common. A tile that was computed again has another mask. */
static void run_kept(pegen_attention_walk *w, int64_t begin, int64_t end) {
  int64_t batches = w->call->q.size[PEGEN_BATCH], kept = -1;
  w->tile.biases = PEGEN_STACK(sizeof(float) * (size_t)((w->keys + PEGEN_ATTENTION_MORE_KEYS) * w->queries));
  for (int64_t item = begin; item < end; item++) {
    int64_t row = item / batches, head = row / w->tiles;
    pegen_attention_set_heads(w, item - row * batches, head);
    w->tile.is_first = row != kept;
    if (w->tile.is_first) pegen_attention_set_tile(w, row - head * w->tiles); /* else it stands */
    attend(w);
    kept = w->lost ? -1 : row;
  }
}

static void run_items(pegen_attention_walk *w, int target, int64_t begin, int64_t end) {
  PEGEN_ATTENTION_ROOM(w);
  if (pegen_attention_is_few(w, target)) pegen_attention_few_run(w, target, begin, end);
  else if (w->form->turned) pegen_attention_run_turned(w, target, begin, end);
  else {
    w->is_late = w->look && w->form->tells;
    w->tile.lost = w->is_late ? &w->lost : 0;
    if (w->form->keeps_biases && w->keys <= KEPT_KEYS && pegen_attention_shares_places(w->call)) {
      run_kept(w, begin, end);
      return;
    }
    for (int64_t item = begin; item < end; item++) run_item(w, item);
  }
}

/* ---- keys in chunks ---- */

static int64_t chunks_of(int64_t keys) { return (keys + CHUNK - 1) / CHUNK; }

static int64_t bytes_of(const pegen_attention_walk *w, int target) {
  const pegen_attention_call *c = w->call;
  int64_t chunks = chunks_of(w->keys), rows = w->tokens * c->q.size[PEGEN_HEAD], bytes;
  if (!PEGEN_GIVEN(w->args, split_keys) || c->out.empty || chunks < 2 || !pegen_attention_is_few(w, target)) return 0;
  if (__builtin_mul_overflow(rows, c->q.size[PEGEN_BATCH], &rows) || __builtin_mul_overflow(rows, chunks, &rows) ||
      __builtin_mul_overflow(rows, pegen_few_state_bytes(w->form->value_dim), &bytes) || bytes > INT64_MAX - LINE)
    return -1;
  return bytes + LINE - 8; /* of 8-byte aligned memory so much begins at a line */
}

/* The states of an item that is set: [chunk][row]. */
static char *states_of(const pegen_few_walk *f, int64_t pair) {
  uintptr_t first = ((uintptr_t)f->w->args->workspace + LINE - 1) / LINE * LINE;
  int64_t row = (pair * f->rows + f->first_row) * chunks_of(f->w->keys);
  return (char *)first + row * pegen_few_state_bytes(f->w->form->value_dim);
}

static char *state_of(const pegen_few_walk *f, int64_t item, int64_t chunk) {
  return states_of(f, item / f->sets) + chunk * f->few.rows * pegen_few_state_bytes(f->w->form->value_dim);
}

static void run_chunks(pegen_attention_walk *w, int target, int64_t begin, int64_t end) {
  PEGEN_ATTENTION_ROOM(w);
  pegen_few_walk f;
  int64_t chunks = chunks_of(w->keys), set = -1;
  pegen_few_begin(&f, w, target);
  PEGEN_FEW_ROOM(&f);
  f.few.sinks = 0; /* once, where chunks are merged */
  for (int64_t i = begin; i < end; i++) {
    int64_t item = i / chunks, chunk = i - item * chunks;
    if (item != set) pegen_few_set_item(&f, item);
    set = item;
    if (chunk * CHUNK < f.most) pegen_few_run(&f, chunk * CHUNK, (chunk + 1) * CHUNK, state_of(&f, item, chunk));
  }
}

static void finish_chunks(pegen_attention_walk *w, int target, int64_t begin, int64_t end) {
  PEGEN_ATTENTION_ROOM(w);
  pegen_few_walk f;
  pegen_few_begin(&f, w, target);
  PEGEN_FEW_ROOM(&f);
  for (int64_t item = begin; item < end; item++) {
    pegen_few_set_item(&f, item);
    pegen_few_run(&f, 0, 0, f.state); /* nothing seen */
    for (int64_t chunk = 0; chunk * CHUNK < f.most; chunk++) {
      f.few.other = state_of(&f, item, chunk);
      f.code->merge(&f.few);
    }
    pegen_few_end(&f, f.state);
  }
}

/* ---- either ---- */

void pegen_attention_work_of(pegen_attention_walk *w, int target, pegen_attention_work *work) {
  work->bytes = bytes_of(w, target);
  if (pegen_attention_is_few(w, target)) work->items = pegen_attention_few_items(w, target);
  else {
    if (w->form->turned) pegen_attention_cut_tiles(w, 0);
    work->items = w->tiles * w->call->q.size[PEGEN_BATCH] * w->groups;
  }
  work->chunks = work->bytes ? work->items * chunks_of(w->keys) : work->items;
}

void pegen_attention_run_work(pegen_attention_walk *w, int target, const pegen_attention_work *work, int64_t begin,
                              int64_t end, int finishes) {
  if (finishes) finish_chunks(w, target, begin, end);
  else if (work->bytes) run_chunks(w, target, begin, end);
  else run_items(w, target, begin, end);
}
