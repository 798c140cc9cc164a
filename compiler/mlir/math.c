/* mlir/math: polynomials and bit tricks; see mlir/math.h.
 *
 * Coefficients of the float32 polynomials are minimax fits (iteratively reweighted
 * least squares) of sin(pi/2 f) and cos(pi/2 f) on |f| <= 1/2, and so are those of the folded sine and cosine, of
 * sin(pi f) and cos(pi f); the others of float64 are Taylor's, long enough for the interval.
 */
#include "mlir/math.h"

#include "mlir/arith.h"

#include <math.h>

/* Adding it to |x| < 2^51 rounds to the nearest integer and leaves that integer in the low bits. */
static const double ROUNDER = 0x1.8p52;

static ir_value splat_f(ir *b, ir_value like, double value) { return ir_float(b, ir_type(like), value); }
static ir_value splat_i(ir *b, ir_value like, int64_t value) { return ir_int(b, ir_type(like), value); }
static ir_value iadd(ir *b, ir_value x, int64_t y) { return ir_op2(b, "arith.addi", x, splat_i(b, x, y)); }
static ir_value iand(ir *b, ir_value x, int64_t y) { return ir_op2(b, "arith.andi", x, splat_i(b, x, y)); }
static ir_value shl(ir *b, ir_value x, int64_t y) { return ir_op2(b, "arith.shli", x, splat_i(b, x, y)); }
static ir_value shr(ir *b, ir_value x, int64_t y) { return ir_op2(b, "arith.shrui", x, splat_i(b, x, y)); }

/* x y + z: fused where the target decides, or always (scalars of ir.exact, which come out alike on all machines). */
static ir_value multiply_add(ir *b, ir_value x, ir_value y, ir_value z) {
  return b->exact ? ir_fma(b, x, y, z) : add(b, mul(b, x, y), z);
}

/* c[0] + x (c[1] + x (...)) */
static ir_value polynomial(ir *b, ir_value x, const double *c, int count) {
  ir_value sum = splat_f(b, x, c[count - 1]);
  for (int i = count - 2; i >= 0; i--) sum = multiply_add(b, sum, x, splat_f(b, x, c[i]));
  return sum;
}

/* x = n + f, |f| <= 1/2; shifted is n + ROUNDER, whose low bits are n. */
typedef struct reduction {
  ir_value fraction, shifted;
} reduction;

static reduction reduce(ir *b, math_phase phase) {
  ir_value x = phase.factor[0], y = phase.factor[1];
  ir_value rounder = splat_f(b, x, ROUNDER);
  ir_value shifted = phase.is_product ? ir_fma(b, x, y, rounder) : add(b, x, rounder);
  ir_value nearest = sub(b, shifted, rounder);
  ir_value fraction = phase.is_product ? ir_fma(b, x, y, ir_op1(b, "arith.negf", nearest)) : sub(b, x, nearest);
  return (reduction){fraction, shifted};
}

/* Beyond 2^51 a phase has no digits behind the point, and what is left of a reduction is rounding, of any size. Kept
 * within its half it is some angle's, so that sine and cosine are still of one length. NaN stays. */
static ir_value at_most_half(ir *b, ir_value fraction) {
  ir_value low = splat_f(b, fraction, -0.5), high = splat_f(b, fraction, 0.5);
  fraction = ir_select(b, ir_compare_float(b, "olt", fraction, low), low, fraction);
  return ir_select(b, ir_compare_float(b, "ogt", fraction, high), high, fraction);
}

/* The integer of a reduction as int32 lanes: the low half of each float64, taken by one shuffle of two
 * registers where a conversion would need three operations. */
static ir_value low_bits(ir *b, ir_value shifted) {
  int lanes = ir_lanes(shifted);
  if (lanes == 0) return ir_cast(b, "arith.trunci", ir_cast(b, "arith.bitcast", shifted, b->i64), b->i32);
  ir_value halves = ir_bitcast_lanes(b, shifted, ir_vector(b, lanes * 2, b->i32));
  int64_t mask[64];
  for (int i = 0; i < lanes; i++) mask[i] = 2 * i;
  return ir_shuffle(b, halves, halves, lanes, mask);
}

