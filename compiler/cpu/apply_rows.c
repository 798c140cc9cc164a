/* cpu/apply_rows: sums of columns or of diagonals; see cpu/apply_rows.h. */
#include "cpu/apply_rows.h"
#include "mlir/arith.h"
#include "mlir/number.h"

#include "cpu/product.h"

enum { FEW_PIECES = 2 }; /* that are not worth a loop */

apply_shape apply_shape_of(const cpu_target *target, int size, matrix_layout layout) {
  apply_shape s = {.layout = layout};
  for (int at = 0, width = target->lanes; at < size;) {
    while (width > size - at) width /= 2;
    s.start[s.n_pieces] = at;
    s.width[s.n_pieces++] = width;
    at += width;
  }
  /* Beside the columns: the sums, a channel and, without fused operations, a product. */
  int spare = target->has_fma ? 1 : 2, columns = s.n_pieces * size;
  s.resident = s.n_pieces <= 4 && columns + s.n_pieces + spare <= target->registers;
  s.together = s.resident && 2 * (columns + s.n_pieces) + spare <= target->registers ? 2 : 1;
  if (layout == MATRIX_EXPONENT) s.resident = false, s.together = 1;
  if (layout == MATRIX_DIAGONALS) s.resident = true, s.together = 2; /* as they lie */
  return s;
}

int apply_vectors_of(const cpu_target *target, const apply_shape *s, int rows) {
  int spare = target->has_fma ? 1 : 2, most = (target->registers - spare) / (rows + 1);
  if (most > APPLY_VECTORS) most = APPLY_VECTORS;
  return most < 1 ? 1 : most < s->n_pieces ? most : s->n_pieces;
}

/* ---- the channels of a block ---- */

/* Whether sums can be taken from memory where the row lies: float32 channels in order. */
static bool reads_in_place(const applier *e) { return e->dtype == NUMBER_F32 && e->contiguous; }

static ir_value channel_pointer(applier *e, int which, ir_value row, ir_value component) {
  ir *b = e->b;
  ir_value at = add(b, mul(b, add(b, e->block, i64(b, which)), i64(b, e->size)), component);
  ir_value channel = ir_load(b, b->i32, ir_offset(b, e->channels, mul(b, at, i64(b, 4))), 4);
  channel = ir_cast(b, "arith.extsi", channel, b->i64);
  return ir_offset(b, row, mul(b, channel, i64(b, e->channel_bytes)));
}

/* Where block `which` of those at hand begins in a row whose first one's address is given. */
static ir_value of_block(applier *e, ir_value row, int which) {
  return e->contiguous ? ir_offset_const(e->b, row, (int64_t)which * e->size * e->channel_bytes) : row;
}

static void fetch_piece(applier *e, int width, ir_value from, ir_value to) {
  ir_store(e->b, emit_load_channels(e->b, e->target->native, e->dtype, width, from), to, 4, false);
}

ir_value emit_fetch(applier *e, int which, ir_value row, int i) {
  ir *b = e->b;
  ir_value scratch = ir_offset_const(b, e->x_scratch, (int64_t)(2 * i + which) * e->size * 4);
  if (!e->contiguous) {
    ir_loop loop = ir_for(b, i64(b, 0), i64(b, e->size));
    ir_value x = emit_load_channels(b, e->target->native, e->dtype, 1, channel_pointer(e, which, row, loop.index));
    ir_store(b, x, ir_offset(b, scratch, mul(b, loop.index, i64(b, 4))), 4, false);
    ir_end_for(b, loop);
    return scratch;
  }
  int lanes = e->target->lanes, whole = e->size / lanes, first = 0;
  if (whole > FEW_PIECES) { /* conversions are long */
    ir_loop loop = ir_for(b, i64(b, 0), i64(b, whole));
    ir_value to = ir_offset(b, scratch, mul(b, loop.index, i64(b, (int64_t)lanes * 4)));
    fetch_piece(e, lanes, ir_offset(b, row, mul(b, loop.index, i64(b, (int64_t)lanes * e->channel_bytes))), to);
    ir_end_for(b, loop);
    first = whole;
  }
  for (int p = first; p < e->shape.n_pieces; p++) {
    ir_value to = ir_offset_const(b, scratch, (int64_t)e->shape.start[p] * 4);
    fetch_piece(e, e->shape.width[p], ir_offset_const(b, row, (int64_t)e->shape.start[p] * e->channel_bytes), to);
  }
  return scratch;
}

