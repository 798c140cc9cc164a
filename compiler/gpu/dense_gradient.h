/* gpu/dense_gradient: gradients of operands and positions of exponentials in float64, on GPUs.
 *
 * A warp has a chunk of items (and one head, where heads differ), and its lanes blocks as in gpu/warp_exponential, some
 * at a time. The matrix is formed in two-float arithmetic, each power on the way is good to float32 whatever the angle
 * is, and so is the torque that goes along, of which lane i has row i:
 *
 *     tau <- a series in ad of M / 2^count, then 1/2 (tau + E tau E^T) ahead of every squaring of E
 *
 * (gpu/exponential_adjoint.h, whose signs these are). In all else it is gpu/matrix_gradient's entry.
 */
#ifndef PEGEN_GPU_DENSE_GRADIENT_H
#define PEGEN_GPU_DENSE_GRADIENT_H

#include "gpu/entries.h"

/* Appends the entries of rows with their torques of a program of dense blocks that a warp forms. */
void gpu_add_dense_gradients(arena *a, gpu_program *program, unsigned dtypes);

#endif
