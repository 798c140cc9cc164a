/* bench/cuda: the first NVIDIA device through the CUDA driver, which is found at run time.
 *
 * Offers what the runtime's launcher (pegen/cuda.h) does not: memory, copies, events, and kernels of the bench's own.
 * Functions say what went wrong in words before they return false.
 */
#pragma once

#include "gpu/target.h"

typedef unsigned long long cuda_address;

#define CUDA_FUNCTIONS(X) \
  X(cuDeviceGet, (int *device, int ordinal)) \
  X(cuDeviceGetName, (char *name, int length, int device)) \
  X(cuDeviceGetAttribute, (int *value, int attribute, int device)) \
  X(cuDevicePrimaryCtxRetain, (void **context, int device)) \
  X(cuDevicePrimaryCtxRelease_v2, (int device)) \
  X(cuCtxPushCurrent_v2, (void *context)) \
  X(cuCtxPopCurrent_v2, (void **context)) \
  X(cuModuleLoadData, (void **module, const void *image)) \
  X(cuModuleUnload, (void *module)) \
  X(cuModuleGetFunction, (void **function, void *module, const char *name)) \
  X(cuLaunchKernel, \
    (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra)) \
  X(cuMemAlloc_v2, (cuda_address * memory, size_t bytes)) \
  X(cuMemFree_v2, (cuda_address memory)) \
  X(cuMemcpyHtoD_v2, (cuda_address to, const void *from, size_t bytes)) \
  X(cuMemcpyDtoDAsync_v2, (cuda_address to, cuda_address from, size_t bytes, void *stream)) \
  X(cuEventCreate, (void **event, unsigned flags)) \
  X(cuEventDestroy_v2, (void *event)) \
  X(cuEventRecord, (void *event, void *stream)) \
  X(cuEventSynchronize, (void *event)) \
  X(cuEventElapsedTime, (float *milliseconds, void *begin, void *end)) \
  X(cuGetErrorName, (int error, const char **name))

typedef struct cuda_driver {
#define MEMBER(name, arguments) int(*name) arguments;
  CUDA_FUNCTIONS(MEMBER)
#undef MEMBER
} cuda_driver;

/* Set once cuda_open has returned true. */
extern cuda_driver cuda;

typedef struct cuda_device {
  const gpu_target *target; /* the chip that PTX is for */
  int number, multiprocessors;
  char name[256];
  void *context; /* current until cuda_close */
  void *event[2];
} cuda_device;

/* Opens the device for PTX of the lowest GPU in the list of targets. False where that is another vendor's, where there
 * is no driver or no device, and where the device is older than the chip. */
bool cuda_open(arena *a, const char *targets, cuda_device *device);
void cuda_close(cuda_device *device);

/* `what` failed where the driver's error is not 0. */
bool cuda_works(int error, const char *what);
bool cuda_allocate(size_t bytes, cuda_address *memory);
bool cuda_upload(const void *data, size_t bytes, cuda_address *memory);

/* Seconds that the default stream spends between the two calls; the second one waits for it. */
bool cuda_begin(const cuda_device *device);
bool cuda_end(const cuda_device *device, double *seconds);
