/* gpu/mma_walk: the ops of a tile program, one after the other, as code of a thread; see gpu/mma.h and tile/tile.h. */
#include "gpu/attention_backward.h"
#include "gpu/index.h"
#include "gpu/mma.h"
#include "mlir/arithmetic.h"

#include "base/diag.h"
#include "base/number.h"

#include "kernel/launch.h"

#include <math.h>

/* The least scale that is told from 0: a score that is masked stays -infinity times it. */
enum { PIECE = 16 };

static const double LEAST_SCALE = 0x1p-126;

/* ---- scores ---- */

/* i1: some query of the tile does not see some key of it, or the tile ends behind the last token. */
static ir_value is_partial(mma *m) {
  ir *b = m->b;
  bool owns_keys = m->p->owns_keys;
  ir_value first_query = owns_keys ? m->streamed_first : m->own_first,
           first_key = owns_keys ? m->own_first : m->streamed_first;
  int queries = mma_side_tokens(m, !owns_keys), keys = mma_side_tokens(m, owns_keys);
  ir_value limit = attend_limit_of(m->t, first_query);
  ir_value some_keys = less(b, limit, add(b, first_key, i32(b, keys)));
  if (!owns_keys) return some_keys; /* rows behind the last query are not stored */
  return ir_op2(b, "arith.ori", some_keys, less(b, m->t->tokens, add(b, first_query, i32(b, queries))));
}

static void fill_scores(mma *m, const tile_op *op, ir_value *score) {
  for (int i = 0; i < mma_registers(m, op->value); i++) {
    if (mma_repeats(m, mma_half(m, op->value, i))) {
      score[i] = score[i - 2];
      continue;
    }
    attend_pair_of of = mma_pair_of(m, op->value, i);
    score[i] = m->sum[op->arg[0]][i];
    if (mma_has_pairs(m)) score[i] = mma_scored(m, score[i], &of);
  }
}

/* Fills the scores one after the other, in a loop: always the first of a list that goes round, so that registers have
 * fixed numbers. */
static void fill_in_turn(mma *m, const tile_op *op, ir_value *score) {
  ir *b = m->b;
  int registers = mma_registers(m, op->value), count = 0, *place = arena_array(m->memory, int, registers);
  ir_value list[IR_MAX_RESULTS], now[IR_MAX_RESULTS], next[IR_MAX_RESULTS];
  for (int i = 0; i < registers; i++) {
    place[i] = mma_repeats(m, mma_half(m, op->value, i)) ? place[i - 2] : count++;
    list[place[i]] = m->sum[op->arg[0]][i];
  }
  ir_loop loop = ir_for_with(b, i64(b, 0), i64(b, count), count, list, now);
  two_float *remembered = emit_thread_remember(&m->t->exprs);
  attend_pair_of of = mma_pair_in_turn(m, op->value, narrow(b, loop.index));
  next[count - 1] = mma_scored(m, now[0], &of);
  for (int i = 1; i < count; i++) next[i - 1] = now[i];
  emit_thread_forget(&m->t->exprs, remembered);
  ir_end_for_with(b, loop, count, next, list);
  for (int i = 0; i < registers; i++) score[i] = list[place[i]];
}

/* By displacements that are one difference each, unless some token that the block has met is far. */
static void fill_near_scores(mma *m, const tile_op *op, const MlirType *types, ir_value *score) {
  ir *b = m->b;
  int registers = mma_registers(m, op->value);
  ir_value *exact = arena_array(m->memory, ir_value, registers);
  ir_value near = ir_compare_int(b, "eq", ir_load(b, b->i32, m->t->far, 4), i32(b, 0));
  ir_choice choice = ir_choose(b, near, registers, types);
  m->t->is_near = true;
  fill_scores(m, op, score);
  m->t->is_near = false;
  ir_choose_else(b, &choice, registers, score);
  fill_scores(m, op, exact);
  ir_end_choose(b, choice, registers, exact, score);
}

static void emit_score(mma *m, const tile_op *op) {
  ir *b = m->b;
  int registers = mma_registers(m, op->value);
  ir_value *score = m->sum[op->value] = arena_array(m->memory, ir_value, registers),
           *masked = arena_array(m->memory, ir_value, registers);
  MlirType *types = arena_array(m->memory, MlirType, registers);
  for (int i = 0; i < registers; i++) types[i] = b->f32;
  if (m->shape.loops) fill_in_turn(m, op, score);
  else if (m->t->far.ptr && (m->t->p->bias || m->t->p->score)) fill_near_scores(m, op, types, score);
  else fill_scores(m, op, score);
  ir_choice choice = ir_choose(b, is_partial(m), registers, types);
  ir_value hidden = ir_float(b, b->f32, -INFINITY);
  for (int i = 0; i < registers; i++) {
    if (mma_repeats(m, mma_half(m, op->value, i))) {
      masked[i] = masked[i - 2];
      continue;
    }
    attend_pair_of of = mma_pair_of(m, op->value, i);
    masked[i] = ir_select(b, mma_is_seen(m, &of), score[i], hidden);
  }
  ir_choose_else(b, &choice, registers, masked);
  ir_end_choose(b, choice, registers, score, score);
}

/* ---- weights ---- */

