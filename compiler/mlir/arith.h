/* mlir/arith: sums, products and comparisons as emitters write them, one word for each.
 *
 * Numbers are integers or floats, scalars or vectors: the ops are those of x's type, and y's is the same. Integers are
 * compared with their signs. With floats smaller() and larger() take y where x or y is not a number.
 */
#pragma once

#include "mlir/ir.h"

static inline ir_value i32(ir *b, int64_t value) { return ir_int(b, b->i32, value); }
static inline ir_value i64(ir *b, int64_t value) { return ir_int(b, b->i64, value); }

static inline ir_value add(ir *b, ir_value x, ir_value y) {
  return ir_op2(b, ir_is_float(x) ? "arith.addf" : "arith.addi", x, y);
}
static inline ir_value sub(ir *b, ir_value x, ir_value y) {
  return ir_op2(b, ir_is_float(x) ? "arith.subf" : "arith.subi", x, y);
}
static inline ir_value mul(ir *b, ir_value x, ir_value y) {
  return ir_op2(b, ir_is_float(x) ? "arith.mulf" : "arith.muli", x, y);
}

static inline ir_value smaller(ir *b, ir_value x, ir_value y) {
  return ir_select(b, ir_is_float(x) ? ir_compare_float(b, "olt", x, y) : ir_compare_int(b, "slt", x, y), x, y);
}
static inline ir_value larger(ir *b, ir_value x, ir_value y) {
  return ir_select(b, ir_is_float(x) ? ir_compare_float(b, "ogt", x, y) : ir_compare_int(b, "sgt", x, y), x, y);
}

#define add(b, x, y) ORDERED2(x, y, add(b, x_, y_))
#define sub(b, x, y) ORDERED2(x, y, sub(b, x_, y_))
#define mul(b, x, y) ORDERED2(x, y, mul(b, x_, y_))
#define smaller(b, x, y) ORDERED2(x, y, smaller(b, x_, y_))
#define larger(b, x, y) ORDERED2(x, y, larger(b, x_, y_))
