/* cpu/widen_backward: see cpu/widen_backward.h.
 *
 * Tokens go one after the other. What weights gain is sums of products of channels and gains, in float32 and in whole
 * vectors, as queries' columns were made; what coordinates gain is few numbers a token, in float64.
 */
#include "cpu/widen_backward.h"

#include "cpu/backward.h"
#include "cpu/place.h"
#include "cpu/product.h"
#include "cpu/rotors.h"
#include "cpu/weight_gains.h"
#include "cpu/weights.h"
#include "cpu/widen_columns.h"
#include "mlir/arith.h"
#include "mlir/monomial.h"
#include "mlir/number.h"
#include "plan/widen_gradient.h"

#include "kernel/loop.h"

#include <stddef.h>

enum { CACHE_LINE = 64, MOST_LANES = 16 };

typedef struct gains_emitter {
  ir *b;
  arena *memory;
  const plan_widen *p;
  const widen_layout *layout;
  const cpu_target *target;
  int dtype;
  widen_vectors tail;      /* the appended lanes */
  ir_value work;           /* const pegen_column_gains * */
  ir_value positions;      /* scratch: float64 [axes] */
  ir_value lanes;          /* scratch: of a row, as float32 or float64 */
  ir_value token;          /* i64 */
  ir_value index;          /* i64: counted from the first */
} gains_emitter;

const char *emit_weights_gain_name(arena *a, const cpu_target *target, int dtype) {
  return arena_printf(a, "weights_%s_gain_%s", target->suffix, number_name(dtype));
}

const char *emit_queries_gain_name(arena *a, const cpu_target *target, int dtype, bool wide_inputs) {
  return arena_printf(a, "queries_%s_gain_%s_%s", target->suffix, number_name(dtype),
                      number_name(wide_inputs ? NUMBER_F32 : dtype));
}

const char *emit_keys_gain_name(arena *a, const cpu_target *target, int dtype) {
  return arena_printf(a, "keys_%s_gain_%s", target->suffix, number_name(dtype));
}

static ir_value work_at(const gains_emitter *e, size_t offset, MlirType type) {
  return ir_load(e->b, type, ir_offset_const(e->b, e->work, (int64_t)offset), 8);
}

#define WORK(e, name, type) work_at((e), offsetof(pegen_column_gains, name), (type))

static int n_axes(const gains_emitter *e) { return e->p->spec->n_axes; }

/* ---- rows ---- */

static ir_value row_at(const gains_emitter *e, int which) {
  size_t rows = offsetof(pegen_column_gains, loop.rows) + (size_t)which * sizeof(pegen_rows);
  ir_value first = work_at(e, rows + offsetof(pegen_rows, in), e->b->i64),
           step = work_at(e, rows + offsetof(pegen_rows, in_token), e->b->i64);
  return add(e->b, first, mul(e->b, e->token, step));
}

/* Vector j of a row's appended lanes, 0 where they pass nothing on. */
static ir_value load_lanes(const gains_emitter *e, ir_value row, int j, bool of_query) {
  ir *b = e->b;
  bool passes[MOST_LANES], all = true;
  int width = e->tail.width[j], channel = e->p->spec->head_dim + e->tail.start[j];
  ir_value at = ir_offset_const(b, ir_pointer(b, row), (int64_t)channel * number_bytes(e->dtype)),
           v = emit_load_channels(b, e->target->native, e->dtype, width, at);
  for (int i = 0; i < width; i++) {
    const widen_lane *lane = &e->layout->lane[e->tail.start[j] + i];
    passes[i] = lane->column >= 0 && !(of_query ? lane->low_query : lane->low_key);
    all = all && passes[i];
  }
  return all ? v : ir_select(b, ir_bools(b, width, passes), v, ir_float(b, ir_type(v), 0));
}

/* ---- what weights gain ---- */

