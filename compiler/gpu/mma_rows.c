/* gpu/mma_rows: a tile program one own row a thread, where rows that are not finite came into a block's sums; see
 * gpu/mma.h.
 *
 * Products multiply a weight of 0 by whatever stands in the other factor, and 0 times what is not finite is NaN.
 * A block whose sums are not all finite therefore makes them again, slowly: rows are read where they lie, sums stand in
 * shared memory, and a pair whose weight is 0 adds nothing. What was NaN by right is NaN again.
 */
#include "gpu/index.h"
#include "gpu/mma.h"

#include "kernel/launch.h"

#include <math.h>

typedef struct row_walk {
  mma *m;
  ir_value row, own;       /* i32: of the block's tile, and its token, which exists */
  ir_value index, streamed; /* the same of the streamed row at hand */
  ir_value scale;          /* of products, with its sign */
  ir_value value[TILE_MOST_VALUES]; /* of a pair */
  ir_value maximum, total;
} row_walk;

static bool is_row_sum(const tile_value *v) { return v->is_sum && v->columns != TILE_STREAMED; }

int64_t mma_row_bytes(const mma *m) {
  int64_t bytes = 0;
  for (int v = 0; v < m->p->n_values; v++)
    if (is_row_sum(&m->p->value[v])) bytes += 4LL * mma_width(m, v) * m->shape.tile.own;
  return bytes;
}

/* Channel `channel` (i64) of the thread's row of a sum: rows are neighbours. */
static ir_value sum_at(row_walk *w, int value, ir_value channel) {
  mma *m = w->m;
  ir *b = m->b;
  int64_t before = 0;
  for (int v = 0; v < value; v++)
    if (is_row_sum(&m->p->value[v])) before += mma_width(m, v);
  ir_value line = mul(b, add(b, channel, i64(b, before)), i64(b, m->shape.tile.own));
  return ir_offset(b, m->sums_of, mul(b, add(b, line, wide(b, w->row)), i64(b, 4)));
}

/* The tensor that a value's tiles are loaded from. */
static tile_tensor tensor_of(const mma *m, int value) {
  for (int i = 0; i < m->p->n_ops; i++)
    if (m->p->op[i].kind == TILE_LOAD && m->p->op[i].value == value) return m->p->op[i].tensor;
  return TILE_TENSOR_COUNT;
}

/* The row at hand of a tile, and how many accesses it has. */
static ir_value row_of(row_walk *w, int value, int *accesses) {
  ir *b = w->m->b;
  attend_rows rows = mma_rows_of(w->m, tensor_of(w->m, value));
  ir_value token = w->m->p->value[value].rows == TILE_OWN ? w->own : w->streamed;
  *accesses = rows.width / mma_access_numbers(w->m);
  return ir_pointer(b, add(b, rows.base, mul(b, wide(b, token), rows.stride)));
}

static void load(row_walk *w, ir_value row, ir_value access, ir_value *x) {
  ir *b = w->m->b;
  mma_load_numbers(w->m, ir_offset(b, row, mul(b, access, i64(b, w->m->t->entry->access))), x);
}

static attend_pair_of pair_of(const row_walk *w) {
  return mma_pair(w->m, (mma_place){w->row, w->own}, (mma_place){w->index, w->streamed});
}

/* A prefix token's columns are 0, and 0 times what is not finite is NaN: such pairs have no bias at all. */
static ir_value columns_product(row_walk *w, const tile_op *op) {
  ir *b = w->m->b;
  attend_pair_of of = pair_of(w);
  ir_value encoded = attend_encoded(w->m->t, of.query_token, of.key_token),
           bias = mma_columns_product(w->m, op, w->row, w->index);
  return encoded.ptr ? ir_select(b, encoded, bias, ir_float(b, b->f32, 0)) : bias;
}

static ir_value product(row_walk *w, const tile_op *op) {
  ir *b = w->m->b;
  int accesses;
  if (tile_is_of_columns(tensor_of(w->m, op->arg[0]))) return columns_product(w, op);
  ir_value x = row_of(w, op->arg[0], &accesses), y = row_of(w, op->arg[1], &accesses), sum = ir_float(b, b->f32, 0),
           now;
  ir_value one[MMA_MOST_NUMBERS], other[MMA_MOST_NUMBERS];
  ir_loop loop = ir_for_with(b, i64(b, 0), i64(b, accesses), 1, &sum, &now);
  load(w, x, loop.index, one);
  load(w, y, loop.index, other);
  for (int i = 0; i < mma_access_numbers(w->m); i++) now = ir_fma(b, one[i], other[i], now);
  ir_end_for_with(b, loop, 1, &now, &sum);
  return sum;
}