static void emit_online(mma *m, const tile_op *op) {
  ir *b = m->b;
  int registers = mma_registers(m, op->value), halves = m->shape.halves;
  const ir_value *score = m->sum[op->arg[0]];
  ir_value *weight = m->sum[op->value] = arena_array(m->memory, ir_value, registers);
  ir_value most[MMA_MOST_HALVES] = {{NULL}}, decay[MMA_MOST_HALVES];
  for (int i = 0; i < registers; i++) {
    if (mma_repeats(m, mma_half(m, op->value, i))) continue;
    ir_value *of_row = &most[mma_half(m, op->value, i)];
    *of_row = of_row->ptr ? ir_op2(b, "arith.maxnumf", *of_row, score[i]) : score[i];
  }
  for (int h = 0; h < halves; h++) {
    if (mma_repeats(m, h)) {
      decay[h] = decay[h - 1];
      continue;
    }
    most[h] = mma_row_maximum(m, most[h]);
    if (!mma_has_pairs(m)) most[h] = mul(b, most[h], m->scale);
    ir_value maximum = ir_op2(b, "arith.maxnumf", m->maximum[h], most[h]);
    decay[h] = mma_exp2(m, sub(b, m->maximum[h], maximum));
    m->maximum[h] = maximum;
    m->total[h] = mul(b, m->total[h], decay[h]);
  }
  for (int i = 0; i < registers; i++) {
    int h = mma_half(m, op->value, i);
    if (mma_repeats(m, h)) {
      weight[i] = weight[i - 2];
      continue;
    }
    weight[i] = mma_power(m, score[i], m->maximum[h]);
    m->total[h] = add(b, m->total[h], weight[i]);
  }
  for (int out = op->arg[1], i = 0; i < mma_registers(m, out); i++)
    m->sum[out][i] = mul(b, m->sum[out][i], decay[mma_half(m, out, i)]);
}

/* ---- rows that are stored ---- */

static void store_softmax(mma *m, const tile_op *op) {
  ir *b = m->b;
  ir_value zero = ir_float(b, b->f32, 0), one = ir_float(b, b->f32, 1), factor[MMA_MOST_HALVES];
  for (int h = 0; h < m->shape.halves; h++) {
    ir_value inverse = ir_op2(b, "arith.divf", one, m->total[h]);
    factor[h] = ir_select(b, ir_compare_float(b, "oeq", m->total[h], zero), zero, inverse);
  }
  mma_store_rows(m, op, factor);
  for (int h = 0; h < m->shape.halves; h++) {
    if (mma_repeats(m, h)) continue;
    ir_value row = mma_row_of(m, h), writes = ir_compare_int(b, "eq", m->quad, i32(b, 0));
    writes = both(b, writes, mma_has_own(m, row));
    attend_store_lse(m->t, writes, m->few ? mma_own_place(m, row).token : row, m->maximum[h], m->total[h]);
  }
}

static void store_rows(mma *m, const tile_op *op) {
  for (int h = 0; h < m->shape.halves; h++)
    m->total[h] = mma_repeats(m, h) ? m->total[h - 1] : mma_row_sum(m, m->total[h]);
  if (!m->few) {
    store_softmax(m, op);
    return;
  }
  ir_branch split = ir_if(m->b, mma_is_split(m));
  mma_store_state(m, op->arg[0]);
  ir_else(m->b, &split);
  store_softmax(m, op);
  ir_end_if(m->b, split);
}

/* ---- the loop ---- */

/* Values that go from turn to turn, as one list: sums that are added to, maxima and totals of rows. */
static int flatten(const mma *m, ir_value *list) {
  int count = 0;
  for (int v = 0; v < m->p->n_values; v++)
    if (m->p->value[v].columns != TILE_STREAMED && m->p->value[v].is_sum)
      for (int i = 0; i < mma_registers(m, v); i++) list[count++] = m->sum[v][i];
  for (int h = 0; h < m->shape.halves; h++) list[count++] = m->maximum[h];
  for (int h = 0; h < m->shape.halves; h++) list[count++] = m->total[h];
  return count;
}

static void unflatten(mma *m, const ir_value *list) {
  for (int v = 0; v < m->p->n_values; v++)
    if (m->p->value[v].columns != TILE_STREAMED && m->p->value[v].is_sum)
      for (int i = 0; i < mma_registers(m, v); i++) m->sum[v][i] = *list++;
  for (int h = 0; h < m->shape.halves; h++) m->maximum[h] = *list++;
  for (int h = 0; h < m->shape.halves; h++) m->total[h] = *list++;
}

static void begin_sums(mma *m) {
  ir *b = m->b;
  for (int v = 0; v < m->p->n_values; v++) {
    if (m->p->value[v].columns == TILE_STREAMED || !m->p->value[v].is_sum) continue;
    m->sum[v] = arena_array(m->memory, ir_value, mma_registers(m, v));
    for (int i = 0; i < mma_registers(m, v); i++) m->sum[v][i] = ir_float(b, b->f32, 0);
  }
  ir_value maximum, total;
  mma_begin_softmax(m, ir_compare_int(b, "eq", m->quad, i32(b, 0)), &maximum, &total);
  for (int h = 0; h < m->shape.halves; h++) {
    m->maximum[h] = maximum;
    m->total[h] = total;
  }
}

