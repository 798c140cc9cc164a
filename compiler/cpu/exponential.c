/* cpu/exponential: one matrix at a time, in tiles; see cpu/exponential.h. */
#include "cpu/exponential.h"
#include "cpu/exponential_matrix.h"
#include "mlir/arith.h"

#include <math.h>
#include <stdio.h>

ir_value exponential_kept(ir *b, ir_value power) {
  MlirType type = ir_type(power);
  return ir_select(b, ir_compare_float(b, "olt", power, ir_float(b, type, 0x1p-64)), ir_float(b, type, 0), power);
}

void emit_store_lanes(ir *b, ir_value v, int count, ir_value pointer, int element_bytes) {
  int lanes = ir_lanes(v), at = 0;
  if (count == lanes) {
    ir_store(b, v, pointer, element_bytes, false);
    return;
  }
  for (int width = lanes / 2; width > 0; width /= 2) {
    if (!(count & width)) continue;
    int64_t mask[64];
    for (int i = 0; i < width; i++) mask[i] = at + i;
    ir_store(b, ir_shuffle(b, v, v, width, mask), ir_offset_const(b, pointer, (int64_t)at * element_bytes),
             element_bytes, false);
    at += width;
  }
}

/* ---- one matrix ---- */

static ir_value splat(exponential *e, ir_value scalar) { return ir_broadcast(e->b, e->vector, scalar); }

static ir_value sum_of_lanes(exponential *e, ir_value v) {
  ir_value sum = ir_extract(e->b, v, 0);
  for (int i = 1; i < e->m->lanes; i++) sum = add(e->b, sum, ir_extract(e->b, v, i));
  return sum;
}

/* M, and the sum of its squares. */
static void combine_generators(void *context, ir_value offset, ir_value *carried) {
  exponential *e = context;
  ir_value sum = {NULL};
  for (int axis = 0; axis < e->n_axes; axis++) {
    ir_value generator = exponential_load(e, ir_offset_const(e->b, e->generators, axis * matrix_bytes(e->m)), offset);
    sum = emit_multiply_add(e->b, e->m->target, e->angles[axis], generator, sum);
  }
  exponential_store(e, sum, e->buffer[EXPONENTIAL_M], offset);
  carried[0] = emit_multiply_add(e->b, e->m->target, sum, sum, carried[0]);
}

static void scale(void *context, ir_value offset, ir_value *carried) {
  (void)carried;
  exponential *e = context;
  exponential_store(e, mul(e->b, exponential_load(e, e->buffer[EXPONENTIAL_M], offset), e->factor[0]),
                    e->buffer[EXPONENTIAL_M], offset);
}

/* Adds the squares of base. */
static void add_squares(void *context, ir_value offset, ir_value *carried) {
  exponential *e = context;
  ir_value x = exponential_load(e, e->base, offset);
  carried[0] = emit_multiply_add(e->b, e->m->target, x, x, carried[0]);
}

/* out = base + factor[3] X3 + factor[2] X2 + factor[1] X */
static void add_powers(void *context, ir_value offset, ir_value *carried) {
  (void)carried;
  exponential *e = context;
  static const int powers[] = {0, EXPONENTIAL_X, EXPONENTIAL_X2, EXPONENTIAL_X3};
  ir_value sum = {NULL};
  for (int i = 3; i >= 1; i--) {
    ir_value x = exponential_load(e, e->buffer[powers[i]], offset);
    sum = emit_multiply_add(e->b, e->m->target, e->factor[i], x, sum);
  }
  if (e->base.ptr) sum = add(e->b, sum, exponential_load(e, e->base, offset));
  exponential_store(e, sum, e->out, offset);
}

/* C + S into out, C - S into base. */
static void join(void *context, ir_value offset, ir_value *carried) {
  (void)carried;
  exponential *e = context;
  ir_value c = exponential_load(e, e->buffer[EXPONENTIAL_C], offset),
           s = exponential_load(e, e->buffer[EXPONENTIAL_X], offset);
  exponential_store(e, add(e->b, c, s), e->out, offset);
  exponential_store(e, sub(e->b, c, s), e->base, offset);
}

