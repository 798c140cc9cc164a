/* cpu/attention/attention: the loops of one tile; see cpu/attention/attention.h.
 *
 * For every tile of keys: scores (q k^T, rows of keys by registers of queries), bias, masks and the running
 * maximum while they are still in registers; p = 2^(s - max) and its sum; output = output 2^(old max - max) + p v.
 */
#include "cpu/attention/attention.h"

#include "cpu/attention/blocks.h"
#include "cpu/attention/queries.h"
#include "cpu/attention/scores.h"
#include "mlir/arith.h"
#include "mlir/exp2.h"

/* A maximum no score is expected below: a query that sees nothing keeps it, and its sum stays 0. */
static const double NOTHING_SEEN = -0x1p126;

/* attend_T: its stages, and the online softmax's state. */
typedef struct attend {
  attention_emitter e;
  attention_rows rows;
  pair_emitter pairs;
  column_emitter columns;
  ir_value scores;       /* [keys][queries] of a tile of keys */
  ir_value output;       /* [value_dim][queries] */
  ir_value maximum, sum; /* [queries] */
} attend;

static ir_value load(const attention_emitter *e, ir_value at) { return ir_load(e->b, e->lanes, at, 4); }
static void store(const attention_emitter *e, ir_value v, ir_value at) { ir_store(e->b, v, at, 4, false); }

/* ---- softmax ---- */

/* Scores become p; *decay receives 2^(old maximum - maximum). */
static void emit_softmax(const attend *f, const key_tile *t, const ir_value *maxima, ir_value *decay) {
  const attention_emitter *e = &f->e;
  ir *b = e->b;
  int vectors = e->shape.vectors;
  ir_value sums[ATTENTION_MAX_VECTORS], next[ATTENTION_MAX_VECTORS];
  for (int x = 0; x < vectors; x++) {
    decay[x] = emit_exp2(b, ir_op2(b, "arith.subf", load(e, attention_at_constant(e, f->maximum, 0, x)), maxima[x]));
    store(e, maxima[x], attention_at_constant(e, f->maximum, 0, x));
    sums[x] = ir_op2(b, "arith.mulf", load(e, attention_at_constant(e, f->sum, 0, x)), decay[x]);
  }
  ir_value now[ATTENTION_MAX_VECTORS];
  ir_loop loop = ir_for_with(b, e->zero, t->count, vectors, sums, now);
  for (int x = 0; x < vectors; x++) {
    ir_value at = attention_at(e, t->scores, loop.index, x);
    ir_value p = emit_exp2(b, ir_op2(b, "arith.subf", load(e, at), maxima[x]));
    store(e, p, at);
    next[x] = ir_op2(b, "arith.addf", now[x], p);
  }
  ir_end_for_with(b, loop, vectors, next, sums);
  for (int x = 0; x < vectors; x++) store(e, sums[x], attention_at_constant(e, f->sum, 0, x));
}

/* ---- tiles of keys ---- */

static void emit_key_tile(void *context, ir_value first, ir_value count, bool paired) {
  const attend *f = context;
  const attention_emitter *e = &f->e;
  score_emitter scores = {e, &f->pairs, &f->columns};
  ir_value maxima[ATTENTION_MAX_VECTORS], decay[ATTENTION_MAX_VECTORS];
  row_view rows = emit_key_rows(e, &f->rows, first, count);
  key_tile t = {
      .first = first, .count = count, .rows = rows.at, .stride = rows.stride, .scores = f->scores, .paired = paired};
  if (paired && e->p->columns) emit_columns_keys(&f->columns, &t);
  else if (paired) emit_pairs_keys(&f->pairs, &t);
  for (int x = 0; x < e->shape.vectors; x++) maxima[x] = load(e, attention_at_constant(e, f->maximum, 0, x));
  emit_scores(&scores, &t, maxima);
  emit_softmax(f, &t, maxima, decay);
  emit_attention_values(e, &f->rows, &t, f->output, decay);
}

