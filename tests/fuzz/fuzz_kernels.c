/* fuzz_kernels: the kernels that are called: by hand, whose every access the sanitizer sees, and emitted ones. */
#include "fuzz_call.h"
#include "fuzz_twins.h"
#include "twin.h"

#include <pegen/kernels.h>

/* Emitted for this test, see CMakeLists.txt. */
extern const pegen_kernel fuzz_dense_kernel, fuzz_columns_kernel, fuzz_slopes_kernel, fuzz_numbers_kernel,
    fuzz_pairs_kernel, fuzz_keys_kernel, fuzz_pair_numbers_kernel;

static fuzz_kernel stock(const char *name) {
  const pegen_kernel *kernel = pegen_kernels_find(name);
  if (!kernel || kernel->n_operands > FUZZ_OPERANDS) abort();
  return (fuzz_kernel){kernel, kernel->heads > 0 ? PEGEN_PER_HEAD_ALL : PEGEN_PER_HEAD_NONE, NULL};
}

fuzz_kernel fuzz_kernel_at(unsigned index) {
  static const pegen_attention slopes = {.value_dim = 5, .paired = 1, .placed = 1},
                               numbers = {.value_dim = 8, .paired = 1, .placed = 1, .indexed = 1},
                               keys = {.value_dim = 8, .paired = 1, .placed = 1},
                               pairs = {.value_dim = 7, .paired = 1, .placed = 1, .by_rows = 1};
  static const fuzz_kernel own[] = {
      {&twin_plain_kernel, PEGEN_PER_HEAD_NONE, NULL},
      {&twin_grid_kernel, PEGEN_PER_HEAD_NONE, NULL},
      {&twin_learned_kernel, PEGEN_PER_HEAD_ALL, NULL},
      {&twin_tabled_kernel, PEGEN_PER_HEAD_NONE, NULL},
      {&fuzz_widen_twin_kernel, PEGEN_PER_HEAD_QUERIES, NULL},
      {&fuzz_learned_kernel, PEGEN_PER_HEAD_ALL, &fuzz_learned_form},
      {&fuzz_rows_kernel, PEGEN_PER_HEAD_NONE, &fuzz_rows_form},
      {&fuzz_dense_kernel, PEGEN_PER_HEAD_ALL, NULL},
      {&fuzz_columns_kernel, PEGEN_PER_HEAD_QUERIES, NULL},
      {&fuzz_slopes_kernel, PEGEN_PER_HEAD_ALL, &slopes},
      {&fuzz_numbers_kernel, PEGEN_PER_HEAD_ALL, &numbers},
      {&fuzz_pairs_kernel, PEGEN_PER_HEAD_NONE, &pairs},
  };
  static const char *const names[] = {"rope", "geope3d", "rope_axial", "care"};
  static const fuzz_kernel last[] = {
      {&fuzz_keys_kernel, PEGEN_PER_HEAD_ALL, &keys}, /* the index is part of all seeds */
      {&fuzz_pair_numbers_kernel, PEGEN_PER_HEAD_ALL, &keys}};
  enum { OWN = sizeof own / sizeof *own, NAMED = OWN + sizeof names / sizeof *names };
  _Static_assert(NAMED + sizeof last / sizeof *last == FUZZ_KERNELS, "as many as are drawn from");
  return index < OWN ? own[index] : index < NAMED ? stock(names[index - OWN]) : last[index - NAMED];
}
