/* bitcode.h: the driver as LLVM bitcode, one module for each architecture that kernels are
 * emitted for. The compiler links it into every kernel and makes it internal there. */
#ifndef PEGEN_KERNEL_BITCODE_H
#define PEGEN_KERNEL_BITCODE_H

#include <stddef.h>

extern const unsigned char pegen_driver_x86_64[];
extern const size_t pegen_driver_x86_64_size;
extern const unsigned char pegen_driver_aarch64[];
extern const size_t pegen_driver_aarch64_size;

#endif
