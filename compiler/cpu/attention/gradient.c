/* cpu/attention/gradient: the loops of one tile of queries; see cpu/attention/attention.h.
 *
 * With D_i = <g_i, o_i> - g_lse_i, for every tile of keys (Dao's FlashAttention, arXiv 2205.14135, appendix B):
 *
 *     P = 2^(S - lse),  V' += P^T g,  S' = P (g V^T - D),  K' += S'^T Q,  Q' += S' K
 *
 * S and g V^T are the product that makes scores; V', K' and Q' have channels in the lanes (cpu/attention/key_sums), Q'
 * where its rows fill registers: else it is the product that makes outputs. Queries stay: what they gain is written
 * once, and what keys gain goes through memory once a tile. A pair that is not seen has P = 0, whatever its score and
 * its numbers are, and S' = 0.
 */
#include "cpu/attention/attention.h"

#include "cpu/attention/blocks.h"
#include "cpu/attention/delta.h"
#include "cpu/attention/dots.h"
#include "cpu/attention/key_sums.h"
#include "cpu/attention/pair_sums.h"
#include "cpu/attention/queries.h"
#include "cpu/attention/scores.h"
#include "cpu/attention/seen.h"
#include "cpu/attention/turned_gains.h"
#include "cpu/attention/values.h"
#include "cpu/attention/weights.h"
#include "cpu/weight_gains.h"
#include "mlir/arith.h"
#include "mlir/exp2.h"

typedef struct gradient_emitter {
  attention_emitter e;
  attention_rows rows;
  pair_emitter pairs;
  column_emitter columns;
  ir_value ahead;       /* state of rows that are asked for between the stages of a tile of keys */
  pair_sums sums;            /* what else gains of pairs, beside rows */
  turned_gains turned_gains; /* of a plan with a matrix */
  query_rows q, g;        /* rows of the queries and of what came in for them */
  query_rows came;        /* the latter as they came: of dot products not g */
  ir_value paired;        /* of dot products: pairs of P and S', of queries and of keys */
  ir_value paired_keys;   /* and of a tile's rows of keys, [keys / 2][pitch] */
  ir_value g_columns;     /* [value_dim][queries] */
  ir_value lse, less;     /* [queries]: in powers of two, as scores are; D */
  ir_value weights, turned; /* P and S', [keys][queries] */
  ir_value g_q;           /* Q' [head_dim][queries], or [queries][pitch] where sums are by channels */
  ir_value is_wanted[3];  /* i1: of q, k, v */
} gradient_emitter;

enum { OF_Q, OF_K, OF_V };
enum { AHEAD_OF_A_GROUP = 5 }; /* emit_ahead: of scores, of their gradients, of sums by channels */

static int64_t row_bytes(const gradient_emitter *f, int rows) { return (int64_t)rows * f->e.shape.queries * 4; }

/* ---- what is known of the queries before the first key ---- */

/* <g_i, o_i> of the queries of a register (i64): sums of registers, turned, are added. */
static ir_value emit_outputs_gain(const gradient_emitter *f, ir_value turned, ir_value vector) {
  const attention_emitter *e = &f->e;
  ir *b = e->b;
  int64_t row = (int64_t)e->shape.lanes * 4;
  ir_value at = nth(b, turned, vector, e->shape.lanes * row), first = load(e, at), now, total;
  ir_loop rows = ir_for_with(b, i64(b, 1), i64(b, e->shape.lanes), 1, &first, &now);
  ir_value next = add(b, now, load(e, nth(b, at, rows.index, row)));
  ir_end_for_with(b, rows, 1, &next, &total);
  return total;
}

