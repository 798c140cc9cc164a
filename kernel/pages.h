/* pages.h: caches in pages [pages,page_size,heads,D]; see pages.c. */
#pragma once

#include "driver.h"

/* A tensor of rows made of a caller's, [..][heads][tokens][width] as a rule. */
typedef struct pegen_permuted {
  DLTensor tensor;
  int64_t shape[4], stride[4];
} pegen_permuted;

/* All but rank, shape and strides. */
static inline void pegen_tensor_like(DLTensor *tensor, const DLTensor *of) {
  tensor->data = of->data;
  tensor->device.device_type = of->device.device_type;
  tensor->device.device_id = of->device.device_id;
  tensor->dtype.code = of->dtype.code;
  tensor->dtype.bits = of->dtype.bits;
  tensor->dtype.lanes = of->dtype.lanes;
  tensor->byte_offset = of->byte_offset;
}

/* Rank and sizes: 0 or a pegen_error. */
PEGEN_INTERNAL int pegen_check_pages_shape(const DLTensor *of);
/* Views pages as rows [pages,heads,page_size,width], or without the last where a row is one number. `row` is what
 * checks of a call without pages see: rows [batches,heads,tokens,width] that are a head's first row again and again. */
PEGEN_INTERNAL int pegen_permute_pages(pegen_permuted *rows, pegen_permuted *row, const DLTensor *of, int64_t batches,
                                       int64_t tokens);

/* What pegen_rows.slot holds of a token of a stream with slots. page: of the token before, or any that there is. */
static inline int64_t pegen_slot_bytes(const pegen_stream *k, int64_t batch, int64_t token, int64_t *page) {
  int64_t slot = k->slots[batch * k->in.size[PEGEN_TOKEN] + token];
  if (slot < 0) return PEGEN_NO_ROW;
  if ((uint64_t)(slot - *page * k->page_size) >= (uint64_t)k->page_size)
    *page = slot / k->page_size; /* quotients are slow */
  return *page * k->page + (slot - *page * k->page_size - token) * k->out->stride[PEGEN_TOKEN];
}

/* Tokens [begin, end) of a batch of such a stream, as they are, each to its slot. */
PEGEN_INTERNAL void pegen_copy_to_slots(pegen_stream *k, int64_t batch, int64_t begin, int64_t end);
