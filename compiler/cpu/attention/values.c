/* cpu/attention/values: a tile's part of the output, output = output decay + p v; see cpu/attention/values.h.
 *
 * 0 times what is no number is none, and so is -infinity plus infinity: where some key or value of a head is not
 * finite, of which the driver asks once a head (look_T_DTYPE), scores of pairs that do not see each other are replaced,
 * and their products p v left out, pair by pair. Otherwise nothing is asked. A sum that met such a product is no number
 * at the end, so that a tile whose outputs are all finite met none, and the driver need not ask (emit_tell_lost).
 */
#include "cpu/attention/values.h"
#include "cpu/attention/dots.h"
#include "cpu/attention/seen.h"
#include "cpu/rows.h"
#include "mlir/arith.h"
#include "mlir/number.h"

enum { MOST_SUMS = 8 * ATTENTION_MAX_VECTORS, MOST_SEEN = 4 };

/* What a tile of keys is added to. */
typedef struct running_output {
  const key_tile *keys; /* their scores have become p */
  const lone_edges *edges; /* NULL: both registers' p are asked for of all keys */
  int width;
  ir_value output; /* [width][queries] */
  const ir_value *decay; /* NULL: none */
} running_output;

/* A block of the output's channels: sums += p v over keys. */
typedef struct value_block {
  ir_value weights; /* p: [keys][queries]; of dot products [keys / 2][queries] */
  ir_value column;  /* its first channel in the first row of values */
  ir_value stride;
  int n;
  bool guarded; /* products of p = 0 are left out */
} value_block;

/* key: of dot products a pair of keys. */
static void emit_key(const attention_emitter *e, const value_block *block, ir_value key, ir_value *sums) {
  ir *b = e->b;
  int vectors = e->shape.vectors;
  ir_value row = ir_offset(b, block->column, mul(b, key, block->stride)), p[ATTENTION_MAX_VECTORS];
  for (int x = 0; x < vectors; x++) p[x] = ir_load(b, e->lanes, attention_at(e, block->weights, key, x), 4);
  for (int c = 0; c < block->n; c++) {
    ir_value v = ir_broadcast(b, e->lanes, ir_load(b, b->f32, ir_offset_const(b, row, c * 4), 4));
    for (int x = 0; x < vectors; x++) {
      ir_value *sum = &sums[c * vectors + x];
      *sum = block->guarded ? attention_guarded_product(e, v, p[x], *sum) : attention_product(e, v, p[x], *sum);
    }
  }
}

/* Keys [first, first + turns step), `step` at a time. */
static void emit_value_keys(const attention_emitter *e, const value_block *block, ir_value first, ir_value turns,
                            int step, ir_value *sums) {
  ir *b = e->b;
  int count = block->n * e->shape.vectors;
  ir_value now[MOST_SUMS];
  ir_loop loop = ir_for_with(b, e->zero, turns, count, sums, now);
  ir_value key = add(b, attention_mul(b, loop.index, step), first);
  for (int i = 0; i < step; i++) emit_key(e, block, add(b, key, i64(b, i)), now);
  ir_end_for_with(b, loop, count, now, sums);
}

/* Keys [first, end) whose p are 0 but for those of one register. */
static void emit_lone_keys(const attention_emitter *e, const value_block *block, ir_value first, ir_value end,
                           ir_value lone, ir_value *sums) {
  ir *b = e->b;
  int n = block->n;
  ir_choice choice = ir_choose_alike(b, ir_compare_int(b, "slt", first, end), 2 * n, e->lanes);
  ir_value is_second = emit_is_second(e, lone), own[MOST_SUMS], now[MOST_SUMS], both[MOST_SUMS];
  for (int c = 0; c < n; c++) own[c] = ir_select(b, is_second, sums[2 * c + 1], sums[2 * c]);
  attention_emitter of = *e;
  of.shape = attention_narrow_shape(&e->shape);
  value_block its = *block;
  ir_value vector = sub(b, lone, i64(b, LONE_FIRST));
  its.weights = nth(b, block->weights, vector, e->shape.lanes * 4);
  ir_loop keys = ir_for_with(b, first, end, n, own, now);
  emit_key(&of, &its, keys.index, now);
  ir_end_for_with(b, keys, n, now, own);
  for (int c = 0; c < n; c++) {
    both[2 * c] = ir_select(b, is_second, sums[2 * c], own[c]);
    both[2 * c + 1] = ir_select(b, is_second, own[c], sums[2 * c + 1]);
  }
  ir_choose_else(b, &choice, 2 * n, both);
  ir_end_choose(b, choice, 2 * n, sums, sums);
}

