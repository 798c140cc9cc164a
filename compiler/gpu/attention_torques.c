/* gpu/attention_torques: see gpu/attention_backward.h.
 *
 * A pair's torque in the frame of what was turned (algebra/torque.h), in float32, and from there expressions of its
 * displacement in two-float arithmetic. What operands gain is summed block by block: each thread goes through its pairs
 * of the tile, its warp's sums are added up in order, and one thread adds them to the warp's own elements. What
 * coordinates gain goes pair by pair through the blocks, and to the row's place as what a bias gives them does.
 */
#include "gpu/attention_backward.h"
#include "gpu/index.h"

static const double LN_2 = 0.69314718055994530942;

static const attention_torques *torques_of(const attend_gradient *g) { return g->t.p->torques; }

unsigned attend_turning_operands(const attention_plan *p) {
  unsigned bits = 0;
  if (!p->torques) return 0;
  for (int i = 0; i < p->torques->n_scatters; i++) {
    if (p->torques->scatter[i].leaf->op != EXPR_OPERAND) return 0; /* a computed place */
    bits |= 1u << p->torques->scatter[i].leaf->index;
  }
  return bits;
}

static int n_places(const attend_gradient *g) {
  int count = 0;
  for (int axis = 0; axis < g->t.p->spec->n_axes; axis++) count += torques_of(g)->place[axis] != NULL;
  return count;
}

/* ---- a pair ---- */

/* The displacement as it is, not narrowed: the leaves of rotations. */
static void place_pair(attend_gradient *g, ir_value row, ir_value column) {
  attend *t = &g->t;
  ir_value query = g->of_keys ? column : row, key = g->of_keys ? row : column;
  for (int axis = 0; axis < t->p->spec->n_axes; axis++)
    t->exprs.positions[axis] = attend_displacement(t, query, key, axis);
}

/* x^T E y. */
static ir_value torque(ir *b, const torque_element *element, const ir_value *x, const ir_value *y) {
  ir_value sum = {NULL};
  for (int i = 0; i < element->n_entries; i++) {
    const torque_entry *at = &element->entry[i];
    ir_value product = mul(b, x[at->row], y[at->column]);
    if (sum.ptr) sum = at->sign < 0 ? sub(b, sum, product) : add(b, sum, product);
    else sum = at->sign < 0 ? ir_op1(b, "arith.negf", product) : product;
  }
  return sum;
}

