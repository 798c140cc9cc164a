/* cpu/exponential_lanes: a small matrix in each lane; see cpu/exponential.h.
 *
 * A matrix is size * size vectors in memory. For symmetric and skew ones only what is on and above the diagonal is
 * stored and read, so their products cost exactly half. Products are cut into tiles of TILE x TILE sums.
 */
#include "cpu/exponential_lanes.h"
#include "cpu/exponential.h"
#include "mlir/arith.h"

#include <math.h>
#include <stdio.h>

enum { TILE = 4, MOST = LANES_MOST };

typedef enum matrix_kind { SYMMETRIC, SKEW, GENERAL } matrix_kind;

static ir_value entry_at(const lane_matrices *m, ir_value matrix, int i, int j) {
  return ir_offset_const(m->b, matrix, (i * m->size + j) * m->bytes);
}

ir_value lane_load(const lane_matrices *m, ir_value matrix, int i, int j) {
  return ir_load(m->b, m->vector, entry_at(m, matrix, i, j), m->is_f64 ? 8 : 4);
}

void lane_store(const lane_matrices *m, ir_value v, ir_value matrix, int i, int j) {
  ir_store(m->b, v, entry_at(m, matrix, i, j), m->is_f64 ? 8 : 4, false);
}

ir_value lane_number(const lane_matrices *m, double value) { return ir_float(m->b, m->vector, value); }

/* ---- products ---- */

/* Entry (i, j) of a factor as what is stored times a sign; 0: it is zero. */
typedef struct factor {
  ir_value v;
  int sign;
} factor;

typedef struct tile_cache {
  ir_value row[MOST][MOST], column[MOST][MOST]; /* loaded entries of x and y, by their place */
} tile_cache;

static factor entry_of(const lane_matrices *m, ir_value matrix, matrix_kind kind, int i, int j,
                       ir_value cache[MOST][MOST]) {
  if (kind == SKEW && i == j) return (factor){{NULL}, 0};
  bool below = kind != GENERAL && i > j;
  int row = below ? j : i, column = below ? i : j;
  if (!cache[row][column].ptr) cache[row][column] = lane_load(m, matrix, row, column);
  return (factor){cache[row][column], below && kind == SKEW ? -1 : 1};
}

static ir_value accumulate(const lane_matrices *m, factor x, factor y, ir_value sum) {
  ir *b = m->b;
  if (x.sign * y.sign == 0) return sum;
  ir_value left = x.sign * y.sign < 0 ? ir_op1(b, "arith.negf", x.v) : x.v;
  return emit_multiply_add(b, m->target, left, y.v, sum);
}

/* Rows from i0 and columns from j0 of x y, on and above the diagonal unless all is GENERAL. */
static void product_tile(const lane_matrices *m, const ir_value *a, matrix_kind x, matrix_kind y, bool upper, int i0,
                         int j0) {
  ir_value sum[TILE][TILE] = {{{NULL}}};
  for (int k = 0; k < m->size; k++) {
    tile_cache cache = {{{{NULL}}}, {{{NULL}}}};
    for (int i = i0; i < i0 + TILE && i < m->size; i++)
      for (int j = j0; j < j0 + TILE && j < m->size; j++) {
        if (upper && i > j) continue;
        ir_value *s = &sum[i - i0][j - j0];
        factor right = entry_of(m, a[2], y, k, j, cache.column);
        *s = accumulate(m, entry_of(m, a[1], x, i, k, cache.row), right, *s);
      }
  }
  for (int i = i0; i < i0 + TILE && i < m->size; i++)
    for (int j = j0; j < j0 + TILE && j < m->size; j++)
      if (sum[i - i0][j - j0].ptr) lane_store(m, sum[i - i0][j - j0], a[0], i, j);
}

