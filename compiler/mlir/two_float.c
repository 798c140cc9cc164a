/* mlir/two_float: error-free transformations; see mlir/two_float.h. */
#include "mlir/two_float.h"
#include "mlir/arith.h"

#include "mlir/math.h"

#include <math.h>

/* ---- float32 operations ---- */

static ir_value divide(ir *b, ir_value x, ir_value y) { return ir_op2(b, "arith.divf", x, y); }
static ir_value neg(ir *b, ir_value x) { return ir_op1(b, "arith.negf", x); }
static ir_value nearest(ir *b, ir_value x) { return ir_op1(b, "math.roundeven", x); }
static ir_value number(ir *b, double value) { return ir_float(b, b->f32, value); }
static ir_value bits(ir *b, int64_t value) { return ir_int(b, b->i32, value); }
static ir_value as_float(ir *b, ir_value x) { return ir_cast(b, "arith.bitcast", x, b->f32); }
static ir_value as_bits(ir *b, ir_value x) { return ir_cast(b, "arith.bitcast", x, b->i32); }
static ir_value integer(ir *b, const char *name, ir_value x, int64_t y) { return ir_op2(b, name, x, bits(b, y)); }

static bool whole(two_float x) { return x.lo.ptr != NULL; }
static ir_value low(ir *b, two_float x) { return whole(x) ? x.lo : number(b, 0); }

/* x + y = hi + lo exactly. */
static two_float two_sum(ir *b, ir_value x, ir_value y) {
  ir_value sum = add(b, x, y), from_y = sub(b, sum, x), from_x = sub(b, sum, from_y);
  return (two_float){.hi = sum, .lo = add(b, sub(b, x, from_x), sub(b, y, from_y))};
}

/* The exact sum where |x| >= |y| or x = 0. */
static two_float fast_two_sum(ir *b, ir_value x, ir_value y) {
  ir_value sum = add(b, x, y);
  return (two_float){.hi = sum, .lo = sub(b, y, sub(b, sum, x))};
}

static two_float two_product(ir *b, ir_value x, ir_value y) {
  ir_value product = mul(b, x, y);
  return (two_float){.hi = product, .lo = ir_fma(b, x, y, neg(b, product))};
}

/* ---- values ---- */

void two_float_split(double value, float *hi, float *lo) {
  const double least = 0x1p-100;
  if (value != 0 && fabs(value) < least) value = copysign(least, value);
  *hi = (float)value;
  *lo = isfinite(*hi) ? (float)(value - (double)*hi) : 0;
}

two_float two_float_const(ir *b, double value) {
  float hi, lo;
  two_float_split(value, &hi, &lo);
  return (two_float){.hi = number(b, hi), .lo = lo == 0 ? (ir_value){NULL} : number(b, lo)};
}

two_float two_float_f32(ir_value x) { return (two_float){.hi = x}; }
two_float two_float_load(ir *b, ir_value at) {
  ir_value both = ir_load(b, ir_vector(b, 2, b->f32), at, TWO_FLOAT_BYTES);
  return (two_float){.hi = ir_extract(b, both, 0), .lo = ir_extract(b, both, 1)};
}

void(two_float_store)(ir *b, two_float x, ir_value at) {
  ir_value both[2] = {x.hi, x.lo.ptr ? x.lo : ir_float(b, b->f32, 0)};
  ir_store(b, ir_elements(b, ir_vector(b, 2, b->f32), 2, both), at, TWO_FLOAT_BYTES, false);
}

ir_value two_float_narrow(ir *b, two_float x) { return x.is_loose && whole(x) ? add(b, x.hi, x.lo) : x.hi; }

/* ---- loops ---- */

static void split(ir *b, int count, const two_float *x, ir_value *values) {
  for (int i = 0; i < count; i++) {
    values[2 * i] = x[i].hi;
    values[2 * i + 1] = x[i].lo.ptr ? x[i].lo : ir_float(b, b->f32, 0);
  }
}

static void join(int count, const ir_value *values, two_float *x) {
  for (int i = 0; i < count; i++) x[i] = (two_float){.hi = values[2 * i], .lo = values[2 * i + 1]};
}

