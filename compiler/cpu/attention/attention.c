/* cpu/attention/attention: the loops of one tile; see cpu/attention/attention.h.
 *
 * For every tile of keys: scores (q k^T, rows of keys by registers of queries), bias, masks and the running
 * maximum while they are still in registers; p = 2^(s - max) and its sum; output = output 2^(old max - max) + p v.
 */
#include "cpu/attention/attention.h"

#include "cpu/attention/blocks.h"
#include "cpu/attention/delta.h"
#include "cpu/attention/dots.h"
#include "cpu/attention/few.h"
#include "cpu/attention/queries.h"
#include "cpu/attention/scores.h"
#include "cpu/attention/seen.h"
#include "mlir/arith.h"
#include "mlir/exp2.h"

/* attend_T: its stages, and the online softmax's state. */
typedef struct attend {
  attention_emitter e;
  attention_rows rows;
  pair_emitter pairs;
  column_emitter columns;
  /* Each head has its own: */
  ir_value scores;            /* [keys][queries] of a tile of keys */
  ir_value output;            /* [value_dim][queries] */
  ir_value maximum, sum;      /* [queries] */
  ir_value lone; /* of groups of a tile of keys; null: nobody asks */
  ir_value row_table, stride; /* where some heads' rows of a tile of keys begin, and the bytes between them */
} attend;

static int64_t row_bytes(const attend *f, int rows) { return (int64_t)rows * f->e.shape.queries * 4; }

/* Returns the emitter for the head that a loop is at, with that head's scores, output, maximum and sum. */
static attend attend_of_head(const attend *f, const head_loop *heads) {
  const attention_emitter *e = &f->e;
  attend of = *f;
  of.e = attention_emitter_of_head(e, heads);
  of.rows.key_room = attention_of_head(e, heads, f->rows.key_room, emit_key_room_bytes(e));
  of.scores = attention_of_head(e, heads, f->scores, row_bytes(f, e->shape.keys));
  of.output = attention_of_head(e, heads, f->output, row_bytes(f, e->p->value_dim));
  of.maximum = attention_of_head(e, heads, f->maximum, row_bytes(f, 1));
  of.sum = attention_of_head(e, heads, f->sum, row_bytes(f, 1));
  return of;
}

/* ---- softmax ---- */

/* Values of a tile that sees few keys are not near yet, and its channels are gone through a few at a time, which no
 * processor foresees: they are asked for while the powers, which read nothing, are computed. */
static void emit_ask_for_values(const attention_emitter *e, const row_view *values, ir_value key) {
  ir *b = e->b;
  ir_value row = ir_offset(b, values->at, mul(b, key, values->stride));
  int bytes = e->p->value_dim / attention_step(e) * 4;
  for (int at = 0; at < bytes; at += CACHE_LINE) ir_prefetch(b, ir_offset_const(b, row, at), 1);
}

/* Rows that the next tile of queries reads and writes, one a key from the first of a run of keys on: a few requests at
 * a time leave room for what products load. Behind the last row of a tensor a request is for nothing, and no access. */
static void emit_ask_for_queries(const attention_emitter *e, ir_value key) {
  ir *b = e->b;
  ir_value queries = i64(b, e->shape.queries), lane = ir_op2(b, "arith.remui", key, queries);
  ir_value turn = ir_op2(b, "arith.remui", ir_op2(b, "arith.divui", key, queries), i64(b, 2));
  ir_value first = ir_load(b, b->i64, ir_offset_const(b, e->tile, offsetof(pegen_attention_tile, tokens)), 8);
  ir_value token = add(b, add(b, first, queries), lane), is_read = ir_compare_int(b, "eq", turn, e->zero);
  ir_value q = ATTENTION_HEAD(e, q), out = ATTENTION_HEAD(e, out);
  ir_value q_token = ATTENTION_TILE(e, q_token, b->i64), out_token = ATTENTION_TILE(e, out_token, b->i64);
  ir_value row = ir_offset(b, ir_select(b, is_read, q, out), mul(b, token, ir_select(b, is_read, q_token, out_token)));
  for (int at = 0; at < e->p->value_dim * 4; at += CACHE_LINE) ir_prefetch(b, ir_offset_const(b, row, at), 2);
}

/* The i-th key of a step. */
static ir_value key_of_step(const attention_emitter *e, ir_value step, int i) {
  return e->dots ? add(e->b, attention_mul(e->b, step, 2), i64(e->b, i)) : step;
}

