/* gpu/attention_turned: see gpu/attention_backward.h.
 *
 * Every thread turns the rows that pass by the rotations of its own pairs again, a block at a time, and lays what the
 * pair gives the block side by side with the other 7 of its team, who have the same row; each of them then adds up some
 * components, in order, to the row's sums in shared memory. A pair whose score gains nothing gives nothing, whatever
 * its rows hold. What is summed so is what rotations change: rows as they are add up elsewhere (attend_add_rows).
 */
#include "gpu/attention_backward.h"
#include "gpu/index.h"

static int n_components(const attend_gradient *g) { return g->t.p->spec->n_components; }

int64_t attend_turned_word_bytes(const attention_plan *p) { return 4LL * PEGEN_PTX_BLOCK * p->spec->n_components; }

int64_t attend_turned_bytes(const attention_plan *p, const attend_shape *tile) {
  if (!p->matrix) return 0;
  return 4LL * tile->queries * tile->query_pitch + attend_turned_word_bytes(p);
}

static ir_value sum_at(attend_gradient *g, ir_value row, ir_value channel) {
  ir *b = g->t.b;
  ir_value at = attend_row_at(&g->t, g->turned.memory, row, g->turned.pitch);
  return ir_offset(b, at, wide(b, scaled(b, channel, 4)));
}

void attend_turned_clear(attend_gradient *g) {
  attend *t = &g->t;
  ir *b = t->b;
  if (!t->p->matrix) return;
  for (int i = 0; i < t->shape.rows; i++) {
    ir_value row = attend_own_row(t, i);
    ir_loop loop = ir_for(b, i64(b, 0), i64(b, g->turned.pitch / ATTEND_LANES));
    ir_value channel = add(b, t->lane, scaled(b, narrow(b, loop.index), ATTEND_LANES));
    ir_store(b, ir_float(b, b->f32, 0), sum_at(g, row, channel), 4, false);
    ir_end_for(b, loop);
  }
  ir_wait(b, IR_BARRIER_WARP);
}

/* Of one pair: its row among those that stay, the row that passes, what its score gains, whether it is encoded. */
typedef struct gaining_pair {
  attend_gradient *g;
  ir_value row, passing, gained, encoded;
} gaining_pair;

/* Where a thread of the team lays the first component of a block. */
static ir_value words_of(attend_gradient *g, ir_value thread) {
  ir *b = g->t.b;
  return ir_offset(b, g->turned_words, wide(b, scaled(b, thread, 4LL * n_components(g))));
}

/* Component `first` + the thread's lane of the team's words, to the row's sums. */
static void add_component(attend_gradient *g, ir_value row, int first) {
  attend *t = &g->t;
  ir *b = t->b;
  const spec *s = t->p->spec;
  int count = n_components(g) - first < ATTEND_LANES ? n_components(g) - first : ATTEND_LANES;
  ir_value component = add(b, t->lane, i32(b, first)), team = sub(b, t->thread, t->lane), channel = {NULL};
  ir_branch own = ir_if(b, below(b, t->lane, i32(b, count)));
  for (int i = 0; i < count; i++) {
    ir_value of = emit_thread_index(&t->exprs, s->channel + (int64_t)(first + i) * s->n_blocks);
    channel = i ? ir_select(b, ir_compare_int(b, "eq", component, i32(b, first + i)), of, channel) : of;
  }
  ir_value at = sum_at(g, row, channel), sum = ir_load(b, b->f32, at, 4),
           word = ir_offset(b, words_of(g, team), wide(b, scaled(b, component, 4)));
  for (int lane = 0; lane < ATTEND_LANES; lane++) {
    ir_value x = ir_load(b, b->f32, ir_offset_const(b, word, 4LL * lane * n_components(g)), 4);
    sum = add(b, sum, x);
  }
  ir_store(b, sum, at, 4, false);
  ir_end_if(b, own);
}

static ir_value add_block(void *context, attend *t, const ir_value *entry, ir_value sum) {
  const gaining_pair *pair = context;
  attend_gradient *g = pair->g;
  ir *b = t->b;
  ir_value x[SPEC_MAX_BLADES], changed[SPEC_MAX_BLADES], zero = ir_float(b, b->f32, 0);
  ir_value counts = ir_compare_float(b, "une", pair->gained, zero), words = words_of(g, t->thread);
  attend_block_of_row(t, pair->passing, 4, x);
  attend_change_block(t, entry, g->of_keys, pair->encoded, x, changed);
  for (int i = 0; i < n_components(g); i++) {
    ir_value given = ir_select(b, counts, mul(b, pair->gained, changed[i]), zero);
    ir_store(b, given, ir_offset_const(b, words, 4LL * i), 4, false);
  }
  ir_wait(b, IR_BARRIER_WARP);
  for (int first = 0; first < n_components(g); first += ATTEND_LANES) add_component(g, pair->row, first);
  ir_wait(b, IR_BARRIER_WARP);
  return sum;
}

void attend_turned_add(attend_gradient *g, ir_value wanted, ir_value first) {
  attend *t = &g->t;
  ir *b = t->b;
  if (!t->p->matrix) return;
  ir_branch branch = ir_if(b, wanted);
  ir_loop rows = ir_for(b, i64(b, 0), i64(b, t->shape.rows));
  ir_loop columns = ir_for(b, i64(b, 0), i64(b, t->shape.columns));
  ir_value row = attend_row_of_thread(t, narrow(b, rows.index)),
           column = attend_column_of_thread(t, narrow(b, columns.index));
  gaining_pair pair = {.g = g, .row = row};
  pair.passing = attend_row_at(t, g->passing[ATTEND_OF_KEYS].memory, column, g->passing[ATTEND_OF_KEYS].pitch);
  pair.gained = ir_load(b, b->f32, attend_score_at(t, row, column), 4);
  attend_pair_of of = attend_tile_pair(g, first, row, column);
  pair.encoded = attend_encoded(t, of.query_token, of.key_token);
  attend_walk_blocks(t, g->of_keys ? column : row, g->of_keys ? row : column, add_block, &pair);
  ir_end_for(b, columns);
  ir_end_for(b, rows);
  ir_end_if(b, branch);
}

/* ---- results ---- */

void attend_turned_merge(attend_gradient *g, ir_value *sums) {
  attend *t = &g->t;
  ir *b = t->b;
  if (!t->p->matrix) return;
  ir_wait(b, IR_BARRIER_WARP);
  int quads = g->shape.quads[ATTEND_OF_KEYS];
  MlirType four = ir_vector(b, ATTEND_QUAD, b->f32);
  for (int i = 0; i < t->shape.rows * quads; i++) {
    ir_value channel =
                 add(b, scaled(b, t->lane, ATTEND_QUAD), i32(b, (int64_t)(i % quads) * ATTEND_QUAD * ATTEND_LANES)),
             row = attend_own_row(t, i / quads);
    sums[i] = add(b, sums[i], ir_load(b, four, sum_at(g, row, channel), 16));
  }
}
