/* cpu/attention/attention: the loops of one tile; see cpu/attention/attention.h.
 *
 * For every tile of keys: scores (q k^T, rows of keys by registers of queries), bias, masks and the running
 * maximum while they are still in registers; p = 2^(s - max) and its sum; output = output 2^(old max - max) + p v.
 */
#include "cpu/attention/attention.h"
#include "mlir/arith.h"

#include "base/diag.h"
#include "cpu/rows.h"

#include "kernel/attention.h"

#include <stddef.h>

enum { CACHE_LINE = 64, MAX_ROWS = 8, MAX_SUMS = MAX_ROWS * ATTENTION_MAX_VECTORS };

/* A maximum no score is expected below: a query that sees nothing keeps it, and its sum stays 0. */
static const double NOTHING_SEEN = -0x1p126;

ir_value attention_add(ir *b, ir_value x, ir_value y) { return ir_op2(b, "arith.addi", x, y); }
ir_value attention_mul(ir *b, ir_value x, int64_t y) { return ir_op2(b, "arith.muli", x, ir_int(b, b->i64, y)); }

ir_value attention_multiply_add(ir *b, ir_value x, ir_value y, ir_value z) {
  return ir_op2(b, "arith.addf", ir_op2(b, "arith.mulf", x, y), z);
}

/* NaN stays: a comparison with it fails, and then y is taken. */

ir_value attention_at(attention_emitter *e, ir_value base, ir_value row, int vector) {
  ir_value at = ir_offset(e->b, base, attention_mul(e->b, row, e->shape.queries * 4));
  return ir_offset_const(e->b, at, (int64_t)vector * e->shape.lanes * 4);
}

ir_value attention_at_constant(attention_emitter *e, ir_value base, int row, int vector) {
  return ir_offset_const(e->b, base, ((int64_t)row * e->shape.queries + (int64_t)vector * e->shape.lanes) * 4);
}

static ir_value load(attention_emitter *e, ir_value at) { return ir_load(e->b, e->lanes, at, 4); }
static void store(attention_emitter *e, ir_value v, ir_value at) { ir_store(e->b, v, at, 4, false); }

/* ---- scores ---- */

/* sums += a register of queries times a key's channel. */
static void emit_channel(attention_emitter *e, const ir_value *rows, ir_value channel, ir_value *sums) {
  ir *b = e->b;
  int vectors = e->shape.vectors;
  ir_value q[ATTENTION_MAX_VECTORS], offset = attention_mul(b, channel, 4);
  for (int x = 0; x < vectors; x++) q[x] = load(e, attention_at(e, e->queries, channel, x));
  for (int r = 0; r < e->shape.rows; r++) {
    ir_value k = ir_broadcast(b, e->lanes, ir_load(b, b->f32, ir_offset(b, rows[r], offset), 4));
    for (int x = 0; x < vectors; x++) sums[r * vectors + x] = attention_multiply_add(b, k, q[x], sums[r * vectors + x]);
  }
}

/* The same over channels [begin, end). */
static void emit_products(attention_emitter *e, const ir_value *rows, int begin, int end, ir_value *sums) {
  ir *b = e->b;
  int count = e->shape.rows * e->shape.vectors, turn = e->shape.unroll, turns = (end - begin) / turn;
  ir_value now[MAX_SUMS];
  if (turns > 0) {
    ir_loop loop = ir_for_with(b, e->zero, i64(b, turns), count, sums, now);
    ir_value channel = attention_add(b, attention_mul(b, loop.index, turn), i64(b, begin));
    for (int i = 0; i < turn; i++) emit_channel(e, rows, attention_add(b, channel, i64(b, i)), now);
    ir_end_for_with(b, loop, count, now, sums);
  }
  for (int i = begin + turns * turn; i < end; i++) emit_channel(e, rows, i64(b, i), sums);
}

/* A bias that hides the key hides its score, too, should that be no number. */
static ir_value emit_biased(attention_emitter *e, ir_value score, ir_value bias, bool checked) {
  ir_value sum = ir_op2(e->b, "arith.addf", score, bias);
  if (!e->p->hides || !checked) return sum;
  ir_value hidden = ir_float(e->b, e->lanes, -__builtin_inf());
  return ir_select(e->b, ir_compare_float(e->b, "oeq", bias, hidden), hidden, sum);
}

