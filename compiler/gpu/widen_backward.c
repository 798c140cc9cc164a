/* gpu/widen_backward: see gpu/widen_backward.h. */
#include "gpu/widen_backward.h"

#include "gpu/index.h"
#include "gpu/widen_rows.h"

/* What a row has of 16 bytes, 8 of 16 bits at 64 channels: neighbours are side by side. */
enum { LANES = 8 };

int gpu_widen_back_entries(arena *a, const plan_widen *p, unsigned dtypes, gpu_entry *entries) {
  int count = 0;
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    if (dtypes & 1u << dtype)
      count += widen_row_entries(a, p, PEGEN_LAUNCH_encode_backward, (number_type)dtype, LANES, entries + count);
  return count;
}

void gpu_emit_widen_back(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native,
                         bool host) {
  const plan_widen *p = program_widen_plan(program->encode);
  gpu_body t = gpu_open(b, a, p->values, false, entry, native, host);
  weight_lanes l = widen_lanes_of(&t, p);
  t.rows.exprs = &t.exprs;
  ir_value valid = widen_own(&t, &l), row;
  row_origin origin = emit_row_origin(&t.rows, &t.owner, i64(b, 0));
  ir_loop loop = gpu_begin_rows(&t, &row);
  row_place place = emit_row_place(&t.rows, &origin, row);
  widen_move_row(&t, &l, &place, valid);
  ir_end_for(b, loop);
  ir_return(b);
}
