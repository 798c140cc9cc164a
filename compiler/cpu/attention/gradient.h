/* cpu/attention/gradient: the backward of attention of one tile of queries, as MLIR for one CPU target; see
 * kernel/attention.h. */
#ifndef PEGEN_CPU_ATTENTION_GRADIENT_H
#define PEGEN_CPU_ATTENTION_GRADIENT_H

#include "cpu/attention/rows.h"

/* attend_gradient_T_DTYPE(tile), store_keys_T_DTYPE and store_values_T_DTYPE for each number type; behind what
 * emit_attention makes of the same target. operands: the plan of what they alone gain,
 * attend_operands_gradient_T_DTYPE, turned: that of rows that come turned, attend_turned_gradient_T_DTYPE; NULL: there
 * is none. */
void emit_attention_gradient(ir *b, arena *a, const attention_plan *p, const attention_plan *operands,
                             const attention_plan *turned, const cpu_target *target, unsigned dtypes);

/* Keys between which a tile's keys may be cut, so that others see the rest: whole tiles of them. */
int64_t emit_gradient_step(const attention_plan *p, const cpu_target *target);

#endif
