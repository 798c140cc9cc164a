/* sequences.c: boundaries of sequences whose rows follow each other, and views of one of them. */
#include "driver.h"

int pegen_read_bounds(const pegen_args *args, int of_keys, int64_t total, pegen_bounds *b) {
  const DLTensor *of = PEGEN_GIVEN(args, cu_seqlens), *keys = PEGEN_GIVEN(args, k_cu_seqlens);
  if (of_keys && keys) of = keys;
  if (!of || of->ndim != 1 || !of->shape || of->shape[0] < 1 || !pegen_one_of(of, kDLInt, 32) ||
      (of->strides && of->shape[0] > 1 && of->strides[0] != 1))
    return PEGEN_ERROR_SEQUENCES;
  if (!pegen_on_host(of)) return PEGEN_ERROR_DEVICE;
  PEGEN_TRY(pegen_view_contiguous(of, &b->view));
  b->at = (const int32_t *)b->view.base;
  b->sequences = of->shape[0] - 1;
  int64_t wrong = b->at[0] != 0 || b->at[b->sequences] != total;
  for (int64_t i = 0; i < b->sequences; i++) wrong |= b->at[i] > b->at[i + 1];
  return wrong ? PEGEN_ERROR_BOUNDS : 0;
}

void pegen_no_bounds(pegen_bounds *b) {
  b->at = 0;
  b->sequences = 0;
  b->view.empty = 1;
}

int pegen_same_bounds(const pegen_bounds *a, const pegen_bounds *b) {
  if (a->sequences != b->sequences) return 0;
  for (int64_t i = 0; i < a->sequences; i++)
    if (a->at[i] != b->at[i]) return 0;
  return 1;
}

int64_t pegen_count_sequences(const pegen_bounds *b) {
  int64_t count = 0;
  for (int64_t i = 0; i < b->sequences; i++) count += b->at[i] < b->at[i + 1];
  return count;
}

int pegen_are_of_length(const pegen_bounds *b, int64_t tokens) {
  for (int64_t i = 0; i < b->sequences; i++)
    if (b->at[i] != b->at[i + 1] && b->at[i + 1] - b->at[i] != tokens) return 0;
  return 1;
}

void pegen_go_to_sequence(pegen_view *view, int dim, const pegen_bounds *b, int64_t from, int64_t to) {
  view->base += (uintptr_t)((b->at[to] - b->at[from]) * view->stride[dim]);
  view->size[dim] = b->at[to + 1] - b->at[to];
}

void pegen_as_batches(pegen_view *view, int64_t sequences) {
  if (view->empty || sequences < 2) return;
  int64_t tokens = view->size[PEGEN_TOKEN] / sequences, step = view->stride[PEGEN_TOKEN];
  view->size[PEGEN_BATCH] = sequences;
  view->stride[PEGEN_BATCH] = tokens * step;
  view->size[PEGEN_TOKEN] = tokens;
  view->stride[PEGEN_TOKEN] = tokens > 1 ? step : 0;
}