/* Whether any sum that the block stores is not finite: i1, the same of all its threads. */
static ir_value is_spoilt(mma *m) {
  ir *b = m->b;
  ir_value zero = ir_float(b, b->f32, 0), list[IR_MAX_RESULTS], sum = zero;
  int count = flatten(m, list) - 2 * m->shape.halves;
  for (int i = 0; i < count; i++) sum = ir_fma(b, list[i], zero, sum);
  ir_branch found = ir_if(b, ir_compare_float(b, "une", sum, zero));
  ir_store(b, i32(b, 1), m->t->spoilt, 4, false);
  ir_end_if(b, found);
  ir_wait(b, IR_BARRIER_BLOCK);
  return ir_compare_int(b, "ne", ir_load(b, b->i32, m->t->spoilt, 4), i32(b, 0));
}

/* The streamed tiles that own rows see: [*begin, *end). */
static void range(mma *m, ir_value *begin, ir_value *end) {
  ir *b = m->b;
  int streamed = m->shape.tile.streamed;
  if (!m->p->owns_keys) {
    *begin = i32(b, 0);
    *end = quotient_up(b, attend_end_of_keys(m->t), streamed);
    if (m->few) mma_range_of_chunk(m, begin, end);
    return;
  }
  /* With a causal mask the first query that sees the first key of its own is key - (keys - tokens). */
  ir_value first = sub(b, m->own_first, sub(b, m->t->keys, m->t->tokens)), none = i32(b, 0);
  ir_value causal = ir_compare_int(b, "ne", m->t->parameter[PEGEN_PTX_ATTENTION_CAUSAL], i64(b, 0));
  first = ir_select(b, both(b, causal, less(b, none, first)), first, none);
  *begin = quotient(b, first, streamed);
  *end = quotient_up(b, m->t->tokens, streamed);
}

static void emit_wait(mma *m) {
  ir_copy_commit(m->b);
  ir_copy_wait(m->b, 0);
  ir_wait(m->b, IR_BARRIER_BLOCK);
}

static bool is_streamed_load(const mma *m, const tile_op *op) {
  return op->kind == TILE_LOAD && m->p->value[op->value].rows == TILE_STREAMED;
}

/* Streamed tiles of this turn, from op `i` on: before the first turn, or where memory has one stage. Gives the op
 * behind them. */
static int load_tiles(mma *m, int i) {
  for (; m->p->op[i].kind == TILE_LOAD; i++)
    if (is_streamed_load(m, &m->p->op[i])) mma_load(m, &m->p->op[i]);
  mma_lay_tokens(m, false, m->streamed_first, m->stage);
  return i;
}

/* Whether tiles are loaded a turn ahead: behind the first wait of a turn. */
static bool is_ahead(const mma *m, int each) { return m->p->op[each + 2].ahead; }

/* Tiles of the turn to come, where there is one; of columns at the end of the turn. */
static int load_next(mma *m, int i, ir_value end) {
  ir *b = m->b;
  ir_value next = add(b, m->streamed_first, i32(b, m->shape.tile.streamed));
  ir_branch more = ir_if(b, less(b, next, scaled(b, end, m->shape.tile.streamed)));
  for (; m->p->op[i].kind == TILE_LOAD; i++)
    if (!tile_is_of_columns(m->p->op[i].tensor)) mma_copy(m, &m->p->op[i]);
  mma_lay_tokens(m, false, next, sub(b, i32(b, 1), m->stage));
  ir_end_if(b, more);
  mma_set_side(m, false, m->stage);
  return i;
}

/* What columns of the turn to come are made of, whether there is one or not: a product hides how long that takes. */
static mma_asked ask_next(mma *m, int each) {
  ir *b = m->b;
  int i = each + 1;
  while (!tile_is_of_columns(m->p->op[i].tensor)) i++;
  ir_value next = add(b, m->streamed_first, i32(b, m->shape.tile.streamed)), stage = sub(b, i32(b, 1), m->stage);
  return mma_ask_columns(m, &m->p->op[i], next, stage);
}

static void emit_product(mma *m, const tile_op *op) {
  int registers = mma_registers(m, op->value);
  if (!op->adds) {
    m->sum[op->value] = arena_array(m->memory, ir_value, registers);
    for (int i = 0; i < registers; i++) m->sum[op->value][i] = ir_float(m->b, m->b->f32, 0);
  }
  m->machine->product(m, op);
}

static void emit_op(mma *m, const tile_op *op) {
  switch (op->kind) {
  case TILE_MMA: emit_product(m, op); break;
  case TILE_ROTATED_PRODUCT:
  case TILE_ROTATED_SUM: mma_rotate(m, op); break;
  case TILE_SCORE: emit_score(m, op); break;
  case TILE_ONLINE: emit_online(m, op); break;
  case TILE_WAIT: emit_wait(m); break;
  case TILE_WEIGHT: mma_weight(m, op); break;
  case TILE_GAIN: mma_gain(m, op); break;
  case TILE_GIVE: mma_give(m, op); break;
  default: diag_bug("gpu_mma", "no code for %s", tile_kind_name(op->kind));
  }
}

