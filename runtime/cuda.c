/* cuda.c: launches over the CUDA driver's API, found at run time; see pegen/cuda.h.
 *
 * The prototypes are those of cuda.h, written out, so that nothing of CUDA is needed to
 * build. The driver assembles a module when it is loaded, which takes it a tenth of a second to
 * one for each entry. So every entry that is launched has a module of its own, loaded before
 * its first launch in a context and kept. Kernels are a list under a mutex, which a launch
 * holds for a look-up. A kernel's own mutex is held while an entry is loaded, so that launches
 * of others do not wait for it. A context is known by its number, not its address, because
 * addresses are used again.
 */
#include "pegen/cuda.h"

#include "launch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int CUresult; /* 0: success */
typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;

enum { THREADS_PER_MULTIPROCESSOR = 768 };
/* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR,
 * CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
 * CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
enum { MULTIPROCESSORS = 16, CHIP_MAJOR = 75, CHIP_MINOR = 76, MOST_SHARED = 97, DYNAMIC_SHARED = 8 };
/* Bytes that any launch may have. */
enum { USUAL_SHARED = 48 << 10 };

/* result, name, arguments */
#define DRIVER_FUNCTIONS(X) \
  X(cuInit, (unsigned flags)) \
  X(cuDeviceGetCount, (int *count)) \
  X(cuDeviceGet, (CUdevice * device, int ordinal)) \
  X(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device)) \
  X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device)) \
  X(cuDevicePrimaryCtxRelease_v2, (CUdevice device)) \
  X(cuCtxGetCurrent, (CUcontext * context)) \
  X(cuCtxGetDevice, (CUdevice * device)) \
  X(cuCtxPushCurrent_v2, (CUcontext context)) \
  X(cuCtxPopCurrent_v2, (CUcontext * context)) \
  X(cuModuleLoadData, (CUmodule * module, const void *image)) \
  X(cuModuleUnload, (CUmodule module)) \
  X(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name)) \
  X(cuFuncSetAttribute, (CUfunction function, int attribute, int value)) \
  X(cuLaunchKernel, \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared, CUstream stream, void **parameters, void **extra)) \
  X(cuGetErrorName, (CUresult error, const char **name))

static struct {
#define MEMBER(name, arguments) CUresult(*name) arguments;
  DRIVER_FUNCTIONS(MEMBER)
#undef MEMBER
  CUresult (*cuCtxGetId)(CUcontext context, unsigned long long *id); /* of CUDA 12; NULL in older drivers */
  CUresult (*cuThreadExchangeStreamCaptureMode)(int *mode); /* of CUDA 10.1; NULL likewise */
} cuda;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int device_count; /* 0: no driver */
static CUresult start_error; /* why a driver that is there finds no device */

static _Thread_local const char *error_name = "";
static _Thread_local double assembly_seconds;

const char *pegen_cuda_error_name(void) { return error_name; }

double pegen_cuda_assembly_seconds(void) { return assembly_seconds; }

static int cuda_error(CUresult result) {
  const char *name = NULL;
  error_name = "";
  if (result == 0) return 0;
  error_name = cuda.cuGetErrorName(result, &name) == 0 && name ? name : "CUDA_ERROR_UNKNOWN";
  return PEGEN_ERROR_CUDA;
}

/* ---- the driver ---- */

/* Pointers to functions and to objects are of one kind here, as dlsym supposes. */
static int find(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

static void load_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return;
  int complete = 1;
#define FIND(name, arguments) complete = find(library, #name, &cuda.name) && complete;
  DRIVER_FUNCTIONS(FIND)
#undef FIND
  find(library, "cuCtxGetId", &cuda.cuCtxGetId);
  find(library, "cuThreadExchangeStreamCaptureMode", &cuda.cuThreadExchangeStreamCaptureMode);
  if (!complete) return;
  int count = 0;
  start_error = cuda.cuInit(0);
  if (start_error == 0) start_error = cuda.cuDeviceGetCount(&count);
  if (start_error == 0) device_count = count; /* the library stays open as long as the process */
}