void exponential_call(exponential *e, const char *name, ir_value out, ir_value x, ir_value y) {
  ir_value arguments[] = {out, x, y};
  ir_call(e->b, name, 3, arguments);
}

/* out = x y, which is symmetric. */
void exponential_symmetric(exponential *e, int out, int x, int y) {
  exponential_call(e, e->upper, e->buffer[out], e->buffer[x], e->buffer[y]);
  ir_value arguments[] = {e->buffer[out], e->buffer[out]};
  ir_call(e->b, e->mirror, 2, arguments);
}

/* out = [base +] scale[0] c[0] I + scale[1] c[1] X + ..., over the tiles above the diagonal or all. */
static void polynomial(exponential *e, bool upper, int out, bool onto, const double *c, const ir_value *powers) {
  ir *b = e->b;
  for (int i = 0; i < 4; i++) {
    e->factor[i] = mul(b, powers[i], ir_float(b, e->m->element, c[i]));
    if (i) e->factor[i] = splat(e, e->factor[i]);
  }
  e->out = e->buffer[out];
  e->base = onto ? e->out : (ir_value){NULL};
  emit_each_vector(b, e->m, upper, 0, NULL, add_powers, e);
  ir_loop diagonal = ir_for(b, i64(b, 0), i64(b, e->m->padded));
  ir_value at = ir_offset(b, e->out, mul(b, diagonal.index, i64(b, (int64_t)(e->m->padded + 1) * e->m->bytes)));
  ir_store(b, add(b, ir_load(b, e->m->element, at, e->m->bytes), e->factor[0]), at, e->m->bytes, false);
  ir_end_for(b, diagonal);
}

ir_value exponential_power_of_two(exponential *e, ir_value n) {
  ir_value p = emit_exp2_integer(e->b, n, true);
  return e->m->bytes == 8 ? p : ir_cast(e->b, "arith.truncf", p, e->b->f32);
}

static ir_value widened(exponential *e, ir_value x) {
  return e->m->bytes == 8 ? x : ir_cast(e->b, "arith.extf", x, e->b->f64);
}

ir_value exponential_scale(exponential *e) {
  ir *b = e->b;
  ir_value squares = ir_float(b, e->vector, 0);
  emit_each_vector(b, e->m, false, 1, &squares, combine_generators, e);
  /* ||M||^2 is at most half the sum of squares, which is below 2^(q+1). */
  ir_value q = emit_exponent(b, widened(e, sum_of_lanes(e, squares)));
  ir_value exponent = larger(b, i64(b, 0), ir_op2(b, "arith.shrsi", add(b, q, i64(b, 1)), i64(b, 1)));
  e->factor[0] = splat(e, exponential_power_of_two(e, sub(b, i64(b, 0), exponent)));
  emit_each_vector(b, e->m, false, 0, NULL, scale, e);
  return exponent;
}

double exponential_reach(const matrix_shape *m) {
  return m->bytes == 8 ? EXPONENTIAL_REACH_F64 : EXPONENTIAL_REACH_F32;
}

ir_value exponential_squarings(exponential *e, ir_value exponent, double reach) {
  ir *b = e->b;
  ir_value sum = ir_float(b, e->vector, 0);
  e->base = e->buffer[EXPONENTIAL_X2];
  emit_each_vector(b, e->m, false, 1, &sum, add_squares, e);
  ir_value u = mul(b, widened(e, sum_of_lanes(e, sum)), ir_float(b, b->f64, 1 / (2 * pow(reach, 8))));
  ir_value q = emit_exponent(b, u);
  ir_value steps = ir_op2(b, "arith.shrsi", add(b, q, i64(b, 8)), i64(b, 3)); /* ceil((q + 1) / 8) */
  return larger(b, i64(b, 0), add(b, exponent, steps));
}

