/* fake_cuda: a libcuda.so.1 for tests of the launcher on machines without a GPU.
 *
 * One device, whose memory is the host's. A launch is the test's to
 * run, thread by thread. Exported variables count calls and make the next one fail.
 */
#include "fake_cuda.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { USUAL_SHARED = 48 << 10 };

fake_cuda_state fake_cuda = {.devices = 1, .most_shared = 163 << 10};

typedef struct function {
  struct function *next; /* of all there are */
  int shared; /* bytes that a launch may give a block */
  char name[];
} function;

static const char machine_code[] = {0x7f, 'E', 'L', 'F', 0x02, 0x01, 0};
static int context_object;
static void *current;

/* The error that the test asked for, once, in the function of that name. */
static int fails(const char *function) {
  if (!fake_cuda.fail_in || strcmp(fake_cuda.fail_in, function) != 0) return 0;
  fake_cuda.fail_in = NULL;
  return fake_cuda.fail_with;
}

int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxGetCurrent(void **context);
int cuCtxGetDevice(int *device);
int cuCtxGetId(void *context, unsigned long long *id);
int cuCtxSetCurrent(void *context);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);
int cuThreadExchangeStreamCaptureMode(int *mode);
int cuModuleLoadData(void **module, const void *image);
int cuModuleUnload(void *module);
int cuModuleGetFunction(function **f, void *module, const char *name);
int cuFuncSetAttribute(function *f, int attribute, int value);
int cuLaunchKernel(const function *f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra);
int cuMemAlloc_v2(uint64_t *memory, size_t bytes);
int cuMemFree_v2(uint64_t memory);
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes);
int cuCtxSynchronize(void);
int cuDeviceGetName(char *name, int length, int device);
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream);
int cuEventCreate(void **event, unsigned flags);
int cuEventDestroy_v2(void *event);
int cuEventRecord(void *event, void *stream);
int cuEventSynchronize(void *event);
int cuEventElapsedTime(float *milliseconds, void *begin, void *end);
int cuGetErrorName(int error, const char **name);

int cuInit(unsigned flags) {
  const char *error = getenv("FAKE_CUDA_INIT_ERROR");
  return flags ? 1 : error ? atoi(error) : 0;
}

int cuDeviceGetCount(int *count) {
  *count = getenv("FAKE_CUDA_NO_DEVICE") ? 0 : fake_cuda.devices;
  return 0;
}

int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ordinal < fake_cuda.devices ? 0 : 101;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 16 ? 2 : attribute == 75 ? 8 : 0; /* two multiprocessors of sm_80 */
  if (attribute == 97) *value = fake_cuda.most_shared;
  return device ? 101 : 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
  fake_cuda.retained++;
  *context = &context_object;
  return device ? 101 : 0;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  fake_cuda.retained--;
  return device ? 101 : 0;
}

int cuCtxGetCurrent(void **context) {
  *context = current;
  return 0;
}

int cuCtxGetDevice(int *device) {
  *device = 0;
  return current ? 0 : 201;
}

int cuCtxGetId(void *context, unsigned long long *id) {
  *id = fake_cuda.context_id;
  return context ? 0 : 201;
}

int cuCtxSetCurrent(void *context) {
  current = context;
  return 0;
}

int cuCtxPushCurrent_v2(void *context) {
  current = context;
  return 0;
}

int cuCtxPopCurrent_v2(void **context) {
  *context = current;
  current = NULL;
  return 0;
}

int cuThreadExchangeStreamCaptureMode(int *mode) {
  int before = fake_cuda.capture_mode;
  fake_cuda.capture_mode = *mode;
  *mode = before;
  return 0;
}

