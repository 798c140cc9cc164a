/* gpu/mma_give: the op give of tile programs; see gpu/give.h and tile/reverse.c. */
#include "gpu/give.h"
#include "gpu/index.h"
#include "gpu/mma.h"

static const tile_op *find_op(const mma *m, tile_kind kind) {
  for (int i = 0; i < m->p->n_ops; i++)
    if (m->p->op[i].kind == kind) return &m->p->op[i];
  return NULL;
}

static unsigned given(const mma *m) {
  const tile_op *op = find_op(m, TILE_GIVE);
  return op ? op->to : 0;
}

bool mma_gives_operands(const mma *m) { return given(m) & TILE_OF_OPERANDS && !m->t->p->columns; }

/* By its own queries' weights, from which an entry takes it on. */
static bool gives_weights(const mma *m) { return given(m) & TILE_OF_OPERANDS && m->t->p->columns; }

bool mma_gives_displacements(const mma *m) { return given(m) && m->t->p->columns; }

/* ---- shared memory: gains of scores, products, what threads sum ---- */

static int pitch_of(const mma *m) { return m->shape.tile.streamed + 1; }

static int64_t tile_bytes(const mma *m) { return 4LL * m->shape.tile.own * pitch_of(m); }

static int64_t tiles_bytes(const mma *m) { return (tile_bytes(m) * (m->t->p->score ? 2 : 1) + 7) / 8 * 8; }

static int kept_of(const mma *m) { return mma_gives_operands(m) ? attend_give_single(m->t->p) : 0; }

int64_t mma_give_bytes(const mma *m) { return given(m) ? tiles_bytes(m) + attend_give_bytes(kept_of(m)) : 0; }

/* Rows that rotated pairs read. */
static attend_give_rows rows_of(mma *m, bool own) {
  const tile_op *op = find_op(m, TILE_ROTATED_PRODUCT);
  int value = op->arg[!own];
  return (attend_give_rows){own ? m->memory_of[value] : mma_tile_at(m, value, m->stage), mma_pitch_of(m, value),
                            m->machine->element};
}

static attend_give give_of(mma *m) {
  bool is_shared = m->p->owns_keys && !m->t->p->sums_inputs;
  int rows = m->shape.halves * MMA_HALF;
  ir_value products = ir_offset_const(m->b, m->given_of, tile_bytes(m)),
           numbers = ir_offset_const(m->b, m->given_of, tiles_bytes(m));
  return (attend_give){.t = m->t,
                       .gradient = m->gradient,
                       .of_keys = m->p->owns_keys,
                       .warp = m->warp,
                       .lane = m->lane,
                       .gains = m->given_of,
                       .products = products,
                       .pitch = pitch_of(m),
                       .columns = m->shape.tile.streamed,
                       .rows = rows,
                       .together = rows,
                       .numbers = numbers,
                       .kept = kept_of(m),
                       .own_first = m->own_first,
                       .streamed_first = m->streamed_first,
                       .owner = is_shared ? m->k_head : m->q_head};
}

static void lay(mma *m, ir_value memory, int value, int i, ir_value x) {
  ir *b = m->b;
  ir_value row = mma_row_of(m, mma_half(m, value, i)), index = scaled(b, row, pitch_of(m));
  index = add(b, index, mma_column(m, value, i));
  ir_store(b, x, ir_offset(b, memory, wide(b, scaled(b, index, 4))), 4, false);
}

static void lay_gains(mma *m, const attend_give *g, const tile_op *op) {
  for (int i = 0, value = op->arg[0]; i < mma_registers(m, value); i++) {
    ir_value delta = mma_delta_of(m, value, i);
    lay(m, g->gains, value, i, mma_score_gain(m, m->sum[value][i], m->sum[op->arg[1]][i], delta));
    if (m->t->p->score) lay(m, g->products, value, i, mul(m->b, m->sum[op->arg[2]][i], m->scale));
  }
}

static void lay_product_gains(mma *m, const attend_give *g) {
  int value = find_op(m, TILE_GAIN)->value;
  for (int i = 0; i < mma_registers(m, value); i++) lay(m, g->gains, value, i, m->sum[value][i]);
  ir_wait(m->b, IR_BARRIER_WARP);
}

void mma_clear_elements(mma *m) {
  attend_give g = give_of(m);
  attend_clear_elements(&g);
}

void mma_begin_gives(mma *m, ir_value is_first) {
  ir *b = m->b;
  if (!given(m)) return;
  attend_give g = give_of(m);
  if (mma_gives_operands(m)) attend_begin_operands(&g);
  if (gives_weights(m)) attend_clear_weights(&g);
  if (!(given(m) & TILE_OF_TOKENS)) return;
  attend_begin_tokens(&g);
  ir_value clears = m->t->p->sums_inputs ? ir_int(b, b->i1, 1) : is_first;
  ir_branch some = ir_if(b, clears);
  attend_clear_shares(&g);
  ir_end_if(b, some);
}

void mma_end_gives(mma *m) {
  if (!mma_gives_operands(m)) return;
  attend_give g = give_of(m);
  attend_end_operands(&g);
}

void mma_give(mma *m, const tile_op *op) {
  ir *b = m->b;
  const attention_plan *p = m->t->p;
  if (!(op->to & TILE_OF_TOKENS) && !p->n_scatters && !p->torques && !p->columns) return; /* a sink alone gains */
  attend_give g = give_of(m);
  lay_gains(m, &g, op);
  ir_wait(b, IR_BARRIER_WARP);
  if (mma_gives_operands(m)) attend_give_operands(&g);
  if (gives_weights(m)) attend_give_weights(&g);
  if (op->to & TILE_OF_TOKENS) attend_give_tokens(&g);
  if (op->to & TILE_OF_TOKENS && m->t->p->columns) attend_give_moves(&g);
  ir_wait(b, IR_BARRIER_WARP); /* the room is free */
  if (!m->t->p->torques) return;
  g.own = rows_of(m, true);
  g.streamed = rows_of(m, false);
  g.scale = attend_natural_scale(m->t);
  if (m->t->p->score) lay_product_gains(m, &g);
  attend_give_torques(&g);
  ir_wait(b, IR_BARRIER_WARP);
}
