/* cpu/attention/few_pairs: q . R k of a few rows whose pairs are rotated; see cpu/attention/few.h.
 *
 * A pair's matrices cost more than its products, so keys are in the lanes: rows of keys, which the driver gives as
 * float32, become columns first. Matrices of a block are computed once for all rows of a token, whose displacements
 * are the same.
 */
#include "cpu/attention/blocks.h"
#include "cpu/attention/few.h"
#include "cpu/attention/pairwise.h"
#include "cpu/attention/queries.h"
#include "cpu/attention/scores.h"

typedef struct pair_scores {
  attention_emitter e;         /* whose queries are the columns of keys: [head_dim][keys] */
  ir_value row, shared;        /* i64: the first row; how many there are */
  ir_value scores;             /* of the first row */
  ir_value vector;             /* i64: the register of keys */
  ir_value wide[SPEC_MAX_AXES]; /* displacements of its keys, lanes of float64 */
} pair_scores;

/* ---- a row ---- */

/* The float32 row of a query. */
static ir_value row_of(const pair_scores *s, ir_value index) {
  return few_row_pointer(&s->e, offsetof(pegen_attention_few, q), add(s->e.b, s->row, index));
}

static ir_value score_at(const pair_scores *s, ir_value index) {
  ir *b = s->e.b;
  return nth(b, nth(b, s->scores, index, FEW_SCORE_BYTES), s->vector, (int64_t)s->e.shape.lanes * 4);
}

/* Lanes of a channel of the keys at hand. */
static ir_value keys_at(const pair_scores *s, ir_value channel) {
  ir *b = s->e.b;
  return load(&s->e, nth(b, attention_at(&s->e, s->e.queries, channel, 0), s->vector, (int64_t)s->e.shape.lanes * 4));
}

static ir_value query_at(const pair_scores *s, ir_value row, ir_value channel) {
  ir *b = s->e.b;
  return ir_broadcast(b, s->e.lanes, ir_load(b, b->f32, nth(b, row, channel, 4), 4));
}

/* Products of the channels that no rotation changes: the first that there is of a score. */
static void emit_plain_channels(const pair_scores *s) {
  ir *b = s->e.b;
  ir_loop rows = ir_for(b, s->e.zero, s->shared);
  ir_value row = row_of(s, rows.index), sum = ir_float(b, s->e.lanes, 0);
  for (int begin = 0, end; (begin = attention_plain_run(s->e.p, begin, &end)) < s->e.p->head_dim; begin = end) {
    ir_value now;
    ir_loop channels = ir_for_with(b, i64(b, begin), i64(b, end), 1, &sum, &now);
    ir_value q = query_at(s, row, channels.index), k = keys_at(s, channels.index),
             next = attention_multiply_add(b, q, k, now);
    ir_end_for_with(b, channels, 1, &next, &sum);
  }
  store(&s->e, sum, score_at(s, rows.index));
  ir_end_for(b, rows);
}

static void emit_block(const pair_scores *s, ir_value block) {
  const attention_emitter *e = &s->e;
  ir *b = e->b;
  int n = e->p->spec->n_components;
  ir_value entry[SPEC_MAX_BLADES * SPEC_MAX_BLADES], channel[SPEC_MAX_BLADES], k[SPEC_MAX_BLADES], q[SPEC_MAX_BLADES],
      turned[SPEC_MAX_BLADES];
  delta_emitter d = emit_pair_entries_begin(e, block);
  emit_pair_entries_at(&d, s->wide, entry);
  emit_block_channel(e, block, channel);
  for (int i = 0; i < n; i++) k[i] = keys_at(s, channel[i]);
  emit_turned_components(e, entry, k, false, turned);
  ir_loop rows = ir_for(b, e->zero, s->shared);
  ir_value row = row_of(s, rows.index), at = score_at(s, rows.index), score = load(e, at);
  emit_components(e, row, channel, n, q);
  for (int i = 0; i < n; i++) score = attention_multiply_add(b, q[i], turned[i], score);
  store(e, score, at);
  ir_end_for(b, rows);
}

/* ---- keys ---- */

/* Rows of keys as columns, times the scale. */
static void emit_columns_of_keys(const pair_scores *s, ir_value rows, ir_value registers) {
  const attention_emitter *e = &s->e;
  ir_loop loop = ir_for(e->b, e->zero, registers);
  emit_attention_columns(e, loop.index, nth(e->b, rows, loop.index, (int64_t)e->shape.lanes * e->p->head_dim * 4));
  ir_end_for(e->b, loop);
}

static void emit_displacements(pair_scores *s, const key_places *places) {
  const attention_emitter *e = &s->e;
  ir *b = e->b;
  MlirType lanes = ir_vector(b, e->shape.lanes, b->f64);
  for (int axis = 0; axis < e->p->spec->n_axes; axis++) {
    int64_t of_row = (int64_t)offsetof(pegen_attention_tile, positions) + (int64_t)axis * PEGEN_ATTENTION_QUERIES * 8;
    ir_value keys = ir_offset_const(b, places->wide, (int64_t)axis * places->room * 8),
             query = ir_load(b, b->f64, nth(b, ir_offset_const(b, e->tile, of_row), s->row, 8), 8);
    s->wide[axis] = sub(b, ir_load(b, lanes, nth(b, keys, s->vector, (int64_t)e->shape.lanes * 8), 8),
                        ir_broadcast(b, lanes, query));
  }
}

void emit_few_pair_scores(attention_emitter *of, const char *name) {
  ir *b = of->b;
  ir_open(b, name, "p", &of->tile);
  of->zero = i64(b, 0);
  pair_scores s = {.e = *of, .row = FEW(of, row, b->i64), .shared = FEW(of, shared, b->i64)};
  attention_emitter *e = &s.e;
  int room = key_places_room(&e->shape);
  key_tile t = {.first = FEW(e, first, b->i64), .count = FEW(e, count, b->i64)};
  ir_value registers = attention_groups(b, t.count, e->shape.lanes);
  e->leaves = few_row_pointer(e, offsetof(pegen_attention_few, leaves), s.row);
  s.scores = nth(b, FEW(e, scores, b->ptr), s.row, FEW_SCORE_BYTES);
  e->shape.queries = room;
  e->queries = ir_alloca(b, (int64_t)e->p->head_dim * room * 4, CACHE_LINE);
  key_places places = emit_key_places_begin(e);
  emit_key_places(e, &places, &t);
  ir_value rows = ir_offset(b, ATTENTION_TILE(e, k, b->ptr), mul(b, t.first, ATTENTION_TILE(e, k_token, b->i64)));
  emit_columns_of_keys(&s, rows, registers);
  ir_loop loop = ir_for(b, e->zero, registers);
  s.vector = loop.index;
  emit_displacements(&s, &places);
  emit_plain_channels(&s);
  ir_loop blocks = ir_for(b, e->zero, i64(b, e->p->spec->n_blocks));
  emit_block(&s, blocks.index);
  ir_end_for(b, blocks);
  ir_end_for(b, loop);
  ir_return(b);
}