/* D. Rows of outputs go through room of one. */
static void emit_less(const gradient_emitter *f, ir_value partial, ir_value row) {
  const attention_emitter *e = &f->e;
  ir *b = e->b;
  int lanes = e->shape.lanes, pitch = f->came.pitch;
  ir_value out = ATTENTION_HEAD(e, out), token_bytes = ATTENTION_TILE(e, out_token, b->i64);
  emit_zeros(e, row, pitch);
  ir_loop queries = ir_for(b, e->zero, i64(b, e->shape.vectors * e->shape.lanes));
  ir_value token = attention_lane_token(e, e->zero, queries.index), to = attention_mul(b, queries.index, lanes * 4);
  store(e, ir_float(b, e->lanes, 0), ir_offset(b, partial, to));
  ir_branch given = ir_if(b, ir_compare_int(b, "sge", token, e->zero));
  ir_value row_at = attention_gains_by_turned_values(e->p) ? queries.index : token;
  ir_value one_row[] = {ir_offset(b, out, mul(b, row_at, token_bytes)), token_bytes, i64(b, 1), row};
  ir_call_pointer(b, f->rows.read_values, 4, one_row);
  ir_value initial = ir_float(b, e->lanes, 0), now, sum;
  ir_value g = nth(b, f->came.room, queries.index, (int64_t)pitch * 4);
  ir_loop channels = ir_for_with(b, e->zero, i64(b, pitch / lanes), 1, &initial, &now);
  ir_value at = attention_mul(b, channels.index, lanes * 4);
  ir_value gained = load(e, ir_offset(b, g, at));
  ir_value next = attention_product(e, load(e, ir_offset(b, row, at)), gained, now);
  ir_end_for_with(b, channels, 1, &next, &sum);
  store(e, sum, ir_offset(b, partial, to));
  ir_end_if(b, given);
  ir_end_for(b, queries);
  ir_value g_lse = GRADIENT_TILE(e, g_lse, b->ptr);
  ir_branch wanted = ir_if(b, attention_is_given(e, g_lse));
  emit_query_numbers(e, g_lse, GRADIENT_TILE(e, g_lse_token, b->i64), 0, f->less);
  ir_else(b, &wanted);
  emit_zeros(e, f->less, e->shape.queries);
  ir_end_if(b, (ir_branch){wanted.outer, {NULL}});
  square_rows sums = {partial, (int64_t)lanes * 4, (int64_t)lanes * lanes * 4};
  emit_turn(e, sums, sums, e->shape.vectors, ir_float(b, e->lanes, 1));
  ir_loop vectors = ir_for(b, e->zero, i64(b, e->shape.vectors));
  ir_value at_lanes = nth(b, f->less, vectors.index, lanes * 4), outputs = emit_outputs_gain(f, partial, vectors.index);
  store(e, sub(b, outputs, load(e, at_lanes)), at_lanes);
  ir_end_for(b, vectors);
}

/* Computes the gradients of operands of the sink, which is the score of a key that all queries see and whose value is
 * 0. Where keys come in panels, only the first panel adds them. */
static void emit_sink_gains(const gradient_emitter *f) {
  const attention_emitter *e = &f->e;
  ir *b = e->b;
  ir_value to = GRADIENT_TILE(e, operand_sums, b->ptr), wanted = attention_is_given(e, to),
           is_first = ir_compare_int(b, "eq", GRADIENT_TILE(e, begin, b->i64), e->zero);
  ir_branch gives = ir_if(b, ir_op2(b, "arith.andi", wanted, is_first));
  MlirType wide = ir_vector(b, e->shape.lanes, b->f64);
  ir_value sink = emit_sink(e), zero = ir_float(b, e->lanes, 0), gain[ATTENTION_MAX_VECTORS],
           lanes = ir_alloca(b, (int64_t)e->shape.lanes * 8, CACHE_LINE);
  for (int x = 0; x < e->shape.vectors; x++) {
    ir_value p = emit_exp2(b, sub(b, sink, load(e, attention_at_constant(e, f->lse, 0, x)))),
             product = mul(b, p, load(e, attention_at_constant(e, f->less, 0, x)));
    gain[x] = ir_select(b, ir_compare_float(b, "une", p, zero), sub(b, zero, product), zero);
  }
  two_float *fixed = delta_memo(e);
  for (int i = 0; i < e->p->n_sinks; i++) {
    ir_value sum = ir_float(b, wide, 0);
    for (int x = 0; x < e->shape.vectors; x++) {
      delta_emitter d = delta_emitter_at(e, fixed, NULL);
      d.cotangent = gain[x];
      sum = add(b, sum, ir_cast(b, "arith.extf", emit_expr_f32(&d.walker, e->p->of_sink[i].gradient), b->f64));
    }
    ir_store(b, sum, lanes, 8, false);
    int64_t index = (int64_t)(e->p->first_sink + i) * expr_pool_blocks(e->p->spec->pool);
    emit_add_lanes(e, lanes, ir_offset_const(b, to, index * 8));
  }
  ir_end_if(b, gives);
}

