/* cpu/product: micro-kernels of rows by vectors; see cpu/product.h.
 *
 * The inner loop takes one column of x and one row of y at a time: `vectors` vectors of y are loaded, each element
 * of x is spread over the lanes, and rows * vectors sums stay in registers over the whole loop.
 */
#include "cpu/product.h"

#include "mlir/arith.h"

enum { UNROLL = 2, MOST_ROWS = 16 };

static ir_value scaled(ir *b, ir_value x, int64_t by) { return mul(b, x, i64(b, by)); }

matrix_shape matrix_shape_of(ir *b, const cpu_target *target, int size, bool is_f64) {
  matrix_shape m = {.target = target, .element = is_f64 ? b->f64 : b->f32, .bytes = is_f64 ? 8 : 4, .size = size};
  m.lanes = target->lanes * 4 / m.bytes;
  m.padded = (size + m.lanes - 1) / m.lanes * m.lanes;
  int part = (m.padded + MATRIX_TILES - 1) / MATRIX_TILES;
  m.tile = (part + m.lanes - 1) / m.lanes * m.lanes;
  return m;
}

int64_t matrix_bytes(const matrix_shape *m) { return (int64_t)m->padded * m->padded * m->bytes; }

ir_value emit_multiply_add(ir *b, const cpu_target *target, ir_value x, ir_value y, ir_value z) {
  if (!z.ptr) return mul(b, x, y);
  return target->has_fma ? ir_fma(b, x, y, z) : add(b, mul(b, x, y), z);
}

void emit_transpose(ir *b, int n, ir_value *rows) {
  int64_t low[64], high[64];
  for (int distance = 1; distance < n; distance *= 2) {
    for (int lane = 0; lane < n; lane++) {
      low[lane] = lane & distance ? n + lane - distance : lane;
      high[lane] = lane & distance ? n + lane : lane + distance;
    }
    for (int i = 0; i < n; i++) {
      if (i & distance) continue;
      ir_value x = rows[i], y = rows[i + distance];
      rows[i] = ir_shuffle(b, x, y, n, low);
      rows[i + distance] = ir_shuffle(b, x, y, n, high);
    }
  }
}

ir_value emit_across(ir *b, ir_value x, lane_fold *fold) {
  int64_t low[32], high[32];
  for (int lanes = ir_lanes(x) / 2; lanes >= 1; lanes /= 2) {
    for (int i = 0; i < lanes; i++) low[i] = i, high[i] = lanes + i;
    ir_value one = ir_shuffle(b, x, x, lanes, low), other = ir_shuffle(b, x, x, lanes, high);
    x = fold(b, one, other);
  }
  return ir_extract(b, x, 0);
}

/* ---- products ---- */

static int row_bytes(const matrix_shape *m) { return m->padded * m->bytes; }

/* `rows` rows of out from `out` and of x from `x`, times `vectors` vectors of y from its column `first`. */
static void micro_kernel(ir *b, const matrix_shape *m, ir_value out, ir_value x, ir_value y, int rows, int first,
                         int vectors) {
  MlirType vector = ir_vector(b, m->lanes, m->element);
  ir_value sums[IR_MAX_RESULTS], next[IR_MAX_RESULTS], row[8];
  int count = rows * vectors;
  for (int i = 0; i < count; i++) sums[i] = ir_float(b, vector, 0);
  ir_loop loop = ir_for_with(b, i64(b, 0), i64(b, m->padded / UNROLL), count, sums, next);
  ir_value y_row = ir_offset(b, y, scaled(b, loop.index, UNROLL * row_bytes(m)));
  ir_value x_column = ir_offset(b, x, scaled(b, loop.index, UNROLL * m->bytes));
  for (int k = 0; k < UNROLL; k++) {
    for (int j = 0; j < vectors; j++)
      row[j] =
          ir_load(b, vector, ir_offset_const(b, y_row, (int64_t)k * row_bytes(m) + (first + j) * m->lanes * m->bytes),
                  m->bytes);
    for (int i = 0; i < rows; i++) {
      ir_value element =
          ir_load(b, m->element, ir_offset_const(b, x_column, (int64_t)i * row_bytes(m) + k * m->bytes), m->bytes);
      element = ir_broadcast(b, vector, element);
      for (int j = 0; j < vectors; j++)
        next[i * vectors + j] = emit_multiply_add(b, m->target, element, row[j], next[i * vectors + j]);
    }
  }
  ir_end_for_with(b, loop, count, next, sums);
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < vectors; j++)
      ir_store(b, sums[i * vectors + j],
               ir_offset_const(b, out, (int64_t)i * row_bytes(m) + (first + j) * m->lanes * m->bytes), m->bytes, false);
}

/* How many rows of sums fit beside a row of y, an element of x and, without fused operations, a product. */
static int rows_of(const matrix_shape *m, int vectors, int wanted) {
  int spare = m->target->has_fma ? 2 : 3, most = (m->target->registers - vectors - spare) / vectors;
  if (most > MOST_ROWS) most = MOST_ROWS;
  if (most < 1) most = 1;
  int turns = (wanted + most - 1) / most;
  return (wanted + turns - 1) / turns;
}

