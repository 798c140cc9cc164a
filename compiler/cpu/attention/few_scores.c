/* cpu/attention/few_scores: q k^T of a few rows; see cpu/attention/few.h.
 *
 * Four keys are taken at a time, whose registers of channels meet those of every row. So what is read of a key, and
 * what is read of a row of queries, is used several times. Adding up the products of four keys leaves one of every four
 * lanes to each key, and what is left is put by. As many fours as fill a register's lanes become scores together, which
 * takes a quarter of the instructions that each four would take alone. Where no four keys are left the last one is read
 * again, and its scores beyond are masked.
 */
#include "cpu/attention/few.h"

enum { QUAD = 4, MAX_QUADS = 4, FEW_PAIRS = 2 };

typedef struct score_block {
  const attention_emitter *e;
  few_row row;
  int rows;
  int loads;                       /* keys whose channels are loaded at once */
  int together;                    /* keys whose sums fit into registers beside them */
  int quads;                       /* whose lanes are a register */
  ir_value queries;                /* of the first row */
  ir_value key[QUAD], ahead[QUAD]; /* rows of keys; what is asked for with each */
  ir_value *sums;                  /* [keys][rows] */
  ir_value scores;                 /* of the first row, of the tile's first key */
  ir_value put_by;                 /* [rows][quads] registers; null: there is one */
} score_block;

static ir_value query_register(const score_block *s, int r, ir_value pair, int further) {
  const attention_emitter *e = s->e;
  int64_t bytes = (int64_t)s->row.lanes * 4;
  ir_value at = ir_offset_const(e->b, s->queries, r * few_query_bytes(e->p) + further * bytes);
  if (pair.ptr) at = nth(e->b, at, pair, 2 * bytes);
  return ir_load(e->b, few_row_lanes(e, &s->row), at, 4);
}

/* Products of one register of `count` keys, of which each has `step`, from key `first` on. */
static void add_products(const score_block *s, const ir_value *k, int step, int first, int count, const ir_value *q,
                         ir_value *sums) {
  for (int j = 0; j < count; j++)
    for (int r = 0; r < s->rows; r++) {
      ir_value *sum = &sums[(first + j) * s->rows + r];
      *sum = attention_multiply_add(s->e->b, k[j * step], q[r], *sum);
    }
}

/* Products of pair `pair` of the keys from `first` on, or (index not null) of the one that so many are before. */
static void emit_pair(const score_block *s, int first, int pair, ir_value index, ir_value *sums) {
  const attention_emitter *e = s->e;
  for (int begin = 0; begin < s->together; begin += s->loads) {
    ir_value q[PEGEN_FEW_BLOCK], k[2 * QUAD];
    few_place places[QUAD];
    for (int j = 0; j < s->loads; j++) {
      places[j] = few_pair_place(&s->row, pair, s->key[first + begin + j], index);
      places[j].ahead = s->ahead[first + begin + j];
    }
    emit_few_load(e, &s->row, s->loads, places, k);
    for (int half = 0; half < 2; half++) {
      for (int r = 0; r < s->rows; r++) q[r] = query_register(s, r, index, 2 * pair + half);
      add_products(s, k + half, 2, begin, s->loads, q, sums);
    }
  }
}

/* All pairs of the keys from `first` on, whose sums alone are in registers meanwhile. */
static void emit_pairs(const score_block *s, int first) {
  const attention_emitter *e = s->e;
  ir *b = e->b;
  int count = s->together * s->rows;
  ir_value now[QUAD * PEGEN_FEW_BLOCK], *sums = s->sums + (ptrdiff_t)first * s->rows;
  if (s->row.pairs <= FEW_PAIRS) { /* no loop */
    for (int pair = 0; pair < s->row.pairs; pair++) emit_pair(s, first, pair, (ir_value){NULL}, sums);
    return;
  }
  ir_loop pairs = ir_for_with(b, e->zero, i64(b, s->row.pairs), count, sums, now);
  emit_pair(s, first, 0, pairs.index, now);
  ir_end_for_with(b, pairs, count, now, sums);
}

