/* fixture.h: a description of attention, the targets that it is run for, and positions to run it at; behind cmocka's
 * header. */
#ifndef PEGEN_TESTS_ATTENTION_FIXTURE_H
#define PEGEN_TESTS_ATTENTION_FIXTURE_H

#include "loader.h"
#include "verify/trial_attention.h"

typedef struct fixture {
  arena *memory;
  spec *spec;
  int n_targets;
  const char **targets;
  uint64_t random;
} fixture;

/* wanted: a target; NULL: all that this machine runs. */
static inline fixture fixture_open(const char *folder, const char *name, int n_defines, const loader_define *defines,
                                   const char *wanted, uint64_t seed) {
  fixture f = {.memory = arena_create(), .random = seed};
  f.spec = loader_load(f.memory, arena_printf(f.memory, "%s/%s.lua", folder, name), DSL_DIR, n_defines, defines);
  assert_non_null(f.spec);
  f.n_targets = trial_targets(f.memory, wanted, &f.targets);
  assert_true(f.n_targets > 0);
  return f;
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
