/* emit_apply: loops over rows, and the two ways of multiplying; see emit_apply.h. */
#include "emit_apply.h"

#include "emit_cpu.h"
#include "emit_product.h"
#include "emit_rows.h"

#include "../kernel/dense.h"

#include <stddef.h>

enum { GROUP = 4, CACHE_LINE = 64 };

apply_shape apply_shape_of(const cpu_target *target, int size) {
  apply_shape s = {.rows = GROUP};
  for (int at = 0, width = target->lanes; at < size;) {
    while (width > size - at) width /= 2;
    s.start[s.n_pieces] = at;
    s.width[s.n_pieces++] = width;
    at += width;
  }
  /* Beside the columns: the sums, a channel and, without fused operations, a product. */
  int spare = s.n_pieces + (target->has_fma ? 1 : 2);
  s.resident = s.n_pieces * size + spare <= target->registers;
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
  ir_value matrix, block;            /* of the block at hand */
  ir_value columns[32 * 4];          /* resident: [size][pieces] */
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

static ir_value channel_pointer(applier *e, ir_value row, ir_value component) {
  ir *b = e->b;
  ir_value at = add(b, mul(b, e->block, i64(b, e->size)), component);
  ir_value channel = ir_load(b, b->i32, ir_offset(b, e->channels, mul(b, at, i64(b, 4))), 4);
  channel = ir_cast(b, "arith.extsi", channel, b->i64);
  return ir_offset(b, row, mul(b, channel, i64(b, e->channel_bytes)));
}

/* The block's channels of a row into scratch row i. */
static void fetch(applier *e, ir_value row, int i) {
  ir *b = e->b;
  ir_value scratch = ir_offset_const(b, e->x_scratch, (int64_t)i * e->size * 4);
  if (!e->contiguous) {
    ir_loop loop = ir_for(b, i64(b, 0), i64(b, e->size));
    ir_value x = emit_load_channels(b, e->target, e->dtype, 1, channel_pointer(e, row, loop.index));
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

static void put(applier *e, ir_value sum, ir_value row, int piece) {
  ir *b = e->b;
  if (e->contiguous) {
    emit_store_channels(b, e->target, e->dtype, sum, ir_offset_const(b, row, (int64_t)e->shape.start[piece] * e->channel_bytes), false);
    return;
  }
  ir_store(b, sum, e->y_scratch, 4, false);
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, e->shape.width[piece]));
  ir_value y = ir_load(b, ir_vector(b, 1, b->f32), ir_offset(b, e->y_scratch, mul(b, loop.index, i64(b, 4))), 4);
  emit_store_channels(b, e->target, e->dtype, y, channel_pointer(e, row, add(b, loop.index, i64(b, e->shape.start[piece]))), false);
  ir_end_for(b, loop);
}

static ir_value load_column(applier *e, ir_value matrix, int k, int piece) {
  ir *b = e->b;
  int64_t at = ((int64_t)k * e->size + e->shape.start[piece]) * 4;
  return ir_load(b, ir_vector(b, e->shape.width[piece], b->f32), ir_offset_const(b, matrix, at), 4);
}

/* ---- one row, columns in registers ---- */

static void emit_resident_row(applier *e, ir_value in, ir_value out) {
  ir *b = e->b;
  ir_value x = in, sums[64];
  if (!reads_in_place(e)) {
    fetch(e, in, 0);
    x = e->x_scratch;
  }
  for (int k = 0; k < e->size; k++) {
    ir_value channel = ir_load(b, b->f32, ir_offset_const(b, x, (int64_t)k * 4), 4);
    for (int p = 0; p < e->shape.n_pieces; p++) {
      ir_value column = e->columns[k * e->shape.n_pieces + p], spread = ir_broadcast(b, ir_type(column), channel);
      sums[p] = k ? emit_multiply_add(b, e->target, spread, column, sums[p]) : ir_op2(b, "arith.mulf", spread, column);
    }
  }
  for (int p = 0; p < e->shape.n_pieces; p++) put(e, sums[p], out, p);
}

/* ---- several rows, columns from memory ---- */

static void emit_walk(applier *e, const ir_value *in, const ir_value *out, int rows) {
  ir *b = e->b;
  bool direct = reads_in_place(e);
  ir_value sums[GROUP * 4], next[GROUP * 4];
  for (int i = 0; i < rows && !direct; i++) fetch(e, in[i], i);
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
      for (int p = 0; p < vectors; p++) put(e, sums[i * vectors + p], out[i], first + p);
  }
}