int cuModuleLoadData(void **module, const void *image) {
  int error = fails("cuModuleLoadData");
  const char *wait = getenv("FAKE_CUDA_ASSEMBLY_US");
  if (wait) usleep((unsigned)atoi(wait));
  if (error) return error;
  fake_cuda.modules++;
  if (!memcmp(image, machine_code, sizeof machine_code - 1)) { /* whose size only a driver knows */
    *module = strdup(machine_code);
    fake_cuda.module = *module;
    return 0;
  }
  *module = strdup(image);
  fake_cuda.module = *module;
  fake_cuda.loaded_in = fake_cuda.capture_mode;
  return strstr(image, ".visible .entry") ? 0 : 218;
}

int cuModuleUnload(void *module) {
  fake_cuda.modules--;
  free(module);
  return 0;
}

int cuModuleGetFunction(function **f, void *module, const char *name) {
  int error = fails("cuModuleGetFunction");
  if (error || (strcmp(module, machine_code) != 0 && !strstr(module, name))) return error ? error : 500;
  static function *all; /* a function lives as long as its module */
  *f = malloc(sizeof **f + strlen(name) + 1);
  (*f)->next = all;
  all = *f;
  (*f)->shared = USUAL_SHARED;
  strcpy((*f)->name, name);
  return 0;
}

int cuFuncSetAttribute(function *f, int attribute, int value) {
  int error = fails("cuFuncSetAttribute");
  if (error || attribute != 8 || value > fake_cuda.most_shared) return error ? error : 1;
  fake_cuda.allowed++;
  f->shared = value;
  return 0;
}

int cuLaunchKernel(const function *f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra) {
  int error = fails("cuLaunchKernel");
  if (error) return error;
  if (grid_z != 1 || block_y != 1 || block_z != 1 || extra || !grid_x || !grid_y || grid_y > 65535) return 1;
  if (shared > (unsigned)f->shared) return 1;
  fake_cuda.launches++;
  fake_cuda.stream = stream;
  fake_cuda.entry = f->name;
  fake_cuda.shared = shared;
  int64_t *values = malloc(sizeof *values * (size_t)fake_cuda.n_parameters);
  for (int i = 0; i < fake_cuda.n_parameters; i++) memcpy(&values[i], parameters[i], sizeof *values);
  if (fake_cuda.run) fake_cuda.run(f->name, grid_x, grid_y, block_x, values);
  free(values);
  return 0;
}

int cuMemAlloc_v2(uint64_t *memory, size_t bytes) {
  *memory = (uint64_t)(uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *memory ? 0 : 2;
}

int cuMemFree_v2(uint64_t memory) {
  free((void *)(uintptr_t)memory);
  return 0;
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
  memcpy((void *)(uintptr_t)to, from, bytes);
  if (fake_cuda.uploaded) fake_cuda.uploaded(from, to);
  return 0;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
  memcpy(to, (const void *)(uintptr_t)from, bytes);
  return 0;
}

int cuCtxSynchronize(void) { return 0; }

int cuDeviceGetName(char *name, int length, int device) {
  snprintf(name, (size_t)length, "stand-in");
  return device ? 101 : 0;
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
  (void)stream;
  memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
  return 0;
}

/* Events remember how much was launched before them: 1 ms each. */
int cuEventCreate(void **event, unsigned flags) {
  *event = calloc(1, sizeof(int));
  return flags ? 1 : 0;
}

int cuEventDestroy_v2(void *event) {
  free(event);
  return 0;
}

int cuEventRecord(void *event, void *stream) {
  *(int *)event = fake_cuda.launches;
  return stream ? 1 : 0;
}

int cuEventSynchronize(void *event) {
  (void)event;
  return fails("cuEventSynchronize");
}

int cuEventElapsedTime(float *milliseconds, void *begin, void *end) {
  int launches = *(int *)end - *(int *)begin;
  *milliseconds = launches > 0 ? (float)launches : 1; /* copies are not counted: 1 ms all of them */
  return 0;
}

int cuGetErrorName(int error, const char **name) {
  *name = error == 100   ? "CUDA_ERROR_NO_DEVICE"
          : error == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
          : error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                         : NULL;
  return *name ? 0 : 1;
}
