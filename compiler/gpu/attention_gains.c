/* gpu/attention_gains: see gpu/attention_backward.h.
 *
 * Where an element stands by itself (a slope), a thread sums what its pairs give it in two-float arithmetic, and at the
 * end of an item its warp's threads are added up in order; those past the first ATTEND_MOST_GAINS, for which a thread
 * has no registers from tile to tile, at the end of each tile, in groups of as many. Where a place is computed (a table
 * of displacements), a warp lays its pairs' gains and places side by side, and each of its lanes goes through all of
 * them in order and takes those whose place is its own: places are dealt out to lanes by their last five bits. A warp's
 * sums are its own chunk's, in memory that no other touches.
 */
#include "gpu/attention_backward.h"
#include "gpu/index.h"

#include "kernel/launch.h"

enum { WARP = 32, NUMBER = TWO_FLOAT_BYTES, NOWHERE = -1 };

static bool is_placed(const adjoint_scatter *s) { return s->leaf->op == EXPR_ELEMENT; }

/* Those that stand by themselves. */
static int n_single(const attention_plan *p) {
  int count = 0;
  for (int i = 0; i < p->n_scatters; i++) count += !is_placed(&p->scatter[i]);
  return count;
}

/* A group of them, from number `from` on: appended to `group`; their number. */
static int single_group(const attention_plan *p, int from, const adjoint_scatter **group) {
  int index = 0, count = 0;
  for (int i = 0; i < p->n_scatters; i++) {
    if (is_placed(&p->scatter[i]) || index++ < from || count == ATTEND_MOST_GAINS) continue;
    group[count++] = &p->scatter[i];
  }
  return count;
}

int attend_gain_values(const attention_plan *p) {
  const adjoint_scatter *first[ATTEND_MOST_GAINS];
  return 2 * single_group(p, 0, first);
}

static bool has_places(const attention_plan *p) { return p->n_scatters > n_single(p); }

int64_t attend_gains_bytes(const attention_plan *p, const attend_shape *tile) {
  int64_t number = (int64_t)PEGEN_PTX_BLOCK * NUMBER;
  return has_places(p) ? number * tile->columns : n_single(p) > ATTEND_MOST_GAINS ? number : 0;
}

static ir_value element_at(attend_gradient *g, ir_value element) {
  ir *b = g->t.b;
  return ir_pointer(b, add(b, g->chunk, mul(b, wide(b, element), i64(b, NUMBER))));
}

static void gain_element(attend_gradient *g, ir_value element, two_float gain) {
  ir *b = g->t.b;
  ir_value at = element_at(g, element);
  two_float_store(b, two_float_add(b, two_float_load(b, at), gain), at);
}

void attend_gains_clear(attend_gradient *g) {
  ir *b = g->t.b;
  const spec *s = g->t.p->spec;
  int64_t count = spec_elements_before(s, s->n_operands);
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, (count + WARP - 1) / WARP));
  ir_value element = add(b, g->lane, scaled(b, narrow(b, loop.index), WARP));
  ir_branch inside = ir_if(b, below(b, element, i32(b, count)));
  two_float_store(b, two_float_const(b, 0), element_at(g, element));
  ir_end_if(b, inside);
  ir_end_for(b, loop);
}

void attend_gains_begin(attend_gradient *g, ir_value *sums) {
  const attention_plan *p = g->t.p;
  const expr **roots = arena_array(g->t.memory, const expr *, 2 * p->n_scatters + 1);
  int count = 0;
  for (int i = 0; i < p->n_scatters; i++) {
    roots[count++] = p->scatter[i].gradient;
    if (is_placed(&p->scatter[i])) roots[count++] = p->scatter[i].leaf->arg[0];
  }
  emit_thread_operands(&g->t.exprs, roots, count);
  for (int i = 0; i < attend_gain_values(p); i++) sums[i] = ir_float(g->t.b, g->t.b->f32, 0);
}

/* ---- a pair ---- */

ir_value attend_product_at(attend_gradient *g, ir_value row, ir_value column) {
  ir *b = g->t.b;
  ir_value index = add(b, scaled(b, row, g->t.shape.score_pitch), column);
  return ir_offset(b, g->products, wide(b, scaled(b, index, 4)));
}