ir_loop(two_float_for)(ir *b, ir_value begin, ir_value end, int count, two_float *x) {
  ir_value values[IR_MAX_RESULTS] = {{NULL}};
  split(b, count, x, values);
  ir_loop loop = ir_for_with(b, begin, end, 2 * count, values, values);
  join(count, values, x);
  return loop;
}

void two_float_end_for(ir *b, ir_loop loop, int count, two_float *x) {
  ir_value values[IR_MAX_RESULTS] = {{NULL}};
  split(b, count, x, values);
  ir_end_for_with(b, loop, 2 * count, values, values);
  join(count, values, x);
}

/* ---- arithmetic ---- */

two_float(two_float_add)(ir *b, two_float x, two_float y) {
  two_float s = two_sum(b, x.hi, y.hi);
  if (!whole(x) && !whole(y)) return s;
  if (!whole(x) || !whole(y)) return fast_two_sum(b, s.hi, add(b, s.lo, whole(x) ? x.lo : y.lo));
  two_float t = two_sum(b, x.lo, y.lo);
  two_float v = fast_two_sum(b, s.hi, add(b, s.lo, t.hi));
  return fast_two_sum(b, v.hi, add(b, t.lo, v.lo));
}

two_float two_float_neg(ir *b, two_float x) {
  return (two_float){neg(b, x.hi), whole(x) ? neg(b, x.lo) : x.lo, x.is_loose};
}
two_float(two_float_sub)(ir *b, two_float x, two_float y) { return two_float_add(b, x, two_float_neg(b, y)); }

two_float(two_float_mul)(ir *b, two_float x, two_float y) {
  two_float p = two_product(b, x.hi, y.hi);
  if (whole(x) && whole(y)) p.lo = ir_fma(b, x.lo, y.lo, p.lo);
  if (whole(x)) p.lo = ir_fma(b, x.lo, y.hi, p.lo);
  if (whole(y)) p.lo = ir_fma(b, x.hi, y.lo, p.lo);
  return whole(x) || whole(y) ? fast_two_sum(b, p.hi, p.lo) : p;
}

two_float two_float_add_loosely(ir *b, two_float x, two_float y) {
  two_float s = two_sum(b, x.hi, y.hi);
  if (whole(x)) s.lo = add(b, s.lo, x.lo);
  if (whole(y)) s.lo = add(b, s.lo, y.lo);
  s.is_loose = true;
  return s;
}

two_float two_float_mul_loosely(ir *b, two_float x, two_float y) {
  two_float p = two_product(b, x.hi, y.hi);
  if (whole(x)) p.lo = ir_fma(b, x.lo, y.hi, p.lo);
  if (whole(y)) p.lo = ir_fma(b, x.hi, y.lo, p.lo);
  p.is_loose = true;
  return p;
}

two_float(two_float_div)(ir *b, two_float x, two_float y) {
  ir_value inverse = divide(b, number(b, 1), y.hi);
  ir_value quotient = mul(b, x.hi, inverse);
  two_float back = two_product(b, quotient, y.hi);
  ir_value rest = sub(b, sub(b, x.hi, back.hi), back.lo);
  if (whole(x)) rest = add(b, rest, x.lo);
  if (whole(y)) rest = ir_fma(b, neg(b, quotient), y.lo, rest);
  /* Divided, not multiplied by the inverse: a quotient that is whole must come out whole, or floor() misses it. */
  return fast_two_sum(b, quotient, divide(b, rest, y.hi));
}

two_float two_float_abs(ir *b, two_float x) {
  ir_value hi = ir_op1(b, "math.absf", x.hi); /* of -0 too */
  if (!whole(x)) return two_float_f32(hi);
  ir_value is_negative = ir_compare_float(b, "olt", x.hi, number(b, 0));
  return (two_float){hi, ir_select(b, is_negative, neg(b, x.lo), x.lo), x.is_loose};
}

