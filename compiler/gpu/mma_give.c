/* gpu/mma_give: what scores gain goes on to what they read beside products; see gpu/mma.h and tile/reverse.c.
 *
 * A warp lays what its pairs gain in shared memory, as they stand in the tile, and then walks over its own rows: a lane
 * has one row, or the second half of its columns. So nothing here asks how a machine spreads a tile over registers.
 *
 * Where an element stands by itself (a slope), a thread sums what its pairs give it in two-float arithmetic, from tile
 * to tile in shared memory, and a warp's threads are added up in order behind the last tile. Where a place is computed
 * (a table of displacements), a warp lays 32 gains and their places side by side, and each of its lanes goes through
 * all of them in order and takes those whose place is its own: places are dealt out to lanes by their last five bits. A
 * warp's sums of elements are its own, in memory that no other touches. What an own token's coordinates and numbers
 * gain is summed along its row, and added to the token's share by one lane.
 */
#include "gpu/index.h"
#include "gpu/mma.h"

#include "kernel/launch.h"

enum { WARP = 32, NUMBER = TWO_FLOAT_BYTES, NOWHERE = -1, MOST_TOGETHER = 16 };

static unsigned given(const mma *m) {
  for (int i = 0; i < m->p->n_ops; i++)
    if (m->p->op[i].kind == TILE_GIVE) return m->p->op[i].to;
  return 0;
}

bool mma_gives_operands(const mma *m) { return given(m) & TILE_OF_OPERANDS; }

static bool is_placed(const adjoint_scatter *s) { return s->leaf->op == EXPR_ELEMENT; }

/* Operands' elements that stand by themselves. */
static int n_single(const attention_plan *p) {
  int count = 0;
  for (int i = 0; i < p->n_scatters; i++) count += !is_placed(&p->scatter[i]);
  return count;
}

static ir_value has_address(mma *m, int parameter) {
  return ir_compare_int(m->b, "ne", m->gradient[parameter], i64(m->b, 0));
}

/* ---- shared memory: gains of scores, products, a warp's places, sums of elements ---- */

static int pitch_of(const mma *m) { return m->shape.tile.streamed + 1; }

static int64_t tile_bytes(const mma *m) { return 4LL * m->shape.tile.own * pitch_of(m); }

static int64_t tiles_bytes(const mma *m) { return (tile_bytes(m) * (m->t->p->score ? 2 : 1) + 7) / 8 * 8; }

int64_t mma_give_bytes(const mma *m) {
  if (!given(m)) return 0;
  return tiles_bytes(m) + (mma_gives_operands(m) ? (int64_t)NUMBER * PEGEN_PTX_BLOCK * (1 + n_single(m->t->p)) : 0);
}

/* What a pair of the tile gains (0), or its product (1). */
static ir_value pair_at(mma *m, int which, ir_value row, ir_value column) {
  ir *b = m->b;
  ir_value index = add(b, scaled(b, row, pitch_of(m)), column);
  return ir_offset(b, ir_offset_const(b, m->given_of, which * tile_bytes(m)), wide(b, scaled(b, index, 4)));
}

/* A number of each thread of the block: what is dealt out (0), sums behind it. */
static ir_value number_at(mma *m, int number, ir_value thread) {
  ir *b = m->b;
  ir_value first = ir_offset_const(b, m->given_of, tiles_bytes(m) + (int64_t)number * NUMBER * PEGEN_PTX_BLOCK);
  return ir_offset(b, first, wide(b, scaled(b, thread, NUMBER)));
}

static void lay_gains(mma *m, const tile_op *op) {
  ir *b = m->b;
  for (int i = 0, value = op->arg[0]; i < mma_registers(m, value); i++) {
    ir_value row = mma_row_of(m, mma_half(m, value, i)), column = mma_column(m, value, i),
             delta = mma_delta_of(m, value, i);
    ir_value gained = mma_score_gain(m, m->sum[value][i], m->sum[op->arg[1]][i], delta);
    ir_store(b, gained, pair_at(m, 0, row, column), 4, false);
    if (m->t->p->score) ir_store(b, m->sum[op->arg[2]][i], pair_at(m, 1, row, column), 4, false);
  }
}

