/* cpu/attention/tangent: what a tile of queries changes by when its rows do; see cpu/attention/attention.h.
 *
 * With P = 2^(S - lse) as gradients compute it again, and rows q', k', v' that q, k and v change by,
 *
 *     S' = P (q' k^T + q k'^T) f'(S),   m = sum_j S',   out' = S' v + P v' - m out,   lse' = m,
 *
 * where f' is the derivative of the description's score (1 without one) (forward mode of FlashAttention: Lu and
 * Song, arXiv 2410.11081). A tile sums S', S' v and P v'; the driver does the rest (kernel/attention_tangent.c).
 * Biases, columns and rotations do not change: positions, inputs and operands have no tangents.
 */
#include "cpu/attention/attention.h"

#include "cpu/attention/queries.h"
#include "cpu/attention/values.h"
#include "cpu/attention/weights.h"
#include "mlir/arith.h"

typedef struct tangent_emitter {
  attention_emitter e;
  attention_emitter tangents;      /* reads rows of q', k' and v' */
  attention_emitter by_tangent; /* multiplies rows by q' */
  attention_rows rows;
  pair_emitter pairs;
  column_emitter columns;
  ir_value lse;     /* [queries], in powers of two */
  ir_value weights; /* P, [keys][queries] */
  ir_value gained, of_keys; /* S', of which products by k' are made apart */
  ir_value output, sums;    /* the driver's */
} tangent_emitter;

static ir_value tile_room(const attention_emitter *e, int rows) {
  return ir_alloca(e->b, (int64_t)rows * e->shape.queries * 4, CACHE_LINE);
}

/* Products of rows with the queries of an emitter, [keys][queries] to `to`, with what rotations of pairs add. */
static void emit_products_alone(const tangent_emitter *f, const attention_emitter *e, const key_tile *t, row_view rows,
                                ir_value to) {
  ir_value maxima[ATTENTION_MAX_VECTORS];
  pair_emitter pairs = f->pairs;
  key_tile of = *t;
  pairs.e = pairs.grid.e = e;
  of.rows = rows.at;
  of.stride = rows.stride;
  of.scores = to;
  for (int x = 0; x < e->shape.vectors; x++) maxima[x] = ir_float(e->b, e->lanes, 0);
  emit_scores(&(score_emitter){.e = e, .pairs = &pairs, .alone = true}, &of, maxima);
  if (t->paired && e->p->matrix) emit_pair_rotations(&pairs, &of);
}

/* S' of the products' tangents. Scores are powers of two. */
static void emit_score_tangents(const tangent_emitter *f, const key_tile *t) {
  const attention_emitter *e = &f->e;
  ir *b = e->b;
  ir_value zero = ir_float(b, e->lanes, 0), unit = ir_float(b, e->lanes, LN_2);
  ir_loop keys = ir_for(b, e->zero, t->count);
  for (int x = 0; x < e->shape.vectors; x++) {
    ir_value at = attention_at(e, f->gained, keys.index, x), of_queries = load(e, at),
             of_keys = load(e, attention_at(e, f->of_keys, keys.index, x)),
             p = load(e, attention_at(e, f->weights, keys.index, x)), product = add(b, of_queries, of_keys),
             gained = mul(b, mul(b, p, unit), product);
    store(e, ir_select(b, ir_compare_float(b, "une", p, zero), gained, zero), at);
  }
  ir_end_for(b, keys);
}

/* m += S'. */
static void emit_sums(const tangent_emitter *f, const key_tile *t) {
  const attention_emitter *e = &f->e;
  ir *b = e->b;
  int vectors = e->shape.vectors;
  ir_value sums[ATTENTION_MAX_VECTORS], now[ATTENTION_MAX_VECTORS];
  for (int x = 0; x < vectors; x++) sums[x] = load(e, attention_at_constant(e, f->sums, 0, x));
  ir_loop keys = ir_for_with(b, e->zero, t->count, vectors, sums, now);
  for (int x = 0; x < vectors; x++) now[x] = add(b, now[x], load(e, attention_at(e, f->gained, keys.index, x)));
  ir_end_for_with(b, keys, vectors, now, sums);
  for (int x = 0; x < vectors; x++) store(e, sums[x], attention_at_constant(e, f->sums, 0, x));
}