void emit_put(applier *e, int which, ir_value sum, ir_value row, int piece) {
  ir *b = e->b;
  if (e->contiguous) {
    ir_value shifted = ir_offset(b, row, mul(b, e->shift, i64(b, e->channel_bytes)));
    emit_store_channels(b, e->target->native, e->dtype, sum,
                        ir_offset_const(b, shifted, (int64_t)e->shape.start[piece] * e->channel_bytes), false);
    return;
  }
  ir_store(b, sum, e->y_scratch, 4, false);
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, e->shape.width[piece]));
  ir_value y = ir_load(b, ir_vector(b, 1, b->f32), ir_offset(b, e->y_scratch, mul(b, loop.index, i64(b, 4))), 4);
  ir_value component = add(b, loop.index, add(b, e->shift, i64(b, e->shape.start[piece])));
  emit_store_channels(b, e->target->native, e->dtype, y, channel_pointer(e, which, row, component), false);
  ir_end_for(b, loop);
}

static ir_value of_matrix(applier *e, int which) {
  return ir_offset_const(e->b, e->matrix, (int64_t)which * e->size * e->size * 4);
}

static ir_value load_column(applier *e, ir_value matrix, int k, int piece) {
  ir *b = e->b;
  int64_t at = ((int64_t)k * e->size + e->shape.start[piece]) * 4;
  return ir_load(b, ir_vector(b, e->shape.width[piece], b->f32), ir_offset_const(b, matrix, at), 4);
}

/* ---- columns in registers ---- */

static ir_value column_sum(applier *e, int which, int piece, ir_value x) {
  ir *b = e->b;
  ir_value sum = {NULL};
  for (int k = 0; k < e->size; k++) {
    ir_value channel = ir_load(b, b->f32, ir_offset_const(b, x, (int64_t)k * 4), 4);
    ir_value column = e->held[(which * e->size + k) * e->shape.n_pieces + piece],
             spread = ir_broadcast(b, ir_type(column), channel);
    sum = emit_multiply_add(b, e->target, spread, column, sum);
  }
  return sum;
}

/* As many rows at once as have their sums in registers beside the columns. */
static void emit_resident_rows(applier *e, const ir_value *in, const ir_value *out, int rows, int blocks) {
  int pieces = e->shape.n_pieces, units = blocks * pieces, step = (e->target->registers - 1 - units * e->size) / units;
  ir_value sums[APPLY_LISTED][8];
  if (step < 1) step = 1;
  for (int first = 0; first < rows; first += step) {
    int end = first + step < rows ? first + step : rows;
    for (int i = first; i < end; i++)
      for (int g = 0; g < blocks; g++) {
        ir_value x = of_block(e, in[i], g);
        if (!reads_in_place(e)) x = emit_fetch(e, g, x, i);
        for (int p = 0; p < pieces; p++) sums[i][g * pieces + p] = column_sum(e, g, p, x);
      }
    for (int i = first; i < end; i++)
      for (int v = 0; v < units; v++) emit_put(e, v / pieces, sums[i][v], of_block(e, out[i], v / pieces), v % pieces);
  }
}

/* ---- columns from memory ---- */

