/* cpu/attention/scores: see cpu/attention/scores.h. */
#include "cpu/attention/scores.h"

#include "cpu/attention/dots.h"
#include "cpu/attention/seen.h"
#include "mlir/arith.h"

/* Bias, mask and maximum of one key's scores; they go to `scores`. */
static void emit_finish_key(const score_emitter *s, const key_tile *t, ir_value key, bool checked, const ir_value *sums,
                            ir_value *maxima) {
  const attention_emitter *e = s->e;
  ir *b = e->b;
  for (int x = 0; x < e->shape.vectors; x++) {
    ir_value score = sums[x];
    if (t->paired) score = emit_pair_score(s->pairs, key, x, score, t->whole_begin.ptr && !checked, checked);
    if (checked) {
      ir_value limits =
          ir_offset_const(b, e->tile, (int64_t)offsetof(pegen_attention_tile, limits) + x * e->shape.lanes * 4);
      MlirType integers = ir_vector(b, e->shape.lanes, b->i32);
      ir_value index = ir_broadcast(b, integers, ir_cast(b, "arith.trunci", add(b, t->first, key), b->i32));
      ir_value seen = ir_compare_int(b, "slt", index, ir_load(b, integers, limits, 4));
      score = ir_select(b, seen, score, ir_float(b, e->lanes, -__builtin_inf()));
    }
    maxima[x] = larger(b, score, maxima[x]);
    store(e, score, attention_at(e, t->scores, key, x));
  }
}

/* Both ways to finish `rows` keys from `key` on: where some query may not see some of them, and where all see all (or,
 * where the bias hides, all keys are finite and it is not known which are seen whole). */
static void emit_finish(const score_emitter *s, const key_tile *t, ir_value key, int rows, const ir_value *sums,
                        ir_value *maxima) {
  const attention_emitter *e = s->e;
  ir *b = e->b;
  int vectors = e->shape.vectors;
  ir_value sides[2][ATTENTION_MAX_VECTORS];
  for (int x = 0; x < vectors; x++) sides[0][x] = sides[1][x] = maxima[x];
  ir_value first = add(b, t->first, key), last = add(b, first, i64(b, rows));
  ir_value hides = t->whole_begin.ptr ? ir_op2(b, "arith.xori", emit_is_whole(e, t, first, last), ir_int(b, b->i1, 1))
                                      : ir_compare_int(b, "sgt", last, ATTENTION_TILE(e, free, b->i64));
  ir_choice choice = ir_choose_alike(b, hides, vectors, e->lanes);
  for (int r = 0; r < rows; r++) emit_finish_key(s, t, add(b, key, i64(b, r)), true, sums + r * vectors, sides[0]);
  ir_choose_else(b, &choice, vectors, sides[0]);
  for (int r = 0; r < rows; r++) emit_finish_key(s, t, add(b, key, i64(b, r)), false, sums + r * vectors, sides[1]);
  ir_end_choose(b, choice, vectors, sides[1], maxima);
}

int attention_plain_run(const attention_plan *p, int from, int *end) {
  const spec *s = p->spec;
  bool turned[SPEC_MAX_HEAD_DIM] = {false};
  for (int i = 0; p->matrix && i < s->n_components * s->n_blocks; i++) turned[s->channel[i]] = true;
  while (from < p->head_dim && turned[from]) from++;
  for (*end = from; *end < p->head_dim && !turned[*end];) ++*end;
  return from;
}

/* Without rotation there is one run of all. */
static int next_plain_run(const attention_plan *p, bool paired, int from, int *end) {
  if (paired) return attention_plain_run(p, from, end);
  *end = p->head_dim;
  return from;
}

