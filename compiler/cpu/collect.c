/* cpu/collect: see cpu/collect.h. */
#include "cpu/collect.h"

#include "mlir/arith.h"

static void add_numbers(ir *b, const ir_value *arguments, ir_value at, int width, MlirType element, int64_t bytes) {
  MlirType type = ir_vector(b, width, element);
  ir_value from = ir_load(b, type, ir_offset(b, arguments[0], at), (int)bytes), to = ir_offset(b, arguments[1], at);
  ir_value before = ir_load(b, type, to, (int)bytes);
  ir_store(b, ir_op2(b, "arith.addf", before, from), to, (int)bytes, false);
}

void emit_collect(ir *b, const cpu_target *target, bool is_f64, int64_t count, const char *name) {
  int64_t bytes = is_f64 ? 8 : 4, width = target->lanes / (is_f64 ? 2 : 1), whole = count / width;
  MlirType types[] = {b->ptr, b->ptr}, element = is_f64 ? b->f64 : b->f32;
  ir_value arguments[2];
  ir_function(b, name, true, (MlirType){NULL}, 2, types, arguments);
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, whole));
  add_numbers(b, arguments, mul(b, loop.index, i64(b, width * bytes)), (int)width, element, bytes);
  ir_end_for(b, loop);
  for (int64_t i = whole * width; i < count; i++) add_numbers(b, arguments, i64(b, i * bytes), 1, element, bytes);
  ir_return(b);
}