/* The tiles of whole matrices are one code. */
static void general_tiles(const lane_matrices *m, const ir_value *a) {
  ir *b = m->b;
  ir_loop rows = ir_for(b, i64(b, 0), i64(b, m->size / TILE));
  ir_value down = mul(b, rows.index, i64(b, TILE * m->size * m->bytes));
  ir_loop columns = ir_for(b, i64(b, 0), i64(b, m->size / TILE));
  ir_value right = mul(b, columns.index, i64(b, TILE * m->bytes));
  ir_value moved[] = {ir_offset(b, a[0], add(b, down, right)), ir_offset(b, a[1], down), ir_offset(b, a[2], right)};
  product_tile(m, moved, GENERAL, GENERAL, false, 0, 0);
  ir_end_for(b, columns);
  ir_end_for(b, rows);
}

/* NAME(out, x, y). The diagonal of a skew result is computed too and never read. */
static void emit_lane_product(const lane_matrices *m, const char *name, matrix_kind x, matrix_kind y) {
  ir *b = m->b;
  ir_value arguments[3];
  ir_open(b, name, "ppp", arguments);
  bool upper = x != GENERAL;
  if (!upper && m->size % TILE == 0) general_tiles(m, arguments);
  else
    for (int i = 0; i < m->size; i += TILE)
      for (int j = upper ? i : 0; j < m->size; j += TILE) product_tile(m, arguments, x, y, upper, i, j);
  ir_return(b);
}

/* ---- the exponential ---- */

void lane_product(lane_exponential *e, const char *name, int out, int x, int y) {
  ir_value arguments[] = {e->buffer[out], e->buffer[x], e->buffer[y]};
  ir_call(e->m.b, name, 3, arguments);
}

static ir_value integer_op(ir *b, const char *name, ir_value x, int64_t y) {
  return ir_op2(b, name, x, ir_int(b, ir_type(x), y));
}

static ir_value not_negative(ir *b, ir_value x) {
  ir_value zero = ir_int(b, ir_type(x), 0);
  return ir_select(b, ir_compare_int(b, "sgt", x, zero), x, zero);
}

/* NAME(out, x, x2, x3, factors): out = [out +] factors[0] I + factors[1] x + ..., on and above the diagonal. */
static void emit_polynomial(const lane_matrices *m, const char *name, bool onto) {
  enum { OUT, X, X2, X3, FACTORS, COUNT };
  ir *b = m->b;
  ir_value arguments[COUNT], factors[4];
  ir_open(b, name, "ppppp", arguments);
  for (int i = 0; i < 4; i++) factors[i] = lane_load(m, arguments[FACTORS], 0, i);
  for (int i = 0; i < m->size; i++)
    for (int j = i; j < m->size; j++) {
      ir_value sum = {NULL};
      for (int k = 3; k >= 1; k--) {
        ir_value x = lane_load(m, arguments[k], i, j);
        sum = emit_multiply_add(b, m->target, factors[k], x, sum);
      }
      if (onto) sum = add(b, sum, lane_load(m, arguments[OUT], i, j));
      if (i == j) sum = add(b, sum, factors[0]);
      lane_store(m, sum, arguments[OUT], i, j);
    }
  ir_return(b);
}

/* out = [out +] c[0] p[0] I + c[1] p[1] X + ..., on and above the diagonal. */
static void polynomial(lane_exponential *e, int out, bool onto, const double *c, const ir_value *powers) {
  ir *b = e->m.b;
  for (int i = 0; i < 4; i++) lane_store(&e->m, mul(b, powers[i], lane_number(&e->m, c[i])), e->factors, 0, i);
  ir_value arguments[] = {e->buffer[out], e->buffer[LANES_X], e->buffer[LANES_X2], e->buffer[LANES_X3], e->factors};
  ir_call(b, onto ? e->sum_onto : e->sum, 5, arguments);
}

