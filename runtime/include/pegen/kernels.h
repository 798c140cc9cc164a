/* kernels.h: the stock kernels, one for each description that comes with pegen (specs/), compiled
 * with its default options into libpegen_kernels (static and shared; needs no other library).
 *
 *     const pegen_kernel *kernel = pegen_kernels_find("geope3d");
 *     if (kernel) error = kernel->encode(&args, 0, 1);
 *
 * What a kernel takes stands in its descriptor (pegen_kernel of pegen.h), and for people in
 * <pegen/kernels/NAME.h>, which also declares its symbols. Options other than the defaults (another
 * head_dim, learned operands per head, a built-in grid) need the compiler: pegen SPEC.lua -D name=value.
 * Such a kernel must go by another --name where it is linked beside the stock library.
 */
#ifndef PEGEN_KERNELS_H
#define PEGEN_KERNELS_H

#include <pegen/pegen.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How many there are. */
int pegen_kernels_count(void);

/* All of them, in the order of their names; pegen_kernels_count() entries and a NULL. Constant data. */
const pegen_kernel *const *pegen_kernels_list(void);

/* The kernel of that name, or NULL. */
const pegen_kernel *pegen_kernels_find(const char *name);

#ifdef __cplusplus
}
#endif
#endif