void emit_column_sums(applier *e, const ir_value *x, int rows, int first, int count, ir_value *sums) {
  ir *b = e->b;
  ir_value next[APPLY_LISTED * APPLY_VECTORS], loaded[APPLY_VECTORS];
  int total = rows * count;
  ir_loop loop = ir_for_with(b, i64(b, 0), i64(b, e->size), total, sums, next);
  ir_value column = ir_offset(b, e->matrix, mul(b, loop.index, i64(b, (int64_t)e->size * 4))),
           at = mul(b, loop.index, i64(b, 4));
  for (int v = 0; v < count; v++) loaded[v] = load_column(e, column, 0, first + v);
  for (int i = 0; i < total; i++) {
    ir_value channel = ir_load(b, b->f32, ir_offset(b, x[i / count], at), 4);
    next[i] = emit_multiply_add(b, e->target, ir_broadcast(b, ir_type(loaded[i % count]), channel), loaded[i % count],
                                next[i]);
  }
  ir_end_for_with(b, loop, total, next, sums);
}

/* The sums of `count` pieces from `first` on, of rows whose channels are at x. */
static void emit_walked_pieces(applier *e, const ir_value *x, const ir_value *out, int rows, int first, int count) {
  ir_value sums[APPLY_LISTED * APPLY_VECTORS];
  for (int i = 0; i < rows * count; i++)
    sums[i] = ir_float(e->b, ir_vector(e->b, e->shape.width[first + i % count], e->b->f32), 0);
  emit_column_sums(e, x, rows, first, count, sums);
  for (int i = 0; i < rows; i++)
    for (int v = 0; v < count; v++) emit_put(e, 0, sums[i * count + v], out[i], first + v);
}

/* Rows of one block, `rows` or half as many at once, whichever lets a matrix be walked once for them. */
static void emit_walk(applier *e, const ir_value *in, const ir_value *out, int rows) {
  ir *b = e->b;
  int all = e->shape.n_pieces, step = apply_vectors_of(e->target, &e->shape, rows), first = 0;
  ir_value x[APPLY_LISTED];
  if (step < all && rows > 1 && apply_vectors_of(e->target, &e->shape, rows / 2) == all) {
    emit_walk(e, in, out, rows / 2);
    emit_walk(e, in + rows / 2, out + rows / 2, rows - rows / 2);
    return;
  }
  for (int i = 0; i < rows; i++) x[i] = reads_in_place(e) && step == all ? in[i] : emit_fetch(e, 0, in[i], i);
  int lanes = e->target->lanes, turns = e->size / lanes / step; /* of whole vectors: one code */
  if (turns > 1) {
    ir_value matrix = e->matrix, shift = e->shift;
    ir_loop loop = ir_for(b, i64(b, 0), i64(b, turns));
    e->shift = mul(b, loop.index, i64(b, (int64_t)step * lanes));
    e->matrix = ir_offset(b, matrix, mul(b, e->shift, i64(b, 4)));
    emit_walked_pieces(e, x, out, rows, 0, step);
    ir_end_for(b, loop);
    e->shift = shift;
    e->matrix = matrix;
    first = turns * step;
  }
  for (; first < all; first += step)
    emit_walked_pieces(e, x, out, rows, first, all - first < step ? all - first : step);
}

/* ---- diagonals in registers ---- */

/* Vectors of the blocks at hand: `count` of `width` lanes, in each of which lanes are permuted among `cycle`
 * neighbours. */
typedef struct diagonal_shape {
  int width, count, cycle;
} diagonal_shape;

static diagonal_shape diagonals_of(const applier *e, int blocks) {
  int all = blocks * e->size, width = all < e->target->lanes ? all : e->target->lanes;
  return (diagonal_shape){.width = width, .count = all / width, .cycle = width < e->size ? width : e->size};
}

static ir_value exchange(applier *e, ir_value x, int distance) {
  int64_t mask[64];
  for (int i = 0; i < ir_lanes(x); i++) mask[i] = i ^ distance;
  return distance ? ir_shuffle(e->b, x, x, ir_lanes(x), mask) : x;
}

/* Loads vector v of the channels of a row. */
static ir_value load_row(applier *e, const diagonal_shape *d, ir_value row, int blocks, int v) {
  ir *b = e->b;
  if (e->contiguous)
    return emit_load_channels(b, e->target->native, e->dtype, d->width,
                              ir_offset_const(b, row, (int64_t)v * d->width * e->channel_bytes));
  for (int g = 0; g < blocks && v == 0; g++) emit_fetch(e, g, row, 0);
  return ir_load(b, ir_vector(b, d->width, b->f32), ir_offset_const(b, e->x_scratch, (int64_t)v * d->width * 4), 4);
}

