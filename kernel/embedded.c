/* embedded.c: the bytes behind embedded.h. CMake defines the two paths. The assembler reads
 * the files as they are: no megabyte of generated C, and no tool beyond the compiler. */
#include "embedded.h"

#define EMBED(name, path)                                                                                              \
  __asm__(".section .rodata, \"a\"\n"                                                                                  \
          ".balign 16\n"                                                                                               \
          ".globl " #name "\n" #name ":\n"                                                                             \
          ".incbin \"" path "\"\n"                                                                                     \
          ".Lend_" #name ":\n"                                                                                         \
          ".balign 8\n"                                                                                                \
          ".globl " #name "_size\n" #name "_size:\n"                                                                   \
          ".quad .Lend_" #name " - " #name "\n"                                                                        \
          ".text\n")

EMBED(pegen_driver_x86_64, PEGEN_DRIVER_X86_64_PATH);
EMBED(pegen_driver_aarch64, PEGEN_DRIVER_AARCH64_PATH);
