/* cpu/attention/ahead: see cpu/attention/ahead.h.
 *
 * The driver lists rows that the next tile of queries will read, and rows that will be written; a few of them are asked
 * for between groups of sums, into the second cache. Some 16 lines can be under way: as many requests at once are
 * waited for, one row or two after each 500 cycles of multiply-adds are not.
 */
#include "cpu/attention/ahead.h"

#include "mlir/arith.h"

#include "kernel/attention.h"

#include <stddef.h>

enum { SECOND_CACHE = 2 };

static ir_value of_tile(ir *b, const rows_ahead *a, size_t offset, MlirType type) {
  return ir_load(b, type, ir_offset_const(b, a->tile, (int64_t)offset), 8);
}

rows_ahead emit_ahead_begin(const attention_emitter *e, ir_value keys, int calls) {
  ir *b = e->b;
  rows_ahead a = {.tile = e->tile};
  a.state = ir_alloca(b, 16, 8);
  ir_value count = of_tile(b, &a, offsetof(pegen_attention_gradient_tile, n_ahead), b->i64),
           groups = attention_groups(b, keys, e->shape.rows), all = add(b, attention_mul(b, groups, calls), i64(b, 1));
  ir_store(b, e->zero, a.state, 8, false);
  ir_value step = add(b, ir_op2(b, "arith.divui", count, all), i64(b, 1)), to = ir_offset_const(b, a.state, 8);
  ir_store(b, step, to, 8, false);
  return a;
}

static const char *name_of(const attention_emitter *e) {
  return arena_printf(e->memory, "ask_ahead_%s", e->target->suffix);
}

/* ask_ahead_T(tile, state) */
void emit_ahead_function(const attention_emitter *e) {
  ir *b = e->b;
  MlirType types[] = {b->ptr, b->ptr};
  ir_value x[2];
  ir_function(b, name_of(e), true, (MlirType){NULL}, 2, types, x);
  rows_ahead a = {x[0], x[1]};
  ir_value first = ir_load(b, b->i64, a.state, 8), step = ir_load(b, b->i64, ir_offset_const(b, a.state, 8), 8),
           count = of_tile(b, &a, offsetof(pegen_attention_gradient_tile, n_ahead), b->i64),
           all = of_tile(b, &a, offsetof(pegen_attention_gradient_tile, ahead), b->ptr),
           lines = of_tile(b, &a, offsetof(pegen_attention_gradient_tile, ahead_lines), b->i64),
           end = smaller(b, add(b, first, step), count), zero = i64(b, 0);
  ir_loop rows = ir_for(b, first, end);
  ir_value row = ir_load(b, b->ptr, nth(b, all, rows.index, 8), 8);
  ir_loop each = ir_for(b, zero, lines);
  ir_prefetch(b, nth(b, row, each.index, CACHE_LINE), SECOND_CACHE);
  ir_end_for(b, each);
  ir_end_for(b, rows);
  ir_store(b, end, a.state, 8, false);
  ir_return(b);
}

void emit_ahead(const attention_emitter *e, const rows_ahead *a) {
  ir_value given[] = {a->tile, a->state};
  ir_call(e->b, name_of(e), 2, given);
}
