/* gpu/pairwise: what a pair of tokens adds to its score, from the displacement; see gpu/attention.h.
 *
 * A bias is float32 of displacements rounded to float32, as on processors. A rotation is made of the displacement in
 * two-float arithmetic, block by block in a loop, and what blocks share is computed before it.
 */
#include "gpu/attention.h"
#include "gpu/index.h"
#include "mlir/number.h"

void attend_pair_begin(attend *t) {
  const attention_plan *p = t->p;
  const expr **roots = arena_array(t->memory, const expr *, p->n_shared + 3);
  int count = 0;
  if (p->score) roots[count++] = p->score;
  if (p->bias) roots[count++] = p->bias;
  for (int i = 0; i < p->n_shared; i++) roots[count++] = p->shared[i];
  emit_thread_operands(&t->exprs, roots, count);
}

/* ---- the bias ---- */

void attend_pair_place(attend *t, ir_value query, ir_value key) {
  for (int axis = 0; axis < t->p->n_places - t->p->n_numbers; axis++)
    t->exprs.positions[axis] = two_float_f32(attend_narrow_displacement(t, query, key, axis));
}

static ir_value bias(attend *t, ir_value query, ir_value key) {
  thread_emitter *e = &t->exprs;
  two_float *remembered = emit_thread_remember(e);
  attend_pair_place(t, query, key);
  ir_value value = emit_thread_f32(e, t->p->bias, 0);
  emit_thread_forget(e, remembered);
  return value;
}

/* ---- a score ---- */

static ir_value score_of(attend *t, ir_value product) {
  thread_emitter *e = &t->exprs;
  two_float *remembered = emit_thread_remember(e);
  e->positions[SPEC_OF_SCORE] = two_float_f32(product);
  ir_value score = emit_thread_f32(e, t->p->score, 0);
  emit_thread_forget(e, remembered);
  return score;
}

ir_value attend_score(attend *t, ir_value product, const attend_pair_of *pair) {
  ir *b = t->b;
  ir_value encoded = attend_encoded(t, pair->query_token, pair->key_token),
           hidden = ir_float(b, b->f32, -__builtin_inf());
  if (t->places.ptr) attend_pair_place(t, pair->query, pair->key);
  attend_pair_numbers(t, pair);
  ir_value score = score_of(t, product);
  if (t->p->hides) { /* a key that is hidden whatever its product is, should that be no number */
    ir_value is_number =
        ir_compare_float(b, "olt", ir_op1(b, "math.absf", product), ir_float(b, b->f32, __builtin_inf()));
    ir_value hides = ir_compare_float(b, "oeq", score_of(t, ir_float(b, b->f32, 0)), hidden);
    ir_value others = ir_select(b, hides, hidden, score);
    score = ir_select(b, is_number, score, others);
  }
  return encoded.ptr ? ir_select(b, encoded, score, product) : score;
}

/* ---- the rotation ---- */

/* A coefficient of the block with its sign; null: 0. */
static ir_value coefficient(attend *t, int i, bool negated, const ir_value *entry) {
  const attention_plan *p = t->p;
  if (p->entry_of[i] < 0) return (ir_value){NULL};
  ir_value x = entry[p->entry_of[i]];
  return p->entry_negated[i] != negated ? ir_op1(t->b, "arith.negf", x) : x;
}

/* R k by the matrix, or (back) R^T q. */
static void turn(attend *t, const ir_value *entry, bool back, const ir_value *x, ir_value *turned) {
  ir *b = t->b;
  int n = t->p->spec->n_components;
  for (int i = 0; i < n; i++) {
    ir_value sum = {NULL};
    for (int j = 0; j < n; j++) {
      ir_value r = coefficient(t, back ? j * n + i : i * n + j, false, entry);
      if (r.ptr) sum = sum.ptr ? ir_fma(b, r, x[j], sum) : mul(b, r, x[j]);
    }
    turned[i] = sum.ptr ? sum : ir_float(b, b->f32, 0);
  }
}

/* By two reflections: D (k - (D t) (D t . k)), or (back) D (q - t (t . q)); less what it is of, where `less`. */
static void mirror(attend *t, const ir_value *entry, bool back, bool less, const ir_value *x, ir_value *turned) {
  ir *b = t->b;
  int n = t->p->spec->n_components;
  const bool *flipped = t->p->flipped;
  ir_value product = ir_float(b, b->f32, 0);
  for (int i = 0; i < n; i++) {
    ir_value r = coefficient(t, i, !back && flipped[i], entry);
    if (r.ptr) product = ir_fma(b, r, x[i], product);
  }
  for (int i = 0; i < n; i++) {
    ir_value r = coefficient(t, i, back || !flipped[i], entry);
    ir_value rest = !less ? x[i] : flipped[i] ? add(b, x[i], x[i]) : ir_float(b, b->f32, 0);
    turned[i] = r.ptr ? ir_fma(b, r, product, rest) : rest;
    if (flipped[i]) turned[i] = ir_op1(b, "arith.negf", turned[i]);
  }
}

