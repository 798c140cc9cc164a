/* windows.h: tensors of some of a call's tokens, and rows that follow each other; behind fixture.h. */
#ifndef PEGEN_TESTS_ATTENTION_WINDOWS_H
#define PEGEN_TESTS_ATTENTION_WINDOWS_H

#include "fixture.h"

#include <string.h>

/* [1,H,total,D] as [total,H,D]. */
static inline DLTensor *ragged_view(arena *a, const DLTensor *of) {
  static const int from[] = {2, 1, 3};
  DLTensor *t = arena_new(a, DLTensor);
  *t = *of;
  t->ndim = of->ndim - 1;
  t->shape = arena_array(a, int64_t, 3);
  t->strides = arena_array(a, int64_t, 3);
  for (int i = 0; i < t->ndim; i++) t->shape[i] = of->shape[from[i]], t->strides[i] = of->strides[from[i]];
  return t;
}

/* Tokens [begin, end) of dimension `dim`. */
static inline DLTensor *window(arena *a, const DLTensor *of, int dim, int64_t begin, int64_t end) {
  DLTensor *t = arena_new(a, DLTensor);
  *t = *of;
  t->shape = arena_array(a, int64_t, of->ndim);
  memcpy(t->shape, of->shape, (size_t)of->ndim * sizeof(int64_t));
  t->shape[dim] = end - begin;
  int64_t stride = 1;
  for (int i = dim + 1; i < of->ndim; i++) stride *= of->shape[i];
  if (of->strides) stride = of->strides[dim];
  t->byte_offset += (uint64_t)(begin * stride * (of->dtype.bits / 8));
  return t;
}

/* Inputs of rows [begin, end) of [B,H,N,..], or of all as rows that follow each other where begin is negative. */
static inline const DLTensor **inputs_of(arena *a, const spec *s, const attention_trial *t, int64_t begin,
                                         int64_t end) {
  const DLTensor **inputs = arena_array(a, const DLTensor *, s->n_inputs + 1);
  for (int i = 0; i < s->n_inputs; i++)
    inputs[i] = begin < 0 ? ragged_view(a, t->inputs.tensors[i]) : window(a, t->inputs.tensors[i], 2, begin, end);
  return inputs;
}

static inline void set_strides(arena *a, DLTensor *t) {
  if (t->strides) return;
  t->strides = arena_array(a, int64_t, t->ndim);
  for (int64_t i = t->ndim - 1, step = 1; i >= 0; step *= t->shape[i--]) t->strides[i] = step;
}

#endif