/* Rows at in, in + in_step, ... */
static void emit_run(applier *e, ir_value in, ir_value in_step, ir_value out, ir_value out_step, ir_value count) {
  ir *b = e->b;
  ir_value pointers[2][GROUP], done = i64(b, 0);
  if (!e->shape.resident) {
    ir_value groups = ir_op2(b, "arith.divui", count, i64(b, GROUP));
    ir_loop loop = ir_for(b, i64(b, 0), groups);
    for (int i = 0; i < GROUP; i++) {
      ir_value row = add(b, mul(b, loop.index, i64(b, GROUP)), i64(b, i));
      pointers[0][i] = ir_pointer(b, add(b, in, mul(b, row, in_step)));
      pointers[1][i] = ir_pointer(b, add(b, out, mul(b, row, out_step)));
    }
    emit_walk(e, pointers[0], pointers[1], GROUP);
    ir_end_for(b, loop);
    done = mul(b, groups, i64(b, GROUP));
  }
  ir_loop loop = ir_for(b, done, count);
  pointers[0][0] = ir_pointer(b, add(b, in, mul(b, loop.index, in_step)));
  pointers[1][0] = ir_pointer(b, add(b, out, mul(b, loop.index, out_step)));
  if (e->shape.resident) emit_resident_row(e, pointers[0][0], pointers[1][0]);
  else emit_walk(e, pointers[0], pointers[1], 1);
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

/* Where heads differ, a matrix turns the rows of one head in all batches, else those of all heads in each. */
static void emit_rows_of_block(applier *e, ir_value token, const ir_value *head) {
  ir *b = e->b;
  ir_loop tensors = ir_for(b, i64(b, 0), i64(b, 2));
  row_addresses r = addresses_of(e, tensors.index, token);
  ir_value first = WORK_I64(e, batch_begin), last = WORK_I64(e, batch_end);
  ir_value shift = e->contiguous ? mul(b, e->block, i64(b, (int64_t)e->size * e->channel_bytes)) : i64(b, 0);
  if (e->contiguous) shift = add(b, shift, i64(b, (int64_t)e->s->channel[0] * e->channel_bytes));
  ir_value in = add(b, r.in, shift), out = add(b, r.out, shift);
  if (head) {
    in = add(b, add(b, in, mul(b, *head, r.in_head)), mul(b, first, r.in_batch));
    out = add(b, add(b, out, mul(b, *head, r.out_head)), mul(b, first, r.out_batch));
    ir_branch given = ir_if(b, ir_compare_int(b, "ne", r.heads, i64(b, 0)));
    emit_run(e, in, r.in_batch, out, r.out_batch, ir_op2(b, "arith.subi", last, first));
    ir_end_if(b, given);
  } else {
    ir_loop batches = ir_for(b, first, last);
    emit_run(e, add(b, in, mul(b, batches.index, r.in_batch)), r.in_head, add(b, out, mul(b, batches.index, r.out_batch)), r.out_head, r.heads);
    ir_end_for(b, batches);
  }
  ir_end_for(b, tensors);
}

static void emit_blocks(applier *e, ir_value token, const ir_value *head) {
  ir *b = e->b;
  ir_value matrices = ir_offset(b, field(e, e->work, offsetof(pegen_apply, matrices), b->ptr), mul(b, token, WORK_I64(e, matrix_token)));
  if (head) matrices = ir_offset(b, matrices, mul(b, *head, WORK_I64(e, matrix_head)));
  ir_loop blocks = ir_for(b, WORK_I64(e, block_begin), WORK_I64(e, block_end));
  e->block = blocks.index;
  e->matrix = ir_offset(b, matrices, mul(b, blocks.index, i64(b, (int64_t)e->size * e->size * 4)));
  if (e->shape.resident)
    for (int k = 0; k < e->size; k++)
      for (int p = 0; p < e->shape.n_pieces; p++) e->columns[k * e->shape.n_pieces + p] = load_column(e, e->matrix, k, p);
  emit_rows_of_block(e, token, head);
  ir_end_for(b, blocks);
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
static void emit_leftovers(applier *e, arena *a, ir_value token, const ir_value *head) {
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
  ir_loop heads = ir_for(b, head ? *head : i64(b, 0), head ? add(b, *head, i64(b, 1)) : r.heads);
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
  e.x_scratch = ir_alloca(b, (int64_t)GROUP * e.size * 4, CACHE_LINE);
  e.y_scratch = ir_alloca(b, CACHE_LINE, CACHE_LINE);
  ir_loop tokens = ir_for(b, WORK_I64(&e, token_begin), WORK_I64(&e, token_end));
  if (per_head) {
    ir_loop heads = ir_for(b, WORK_I64(&e, head_begin), WORK_I64(&e, head_end));
    emit_blocks(&e, tokens.index, &heads.index);
    emit_leftovers(&e, a, tokens.index, &heads.index);
    ir_end_for(b, heads);
  } else {
    emit_blocks(&e, tokens.index, NULL);
    emit_leftovers(&e, a, tokens.index, NULL);
  }
  ir_end_for(b, tokens);
  ir_return(b);
}