/* The turns of one head of q, from the sums that there are on. */
static void emit_turns(mma *m, int each, ir_value begin, ir_value end) {
  ir *b = m->b;
  ir_value list[IR_MAX_RESULTS], inside[IR_MAX_RESULTS];
  mma_set_turn(m, begin);
  bool ahead = is_ahead(m, each);
  ir_branch some = ir_if(b, less(b, begin, end));
  if (ahead) load_tiles(m, 0);
  ir_end_if(b, some);
  int count = flatten(m, list);
  ir_loop loop = ir_for_with(b, wide(b, begin), wide(b, end), count, list, inside);
  unflatten(m, inside);
  mma_set_turn(m, narrow(b, loop.index));
  mma_asked columns;
  for (int i = each + 1; m->p->op[i].kind != TILE_END;)
    if (m->p->op[i].kind == TILE_LOAD) i = ahead ? load_next(m, i, end) : load_tiles(m, i);
    else {
      bool is_last = m->p->op[i + 1].kind == TILE_END;
      if (m->shape.tile.parts && ahead && is_last) columns = ask_next(m, each);
      emit_op(m, &m->p->op[i++]);
    }
  if (m->shape.tile.parts && ahead) mma_lay_columns(m, &columns);
  flatten(m, inside);
  ir_end_for_with(b, loop, count, inside, list);
  unflatten(m, list);
}

/* Emits the turns of all heads of q that the block's own rows meet. Rows of queries meet their own head, and rows of
 * keys all heads that share them. */
static void emit_heads(mma *m, int each, ir_value begin, ir_value end) {
  ir *b = m->b;
  ir_value list[IR_MAX_RESULTS], inside[IR_MAX_RESULTS];
  begin_sums(m);
  mma_clear_rotated(m);
  if (!m->p->owns_keys) {
    mma_narrow_range(m, &begin, &end);
    mma_begin_gives(m, ir_int(b, b->i1, 1));
    emit_turns(m, each, begin, end);
    mma_end_gives(m);
    mma_add_rotated(m);
    return;
  }
  int count = flatten(m, list);
  ir_value first = m->q_head;
  ir_loop heads = ir_for_with(b, i64(b, 0), wide(b, mma_heads_met(m)), count, list, inside);
  unflatten(m, inside);
  two_float *remembered = emit_thread_remember(&m->t->exprs);
  mma_set_q_head(m, add(b, first, narrow(b, heads.index)));
  mma_narrow_range(m, &begin, &end);
  mma_begin_gives(m, ir_compare_int(b, "eq", heads.index, i64(b, 0)));
  emit_turns(m, each, begin, end);
  ir_wait(b, IR_BARRIER_BLOCK); /* all have read the last tiles, which the next head's first ones replace */
  emit_thread_forget(&m->t->exprs, remembered);
  flatten(m, inside);
  ir_end_for_with(b, heads, count, inside, list);
  unflatten(m, list);
  m->q_head = first;
  mma_add_rotated(m);
}

static void emit_stores(mma *m, int each) {
  for (int i = each; i < m->p->n_ops; i++)
    if (m->p->op[i].kind == TILE_STORE) (m->gradient ? mma_store_gradient : store_rows)(m, &m->p->op[i]);
}

/* All turns, and what they come to; where something that is not finite came into sums, all of it once more, one row a
 * thread. */
static void emit_each(mma *m, int each) {
  ir_value begin, end;
  range(m, &begin, &end);
  emit_heads(m, each, begin, end);
  if (!mma_row_bytes(m)) return; /* no row gains */
  ir_branch again = ir_if(m->b, is_spoilt(m));
  mma_walk_rows(m, each, begin, end);
  ir_else(m->b, &again);
  emit_stores(m, each);
  ir_end_if(m->b, again);
}

/* ---- the beginning ---- */

/* The value that own rows of the first product are. */
static const tile_op *first_product(const mma *m) {
  for (int i = 0; i < m->p->n_ops; i++)
    if (m->p->op[i].kind == TILE_MMA) return &m->p->op[i];
  diag_bug("gpu_mma", "%s has no product", m->p->name);
}

/* Own rows of the first product times -1, where the scale is negative: maxima of products are those of scores then. */
static void flip_rows(mma *m, int value, ir_value negative) {
  ir *b = m->b;
  int words = mma_width(m, value) * m->machine->element / 4, rows = m->shape.tile.own, pitch = mma_pitch_of(m, value);
  ir_branch branch = ir_if(b, negative);
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, (int64_t)rows * words / PEGEN_PTX_BLOCK));
  ir_value index = add(b, m->t->thread, scaled(b, narrow(b, loop.index), PEGEN_PTX_BLOCK));
  ir_value at = add(b, scaled(b, quotient(b, index, words), pitch), scaled(b, rest(b, index, words), 4));
  ir_value word = ir_offset(b, m->memory_of[value], wide(b, at));
  ir_store(b, ir_op2(b, "arith.xori", ir_load(b, b->i32, word, 4), i32(b, m->machine->negative)), word, 4, false);
  ir_end_for(b, loop);
  ir_end_if(b, branch);
}