/* M scaled to norms of at most 1, lane by lane; gives the exponents of the scale. */
static ir_value lane_scale(lane_exponential *e, const ir_value *arguments, int n_axes, int64_t angle_step) {
  const lane_matrices *m = &e->m;
  ir *b = m->b;
  ir_value angles[SPEC_MAX_AXES], squares = lane_number(m, 0), entries[MOST * MOST];
  for (int axis = 0; axis < n_axes; axis++) {
    angles[axis] = ir_load(b, ir_vector(b, m->lanes, b->f64), ir_offset_const(b, arguments[1], axis * angle_step), 8);
    if (!m->is_f64) angles[axis] = ir_cast(b, "arith.truncf", angles[axis], b->f32);
  }
  int pairs = m->size * (m->size - 1) / 2, pair = 0;
  for (; pair < pairs; pair++) {
    ir_value sum = {NULL};
    for (int axis = 0; axis < n_axes; axis++) {
      ir_value at = ir_offset_const(b, arguments[0], (axis * pairs + pair) * m->bytes);
      ir_value generator = ir_load(b, m->vector, at, m->is_f64 ? 8 : 4);
      sum = emit_multiply_add(b, m->target, angles[axis], generator, sum);
    }
    entries[pair] = sum;
    squares = emit_multiply_add(b, m->target, sum, sum, squares);
  }
  /* ||M||^2 is at most this sum over pairs, which is below 2^(q+1). */
  ir_value q = emit_exponent(b, squares);
  ir_value exponent = not_negative(b, integer_op(b, "arith.shrsi", integer_op(b, "arith.addi", q, 2), 1));
  ir_value zero = ir_int(b, ir_type(exponent), 0);
  ir_value scale = emit_exp2_integer(b, sub(b, zero, exponent), m->is_f64);
  pair = 0;
  for (int i = 0; i < m->size; i++)
    for (int j = i + 1; j < m->size; j++) lane_store(m, mul(b, entries[pair++], scale), e->buffer[LANES_M], i, j);
  return exponent;
}

static ir_value lane_squarings(lane_exponential *e, ir_value exponent) {
  const lane_matrices *m = &e->m;
  ir *b = m->b;
  ir_value diagonal = lane_number(m, 0), rest = lane_number(m, 0);
  for (int i = 0; i < m->size; i++)
    for (int j = i; j < m->size; j++) {
      ir_value x = lane_load(m, e->buffer[LANES_X2], i, j), *sum = i == j ? &diagonal : &rest;
      *sum = emit_multiply_add(b, m->target, x, x, *sum);
    }
  double reach = m->is_f64 ? EXPONENTIAL_REACH_F64 : EXPONENTIAL_REACH_F32;
  ir_value sum = emit_multiply_add(b, m->target, rest, lane_number(m, 2), diagonal);
  ir_value q = emit_exponent(b, mul(b, sum, lane_number(m, 1 / (2 * pow(reach, 8)))));
  ir_value steps = integer_op(b, "arith.shrsi", integer_op(b, "arith.addi", q, 8), 3); /* ceil((q + 1) / 8) */
  return not_negative(b, add(b, exponent, steps));
}

void lane_series(lane_exponential *e, ir_value scale_exponent) {
  const lane_matrices *m = &e->m;
  ir *b = m->b;
  lane_product(e, e->symmetric, LANES_X3, LANES_X, LANES_X2);
  lane_product(e, e->symmetric, LANES_X4, LANES_X2, LANES_X2);
  ir_value p = emit_exp2_integer(b, scale_exponent, m->is_f64), even[8], odd[8];
  even[0] = lane_number(m, 1);
  for (int i = 1; i < 8; i++) even[i] = exponential_kept(b, mul(b, even[i - 1], mul(b, p, p)));
  for (int i = 0; i < 8; i++) odd[i] = exponential_kept(b, mul(b, even[i], p));
  polynomial(e, LANES_T, false, exponential_even + 4, even + 4);
  lane_product(e, e->symmetric, LANES_C, LANES_X4, LANES_T);
  polynomial(e, LANES_C, true, exponential_even, even);
  polynomial(e, LANES_T, false, exponential_odd + 4, odd + 4);
  lane_product(e, e->symmetric, LANES_P, LANES_X4, LANES_T);
  polynomial(e, LANES_P, true, exponential_odd, odd);
  lane_product(e, e->skew, LANES_X, LANES_M, LANES_P);
  for (int i = 0; i < m->size; i++)
    for (int j = i; j < m->size; j++) {
      ir_value c = lane_load(m, e->buffer[LANES_C], i, j);
      if (i == j) {
        lane_store(m, c, e->buffer[LANES_T], i, i);
        continue;
      }
      ir_value s = lane_load(m, e->buffer[LANES_X], i, j);
      lane_store(m, add(b, c, s), e->buffer[LANES_T], i, j);
      lane_store(m, sub(b, c, s), e->buffer[LANES_T], j, i);
    }
}

