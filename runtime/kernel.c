/* kernel.c: look-ups in what a kernel says of itself. */
#include "pegen/pegen.h"

#include <string.h>

int pegen_kernel_supported(const pegen_kernel *kernel) {
  /* Newer compilers may append fields, and older ones knew no PTX: a longer struct is fine, and so is that one. */
  return kernel && kernel->abi_version == PEGEN_ABI_VERSION && kernel->struct_size >= offsetof(pegen_kernel, ptx);
}

int pegen_find_operand(const pegen_kernel *kernel, const char *name) {
  for (int i = 0; kernel && name && i < kernel->n_operands; i++)
    if (strcmp(kernel->operands[i].name, name) == 0) return i;
  return -1;
}

int64_t pegen_operand_size(const pegen_kernel *kernel, int i) {
  int64_t size = 1;
  if (!kernel || i < 0 || i >= kernel->n_operands) return 0;
  for (int d = 0; d < kernel->operands[i].rank; d++) size *= kernel->operands[i].shape[d];
  return size;
}
