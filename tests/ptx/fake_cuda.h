/* fake_cuda: what a test tells the stand-in for libcuda, and what it learns. */
#ifndef PEGEN_TESTS_FAKE_CUDA_H
#define PEGEN_TESTS_FAKE_CUDA_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fake_cuda_state {
  /* NULL: nothing is computed */
  void (*run)(const char *entry, unsigned grid_x, unsigned grid_y, unsigned threads, const int64_t *parameters);
  int n_parameters, devices;
  int most_shared; /* bytes that a block may have */
  unsigned long long context_id;
  const char *fail_in; /* a function that fails once, with fail_with */
  int fail_with;
  int modules, launches, retained; /* loaded and not unloaded; launched; retained and not released */
  const char *entry;               /* of the last launch */
  unsigned shared; /* of that launch */
  int allowed; /* attributes that let a function have more than 48 KiB */
  void *stream;
  void (*uploaded)(const void *from, uint64_t to); /* after bytes of the host came to memory; or NULL */
  const char *module;                              /* the text that was loaded last */
  int capture_mode, loaded_in; /* how strict captures are now; and were when that text was loaded */
} fake_cuda_state;

extern fake_cuda_state fake_cuda;

/* The stand-in's own state, by the name that the launcher loads it by; NULL: that is a real driver, or none. */
static inline fake_cuda_state *fake_cuda_find(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  return library ? dlsym(library, "fake_cuda") : NULL;
}

#endif