static void emit_tail(const score_block *s) {
  const attention_emitter *e = s->e;
  for (int i = 0; i < s->row.tail; i++) {
    ir_value q[PEGEN_FEW_BLOCK], k[QUAD];
    few_place places[QUAD];
    for (int r = 0; r < s->rows; r++) q[r] = query_register(s, r, (ir_value){NULL}, 2 * s->row.pairs + i);
    for (int j = 0; j < QUAD; j++) {
      places[j] = few_tail_place(&s->row, i, s->key[j]);
      places[j].ahead = s->ahead[j];
    }
    emit_few_load(e, &s->row, QUAD, places, k);
    for (int j = 0; j < QUAD; j++) k[j] = emit_few_counted(e, &s->row, i, k[j]);
    add_products(s, k, 1, 0, QUAD, q, s->sums);
  }
}

/* ---- sums of lanes ---- */

/* Runs of `run` lanes become sums of two, x's in the place of one and y's in that of the other, by turns: one shuffle
 * and one choice of lanes for two registers. */
static ir_value emit_folded(ir *b, ir_value x, ir_value y, int run) {
  int64_t own[64], other[64];
  int lanes = ir_lanes(x);
  for (int i = 0; i < lanes; i++) {
    bool is_first = i / run % 2 == 0;
    own[i] = is_first ? i : lanes + i;
    other[i] = is_first ? i + run : lanes + i - run;
  }
  ir_value kept = ir_shuffle(b, x, y, lanes, own), moved = ir_shuffle(b, x, y, lanes, other);
  return add(b, kept, moved);
}

/* Within every four lanes: those picked of x, then those of y. */
static ir_value pick(ir *b, ir_value x, ir_value y, int first, int second) {
  int64_t mask[64];
  int lanes = ir_lanes(x);
  for (int i = 0; i < lanes; i++) mask[i] = i / QUAD * QUAD + (i % 2 ? second : first) + (i % QUAD >= 2 ? lanes : 0);
  return ir_shuffle(b, x, y, lanes, mask);
}

/* Every four lanes of four registers, summed: those of the first register, the second and so on. */
static ir_value emit_quad(ir *b, const ir_value *x) {
  ir_value low = emit_folded(b, x[0], x[1], 2), high = emit_folded(b, x[2], x[3], 2);
  ir_value even = pick(b, low, high, 0, 2), odd = pick(b, low, high, 1, 3);
  return add(b, even, odd);
}

/* Where a row's register stands that was put by. */
static ir_value put_at(const score_block *s, int r, int quad, ir_value index) {
  ir *b = s->e->b;
  int64_t bytes = (int64_t)s->row.lanes * 4;
  ir_value at = ir_offset_const(b, s->put_by, (r * s->quads + quad) * bytes);
  return index.ptr ? nth(b, at, index, bytes) : at;
}

static ir_value scores_at(const score_block *s, int r, ir_value key) {
  ir *b = s->e->b;
  ir_value at = ir_offset_const(b, s->scores, (int64_t)r * FEW_SCORE_BYTES);
  return nth(b, at, key, 4);
}

/* The scores of as many keys as a register has lanes. */
static void emit_register(const score_block *s, ir_value key) {
  const attention_emitter *e = s->e;
  ir *b = e->b;
  for (int r = 0; r < s->rows; r++) {
    ir_value x[MAX_QUADS];
    for (int i = 0; i < s->quads; i++)
      x[i] = ir_load(b, few_row_lanes(e, &s->row), put_at(s, r, i, (ir_value){NULL}), 4);
    for (int left = s->quads / 2, run = s->row.lanes / 2; left > 0; left /= 2, run /= 2)
      for (int i = 0; i < left; i++) x[i] = emit_folded(b, x[i], x[i + left], run);
    ir_store(b, x[0], scores_at(s, r, key), 4, false);
  }
}

/* ---- keys ---- */

/* What four keys have in common with all fours of a tile. */
typedef struct key_steps {
  ir_value first, stride; /* of keys */
  ir_value ahead, ahead_stride;
  ir_value whole; /* keys of whole fours */
  ir_value step[QUAD], last_step[QUAD]; /* bytes from the first of four; of the last ones */
} key_steps;