/* gains: float32 [weights][lanes], as queries' columns were made with. */
static void emit_weights_of_row(gains_emitter *e, ir_value gains) {
  ir *b = e->b;
  int n = e->p->p->n_weights, widest = e->tail.width[0];
  ir_value *lanes = arena_array(e->memory, ir_value, e->tail.count), *sums = arena_array(e->memory, ir_value, n + 1);
  ir_value row = row_at(e, 0);
  for (int j = 0; j < e->tail.count; j++) lanes[j] = load_lanes(e, row, j, true);
  for (int w = 0; w < n; w++) {
    for (int j = e->tail.count - 1; j >= 0; j--) { /* the short ones first */
      if (!plan_widen_has_gain(e->p, e->layout, w, e->tail.start[j], e->tail.width[j])) continue;
      int64_t at = ((int64_t)w * e->layout->n_lanes + e->tail.start[j]) * 4;
      if (sums[w].ptr) sums[w] = emit_lengthened(b, sums[w], e->tail.width[j]);
      ir_value gain = ir_load(b, ir_type(lanes[j]), ir_offset_const(b, gains, at), 4);
      sums[w] = emit_multiply_add(b, e->target, lanes[j], gain, sums[w]);
    }
    sums[w] = sums[w].ptr ? emit_lengthened(b, sums[w], widest) : ir_float(b, ir_vector(b, widest, b->f32), 0);
  }
  emit_fold_sums(b, sums, n);
  ir_value to = ir_offset(b, WORK(e, weights, b->ptr), mul(b, e->index, i64(b, 4)));
  for (int w = 0; w < n; w++)
    ir_store(b, sums[w], ir_offset_const(b, to, (int64_t)w * PEGEN_WEIGHT_QUERIES * 4), 4, false);
}

/* ---- what coordinates gain ---- */

static power_table powers_of(const gains_emitter *e) {
  ir *b = e->b;
  power_table t = {.b = b, .type = b->f64};
  for (int axis = 0; axis < n_axes(e); axis++)
    t.at[axis][1] = ir_load(b, b->f64, ir_offset_const(b, e->positions, axis * 8), 8);
  return t;
}

/* The derivative of factor * s^power by a coordinate; NULL: it is 0. */
static ir_value derivative(power_table *t, const monomial *m, double factor, int axis) {
  monomial less = *m;
  if (!m->power[axis]) return (ir_value){NULL};
  less.power[axis]--;
  return emit_monomial(t, &less, factor * m->power[axis]);
}

static ir_value plus(ir *b, ir_value x, ir_value y) {
  if (!x.ptr || !y.ptr) return x.ptr ? x : y;
  return add(b, x, y);
}

/* What a column's channels gain, in units of its value in q or k. */
static ir_value column_gain(const gains_emitter *e, int column, bool of_query) {
  ir *b = e->b;
  double scale = of_query ? 1 / e->layout->scale[column] : e->layout->scale[column];
  ir_value sum = {NULL};
  for (int i = 0; i < e->layout->n_lanes; i++) {
    const widen_lane *lane = &e->layout->lane[i];
    if (lane->column != column || (of_query ? lane->low_query : lane->low_key)) continue;
    sum = plus(b, sum, ir_load(b, b->f64, ir_offset_const(b, e->lanes, (int64_t)i * 8), 8));
  }
  return scale == 1 || !sum.ptr ? sum : mul(b, sum, ir_float(b, b->f64, scale));
}

/* Adds to what the token's coordinates gain. NULL: nothing. */
static void add_to_places(const gains_emitter *e, const ir_value *gained) {
  ir *b = e->b;
  ir_value to = ir_offset(b, WORK(e, places, b->ptr), mul(b, e->index, i64(b, n_axes(e) * 8)));
  for (int axis = 0; axis < n_axes(e); axis++) {
    if (!gained[axis].ptr) continue;
    ir_value at = ir_offset_const(b, to, axis * 8), sum = ir_load(b, b->f64, at, 8);
    ir_store(b, add(b, sum, gained[axis]), at, 8, false);
  }
}

