/* attention_items.c: items of a call that has begun, one for each tile of queries.
 *
 * Of each head (or group of heads that share what their pairs are rotated by) of each batch, batch outermost: a part is
 * a contiguous run of items, and an item is computed alike in any part, so results are the same to the bit however the
 * work is parted.
 */
#include "attention_items.h"
#include "attention_few_walk.h"

enum { LINE = 64 };

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

int64_t pegen_attention_items(pegen_attention_walk *w, int target) {
  if (pegen_attention_is_few(w, target)) return pegen_attention_few_items(w, target);
  if (w->form->turned) pegen_attention_cut_tiles(w, 0);
  return w->tiles * w->call->q.size[PEGEN_BATCH] * w->groups;
}

void pegen_attention_run_items(pegen_attention_walk *w, int target, int64_t begin, int64_t end) {
  PEGEN_ATTENTION_ROOM(w);
  if (pegen_attention_is_few(w, target)) pegen_attention_few_run(w, target, begin, end);
  else if (w->form->turned) pegen_attention_run_turned(w, target, begin, end);
  else {
    w->is_late = w->look && w->form->tells;
    w->tile.lost = w->is_late ? &w->lost : 0;
    for (int64_t item = begin; item < end; item++) run_item(w, item);
  }
}
