/* mlir/exp2: powers of two and exponents, of numbers or vectors. */
#pragma once

#include "mlir/ir.h"

/* 2^x of float32, x <= 0, as a softmax needs it. */
ir_value emit_exp2(ir *b, ir_value x);
/* By the GPU's own instruction where it has one: of NVIDIA within 2 units in the last place (PTX ISA, ex2.approx.ftz),
 * and a denormal result is 0. */
ir_value emit_exp2_fast(ir *b, ir_value x);

/* Integers n, q: i32 for float32, i64 for float64. */
ir_value emit_exp2_integer(ir *b, ir_value n, bool is_f64); /* 2^n as a float, where that is a normal number */
ir_value emit_exponent(ir *b, ir_value x); /* of x >= 0: q with x < 2^(q+1); a low number where x is not finite */