/* Picks sine or cosine by the quadrant's low bit and flips the sign by its next. */
static ir_value by_quadrant(ir *b, ir_value quadrant, ir_value even, ir_value odd, int sign_bit) {
  ir_value is_odd = ir_compare_int(b, "ne", iand(b, quadrant, 1), splat_i(b, quadrant, 0));
  ir_value value = ir_cast(b, "arith.bitcast", ir_select(b, is_odd, odd, even), sign_bit == 31 ? b->i32 : b->i64);
  ir_value sign = shl(b, iand(b, quadrant, 2), sign_bit - 1);
  return ir_cast(b, "arith.bitcast", ir_op2(b, "arith.xori", value, sign), sign_bit == 31 ? b->f32 : b->f64);
}

ir_value math_turn_f32(ir *b, ir_value f, ir_value quadrant, int quarter_turns) {
  /* pi/2 as a float32 and what that leaves: the leading term is then exact to far below an ulp. */
  static const double high = 1.5707963705062866, low = -4.371139006309477e-08;
  static const double sine[] = {low, -0.6459634774822325, 0.07967967137586274, -0.004600198280269498};
  static const double cosine[] = {1.0, -1.2337005433534842, 0.2536692440299347, -0.020860288508130834,
                                  0.000904021670403158};
  ir_value square = mul(b, f, f);
  ir_value small = mul(b, f, polynomial(b, square, sine, 4)), s = multiply_add(b, f, splat_f(b, f, high), small);
  ir_value c = polynomial(b, square, cosine, 5);
  return by_quadrant(b, quarter_turns ? iadd(b, quadrant, quarter_turns) : quadrant, s, c, 31);
}

static ir_value sinq_f32(ir *b, math_phase x, int quarter_turns) {
  reduction r = reduce(b, x);
  ir_value bits = low_bits(b, r.shifted);
  ir_value fraction = at_most_half(b, ir_cast(b, "arith.truncf", r.fraction, b->f32));
  return math_turn_f32(b, fraction, bits, quarter_turns);
}

ir_value math_sinq_f32(ir *b, math_phase x) { return sinq_f32(b, x, 0); }
ir_value math_cosq_f32(ir *b, math_phase x) { return sinq_f32(b, x, 1); }

static ir_value sinq_f64(ir *b, math_phase x, int quarter_turns) {
  const double h = 1.57079632679489661923, q = h * h;
  double sine[8], cosine[9], term = h;
  for (int k = 0; k < 8; k++, term *= -q / ((2 * k) * (2 * k + 1))) sine[k] = term;
  term = 1;
  for (int k = 0; k < 9; k++, term *= -q / ((2 * k - 1) * (2 * k))) cosine[k] = term;
  reduction r = reduce(b, x);
  ir_value quadrant = ir_cast(b, "arith.bitcast", r.shifted, b->i64);
  ir_value fraction = at_most_half(b, r.fraction), square = mul(b, fraction, fraction);
  ir_value s = mul(b, fraction, polynomial(b, square, sine, 8)), c = polynomial(b, square, cosine, 9);
  return by_quadrant(b, quarter_turns ? iadd(b, quadrant, quarter_turns) : quadrant, s, c, 63);
}

ir_value math_sinq_f64(ir *b, math_phase x) { return sinq_f64(b, x, 0); }
ir_value math_cosq_f64(ir *b, math_phase x) { return sinq_f64(b, x, 1); }

ir_value math_sin_folded_f64(ir *b, math_phase x) {
  static const double series[] = {3.1415925800444833, -5.167706878910712, 2.5500313770164156, -0.5980451725106194,
                                  0.07722012572797149};
  ir_value f = at_most_half(b, reduce(b, x).fraction);
  return mul(b, f, polynomial(b, mul(b, f, f), series, 5));
}

ir_value math_cos_folded_f64(ir *b, math_phase x) {
  static const double series[] = {0.99999999978066,    -4.934802137228911, 4.058709164351962,
                                  -1.3352120567237669, 0.2349375590661747, -0.02439671660860726};
  ir_value f = at_most_half(b, reduce(b, x).fraction);
  return polynomial(b, mul(b, f, f), series, 6);
}

/* Rounding to an integer by adding and taking away 1.5 2^52, then down by one where that rounded up:
 * no instruction beyond SSE2 and no library call. */