/* ---- a tile of keys ---- */

/* S' = P (g V^T - D). */
static void emit_score_gradients(const gradient_emitter *f, const key_tile *t) {
  attention_emitter of = f->e, *e = &of;
  ir *b = e->b;
  int n = e->shape.rows, vectors = e->shape.vectors;
  of.queries = f->g_columns;
  row_view rows = emit_value_rows(e, &f->rows, t->first, t->count);
  ir_value groups = attention_groups(b, t->count, n), last = sub(b, t->count, i64(b, 1)), less[ATTENTION_MAX_VECTORS],
           zero = ir_float(b, e->lanes, 0);
  for (int x = 0; x < vectors; x++) less[x] = load(e, attention_at_constant(e, f->less, 0, x));
  ir_loop loop = ir_for(b, e->zero, groups);
  ir_value key = attention_mul(b, loop.index, n), row[ATTENTION_MAX_ROWS], sums[ATTENTION_MAX_SUMS];
  emit_ahead(e, t->ahead);
  for (int r = 0; r < n; r++)
    row[r] = ir_offset(b, rows.at, mul(b, smaller(b, add(b, key, i64(b, r)), last), rows.stride));
  for (int i = 0; i < n * vectors; i++) sums[i] = zero;
  emit_products(e, row, 0, e->p->value_dim, sums);
  for (int i = 0; i < n * vectors; i++) {
    ir_value index = add(b, key, i64(b, i / vectors)), p = load(e, attention_at(e, f->weights, index, i % vectors)),
             gain = mul(b, p, sub(b, sums[i], less[i % vectors]));
    gain = ir_select(b, ir_compare_float(b, "une", p, zero), gain, zero);
    store(e, gain, attention_at(e, f->turned, index, i % vectors));
  }
  ir_end_for(b, loop);
}

/* What keys gain of the queries' rows. */
static void emit_keys_gain(const gradient_emitter *f, const key_tile *t, ir_value weights, const query_rows *rows,
                           ir_value sums, ir_value guarded) {
  const attention_emitter *e = &f->e;
  if (e->dots) emit_paired_queries(e, weights, t->count, f->paired);
  emit_key_sums(e, t, e->dots ? f->paired : weights, rows, sums, guarded);
}

/* Q' += S' K. */
static void emit_query_gradients(const gradient_emitter *f, const key_tile *t, ir_value guarded) {
  const attention_emitter *e = &f->e;
  query_rows sums = {f->g_q, attention_pitch(e->p->head_dim), f->q.nowhere};
  key_tile turned = *t;
  turned.scores = f->turned;
  if (e->dots) {
    emit_paired_rows(e, f->turned, t->count, f->paired);
    emit_woven_rows(e, t->rows, t->stride, t->count, e->p->head_dim, sums.pitch, f->paired_keys);
    turned.scores = f->paired;
    turned.rows = f->paired_keys;
    turned.stride = i64(e->b, (int64_t)sums.pitch * 4);
  }
  row_view rows = {t->rows, t->stride};
  if (query_sums_by_channels(e)) emit_query_sums(e, &turned, turned.scores, &sums, guarded);
  else emit_weighted_rows(e, &rows, &turned, e->p->head_dim, f->g_q, NULL);
}

/* Pairs that are kept; coordinates of keys also where gains are of them. */
static pair_emitter emit_kept(const gradient_emitter *f, const key_tile *t) {
  const attention_emitter *e = &f->e;
  ir *b = e->b;
  ir_value is_placed = ir_compare_int(b, "ne", GRADIENT_TILE(e, is_last, b->i64), e->zero);
  if (attention_moves(e->p)) is_placed = ir_op2(b, "arith.ori", is_placed, f->sums.wants_places);
  if (e->p->n_row_scatters) is_placed = ir_op2(b, "arith.ori", is_placed, f->sums.wants_rows);
  return emit_kept_pairs(&f->pairs, t, is_placed);
}

