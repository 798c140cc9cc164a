/* cpu/attention/ahead: see cpu/attention/ahead.h.
 *
 * The driver lists rows that the next tile of queries will read; a few of them are asked for between two products, into
 * the second cache: few requests at a time leave room for what products themselves load.
 */
#include "cpu/attention/ahead.h"

#include "mlir/arith.h"

enum { SECOND_CACHE = 2 };

rows_ahead emit_ahead_begin(const attention_emitter *e, ir_value keys, int calls) {
  ir *b = e->b;
  ir_value tiles = add(b, ir_op2(b, "arith.divui", keys, i64(b, e->shape.keys)), i64(b, 1));
  rows_ahead a = {.rows = GRADIENT_TILE(e, ahead, b->ptr),
                  .count = GRADIENT_TILE(e, n_ahead, b->i64),
                  .lines = GRADIENT_TILE(e, ahead_lines, b->i64)};
  a.step = add(b, ir_op2(b, "arith.divui", a.count, attention_mul(b, tiles, calls)), i64(b, 1));
  a.next = ir_alloca(b, 8, 8);
  ir_store(b, e->zero, a.next, 8, false);
  return a;
}

void emit_ahead(const attention_emitter *e, const rows_ahead *a) {
  ir *b = e->b;
  ir_value first = ir_load(b, b->i64, a->next, 8), end = smaller(b, add(b, first, a->step), a->count);
  ir_loop rows = ir_for(b, first, end);
  ir_value row = ir_load(b, b->ptr, ir_offset(b, a->rows, attention_mul(b, rows.index, 8)), 8);
  ir_loop lines = ir_for(b, e->zero, a->lines);
  ir_prefetch(b, ir_offset(b, row, attention_mul(b, lines.index, CACHE_LINE)), SECOND_CACHE);
  ir_end_for(b, lines);
  ir_end_for(b, rows);
  ir_store(b, end, a->next, 8, false);
}