/* ---- a lane's pairs ---- */

static int warp_rows(const mma *m) { return m->shape.row_tiles * MMA_ROWS; }

/* Lanes that share a row's columns. */
static int lanes_of_row(const mma *m) { return WARP / warp_rows(m); }

static ir_value lane_row(mma *m) {
  ir *b = m->b;
  ir_value first = scaled(b, m->warp, warp_rows(m));
  return add(b, first, rest(b, m->lane, warp_rows(m)));
}

static ir_value n_columns(mma *m) { return i64(m->b, m->shape.tile.streamed / lanes_of_row(m)); }

typedef struct lane_pair {
  ir_value gained;
  two_float cotangent, *remembered;
} lane_pair;

/* The lane's pair number `index` (i64): expressions' leaves are its own, up to close_pair. */
static void open_pair(mma *m, ir_value index, lane_pair *pair) {
  ir *b = m->b;
  ir_value zero = ir_float(b, b->f32, 0), row = lane_row(m), product = {NULL};
  ir_value part = quotient(b, m->lane, warp_rows(m));
  ir_value column = add(b, scaled(b, part, m->shape.tile.streamed / lanes_of_row(m)), narrow(b, index));
  mma_place own = mma_own_place(m, row), streamed = {column, add(b, m->streamed_first, column)};
  attend_pair_of of = mma_pair(m, own, streamed);
  ir_value encoded = attend_encoded(m->t, of.query_token, of.key_token), counts = mma_has_own(m, row);
  if (encoded.ptr) counts = both(b, counts, encoded);
  pair->gained = ir_select(b, counts, ir_load(b, b->f32, pair_at(m, 0, row, column), 4), zero);
  pair->cotangent = two_float_f32(pair->gained);
  if (m->t->p->score) product = ir_load(b, b->f32, pair_at(m, 1, row, column), 4);
  pair->remembered = mma_open_gain(m, &of, product, &pair->cotangent);
}

static void close_pair(mma *m, const lane_pair *pair) { mma_close_gain(m, pair->remembered); }

/* The value of a gradient: 0 of a pair that is not seen, whatever its score is. */
static ir_value value_of(mma *m, const lane_pair *pair, const expr *gradient) {
  ir *b = m->b;
  ir_value zero = ir_float(b, b->f32, 0), x = emit_thread_f32(&m->t->exprs, gradient, 0);
  return ir_select(b, ir_compare_float(b, "une", pair->gained, zero), x, zero);
}

/* ---- elements of operands ---- */

static void gain_element(mma *m, ir_value element, two_float gain) {
  ir *b = m->b;
  ir_value at = ir_pointer(b, add(b, m->elements, mul(b, wide(b, element), i64(b, NUMBER))));
  two_float_store(b, two_float_add(b, two_float_load(b, at), gain), at);
}

static ir_value first_element(mma *m, const expr *leaf) {
  return i32(m->b, spec_elements_before(m->t->p->spec, leaf->index));
}

void mma_find_elements(mma *m) {
  ir *b = m->b;
  int64_t count = spec_elements_before(m->t->p->spec, m->t->p->spec->n_operands);
  ir_value warp = add(b, scaled(b, m->t->block, PEGEN_PTX_ATTENTION_WARPS), m->warp),
           before = mul(b, wide(b, warp), i64(b, NUMBER * count));
  m->elements = add(b, m->gradient[PEGEN_PTX_ATTENTION_CHUNKS], before);
  ir_branch wanted = ir_if(b, has_address(m, PEGEN_PTX_ATTENTION_CHUNKS));
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, (count + WARP - 1) / WARP));
  ir_value element = add(b, m->lane, scaled(b, narrow(b, loop.index), WARP));
  ir_branch inside = ir_if(b, below(b, element, i32(b, count)));
  ir_value at = ir_pointer(b, add(b, m->elements, mul(b, wide(b, element), i64(b, NUMBER))));
  two_float_store(b, two_float_const(b, 0), at);
  ir_end_if(b, inside);
  ir_end_for(b, loop);
  ir_wait(b, IR_BARRIER_WARP); /* elements are dealt out to other lanes */
  ir_end_if(b, wanted);
}

