/* gpu/mma: rows in shared memory, fragments and their products; see gpu/mma.h. */
#include "gpu/mma.h"
#include "gpu/index.h"

#include "base/diag.h"

#include "kernel/launch.h"

#include <string.h>

enum { PIECE = 16, ELEMENT = 2, PIECE_NUMBERS = PIECE / ELEMENT };

/* ---- fragments ---- */

int mma_width(const mma *m, int value) { return tile_size(&m->shape.tile, m->p->value[value].columns); }

int mma_column_tiles(const mma *m, int value) { return mma_width(m, value) / MMA_COLUMNS; }

int mma_registers(const mma *m, int value) { return m->shape.row_tiles * mma_column_tiles(m, value) * MMA_FRAGMENT; }

int mma_side_tokens(const mma *m, bool own) { return own ? m->shape.tile.own : m->shape.tile.streamed; }

int mma_pitch_of(const mma *m, int value) { return mma_pitch(&m->shape.tile, m->p->value[value].columns); }

int mma_pitch(const tile_shape *shape, tile_space width) { return tile_size(shape, width) * ELEMENT + PIECE; }

int mma_half(const mma *m, int value, int i) {
  return i / (mma_column_tiles(m, value) * MMA_FRAGMENT) * 2 + i % MMA_FRAGMENT / 2;
}

ir_value mma_row_of(const mma *m, int half) {
  ir *b = m->b;
  ir_value first = scaled(b, m->warp, (int64_t)m->shape.row_tiles * MMA_ROWS);
  return add(b, add(b, first, m->group), i32(b, half / 2 * MMA_ROWS + half % 2 * 8));
}

ir_value mma_column(const mma *m, int value, int i) {
  ir *b = m->b;
  int tile = i / MMA_FRAGMENT % mma_column_tiles(m, value);
  return add(b, scaled(b, m->quad, 2), i32(b, tile * MMA_COLUMNS + i % 2));
}

ir_value mma_row_maximum(mma *m, ir_value x) {
  for (int lanes = 1; lanes < 4; lanes *= 2) {
    ir_value other = ir_warp_exchange(m->b, x, lanes);
    x = ir_op2(m->b, "arith.maxnumf", x, other);
  }
  return x;
}

ir_value mma_row_sum(mma *m, ir_value x) {
  for (int lanes = 1; lanes < 4; lanes *= 2) {
    ir_value other = ir_warp_exchange(m->b, x, lanes);
    x = add(m->b, x, other);
  }
  return x;
}

/* ---- few queries: a warp has 8, whose rows stand twice in its tile ---- */

enum { FEW_QUERIES = MMA_ROWS / 2 };

bool mma_repeats(const mma *m, int half) { return m->p->owns_group && half % 2 == 1; }

mma_query mma_query_of(const mma *m, ir_value row) {
  ir *b = m->b;
  ir_value tokens = m->t->tokens, group = attend_short_parameter(m->t, PEGEN_PTX_ATTENTION_GROUP);
  ir_value count = mul(b, group, tokens), before = scaled(b, quotient(b, row, MMA_ROWS), FEW_QUERIES);
  ir_value index = add(b, before, rest(b, row, FEW_QUERIES));
  mma_query query = {.exists = both(b, below(b, rest(b, row, MMA_ROWS), i32(b, FEW_QUERIES)), below(b, index, count))};
  index = clamped(b, index, count);
  query.head = add(b, mul(b, m->k_head, group), ir_op2(b, "arith.divui", index, tokens));
  query.token = ir_op2(b, "arith.remui", index, tokens);
  return query;
}

/* ---- rows to shared memory ---- */

/* 16 bytes of a tile's rows: i32. */
typedef struct mma_piece {
  ir_value row, of_row;
} mma_piece;

ir_value mma_tile_at(const mma *m, int value, ir_value stage) {
  const tile_value *v = &m->p->value[value];
  if (v->stages < 2) return m->memory_of[value];
  int64_t bytes = (int64_t)tile_size(&m->shape.tile, v->rows) * mma_pitch(&m->shape.tile, v->columns);
  return ir_offset(m->b, m->memory_of[value], wide(m->b, scaled(m->b, stage, bytes)));
}

