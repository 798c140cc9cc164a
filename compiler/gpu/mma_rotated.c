/* gpu/mma_rotated: rotations that stay on the pairs, by multiply-adds over fragments; see gpu/mma.h and tile/tile.h.
 *
 * q . R k is the product q . k, which tensor cores make, and what R changes of it. Nothing changes for a pair with a
 * prefix token. A turn of the outer loop has some columns of a thread's pairs: what all blocks of a pair share of its
 * displacement stays in registers while the inner loop goes through blocks of channels. Lists of sums go round, so that
 * registers have fixed numbers in a loop.
 */
#include "gpu/index.h"
#include "gpu/mma.h"
#include "mlir/arithmetic.h"

#include "kernel/launch.h"

enum { MOST_COLUMNS = 4, MOST_PAIRS = 8 };

/* A thread's pairs in a turn of the outer loop: [halves][columns]. */
typedef struct rotated_pairs {
  mma *m;
  const tile_op *op;
  int pairs_of; /* the [own, streamed] value */
  int halves, columns;
  ir_value own[MMA_MOST_HALVES], streamed[MOST_COLUMNS]; /* addresses of rows */
  ir_value encoded[MOST_PAIRS]; /* i1; null: all are */
  two_float *shared[MOST_PAIRS]; /* what blocks share */
  const ir_value *number; /* of a pair, by pair_at(): its sum, or its weight */
} rotated_pairs;

static bool is_sum(const tile_op *op) { return op->kind == TILE_ROTATED_SUM; }

/* Column tiles of a turn: as many pairs of few rows as of many. */
static int together(const mma *m) { return m->shape.halves > 2 || m->shape.tile.streamed == MMA_COLUMNS ? 1 : 2; }

/* The register of a pair in the first column tiles of [row tiles][column tiles][4]. */
static int pair_at(const rotated_pairs *p, int half, int column) {
  int tiles = mma_column_tiles(p->m, p->pairs_of);
  return (half / 2 * tiles + column / 2) * mma_fragment(p->m) + half % 2 * 2 + column % 2;
}

static ir_value row_at(const rotated_pairs *p, int value, ir_value row) {
  mma *m = p->m;
  bool own = m->p->value[value].rows == TILE_OWN;
  ir_value tile = own ? m->memory_of[value] : mma_tile_at(m, value, m->stage);
  return ir_offset(m->b, tile, wide(m->b, scaled(m->b, row, mma_pitch_of(m, value))));
}

/* What blocks share of a pair's displacement. */
static void find_shared(rotated_pairs *p, int pair, const attend_pair_of *of) {
  attend *t = p->m->t;
  thread_emitter *e = &t->exprs;
  two_float *remembered = emit_thread_remember(e);
  p->encoded[pair] = attend_encoded(t, of->query_token, of->key_token);
  p->shared[pair] = arena_array(p->m->memory, two_float, t->p->n_shared + 1);
  for (int axis = 0; axis < t->p->spec->n_axes; axis++)
    e->positions[axis] = attend_loose_displacement(t, of->query, of->key, axis);
  for (int i = 0; i < t->p->n_shared; i++) p->shared[pair][i] = emit_thread_value(e, t->p->shared[i], 0);
  emit_thread_forget(e, remembered);
}

static void set_pairs(rotated_pairs *p, ir_value turn) {
  mma *m = p->m;
  ir *b = m->b;
  ir_value first = scaled(b, turn, together(m) * MMA_COLUMNS);
  const tile_value *left = &m->p->value[p->op->arg[0]];
  p->halves = m->shape.halves;
  p->columns = 2 * together(m);
  for (int column = 0; column < p->columns; column++) {
    mma_place streamed = {.row = add(b, first, mma_column(m, p->pairs_of, column / 2 * mma_fragment(m) + column % 2))};
    streamed.token = add(b, m->streamed_first, streamed.row);
    p->streamed[column] = row_at(p, p->op->arg[1], streamed.row);
    for (int half = 0; half < p->halves; half++) {
      mma_place own = mma_own_place(m, mma_row_of(m, half));
      attend_pair_of of = mma_pair(m, own, streamed);
      if (!left->is_sum) p->own[half] = row_at(p, p->op->arg[0], own.row);
      find_shared(p, half * p->columns + column, &of);
    }
  }
}

static void load_block(const rotated_pairs *p, ir_value row, ir_value *x) {
  attend_block_of_row(p->m->t, row, p->m->machine->element, x);
}

