/* gpu/matrix: dense blocks of more channels than a warp's lanes form, on a GPU.
 *
 * A team of threads (gpu/exponential) has one token's block (of one head, where heads differ): it forms exp(sum_a
 * theta_a A_a) in shared memory and multiplies the rows that share it, some at a time, which pass through shared memory
 * as float32. No table: what forming costs is paid once for all rows of the call that a block of threads has.
 */
#ifndef PEGEN_GPU_MATRIX_H
#define PEGEN_GPU_MATRIX_H

#include "gpu/entries.h"

/* NULL after a diag_error where matrices are asked for in more than float32. backward: the transposed program; NULL:
 * gradients are not wanted. */
const gpu_program *gpu_matrix_program(arena *a, const program *encode, const program *backward, unsigned dtypes);

#endif