ir_value lane_most(const lane_matrices *m, ir_value count) {
  ir *b = m->b;
  ir_value most = ir_extract(b, count, 0);
  for (int i = 1; i < m->lanes; i++) {
    ir_value one = ir_extract(b, count, i);
    most = ir_select(b, ir_compare_int(b, "sgt", one, most), one, most);
  }
  return m->is_f64 ? most : ir_cast(b, "arith.extsi", most, b->i64);
}

ir_value lane_wants(const lane_matrices *m, ir_value count, ir_value turn) {
  ir *b = m->b;
  if (!m->is_f64) turn = ir_cast(b, "arith.trunci", turn, b->i32);
  return ir_compare_int(b, "sgt", count, ir_broadcast(b, m->integers, turn));
}

void lane_square(lane_exponential *e, ir_value count) {
  const lane_matrices *m = &e->m;
  ir *b = m->b;
  ir_loop loop = ir_for(b, i64(b, 0), lane_most(m, count));
  lane_product(e, e->general, LANES_R, LANES_T, LANES_T);
  ir_value wanted = lane_wants(m, count, loop.index);
  ir_loop rows = ir_for(b, i64(b, 0), i64(b, m->size));
  ir_value row = mul(b, rows.index, i64(b, m->size * m->bytes)), squared = ir_offset(b, e->buffer[LANES_R], row),
           matrix = ir_offset(b, e->buffer[LANES_T], row);
  for (int j = 0; j < m->size; j++)
    lane_store(m, ir_select(b, wanted, lane_load(m, squared, 0, j), lane_load(m, matrix, 0, j)), matrix, 0, j);
  ir_end_for(b, rows);
  ir_end_for(b, loop);
}

/* Where row i of a lane's matrix goes: at + i * step bytes. */
typedef struct lane_place {
  int64_t at, step;
} lane_place;

static lane_place place_of(const lane_matrices *m, matrix_layout layout, int lane, int used) {
  int64_t row = (int64_t)m->size * 4, matrix = m->size * row;
  if (layout == MATRIX_COLUMNS || lane + (lane & 1 ? 0 : 1) >= used) return (lane_place){lane * matrix, row};
  return (lane_place){lane / 2 * 2 * matrix + lane % 2 * row, 2 * row};
}

/* Entry j of row i (of diagonal i) of the lanes' matrices. */
static ir_value entry_of_row(const lane_exponential *e, matrix_layout layout, ir_value i, int j) {
  const lane_matrices *m = &e->m;
  ir *b = m->b;
  ir_value row = layout == MATRIX_COLUMNS ? i : integer_op(b, "arith.xori", i, j);
  return lane_load(m, ir_offset(b, e->buffer[LANES_T], mul(b, row, i64(b, m->size * m->bytes))), 0, j);
}