static void begin_rows(mma *m, int each) {
  ir *b = m->b;
  const tile_op *product = first_product(m);
  for (int i = 0; i < each; i++)
    if (!is_streamed_load(m, &m->p->op[i]) && !mma_lies(m, m->p->op[i].value)) mma_load(m, &m->p->op[i]);
  mma_lay_tokens(m, true, m->own_first, i32(b, 0));
  mma_clear_padding(m);
  emit_wait(m);
  if (!mma_has_pairs(m)) {
    ir_value zero = ir_float(b, b->f32, 0), scale = attend_scale(m->t);
    flip_rows(m, product->arg[0], ir_compare_float(b, "olt", scale, zero));
    ir_wait(b, IR_BARRIER_BLOCK);
  }
  if (m->shape.holds_own) mma_hold(m, product);
  if (m->gradient && !m->p->owns_keys) mma_own_facts(m);
}

static ir_value scale_of(mma *m) {
  ir *b = m->b;
  ir_value scale = attend_scale(m->t);
  if (mma_has_pairs(m)) return scale;
  return ir_op2(b, "arith.maxnumf", ir_op1(b, "math.absf", scale), ir_float(b, b->f32, LEAST_SCALE));
}

/* Tiles of one side, of rows or of columns, from byte `at` on; gives where they end. Nothing stands behind the last
 * row's numbers. */
static int64_t lay_tiles(mma *m, ir_value base, tile_space side, bool columns, int64_t at) {
  for (int v = 0; v < m->p->n_values; v++) {
    const tile_value *value = &m->p->value[v];
    if (value->is_sum || value->rows != side || (value->columns == TILE_PARTS) != columns || mma_lies(m, v)) continue;
    if (base.ptr) m->memory_of[v] = ir_offset_const(m->b, base, at);
    at += (int64_t)value->stages * tile_size(&m->shape.tile, value->rows) * mma_pitch_of(m, v) - PIECE;
  }
  return at;
}

/* Dynamic shared memory: tiles, coordinates and numbers of own tokens and of two streamed tiles', and a word. */
static int64_t lay_out(mma *m, ir_value base) {
  int64_t own = lay_tiles(m, base, TILE_OWN, false, 0), at = lay_tiles(m, base, TILE_STREAMED, false, own),
          scratch = mma_scratch_bytes(m);
  if (base.ptr) {
    m->sums_of = base;
    m->scratch_of = ir_offset_const(m->b, base, own);
  }
  if (at < own + scratch) at = own + scratch;
  if (at < mma_row_bytes(m)) at = mma_row_bytes(m);
  at = lay_tiles(m, base, TILE_OWN, true, at);
  at = lay_tiles(m, base, TILE_STREAMED, true, at);
  for (int own = 0; own < 2; own++) {
    int64_t places = mma_place_bytes(m, own), numbers = mma_number_bytes(m, own), stages = own ? 1 : 2;
    if (base.ptr && places) m->places_of[own] = ir_offset_const(m->b, base, at);
    at += places * stages;
    if (base.ptr && numbers) m->numbers_of[own] = ir_offset_const(m->b, base, at);
    at += numbers * stages;
  }
  if (base.ptr) m->seen_of = ir_offset_const(m->b, base, at);
  at += mma_seen_bytes(m);
  if (base.ptr) m->facts_of = ir_offset_const(m->b, base, at);
  at += 2 * mma_fact_bytes(m);
  if (base.ptr && mma_constant_bytes(m)) m->t->constants = ir_offset_const(m->b, base, at);
  at += mma_constant_bytes(m);
  at = (at + 15) / 16 * 16;
  if (base.ptr) m->given_of = ir_offset_const(m->b, base, at);
  at += mma_give_bytes(m);
  at = (at + 15) / 16 * 16;
  if (base.ptr) m->rotated_of = ir_offset_const(m->b, base, at);
  at += mma_rotated_bytes(m);
  if (base.ptr && m->shape.tile.parts) m->t->origin = ir_offset_const(m->b, base, at);
  at += mma_origin_bytes(m);
  if (base.ptr) m->t->spoilt = ir_offset_const(m->b, base, at);
  if (base.ptr && m->places_of[0].ptr && m->machine->rounds) m->t->far = ir_offset_const(m->b, base, at + 4);
  return at + 16;
}

/* Instructions of an elementary function that is not a fast one. */
enum { LONG_FUNCTION = 60 };

/* What of a pair's expressions has been seen: by node, outside of what jumps and below it. */
typedef struct pair_functions {
  bool *seen[2];
  int elementary; /* functions, quotients and roots */
  bool jumps; /* some are below a rounding, a place or a comparison, and must not be a unit of the last place off */
} pair_functions;

static void find_functions(pair_functions *f, const expr *x, bool below) {
  if (f->seen[below][x->id]) return;
  f->seen[below][x->id] = true;
  if (expr_op_is_elementary(x->op) || x->op == EXPR_DIV || x->op == EXPR_SQRT) {
    f->elementary += x->terms ? x->terms : 1;
    f->jumps = f->jumps || below;
  }
  bool jump = x->op == EXPR_FLOOR || expr_op_is_lookup(x->op) || x->op == EXPR_ROUND32 || x->op == EXPR_LESS;
  for (int i = 0; i < expr_op_arity(x->op); i++)
    find_functions(f, x->arg[i], below || jump || (x->op == EXPR_SELECT && i == 0));
}

