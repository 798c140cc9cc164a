/* gpu/simt: the machine of float32: products by multiply-adds, in the order of what is summed; see gpu/mma.h.
 *
 * A product over channels reads 16 bytes of each of the lane's rows and of each row that is one of its columns. A sum
 * over streamed rows has its weights in the four lanes of a row: each lane begins with its own ones and takes those of
 * the others one after the other, so that no two lanes of four read one row at once. A lane has four channels side by
 * side, which it reads together.
 */
#include "gpu/index.h"
#include "gpu/mma.h"

#include "base/diag.h"

#include <stdint.h>

enum { QUAD = 4, QUAD_BYTES = 16, BYTES = 4 };

static ir_value load_quad(mma *m, ir_value at) {
  return ir_load(m->b, ir_vector(m->b, QUAD, m->b->f32), at, QUAD_BYTES);
}

/* ---- over channels ---- */

/* Quad `quad` (i64) of a row that is read where it lies. */
static ir_value load_lying_quad(mma *m, ir_value row, ir_value quad) {
  ir *b = m->b;
  int bytes = m->t->entry->tile->element;
  ir_value x[QUAD], at = ir_offset(b, row, mul(b, quad, i64(b, (int64_t)QUAD * bytes)));
  if (bytes == BYTES) return load_quad(m, at);
  for (int i = 0; i < QUAD; i++) x[i] = attend_load_number(m->t, ir_offset_const(b, at, (int64_t)i * bytes), bytes);
  return ir_elements(b, ir_vector(b, QUAD, b->f32), QUAD, x);
}

/* Four channels, `quad` (i64) of them, of the lane's rows and columns. */
static void add_quad(mma *m, const tile_op *op, const ir_value *left, ir_value right, ir_value quad, ir_value *sum) {
  ir *b = m->b;
  int value = op->value, columns = 2 * mma_column_tiles(m, value), pitch = mma_pitch_of(m, op->arg[1]);
  ir_value x[MMA_MOST_HALVES], at = mul(b, quad, i64(b, QUAD_BYTES));
  for (int h = 0; h < m->shape.halves; h++)
    if (mma_lies(m, op->arg[0])) x[h] = load_lying_quad(m, left[h], quad);
    else x[h] = load_quad(m, ir_offset(b, left[h], at));
  right = ir_offset(b, right, at);
  for (int c = 0; c < columns; c++) {
    int64_t row = c / 2 * MMA_COLUMNS + c % 2;
    ir_value y = load_quad(m, ir_offset_const(b, right, row * pitch));
    for (int i = 0; i < QUAD; i++) {
      ir_value of_column = ir_extract(b, y, i);
      for (int h = 0; h < m->shape.halves; h++) {
        ir_value *to = &sum[mma_register(m, value, h, c / 2, c % 2)];
        *to = ir_fma(b, ir_extract(b, x[h], i), of_column, *to);
      }
    }
  }
}

static void add_channels(mma *m, const tile_op *op) {
  ir *b = m->b;
  int left = op->arg[0], right = op->arg[1], count = mma_registers(m, op->value), quads = mma_numbers(m, left) / QUAD,
      together = quads % 2 ? 1 : 2;
  ir_value *now = arena_array(m->memory, ir_value, count), *sum = m->sum[op->value];
  ir_value column = mma_column(m, op->value, 0), x[MMA_MOST_HALVES];
  ir_value first = wide(b, scaled(b, mma_row_of(m, 0), mma_pitch_of(m, left)));
  for (int h = 0; h < m->shape.halves; h++)
    if (mma_lies(m, left)) x[h] = mma_lying_row(m, mma_row_of(m, h));
    else if (h == 0) x[h] = ir_offset(b, mma_tile_at(m, left, m->stage), first);
    else x[h] = ir_offset_const(b, x[0], (int64_t)h * MMA_HALF * mma_pitch_of(m, left));
  ir_value y = ir_offset(b, mma_tile_at(m, right, m->stage), wide(b, scaled(b, column, mma_pitch_of(m, right))));
  ir_loop loop = ir_for_with(b, i64(b, 0), i64(b, quads / together), count, sum, now);
  for (int i = 0; i < together; i++) {
    ir_value quad = add(b, mul(b, loop.index, i64(b, together)), i64(b, i));
    add_quad(m, op, x, y, quad, now);
  }
  ir_end_for_with(b, loop, count, now, sum);
}

/* ---- over streamed rows ---- */

/* Adds a row of the right factor, which begins at the lane's first channel, times weights of the lane's rows. */
static void add_row(mma *m, int value, ir_value row, const ir_value *weight) {
  ir *b = m->b;
  ir_value *sum = m->sum[value];
  for (int run = 0; run * MMA_LANES * QUAD < mma_width(m, value); run++) {
    ir_value x = load_quad(m, ir_offset_const(b, row, (int64_t)run * MMA_LANES * QUAD_BYTES));
    for (int i = 0; i < QUAD; i++) {
      ir_value channel = ir_extract(b, x, i);
      for (int h = 0; h < m->shape.halves; h++) {
        ir_value *to = &sum[mma_register(m, value, h, run, i)];
        *to = ir_fma(b, weight[h], channel, *to);
      }
    }
  }
}

static void add_streamed(mma *m, const tile_op *op) {
  ir *b = m->b;
  int left = op->arg[0], pitch = mma_pitch_of(m, op->arg[1]);
  ir_value tile = mma_tile_at(m, op->arg[1], m->stage), begin[MMA_LANES], weight[MMA_MOST_HALVES];
  tile = ir_offset(b, tile, wide(b, scaled(b, m->quad, QUAD_BYTES)));
  for (int lane = 0; lane < MMA_LANES; lane++) {
    ir_value of_lane = ir_op2(b, "arith.xori", m->quad, i32(b, lane));
    begin[lane] = ir_offset(b, tile, wide(b, scaled(b, of_lane, 2LL * pitch)));
  }
  for (int c = 0; c < 2 * mma_column_tiles(m, left); c++)
    for (int lane = 0; lane < MMA_LANES; lane++) {
      for (int h = 0; h < m->shape.halves; h++) {
        weight[h] = m->sum[left][mma_register(m, left, h, c / 2, c % 2)];
        if (lane) weight[h] = ir_warp_exchange(b, weight[h], lane);
      }
      int64_t row = c / 2 * MMA_COLUMNS + c % 2;
      add_row(m, op->value, ir_offset_const(b, begin[lane], row * pitch), weight);
    }
}

static void product(mma *m, const tile_op *op) {
  bool of_rows = m->p->value[op->arg[0]].is_sum;
  if (of_rows == op->transposed) diag_bug("gpu_simt", "%s has a product of another kind", m->p->name);
  if (of_rows) add_streamed(m, op);
  else add_channels(m, op);
}

/* A kernel of 4300 instructions in its loop did not stay in an H200's instruction caches (docs/explain.md). The
 * last sizes are of long rows, and of chips with less shared memory. */
const mma_machine mma_simt = {
    .name = "simt",
    .element = BYTES,
    .neighbours = QUAD,
    .negative = INT32_MIN,
    .size = {{4, 32, 2}, {4, 16, 2}, {2, 32, 2}, {2, 16, 2}, {2, 8, 2}, {1, 8, 2}, {1, 8, 1}, {1, 8, 1, true}},
    .few = 1,
    .unrolled = 2560,
    .product = product};
