/* cpu/apply: loops over tokens, batches, heads and blocks; see cpu/apply.h. */
#include "cpu/apply.h"
#include "mlir/arith.h"
#include "mlir/number.h"

#include "cpu/apply_rows.h"

#include "kernel/dense.h"

#include <stddef.h>

/* GROUP: rows of one walk over a matrix that all heads share. ACTING: rows that an exponential acts on at once: more
 * would take less of it, but few rows are what it is for. TILE_BYTES: of matrices that stay in the second cache while
 * batch after batch uses them. */
enum { GROUP = 4, ACTING = 2, LISTED = APPLY_LISTED, CACHE_LINE = 64, TILE_BYTES = 256 * 1024 };

/* A row of head 0 and the way to other heads' in bytes; as int64_t in memory. */
typedef struct row_entry {
  int64_t in, out, in_head, out_head;
} row_entry;

static ir_value field(applier *e, ir_value base, size_t offset, MlirType type) {
  return ir_load(e->b, type, ir_offset_const(e->b, base, (int64_t)offset), 8);
}
#define WORK_I64(e, name) field((e), (e)->work, offsetof(pegen_apply, name), (e)->b->i64)
#define ROWS_I64(e, rows, name) field((e), (rows), offsetof(pegen_rows, name), (e)->b->i64)

/* ---- blocks ---- */

static ir_value block_shift(applier *e) {
  return e->contiguous ? mul(e->b, e->block, i64(e->b, (int64_t)e->size * e->channel_bytes)) : i64(e->b, 0);
}

typedef void blocks_body(applier *e, int blocks, const void *context);

/* The body for blocks [begin, end), `together` at a time and what is left one by one. */
static void emit_each_block(applier *e, ir_value matrices, ir_value begin, ir_value end, int together,
                            blocks_body *body, const void *context) {
  ir *b = e->b;
  ir_value turns = ir_op2(b, "arith.divui", sub(b, end, begin), i64(b, together));
  ir_loop blocks = ir_for(b, i64(b, 0), turns);
  e->block = add(b, begin, mul(b, blocks.index, i64(b, together)));
  e->matrix = ir_offset(b, matrices, mul(b, e->block, i64(b, (int64_t)e->size * e->size * 4)));
  body(e, together, context);
  ir_end_for(b, blocks);
  bool paired =
      e->shape.layout == MATRIX_DIAGONALS && e->of->blocks.count % 2 == 0; /* then no call begins or ends between two */
  if (together > 1 && !paired)
    emit_each_block(e, matrices, add(b, begin, mul(b, turns, i64(b, together))), end, 1, body, context);
}

static ir_value first_block(applier *e) { return WORK_I64(e, block_begin); }
static ir_value last_block(applier *e) { return WORK_I64(e, block_end); }

static ir_value matrices_of(applier *e, ir_value token) {
  return ir_offset(e->b, field(e, e->work, offsetof(pegen_apply, matrices), e->b->ptr),
                   mul(e->b, token, WORK_I64(e, matrix_token)));
}

/* ---- the rows of a token ---- */

typedef struct row_addresses {
  ir_value in, out, in_batch, out_batch, in_head, out_head, heads;
} row_addresses;

static row_addresses addresses_of(applier *e, ir_value tensor, ir_value token) {
  ir *b = e->b;
  ir_value rows = ir_offset(b, ir_offset_const(b, e->work, offsetof(pegen_apply, rows)),
                            mul(b, tensor, i64(b, sizeof(pegen_rows))));
  row_addresses r = {.in_batch = ROWS_I64(e, rows, in_batch),
                     .out_batch = ROWS_I64(e, rows, out_batch),
                     .in_head = ROWS_I64(e, rows, in_head),
                     .out_head = ROWS_I64(e, rows, out_head),
                     .heads = ROWS_I64(e, rows, heads)};
  r.in = add(b, ROWS_I64(e, rows, in), mul(b, token, ROWS_I64(e, rows, in_token)));
  r.out = add(b, ROWS_I64(e, rows, out), mul(b, token, ROWS_I64(e, rows, out_token)));
  return r;
}

/* Where the channels of a row's blocks begin. */
static ir_value row_shift(applier *e) {
  return i64(e->b, e->contiguous ? (int64_t)e->of->blocks.channel[0] * e->channel_bytes : 0);
}

/* ---- channels in no block ---- */

static void emit_leftover_row(applier *e, const bool *is_left, ir_value in, ir_value out) {
  ir *b = e->b;
  for (int c = 0; c < e->of->channels;) {
    int end = c;
    while (end < e->of->channels && is_left[end]) end++;
    for (int width = 16; c < end;) {
      while (width > end - c) width /= 2;
      MlirType type = ir_vector(b, width, number_bits(b, e->dtype));
      ir_value v = ir_load(b, type, ir_offset_const(b, in, (int64_t)c * e->channel_bytes), e->channel_bytes);
      ir_store(b, v, ir_offset_const(b, out, (int64_t)c * e->channel_bytes), e->channel_bytes, false);
      c += width;
    }
    if (c == end) c++;
  }
}

