/* cpu/torus: see cpu/torus.h. */
#include "cpu/torus.h"

#include "cpu/exponential.h"
#include "cpu/product.h"
#include "mlir/math.h"

static const double QUARTER_TURNS_PER_RADIAN = 0.636619772367581343076;

/* The other component of each plane; of an odd block's last one itself. */
static ir_value partners(ir *b, ir_value v, int first, int size) {
  int64_t mask[64];
  int lanes = ir_lanes(v);
  for (int i = 0; i < lanes; i++) mask[i] = (first + i) / 2 * 2 + 1 < size ? i ^ 1 : i;
  return ir_shuffle(b, v, v, lanes, mask);
}

void emit_turns(ir *b, const cpu_target *target, int size, const char *name, double amplitude) {
  MlirType types[] = {b->ptr, b->ptr, b->ptr}, phase_type = ir_vector(b, target->lanes, b->f64),
           vector = ir_vector(b, target->lanes, b->f32);
  ir_value arguments[3];
  ir_function(b, name, true, (MlirType){NULL}, 3, types, arguments);
  int padded = (size + target->lanes - 1) / target->lanes * target->lanes;
  ir_value angle = ir_load(b, b->f64, arguments[1], 8);
  angle = ir_broadcast(b, phase_type, ir_op2(b, "arith.mulf", angle, ir_float(b, b->f64, QUARTER_TURNS_PER_RADIAN)));
  for (int at = 0; at < size; at += target->lanes) {
    ir_value lambda = ir_load(b, phase_type, ir_offset_const(b, arguments[0], (int64_t)at * 8), 8);
    math_phase phase = {.factor = {ir_op2(b, "arith.mulf", angle, lambda)}};
    ir_value scale = ir_float(b, vector, amplitude);
    ir_value c = ir_op2(b, "arith.mulf", math_cosq_f32(b, phase), scale),
             s = ir_op2(b, "arith.mulf", math_sinq_f32(b, phase), scale);
    ir_loop columns = ir_for(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, size));
    ir_value from =
        ir_offset(b, arguments[0], ir_op2(b, "arith.muli", columns.index, ir_int(b, b->i64, (int64_t)padded * 4)));
    ir_value to =
        ir_offset(b, arguments[2], ir_op2(b, "arith.muli", columns.index, ir_int(b, b->i64, (int64_t)size * 4)));
    ir_value v = ir_load(b, vector, ir_offset_const(b, from, (int64_t)padded * 8 + (int64_t)at * 4), 4);
    ir_value straight = ir_op2(b, "arith.mulf", c, v);
    ir_value turned = emit_multiply_add(b, target, s, partners(b, v, at, size), straight);
    emit_store_lanes(b, turned, size - at < target->lanes ? size - at : target->lanes,
                     ir_offset_const(b, to, (int64_t)at * 4), 4);
    ir_end_for(b, columns);
  }
  ir_return(b);
}
