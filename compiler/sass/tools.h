/* sass/tools: PTX to a listing of machine code, by NVIDIA's programs.
 *
 * ptxas and a disassembler (nvdisasm, else cuobjdump) are looked for on PATH, in CUDA's folders and in those of Python
 * packages that bring them. They are started without a shell, and work in a folder that is removed again.
 */
#ifndef PEGEN_SASS_TOOLS_H
#define PEGEN_SASS_TOOLS_H

#include "base/arena.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct sass_listing {
  const char *code; /* what the disassembler printed */
  const char *log;  /* what ptxas -v did */
} sass_listing;

/* False after a diag_error: a program is missing, or refused. */
bool sass_list(arena *a, const char *ptx, size_t size, const char *chip, sass_listing *out);

#endif
