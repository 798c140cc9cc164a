/* gpu/mma_pairs: a pair of tokens of the tiles at hand: which it is, its score, its weight; see gpu/mma.h. */
#include "gpu/index.h"
#include "gpu/mma.h"
#include "mlir/exp2.h"

#include <math.h>

bool mma_has_pairs(const mma *m) { return attend_has_pairs(m->t->p); }

attend_pair_of mma_pair(const mma *m, mma_place own, mma_place streamed) {
  mma_place query = m->p->owns_keys ? streamed : own, key = m->p->owns_keys ? own : streamed;
  return (attend_pair_of){.query = query.row, .query_token = query.token, .key = key.row, .key_token = key.token};
}

attend_pair_of mma_pair_of(mma *m, int value, int i) {
  ir *b = m->b;
  mma_place own = mma_own_place(m, mma_row_of(m, mma_half(m, value, i))), streamed = {.row = mma_column(m, value, i)};
  streamed.token = add(b, m->streamed_first, streamed.row);
  return mma_pair(m, own, streamed);
}

attend_pair_of mma_pair_in_turn(mma *m, int value, ir_value turn) {
  ir *b = m->b;
  int together = m->p->owns_group ? 2 : mma_fragment(m), tiles = mma_column_tiles(m, value);
  ir_value tile = quotient(b, turn, together), i = rest(b, turn, together), row = mma_row_of(m, 0), column, token;
  row = add(b, row, scaled(b, quotient(b, i, 2), MMA_ROWS / 2));
  row = add(b, row, scaled(b, quotient(b, tile, tiles), MMA_ROWS));
  column = add(b, scaled(b, rest(b, tile, tiles), MMA_COLUMNS), scaled(b, m->quad, 2));
  column = add(b, column, rest(b, i, 2));
  token = add(b, m->streamed_first, column);
  return mma_pair(m, mma_own_place(m, row), (mma_place){column, token});
}

ir_value mma_scored(mma *m, ir_value product, const attend_pair_of *of) {
  attend *t = m->t;
  ir_value score = mul(m->b, product, m->scale);
  if (t->p->bias) {
    ir_value pair = attend_bias(t, of);
    score = t->p->hides ? attend_paired(t, score, pair) : ir_fma(m->b, product, m->scale, pair);
  }
  return t->p->score ? attend_score(t, score, of) : score;
}

ir_value mma_is_seen(mma *m, const attend_pair_of *of) {
  ir *b = m->b;
  ir_value seen = less(b, of->key_token, attend_limit_of(m->t, of->query_token));
  return m->p->owns_keys ? both(b, seen, less(b, of->query_token, m->t->tokens)) : seen;
}

ir_value mma_exp2(mma *m, ir_value x) { return m->machine->rounds ? emit_exp2_fast(m->b, x) : emit_exp2(m->b, x); }

ir_value mma_power(mma *m, ir_value x, ir_value less_by) {
  ir *b = m->b;
  if (mma_has_pairs(m)) return mma_exp2(m, sub(b, x, less_by));
  ir_value negative = ir_op1(b, "arith.negf", less_by);
  return mma_exp2(m, ir_fma(b, x, m->scale, negative));
}

void mma_begin_softmax(mma *m, ir_value counts, ir_value *maximum, ir_value *total) {
  ir *b = m->b;
  thread_emitter *e = &m->t->exprs;
  const expr *sink = m->gradient ? NULL : m->t->p->sink;
  ir_value none = *maximum = ir_float(b, b->f32, MMA_NOTHING_SEEN), zero = *total = ir_float(b, b->f32, 0);
  if (!sink) return;
  two_float *remembered = emit_thread_remember(e);
  emit_thread_operands(e, &sink, 1);
  ir_value x = emit_thread_f32(e, sink, 0);
  emit_thread_forget(e, remembered);
  if (m->few) x = ir_select(b, ir_compare_int(b, "eq", m->chunk, i32(b, 0)), x, ir_float(b, b->f32, -INFINITY));
  *maximum = ir_op2(b, "arith.maxnumf", x, none);
  *total = ir_select(b, counts, mma_exp2(m, sub(b, x, *maximum)), zero);
}