/* Channels [channel, channel + n); channel is an i64. */
static void emit_channels(const attention_emitter *e, const running_output *o, const row_view *rows, ir_value channel,
                          int n, bool guarded) {
  ir *b = e->b;
  int vectors = e->shape.vectors, step = guarded ? 1 : e->shape.unroll;
  ir_value sums[MOST_SUMS], at[MOST_SUMS];
  for (int i = 0; i < n * vectors; i++) {
    at[i] = attention_at(e, o->output, add(b, channel, i64(b, i / vectors)), i % vectors);
    sums[i] = ir_load(b, e->lanes, at[i], 4);
    if (o->decay) sums[i] = mul(b, sums[i], o->decay[i % vectors]);
  }
  value_block block = {o->keys->scores, nth(b, rows->at, channel, 4), rows->stride, n, guarded};
  const lone_edges *edges = guarded ? NULL : o->edges;
  ir_value count = attention_steps(e, o->keys->count), first = e->zero, end = count;
  if (edges) {
    first = attention_steps(e, edges->begin);
    end = attention_steps(e, edges->end);
  }
  ir_value total = sub(b, end, first);
  ir_value turns = ir_op2(b, "arith.divui", total, i64(b, step)), whole = attention_mul(b, turns, step);
  if (edges) emit_lone_keys(e, &block, e->zero, first, edges->first, sums);
  emit_value_keys(e, &block, first, turns, step, sums);
  ir_value behind = add(b, first, whole);
  if (step > 1) emit_value_keys(e, &block, behind, sub(b, total, whole), 1, sums);
  if (edges) emit_lone_keys(e, &block, end, count, edges->last, sums);
  for (int i = 0; i < n * vectors; i++) ir_store(b, sums[i], at[i], 4, false);
}

static void emit_all_channels(const attention_emitter *e, const running_output *o, const row_view *rows, int n,
                              bool guarded) {
  ir *b = e->b;
  int width = o->width;
  ir_loop blocks = ir_for(b, e->zero, i64(b, width / n));
  emit_channels(e, o, rows, attention_mul(b, blocks.index, n), n, guarded);
  ir_end_for(b, blocks);
  if (width % n) emit_channels(e, o, rows, i64(b, width / n * n), width % n, guarded);
}

/* Whether some number of `count` rows is not finite: x 0 is then NaN, and so is the sum of them all. The last channels
 * are seen twice where they do not fill registers. */
static ir_value emit_any_spoilt(const attention_emitter *e, int dtype, const row_view *rows, ir_value count,
                                int width) {
  ir *b = e->b;
  int lanes = e->shape.lanes, seen = MOST_SEEN, bytes = number_bytes(dtype);
  while (lanes > width) lanes /= 2;
  while (seen * lanes > width) seen /= 2;
  int step = seen * lanes;
  MlirType type = ir_vector(b, lanes, b->f32);
  ir_value zero = ir_float(b, type, 0), sums[MOST_SEEN], outer[MOST_SEEN], inner[MOST_SEEN], next[MOST_SEEN];
  for (int i = 0; i < seen; i++) sums[i] = zero;
  ir_loop tokens = ir_for_with(b, i64(b, 0), count, seen, sums, outer);
  ir_value row = ir_offset(b, rows->at, mul(b, tokens.index, rows->stride));
  ir_loop groups = ir_for_with(b, i64(b, 0), i64(b, (width + step - 1) / step), seen, outer, inner);
  ir_value channel = attention_mul(b, groups.index, step), last = i64(b, width - step);
  ir_value from = nth(b, row, ir_select(b, ir_compare_int(b, "slt", channel, last), channel, last), bytes);
  for (int i = 0; i < seen; i++) {
    ir_value x =
        emit_load_channels(b, e->target->native, dtype, lanes, ir_offset_const(b, from, (int64_t)i * lanes * bytes));
    next[i] = attention_multiply_add(b, x, zero, inner[i]);
  }
  ir_end_for_with(b, groups, seen, next, outer);
  ir_end_for_with(b, tokens, seen, outer, sums);
  ir_value sum = sums[0], total = ir_float(b, b->f32, 0);
  for (int i = 1; i < seen; i++) sum = add(b, sum, sums[i]);
  for (int i = 0; i < lanes; i++) total = add(b, total, ir_extract(b, sum, i));
  return ir_compare_float(b, "une", total, ir_float(b, b->f32, 0));
}