static key_steps steps_of(const attention_emitter *e, ir_value count) {
  ir *b = e->b;
  key_steps k = {.stride = ATTENTION_TILE(e, k_token, b->i64), .ahead_stride = FEW(e, ahead_token, b->i64)};
  ir_value first = FEW(e, first, b->i64);
  k.first = ir_offset(b, ATTENTION_TILE(e, k, b->ptr), mul(b, first, k.stride));
  k.ahead = ir_offset(b, FEW(e, ahead, b->ptr), mul(b, first, k.ahead_stride));
  k.whole = attention_mul(b, ir_op2(b, "arith.divui", count, i64(b, QUAD)), QUAD);
  ir_value last = sub(b, sub(b, count, i64(b, 1)), k.whole);
  for (int j = 0; j < QUAD; j++) {
    k.step[j] = attention_mul(b, k.stride, j);
    k.last_step[j] = mul(b, smaller(b, i64(b, j), last), k.stride);
  }
  return k;
}

/* Scores of four keys, as far as `quad` (i64) of those whose lanes are a register. */
static void emit_keys(score_block *s, const key_steps *k, ir_value key, ir_value quad) {
  const attention_emitter *e = s->e;
  ir *b = e->b;
  ir_value at = ir_offset(b, k->first, mul(b, key, k->stride)),
           ahead = ir_offset(b, k->ahead, mul(b, key, k->ahead_stride)),
           is_whole = ir_compare_int(b, "slt", key, k->whole);
  for (int j = 0; j < QUAD; j++) {
    s->key[j] = ir_offset(b, at, ir_select(b, is_whole, k->step[j], k->last_step[j]));
    s->ahead[j] = nth(b, ahead, k->ahead_stride, j);
  }
  for (int i = 0; i < QUAD * s->rows; i++) s->sums[i] = ir_float(b, few_row_lanes(e, &s->row), 0);
  for (int first = 0; first < QUAD; first += s->together) emit_pairs(s, first);
  emit_tail(s);
  for (int r = 0; r < s->rows; r++) {
    ir_value x[QUAD];
    for (int j = 0; j < QUAD; j++) x[j] = s->sums[j * s->rows + r];
    ir_value sum = emit_quad(b, x);
    ir_store(b, sum, s->quads > 1 ? put_at(s, r, 0, quad) : scores_at(s, r, key), 4, false);
  }
}

void emit_few_scores(attention_emitter *e, const char *name, unsigned dtypes, int rows) {
  ir *b = e->b;
  ir_value sums[QUAD * PEGEN_FEW_BLOCK];
  ir_open(b, name, "p", &e->tile);
  e->zero = i64(b, 0);
  score_block s = {.e = e, .row = few_row_of(e, dtypes, e->p->head_dim), .rows = rows, .sums = sums};
  s.loads = e->target->registers >= 32 ? QUAD : QUAD / 2;
  s.together = QUAD * rows + 2 * s.loads + rows <= e->target->registers ? QUAD : s.loads;
  s.quads = s.row.lanes / QUAD;
  ir_value count = FEW(e, count, b->i64), row = FEW(e, row, b->i64), fours = attention_groups(b, count, QUAD);
  s.queries = nth(b, FEW(e, queries, b->ptr), row, few_query_bytes(e->p));
  s.scores = nth(b, FEW(e, scores, b->ptr), row, FEW_SCORE_BYTES);
  key_steps k = steps_of(e, count);
  if (s.quads > 1) {
    s.put_by = ir_alloca(b, (int64_t)rows * s.quads * s.row.lanes * 4, CACHE_LINE);
    for (int i = 0; i < rows * s.quads; i++) /* the last ones of a register may not be there */
      ir_store(b, ir_float(b, few_row_lanes(e, &s.row), 0), put_at(&s, 0, i, (ir_value){NULL}), 4, false);
  }
  ir_loop registers = ir_for(b, e->zero, attention_groups(b, count, s.row.lanes));
  ir_value first = attention_mul(b, registers.index, s.quads);
  ir_loop quads = ir_for(b, e->zero, smaller(b, sub(b, fours, first), i64(b, s.quads)));
  emit_keys(&s, &k, attention_mul(b, add(b, first, quads.index), QUAD), quads.index);
  ir_end_for(b, quads);
  if (s.quads > 1) emit_register(&s, attention_mul(b, registers.index, s.row.lanes));
  ir_end_for(b, registers);
  ir_return(b);
}
