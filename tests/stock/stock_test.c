/* stock_test PTX_FOLDER: libpegen_kernels as a program sees it: the index, the descriptors, one call.
 * Linked once with the static and once with the shared library. */
#include "test.h"
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "headers.inc" /* every header of the library in one file: their names must not clash */
#include <pegen/kernels.h>

static const char *const names[] = {
#include "names.inc"
};
enum { NAME_COUNT = sizeof names / sizeof *names };
static const char *ptx_folder;

TEST(lists_every_description) {
  const pegen_kernel *const *list = pegen_kernels_list();
  assert_int_equal(pegen_kernels_count(), NAME_COUNT);
  for (int i = 0; i < NAME_COUNT; i++) {
    assert_string_equal(list[i]->name, names[i]);
    assert_ptr_equal(pegen_kernels_find(names[i]), list[i]);
  }
  assert_null(list[NAME_COUNT]);
  assert_null(pegen_kernels_find("no such kernel"));
  assert_null(pegen_kernels_find(""));
  assert_null(pegen_kernels_find(NULL));
}

TEST(descriptors_are_whole) {
  for (const pegen_kernel *const *k = pegen_kernels_list(); *k; k++) {
    const pegen_kernel *kernel = *k;
    assert_true(pegen_kernel_supported(kernel));
    assert_true(strlen(kernel->digest) > 0 && strlen(kernel->doc) > 0);
    assert_int_equal(kernel->dtypes, PEGEN_DTYPE_F32 | PEGEN_DTYPE_BF16 | PEGEN_DTYPE_F16);
    assert_true(kernel->encode || kernel->attention);
    if (kernel->encode) assert_int_equal(kernel->encode(NULL, 0, 1), PEGEN_ERROR_NULL_ARGS);
    if (kernel->attention) assert_int_equal(kernel->attention(NULL, 0, 1), PEGEN_ERROR_NULL_ARGS);
  }
}

/* What has PTX in the folder has it in the library. */
TEST(ptx_is_inside) {
  int count = 0;
  for (const pegen_kernel *const *k = pegen_kernels_list(); *k; k++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.ptx", ptx_folder, (*k)->name);
    bool committed = access(path, R_OK) == 0;
    assert_int_equal((*k)->ptx != NULL, committed);
    count += committed;
    if (committed) assert_string_equal((*k)->ptx->chip, "sm_80");
  }
  assert_true(count > 0);
}

/* A kernel chosen at run time, as an engine would: a rotation keeps lengths and leaves the origin. */
TEST(a_found_kernel_runs) {
  enum { TOKENS = 5, HEADS = 2 };
  const pegen_kernel *kernel = pegen_kernels_find("geope3d");
  assert_non_null(kernel);
  int64_t dim = kernel->head_dim, shape[4] = {1, HEADS, TOKENS, dim}, positions_shape[2] = {TOKENS, 3};
  float *q = calloc((size_t)(HEADS * TOKENS * dim), sizeof *q);
  int32_t positions[TOKENS][3] = {{0, 0, 0}, {1, 2, 3}, {-4, 5, 6}, {7, 0, 0}, {100, 100, 100}};
  for (int i = 0; i < HEADS * TOKENS * dim; i++) q[i] = (float)(i % 17) - 8;
  DLTensor tensor = {.data = q, .device = {kDLCPU, 0}, .ndim = 4, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  DLTensor at = {
      .data = positions, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLInt, 32, 1}, .shape = positions_shape};
  pegen_args args = {.struct_size = sizeof args, .q = &tensor, .q_out = &tensor, .positions = &at};
  assert_int_equal(pegen_parallel(kernel->encode, &args, 2), 0);
  bool moved = false;
  for (int row = 0; row < HEADS * TOKENS; row++) {
    double before = 0, after = 0;
    for (int i = 0; i < dim; i++) {
      double x = (row * dim + i) % 17 - 8, y = q[row * dim + i];
      before += x * x;
      after += y * y;
      if (row % TOKENS == 0) assert_true(x == y);
      moved = moved || x != y;
    }
    assert_true(fabs(after / before - 1) < 1e-5);
  }
  assert_true(moved);
  free(q);
}

int main(int count, char **arguments) {
  if (count != 2) return 2;
  ptx_folder = arguments[1];
  return run_listed();
}