/* Keys [begin, end). */
static void emit_keys(attend *f, ir_value begin, ir_value end, bool paired) {
  const attention_emitter *e = &f->e;
  ir *b = e->b;
  ir_value tile = i64(b, e->shape.keys), total = sub(b, end, begin);
  ir_value count = ir_op2(b, "arith.divsi", attention_add(b, total, i64(b, e->shape.keys - 1)), tile);
  ir_loop tiles = ir_for(b, e->zero, count);
  ir_value first = attention_add(b, begin, ir_op2(b, "arith.muli", tiles.index, tile));
  emit_key_tile(f, first, smaller(b, sub(b, end, first), tile), paired);
  ir_end_for(b, tiles);
}

static void emit_begin(attend *f) {
  attention_emitter *e = &f->e;
  ir *b = e->b;
  const attention_shape *s = &e->shape;
  e->zero = i64(b, 0);
  e->queries = ir_alloca(b, (int64_t)e->p->head_dim * s->queries * 4, CACHE_LINE);
  f->output = ir_alloca(b, (int64_t)e->p->value_dim * s->queries * 4, CACHE_LINE);
  f->scores = ir_alloca(b, (int64_t)s->keys * s->queries * 4, CACHE_LINE);
  emit_attend_room(e, &f->rows);
  f->maximum = ir_alloca(b, (int64_t)s->queries * 4, CACHE_LINE);
  f->sum = ir_alloca(b, (int64_t)s->queries * 4, CACHE_LINE);
  for (int x = 0; x < s->vectors; x++) {
    store(e, ir_float(b, e->lanes, NOTHING_SEEN), attention_at_constant(e, f->maximum, 0, x));
    store(e, ir_float(b, e->lanes, 0), attention_at_constant(e, f->sum, 0, x));
  }
  ir_loop channels = ir_for(b, e->zero, i64(b, e->p->value_dim));
  for (int x = 0; x < s->vectors; x++)
    store(e, ir_float(b, e->lanes, 0), attention_at(e, f->output, channels.index, x));
  ir_end_for(b, channels);
}

/* attend_T(tile, rows): what all number types share. */
static void emit_attend(attend *f) {
  attention_emitter *e = &f->e;
  ir *b = e->b;
  const attention_plan *p = e->p;
  f->rows = emit_attend_begin(e);
  emit_begin(f);
  emit_attention_queries(e, &f->rows);
  ir_value end = ATTENTION_TILE(e, end, b->i64);
  bool pairs = attention_is_placed(p);
  ir_value plain = pairs ? smaller(b, ATTENTION_TILE(e, plain, b->i64), end) : end;
  if (p->columns) f->columns = emit_columns_begin(e);
  else if (pairs) f->pairs = emit_pairs_begin(e);
  if (!pairs || p->spec->skip_tokens > 0) emit_keys(f, e->zero, plain, false);
  if (pairs && p->by_rows) emit_grid_keys(e, &f->pairs.grid.shape, plain, end, emit_key_tile, f);
  else if (pairs) emit_keys(f, plain, end, true);
  emit_attention_output(e, &f->rows, f->output, f->sum);
  ir_return(b);
}

void emit_attention(ir *b, arena *a, const attention_plan *p, const cpu_target *target, unsigned dtypes) {
  attend f = {.e = attention_emitter_create(b, a, p, target)};
  b->target_cpu = target->cpu;
  b->target_features = target->features;
  emit_block_channels(b, a, p, target);
  if (p->columns) emit_weigh(b, a, p, target, dtypes);
  if (p->by_tiles) emit_pair_biases(b, a, p, target);
  emit_attend(&f);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype)) continue;
    emit_look(&f.e, dtype);
    emit_attend_rows(&f.e, dtype);
  }
  b->target_cpu = b->target_features = NULL;
}

void emit_attention_imports(ir *b) {
  MlirType types[] = {b->ptr, b->i64, b->i64, b->i64, b->ptr};
  ir_declare(b, "pegen_attention_rows", (MlirType){NULL}, 5, types);
}
