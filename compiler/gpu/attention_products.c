/* gpu/attention_products: scores that are functions of the product, in gradients; see gpu/attention_backward.h.
 *
 * A tile's products stand in shared memory beside its scores until all that is made of them is: what operands and
 * coordinates gain of a score, and what the product itself does, which rows of q and k then gain by. Each thread reads
 * those of its own pairs alone.
 */
#include "gpu/attention_backward.h"
#include "gpu/index.h"

static int n_pairs(const attend *t) { return t->shape.rows * t->shape.columns; }

void attend_products_begin(attend_gradient *g) {
  if (g->t.p->gain) emit_thread_operands(&g->t.exprs, &g->t.p->gain, 1);
}

static ir_value product_at(attend_gradient *g, ir_value row, ir_value column) {
  ir *b = g->t.b;
  ir_value index = add(b, scaled(b, row, g->t.shape.score_pitch), column);
  return ir_offset(b, g->products, wide(b, scaled(b, index, 4)));
}

attend_pair_of attend_tile_pair(attend_gradient *g, ir_value first, ir_value row, ir_value column) {
  ir_value own = add(g->t.b, g->t.first, row), other = add(g->t.b, first, column);
  return g->of_keys ? (attend_pair_of){column, other, row, own} : (attend_pair_of){row, own, column, other};
}

static ir_value score_of(attend_gradient *g, ir_value first, ir_value row, ir_value column, ir_value product) {
  attend_pair_of pair = attend_tile_pair(g, first, row, column);
  return attend_score(&g->t, product, &pair);
}

/* Calls for the row and the column of each of the thread's pairs, one after the other. */
static ir_loop begin_pair(attend *t, ir_value *row, ir_value *column) {
  ir *b = t->b;
  ir_loop pairs = ir_for(b, i64(b, 0), i64(b, n_pairs(t)));
  ir_value pair = narrow(b, pairs.index);
  *row = attend_row_of_thread(t, quotient(b, pair, t->shape.columns));
  *column = attend_column_of_thread(t, rest(b, pair, t->shape.columns));
  return pairs;
}

void attend_finish_scores(attend_gradient *g, attend_pair_tile *p) {
  attend *t = &g->t;
  ir *b = t->b;
  if (!t->p->score) return;
  bool is_short = attend_pair_is_short(t->p);
  for (int i = 0; i < n_pairs(t); i++) {
    ir_value row = attend_own_row(t, i / t->shape.columns), column = attend_own_column(t, i % t->shape.columns);
    ir_store(b, p->weight[i], product_at(g, row, column), 4, false);
    if (is_short) p->weight[i] = score_of(g, p->first, row, column, p->weight[i]);
  }
  if (is_short) return;
  ir_value row, column;
  ir_loop pairs = begin_pair(t, &row, &column);
  ir_value product = ir_load(b, b->f32, product_at(g, row, column), 4);
  ir_value score = score_of(g, p->first, row, column, product);
  ir_store(b, score, attend_score_at(t, row, column), 4, false);
  ir_end_for(b, pairs);
  for (int i = 0; i < n_pairs(t); i++) {
    ir_value own_row = attend_own_row(t, i / t->shape.columns), own_column = attend_own_column(t, i % t->shape.columns);
    p->weight[i] = ir_load(b, b->f32, attend_score_at(t, own_row, own_column), 4);
  }
}

void attend_lay_product_gains(attend_gradient *g, ir_value first) {
  attend *t = &g->t;
  ir *b = t->b;
  if (!t->p->score) return;
  ir_value row, column;
  ir_wait(b, IR_BARRIER_WARP); /* other lanes have read what scores gain */
  ir_loop pairs = begin_pair(t, &row, &column);
  ir_value at = attend_score_at(t, row, column), gained = ir_load(b, b->f32, at, 4);
  ir_value product = ir_load(b, b->f32, product_at(g, row, column), 4);
  attend_pair_of pair = attend_tile_pair(g, first, row, column);
  ir_store(b, attend_product_gain(t, gained, product, &pair), at, 4, false);
  ir_end_for(b, pairs);
  ir_wait(b, IR_BARRIER_WARP);
}