ir_value math_floor_f64(ir *b, ir_value x) {
  ir_value rounder = splat_f(b, x, ROUNDER), one = splat_f(b, x, 1);
  ir_value nearest = sub(b, add(b, x, rounder), rounder);
  return ir_select(b, ir_compare_float(b, "ogt", nearest, x), sub(b, nearest, one), nearest);
}

/* 2^n by the exponent field in two halves, so that results near the ends of the range stay right. */
static ir_value scale_by_power(ir *b, ir_value x, ir_value n) {
  ir_value half = ir_op2(b, "arith.shrsi", n, splat_i(b, n, 1));
  ir_value rest = ir_op2(b, "arith.subi", n, half);
  ir_value powers[2] = {half, rest};
  for (int i = 0; i < 2; i++) x = mul(b, x, ir_cast(b, "arith.bitcast", shl(b, iadd(b, powers[i], 1023), 52), b->f64));
  return x;
}

ir_value math_exp_f64(ir *b, ir_value x) {
  static const double log2e = 1.44269504088896340736, ln2_high = 0x1.62e42fefa3800p-1, ln2_low = 0x1.ef35793c76730p-45;
  double series[13], term = 1;
  for (int k = 0; k < 13; k++, term /= k) series[k] = term;
  /* Beyond these bounds the result is 0 or infinity; NaN fails both comparisons and stays. */
  ir_value low = splat_f(b, x, -800), high = splat_f(b, x, 800);
  x = ir_select(b, ir_compare_float(b, "olt", x, low), low, x);
  x = ir_select(b, ir_compare_float(b, "ogt", x, high), high, x);
  ir_value shifted = add(b, mul(b, x, splat_f(b, x, log2e)), splat_f(b, x, ROUNDER));
  ir_value n = sub(b, shifted, splat_f(b, x, ROUNDER));
  ir_value r = sub(b, sub(b, x, mul(b, n, splat_f(b, x, ln2_high))), mul(b, n, splat_f(b, x, ln2_low)));
  ir_value bits = ir_cast(b, "arith.bitcast", shifted, b->i64);
  ir_value power = ir_op2(b, "arith.shrsi", shl(b, bits, 13), splat_i(b, bits, 13));
  return scale_by_power(b, polynomial(b, r, series, 13), power);
}

ir_value math_log_f64(ir *b, ir_value x) {
  /* x = 2^e m, m in [sqrt 1/2, sqrt 2): log m = 2 atanh((m-1)/(m+1)). */
  double series[11];
  for (int k = 0; k < 11; k++) series[k] = 2.0 / (2 * k + 1);
  ir_value bits = ir_cast(b, "arith.bitcast", x, b->i64);
  ir_value shifted = ir_op2(b, "arith.subi", bits, splat_i(b, bits, 0x3fe6a09e667f3bcd));
  ir_value exponent = ir_op2(b, "arith.shrsi", shifted, splat_i(b, bits, 52));
  ir_value mantissa = ir_cast(b, "arith.bitcast", ir_op2(b, "arith.subi", bits, shl(b, exponent, 52)), b->f64);
  ir_value one = splat_f(b, x, 1);
  ir_value z = ir_op2(b, "arith.divf", sub(b, mantissa, one), add(b, mantissa, one));
  ir_value m = mul(b, z, polynomial(b, mul(b, z, z), series, 11));
  ir_value e = ir_cast(b, "arith.sitofp", exponent, b->f64);
  ir_value result = add(b, m, mul(b, e, splat_f(b, x, 0.693147180559945309417)));
  ir_value zero = splat_f(b, x, 0);
  result = ir_select(b, ir_compare_float(b, "oeq", x, zero), splat_f(b, x, -__builtin_inf()), result);
  result = ir_select(b, ir_compare_float(b, "oeq", x, splat_f(b, x, __builtin_inf())), x, result);
  return ir_select(b, ir_compare_float(b, "uge", x, zero), ir_select(b, ir_compare_float(b, "uno", x, x), x, result),
                   splat_f(b, x, __builtin_nan("")));
}

ir_value math_log1p_f64(ir *b, ir_value x) {
  /* log u for the rounded u = 1 + x, and what the rounding took from u: its share of the logarithm. */
  ir_value one = splat_f(b, x, 1), u = add(b, one, x);
  ir_value correction = ir_op2(b, "arith.divf", sub(b, x, sub(b, u, one)), u);
  ir_value near = ir_compare_float(b, "olt", ir_op1(b, "math.absf", x), splat_f(b, x, 0x1p53));
  ir_value usable = ir_op2(b, "arith.andi", near, ir_compare_float(b, "ogt", u, splat_f(b, x, 0)));
  return add(b, math_log_f64(b, u), ir_select(b, usable, correction, splat_f(b, x, 0)));
}

