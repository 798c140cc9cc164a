/* cpu/torus: see cpu/torus.h. Rows of matrices go by whole vectors. */
#include "cpu/torus.h"

#include "cpu/exponential.h"
#include "cpu/product.h"
#include "mlir/arith.h"
#include "mlir/math.h"

#include <stdio.h>

static const double QUARTER_TURNS_PER_RADIAN = 0.636619772367581343076;

/* The other component of each plane; of an odd block's last one itself. */
static ir_value partners_within(ir *b, ir_value v, int first, int size) {
  int64_t mask[64];
  int lanes = ir_lanes(v);
  for (int i = 0; i < lanes; i++) mask[i] = (first + i) / 2 * 2 + 1 < size ? i ^ 1 : i;
  return ir_shuffle(b, v, v, lanes, mask);
}

void emit_turns(ir *b, const cpu_target *target, int size, const char *name, double amplitude) {
  MlirType phase_type = ir_vector(b, target->lanes, b->f64), vector = ir_vector(b, target->lanes, b->f32);
  ir_value arguments[3];
  ir_open(b, name, "ppp", arguments);
  int padded = (size + target->lanes - 1) / target->lanes * target->lanes;
  ir_value angle = ir_load(b, b->f64, arguments[1], 8);
  angle = ir_broadcast(b, phase_type, mul(b, angle, ir_float(b, b->f64, QUARTER_TURNS_PER_RADIAN)));
  for (int at = 0; at < size; at += target->lanes) {
    ir_value lambda = ir_load(b, phase_type, ir_offset_const(b, arguments[0], (int64_t)at * 8), 8);
    math_phase phase = {.factor = {mul(b, angle, lambda)}};
    ir_value scale = ir_float(b, vector, amplitude);
    ir_value c = mul(b, math_cosq_f32(b, phase), scale), s = mul(b, math_sinq_f32(b, phase), scale);
    ir_loop columns = ir_for(b, i64(b, 0), i64(b, size));
    ir_value from = ir_offset(b, arguments[0], mul(b, columns.index, i64(b, (int64_t)padded * 4)));
    ir_value to = ir_offset(b, arguments[2], mul(b, columns.index, i64(b, (int64_t)size * 4)));
    ir_value v = ir_load(b, vector, ir_offset_const(b, from, (int64_t)padded * 8 + (int64_t)at * 4), 4);
    ir_value straight = mul(b, c, v);
    ir_value turned = emit_multiply_add(b, target, s, partners_within(b, v, at, size), straight);
    emit_store_lanes(b, turned, size - at < target->lanes ? size - at : target->lanes,
                     ir_offset_const(b, to, (int64_t)at * 4), 4);
    ir_end_for(b, columns);
  }
  ir_return(b);
}

/* ---- what is gained ---- */

typedef struct turns {
  ir *b;
  const cpu_target *target;
  int size, padded;
  MlirType vector, wide; /* float32, float64 */
  ir_value basis, angle, outer;
} turns;

static ir_value load(const turns *t, ir_value matrix, ir_value offset) {
  return ir_load(t->b, t->vector, ir_offset(t->b, matrix, offset), 4);
}

/* The other component of each lane's plane. */
static ir_value partners(const turns *t, ir_value v) {
  int64_t mask[64];
  for (int i = 0; i < t->target->lanes; i++) mask[i] = i ^ 1;
  return ir_shuffle(t->b, v, v, t->target->lanes, mask);
}

static ir_value fused(const turns *t, ir_value x, ir_value y, ir_value z) {
  return emit_multiply_add(t->b, t->target, x, y, z);
}

/* Eigenvalues of the components from `at` on: -lambda, lambda of each plane, then 0. */
static ir_value eigenvalues(const turns *t, int at) {
  return ir_load(t->b, t->wide, ir_offset_const(t->b, t->basis, (int64_t)at * 8), 8);
}

/* ---- from what encode read to what it wrote ---- */

/* Row `row` of outer times S, in vectors over its columns. */
static void times_basis(const turns *t, ir_value row, ir_value *out) {
  ir *b = t->b;
  int count = t->padded / t->target->lanes;
  ir_value sums[64], next[64], now[64];
  for (int v = 0; v < count; v++) sums[v] = ir_float(b, t->vector, 0);
  ir_loop loop = ir_for_with(b, i64(b, 0), i64(b, t->size), count, sums, now);
  ir_value x = ir_load(b, b->f32, ir_offset(b, row, mul(b, loop.index, i64(b, 4))), 4);
  ir_value columns = ir_offset_const(b, t->basis, (int64_t)t->padded * 8);
  columns = ir_offset(b, columns, mul(b, loop.index, i64(b, (int64_t)t->padded * 4)));
  for (int v = 0; v < count; v++) {
    ir_value column = ir_load(b, t->vector, ir_offset_const(b, columns, (int64_t)v * t->target->lanes * 4), 4);
    next[v] = fused(t, ir_broadcast(b, t->vector, x), column, now[v]);
  }
  ir_end_for_with(b, loop, count, next, out);
}