static void store_wide(const gains_emitter *e, int j, ir_value lanes, bool adds) {
  ir *b = e->b;
  ir_value at = ir_offset_const(b, e->lanes, (int64_t)e->tail.start[j] * 8),
           wide = ir_cast(b, "arith.extf", lanes, b->f64);
  if (adds) wide = add(b, ir_load(b, ir_type(wide), at, 8), wide);
  ir_store(b, wide, at, 8, false);
}

/* weight [n_weights]: the query's, float32. */
static void emit_places_of_query(gains_emitter *e, const ir_value *weight) {
  ir *b = e->b;
  const plan_widen *p = e->p;
  ir_value row = row_at(e, 0), gained[SPEC_MAX_AXES] = {{NULL}};
  for (int j = 0; j < e->tail.count; j++) {
    ir_value lanes = load_lanes(e, row, j, true);
    store_wide(e, j, lanes, false);
  }
  power_table powers = powers_of(e);
  ir_value *gain = arena_array(e->memory, ir_value, p->n_columns + 1);
  for (int c = 0; c < p->n_columns; c++) gain[c] = column_gain(e, c, true);
  for (int first = 0, end; first < p->n_gains; first = end) {
    ir_value product = ir_cast(b, "arith.extf", weight[p->gain[first].weight], b->f64);
    product = mul(b, product, gain[p->gain[first].column]);
    for (end = first; end < p->n_gains && p->gain[end].weight == p->gain[first].weight &&
                      p->gain[end].column == p->gain[first].column;
         end++) {}
    for (int axis = 0; axis < n_axes(e); axis++) {
      ir_value slope = {NULL};
      for (int i = first; i < end; i++) {
        ir_value one = derivative(&powers, &p->gain[i].power, p->gain[i].factor, axis);
        slope = plus(b, slope, one);
      }
      if (slope.ptr) gained[axis] = plus(b, gained[axis], mul(b, slope, product));
    }
  }
  add_to_places(e, gained);
}

static void emit_sums_of_keys(gains_emitter *e) {
  ir *b = e->b;
  size_t rows = offsetof(pegen_column_gains, loop.rows) + sizeof(pegen_rows);
  ir_value first = row_at(e, 1), step = work_at(e, rows + offsetof(pegen_rows, in_head), b->i64);
  for (int j = 0; j < e->tail.count; j++)
    store_wide(e, j, ir_float(b, ir_vector(b, e->tail.width[j], b->f32), 0), false);
  ir_loop heads = ir_for(b, i64(b, 0), work_at(e, rows + offsetof(pegen_rows, heads), b->i64));
  ir_value row = add(b, first, mul(b, heads.index, step));
  for (int j = 0; j < e->tail.count; j++) {
    ir_value lanes = load_lanes(e, row, j, false);
    store_wide(e, j, lanes, true);
  }
  ir_end_for(b, heads);
}

static void emit_places_of_key(gains_emitter *e) {
  ir *b = e->b;
  const plan_widen *p = e->p;
  ir_value gained[SPEC_MAX_AXES] = {{NULL}};
  emit_sums_of_keys(e);
  power_table powers = powers_of(e);
  for (int c = 0; c < p->n_columns; c++) {
    ir_value gain = column_gain(e, c, false);
    for (int axis = 0; axis < n_axes(e); axis++) {
      ir_value slope = {NULL};
      for (int i = 0; i < p->column[c].n_key; i++) {
        ir_value one = derivative(&powers, &p->column[c].key[i], p->column[c].key_factor[i], axis);
        slope = plus(b, slope, one);
      }
      if (slope.ptr) gained[axis] = plus(b, gained[axis], mul(b, slope, gain));
    }
  }
  add_to_places(e, gained);
}

/* ---- the functions ---- */

