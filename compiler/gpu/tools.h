/* gpu/tools: PTX to machine code and a listing of it, by NVIDIA's programs.
 *
 * ptxas and a disassembler (nvdisasm, else cuobjdump) are looked for on PATH, in CUDA's folders and in those of Python
 * packages that bring them. They are started without a shell, and work in a folder that is removed again.
 */
#pragma once

#include "base/arena.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct sass_listing {
  const char *code; /* what the disassembler printed */
  const char *log;  /* what ptxas -v did */
} sass_listing;

/* False after a diag_error: a program is missing, or refused. */
bool gpu_tools_list(arena *a, const char *ptx, size_t size, const char *chip, sass_listing *out);

/* Machine code for the chip, a cubin. False after a diag_error. */
bool gpu_tools_assemble(arena *a, const char *ptx, size_t size, const char *chip, const char **cubin,
                        size_t *cubin_size);
