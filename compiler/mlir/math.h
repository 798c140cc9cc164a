/* mlir/math: elementary functions as vector code of our own, because math.sin and its like
 * become calls of a scalar libm, and a kernel object calls nothing.
 *
 * All work on scalars or vectors of float64 (ir_value x), on any target.
 */
#pragma once

#include "mlir/ir.h"

/* A phase in quarter turns: factor[0], or factor[0] * factor[1] where is_product (vectors on a target with
 * fused multiply-add only), which then is never rounded: the reduction takes it in two fused operations. */
typedef struct math_phase {
  bool is_product;
  ir_value factor[2];
} math_phase;

/* sin(pi/2 x) and cos(pi/2 x), x in quarter turns. The nearest integer is taken off exactly in
 * float64, so the reduction adds no error for any |x| < 2^51; beyond, they are those of some angle. */
ir_value math_sinq_f32(ir *b,
                       math_phase x); /* result float32, error < 1.25 * 2^-24; 1.5 * 2^-24 without fused multiply-add */
ir_value math_cosq_f32(ir *b, math_phase x);
/* What is left after a reduction: sin(pi/2 (fraction + quadrant + quarter_turns)) for float32 |fraction| <= 1/2
 * and an int32 quadrant; quarter_turns 1 makes it the cosine. */
ir_value math_turn_f32(ir *b, ir_value fraction, ir_value quadrant, int quarter_turns);
ir_value math_sinq_f64(ir *b, math_phase x); /* result float64, error < 2^-50 */
ir_value math_cosq_f64(ir *b, math_phase x);
/* sin(pi (x - n)) and cos(pi (x - n)) with the integer n next to x, x in half turns: both change their sign together
 * where a sine and a cosine would, so that quadrants need not be told apart. float64, error < 2^-28 (of the cosine
 * 2^-31). */
ir_value math_sin_folded_f64(ir *b, math_phase x);
ir_value math_cos_folded_f64(ir *b, math_phase x);
ir_value math_floor_f64(ir *b, ir_value x); /* |x| < 2^51, as positions are */
ir_value math_exp_f64(ir *b, ir_value x); /* relative error < 2^-48; overflows to infinity, underflows to 0 */
ir_value math_log_f64(ir *b, ir_value x); /* relative error < 2^-45 for normal x > 0; NaN for x < 0 */
ir_value math_log1p_f64(ir *b, ir_value x); /* log(1 + x); relative error < 2^-44 for x > -1/2 */
ir_value math_tanh_f64(ir *b, ir_value x); /* relative error < 2^-45 */
/* The angle of (x, y) from (1, 0), in radians: absolute error < 2^-49, relative error of small ones < 2^-45; of (0, 0):
 * 0. Zeros have no sign. */
ir_value math_atan2_f64(ir *b, ir_value y, ir_value x);
/* float32 throughout, on any number of lanes. */
ir_value math_decay_f32(ir *b, ir_value x, bool has_fma); /* the same for x <= 0, a little faster; of NaN any number */
ir_value math_exp_f32(ir *b, ir_value x,
                      bool has_fma); /* relative error < 2^-21; infinity above x = 88, e^-87 below -87; NaN stays */
ir_value math_tanh_f32(ir *b, ir_value x, bool has_fma); /* relative error < 2^-21 */
ir_value math_log1p_unit_f32(ir *b, ir_value x); /* log(1 + x) for 0 <= x <= 1: relative error < 2^-21 */

/* Conversions that no instruction of the target does; x float32, bits int16 with x's lanes. Round to
 * nearest even, NaN stays NaN. */
ir_value math_bf16_from_f32(ir *b, ir_value x);
/* i32, of which it is the upper half; the lower one is anything. nan_is_cut: NaN are quiet and have a lower half of
 * zeros, as what arithmetic makes of bfloat16 and of numbers of math_cut_nan. */
ir_value math_bf16_above_f32(ir *b, ir_value x, bool nan_is_cut);
/* x; NaN quiet, and without what bfloat16 has not of them. */
ir_value math_cut_nan(ir *b, ir_value x);
ir_value math_f32_from_bf16(ir *b, ir_value bits);
ir_value math_f16_from_f32(ir *b, ir_value x);
ir_value math_f32_from_f16(ir *b, ir_value bits);
