/* emit_apply: loops over rows, and the two ways of multiplying; see emit_apply.h. */
#include "emit_apply.h"

#include "emit_cpu.h"
#include "emit_product.h"
#include "emit_rows.h"

#include "../kernel/dense.h"

#include <stddef.h>

/* GROUP: rows of one walk over a matrix. BATCHES: those that are taken together, block by block. Batches often lie a
 * multiple of 4096 bytes apart, so that their lines share a set of the first cache: four of q and of k are as many as stay there. */
enum { GROUP = 4, BATCHES = 4, CACHE_LINE = 64 };

apply_shape apply_shape_of(const cpu_target *target, int size) {
  apply_shape s = {.rows = GROUP};
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
  s.vectors = (target->registers - (target->has_fma ? 1 : 2)) / (GROUP + 1);
  if (s.vectors > 4) s.vectors = 4;
  if (s.vectors > s.n_pieces) s.vectors = s.n_pieces;
  return s;
}

typedef struct applier {
  ir *b;
  const spec *s;
  const cpu_target *target;
  apply_shape shape;
  int dtype, size, channel_bytes;
  bool per_head, contiguous;
  ir_value work;                     /* const pegen_apply * */
  ir_value x_scratch, y_scratch;     /* float32 [GROUP][size] */
  ir_value channels;                 /* int32 [n_blocks][size], where a block's channels are not neighbours in order */
  ir_value matrix, block;            /* of the block at hand, or the first of those that are taken together */
  ir_value columns[2][32];           /* resident: [blocks together][size][pieces] */
  ir_value first, last;              /* batches at hand */
} applier;

static ir_value i64(ir *b, int64_t value) { return ir_int(b, b->i64, value); }
static ir_value add(ir *b, ir_value x, ir_value y) { return ir_op2(b, "arith.addi", x, y); }
static ir_value mul(ir *b, ir_value x, ir_value y) { return ir_op2(b, "arith.muli", x, y); }

static ir_value field(applier *e, ir_value base, size_t offset, MlirType type) {
  return ir_load(e->b, type, ir_offset_const(e->b, base, (int64_t)offset), 8);
}
#define WORK_I64(e, name) field((e), (e)->work, offsetof(pegen_apply, name), (e)->b->i64)
#define ROWS_I64(e, rows, name) field((e), (rows), offsetof(pegen_rows, name), (e)->b->i64)

/* ---- the channels of a block ---- */

/* Whether sums can be taken from memory where the row lies: float32 channels in order, all read before any is written. */
static bool reads_in_place(const applier *e) {
  return e->dtype == DTYPE_F32 && e->contiguous && (e->shape.resident || e->shape.vectors >= e->shape.n_pieces);
}

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

/* A block's channels of a row into scratch row i. */
static void fetch(applier *e, int which, ir_value row, int i) {
  ir *b = e->b;
  ir_value scratch = ir_offset_const(b, e->x_scratch, (int64_t)i * e->size * 4);
  if (!e->contiguous) {
    ir_loop loop = ir_for(b, i64(b, 0), i64(b, e->size));
    ir_value x = emit_load_channels(b, e->target, e->dtype, 1, channel_pointer(e, which, row, loop.index));
    ir_store(b, x, ir_offset(b, scratch, mul(b, loop.index, i64(b, 4))), 4, false);
    ir_end_for(b, loop);
    return;
  }
  for (int p = 0; p < e->shape.n_pieces; p++) {
    ir_value from = ir_offset_const(b, row, (int64_t)e->shape.start[p] * e->channel_bytes);
    ir_value x = emit_load_channels(b, e->target, e->dtype, e->shape.width[p], from);
    ir_store(b, x, ir_offset_const(b, scratch, (int64_t)e->shape.start[p] * 4), 4, false);
  }
}

