/* object/describe: what an object says of itself and tells the driver, as constants of its LLVM module:
 * NAME_kernel, the driver's descriptor, and the exported entries. The part that is a form's has a file of its own
 * (object/describe_form). */
#pragma once

#include "object/describer.h"

/* Adds to a module that holds the emitted functions and the driver. */
void describe_add(LLVMModuleRef module, const describe_request *request, const cpu_target *const *targets,
                  int n_targets);

/* Whether a symbol of the finished object is exported. */
bool describe_is_exported(const describe_request *request, const char *symbol);

/* Hash of the description's mathematics (structure, constants, layout, operands), as 32 hexadecimal digits. */
const char *describe_digest(arena *a, const form *f, const spec *s, const void *plan);
