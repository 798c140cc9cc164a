/* gpu/rotor: what rotors in closed form on blades, and sums, have on GPUs: entries that encode, and those of gradients.
 */

#include "gpu/gradient.h"
#include "gpu/programs.h"

const gpu_program *gpu_rotor_program(arena *a, const program *encode, const program *backward, const program *gradient,
                                     unsigned dtypes) {
  const plan *p = program_plan(encode);
  gpu_program *program = arena_new(a, gpu_program);
  *program = (gpu_program){.spec = encode->spec,
                           .encode = encode,
                           .per_head = p->per_head,
                           .of_rows = p->of_rows,
                           .operations = p->token_operations,
                           .emit = gpu_emit_rows};
  gpu_plans *rows = &program->rows, *back = &program->transposed;
  rows->count = program_plans(encode, rows->of);
  program->n_entries = gpu_row_entries(a, rows, PEGEN_LAUNCH_encode, dtypes, program->entry);
  program->n_entries += gpu_converting_entries(a, rows, dtypes, program->entry + program->n_entries);
  if (!backward) return program;
  program->backward = backward;
  for (; back->count < rows->count; back->count++) back->of[back->count] = plan_transpose(a, rows->of[back->count]);
  program->n_entries +=
      gpu_row_entries(a, back, PEGEN_LAUNCH_encode_backward, dtypes, program->entry + program->n_entries);
  program->of = gradient ? plan_gradient_build_row(a, rows->of, rows->count) : NULL;
  program->gradient = gradient;
  if (!program->of) return program;
  program->n_entries += gpu_gradient_entries(a, rows, program->of, dtypes, program->entry + program->n_entries);
  gpu_add_finishing(a, program);
  return program;
}
