/* fuzz_twin_parts: what the kernels by hand of fuzz_twins and of fuzz_gradient_twins say of themselves alike: two
 * axes, a grid of 2 x 3, two heads, and the operands of those of attention. */
#ifndef PEGEN_TESTS_FUZZ_TWIN_PARTS_H
#define PEGEN_TESTS_FUZZ_TWIN_PARTS_H

#include "attention.h"

enum { AXES = 2, HEADS = 2, HEAD_DIM = 6, DTYPES = PEGEN_DTYPE_F32 | PEGEN_DTYPE_BF16 };
static const int64_t level[] = {PEGEN_LEVEL_BASELINE};
static const int64_t grid_sizes[] = {2, 3};
static const char *const axis_names[] = {"h", "w"};

#define TITLE(title) \
  .struct_size = sizeof(pegen_kernel), .abi_version = PEGEN_ABI_VERSION, .name = title, .doc = "a hand-written twin", \
  .digest = "0123456789abcdef0123456789abcdef", .options = "", .targets = "native", .dtypes = DTYPES, .n_axes = AXES, \
  .axes = axis_names

/* Attention's twins read NUMBERS by the displacement. */
enum { VALUE_DIM = 4, VECTORS = 2, NUMBERS = 4 };
static const int64_t slope_shape[] = {HEADS}, numbers_shape[] = {NUMBERS};
static const char *const slope_dimension[] = {"heads"}, *const numbers_dimension[] = {"4"};
static const pegen_operand slope_and_numbers[] = {{"slope", "", "1", "", 1, slope_shape, slope_dimension},
                                                  {"numbers", "", "1", "", 1, numbers_shape, numbers_dimension}};
static const int32_t slope_offsets[] = {0, 1};
static const pegen_leaf slope_leaf[] = {{0, HEADS, slope_offsets, NULL}};

#endif
