/* cpu/weight_gains: from what the weights of queries gain (cpu/weights) to what their inputs and operands do, as code.
 *
 *     prepare_T_grad(leaves, prepared)      what is of operands alone
 *     unweigh_T_INPUT(work)                 of pegen_weight_gains (kernel/loop.h), for each number type of inputs
 *     scatter_T_grad(leaves, sums, gained)  from the sums of a head's queries to operands' elements
 */
#pragma once

#include "cpu/names.h"
#include "mlir/ir.h"
#include "plan/gradient.h"

/* of: a plan_widen_gradient, or NULL: nothing. dtypes: of the rows that inputs go with. */
void emit_weight_gains(ir *b, arena *a, const plan_gradient *of, const cpu_target *target, unsigned dtypes);