int pegen_cuda_device_count(void) {
  pthread_once(&once, load_driver);
  return device_count;
}

int pegen_cuda_chip(int ordinal) {
  CUdevice device;
  int major = 0, minor = 0;
  if (ordinal < 0 || ordinal >= pegen_cuda_device_count() || cuda.cuDeviceGet(&device, ordinal)) return 0;
  if (cuda.cuDeviceGetAttribute(&major, CHIP_MAJOR, device)) return 0;
  if (cuda.cuDeviceGetAttribute(&minor, CHIP_MINOR, device)) return 0;
  return 10 * major + minor;
}

/* ---- modules ---- */

typedef struct loaded_entry {
  CUmodule module;               /* kept as long as the process */
  _Atomic(CUfunction) function; /* NULL: not loaded yet, or it failed; written under the kernel's mutex */
} loaded_entry;

typedef struct loaded_kernel {
  struct loaded_kernel *next;
  unsigned long long context;
  uint64_t digest[2]; /* of the text: where a kernel was, another one may be loaded */
  pthread_mutex_t loading;
  int64_t threads; /* that keep the context's device busy; 0: it was not asked yet; under the mutex, as shared */
  int64_t shared; /* bytes that a block may have there */
  CUmodule cubin; /* all entries; NULL: there is none for the device, or it was not loaded yet */
  loaded_entry entry[]; /* [ptx->n_entries] */
} loaded_kernel;

static pthread_mutex_t kernels_lock = PTHREAD_MUTEX_INITIALIZER;
static loaded_kernel *kernels;

static int context_number(unsigned long long *number) {
  CUcontext context;
  int error = cuda_error(cuda.cuCtxGetCurrent(&context));
  if (error) return error;
  *number = (unsigned long long)(uintptr_t)context;
  return cuda.cuCtxGetId ? cuda_error(cuda.cuCtxGetId(context, number)) : 0;
}

/* PTX of one entry: what stands before the first entry (the target, tables, shared memory), and the entry. All of the
 * text where the entry is not found in it. NULL: no memory. */
static char *text_of_entry(const char *text, const char *name) {
  static const char opens[] = ".visible .entry ", closes[] = "\n}\n";
  const char *first = strstr(text, opens), *entry = first, *end = NULL;
  size_t length = strlen(name);
  while (entry && (strncmp(entry + sizeof opens - 1, name, length) != 0 || entry[sizeof opens - 1 + length] != '('))
    entry = strstr(entry + 1, opens);
  if (entry) end = strstr(entry, closes);
  if (!end) return strdup(text);
  size_t head = (size_t)(first - text), body = (size_t)(end + sizeof closes - 1 - entry);
  char *alone = malloc(head + body + 1);
  if (!alone) return NULL;
  memcpy(alone, text, head);
  memcpy(alone + head, entry, body);
  alone[head + body] = '\0';
  return alone;
}

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Also while a stream is being captured, whose work this is no part of. */
static CUresult load_image(CUmodule *module, const void *image) {
  enum { RELAXED = 2 }; /* CU_STREAM_CAPTURE_MODE_RELAXED */
  int mode = RELAXED, exchanged = cuda.cuThreadExchangeStreamCaptureMode != NULL;
  if (exchanged) exchanged = cuda.cuThreadExchangeStreamCaptureMode(&mode) == 0;
  double begun = seconds_now();
  CUresult result = cuda.cuModuleLoadData(module, image);
  assembly_seconds += seconds_now() - begun;
  if (exchanged) cuda.cuThreadExchangeStreamCaptureMode(&mode);
  return result;
}

/* The module that has the entry: the kernel's machine code, where it is for this device, else the entry's PTX. */
static int load_module(const pegen_kernel *kernel, const pegen_ptx_entry *entry, loaded_kernel *m, CUmodule *module) {
  const void *cubin = pegen_launch_cubin_of(kernel);
  if (cubin && !m->cubin && load_image(&m->cubin, cubin)) m->cubin = NULL;
  *module = m->cubin;
  if (m->cubin) return 0;
  char *text = text_of_entry(kernel->ptx->text, entry->name);
  if (!text) return PEGEN_ERROR_NO_MEMORY;
  int error = cuda_error(load_image(module, text));
  free(text);
  return error;
}

