/* embedded.c: the bytes behind embedded.h. CMake defines the folder. The assembler reads
 * the files as they are: no megabyte of generated C, and no tool beyond the compiler. */
#include "embedded.h"

#include <string.h>

/* Every form of kernel/CMakeLists.txt, and what can stand beside it. */
#define FORMS(X) X(blades) X(dense) X(attention) X(polynomial) X(additive) X(tvm_ffi)

#define EMBED(name, path) \
  __asm__(".section .rodata, \"a\"\n" \
          ".balign 16\n" \
          ".globl " #name "\n" #name ":\n" \
          ".incbin \"" path "\"\n" \
          ".Lend_" #name ":\n" \
          ".balign 8\n" \
          ".globl " #name "_size\n" #name "_size:\n" \
          ".quad .Lend_" #name " - " #name "\n" \
          ".text\n"); \
  extern const unsigned char name[]; \
  extern const size_t name##_size;

#define EMBED_FORM(form) \
  EMBED(pegen_driver_##form##_x86_64, PEGEN_DRIVER_FOLDER "/driver-" #form "-x86_64.s") \
  EMBED(pegen_driver_##form##_aarch64, PEGEN_DRIVER_FOLDER "/driver-" #form "-aarch64.s")

FORMS(EMBED_FORM)

#define ROW(form) \
  {#form, pegen_driver_##form##_x86_64, pegen_driver_##form##_aarch64, &pegen_driver_##form##_x86_64_size, \
   &pegen_driver_##form##_aarch64_size},

static const driver_text texts[] = {FORMS(ROW)};

const driver_text *driver_text_of(const char *form) {
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (!strcmp(texts[i].form, form)) return &texts[i];
  return NULL;
}