/* Bias, mask and maximum of one key's scores; they go to `scores`. */
static void emit_finish_key(attention_emitter *e, const key_tile *t, ir_value key, bool checked, const ir_value *sums,
                            ir_value *maxima) {
  ir *b = e->b;
  for (int x = 0; x < e->shape.vectors; x++) {
    ir_value s = sums[x];
    if (t->paired && e->p->bias) s = emit_biased(e, s, emit_delta_bias(e, key, x), checked);
    if (checked) {
      ir_value limits =
          ir_offset_const(b, e->tile, (int64_t)offsetof(pegen_attention_tile, limits) + x * e->shape.lanes * 4);
      MlirType integers = ir_vector(b, e->shape.lanes, b->i32);
      ir_value index = ir_broadcast(b, integers, ir_cast(b, "arith.trunci", attention_add(b, t->first, key), b->i32));
      ir_value seen = ir_compare_int(b, "slt", index, ir_load(b, integers, limits, 4));
      s = ir_select(b, seen, s, ir_float(b, e->lanes, -__builtin_inf()));
    }
    maxima[x] = larger(b, s, maxima[x]);
    store(e, s, attention_at(e, e->scores, key, x));
  }
}

/* Both ways to finish `rows` keys from `key` on: where some query may not see some of them, and where all see all (or,
 * where the bias hides, all keys are finite). */
static void emit_finish(attention_emitter *e, const key_tile *t, ir_value key, int rows, const ir_value *sums,
                        ir_value *maxima) {
  ir *b = e->b;
  int vectors = e->shape.vectors;
  MlirType types[ATTENTION_MAX_VECTORS];
  ir_value sides[2][ATTENTION_MAX_VECTORS];
  for (int x = 0; x < vectors; x++) {
    types[x] = e->lanes;
    sides[0][x] = sides[1][x] = maxima[x];
  }
  ir_value last = attention_add(b, t->first, attention_add(b, key, i64(b, rows)));
  ir_choice choice = ir_choose(b, ir_compare_int(b, "sgt", last, ATTENTION_TILE(e, free, b->i64)), vectors, types);
  for (int r = 0; r < rows; r++)
    emit_finish_key(e, t, attention_add(b, key, i64(b, r)), true, sums + r * vectors, sides[0]);
  ir_choose_else(b, &choice, vectors, sides[0]);
  for (int r = 0; r < rows; r++)
    emit_finish_key(e, t, attention_add(b, key, i64(b, r)), false, sums + r * vectors, sides[1]);
  ir_end_choose(b, choice, vectors, sides[1], maxima);
}

/* Channels that a rotation leaves alone, as runs; without rotation there is one run of all. */
static int next_plain_run(const attention_plan *p, bool paired, int from, int *end) {
  const spec *s = p->spec;
  bool turned[SPEC_MAX_HEAD_DIM] = {false};
  for (int i = 0; paired && p->matrix && i < s->n_components * s->n_blocks; i++) turned[s->channel[i]] = true;
  while (from < p->head_dim && turned[from]) from++;
  for (*end = from; *end < p->head_dim && !turned[*end];) ++*end;
  return from;
}