/* Channels of the heads' rows that pass through are moved where out is elsewhere, by the call that has block 0. */
static void emit_leftovers(applier *e, const bool *is_left, ir_value batch, const row_addresses *at, ir_value begin,
                           ir_value end) {
  ir *b = e->b;
  ir_value in = add(b, at->in, mul(b, batch, at->in_batch)), out = add(b, at->out, mul(b, batch, at->out_batch));
  ir_value moves = ir_op2(b, "arith.andi", ir_compare_int(b, "ne", in, out),
                          ir_compare_int(b, "eq", WORK_I64(e, block_begin), i64(b, 0)));
  ir_branch branch = ir_if(b, moves);
  ir_loop heads = ir_for(b, begin, end);
  ir_value to = ir_pointer(b, add(b, out, mul(b, heads.index, at->out_head)));
  emit_leftover_row(e, is_left, ir_pointer(b, add(b, in, mul(b, heads.index, at->in_head))), to);
  ir_end_for(b, heads);
  ir_end_if(b, branch);
}

static void emit_rows(applier *e, const ir_value *in, const ir_value *out, int rows, int blocks) {
  if (e->shape.layout == MATRIX_EXPONENT) emit_action_rows(e, in, out, rows);
  else emit_rows_of_blocks(e, in, out, rows, blocks);
}

/* ---- heads that share a matrix: all rows of one tensor, token and batch ---- */

typedef struct run {
  ir_value in, out, in_head, out_head, heads;
} run;

/* `rows` heads from `index` on. */
static void emit_some_heads(applier *e, const run *r, int blocks, int rows, ir_value index) {
  ir *b = e->b;
  ir_value shift = block_shift(e), in[GROUP], out[GROUP];
  for (int i = 0; i < rows; i++) {
    ir_value head = add(b, index, i64(b, i));
    in[i] = ir_pointer(b, add(b, add(b, r->in, shift), mul(b, head, r->in_head)));
    out[i] = ir_pointer(b, add(b, add(b, r->out, shift), mul(b, head, r->out_head)));
  }
  emit_rows(e, in, out, rows, blocks);
}

/* Several at a time where they share a walk, and what is left one by one. */
static void emit_run(applier *e, int blocks, const void *context) {
  ir *b = e->b;
  const run *r = context;
  ir_value done = i64(b, 0);
  emit_hold(e, blocks);
  if (!e->shape.resident) {
    ir_value groups = ir_op2(b, "arith.divui", r->heads, i64(b, GROUP));
    ir_loop loop = ir_for(b, i64(b, 0), groups);
    emit_some_heads(e, r, blocks, GROUP, mul(b, loop.index, i64(b, GROUP)));
    ir_end_for(b, loop);
    done = mul(b, groups, i64(b, GROUP));
  }
  ir_loop loop = ir_for(b, done, r->heads);
  emit_some_heads(e, r, blocks, 1, loop.index);
  ir_end_for(b, loop);
}

/* Tokens in tiles whose matrices stay in the cache while batch after batch streams by. */
static void emit_shared(applier *e, const bool *is_left) {
  ir *b = e->b;
  int64_t of_token = (int64_t)e->of->blocks.count * e->size * e->size * 4,
          tile = TILE_BYTES / of_token > 1 ? TILE_BYTES / of_token : 1;
  ir_value begin = WORK_I64(e, token_begin), end = WORK_I64(e, token_end), count = sub(b, end, begin);
  ir_loop tiles = ir_for(b, i64(b, 0), ir_op2(b, "arith.divui", add(b, count, i64(b, tile - 1)), i64(b, tile)));
  ir_value first = add(b, begin, mul(b, tiles.index, i64(b, tile))), last = add(b, first, i64(b, tile));
  last = ir_select(b, ir_compare_int(b, "slt", last, end), last, end);
  ir_loop batches = ir_for(b, WORK_I64(e, batch_begin), WORK_I64(e, batch_end));
  ir_loop tokens = ir_for(b, first, last);
  ir_loop tensors = ir_for(b, i64(b, 0), i64(b, 2));
  row_addresses at = addresses_of(e, tensors.index, tokens.index);
  run r = {.in = add(b, add(b, at.in, row_shift(e)), mul(b, batches.index, at.in_batch)),
           .in_head = at.in_head,
           .out = add(b, add(b, at.out, row_shift(e)), mul(b, batches.index, at.out_batch)),
           .out_head = at.out_head,
           .heads = at.heads};
  ir_value end_block = last_block(e), block = first_block(e);
  emit_each_block(e, matrices_of(e, tokens.index), block, end_block, e->shape.together, emit_run, &r);
  if (is_left) emit_leftovers(e, is_left, batches.index, &at, i64(b, 0), at.heads);
  ir_end_for(b, tensors);
  ir_end_for(b, tokens);
  ir_end_for(b, batches);
  ir_end_for(b, tiles);
}

