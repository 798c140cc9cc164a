/* cpu/widen_columns: monomials of a token's position, laid out in lanes; see cpu/widen_columns.h.
 *
 * Keys and gains are computed as scalars and laid into memory in the order of the appended lanes. Columns of k are then
 * rounded, so that rows of all heads only copy them.
 */
#include "cpu/widen_columns.h"

#include "mlir/arith.h"
#include "mlir/monomial.h"
#include "mlir/number.h"

enum { CACHE_LINE = 64, MOST_LANES = 16 };

typedef struct column_emitter {
  ir *b;
  const plan_widen *p;
  const widen_layout *layout;
  ir_value gains;
} column_emitter;

/* ---- lanes ---- */

widen_vectors widen_vectors_of(arena *a, const widen_layout *l, int widest) {
  widen_vectors v = {0, arena_array(a, int, l->n_lanes + 1), arena_array(a, int, l->n_lanes + 1)};
  for (int at = 0; at < l->n_lanes; at += widest) {
    while (at + widest > l->n_lanes) widest /= 2;
    v.start[v.count] = at;
    v.width[v.count++] = widest;
  }
  return v;
}

ir_value emit_lane_parts(ir *b, const cpu_target *target, const widen_layout *l, int dtype, ir_value v, int start,
                         bool of_query) {
  bool low[MOST_LANES], any = false;
  int width = ir_lanes(v) ? ir_lanes(v) : 1;
  for (int i = 0; i < width; i++) {
    const widen_lane *lane = &l->lane[start + i];
    any = (low[i] = of_query ? lane->low_query : lane->low_key) || any;
  }
  if (!any) return v;
  ir_value rounded = emit_rounded(b, target->native, dtype, v);
  return ir_select(b, ir_bools(b, width, low), sub(b, v, rounded), v);
}

/* Stores a float64 as float32 to every lane of a column. */
static void store_lanes(column_emitter *e, int column, ir_value value, double scale, ir_value to) {
  ir *b = e->b;
  if (scale != 1) value = mul(b, value, ir_float(b, b->f64, scale));
  ir_value narrow = ir_cast(b, "arith.truncf", value, b->f32);
  for (int i = 0; i < e->layout->n_lanes; i++)
    if (e->layout->lane[i].column == column) ir_store(b, narrow, ir_offset_const(b, to, i * 4), 4, false);
}

static void clear(ir *b, ir_value at, int64_t floats) {
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, floats));
  ir_store(b, ir_float(b, b->f32, 0), ir_offset(b, at, mul(b, loop.index, i64(b, 4))), 4, false);
  ir_end_for(b, loop);
}

static ir_value plus(ir *b, ir_value x, ir_value y) { return x.ptr ? add(b, x, y) : y; }

/* ---- gains ---- */

/* Gains of one weight and column are neighbours in the plan. */
static int same_gain(const plan_widen *p, int first) {
  int end = first + 1;
  while (end < p->n_gains && p->gain[end].weight == p->gain[first].weight &&
         p->gain[end].column == p->gain[first].column)
    end++;
  return end;
}

static bool varies(const plan_widen *p, int first, int end) {
  for (int i = first; i < end; i++)
    if (monomial_degree(&p->gain[i].power) > 0) return true;
  return false;
}

/* Those that are the same for all tokens, or the others. */
static void emit_gains(column_emitter *e, power_table *t, bool varying) {
  const plan_widen *p = e->p;
  for (int first = 0, end; first < p->n_gains; first = end) {
    end = same_gain(p, first);
    if (varies(p, first, end) != varying) continue;
    ir_value sum = {NULL};
    for (int i = first; i < end; i++) sum = plus(e->b, sum, emit_monomial(t, &p->gain[i].power, p->gain[i].factor));
    int64_t row = (int64_t)p->gain[first].weight * e->layout->n_lanes * 4;
    store_lanes(e, p->gain[first].column, sum, 1 / e->layout->scale[p->gain[first].column],
                ir_offset_const(e->b, e->gains, row));
  }
}

/* ---- keys ---- */

static void emit_powers(column_emitter *e, power_table *t, ir_value positions) {
  ir *b = e->b;
  for (int axis = 0; axis < e->p->spec->n_axes; axis++)
    t->at[axis][1] = ir_load(b, b->f64, ir_offset_const(b, positions, axis * 8), 8);
}

static void emit_keys(column_emitter *e, power_table *t, ir_value keys) {
  for (int c = 0; c < e->p->n_columns; c++) {
    const widen_column *column = &e->p->column[c];
    ir_value sum = {NULL};
    for (int i = 0; i < column->n_key; i++)
      sum = plus(e->b, sum, emit_monomial(t, &column->key[i], column->key_factor[i]));
    store_lanes(e, c, sum, e->layout->scale[c], keys);
  }
}

static void emit_stored_keys(column_emitter *e, arena *a, const cpu_target *target, int dtype, ir_value keys,
                             ir_value to) {
  ir *b = e->b;
  widen_vectors v = widen_vectors_of(a, e->layout, target->lanes);
  for (int j = 0; j < v.count; j++) {
    ir_value lanes = ir_load(b, ir_vector(b, v.width[j], b->f32), ir_offset_const(b, keys, v.start[j] * 4), 4);
    ir_value at = ir_offset_const(b, to, (int64_t)v.start[j] * number_bytes(dtype));
    emit_store_channels(b, target->native, dtype,
                        emit_lane_parts(b, target, e->layout, dtype, lanes, v.start[j], false), at, false);
  }
}

/* ---- the functions ---- */

void emit_call_gains(ir *b, arena *a, const cpu_target *target, int dtype, ir_value gains) {
  ir_call(b, emit_gains_name(a, target, dtype), 1, &gains);
}

void emit_call_columns(ir *b, arena *a, const cpu_target *target, int dtype, ir_value positions, ir_value keys,
                       ir_value gains) {
  ir_value arguments[] = {positions, keys, gains};
  ir_call(b, emit_columns_name(a, target, dtype), 3, arguments);
}

void emit_widen_columns(ir *b, arena *a, const plan_widen *p, const cpu_target *target, int dtype) {
  column_emitter e = {.b = b, .p = p, .layout = &p->layout[dtype]};
  ir_value arguments[3];
  ir_open(b, emit_gains_name(a, target, dtype), "p", &e.gains);
  clear(b, e.gains, (int64_t)p->p->n_weights * e.layout->n_lanes);
  power_table constants = {.b = b, .type = b->f64};
  emit_gains(&e, &constants, false);
  ir_return(b);

  ir_open(b, emit_columns_name(a, target, dtype), "ppp", arguments);
  e.gains = arguments[2];
  ir_value keys = ir_alloca(b, e.layout->n_lanes * 4 + CACHE_LINE, CACHE_LINE);
  power_table powers = {.b = b, .type = b->f64};
  emit_powers(&e, &powers, arguments[0]);
  for (int i = 0; i < e.layout->n_lanes; i++)
    if (e.layout->lane[i].column < 0) ir_store(b, ir_float(b, b->f32, 0), ir_offset_const(b, keys, i * 4), 4, false);
  emit_keys(&e, &powers, keys);
  emit_gains(&e, &powers, true);
  emit_stored_keys(&e, a, target, dtype, keys, arguments[1]);
  ir_return(b);
}