void exponential_series(exponential *e, ir_value scale_exponent) {
  ir *b = e->b;
  exponential_symmetric(e, EXPONENTIAL_X3, EXPONENTIAL_X, EXPONENTIAL_X2);
  exponential_symmetric(e, EXPONENTIAL_X4, EXPONENTIAL_X2, EXPONENTIAL_X2);
  /* Powers of the scale that is still missing: M is to be multiplied by p, X by p^2, ... */
  ir_value p = exponential_power_of_two(e, scale_exponent), even[8], odd[8];
  even[0] = ir_float(b, e->m->element, 1);
  for (int i = 1; i < 8; i++) even[i] = exponential_kept(b, mul(b, even[i - 1], mul(b, p, p)));
  for (int i = 0; i < 8; i++) odd[i] = exponential_kept(b, mul(b, even[i], p));
  polynomial(e, false, EXPONENTIAL_T, false, exponential_even + 4, even + 4);
  exponential_call(e, e->upper, e->buffer[EXPONENTIAL_C], e->buffer[EXPONENTIAL_X4], e->buffer[EXPONENTIAL_T]);
  polynomial(e, true, EXPONENTIAL_C, true, exponential_even, even);
  polynomial(e, false, EXPONENTIAL_T, false, exponential_odd + 4, odd + 4);
  exponential_call(e, e->upper, e->buffer[EXPONENTIAL_P], e->buffer[EXPONENTIAL_X4], e->buffer[EXPONENTIAL_T]);
  polynomial(e, true, EXPONENTIAL_P, true, exponential_odd, odd);
  ir_value mirrored[] = {e->buffer[EXPONENTIAL_P], e->buffer[EXPONENTIAL_P]};
  ir_call(b, e->mirror, 2, mirrored);
  exponential_call(e, e->upper, e->buffer[EXPONENTIAL_X], e->buffer[EXPONENTIAL_M], e->buffer[EXPONENTIAL_P]);
  e->out = e->buffer[EXPONENTIAL_T];
  e->base = e->buffer[EXPONENTIAL_X2];
  emit_each_vector(b, e->m, true, 0, NULL, join, e);
  ir_value joined[] = {e->out, e->base};
  ir_call(b, e->mirror, 2, joined);
}

/* The first `size` rows and columns as float32, packed. */
static void write_out(exponential *e, ir_value matrix, ir_value out, double amplitude) {
  ir *b = e->b;
  const matrix_shape *m = e->m;
  ir_loop rows = ir_for(b, i64(b, 0), i64(b, m->size));
  ir_value from = ir_offset(b, matrix, mul(b, rows.index, i64(b, (int64_t)m->padded * m->bytes)));
  ir_value to = ir_offset(b, out, mul(b, rows.index, i64(b, (int64_t)m->size * 4)));
  for (int at = 0; at < m->size; at += m->lanes) {
    ir_value v = ir_load(b, e->vector, ir_offset_const(b, from, (int64_t)at * m->bytes), m->bytes);
    if (amplitude != 1) v = mul(b, v, ir_float(b, e->vector, amplitude));
    if (m->bytes == 8) v = ir_cast(b, "arith.truncf", v, b->f32);
    emit_store_lanes(b, v, m->size - at < m->lanes ? m->size - at : m->lanes, ir_offset_const(b, to, (int64_t)at * 4),
                     4);
  }
  ir_end_for(b, rows);
}

exponential exponential_open(ir *b, const matrix_shape *m, const char *name, const char *function, int n_axes,
                             int64_t angle_step, const char *types, ir_value *arguments) {
  enum { CACHE_LINE = 64 };
  exponential e = {.b = b, .m = m, .vector = ir_vector(b, m->lanes, m->element), .n_axes = n_axes};
  snprintf(e.upper, sizeof e.upper, "%s_upper", name);
  snprintf(e.full, sizeof e.full, "%s_full", name);
  snprintf(e.mirror, sizeof e.mirror, "%s_mirror", name);
  ir_open(b, function, types, arguments);
  e.generators = arguments[0];
  for (int i = 0; i < EXPONENTIAL_COUNT; i++) e.buffer[i] = ir_alloca(b, matrix_bytes(m), CACHE_LINE);
  for (int axis = 0; axis < n_axes; axis++) {
    ir_value angle = ir_load(b, b->f64, ir_offset_const(b, arguments[1], axis * angle_step), 8);
    e.angles[axis] = splat(&e, m->bytes == 8 ? angle : ir_cast(b, "arith.truncf", angle, b->f32));
  }
  return e;
}