static const struct {
  int parameter;
  bool of_gradients; /* it stands behind attention's own */
} tensors[TILE_TENSOR_COUNT] = {
    [TILE_Q] = {PEGEN_PTX_ATTENTION_Q, false},        [TILE_K] = {PEGEN_PTX_ATTENTION_K, false},
    [TILE_V] = {PEGEN_PTX_ATTENTION_V, false},        [TILE_OUT] = {PEGEN_PTX_ATTENTION_OUT, false},
    [TILE_G_OUT] = {PEGEN_PTX_ATTENTION_G_OUT, true}, [TILE_G_Q] = {PEGEN_PTX_ATTENTION_G_Q, true},
    [TILE_G_K] = {PEGEN_PTX_ATTENTION_G_K, true},     [TILE_G_V] = {PEGEN_PTX_ATTENTION_G_V, true},
};

static int width_of(const mma *m, tile_space columns) {
  if (columns == TILE_PARTS) return m->shape.tile.parts;
  return columns == TILE_VALUES ? m->t->p->value_dim : m->t->p->head_dim;
}

static attend_rows rows_of_head(mma *m, tile_tensor tensor, ir_value head) {
  int before = tensors[tensor].of_gradients ? (int)(m->gradient - m->t->parameter) : 0;
  return attend_rows_of(m->t, before + tensors[tensor].parameter, head, width_of(m, tile_width_of(tensor)));
}

attend_rows mma_rows_of(mma *m, tile_tensor tensor) {
  return rows_of_head(m, tensor, tile_is_of_queries(tensor) ? m->q_head : m->k_head);
}

mma_place mma_own_place(const mma *m, ir_value row) {
  if (m->few) return (mma_place){row, mma_query_of(m, row).token};
  return (mma_place){row, add(m->b, m->own_first, row)};
}

ir_value mma_has_own(const mma *m, ir_value row) {
  if (m->few) return mma_query_of(m, row).exists;
  return less(m->b, add(m->b, m->own_first, row), m->p->owns_keys ? m->t->keys : m->t->tokens);
}

ir_value mma_address_of(mma *m, tile_tensor tensor) {
  const ir_value *of = tensors[tensor].of_gradients ? m->gradient : m->t->parameter;
  return of[tensors[tensor].parameter + PEGEN_PTX_ROWS_ADDRESS];
}

void mma_store_rows(mma *m, const tile_op *op, const ir_value *factor) {
  ir *b = m->b;
  int value = op->arg[0], columns = mma_column_tiles(m, value);
  attend_rows to = mma_rows_of(m, op->tensor);
  for (int h = 0; h < 2 * m->shape.row_tiles; h++) {
    if (mma_repeats(m, h)) continue;
    mma_place own = mma_own_place(m, mma_row_of(m, h));
    ir_branch given = ir_if(b, mma_has_own(m, own.row));
    ir_value at = ir_pointer(b, add(b, to.base, mul(b, wide(b, own.token), to.stride)));
    at = ir_offset(b, at, wide(b, scaled(b, m->quad, 2 * ELEMENT)));
    for (int n = 0; n * MMA_COLUMNS < to.width; n++) {
      const ir_value *two = m->sum[value] + (h / 2 * columns + n) * MMA_FRAGMENT + h % 2 * 2;
      ir_value low = mul(b, two[0], factor[h]), high = mul(b, two[1], factor[h]);
      ir_value pair = ir_pack(b, m->is_bf16, low, high);
      ir_store(b, pair, ir_offset_const(b, at, (int64_t)n * MMA_COLUMNS * ELEMENT), 2 * ELEMENT, false);
    }
    ir_end_if(b, given);
  }
}

/* The thread's piece number i / PEGEN_PTX_BLOCK of a tile's rows. Where the block's threads copy whole rows at once, it
 * stands below the first one. */