static void emit_key_tile(void *context, const key_tile *run) {
  const gradient_emitter *f = context;
  const attention_emitter *e = &f->e;
  ir *b = e->b;
  pair_emitter pairs = f->pairs;
  score_emitter scores = {.e = e, .pairs = &pairs, .columns = &f->columns, .products = f->pairs.products};
  key_tile t = *run;
  bool paired = t.paired;
  row_view rows = emit_key_rows(e, &f->rows, t.first, t.count);
  t.rows = rows.at;
  t.stride = rows.stride;
  t.scores = f->weights;
  t.ahead = f->ahead;
  if (paired && e->p->columns) emit_columns_keys(&f->columns, &t);
  else if (paired && attention_keeps_pairs(e->p)) pairs = emit_kept(f, &t);
  else if (paired) emit_pairs_keys(&f->pairs, &t);
  emit_tile_weights(&scores, f->lse, &t);
  ir_value guarded = emit_is_guarded(e, &t);
  ir_branch values = ir_if(b, f->is_wanted[OF_V]);
  emit_keys_gain(f, &t, f->weights, &f->g, GRADIENT_TILE(e, value_sums, b->ptr), guarded);
  ir_end_if(b, values);
  emit_score_gradients(f, &t);
  if (paired) emit_pair_sums(&f->sums, &t, f->turned);
  bool turns = paired && e->p->matrix; /* those gains are queries' and keys', too */
  if (turns) emit_turned_gains(&f->turned_gains, &t, f->turned, GRADIENT_TILE(e, key_sums, b->ptr), guarded);
  if (paired) emit_pair_sums_close(&f->sums, &t);
  if (turns) return;
  ir_branch keys = ir_if(b, f->is_wanted[OF_K]);
  emit_keys_gain(f, &t, f->turned, &f->q, GRADIENT_TILE(e, key_sums, b->ptr), guarded);
  ir_end_if(b, keys);
  ir_branch queries = ir_if(b, f->is_wanted[OF_Q]);
  emit_query_gradients(f, &t, guarded);
  ir_end_if(b, queries);
}

/* ---- the tile ---- */

static ir_value product_factor(const attention_emitter *e, void *context, ir_value vector) {
  (void)context, (void)vector;
  return attention_natural_scale(e);
}

static void emit_begin(gradient_emitter *f) {
  attention_emitter *e = &f->e;
  ir *b = e->b;
  const attention_shape *s = &e->shape;
  e->zero = i64(b, 0);
  e->queries = ir_alloca(b, row_bytes(f, e->p->head_dim), CACHE_LINE);
  f->g_columns = ir_alloca(b, row_bytes(f, e->p->value_dim), CACHE_LINE);
  f->g_q = ir_alloca(b, row_bytes(f, attention_pitch(e->p->head_dim)), CACHE_LINE);
  f->weights = ir_alloca(b, row_bytes(f, s->keys), CACHE_LINE);
  f->turned = ir_alloca(b, row_bytes(f, s->keys), CACHE_LINE);
  f->lse = ir_alloca(b, row_bytes(f, 1), CACHE_LINE);
  f->less = ir_alloca(b, row_bytes(f, 1), CACHE_LINE);
  ir_value nowhere = ir_alloca(b, KEY_SUMS_NOWHERE, CACHE_LINE);
  int pitch_q = attention_pitch(e->p->head_dim), pitch_g = attention_pitch(e->p->value_dim),
      widest = pitch_q > pitch_g ? pitch_q : pitch_g;
  f->q = (query_rows){ir_alloca(b, row_bytes(f, pitch_q), CACHE_LINE), pitch_q, nowhere};
  f->g = (query_rows){ir_alloca(b, row_bytes(f, pitch_g), CACHE_LINE), pitch_g, nowhere};
  f->came = f->g;
  if (e->dots) {
    e->scale = attention_scale(e);
    f->came =
        (query_rows){ir_alloca(b, row_bytes(f, widest), CACHE_LINE), attention_pitch(e->p->value_dim / 2), nowhere};
    f->paired = ir_alloca(b, row_bytes(f, s->keys) / 2, CACHE_LINE);
    f->paired_keys = ir_alloca(b, (int64_t)s->keys / 2 * pitch_q * 4, CACHE_LINE);
    if (pitch_q > e->p->head_dim) emit_zeros(e, f->paired_keys, (int64_t)s->keys / 2 * pitch_q);
  }
  emit_attend_room(e, &f->rows);
  static const size_t wanted[] = {offsetof(pegen_attention_gradient_tile, g_q),
                                  offsetof(pegen_attention_gradient_tile, key_sums),
                                  offsetof(pegen_attention_gradient_tile, value_sums)};
  for (int i = 0; i < 3; i++)
    f->is_wanted[i] = attention_is_given(e, ir_load(b, b->ptr, ir_offset_const(b, e->tile, (int64_t)wanted[i]), 8));
}

