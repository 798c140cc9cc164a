/* cpu/attention/few_values: output = output decay + p v of a few rows; see cpu/attention/few.h.
 *
 * Some registers of channels at a time, whose sums stay in registers over all keys of the tile. Where they are few,
 * every other key has sums of its own, for a processor has several multiply-adds under way.
 */
#include "cpu/attention/few.h"

enum { MOST_SUMS = FEW_MAX_VALUES };

/* Pairs [pair, pair + pairs) of a row's registers, and its tail or not. */
typedef struct value_chunk {
  const attention_emitter *e;
  few_row row;
  int rows, pairs;
  bool has_tail;
  ir_value pair; /* i64; null: `first_pair` */
  int first_pair;
  int sets;       /* of sums, which keys take in turns */
  ir_value turns; /* of the tile */
  ir_value values, stride, ahead, ahead_stride, weights, state; /* of the tile's first key; of the first row */
} value_chunk;

static int chunk_registers(const value_chunk *c) { return 2 * c->pairs + (c->has_tail ? c->row.tail : 0); }

/* Where register i of a row's output stands. */
static ir_value output_at(const value_chunk *c, int r, int i) {
  ir *b = c->e->b;
  int64_t lane_bytes = (int64_t)c->row.lanes * 4, row = r * pegen_few_state_bytes(c->e->p->value_dim);
  int tail = i - 2 * c->pairs;
  if (tail >= 0) return ir_offset_const(b, c->state, row + (2 * c->row.pairs + tail) * lane_bytes);
  ir_value at = ir_offset_const(b, c->state, row + (2 * c->first_pair + i) * lane_bytes);
  return c->pair.ptr ? nth(b, at, c->pair, 2 * lane_bytes) : at;
}

/* Registers of a key that are loaded together: sums and weights leave so many. */
static int loads_of(const value_chunk *c, int sums) {
  int left = (c->e->target->registers - sums - 1) / 2 * 2;
  return left < 2 ? 2 : left < FEW_MAX_LOADS ? left : FEW_MAX_LOADS;
}

static void load_value(const value_chunk *c, ir_value row, ir_value ahead, int sums, ir_value *v) {
  few_place places[MOST_SUMS];
  int n = c->pairs + (c->has_tail ? c->row.tail : 0), most = loads_of(c, sums);
  for (int i = 0; i < n; i++) {
    places[i] = i < c->pairs ? few_pair_place(&c->row, c->first_pair + i, row, c->pair)
                             : few_tail_place(&c->row, i - c->pairs, row);
    places[i].ahead = ahead;
  }
  for (int i = 0, count; i < n; i += count) {
    int registers = places[i].is_pair ? 2 : 1;
    for (count = 1; i + count < n; count++) {
      int more = places[i + count].is_pair ? 2 : 1;
      if (registers + more > most) break;
      registers += more;
    }
    emit_few_load(c->e, &c->row, count, places + i, v);
    v += registers;
  }
}

static void add_products(const value_chunk *c, const ir_value *v, const ir_value *weights, ir_value *sums) {
  int n = chunk_registers(c);
  for (int r = 0; r < c->rows; r++)
    for (int i = 0; i < n; i++) sums[r * n + i] = attention_multiply_add(c->e->b, v[i], weights[r], sums[r * n + i]);
}

/* Adds p v of a key to sums [row][register]. A row that is alone does not read values whose weight p is 0: they may be
 * infinite or NaN. */
static void emit_key(const value_chunk *c, ir_value key, int count, ir_value *sums) {
  ir *b = c->e->b;
  int n = chunk_registers(c);
  MlirType lanes = few_row_lanes(c->e, &c->row);
  ir_value p[PEGEN_FEW_BLOCK], weights[PEGEN_FEW_BLOCK], side[MOST_SUMS], v[MOST_SUMS],
      row = ir_offset(b, c->values, mul(b, key, c->stride)), at = nth(b, c->weights, key, 4),
      ahead = ir_offset(b, c->ahead, mul(b, key, c->ahead_stride));
  for (int r = 0; r < c->rows; r++) {
    p[r] = ir_load(b, b->f32, ir_offset_const(b, at, (int64_t)r * FEW_SCORE_BYTES), 4);
    weights[r] = ir_broadcast(b, lanes, p[r]);
  }
  if (c->rows > 1) {
    load_value(c, row, ahead, count, v);
    add_products(c, v, weights, sums);
    return;
  }
  for (int i = 0; i < n; i++) side[i] = sums[i];
  ir_choice counts = ir_choose_alike(b, ir_compare_float(b, "une", p[0], ir_float(b, b->f32, 0)), n, lanes);
  load_value(c, row, ahead, count, v);
  add_products(c, v, weights, side);
  ir_choose_else(b, &counts, n, side);
  ir_end_choose(b, counts, n, sums, side);
  for (int i = 0; i < n; i++) sums[i] = side[i];
}

