/* cpu/attention/few: both ends of attention of few queries, and all its functions; see cpu/attention/few.h. */
#include "cpu/attention/few.h"

#include "cpu/attention/delta.h"
#include "cpu/attention/queries.h"
#include "cpu/attention/seen.h"
#include "mlir/exp2.h"

enum { ROOM_OF_KEYS = 8192, MOST_KEYS = PEGEN_FEW_KEYS / 2, LEAST_KEYS = 16, LEAST_WIDTH = 4 };

/* Where keys and values come in panels, these and what they are made of share the nearest cache. */
int attention_few_keys(const attention_plan *p, const cpu_target *target) {
  int widest = p->head_dim > p->value_dim ? p->head_dim : p->value_dim,
      narrowest = p->head_dim < p->value_dim ? p->head_dim : p->value_dim,
      keys = ROOM_OF_KEYS / widest >> (p->turns_values ? 2 : 0);
  bool is_small = target->lanes == 4 && target->registers < 32;
  if (is_small || p->columns || p->by_rows || narrowest < LEAST_WIDTH) return 0;
  return keys > MOST_KEYS ? MOST_KEYS : keys < LEAST_KEYS ? LEAST_KEYS : keys / LEAST_KEYS * LEAST_KEYS;
}

/* A row takes a half more than its multiply-adds, a tile of queries those of all its lanes, of each head. */
int attention_few_queries(const attention_plan *p, const cpu_target *target) {
  return 2 * attention_shape_of(p, target).queries / 3;
}

int attention_few_block(const cpu_target *target) {
  return target->registers >= 32 ? PEGEN_FEW_BLOCK : PEGEN_FEW_BLOCK - 1;
}

const char *emit_few_name(arena *a, const cpu_target *target, const char *what, int rows) {
  const char *name = arena_printf(a, "few_%s_%s", what, target->suffix);
  return rows > 0 ? arena_printf(a, "%s_%d", name, rows) : name;
}

static ir_loop open_rows(attention_emitter *e, const char *name) {
  ir_open(e->b, name, "p", &e->tile);
  e->zero = i64(e->b, 0);
  return ir_for(e->b, e->zero, FEW(e, rows, e->b->i64));
}

static void close_rows(attention_emitter *e, ir_loop rows) {
  ir_end_for(e->b, rows);
  ir_return(e->b);
}

static ir_value state_of(const attention_emitter *e, ir_value states, ir_value row) {
  return nth(e->b, states, row, pegen_few_state_bytes(e->p->value_dim));
}

/* ---- begin ---- */

static void emit_query(const attention_emitter *e, const few_row *row, ir_value from, ir_value to) {
  ir *b = e->b;
  ir_value x[2], scale = ir_cast(b, "arith.truncf", ATTENTION_TILE(e, scale, b->f64), b->f32),
                 factor = ir_broadcast(b, few_row_lanes(e, row), scale);
  int64_t bytes = (int64_t)row->lanes * 4;
  ir_loop pairs = ir_for(b, e->zero, i64(b, row->pairs));
  few_place pair = few_pair_place(row, 0, from, pairs.index);
  emit_few_load(e, row, 1, &pair, x);
  ir_value at = nth(b, to, pairs.index, 2 * bytes);
  for (int half = 0; half < 2; half++)
    ir_store(b, mul(b, x[half], factor), ir_offset_const(b, at, half * bytes), 4, false);
  ir_end_for(b, pairs);
  for (int i = 0; i < row->tail; i++) {
    few_place place = few_tail_place(row, i, from);
    emit_few_load(e, row, 1, &place, x);
    x[0] = emit_few_counted(e, row, i, x[0]);
    ir_store(b, mul(b, x[0], factor), ir_offset_const(b, to, (2 * row->pairs + i) * bytes), 4, false);
  }
}