/* An entry's function, which may be launched with the shared memory that it needs, where the device has as much. */
static int load_entry(const pegen_kernel *kernel, const pegen_ptx_entry *entry, loaded_kernel *m, loaded_entry *to) {
  CUfunction function;
  int32_t shared = pegen_launch_shared_of(kernel, entry);
  int error = load_module(kernel, entry, m, &to->module);
  if (error) return error;
  error = cuda_error(cuda.cuModuleGetFunction(&function, to->module, entry->name));
  if (!error && shared > USUAL_SHARED && shared <= m->shared)
    error = cuda_error(cuda.cuFuncSetAttribute(function, DYNAMIC_SHARED, shared));
  if (error && to->module != m->cubin) cuda.cuModuleUnload(to->module);
  if (!error) atomic_store_explicit(&to->function, function, memory_order_release);
  return error;
}

static int find_function(const pegen_kernel *kernel, const pegen_ptx_entry *entry, loaded_kernel *m,
                         CUfunction *function) {
  loaded_entry *place = &m->entry[entry - kernel->ptx->entries];
  int error = 0;
  *function = atomic_load_explicit(&place->function, memory_order_acquire);
  if (*function) return 0;
  pthread_mutex_lock(&m->loading);
  if (!atomic_load_explicit(&place->function, memory_order_relaxed)) error = load_entry(kernel, entry, m, place);
  *function = atomic_load_explicit(&place->function, memory_order_relaxed);
  pthread_mutex_unlock(&m->loading);
  return error;
}

/* The kernel's place in the list, made where there is none. NULL: no memory. */
static loaded_kernel *find_place(const pegen_ptx *ptx, unsigned long long context) {
  pthread_mutex_lock(&kernels_lock);
  loaded_kernel *m = kernels;
  while (m && (m->context != context || memcmp(m->digest, ptx->digest, sizeof m->digest) != 0)) m = m->next;
  if (!m && (m = calloc(1, sizeof *m + sizeof m->entry[0] * (size_t)ptx->n_entries))) {
    pthread_mutex_init(&m->loading, NULL);
    m->context = context;
    memcpy(m->digest, ptx->digest, sizeof m->digest);
    m->next = kernels;
    kernels = m;
  }
  pthread_mutex_unlock(&kernels_lock);
  return m;
}

/* What a launch must know of the context's device. */
static int ask_device(loaded_kernel *m) {
  CUdevice device;
  int multiprocessors = 1, shared = 0, error = cuda_error(cuda.cuCtxGetDevice(&device));
  if (!error) error = cuda_error(cuda.cuDeviceGetAttribute(&multiprocessors, MULTIPROCESSORS, device));
  if (!error) error = cuda_error(cuda.cuDeviceGetAttribute(&shared, MOST_SHARED, device));
  if (error) return error;
  m->shared = shared > USUAL_SHARED ? shared : USUAL_SHARED;
  m->threads = (int64_t)multiprocessors * THREADS_PER_MULTIPROCESSOR;
  return 0;
}

/* The kernel in the current context. */
static int find_kernel(const pegen_kernel *kernel, loaded_kernel **found) {
  unsigned long long context;
  int error = context_number(&context);
  if (error) return error;
  loaded_kernel *m = find_place(kernel->ptx, context);
  if (!m) return PEGEN_ERROR_NO_MEMORY;
  pthread_mutex_lock(&m->loading);
  if (!m->threads) error = ask_device(m);
  pthread_mutex_unlock(&m->loading);
  *found = m;
  return error;
}

/* ---- launches ---- */

static int fits(DLDevice device) { return device.device_type == kDLCUDA || device.device_type == kDLCUDAManaged; }

