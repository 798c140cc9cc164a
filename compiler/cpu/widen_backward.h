/* cpu/widen_backward: what columns of q and k gain, taken on to weights and positions (plan/widen.h), as code: of
 * pegen_column_gains (kernel/loop.h).
 *
 *     weights_T_gain_DTYPE(gains)          a query's weights, of which inputs and operands gain (cpu/weight_gains)
 *     queries_T_gain_DTYPE_INPUTS(gains)   a query's coordinates
 *     keys_T_gain_DTYPE(gains)             a key's
 *
 * Where a column has two or three channels in 16 bits they are q's value and the key's, rounded, and what rounding
 * took, so that products of channels add up to those of the values: a value gains what the channels do that hold it
 * rounded, and those that hold the rest pass nothing on.
 */
#pragma once

#include "mlir/ir.h"
#include "plan/widen.h"
#include "target/processor.h"

/* Behind emit_widen of the same target, some of whose functions are called. */
void emit_widen_backward(ir *b, arena *a, const plan_widen *p, const cpu_target *target, unsigned dtypes);

const char *emit_weights_gain_name(arena *a, const cpu_target *target, int dtype);
const char *emit_queries_gain_name(arena *a, const cpu_target *target, int dtype, bool wide_inputs);
const char *emit_keys_gain_name(arena *a, const cpu_target *target, int dtype);