two_float two_float_sqrt(ir *b, two_float x) {
  ir_value root = ir_op1(b, "math.sqrt", x.hi), zero = number(b, 0);
  ir_value rest = ir_fma(b, neg(b, root), root, x.hi);
  if (whole(x)) rest = add(b, rest, x.lo);
  ir_value correction = mul(b, rest, divide(b, number(b, 0.5), root));
  correction = ir_select(b, ir_compare_float(b, "oeq", root, zero), zero, correction); /* 0/0 */
  return fast_two_sum(b, root, correction);
}

two_float two_float_floor(ir *b, two_float x) {
  ir_value hi = ir_op1(b, "math.floor", x.hi);
  if (!whole(x)) return two_float_f32(hi);
  ir_value lo = ir_select(b, ir_compare_float(b, "oeq", hi, x.hi), ir_op1(b, "math.floor", x.lo), number(b, 0));
  return fast_two_sum(b, hi, lo);
}

ir_value two_float_less(ir *b, two_float x, two_float y) {
  ir_value less = ir_compare_float(b, "olt", x.hi, y.hi);
  if (!whole(x) && !whole(y)) return less;
  ir_value tie =
      ir_op2(b, "arith.andi", ir_compare_float(b, "oeq", x.hi, y.hi), ir_compare_float(b, "olt", low(b, x), low(b, y)));
  return ir_op2(b, "arith.ori", less, tie);
}

ir_value two_float_nonzero(ir *b, two_float x) { return ir_compare_float(b, "une", x.hi, number(b, 0)); }

two_float(two_float_select)(ir *b, ir_value condition, two_float x, two_float y) {
  ir_value lo = {NULL};
  if (whole(x) || whole(y)) lo = ir_select(b, condition, low(b, x), low(b, y));
  return (two_float){ir_select(b, condition, x.hi, y.hi), lo, x.is_loose || y.is_loose};
}

/* ---- sine and cosine ---- */

/* x less the nearest multiple of 4: exact, whatever x. */
static ir_value modulo_four(ir *b, ir_value x) {
  ir_value turns = nearest(b, mul(b, x, number(b, 0.25)));
  return ir_fma(b, turns, number(b, -4), x);
}

/* Whole turns go first, from both parts and exactly; what is left is small, so its rounding is
 * absolute: 2^-26 for the fraction of a quarter. */
static ir_value turned(ir *b, two_float x, int quarter_turns) {
  const double rounder_value = 0x1.8p23; /* adding it rounds to an integer and leaves that in the low bits */
  ir_value rounder = number(b, rounder_value);
  two_float s = two_float_f32(modulo_four(b, x.hi));
  if (whole(x)) s = two_sum(b, s.hi, modulo_four(b, x.lo));
  ir_value shifted = add(b, s.hi, rounder);
  ir_value fraction = sub(b, s.hi, sub(b, shifted, rounder));
  if (whole(s)) fraction = add(b, fraction, s.lo);
  return math_turn_f32(b, fraction, as_bits(b, shifted), quarter_turns);
}

ir_value two_float_sinq(ir *b, two_float x) { return turned(b, x, 0); }
ir_value two_float_cosq(ir *b, two_float x) { return turned(b, x, 1); }

/* ---- exp and log ---- */

/* c[0] + x (c[1] + ...) in float32. */
static ir_value polynomial(ir *b, ir_value x, const double *c, int count) {
  ir_value sum = number(b, c[count - 1]);
  for (int i = count - 2; i >= 0; i--) sum = ir_fma(b, sum, x, number(b, c[i]));
  return sum;
}

static ir_value power_of_two(ir *b, ir_value n) {
  return as_float(b, integer(b, "arith.shli", integer(b, "arith.addi", n, 127), 23));
}

static const double LN2 = 0.693147180559945309417;

