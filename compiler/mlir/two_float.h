/* mlir/two_float: two-float arithmetic, for machines on which float64 is slow or absent.
 *
 * It is the unevaluated sum hi + lo of two float32 with |lo| at most half a unit in
 * the last place of hi: about 48 bits in float32's range of exponents. Error-free
 * sums and products (Knuth, Dekker) make it, so ir.exact must be set: every operation
 * rounds by itself, and fused multiply-adds stand where one is meant. Relative errors are
 * a few 2^-48, by Joldes, Muller and Popescu's bounds for these algorithms.
 *
 * Scalars of float32 throughout. lo may be missing, which says that it is 0.
 */
#pragma once

#include "mlir/ir.h"

typedef struct two_float {
  ir_value hi, lo; /* lo.ptr NULL: exactly 0 */
  bool is_loose;   /* lo may be larger than that: hi alone is not the rounded value */
} two_float;

/* The nearest one. Numbers other than 0 that float32 would flush to 0 keep a magnitude of 2^-100, so
 * that what guards a division still does. */
two_float two_float_const(ir *b, double value);
void two_float_split(double value, float *hi, float *lo); /* the same as numbers */
two_float two_float_f32(ir_value x);
/* In memory: hi, then lo, at a multiple of 8 bytes. */
enum { TWO_FLOAT_BYTES = 8 };
two_float two_float_load(ir *b, ir_value at);
void two_float_store(ir *b, two_float x, ir_value at);
ir_value two_float_narrow(ir *b, two_float x); /* rounded to float32 */

/* A loop that carries `count` numbers from one round to the next, as ir_for_with does. */
ir_loop two_float_for(ir *b, ir_value begin, ir_value end, int count, two_float *x);
void two_float_end_for(ir *b, ir_loop loop, int count, two_float *x);

two_float two_float_add(ir *b, two_float x, two_float y);
two_float two_float_sub(ir *b, two_float x, two_float y);
two_float two_float_mul(ir *b, two_float x, two_float y);
/* Adds in half the operations: errors are a few 2^-48 of the arguments, not of the result, and the result is loose.
 * For what has been through a sine: numbers of size 1 that will be rounded to float32. */
two_float two_float_add_loosely(ir *b, two_float x, two_float y);
two_float two_float_mul_loosely(ir *b, two_float x, two_float y);
two_float two_float_div(ir *b, two_float x, two_float y);
two_float two_float_neg(ir *b, two_float x);
two_float two_float_abs(ir *b, two_float x);
two_float two_float_sqrt(ir *b, two_float x);
two_float two_float_floor(ir *b, two_float x);
ir_value two_float_less(ir *b, two_float x, two_float y); /* i1 */
ir_value two_float_nonzero(ir *b, two_float x); /* i1 */
two_float two_float_select(ir *b, ir_value condition, two_float x, two_float y);

/* sin(pi/2 x) and cos(pi/2 x) as float32, error below 2^-23.5 for |x| < 2^24, below 2^-24 plus the rounding of x. */
ir_value two_float_sinq(ir *b, two_float x);
ir_value two_float_cosq(ir *b, two_float x);
two_float two_float_exp(ir *b, two_float x); /* relative error < 2^-30 */
two_float two_float_log(ir *b, two_float x); /* relative error < 2^-30 */
two_float two_float_log1p(ir *b, two_float x); /* log(1 + x), relative error < 2^-30 */
two_float two_float_tanh(ir *b, two_float x); /* relative error < 2^-28 */
two_float two_float_atan2(ir *b, two_float y, two_float x); /* as math_atan2_f64, relative error < 2^-30 */

/* Conversions without an operation on float64: the 64 bits of a number as two int32. */
two_float two_float_from_i64(ir *b, ir_value low, ir_value high);
two_float two_float_from_f64(ir *b, ir_value low,
                             ir_value high); /* below 2^-126: 0; beyond float32: infinity; NaN stays */

#define two_float_for(b, begin, end, count, x) ORDERED2(begin, end, two_float_for(b, x_, y_, count, x))
#define two_float_store(b, x, at) ORDERED2(x, at, two_float_store(b, x_, y_))
#define two_float_add(b, x, y) ORDERED2(x, y, two_float_add(b, x_, y_))
#define two_float_sub(b, x, y) ORDERED2(x, y, two_float_sub(b, x_, y_))
#define two_float_mul(b, x, y) ORDERED2(x, y, two_float_mul(b, x_, y_))
#define two_float_div(b, x, y) ORDERED2(x, y, two_float_div(b, x_, y_))
#define two_float_atan2(b, y, x) ORDERED2(y, x, two_float_atan2(b, x_, y_))
#define two_float_select(b, condition, x, y) ORDERED3(condition, x, y, two_float_select(b, x_, y_, z_))
