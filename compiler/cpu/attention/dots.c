/* cpu/attention/dots: see cpu/attention/dots.h. */
#include "cpu/attention/dots.h"

#include "mlir/arith.h"

enum { MOST_HALVES = 32 }; /* bfloat16 of a register */

attention_emitter attention_emitter_of_dots(ir *b, arena *a, const attention_plan *p, const cpu_target *target) {
  attention_emitter e = attention_emitter_create(b, a, p, target);
  e.dots = true;
  b->target_features = target_dot_features(a, target);
  return e;
}

ir_value attention_steps(const attention_emitter *e, ir_value count) {
  return e->dots ? attention_groups(e->b, count, 2) : count;
}

ir_value attention_product(const attention_emitter *e, ir_value x, ir_value y, ir_value z) {
  ir *b = e->b;
  if (!e->dots) return attention_multiply_add(b, x, y, z);
  MlirType pairs = ir_vector(b, 2 * e->shape.lanes, b->bf16);
  ir_value operands[] = {z, ir_bitcast_lanes(b, x, pairs), ir_bitcast_lanes(b, y, pairs)};
  return ir_intrinsic(b, "llvm.x86.avx512bf16.dpbf16ps.512", e->lanes, 3, operands);
}

ir_value attention_guarded_product(const attention_emitter *e, ir_value value, ir_value weight, ir_value sum) {
  ir *b = e->b;
  ir_value none = ir_float(b, e->lanes, 0);
  if (!e->dots) {
    ir_value next = attention_product(e, value, weight, sum);
    return ir_select(b, ir_compare_float(b, "une", weight, none), next, sum);
  }
  /* The upper halves first, as the instruction has it: a product with the other half's 0 adds nothing. */
  for (int upper = 1; upper >= 0; upper--) {
    ir_value bits = ir_int(b, ir_like(b, value, b->i32), upper ? 0xffff0000 : 0xffff);
    ir_value v = ir_op2(b, "arith.andi", ir_cast(b, "arith.bitcast", value, b->i32), bits);
    ir_value w = ir_op2(b, "arith.andi", ir_cast(b, "arith.bitcast", weight, b->i32), bits);
    ir_value is_any = ir_compare_int(b, "ne", w, ir_int(b, ir_type(w), 0));
    v = ir_cast(b, "arith.bitcast", v, b->f32);
    w = ir_cast(b, "arith.bitcast", w, b->f32);
    sum = ir_select(b, is_any, attention_product(e, v, w, sum), sum);
  }
  return sum;
}

/* Lane i of the first half of x, then lane i of the second, from `first` on. */
static ir_value woven(ir *b, ir_value x, ir_value y, int lanes, int first) {
  int64_t mask[MOST_HALVES];
  for (int i = 0; i < lanes; i++) mask[i] = first + i / 2 + (i % 2 ? ir_lanes(x) : 0);
  return ir_shuffle(b, x, y, lanes, mask);
}

