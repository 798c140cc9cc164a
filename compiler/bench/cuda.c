/* bench/cuda: see bench/cuda.h. */
#include "bench/cuda.h"

#include "base/diag.h"
#include "pegen/cuda.h"

#include <dlfcn.h>
#include <string.h>

enum { MULTIPROCESSORS = 16, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 }; /* CU_DEVICE_ATTRIBUTE_ */

cuda_driver cuda;

static bool find(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

static bool load_driver(void) {
  void *library = pegen_cuda_device_count() ? dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) : NULL;
  bool complete = library != NULL;
#define FIND(name, arguments) complete = complete && find(library, #name, &cuda.name);
  CUDA_FUNCTIONS(FIND)
#undef FIND
  if (!complete)
    diag_error(NULL, 0, "bench: %s; expected one for a GPU target", pegen_strerror(PEGEN_ERROR_NO_CUDA_DRIVER));
  return complete;
}

bool cuda_works(int error, const char *what) {
  const char *name = NULL;
  if (error && (cuda.cuGetErrorName(error, &name) || !name)) name = "an error without a name";
  if (error) diag_error(NULL, 0, "bench: %s: the CUDA driver reported %s", what, name);
  return !error;
}

static bool look_at(cuda_device *d) {
  int major = 0, minor = 0;
  if (!cuda_works(cuda.cuDeviceGet(&d->number, 0), "device") ||
      !cuda_works(cuda.cuDeviceGetName(d->name, sizeof d->name, d->number), "device") ||
      !cuda_works(cuda.cuDeviceGetAttribute(&d->multiprocessors, MULTIPROCESSORS, d->number), "device") ||
      !cuda_works(cuda.cuDeviceGetAttribute(&major, CAPABILITY_MAJOR, d->number), "device") ||
      !cuda_works(cuda.cuDeviceGetAttribute(&minor, CAPABILITY_MINOR, d->number), "device"))
    return false;
  int level = 10 * major + minor;
  if (level < d->target->level)
    diag_error(NULL, 0, "bench: the device (%s) is of sm_%d, too old for PTX of %s; expected --target sm_%d or lower",
               d->name, level, d->target->name, level);
  return level >= d->target->level;
}

bool cuda_open(arena *a, const char *targets, cuda_device *d) {
  const char *processors;
  *d = (cuda_device){.target = gpu_target_parse(a, targets, &processors)};
  if (!d->target->vendor->is_embedded) {
    diag_error(NULL, 0, "bench: GPUs of %s are not timed; expected --target sm_80 or the like",
               d->target->vendor->name);
    return false;
  }
  if (!load_driver() || !look_at(d) || !cuda_works(cuda.cuDevicePrimaryCtxRetain(&d->context, d->number), "context"))
    return false;
  bool opened = cuda_works(cuda.cuCtxPushCurrent_v2(d->context), "context");
  for (int e = 0; e < 2 && opened; e++) opened = cuda_works(cuda.cuEventCreate(&d->event[e], 0), "event");
  if (!opened) cuda_close(d);
  return opened;
}

void cuda_close(cuda_device *d) {
  void *context;
  for (int e = 0; e < 2; e++)
    if (d->event[e]) cuda.cuEventDestroy_v2(d->event[e]);
  cuda.cuCtxPopCurrent_v2(&context);
  cuda.cuDevicePrimaryCtxRelease_v2(d->number);
}

bool cuda_allocate(size_t bytes, cuda_address *memory) {
  return cuda_works(cuda.cuMemAlloc_v2(memory, bytes ? bytes : 1), "allocation");
}

bool cuda_upload(const void *data, size_t bytes, cuda_address *memory) {
  return cuda_allocate(bytes, memory) && cuda_works(cuda.cuMemcpyHtoD_v2(*memory, data, bytes), "upload");
}

bool cuda_begin(const cuda_device *d) { return cuda_works(cuda.cuEventRecord(d->event[0], NULL), "event"); }

bool cuda_end(const cuda_device *d, double *seconds) {
  float milliseconds = 0;
  bool ended = cuda_works(cuda.cuEventRecord(d->event[1], NULL), "event") &&
               cuda_works(cuda.cuEventSynchronize(d->event[1]), "kernel") &&
               cuda_works(cuda.cuEventElapsedTime(&milliseconds, d->event[0], d->event[1]), "event");
  *seconds = (double)milliseconds * 1e-3;
  return ended;
}
