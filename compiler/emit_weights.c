/* emit_weights: chunks of terms, and their sums; see emit_weights.h. */
#include "emit_weights.h"

#include "emit_product.h"

enum { MOST_UNROLLED = 8, MOST_LANES = 16, ACCUMULATOR_BYTES = 64 };

int64_t emit_weights_room(const plan_widen *p) { return (int64_t)p->p->n_weights * ACCUMULATOR_BYTES; }

ir_value emit_sum_of_product(ir *b, const cpu_target *target, ir_value x, ir_value y, ir_value sum) {
  return sum.ptr ? emit_multiply_add(b, target, x, y, sum) : ir_op2(b, "arith.mulf", x, y);
}

static expr_emitter chunk_emitter(ir *b, arena *a, const plan *values, const cpu_target *target, bool *has_table, int begin, int width) {
  expr_emitter x = {.b = b, .memory = a, .p = values, .has_fma = target->has_fma, .begin = begin, .width = width,
                    .suffix = target->suffix, .has_table = has_table, .target = target};
  x.memo = arena_array(a, ir_value, expr_pool_count(values->spec->pool));
  return x;
}

/* Adds a chunk of terms to the sums [n_weights]; counted: of its lanes, from the last backwards, so many are new. */
static void add_chunk(weight_emitter *e, const query_row *row, int begin, int width, ir_value shift, int counted, ir_value *sums) {
  ir *b = e->b;
  const plan_widen *p = e->p;
  expr_emitter x = chunk_emitter(b, e->memory, p->values, e->target, e->has_table, begin, width);
  x.shift = shift;
  x.prepared = row->prepared;
  x.input = row->input;
  x.input_dtype = e->input_dtype;
  bool mask[MOST_LANES];
  for (int i = 0; i < width; i++) mask[i] = i >= width - counted;
  for (int w = 0; w < p->p->n_weights; w++) {
    ir_value sum = sums[w];
    for (int k = p->first_product[w]; k < p->first_product[w + 1]; k++) {
      ir_value fixed = emit_expr_f32(&x, p->fixed[k]);
      if (p->product_query[k] >= 0) sum = emit_sum_of_product(b, e->target, emit_expr_f32(&x, p->query[p->product_query[k]]), fixed, sum);
      else sum = sum.ptr ? ir_op2(b, "arith.addf", sum, fixed) : fixed;
    }
    if (counted < width) {
      ir_value before = sums[w].ptr ? sums[w] : ir_float(b, ir_type(sum), 0);
      sum = ir_select(b, ir_bools(b, width, mask), sum, before);
    }
    sums[w] = sum;
  }
}

/* Whether inputs are read at neighbouring places, so that one code in a loop serves all chunks. */
static bool is_regular(const plan_widen *p, const expr *x) {
  if (x->op == EXPR_INPUT && (x->depends & DEPENDS_BLOCK))
    for (int i = 1; i < p->spec->n_blocks; i++)
      if (x->offsets[i] != x->offsets[0] + i) return false;
  for (int i = 0; i < expr_op_arity(x->op); i++)
    if (!is_regular(p, x->arg[i])) return false;
  return true;
}

static bool is_loop(const plan_widen *p, int chunks) {
  for (int i = 0; i < p->n_queries; i++)
    if (!is_regular(p, p->query[i])) return false;
  return chunks > MOST_UNROLLED;
}

static void loop_over_chunks(weight_emitter *e, const query_row *row, int width, int chunks, ir_value *sums) {
  ir *b = e->b;
  int n = e->p->p->n_weights, bytes = width * 4;
  MlirType type = ir_vector(b, width, b->f32);
  for (int w = 0; w < n; w++) ir_store(b, ir_float(b, type, 0), ir_offset_const(b, e->sums, w * bytes), bytes, false);
  ir_loop loop = ir_for(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, chunks));
  for (int w = 0; w < n; w++) sums[w] = ir_load(b, type, ir_offset_const(b, e->sums, w * bytes), bytes);
  add_chunk(e, row, 0, width, ir_op2(b, "arith.muli", loop.index, ir_int(b, b->i64, width)), width, sums);
  for (int w = 0; w < n; w++) ir_store(b, sums[w], ir_offset_const(b, e->sums, w * bytes), bytes, false);
  ir_end_for(b, loop);
  for (int w = 0; w < n; w++) sums[w] = ir_load(b, type, ir_offset_const(b, e->sums, w * bytes), bytes);
}

