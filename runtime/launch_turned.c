/* launch_turned.c: rows of attention that are turned into the workspace before other entries read them, each
 * by the rotation of its own place; see PEGEN_PTX_TURN_FROM in kernel/launch.h. */
#include "launch_turned.h"

#include "../kernel/check_attention.h"
#include "../kernel/float_state.h"

#include <string.h>

enum { ALIGNMENT = 16 };

/* Threads are counted in 32 bits; so many keep a large device busy. */
static const int64_t MOST_THREADS = INT32_MAX - 1024, BUSY = 1 << 18;

void pegen_turning_begin(pegen_turning *t, const pegen_launch_request *request, const pegen_attention_call *call,
                         int64_t before) {
  enum { WITH_VALUES = 1, EACH = 2, WORDS = 4 };
  static const char *const words[WORDS] = {PEGEN_PTX_WORD_TURN, PEGEN_PTX_WORD_TURN_ALL, PEGEN_PTX_WORD_TURN_EACH,
                                           PEGEN_PTX_WORD_TURN_EACH_ALL};
  const pegen_kernel *kernel = request->kernel;
  memset(t, 0, sizeof *t);
  t->request = request;
  t->element = pegen_number_at(call->type)->bits / 8;
  for (int word = 0; word < WORDS; word++) {
    /* A row of k is rotated in several ways. Kernels of before have entries that do so by themselves. */
    if (kernel->ptx->per_head && call->group > 1 && !(word & EACH)) continue;
    for (int i = pegen_launch_next(kernel, words[word], 0); i >= 0; i = pegen_launch_next(kernel, words[word], i + 1)) {
      if (kernel->ptx->entries[i].dtype != pegen_number_at(call->type)->dtype) continue;
      t->entry = &kernel->ptx->entries[i];
      t->has_values = word & WITH_VALUES;
      t->group = word & EACH ? call->group : 1;
    }
  }
  /* Memory that is aligned to 8 bytes leaves so much before a multiple of 16. */
  uintptr_t first = (uintptr_t)request->args->workspace + (uintptr_t)before;
  t->at = (first + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  t->bytes = before + ALIGNMENT;
}

/* Sets of `heads` heads of all batches, times tokens; -1: too many. */
static int64_t sets_of(const pegen_turning *t, const pegen_view *rows, int64_t heads) {
  int64_t count = pegen_divide_up(rows->size[PEGEN_HEAD], heads), threads;
  if (__builtin_mul_overflow(count, rows->size[PEGEN_BATCH], &count) ||
      __builtin_mul_overflow(count, rows->size[PEGEN_TOKEN], &count) ||
      __builtin_mul_overflow(count, (int64_t)t->entry->units, &threads) || threads > MOST_THREADS)
    return -1;
  return count;
}

/* Angles are the same for all heads of a thread, so it has as many as leave the device busy. */
static int64_t heads_of_thread(const pegen_turning *t, const pegen_view *rows) {
  int64_t heads = t->request->kernel->ptx->per_head ? 1 : rows->size[PEGEN_HEAD];
  while (heads > 1 && sets_of(t, rows, heads) < BUSY / t->entry->units) heads = pegen_divide_up(heads, 2);
  return heads;
}

int pegen_turning_place(pegen_turning *t, const pegen_view *from, int64_t width, int64_t copies, pegen_view *turned) {
  static const int order[] = {PEGEN_TOKEN, PEGEN_HEAD, PEGEN_BATCH};
  int64_t bytes = width * t->element;
  const pegen_view *rows = turned;
  *turned = *from;
  if (from->empty) return 1;
  if (__builtin_mul_overflow(turned->size[PEGEN_HEAD], copies, &turned->size[PEGEN_HEAD]) || sets_of(t, rows, 1) < 0)
    return 0;
  for (int i = 0; i < PEGEN_VIEW_DIMS; i++) {
    turned->stride[order[i]] = bytes;
    if (__builtin_mul_overflow(bytes, rows->size[order[i]], &bytes)) return 0;
  }
  turned->base = turned->low = t->at;
  turned->high = t->at + (uint64_t)bytes;
  t->at += (uint64_t)bytes;
  return !__builtin_add_overflow(t->bytes, bytes, &t->bytes);
}

int pegen_turning_run(const pegen_turning *t, const pegen_attention_call *call, const pegen_view *from,
                      const pegen_view *to, int how, pegen_launch_run *run, void *context) {
  /* Without queries no row is read, what keys gain is 0, and there is no place to count from. */
  if (from->empty || call->q.empty || !run) return 0;
  int64_t heads = heads_of_thread(t, to), sets = sets_of(t, to, heads);
  pegen_launch_step step = pegen_launch_threads(t->request->kernel, t->entry, sets * t->entry->units);
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
  return run(context, &step);
}
