/* shim.c: functions of PyTorch's stable C interface, by their names in the libtorch of this process. */
#include "shim.h"
#include <dlfcn.h>

struct torch_shim torch;

/* dlsym's pointer as a function's, which C has no conversion for. */
static void set(void *member, void *found) { *(void **)member = found; }

static const char *find_number_types(void *library) {
  int n = 0;
#define TORCH_TYPE(name, code, bits) \
  { \
    int32_t (*number)(void); \
    void *found = dlsym(library, "aoti_torch_dtype_" #name); \
    if (!found) return "aoti_torch_dtype_" #name; \
    set(&number, found); \
    torch.number_types[n++] = (struct torch_number_type){number(), {code, bits, 1}}; \
  }
  TORCH_NUMBER_TYPES(TORCH_TYPE)
#undef TORCH_TYPE
  return NULL;
}

static void find_cuda(void) {
  void *library = dlopen("libtorch_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
  if (library) set(&torch.current_cuda_stream, dlsym(library, "aoti_torch_get_current_cuda_stream"));
}

const char *torch_find_shim(void) {
  void *library = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
  if (!library) return "libtorch_cpu.so";
  void *found;
#define TORCH_FIND(name, symbol, result, parameters) \
  found = dlsym(library, #symbol); \
  if (!found) return #symbol; \
  set(&torch.name, found);
  TORCH_FUNCTIONS(TORCH_FIND)
#undef TORCH_FIND
  found = dlsym(library, "torch_delete_stable_ivalue");  /* from 2.13 on */
  if (!found) found = dlsym(library, "_ZdlPv"); /* before, C++'s own operator delete */
  if (!found) return "torch_delete_stable_ivalue";
  set(&torch.delete_optional, found);
  find_cuda();
  return find_number_types(library); /* the handle stays: so does libtorch */
}
