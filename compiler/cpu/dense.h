/* cpu/dense: the functions of dense blocks for one target; see kernel/dense.h for what they are called with. */
#ifndef PEGEN_CPU_DENSE_H
#define PEGEN_CPU_DENSE_H

#include "mlir/ir.h"
#include "plan/dense.h"

void emit_dense(ir *b, arena *a, const plan_dense *p, const cpu_target *target, unsigned dtypes);

/* Names of the emitted functions, as the descriptor needs them. rest: of what is left of the last unit. */
const char *emit_angles_name(arena *a, const cpu_target *target);
const char *emit_form_name(arena *a, const cpu_target *target, bool rest);
const char *emit_apply_name(arena *a, const cpu_target *target, int dtype);
const char *emit_stream_name(arena *a, const cpu_target *target);
const char *emit_act_name(arena *a, const cpu_target *target, int dtype);

#endif
