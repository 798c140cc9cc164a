/* cpu/widen: columns of a token, weights of a row; see cpu/widen.h.
 *
 * A token's keys and gains are computed as scalars, rounded, and laid into scratch memory in the order of
 * the appended lanes. Then every row is moved and its lanes follow: those of k are the token's
 * keys; those of q the sum over weights of weight times gain, with the weights' sums over terms as vectors of
 * terms that are folded at the end.
 */
#include "cpu/widen.h"
#include "mlir/arith.h"
#include "mlir/number.h"

#include "base/diag.h"
#include "cpu/encode.h"
#include "cpu/rotors.h"
#include "cpu/rows.h"
#include "cpu/weights.h"
#include "mlir/monomial.h"

#include "kernel/loop.h"

#include <stddef.h>

enum { CACHE_LINE = 64, MOST_LANES = 16 };

typedef struct widen_emitter {
  ir *b;
  arena *memory;
  const plan_widen *p;
  const widen_layout *layout;
  const cpu_target *target;
  int dtype;
  bool streaming;
  weight_emitter weights;
  int n_vectors;             /* of the appended lanes */
  int *start, *width;
  ir_value loop;             /* const pegen_widen_loop * */
  prefetch_ahead ahead;
  ir_value positions;        /* scratch: float64 [axes] */
  ir_value keys;             /* scratch: float32 [lanes] */
  ir_value gains;            /* scratch: float32 [weights][lanes] */
} widen_emitter;

static ir_value field(widen_emitter *e, size_t offset, MlirType type) {
  return ir_load(e->b, type, ir_offset_const(e->b, e->loop, (int64_t)offset), 8);
}

#define LOOP_I64(e, name) field((e), offsetof(pegen_widen_loop, name), (e)->b->i64)
#define LOOP_PTR(e, name) field((e), offsetof(pegen_widen_loop, name), (e)->b->ptr)

const char *emit_widen_name(arena *a, const cpu_target *target, int dtype, bool wide_inputs, bool streaming) {
  return arena_printf(a, "widen_%s_%s_%s_%s", target->suffix, number_name(dtype),
                      number_name(wide_inputs ? NUMBER_F32 : dtype), streaming ? "streaming" : "cached");
}

/* ---- a token: keys and gains ---- */

static ir_value plus(ir *b, ir_value x, ir_value y) { return x.ptr ? ir_op2(b, "arith.addf", x, y) : y; }

/* Stores a float64 as float32 to every lane of a column. */
static void store_lanes(widen_emitter *e, int column, ir_value value, double scale, ir_value to) {
  ir *b = e->b;
  if (scale != 1) value = ir_op2(b, "arith.mulf", value, ir_float(b, b->f64, scale));
  ir_value narrow = ir_cast(b, "arith.truncf", value, b->f32);
  for (int i = 0; i < e->layout->n_lanes; i++)
    if (e->layout->lane[i].column == column) ir_store(b, narrow, ir_offset_const(b, to, i * 4), 4, false);
}

static ir_value gains_of(widen_emitter *e, int weight) {
  return ir_offset_const(e->b, e->gains, (int64_t)weight * e->layout->n_lanes * 4);
}

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

/* Gains; those that are the same for all tokens once, the others for each. */
static void emit_gains(widen_emitter *e, power_table *t, bool once) {
  const plan_widen *p = e->p;
  for (int first = 0, end; first < p->n_gains; first = end) {
    end = same_gain(p, first);
    if (varies(p, first, end) == once) continue;
    ir_value sum = {NULL};
    for (int i = first; i < end; i++) sum = plus(e->b, sum, emit_monomial(t, &p->gain[i].power, p->gain[i].factor));
    store_lanes(e, p->gain[first].column, sum, 1 / e->layout->scale[p->gain[first].column],
                gains_of(e, p->gain[first].weight));
  }
}

static void emit_keys(widen_emitter *e, power_table *t) {
  for (int c = 0; c < e->p->n_columns; c++) {
    const widen_column *column = &e->p->column[c];
    ir_value sum = {NULL};
    for (int i = 0; i < column->n_key; i++)
      sum = plus(e->b, sum, emit_monomial(t, &column->key[i], column->key_factor[i]));
    store_lanes(e, c, sum, e->layout->scale[c], e->keys);
  }
}

static void clear(widen_emitter *e, ir_value at, int64_t floats) {
  ir *b = e->b;
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, floats));
  ir_store(b, ir_float(b, b->f32, 0), ir_offset(b, at, mul(b, loop.index, i64(b, 4))), 4, false);
  ir_end_for(b, loop);
}