static void emit_load(attention_emitter *e, unsigned dtypes) {
  ir_loop rows = open_rows(e, emit_few_name(e->memory, e->target, "load", 0));
  few_row row = few_row_of(e, dtypes, e->p->head_dim);
  ir_value to = nth(e->b, FEW(e, queries, e->b->ptr), rows.index, few_query_bytes(e->p));
  emit_query(e, &row, few_row_pointer(e, offsetof(pegen_attention_few, q), rows.index), to);
  close_rows(e, rows);
}

static void emit_begin(attention_emitter *e) {
  ir *b = e->b;
  ir_loop rows = open_rows(e, emit_few_name(e->memory, e->target, "begin", 0));
  ir_value state = state_of(e, FEW(e, state, b->ptr), rows.index);
  emit_zeros(e, state, attention_pitch(e->p->value_dim));
  ir_value maximum = ir_offset_const(b, state, few_maximum_offset(e->p)), most, sum, has = {NULL};
  attention_emitter of = *e;
  if (e->p->sink) { /* which keys in chunks have once, where they are merged */
    of.leaves = few_row_pointer(e, offsetof(pegen_attention_few, leaves), rows.index);
    has = ir_compare_int(b, "ne", FEW(e, sinks, b->i64), e->zero);
  }
  emit_nothing_seen(&of, has, &most, &sum);
  ir_loop lanes = ir_for(b, e->zero, i64(b, PEGEN_ATTENTION_PITCH / e->shape.lanes));
  store(e, most, nth(b, maximum, lanes.index, e->shape.lanes * 4));
  ir_end_for(b, lanes);
  emit_zeros(e, ir_offset_const(b, state, few_sum_offset(e->p)), PEGEN_ATTENTION_PITCH);
  if (e->p->sink) ir_store(b, ir_extract(b, sum, 0), ir_offset_const(b, state, few_sum_offset(e->p)), 4, false);
  close_rows(e, rows);
}

/* ---- merge ---- */

/* A register at `at` of both rows' states: x of_state + y of_other. */
static void emit_merged(const attention_emitter *e, ir_value state, ir_value other, const ir_value *factors,
                        ir_value at) {
  ir *b = e->b;
  ir_value to = ir_offset(b, state, at), x = mul(b, load(e, to), factors[0]);
  store(e, attention_multiply_add(b, load(e, ir_offset(b, other, at)), factors[1], x), to);
}

/* Two sums of the same rows become one, whose maximum is the larger of theirs. */
static void emit_merge(attention_emitter *e) {
  ir *b = e->b;
  int bytes = e->shape.lanes * 4;
  ir_loop rows = open_rows(e, emit_few_name(e->memory, e->target, "merge", 0));
  ir_value state = state_of(e, FEW(e, state, b->ptr), rows.index),
           other = state_of(e, FEW(e, other, b->ptr), rows.index),
           maximum_at = ir_offset_const(b, state, few_maximum_offset(e->p)), x = load(e, maximum_at),
           y = load(e, ir_offset_const(b, other, few_maximum_offset(e->p))), maximum = larger(b, x, y);
  ir_value factors[2] = {emit_exp2(b, sub(b, x, maximum))};
  factors[1] = emit_exp2(b, sub(b, y, maximum));
  ir_loop output = ir_for(b, e->zero, i64(b, few_maximum_offset(e->p) / bytes));
  emit_merged(e, state, other, factors, attention_mul(b, output.index, bytes));
  ir_end_for(b, output);
  store(e, maximum, maximum_at);
  emit_merged(e, state, other, factors, i64(b, few_sum_offset(e->p)));
  close_rows(e, rows);
}

/* ---- end ---- */

