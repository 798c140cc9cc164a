/* fixture: rows, positions and operands of a kernel whose gradients are tested; kernels that have them. */
#ifndef PEGEN_TESTS_BACKWARD_FIXTURE_H
#define PEGEN_TESTS_BACKWARD_FIXTURE_H

#include "test.h"
#include "verify/trial.h"

enum { BATCH = 2, TOKENS = 7, ANY_HEADS = 3, ANY_K_HEADS = 2 };

typedef struct fixture {
  arena *memory;
  const spec *spec;
  const pegen_kernel *kernel;
  uint64_t random;
  number_type type;
  const double *position_values;
  DLTensor *positions;
  trial_operands operands;
  void *table; /* that calls use; NULL: none */
  size_t table_bytes;
  DLTensor *x[2], *y[2], *g[2], *back[2]; /* q, k: what goes in, what comes out, a gradient and where it goes */
} fixture;

/* Random rows of q (0) or k in a memory order. */
DLTensor *rows_of(fixture *f, int tensor, row_order order);
fixture open_fixture(const spec *s, const pegen_kernel *kernel, number_type type);
/* A tensor of the shape of another, all elements alike. */
DLTensor *full_of(arena *a, number_type type, const DLTensor *like, double value);
double element(const DLTensor *t, int64_t i);
const pegen_kernel *load(arena *a, const spec *s, const char *target, unsigned dtypes, loaded_kernel **loaded);

#define EACH(t, b, h, n, c) \
  for (int64_t b = 0; b < (t)->shape[0]; b++) \
    for (int64_t h = 0; h < (t)->shape[1]; h++) \
      for (int64_t n = 0; n < (t)->shape[2]; n++) \
        for (int64_t c = 0; c < (t)->shape[3]; c++)

#endif
