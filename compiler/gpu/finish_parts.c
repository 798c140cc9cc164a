/* gpu/finish_parts: how entries that finish gradients begin, read and store; see gpu/finish.h. */
#include "gpu/body.h"
#include "gpu/finish.h"
#include "gpu/index.h"

#include "kernel/launch.h"

enum { NUMBER = TWO_FLOAT_BYTES };

void finish_open(finisher *f, int count, bool host) {
  gpu_function of = gpu_open_function(f->b, f->memory, f->entry->name, count, 0, host);
  f->parameter = of.parameter;
  f->line = add(f->b, scaled(f->b, of.block, PEGEN_PTX_BLOCK), of.thread);
}

ir_value finish_number_at(ir *b, ir_value array, ir_value index) {
  return ir_pointer(b, add(b, array, mul(b, index, i64(b, NUMBER))));
}

void finish_store(ir *b, ir_value is_f64, ir_value adds, two_float sum, ir_value at) {
  ir_value old, zero;
  ir_branch branch = ir_if(b, is_f64);
  ir_value value = add(b, ir_cast(b, "arith.extf", sum.hi, b->f64), ir_cast(b, "arith.extf", sum.lo, b->f64));
  ir_choice choice = ir_choose(b, adds, 1, &b->f64);
  old = ir_load(b, b->f64, at, 8);
  ir_choose_else(b, &choice, 1, &old);
  zero = ir_float(b, b->f64, 0);
  ir_end_choose(b, choice, 1, &zero, &old);
  ir_store(b, add(b, value, old), at, 8, false);
  ir_else(b, &branch);
  choice = ir_choose(b, adds, 1, &b->f32);
  old = ir_load(b, b->f32, at, 4);
  ir_choose_else(b, &choice, 1, &old);
  zero = ir_float(b, b->f32, 0);
  ir_end_choose(b, choice, 1, &zero, &old);
  ir_store(b, two_float_narrow(b, two_float_add(b, sum, two_float_f32(old))), at, 4, false);
  ir_end_if(b, branch);
}