/* Coordinates less the origin. */
static void emit_powers(widen_emitter *e, power_table *t, ir_value token) {
  ir *b = e->b;
  const spec *s = e->p->spec;
  emit_token_position(b, s, e->loop, token, e->positions);
  for (int axis = 0; axis < s->n_axes; axis++) {
    ir_value r = ir_load(b, b->f64, ir_offset_const(b, e->positions, axis * 8), 8);
    double origin = s->polynomial->origin[axis];
    t->at[axis][1] = origin == 0 ? r : ir_op2(b, "arith.subf", r, ir_float(b, b->f64, origin));
  }
}

/* ---- rows ---- */

static int dtype_bytes(const widen_emitter *e) { return number_bytes(e->dtype); }

/* Moves bits, so that no NaN changes. */
static void emit_move(widen_emitter *e, ir_value in, ir_value out, int most) {
  ir *b = e->b;
  int element = dtype_bytes(e), channels = e->p->spec->head_dim;
  MlirType type = element == 4 ? b->i32 : b->i16;
  for (int at = 0, lanes = most; at < channels; at += lanes) {
    while (at + lanes > channels) lanes /= 2;
    ir_value v = ir_load(b, ir_vector(b, lanes, type), ir_offset_const(b, in, at * element), element);
    ir_store(b, v, ir_offset_const(b, out, at * element), e->streaming ? lanes * element : element, e->streaming);
  }
}

/* A vector of lanes as their parts: rounded to the type, or what that took. */
static ir_value split(widen_emitter *e, ir_value v, int j, bool of_query) {
  ir *b = e->b;
  bool low[MOST_LANES], any = false;
  for (int i = 0; i < e->width[j]; i++) {
    const widen_lane *lane = &e->layout->lane[e->start[j] + i];
    any = (low[i] = of_query ? lane->low_query : lane->low_key) || any;
  }
  if (!any) return v;
  ir_value rounded = emit_rounded(b, e->target->native, e->dtype, v);
  return ir_select(b, ir_bools(b, e->width[j], low), ir_op2(b, "arith.subf", v, rounded), v);
}

static void store_tail(widen_emitter *e, ir_value v, int j, ir_value row) {
  ir *b = e->b;
  int element = dtype_bytes(e), at = (e->p->spec->head_dim + e->start[j]) * element;
  emit_store_channels(b, e->target->native, e->dtype, v, ir_offset_const(b, row, at), e->streaming);
}

static bool has_gain(const widen_emitter *e, int weight, int j) {
  for (int i = 0; i < e->p->n_gains; i++)
    for (int lane = 0; lane < e->width[j]; lane++)
      if (e->p->gain[i].weight == weight && e->p->gain[i].column == e->layout->lane[e->start[j] + lane].column)
        return true;
  return false;
}

/* The appended lanes of a query: the sum over weights of weight times gain. */
static void emit_query_tail(widen_emitter *e, const ir_value *weight, ir_value row) {
  ir *b = e->b;
  for (int j = 0; j < e->n_vectors; j++) {
    MlirType type = ir_vector(b, e->width[j], b->f32);
    ir_value v = {NULL};
    for (int w = 0; w < e->p->p->n_weights; w++) {
      if (!has_gain(e, w, j)) continue;
      ir_value gain = ir_load(b, type, ir_offset_const(b, gains_of(e, w), e->start[j] * 4), 4);
      v = emit_sum_of_product(b, e->target, ir_broadcast(b, type, weight[w]), gain, v);
    }
    store_tail(e, v.ptr ? split(e, v, j, true) : ir_float(b, type, 0), j, row);
  }
}

static void emit_key_tail(widen_emitter *e, ir_value row) {
  ir *b = e->b;
  for (int j = 0; j < e->n_vectors; j++) {
    ir_value v = ir_load(b, ir_vector(b, e->width[j], b->f32), ir_offset_const(b, e->keys, e->start[j] * 4), 4);
    store_tail(e, split(e, v, j, false), j, row);
  }
}

/* ---- the walk ---- */

static ir_value rows_at(widen_emitter *e, int which, size_t base, size_t of_batch, size_t of_token, ir_value batch,
                        ir_value token) {
  ir *b = e->b;
  size_t rows = offsetof(pegen_widen_loop, loop.rows) + (size_t)which * sizeof(pegen_rows);
  ir_value at =
      add(b, mul(b, batch, field(e, rows + of_batch, b->i64)), mul(b, token, field(e, rows + of_token, b->i64)));
  return add(b, field(e, rows + base, b->i64), at);
}

