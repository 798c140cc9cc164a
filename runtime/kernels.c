/* kernels.c: the index of libpegen_kernels; see pegen/kernels.h.
 * kernels.inc, made from the folder of descriptions: one KERNEL(name) a line, sorted. */
#include "pegen/kernels.h"

#include <string.h>

#define KERNEL(name) extern const pegen_kernel name##_kernel;
#include "kernels.inc"
#undef KERNEL

static const pegen_kernel *const kernels[] = {
#define KERNEL(name) &name##_kernel,
#include "kernels.inc"
#undef KERNEL
    NULL,
};

int pegen_kernels_count(void) { return (int)(sizeof kernels / sizeof *kernels) - 1; }

const pegen_kernel *const *pegen_kernels_list(void) { return kernels; }

const pegen_kernel *pegen_kernels_find(const char *name) {
  for (const pegen_kernel *const *k = kernels; name && *k; k++)
    if (strcmp((*k)->name, name) == 0) return *k;
  return NULL;
}
