/* device: memory of the GPU through the driver's API; see device.h. Any error ends the test. */
#include "device.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long address;

#define FUNCTIONS(X) \
  X(cuInit, (unsigned flags)) \
  X(cuDeviceGetCount, (int *count)) \
  X(cuDeviceGet, (int *device, int ordinal)) \
  X(cuDeviceGetAttribute, (int *value, int attribute, int device)) \
  X(cuDevicePrimaryCtxRetain, (void **context, int device)) \
  X(cuDevicePrimaryCtxRelease_v2, (int device)) \
  X(cuCtxPushCurrent_v2, (void *context)) \
  X(cuCtxPopCurrent_v2, (void **context)) \
  X(cuCtxSynchronize, (void)) \
  X(cuMemAlloc_v2, (address * memory, size_t bytes)) \
  X(cuMemFree_v2, (address memory)) \
  X(cuMemcpyHtoD_v2, (address to, const void *from, size_t bytes)) \
  X(cuMemcpyDtoH_v2, (void *to, address from, size_t bytes))

static struct {
#define MEMBER(name, arguments) int(*name) arguments;
  FUNCTIONS(MEMBER)
#undef MEMBER
} cuda;

static void *library;
static int chip;

enum { CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 }; /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_ */

static void must(int error, const char *what) {
  if (error == 0) return;
  fprintf(stderr, "%s: CUDA error %d\n", what, error);
  exit(1);
}

void *device_symbol(const char *name) { return dlsym(library, name); }

static bool find(const char *name, void *function) {
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

bool device_open(void) {
  int count = 0, major = 0, minor = 0, device;
  void *context;
  library = dlopen("libcuda.so.1", RTLD_NOW);
  bool complete = library != NULL;
#define FIND(name, arguments) complete = complete && find(#name, &cuda.name);
  FUNCTIONS(FIND)
#undef FIND
  if (!complete || cuda.cuInit(0) || cuda.cuDeviceGetCount(&count) || !count) {
    puts("skipped: no CUDA driver, or no device");
    return false;
  }
  must(cuda.cuDeviceGet(&device, 0), "device");
  must(cuda.cuDeviceGetAttribute(&major, CAPABILITY_MAJOR, device), "attribute");
  must(cuda.cuDeviceGetAttribute(&minor, CAPABILITY_MINOR, device), "attribute");
  must(cuda.cuDevicePrimaryCtxRetain(&context, device), "context");
  must(cuda.cuCtxPushCurrent_v2(context), "context");
  chip = major * 10 + minor;
  return true;
}

void device_close(void) {
  void *context;
  must(cuda.cuCtxPopCurrent_v2(&context), "context");
  must(cuda.cuDevicePrimaryCtxRelease_v2(0), "context");
}

int device_chip(void) { return chip; }

/* From the first element to behind the last; strides are not negative in tests. */
static size_t bytes_of(const DLTensor *t) {
  int64_t last = 0;
  for (int i = 0; i < t->ndim; i++) last += (t->shape[i] - 1) * t->strides[i];
  return (size_t)(last + 1) * (t->dtype.bits / 8u);
}

DLTensor *device_upload(arena *a, const DLTensor *host) {
  DLTensor *t = arena_new(a, DLTensor);
  address memory;
  *t = *host;
  must(cuda.cuMemAlloc_v2(&memory, bytes_of(host)), "allocation");
  must(cuda.cuMemcpyHtoD_v2(memory, host->data, bytes_of(host)), "upload");
  t->data = (void *)(uintptr_t)memory;
  t->device = (DLDevice){kDLCUDA, 0};
  return t;
}

void device_download(const DLTensor *device, DLTensor *host) {
  must(cuda.cuCtxSynchronize(), "kernel");
  must(cuda.cuMemcpyDtoH_v2(host->data, (address)(uintptr_t)device->data, bytes_of(host)), "download");
}

void device_free(DLTensor *device) { must(cuda.cuMemFree_v2((address)(uintptr_t)device->data), "free"); }
