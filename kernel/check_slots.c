/* check_slots.c: slots of rows that go to a cache in pages: slot s is row s mod page_size of page s / page_size. */
#include "driver.h"

/* There are as many slots as rows have tokens: [tokens] of all batches, or [B,M]. */
static int check_shape(const DLTensor *slots, int64_t batches, int64_t tokens) {
  int64_t count = 1, all;
  int empty = 0; /* strides of what has no elements mean nothing */
  if ((slots->ndim != 1 && slots->ndim != 2) || !slots->shape || !pegen_one_of(slots, kDLInt, 64))
    return PEGEN_ERROR_SLOTS;
  for (int i = 0; i < slots->ndim; i++) empty |= slots->shape[i] == 0;
  for (int i = slots->ndim - 1; i >= 0; i--) {
    if (slots->shape[i] < 0 || (slots->strides && !empty && slots->shape[i] > 1 && slots->strides[i] != count))
      return PEGEN_ERROR_SLOTS;
    if (__builtin_mul_overflow(count, slots->shape[i], &count)) return PEGEN_ERROR_SLOTS;
  }
  if (__builtin_mul_overflow(batches, tokens, &all)) return PEGEN_ERROR_SLOTS; /* of no heads */
  return count != all || (slots->ndim == 2 && slots->shape[0] != batches) ? PEGEN_ERROR_SLOTS : 0;
}

int pegen_check_slots(const DLTensor *slots, const DLTensor *rows, pegen_stream *stream) {
  const pegen_view *cache = stream->out;
  PEGEN_TRY(check_shape(slots, pegen_rows_size(rows, 4, PEGEN_BATCH), pegen_rows_size(rows, 4, PEGEN_TOKEN)));
  if (!pegen_on_host(slots)) return PEGEN_ERROR_DEVICE;
  PEGEN_TRY(pegen_view_contiguous(slots, &stream->slot_view));
  int64_t count = stream->slot_view.empty ? 0 : stream->slot_view.width / 8, room;
  if (__builtin_mul_overflow(cache->size[PEGEN_BATCH], cache->size[PEGEN_TOKEN], &room)) room = INT64_MAX;
  stream->slots = (const int64_t *)stream->slot_view.base;
  for (int64_t i = 0; i < count; i++)
    if (stream->slots[i] < -1 || stream->slots[i] >= room) return PEGEN_ERROR_SLOT;
  return 0;
}

void pegen_go_to_page(pegen_stream *stream) {
  pegen_view *out = &stream->out_of_place;
  stream->cache = out->base;
  stream->page_size = out->size[PEGEN_TOKEN];
  stream->page = out->stride[PEGEN_BATCH];
  out->stride[PEGEN_BATCH] = 0;
  for (int i = 0; i < PEGEN_VIEW_DIMS; i++) out->size[i] = stream->in.size[i];
}