/* Two registers of float32 as one of bfloat16, i16, the first in its lower half. */
static ir_value rounded(const attention_emitter *e, ir_value low, ir_value high) {
  ir *b = e->b;
  int count = 2 * e->shape.lanes;
  ir_value operands[] = {high, low}; /* the first operand is the upper half of the register */
  ir_value both = ir_intrinsic(b, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", ir_vector(b, count, b->bf16), 2, operands);
  return ir_bitcast_lanes(b, both, ir_vector(b, count, b->i16));
}

ir_value emit_pairs(const attention_emitter *e, ir_value low, ir_value high) {
  ir *b = e->b;
  int lanes = e->shape.lanes;
  int64_t mask[MOST_HALVES];
  ir_value both = rounded(e, low, high);
  for (int i = 0; i < 2 * lanes; i++) mask[i] = i / 2 + i % 2 * lanes;
  return ir_bitcast_lanes(b, ir_shuffle(b, both, both, 2 * lanes, mask), e->lanes);
}

void emit_paired_queries(const attention_emitter *e, ir_value rows, ir_value count, ir_value to) {
  ir *b = e->b;
  ir_loop loop = ir_for(b, e->zero, count);
  ir_value at = nth(b, to, loop.index, (int64_t)e->shape.queries * 2);
  for (int x = 0; x < e->shape.vectors; x += 2) {
    ir_value low = load(e, attention_at(e, rows, loop.index, x)), high = ir_float(b, e->lanes, 0);
    if (x + 1 < e->shape.vectors) high = load(e, attention_at(e, rows, loop.index, x + 1));
    ir_store(b, rounded(e, low, high), ir_offset_const(b, at, (int64_t)x * e->shape.lanes * 2), 4, false);
  }
  ir_end_for(b, loop);
}

void emit_paired_rows(const attention_emitter *e, ir_value rows, ir_value count, ir_value to) {
  ir *b = e->b;
  emit_partner(e, rows, count, 0);
  ir_loop loop = ir_for(b, e->zero, attention_steps(e, count));
  for (int x = 0; x < e->shape.vectors; x++) {
    ir_value row = attention_mul(b, loop.index, 2), low = load(e, attention_at(e, rows, row, x)),
             high = load(e, attention_at(e, rows, add(b, row, i64(b, 1)), x));
    store(e, emit_pairs(e, low, high), attention_at(e, to, loop.index, x));
  }
  ir_end_for(b, loop);
}

void emit_partner(const attention_emitter *e, ir_value rows, ir_value count, double number) {
  ir *b = e->b;
  ir_branch is_odd = ir_if(b, ir_compare_int(b, "ne", ir_op2(b, "arith.remui", count, i64(b, 2)), e->zero));
  for (int x = 0; x < e->shape.vectors; x++) store(e, ir_float(b, e->lanes, number), attention_at(e, rows, count, x));
  ir_end_if(b, is_odd);
}

/* `count` pairs of two rows' numbers, from channel `channel` on. upper: null: zeros. */
static void emit_woven(ir *b, ir_value lower, ir_value upper, int count, ir_value channel, ir_value to) {
  MlirType numbers = ir_vector(b, count, b->i16);
  ir_value bytes = attention_mul(b, channel, 2), x = ir_load(b, numbers, ir_offset(b, lower, bytes), 2);
  ir_value y = upper.ptr ? ir_load(b, numbers, ir_offset(b, upper, bytes), 2) : ir_int(b, numbers, 0);
  ir_value at = nth(b, to, channel, 4);
  int lanes = 2 * count < MOST_HALVES ? 2 * count : MOST_HALVES;
  for (int first = 0; first < count; first += lanes / 2)
    ir_store(b, woven(b, x, y, lanes, first), ir_offset_const(b, at, (int64_t)first * 4), 4, false);
}

static void emit_woven_pair(ir *b, ir_value lower, ir_value upper, int width, ir_value to) {
  int whole = width / MOST_HALVES * MOST_HALVES;
  ir_loop registers = ir_for(b, i64(b, 0), i64(b, width / MOST_HALVES));
  emit_woven(b, lower, upper, MOST_HALVES, attention_mul(b, registers.index, MOST_HALVES), to);
  ir_end_for(b, registers);
  for (int piece = MOST_HALVES / 2; piece > 1; piece /= 2)
    if ((width - whole) & piece) {
      emit_woven(b, lower, upper, piece, i64(b, whole), to);
      whole += piece;
    }
}

void emit_woven_rows(const attention_emitter *e, ir_value from, ir_value stride, ir_value count, int width, int pitch,
                     ir_value to) {
  ir *b = e->b;
  ir_value whole = ir_op2(b, "arith.divui", count, i64(b, 2));
  ir_loop pairs = ir_for(b, e->zero, whole);
  ir_value lower = ir_offset(b, from, mul(b, attention_mul(b, pairs.index, 2), stride));
  ir_value at = nth(b, to, pairs.index, (int64_t)pitch * 4);
  emit_woven_pair(b, lower, ir_offset(b, lower, stride), width, at);
  ir_end_for(b, pairs);
  ir_branch is_odd = ir_if(b, ir_compare_int(b, "ne", attention_mul(b, whole, 2), count));
  lower = ir_offset(b, from, mul(b, attention_mul(b, whole, 2), stride));
  emit_woven_pair(b, lower, (ir_value){NULL}, width, nth(b, to, whole, (int64_t)pitch * 4));
  ir_end_if(b, is_odd);
}

/* ---- rows of keys times rows of queries ---- */

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