static void put(applier *e, int which, ir_value sum, ir_value row, int piece) {
  ir *b = e->b;
  if (e->contiguous) {
    emit_store_channels(b, e->target, e->dtype, sum, ir_offset_const(b, row, (int64_t)e->shape.start[piece] * e->channel_bytes), false);
    return;
  }
  ir_store(b, sum, e->y_scratch, 4, false);
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, e->shape.width[piece]));
  ir_value y = ir_load(b, ir_vector(b, 1, b->f32), ir_offset(b, e->y_scratch, mul(b, loop.index, i64(b, 4))), 4);
  emit_store_channels(b, e->target, e->dtype, y, channel_pointer(e, which, row, add(b, loop.index, i64(b, e->shape.start[piece]))), false);
  ir_end_for(b, loop);
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
    ir_value column = e->columns[which][k * e->shape.n_pieces + piece], spread = ir_broadcast(b, ir_type(column), channel);
    sum = sum.ptr ? emit_multiply_add(b, e->target, spread, column, sum) : ir_op2(b, "arith.mulf", spread, column);
  }
  return sum;
}

static void emit_resident_row(applier *e, ir_value in, ir_value out, int blocks) {
  ir_value sums[2][4];
  for (int g = 0; g < blocks; g++) {
    ir_value x = of_block(e, in, g);
    if (!reads_in_place(e)) {
      fetch(e, g, x, g);
      x = ir_offset_const(e->b, e->x_scratch, (int64_t)g * e->size * 4);
    }
    for (int p = 0; p < e->shape.n_pieces; p++) sums[g][p] = column_sum(e, g, p, x);
  }
  for (int g = 0; g < blocks; g++)
    for (int p = 0; p < e->shape.n_pieces; p++) put(e, g, sums[g][p], of_block(e, out, g), p);
}

/* ---- columns from memory ---- */

static void emit_walk(applier *e, const ir_value *in, const ir_value *out, int rows) {
  ir *b = e->b;
  bool direct = reads_in_place(e);
  ir_value sums[GROUP * 4], next[GROUP * 4];
  for (int i = 0; i < rows && !direct; i++) fetch(e, 0, in[i], i);
  for (int first = 0; first < e->shape.n_pieces; first += e->shape.vectors) {
    int vectors = e->shape.n_pieces - first < e->shape.vectors ? e->shape.n_pieces - first : e->shape.vectors;
    for (int i = 0; i < rows * vectors; i++) sums[i] = ir_float(b, ir_vector(b, e->shape.width[first + i % vectors], b->f32), 0);
    ir_loop loop = ir_for_with(b, i64(b, 0), i64(b, e->size), rows * vectors, sums, next);
    ir_value column = ir_offset(b, e->matrix, mul(b, loop.index, i64(b, (int64_t)e->size * 4))), at = mul(b, loop.index, i64(b, 4));
    ir_value loaded[4];
    for (int p = 0; p < vectors; p++) loaded[p] = load_column(e, column, 0, first + p);
    for (int i = 0; i < rows; i++) {
      ir_value x = direct ? in[i] : ir_offset_const(b, e->x_scratch, (int64_t)i * e->size * 4);
      ir_value channel = ir_load(b, b->f32, ir_offset(b, x, at), 4);
      for (int p = 0; p < vectors; p++) {
        ir_value spread = ir_broadcast(b, ir_type(loaded[p]), channel);
        next[i * vectors + p] = emit_multiply_add(b, e->target, spread, loaded[p], next[i * vectors + p]);
      }
    }
    ir_end_for_with(b, loop, rows * vectors, next, sums);
    for (int i = 0; i < rows; i++)
      for (int p = 0; p < vectors; p++) put(e, 0, sums[i * vectors + p], out[i], first + p);
  }
}

/* `rows` rows at in + index * in_step and so on. */
static void emit_some_rows(applier *e, int blocks, int rows, ir_value index, const ir_value *from, const ir_value *steps) {
  ir *b = e->b;
  ir_value pointers[2][GROUP];
  for (int side = 0; side < 2; side++)
    for (int i = 0; i < rows; i++)
      pointers[side][i] = ir_pointer(b, add(b, from[side], mul(b, add(b, index, i64(b, i)), steps[side])));
  if (e->shape.resident) emit_resident_row(e, pointers[0][0], pointers[1][0], blocks);
  else emit_walk(e, pointers[0], pointers[1], rows);
}