two_float *attend_gain_open(attend_gradient *g, ir_value first, ir_value row, ir_value column, two_float *gained) {
  attend *t = &g->t;
  thread_emitter *e = &t->exprs;
  two_float *remembered = emit_thread_remember(e);
  ir_value query = g->of_keys ? column : row, key = g->of_keys ? row : column;
  if (t->places.ptr) attend_pair_place(t, query, key);
  if (t->p->score) {
    ir_value own = add(t->b, t->first, row), other = add(t->b, first, column);
    attend_pair_of pair = {query, own, key, other};
    if (g->of_keys) pair = (attend_pair_of){query, other, key, own};
    attend_pair_numbers(t, &pair);
    e->positions[SPEC_OF_SCORE] = two_float_f32(ir_load(t->b, t->b->f32, attend_product_at(g, row, column), 4));
  }
  e->cotangents = gained;
  e->n_cotangents = 1;
  e->first_cotangent = 0;
  return remembered;
}

ir_value attend_is_encoded(attend_gradient *g, ir_value first, ir_value row, ir_value column) {
  ir *b = g->t.b;
  ir_value own = add(b, g->t.first, row), passing = add(b, first, column);
  return attend_encoded(&g->t, g->of_keys ? passing : own, g->of_keys ? own : passing);
}

ir_value attend_gain_of_pair(attend_gradient *g, ir_value first, ir_value row, ir_value column) {
  ir *b = g->t.b;
  ir_value gained = ir_load(b, b->f32, attend_score_at(&g->t, row, column), 4),
           encoded = attend_is_encoded(g, first, row, column);
  return encoded.ptr ? ir_select(b, encoded, gained, ir_float(b, b->f32, 0)) : gained;
}

ir_value attend_gain_value(attend_gradient *g, const expr *gradient, ir_value gained) {
  ir *b = g->t.b;
  ir_value zero = ir_float(b, b->f32, 0), x = emit_thread_f32(&g->t.exprs, gradient, 0);
  return ir_select(b, ir_compare_float(b, "une", gained, zero), x, zero);
}

/* ---- elements that stand by themselves ---- */

/* What the thread's pairs of the tile give a group is added to sums, two numbers each. */
static void add_group(attend_gradient *g, ir_value first, const adjoint_scatter *const *group, int n, ir_value *sums) {
  ir *b = g->t.b;
  const attend_shape *s = &g->t.shape;
  ir_value now[2 * ATTEND_MOST_GAINS], next[2 * ATTEND_MOST_GAINS];
  ir_loop pairs = ir_for_with(b, i64(b, 0), i64(b, (int64_t)s->rows * s->columns), 2 * n, sums, now);
  ir_value pair = narrow(b, pairs.index);
  ir_value row = attend_row_of_thread(&g->t, quotient(b, pair, s->columns)),
           column = attend_column_of_thread(&g->t, rest(b, pair, s->columns));
  ir_value gained = attend_gain_of_pair(g, first, row, column);
  two_float cotangent = two_float_f32(gained), *remembered = attend_gain_open(g, first, row, column, &cotangent);
  for (int i = 0; i < n; i++) {
    two_float old = {.hi = now[2 * i], .lo = now[2 * i + 1]};
    two_float sum = two_float_add(b, old, two_float_f32(attend_gain_value(g, group[i]->gradient, gained)));
    next[2 * i] = sum.hi;
    next[2 * i + 1] = sum.lo;
  }
  emit_thread_forget(&g->t.exprs, remembered);
  ir_end_for_with(b, pairs, 2 * n, next, sums);
}

static void give_group(attend_gradient *g, ir_value room, const adjoint_scatter *const *group, int n,
                       const ir_value *sums) {
  for (int i = 0; i < n; i++)
    attend_gain_by_warp(g, room, group[i]->leaf, (two_float){.hi = sums[2 * i], .lo = sums[2 * i + 1]});
}

/* The first group's sums go from tile to tile; the others' are a tile's own. */
static void add_single(attend_gradient *g, ir_value first, ir_value *sums) {
  ir *b = g->t.b;
  const attention_plan *p = g->t.p;
  const adjoint_scatter *group[ATTEND_MOST_GAINS];
  ir_value own[2 * ATTEND_MOST_GAINS];
  int n = single_group(p, 0, group);
  if (n) add_group(g, first, group, n, sums);
  for (int from = n; (n = single_group(p, from, group)) > 0; from += n) {
    for (int i = 0; i < 2 * n; i++) own[i] = ir_float(b, b->f32, 0);
    add_group(g, first, group, n, own);
    give_group(g, g->gains, group, n, own);
  }
}

