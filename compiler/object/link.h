/* object/link: from an object to a shared object, by LLVM's linker inside this program.
 *
 * In: the bytes of an object that imports nothing, for any processor. Out: the bytes of a shared object that dlopen
 * takes: it needs no library and no symbol, exports what the object does and, under one name for all kernels,
 * LINK_KERNEL_SYMBOL, the object's pegen_kernel. Relocations are applied before anything runs and are read-only then,
 * code is not writable, the stack is not executable. One object gives the same bytes each time.
 */
#pragma once

#include "base/arena.h"
#include "target/request.h"

/* dlsym(library, "pegen_kernel_of_library") is a const pegen_kernel *, whatever the kernel's name. */
#define LINK_KERNEL_SYMBOL "pegen_kernel_of_library"

/* Replaces out's object; name: the description's. False after a diag_error (no memory file). */
bool link_shared(arena *a, const char *name, compile_output *out);