/* Scores become p, of dot products pairs of them; *decay receives 2^(old maximum - maximum). */
static void emit_softmax(const attend *f, const key_tile *t, const ir_value *maxima, ir_value *decay) {
  const attention_emitter *e = &f->e;
  ir *b = e->b;
  int vectors = e->shape.vectors;
  ir_value sums[ATTENTION_MAX_VECTORS] = {{NULL}}, next[ATTENTION_MAX_VECTORS];
  for (int x = 0; x < vectors; x++) {
    decay[x] = emit_exp2(b, sub(b, load(e, attention_at_constant(e, f->maximum, 0, x)), maxima[x]));
    store(e, maxima[x], attention_at_constant(e, f->maximum, 0, x));
    sums[x] = mul(b, load(e, attention_at_constant(e, f->sum, 0, x)), decay[x]);
  }
  ir_value now[ATTENTION_MAX_VECTORS];
  row_view values = {{NULL}, {NULL}};
  if (e->dots) emit_partner(e, t->scores, t->count, -__builtin_inf()); /* which weighs nothing */
  if (t->lone.ptr) values = emit_value_place(e, &f->rows, t->first);
  int step = attention_step(e);
  ir_loop loop = ir_for_with(b, e->zero, attention_steps(e, t->count), vectors, sums, now);
  for (int i = 0; i < step; i++) {
    ir_value key = key_of_step(e, loop.index, i);
    if (t->lone.ptr) emit_ask_for_values(e, &values, key);
    if (t->lone.ptr && attention_asks(e->p, &e->shape))
      emit_ask_for_queries(e, add(b, sub(b, t->first, t->run_begin), key));
  }
  for (int x = 0; x < vectors; x++) {
    ir_value p[2];
    for (int i = 0; i < step; i++) {
      ir_value score = load(e, attention_at(e, t->scores, key_of_step(e, loop.index, i), x));
      p[i] = emit_exp2(b, sub(b, score, maxima[x]));
    }
    store(e, e->dots ? emit_pairs(e, p[0], p[1]) : p[0], attention_at(e, t->scores, loop.index, x));
    next[x] = now[x];
    for (int i = 0; i < step; i++) next[x] = add(b, next[x], p[i]);
  }
  ir_end_for_with(b, loop, vectors, next, sums);
  for (int x = 0; x < vectors; x++) store(e, sums[x], attention_at_constant(e, f->sum, 0, x));
}

/* ---- tiles of keys ---- */

static void load_maxima(const attend *f, ir_value *maxima) {
  for (int x = 0; x < f->e.shape.vectors; x++) maxima[x] = load(&f->e, attention_at_constant(&f->e, f->maximum, 0, x));
}

/* Scores without what rotations add, of each head. */
static key_tile emit_unrotated(const attend *f, const key_tile *keys) {
  const attention_emitter *e = &f->e;
  ir *b = e->b;
  head_loop heads = attention_heads_begin(e);
  attend of = attend_of_head(f, &heads);
  row_view rows = emit_key_rows(&of.e, &of.rows, keys->first, keys->count);
  key_tile t = *keys;
  t.rows = rows.at;
  t.stride = rows.stride;
  t.scores = of.scores;
  ir_value maxima[ATTENTION_MAX_VECTORS];
  load_maxima(&of, maxima);
  emit_scores(&(score_emitter){.e = &of.e, .pairs = &f->pairs}, &t, maxima);
  if (heads.is_loop) {
    ir_store(b, rows.at, attention_of_head(e, &heads, f->row_table, 8), 8, false);
    ir_store(b, rows.stride, f->stride, 8, false);
  }
  attention_heads_end(e, heads);
  if (!heads.is_loop) return t;
  t.scores = f->scores;
  t.row_table = f->row_table;
  t.stride = ir_load(b, b->i64, f->stride, 8);
  return t;
}

/* What rotates pairs is computed once for all heads of the tile. */
static void emit_rotated_tile(const attend *f, const key_tile *keys) {
  const attention_emitter *e = &f->e;
  key_tile t = emit_unrotated(f, keys);
  emit_pairs_keys(&f->pairs, &t);
  emit_pair_rotations(&f->pairs, &t);
  head_loop heads = attention_heads_begin(e);
  attend of = attend_of_head(f, &heads);
  key_tile own = key_tile_of_head(e, &heads, &t);
  ir_value maxima[ATTENTION_MAX_VECTORS], decay[ATTENTION_MAX_VECTORS];
  load_maxima(&of, maxima);
  emit_final_maxima(&(score_emitter){.e = &of.e, .pairs = &f->pairs}, &own, maxima);
  emit_softmax(&of, &own, maxima, decay);
  emit_attention_values(&of.e, &of.rows, &own, of.output, decay);
  attention_heads_end(e, heads);
}

