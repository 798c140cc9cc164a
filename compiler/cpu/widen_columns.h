/* cpu/widen_columns: what a token's rows have in common, keys and gains of the appended lanes.
 *
 *     gains_T_DTYPE(gains)                      what is the same for all tokens, and zeros
 *     columns_T_DTYPE(positions, keys, gains)   of one token: the lanes of k as they are stored, and the other gains
 *
 * positions: float64 [axes], less the origin; keys: DTYPE [lanes]; gains: float32 [weights][lanes]. One code for all
 * functions that write rows of a number type.
 */
#pragma once

#include "cpu/names.h"
#include "mlir/ir.h"
#include "plan/widen.h"

void emit_widen_columns(ir *b, arena *a, const plan_widen *p, const cpu_target *target, int dtype);
void emit_call_gains(ir *b, arena *a, const cpu_target *target, int dtype, ir_value gains);
void emit_call_columns(ir *b, arena *a, const cpu_target *target, int dtype, ir_value positions, ir_value keys,
                       ir_value gains);

/* The appended lanes cut into vectors: as wide as the target has them, then halves of halves. */
typedef struct widen_vectors {
  int count, *start, *width;
} widen_vectors;

widen_vectors widen_vectors_of(arena *a, const widen_layout *l, int widest);

/* Lanes from `start` on as their parts: as they are, or of the lanes that are low what rounding to the type took. */
ir_value emit_lane_parts(ir *b, const cpu_target *target, const widen_layout *l, int dtype, ir_value v, int start,
                         bool of_query);
