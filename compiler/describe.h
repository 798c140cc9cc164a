/* describe: what an object says of itself and tells the driver, as constants of its LLVM module:
 * NAME_kernel, the driver's descriptor, and the exported entries. */
#ifndef PEGEN_DESCRIBE_H
#define PEGEN_DESCRIBE_H

#include "plan.h"
#include "target.h"
#include "target_ptx.h"

#include <llvm-c/Core.h>

struct describe_request {
  arena *memory;
  const plan *p;
  unsigned dtypes; /* PEGEN_DTYPE_ bits compiled in */
  const char *digest;
  const ptx_module *ptx; /* NULL: none is compiled in */
};

/* Adds to a module that holds the emitted functions and the driver. */
void describe_add(LLVMModuleRef module, const describe_request *request, const cpu_target *const *targets, int n_targets);

/* Whether a symbol of the finished object is exported. */
bool describe_is_exported(const describe_request *request, const char *symbol);

/* Hash of the description's mathematics (structure, constants, layout, operands), as 32 hexadecimal digits. */
const char *describe_digest(arena *a, const plan *p);

#endif