/* ---- heads with matrices of their own: q's and k's rows of some batches ---- */

/* With few registers more rows are more code and no more speed. */
static int listed_rows(const applier *e) { return e->target->registers >= 32 ? LISTED : LISTED / 2; }

static ir_value entry_field(applier *e, ir_value index, size_t offset) {
  return ir_offset_const(e->b, ir_offset(e->b, e->list, mul(e->b, index, i64(e->b, sizeof(row_entry)))),
                         (int64_t)offset);
}

/* Lists the rows of head 0 in batches [first, last), and gives their number. */
static ir_value emit_list(applier *e, ir_value token, ir_value first, ir_value last) {
  ir *b = e->b;
  ir_value count = i64(b, 0), current;
  for (int tensor = 0; tensor < 2; tensor++) {
    row_addresses r = addresses_of(e, i64(b, tensor), token);
    ir_value end = ir_select(b, ir_compare_int(b, "ne", r.heads, i64(b, 0)), last, first);
    ir_loop batches = ir_for_with(b, first, end, 1, &count, &current);
    ir_value values[] = {add(b, add(b, r.in, row_shift(e)), mul(b, batches.index, r.in_batch)),
                         add(b, add(b, r.out, row_shift(e)), mul(b, batches.index, r.out_batch)), r.in_head,
                         r.out_head};
    size_t offsets[] = {offsetof(row_entry, in), offsetof(row_entry, out), offsetof(row_entry, in_head),
                        offsetof(row_entry, out_head)};
    for (int i = 0; i < 4; i++) ir_store(b, values[i], entry_field(e, current, offsets[i]), 8, false);
    ir_value next = add(b, current, i64(b, 1));
    ir_end_for_with(b, batches, 1, &next, &count);
  }
  return count;
}

typedef struct listed {
  int rows;
  ir_value in[LISTED], out[LISTED]; /* addresses */
} listed;

static void emit_listed_block(applier *e, int blocks, const void *context) {
  ir *b = e->b;
  const listed *l = context;
  ir_value shift = block_shift(e), in[LISTED], out[LISTED];
  for (int i = 0; i < l->rows; i++) {
    in[i] = ir_pointer(b, add(b, l->in[i], shift));
    out[i] = ir_pointer(b, add(b, l->out[i], shift));
  }
  emit_hold(e, blocks);
  emit_rows(e, in, out, l->rows, blocks);
}

/* Rows [begin, end) of the list, `rows` at a time, then what is left. */
static void emit_listed(applier *e, ir_value matrices, ir_value head, ir_value begin, ir_value end, int rows) {
  ir *b = e->b;
  ir_value turns = ir_op2(b, "arith.divui", sub(b, end, begin), i64(b, rows));
  ir_loop loop = ir_for(b, i64(b, 0), turns);
  listed l = {.rows = rows};
  for (int i = 0; i < rows; i++) {
    ir_value entry = add(b, add(b, begin, mul(b, loop.index, i64(b, rows))), i64(b, i));
    ir_value in_head = ir_load(b, b->i64, entry_field(e, entry, offsetof(row_entry, in_head)), 8);
    ir_value out_head = ir_load(b, b->i64, entry_field(e, entry, offsetof(row_entry, out_head)), 8);
    l.in[i] = add(b, ir_load(b, b->i64, entry_field(e, entry, offsetof(row_entry, in)), 8), mul(b, head, in_head));
    l.out[i] = add(b, ir_load(b, b->i64, entry_field(e, entry, offsetof(row_entry, out)), 8), mul(b, head, out_head));
  }
  ir_value last = last_block(e);
  emit_each_block(e, matrices, first_block(e), last, e->shape.together, emit_listed_block, &l);
  ir_end_for(b, loop);
  if (rows > 1) emit_listed(e, matrices, head, add(b, begin, mul(b, turns, i64(b, rows))), end, rows > 2 ? 2 : 1);
}