/* Products of the group of keys from `key` on, of the registers that may see some of them. */
static void emit_seen_products(const score_emitter *s, const key_tile *t, ir_value group, ir_value key,
                               const ir_value *rows, ir_value *sums) {
  const attention_emitter *e = s->e;
  ir *b = e->b;
  int count = e->shape.rows * e->shape.vectors;
  ir_value of_one[ATTENTION_MAX_SUMS], of_both[ATTENTION_MAX_SUMS],
      lone = emit_lone(e, s->pairs, t, key, e->shape.rows);
  emit_keep_lone(e, t, group, lone);
  for (int i = 0; i < count; i++) of_both[i] = sums[i];
  ir_choice choice = ir_choose_alike(b, ir_compare_int(b, "ne", lone, i64(b, LONE_BOTH)), count, e->lanes);
  emit_lone_products(e, rows, lone, of_one);
  ir_choose_else(b, &choice, count, of_one);
  emit_products(e, rows, 0, e->p->head_dim, of_both);
  ir_end_choose(b, choice, count, of_both, sums);
}

void emit_scores_begin(const attention_emitter *e, column_emitter *columns, pair_emitter *pairs) {
  const attention_plan *p = e->p;
  *pairs = (pair_emitter){.e = e};
  if (p->columns) *columns = emit_columns_begin(e);
  if (attention_has_pairs(p) && (!p->columns || p->score))
    *pairs = emit_pairs_begin(e, p->columns ? &columns->places : NULL);
}

void emit_scores(const score_emitter *s, const key_tile *t, ir_value *maxima) {
  const attention_emitter *e = s->e;
  ir *b = e->b;
  int n = e->shape.rows, vectors = e->shape.vectors;
  bool rotates = t->paired && e->p->matrix, is_finished = !s->alone && !rotates && !(t->paired && e->p->score);
  ir_value groups = attention_groups(b, t->count, n), last = sub(b, t->count, i64(b, 1));
  ir_value now[ATTENTION_MAX_SUMS];
  ir_loop loop = ir_for_with(b, e->zero, groups, vectors, maxima, now);
  ir_value key = attention_mul(b, loop.index, n), rows[ATTENTION_MAX_ROWS], sums[ATTENTION_MAX_SUMS],
           next[ATTENTION_MAX_VECTORS];
  if (t->ahead.ptr) emit_ahead(e, t->ahead);
  for (int r = 0; r < n; r++) {
    ir_value row = smaller(b, add(b, key, i64(b, r)), last); /* rows past the end repeat it, and are masked */
    rows[r] = ir_offset(b, t->rows, mul(b, row, t->stride));
  }
  for (int i = 0; i < n * vectors; i++) sums[i] = ir_float(b, e->lanes, 0);
  if (t->lone.ptr) emit_seen_products(s, t, loop.index, key, rows, sums);
  for (int begin = t->lone.ptr ? e->p->head_dim : 0, end;
       (begin = next_plain_run(e->p, t->paired, begin, &end)) < e->p->head_dim; begin = end)
    emit_products(e, rows, begin, end, sums);
  for (int i = 0; e->dots && i < n * vectors; i++) sums[i] = mul(b, sums[i], e->scale);
  if (t->paired && e->p->columns && !s->alone) emit_columns_products(s->columns, key, sums);
  for (int x = 0; x < vectors; x++) next[x] = now[x];
  if (is_finished) emit_finish(s, t, key, n, sums, next);
  else
    for (int i = 0; i < n * vectors; i++)
      store(e, sums[i], attention_at(e, t->scores, add(b, key, i64(b, i / vectors)), i % vectors));
  ir_end_for_with(b, loop, vectors, next, maxima);
}

void emit_final_maxima(const score_emitter *s, const key_tile *t, ir_value *maxima) {
  const attention_emitter *e = s->e;
  ir *b = e->b;
  int vectors = e->shape.vectors;
  ir_value sums[ATTENTION_MAX_VECTORS], next[ATTENTION_MAX_VECTORS], now_of_key[ATTENTION_MAX_VECTORS];
  ir_loop keys = ir_for_with(b, e->zero, t->count, vectors, maxima, now_of_key);
  for (int x = 0; x < vectors; x++) {
    sums[x] = load(e, attention_at(e, t->scores, keys.index, x));
    if (s->products.ptr) store(e, sums[x], attention_at(e, s->products, keys.index, x));
    next[x] = now_of_key[x];
  }
  emit_finish(s, t, keys.index, 1, sums, next);
  ir_end_for_with(b, keys, vectors, next, maxima);
}
