/* Machines on which no GPU can be had: driver_test NAME [KERNEL_ERROR_NAME]. pegen_launch says that there is no driver,
 * and why where the driver said so (NAME, "" where there is none); the kernel's CPU entry works all the same. */
#include "compile.h"
#include "described.h"
#include "pegen/cuda.h"
#include "scoped.h"
#include "verify/oracle.h"
#include "verify/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 2, TOKENS = 3, SKIPPED = 77 };

static int failed(const char *what) { return printf("%s\n", what), 1; }

int main(int argc, char **argv) {
  SCOPED arena *a = arena_create();
  uint64_t random = 1;
  compile_options options = {.emit = EMIT_OBJ, .targets = "native,sm_80", .dtypes = PEGEN_DTYPE_F32};
  compile_output object;
  spec *s = described(a, "rope");
  if (argc != 2 || !s || !compile(a, s, &options, &object)) return failed("driver_test NAME");
  if (pegen_cuda_device_count()) return puts("skipped: there is a device"), SKIPPED;
  SCOPED_KERNEL *loaded = run_load(object.data, object.size, s->name);
  free(object.data);
  double values[TOKENS] = {0, 1, 2};
  DLTensor *q = tensor_rows(a, NUMBER_F32, ROWS_BHND, 1, HEADS, TOKENS, s->head_dim),
           *positions = tensor_contiguous(a, NUMBER_F32, 2, (int64_t[]){TOKENS, 1}, values);
  tensor_randomize(q, &random);
  DLTensor *before = tensor_copy(a, q), on_device = *q, device_positions = *positions;
  on_device.device = device_positions.device = (DLDevice){kDLCUDA, 0};
  pegen_args args = {.struct_size = sizeof args, .q = &on_device, .q_out = &on_device, .positions = &device_positions};
  if (pegen_launch(run_kernel(loaded), NULL, &args, NULL) != PEGEN_ERROR_NO_CUDA_DRIVER)
    return failed("the launch was not refused for want of a driver");
  if (strcmp(pegen_cuda_error_name(), argv[1]) != 0) return failed(pegen_cuda_error_name());
  if (!tensor_identical(q, before)) return failed("a refused launch wrote");
  trial_operands none = {0};
  if (trial_call(run_kernel(loaded), positions, &none, q, q, NULL, NULL, 1) || tensor_identical(q, before))
    return failed("the CPU's entry failed");
  return 0;
}