/* Rows [begin, end) of out, its vectors [first, first + vectors). */
static void emit_panel(ir *b, const matrix_shape *m, const ir_value *arguments, int begin, int end, int first,
                       int vectors) {
  int rows = rows_of(m, vectors, end - begin), whole = (end - begin) / rows;
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, whole));
  ir_value at = add(b, scaled(b, loop.index, (int64_t)rows * row_bytes(m)), i64(b, (int64_t)begin * row_bytes(m)));
  ir_value right = ir_offset(b, arguments[1], at);
  micro_kernel(b, m, ir_offset(b, arguments[0], at), right, arguments[2], rows, first, vectors);
  ir_end_for(b, loop);
  int left = end - begin - whole * rows;
  if (left == 0) return;
  int64_t rest = (int64_t)(end - left) * row_bytes(m);
  right = ir_offset_const(b, arguments[1], rest);
  micro_kernel(b, m, ir_offset_const(b, arguments[0], rest), right, arguments[2], left, first, vectors);
}

/* Panels of `vectors` vectors from vector `first` on, in a loop where they are many: panels [from, to) of it. */
static void emit_panels(ir *b, const matrix_shape *m, const ir_value *arguments, int begin, int end, int first,
                        int vectors, ir_value from, ir_value to) {
  ir_loop panels = ir_for(b, from, to);
  ir_value at = scaled(b, panels.index, (int64_t)vectors * m->lanes * m->bytes);
  ir_value moved[] = {ir_offset(b, arguments[0], at), arguments[1], ir_offset(b, arguments[2], at)};
  emit_panel(b, m, moved, begin, end, first, vectors);
  ir_end_for(b, panels);
}

/* Rows [begin, end) of out from vector `first` on: panels of equal width are one code. */
static void emit_band(ir *b, const matrix_shape *m, const ir_value *arguments, int begin, int end, int first,
                      int most) {
  for (int all = m->padded / m->lanes; first < all;) {
    int left = all - first, turns = (left + most - 1) / most, vectors = (left + turns - 1) / turns;
    int equal = left - turns * (vectors - 1); /* the others are a vector narrower */
    if (equal == 1) emit_panel(b, m, arguments, begin, end, first, vectors);
    else {
      ir_value turns = i64(b, equal);
      emit_panels(b, m, arguments, begin, end, first, vectors, i64(b, 0), turns);
    }
    first += equal * vectors;
  }
}

void emit_product(ir *b, const matrix_shape *m, const char *name, bool upper) {
  ir_value arguments[3];
  ir_open(b, name, "ppp", arguments);
  int most = m->target->registers >= 32 ? 4 : 2, all = m->padded / m->lanes, band = m->tile / m->lanes;
  if (!upper) emit_band(b, m, arguments, 0, m->padded, 0, most);
  else if (m->padded % m->tile == 0 && band % most == 0) { /* all bands are one code */
    ir_loop bands = ir_for(b, i64(b, 0), i64(b, all / band));
    ir_value at = scaled(b, bands.index, (int64_t)m->tile * row_bytes(m));
    ir_value moved[] = {ir_offset(b, arguments[0], at), ir_offset(b, arguments[1], at), arguments[2]};
    ir_value last = i64(b, all / most);
    emit_panels(b, m, moved, 0, m->tile, 0, most, scaled(b, bands.index, band / most), last);
    ir_end_for(b, bands);
  } else
    for (int begin = 0; begin < m->padded; begin += m->tile)
      emit_band(b, m, arguments, begin, begin + m->tile < m->padded ? begin + m->tile : m->padded, begin / m->lanes,
                most);
  ir_return(b);
}

/* ---- what goes over a matrix once ---- */

void emit_mirror(ir *b, const matrix_shape *m, const char *name) {
  MlirType vector = ir_vector(b, m->lanes, m->element);
  ir_value arguments[2], rows[64];
  ir_open(b, name, "pp", arguments);
  int all = m->padded / m->lanes, step = m->tile / m->lanes;
  for (int begin = 0; begin + step < all; begin += step) {
    ir_loop down = ir_for(b, i64(b, begin), i64(b, begin + step));
    ir_loop right = ir_for(b, i64(b, begin + step), i64(b, all));
    int64_t block_down = (int64_t)m->lanes * row_bytes(m), block_right = (int64_t)m->lanes * m->bytes;
    ir_value from =
        ir_offset(b, arguments[1], add(b, scaled(b, down.index, block_down), scaled(b, right.index, block_right)));
    ir_value to =
        ir_offset(b, arguments[0], add(b, scaled(b, right.index, block_down), scaled(b, down.index, block_right)));
    for (int i = 0; i < m->lanes; i++)
      rows[i] = ir_load(b, vector, ir_offset_const(b, from, (int64_t)i * row_bytes(m)), m->bytes);
    emit_transpose(b, m->lanes, rows);
    for (int i = 0; i < m->lanes; i++)
      ir_store(b, rows[i], ir_offset_const(b, to, (int64_t)i * row_bytes(m)), m->bytes, false);
    ir_end_for(b, right);
    ir_end_for(b, down);
  }
  ir_return(b);
}

void emit_each_vector(ir *b, const matrix_shape *m, bool upper, int count, ir_value *carried, matrix_body *body,
                      void *context) {
  ir_value outer[IR_MAX_RESULTS], inner[IR_MAX_RESULTS];
  int height = upper ? m->tile : m->padded, all = m->padded / m->lanes;
  for (int begin = 0; begin < m->padded; begin += height) {
    int end = begin + height < m->padded ? begin + height : m->padded;
    ir_loop rows = ir_for_with(b, i64(b, begin), i64(b, end), count, carried, outer);
    ir_loop vectors = ir_for_with(b, i64(b, upper ? begin / m->lanes : 0), i64(b, all), count, outer, inner);
    ir_value offset =
        add(b, scaled(b, rows.index, row_bytes(m)), scaled(b, vectors.index, (int64_t)m->lanes * m->bytes));
    body(context, offset, inner);
    ir_end_for_with(b, vectors, count, inner, outer);
    ir_end_for_with(b, rows, count, outer, carried);
  }
}
