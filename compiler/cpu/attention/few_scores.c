/* cpu/attention/few_scores: q k^T of a few rows; see cpu/attention/few_stages.h.
 *
 * Some keys at a time, whose registers of channels meet those of every row, so that what is read of a key, and what is
 * read of a row of queries, is used several times. The last keys of a tile begin earlier, and some of them are done
 * twice; of a tile of fewer keys than go together the last one is, and its scores beyond are masked.
 */
#include "cpu/attention/few_stages.h"

enum { QUAD = 4 };

typedef struct score_block {
  const attention_emitter *e;
  few_row row;
  int rows;
  ir_value queries;   /* of the first row */
  ir_value key[QUAD]; /* rows of keys */
  ir_value *sums;     /* [keys][rows] */
} score_block;

static ir_value query_register(const score_block *s, int r, ir_value index, int further) {
  const attention_emitter *e = s->e;
  ir_value at = ir_offset_const(e->b, s->queries, r * few_query_bytes(e->p) + (int64_t)further * s->row.lanes * 4);
  if (index.ptr) at = ir_offset(e->b, at, attention_mul(e->b, index, (int64_t)s->row.lanes * 4));
  return ir_load(e->b, few_row_lanes(e, &s->row), at, 4);
}

static void add_products(const score_block *s, const ir_value *k, const ir_value *q, ir_value *sums) {
  for (int j = 0; j < QUAD; j++)
    for (int r = 0; r < s->rows; r++)
      sums[j * s->rows + r] = attention_multiply_add(s->e->b, k[j], q[r], sums[j * s->rows + r]);
}

static void emit_units(score_block *s) {
  const attention_emitter *e = s->e;
  ir *b = e->b;
  int count = QUAD * s->rows;
  ir_value now[QUAD * PEGEN_FEW_BLOCK], q[PEGEN_FEW_BLOCK], k[QUAD];
  few_place places[QUAD];
  ir_loop units = ir_for_with(b, e->zero, i64(b, s->row.units), count, s->sums, now);
  for (int r = 0; r < s->rows; r++) q[r] = query_register(s, r, units.index, 0);
  for (int j = 0; j < QUAD; j++) places[j] = (few_place){s->key[j], 0, units.index};
  emit_few_load(e, &s->row, QUAD, places, (ir_value){NULL}, k);
  add_products(s, k, q, now);
  ir_end_for_with(b, units, count, now, s->sums);
}

static void emit_tail(score_block *s) {
  const attention_emitter *e = s->e;
  for (int i = 0; i < s->row.tail; i++) {
    ir_value q[PEGEN_FEW_BLOCK], k[QUAD];
    few_place places[QUAD];
    for (int r = 0; r < s->rows; r++) q[r] = query_register(s, r, (ir_value){NULL}, s->row.units + i);
    for (int j = 0; j < QUAD; j++) places[j] = few_tail_place(&s->row, i, s->key[j]);
    emit_few_load(e, &s->row, QUAD, places, (ir_value){NULL}, k);
    for (int j = 0; j < QUAD; j++) k[j] = emit_few_counted(e, &s->row, i, k[j]);
    add_products(s, k, q, s->sums);
  }
}

/* Within every four lanes: those picked of x, then those of y. */
static ir_value pick(ir *b, ir_value x, ir_value y, int first, int second) {
  int64_t mask[64];
  int lanes = ir_lanes(x);
  for (int i = 0; i < lanes; i++) mask[i] = i / QUAD * QUAD + (i % 2 ? second : first) + (i % QUAD >= 2 ? lanes : 0);
  return ir_shuffle(b, x, y, lanes, mask);
}

static ir_value half(ir *b, ir_value x, int which) {
  int64_t mask[64];
  int lanes = ir_lanes(x) / 2;
  for (int i = 0; i < lanes; i++) mask[i] = which * lanes + i;
  return ir_shuffle(b, x, x, lanes, mask);
}

/* The sums of the lanes of four registers: inside every four lanes, by shuffles that stay there, and then of those. */
static ir_value emit_quad_sums(ir *b, const ir_value *x) {
  ir_value low = add(b, pick(b, x[0], x[1], 0, 1), pick(b, x[0], x[1], 2, 3)),
           high = add(b, pick(b, x[2], x[3], 0, 1), pick(b, x[2], x[3], 2, 3)),
           sum = add(b, pick(b, low, high, 0, 2), pick(b, low, high, 1, 3));
  while (ir_lanes(sum) > QUAD) sum = add(b, half(b, sum, 0), half(b, sum, 1));
  return sum;
}

static void emit_sums(const score_block *s, ir_value key) {
  const attention_emitter *e = s->e;
  ir *b = e->b;
  ir_value scores = ir_offset(b, FEW(e, scores, b->ptr), attention_mul(b, FEW(e, row, b->i64), FEW_SCORE_BYTES)),
           at = ir_offset(b, scores, attention_mul(b, key, 4));
  for (int r = 0; r < s->rows; r++) {
    ir_value x[QUAD];
    for (int j = 0; j < QUAD; j++) x[j] = s->sums[j * s->rows + r];
    ir_store(b, emit_quad_sums(b, x), ir_offset_const(b, at, (int64_t)r * FEW_SCORE_BYTES), 4, false);
  }
}

static void emit_ahead(const score_block *s, ir_value ahead, ir_value lines) {
  const attention_emitter *e = s->e;
  ir *b = e->b;
  ir_loop loop = ir_for(b, e->zero, lines);
  ir_value offset = add(b, ahead, attention_mul(b, loop.index, CACHE_LINE));
  for (int j = 0; j < QUAD; j++) ir_prefetch(b, ir_offset(b, s->key[j], offset), 1);
  ir_end_for(b, loop);
}

void emit_few_scores(attention_emitter *e, const char *name, unsigned dtypes, int rows) {
  ir *b = e->b;
  ir_value sums[QUAD * PEGEN_FEW_BLOCK], step[QUAD];
  ir_function(b, name, true, (MlirType){NULL}, 1, &b->ptr, &e->tile);
  e->zero = i64(b, 0);
  score_block s = {.e = e, .row = few_row_of(e, dtypes, e->p->head_dim), .rows = rows, .sums = sums};
  ir_value stride = ATTENTION_TILE(e, k_token, b->i64), count = FEW(e, count, b->i64), ahead = FEW(e, k_ahead, b->i64);
  ir_value first = ir_offset(b, ATTENTION_TILE(e, k, b->ptr), mul(b, FEW(e, first, b->i64), stride));
  ir_value lines = emit_few_lines(e, &s.row);
  ir_value last = sub(b, count, i64(b, 1)), latest = larger(b, sub(b, count, i64(b, QUAD)), e->zero);
  s.queries = ir_offset(b, FEW(e, queries, b->ptr), attention_mul(b, FEW(e, row, b->i64), few_query_bytes(e->p)));
  for (int j = 0; j < QUAD; j++) step[j] = mul(b, smaller(b, i64(b, j), last), stride);
  ir_loop blocks = ir_for(b, e->zero, attention_groups(b, count, QUAD));
  ir_value key = smaller(b, attention_mul(b, blocks.index, QUAD), latest),
           begin = ir_offset(b, first, mul(b, key, stride));
  for (int j = 0; j < QUAD; j++) s.key[j] = ir_offset(b, begin, step[j]);
  for (int i = 0; i < QUAD * rows; i++) sums[i] = ir_float(b, few_row_lanes(e, &s.row), 0);
  emit_ahead(&s, ahead, lines);
  emit_units(&s);
  emit_tail(&s);
  emit_sums(&s, key);
  ir_end_for(b, blocks);
  ir_return(b);
}