two_float two_float_exp(ir *b, two_float x) {
  static const double tail[] = {1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320};
  /* Beyond these the result is 0 or infinity; NaN fails both comparisons and stays. */
  two_float least = two_float_const(b, -110), most = two_float_const(b, 95);
  x = two_float_select(b, ir_compare_float(b, "olt", x.hi, least.hi), least, x);
  x = two_float_select(b, ir_compare_float(b, "ogt", x.hi, most.hi), most, x);
  ir_value shifted = add(b, mul(b, x.hi, number(b, 1 / LN2)), number(b, 0x1.8p23));
  ir_value n = sub(b, shifted, number(b, 0x1.8p23));
  two_float r = two_float_sub(b, x, two_float_mul(b, two_float_f32(n), two_float_const(b, LN2)));
  /* 1 + r + r^2/2 as pairs, what follows is below 2^-7. */
  ir_value cube = mul(b, mul(b, r.hi, r.hi), r.hi);
  two_float square = two_float_mul(b, two_float_mul(b, r, r), two_float_const(b, 0.5));
  two_float sum = two_float_add(b, square, two_float_f32(mul(b, cube, polynomial(b, r.hi, tail, 6))));
  sum = two_float_add(b, two_float_const(b, 1), two_float_add(b, r, sum));
  /* 2^n in two halves, so that results near the ends of the range stay right. */
  ir_value count = ir_op2(b, "arith.subi", as_bits(b, shifted), bits(b, 0x4b400000));
  ir_value half = integer(b, "arith.shrsi", count, 1);
  ir_value powers[2] = {half, ir_op2(b, "arith.subi", count, half)};
  for (int i = 0; i < 2; i++) {
    ir_value power = power_of_two(b, powers[i]);
    sum = (two_float){.hi = mul(b, sum.hi, power), .lo = mul(b, low(b, sum), power)};
  }
  /* An infinite hi with a lo would make NaN in sums to come. */
  ir_value infinite = ir_compare_float(b, "oeq", sum.hi, number(b, INFINITY));
  return (two_float){.hi = sum.hi, .lo = ir_select(b, infinite, number(b, 0), sum.lo)};
}

two_float two_float_log(ir *b, two_float x) {
  static const double tail[] = {2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11};
  /* x = 2^e m, m in [sqrt 1/2, sqrt 2): log m = 2 atanh z, z = (m - 1)/(m + 1). */
  ir_value exponent = integer(b, "arith.shrsi", integer(b, "arith.subi", as_bits(b, x.hi), 0x3f3504f3), 23);
  ir_value scale = power_of_two(b, ir_op2(b, "arith.subi", bits(b, 0), exponent));
  two_float m = {.hi = mul(b, x.hi, scale), .lo = whole(x) ? mul(b, x.lo, scale) : x.lo};
  two_float one = two_float_const(b, 1);
  two_float z = two_float_div(b, two_float_sub(b, m, one), two_float_add(b, m, one));
  ir_value square = mul(b, z.hi, z.hi), cube = mul(b, square, z.hi);
  two_float result =
      two_float_add(b, two_float_add(b, z, z), two_float_f32(mul(b, cube, polynomial(b, square, tail, 5))));
  result = two_float_add(
      b, two_float_mul(b, two_float_f32(ir_cast(b, "arith.sitofp", exponent, b->f32)), two_float_const(b, LN2)),
      result);
  ir_value zero = number(b, 0), infinity = number(b, INFINITY);
  two_float special = two_float_select(b, ir_compare_float(b, "oeq", x.hi, zero), two_float_f32(neg(b, infinity)),
                                       two_float_f32(number(b, NAN)));
  special = two_float_select(b, ir_compare_float(b, "oeq", x.hi, infinity), two_float_f32(infinity), special);
  ir_value regular =
      ir_op2(b, "arith.andi", ir_compare_float(b, "ogt", x.hi, zero), ir_compare_float(b, "olt", x.hi, infinity));
  return two_float_select(b, regular, result, special);
}

/* Below 2^-10, where 1 + x would lose the last digits of x, four terms of the series. */
two_float two_float_log1p(ir *b, two_float x) {
  ir_value small = ir_compare_float(b, "olt", two_float_abs(b, x).hi, number(b, 0x1p-10));
  two_float square = two_float_mul(b, x, x);
  ir_value tail = mul(b, mul(b, square.hi, x.hi), polynomial(b, x.hi, (const double[]){1.0 / 3, -1.0 / 4}, 2));
  two_float series =
      two_float_add(b, two_float_sub(b, x, two_float_mul(b, square, two_float_const(b, 0.5))), two_float_f32(tail));
  two_float log = two_float_log(b, two_float_add(b, two_float_const(b, 1), x));
  log = two_float_select(b, ir_compare_float(b, "oeq", x.hi, number(b, INFINITY)), x, log);
  return two_float_select(b, small, series, log);
}