/* Vector by vector: entries of all lanes become a run of entries for each. */
static void write_out(const lane_exponential *e, matrix_layout layout, ir_value out, int used, double amplitude) {
  const lane_matrices *m = &e->m;
  ir *b = m->b;
  ir_value entries[64];
  int width = m->lanes < MOST ? MOST : m->lanes; /* a square that a row of entries and all lanes fit in */
  ir_loop rows = ir_for(b, i64(b, 0), i64(b, m->size));
  for (int j = 0; j < width; j++) {
    ir_value v = entry_of_row(e, layout, rows.index, j < m->size ? j : 0);
    if (amplitude != 1) v = mul(b, v, lane_number(m, amplitude));
    if (m->is_f64) v = ir_cast(b, "arith.truncf", v, b->f32);
    int64_t mask[64];
    for (int lane = 0; lane < width; lane++) mask[lane] = lane < m->lanes ? lane : -1;
    entries[j] = m->lanes < width ? ir_shuffle(b, v, v, width, mask) : v;
  }
  emit_transpose(b, width, entries);
  for (int lane = 0; lane < used; lane++) {
    lane_place place = place_of(m, layout, lane, used);
    ir_value to = ir_offset(b, ir_offset_const(b, out, place.at), mul(b, rows.index, i64(b, place.step)));
    emit_store_lanes(b, entries[lane], m->size, to, 4);
  }
  ir_end_for(b, rows);
}

lane_exponential lane_begin(ir *b, const cpu_target *target, bool is_f64, int size, int lanes, const char *name) {
  lane_exponential e = {.m = {.b = b, .target = target, .is_f64 = is_f64, .size = size, .lanes = lanes}};
  e.m.element = is_f64 ? b->f64 : b->f32;
  e.m.vector = ir_vector(b, lanes, e.m.element);
  e.m.integers = ir_vector(b, lanes, is_f64 ? b->i64 : b->i32);
  e.m.bytes = lanes * (is_f64 ? 8 : 4);
  snprintf(e.square, sizeof e.square, "%s_square", name);
  snprintf(e.symmetric, sizeof e.symmetric, "%s_symmetric", name);
  snprintf(e.skew, sizeof e.skew, "%s_skew", name);
  snprintf(e.general, sizeof e.general, "%s_general", name);
  snprintf(e.sum, sizeof e.sum, "%s_sum", name);
  snprintf(e.sum_onto, sizeof e.sum_onto, "%s_sum_onto", name);
  return e;
}

ir_value lane_open(lane_exponential *e, const ir_value *arguments, int n_axes, int64_t angle_step, ir_value *scale) {
  enum { CACHE_LINE = 64 };
  ir *b = e->m.b;
  for (int i = 0; i < LANES_COUNT; i++) e->buffer[i] = ir_alloca(b, e->m.size * e->m.size * e->m.bytes, CACHE_LINE);
  e->factors = ir_alloca(b, 4 * e->m.bytes, CACHE_LINE);
  ir_value exponent = lane_scale(e, arguments, n_axes, angle_step);
  lane_product(e, e->square, LANES_X, LANES_M, LANES_M);
  lane_product(e, e->symmetric, LANES_X2, LANES_X, LANES_X);
  ir_value count = lane_squarings(e, exponent);
  *scale = sub(b, exponent, count);
  return count;
}

void emit_exponential_lanes(ir *b, const cpu_target *target, bool is_f64, int size, matrix_layout layout, int lanes,
                            int used, const char *name, int n_axes, int64_t angle_step, double amplitude) {
  lane_exponential e = lane_begin(b, target, is_f64, size, lanes, name);
  emit_lane_product(&e.m, e.square, SKEW, SKEW);
  emit_lane_product(&e.m, e.symmetric, SYMMETRIC, SYMMETRIC);
  emit_lane_product(&e.m, e.skew, SKEW, SYMMETRIC);
  emit_lane_product(&e.m, e.general, GENERAL, GENERAL);
  emit_polynomial(&e.m, e.sum, false);
  emit_polynomial(&e.m, e.sum_onto, true);

  ir_value arguments[3], scale;
  ir_open(b, name, "ppp", arguments);
  ir_value count = lane_open(&e, arguments, n_axes, angle_step, &scale);
  lane_series(&e, scale);
  lane_square(&e, count);
  write_out(&e, layout, arguments[2], used, amplitude);
  ir_return(b);
}
