/* attention_split.c: few queries whose keys go in chunks, so that many threads have work where there are few heads.
 *
 * A chunk is so many keys whatever a call's parts are, and counted from a sequence's first key: a part writes the
 * states (attention_few.h) of its items' chunks into the workspace, and after the caller's barrier finish adds up each
 * item's, in their order. So results are the same to the bit for any number of parts of either, and those of a sequence
 * do not depend on what else is in the call.
 */
#include "attention_split.h"
#include "attention_few_walk.h"

/* Keys of a chunk: long enough that what is written of it is next to nothing beside what is read. */
enum { CHUNK = 512, LINE = 64 };

typedef pegen_few_walk walk;

static int64_t chunks_of(int64_t keys) { return (keys + CHUNK - 1) / CHUNK; }

int64_t pegen_attention_split_bytes(const pegen_attention_walk *w, int target) {
  const pegen_attention_call *c = w->call;
  int64_t chunks = chunks_of(w->keys), rows = w->tokens * c->q.size[PEGEN_HEAD], bytes;
  if (!PEGEN_GIVEN(w->args, split_keys) || c->out.empty || chunks < 2 || !pegen_attention_is_few(w, target)) return 0;
  if (__builtin_mul_overflow(rows, c->q.size[PEGEN_BATCH], &rows) || __builtin_mul_overflow(rows, chunks, &rows) ||
      __builtin_mul_overflow(rows, pegen_few_state_bytes(w->form->value_dim), &bytes) || bytes > INT64_MAX - LINE)
    return -1;
  return bytes + LINE - 8; /* of 8-byte aligned memory so much begins at a line */
}

/* The states of an item that is set: [chunk][row]. */
static char *states_of(const walk *f, int64_t pair) {
  uintptr_t first = ((uintptr_t)f->w->args->workspace + LINE - 1) / LINE * LINE;
  int64_t row = (pair * f->rows + f->first_row) * chunks_of(f->w->keys);
  return (char *)first + row * pegen_few_state_bytes(f->w->form->value_dim);
}

static char *state_of(const walk *f, int64_t item, int64_t chunk) {
  return states_of(f, item / f->sets) + chunk * f->few.rows * pegen_few_state_bytes(f->w->form->value_dim);
}

int64_t pegen_attention_split_items(pegen_attention_walk *w, int target) {
  return pegen_attention_few_items(w, target) * chunks_of(w->keys);
}

void pegen_attention_split_run(pegen_attention_walk *w, int target, int64_t begin, int64_t end) {
  PEGEN_ATTENTION_ROOM(w);
  walk f;
  int64_t chunks = chunks_of(w->keys), set = -1;
  pegen_few_begin(&f, w, target);
  PEGEN_FEW_ROOM(&f);
  for (int64_t i = begin; i < end; i++) {
    int64_t item = i / chunks, chunk = i - item * chunks;
    if (item != set) pegen_few_set_item(&f, item);
    set = item;
    if (chunk * CHUNK < f.most) pegen_few_run(&f, chunk * CHUNK, (chunk + 1) * CHUNK, state_of(&f, item, chunk));
  }
}

void pegen_attention_split_finish(pegen_attention_walk *w, int target, int64_t begin, int64_t end) {
  PEGEN_ATTENTION_ROOM(w);
  walk f;
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