static ir_loop begin_tokens(gains_emitter *e) {
  ir *b = e->b;
  ir_value begin = WORK(e, loop.token_begin, b->i64), end = WORK(e, loop.token_end, b->i64);
  ir_loop tokens = ir_for(b, begin, end);
  e->token = tokens.index;
  e->index = sub(b, tokens.index, begin);
  emit_centred_position(b, e->p->spec, e->work, e->token, e->positions);
  return tokens;
}

static void begin_function(gains_emitter *e, const char *name) {
  ir *b = e->b;
  ir_open(b, name, "p", &e->work);
  e->positions = ir_alloca(b, n_axes(e) * 8, 8);
  e->lanes = ir_alloca(b, e->layout->n_lanes * 8 + CACHE_LINE, CACHE_LINE);
}

static void end_function(gains_emitter *e, ir_loop tokens) {
  ir_end_for(e->b, tokens);
  ir_return(e->b);
}

static void emit_weights_gain(gains_emitter *e) {
  ir *b = e->b;
  begin_function(e, emit_weights_gain_name(e->memory, e->target, e->dtype));
  ir_value keys = ir_alloca(b, e->layout->n_lanes * 4 + CACHE_LINE, CACHE_LINE),
           gains = ir_alloca(b, (int64_t)e->p->p->n_weights * e->layout->n_lanes * 4 + CACHE_LINE, CACHE_LINE);
  emit_call_gains(b, e->memory, e->target, e->dtype, gains);
  ir_loop tokens = begin_tokens(e);
  emit_call_columns(b, e->memory, e->target, e->dtype, e->positions, keys, gains);
  emit_weights_of_row(e, gains);
  end_function(e, tokens);
}

static void emit_queries_gain(gains_emitter *e, weight_emitter *weights, bool wide_inputs) {
  ir *b = e->b;
  const plan_widen *p = e->p;
  ir_value *weight = arena_array(e->memory, ir_value, p->p->n_weights + 1);
  begin_function(e, emit_queries_gain_name(e->memory, e->target, e->dtype, wide_inputs));
  weights->input_dtype = wide_inputs ? NUMBER_F32 : e->dtype;
  query_row row = {.prepared = WORK(e, loop.prepared, b->ptr)};
  ir_loop tokens = begin_tokens(e);
  for (int i = 0; i < p->spec->n_inputs; i++) {
    size_t at = (size_t)i * sizeof(void *);
    ir_value first = work_at(e, offsetof(pegen_column_gains, input) + at, b->ptr),
             step = work_at(e, offsetof(pegen_column_gains, input_step) + at, b->i64);
    row.input[i] = ir_offset(b, first, mul(b, e->token, step));
  }
  emit_weights(weights, &row, weight);
  emit_places_of_query(e, weight);
  end_function(e, tokens);
}

static void emit_keys_gain(gains_emitter *e) {
  begin_function(e, emit_keys_gain_name(e->memory, e->target, e->dtype));
  ir_loop tokens = begin_tokens(e);
  emit_places_of_key(e);
  end_function(e, tokens);
}

void emit_widen_backward(ir *b, arena *a, const plan_widen *p, const cpu_target *target, unsigned dtypes) {
  const cpu_target *back = emit_backward_target(a, target); /* under which tables have their names */
  chunk_walk walk = emit_chunks_of(b, a, p->values, plan_tile_build(a, p->values, target->lanes), back);
  emit_weight_gains(b, a, plan_widen_gradient(a, p), target, dtypes);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype)) continue;
    gains_emitter e = {.b = b, .memory = a, .p = p, .layout = &p->layout[dtype], .target = target, .dtype = dtype};
    e.tail = widen_vectors_of(a, e.layout, target->lanes);
    weight_emitter weights = {.b = b, .memory = a, .p = p, .target = back, .has_table = walk.has_table};
    emit_weights_gain(&e);
    for (int wide = 0; wide < (dtype == NUMBER_F32 || p->spec->n_inputs == 0 ? 1 : 2); wide++)
      emit_queries_gain(&e, &weights, wide);
    emit_keys_gain(&e);
  }
}
