/* cpu/attention/few_values: output = output decay + p v of a few rows; see cpu/attention/few_stages.h.
 *
 * Some registers of channels at a time, whose sums stay in registers over all keys of the tile. Where they are few,
 * every other key has sums of its own, for a processor has several multiply-adds under way.
 */
#include "cpu/attention/few_stages.h"

enum { UNDER_WAY = 8, MOST_SUMS = 48 };

/* Registers [unit, unit + units) of a row, and its tail or not. */
typedef struct value_chunk {
  const attention_emitter *e;
  few_row row;
  int rows, units;
  bool has_tail;
  ir_value unit; /* i64 */
  ir_value values, stride, ahead, weights, state; /* of the tile's first key; of the first row */
} value_chunk;

static int chunk_registers(const value_chunk *c) {
  return c->units * c->row.registers + (c->has_tail ? c->row.tail : 0);
}

/* Where register i of a row's output stands. */
static ir_value output_at(const value_chunk *c, int r, int i) {
  ir *b = c->e->b;
  int behind = c->units * c->row.registers;
  int64_t lane_bytes = (int64_t)c->row.lanes * 4;
  ir_value at = ir_offset_const(b, c->state, r * pegen_few_state_bytes(c->e->p->value_dim));
  if (i >= behind) return ir_offset_const(b, at, (c->row.units * c->row.registers + i - behind) * lane_bytes);
  return ir_offset_const(b, ir_offset(b, at, attention_mul(b, c->unit, c->row.registers * lane_bytes)), i * lane_bytes);
}

static void load_value(const value_chunk *c, ir_value row, ir_value *v) {
  const attention_emitter *e = c->e;
  ir *b = e->b;
  int bytes = c->row.unit * number_bytes(c->row.type);
  ir_value at = ir_offset(b, row, attention_mul(b, c->unit, bytes));
  for (int i = 0; i < c->units; i++)
    emit_few_unit(e, &c->row, ir_offset_const(b, at, (int64_t)i * bytes), v + (size_t)i * c->row.registers);
  for (int i = 0; c->has_tail && i < c->row.tail; i++)
    v[c->units * c->row.registers + i] = emit_few_tail(e, &c->row, i, row);
  for (int line = 0; c->units && line < c->units * bytes; line += CACHE_LINE)
    ir_prefetch(b, ir_offset_const(b, ir_offset(b, at, c->ahead), line), 1);
}

/* Adds p v of a key to sums [row][register]. */
static void emit_key(const value_chunk *c, ir_value key, ir_value *sums) {
  const attention_emitter *e = c->e;
  ir *b = e->b;
  int n = chunk_registers(c);
  ir_value v[MOST_SUMS], row = ir_offset(b, c->values, mul(b, key, c->stride)),
                         weight = ir_offset(b, c->weights, attention_mul(b, key, 4));
  load_value(c, row, v);
  for (int r = 0; r < c->rows; r++) {
    ir_value p = ir_load(b, b->f32, ir_offset_const(b, weight, (int64_t)r * FEW_SCORE_BYTES), 4),
             lanes = ir_broadcast(b, few_row_lanes(e, &c->row), p);
    for (int i = 0; i < n; i++) sums[r * n + i] = attention_multiply_add(b, v[i], lanes, sums[r * n + i]);
  }
}

static void emit_keys(const value_chunk *c, ir_value first, ir_value turns, int step, int count, ir_value *sums) {
  ir *b = c->e->b;
  ir_value now[MOST_SUMS];
  int each = c->rows * chunk_registers(c);
  ir_loop loop = ir_for_with(b, c->e->zero, turns, count, sums, now);
  ir_value key = add(b, first, attention_mul(b, loop.index, step));
  for (int i = 0; i < step; i++) emit_key(c, add(b, key, i64(b, i)), now + (size_t)i * each);
  ir_end_for_with(b, loop, count, now, sums);
}

static ir_value decay_of(const value_chunk *c, int r) {
  const attention_emitter *e = c->e;
  ir *b = e->b;
  ir_value row = add(b, FEW(e, row, b->i64), i64(b, r));
  ir_value at = ir_offset(b, FEW(e, decay, b->ptr), attention_mul(b, row, FEW_DECAY_BYTES));
  return ir_load(b, few_row_lanes(e, &c->row), at, 4);
}

static void emit_chunk(const value_chunk *c) {
  const attention_emitter *e = c->e;
  ir *b = e->b;
  int n = chunk_registers(c), each = c->rows * n, sets = each < UNDER_WAY ? 2 : 1;
  ir_value sums[MOST_SUMS], count = FEW(e, count, b->i64);
  if (!n) return;
  for (int r = 0; r < c->rows; r++) {
    ir_value decay = decay_of(c, r);
    for (int i = 0; i < n; i++)
      sums[r * n + i] = mul(b, ir_load(b, few_row_lanes(e, &c->row), output_at(c, r, i), 4), decay);
  }
  for (int i = each; i < sets * each; i++) sums[i] = ir_float(b, few_row_lanes(e, &c->row), 0);
  ir_value turns = ir_op2(b, "arith.divui", count, i64(b, sets)), whole = attention_mul(b, turns, sets);
  emit_keys(c, e->zero, turns, sets, sets * each, sums);
  if (sets > 1) emit_keys(c, whole, sub(b, count, whole), 1, each, sums);
  for (int i = each; i < sets * each; i++) sums[i - each] = add(b, sums[i - each], sums[i]);
  for (int r = 0; r < c->rows; r++)
    for (int i = 0; i < n; i++) ir_store(b, sums[r * n + i], output_at(c, r, i), 4, false);
}

