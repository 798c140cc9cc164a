/* pages.c: caches in pages [pages,page_size,heads,D], as rows of other tensors are. */
#include "pages.h"

int pegen_check_pages_shape(const DLTensor *of) {
  if (of->ndim != 4) return PEGEN_ERROR_RANK;
  if (!of->shape) return PEGEN_ERROR_NULL_SHAPE;
  for (int i = 0; i < 4; i++)
    if (of->shape[i] < 0) return PEGEN_ERROR_NEGATIVE_SIZE;
  return 0;
}

int pegen_permute_pages(pegen_permuted *rows, pegen_permuted *row, const DLTensor *of, int64_t batches,
                        int64_t tokens) {
  static const int from[] = {0, 2, 1, 3};
  int rank = of->ndim;
  int64_t step = 1, contiguous[4];
  for (int i = rank - 1; i >= 0; i--) {
    contiguous[i] = step;
    if (__builtin_mul_overflow(step, of->shape[i], &step)) return PEGEN_ERROR_SIZE_OVERFLOW;
  }
  for (int i = 0; i < rank; i++) {
    rows->shape[i] = row->shape[i] = of->shape[from[i]];
    rows->stride[i] = row->stride[i] = of->strides ? of->strides[from[i]] : contiguous[from[i]];
  }
  row->shape[0] = batches;
  row->shape[2] = tokens;
  row->stride[0] = row->stride[2] = 0;
  pegen_permuted *both[] = {rows, row};
  for (int i = 0; i < 2; i++) {
    pegen_tensor_like(&both[i]->tensor, of);
    both[i]->tensor.ndim = rank;
    both[i]->tensor.shape = both[i]->shape;
    both[i]->tensor.strides = both[i]->stride;
  }
  return 0;
}

void pegen_copy_to_slots(pegen_stream *k, int64_t batch, int64_t begin, int64_t end) {
  int64_t page = 0;
  for (int64_t token = begin; token < end; token++) {
    int64_t bytes = pegen_slot_bytes(k, batch, token, &page);
    if (bytes == PEGEN_NO_ROW) continue;
    k->out_of_place.base = k->cache + (uintptr_t)bytes;
    pegen_copy_tokens(k, batch, token, token + 1);
  }
  k->out_of_place.base = k->cache;
}
