/* gpu/rotor: what rotors in closed form on blades, and sums, have on GPUs: entries that encode, and those of gradients.
 */
#ifndef PEGEN_GPU_ROTOR_H
#define PEGEN_GPU_ROTOR_H

#include "gpu/entries.h"

/* backward: the gradient of encode's rows; gradient: that of operands and positions; NULL: without. */
const gpu_program *gpu_rotor_program(arena *a, const program *encode, const program *backward, const program *gradient,
                                     unsigned dtypes);

#endif