/* Rows of q (which 0) or k (1) of one token: where those of head 0 are, and what lies from head to head. */
typedef struct token_rows {
  ir_value in, out, in_head, out_head, heads; /* i64 */
} token_rows;

static token_rows rows_of(widen_emitter *e, int which, ir_value batch, ir_value token) {
  MlirType i64_type = e->b->i64;
  size_t rows = offsetof(pegen_widen_loop, loop.rows) + (size_t)which * sizeof(pegen_rows);
  return (token_rows){.in = rows_at(e, which, offsetof(pegen_rows, in), offsetof(pegen_rows, in_batch),
                                    offsetof(pegen_rows, in_token), batch, token),
                      .out = rows_at(e, which, offsetof(pegen_rows, out), offsetof(pegen_rows, out_batch),
                                     offsetof(pegen_rows, out_token), batch, token),
                      .in_head = field(e, rows + offsetof(pegen_rows, in_head), i64_type),
                      .out_head = field(e, rows + offsetof(pegen_rows, out_head), i64_type),
                      .heads = field(e, rows + offsetof(pegen_rows, heads), i64_type)};
}

static ir_value row_at(widen_emitter *e, ir_value first, ir_value head, ir_value stride) {
  return ir_pointer(e->b, add(e->b, first, mul(e->b, head, stride)));
}

/* The same of an input. */
typedef struct token_input {
  ir_value at, head;
} token_input;

static token_input input_of(widen_emitter *e, int i, ir_value batch, ir_value token) {
  ir *b = e->b;
  size_t of = offsetof(pegen_widen_loop, input) + (size_t)i * sizeof(pegen_input_rows);
  ir_value at = add(b, mul(b, batch, field(e, of + offsetof(pegen_input_rows, batch), b->i64)),
                    mul(b, token, field(e, of + offsetof(pegen_input_rows, token), b->i64)));
  return (token_input){add(b, field(e, of + offsetof(pegen_input_rows, data), b->i64), at),
                       field(e, of + offsetof(pegen_input_rows, head), b->i64)};
}

/* Lanes of the widest move of a row. */
static int most_lanes(const widen_emitter *e) {
  int bytes = dtype_bytes(e), lanes = e->target->lanes * (4 / bytes);
  if (lanes > CACHE_LINE / bytes) lanes = CACHE_LINE / bytes;
  while (e->streaming && lanes > 1 && e->layout->out_dim % lanes) lanes /= 2;
  return lanes;
}

static void emit_key_row(widen_emitter *e, const token_rows *rows, ir_value head) {
  ir_value from = row_at(e, rows->in, head, rows->in_head), to = row_at(e, rows->out, head, rows->out_head);
  emit_prefetch(e->b, e->ahead, from, e->p->spec->head_dim * dtype_bytes(e));
  emit_move(e, from, to, most_lanes(e));
  emit_key_tail(e, to);
}

static void emit_query_row(widen_emitter *e, const token_rows *rows, const token_input *inputs, ir_value head) {
  ir *b = e->b;
  const plan_widen *p = e->p;
  ir_value from = row_at(e, rows->in, head, rows->in_head), to = row_at(e, rows->out, head, rows->out_head);
  query_row row = {.prepared =
                       ir_offset(b, LOOP_PTR(e, loop.prepared), mul(b, head, LOOP_I64(e, loop.prepared_stride)))};
  int input_bytes = number_bytes(e->weights.input_dtype);
  emit_prefetch(e->b, e->ahead, from, p->spec->head_dim * dtype_bytes(e));
  for (int i = 0; i < p->spec->n_inputs; i++) {
    row.input[i] = row_at(e, inputs[i].at, head, inputs[i].head);
    emit_prefetch(e->b, e->ahead, row.input[i],
                  (int)(p->spec->input[i].size ? p->spec->input[i].size : 1) * input_bytes);
  }
  ir_value *weight = arena_array(e->memory, ir_value, p->p->n_weights + 1);
  emit_move(e, from, to, most_lanes(e));
  emit_weights(&e->weights, &row, weight);
  emit_query_tail(e, weight, to);
}