/* Below 1/4 its series, the first two terms as pairs; beyond, what an exponential that does not overflow gives. */
two_float two_float_tanh(ir *b, two_float x) {
  static const double tail[] = {2.0 / 15,         -17.0 / 315,       62.0 / 2835,
                                -1382.0 / 155925, 21844.0 / 6081075, -929569.0 / 638512875};
  two_float one = two_float_const(b, 1), size = two_float_abs(b, x), square = two_float_mul(b, x, x);
  two_float most = two_float_const(b, 20); /* the result is 1, also of infinity, whose products have no digits */
  size = two_float_select(b, ir_compare_float(b, "ogt", size.hi, most.hi), most, size);
  two_float cube = two_float_mul(b, square, x);
  two_float near = two_float_sub(b, x, two_float_mul(b, cube, two_float_const(b, 1.0 / 3)));
  ir_value fifth = mul(b, cube.hi, square.hi);
  near = two_float_add(b, near, two_float_f32(mul(b, fifth, polynomial(b, square.hi, tail, 6))));
  two_float decay = two_float_exp(b, two_float_mul(b, size, two_float_const(b, -2)));
  two_float less = two_float_sub(b, one, decay), more = two_float_add(b, one, decay);
  two_float far = two_float_div(b, less, more);
  two_float opposite = two_float_neg(b, far);
  far = two_float_select(b, ir_compare_float(b, "olt", x.hi, number(b, 0)), opposite, far);
  return two_float_select(b, ir_compare_float(b, "olt", size.hi, number(b, 0.25)), near, far);
}

static two_float subtract_from(ir *b, double value, two_float x) {
  return two_float_sub(b, two_float_const(b, value), x);
}

/* As in math_atan2_f64: what is taken off is 0, pi/8 or pi/4; the first two terms of the series as pairs. */
two_float(two_float_atan2)(ir *b, two_float y, two_float x) {
  static const double pi = 3.14159265358979323846, tan_8th = 0.41421356237309504880;
  static const double tail[] = {1.0 / 5, -1.0 / 7, 1.0 / 9, -1.0 / 11, 1.0 / 13, -1.0 / 15};
  ir_value zero = number(b, 0);
  two_float abs_x = two_float_abs(b, x), abs_y = two_float_abs(b, y), none = two_float_const(b, 0);
  ir_value is_steep = two_float_less(b, abs_x, abs_y);
  two_float small = two_float_select(b, is_steep, abs_x, abs_y), large = two_float_select(b, is_steep, abs_y, abs_x);
  ir_value infinity = number(b, INFINITY), one = number(b, 1); /* as in math_atan2_f64 */
  ir_value is_infinite = ir_compare_float(b, "oeq", large.hi, infinity);
  ir_value are_alike = ir_compare_float(b, "oeq", small.hi, infinity), nothing = mul(b, small.hi, zero);
  ir_value beside = ir_select(b, are_alike, one, nothing);
  small = two_float_select(b, is_infinite, two_float_f32(beside), small);
  large = two_float_select(b, is_infinite, two_float_f32(one), large);
  ir_value beyond_16th = ir_compare_float(b, "ogt", small.hi, mul(b, large.hi, number(b, 0.198912367379658)));
  ir_value beyond_3_16th = ir_compare_float(b, "ogt", small.hi, mul(b, large.hi, number(b, 0.6681786379192989)));
  two_float c = two_float_select(b, beyond_16th, two_float_const(b, tan_8th), none);
  c = two_float_select(b, beyond_3_16th, two_float_const(b, 1), c);
  two_float taken = two_float_select(b, beyond_16th, two_float_const(b, pi / 8), none);
  taken = two_float_select(b, beyond_3_16th, two_float_const(b, pi / 4), taken);
  two_float divisor = two_float_add(b, large, two_float_mul(b, c, small));
  divisor = two_float_select(b, ir_compare_float(b, "oeq", large.hi, zero), two_float_const(b, 1), divisor);
  two_float z = two_float_div(b, two_float_sub(b, small, two_float_mul(b, c, large)), divisor);
  two_float square = two_float_mul(b, z, z), cube = two_float_mul(b, square, z);
  two_float angle = two_float_sub(b, z, two_float_mul(b, cube, two_float_const(b, 1.0 / 3)));
  ir_value fifth = mul(b, cube.hi, square.hi);
  angle = two_float_add(b, angle, two_float_f32(mul(b, fifth, polynomial(b, square.hi, tail, 6))));
  angle = two_float_add(b, taken, angle);
  angle = two_float_select(b, is_steep, subtract_from(b, pi / 2, angle), angle);
  angle = two_float_select(b, ir_compare_float(b, "olt", x.hi, zero), subtract_from(b, pi, angle), angle);
  two_float below = two_float_neg(b, angle);
  return two_float_select(b, ir_compare_float(b, "olt", y.hi, zero), below, angle);
}