static void add_row(row_walk *w, const tile_op *op) {
  ir *b = w->m->b;
  int accesses, numbers = mma_access_numbers(w->m);
  ir_value weight = w->value[op->arg[0]], row = row_of(w, op->arg[1], &accesses), x[MMA_MOST_NUMBERS];
  ir_branch some = ir_if(b, ir_compare_float(b, "une", weight, ir_float(b, b->f32, 0)));
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, accesses));
  load(w, row, loop.index, x);
  for (int i = 0; i < numbers; i++) {
    ir_value at = sum_at(w, op->value, add(b, mul(b, loop.index, i64(b, numbers)), i64(b, i)));
    ir_store(b, ir_fma(b, weight, x[i], ir_load(b, b->f32, at, 4)), at, 4, false);
  }
  ir_end_for(b, loop);
  ir_end_if(b, some);
}

/* ---- rotations of the pair ---- */

/* Rows of the pair, or the streamed one and the own row's sum. */
typedef struct rotated_pair {
  row_walk *walk;
  const tile_op *op;
  ir_value own, streamed, encoded;
} rotated_pair;

static ir_value channel_of(attend *t, int component) {
  return emit_thread_index(&t->exprs, t->p->spec->channel + (int64_t)component * t->p->spec->n_blocks);
}

static void load_block(rotated_pair *p, ir_value row, ir_value *x) {
  attend *t = p->walk->m->t;
  attend_block_of_row(t, row, t->entry->tile->element, x);
}

/* What the block at hand changes of a product, or adds to a sum. */
static ir_value visit_block(void *context, attend *t, const ir_value *entry, ir_value sum) {
  rotated_pair *p = context;
  ir *b = t->b;
  ir_value x[SPEC_MAX_BLADES], own[SPEC_MAX_BLADES], changed[SPEC_MAX_BLADES];
  bool is_product = p->op->kind == TILE_ROTATED_PRODUCT;
  load_block(p, p->streamed, x);
  if (is_product) load_block(p, p->own, own);
  bool owns_keys = p->walk->m->p->owns_keys;
  if (is_product) return attend_add_change(t, entry, p->encoded, owns_keys ? x : own, owns_keys ? own : x, sum);
  attend_change_block(t, entry, owns_keys, p->encoded, x, changed);
  for (int i = 0; i < t->p->spec->n_components; i++) {
    ir_value at = sum_at(p->walk, p->op->value, wide(b, channel_of(t, i)));
    ir_store(b, ir_fma(b, p->walk->value[p->op->arg[0]], changed[i], ir_load(b, b->f32, at, 4)), at, 4, false);
  }
  return sum;
}

static ir_value rotate(row_walk *w, const tile_op *op, const attend_pair_of *of) {
  attend *t = w->m->t;
  ir *b = t->b;
  int pairs;
  rotated_pair p = {.walk = w, .op = op, .encoded = attend_encoded(t, of->query_token, of->key_token)};
  p.streamed = row_of(w, op->arg[1], &pairs);
  if (op->kind == TILE_ROTATED_PRODUCT) {
    p.own = row_of(w, op->arg[0], &pairs);
    return add(b, w->value[op->value], attend_walk_blocks(t, of->query, of->key, visit_block, &p));
  }
  ir_branch some = ir_if(b, ir_compare_float(b, "une", w->value[op->arg[0]], ir_float(b, b->f32, 0)));
  attend_walk_blocks(t, of->query, of->key, visit_block, &p);
  ir_end_if(b, some);
  return w->value[op->value];
}

/* ---- ops ---- */

/* Every channel of a sum: times `factor` (f32), or that itself where `sets`. */
static void scale_row(row_walk *w, int value, ir_value factor, bool sets) {
  ir *b = w->m->b;
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, mma_width(w->m, value)));
  ir_value at = sum_at(w, value, loop.index);
  ir_store(b, sets ? factor : mul(b, ir_load(b, b->f32, at, 4), factor), at, 4, false);
  ir_end_for(b, loop);
}

static ir_value score(row_walk *w, const tile_op *op) {
  ir *b = w->m->b;
  attend_pair_of of = pair_of(w);
  ir_value x = w->value[op->arg[0]];
  x = attend_has_pairs(w->m->t->p) ? mma_scored(w->m, x, &of) : mul(b, x, w->scale);
  return ir_select(b, mma_is_seen(w->m, &of), x, ir_float(b, b->f32, -INFINITY));
}

