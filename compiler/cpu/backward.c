/* cpu/backward: see cpu/backward.h. */
#include "cpu/backward.h"

#include "cpu/encode.h"
#include "cpu/rotors.h"
#include "cpu/schedule.h"

const cpu_target *emit_backward_target(arena *a, const cpu_target *target) {
  cpu_target *back = arena_new(a, cpu_target);
  *back = *target;
  back->suffix = arena_printf(a, "%s_back", target->suffix);
  return back;
}

void emit_backward(ir *b, arena *a, const program *transposed, const cpu_target *target, unsigned dtypes) {
  const cpu_target *back = emit_backward_target(a, target);
  const program *scheduled = cpu_schedule(a, transposed);
  const plan *p = plan_transpose(a, program_plan(transposed));
  plan_tile *t = plan_tile_build(a, p, target->lanes);
  b->target_cpu = target->cpu;
  b->target_features = target->features;
  chunk_walk walk = emit_chunks_of(b, a, p, t, back);
  emit_rotor(&walk);
  if (p->n_values > 0) emit_unfold(&walk);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    for (int streaming = 0; streaming <= target->has_streaming; streaming++)
      if (dtypes & 1u << dtype) emit_encode(b, a, scheduled, p, t, back, dtype, dtype, streaming);
  b->target_cpu = b->target_features = NULL;
}
