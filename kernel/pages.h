/* pages.h: caches in pages [pages,page_size,heads,D]; see pages.c. */
#ifndef PEGEN_KERNEL_PAGES_H
#define PEGEN_KERNEL_PAGES_H

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
/* As rows [pages,heads,page_size,width]; and what checks of a call without pages see, rows [batches,heads,tokens,width]
 * that are a head's first row again and again. */
PEGEN_INTERNAL int pegen_permute_pages(pegen_permuted *rows, pegen_permuted *row, const DLTensor *of, int64_t batches,
                                       int64_t tokens);

#endif