static mma_piece piece_of(const mma *m, int pieces, int i) {
  ir *b = m->b;
  if (PEGEN_PTX_BLOCK % pieces == 0) {
    ir_value first = quotient(b, m->t->thread, pieces);
    return (mma_piece){add(b, first, i32(b, i / pieces)), rest(b, m->t->thread, pieces)};
  }
  ir_value index = add(b, m->t->thread, i32(b, i));
  return (mma_piece){quotient(b, index, pieces), rest(b, index, pieces)};
}

/* Rows behind the last one are the last one again: what is made of them is masked, or not stored. */
void mma_copy(mma *m, const tile_op *op) {
  ir *b = m->b;
  const tile_value *v = &m->p->value[op->value];
  bool own = v->rows == TILE_OWN;
  int width = width_of(m, v->columns), pieces = width / PIECE_NUMBERS, rows = tile_size(&m->shape.tile, v->rows),
      all = rows * pieces, pitch = mma_pitch(&m->shape.tile, v->columns);
  ir_value first = own ? m->own_first : m->streamed_first, stage = m->stage;
  if (op->ahead) {
    first = add(b, first, i32(b, rows));
    stage = sub(b, i32(b, 1), stage);
  }
  attend_rows from = mma_rows_of(m, op->tensor);
  ir_value to = own ? m->memory_of[op->value] : mma_tile_at(m, op->value, stage);
  ir_value last = sub(b, tile_is_of_queries(op->tensor) ? m->t->tokens : m->t->keys, i32(b, 1));
  last = larger(b, last, i32(b, 0));
  for (int i = 0; i < all; i += PEGEN_PTX_BLOCK) {
    ir_branch some = {{NULL}, {NULL}};
    bool partial = i + PEGEN_PTX_BLOCK > all;
    if (partial) some = ir_if(b, less(b, m->t->thread, i32(b, all - i)));
    mma_piece piece = piece_of(m, pieces, i);
    ir_value token;
    if (own && m->few) {
      mma_query query = mma_query_of(m, piece.row);
      from = rows_of_head(m, op->tensor, query.head);
      token = query.token;
    } else token = smaller(b, add(b, first, piece.row), last);
    ir_value at = add(b, from.base, mul(b, wide(b, token), from.stride));
    ir_value source = ir_pointer(b, add(b, at, wide(b, scaled(b, piece.of_row, PIECE))));
    ir_value offset = add(b, scaled(b, piece.row, pitch), scaled(b, piece.of_row, PIECE));
    ir_copy_async(b, ir_offset(b, to, wide(b, offset)), source);
    if (partial) ir_end_if(b, some);
  }
}

/* Channels that make rows a multiple of 16, which copies leave alone, are 0 on both sides of a product. */
void mma_clear_padding(mma *m) {
  ir *b = m->b;
  for (int value = 0; value < m->p->n_values; value++) {
    const tile_value *v = &m->p->value[value];
    int width = v->is_sum ? 0 : width_of(m, v->columns), pitch = mma_pitch(&m->shape.tile, v->columns);
    if (v->is_sum || width == tile_size(&m->shape.tile, v->columns)) continue;
    int rows = tile_size(&m->shape.tile, v->rows) * v->stages;
    MlirType four = ir_vector(b, 4, b->i32);
    ir_value zero = ir_int(b, four, 0);
    ir_loop loop = ir_for(b, i64(b, 0), i64(b, (rows + PEGEN_PTX_BLOCK - 1) / PEGEN_PTX_BLOCK));
    ir_value row = add(b, m->t->thread, scaled(b, narrow(b, loop.index), PEGEN_PTX_BLOCK));
    ir_branch some = ir_if(b, less(b, row, i32(b, rows)));
    ir_value at = add(b, scaled(b, row, pitch), i32(b, (int64_t)width * ELEMENT));
    ir_store(b, zero, ir_offset(b, m->memory_of[value], wide(b, at)), PIECE, false);
    ir_end_if(b, some);
    ir_end_for(b, loop);
  }
}

/* ---- products ---- */

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
  int pitch = mma_pitch(&m->shape.tile, m->p->value[value].columns);
  ir_value at = ir_offset(b, mma_tile_at(m, value, m->stage), wide(b, lane_offset(m, pitch, down_first)));
  return first.ptr ? ir_offset(b, at, wide(b, scaled(b, first, pitch))) : at;
}

