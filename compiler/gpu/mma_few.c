/* gpu/mma_few: few queries on tensor cores: which query an own row is, what a chunk of keys comes to, and the entry
 * that merges chunks; see gpu/mma.h and PEGEN_PTX_FEW_STATES in kernel/launch.h.
 *
 * Keys and values are read once for all heads of q that share them. A warp has 8 queries; rows of the tile go by head,
 * a head's queries side by side.
 */
#include "gpu/index.h"
#include "gpu/mma.h"
#include "mlir/exp2.h"

#include "base/number.h"

#include "kernel/launch.h"

/* Chunks whose loads are under way together. */
enum { TOGETHER = 8, BYTES = 4 };

static ir_value short_of(ir *b, const ir_value *parameter, int i) {
  return ir_cast(b, "arith.trunci", parameter[i], b->i32);
}

void mma_set_few(mma *m) {
  ir *b = m->b;
  attend *t = m->t;
  ir_value heads = attend_short_parameter(t, PEGEN_PTX_ATTENTION_HEADS),
           group = attend_short_parameter(t, PEGEN_PTX_ATTENTION_GROUP),
           chunks = short_of(b, m->few, PEGEN_PTX_FEW_CHUNKS);
  ir_value item = ir_op2(b, "arith.divui", t->block, chunks);
  heads = ir_op2(b, "arith.divui", heads, group);
  m->chunk = ir_op2(b, "arith.remui", t->block, chunks);
  m->k_head = ir_op2(b, "arith.remui", item, heads);
  t->batch = ir_op2(b, "arith.divui", item, heads);
  t->first = m->own_first = i32(b, 0);
  m->q_head = t->head = mma_query_of(m, mma_row_of(m, 0)).head;
}

void mma_range_of_chunk(mma *m, ir_value *begin, ir_value *end) {
  ir *b = m->b;
  ir_value tiles = quotient(b, short_of(b, m->few, PEGEN_PTX_FEW_KEYS), m->shape.tile.streamed);
  *begin = mul(b, m->chunk, tiles);
  ir_value last = add(b, *begin, tiles);
  *end = smaller(b, *end, last);
}

ir_value mma_is_split(mma *m) { return ir_compare_int(m->b, "ne", m->few[PEGEN_PTX_FEW_STATES], i64(m->b, 0)); }

/* Address of number `channel` (i64) of a chunk (i64) of a row (i64) of those of all heads and batches. */
static ir_value number_at(const attend *t, const ir_value *few, ir_value row, ir_value chunk, ir_value channel) {
  ir *b = t->b;
  ir_value state = add(b, mul(b, row, few[PEGEN_PTX_FEW_CHUNKS]), chunk);
  ir_value number = add(b, mul(b, state, i64(b, mma_padded(t, t->p->value_dim) + 2)), channel);
  return ir_pointer(b, add(b, few[PEGEN_PTX_FEW_STATES], mul(b, number, i64(b, BYTES))));
}

ir_value mma_state_at(mma *m, const mma_query *of, ir_value channel) {
  ir *b = m->b;
  attend *t = m->t;
  ir_value heads = t->parameter[PEGEN_PTX_ATTENTION_HEADS], tokens = t->parameter[PEGEN_PTX_ATTENTION_TOKENS];
  ir_value head = add(b, mul(b, wide(b, t->batch), heads), wide(b, of->head));
  ir_value row = add(b, mul(b, head, tokens), wide(b, of->token));
  return number_at(t, m->few, row, wide(b, m->chunk), channel);
}

void mma_store_state(mma *m, int value) {
  ir *b = m->b;
  int width = mma_padded(m->t, m->t->p->value_dim), count = mma_neighbours(m, value), lanes = 4;
  for (int h = 0; h < m->shape.halves; h++) {
    if (mma_repeats(m, h)) continue;
    mma_query query = mma_query_of(m, mma_row_of(m, h));
    ir_branch given = ir_if(b, query.exists);
    ir_value at = mma_state_at(m, &query, wide(b, scaled(b, m->quad, count)));
    for (int run = 0, first = 0; first < width; first = ++run * lanes * count) {
      ir_branch some = {{NULL}, {NULL}};
      bool whole = first + lanes * count <= width; /* or whole runs of some lanes */
      if (!whole) some = ir_if(b, less(b, scaled(b, m->quad, count), i32(b, width - first)));
      for (int i = 0; i < count; i++)
        ir_store(b, m->sum[value][mma_register(m, value, h, run, i)],
                 ir_offset_const(b, at, (int64_t)BYTES * (first + i)), BYTES, false);
      if (!whole) ir_end_if(b, some);
    }
    ir_branch first = ir_if(b, ir_compare_int(b, "eq", m->quad, i32(b, 0)));
    ir_store(b, m->maximum[h], ir_offset_const(b, at, (int64_t)BYTES * width), BYTES, false);
    ir_store(b, m->total[h], ir_offset_const(b, at, (int64_t)BYTES * (width + 1)), BYTES, false);
    ir_end_if(b, first);
    ir_end_if(b, given);
  }
}

/* ---- the merge ---- */

/* What chunks up to here come to: two channels of a query. */
typedef struct merged {
  ir_value maximum, total, sum[2];
} merged;

enum { MERGED = sizeof(merged) / sizeof(ir_value) };

static ir_value power(ir *b, bool rounds, ir_value x) { return rounds ? emit_exp2_fast(b, x) : emit_exp2(b, x); }

/* Chunks first, first + 1, ... TOGETHER of them, the last one again behind it. A chunk whose weight is 0 adds nothing,
 * whatever its sums are. */