static void emit_key_tile(void *context, const key_tile *keys) {
  const attend *f = context;
  const attention_emitter *e = &f->e;
  if (keys->paired && e->p->matrix) {
    emit_rotated_tile(f, keys);
    return;
  }
  key_tile t = *keys;
  pair_emitter pairs = f->pairs;
  score_emitter scores = {.e = e, .pairs = &pairs, .columns = &f->columns};
  ir_value maxima[ATTENTION_MAX_VECTORS], decay[ATTENTION_MAX_VECTORS];
  row_view rows = emit_key_rows(e, &f->rows, t.first, t.count);
  t.rows = rows.at;
  t.stride = rows.stride;
  t.scores = f->scores;
  if (t.paired) t.lone = f->lone;
  if (t.paired && e->p->columns) emit_columns_keys(&f->columns, &t);
  else if (t.paired && attention_keeps_biases(e->p))
    pairs = emit_kept_pairs(&pairs, &t, ir_int(e->b, e->b->i1, e->p->mask != NULL)); /* masks ask where keys are */
  else if (t.paired) emit_pairs_keys(&pairs, &t);
  load_maxima(f, maxima);
  emit_scores(&scores, &t, maxima);
  if (t.paired && e->p->score) emit_final_maxima(&scores, &t, maxima);
  emit_softmax(f, &t, maxima, decay);
  emit_attention_values(e, &f->rows, &t, f->output, decay);
}

/* Returns room for what a tile knows beside its keys. It is on the stack, or, where the tile is to remember it, the
 * next of its state. */
static ir_value state_room(const attend *f, ir_value *state, int rows) {
  if (!state->ptr) return attention_heads_room(&f->e, row_bytes(f, rows));
  ir_value room = *state;
  *state = ir_offset_const(f->e.b, room, row_bytes(f, rows));
  return room;
}

static void emit_begin(attend *f) {
  attention_emitter *e = &f->e;
  ir *b = e->b;
  const attention_shape *s = &e->shape;
  e->zero = i64(b, 0);
  if (s->heads > 1) {
    e->heads = ATTENTION_TILE(e, heads, b->i64);
    f->row_table = attention_heads_room(e, 8);
    f->stride = ir_alloca(b, 8, 8);
  }
  bool is_turned = attention_is_turned(e->p);
  ir_value state = is_turned ? ATTENTION_TILE(e, state, b->ptr) : (ir_value){NULL};
  e->queries = state_room(f, &state, e->p->head_dim);
  f->output = state_room(f, &state, e->p->value_dim);
  f->scores = attention_heads_room(e, row_bytes(f, s->keys));
  emit_attend_room(e, &f->rows);
  if (e->dots) e->scale = attention_scale(e);
  if (attention_has_lone(e->p, s)) f->lone = ir_alloca(b, (int64_t)(s->keys / s->rows) * 8, 8);
  f->maximum = state_room(f, &state, 1);
  f->sum = state_room(f, &state, 1);
}

static void emit_empty(const attend *f) {
  const attention_emitter *e = &f->e;
  ir *b = e->b;
  const attention_shape *s = &e->shape;
  ir_value maximum, sum;
  emit_nothing_seen(e, (ir_value){NULL}, &maximum, &sum);
  for (int x = 0; x < s->vectors; x++) {
    store(e, maximum, attention_at_constant(e, f->maximum, 0, x));
    store(e, sum, attention_at_constant(e, f->sum, 0, x));
  }
  ir_loop channels = ir_for(b, e->zero, i64(b, e->p->value_dim));
  for (int x = 0; x < s->vectors; x++)
    store(e, ir_float(b, e->lanes, 0), attention_at(e, f->output, channels.index, x));
  ir_end_for(b, channels);
}

/* Opens what a stage of tiles does that remember their state. */
static ir_branch emit_stage(const attention_emitter *e, pegen_attention_stage stage) {
  ir *b = e->b;
  ir_value asked = ir_op2(b, "arith.andi", ATTENTION_TILE(e, stages, b->i64), i64(b, stage));
  return ir_if(b, ir_compare_int(b, "ne", asked, e->zero));
}

/* A head's queries, and an empty sum. */
static void emit_begin_head(const attend *f) {
  const attention_emitter *e = &f->e;
  if (!attention_is_turned(e->p)) {
    emit_empty(f);
    emit_attention_queries(e, &f->rows);
    return;
  }
  ir_branch empty = emit_stage(e, PEGEN_STAGE_EMPTY);
  emit_empty(f);
  ir_end_if(e->b, empty);
  ir_branch queries = emit_stage(e, PEGEN_STAGE_QUERIES);
  ir_value vector = ATTENTION_TILE(e, vector, e->b->i64), rows = ATTENTION_TILE(e, rows, e->b->ptr);
  emit_attention_columns(e, vector, rows);
  ir_end_if(e->b, queries);
}