static pair_functions functions_of(arena *a, const attention_plan *p) {
  const expr *roots[] = {p->bias, p->score, p->gain};
  pair_functions f = {.elementary = 0};
  for (int i = 0; i < 2; i++) f.seen[i] = arena_array(a, bool, expr_pool_count(p->spec->pool));
  for (int i = 0; i < 3; i++)
    if (roots[i]) find_functions(&f, roots[i], false);
  return f;
}

static int operations_of(arena *a, const attention_plan *p, bool rounds) {
  pair_functions f = functions_of(a, p);
  return p->own_operations + (attend_has_places(p) ? 2 * p->n_places : 0) +
         (f.jumps || !rounds ? LONG_FUNCTION * f.elementary : 0);
}

static int find_each(const tile_program *p) {
  for (int i = 0; i < p->n_ops; i++)
    if (p->op[i].kind == TILE_EACH) return i;
  diag_bug("gpu_mma", "%s has no loop", p->name);
}

static void set_thread(mma *m) {
  ir *b = m->b;
  attend *t = m->t;
  m->warp = quotient(b, t->thread, 32);
  m->lane = rest(b, t->thread, 32);
  m->group = quotient(b, m->lane, 4);
  m->quad = rest(b, m->lane, 4);
  t->tokens = attend_short_parameter(t, PEGEN_PTX_ATTENTION_TOKENS);
  t->keys = attend_short_parameter(t, PEGEN_PTX_ATTENTION_KEYS);
  t->shape.queries = m->shape.tile.own; /* what tiles of all heads are cut by */
}

/* Tile `item` (i32) of those that blocks own. */
static void set_tile(mma *m, ir_value item) {
  ir *b = m->b;
  attend *t = m->t;
  if (m->few) {
    mma_set_few(m);
    return;
  }
  bool owns_keys = m->p->owns_keys, of_k = owns_keys && !m->turns_by_head;
  ir_value heads = attend_short_parameter(t, PEGEN_PTX_ATTENTION_HEADS);
  ir_value group = attend_short_parameter(t, PEGEN_PTX_ATTENTION_GROUP);
  if (of_k) heads = ir_op2(b, "arith.divui", heads, group);
  ir_value head = attend_set_tile(t, item, owns_keys ? t->keys : t->tokens, heads, !owns_keys);
  m->own_first = t->first;
  m->q_head = of_k ? mul(b, head, group) : head;
  m->k_head = of_k ? head : ir_op2(b, "arith.divui", head, group);
  t->head = m->q_head;
}

static void emit_program(mma *m) {
  ir *b = m->b;
  int each = find_each(m->p);
  attend_clear_spoilt(m->t);
  m->scale = scale_of(m);
  if (m->t->far.ptr) {
    ir_branch one = ir_if(b, ir_compare_int(b, "eq", m->t->thread, i32(b, 0)));
    ir_store(b, i32(b, 0), m->t->far, 4, false);
    ir_end_if(b, one);
    ir_wait(b, IR_BARRIER_BLOCK); /* tokens that are laid may set it */
  }
  if (m->places_of[0].ptr)
    attend_find_origin(m->t, m->p->owns_keys ? PEGEN_PTX_ATTENTION_KEY_POSITIONS : PEGEN_PTX_ATTENTION_POSITIONS,
                       m->own_first, m->shape.tile.own, m->origin);
  mma_begin_columns(m);
  begin_rows(m, each);
  if (!m->p->owns_keys) mma_set_q_head(m, m->q_head);
  emit_each(m, each);
}

/* A run of tiles a block, where warps sum what operands gain; else one. */
static void emit_tiles(mma *m) {
  ir *b = m->b;
  if (!mma_gives_operands(m)) {
    set_tile(m, m->t->block);
    emit_program(m);
    return;
  }
  mma_clear_elements(m);
  ir_value each = m->gradient[PEGEN_PTX_ATTENTION_EACH], begin = mul(b, wide(b, m->t->block), each);
  ir_loop loop = ir_for(b, begin, smaller(b, add(b, begin, each), m->gradient[PEGEN_PTX_ATTENTION_ITEMS]));
  two_float *remembered = emit_thread_remember(&m->t->exprs);
  set_tile(m, narrow(b, loop.index));
  emit_program(m);
  emit_thread_forget(&m->t->exprs, remembered);
  ir_wait(b, IR_BARRIER_BLOCK); /* memory is free for the next */
  ir_end_for(b, loop);
}

