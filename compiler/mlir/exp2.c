/* mlir/exp2: see mlir/exp2.h.
 *
 * 2^x: x = n + f with |f| <= 1/2; 2^f by a polynomial (a minimax fit with p(0) = 1, relative error 2^-23), 2^n by its
 * exponent. The factor is 2^(n - HEADROOM), whose exponent the rounding leaves in the last bits, and the polynomial
 * has HEADROOM more, exactly. Below n = HEADROOM - 126, where the factor would be denormal, its exponent is 0 and the
 * result exactly 0: a weight of less than 2^-100.5 of the largest is none. What is left, times any number down to 2^-25
 * (any float16 but 0), is a normal number: a multiply-add with a denormal operand takes some processors 150 cycles. NaN
 * of any payload stays NaN, which is why 2^n is a factor and not added to the exponent.
 */
#include "mlir/exp2.h"

#include "mlir/arith.h"

enum { HEADROOM = 26, BIAS = 127 - HEADROOM };

ir_value emit_exp2(ir *b, ir_value x) {
  static const double c[] = {
      1.0, 0.6931470036506653, 0.24022242426872253, 0.05550733581185341, 0.009671512991189957, 0.0013264726148918271};
  MlirType type = ir_type(x), integers = ir_like(b, x, b->i32);
  ir_value least = ir_float(b, type, -BIAS), rounder = ir_float(b, type, 0x1.8p23 + BIAS);
  x = ir_select(b, ir_compare_float(b, "olt", x, least), least, x);
  ir_value shifted = add(b, x, rounder);
  ir_value f = sub(b, x, sub(b, shifted, rounder));
  ir_value sum = ir_float(b, type, c[5] * (1 << HEADROOM));
  for (int i = 4; i >= 0; i--) sum = add(b, mul(b, sum, f), ir_float(b, type, c[i] * (1 << HEADROOM)));
  ir_value power = ir_op2(b, "arith.shli", ir_cast(b, "arith.bitcast", shifted, b->i32), ir_int(b, integers, 23));
  return mul(b, sum, ir_cast(b, "arith.bitcast", power, b->f32));
}

ir_value emit_exp2_fast(ir *b, ir_value x) {
  return b->gpu && b->gpu->exp2 ? ir_intrinsic(b, b->gpu->exp2, b->f32, 1, &x) : emit_exp2(b, x);
}

static ir_value like(ir *b, ir_value x, int64_t value) { return ir_int(b, ir_type(x), value); }

ir_value emit_exp2_integer(ir *b, ir_value n, bool is_f64) {
  ir_value bits = ir_op2(b, "arith.shli", add(b, n, like(b, n, is_f64 ? 1023 : 127)), like(b, n, is_f64 ? 52 : 23));
  return ir_cast(b, "arith.bitcast", bits, is_f64 ? b->f64 : b->f32);
}

ir_value emit_exponent(ir *b, ir_value x) {
  bool is_f64 = mlirTypeEqual(ir_type(x), ir_like(b, x, b->f64));
  ir_value bits = ir_cast(b, "arith.bitcast", x, is_f64 ? b->i64 : b->i32);
  ir_value field = ir_op2(b, "arith.shrui", bits, like(b, bits, is_f64 ? 52 : 23));
  ir_value is_special = ir_compare_int(b, "sge", field, like(b, field, is_f64 ? 2047 : 255));
  return sub(b, ir_select(b, is_special, like(b, field, 0), field), like(b, field, is_f64 ? 1023 : 127));
}
