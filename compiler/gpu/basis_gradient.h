/* gpu/basis_gradient: gradients of operands and positions behind a change of basis of the head, on GPUs.
 *
 * A team of threads (gpu/exponential) has a chunk of items (and one head, where heads differ), and C of it. Of an item,
 * whose rows are y = R C x, it sums G = g y^T over them, the head's torque: turns gain of its entries within blocks, a
 * block a thread, as expressions (gpu/gains), and C of R^T G R^-T, whose lines are turned in shared memory in closed
 * form. Rotations have R^-1 in R^T; boosts and translations turn by a third operator (plan.inverse). Then rows are
 * turned back. To turn back, y = C^T R^-1 x, turns gain of C G C^T, and C of G itself.
 *
 * From what encode read (x), G is g x^T C^T R^T, to turn back g x^T R^-T C.
 *
 * What C = (I - A)(I + A)^-1 gains is linear in a chunk's sum P: with K, C or to turn back its transpose, A gains
 * -1/2 (I + K)^T (P - P^T) (I + K), and so a chunk's numbers are those of the generator, as dense blocks' are, and are
 * finished by the same entries (gpu/finish).
 */
#ifndef PEGEN_GPU_BASIS_GRADIENT_H
#define PEGEN_GPU_BASIS_GRADIENT_H

#include "gpu/entries.h"

/* Appends the entries of a program with a change of basis, where there are gradients. */
void gpu_add_basis_gradients(arena *a, gpu_program *program, unsigned dtypes);

#endif