static value_chunk begin(attention_emitter *e, const char *name, int dtype, int rows) {
  ir *b = e->b;
  ir_function(b, name, true, (MlirType){NULL}, 1, &b->ptr, &e->tile);
  e->zero = i64(b, 0);
  value_chunk c = {.e = e, .row = few_row_of(e, dtype, e->p->value_dim), .rows = rows, .unit = e->zero};
  c.stride = ATTENTION_TILE(e, v_token, b->i64);
  c.ahead = FEW(e, v_ahead, b->i64);
  c.values = ir_offset(b, ATTENTION_TILE(e, v, b->ptr), mul(b, FEW(e, first, b->i64), c.stride));
  ir_value row = FEW(e, row, b->i64);
  c.weights = ir_offset(b, FEW(e, scores, b->ptr), attention_mul(b, row, FEW_SCORE_BYTES));
  c.state = ir_offset(b, FEW(e, state, b->ptr), attention_mul(b, row, pegen_few_state_bytes(e->p->value_dim)));
  return c;
}

void emit_few_values(attention_emitter *e, const char *name, int dtype, int rows) {
  ir *b = e->b;
  value_chunk c = begin(e, name, dtype, rows);
  int most = (e->target->registers >= 32 ? 24 : 12) / rows, units = 8 / c.row.registers;
  while (units * c.row.registers > most) units /= 2; /* rows are of a power of two channels, as a rule */
  int whole = c.row.units / units, rest = c.row.units % units;
  ir_loop chunks = ir_for(b, e->zero, i64(b, whole));
  c.units = units;
  c.unit = attention_mul(b, chunks.index, units);
  emit_chunk(&c);
  ir_end_for(b, chunks);
  c.units = rest;
  c.unit = i64(b, (int64_t)whole * units);
  c.has_tail = true;
  if (chunk_registers(&c) <= most) {
    emit_chunk(&c);
  } else {
    c.has_tail = false;
    emit_chunk(&c);
    c.units = 0;
    c.has_tail = true;
    emit_chunk(&c);
  }
  ir_return(b);
}

/* Sums in memory, and a branch for each key: what it leaves out may be no number. */
void emit_few_seen_values(attention_emitter *e, const char *name, int dtype) {
  ir *b = e->b;
  value_chunk c = begin(e, name, dtype, 1);
  MlirType lanes = few_row_lanes(e, &c.row);
  int n = few_row_registers(&c.row);
  ir_value decay = decay_of(&c, 0), v[FEW_MAX_UNIT];
  ir_loop registers = ir_for(b, e->zero, i64(b, n));
  ir_value at = ir_offset(b, c.state, attention_mul(b, registers.index, (int64_t)c.row.lanes * 4));
  ir_store(b, mul(b, ir_load(b, lanes, at, 4), decay), at, 4, false);
  ir_end_for(b, registers);
  ir_loop keys = ir_for(b, e->zero, FEW(e, count, b->i64));
  ir_value p = ir_load(b, b->f32, ir_offset(b, c.weights, attention_mul(b, keys.index, 4)), 4),
           row = ir_offset(b, c.values, mul(b, keys.index, c.stride));
  ir_branch seen = ir_if(b, ir_compare_float(b, "une", p, ir_float(b, b->f32, 0)));
  ir_value weight = ir_broadcast(b, lanes, p);
  ir_loop units = ir_for(b, e->zero, i64(b, c.row.units));
  ir_value from = ir_offset(b, row, attention_mul(b, units.index, (int64_t)c.row.unit * number_bytes(dtype))),
           to = ir_offset(b, c.state, attention_mul(b, units.index, (int64_t)c.row.unit * 4));
  emit_few_unit(e, &c.row, from, v);
  for (int i = 0; i < c.row.registers; i++) {
    at = ir_offset_const(b, to, (int64_t)i * c.row.lanes * 4);
    ir_store(b, attention_multiply_add(b, v[i], weight, ir_load(b, lanes, at, 4)), at, 4, false);
  }
  ir_end_for(b, units);
  for (int i = 0; i < c.row.tail; i++) {
    at = ir_offset_const(b, c.state, ((int64_t)c.row.units * c.row.registers + i) * c.row.lanes * 4);
    v[0] = emit_few_tail(e, &c.row, i, row);
    ir_store(b, attention_multiply_add(b, v[0], weight, ir_load(b, lanes, at, 4)), at, 4, false);
  }
  ir_end_if(b, seen);
  ir_end_for(b, keys);
  ir_return(b);
}
