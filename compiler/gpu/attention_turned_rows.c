/* gpu/attention_turned_rows: gradients where rows are turned once each; see gpu/attention_backward.h.
 *
 * With q' = R(r) q, k' = R(s) k, v' = R(s) v and g' = R(r) g of a query at r and a key at s, scores are q' . k' and
 * what weights gain is g' . v', so that all five products are those of rows as they stand; what rows gain of them is
 * turned back by the transpose, once, when a tile has all of it.
 */
#include "gpu/attention_backward.h"
#include "gpu/index.h"

const attention_plan *attend_gradient_plan(arena *a, const attention_plan *p) {
  return p->turns_values ? attend_plan_of_turned(a, p) : p;
}

static attend_turning rows_of(attend_gradient *g, bool own, int kind) {
  const attend_shape *s = &g->t.shape;
  attend_matrix rows = own ? g->own[kind] : g->passing[kind];
  return (attend_turning){.memory = rows.memory,
                          .pitch = rows.pitch,
                          .count = own ? s->queries : s->keys,
                          .places = own == g->of_keys ? g->t.places : g->t.query_places};
}

void attend_own_turn(attend_gradient *g) {
  if (!g->t.turns_rows) return;
  ir_wait(g->t.b, IR_BARRIER_BLOCK);
  for (int kind = 0; kind < 2; kind++) {
    attend_turning rows = rows_of(g, true, kind);
    attend_turn_rows(&g->t, &rows);
  }
}

void attend_passing_turn(attend_gradient *g, int kind, bool watched) {
  if (!g->t.turns_rows) return;
  attend_turning rows = rows_of(g, false, kind);
  rows.watched = watched;
  attend_turn_rows(&g->t, &rows);
  ir_wait(g->t.b, IR_BARRIER_BLOCK);
}

/* Of the thread's row among its own its channels [4 lane + 32 quad, ... + 4). */
static ir_value quad_at(attend_gradient *g, int kind, int row, int quad) {
  ir *b = g->t.b;
  ir_value at = attend_row_at(&g->t, g->own[kind].memory, attend_own_row(&g->t, row), g->own[kind].pitch);
  at = ir_offset(b, at, wide(b, scaled(b, g->t.lane, 4 * ATTEND_QUAD)));
  return ir_offset_const(b, at, 4LL * quad * ATTEND_QUAD * ATTEND_LANES);
}

void attend_sums_turn_back(attend_gradient *g, int kind, ir_value *sums) {
  ir *b = g->t.b;
  int quads = g->shape.quads[kind], count = g->t.shape.rows * quads;
  MlirType four = ir_vector(b, ATTEND_QUAD, b->f32);
  if (!g->t.turns_rows) return;
  attend_turning rows = rows_of(g, true, kind);
  rows.back = true;
  ir_wait(b, IR_BARRIER_BLOCK); /* all have read the rows */
  for (int i = 0; i < count; i++) ir_store(b, sums[i], quad_at(g, kind, i / quads, i % quads), 16, false);
  ir_wait(b, IR_BARRIER_BLOCK);
  attend_turn_rows(&g->t, &rows);
  ir_wait(b, IR_BARRIER_BLOCK);
  for (int i = 0; i < count; i++) sums[i] = ir_load(b, four, quad_at(g, kind, i / quads, i % quads), 16);
  ir_wait(b, IR_BARRIER_BLOCK); /* the memory is free */
}
