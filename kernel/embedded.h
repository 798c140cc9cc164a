/* embedded.h: the driver as assembly, one text for each form of kernel and architecture that kernels are emitted
 * for. The compiler makes it part of every kernel's module; its symbols are local to the object. */
#pragma once

#include <stddef.h>

typedef struct driver_text {
  const char *form; /* name of the form, compiler/forms/form.h; "tvm_ffi": packed functions beside a form's driver */
  const unsigned char *x86_64, *aarch64;
  const size_t *x86_64_size, *aarch64_size;
} driver_text;

/* The row of a form; NULL: there is none. */
const driver_text *driver_text_of(const char *form);