/* Makes a context of the tensors' device current where none is; *pushed says whether leave_context must undo it. */
static int enter_context(int ordinal, int *pushed) {
  CUcontext context = NULL;
  CUdevice wanted, device = -1;
  int error = cuda_error(cuda.cuDeviceGet(&wanted, ordinal));
  if (!error) error = cuda_error(cuda.cuCtxGetCurrent(&context));
  if (!error && context) error = cuda_error(cuda.cuCtxGetDevice(&device));
  *pushed = 0;
  if (error || (context && device == wanted)) return error;
  /* The primary context is the one that the runtime API and frameworks use, and keep while their tensors live. */
  error = cuda_error(cuda.cuDevicePrimaryCtxRetain(&context, wanted));
  if (!error) error = cuda_error(cuda.cuCtxPushCurrent_v2(context));
  *pushed = !error;
  return error;
}

static void leave_context(int ordinal) {
  CUcontext popped;
  CUdevice device;
  cuda.cuCtxPopCurrent_v2(&popped);
  if (cuda.cuDeviceGet(&device, ordinal) == 0) cuda.cuDevicePrimaryCtxRelease_v2(device);
}

typedef struct launcher {
  const pegen_kernel *kernel;
  loaded_kernel *loaded;
  CUstream stream;
} launcher;

static int launch_step(void *context, const pegen_launch_step *step) {
  const launcher *l = context;
  void *parameters[PEGEN_PTX_MAX_PARAMETERS];
  CUfunction function;
  int error = find_function(l->kernel, step->entry, l->loaded, &function);
  if (error) return error;
  /* The driver takes as many as the entry has. */
  for (int i = 0; i < PEGEN_PTX_MAX_PARAMETERS; i++) parameters[i] = (void *)&step->parameter[i];
  unsigned shared = (unsigned)pegen_launch_shared_of(l->kernel, step->entry);
  return cuda_error(cuda.cuLaunchKernel(function, step->grid_x, step->grid_y, 1, (unsigned)l->kernel->ptx->block, 1, 1,
                                        shared, l->stream, parameters, NULL));
}

static int has_ptx(const pegen_kernel *kernel) {
  return kernel->struct_size >= offsetof(pegen_kernel, prepare) && kernel->ptx;
}

size_t pegen_cuda_workspace(const pegen_kernel *kernel, const char *entry, const pegen_args *args) {
  if (!pegen_kernel_supported(kernel) || !has_ptx(kernel)) return 0;
  pegen_launch_request request = {.kernel = kernel, .entry = pegen_launch_find(kernel, entry), .args = args};
  return pegen_launch_workspace(&request);
}

int pegen_launch(const pegen_kernel *kernel, const char *entry, const pegen_args *args, void *stream) {
  error_name = "";
  assembly_seconds = 0;
  if (!pegen_kernel_supported(kernel)) return PEGEN_ERROR_KERNEL;
  if (!has_ptx(kernel)) return PEGEN_ERROR_NO_PTX;
  pegen_launch_request request = {.kernel = kernel, .entry = pegen_launch_find(kernel, entry), .args = args};
  if (request.entry == PEGEN_LAUNCH_NONE) return PEGEN_ERROR_ENTRY;
  int error = pegen_launch_check(&request), pushed = 0;
  if (error) return error;
  if (!pegen_launch_on_device(&request, fits)) return PEGEN_ERROR_DEVICE;
  if (pegen_cuda_device_count() == 0) {
    cuda_error(start_error);
    return PEGEN_ERROR_NO_CUDA_DRIVER;
  }
  int ordinal = pegen_launch_rows(&request)->device.device_id;
  error = enter_context(ordinal, &pushed);
  launcher l = {.kernel = kernel, .stream = stream};
  if (!error) error = find_kernel(kernel, &l.loaded);
  if (!error) {
    request.threads = l.loaded->threads;
    request.shared = l.loaded->shared;
    error = pegen_launch_plan(&request, launch_step, &l);
  }
  if (pushed) leave_context(ordinal);
  return error;
}