/* output += weights times rows of values, those of v or v'. */
static void emit_values_of(const tangent_emitter *f, const attention_emitter *from, const key_tile *t,
                           ir_value weights) {
  key_tile of = *t;
  row_view rows = emit_value_rows(from, &f->rows, t->first, t->count);
  of.scores = weights;
  emit_weighted_rows(&f->e, &rows, &of, f->e.p->value_dim, f->output, NULL);
}

static void emit_key_tile(void *context, const key_tile *run) {
  const tangent_emitter *f = context;
  const attention_emitter *e = &f->e;
  key_tile t = *run;
  row_view rows = emit_key_rows(e, &f->rows, t.first, t.count);
  t.rows = rows.at;
  t.stride = rows.stride;
  t.scores = f->weights;
  if (t.paired && e->p->columns) emit_columns_keys(&f->columns, &t);
  else if (t.paired) emit_pairs_keys(&f->pairs, &t);
  score_emitter scores = {.e = e, .pairs = &f->pairs, .columns = &f->columns, .products = f->pairs.products};
  emit_tile_weights(&scores, f->lse, &t);
  emit_products_alone(f, &f->by_tangent, &t, rows, f->gained);
  rows = emit_key_rows(&f->tangents, &f->rows, t.first, t.count); /* in the room of those before */
  emit_products_alone(f, e, &t, rows, f->of_keys);
  emit_score_tangents(f, &t);
  if (t.paired && e->p->score) emit_product_gains(&f->pairs, &t, f->gained);
  emit_sums(f, &t);
  emit_values_of(f, e, &t, f->gained);
  emit_values_of(f, &f->tangents, &t, f->weights);
}

static void emit_begin(tangent_emitter *f) {
  attention_emitter *e = &f->e;
  e->zero = i64(e->b, 0);
  e->queries = tile_room(e, e->p->head_dim);
  f->weights = tile_room(e, e->shape.keys);
  f->gained = tile_room(e, e->shape.keys);
  f->of_keys = tile_room(e, e->shape.keys);
  f->lse = tile_room(e, 1);
  emit_attend_room(e, &f->rows);
  f->output = TANGENT_TILE(e, columns);
  f->sums = TANGENT_TILE(e, sums);
  f->tangents = f->by_tangent = *e;
  f->tangents.tile = TANGENT_TILE(e, tangents);
  f->tangents.queries = f->by_tangent.queries = tile_room(e, e->p->head_dim);
  emit_attention_queries(e, &f->rows);
  emit_attention_queries(&f->tangents, &f->rows);
}

static void emit_attend_tangent(tangent_emitter *f) {
  attention_emitter *e = &f->e;
  ir *b = e->b;
  f->rows = emit_gradient_begin(e);
  emit_begin(f);
  emit_score_lse(e, f->lse);
  ir_value begin = ir_load(b, b->i64, ir_offset_const(b, e->tile, offsetof(pegen_attention_tangent_tile, begin)), 8);
  emit_scores_begin(e, &f->columns, &f->pairs);
  if (e->p->score) f->pairs.products = tile_room(e, e->shape.keys);
  emit_keys_between(&f->pairs, begin, ATTENTION_TILE(e, end, b->i64), emit_key_tile, f);
  ir_return(b);
}

void emit_attention_tangent(ir *b, arena *a, const attention_plan *p, const cpu_target *target, unsigned dtypes) {
  tangent_emitter f = {.e = attention_emitter_create(b, a, p, target)};
  f.e.shape.heads = 1;
  f.e.calls_squares = f.e.is_tangent = true;
  emit_attend_tangent(&f);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    if (dtypes & 1u << dtype) emit_gradient_entry(&f.e, dtype);
}
