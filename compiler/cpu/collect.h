/* cpu/collect: sums of one call to those of all calls (kernel/gradient_table.h). */
#ifndef PEGEN_CPU_COLLECT_H
#define PEGEN_CPU_COLLECT_H

#include "mlir/ir.h"
#include "target/processor.h"

/* Emits NAME(from, to): adds `count` numbers to as many others, all float64 or float32. */
void emit_collect(ir *b, const cpu_target *target, bool is_f64, int64_t count, const char *name);

#endif