/* `count` rows at in, in + in_step, ...: several at a time where they share a walk, and what is left one by one. */
static void emit_run(applier *e, int blocks, ir_value in, ir_value in_step, ir_value out, ir_value out_step, ir_value count) {
  ir *b = e->b;
  ir_value from[] = {in, out}, steps[] = {in_step, out_step}, done = i64(b, 0);
  if (!e->shape.resident) {
    ir_value groups = ir_op2(b, "arith.divui", count, i64(b, GROUP));
    ir_loop loop = ir_for(b, i64(b, 0), groups);
    emit_some_rows(e, blocks, GROUP, mul(b, loop.index, i64(b, GROUP)), from, steps);
    ir_end_for(b, loop);
    done = mul(b, groups, i64(b, GROUP));
  }
  ir_loop loop = ir_for(b, done, count);
  emit_some_rows(e, blocks, 1, loop.index, from, steps);
  ir_end_for(b, loop);
}

/* ---- the rows of a token ---- */

typedef struct row_addresses {
  ir_value in, out, in_batch, out_batch, in_head, out_head, heads;
} row_addresses;

static row_addresses addresses_of(applier *e, ir_value tensor, ir_value token) {
  ir *b = e->b;
  ir_value rows = ir_offset(b, ir_offset_const(b, e->work, offsetof(pegen_apply, rows)), mul(b, tensor, i64(b, sizeof(pegen_rows))));
  row_addresses r = {.in_batch = ROWS_I64(e, rows, in_batch), .out_batch = ROWS_I64(e, rows, out_batch),
                     .in_head = ROWS_I64(e, rows, in_head), .out_head = ROWS_I64(e, rows, out_head), .heads = ROWS_I64(e, rows, heads)};
  r.in = add(b, ROWS_I64(e, rows, in), mul(b, token, ROWS_I64(e, rows, in_token)));
  r.out = add(b, ROWS_I64(e, rows, out), mul(b, token, ROWS_I64(e, rows, out_token)));
  return r;
}

/* The rows of one tensor that the blocks at hand turn: of one head in all batches at hand, or of all heads in one batch. */
static void emit_rows_of_tensor(applier *e, int blocks, ir_value tensor, ir_value token, const ir_value *head) {
  ir *b = e->b;
  row_addresses r = addresses_of(e, tensor, token);
  ir_value shift = i64(b, 0);
  if (e->contiguous)
    shift = add(b, mul(b, e->block, i64(b, (int64_t)e->size * e->channel_bytes)), i64(b, (int64_t)e->s->channel[0] * e->channel_bytes));
  ir_value in = add(b, add(b, r.in, shift), mul(b, e->first, r.in_batch)), out = add(b, add(b, r.out, shift), mul(b, e->first, r.out_batch));
  if (!head) {
    emit_run(e, blocks, in, r.in_head, out, r.out_head, r.heads);
    return;
  }
  in = add(b, in, mul(b, *head, r.in_head));
  out = add(b, out, mul(b, *head, r.out_head));
  ir_branch given = ir_if(b, ir_compare_int(b, "ne", r.heads, i64(b, 0)));
  emit_run(e, blocks, in, r.in_batch, out, r.out_batch, ir_op2(b, "arith.subi", e->last, e->first));
  ir_end_if(b, given);
}

/* Loads the columns of `blocks` blocks from e->block on, where they stay in registers. */
static void load_columns(applier *e, int blocks) {
  for (int g = 0; g < blocks && e->shape.resident; g++)
    for (int k = 0; k < e->size; k++)
      for (int p = 0; p < e->shape.n_pieces; p++)
        e->columns[g][k * e->shape.n_pieces + p] = load_column(e, ir_offset_const(e->b, e->matrix, (int64_t)g * e->size * e->size * 4), k, p);
}

