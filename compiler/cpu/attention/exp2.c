/* cpu/attention/exp2: 2^x for x <= 0, float32, as the softmax needs it; see cpu/attention/attention.h.
 *
 * x = n + f with |f| <= 1/2; 2^f by a polynomial (a minimax fit with p(0) = 1, relative error 2^-23), 2^n by its
 * exponent. The factor is 2^(n - HEADROOM), whose exponent the rounding leaves in the last bits, and the polynomial
 * has HEADROOM more, exactly. Below n = HEADROOM - 126, where the factor would be denormal, its exponent is 0 and the
 * result exactly 0: a weight of less than 2^-100.5 of the largest is none. What is left, times any number down to 2^-25
 * (any float16 but 0), is a normal number: a multiply-add with a denormal operand takes some processors 150 cycles. NaN
 * of any payload stays NaN, which is why 2^n is a factor and not added to the exponent.
 */
#include "cpu/attention/attention.h"

enum { HEADROOM = 26, BIAS = 127 - HEADROOM };

ir_value emit_exp2(ir *b, ir_value x) {
  static const double c[] = {
      1.0, 0.6931470036506653, 0.24022242426872253, 0.05550733581185341, 0.009671512991189957, 0.0013264726148918271};
  MlirType type = ir_type(x), integers = ir_like(b, x, b->i32);
  ir_value least = ir_float(b, type, -BIAS), rounder = ir_float(b, type, 0x1.8p23 + BIAS);
  x = ir_select(b, ir_compare_float(b, "olt", x, least), least, x);
  ir_value shifted = ir_op2(b, "arith.addf", x, rounder);
  ir_value f = ir_op2(b, "arith.subf", x, ir_op2(b, "arith.subf", shifted, rounder));
  ir_value sum = ir_float(b, type, c[5] * (1 << HEADROOM));
  for (int i = 4; i >= 0; i--) sum = attention_multiply_add(b, sum, f, ir_float(b, type, c[i] * (1 << HEADROOM)));
  ir_value power = ir_op2(b, "arith.shli", ir_cast(b, "arith.bitcast", shifted, b->i32), ir_int(b, integers, 23));
  return ir_op2(b, "arith.mulf", sum, ir_cast(b, "arith.bitcast", power, b->f32));
}