/* Some that stand by themselves, of which the first is number `first` of the sums. */
static void add_together(mma *m, const adjoint_scatter *const *scatter, int count, int first) {
  ir *b = m->b;
  ir_value sums[2 * MOST_TOGETHER], now[2 * MOST_TOGETHER], next[2 * MOST_TOGETHER];
  for (int i = 0; i < count; i++) {
    two_float sum = two_float_load(b, number_at(m, 1 + first + i, m->t->thread));
    sums[2 * i] = sum.hi;
    sums[2 * i + 1] = sum.lo;
  }
  lane_pair pair;
  ir_loop loop = ir_for_with(b, i64(b, 0), n_columns(m), 2 * count, sums, now);
  open_pair(m, loop.index, &pair);
  for (int i = 0; i < count; i++) {
    two_float old = {.hi = now[2 * i], .lo = now[2 * i + 1]};
    two_float sum = two_float_add(b, old, two_float_f32(value_of(m, &pair, scatter[i]->gradient)));
    next[2 * i] = sum.hi;
    next[2 * i + 1] = sum.lo;
  }
  close_pair(m, &pair);
  ir_end_for_with(b, loop, 2 * count, next, sums);
  for (int i = 0; i < count; i++) {
    two_float sum = {.hi = sums[2 * i], .lo = sums[2 * i + 1]};
    two_float_store(b, sum, number_at(m, 1 + first + i, m->t->thread));
  }
}

/* A gain of each lane, and its place; a lane takes its own of them. A place below 0 is nobody's. */
static void add_placed(mma *m, const adjoint_scatter *s) {
  ir *b = m->b;
  MlirType two = ir_vector(b, 2, b->i32);
  lane_pair pair;
  ir_loop loop = ir_for(b, i64(b, 0), n_columns(m));
  open_pair(m, loop.index, &pair);
  ir_value gain = value_of(m, &pair, s->gradient), inside = emit_thread_place(&m->t->exprs, s->leaf);
  ir_value place = add(b, inside, first_element(m, s->leaf));
  close_pair(m, &pair);
  ir_value is_some = ir_compare_float(b, "une", gain, ir_float(b, b->f32, 0));
  ir_value of_lane[] = {ir_cast(b, "arith.bitcast", gain, b->i32), ir_select(b, is_some, place, i32(b, NOWHERE))};
  ir_store(b, ir_elements(b, two, 2, of_lane), number_at(m, 0, m->t->thread), NUMBER, false);
  ir_wait(b, IR_BARRIER_WARP);
  ir_loop lanes = ir_for(b, i64(b, 0), i64(b, WARP));
  ir_value thread = add(b, scaled(b, m->warp, WARP), narrow(b, lanes.index));
  ir_value given = ir_load(b, two, number_at(m, 0, thread), NUMBER), at = ir_extract(b, given, 1);
  ir_value dealt = ir_op2(b, "arith.andi", at, i32(b, INT32_MIN | (WARP - 1)));
  ir_branch own = ir_if(b, ir_compare_int(b, "eq", dealt, m->lane));
  gain_element(m, at, two_float_f32(ir_cast(b, "arith.bitcast", ir_extract(b, given, 0), b->f32)));
  ir_end_if(b, own);
  ir_end_for(b, lanes);
  ir_wait(b, IR_BARRIER_WARP);
  ir_end_for(b, loop);
}

