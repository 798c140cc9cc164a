/* cpu/attention/products: see cpu/attention/products.h. */
#include "cpu/attention/products.h"

#include "cpu/attention/dots.h"
#include "mlir/arith.h"

/* sums += a register of queries times a key's channel, or pair of channels. */
static void emit_channel(const attention_emitter *e, const ir_value *rows, ir_value channel, ir_value *sums) {
  ir *b = e->b;
  int vectors = e->shape.vectors;
  ir_value q[ATTENTION_MAX_VECTORS], offset = attention_mul(b, channel, 4);
  for (int x = 0; x < vectors; x++) q[x] = load(e, attention_at(e, e->queries, channel, x));
  for (int r = 0; r < e->shape.rows; r++) {
    ir_value k = ir_broadcast(b, e->lanes, ir_load(b, b->f32, ir_offset(b, rows[r], offset), 4));
    for (int x = 0; x < vectors; x++) sums[r * vectors + x] = attention_product(e, k, q[x], sums[r * vectors + x]);
  }
}

void emit_products(const attention_emitter *e, const ir_value *rows, int begin, int end, ir_value *sums) {
  ir *b = e->b;
  int count = e->shape.rows * e->shape.vectors, turn = e->shape.unroll;
  begin /= attention_step(e);
  end /= attention_step(e);
  int turns = (end - begin) / turn;
  ir_value now[ATTENTION_MAX_SUMS];
  if (turns > 0) {
    ir_loop loop = ir_for_with(b, e->zero, i64(b, turns), count, sums, now);
    ir_value channel = add(b, attention_mul(b, loop.index, turn), i64(b, begin));
    for (int i = 0; i < turn; i++) emit_channel(e, rows, add(b, channel, i64(b, i)), now);
    ir_end_for_with(b, loop, count, now, sums);
  }
  for (int i = begin + turns * turn; i < end; i++) emit_channel(e, rows, i64(b, i), sums);
}
