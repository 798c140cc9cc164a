/* gpu/gradient: gradients of operands and positions on GPUs, of rotors and sums.
 *
 * A thread has a unit of channels of a chunk of tokens (and of one head, where heads differ). For each token it turns
 * the gradients of rows back, as an entry of rows' gradients does, and sums its blocks' torques over them. What the
 * torques give goes on as expressions (plan/gradient.h). Nothing is added by two threads: sums over a chunk's tokens
 * have a place of their own, and so has what a thread's blocks give to a position. Entries of their own then add those
 * up, in order (gpu/finish). How many chunks there are is the launcher's affair, by the sizes of the call alone.
 *
 * From what encode read (x; where channels are mapped, their map) it is the torque of y = M x, which a thread makes as
 * it goes: rounded to float32 only.
 */
#pragma once

#include "gpu/entries.h"

/* Entries of a form's rows with their torques: NAME_encode_gradient_DTYPE. plans: of encode on GPUs. Their number. */
int gpu_gradient_entries(arena *a, const gpu_plans *plans, const plan_gradient_row *of, unsigned dtypes,
                         gpu_entry *entries);

/* gpu/finish: what a program keeps of matrices that are made of operands, in encode's gradients. thread_bytes: of
 * gpu_matrices. */
void gpu_keep_matrices(arena *a, gpu_program *program, int thread_bytes);
/* Appends what finishes encode's gradients, by what the program gains: NAME_encode_gradient_sum, ..., the entries of
 * kernel/launch.h from PEGEN_PTX_SUM_FROM on. */
void gpu_add_finishing(arena *a, gpu_program *program);
