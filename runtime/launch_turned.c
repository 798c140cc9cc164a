/* launch_turned.c: rows of attention that are turned into the workspace before other entries read them, each
 * by the rotation of its own place, and those that are copied there, since entries do not take them as they lie; see
 * PEGEN_PTX_TURN_FROM in kernel/launch.h. */
#include "launch_turned.h"

#include "../kernel/check_attention.h"
#include "../kernel/float_state.h"

#include <string.h>

enum { ALIGNMENT = 16 };

/* Threads are counted in 32 bits; so many keep a large device busy. */
static const int64_t MOST_THREADS = INT32_MAX - 1024, BUSY = 1 << 18;

static const pegen_ptx_entry *entry_of(const pegen_kernel *kernel, const char *word, const pegen_attention_call *call) {
  for (int i = pegen_launch_next(kernel, word, 0); i >= 0; i = pegen_launch_next(kernel, word, i + 1))
    if (kernel->ptx->entries[i].dtype == pegen_number_at(call->type)->dtype) return &kernel->ptx->entries[i];
  return NULL;
}

void pegen_turning_begin(pegen_turning *t, const pegen_launch_request *request, const pegen_attention_call *call,
                         int64_t before) {
  enum { WITH_VALUES = 1, EACH = 2, WORDS = 4 };
  static const char *const words[WORDS] = {PEGEN_PTX_WORD_TURN, PEGEN_PTX_WORD_TURN_ALL, PEGEN_PTX_WORD_TURN_EACH,
                                           PEGEN_PTX_WORD_TURN_EACH_ALL};
  const pegen_kernel *kernel = request->kernel;
  memset(t, 0, sizeof *t);
  t->request = request;
  t->element = pegen_number_at(call->type)->bits / 8;
  t->group = 1;
  t->copy = entry_of(kernel, PEGEN_PTX_WORD_COPY, call);
  for (int word = 0; word < WORDS; word++) {
    /* A row of k is rotated in several ways. Kernels of before have entries that do so by themselves. */
    if (kernel->ptx->per_head && call->group > 1 && !(word & EACH)) continue;
    const pegen_ptx_entry *entry = entry_of(kernel, words[word], call);
    if (!entry) continue;
    t->entry = entry;
    t->has_values = word & WITH_VALUES;
    t->group = word & EACH ? call->group : 1;
  }
  uintptr_t first = (uintptr_t)request->args->workspace + (uintptr_t)before;
  t->at = (first + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  t->before = t->bytes = before;
}

/* Sets of `heads` heads of all batches, times tokens, of so many threads each; -1: too many. */
static int64_t sets_of(const pegen_view *rows, int64_t heads, int64_t threads) {
  int64_t count = pegen_divide_up(rows->size[PEGEN_HEAD], heads);
  if (__builtin_mul_overflow(count, rows->size[PEGEN_BATCH], &count) ||
      __builtin_mul_overflow(count, rows->size[PEGEN_TOKEN], &count) ||
      __builtin_mul_overflow(count, threads, &threads) || threads > MOST_THREADS)
    return -1;
  return count;
}

/* Angles are the same for all heads of a thread, so it has as many as leave the device busy. */
static int64_t heads_of_thread(const pegen_turning *t, const pegen_ptx_entry *entry, const pegen_view *rows) {
  int64_t heads = t->request->kernel->ptx->per_head ? 1 : rows->size[PEGEN_HEAD], units = entry->units;
  while (heads > 1 && sets_of(rows, heads, units) < BUSY / units) heads = pegen_divide_up(heads, 2);
  return heads;
}

static int is_turned(const pegen_turning *t, const pegen_turned_rows *rows) {
  return t->entry && !(rows->how & PEGEN_TURN_NOT);
}

static const pegen_ptx_entry *entry_of_rows(const pegen_turning *t, const pegen_turned_rows *rows) {
  return is_turned(t, rows) ? t->entry : t->copy;
}

/* How many rows a head has for each of the caller's. */
static int64_t copies_of(const pegen_turning *t, const pegen_turned_rows *rows) {
  return is_turned(t, rows) && rows->how & PEGEN_TURN_KEYS ? t->group : 1;
}

/* Room behind what the workspace has. 0: it is more than can be counted. */
static int make_room(pegen_turning *t, int64_t row, pegen_view *rows) {
  static const int order[] = {PEGEN_TOKEN, PEGEN_HEAD, PEGEN_BATCH};
  const int64_t *sizes = rows->size;
  int64_t bytes = row;
  if (t->bytes == t->before) t->bytes += ALIGNMENT; /* memory that is aligned to 8 bytes leaves so much */
  for (int i = 0; i < PEGEN_VIEW_DIMS; i++) {
    rows->stride[order[i]] = bytes;
    if (__builtin_mul_overflow(bytes, sizes[order[i]], &bytes)) return 0;
  }
  rows->base = rows->low = t->at;
  rows->high = t->at + (uint64_t)bytes;
  t->at += (uint64_t)bytes;
  return !__builtin_add_overflow(t->bytes, bytes, &t->bytes);
}

/* Whether entries take them where they are given. */
static int is_taken(const pegen_turning *t, const pegen_turned_rows *rows) {
  const pegen_view *given = rows->given;
  if (is_turned(t, rows) && (!(rows->how & PEGEN_TURN_BACK) || copies_of(t, rows) > 1)) return 0;
  return !t->copy || (given->width % ALIGNMENT == 0 && pegen_launch_is_aligned(given, ALIGNMENT));
}

int pegen_turning_place(pegen_turning *t, const pegen_turned_rows *rows) {
  pegen_view *to = rows->taken;
  *to = *rows->given;
  if (to->empty || is_taken(t, rows)) return 1;
  if (__builtin_mul_overflow(to->size[PEGEN_HEAD], copies_of(t, rows), &to->size[PEGEN_HEAD])) return 0;
  return sets_of(to, 1, entry_of_rows(t, rows)->units) >= 0 && make_room(t, pegen_turning_whole(rows->given), to);
}

static int run_one(const pegen_turning *t, const pegen_attention_call *call, const pegen_turned_rows *rows,
                   pegen_launch_run *run, void *context) {
  int how = rows->how, back = (how & PEGEN_TURN_BACK) != 0;
  const pegen_view *from = back ? rows->taken : rows->given, *to = back ? rows->given : rows->taken;
  /* Without queries no row is read, what keys gain is 0, and there is no place to count from. */
  const pegen_ptx_entry *entry = call->q.empty ? t->copy : entry_of_rows(t, rows);
  if (from->empty || !run || !entry || (entry == t->copy && from->base == to->base)) return 0;
  int64_t heads = heads_of_thread(t, entry, to), sets = sets_of(to, heads, entry->units);
  pegen_launch_step step = pegen_launch_threads(t->request->kernel, entry, sets * entry->units);
  uint64_t found = pegen_float_begin();
  pegen_launch_set_attention(step.parameter, t->request, call);
  pegen_float_end(found);
  int64_t *own = step.parameter + t->request->kernel->ptx->attention->n_parameters;
  pegen_launch_set_rows(own + PEGEN_PTX_TURN_FROM, from, 0);
  pegen_launch_set_rows(own + PEGEN_PTX_TURN_TO, to, 0);
  own[PEGEN_PTX_TURN_OF_KEYS] = (how & PEGEN_TURN_KEYS) != 0;
  own[PEGEN_PTX_TURN_BACK] = how & PEGEN_TURN_SUM ? 2 : (how & PEGEN_TURN_BACK) != 0;
  own[PEGEN_PTX_TURN_HEADS] = heads;
  own[PEGEN_PTX_TURN_SETS] = sets;
  own[PEGEN_PTX_TURN_WIDTH] = rows->given->width / t->element;
  return run(context, &step);
}

int pegen_turning_run(const pegen_turning *t, const pegen_attention_call *call, const pegen_turned_rows *rows,
                      int count, pegen_launch_run *run, void *context) {
  int error = 0;
  for (int i = 0; i < count && !error; i++) error = run_one(t, call, &rows[i], run, context);
  return error;
}
