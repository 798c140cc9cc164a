/* cpu/plain: RMS norms of rows, and rows that are not encoded: v, and of tokens that are skipped. */
#pragma once

#include "cpu/names.h"
#include "cpu/rows.h"
#include "mlir/ir.h"
#include "plan/plan.h"

/* factors_T_type: what each of some rows is multiplied by before weights are, to float32 [count]; t: of all its
 * channels. It asks for what lies ahead of each. */
void emit_factors(ir *b, arena *a, const plan_tile *t, const cpu_target *target, int dtype);
typedef struct factor_rows {
  ir_value first, step, count; /* address of the first row; bytes from each to the next */
  ir_value epsilon, factors;   /* float32; an address */
  prefetch_ahead ahead;
} factor_rows;
/* A call of it. */
void emit_find_factors(ir *b, arena *a, const cpu_target *target, int dtype, const factor_rows *rows);

/* norm_T_type of rows of one number type, and convert_T_type_other, as kernel/loop.h's pegen_plain_function;
 * normalises: it may be asked for norms. */
void emit_norm(ir *b, arena *a, const plan_tile *t, const cpu_target *target, int dtype);
void emit_convert(ir *b, arena *a, const plan_tile *t, const cpu_target *target, int dtype, int out, bool normalises);
