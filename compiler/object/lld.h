/* object/lld: LLVM's linker for ELF, called as a function; C++ because the linker has no other interface. */
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* arguments[0] is what messages call the linker. What it says goes to *message, malloc'ed; NULL where it says nothing.
 * Once a process. */
bool lld_link_elf(int count, const char *const *arguments, char **message);

#ifdef __cplusplus
}
#endif
