/* embedded.h: the driver as assembly, one text for each architecture that kernels are emitted for. The
 * compiler makes it part of every kernel's module; its symbols are local to the object. */
#ifndef PEGEN_KERNEL_EMBEDDED_H
#define PEGEN_KERNEL_EMBEDDED_H

#include <stddef.h>

extern const unsigned char pegen_driver_x86_64[];
extern const size_t pegen_driver_x86_64_size;
extern const unsigned char pegen_driver_aarch64[];
extern const size_t pegen_driver_aarch64_size;

#endif
