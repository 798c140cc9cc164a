/* gpu/index: arithmetic on the numbers of threads, rows and channels, as the emitters of GPU entries write it.
 *
 * Numbers are i32 and, but for less(), not negative; they become i64 where they are added to addresses.
 */
#pragma once

#include "mlir/arith.h"

static inline ir_value scaled(ir *b, ir_value x, int64_t y) { return ir_op2(b, "arith.muli", x, i32(b, y)); }
static inline ir_value quotient(ir *b, ir_value x, int64_t y) { return ir_op2(b, "arith.divui", x, i32(b, y)); }
static inline ir_value quotient_up(ir *b, ir_value x, int64_t y) { return quotient(b, add(b, x, i32(b, y - 1)), y); }
static inline ir_value rest(ir *b, ir_value x, int64_t y) { return ir_op2(b, "arith.remui", x, i32(b, y)); }
static inline ir_value both(ir *b, ir_value x, ir_value y) { return ir_op2(b, "arith.andi", x, y); }
static inline ir_value below(ir *b, ir_value x, ir_value y) { return ir_compare_int(b, "ult", x, y); }
static inline ir_value less(ir *b, ir_value x, ir_value y) { return ir_compare_int(b, "slt", x, y); }
/* x, or the last number below end. */
static inline ir_value clamped(ir *b, ir_value x, ir_value end) {
  return ir_select(b, below(b, x, end), x, sub(b, end, i32(b, 1)));
}
static inline ir_value wide(ir *b, ir_value x) { return ir_cast(b, "arith.extui", x, b->i64); }
static inline ir_value narrow(ir *b, ir_value x) { return ir_cast(b, "arith.trunci", x, b->i32); }

/* Number `index` (i32) of a table of integers. */
static inline ir_value table_i32(ir *b, const char *table, ir_value index) {
  return ir_load(b, b->i32, ir_offset(b, ir_table_address(b, table), wide(b, scaled(b, index, 4))), 4);
}

#define both(b, x, y) ORDERED2(x, y, both(b, x_, y_))
#define below(b, x, y) ORDERED2(x, y, below(b, x_, y_))
#define less(b, x, y) ORDERED2(x, y, less(b, x_, y_))