static void emit_keys(const value_chunk *c, ir_value first, ir_value turns, int step, int count, ir_value *sums) {
  ir *b = c->e->b;
  ir_value now[MOST_SUMS];
  int each = c->rows * chunk_registers(c);
  ir_loop loop = ir_for_with(b, c->e->zero, turns, count, sums, now);
  ir_value key = add(b, first, attention_mul(b, loop.index, step));
  for (int i = 0; i < step; i++) emit_key(c, add(b, key, i64(b, i)), count, now + (size_t)i * each);
  ir_end_for_with(b, loop, count, now, sums);
}

static ir_value decay_of(const value_chunk *c, int r) {
  const attention_emitter *e = c->e;
  ir *b = e->b;
  ir_value row = add(b, FEW(e, row, b->i64), i64(b, r));
  ir_value at = nth(b, FEW(e, decay, b->ptr), row, FEW_DECAY_BYTES);
  return ir_load(b, few_row_lanes(e, &c->row), at, 4);
}

/* All keys of the tile that the sets share evenly. */
static void emit_turns(const void *context, const few_row *row, ir_value *sums) {
  value_chunk c = *(const value_chunk *)context;
  c.row = *row;
  emit_keys(&c, c.e->zero, c.turns, c.sets, c.sets * c.rows * chunk_registers(&c), sums);
}

static void emit_chunk(value_chunk *c) {
  const attention_emitter *e = c->e;
  ir *b = e->b;
  int n = chunk_registers(c), each = c->rows * n, under_way = e->target->registers >= 32 ? 4 : 8;
  ir_value sums[MOST_SUMS];
  if (!n) return;
  c->sets = each < under_way ? 2 : 1;
  ir_value count = FEW(e, count, b->i64);
  c->turns = ir_op2(b, "arith.divui", count, i64(b, c->sets));
  ir_value whole = attention_mul(b, c->turns, c->sets);
  for (int r = 0; r < c->rows; r++) {
    ir_value decay = decay_of(c, r);
    for (int i = 0; i < n; i++)
      sums[r * n + i] = mul(b, ir_load(b, few_row_lanes(e, &c->row), output_at(c, r, i), 4), decay);
  }
  for (int i = each; i < c->sets * each; i++) sums[i] = ir_float(b, few_row_lanes(e, &c->row), 0);
  emit_few_loops(e, &c->row, c->sets * each, emit_turns, c, sums);
  if (c->sets > 1) emit_keys(c, whole, sub(b, count, whole), 1, each, sums);
  for (int i = each; i < c->sets * each; i++) sums[i - each] = add(b, sums[i - each], sums[i]);
  for (int r = 0; r < c->rows; r++)
    for (int i = 0; i < n; i++) ir_store(b, sums[r * n + i], output_at(c, r, i), 4, false);
}

static value_chunk begin(attention_emitter *e, const char *name, unsigned dtypes, int rows) {
  ir *b = e->b;
  ir_open(b, name, "p", &e->tile);
  e->zero = i64(b, 0);
  value_chunk c = {.e = e, .row = few_row_of(e, dtypes, e->p->value_dim), .rows = rows};
  c.stride = ATTENTION_TILE(e, v_token, b->i64);
  c.ahead_stride = FEW(e, ahead_token, b->i64);
  ir_value first = FEW(e, first, b->i64);
  c.values = ir_offset(b, ATTENTION_TILE(e, v, b->ptr), mul(b, first, c.stride));
  c.ahead = ir_offset(b, FEW(e, ahead, b->ptr), mul(b, first, c.ahead_stride));
  ir_value row = FEW(e, row, b->i64);
  c.weights = nth(b, FEW(e, scores, b->ptr), row, FEW_SCORE_BYTES);
  c.state = nth(b, FEW(e, state, b->ptr), row, pegen_few_state_bytes(e->p->value_dim));
  return c;
}

void emit_few_values(attention_emitter *e, const char *name, unsigned dtypes, int rows) {
  ir *b = e->b;
  value_chunk c = begin(e, name, dtypes, rows);
  /* Where several rows' sums meet a value, it takes some of sixteen registers, too. */
  int most = e->target->registers >= 32 ? 24 / rows : 12 / (rows + rows / 2), pairs = 4;
  while (pairs > 1 && 2 * pairs > most) pairs /= 2; /* rows are of a power of two channels, as a rule */
  int whole = c.row.pairs / pairs, rest = c.row.pairs % pairs;
  if (whole == 1 && rest == 0) whole = 0, rest = pairs; /* no loop */
  c.pairs = pairs;
  if (whole > 0) {
    ir_loop chunks = ir_for(b, e->zero, i64(b, whole));
    c.pair = attention_mul(b, chunks.index, pairs);
    emit_chunk(&c);
    ir_end_for(b, chunks);
  }
  c.pair = (ir_value){NULL};
  c.first_pair = whole * pairs;
  c.pairs = rest;
  c.has_tail = 2 * rest + c.row.tail <= most;
  emit_chunk(&c);
  if (c.has_tail) {
    ir_return(b);
    return;
  }
  c.pairs = 0;
  c.has_tail = true;
  emit_chunk(&c);
  ir_return(b);
}
