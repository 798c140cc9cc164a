/* gpu/change_of_basis: turns after a change of basis of the whole head, on a GPU: x -> R C x, or C^T R^-1 x to turn
 * back.
 *
 * A team of threads (gpu/exponential) forms C once and goes through some tokens with it: their rows pass through
 * shared memory as float32, are multiplied by C there, and their blocks turned in closed form, each by a thread that
 * has its coefficients. Other than on a CPU no matrix is formed for a token: a product with R costs what its planes do.
 */
#ifndef PEGEN_GPU_CHANGE_OF_BASIS_H
#define PEGEN_GPU_CHANGE_OF_BASIS_H

#include "gpu/entries.h"

/* NULL after a diag_error where the head is larger than shared memory allows. backward: the transposed program; NULL:
 * gradients are not wanted. */
const gpu_program *gpu_basis_program(arena *a, const program *encode, const program *backward, unsigned dtypes);

#endif
