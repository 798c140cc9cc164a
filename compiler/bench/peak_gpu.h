/* bench/peak_gpu: how many multiplications and additions an NVIDIA device does a second at most, of rows of a type:
 * products of matrices by mma.sync for 16-bit rows where the chip has them, otherwise fused multiply-adds of float32.
 */
#pragma once

#include "base/number.h"
#include "bench/cuda.h"

typedef struct peak_gpu {
  const cuda_device *device;
  double flops;     /* of a launch */
  void *module, *function;
  cuda_address sink;
} peak_gpu;

/* The operation. */
const char *peak_gpu_name(const gpu_target *target, number_type type);

/* False after a message; what was opened is closed in any case by peak_gpu_close. */
bool peak_gpu_open(arena *a, peak_gpu *p, const cuda_device *device, number_type type);
bool peak_gpu_measure(const peak_gpu *p, double *flops_per_second);
void peak_gpu_close(peak_gpu *p);