static void give_operands(mma *m) {
  const attention_plan *p = m->t->p;
  const adjoint_scatter *together[MOST_TOGETHER];
  ir_branch wanted = ir_if(m->b, has_address(m, PEGEN_PTX_ATTENTION_CHUNKS));
  for (int i = 0, count = 0, first = 0; i < p->n_scatters; i++) {
    if (!is_placed(&p->scatter[i])) together[count++] = &p->scatter[i];
    if (count < MOST_TOGETHER && i + 1 < p->n_scatters) continue;
    if (count) add_together(m, together, count, first);
    first += count;
    count = 0;
  }
  for (int i = 0; i < p->n_scatters; i++)
    if (is_placed(&p->scatter[i])) add_placed(m, &p->scatter[i]);
  ir_end_if(m->b, wanted);
}

/* Sums of the warp's threads, in order, to the element. */
static void end_sum(mma *m, int number, const expr *leaf) {
  ir *b = m->b;
  ir_value values[2] = {ir_float(b, b->f32, 0), ir_float(b, b->f32, 0)}, now[2];
  ir_loop lanes = ir_for_with(b, i64(b, 0), i64(b, WARP), 2, values, now);
  ir_value thread = add(b, scaled(b, m->warp, WARP), narrow(b, lanes.index));
  two_float old = {.hi = now[0], .lo = now[1]}, sum = two_float_load(b, number_at(m, number, thread));
  sum = two_float_add(b, old, sum);
  ir_end_for_with(b, lanes, 2, (ir_value[]){sum.hi, sum.lo}, values);
  ir_value element = add(b, emit_thread_offset(&m->t->exprs, leaf, 0), first_element(m, leaf));
  gain_element(m, element, (two_float){.hi = values[0], .lo = values[1]});
}

void mma_end_gives(mma *m) {
  ir *b = m->b;
  const attention_plan *p = m->t->p;
  if (!mma_gives_operands(m) || !n_single(p)) return;
  ir_branch wanted = ir_if(b, has_address(m, PEGEN_PTX_ATTENTION_CHUNKS));
  ir_wait(b, IR_BARRIER_WARP);
  ir_branch first = ir_if(b, ir_compare_int(b, "eq", m->lane, i32(b, 0)));
  for (int i = 0, number = 1; i < p->n_scatters; i++)
    if (!is_placed(&p->scatter[i])) end_sum(m, number++, p->scatter[i].leaf);
  ir_end_if(b, first);
  ir_wait(b, IR_BARRIER_WARP);
  ir_end_if(b, wanted);
}

/* ---- coordinates and numbers of own tokens ---- */

/* Whether an own token gains there: of the numbers of inputs those that are read of its side. */
static bool gains(const mma *m, int axis) {
  const attention_plan *p = m->t->p;
  int number = axis - (p->n_places - p->n_numbers);
  return p->place[axis] && (!p->sums_inputs || number < 0 || p->number[number].of_key == m->p->owns_keys);
}

/* The share of the lane's row: of inputs keys have one of each head of q. */
static ir_value share_at(mma *m) {
  ir *b = m->b;
  const attend *t = m->t;
  bool of_keys = m->p->owns_keys, is_shared = of_keys && !t->p->sums_inputs;
  ir_value heads = t->parameter[PEGEN_PTX_ATTENTION_HEADS],
           tokens = t->parameter[of_keys ? PEGEN_PTX_ATTENTION_KEYS : PEGEN_PTX_ATTENTION_TOKENS];
  if (is_shared) heads = ir_op2(b, "arith.divui", heads, t->parameter[PEGEN_PTX_ATTENTION_GROUP]);
  ir_value token = wide(b, add(b, m->own_first, lane_row(m)));
  ir_value at = add(b, mul(b, wide(b, t->batch), tokens), token);
  at = add(b, mul(b, at, heads), wide(b, is_shared ? m->k_head : m->q_head));
  at = mul(b, at, i64(b, (int64_t)t->p->n_sums * NUMBER));
  return ir_pointer(b, add(b, m->gradient[PEGEN_PTX_ATTENTION_SHARES], at));
}

/* The lane of a row that there is, which adds to its share. */
static ir_branch if_first(mma *m) {
  ir *b = m->b;
  return ir_if(b, both(b, less(b, m->lane, i32(b, warp_rows(m))), mma_has_own(m, lane_row(m))));
}