/* With M scaled by 2^-s, ||M||^16 <= 1/2 sum of the squares of the entries of M^8, of which at most size / 2 are as
 * large as the largest. */
static void emit_bound(ir *b, const matrix_shape *m, const char *name, int n_axes, int64_t angle_step) {
  char function[96];
  ir_value arguments[3];
  snprintf(function, sizeof function, "%s_bound", name);
  exponential e = exponential_open(b, m, name, function, n_axes, angle_step, "ppp", arguments);
  ir_value exponent = exponential_scale(&e);
  exponential_symmetric(&e, EXPONENTIAL_X, EXPONENTIAL_M, EXPONENTIAL_M);
  exponential_symmetric(&e, EXPONENTIAL_X2, EXPONENTIAL_X, EXPONENTIAL_X);
  exponential_symmetric(&e, EXPONENTIAL_X4, EXPONENTIAL_X2, EXPONENTIAL_X2);
  ir_value sum = ir_float(b, e.vector, 0);
  e.base = e.buffer[EXPONENTIAL_X4];
  emit_each_vector(b, m, false, 1, &sum, add_squares, &e);
  ir_value root = mul(b, widened(&e, sum_of_lanes(&e, sum)), ir_float(b, b->f64, 0.5));
  for (int i = 0; i < 4; i++) root = ir_op1(b, "math.sqrt", root);
  ir_store(b, mul(b, root, emit_exp2_integer(b, exponent, true)), arguments[2], 8, false);
  ir_return(b);
}

void emit_exponential_sum(ir *b, const matrix_shape *m, const char *name, int n_axes, int64_t angle_step) {
  char function[96];
  ir_value arguments[3];
  snprintf(function, sizeof function, "%s_sum", name);
  exponential e = exponential_open(b, m, name, function, n_axes, angle_step, "ppp", arguments);
  ir_value squares = ir_float(b, e.vector, 0);
  emit_each_vector(b, m, false, 1, &squares, combine_generators, &e);
  write_out(&e, e.buffer[EXPONENTIAL_M], arguments[2], 1);
  ir_return(b);
  emit_bound(b, m, name, n_axes, angle_step);
}

ir_value exponential_square(exponential *e, ir_value count) {
  ir *b = e->b;
  ir_value pair[2] = {e->buffer[EXPONENTIAL_T], e->buffer[EXPONENTIAL_P]}, current[2];
  ir_loop loop = ir_for_with(b, i64(b, 0), count, 2, pair, current);
  exponential_call(e, e->full, current[1], current[0], current[0]);
  ir_value swapped[2] = {current[1], current[0]};
  ir_end_for_with(b, loop, 2, swapped, pair);
  return pair[0];
}

void emit_exponential(ir *b, const matrix_shape *m, const char *name, int n_axes, int64_t angle_step,
                      double amplitude) {
  exponential e = {.b = b};
  snprintf(e.upper, sizeof e.upper, "%s_upper", name);
  snprintf(e.full, sizeof e.full, "%s_full", name);
  snprintf(e.mirror, sizeof e.mirror, "%s_mirror", name);
  emit_product(b, m, e.upper, true);
  emit_product(b, m, e.full, false);
  emit_mirror(b, m, e.mirror);

  ir_value arguments[3];
  e = exponential_open(b, m, name, name, n_axes, angle_step, "ppp", arguments);
  ir_value exponent = exponential_scale(&e);
  exponential_symmetric(&e, EXPONENTIAL_X, EXPONENTIAL_M, EXPONENTIAL_M);
  exponential_symmetric(&e, EXPONENTIAL_X2, EXPONENTIAL_X, EXPONENTIAL_X);
  ir_value count = exponential_squarings(&e, exponent, exponential_reach(m));
  exponential_series(&e, sub(b, exponent, count));
  write_out(&e, exponential_square(&e, count), arguments[2], amplitude);
  ir_return(b);
}