void gpu_emit_mma(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  const attend_design *design = program->plan;
  mma_kind kind = (mma_kind)(entry->kind - GPU_MMA); /* ORDER mma_kind */
  const mma_plan *plan = entry->mma;
  attend t = {.b = b, .memory = a, .p = plan->p, .entry = entry};
  mma m = {.t = &t, .b = b, .memory = a, .machine = plan->machine, .p = plan->program, .shape = plan->shape};
  m.is_bf16 = entry->dtype == NUMBER_BF16;
  m.turns_by_head = kind != MMA_FEW && attend_turns_by_head(design->p) && !mma_gives_alone(plan);
  m.turns_values = design->p->turns_values;
  static const int behind[MMA_KIND_COUNT] = {[MMA_FEW] = PEGEN_PTX_FEW_COUNT,
                                             [MMA_QUERIES] = PEGEN_PTX_ATTENTION_GRADIENT_COUNT,
                                             [MMA_KEYS] = PEGEN_PTX_ATTENTION_GRADIENT_COUNT,
                                             [MMA_VALUES] = PEGEN_PTX_ATTENTION_GRADIENT_COUNT,
                                             [MMA_QUERIES_GAINS] = PEGEN_PTX_ATTENTION_GRADIENT_COUNT,
                                             [MMA_KEYS_GAINS] = PEGEN_PTX_ATTENTION_GRADIENT_COUNT};
  int count = program->attention->n_parameters, more = behind[kind];
  gpu_function f = gpu_open_function(b, a, entry->name, count + more, entry->blocks, host);
  t.parameter = f.parameter;
  if (kind == MMA_FEW) m.few = f.parameter + count;
  else if (more) m.gradient = f.parameter + count;
  t.block = f.block;
  t.thread = f.thread;
  mma_set_columns(&m, m.shape.scratch); /* the lanes that the plan chose: no fewer have room there */
  const char *name = arena_printf(a, "%s_memory", entry->name);
  ir_shared_dynamic(b, name, m.shape.shared);
  lay_out(&m, ir_shared_address(b, name));
  set_thread(&m);
  attend_set_emitters(&t, native);
  /* A column is larger than the bias, and its weights are exact. */
  if (m.machine->rounds && !t.p->columns && !functions_of(a, t.p).jumps) t.exprs.walker.machine = &expr_of_fast_threads;
  emit_tiles(&m);
  ir_return(b);
}

/* ---- plans ---- */

enum { MOST_SHARED = 227 << 10, MOST_HELD = 32, MOST_CODE = 700 };

/* Blocks of tensor cores have half of sm_90's memory where they can: one computes while the other waits. */
enum { HALF_SHARED = (227 << 9) - (1 << 10) };

/* Rows lie beside what makes queries' columns. */
static int64_t columns_room(int64_t most_shared) {
  enum { MOST = 48 << 10 };
  return most_shared * 5 / 8 < MOST ? most_shared * 5 / 8 : MOST;
}

static int whole_steps(int width) { return (width + MMA_INNER - 1) / MMA_INNER * MMA_INNER; }

static bool has_gains(const tile_program *p) {
  for (int i = 0; i < p->n_ops; i++)
    if (p->op[i].kind == TILE_GAIN) return true;
  return false;
}

/* Multiply-adds that a thread's code has of sums over streamed rows, whose weights are in registers. */
static int unrolled(const mma *m) {
  int count = 0, rows = mma_repeats(m, 1) && m->shape.halves > 1 ? m->shape.halves / 2 : m->shape.halves;
  for (int i = 0; i < m->p->n_ops; i++) {
    const tile_op *op = &m->p->op[i];
    if (op->kind == TILE_MMA && !op->transposed)
      count += rows * m->shape.tile.streamed * mma_width(m, op->value) / MMA_LANES;
  }
  return count;
}

static bool fits(mma *m, const gpu_target *chip, int64_t most_shared) {
  const attention_plan *p = m->t->p;
  int registers = 0, pairs = m->shape.halves * m->shape.tile.streamed / MMA_LANES;
  for (int v = 0; v < m->p->n_values; v++)
    if (m->p->value[v].is_sum && m->p->value[v].columns != TILE_STREAMED) registers += mma_registers(m, v);
  registers += has_gains(m->p) ? 2 * pairs : pairs; /* weights, and what they gain */
  if (p->matrix) registers += pairs + mma_rotated_registers(m); /* pairs go round in a loop */
  if (!mma_set_columns(m, columns_room(most_shared))) return false;
  m->shape.shared = lay_out(m, (ir_value){NULL});
  if (m->p->owns_group && m->shape.halves > 1) pairs /= 2;
  if (m->machine->unrolled && unrolled(m) > m->machine->unrolled) return false;
  bool is_long = pairs * operations_of(m->memory, p, m->machine->rounds) > MOST_CODE;
  m->shape.loops = is_long && !m->machine->rounds;
  return registers <= chip->registers && m->shape.shared <= most_shared && (!is_long || m->shape.loops);
}

/* What plans of a description on a chip are made from. */
typedef struct mma_choice {
  const attention_plan *p;
  const gpu_target *chip;
  const mma_machine *machine;
} mma_choice;

/* The first size that registers, shared memory and the length of code allow. Tensor cores are content with half of the
 * memory where that does, and may have more than every chip. like: own rows of tiles are as many; NULL: whatever
 * fits. */