static void emit_scores(attention_emitter *e, const key_tile *t, ir_value *maxima) {
  ir *b = e->b;
  int n = e->shape.rows, vectors = e->shape.vectors;
  bool rotates = t->paired && e->p->matrix;
  ir_value groups = ir_op2(b, "arith.divui", attention_add(b, t->count, i64(b, n - 1)), i64(b, n)),
           last = sub(b, t->count, i64(b, 1));
  ir_value now[MAX_SUMS];
  ir_loop loop = ir_for_with(b, e->zero, groups, vectors, maxima, now);
  ir_value key = attention_mul(b, loop.index, n), rows[MAX_ROWS], sums[MAX_SUMS], next[ATTENTION_MAX_VECTORS];
  for (int r = 0; r < n; r++) {
    ir_value row = smaller(b, attention_add(b, key, i64(b, r)), last); /* rows past the end repeat it, and are masked */
    rows[r] = ir_offset(b, t->rows, ir_op2(b, "arith.muli", row, t->stride));
  }
  for (int i = 0; i < n * vectors; i++) sums[i] = ir_float(b, e->lanes, 0);
  for (int begin = 0, end; (begin = next_plain_run(e->p, t->paired, begin, &end)) < e->p->head_dim; begin = end)
    emit_products(e, rows, begin, end, sums);
  if (t->paired && e->p->columns) emit_columns_products(e, key, sums);
  for (int x = 0; x < vectors; x++) next[x] = now[x];
  if (!rotates) emit_finish(e, t, key, n, sums, next);
  else
    for (int i = 0; i < n * vectors; i++)
      store(e, sums[i], attention_at(e, e->scores, attention_add(b, key, i64(b, i / vectors)), i % vectors));
  ir_end_for_with(b, loop, vectors, next, maxima);
  if (!rotates) return;
  emit_delta_rotations(e, t);
  ir_value now_of_key[MAX_SUMS];
  ir_loop keys = ir_for_with(b, e->zero, t->count, vectors, maxima, now_of_key);
  for (int x = 0; x < vectors; x++) {
    sums[x] = load(e, attention_at(e, e->scores, keys.index, x));
    next[x] = now_of_key[x];
  }
  emit_finish(e, t, keys.index, 1, sums, next);
  ir_end_for_with(b, keys, vectors, next, maxima);
}

/* ---- softmax ---- */

/* Scores become p; *decay receives 2^(old maximum - maximum). */
static void emit_softmax(attention_emitter *e, const key_tile *t, const ir_value *maxima, ir_value *decay) {
  ir *b = e->b;
  int vectors = e->shape.vectors;
  ir_value sums[ATTENTION_MAX_VECTORS], next[ATTENTION_MAX_VECTORS];
  for (int x = 0; x < vectors; x++) {
    decay[x] = emit_exp2(b, ir_op2(b, "arith.subf", load(e, attention_at_constant(e, e->maximum, 0, x)), maxima[x]));
    store(e, maxima[x], attention_at_constant(e, e->maximum, 0, x));
    sums[x] = ir_op2(b, "arith.mulf", load(e, attention_at_constant(e, e->sum, 0, x)), decay[x]);
  }
  ir_value now[MAX_SUMS];
  ir_loop loop = ir_for_with(b, e->zero, t->count, vectors, sums, now);
  for (int x = 0; x < vectors; x++) {
    ir_value at = attention_at(e, e->scores, loop.index, x);
    ir_value p = emit_exp2(b, ir_op2(b, "arith.subf", load(e, at), maxima[x]));
    store(e, p, at);
    next[x] = ir_op2(b, "arith.addf", now[x], p);
  }
  ir_end_for_with(b, loop, vectors, next, sums);
  for (int x = 0; x < vectors; x++) store(e, sums[x], attention_at_constant(e, e->sum, 0, x));
}

/* ---- tiles of keys ---- */

static void emit_key_tile(attention_emitter *e, ir_value first, ir_value count, bool paired) {
  ir *b = e->b;
  key_tile t = {.first = first, .count = count, .paired = paired};
  ir_value maxima[ATTENTION_MAX_VECTORS], decay[ATTENTION_MAX_VECTORS];
  emit_attention_rows(e, ATTENTION_TILE(e, k, b->ptr), ATTENTION_TILE(e, k_token, b->i64), first, count, e->p->head_dim,
                      e->rows.read_keys, e->key_rows, &t.rows, &t.stride);
  if (paired && e->p->columns) emit_columns_keys(e, &t);
  else if (paired) emit_delta_keys(e, &t);
  for (int x = 0; x < e->shape.vectors; x++) maxima[x] = load(e, attention_at_constant(e, e->maximum, 0, x));
  emit_scores(e, &t, maxima);
  emit_softmax(e, &t, maxima, decay);
  emit_attention_values(e, &t, decay);
}

