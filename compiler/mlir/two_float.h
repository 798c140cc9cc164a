/* mlir/two_float: two-float arithmetic, for machines on which float64 is slow or absent.
 *
 * A pair is the unevaluated sum hi + lo of two float32 with |lo| at most half a unit in
 * the last place of hi: about 48 bits in float32's range of exponents. Error-free
 * sums and products (Knuth, Dekker) make it, so ir.exact must be set: every operation
 * rounds by itself, and fused multiply-adds stand where one is meant. Relative errors are
 * a few 2^-48, by Joldes, Muller and Popescu's bounds for these algorithms.
 *
 * Scalars of float32 throughout. lo may be missing, which says that it is 0.
 */
#ifndef PEGEN_MLIR_TWO_FLOAT_H
#define PEGEN_MLIR_TWO_FLOAT_H

#include "mlir/ir.h"

typedef struct pair {
  ir_value hi, lo; /* lo.ptr NULL: exactly 0 */
  bool is_loose;   /* lo may be larger than that: hi alone is not the rounded value */
} pair;

/* The nearest pair. Numbers other than 0 that float32 would flush to 0 keep a magnitude of 2^-100, so
 * that what guards a division still does. */
pair pair_const(ir *b, double value);
void pair_split(double value, float *hi, float *lo); /* the same as numbers */
pair pair_f32(ir_value x);
/* In memory: hi, then lo, at a multiple of 8 bytes. */
enum { PAIR_BYTES = 8 };
pair pair_load(ir *b, ir_value at);
void pair_store(ir *b, pair x, ir_value at);
ir_value pair_narrow(ir *b, pair x); /* rounded to float32 */

pair pair_add(ir *b, pair x, pair y);
pair pair_sub(ir *b, pair x, pair y);
pair pair_mul(ir *b, pair x, pair y);
/* The same in half the operations: errors are a few 2^-48 of the arguments, not of the result, and the result is loose.
 * For what has been through a sine: numbers of size 1 that will be rounded to float32. */
pair pair_add_loosely(ir *b, pair x, pair y);
pair pair_mul_loosely(ir *b, pair x, pair y);
pair pair_div(ir *b, pair x, pair y);
pair pair_neg(ir *b, pair x);
pair pair_abs(ir *b, pair x);
pair pair_sqrt(ir *b, pair x);
pair pair_floor(ir *b, pair x);
ir_value pair_less(ir *b, pair x, pair y); /* i1 */
ir_value pair_nonzero(ir *b, pair x); /* i1 */
pair pair_select(ir *b, ir_value condition, pair x, pair y);

/* sin(pi/2 x) and cos(pi/2 x) as float32, error below 2^-23.5 for |x| < 2^24, below 2^-24 plus the rounding of x. */
ir_value pair_sinq(ir *b, pair x);
ir_value pair_cosq(ir *b, pair x);
pair pair_exp(ir *b, pair x); /* relative error < 2^-30 */
pair pair_log(ir *b, pair x); /* relative error < 2^-30 */
pair pair_log1p(ir *b, pair x); /* log(1 + x), relative error < 2^-30 */

/* Conversions without an operation on float64: the 64 bits of a number as two int32. */
pair pair_from_i64(ir *b, ir_value low, ir_value high);
pair pair_from_f64(ir *b, ir_value low, ir_value high); /* below 2^-126: 0; beyond float32: infinity; NaN stays */

#endif