/* Entries of R at the block at hand. */
static void find_entries(const rotated_pairs *p, int pair, ir_value *entry) {
  thread_emitter *e = &p->m->t->exprs;
  const attention_plan *of = p->m->t->p;
  two_float *remembered = emit_thread_remember(e);
  for (int i = 0; i < of->n_shared; i++) emit_thread_know(e, of->shared[i], p->shared[pair][i]);
  for (int i = 0; i < of->n_entries; i++) entry[i] = emit_thread_f32(e, of->entry[i], 0);
  emit_thread_forget(e, remembered);
}

/* ---- products ---- */

/* Adds to the pairs' sums. */
static void add_products(const rotated_pairs *p, ir_value *sum) {
  bool owns_keys = p->m->p->owns_keys;
  ir_value own[MMA_MOST_HALVES][SPEC_MAX_BLADES], x[SPEC_MAX_BLADES], entry[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
  for (int half = 0; half < p->halves; half++) load_block(p, p->own[half], own[half]);
  for (int column = 0; column < p->columns; column++) {
    load_block(p, p->streamed[column], x);
    for (int half = 0; half < p->halves; half++) {
      int pair = half * p->columns + column;
      find_entries(p, pair, entry);
      sum[pair] = attend_add_change(p->m->t, entry, p->encoded[pair], owns_keys ? x : own[half],
                                    owns_keys ? own[half] : x, sum[pair]);
    }
  }
}

/* ---- sums ---- */

static int sum_pitch(const mma *m) { return 4 * (m->shape.tile.channels + MMA_LANES); }

int64_t mma_rotated_bytes(const mma *m) {
  for (int i = 0; i < m->p->n_ops; i++)
    if (is_sum(&m->p->op[i])) return (int64_t)m->shape.tile.own * sum_pitch(m);
  return 0;
}

static ir_value sum_at(const mma *m, ir_value row, ir_value channel) {
  ir *b = m->b;
  ir_value at = add(b, scaled(b, row, sum_pitch(m)), scaled(b, channel, 4));
  return ir_offset(b, m->rotated_of, wide(b, at));
}

/* Number i of the quad's rows, [halves][components], by lane i % 4 alone: so nobody waits for another. */
static void store_sums(const rotated_pairs *p, const ir_value *sum) {
  mma *m = p->m;
  ir *b = m->b;
  const spec *s = m->t->p->spec;
  int n = s->n_components, count = p->halves * n;
  ir_value channel[SPEC_MAX_BLADES];
  for (int i = 0; i < n; i++) channel[i] = emit_thread_index(&m->t->exprs, s->channel + (int64_t)i * s->n_blocks);
  for (int first = 0; first < count; first += MMA_LANES) {
    int lanes = count - first < MMA_LANES ? count - first : MMA_LANES;
    ir_value x = {NULL}, at = {NULL};
    for (int lane = 0; lane < lanes; lane++) {
      int half = (first + lane) / n, i = (first + lane) % n;
      ir_value total = mma_row_sum(m, sum[first + lane]), to = sum_at(m, mma_row_of(m, half), channel[i]);
      ir_value own = ir_compare_int(b, "eq", m->quad, i32(b, lane));
      x = lane ? ir_select(b, own, total, x) : total;
      at = lane ? ir_select(b, own, to, at) : to;
    }
    ir_branch some = ir_if(b, less(b, m->quad, i32(b, lanes)));
    ir_store(b, add(b, ir_load(b, b->f32, at, 4), x), at, 4, false);
    ir_end_if(b, some);
  }
}

/* A pair of weight 0 gives nothing, whatever its rows hold. */
static void add_sums(const rotated_pairs *p) {
  ir *b = p->m->b;
  int n = p->m->t->p->spec->n_components;
  ir_value zero = ir_float(b, b->f32, 0), sum[MMA_MOST_HALVES * SPEC_MAX_BLADES], x[SPEC_MAX_BLADES],
           changed[SPEC_MAX_BLADES], entry[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
  for (int i = 0; i < p->halves * n; i++) sum[i] = zero;
  for (int column = 0; column < p->columns; column++) {
    load_block(p, p->streamed[column], x);
    for (int half = 0; half < p->halves; half++) {
      int pair = half * p->columns + column;
      find_entries(p, pair, entry);
      attend_change_block(p->m->t, entry, p->m->p->owns_keys, p->encoded[pair], x, changed);
      for (int i = 0; i < n; i++)
        sum[half * n + i] = ir_fma(b, p->number[pair_at(p, half, column)], changed[i], sum[half * n + i]);
    }
  }
  store_sums(p, sum);
}

void mma_clear_rotated(mma *m) {
  ir *b = m->b;
  int64_t words = mma_rotated_bytes(m) / 4;
  if (!words) return;
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, words / PEGEN_PTX_BLOCK)); /* channels are a multiple of 16 */
  ir_value word = add(b, m->t->thread, scaled(b, narrow(b, loop.index), PEGEN_PTX_BLOCK));
  ir_store(b, ir_float(b, b->f32, 0), ir_offset(b, m->rotated_of, wide(b, scaled(b, word, 4))), 4, false);
  ir_end_for(b, loop);
  ir_wait(b, IR_BARRIER_BLOCK);
}

