/* cpu/attention/lone: see cpu/attention/lone.h.
 *
 * A window over tokens in their order slides through a tile: of a tile of 32 queries the first 16 keys are seen by the
 * first register alone, and the last 16 by the second. Their multiply-adds are half as many. What is left out are
 * scores that the bias or `causal` hides and weights of 0: no number is another for it.
 */
#include "cpu/attention/lone.h"

#include "cpu/attention/dots.h"
#include "cpu/attention/scores.h"
#include "cpu/attention/seen.h"
#include "mlir/arith.h"

bool attention_has_lone(const attention_plan *p, const attention_shape *s) {
  return attention_opens(p) && p->bias && !p->score && !p->columns && !p->matrix && s->lanes == 16 && s->vectors == 2;
}

/* i1: some query of a register may see one of the keys. Keys behind the last one may well be said to be seen. */
static ir_value emit_sees_some(const attention_emitter *e, const pair_emitter *pairs, const key_tile *t, ir_value key,
                               int rows, int vector) {
  ir *b = e->b;
  MlirType integers = ir_vector(b, e->shape.lanes, b->i32);
  ir_value limits = ir_load(
      b, integers,
      ir_offset_const(b, e->tile, (int64_t)offsetof(pegen_attention_tile, limits) + vector * e->shape.lanes * 4), 4);
  ir_value hidden = ir_float(b, e->lanes, -__builtin_inf()), some = {NULL};
  for (int r = 0; r < rows; r++) {
    ir_value at = add(b, key, i64(b, r));
    ir_value index = ir_broadcast(b, integers, ir_cast(b, "arith.trunci", add(b, t->first, at), b->i32));
    ir_value sees = ir_op2(b, "arith.andi", ir_compare_int(b, "slt", index, limits),
                           ir_compare_float(b, "une", emit_pair_bias(pairs, at, vector), hidden));
    some = some.ptr ? ir_op2(b, "arith.ori", some, sees) : sees;
  }
  ir_value bits = ir_extract(b, ir_bitcast_lanes(b, some, ir_vector(b, 1, b->i16)), 0);
  return ir_compare_int(b, "ne", bits, ir_int(b, b->i16, 0));
}

/* Far from the ends of a run of keys no more than holes are to be found, and not worth a look at every pair. */
static ir_value emit_is_edge(const attention_emitter *e, const key_tile *t, ir_value first, ir_value last) {
  ir *b = e->b;
  ir_value queries = i64(b, e->shape.queries), whole = emit_is_whole(e, t, first, last);
  ir_value begins = ir_compare_int(b, "slt", first, add(b, t->run_begin, queries)),
           ends = ir_compare_int(b, "sgt", last, sub(b, t->run_end, queries));
  return ir_op2(b, "arith.andi", ir_op2(b, "arith.ori", begins, ends),
                ir_op2(b, "arith.xori", whole, ir_int(b, b->i1, 1)));
}

ir_value emit_lone(const attention_emitter *e, const pair_emitter *pairs, const key_tile *t, ir_value key, int rows) {
  ir *b = e->b;
  ir_value first = add(b, t->first, key), both = i64(b, LONE_BOTH), lone;
  ir_choice choice = ir_choose(b, emit_is_edge(e, t, first, add(b, first, i64(b, rows))), 1, &b->i64);
  ir_value sees_first = emit_sees_some(e, pairs, t, key, rows, 0),
           sees_second = emit_sees_some(e, pairs, t, key, rows, 1);
  ir_value second = ir_select(b, sees_first, both, i64(b, LONE_SECOND));
  ir_value found = ir_select(b, sees_second, second, i64(b, LONE_FIRST));
  ir_choose_else(b, &choice, 1, &found);
  ir_end_choose(b, choice, 1, &both, &lone);
  return lone;
}

static ir_value lone_at(const attention_emitter *e, const key_tile *t, ir_value group) {
  return nth(e->b, t->lone, group, 8);
}

void emit_keep_lone(const attention_emitter *e, const key_tile *t, ir_value group, ir_value lone) {
  ir_store(e->b, lone, lone_at(e, t, group), 8, false);
}

ir_value emit_is_second(const attention_emitter *e, ir_value lone) {
  return ir_compare_int(e->b, "eq", lone, i64(e->b, LONE_SECOND));
}

void emit_lone_products(const attention_emitter *e, const ir_value *rows, ir_value lone, ir_value *sums) {
  ir *b = e->b;
  attention_emitter of = *e;
  of.shape = attention_narrow_shape(&e->shape);
  ir_value vector = sub(b, lone, i64(b, LONE_FIRST)), own[ATTENTION_MAX_ROWS], zero = ir_float(b, e->lanes, 0);
  of.queries = nth(b, e->queries, vector, e->shape.lanes * 4);
  for (int r = 0; r < e->shape.rows; r++) own[r] = zero;
  emit_products(&of, rows, 0, e->p->head_dim, own);
  ir_value is_second = emit_is_second(e, lone);
  for (int r = 0; r < e->shape.rows; r++) {
    sums[2 * r] = ir_select(b, is_second, zero, own[r]);
    sums[2 * r + 1] = ir_select(b, is_second, own[r], zero);
  }
}

lone_edges emit_lone_edges(const attention_emitter *e, const key_tile *t) {
  ir *b = e->b;
  int rows = e->shape.rows;
  ir_value groups = attention_groups(b, t->count, rows), both = i64(b, LONE_BOTH), one = i64(b, 1);
  lone_edges edges = {.first = ir_load(b, b->i64, t->lone, 8)};
  edges.last = ir_load(b, b->i64, lone_at(e, t, sub(b, groups, one)), 8);
  ir_value empty[] = {e->zero, e->zero}, now[2], next[2], found[2]; /* groups before, and behind so far */
  ir_loop loop = ir_for_with(b, e->zero, groups, 2, empty, now);
  ir_value lone = ir_load(b, b->i64, lone_at(e, t, loop.index), 8), is_lone = ir_compare_int(b, "ne", lone, both);
  ir_value is_first = ir_op2(b, "arith.andi", is_lone, ir_compare_int(b, "eq", lone, edges.first));
  ir_value follows = ir_op2(b, "arith.andi", is_first, ir_compare_int(b, "eq", now[0], loop.index));
  next[0] = ir_select(b, follows, add(b, loop.index, one), now[0]);
  ir_value is_last = ir_op2(b, "arith.andi", is_lone, ir_compare_int(b, "eq", lone, edges.last));
  next[1] = ir_select(b, is_last, add(b, now[1], one), e->zero);
  ir_end_for_with(b, loop, 2, next, found);
  edges.begin = smaller(b, attention_mul(b, found[0], rows), t->count);
  ir_value end = smaller(b, attention_mul(b, sub(b, groups, found[1]), rows), t->count);
  edges.end = larger(b, end, edges.begin);
  return edges;
}
