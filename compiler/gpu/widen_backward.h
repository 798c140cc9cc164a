/* gpu/widen_backward: gradients of rows that columns widened, on a GPU.
 *
 * The channels that were moved move back, by the lanes of a token as they came.
 */
#ifndef PEGEN_GPU_WIDEN_BACKWARD_H
#define PEGEN_GPU_WIDEN_BACKWARD_H

#include "gpu/entries.h"
#include "plan/widen.h"

/* Their number. */
int gpu_widen_back_entries(arena *a, const plan_widen *p, unsigned dtypes, gpu_entry *entries);
void gpu_emit_widen_back(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native,
                         bool host);

#endif
