/* gpu/dense: dense blocks on a GPU: exp(sum_a theta_a A_a), formed and applied by the lanes of a warp.
 *
 * A warp has one token (and head, where heads differ). b lanes have a block: lane i forms row i of its matrix, in
 * two-float arithmetic by scaling and squaring, with the other rows in shared memory, and then multiplies that row with
 * the block's channels in every row of q and k, which are staged (gpu/staged_rows). Blocks beyond the 32 / b that a
 * warp has lanes for come after one another. No table: what forming costs is paid once a token, by all lanes.
 */
#ifndef PEGEN_GPU_DENSE_H
#define PEGEN_GPU_DENSE_H

#include "gpu/entries.h"

/* Whether a warp has room for a token's blocks: up to 8 channels, and not too many. */
bool gpu_dense_fits(arena *a, const program *encode);
/* backward: the transposed program; NULL: gradients are not wanted. */
const gpu_program *gpu_dense_program(arena *a, const program *encode, const program *backward, unsigned dtypes);

#endif