/* tanh(x), |x| = size, of what it is below a bound, and of e^(-2 size). */
static ir_value tanh_of(ir *b, ir_value x, ir_value size, ir_value near, ir_value decay, double bound) {
  ir_value one = splat_f(b, x, 1), far = ir_op2(b, "arith.divf", sub(b, one, decay), add(b, one, decay));
  ir_value is_negative = ir_compare_float(b, "olt", x, splat_f(b, x, 0));
  far = ir_select(b, is_negative, ir_op1(b, "arith.negf", far), far);
  return ir_select(b, ir_compare_float(b, "olt", size, splat_f(b, x, bound)), near, far);
}

/* Below 1/4 its series, (2n + 1) c_n = -sum of c_i c_j for i + j = n - 1 (tanh' = 1 - tanh^2); beyond, what an
 * exponential that does not overflow gives. */
ir_value math_tanh_f64(ir *b, ir_value x) {
  double series[11] = {1};
  for (int n = 1; n < 11; n++) {
    for (int i = 0; i < n; i++) series[n] -= series[i] * series[n - 1 - i];
    series[n] /= 2 * n + 1;
  }
  ir_value size = ir_op1(b, "math.absf", x);
  ir_value near = mul(b, x, polynomial(b, mul(b, x, x), series, 11));
  ir_value decay = math_exp_f64(b, mul(b, size, splat_f(b, x, -2)));
  return tanh_of(b, x, size, near, decay, 0.25);
}

ir_value math_atan2_f64(ir *b, ir_value y, ir_value x) {
  static const double pi = 3.14159265358979323846, tan_8th = 0.41421356237309504880 /* tan(pi/8) */,
                      tan_16th = 0.19891236737965800691, tan_3_16th = 0.66817863791929891999;
  double series[12];
  for (int k = 0; k < 12; k++) series[k] = (k % 2 ? -1.0 : 1.0) / (2 * k + 1);
  ir_value zero = splat_f(b, x, 0), abs_x = ir_op1(b, "math.absf", x), abs_y = ir_op1(b, "math.absf", y);
  ir_value is_steep = ir_compare_float(b, "ogt", abs_y, abs_x);
  ir_value small = ir_select(b, is_steep, abs_x, abs_y), large = ir_select(b, is_steep, abs_y, abs_x);
  /* Beside an infinity what is finite is 0, two of them are alike, and NaN stays. */
  ir_value infinity = splat_f(b, x, INFINITY), one = splat_f(b, x, 1);
  ir_value is_infinite = ir_compare_float(b, "oeq", large, infinity);
  ir_value are_alike = ir_compare_float(b, "oeq", small, infinity), none = mul(b, small, zero);
  ir_value beside = ir_select(b, are_alike, one, none);
  small = ir_select(b, is_infinite, beside, small);
  large = ir_select(b, is_infinite, one, large);
  /* Taken off: 0, pi/8 or pi/4, whose tangent is c; tan of what is left is (small - c large) / (large + c small). */
  ir_value beyond_16th = ir_compare_float(b, "ogt", small, mul(b, large, splat_f(b, x, tan_16th)));
  ir_value beyond_3_16th = ir_compare_float(b, "ogt", small, mul(b, large, splat_f(b, x, tan_3_16th)));
  ir_value c = ir_select(b, beyond_16th, splat_f(b, x, tan_8th), zero);
  c = ir_select(b, beyond_3_16th, splat_f(b, x, 1), c);
  ir_value taken = ir_select(b, beyond_16th, splat_f(b, x, pi / 8), zero);
  taken = ir_select(b, beyond_3_16th, splat_f(b, x, pi / 4), taken);
  ir_value divisor = add(b, large, mul(b, c, small));
  divisor = ir_select(b, ir_compare_float(b, "oeq", large, zero), splat_f(b, x, 1), divisor);
  ir_value z = ir_op2(b, "arith.divf", sub(b, small, mul(b, c, large)), divisor);
  ir_value angle = add(b, taken, mul(b, z, polynomial(b, mul(b, z, z), series, 12)));
  angle = ir_select(b, is_steep, sub(b, splat_f(b, x, pi / 2), angle), angle);
  angle = ir_select(b, ir_compare_float(b, "olt", x, zero), sub(b, splat_f(b, x, pi), angle), angle);
  return ir_select(b, ir_compare_float(b, "olt", y, zero), ir_op1(b, "arith.negf", angle), angle);
}

