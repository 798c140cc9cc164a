/* gpu/mma: fragments, and rows in shared memory; see gpu/mma.h. */
#include "gpu/mma.h"
#include "gpu/index.h"
#include "mlir/number.h"

#include "kernel/launch.h"

enum { PIECE = 16, WORD = 4 };

/* ---- fragments ---- */

int mma_width(const mma *m, int value) { return tile_size(&m->shape.tile, m->p->value[value].columns); }

int mma_column_tiles(const mma *m, int value) { return mma_width(m, value) / MMA_COLUMNS; }

int mma_fragment(const mma *m) { return m->shape.halves == 1 ? MMA_FRAGMENT / 2 : MMA_FRAGMENT; }

int mma_registers(const mma *m, int value) { return m->shape.halves * mma_column_tiles(m, value) * MMA_FRAGMENT / 2; }

int mma_side_tokens(const mma *m, bool own) { return own ? m->shape.tile.own : m->shape.tile.streamed; }

int mma_pitch_of(const mma *m, int value) { return mma_width(m, value) * m->machine->element + PIECE; }

int mma_half(const mma *m, int value, int i) {
  int fragment = mma_fragment(m);
  return i / (mma_column_tiles(m, value) * fragment) * 2 + i % fragment / 2;
}

ir_value mma_row_of(const mma *m, int half) {
  ir *b = m->b;
  ir_value first = scaled(b, m->warp, (int64_t)m->shape.halves * MMA_HALF);
  return add(b, add(b, first, m->group), i32(b, half * MMA_HALF));
}

int mma_neighbours(const mma *m, int value) {
  return m->p->value[value].columns == TILE_STREAMED ? 2 : m->machine->neighbours;
}

int mma_register(const mma *m, int value, int half, int run, int i) {
  int of_lane = run * mma_neighbours(m, value) + i, tile = half / 2 * mma_column_tiles(m, value) + of_lane / 2;
  return tile * mma_fragment(m) + half % 2 * 2 + of_lane % 2;
}

ir_value mma_column(const mma *m, int value, int i) {
  ir *b = m->b;
  int of_lane = i / mma_fragment(m) % mma_column_tiles(m, value) * 2 + i % 2, side_by_side = mma_neighbours(m, value),
      run = of_lane / side_by_side;
  return add(b, scaled(b, m->quad, side_by_side), i32(b, run * MMA_LANES * side_by_side + of_lane % side_by_side));
}

ir_value mma_row_maximum(mma *m, ir_value x) {
  for (int lanes = 1; lanes < MMA_LANES; lanes *= 2) {
    ir_value other = ir_warp_exchange(m->b, x, lanes);
    x = ir_op2(m->b, "arith.maxnumf", x, other);
  }
  return x;
}

ir_value mma_row_sum(mma *m, ir_value x) {
  for (int lanes = 1; lanes < MMA_LANES; lanes *= 2) {
    ir_value other = ir_warp_exchange(m->b, x, lanes);
    x = add(m->b, x, other);
  }
  return x;
}

/* ---- few queries: a warp has 8, whose rows stand twice in its tile where a product has 16 rows ---- */

bool mma_repeats(const mma *m, int half) { return m->p->owns_group && half % 2 == 1; }