/* Rows of queries, or of what comes in for them, as they are, or of dot products as pairs, and turned. */
static void emit_rows_of_queries(const gradient_emitter *f, turned_rows t, const query_rows *rows, ir_value factor) {
  const attention_emitter *e = &f->e;
  ir *b = e->b;
  int width = t.width;
  t.width = width / attention_step(e);
  t.pitch = attention_pitch(t.width);
  t.room = e->dots ? f->came.room : rows->room;
  t.keeps = true;
  /* Behind a row's channels there are none; rows of no query are cleared with the others. */
  if (t.pitch > t.width) emit_zeros(e, t.room, (int64_t)t.pitch * e->shape.queries);
  emit_turned_rows(e, &t, factor);
  if (!e->dots) return;
  ir_value stride = i64(b, (int64_t)t.pitch * 4), queries = i64(b, e->shape.vectors * e->shape.lanes);
  emit_woven_rows(e, t.room, stride, queries, rows->pitch, rows->pitch, rows->room);
}

static void emit_queries(const gradient_emitter *f) {
  const attention_emitter *e = &f->e;
  ir *b = e->b;
  ir_value scale = attention_query_factor(e), one = e->dots ? scale : ir_float(b, e->lanes, 1);
  turned_rows q = {.read = f->rows.read_keys, .width = e->p->head_dim, .columns = e->queries},
              g = {.read = f->rows.read_values, .width = e->p->value_dim, .columns = f->g_columns};
  q.rows.at = ATTENTION_HEAD(e, q), q.rows.stride = ATTENTION_TILE(e, q_token, b->i64);
  g.rows.at = GRADIENT_TILE(e, g_out, b->ptr), g.rows.stride = GRADIENT_TILE(e, g_out_token, b->i64);
  g.by_lane = attention_gains_by_turned_values(e->p);
  emit_rows_of_queries(f, q, &f->q, scale);
  emit_rows_of_queries(f, g, &f->g, one);
}

/* Where pairs are rotated, reads the queries once more, without a factor. */
static void emit_turned(gradient_emitter *f) {
  const attention_emitter *e = &f->e;
  ir *b = e->b;
  row_view q = {ATTENTION_HEAD(e, q), ATTENTION_TILE(e, q_token, b->i64)};
  f->turned_gains = (turned_gains){.pairs = &f->pairs,
                                   .q = ir_alloca(b, row_bytes(f, e->p->head_dim), CACHE_LINE),
                                   .g_q = f->g_q,
                                   .wants_keys = f->is_wanted[OF_K],
                                   .sums = &f->sums};
  emit_turned_gains_begin(&f->turned_gains);
  turned_rows rows = {q, f->rows.read_keys, e->p->head_dim, f->q.pitch, f->q.room, true, f->turned_gains.q, false};
  emit_turned_rows(e, &rows, ir_float(b, e->lanes, 1));
}

/* Q' as rows of the tensor. */
static void emit_queries_gain(const gradient_emitter *f) {
  const attention_emitter *e = &f->e;
  ir *b = e->b;
  row_view g_q = {GRADIENT_TILE(e, g_q, b->ptr), GRADIENT_TILE(e, g_q_token, b->i64)};
  if (!query_sums_by_channels(e)) {
    turned_back back = {g_q, f->rows.write, e->p->head_dim, f->rows.key_room, f->g_q};
    emit_turned_back(e, &back, product_factor, NULL);
    return;
  }
  ir_value factor = attention_natural_scale(e);
  ir_loop queries = ir_for(b, e->zero, i64(b, e->shape.vectors * e->shape.lanes));
  ir_value token = attention_lane_token(e, e->zero, queries.index),
           row = nth(b, f->g_q, queries.index, (int64_t)f->q.pitch * 4);
  ir_branch given = ir_if(b, ir_compare_int(b, "sge", token, e->zero));
  for (int c = 0; c < e->p->head_dim; c += e->shape.lanes) {
    ir_value at = ir_offset_const(b, row, (int64_t)c * 4);
    store(e, mul(b, load(e, at), factor), at);
  }
  ir_value to[] = {row, ir_offset(b, g_q.at, mul(b, token, g_q.stride))};
  ir_call_pointer(b, f->rows.write, 2, to);
  ir_end_if(b, given);
  ir_end_for(b, queries);
}

