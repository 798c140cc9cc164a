/* gpu/matrix_gradient: gradients of operands and positions of exponentials of skew matrices, on GPUs.
 *
 * A team of threads (gpu/exponential) has a block of a chunk of items (and of one head, where heads differ), as threads
 * of rotors have a unit of channels of them (gpu/gradient.h). For each item it sums the torque, from the gradients of
 * rows and what was kept of rows. It forms the exponential and takes the torque along (gpu/exponential_adjoint), and
 * turns the gradients of rows back. Then it adds the matrix's gradient to the generators' sums of the chunk. Gradients
 * of angles go on as expressions.
 * Blocks of any size go this way, those of a warp (gpu/dense), too, in float32; in float64 by gpu/dense_gradient; those
 * of a change of basis by gpu/basis_gradient.
 *
 * From what encode read (x) the exponential is formed twice: what rows made is turned by the first before it becomes a
 * torque.
 */
#pragma once

#include "gpu/entries.h"

/* Appends the entries of a program of dense blocks, where there are gradients. */
void gpu_add_matrix_gradients(arena *a, gpu_program *program, unsigned dtypes);

/* Appends the entries of rows with their torques of a program of dense blocks that a warp forms. */
void gpu_add_dense_gradients(arena *a, gpu_program *program, unsigned dtypes);
/* Appends the entries of a program with a change of basis, where there are gradients. */
void gpu_add_basis_gradients(arena *a, gpu_program *program, unsigned dtypes);