static void emit_turn(turns *t, const char *name, double amplitude) {
  ir *b = t->b;
  char function[96];
  ir_value arguments[3], cosine[64], sine[64], row[64];
  int lanes = t->target->lanes, count = t->padded / lanes;
  snprintf(function, sizeof function, "%s_turn", name);
  ir_open(b, function, "ppp", arguments);
  t->basis = arguments[0];
  ir_value quarters = mul(b, ir_load(b, b->f64, arguments[1], 8), ir_float(b, b->f64, QUARTER_TURNS_PER_RADIAN));
  for (int v = 0; v < count; v++) {
    math_phase phase = {.factor = {mul(b, ir_broadcast(b, t->wide, quarters), eigenvalues(t, v * lanes))}};
    ir_value scale = ir_float(b, t->vector, amplitude);
    cosine[v] = mul(b, math_cosq_f32(b, phase), scale);
    sine[v] = mul(b, math_sinq_f32(b, phase), scale);
  }
  ir_loop rows = ir_for(b, i64(b, 0), i64(b, t->size));
  ir_value at = ir_offset(b, arguments[2], mul(b, rows.index, i64(b, (int64_t)t->padded * 4)));
  times_basis(t, at, row);
  for (int v = 0; v < count; v++) {
    ir_value other = partners(t, row[v]), straight = mul(b, cosine[v], row[v]);
    ir_value turned = fused(t, sine[v], other, straight);
    ir_store(b, turned, ir_offset_const(b, at, (int64_t)v * lanes * 4), 4, false);
  }
  ir_end_for(b, rows);
  ir_return(b);
}

/* ---- what the generator gains ---- */

/* The integrals from 0 to theta of cos(uw) and -sin(uw): their series where theta w is small. */
static void integrals(const turns *t, ir_value w, ir_value *real, ir_value *imaginary) {
  static const double COSINE[] = {1, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880};
  static const double SINE[] = {-1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800};
  enum { TERMS = 5 };
  ir *b = t->b;
  ir_value theta = ir_broadcast(b, t->wide, t->angle), x = mul(b, theta, w);
  math_phase phase = {.factor = {mul(b, x, ir_float(b, t->wide, QUARTER_TURNS_PER_RADIAN))}};
  ir_value narrow = ir_cast(b, "arith.truncf", x, b->f32), one = ir_float(b, t->vector, 1);
  ir_value size = ir_op1(b, "math.absf", narrow), is_small = ir_compare_float(b, "olt", size, one);
  ir_value inverse = ir_op2(b, "arith.divf", one, ir_select(b, is_small, one, narrow));
  ir_value square = mul(b, narrow, narrow);
  ir_value c = ir_float(b, t->vector, COSINE[TERMS - 1]), s = ir_float(b, t->vector, SINE[TERMS - 1]);
  for (int i = TERMS - 2; i >= 0; i--) {
    c = fused(t, c, square, ir_float(b, t->vector, COSINE[i]));
    s = fused(t, s, square, ir_float(b, t->vector, SINE[i]));
  }
  ir_value versine = sub(b, math_cosq_f32(b, phase), one);
  ir_value sine = math_sinq_f32(b, phase);
  ir_value far = mul(b, sine, inverse), far_imaginary = mul(b, versine, inverse);
  ir_value scale = ir_cast(b, "arith.truncf", theta, b->f32);
  *real = mul(b, scale, ir_select(b, is_small, c, far));
  *imaginary = mul(b, scale, ir_select(b, is_small, mul(b, s, narrow), far_imaginary));
}

static void add_wide(const turns *t, ir_value x, ir_value at) {
  ir *b = t->b;
  ir_value sum = ir_load(b, t->wide, at, 8);
  ir_store(b, add(b, sum, ir_cast(b, "arith.extf", x, b->f64)), at, 8, false);
}

/* The rows of plane k, whose eigenvalue is lambda: of each block (a b; c d) the sums U = (a + d, b + c) / 2 and V =
 * (a - d, b - c) / 2, whose even lanes are the real part of one number, and whose odd ones the other's imaginary part.
 */
