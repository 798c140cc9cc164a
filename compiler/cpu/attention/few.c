/* cpu/attention/few: both ends of attention of few queries, and all its functions; see cpu/attention/few.h. */
#include "cpu/attention/few.h"

#include "cpu/attention/few_stages.h"
#include "mlir/exp2.h"
#include "mlir/math.h"

static const double LN_2 = 0.69314718055994530942;
static const double NOTHING_SEEN = -0x1p126;

enum { ROOM_OF_KEYS = 8192, LEAST_KEYS = 16, LEAST_WIDTH = 4 };

int attention_few_keys(const attention_plan *p, const cpu_target *target) {
  int widest = p->head_dim > p->value_dim ? p->head_dim : p->value_dim,
      narrowest = p->head_dim < p->value_dim ? p->head_dim : p->value_dim, keys = ROOM_OF_KEYS / widest;
  bool is_small = target->lanes == 4 && target->registers < 32;
  if (is_small || p->matrix || p->turned || p->columns || p->by_rows || p->by_tiles || narrowest < LEAST_WIDTH)
    return 0;
  return keys > PEGEN_FEW_KEYS ? PEGEN_FEW_KEYS : keys < LEAST_KEYS ? LEAST_KEYS : keys / LEAST_KEYS * LEAST_KEYS;
}

/* A row takes a half more than its multiply-adds, a tile of queries those of all its lanes, of each head. */
int attention_few_queries(const attention_plan *p, const cpu_target *target) {
  return 2 * attention_shape_of(p, target).queries / 3;
}

const char *emit_few_name(arena *a, const cpu_target *target, const char *what, int dtype, int rows) {
  const char *name = arena_printf(a, "few_%s_%s", what, target->suffix);
  if (dtype >= 0) name = arena_printf(a, "%s_%s", name, number_name(dtype));
  return rows > 0 ? arena_printf(a, "%s_%d", name, rows) : name;
}

static ir_loop open_rows(attention_emitter *e, const char *name) {
  ir_function(e->b, name, true, (MlirType){NULL}, 1, &e->b->ptr, &e->tile);
  e->zero = i64(e->b, 0);
  return ir_for(e->b, e->zero, FEW(e, rows, e->b->i64));
}

static void close_rows(attention_emitter *e, ir_loop rows) {
  ir_end_for(e->b, rows);
  ir_return(e->b);
}

static ir_value state_of(const attention_emitter *e, ir_value states, ir_value row) {
  return ir_offset(e->b, states, attention_mul(e->b, row, pegen_few_state_bytes(e->p->value_dim)));
}

/* A pointer of row `index`. */
static ir_value row_pointer(const attention_emitter *e, size_t offset, ir_value index) {
  ir *b = e->b;
  ir_value all = ir_offset_const(b, e->tile, (int64_t)offset);
  return ir_load(b, b->ptr, ir_offset(b, all, attention_mul(b, index, 8)), 8);
}

/* ---- begin ---- */

static void emit_query(const attention_emitter *e, const few_row *row, ir_value from, ir_value to) {
  ir *b = e->b;
  ir_value x[FEW_MAX_UNIT], scale = ir_cast(b, "arith.truncf", ATTENTION_TILE(e, scale, b->f64), b->f32),
                            factor = ir_broadcast(b, few_row_lanes(e, row), scale);
  ir_loop units = ir_for(b, e->zero, i64(b, row->units));
  ir_value at = ir_offset(b, to, attention_mul(b, units.index, (int64_t)row->unit * 4));
  emit_few_unit(e, row, ir_offset(b, from, attention_mul(b, units.index, (int64_t)row->unit * number_bytes(row->type))),
                x);
  for (int i = 0; i < row->registers; i++)
    ir_store(b, mul(b, x[i], factor), ir_offset_const(b, at, (int64_t)i * row->lanes * 4), 4, false);
  ir_end_for(b, units);
  for (int i = 0; i < row->tail; i++)
    ir_store(b, mul(b, emit_few_counted(e, row, i, from), factor),
             ir_offset_const(b, to, ((int64_t)row->units * row->registers + i) * row->lanes * 4), 4, false);
}

static void emit_begin(attention_emitter *e, int dtype) {
  ir *b = e->b;
  few_row row = few_row_of(e, dtype, e->p->head_dim);
  ir_loop rows = open_rows(e, emit_few_name(e->memory, e->target, "begin", dtype, 0));
  ir_value to = ir_offset(b, FEW(e, queries, b->ptr), attention_mul(b, rows.index, few_query_bytes(e->p)));
  emit_query(e, &row, row_pointer(e, offsetof(pegen_attention_few, q), rows.index), to);
  ir_value state = state_of(e, FEW(e, state, b->ptr), rows.index);
  emit_zeros(e, state, attention_pitch(e->p->value_dim));
  ir_value maximum = ir_offset_const(b, state, few_maximum_offset(e->p));
  ir_loop lanes = ir_for(b, e->zero, i64(b, PEGEN_ATTENTION_PITCH / e->shape.lanes));
  store(e, ir_float(b, e->lanes, NOTHING_SEEN),
        ir_offset(b, maximum, attention_mul(b, lanes.index, e->shape.lanes * 4)));
  ir_end_for(b, lanes);
  emit_zeros(e, ir_offset_const(b, state, few_sum_offset(e->p)), PEGEN_ATTENTION_PITCH);
  close_rows(e, rows);
}