/* ---- float32 ---- */

/* is_decay: x <= 0, so that 2^n can be added to the exponent; else it is a factor, and NaN of any payload stays. */
static ir_value exp_f32(ir *b, ir_value x, bool has_fma, bool is_decay) {
  /* exp r, |r| <= ln 2 / 2: minimax in the relative error, 2^-23.7. */
  static const double series[] = {1.0000000716969775,  0.9999996918070957,   0.49998894413505973,
                                  0.16667575092125814, 0.041915431430687246, 0.008297647892543957};
  static const double rounder = 0x1.8p23, log2e = 1.44269504088896340736, ln2 = 0.693147180559945309417;
  static const double ln2_high = 0.693359375,
                      ln2_low = -2.12194440054690583e-4; /* high: few digits, so that n times it is exact */
  ir_value low = splat_f(b, x, -87);
  x = ir_select(b, ir_compare_float(b, "olt", x, low), low, x);
  ir_value shifted = add(b, mul(b, x, splat_f(b, x, log2e)), splat_f(b, x, rounder)),
           n = sub(b, shifted, splat_f(b, x, rounder));
  /* Where the product is not rounded, ln 2 as a float32 is near enough: |n| <= 126 times 2^-29. */
  ir_value r = has_fma ? ir_fma(b, n, splat_f(b, x, -ln2), x)
                       : sub(b, sub(b, x, mul(b, n, splat_f(b, x, ln2_high))), mul(b, n, splat_f(b, x, ln2_low)));
  ir_value power =
      shl(b, ir_cast(b, "arith.bitcast", shifted, b->i32), 23); /* n from the low bits to the exponent's place */
  ir_value value = polynomial(b, r, series, 6);
  if (is_decay)
    return ir_cast(b, "arith.bitcast", ir_op2(b, "arith.addi", ir_cast(b, "arith.bitcast", value, b->i32), power),
                   b->f32);
  ir_value result = mul(b, value, ir_cast(b, "arith.bitcast", iadd(b, power, 127ll << 23), b->f32));
  return ir_select(b, ir_compare_float(b, "ogt", x, splat_f(b, x, 88)), splat_f(b, x, __builtin_inf()), result);
}

ir_value math_exp_f32(ir *b, ir_value x, bool has_fma) { return exp_f32(b, x, has_fma, false); }
ir_value math_decay_f32(ir *b, ir_value x, bool has_fma) { return exp_f32(b, x, has_fma, true); }

/* As math_tanh_f64. Below 5/8 Cephes' minimax series (tanhf), beyond what an exponential that does not overflow gives.
 */
ir_value math_tanh_f32(ir *b, ir_value x, bool has_fma) {
  static const double series[] = {
      1, -3.33332819422e-1, 1.33314422036e-1, -5.37397155531e-2, 2.06390887954e-2, -5.70498872745e-3};
  ir_value size = ir_op1(b, "math.absf", x);
  ir_value near = mul(b, x, polynomial(b, mul(b, x, x), series, 6));
  ir_value decay = math_exp_f32(b, mul(b, size, splat_f(b, x, -2)), has_fma);
  return tanh_of(b, x, size, near, decay, 0.625);
}

ir_value math_log1p_unit_f32(ir *b, ir_value x) {
  /* log(1 + x) / x on [0, 1]: minimax in the relative error, 2^-22.3. */
  static const double series[] = {0.9999998056665795,   -0.49997405392426736, 0.33275479720463563,
                                  -0.24495462522682593, 0.17745240606865842,  -0.10768170088281595,
                                  0.044089623006057684, -0.008539206053177834};
  return mul(b, x, polynomial(b, x, series, 8));
}

/* ---- 16-bit formats ---- */

ir_value math_f32_from_bf16(ir *b, ir_value bits) {
  ir_value wide = ir_cast(b, "arith.extui", bits, b->i32);
  return ir_cast(b, "arith.bitcast", shl(b, wide, 16), b->f32);
}