/* Keys that have neither bias nor rotation, and then those that may be seen of the others; of tiles that remember their
 * state from `begin` on. */
static void emit_plain_keys(attend *f, ir_value plain) {
  attention_emitter *e = &f->e;
  ir_value first = e->zero;
  if (attention_is_turned(e->p)) first = smaller(e->b, ATTENTION_TILE(e, begin, e->b->i64), plain);
  emit_key_tiles(&f->pairs, first, plain, false, emit_key_tile, f);
}

static void emit_placed_keys(attend *f, ir_value plain, ir_value end) {
  attention_emitter *e = &f->e;
  ir_value first = plain, last = end;
  if (attention_is_turned(e->p)) {
    first = larger(e->b, ATTENTION_TILE(e, begin, e->b->i64), plain);
    last = larger(e->b, first, end);
  }
  emit_key_tiles(&f->pairs, first, last, true, emit_key_tile, f);
}

static void emit_end_head(const attend *f) {
  const attention_emitter *e = &f->e;
  ir_branch out = {.outer = NULL};
  if (attention_is_turned(e->p)) out = emit_stage(e, PEGEN_STAGE_OUT);
  if (attention_tells(e->p)) emit_tell_lost(e, f->output);
  emit_attention_output(e, &f->rows, f->output, f->sum);
  emit_attention_lse(e, f->maximum, f->sum);
  if (attention_is_turned(e->p)) ir_end_if(e->b, out);
}

/* attend_T(tile, rows): what all number types share. */
static void emit_attend(attend *f) {
  attention_emitter *e = &f->e;
  ir *b = e->b;
  const attention_plan *p = e->p;
  f->rows = emit_attend_begin(e);
  emit_begin(f);
  head_loop heads = attention_heads_begin(e);
  attend of = attend_of_head(f, &heads);
  emit_begin_head(&of);
  attention_heads_end(e, heads);
  ir_value end = ATTENTION_TILE(e, end, b->i64);
  bool pairs = attention_has_pairs(p), plains = !pairs || p->spec->skip_tokens > 0;
  ir_value plain = pairs ? smaller(b, ATTENTION_TILE(e, plain, b->i64), end) : end;
  emit_scores_begin(e, &f->columns, &f->pairs);
  if (plains) {
    heads = attention_heads_begin(e);
    of = attend_of_head(f, &heads);
    emit_plain_keys(&of, plain);
    attention_heads_end(e, heads);
  }
  if (pairs) emit_placed_keys(f, plain, end);
  heads = attention_heads_begin(e);
  of = attend_of_head(f, &heads);
  emit_end_head(&of);
  attention_heads_end(e, heads);
  ir_return(b);
  e->heads = (ir_value){NULL};
}

bool attention_asks(const attention_plan *p, const attention_shape *s) {
  return attention_has_lone(p, s) && !attention_is_turned(p);
}

/* Rows of bfloat16 by dot products: functions of their own, since they multiply nothing that is float32. */
static void emit_attention_dots(ir *b, arena *a, const attention_plan *p, const cpu_target *target) {
  attend f = {.e = attention_emitter_of_dots(b, a, p, target)};
  emit_attend(&f);
  emit_dot_rows(&f.e);
  b->target_features = target->features;
}

void emit_attention(ir *b, arena *a, const attention_plan *p, const cpu_target *target, unsigned dtypes) {
  attend f = {.e = attention_emitter_create(b, a, p, target)};
  if (p->matrix) emit_block_channels(b, a, p, target);
  if (p->columns) emit_weigh(b, a, p, target, dtypes);
  if (p->by_tiles) emit_pair_biases(b, a, p, target);
  emit_attend(&f);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    if (dtypes & 1u << dtype || (p->turns_values && dtype == NUMBER_F32)) emit_row_functions(&f.e, dtype);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype)) continue;
    emit_look(&f.e, dtype);
    emit_attend_rows(&f.e, dtype);
  }
  if (dtypes & 1u << NUMBER_BF16 && attention_has_dots(p, target)) emit_attention_dots(b, a, p, target);
  emit_attention_few(b, a, p, target, dtypes);
}

void emit_attention_imports(ir *b) {
  ir_declare(b, "pegen_attention_rows", "piiip");
  ir_declare(b, "pegen_attention_read_pages", "ppiiippi");
  ir_declare(b, "pegen_attention_values", "piip");
  ir_declare(b, "pegen_attention_displace", "piiippip");
  ir_declare(b, "pegen_attention_read_pairs", "piiiiiiiip");
  ir_declare(b, "pegen_attention_gain_pairs", "piiiiiip");
  ir_declare(b, "pegen_attention_displace_row", "piiiipp");
  ir_declare(b, "pegen_attention_runs", "piiii");
}