static void emit_out(const attention_emitter *e, const few_row *row, ir_value state, ir_value sum, ir_value out) {
  ir *b = e->b;
  MlirType lanes = few_row_lanes(e, row);
  int64_t bytes = (int64_t)row->lanes * 4;
  ir_value zero = ir_float(b, b->f32, 0), one = ir_float(b, b->f32, 1);
  ir_value inverse = ir_select(b, ir_compare_float(b, "oeq", sum, zero), zero, ir_op2(b, "arith.divf", one, sum));
  ir_value factor = ir_broadcast(b, lanes, inverse);
  ir_loop pairs = ir_for(b, e->zero, i64(b, row->pairs));
  ir_value x[2], from = nth(b, state, pairs.index, 2 * bytes);
  for (int half = 0; half < 2; half++)
    x[half] = mul(b, ir_load(b, lanes, ir_offset_const(b, from, half * bytes), 4), factor);
  few_place pair = few_pair_place(row, 0, out, pairs.index);
  emit_few_store(e, row, &pair, x);
  ir_end_for(b, pairs);
  for (int i = 0; i < row->tail; i++) {
    few_place place = few_tail_place(row, i, out);
    x[0] = mul(b, ir_load(b, lanes, ir_offset_const(b, state, (2 * row->pairs + i) * bytes), 4), factor);
    emit_few_store(e, row, &place, x);
  }
}

static ir_value sum_at(const attention_emitter *e, ir_value state) {
  return emit_across(e->b, load(e, ir_offset_const(e->b, state, few_sum_offset(e->p))), add);
}

static void emit_lse(attention_emitter *e) {
  ir *b = e->b;
  ir_loop rows = open_rows(e, emit_few_name(e->memory, e->target, "lse", 0));
  ir_value state = state_of(e, FEW(e, state, b->ptr), rows.index), sum = sum_at(e, state),
           maximum = ir_load(b, b->f32, ir_offset_const(b, state, few_maximum_offset(e->p)), 4);
  ir_value lse = attention_lse(e, maximum, (ir_value){NULL}, sum),
           to = few_row_pointer(e, offsetof(pegen_attention_few, lse), rows.index);
  ir_store(b, lse, to, 4, false);
  close_rows(e, rows);
}

static void emit_end(attention_emitter *e, unsigned dtypes) {
  ir *b = e->b;
  ir_loop rows = open_rows(e, emit_few_name(e->memory, e->target, "end", 0));
  few_row row = few_row_of(e, dtypes, e->p->value_dim);
  ir_value state = state_of(e, FEW(e, state, b->ptr), rows.index), sum = sum_at(e, state);
  emit_out(e, &row, state, sum, few_row_pointer(e, offsetof(pegen_attention_few, out), rows.index));
  close_rows(e, rows);
}

/* ---- keys that no row sees ---- */

static void emit_seen(attention_emitter *e) {
  ir_open(e->b, emit_few_name(e->memory, e->target, "seen", 0), "p", &e->tile);
  e->zero = i64(e->b, 0);
  emit_unseen_blocks(e);
  ir_return(e->b);
}

/* ---- all of them ---- */

void emit_attention_few(ir *b, arena *a, const attention_plan *p, const cpu_target *target, unsigned dtypes) {
  if (!attention_few_keys(p, target)) return;
  attention_emitter e = attention_emitter_create(b, a, p, target);
  e.shape.keys = 2 * attention_few_keys(p, target);
  unsigned f32 = 1u << NUMBER_F32, of_keys = p->turned || p->matrix ? f32 : dtypes,
           of_values = p->turns_values ? f32 : dtypes;
  emit_begin(&e);
  emit_load(&e, of_keys);
  for (int rows = 1; rows <= attention_few_block(target); rows++) {
    if (!p->matrix || p->spec->skip_tokens > 0)
      emit_few_scores(&e, emit_few_name(a, target, "scores", rows), of_keys, rows);
    emit_few_values(&e, emit_few_name(a, target, "values", rows), of_values, rows);
  }
  if (p->matrix) emit_few_pair_scores(&e, emit_few_name(a, target, "pair_scores", 0));
  emit_few_soften(&e, emit_few_name(a, target, "soften", 0), true);
  if ((p->bias || p->score) && p->spec->skip_tokens > 0)
    emit_few_soften(&e, emit_few_name(a, target, "soften_plain", 0), false);
  if (p->mask) emit_seen(&e);
  emit_merge(&e);
  emit_end(&e, of_values);
  emit_lse(&e);
}
