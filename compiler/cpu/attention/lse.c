/* cpu/attention/lse: what the online softmax knows of a query at its end, as one number; see cpu/attention/lse.h.
 *
 *     lse = ln 2 (maximum + what the columns of a polynomial left out) + ln sum
 *
 * in float64, rounded once: beside a maximum of some hundreds the logarithm has no digits to lose.
 */
#include "cpu/attention/lse.h"

#include "cpu/attention/columns.h"
#include "cpu/attention/queries.h"
#include "mlir/arith.h"
#include "mlir/math.h"

static ir_value wide(const attention_emitter *e, ir_value x) { return ir_cast(e->b, "arith.extf", x, e->b->f64); }

static ir_value lse_of(const attention_emitter *e, ir_value maxima, ir_value sums, int vector) {
  ir *b = e->b;
  ir_value sum = ir_load(b, e->lanes, attention_at_constant(e, sums, 0, vector), 4),
           maximum = wide(e, ir_load(b, e->lanes, attention_at_constant(e, maxima, 0, vector), 4)),
           constant = e->p->columns ? emit_columns_constant(e, vector) : (ir_value){NULL};
  if (constant.ptr) maximum = add(b, maximum, wide(e, constant));
  ir_value lse = add(b, mul(b, maximum, ir_float(b, ir_type(maximum), LN_2)), math_log_f64(b, wide(e, sum)));
  ir_value seen = ir_compare_float(b, "une", sum, ir_float(b, e->lanes, 0));
  return ir_select(b, seen, ir_cast(b, "arith.truncf", lse, b->f32), ir_float(b, e->lanes, -__builtin_inf()));
}

void emit_attention_lse(const attention_emitter *e, ir_value maxima, ir_value sums) {
  ir *b = e->b;
  ir_value at = ATTENTION_HEAD(e, lse), token_bytes = ATTENTION_TILE(e, lse_token, b->i64);
  ir_branch wanted = ir_if(b, attention_is_given(e, at));
  for (int x = 0; x < e->shape.vectors; x++)
    ir_store(b, lse_of(e, maxima, sums, x), attention_at_constant(e, maxima, 0, x), 4, false);
  ir_loop lanes = ir_for(b, e->zero, i64(b, e->shape.queries));
  ir_value token = attention_lane_token(e, e->zero, lanes.index);
  ir_branch given = ir_if(b, ir_compare_int(b, "sge", token, e->zero));
  ir_store(b, ir_load(b, b->f32, nth(b, maxima, lanes.index, 4), 4), ir_offset(b, at, mul(b, token, token_bytes)), 4,
           false);
  ir_end_if(b, given);
  ir_end_for(b, lanes);
  ir_end_if(b, wanted);
}