void mma_add_rotated(mma *m) {
  ir *b = m->b;
  for (int i = 0; i < m->p->n_ops; i++) {
    if (!is_sum(&m->p->op[i])) continue;
    int value = m->p->op[i].value;
    ir_wait(b, IR_BARRIER_WARP);
    for (int k = 0; k < mma_registers(m, value); k++) {
      ir_value row = mma_row_of(m, mma_half(m, value, k)), at = sum_at(m, row, mma_column(m, value, k));
      m->sum[value][k] = add(b, m->sum[value][k], ir_load(b, b->f32, at, 4));
    }
  }
}

/* ---- both ---- */

int mma_rotated_registers(const mma *m) {
  const attention_plan *p = m->t->p;
  int count = 0;
  for (int i = 0; i < p->n_shared; i++) count += p->shared[i]->is_f32 ? 1 : 2;
  return MOST_PAIRS * count;
}

/* One turn: all blocks of the pairs that stand first in the list. */
static void walk_blocks(rotated_pairs *p, ir_value *list) {
  mma *m = p->m;
  ir *b = m->b;
  attend *t = m->t;
  thread_emitter *e = &t->exprs;
  int count = is_sum(p->op) ? 0 : p->halves * p->columns;
  ir_value sum[MOST_PAIRS], now[MOST_PAIRS], unit = e->unit;
  for (int pair = 0; pair < count; pair++) sum[pair] = list[pair_at(p, pair / p->columns, pair % p->columns)];
  ir_loop blocks = ir_for_with(b, i64(b, 0), i64(b, t->p->spec->n_blocks), count, sum, now);
  two_float *remembered = emit_thread_remember(e);
  e->unit = narrow(b, blocks.index);
  emit_thread_operands(e, t->p->entry, t->p->n_entries);
  if (is_sum(p->op)) add_sums(p);
  else add_products(p, now);
  emit_thread_forget(e, remembered);
  e->unit = unit;
  ir_end_for_with(b, blocks, count, now, sum);
  for (int pair = 0; pair < count; pair++) list[pair_at(p, pair / p->columns, pair % p->columns)] = sum[pair];
}

void mma_rotate(mma *m, const tile_op *op) {
  ir *b = m->b;
  rotated_pairs p = {.m = m, .op = op, .pairs_of = is_sum(op) ? op->arg[0] : op->value};
  int registers = mma_registers(m, p.pairs_of), tiles = mma_column_tiles(m, p.pairs_of), step = together(m),
      fragment = mma_fragment(m);
  ir_value list[IR_MAX_RESULTS], next[IR_MAX_RESULTS];
  const expr_machine *machine = m->t->exprs.walker.machine;
  ir_loop loop = ir_for_with(b, i64(b, 0), i64(b, tiles / step), registers, m->sum[p.pairs_of], list);
  if (m->t->entry->dtype != NUMBER_F32) m->t->exprs.walker.machine = &expr_of_turning_threads; /* 2^-20 suffices */
  p.number = list;
  set_pairs(&p, narrow(b, loop.index));
  walk_blocks(&p, list);
  for (int i = 0; i < registers; i++) {
    int row_tile = i / (tiles * fragment), tile = i / fragment % tiles;
    next[i] = list[(row_tile * tiles + (tile + step) % tiles) * fragment + i % fragment];
  }
  m->t->exprs.walker.machine = machine;
  ir_value *done = arena_array(m->memory, ir_value, registers);
  ir_end_for_with(b, loop, registers, next, done);
  if (!is_sum(op)) m->sum[op->value] = done;
}