static const mma_plan *plan_of(arena *a, const mma_choice *of, const tile_program *program, bool reverses,
                               const mma_plan *like) {
  static const ir_value none;
  mma_plan *plan = arena_new(a, mma_plan);
  const attention_plan *p = plan->p = of->p;
  const mma_machine *machine = plan->machine = of->machine;
  const tile_program *apart = tile_apart(a, program), *staged[] = {tile_in_turn(a, apart), tile_pipeline(a, apart)};
  attend t = {.memory = a, .p = p};
  for (int n = 0; n < 2 * MMA_MOST_SIZES; n++) {
    mma_size size = machine->size[n % MMA_MOST_SIZES];
    if (!size.halves || (program->owns_group && size.halves != machine->few)) continue;
    if (like && size.halves != like->shape.halves) continue;
    plan->program = staged[size.stages - 1];
    mma m = {.t = &t, .memory = a, .machine = machine, .p = plan->program, .gradient = reverses ? &none : NULL};
    m.shape.halves = size.halves;
    m.shape.lies = size.lies;
    m.shape.tile = (tile_shape){.own = size.halves * MMA_HALF * MMA_WARPS,
                                .streamed = size.streamed,
                                .channels = whole_steps(p->head_dim),
                                .values = whole_steps(p->value_dim),
                                .parts = mma_parts(p, machine)};
    m.shape.holds_own = machine->holds && !reverses && size.halves * m.shape.tile.channels / MMA_INNER * 2 <= MOST_HELD;
    int64_t shared = machine->rounds ? n < MMA_MOST_SIZES ? HALF_SHARED : MOST_SHARED : of->chip->shared;
    if (!fits(&m, of->chip, shared)) continue;
    plan->shape = m.shape;
    return plan;
  }
  return NULL;
}

static const mma_plan *reversed_plan(arena *a, const mma_choice *of, const tile_program *forward, unsigned gained) {
  return plan_of(a, of, tile_reverse(a, forward, gained), true, NULL);
}

bool mma_gives_alone(const mma_plan *plan) {
  for (int i = 0; i < plan->program->n_ops; i++)
    if (plan->program->op[i].kind == TILE_STORE) return false;
  return true;
}

static bool stores(const tile_program *p, tile_tensor tensor) {
  for (int i = 0; i < p->n_ops; i++)
    if (p->op[i].kind == TILE_STORE && p->op[i].tensor == tensor) return true;
  return false;
}

/* The program of rows with what gains by pairs beside them. */
static const mma_plan *gains_plan(arena *a, const mma_choice *of, const mma_plan *like, const tile_program *forward,
                                  bool of_keys, bool takes_caller_rows) {
  const attention_plan *p = of->p;
  unsigned gained = p->n_sums ? TILE_OF_TOKENS : 0;
  bool gains = p->columns ? p->weights && attend_weights_fit(p) : attend_gaining_of_pairs(p) != 0;
  if (!of_keys && gains) gained |= TILE_OF_OPERANDS;
  if (!like || !gained) return NULL;
  static const struct {
    unsigned gained;
    tile_tensor stored;
  } sides[] = {{TILE_OF_QUERIES, TILE_G_Q}, {TILE_OF_KEYS, TILE_G_K}, {TILE_OF_VALUES, TILE_G_V}};
  unsigned rows = 0;
  for (int i = 0; i < 3; i++)
    if (stores(like->program, sides[i].stored)) rows |= sides[i].gained;
  const mma_plan *plan = NULL;
  bool with_rows = like->p->matrix == p->matrix;
  if (with_rows) plan = plan_of(a, of, tile_reverse(a, forward, gained | rows), true, like);
  /* Where rows gain by turned ones, or there is no room for both, they do so in an entry of theirs. */
  unsigned side = of_keys ? TILE_OF_KEYS : TILE_OF_QUERIES;
  if (!plan && takes_caller_rows)
    plan = plan_of(a, of, tile_reverse(a, forward, gained | side | TILE_ALONE), true, NULL);
  /* Or by tiles of fewer rows. */
  if (!plan && with_rows) plan = plan_of(a, of, tile_reverse(a, forward, gained | rows), true, NULL);
  return plan;
}

const mma_plan *mma_plan_of(arena *a, const attention_plan *described, const gpu_target *chip,
                            const mma_machine *machine, mma_kind kind) {
  bool gives = kind == MMA_QUERIES_GAINS || kind == MMA_KEYS_GAINS;
  /* Torques are of rows as they are. */
  const attention_plan *p = gives && described->torques ? described : attend_plan_of_products(a, described);
  mma_choice of = {p, chip, machine};
  if (kind == MMA_FEW && (p->matrix || attend_has_columns(p))) return NULL;
  const tile_program *forward = tile_forward(a, attend_has_columns(p));
  if (p->sink) forward = tile_sunk(a, forward);
  if (p->matrix) forward = tile_rotated(a, forward);
  if (p != described) forward = tile_turned(a, forward, described->turns_values);
  if (kind == MMA_FORWARD) return plan_of(a, &of, forward, false, NULL);
  if (kind == MMA_FEW) return plan_of(a, &of, tile_few(a, forward), false, NULL);
  if (gives) {
    bool of_keys = kind == MMA_KEYS_GAINS;
    const mma_plan *like = mma_plan_of(a, described, chip, machine, of_keys ? MMA_KEYS : MMA_QUERIES);
    return gains_plan(a, &of, like, forward, of_keys, p == described);
  }
  if (kind == MMA_QUERIES) return reversed_plan(a, &of, forward, TILE_OF_QUERIES);
  const mma_plan *both = reversed_plan(a, &of, forward, TILE_OF_KEYS | TILE_OF_VALUES);
  if (both) return kind == MMA_KEYS ? both : NULL;
  const mma_plan *keys = reversed_plan(a, &of, forward, TILE_OF_KEYS),
                 *values = reversed_plan(a, &of, forward, TILE_OF_VALUES);
  if (!keys || !values) return NULL;
  return kind == MMA_KEYS ? keys : values;
}