/* ---- conversions ---- */

two_float two_float_from_i64(ir *b, ir_value low_half, ir_value high_half) {
  /* Sixteen bits at a time each is a float32 exactly; the highest part has the sign. */
  ir_value parts[4] = {integer(b, "arith.shrsi", high_half, 16), integer(b, "arith.andi", high_half, 0xffff),
                       integer(b, "arith.shrui", low_half, 16), integer(b, "arith.andi", low_half, 0xffff)};
  two_float sum = {.is_loose = false};
  for (int i = 0; i < 4; i++) {
    ir_value part = mul(b, ir_cast(b, "arith.sitofp", parts[i], b->f32), number(b, ldexp(1, 16 * (3 - i))));
    sum = i ? two_float_add(b, sum, two_float_f32(part)) : two_float_f32(part);
  }
  return sum;
}

two_float two_float_from_f64(ir *b, ir_value low_half, ir_value high_half) {
  /* 23 bits of the fraction make a float32 that is cut off, not rounded; the other 29 are its lo. */
  ir_value sign = integer(b, "arith.andi", high_half, 0x80000000ll);
  ir_value biased = integer(b, "arith.andi", integer(b, "arith.shrui", high_half, 20), 0x7ff);
  ir_value top = ir_op2(b, "arith.ori", integer(b, "arith.shli", integer(b, "arith.andi", high_half, 0xfffff), 3),
                        integer(b, "arith.shrui", low_half, 29));
  ir_value exponent = integer(b, "arith.shli", integer(b, "arith.subi", biased, 896), 23);
  ir_value power = as_float(b, ir_op2(b, "arith.ori", sign, exponent));
  ir_value hi = as_float(b, ir_op2(b, "arith.ori", ir_op2(b, "arith.ori", sign, exponent), top));
  ir_value rest = ir_cast(b, "arith.sitofp", integer(b, "arith.andi", low_half, 0x1fffffff), b->f32);
  two_float value = fast_two_sum(b, hi, mul(b, mul(b, rest, number(b, 0x1p-52)), power));
  ir_value zero = number(b, 0);
  ir_value is_small = ir_compare_int(b, "sle", biased, bits(b, 896)),
           is_large = ir_compare_int(b, "sge", biased, bits(b, 896 + 255));
  ir_value is_special = ir_compare_int(b, "eq", biased, bits(b, 0x7ff));
  ir_value fraction = ir_op2(b, "arith.ori", top, integer(b, "arith.andi", low_half, 0x1fffffff));
  ir_value is_nan = ir_op2(b, "arith.andi", is_special, ir_compare_int(b, "ne", fraction, bits(b, 0)));
  ir_value infinity = as_float(b, integer(b, "arith.ori", sign, 0x7f800000));
  ir_value plain = ir_select(b, is_large, infinity, value.hi);
  plain = ir_select(b, is_small, zero, plain);
  plain = ir_select(b, is_nan, number(b, NAN), plain);
  ir_value is_exact = ir_op2(b, "arith.ori", is_small, is_large);
  return (two_float){.hi = plain, .lo = ir_select(b, is_exact, zero, value.lo)};
}