/* Lanes of a vector of terms; 0: one term, scalars. */
static int term_lanes(const weight_emitter *e) {
  int terms = e->p->spec->n_blocks, width = e->target->lanes;
  while (width > terms) width /= 2;
  return terms == 1 ? 0 : width;
}

/* Adds the upper half of the lanes to the lower until `most` are left. */
static ir_value fold(ir *b, ir_value x, int most) {
  int64_t low[MOST_LANES], high[MOST_LANES];
  for (int half = ir_lanes(x) / 2; half >= most; half /= 2) {
    for (int i = 0; i < half; i++) low[i] = i, high[i] = half + i;
    x = ir_op2(b, "arith.addf", ir_shuffle(b, x, x, half, low), ir_shuffle(b, x, x, half, high));
  }
  return x;
}

/* Sums pairs of neighbouring lanes of x, then of y. */
static ir_value fold_two(ir *b, ir_value x, ir_value y) {
  int64_t even[2 * MOST_LANES], odd[2 * MOST_LANES];
  int lanes = ir_lanes(x);
  for (int i = 0; i < lanes; i++) even[i] = 2 * i, odd[i] = 2 * i + 1;
  return ir_op2(b, "arith.addf", ir_shuffle(b, x, y, lanes, even), ir_shuffle(b, x, y, lanes, odd));
}

/* Up to four vectors of four lanes become their sums. */
static void fold_four(ir *b, ir_value *sums, int count) {
  ir_value x = fold_two(b, sums[0], sums[count > 1 ? 1 : 0]), y = count > 2 ? fold_two(b, sums[2], sums[count > 3 ? 3 : 2]) : x;
  ir_value all = fold_two(b, x, y);
  for (int i = 0; i < count; i++) sums[i] = ir_extract(b, all, i);
}

/* Vectors of terms, and those of the last chunk (ptr NULL: there is none), become their sums. */
static void fold_sums(weight_emitter *e, ir_value *sums, const ir_value *tails, int lanes) {
  ir *b = e->b;
  int n = e->p->p->n_weights, few = lanes < 4 ? lanes : 4;
  for (int w = 0; w < n; w++) {
    ir_value tail = tails[w].ptr ? fold(b, tails[w], few) : tails[w];
    sums[w] = fold(b, sums[w], few);
    if (tail.ptr) sums[w] = ir_op2(b, "arith.addf", sums[w], tail);
    if (few == 2) sums[w] = ir_op2(b, "arith.addf", ir_extract(b, sums[w], 0), ir_extract(b, sums[w], 1));
  }
  for (int w = 0; few == 4 && w < n; w += 4) fold_four(b, sums + w, n - w < 4 ? n - w : 4);
}

/* The last terms are a shorter vector, which begins early where they do not fill it. */
void emit_weights(weight_emitter *e, const query_row *row, ir_value *weight) {
  ir_value none = {NULL}, *tails = arena_array(e->memory, ir_value, e->p->p->n_weights + 1);
  int width = term_lanes(e), terms = e->p->spec->n_blocks;
  for (int w = 0; w < e->p->p->n_weights; w++) weight[w] = tails[w] = none;
  if (width == 0) {
    add_chunk(e, row, 0, 0, none, 0, weight);
    return;
  }
  int chunks = terms / width, rest = terms % width, short_width = width < 4 ? width : 4;
  while (short_width < rest) short_width *= 2;
  if (is_loop(e->p, chunks)) loop_over_chunks(e, row, width, chunks, weight);
  else
    for (int i = 0; i < chunks; i++) add_chunk(e, row, i * width, width, none, width, weight);
  if (rest) add_chunk(e, row, terms - short_width, short_width, none, rest, tails);
  fold_sums(e, weight, tails, width);
}