static ir_value first_row(mma *m) { return scaled(m->b, m->warp, (int64_t)m->shape.row_tiles * MMA_ROWS); }

/* The left factor, 16 x 16 at inner step k of each of the warp's row tiles: from shared memory. */
static void load_left(mma *m, int value, ir_value at, int k, ir_value *a) {
  int pitch = mma_pitch(&m->shape.tile, m->p->value[value].columns);
  for (int i = 0; i < m->shape.row_tiles; i++)
    ir_load_matrices(m->b, false, ir_offset_const(m->b, at, (int64_t)i * MMA_ROWS * pitch + k * MMA_INNER * ELEMENT),
                     a + i * MMA_FRAGMENT);
}

/* A left factor from a sum's registers, rounded: columns 16 k up to 16 k + 15 are two column tiles. */
static void pack_left(mma *m, int value, int k, ir_value *a) {
  const ir_value *sum = m->sum[value];
  int columns = mma_column_tiles(m, value);
  for (int i = 0; i < m->shape.row_tiles; i++)
    for (int part = 0; part < MMA_FRAGMENT; part++) {
      const ir_value *two = sum + (i * columns + 2 * k + part / 2) * MMA_FRAGMENT + part % 2 * 2;
      a[i * MMA_FRAGMENT + part] = ir_pack(m->b, m->is_bf16, two[0], two[1]);
    }
}

void mma_hold(mma *m, const tile_op *op) {
  int value = op->arg[0], steps = mma_width(m, value) / MMA_INNER;
  m->held[value] = arena_array(m->memory, ir_value, steps * m->shape.row_tiles * MMA_FRAGMENT);
  ir_value at = read_at(m, value, true, first_row(m));
  for (int k = 0; k < steps; k++) load_left(m, value, at, k, m->held[value] + k * m->shape.row_tiles * MMA_FRAGMENT);
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
  if (is_held(m, f->left)) return m->held[f->left] + k * m->shape.row_tiles * MMA_FRAGMENT;
  if (m->p->value[f->left].is_sum) pack_left(m, f->left, k, a);
  else load_left(m, f->left, f->left_at, k, a);
  return a;
}

/* The right factor at inner step k of two column tiles: two registers of each. */
static void load_right(mma *m, const factors *f, int k, int column, ir_value *x) {
  int64_t pitch = mma_pitch(&m->shape.tile, m->p->value[f->right].columns), along = k * MMA_INNER,
          across = column * MMA_COLUMNS;
  int64_t at = f->transposed ? across * pitch + along * ELEMENT : along * pitch + across * ELEMENT;
  ir_load_matrices(m->b, !f->transposed, ir_offset_const(m->b, f->right_at, at), x);
}

static void multiply(mma *m, const factors *f, const ir_value *a, const ir_value *x, int column, ir_value *sum) {
  for (int i = 0; i < m->shape.row_tiles; i++)
    for (int j = 0; j < 2; j++)
      ir_mma(m->b, f->is_bf16, a + i * MMA_FRAGMENT, x + 2 * j, sum + (i * f->columns + column + j) * MMA_FRAGMENT);
}

static void walk(mma *m, const factors *f, ir_value *sum) {
  ir_value a[MMA_MOST_ROW_TILES * MMA_FRAGMENT], x[4];
  for (int k = 0; k < f->steps; k++) {
    const ir_value *left = left_of(m, f, k, a);
    for (int column = 0; column < f->columns; column += 2) {
      load_right(m, f, k, column, x);
      multiply(m, f, left, x, column, sum);
    }
  }
}

void mma_product(mma *m, const tile_op *op) {
  int registers = mma_registers(m, op->value);
  factors f = begin_factors(m, op);
  if (!op->adds) {
    m->sum[op->value] = arena_array(m->memory, ir_value, registers);
    for (int i = 0; i < registers; i++) m->sum[op->value][i] = ir_float(m->b, m->b->f32, 0);
  }
  walk(m, &f, m->sum[op->value]);
}
