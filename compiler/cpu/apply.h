/* cpu/apply: rows of q and k times the matrices of their blocks.
 *
 * A matrix lies in memory column by column, so a row's block is the sum of its columns times the block's
 * channels, each spread over the lanes. Where heads share a matrix, columns that fit in registers stay there over a
 * token's heads; larger matrices, and those of one head, are walked once for several rows, of q and k in some batches.
 */
#ifndef PEGEN_CPU_APPLY_H
#define PEGEN_CPU_APPLY_H

#include "base/arena.h"
#include "mlir/ir.h"
#include "plan/dense.h"
#include "spec/spec.h"
#include "target/processor.h"

/* Whether every pair of blocks of 8 float32 channels is a line of its row, as streaming stores want it. */
bool emit_apply_in_lines(const spec *s);

/* Emits NAME(const pegen_apply *). per_head: matrices differ from head to head; streaming: stores go past the caches.
 */
void emit_apply(ir *b, arena *a, const spec *s, const cpu_target *target, int dtype, bool per_head,
                matrix_layout layout, bool streaming, const char *name);

#endif