static void emit_attend_gradient(gradient_emitter *f) {
  attention_emitter *e = &f->e;
  ir *b = e->b;
  const attention_plan *p = e->p;
  f->rows = emit_gradient_begin(e);
  emit_begin(f);
  emit_queries(f);
  emit_zeros(e, f->g_q, (int64_t)attention_pitch(p->head_dim) * e->shape.queries);
  emit_score_lse(e, f->lse);
  emit_less(f, f->turned, f->rows.value_room);
  if (p->n_sinks) emit_sink_gains(f);
  ir_value begin = GRADIENT_TILE(e, begin, b->i64), end = ATTENTION_TILE(e, end, b->i64);
  bool pairs = attention_has_pairs(p);
  f->ahead = emit_ahead_begin(e, sub(b, end, begin), AHEAD_OF_A_GROUP);
  emit_scores_begin(e, &f->columns, &f->pairs);
  if (p->score) f->pairs.products = ir_alloca(b, row_bytes(f, e->shape.keys), CACHE_LINE);
  if (pairs) f->sums = emit_pair_sums_begin(&f->pairs, &f->columns);
  if (p->matrix) emit_turned(f);
  emit_keys_between(&f->pairs, begin, end, emit_key_tile, f);
  if (pairs) emit_pair_sums_end(&f->sums);
  ir_branch queries = ir_if(b, f->is_wanted[OF_Q]);
  emit_queries_gain(f);
  ir_end_if(b, queries);
  ir_return(b);
}

/* Emits gradients for the shape of the emitter, and for the narrow one where there is one. */
static void emit_tiles(attention_emitter e, unsigned dtypes) {
  gradient_emitter f = {.e = e};
  f.e.shape.heads = 1;
  f.e.calls_squares = true;
  emit_attend_gradient(&f);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    if (dtypes & 1u << dtype) emit_gradient_entry(&f.e, dtype);
  if (e.p->of_operands || e.shape.is_narrow || !attention_has_narrow(e.p, &e.shape)) return;
  e.shape = attention_narrow_shape(&e.shape);
  emit_tiles(e, dtypes);
}

/* Emits the functions of a plan beside that of rows; NULL: there is none. */
static void emit_beside(ir *b, arena *a, const attention_plan *p, const cpu_target *target, unsigned dtypes) {
  if (!p) return;
  attention_emitter e = attention_emitter_create(b, a, p, target);
  if (p->of_turned) emit_turned_gradient_rows(&e, dtypes);
  emit_tiles(e, dtypes);
}

void emit_attention_gradient(ir *b, arena *a, const attention_plan *p, const attention_plan *operands,
                             const attention_plan *turned, const cpu_target *target, unsigned dtypes) {
  attention_emitter e = attention_emitter_create(b, a, p, target);
  if (p->turned) emit_block_channels(b, a, p, target); /* which out does not need */
  emit_unturned_channels(b, a, p, target);
  emit_weight_gains(b, a, p->weights, target, dtypes);
  emit_square_functions(&e);
  emit_ahead_function(e);
  attention_emitter sums = e;
  if (turned) sums.p = turned; /* whose queries gain by channels where those of pairs may not */
  emit_key_sums_functions(&sums);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    if (dtypes & 1u << dtype) emit_gradient_rows(&e, dtype);
  emit_tiles(e, dtypes);
  emit_beside(b, a, operands, target, dtypes);
  emit_beside(b, a, turned, target, dtypes);
  if (dtypes & 1u << NUMBER_BF16 && attention_has_dots(p, target)) {
    e = attention_emitter_of_dots(b, a, turned ? turned : p, target);
    emit_square_functions(&e);
    emit_key_sums_functions(&e);
    emit_tiles(e, 1u << NUMBER_BF16);
  }
}