ir_value math_bf16_above_f32(ir *b, ir_value x, bool nan_is_cut) {
  ir_value bits = ir_cast(b, "arith.bitcast", x, b->i32);
  ir_value odd = iand(b, shr(b, bits, 16), 1);
  ir_value rounded = ir_op2(b, "arith.addi", bits, iadd(b, odd, 0x7fff));
  if (nan_is_cut) return rounded; /* there is no carry into an exponent of ones */
  ir_value is_nan = ir_compare_float(b, "uno", x, x);
  ir_value quiet = ir_op2(b, "arith.ori", bits, splat_i(b, bits, 0x400000));
  return ir_select(b, is_nan, quiet, rounded);
}

ir_value math_bf16_from_f32(ir *b, ir_value x) {
  return ir_cast(b, "arith.trunci", shr(b, math_bf16_above_f32(b, x, false), 16), b->i16);
}

ir_value math_cut_nan(ir *b, ir_value x) {
  ir_value bits = ir_cast(b, "arith.bitcast", x, b->i32), is_nan = ir_compare_float(b, "uno", x, x);
  ir_value cut = iand(b, ir_op2(b, "arith.ori", bits, splat_i(b, bits, 0x400000)), 0xffff0000);
  return ir_cast(b, "arith.bitcast", ir_select(b, is_nan, cut, bits), b->f32);
}

ir_value math_f32_from_f16(ir *b, ir_value bits) {
  /* Exponent and mantissa moved up, then rescaled by 2^112; the multiplication normalises
   * subnormals, and infinities and NaN get their exponent back by hand. */
  ir_value wide = ir_cast(b, "arith.extui", bits, b->i32);
  ir_value sign = shl(b, iand(b, wide, 0x8000), 16);
  ir_value magnitude = shl(b, iand(b, wide, 0x7fff), 13);
  ir_value scaled =
      mul(b, ir_cast(b, "arith.bitcast", magnitude, b->f32), ir_float(b, ir_like(b, wide, b->f32), 0x1p112));
  ir_value is_special = ir_compare_int(b, "uge", magnitude, splat_i(b, wide, 0x7c00 << 13));
  ir_value special = ir_op2(b, "arith.ori", magnitude, splat_i(b, wide, 0x7f800000));
  ir_value value = ir_select(b, is_special, special, ir_cast(b, "arith.bitcast", scaled, b->i32));
  return ir_cast(b, "arith.bitcast", ir_op2(b, "arith.ori", value, sign), b->f32);
}

ir_value math_f16_from_f32(ir *b, ir_value x) {
  ir_value bits = ir_cast(b, "arith.bitcast", x, b->i32);
  ir_value sign = iand(b, bits, 0x80000000ll), magnitude = iand(b, bits, 0x7fffffff);
  /* Normal results: rebias, round to nearest even in the bits; a carry runs into the exponent, as it should. */
  ir_value odd = iand(b, shr(b, magnitude, 13), 1);
  ir_value rebiased = iadd(b, magnitude, -112ll * (1 << 23));
  ir_value normal = shr(b, ir_op2(b, "arith.addi", iadd(b, rebiased, 0xfff), odd), 13);
  /* Subnormal results: adding 1/2 lines the float's last place up with the half's. */
  ir_value half = ir_float(b, ir_type(x), 0.5);
  ir_value aligned = add(b, ir_cast(b, "arith.bitcast", magnitude, b->f32), half);
  ir_value subnormal = iadd(b, ir_cast(b, "arith.bitcast", aligned, b->i32), -0x3f000000ll);
  ir_value is_small = ir_compare_int(b, "ult", magnitude, splat_i(b, bits, 0x38800000));
  ir_value is_large = ir_compare_int(b, "uge", magnitude, splat_i(b, bits, 0x47800000));
  ir_value is_nan = ir_compare_int(b, "ugt", magnitude, splat_i(b, bits, 0x7f800000));
  ir_value result = ir_select(b, is_small, subnormal, normal);
  result = ir_select(b, is_large, splat_i(b, bits, 0x7c00), result);
  result = ir_select(b, is_nan, splat_i(b, bits, 0x7e00), result);
  result = ir_op2(b, "arith.ori", result, shr(b, sign, 16));
  return ir_cast(b, "arith.trunci", result, b->i16);
}