mma_query mma_query_of(const mma *m, ir_value row) {
  ir *b = m->b;
  ir_value tokens = m->t->tokens, group = attend_short_parameter(m->t, PEGEN_PTX_ATTENTION_GROUP);
  int of_warp = m->shape.halves * MMA_HALF;
  ir_value count = mul(b, group, tokens), before = scaled(b, quotient(b, row, of_warp), MMA_HALF);
  ir_value index = add(b, before, rest(b, row, MMA_HALF)), exists = below(b, index, count);
  if (mma_repeats(m, m->shape.halves - 1)) exists = both(b, below(b, rest(b, row, of_warp), i32(b, MMA_HALF)), exists);
  mma_query query = {.exists = exists};
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
  int64_t bytes = (int64_t)tile_size(&m->shape.tile, v->rows) * mma_pitch_of(m, value);
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

int mma_padded(const attend *t, int width) {
  int lanes = PIECE / t->entry->tile->element;
  return (width + lanes - 1) / lanes * lanes;
}

static int width_of(const mma *m, tile_space columns) {
  if (columns == TILE_PARTS) return m->shape.tile.parts;
  return mma_padded(m->t, columns == TILE_VALUES ? m->t->p->value_dim : m->t->p->head_dim);
}

static attend_rows rows_of_head(mma *m, tile_tensor tensor, ir_value head) {
  int before = tensors[tensor].of_gradients ? (int)(m->gradient - m->t->parameter) : 0;
  return attend_rows_of(m->t, before + tensors[tensor].parameter, head, width_of(m, tile_width_of(tensor)));
}

attend_rows mma_rows_of(mma *m, tile_tensor tensor) {
  bool is_each = m->turns_by_head && (tensor != TILE_V || m->turns_values); /* rows of each head of q */
  return rows_of_head(m, tensor, is_each || tile_is_of_queries(tensor) ? m->q_head : m->k_head);
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

int mma_numbers(const mma *m, int value) { return width_of(m, m->p->value[value].columns); }

/* ---- numbers of rows where these lie ---- */

bool mma_lies(const mma *m, int value) {
  const tile_value *v = &m->p->value[value];
  return m->shape.lies && !v->is_sum && v->rows == TILE_OWN && v->columns == TILE_VALUES;
}

ir_value mma_lying_row(mma *m, ir_value row) {
  ir *b = m->b;
  attend_rows rows = mma_rows_of(m, m->p->owns_keys ? TILE_V : TILE_G_OUT);
  ir_value token = mma_own_place(m, row).token, count = m->p->owns_keys ? m->t->keys : m->t->tokens;
  return ir_pointer(b, add(b, rows.base, mul(b, wide(b, clamped(b, token, count)), rows.stride)));
}

static int element_of(const mma *m) { return m->t->entry->tile->element; }

/* Whether rows go by way of registers to shared memory. */
static bool is_widened(const mma *m) { return element_of(m) != m->machine->element; }

int mma_access_numbers(const mma *m) { return m->t->entry->tile->lanes; }

void mma_load_numbers(mma *m, ir_value at, ir_value *x) {
  ir *b = m->b;
  MlirType word = element_of(m) == WORD ? b->f32 : b->i32;
  ir_value raw = ir_load(b, ir_vector(b, PIECE / WORD, word), at, PIECE);
  row_place place = {.raw = &raw};
  emit_row_unpack(&m->t->numbers, &place, x);
}

void mma_store_numbers(mma *m, ir_value at, int count, const ir_value *x) {
  ir *b = m->b;
  int element = element_of(m);
  if (element == WORD) ir_store(b, ir_elements(b, ir_vector(b, count, b->f32), count, x), at, count * WORD, false);
  else
    for (int i = 0; i < count; i += 2)
      ir_store(b, ir_pack(b, m->is_bf16, x[i], x[i + 1]), ir_offset_const(b, at, (int64_t)i * element), WORD, false);
}

/* The lane's columns of a run, from channel `first` on those that rows have. */
static void store_run(mma *m, ir_value at, int first, int width, int count, const ir_value *x) {
  ir *b = m->b;
  bool whole = first + MMA_LANES * count <= width;
  ir_value channel = add(b, scaled(b, m->quad, count), i32(b, first));
  ir_branch some = {{NULL}, {NULL}};
  if (!whole) some = ir_if(b, less(b, channel, i32(b, width)));
  mma_store_numbers(m, ir_offset_const(b, at, (int64_t)first * element_of(m)), count, x);
  if (!whole) ir_end_if(b, some);
}

void mma_store_rows(mma *m, const tile_op *op, const ir_value *factor) {
  ir *b = m->b;
  int value = op->arg[0], count = mma_neighbours(m, value);
  attend_rows to = mma_rows_of(m, op->tensor);
  for (int h = 0; h < m->shape.halves; h++) {
    if (mma_repeats(m, h)) continue;
    mma_place own = mma_own_place(m, mma_row_of(m, h));
    ir_branch given = ir_if(b, mma_has_own(m, own.row));
    ir_value at = ir_pointer(b, add(b, to.base, mul(b, wide(b, own.token), to.stride)));
    at = ir_offset(b, at, wide(b, scaled(b, m->quad, (int64_t)count * element_of(m))));
    for (int run = 0; run * MMA_LANES * count < to.width; run++) {
      ir_value x[MMA_LANES];
      for (int i = 0; i < count; i++) x[i] = mul(b, m->sum[value][mma_register(m, value, h, run, i)], factor[h]);
      store_run(m, at, run * MMA_LANES * count, to.width, count, x);
    }
    ir_end_if(b, given);
  }
}

/* ---- copies ---- */

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

/* A tile's rows on their way. */
typedef struct copying {
  const tile_op *op;
  bool own;
  int pieces, count, pitch; /* of a row; of all rows; bytes from row to row */
  attend_rows from;
  ir_value to, first, last; /* i32: the first row's token, and the last token */
} copying;

static copying begin_copy(mma *m, const tile_op *op) {
  ir *b = m->b;
  const tile_value *v = &m->p->value[op->value];
  copying c = {.op = op, .own = v->rows == TILE_OWN, .pitch = mma_pitch_of(m, op->value)};
  int rows = tile_size(&m->shape.tile, v->rows);
  ir_value stage = m->stage;
  c.pieces = width_of(m, v->columns) / mma_access_numbers(m);
  c.count = rows * c.pieces;
  c.first = c.own ? m->own_first : m->streamed_first;
  if (op->ahead) {
    c.first = add(b, c.first, i32(b, rows));
    stage = sub(b, i32(b, 1), stage);
  }
  c.from = mma_rows_of(m, op->tensor);
  c.to = c.own ? m->memory_of[op->value] : mma_tile_at(m, op->value, stage);
  c.last = sub(b, tile_is_of_queries(op->tensor) ? m->t->tokens : m->t->keys, i32(b, 1));
  c.last = larger(b, c.last, i32(b, 0));
  return c;
}

/* By way of registers where rows are widened. */
static void copy_piece(mma *m, copying *c, mma_piece piece) {
  ir *b = m->b;
  ir_value token;
  attend_rows from = c->from;
  if (c->own && m->few) {
    mma_query query = mma_query_of(m, piece.row);
    from = rows_of_head(m, c->op->tensor, query.head);
    token = query.token;
  } else token = smaller(b, add(b, c->first, piece.row), c->last);
  ir_value at = add(b, from.base, mul(b, wide(b, token), from.stride));
  ir_value source = ir_pointer(b, add(b, at, wide(b, scaled(b, piece.of_row, m->t->entry->access))));
  int bytes = mma_access_numbers(m) * m->machine->element;
  ir_value offset = add(b, scaled(b, piece.row, c->pitch), scaled(b, piece.of_row, bytes));
  ir_value to = ir_offset(b, c->to, wide(b, offset)), x[MMA_MOST_NUMBERS];
  if (!is_widened(m)) {
    ir_copy_async(b, to, source);
    return;
  }
  mma_load_numbers(m, source, x);
  for (int i = 0; i < mma_access_numbers(m); i += PIECE / WORD) {
    ir_value numbers = ir_elements(b, ir_vector(b, PIECE / WORD, b->f32), PIECE / WORD, x + i);
    ir_store(b, numbers, ir_offset_const(b, to, (int64_t)i * WORD), PIECE, false);
  }
}

/* Rows behind the last one are the last one again: what is made of them is masked, or not stored. */
void mma_copy(mma *m, const tile_op *op) {
  ir *b = m->b;
  copying c = begin_copy(m, op);
  if (is_widened(m)) { /* written out, these would hold their registers together */
    ir_loop loop = ir_for(b, i64(b, 0), i64(b, (c.count + PEGEN_PTX_BLOCK - 1) / PEGEN_PTX_BLOCK));
    ir_value index = add(b, m->t->thread, scaled(b, narrow(b, loop.index), PEGEN_PTX_BLOCK));
    ir_branch some = ir_if(b, less(b, index, i32(b, c.count)));
    copy_piece(m, &c, (mma_piece){quotient(b, index, c.pieces), rest(b, index, c.pieces)});
    ir_end_if(b, some);
    ir_end_for(b, loop);
    return;
  }
  for (int i = 0; i < c.count; i += PEGEN_PTX_BLOCK) {
    ir_branch some = {{NULL}, {NULL}};
    bool partial = i + PEGEN_PTX_BLOCK > c.count;
    if (partial) some = ir_if(b, less(b, m->t->thread, i32(b, c.count - i)));
    copy_piece(m, &c, piece_of(m, c.pieces, i));
    if (partial) ir_end_if(b, some);
  }
}

/* Channels that make rows a multiple of 16, which copies leave alone, are 0 on both sides of a product. */
void mma_clear_padding(mma *m) {
  ir *b = m->b;
  for (int value = 0; value < m->p->n_values; value++) {
    const tile_value *v = &m->p->value[value];
    if (v->is_sum || mma_lies(m, value) || mma_numbers(m, value) == mma_width(m, value)) continue;
    int rows = tile_size(&m->shape.tile, v->rows) * v->stages, begin = mma_numbers(m, value) * m->machine->element,
        end = mma_width(m, value) * m->machine->element;
    ir_value zero = ir_int(b, ir_vector(b, PIECE / WORD, b->i32), 0);
    ir_loop loop = ir_for(b, i64(b, 0), i64(b, (rows + PEGEN_PTX_BLOCK - 1) / PEGEN_PTX_BLOCK));
    ir_value row = add(b, m->t->thread, scaled(b, narrow(b, loop.index), PEGEN_PTX_BLOCK));
    ir_branch some = ir_if(b, less(b, row, i32(b, rows)));
    ir_value at = ir_offset(b, m->memory_of[value], wide(b, scaled(b, row, mma_pitch_of(m, value))));
    for (int i = begin; i < end; i += PIECE) ir_store(b, zero, ir_offset_const(b, at, i), PIECE, false);
    ir_end_if(b, some);
    ir_end_for(b, loop);
  }
}
