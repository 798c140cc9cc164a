/* An engine in miniature: one kernel of its own in two variants, and one that is chosen at run time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wheel.h"
#include "wheel_slow.h"
#include <pegen/kernels.h>

/* The second channel of a token at position 1 whose first block is (1, 0): the sine of its phase. */
static float sine(const pegen_kernel *kernel) {
  static float row[1024];
  memset(row, 0, sizeof row);
  row[2] = 1; /* block 1: the base shows in its frequency */
  int32_t position[8] = {1};
  int64_t shape[4] = {1, 1, 1, kernel->head_dim}, positions_shape[2] = {1, kernel->n_axes};
  DLTensor tensor = {.data = row, .device = {kDLCPU, 0}, .ndim = 4, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  DLTensor at = {
      .data = position, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLInt, 32, 1}, .shape = positions_shape};
  pegen_args args = {.struct_size = sizeof args, .q = &tensor, .q_out = &tensor, .positions = &at};
  int error = pegen_parallel(kernel->encode, &args, 1);
  if (error) {
    fprintf(stderr, "%s: %s\n", kernel->name, pegen_strerror(error));
    exit(1);
  }
  return row[3];
}

int main(int count, char **arguments) {
  const pegen_kernel *chosen = pegen_kernels_find(count > 1 ? arguments[1] : "rope");
  if (!chosen) return 1;
  printf("wheel %.4f slow %.4f %s %.4f\n", sine(&wheel_kernel), sine(&wheel_slow_kernel), chosen->name, sine(chosen));
  return wheel_slow_kernel.dtypes == (PEGEN_DTYPE_F32 | PEGEN_DTYPE_BF16) ? 0 : 1;
}