static void merge(const attend *t, const ir_value *few, ir_value row, ir_value channel, ir_value first, merged *all) {
  ir *b = t->b;
  int64_t width = mma_padded(t, t->p->value_dim);
  merged of[TOGETHER];
  ir_value exists[TOGETHER], zero = ir_float(b, b->f32, 0), last = sub(b, few[PEGEN_PTX_FEW_CHUNKS], i64(b, 1)),
                             maximum = all->maximum;
  for (int i = 0; i < TOGETHER; i++) {
    ir_value chunk = add(b, first, i64(b, i));
    exists[i] = ir_compare_int(b, "sle", chunk, last);
    chunk = ir_select(b, exists[i], chunk, last);
    for (int c = 0; c < 2; c++)
      of[i].sum[c] = ir_load(b, b->f32, number_at(t, few, row, chunk, add(b, channel, i64(b, c))), BYTES);
    of[i].maximum = ir_load(b, b->f32, number_at(t, few, row, chunk, i64(b, width)), BYTES);
    of[i].total = ir_load(b, b->f32, number_at(t, few, row, chunk, i64(b, width + 1)), BYTES);
  }
  for (int i = 0; i < TOGETHER; i++) maximum = ir_op2(b, "arith.maxnumf", maximum, of[i].maximum);
  bool rounds = number_bytes(t->entry->dtype) == 2;
  ir_value decay = power(b, rounds, sub(b, all->maximum, maximum));
  ir_value *to[] = {&all->total, &all->sum[0], &all->sum[1]};
  for (int c = 0; c < 3; c++) *to[c] = mul(b, *to[c], decay);
  for (int i = 0; i < TOGETHER; i++) {
    ir_value weight = power(b, rounds, sub(b, of[i].maximum, maximum));
    weight = ir_select(b, exists[i], weight, zero);
    ir_value adds = ir_compare_float(b, "une", weight, zero), from[] = {of[i].total, of[i].sum[0], of[i].sum[1]};
    for (int c = 0; c < 3; c++) *to[c] = ir_select(b, adds, ir_fma(b, weight, from[c], *to[c]), *to[c]);
  }
  all->maximum = maximum;
}

static void merge_all(const attend *t, const ir_value *few, ir_value row, ir_value channel, merged *all) {
  ir *b = t->b;
  ir_value zero = ir_float(b, b->f32, 0), begin[MERGED] = {ir_float(b, b->f32, MMA_NOTHING_SEEN), zero, zero, zero},
           now[MERGED];
  ir_value turns = add(b, few[PEGEN_PTX_FEW_CHUNKS], i64(b, TOGETHER - 1)), together = i64(b, TOGETHER);
  turns = ir_op2(b, "arith.divui", turns, together);
  ir_loop loop = ir_for_with(b, i64(b, 0), turns, MERGED, begin, now);
  *all = (merged){now[0], now[1], {now[2], now[3]}};
  merge(t, few, row, channel, mul(b, loop.index, i64(b, TOGETHER)), all);
  ir_value next[MERGED] = {all->maximum, all->total, all->sum[0], all->sum[1]};
  ir_end_for_with(b, loop, MERGED, next, now);
  *all = (merged){now[0], now[1], {now[2], now[3]}};
}

void gpu_emit_mma_finish(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, bool host) {
  const attend_design *design = program->plan;
  attend t = {.b = b, .memory = a, .p = design->products, .entry = entry};
  int count = program->attention->n_parameters, width = mma_padded(&t, t.p->value_dim), pairs = width / 2;
  gpu_function f = gpu_open_function(b, a, entry->name, count + PEGEN_PTX_FEW_COUNT, 0, host);
  const ir_value *few = f.parameter + count;
  t.parameter = f.parameter;
  ir_value line = add(b, scaled(b, f.block, PEGEN_PTX_BLOCK), f.thread), row = quotient(b, line, pairs),
           pair = rest(b, line, pairs);
  t.tokens = attend_short_parameter(&t, PEGEN_PTX_ATTENTION_TOKENS);
  t.first = i32(b, 0);
  ir_branch inside = ir_if(b, below(b, row, short_of(b, few, PEGEN_PTX_FEW_ROWS)));
  ir_value heads = attend_short_parameter(&t, PEGEN_PTX_ATTENTION_HEADS),
           token = ir_op2(b, "arith.remui", row, t.tokens), above = ir_op2(b, "arith.divui", row, t.tokens);
  t.head = ir_op2(b, "arith.remui", above, heads);
  t.batch = ir_op2(b, "arith.divui", above, heads);
  merged all;
  ir_value channel = wide(b, scaled(b, pair, 2));
  merge_all(&t, few, wide(b, row), channel, &all);
  ir_value zero = ir_float(b, b->f32, 0), one = ir_float(b, b->f32, 1),
           inverse = ir_op2(b, "arith.divf", one, all.total);
  inverse = ir_select(b, ir_compare_float(b, "oeq", all.total, zero), zero, inverse);
  attend_rows out = attend_rows_of(&t, PEGEN_PTX_ATTENTION_OUT, t.head, width);
  int bytes = 2 * number_bytes(entry->dtype);
  ir_value at = add(b, add(b, out.base, mul(b, wide(b, token), out.stride)), wide(b, scaled(b, pair, bytes)));
  ir_value two[2] = {mul(b, all.sum[0], inverse), {NULL}}, together;
  two[1] = mul(b, all.sum[1], inverse);
  if (bytes > BYTES) together = ir_elements(b, ir_vector(b, 2, b->f32), 2, two);
  else together = ir_pack(b, entry->dtype == NUMBER_BF16, two[0], two[1]);
  ir_store(b, together, ir_pointer(b, at), bytes, false);
  attend_store_lse(&t, ir_compare_int(b, "eq", pair, i32(b, 0)), token, all.maximum, all.total);
  ir_end_if(b, inside);
  ir_return(b);
}