/* ---- end ---- */

static ir_value sum_of_lanes(ir *b, ir_value x) {
  ir_value sum = ir_extract(b, x, 0);
  for (int i = 1; i < ir_lanes(x); i++) sum = add(b, sum, ir_extract(b, x, i));
  return sum;
}

static void emit_out(const attention_emitter *e, const few_row *row, ir_value state, ir_value sum, ir_value out) {
  ir *b = e->b;
  MlirType lanes = few_row_lanes(e, row);
  ir_value zero = ir_float(b, b->f32, 0), one = ir_float(b, b->f32, 1), x[FEW_MAX_UNIT];
  ir_value inverse = ir_select(b, ir_compare_float(b, "oeq", sum, zero), zero, ir_op2(b, "arith.divf", one, sum));
  ir_value factor = ir_broadcast(b, lanes, inverse);
  ir_loop units = ir_for(b, e->zero, i64(b, row->units));
  ir_value from = ir_offset(b, state, attention_mul(b, units.index, (int64_t)row->unit * 4));
  for (int i = 0; i < row->registers; i++)
    x[i] = mul(b, ir_load(b, lanes, ir_offset_const(b, from, (int64_t)i * row->lanes * 4), 4), factor);
  emit_few_store_unit(e, row, x,
                      ir_offset(b, out, attention_mul(b, units.index, (int64_t)row->unit * number_bytes(row->type))));
  ir_end_for(b, units);
  for (int i = 0; i < row->tail; i++) {
    from = ir_offset_const(b, state, ((int64_t)row->units * row->registers + i) * row->lanes * 4);
    emit_few_store_tail(e, row, i, mul(b, ir_load(b, lanes, from, 4), factor), out);
  }
}

static ir_value sum_at(const attention_emitter *e, ir_value state) {
  return sum_of_lanes(e->b, load(e, ir_offset_const(e->b, state, few_sum_offset(e->p))));
}

static void emit_lse(attention_emitter *e) {
  ir *b = e->b;
  ir_loop rows = open_rows(e, emit_few_name(e->memory, e->target, "lse", -1, 0));
  ir_value state = state_of(e, FEW(e, state, b->ptr), rows.index), sum = sum_at(e, state),
           maximum = load(e, ir_offset_const(b, state, few_maximum_offset(e->p)));
  maximum = ir_cast(b, "arith.extf", maximum, b->f64);
  ir_value log = math_log_f64(b, ir_cast(b, "arith.extf", ir_broadcast(b, e->lanes, sum), b->f64)),
           lse = add(b, mul(b, maximum, ir_float(b, ir_type(maximum), LN_2)), log),
           rounded = ir_extract(b, ir_cast(b, "arith.truncf", lse, b->f32), 0);
  ir_value seen = ir_compare_float(b, "une", sum, ir_float(b, b->f32, 0)),
           to = row_pointer(e, offsetof(pegen_attention_few, lse), rows.index);
  ir_store(b, ir_select(b, seen, rounded, ir_float(b, b->f32, -__builtin_inf())), to, 4, false);
  close_rows(e, rows);
}

static void emit_end(attention_emitter *e, int dtype) {
  ir *b = e->b;
  few_row row = few_row_of(e, dtype, e->p->value_dim);
  ir_loop rows = open_rows(e, emit_few_name(e->memory, e->target, "end", dtype, 0));
  ir_value state = state_of(e, FEW(e, state, b->ptr), rows.index), sum = sum_at(e, state);
  emit_out(e, &row, state, sum, row_pointer(e, offsetof(pegen_attention_few, out), rows.index));
  close_rows(e, rows);
}

/* ---- all of them ---- */

/* Most rows that share what is read: their sums want registers, and code of every number between one and these would be
 * as much again. */
static int rows_of(const cpu_target *target, int dtype) {
  return target->registers >= 32 || dtype == NUMBER_F32 ? PEGEN_FEW_BLOCK : 1;
}

static void emit_type(attention_emitter *e, int dtype) {
  arena *a = e->memory;
  emit_begin(e, dtype);
  for (int rows = 1; rows <= rows_of(e->target, dtype); rows += PEGEN_FEW_BLOCK - 1) {
    emit_few_scores(e, emit_few_name(a, e->target, "scores", dtype, rows), dtype, rows);
    emit_few_values(e, emit_few_name(a, e->target, "values", dtype, rows), dtype, rows);
  }
  emit_few_seen_values(e, emit_few_name(a, e->target, "seen_values", dtype, 0), dtype);
  emit_end(e, dtype);
}

void emit_attention_few(ir *b, arena *a, const attention_plan *p, const cpu_target *target, unsigned dtypes) {
  if (!attention_few_keys(p, target)) return;
  attention_emitter e = attention_emitter_create(b, a, p, target);
  e.shape.keys = attention_few_keys(p, target);
  emit_few_soften(&e, emit_few_name(a, target, "soften", -1, 0), true);
  if (p->bias && p->spec->skip_tokens > 0) emit_few_soften(&e, emit_few_name(a, target, "soften_plain", -1, 0), false);
  emit_lse(&e);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    if (dtypes & 1u << dtype) emit_type(&e, dtype);
}