ir_value attend_load_number(attend *t, ir_value at, int bytes) {
  ir *b = t->b;
  if (bytes == 4) return ir_load(b, b->f32, at, bytes);
  return emit_number_value(b, t->exprs.native, t->entry->dtype, ir_load(b, b->i16, at, bytes));
}

void attend_block_of_row(attend *t, ir_value row, int bytes, ir_value *x) {
  ir *b = t->b;
  const spec *s = t->p->spec;
  for (int i = 0; i < s->n_components; i++) {
    ir_value channel = emit_thread_index(&t->exprs, s->channel + (int64_t)i * s->n_blocks);
    x[i] = attend_load_number(t, ir_offset(b, row, wide(b, scaled(b, channel, bytes))), bytes);
  }
}

void attend_turn_block(attend *t, const ir_value *entry, bool back, const ir_value *x, ir_value *turned) {
  if (t->p->mirror) mirror(t, entry, back, false, x, turned);
  else turn(t, entry, back, x, turned);
}

void attend_change_block(attend *t, const ir_value *entry, bool back, ir_value encoded, const ir_value *x,
                         ir_value *changed) {
  ir *b = t->b;
  if (t->p->mirror) mirror(t, entry, back, true, x, changed);
  else turn(t, entry, back, x, changed);
  for (int i = 0; i < t->p->spec->n_components; i++) {
    if (!t->p->mirror) changed[i] = sub(b, changed[i], x[i]);
    if (encoded.ptr) changed[i] = ir_select(b, encoded, changed[i], ir_float(b, b->f32, 0));
  }
}

ir_value attend_add_change(attend *t, const ir_value *entry, ir_value encoded, const ir_value *q, const ir_value *k,
                           ir_value sum) {
  ir *b = t->b;
  int n = t->p->spec->n_components;
  ir_value changed[SPEC_MAX_BLADES], of_q = ir_float(b, b->f32, 0), of_k = of_q, total = sum;
  if (!t->p->mirror) attend_change_block(t, entry, false, (ir_value){NULL}, k, changed);
  for (int i = 0; i < n && !t->p->mirror; i++) total = ir_fma(b, q[i], changed[i], total);
  for (int i = 0; i < n && t->p->mirror; i++) { /* D k - k, and less (t . q) (D t . k) */
    ir_value r = coefficient(t, i, true, entry), flipped = coefficient(t, i, t->p->flipped[i], entry);
    if (r.ptr) of_q = ir_fma(b, r, q[i], of_q);
    if (r.ptr) of_k = ir_fma(b, flipped, k[i], of_k);
    if (t->p->flipped[i]) total = ir_fma(b, mul(b, k[i], ir_float(b, b->f32, -2)), q[i], total);
  }
  if (t->p->mirror) total = ir_fma(b, of_q, of_k, total);
  return encoded.ptr ? ir_select(b, encoded, total, sum) : total;
}

ir_value attend_walk_blocks(attend *t, ir_value query, ir_value key, attend_visit_block *visit, void *context) {
  ir *b = t->b;
  const attention_plan *p = t->p;
  thread_emitter *e = &t->exprs;
  two_float *of_call = emit_thread_remember(e);
  for (int axis = 0; axis < p->spec->n_axes; axis++) e->positions[axis] = attend_displacement(t, query, key, axis);
  for (int i = 0; i < p->n_shared; i++) emit_thread_value(e, p->shared[i], 0);
  ir_value zero = ir_float(b, b->f32, 0), unit = e->unit, sum, entry[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
  ir_loop blocks = ir_for_with(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, p->spec->n_blocks), 1, &zero, &sum);
  two_float *of_pair = emit_thread_remember(e);
  e->unit = ir_cast(b, "arith.trunci", blocks.index, b->i32);
  emit_thread_operands(e, p->entry, p->n_entries);
  for (int i = 0; i < p->n_entries; i++) entry[i] = emit_thread_f32(e, p->entry[i], 0);
  ir_value next = visit(context, t, entry, sum);
  ir_end_for_with(b, blocks, 1, &next, &sum);
  e->unit = unit;
  emit_thread_forget(e, of_pair);
  emit_thread_forget(e, of_call);
  return sum;
}

ir_value attend_encoded(attend *t, ir_value query_token, ir_value key_token) {
  ir *b = t->b;
  if (t->p->spec->skip_tokens == 0) return (ir_value){NULL};
  ir_value skip = i32(b, t->p->spec->skip_tokens), first = attend_first_query(t);
  return ir_op2(b, "arith.andi", ir_compare_int(b, "sge", query_token, first),
                ir_compare_int(b, "sge", key_token, skip));
}

ir_value attend_bias(attend *t, const attend_pair_of *pair) {
  ir_value encoded = attend_encoded(t, pair->query_token, pair->key_token), sum = bias(t, pair->query, pair->key);
  return encoded.ptr ? ir_select(t->b, encoded, sum, ir_float(t->b, t->b->f32, 0)) : sum;
}
