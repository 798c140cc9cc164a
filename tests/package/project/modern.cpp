/* The call in C++20: designators in the order of the struct. Prints the first channel of a turned row. */
#include "cube.h"

#include <cstdio>

int main() {
  float row[CUBE_HEAD_DIM] = {1};
  int32_t position[CUBE_AXES] = {0, 1, 0};
  int64_t shape[4] = {1, 1, 1, CUBE_HEAD_DIM}, positions_shape[2] = {1, CUBE_AXES};
  DLTensor q = {.data = row, .device = {kDLCPU, 0}, .ndim = 4, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  DLTensor at = {.data = position, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLInt, 32, 1}, .shape = positions_shape};
  pegen_args args = {.struct_size = sizeof args, .q = &q, .q_out = &q, .positions = &at};
  int error = pegen_parallel(cube_encode, &args, 1);
  std::printf("cube %.4f %s\n", row[0], pegen_strerror(error));
  return error;
}