static void give_tokens(mma *m) {
  ir *b = m->b;
  int axes = m->t->p->n_sums, n_gains = 0;
  ir_value sums[SPEC_MAX_AXES], now[SPEC_MAX_AXES], next[SPEC_MAX_AXES];
  for (int axis = 0; axis < axes; axis++) n_gains += gains(m, axis);
  if (!n_gains) return;
  ir_branch wanted = ir_if(b, has_address(m, PEGEN_PTX_ATTENTION_SHARES));
  for (int i = 0; i < n_gains; i++) sums[i] = ir_float(b, b->f32, 0);
  lane_pair pair;
  ir_loop loop = ir_for_with(b, i64(b, 0), n_columns(m), n_gains, sums, now);
  open_pair(m, loop.index, &pair);
  for (int axis = 0, i = 0; axis < axes; axis++)
    if (gains(m, axis)) next[i] = add(b, now[i], value_of(m, &pair, m->t->p->place[axis])), i++;
  close_pair(m, &pair);
  ir_end_for_with(b, loop, n_gains, next, sums);
  for (int i = 0; i < n_gains && lanes_of_row(m) > 1; i++) {
    ir_value other = ir_warp_exchange(b, sums[i], warp_rows(m));
    sums[i] = add(b, sums[i], other);
  }
  ir_branch first = if_first(m);
  ir_value share = share_at(m);
  for (int axis = 0, i = 0; axis < axes; axis++) {
    if (!gains(m, axis)) continue;
    ir_value at = ir_offset_const(b, share, (int64_t)axis * NUMBER), sum = sums[i++];
    if (!m->p->owns_keys) sum = ir_op1(b, "arith.negf", sum);
    two_float before = two_float_load(b, at);
    two_float_store(b, two_float_add(b, before, two_float_f32(sum)), at);
  }
  ir_end_if(b, first);
  ir_end_if(b, wanted);
}

/* ---- both ---- */

static void clear_share(mma *m) {
  ir *b = m->b;
  ir_branch wanted = ir_if(b, has_address(m, PEGEN_PTX_ATTENTION_SHARES)), first = if_first(m);
  ir_value share = share_at(m);
  for (int axis = 0; axis < m->t->p->n_sums; axis++)
    two_float_store(b, two_float_const(b, 0), ir_offset_const(b, share, (int64_t)axis * NUMBER));
  ir_end_if(b, first);
  ir_end_if(b, wanted);
}

void mma_begin_gives(mma *m, ir_value is_first) {
  const attention_plan *p = m->t->p;
  ir *b = m->b;
  const expr **roots = arena_array(m->memory, const expr *, 2 * p->n_scatters + SPEC_MAX_AXES);
  int count = 0;
  unsigned to = given(m);
  for (int i = 0; i < p->n_scatters && to & TILE_OF_OPERANDS; i++) {
    roots[count++] = p->scatter[i].gradient;
    if (is_placed(&p->scatter[i])) roots[count++] = p->scatter[i].leaf->arg[0];
  }
  for (int axis = 0; axis < p->n_sums && to & TILE_OF_TOKENS; axis++)
    if (gains(m, axis)) roots[count++] = p->place[axis];
  if (count) emit_thread_operands(&m->t->exprs, roots, count);
  for (int i = 0; i < n_single(p) && to & TILE_OF_OPERANDS; i++)
    two_float_store(b, two_float_const(b, 0), number_at(m, 1 + i, m->t->thread));
  if (!(to & TILE_OF_TOKENS)) return;
  if (p->sums_inputs) {
    clear_share(m);
    return;
  }
  ir_branch first = ir_if(b, is_first);
  clear_share(m);
  ir_end_if(b, first);
}

void mma_give(mma *m, const tile_op *op) {
  ir *b = m->b;
  lay_gains(m, op);
  ir_wait(b, IR_BARRIER_WARP);
  if (op->to & TILE_OF_OPERANDS) give_operands(m);
  if (op->to & TILE_OF_TOKENS) give_tokens(m);
  ir_wait(b, IR_BARRIER_WARP); /* the room is free */
}
