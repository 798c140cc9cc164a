/* slots.h: caches in pages and slots of them, of tests that write rows there. */
#ifndef PEGEN_TESTS_SLOTS_H
#define PEGEN_TESTS_SLOTS_H

#include "test.h"
#include "verify/trial.h"

#include <string.h>

enum { PAGES = 5, PAGE = 16 };

/* Runs of neighbours, also across a page's end, scattered slots, and rows without one. */
static inline void fill_slots(int64_t *slots, int64_t count, uint64_t *random) {
  int64_t free_from = 3;
  for (int64_t i = 0; i < count; i++) {
    uint64_t kind = random_below(random, 6);
    if (kind == 0) slots[i] = -1;
    else slots[i] = free_from, free_from += kind == 1 ? 3 : 1;
  }
  assert_true(free_from <= (int64_t)PAGES * PAGE);
  for (int64_t i = 0; i < count / 3; i++) { /* some change places */
    int64_t a = (int64_t)random_below(random, (uint64_t)count), b = (int64_t)random_below(random, (uint64_t)count),
            held = slots[a];
    slots[a] = slots[b];
    slots[b] = held;
  }
}

static inline DLTensor *slots_of(arena *a, int64_t *slots, int rank, int64_t batch, int64_t tokens) {
  DLTensor *t = arena_new(a, DLTensor);
  *t = (DLTensor){.data = slots, .device = {kDLCPU, 0}, .ndim = rank, .dtype = {kDLInt, 64, 1}};
  t->shape = arena_array(a, int64_t, 2);
  t->shape[0] = rank == 1 ? batch * tokens : batch;
  t->shape[1] = tokens;
  return t;
}

static inline DLTensor *cache_of(arena *a, const DLTensor *like, int by_heads) {
  int64_t heads = like->shape[1], width = like->shape[3], bytes = like->dtype.bits / 8;
  DLTensor *t = arena_new(a, DLTensor);
  *t = *like;
  t->byte_offset = 0;
  t->shape = arena_array(a, int64_t, 4);
  t->strides = arena_array(a, int64_t, 4);
  memcpy(t->shape, (int64_t[]){PAGES, PAGE, heads, width}, 4 * sizeof(int64_t));
  int64_t far[] = {heads * PAGE * width, width, PAGE * width, 1},
          near[] = {PAGE * heads * width, heads * width, width, 1};
  memcpy(t->strides, by_heads ? far : near, sizeof far);
  t->data = arena_alloc(a, (size_t)(PAGES * PAGE * heads * width * bytes));
  return t;
}

static inline size_t room_of(const DLTensor *cache) {
  return (size_t)(PAGES * PAGE * cache->shape[2] * cache->shape[3] * (cache->dtype.bits / 8));
}

/* The cache as it should be: rows of a call without slots at theirs. */
static inline void place_rows(DLTensor *cache, const DLTensor *rows, const int64_t *slots) {
  size_t bytes = cache->dtype.bits / 8, width = (size_t)cache->shape[3] * bytes;
  memset(cache->data, 0x5a, room_of(cache));
  for (int64_t b = 0; b < rows->shape[0]; b++)
    for (int64_t n = 0; n < rows->shape[2]; n++)
      for (int64_t h = 0; h < rows->shape[1]; h++) {
        int64_t slot = slots[b * rows->shape[2] + n];
        if (slot < 0) continue;
        int64_t at = slot / PAGE * cache->strides[0] + slot % PAGE * cache->strides[1] + h * cache->strides[2];
        memcpy((char *)cache->data + (size_t)at * bytes, tensor_at(rows, b, h, n, 0), width);
      }
}

#endif
