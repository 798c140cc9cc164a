/* gpu/programs: the entries of each form, which gpu/forms chooses among. backward: the transposed program of encode's
 * rows; NULL: gradients are not wanted. */
#pragma once

#include "gpu/entries.h"

/* Rotors in closed form on blades, and sums. gradient: the program of what operands and positions gain; NULL: none. */
const gpu_program *gpu_rotor_program(arena *a, const program *encode, const program *backward, const program *gradient,
                                     unsigned dtypes);

/* Whether a warp has room for a token's blocks: up to 8 channels, and not too many. */
bool gpu_dense_fits(arena *a, const program *encode);
const gpu_program *gpu_dense_program(arena *a, const program *encode, const program *backward, unsigned dtypes);

/* Larger blocks. NULL after a diag_error where matrices are asked for in more than float32. */
const gpu_program *gpu_matrix_program(arena *a, const program *encode, const program *backward, unsigned dtypes);

/* Changes of basis. NULL after a diag_error where the head is larger than shared memory allows. */
const gpu_program *gpu_basis_program(arena *a, const program *encode, const program *backward, unsigned dtypes);

/* Columns of a polynomial bias. NULL after a diag_error where columns are too many for shared memory. */
const gpu_program *gpu_widen_program(arena *a, const program *encode, unsigned dtypes, bool gradients);
