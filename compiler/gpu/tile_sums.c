/* gpu/tile_sums: which tile a block has, and which keys its queries see; see gpu/attention.h. */
#include "gpu/attention.h"
#include "gpu/index.h"

#include "kernel/launch.h"

#include <math.h>

ir_value attend_short_parameter(attend *t, int index) {
  return ir_cast(t->b, "arith.trunci", t->parameter[index], t->b->i32);
}

ir_value attend_scale(attend *t) {
  return ir_cast(t->b, "arith.bitcast", attend_short_parameter(t, PEGEN_PTX_ATTENTION_SCALE), t->b->f32);
}

/* ---- the block's tile ---- */

ir_value attend_set_tile(attend *t, ir_value item, ir_value rows, ir_value heads, bool last_first) {
  ir *b = t->b;
  ir_value tiles = quotient_up(b, rows, t->shape.queries);
  ir_value row = ir_op2(b, "arith.divui", item, tiles), tile = ir_op2(b, "arith.remui", item, tiles);
  if (last_first) tile = sub(b, sub(b, tiles, i32(b, 1)), tile);
  t->first = scaled(b, tile, t->shape.queries);
  t->batch = ir_op2(b, "arith.divui", row, heads);
  return ir_op2(b, "arith.remui", row, heads);
}

/* ---- what a pair is seen by ---- */

ir_value attend_paired(attend *t, ir_value score, ir_value pair) {
  ir *b = t->b;
  ir_value sum = add(b, score, pair), hidden = ir_float(b, b->f32, -INFINITY);
  return t->p->hides && t->p->bias ? ir_select(b, ir_compare_float(b, "oeq", pair, hidden), hidden, sum) : sum;
}

ir_value attend_limit_of(attend *t, ir_value query_token) {
  ir *b = t->b;
  ir_value causal = ir_compare_int(b, "ne", t->parameter[PEGEN_PTX_ATTENTION_CAUSAL], i64(b, 0));
  ir_value own = add(b, add(b, query_token, sub(b, t->keys, t->tokens)), i32(b, 1));
  return ir_select(b, causal, smaller(b, own, t->keys), t->keys);
}

ir_value attend_end_of_keys(attend *t) {
  ir *b = t->b;
  ir_value last = sub(b, smaller(b, add(b, t->first, i32(b, t->shape.queries)), t->tokens), i32(b, 1)),
           end = attend_limit_of(t, last);
  return ir_select(b, less(b, end, i32(b, 0)), i32(b, 0), end);
}