/* Blocks [begin, end), `together` at a time; tensor NULL: both. */
static void emit_block_range(applier *e, ir_value matrices, ir_value begin, ir_value end, int together, const ir_value *tensor, ir_value token, const ir_value *head) {
  ir *b = e->b;
  ir_value turns = ir_op2(b, "arith.divui", ir_op2(b, "arith.subi", end, begin), i64(b, together));
  ir_loop blocks = ir_for(b, i64(b, 0), turns);
  e->block = add(b, begin, mul(b, blocks.index, i64(b, together)));
  e->matrix = ir_offset(b, matrices, mul(b, e->block, i64(b, (int64_t)e->size * e->size * 4)));
  load_columns(e, together);
  if (tensor) {
    emit_rows_of_tensor(e, together, *tensor, token, head);
  } else {
    ir_loop tensors = ir_for(b, i64(b, 0), i64(b, 2));
    emit_rows_of_tensor(e, together, tensors.index, token, head);
    ir_end_for(b, tensors);
  }
  ir_end_for(b, blocks);
  if (together == 1) return;
  ir_value left = add(b, begin, mul(b, turns, i64(b, together)));
  emit_block_range(e, matrices, left, end, 1, tensor, token, head);
}

/* Some batches at a time, so that each head's rows follow the last one's in a few streams of memory. */
static void emit_heads(applier *e, ir_value token, ir_value matrices) {
  ir *b = e->b;
  ir_value batch_begin = WORK_I64(e, batch_begin), batch_end = WORK_I64(e, batch_end), count = ir_op2(b, "arith.subi", batch_end, batch_begin);
  ir_loop some = ir_for(b, i64(b, 0), ir_op2(b, "arith.divui", add(b, count, i64(b, BATCHES - 1)), i64(b, BATCHES)));
  e->first = add(b, batch_begin, mul(b, some.index, i64(b, BATCHES)));
  ir_value last = add(b, e->first, i64(b, BATCHES));
  e->last = ir_select(b, ir_compare_int(b, "slt", last, batch_end), last, batch_end);
  ir_loop heads = ir_for(b, WORK_I64(e, head_begin), WORK_I64(e, head_end));
  ir_value of_head = ir_offset(b, matrices, mul(b, heads.index, WORK_I64(e, matrix_head)));
  emit_block_range(e, of_head, WORK_I64(e, block_begin), WORK_I64(e, block_end), e->shape.together, NULL, token, &heads.index);
  ir_end_for(b, heads);
  ir_end_for(b, some);
}

/* All heads have one matrix: q's, then k's, batch by batch. */
static void emit_shared(applier *e, ir_value token, ir_value matrices) {
  ir *b = e->b;
  ir_loop tensors = ir_for(b, i64(b, 0), i64(b, 2));
  ir_loop batches = ir_for(b, WORK_I64(e, batch_begin), WORK_I64(e, batch_end));
  e->first = batches.index;
  emit_block_range(e, matrices, WORK_I64(e, block_begin), WORK_I64(e, block_end), e->shape.together, &tensors.index, token, NULL);
  ir_end_for(b, batches);
  ir_end_for(b, tensors);
}

/* ---- channels in no block ---- */

static void emit_leftover_row(applier *e, const bool *is_left, ir_value in, ir_value out) {
  ir *b = e->b;
  for (int c = 0; c < e->s->head_dim;) {
    int end = c;
    while (end < e->s->head_dim && is_left[end]) end++;
    for (int width = 16; c < end;) {
      while (width > end - c) width /= 2;
      MlirType type = ir_vector(b, width, e->dtype == DTYPE_F32 ? b->i32 : b->i16);
      ir_value v = ir_load(b, type, ir_offset_const(b, in, (int64_t)c * e->channel_bytes), e->channel_bytes);
      ir_store(b, v, ir_offset_const(b, out, (int64_t)c * e->channel_bytes), e->channel_bytes, false);
      c += width;
    }
    if (c == end) c++;
  }
}

