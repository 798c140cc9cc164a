/* gpu/mma_sync: the machine of 16-bit rows: products by mma.sync of fragments that ldmatrix reads; see gpu/mma.h. */
#include "gpu/index.h"
#include "gpu/mma.h"

enum { PIECE = 16, ELEMENT = 2, MOST_ROW_TILES = MMA_MOST_HALVES / 2 };

static int row_tiles(const mma *m) { return m->shape.halves / 2; }

/* What a lane adds to the address of a tile for ldmatrix: of four 8 x 8 matrices, two below one another and two side by
 * side. `down_first`: the second one is below the first. */
static ir_value lane_offset(mma *m, int pitch, bool down_first) {
  ir *b = m->b;
  ir_value row = rest(b, m->lane, 8), second = rest(b, quotient(b, m->lane, 8), 2), third = quotient(b, m->lane, 16);
  ir_value down = down_first ? second : third, across = down_first ? third : second;
  row = add(b, row, scaled(b, down, 8));
  return add(b, scaled(b, row, pitch), scaled(b, across, PIECE));
}

/* The address that tiles of `value` are read at, from its row `first` (i32; null: 0) on. */
static ir_value read_at(mma *m, int value, bool down_first, ir_value first) {
  ir *b = m->b;
  int pitch = mma_pitch_of(m, value);
  ir_value at = ir_offset(b, mma_tile_at(m, value, m->stage), wide(b, lane_offset(m, pitch, down_first)));
  return first.ptr ? ir_offset(b, at, wide(b, scaled(b, first, pitch))) : at;
}

static ir_value first_row(mma *m) { return scaled(m->b, m->warp, (int64_t)m->shape.halves * MMA_HALF); }

/* The left factor, 16 x 16 at inner step k of each of the warp's row tiles: from shared memory. */
static void load_left(mma *m, int value, ir_value at, int k, ir_value *a) {
  int pitch = mma_pitch_of(m, value);
  for (int i = 0; i < row_tiles(m); i++)
    ir_load_matrices(m->b, false, ir_offset_const(m->b, at, (int64_t)i * MMA_ROWS * pitch + k * MMA_INNER * ELEMENT),
                     a + i * MMA_FRAGMENT);
}

/* A left factor from a sum's registers, rounded: columns 16 k up to 16 k + 15 are two column tiles. */
static void pack_left(mma *m, int value, int k, ir_value *a) {
  const ir_value *sum = m->sum[value];
  int columns = mma_column_tiles(m, value);
  for (int i = 0; i < row_tiles(m); i++)
    for (int part = 0; part < MMA_FRAGMENT; part++) {
      const ir_value *two = sum + (i * columns + 2 * k + part / 2) * MMA_FRAGMENT + part % 2 * 2;
      a[i * MMA_FRAGMENT + part] = ir_pack(m->b, m->is_bf16, two[0], two[1]);
    }
}

void mma_hold(mma *m, const tile_op *op) {
  int value = op->arg[0], steps = mma_width(m, value) / MMA_INNER;
  m->held[value] = arena_array(m->memory, ir_value, steps * row_tiles(m) * MMA_FRAGMENT);
  ir_value at = read_at(m, value, true, first_row(m));
  for (int k = 0; k < steps; k++) load_left(m, value, at, k, m->held[value] + k * row_tiles(m) * MMA_FRAGMENT);
}

static bool is_held(const mma *m, int value) { return m->held[value] != NULL; }

/* ---- the walk over a product ---- */

typedef struct factors {
  int left, right; /* values */
  bool transposed;
  ir_value left_at, right_at; /* shared memory; null: the left one is in registers */
  int steps, columns; /* inner steps, column tiles */
  bool is_bf16;
} factors;

static factors begin_factors(mma *m, const tile_op *op) {
  factors f = {.left = op->arg[0], .right = op->arg[1], .transposed = op->transposed};
  f.steps = mma_width(m, f.left) / MMA_INNER;
  f.columns = mma_column_tiles(m, op->value);
  f.is_bf16 = m->is_bf16 || m->p->value[f.left].columns == TILE_PARTS;
  f.right_at = read_at(m, f.right, !f.transposed, (ir_value){NULL});
  if (!m->p->value[f.left].is_sum && !is_held(m, f.left)) f.left_at = read_at(m, f.left, true, first_row(m));
  return f;
}

static const ir_value *left_of(mma *m, const factors *f, int k, ir_value *a) {
  if (is_held(m, f->left)) return m->held[f->left] + k * row_tiles(m) * MMA_FRAGMENT;
  if (m->p->value[f->left].is_sum) pack_left(m, f->left, k, a);
  else load_left(m, f->left, f->left_at, k, a);
  return a;
}

/* The right factor at inner step k of two column tiles: two registers of each. */
static void load_right(mma *m, const factors *f, int k, int column, ir_value *x) {
  int64_t pitch = mma_pitch_of(m, f->right), along = k * MMA_INNER, across = column * MMA_COLUMNS;
  int64_t at = f->transposed ? across * pitch + along * ELEMENT : along * pitch + across * ELEMENT;
  ir_load_matrices(m->b, !f->transposed, ir_offset_const(m->b, f->right_at, at), x);
}

static void multiply(mma *m, const factors *f, const ir_value *a, const ir_value *x, int column, ir_value *sum) {
  for (int i = 0; i < row_tiles(m); i++)
    for (int j = 0; j < 2; j++)
      ir_mma(m->b, f->is_bf16, a + i * MMA_FRAGMENT, x + 2 * j, sum + (i * f->columns + column + j) * MMA_FRAGMENT);
}

static void walk(mma *m, const factors *f, ir_value *sum) {
  ir_value a[MOST_ROW_TILES * MMA_FRAGMENT], x[4];
  for (int k = 0; k < f->steps; k++) {
    const ir_value *left = left_of(m, f, k, a);
    for (int column = 0; column < f->columns; column += 2) {
      load_right(m, f, k, column, x);
      multiply(m, f, left, x, column, sum);
    }
  }
}

static void product(mma *m, const tile_op *op) {
  factors f = begin_factors(m, op);
  walk(m, &f, m->sum[op->value]);
}

const mma_machine mma_sync = {.name = "mma",
                              .element = ELEMENT,
                              .neighbours = 2,
                              .negative = (int)0x80008000,
                              .holds = true,
                              .rounds = true,
                              .size = {{4, 64, 2}, {4, 32, 2}, {2, 64, 2}, {2, 32, 2}, {2, 16, 2}, {4, 16, 2}},
                              .few = 2,
                              .product = product};
