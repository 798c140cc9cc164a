/* cuda.c: launches over the CUDA driver's API, found at run time; see pegen/cuda.h.
 *
 * The prototypes are those of cuda.h, written out, so that nothing of CUDA is needed to
 * build. Modules are loaded once a context and kernel and kept: a list under a mutex, which a
 * launch holds for a look-up; a module's own mutex is held while it is loaded, so that
 * launches of others do not wait for it. A context is known by its number, not its
 * address, because addresses are used again.
 */
#include "pegen/cuda.h"

#include "launch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult; /* 0: success */
typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;

enum { THREADS_PER_MULTIPROCESSOR = 768 };
/* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
 * CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
enum { MULTIPROCESSORS = 16, MOST_SHARED = 97, DYNAMIC_SHARED = 8 };
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
} cuda;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int device_count; /* 0: no driver */
static CUresult start_error; /* why a driver that is there finds no device */

static _Thread_local const char *error_name = "";

const char *pegen_cuda_error_name(void) { return error_name; }

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

/* ---- modules ---- */

typedef struct loaded_module {
  struct loaded_module *next;
  unsigned long long context;
  uint64_t digest[2]; /* of the text: where a kernel was, another one may be loaded */
  pthread_mutex_t loading;
  CUmodule module; /* NULL: not loaded yet, or it failed; read and written under the mutex */
  int64_t threads; /* that keep the context's device busy */
  int64_t shared; /* bytes that a block may have there */
  CUfunction function[]; /* [ptx->n_entries] */
} loaded_module;

static pthread_mutex_t modules_lock = PTHREAD_MUTEX_INITIALIZER;
static loaded_module *modules;

static int context_number(unsigned long long *number) {
  CUcontext context;
  int error = cuda_error(cuda.cuCtxGetCurrent(&context));
  if (error) return error;
  *number = (unsigned long long)(uintptr_t)context;
  return cuda.cuCtxGetId ? cuda_error(cuda.cuCtxGetId(context, number)) : 0;
}

/* An entry's function, which may be launched with the shared memory that it needs, where the device has as much. */
static int find_function(const pegen_kernel *kernel, int i, loaded_module *m, CUmodule module) {
  const pegen_ptx_entry *entry = &kernel->ptx->entries[i];
  int32_t shared = pegen_launch_shared_of(kernel, entry);
  int error = cuda_error(cuda.cuModuleGetFunction(&m->function[i], module, entry->name));
  if (error || shared <= USUAL_SHARED || shared > m->shared) return error;
  return cuda_error(cuda.cuFuncSetAttribute(m->function[i], DYNAMIC_SHARED, shared));
}

static int load_module(const pegen_kernel *kernel, loaded_module *m) {
  const pegen_ptx *ptx = kernel->ptx;
  CUdevice device;
  CUmodule module;
  int multiprocessors = 1, shared = 0, error = cuda_error(cuda.cuCtxGetDevice(&device));
  if (!error) error = cuda_error(cuda.cuDeviceGetAttribute(&multiprocessors, MULTIPROCESSORS, device));
  if (!error) error = cuda_error(cuda.cuDeviceGetAttribute(&shared, MOST_SHARED, device));
  if (!error) error = cuda_error(cuda.cuModuleLoadData(&module, ptx->text));
  if (error) return error;
  m->threads = (int64_t)multiprocessors * THREADS_PER_MULTIPROCESSOR;
  m->shared = shared > USUAL_SHARED ? shared : USUAL_SHARED;
  for (int i = 0; i < ptx->n_entries && !error; i++) error = find_function(kernel, i, m, module);
  if (error) cuda.cuModuleUnload(module);
  else m->module = module;
  return error;
}

/* The module's place in the list, made where there is none. NULL: no memory. */
static loaded_module *find_place(const pegen_ptx *ptx, unsigned long long context) {
  pthread_mutex_lock(&modules_lock);
  loaded_module *m = modules;
  while (m && (m->context != context || memcmp(m->digest, ptx->digest, sizeof m->digest) != 0)) m = m->next;
  if (!m && (m = calloc(1, sizeof *m + sizeof m->function[0] * (size_t)ptx->n_entries))) {
    pthread_mutex_init(&m->loading, NULL);
    m->context = context;
    memcpy(m->digest, ptx->digest, sizeof m->digest);
    m->next = modules;
    modules = m;
  }
  pthread_mutex_unlock(&modules_lock);
  return m;
}

/* The kernel's module in the current context, loaded where it is not yet. */
static int find_module(const pegen_kernel *kernel, const loaded_module **found) {
  unsigned long long context;
  int error = context_number(&context);
  if (error) return error;
  loaded_module *m = find_place(kernel->ptx, context);
  if (!m) return PEGEN_ERROR_NO_MEMORY;
  pthread_mutex_lock(&m->loading);
  if (!m->module) error = load_module(kernel, m);
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
  const loaded_module *module;
  CUstream stream;
} launcher;

static int launch_step(void *context, const pegen_launch_step *step) {
  const launcher *l = context;
  void *parameters[PEGEN_PTX_MAX_PARAMETERS];
  /* The driver takes as many as the entry has. */
  for (int i = 0; i < PEGEN_PTX_MAX_PARAMETERS; i++) parameters[i] = (void *)&step->parameter[i];
  const pegen_ptx *ptx = l->kernel->ptx;
  unsigned shared = (unsigned)pegen_launch_shared_of(l->kernel, step->entry);
  return cuda_error(cuda.cuLaunchKernel(l->module->function[step->entry - ptx->entries], step->grid_x, step->grid_y, 1,
                                        (unsigned)ptx->block, 1, 1, shared, l->stream, parameters, NULL));
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
  if (!error) error = find_module(kernel, &l.module);
  if (!error) {
    request.threads = l.module->threads;
    request.shared = l.module->shared;
    error = pegen_launch_plan(&request, launch_step, &l);
  }
  if (pushed) leave_context(ordinal);
  return error;
}
