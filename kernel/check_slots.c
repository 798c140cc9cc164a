/* check_slots.c: an encode call whose rows of k go to slots of a cache in pages: slot s is row s mod page_size of page
 * s / page_size.
 *
 * What is checked first is the call as if its rows of k went nowhere, to one row of each head again and again; then the
 * cache, the slots, and what is written against what is read. Its walk is that of any call (encode.c).
 */
#include "memory.h"
#include "pages.h"

/* As many slots as rows of k have tokens: [tokens] of all batches, or [B,M]. */
static int check_slots_shape(const DLTensor *slots, int64_t batches, int64_t tokens) {
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

static int view_cache(pegen_stream *k, const pegen_permuted *rows, int is_strided) {
  pegen_view *out = &k->out_of_place;
  int error = pegen_view_rows(&rows->tensor, out);
  k->out = out;
  k->in_place = 0;
  if (error == PEGEN_ERROR_SIZE_OVERFLOW && is_strided) return PEGEN_ERROR_STRIDE;
  return error || out->empty || pegen_view_nests(out) ? error : PEGEN_ERROR_STRIDE;
}

static int set_slots(pegen_stream *k, const DLTensor *slots, const pegen_permuted *rows, pegen_view *view) {
  int error = pegen_on_host(slots) ? pegen_view_contiguous(slots, view) : PEGEN_ERROR_DEVICE;
  if (error) return error;
  int64_t count = view->empty ? 0 : view->width / 8, room;
  if (__builtin_mul_overflow(rows->shape[0], rows->shape[2], &room)) room = INT64_MAX; /* of no heads */
  k->slots = (const int64_t *)view->base;
  for (int64_t i = 0; i < count; i++)
    if (k->slots[i] < -1 || k->slots[i] >= room) return PEGEN_ERROR_SLOT;
  return 0;
}

/* Rows [N,H,D] as those of one batch, [1,H,N,D]. */
static int as_batch(pegen_permuted *rows, const DLTensor *of) {
  static const int from[] = {0, 1, 0, 2};
  int64_t of_token = 0, contiguous[3];
  if (of->ndim != 3) return PEGEN_ERROR_RANK;
  if (!of->shape) return PEGEN_ERROR_NULL_SHAPE;
  if (!of->strides && __builtin_mul_overflow(of->shape[1], of->shape[2], &of_token)) return PEGEN_ERROR_SIZE_OVERFLOW;
  contiguous[0] = of_token;
  contiguous[1] = of->shape[2];
  contiguous[2] = 1;
  for (int i = 0; i < 4; i++) {
    rows->shape[i] = i ? of->shape[from[i]] : 1;
    rows->stride[i] = of->strides ? of->strides[from[i]] : contiguous[from[i]];
  }
  pegen_tensor_like(&rows->tensor, of);
  rows->tensor.ndim = 4;
  rows->tensor.shape = rows->shape;
  rows->tensor.strides = rows->stride;
  return 0;
}

/* The same of all rows of the call; at: q, q_out, k. */
static int as_batches(pegen_args *flat, pegen_permuted *at) {
  int error = as_batch(&at[2], flat->k);
  if (!error && flat->q) error = as_batch(&at[0], flat->q);
  if (!error && flat->q_out) error = as_batch(&at[1], flat->q_out);
  if (error) return error;
  flat->k = &at[2].tensor;
  if (flat->q) flat->q = &at[0].tensor;
  if (flat->q_out) flat->q_out = &at[1].tensor;
  return 0;
}

/* From the row that checks saw to the cache. */
static int go_to_cache(pegen_stream *k, const DLTensor *cache, const DLTensor *slots, const pegen_permuted *rows,
                       pegen_slot_views *views) {
  int error = view_cache(k, rows, cache->strides != 0);
  views->cache = k->out_of_place;
  return error ? error : set_slots(k, slots, rows, &views->slots);
}

/* From the cache to a page of it. */
static void go_to_page(pegen_stream *k, const pegen_permuted *rows) {
  pegen_view *out = &k->out_of_place;
  k->cache = out->base;
  k->page_size = rows->shape[2];
  k->page = out->stride[PEGEN_BATCH];
  out->stride[PEGEN_BATCH] = 0;
  for (int i = 0; i < PEGEN_VIEW_DIMS; i++) out->size[i] = k->in.size[i];
}

int pegen_check_slots(const pegen_driver *driver, pegen_args *args, int part, int parts, int64_t row_bytes,
                      pegen_call *call, pegen_slot_views *views) {
  static const int64_t is_written[2] = {1, 0};
  const DLTensor *cache = args->k_out, *slots = args->slots;
  pegen_permuted rows, row, of_batch[3];
  int error;
  args->slots = 0;
  if (!args->k || !cache) return PEGEN_ERROR_MISSING_OUTPUT;
  if ((error = pegen_check_pages_shape(cache)) != 0) return error;
  if (args->k->ndim != 4 && (error = as_batches(args, of_batch)) != 0) return error;
  if (!args->k->shape) return PEGEN_ERROR_NULL_SHAPE;
  int64_t batches = args->k->shape[0], tokens = args->k->shape[2];
  if ((error = pegen_permute_pages(&rows, &row, cache, batches, tokens)) != 0) return error;
  args->k_out = &row.tensor;
  if ((error = pegen_check_written(driver, args, part, parts, row_bytes, is_written, 0, call)) != 0 ||
      (error = check_slots_shape(slots, batches, tokens)) != 0)
    return error;
  pegen_stream *q = &call->stream[0], *k = &call->stream[1];
  if ((error = go_to_cache(k, cache, slots, &rows, views)) != 0) return error;
  const pegen_view *const written[2] = {q->out, k->out};
  pegen_memory memory;
  pegen_memory_of_rows(&memory, driver, args, call, written);
  pegen_memory_reads(&memory, &views->slots);
  if ((error = pegen_check_memory(&memory)) != 0) return error;
  go_to_page(k, &rows);
  args->q = args->k = 0; /* what stood for them ends here */
  args->q_out = args->k_out = 0;
  return 0;
}

int pegen_check_encode(const pegen_driver *driver, const pegen_args *args, int part, int parts, int64_t row_bytes,
                       pegen_call *call) {
  pegen_args own;
  pegen_slot_views views;
  if (!args || !PEGEN_GIVEN(args, slots)) return pegen_check(driver, args, part, parts, row_bytes, call);
  int error = pegen_check_struct(args, args->struct_size, PEGEN_ARGS_FIRST_SIZE, sizeof *args);
  if (error) return error;
  pegen_copy_args(&own, args);
  return pegen_check_slots(driver, &own, part, parts, row_bytes, call, &views);
}

int pegen_check_slots_beside(const pegen_driver *driver, const pegen_args *args, pegen_stream *stream,
                             pegen_slot_views *views) {
  const DLTensor *rows_in = args->v, *cache = args->v_out;
  pegen_permuted rows, row, of_batch;
  int error = pegen_check_pages_shape(cache);
  if (error) return error;
  if (rows_in->ndim != 4) {
    if ((error = as_batch(&of_batch, rows_in)) != 0) return error;
    rows_in = &of_batch.tensor;
  }
  if ((error = pegen_permute_pages(&rows, &row, cache, rows_in->shape[0], rows_in->shape[2])) != 0 ||
      (error = pegen_check_rows_beside(driver, rows_in, &row.tensor, PEGEN_GIVEN(args, v_scale), stream)) != 0 ||
      (error = go_to_cache(stream, cache, args->slots, &rows, views)) != 0)
    return error;
  go_to_page(stream, &rows);
  return 0;
}