static ir_value online(row_walk *w, const tile_op *op) {
  ir *b = w->m->b;
  ir_value x = w->value[op->arg[0]], maximum = ir_op2(b, "arith.maxnumf", w->maximum, x);
  ir_value decay = mma_exp2(w->m, sub(b, w->maximum, maximum));
  ir_value weight = mma_exp2(w->m, sub(b, x, maximum));
  scale_row(w, op->arg[1], decay, false);
  w->total = add(b, mul(b, w->total, decay), weight);
  w->maximum = maximum;
  return weight;
}

static void run(row_walk *w, const tile_op *op) {
  ir *b = w->m->b;
  attend_pair_of of = pair_of(w);
  ir_value *to = &w->value[op->value == TILE_NONE ? 0 : op->value], x;
  switch (op->kind) {
  case TILE_MMA:
    if (is_row_sum(&w->m->p->value[op->value])) {
      add_row(w, op);
      break;
    }
    x = product(w, op);
    *to = op->adds ? add(w->m->b, *to, x) : x;
    break;
  case TILE_ROTATED_PRODUCT: *to = rotate(w, op, &of); break;
  case TILE_ROTATED_SUM: rotate(w, op, &of); break;
  case TILE_SCORE: *to = score(w, op); break;
  case TILE_ONLINE: *to = online(w, op); break;
  case TILE_WEIGHT:
    x = mma_product_lse(w->m, of.query, of.query_token);
    *to = mma_exp2(w->m, sub(b, w->value[op->arg[0]], x));
    break;
  case TILE_GAIN:
    *to = mma_gain_of(w->m, w->value[op->arg[0]], w->value[op->arg[1]], mma_load_delta(w->m, of.query_token),
                      w->value[op->arg[2]], &of);
    break;
  default: break; /* loads and waits: rows are read where they lie */
  }
}

/* All streamed rows of a tile. */
static void walk_tile(row_walk *w, int each) {
  mma *m = w->m;
  ir *b = m->b;
  ir_value state[2] = {w->maximum, w->total}, now[2];
  bool owns_keys = m->p->owns_keys;
  ir_value tokens = sub(b, owns_keys ? m->t->tokens : m->t->keys, m->streamed_first);
  ir_value none = i32(b, 0), count = larger(b, smaller(b, tokens, i32(b, m->shape.tile.streamed)), none);
  ir_value own = less(b, m->t->thread, i32(b, m->shape.tile.own));
  ir_loop loop = ir_for_with(b, i64(b, 0), wide(b, ir_select(b, own, count, none)), 2, state, now);
  w->maximum = now[0];
  w->total = now[1];
  w->index = narrow(b, loop.index);
  w->streamed = add(b, m->streamed_first, w->index);
  two_float *remembered = emit_thread_remember(&m->t->exprs);
  for (int i = each + 1; m->p->op[i].kind != TILE_END; i++) run(w, &m->p->op[i]);
  emit_thread_forget(&m->t->exprs, remembered);
  now[0] = w->maximum;
  now[1] = w->total;
  ir_end_for_with(b, loop, 2, now, state);
  w->maximum = state[0];
  w->total = state[1];
}

/* All tiles of one head of q. */
static void walk_tiles(row_walk *w, int each, ir_value begin, ir_value end) {
  mma *m = w->m;
  ir *b = m->b;
  ir_value state[2] = {w->maximum, w->total}, now[2];
  ir_loop loop = ir_for_with(b, wide(b, begin), wide(b, end), 2, state, now);
  w->maximum = now[0];
  w->total = now[1];
  ir_wait(b, IR_BARRIER_BLOCK);
  mma_set_turn(m, narrow(b, loop.index));
  mma_lay_tokens(m, false, m->streamed_first, m->stage);
  for (int i = 0; i < m->p->n_ops; i++)
    if (m->p->op[i].kind == TILE_LOAD && !m->p->op[i].ahead && tile_is_of_columns(m->p->op[i].tensor) &&
        m->p->value[m->p->op[i].value].rows == TILE_STREAMED)
      mma_load(m, &m->p->op[i]);
  ir_wait(b, IR_BARRIER_BLOCK);
  walk_tile(w, each);
  now[0] = w->maximum;
  now[1] = w->total;
  ir_end_for_with(b, loop, 2, now, state);
  w->maximum = state[0];
  w->total = state[1];
}

/* Walks the tiles of all heads of q that the row meets. */
static void walk_heads(row_walk *w, int each, ir_value begin, ir_value end) {
  mma *m = w->m;
  ir *b = m->b;
  if (!m->p->owns_keys) {
    walk_tiles(w, each, begin, end);
    return;
  }
  ir_value first = m->q_head;
  ir_loop heads = ir_for(b, i64(b, 0), wide(b, mma_heads_met(m)));
  two_float *remembered = emit_thread_remember(&m->t->exprs);
  mma_set_q_head(m, add(b, first, narrow(b, heads.index)));
  walk_tiles(w, each, begin, end);
  emit_thread_forget(&m->t->exprs, remembered);
  ir_end_for(b, heads);
  m->q_head = first;
}