/* Rows of a token, those of k between those of q: a row of q is arithmetic, one of k nothing but memory. */
static void emit_rows(widen_emitter *e, ir_value batch, ir_value token) {
  ir *b = e->b;
  token_rows q = rows_of(e, 0, batch, token), k = rows_of(e, 1, batch, token);
  token_input inputs[SPEC_MAX_INPUTS];
  for (int i = 0; i < e->p->spec->n_inputs; i++) inputs[i] = input_of(e, i, batch, token);
  ir_loop both = ir_for(b, i64(b, 0), q.heads);
  emit_query_row(e, &q, inputs, both.index);
  ir_branch has_key = ir_if(b, ir_compare_int(b, "slt", both.index, k.heads));
  emit_key_row(e, &k, both.index);
  ir_end_if(b, has_key);
  ir_end_for(b, both);
  ir_loop rest = ir_for(b, q.heads, k.heads);
  emit_key_row(e, &k, rest.index);
  ir_end_for(b, rest);
}

static void cut_tail(widen_emitter *e) {
  int lanes = e->layout->n_lanes, width = e->target->lanes, element = dtype_bytes(e);
  e->start = arena_array(e->memory, int, lanes + 1);
  e->width = arena_array(e->memory, int, lanes + 1);
  if (e->streaming)
    while ((e->p->spec->head_dim * element) % (width * element) || (e->layout->out_dim * element) % (width * element))
      width /= 2;
  for (int at = 0; at < lanes; at += width) {
    while (at + width > lanes) width /= 2;
    e->start[e->n_vectors] = at;
    e->width[e->n_vectors++] = width;
  }
}

static void emit_function(widen_emitter *e, bool wide_inputs) {
  ir *b = e->b;
  const plan_widen *p = e->p;
  int64_t floats = (int64_t)p->p->n_weights * e->layout->n_lanes;
  cut_tail(e);
  ir_function(b, emit_widen_name(e->memory, e->target, e->dtype, wide_inputs, e->streaming), true, (MlirType){NULL}, 1,
              &b->ptr, &e->loop);
  e->ahead = emit_load_ahead(b, ir_offset_const(b, e->loop, offsetof(pegen_widen_loop, loop)));
  e->positions = ir_alloca(b, p->spec->n_axes * 8, 8);
  e->keys = ir_alloca(b, e->layout->n_lanes * 4 + CACHE_LINE, CACHE_LINE);
  e->gains = ir_alloca(b, floats * 4 + CACHE_LINE, CACHE_LINE);
  e->weights.sums = ir_alloca(b, emit_weights_room(p), CACHE_LINE);
  clear(e, e->keys, e->layout->n_lanes);
  clear(e, e->gains, floats);
  power_table constants = {.b = b, .type = b->f64};
  emit_gains(e, &constants, true);
  ir_loop batches = ir_for(b, LOOP_I64(e, loop.batch_begin), LOOP_I64(e, loop.batch_end));
  ir_loop tokens = ir_for(b, LOOP_I64(e, loop.token_begin), LOOP_I64(e, loop.token_end));
  power_table powers = {.b = b, .type = b->f64};
  emit_powers(e, &powers, tokens.index);
  emit_keys(e, &powers);
  emit_gains(e, &powers, false);
  emit_rows(e, batches.index, tokens.index);
  ir_end_for(b, tokens);
  ir_end_for(b, batches);
  ir_return(b);
}

/* Streaming stores are of 16 bytes at least, and a row and its columns begin at multiples of what they are. */
static bool can_stream(const plan_widen *p, const cpu_target *target, int dtype) {
  int lanes = dtype == NUMBER_F32 ? 4 : 8;
  return target->has_streaming && p->spec->head_dim % lanes == 0 && p->layout[dtype].out_dim % lanes == 0;
}

void emit_widen(ir *b, arena *a, const plan_widen *p, const cpu_target *target, unsigned dtypes) {
  chunk_walk walk = emit_chunks_of(b, a, p->values, plan_tile_build(a, p->values, target->lanes), target);
  b->target_cpu = target->cpu;
  b->target_features = target->features;
  if (p->values->n_leaves > 0) emit_prepare(&walk);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    for (int wide = 0; wide < (dtype == NUMBER_F32 || p->spec->n_inputs == 0 ? 1 : 2); wide++)
      for (int streaming = 0; streaming <= can_stream(p, target, dtype); streaming++) {
        if (!(dtypes & 1u << dtype)) continue;
        widen_emitter e = {.b = b,
                           .memory = a,
                           .p = p,
                           .layout = &p->layout[dtype],
                           .target = target,
                           .dtype = dtype,
                           .streaming = streaming};
        e.weights = (weight_emitter){.b = b,
                                     .memory = a,
                                     .p = p,
                                     .target = target,
                                     .input_dtype = wide ? NUMBER_F32 : dtype,
                                     .has_table = walk.has_table};
        emit_function(&e, wide);
      }
  b->target_cpu = b->target_features = NULL;
}