/* Channels that pass through are moved where out is elsewhere, by the call that has block 0. */
static void emit_leftovers(applier *e, arena *a, ir_value token) {
  ir *b = e->b;
  const spec *s = e->s;
  bool *is_left = arena_array(a, bool, s->head_dim), some = false;
  for (int c = 0; c < s->head_dim; c++) is_left[c] = true;
  for (int i = 0; i < s->n_components * s->n_blocks; i++) is_left[s->channel[i]] = false;
  for (int c = 0; c < s->head_dim; c++) some = some || is_left[c];
  if (!some) return;
  ir_loop tensors = ir_for(b, i64(b, 0), i64(b, 2));
  row_addresses r = addresses_of(e, tensors.index, token);
  ir_value moves = ir_op2(b, "arith.andi", ir_compare_int(b, "ne", r.in, r.out), ir_compare_int(b, "eq", WORK_I64(e, block_begin), i64(b, 0)));
  ir_branch branch = ir_if(b, ir_op2(b, "arith.andi", moves, ir_compare_int(b, "ne", r.heads, i64(b, 0))));
  ir_loop batches = ir_for(b, WORK_I64(e, batch_begin), WORK_I64(e, batch_end));
  ir_loop heads = ir_for(b, e->per_head ? WORK_I64(e, head_begin) : i64(b, 0), e->per_head ? WORK_I64(e, head_end) : r.heads);
  ir_value in = add(b, add(b, r.in, mul(b, batches.index, r.in_batch)), mul(b, heads.index, r.in_head));
  ir_value out = add(b, add(b, r.out, mul(b, batches.index, r.out_batch)), mul(b, heads.index, r.out_head));
  emit_leftover_row(e, is_left, ir_pointer(b, in), ir_pointer(b, out));
  ir_end_for(b, heads);
  ir_end_for(b, batches);
  ir_end_if(b, branch);
  ir_end_for(b, tensors);
}

/* ---- the function ---- */

static bool in_order(const spec *s) {
  for (int g = 0; g < s->n_blocks; g++)
    for (int c = 0; c < s->n_components; c++)
      if (s->channel[c * s->n_blocks + g] != s->channel[0] + g * s->n_components + c) return false;
  return true;
}

static const char *channel_table(ir *b, arena *a, const spec *s, const char *name) {
  const char *table = arena_printf(a, "%s_channels", name);
  int32_t *channels = arena_array(a, int32_t, s->n_blocks * s->n_components);
  for (int g = 0; g < s->n_blocks; g++)
    for (int c = 0; c < s->n_components; c++) channels[g * s->n_components + c] = s->channel[c * s->n_blocks + g];
  ir_table(b, table, s->n_blocks * s->n_components, NULL, channels);
  return table;
}

void emit_apply(ir *b, arena *a, const spec *s, const cpu_target *target, int dtype, bool per_head, const char *name) {
  applier e = {.b = b, .s = s, .target = target, .dtype = dtype, .per_head = per_head, .size = s->n_components};
  e.shape = apply_shape_of(target, e.size);
  e.channel_bytes = dtype == DTYPE_F32 ? 4 : 2;
  e.contiguous = in_order(s);
  const char *table = e.contiguous ? NULL : channel_table(b, a, s, name);
  ir_function(b, name, true, (MlirType){NULL}, 1, &b->ptr, &e.work);
  if (table) e.channels = ir_table_address(b, table);
  e.x_scratch = ir_alloca(b, (int64_t)GROUP * 2 * e.size * 4, CACHE_LINE);
  e.y_scratch = ir_alloca(b, CACHE_LINE, CACHE_LINE);
  ir_loop tokens = ir_for(b, WORK_I64(&e, token_begin), WORK_I64(&e, token_end));
  ir_value matrices = ir_offset(b, field(&e, e.work, offsetof(pegen_apply, matrices), b->ptr), mul(b, tokens.index, WORK_I64(&e, matrix_token)));
  if (per_head) emit_heads(&e, tokens.index, matrices);
  else emit_shared(&e, tokens.index, matrices);
  emit_leftovers(&e, a, tokens.index);
  ir_end_for(b, tokens);
  ir_return(b);
}