static void add_plane(const turns *t, ir_value first, ir_value lambda, ir_value sums) {
  ir *b = t->b;
  int lanes = t->target->lanes;
  int64_t row_bytes = (int64_t)t->padded * 4;
  ir_value half = ir_float(b, t->vector, 0.5), second = ir_offset_const(b, first, row_bytes);
  for (int at = 0; at < t->padded; at += lanes) {
    ir_value offset = i64(b, (int64_t)at * 4), real, imaginary;
    ir_value above = load(t, first, offset), below = partners(t, load(t, second, offset));
    ir_value u = mul(b, half, add(b, above, below)), v = mul(b, half, sub(b, above, below));
    integrals(t, add(b, eigenvalues(t, at), ir_broadcast(b, t->wide, lambda)), &real, &imaginary);
    ir_value u_other = partners(t, u), v_other = partners(t, v), straight = mul(b, u, real);
    ir_value u_turned = fused(t, v_other, imaginary, straight);
    straight = mul(b, v, partners(t, real));
    ir_value v_turned = sub(b, straight, mul(b, u_other, partners(t, imaginary)));
    ir_value place = ir_offset_const(b, sums, (int64_t)at * 8), beside = ir_offset_const(b, place, 2 * row_bytes);
    ir_value sum = add(b, u_turned, v_turned), difference = sub(b, u_turned, v_turned);
    add_wide(t, sum, place);
    difference = partners(t, difference);
    add_wide(t, difference, beside);
  }
}

static ir_value entry(const turns *t, ir_value row, ir_value column) {
  ir *b = t->b;
  ir_value at = mul(b, add(b, mul(b, row, i64(b, t->padded)), column), i64(b, 4));
  return ir_cast(b, "arith.extf", ir_load(b, b->f32, ir_offset(b, t->outer, at), 4), b->f64);
}

static void emit_adjoint(turns *t, const char *name) {
  enum { OUTER = 2, GAIN, SUMS, COUNT };
  ir *b = t->b;
  char function[96];
  ir_value arguments[COUNT], gained, next;
  snprintf(function, sizeof function, "%s_adjoint", name);
  ir_open(b, function, "ppppp", arguments);
  t->basis = arguments[0];
  t->outer = arguments[OUTER];
  t->angle = ir_load(b, b->f64, arguments[1], 8);
  ir_value none = ir_float(b, b->f64, 0), wanted = ir_compare_int(b, "ne", ir_address(b, arguments[SUMS]), i64(b, 0));
  ir_loop planes = ir_for_with(b, i64(b, 0), i64(b, t->size / 2), 1, &none, &gained);
  ir_value row = mul(b, planes.index, i64(b, 2)), partner = add(b, row, i64(b, 1));
  ir_value lambda = ir_load(b, b->f64, ir_offset(b, t->basis, mul(b, partner, i64(b, 8))), 8);
  ir_value down = entry(t, partner, row), up = entry(t, row, partner);
  next = add(b, gained, mul(b, lambda, sub(b, down, up)));
  ir_branch branch = ir_if(b, wanted);
  ir_value matrix_row = mul(b, row, i64(b, (int64_t)t->padded * 4));
  ir_value outer_row = ir_offset(b, t->outer, matrix_row);
  ir_value sums_row = ir_offset(b, arguments[SUMS], mul(b, matrix_row, i64(b, 2)));
  add_plane(t, outer_row, lambda, sums_row);
  ir_end_if(b, branch);
  ir_end_for_with(b, planes, 1, &next, &gained);
  ir_store(b, gained, arguments[GAIN], 8, false);
  if (t->size % 2) { /* the vector that the generator takes to 0: against itself there is no torque */
    int64_t last = t->size - 1;
    branch = ir_if(b, wanted);
    outer_row = ir_offset_const(b, t->outer, last * t->padded * 4);
    sums_row = ir_offset_const(b, arguments[SUMS], last * t->padded * 8);
    add_plane(t, outer_row, none, sums_row);
    ir_end_if(b, branch);
  }
  ir_return(b);
}

void emit_turns_adjoint(ir *b, const cpu_target *target, int size, const char *name, double amplitude) {
  turns t = {.b = b,
             .target = target,
             .size = size,
             .padded = (size + target->lanes - 1) / target->lanes * target->lanes,
             .vector = ir_vector(b, target->lanes, b->f32),
             .wide = ir_vector(b, target->lanes, b->f64)};
  emit_turn(&t, name, amplitude);
  emit_adjoint(&t, name);
}
