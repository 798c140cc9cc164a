/* attention.c: a checked call becomes calls of the emitted functions, one for each tile of queries.
 *
 * Work is cut into items, one for each tile of queries of each head (or group of heads that share what their pairs are
 * rotated by) of each batch, batch outermost: a part is a
 * contiguous run of items, and an item is computed alike in any part, so results are the same to the bit
 * however the work is parted.
 */
#include "attention_few_walk.h"
#include "attention_sequences.h"
#include "gradient.h"

static void run_item(pegen_attention_walk *w, int64_t item) {
  int64_t row = item / w->tiles, batch = row / w->groups;
  pegen_attention_set_heads(w, batch, (row - batch * w->groups) * w->heads);
  pegen_attention_set_tile(w, item - row * w->tiles);
  w->attend(&w->tile);
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
  else
    for (int64_t item = begin; item < end; item++) run_item(w, item);
}

/* The workspace is another tensor's memory nowhere. */
static int check_split(const pegen_attention_walk *w, int target) {
  const pegen_attention_call *c = w->call;
  int64_t bytes = pegen_attention_split_bytes(w, target);
  pegen_view room;
  if (bytes < 0) return PEGEN_ERROR_SIZE_OVERFLOW;
  int error = bytes ? pegen_check_workspace(w->args, bytes, &room) : 0;
  if (error || !bytes) return error;
  int meets = pegen_views_meet(&room, &c->out) || (!c->lse.empty && pegen_views_meet(&room, &c->lse)) ||
              pegen_attention_meets(w->driver, w->args, c, &room);
  return meets ? PEGEN_ERROR_OVERLAP : 0;
}

int pegen_attention_open(pegen_attention_walk *w, pegen_attention_call *call, const pegen_driver *driver,
                         const pegen_args *args, int part, int parts, int *target) {
  pegen_tuning tuning;
  int error = pegen_check_attention(driver, args, part, parts, call);
  if (error) return error;
  *target = pegen_dispatch(driver, &tuning);
  if (*target < 0) return PEGEN_ERROR_PROCESSOR;
  pegen_attention_begin(w, driver, args, call, *target);
  return w->attend ? check_split(w, *target) : PEGEN_ERROR_DTYPE;
}

int pegen_driver_attention(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  pegen_attention_call call;
  pegen_attention_walk w;
  int64_t begin, end;
  if (pegen_has_sequences(args)) return pegen_attention_sequences(driver, args, part, parts, 1);
  int target, error = pegen_attention_open(&w, &call, driver, args, part, parts, &target);
  if (error || call.out.empty) return error;
  if (pegen_attention_split_bytes(&w, target)) return pegen_attention_split_call(&w, target, part, parts);
  if (pegen_share(pegen_attention_items(&w, target), part, parts, &begin, &end))
    pegen_attention_run_items(&w, target, begin, end);
  return 0;
}