static void emit_heads(applier *e, const bool *is_left) {
  ir *b = e->b;
  ir_value first_batch = WORK_I64(e, batch_begin), batch_end = WORK_I64(e, batch_end);
  ir_value none = i64(b, 0), both = ir_compare_int(b, "ne", addresses_of(e, i64(b, 1), none).heads, none);
  ir_value step = ir_select(b, both, i64(b, listed_rows(e) / 2), i64(b, listed_rows(e))),
           count = sub(b, batch_end, first_batch);
  ir_value turns = ir_op2(b, "arith.divui", sub(b, add(b, count, step), i64(b, 1)), step);
  ir_loop tokens = ir_for(b, WORK_I64(e, token_begin), WORK_I64(e, token_end));
  ir_loop some = ir_for(b, i64(b, 0), turns);
  ir_value first = add(b, first_batch, mul(b, some.index, step)), last = add(b, first, step);
  last = ir_select(b, ir_compare_int(b, "slt", last, batch_end), last, batch_end);
  ir_value rows = emit_list(e, tokens.index, first, last);
  ir_loop heads = ir_for(b, WORK_I64(e, head_begin), WORK_I64(e, head_end));
  ir_value of_head = ir_offset(b, matrices_of(e, tokens.index), mul(b, heads.index, WORK_I64(e, matrix_head)));
  emit_listed(e, of_head, heads.index, i64(b, 0), rows, e->shape.layout == MATRIX_EXPONENT ? ACTING : listed_rows(e));
  ir_end_for(b, heads);
  for (int tensor = 0; tensor < 2 && is_left; tensor++) {
    row_addresses at = addresses_of(e, i64(b, tensor), tokens.index);
    ir_loop batches = ir_for(b, first, ir_select(b, ir_compare_int(b, "ne", at.heads, i64(b, 0)), last, first));
    ir_value head_end = WORK_I64(e, head_end);
    emit_leftovers(e, is_left, batches.index, &at, WORK_I64(e, head_begin), head_end);
    ir_end_for(b, batches);
  }
  ir_end_for(b, some);
  ir_end_for(b, tokens);
}

/* ---- the function ---- */

static bool in_order(const program_blocks *blocks) {
  for (int g = 0; g < blocks->count; g++)
    for (int c = 0; c < blocks->size; c++)
      if (blocks->channel[c * blocks->count + g] != blocks->channel[0] + g * blocks->size + c) return false;
  return true;
}

bool emit_apply_in_lines(const program_blocks *blocks, int channels) {
  return in_order(blocks) && blocks->channel[0] == 0 && channels % 16 == 0 && blocks->size * blocks->count == channels;
}

/* Whether a channel is in no block; NULL: none is. */
static const bool *leftovers_of(arena *a, const apply_request *of) {
  if (of->blocks.size * of->blocks.count == of->channels) return NULL;
  bool *is_left = arena_array(a, bool, of->channels);
  for (int c = 0; c < of->channels; c++) is_left[c] = true;
  for (int i = 0; i < of->blocks.size * of->blocks.count; i++) is_left[of->blocks.channel[i]] = false;
  return is_left;
}

static const char *channel_table(ir *b, arena *a, const program_blocks *blocks, const char *name) {
  const char *table = arena_printf(a, "%s_channels", name);
  int32_t *channels = arena_array(a, int32_t, blocks->count * blocks->size);
  for (int g = 0; g < blocks->count; g++)
    for (int c = 0; c < blocks->size; c++) channels[g * blocks->size + c] = blocks->channel[c * blocks->count + g];
  ir_table(b, table, blocks->count * blocks->size, NULL, channels);
  return table;
}

applier emit_begin_applier(ir *b, arena *a, const apply_request *request, const cpu_target *target, const char *name) {
  applier e = {.b = b, .of = request, .target = target, .dtype = request->dtype, .size = request->blocks.size};
  e.shape = apply_shape_of(target, e.size, request->layout);
  e.channel_bytes = number_bytes(e.dtype);
  e.contiguous = in_order(&request->blocks);
  if (!e.contiguous) e.channel_table = channel_table(b, a, &request->blocks, name);
  return e;
}

void emit_open_applier(applier *e) {
  ir *b = e->b;
  if (e->channel_table) e->channels = ir_table_address(b, e->channel_table);
  e->shift = i64(b, 0);
  e->x_scratch = ir_alloca(b, (int64_t)LISTED * 2 * e->size * 4, CACHE_LINE);
  e->y_scratch = ir_alloca(b, CACHE_LINE, CACHE_LINE);
}

void emit_apply(ir *b, arena *a, const apply_request *request, const cpu_target *target, const char *name) {
  applier e = emit_begin_applier(b, a, request, target, name);
  ir_open(b, name, "p", &e.work);
  emit_open_applier(&e);
  if (request->layout == MATRIX_EXPONENT) e.action_scratch = ir_alloca(b, (int64_t)3 * LISTED * e.size * 4, CACHE_LINE);
  e.list = ir_alloca(b, LISTED * (int64_t)sizeof(row_entry), CACHE_LINE);
  if (request->per_head) emit_heads(&e, leftovers_of(a, request));
  else emit_shared(&e, leftovers_of(a, request));
  ir_return(b);
}