static void store(row_walk *w, const tile_op *op) {
  mma *m = w->m;
  ir *b = m->b;
  attend_rows to = mma_rows_of(m, op->tensor);
  ir_value factor = op->scales ? attend_natural_scale(m->t) : ir_float(b, b->f32, 1);
  if (!m->gradient) {
    ir_value zero = ir_float(b, b->f32, 0), inverse = ir_op2(b, "arith.divf", factor, w->total);
    factor = ir_select(b, ir_compare_float(b, "oeq", w->total, zero), zero, inverse);
  }
  ir_branch wanted = ir_if(b, ir_compare_int(b, "ne", mma_address_of(m, op->tensor), i64(b, 0)));
  ir_value row = ir_pointer(b, add(b, to.base, mul(b, wide(b, w->own), to.stride)));
  int numbers = mma_access_numbers(m);
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, to.width / numbers));
  ir_value x[MMA_MOST_NUMBERS];
  for (int i = 0; i < numbers; i++) {
    ir_value channel = add(b, mul(b, loop.index, i64(b, numbers)), i64(b, i));
    x[i] = mul(b, ir_load(b, b->f32, sum_at(w, op->arg[0], channel), 4), factor);
  }
  mma_store_numbers(m, ir_offset(b, row, mul(b, loop.index, i64(b, m->t->entry->access))), numbers, x);
  ir_end_for(b, loop);
  ir_end_if(b, wanted);
}

/* What a chunk comes to, before it is divided. */
static void store_state(row_walk *w, int value) {
  mma *m = w->m;
  ir *b = m->b;
  int64_t width = mma_padded(m->t, m->t->p->value_dim);
  mma_query query = mma_query_of(m, w->row);
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, width));
  ir_value sum = ir_load(b, b->f32, sum_at(w, value, loop.index), 4);
  ir_store(b, sum, mma_state_at(m, &query, loop.index), 4, false);
  ir_end_for(b, loop);
  ir_store(b, w->maximum, mma_state_at(m, &query, i64(b, width)), 4, false);
  ir_store(b, w->total, mma_state_at(m, &query, i64(b, width + 1)), 4, false);
}

static void store_all(row_walk *w, int each) {
  mma *m = w->m;
  ir *b = m->b;
  for (int i = each; i < m->p->n_ops; i++)
    if (m->p->op[i].kind == TILE_STORE) store(w, &m->p->op[i]);
  if (!m->gradient) attend_store_lse(m->t, ir_int(b, b->i1, 1), m->few ? w->own : w->row, w->maximum, w->total);
}

static void store_rows(row_walk *w, int each) {
  mma *m = w->m;
  ir_branch split = {{NULL}, {NULL}};
  if (m->few) {
    split = ir_if(m->b, mma_is_split(m));
    for (int v = 0; v < m->p->n_values; v++)
      if (is_row_sum(&m->p->value[v])) store_state(w, v);
    ir_else(m->b, &split);
  }
  store_all(w, each);
  if (m->few) ir_end_if(m->b, split);
}

void mma_walk_rows(mma *m, int each, ir_value begin, ir_value end) {
  ir *b = m->b;
  ir_value row = m->t->thread, zero = ir_float(b, b->f32, 0), head = m->q_head;
  ir_value has = both(b, less(b, row, i32(b, m->shape.tile.own)), mma_has_own(m, row));
  row_walk w = {.m = m, .scale = attend_scale(m->t)};
  two_float *remembered = emit_thread_remember(&m->t->exprs);
  /* Threads without a row have the last one's, so that all meet at barriers, and add and store nothing. */
  w.row = clamped(b, row, i32(b, m->shape.tile.own));
  w.own = clamped(b, mma_own_place(m, w.row).token, m->p->owns_keys ? m->t->keys : m->t->tokens);
  ir_wait(b, IR_BARRIER_BLOCK); /* all are done with the tiles, where sums will stand */
  for (int v = 0; v < m->p->n_values; v++)
    if (is_row_sum(&m->p->value[v])) scale_row(&w, v, zero, true);
  if (m->few) mma_set_q_head(m, mma_query_of(m, w.row).head);
  mma_begin_softmax(m, ir_int(b, b->i1, 1), &w.maximum, &w.total);
  walk_heads(&w, each, begin, end);
  ir_branch stores = ir_if(b, has);
  store_rows(&w, each);
  ir_end_if(b, stores);
  m->q_head = m->t->head = m->t->exprs.head = head;
  emit_thread_forget(&m->t->exprs, remembered);
}
