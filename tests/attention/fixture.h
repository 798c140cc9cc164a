/* fixture.h: a description of attention, the targets that it is run for, and positions to run it at. */
#ifndef PEGEN_TESTS_ATTENTION_FIXTURE_H
#define PEGEN_TESTS_ATTENTION_FIXTURE_H

#include "described.h"
#include "test.h"
#include "verify/run_threads.h"
#include "verify/trial_attention.h"

#include <math.h>
#include <string.h>

typedef struct fixture {
  arena *memory;
  spec *spec;
  int n_targets;
  const char **targets;
  uint64_t random;
} fixture;

/* wanted: a target; NULL: all that this machine runs. format: a line of described.h. */
__attribute__((format(printf, 3, 4))) static inline fixture fixture_open(const char *wanted, uint64_t seed,
                                                                         const char *format, ...) {
  fixture f = {.memory = arena_create(), .random = seed};
  va_list arguments;
  va_start(arguments, format);
  f.spec = described_line(f.memory, arena_vprintf(f.memory, format, arguments));
  va_end(arguments);
  f.n_targets = trial_targets(f.memory, wanted, &f.targets);
  assert_true(f.n_targets > 0);
  return f;
}

/* Whether a call of it launches entries on tensor cores; one without rows launches none. */
static inline bool fixture_is_mma(const pegen_kernel *kernel, const attention_trial *t, DLTensor *out) {
  pegen_args args = attention_trial_args(kernel, t, out);
  return run_threads_rounds_weights(kernel, false, &args);
}

/* Whether it launches a tile program: blocks with rows that are not finite are made again in another order. */
static inline bool fixture_has_tiles(const pegen_kernel *kernel, const attention_trial *t, DLTensor *out) {
  pegen_args args = attention_trial_args(kernel, t, out);
  return run_threads_has_tiles(kernel, &args);
}

/* within: of the row's largest number, what does not count. */
static inline bool fixture_rows_differ(const DLTensor *x, const DLTensor *y, int64_t head, int64_t token,
                                       double within) {
  number_type type = number_type_of(x->dtype);
  double largest = 0;
  for (int64_t c = 0; c < x->shape[3]; c++)
    largest = fmax(largest, fabs(number_load(type, tensor_at(x, 0, head, token, c))));
  for (int64_t c = 0; c < x->shape[3]; c++) {
    double one = number_load(type, tensor_at(x, 0, head, token, c)),
           other = number_load(type, tensor_at(y, 0, head, token, c));
    if (!(fabs(one - other) <= within * largest)) return true;
  }
  return false;
}

/* Whole numbers, [tokens][axes], or with batches [batch][tokens][axes]. */
static inline const DLTensor *fixture_positions(fixture *f, number_type type, int64_t batch, int64_t tokens) {
  int64_t axes = f->spec->n_axes, count = (batch ? batch : 1) * tokens * axes;
  double *values = arena_array(f->memory, double, count + 1);
  for (int64_t i = 0; i < count; i++) values[i] = random_below(&f->random, 24);
  int64_t shape[] = {batch, tokens, axes};
  return batch ? tensor_contiguous(f->memory, type, 3, shape, values)
               : tensor_contiguous(f->memory, type, 2, shape + 1, values);
}

#endif