void attend_gain_by_warp(attend_gradient *g, ir_value room, const expr *leaf, two_float own) {
  ir *b = g->t.b;
  ir_value warp = scaled(b, sub(b, g->t.thread, g->lane), NUMBER);
  room = ir_offset(b, room, wide(b, warp));
  two_float_store(b, own, ir_offset(b, room, wide(b, scaled(b, g->lane, NUMBER))));
  ir_wait(b, IR_BARRIER_WARP);
  ir_branch first = ir_if(b, ir_compare_int(b, "eq", g->lane, i32(b, 0)));
  ir_value values[2] = {ir_float(b, b->f32, 0), ir_float(b, b->f32, 0)};
  ir_loop lanes = ir_for_with(b, i64(b, 0), i64(b, WARP), 2, values, values);
  two_float old = {.hi = values[0], .lo = values[1]};
  two_float sum = two_float_add(b, old, two_float_load(b, ir_offset(b, room, mul(b, lanes.index, i64(b, NUMBER)))));
  ir_end_for_with(b, lanes, 2, (ir_value[]){sum.hi, sum.lo}, values);
  ir_value element =
      add(b, emit_thread_offset(&g->t.exprs, leaf, 0), i32(b, spec_elements_before(g->t.p->spec, leaf->index)));
  gain_element(g, element, (two_float){.hi = values[0], .lo = values[1]});
  ir_end_if(b, first);
  ir_wait(b, IR_BARRIER_WARP); /* the room is free, and the element seen by those it may be dealt out to */
}

void attend_gains_end(attend_gradient *g, const ir_value *sums) {
  const adjoint_scatter *group[ATTEND_MOST_GAINS];
  give_group(g, g->t.scores, group, single_group(g->t.p, 0, group), sums);
}

/* ---- elements at computed places ---- */

/* Entry `index` of the warp's room: what is gained and where. */
static ir_value gain_at(attend_gradient *g, ir_value index) {
  ir *b = g->t.b;
  ir_value warp = scaled(b, quotient(b, g->t.thread, WARP), (int64_t)WARP * g->t.shape.columns);
  return ir_offset(b, g->gains, wide(b, scaled(b, add(b, warp, index), NUMBER)));
}

static void lay_gains(attend_gradient *g, const adjoint_scatter *s, ir_value row, ir_value first) {
  ir *b = g->t.b;
  ir_loop columns = ir_for(b, i64(b, 0), i64(b, g->t.shape.columns));
  ir_value index = narrow(b, columns.index), column = attend_column_of_thread(&g->t, index);
  ir_value gained = attend_gain_of_pair(g, first, row, column);
  two_float cotangent = two_float_f32(gained), *remembered = attend_gain_open(g, first, row, column, &cotangent);
  ir_value gain = attend_gain_value(g, s->gradient, gained);
  ir_value place =
      add(b, emit_thread_place(&g->t.exprs, s->leaf), i32(b, spec_elements_before(g->t.p->spec, s->leaf->index)));
  emit_thread_forget(&g->t.exprs, remembered);
  ir_value is_some = ir_compare_float(b, "une", gain, ir_float(b, b->f32, 0));
  place = ir_select(b, is_some, place, i32(b, NOWHERE));
  ir_value both[] = {ir_cast(b, "arith.bitcast", gain, b->i32), place};
  ir_store(b, ir_elements(b, ir_vector(b, 2, b->i32), 2, both), gain_at(g, add(b, g->lane, scaled(b, index, WARP))),
           NUMBER, false);
  ir_end_for(b, columns);
}

/* The lane's own of them. A place below 0 is nobody's. */
static void take_gains(attend_gradient *g) {
  ir *b = g->t.b;
  ir_loop all = ir_for(b, i64(b, 0), i64(b, (int64_t)WARP * g->t.shape.columns));
  ir_value both = ir_load(b, ir_vector(b, 2, b->i32), gain_at(g, narrow(b, all.index)), NUMBER),
           place = ir_extract(b, both, 1);
  ir_value dealt = ir_op2(b, "arith.andi", place, i32(b, INT32_MIN | (WARP - 1)));
  ir_branch own = ir_if(b, ir_compare_int(b, "eq", dealt, g->lane));
  gain_element(g, place, two_float_f32(ir_cast(b, "arith.bitcast", ir_extract(b, both, 0), b->f32)));
  ir_end_if(b, own);
  ir_end_for(b, all);
}

static void add_placed(attend_gradient *g, const adjoint_scatter *s, ir_value first) {
  ir *b = g->t.b;
  ir_loop rows = ir_for(b, i64(b, 0), i64(b, g->t.shape.rows));
  lay_gains(g, s, attend_row_of_thread(&g->t, narrow(b, rows.index)), first);
  ir_wait(b, IR_BARRIER_WARP);
  take_gains(g);
  ir_wait(b, IR_BARRIER_WARP);
  ir_end_for(b, rows);
}

void attend_gains_add(attend_gradient *g, ir_value first, ir_value *sums) {
  const attention_plan *p = g->t.p;
  add_single(g, first, sums);
  for (int i = 0; i < p->n_scatters; i++)
    if (is_placed(&p->scatter[i])) add_placed(g, &p->scatter[i], first);
}
