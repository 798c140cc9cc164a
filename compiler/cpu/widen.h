/* cpu/widen: from a plan of columns to MLIR for one CPU target.
 *
 *     prepare_T(leaves, prepared)           what depends on operands alone, in float32
 *     widen_T_DTYPE_INPUTS_STORE(loop)      rows of q and k with their columns; see pegen_widen_loop
 *
 * INPUTS is the number type of the query's inputs: q's own, or float32.
 */
#pragma once

#include "mlir/ir.h"
#include "plan/widen.h"
#include "program/program.h"
#include "target/processor.h"

void emit_widen(ir *b, arena *a, const program *encode, const cpu_target *target, unsigned dtypes);

/* Names of the emitted functions, as the descriptor needs them. wide_inputs: float32, not q's type. */
const char *emit_widen_name(arena *a, const cpu_target *target, int dtype, bool wide_inputs, bool streaming);