/* Keys [begin, end). */
static void emit_keys(attention_emitter *e, ir_value begin, ir_value end, bool paired) {
  ir *b = e->b;
  ir_value tile = i64(b, e->shape.keys), total = sub(b, end, begin);
  ir_value count = ir_op2(b, "arith.divsi", attention_add(b, total, i64(b, e->shape.keys - 1)), tile);
  ir_loop tiles = ir_for(b, e->zero, count);
  ir_value first = attention_add(b, begin, ir_op2(b, "arith.muli", tiles.index, tile));
  emit_key_tile(e, first, smaller(b, sub(b, end, first), tile), paired);
  ir_end_for(b, tiles);
}

static void emit_begin(attention_emitter *e) {
  ir *b = e->b;
  const attention_shape *s = &e->shape;
  e->zero = i64(b, 0);
  e->queries = ir_alloca(b, (int64_t)e->p->head_dim * s->queries * 4, CACHE_LINE);
  e->output = ir_alloca(b, (int64_t)e->p->value_dim * s->queries * 4, CACHE_LINE);
  e->scores = ir_alloca(b, (int64_t)s->keys * s->queries * 4, CACHE_LINE);
  e->key_rows = ir_alloca(b, (int64_t)s->keys * e->p->head_dim * 4, CACHE_LINE);
  e->value_rows = ir_alloca(b, (int64_t)s->keys * e->p->value_dim * 4, CACHE_LINE);
  e->maximum = ir_alloca(b, (int64_t)s->queries * 4, CACHE_LINE);
  e->sum = ir_alloca(b, (int64_t)s->queries * 4, CACHE_LINE);
  for (int x = 0; x < s->vectors; x++) {
    store(e, ir_float(b, e->lanes, NOTHING_SEEN), attention_at_constant(e, e->maximum, 0, x));
    store(e, ir_float(b, e->lanes, 0), attention_at_constant(e, e->sum, 0, x));
  }
  ir_loop channels = ir_for(b, e->zero, i64(b, e->p->value_dim));
  for (int x = 0; x < s->vectors; x++)
    store(e, ir_float(b, e->lanes, 0), attention_at(e, e->output, channels.index, x));
  ir_end_for(b, channels);
}

/* attend_T(tile, rows): what all number types share. */
static void emit_attend(attention_emitter *e) {
  ir *b = e->b;
  const attention_plan *p = e->p;
  emit_attend_begin(e);
  emit_begin(e);
  emit_attention_queries(e);
  ir_value end = ATTENTION_TILE(e, end, b->i64);
  bool pairs = attention_is_placed(p);
  ir_value plain = pairs ? smaller(b, ATTENTION_TILE(e, plain, b->i64), end) : end;
  if (p->columns) emit_columns_begin(e);
  else if (pairs) emit_delta_begin(e);
  if (!pairs || p->spec->skip_tokens > 0) emit_keys(e, e->zero, plain, false);
  if (pairs && p->by_rows) emit_grid_keys(e, plain, end, emit_key_tile);
  else if (pairs) emit_keys(e, plain, end, true);
  emit_attention_output(e);
  ir_return(b);
}

void emit_attention(ir *b, arena *a, const attention_plan *p, const cpu_target *target, unsigned dtypes) {
  attention_emitter e = {.b = b, .memory = a, .p = p, .target = target, .shape = attention_shape_of(p, target)};
  if (e.shape.rows > MAX_ROWS || e.shape.channels > MAX_ROWS || e.shape.vectors > ATTENTION_MAX_VECTORS)
    diag_bug("emit_attention", "the tile is too large");
  e.lanes = ir_vector(b, e.shape.lanes, b->f32);
  if (p->by_rows) e.grid = grid_shape_of(p, &e.shape);
  b->target_cpu = target->cpu;
  b->target_features = target->features;
  emit_pairwise_tables(b, a, p, target);
  if (p->columns) emit_weigh(b, a, p, target, dtypes);
  if (p->by_tiles) emit_pair_biases(b, a, p, target);
  emit_attend(&e);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype)) continue;
    emit_look(&e, dtype);
    emit_attend_rows(&e, dtype);
  }
  b->target_cpu = b->target_features = NULL;
}

void emit_attention_imports(ir *b) {
  MlirType types[] = {b->ptr, b->i64, b->i64, b->i64, b->ptr};
  ir_declare(b, "pegen_attention_rows", (MlirType){NULL}, 5, types);
}
