/* cpu/attention/few_scores: q k^T of a few rows; see cpu/attention/few_stages.h.
 *
 * Some keys at a time, whose registers of channels meet those of every row, so that what is read of a key, and what is
 * read of a row of queries, is used several times. The last keys of a tile begin earlier, and some of them are done
 * twice; of a tile of fewer keys than go together the last one is, and its scores beyond are masked.
 */
#include "cpu/attention/few_stages.h"

enum { QUAD = 4, MOST_KEYS = 8 };

/* Keys that go together: with three rows their sums leave registers for what is multiplied. */
static int keys_of_block(const cpu_target *target) { return target->registers >= 32 && target->lanes == 16 ? 8 : QUAD; }

typedef struct score_block {
  const attention_emitter *e;
  few_row row;
  int keys, rows;
  ir_value queries;       /* of the first row */
  ir_value key[MOST_KEYS]; /* rows of keys */
  ir_value *sums;         /* [keys][rows] */
} score_block;

static ir_value query_register(const score_block *s, int r, ir_value index, int further) {
  const attention_emitter *e = s->e;
  ir_value at = ir_offset_const(e->b, s->queries, r * few_query_bytes(e->p) + (int64_t)further * s->row.lanes * 4);
  if (index.ptr) at = ir_offset(e->b, at, attention_mul(e->b, index, (int64_t)s->row.registers * s->row.lanes * 4));
  return ir_load(e->b, few_row_lanes(e, &s->row), at, 4);
}

static void emit_units(score_block *s) {
  const attention_emitter *e = s->e;
  ir *b = e->b;
  int count = s->keys * s->rows;
  ir_value now[MOST_KEYS * PEGEN_FEW_BLOCK];
  if (!s->row.units) return;
  ir_loop units = ir_for_with(b, e->zero, i64(b, s->row.units), count, s->sums, now);
  ir_value q[PEGEN_FEW_BLOCK][FEW_MAX_UNIT],
      offset = attention_mul(b, units.index, (int64_t)s->row.unit * number_bytes(s->row.type));
  for (int r = 0; r < s->rows; r++)
    for (int i = 0; i < s->row.registers; i++) q[r][i] = query_register(s, r, units.index, i);
  for (int j = 0; j < s->keys; j++) {
    ir_value k[FEW_MAX_UNIT];
    emit_few_unit(e, &s->row, ir_offset(b, s->key[j], offset), k);
    for (int i = 0; i < s->row.registers; i++)
      for (int r = 0; r < s->rows; r++)
        now[j * s->rows + r] = attention_multiply_add(b, k[i], q[r][i], now[j * s->rows + r]);
  }
  ir_end_for_with(b, units, count, now, s->sums);
}

static void emit_tail(score_block *s) {
  const attention_emitter *e = s->e;
  for (int i = 0; i < s->row.tail; i++)
    for (int j = 0; j < s->keys; j++) {
      ir_value k = emit_few_counted(e, &s->row, i, s->key[j]);
      for (int r = 0; r < s->rows; r++) {
        ir_value *sum = &s->sums[j * s->rows + r],
                 q = query_register(s, r, (ir_value){NULL}, s->row.units * s->row.registers + i);
        *sum = attention_multiply_add(e->b, k, q, *sum);
      }
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
  ir_value scores = ir_offset(b, FEW(e, scores, b->ptr), attention_mul(b, FEW(e, row, b->i64), FEW_SCORE_BYTES));
  for (int r = 0; r < s->rows; r++)
    for (int first = 0; first < s->keys; first += QUAD) {
      ir_value x[QUAD];
      for (int j = 0; j < QUAD; j++) x[j] = s->sums[(first + j) * s->rows + r];
      ir_value at = ir_offset(b, scores, attention_mul(b, add(b, key, i64(b, first)), 4));
      ir_store(b, emit_quad_sums(b, x), ir_offset_const(b, at, (int64_t)r * FEW_SCORE_BYTES), 4, false);
    }
}

static void emit_ahead(const score_block *s, ir_value ahead) {
  const attention_emitter *e = s->e;
  ir *b = e->b;
  int lines = (s->row.width * number_bytes(s->row.type) + CACHE_LINE - 1) / CACHE_LINE;
  ir_loop loop = ir_for(b, e->zero, i64(b, lines));
  ir_value offset = add(b, ahead, attention_mul(b, loop.index, CACHE_LINE));
  for (int j = 0; j < s->keys; j++) ir_prefetch(b, ir_offset(b, s->key[j], offset), 1);
  ir_end_for(b, loop);
}

void emit_few_scores(attention_emitter *e, const char *name, int dtype, int rows) {
  ir *b = e->b;
  ir_value sums[MOST_KEYS * PEGEN_FEW_BLOCK], step[MOST_KEYS];
  score_block s = {.e = e,
                   .row = few_row_of(e, dtype, e->p->head_dim),
                   .keys = keys_of_block(e->target),
                   .rows = rows,
                   .sums = sums};
  ir_function(b, name, true, (MlirType){NULL}, 1, &b->ptr, &e->tile);
  e->zero = i64(b, 0);
  ir_value stride = ATTENTION_TILE(e, k_token, b->i64), count = FEW(e, count, b->i64), ahead = FEW(e, k_ahead, b->i64);
  ir_value first = ir_offset(b, ATTENTION_TILE(e, k, b->ptr), mul(b, FEW(e, first, b->i64), stride));
  ir_value last = sub(b, count, i64(b, 1)), latest = larger(b, sub(b, count, i64(b, s.keys)), e->zero);
  s.queries = ir_offset(b, FEW(e, queries, b->ptr), attention_mul(b, FEW(e, row, b->i64), few_query_bytes(e->p)));
  for (int j = 0; j < s.keys; j++) step[j] = mul(b, smaller(b, i64(b, j), last), stride);
  ir_loop blocks = ir_for(b, e->zero, attention_groups(b, count, s.keys));
  ir_value key = smaller(b, attention_mul(b, blocks.index, s.keys), latest),
           begin = ir_offset(b, first, mul(b, key, stride));
  for (int j = 0; j < s.keys; j++) s.key[j] = ir_offset(b, begin, step[j]);
  for (int i = 0; i < s.keys * rows; i++) sums[i] = ir_float(b, few_row_lanes(e, &s.row), 0);
  emit_ahead(&s, ahead);
  emit_units(&s);
  emit_tail(&s);
  emit_sums(&s, key);
  ir_end_for(b, blocks);
  ir_return(b);
}