void emit_tell_lost(const attention_emitter *e, ir_value output) {
  ir *b = e->b;
  ir_value lost = ATTENTION_TILE(e, lost, b->ptr);
  ir_branch asked = ir_if(b, attention_is_given(e, lost));
  row_view rows = {output, i64(b, (int64_t)e->shape.queries * 4)};
  ir_value some = emit_any_spoilt(e, NUMBER_F32, &rows, i64(b, e->p->value_dim), e->shape.queries);
  ir_value was = ir_load(b, b->i64, lost, 8);
  ir_store(b, ir_op2(b, "arith.ori", was, ir_cast(b, "arith.extui", some, b->i64)), lost, 8, false);
  ir_end_if(b, asked);
}

void emit_look(attention_emitter *e, int dtype) {
  ir *b = e->b;
  ir_open(b, attention_name(e->memory, e->target, "look", dtype), "p", &e->tile);
  ir_value count = ATTENTION_TILE(e, n_keys, b->i64);
  row_view keys = {ATTENTION_TILE(e, k, b->ptr), ATTENTION_TILE(e, k_token, b->i64)};
  row_view values = {ATTENTION_TILE(e, v, b->ptr), ATTENTION_TILE(e, v_token, b->i64)};
  ir_value some = ir_op2(b, "arith.ori", emit_any_spoilt(e, dtype, &keys, count, e->p->head_dim),
                         emit_any_spoilt(e, dtype, &values, count, e->p->value_dim));
  ir_store(b, ir_cast(b, "arith.extui", some, b->i64), ATTENTION_TILE(e, spoilt, b->ptr), 8, false);
  ir_return(b);
}

/* ---- the tile's part ---- */

ir_value emit_is_guarded(const attention_emitter *e, const key_tile *t) {
  ir *b = e->b;
  ir_value spoilt = ir_load(b, b->i64, ATTENTION_TILE(e, spoilt, b->ptr), 8);
  ir_value end = add(b, t->first, t->count);
  ir_value hides = ir_compare_int(b, "sgt", end, ATTENTION_TILE(e, free, b->i64));
  if (t->whole_begin.ptr) {
    ir_value is_mixed = ir_op2(b, "arith.xori", emit_is_whole(e, t, t->first, end), ir_int(b, b->i1, 1));
    hides = ir_op2(b, "arith.andi", hides, is_mixed);
  }
  return ir_op2(b, "arith.andi", hides, ir_compare_int(b, "ne", spoilt, e->zero));
}

void emit_weighted_rows(const attention_emitter *e, const row_view *rows, const key_tile *t, int width, ir_value output,
                        const ir_value *decay) {
  ir *b = e->b;
  lone_edges edges = {.begin = e->zero};
  if (t->lone.ptr) edges = emit_lone_edges(e, t);
  running_output o = {t, t->lone.ptr ? &edges : NULL, width, output, decay};
  ir_branch guarded = ir_if(b, emit_is_guarded(e, t));
  emit_all_channels(e, &o, rows, 1, true);
  ir_else(b, &guarded);
  emit_all_channels(e, &o, rows, e->shape.channels, false);
  ir_end_if(b, (ir_branch){guarded.outer, {NULL}});
}

void emit_attention_values(const attention_emitter *e, const attention_rows *r, const key_tile *t, ir_value output,
                           const ir_value *decay) {
  row_view rows = emit_value_rows(e, r, t->first, t->count);
  if (e->dots) {
    emit_woven_rows(e, rows.at, rows.stride, t->count, e->p->value_dim, e->p->value_dim, r->woven_room);
    rows = (row_view){r->woven_room, i64(e->b, (int64_t)e->p->value_dim * 4)};
  }
  emit_weighted_rows(e, &rows, t, e->p->value_dim, output, decay);
}