static void store_row(applier *e, const diagonal_shape *d, ir_value sum, ir_value row, int v) {
  ir *b = e->b;
  if (e->contiguous) {
    emit_store_channels(b, e->target->native, e->dtype, sum,
                        ir_offset_const(b, row, (int64_t)v * d->width * e->channel_bytes), e->of->streaming);
    return;
  }
  for (int at = 0; at < d->width; at += d->cycle) {
    int64_t mask[64];
    for (int i = 0; i < d->cycle; i++) mask[i] = at + i;
    int lane = v * d->width + at;
    emit_put(e, lane / e->size, ir_shuffle(b, sum, sum, d->cycle, mask), row, lane % e->size / d->cycle);
  }
}

/* A row's sums: diagonal k times the channels with i and i ^ k exchanged. */
static void diagonal_sums(applier *e, const diagonal_shape *d, const ir_value *x, ir_value *sums) {
  int few = d->cycle < 4 ? d->cycle : 4; /* lanes of 16 bytes are exchanged for less than others */
  ir_value turned[8][8] = {{{NULL}}}; /* [vector][exchange] */
  for (int v = 0; v < d->count; v++)
    for (int k = 0; k < d->cycle; k++)
      turned[v][k] = k % few ? exchange(e, turned[v][k - k % few], k % few) : exchange(e, x[v], k);
  for (int v = 0; v < d->count; v++)
    for (int k = 0; k < e->size; k++) {
      ir_value diagonal = e->held[k * d->count + v], moved = turned[v ^ k / d->cycle][k % d->cycle];
      sums[v] = k ? emit_multiply_add(e->b, e->target, diagonal, moved, sums[v]) : mul(e->b, diagonal, moved);
    }
}

static void emit_diagonal_rows(applier *e, const ir_value *in, const ir_value *out, int rows, int blocks) {
  diagonal_shape d = diagonals_of(e, blocks);
  ir_value sums[APPLY_LISTED][8];
  int step = e->target->registers / 4 / d.count > 1 ? e->target->registers / 4 / d.count
                                                    : 1; /* rows whose sums are in registers at once */
  for (int first = 0; first < rows; first += step) {
    int end = first + step < rows ? first + step : rows;
    for (int i = first; i < end; i++) {
      ir_value x[8] = {{NULL}};
      for (int v = 0; v < d.count; v++) x[v] = load_row(e, &d, in[i], blocks, v);
      diagonal_sums(e, &d, x, sums[i]);
    }
    for (int i = first; i < end; i++)
      for (int v = 0; v < d.count; v++) store_row(e, &d, sums[i][v], out[i], v);
  }
}

/* ---- of the way of multiplying ---- */

void emit_hold(applier *e, int blocks) {
  ir *b = e->b;
  if (!e->shape.resident) return;
  if (e->shape.layout == MATRIX_DIAGONALS) {
    diagonal_shape d = diagonals_of(e, blocks);
    for (int i = 0; i < e->size * d.count; i++)
      e->held[i] =
          ir_load(b, ir_vector(b, d.width, b->f32), ir_offset_const(b, e->matrix, (int64_t)i * d.width * 4), 4);
    return;
  }
  for (int g = 0; g < blocks; g++)
    for (int i = 0; i < e->size * e->shape.n_pieces; i++)
      e->held[g * e->size * e->shape.n_pieces + i] =
          load_column(e, of_matrix(e, g), i / e->shape.n_pieces, i % e->shape.n_pieces);
}

void emit_rows_of_blocks(applier *e, const ir_value *in, const ir_value *out, int rows, int blocks) {
  if (e->shape.layout == MATRIX_DIAGONALS) emit_diagonal_rows(e, in, out, rows, blocks);
  else if (e->shape.resident) emit_resident_rows(e, in, out, rows, blocks);
  else emit_walk(e, in, out, rows);
}