/* The expressions' leaves of the emitter's unit: torques of what the pair's product gains, [SPEC_MAX_BIVECTORS]. */
static void set_torques(attend_gradient *g, ir_value row, ir_value column, ir_value gained, two_float *torques) {
  attend *t = &g->t;
  ir *b = t->b;
  thread_emitter *e = &t->exprs;
  const torque_basis *basis = &torques_of(g)->basis;
  int n = t->p->spec->n_components;
  ir_value q[SPEC_MAX_BLADES], k[SPEC_MAX_BLADES], y[SPEC_MAX_BLADES], entry[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
  ir_value own = attend_row_at(t, g->own[ATTEND_OF_KEYS].memory, row, g->own[ATTEND_OF_KEYS].pitch),
           other = attend_row_at(t, g->passing[ATTEND_OF_KEYS].memory, column, g->passing[ATTEND_OF_KEYS].pitch);
  attend_block_of_row(t, g->of_keys ? other : own, q);
  attend_block_of_row(t, g->of_keys ? own : other, k);
  for (int i = 0; i < t->p->n_entries; i++) entry[i] = emit_thread_f32(e, t->p->entry[i], 0);
  attend_turn_block(t, entry, false, (ir_value){NULL}, k, y);
  ir_value natural = mul(b, gained, ir_float(b, b->f32, LN_2)); /* queries are in powers of two */
  for (int i = 0; i < n; i++) q[i] = mul(b, natural, q[i]);
  for (int i = 0; i < basis->count; i++) torques[i] = two_float_f32(torque(b, &basis->element[i], q, y));
  e->cotangents = torques;
  e->n_cotangents = basis->count;
  e->first_cotangent = 1;
}

/* The value of a gradient: 0 of a pair that gains nothing, whatever its rows are. */
static two_float value_of(attend_gradient *g, const expr *gradient, ir_value gained) {
  ir *b = g->t.b;
  ir_value counts = ir_compare_float(b, "une", gained, ir_float(b, b->f32, 0));
  two_float x = emit_thread_value(&g->t.exprs, gradient, 0), zero = two_float_const(b, 0);
  return two_float_select(b, counts, x, zero);
}

/* ---- blocks ---- */

typedef struct block_loop {
  ir_loop loop;
  ir_value unit;
  two_float *remembered;
} block_loop;

/* The blocks one after the other, with the operands of their entries and of `count` gradients. */
static block_loop begin_blocks(attend_gradient *g, int n_gradients, const expr *const *gradients, int n,
                               const ir_value *initial, ir_value *now) {
  attend *t = &g->t;
  ir *b = t->b;
  thread_emitter *e = &t->exprs;
  int count = 0;
  const expr **roots = arena_array(t->memory, const expr *, t->p->n_entries + n_gradients + 1);
  for (int i = 0; i < t->p->n_entries; i++) roots[count++] = t->p->entry[i];
  for (int i = 0; i < n_gradients; i++) roots[count++] = gradients[i];
  block_loop blocks = {.unit = e->unit, .remembered = emit_thread_remember(e)};
  blocks.loop = ir_for_with(b, i64(b, 0), i64(b, t->p->spec->n_blocks), n, initial, now);
  e->unit = narrow(b, blocks.loop.index);
  emit_thread_operands(e, roots, count);
  return blocks;
}

static void end_blocks(attend_gradient *g, block_loop blocks, int n, const ir_value *next, ir_value *sums) {
  ir_end_for_with(g->t.b, blocks.loop, n, next, sums);
  g->t.exprs.unit = blocks.unit;
  emit_thread_forget(&g->t.exprs, blocks.remembered);
}

/* ---- operands ---- */

/* What the thread's pairs of the tile give n scatters in the emitter's block. */
static void sum_pairs(attend_gradient *g, ir_value first, const adjoint_scatter *scatter, int n, two_float *sums) {
  attend *t = &g->t;
  ir *b = t->b;
  two_float torques[SPEC_MAX_BIVECTORS];
  ir_value values[2 * ATTEND_MOST_GAINS], now[2 * ATTEND_MOST_GAINS];
  int count = 2 * n;
  for (int i = 0; i < count; i++) values[i] = ir_float(b, b->f32, 0);
  ir_loop pairs = ir_for_with(b, i64(b, 0), i64(b, (int64_t)t->shape.rows * t->shape.columns), count, values, now);
  ir_value pair = narrow(b, pairs.index);
  ir_value row = attend_row_of_thread(t, quotient(b, pair, t->shape.columns)),
           column = attend_column_of_thread(t, rest(b, pair, t->shape.columns));
  ir_value gained = attend_gain_of_pair(g, first, row, column);
  two_float *remembered = emit_thread_remember(&t->exprs);
  place_pair(g, row, column);
  set_torques(g, row, column, gained, torques);
  for (int i = 0; i < n; i++) {
    two_float old = {.hi = now[2 * i], .lo = now[2 * i + 1]};
    two_float sum = two_float_add(b, old, value_of(g, scatter[i].gradient, gained));
    now[2 * i] = sum.hi;
    now[2 * i + 1] = sum.lo;
  }
  emit_thread_forget(&t->exprs, remembered);
  ir_end_for_with(b, pairs, count, now, values);
  for (int i = 0; i < n; i++) sums[i] = (two_float){.hi = values[2 * i], .lo = values[2 * i + 1]};
}

static void add_group(attend_gradient *g, ir_value first, const adjoint_scatter *scatter, int n) {
  const expr *gradients[ATTEND_MOST_GAINS];
  two_float sums[ATTEND_MOST_GAINS];
  for (int i = 0; i < n; i++) gradients[i] = scatter[i].gradient;
  block_loop blocks = begin_blocks(g, n, gradients, 0, NULL, NULL);
  sum_pairs(g, first, scatter, n, sums);
  for (int i = 0; i < n; i++) attend_gain_by_warp(g, g->turned_words, scatter[i].leaf, sums[i]);
  end_blocks(g, blocks, 0, NULL, NULL);
}

static void add_operands(attend_gradient *g, ir_value first) {
  ir *b = g->t.b;
  const attention_torques *of = torques_of(g);
  if (g->of_keys || !attend_turning_operands(g->t.p)) return;
  ir_branch wanted = ir_if(b, ir_compare_int(b, "ne", g->chunk, i64(b, 0)));
  for (int from = 0; from < of->n_scatters; from += ATTEND_MOST_GAINS) {
    int left = of->n_scatters - from;
    add_group(g, first, of->scatter + from, left < ATTEND_MOST_GAINS ? left : ATTEND_MOST_GAINS);
  }
  ir_end_if(b, wanted);
}

/* ---- coordinates ---- */

/* What a pair gives, of all blocks, is added to sums[n_axes]. */
static void add_pair(attend_gradient *g, ir_value first, ir_value row, ir_value column, ir_value *sums) {
  attend *t = &g->t;
  ir *b = t->b;
  const attention_torques *of = torques_of(g);
  int axes = t->p->spec->n_axes, count = 0;
  const expr *gradients[SPEC_MAX_AXES];
  two_float torques[SPEC_MAX_BIVECTORS], *remembered = emit_thread_remember(&t->exprs);
  ir_value now[SPEC_MAX_AXES], gained = attend_gain_of_pair(g, first, row, column);
  for (int axis = 0; axis < axes; axis++)
    if (of->place[axis]) gradients[count++] = of->place[axis];
  place_pair(g, row, column);
  for (int i = 0; i < t->p->n_shared; i++) emit_thread_value(&t->exprs, t->p->shared[i], 0);
  block_loop blocks = begin_blocks(g, count, gradients, axes, sums, now);
  set_torques(g, row, column, gained, torques);
  for (int axis = 0; axis < axes; axis++)
    if (of->place[axis]) now[axis] = add(b, now[axis], two_float_narrow(b, value_of(g, of->place[axis], gained)));
  end_blocks(g, blocks, axes, now, sums);
  emit_thread_forget(&t->exprs, remembered);
}

static void add_places(attend_gradient *g, ir_value first) {
  attend *t = &g->t;
  ir *b = t->b;
  int axes = t->p->spec->n_axes;
  ir_value sums[SPEC_MAX_AXES], now[SPEC_MAX_AXES];
  if (!attend_gives_places(&g->shape, t->p) || n_places(g) == 0) return;
  ir_branch wanted = ir_if(b, attend_places_wanted(g));
  ir_loop rows = ir_for(b, i64(b, 0), i64(b, t->shape.rows));
  ir_value row = attend_row_of_thread(t, narrow(b, rows.index));
  for (int axis = 0; axis < axes; axis++) sums[axis] = ir_float(b, b->f32, 0);
  ir_loop columns = ir_for_with(b, i64(b, 0), i64(b, t->shape.columns), axes, sums, now);
  add_pair(g, first, row, attend_column_of_thread(t, narrow(b, columns.index)), now);
  ir_end_for_with(b, columns, axes, now, sums);
  for (int axis = 0; axis < axes; axis++)
    if (torques_of(g)->place[axis]) attend_place_give(g, row, axis, sums[axis]);
  ir_end_for(b, rows);
  ir_end_if(b, wanted);
}

void attend_torques_add(attend_gradient *g, ir_value first) {
  if (!torques_of(g)) return;
  add_operands(g, first);
  add_places(g, first);
}
