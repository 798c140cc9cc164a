/* gpu/give_torques: what operands and coordinates gain of rotations that pairs have; see gpu/give.h.
 *
 * A pair's torque in the frame of what was turned (algebra/torque.h), in float32, and from there expressions of its
 * displacement in two-float arithmetic. What operands gain is summed block by block, what coordinates gain pair by pair
 * through the blocks, and both go on as what a bias gives does (gpu/give.h).
 */
#include "gpu/give.h"
#include "gpu/index.h"

static const attention_torques *torques_of(const attend_give *g) { return g->t->p->torques; }

/* ---- a pair ---- */

/* The displacement as it is, not narrowed: the leaves of rotations. */
static void place_pair(attend_give *g, const attend_give_pair *pair) {
  attend *t = g->t;
  for (int axis = 0; axis < t->p->spec->n_axes; axis++)
    t->exprs.positions[axis] = attend_displacement(t, pair->of.query, pair->of.key, axis);
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

/* The block's channels of a row. */
static void load_block(attend_give *g, const attend_give_rows *rows, ir_value index, ir_value *x) {
  ir_value row = ir_offset(g->t->b, rows->memory, wide(g->t->b, scaled(g->t->b, index, rows->pitch)));
  attend_block_of_row(g->t, row, rows->bytes, x);
}

/* The expressions' leaves of the emitter's unit: torques of what the pair's product gains, [SPEC_MAX_BIVECTORS]. */
static void set_torques(attend_give *g, const attend_give_pair *pair, two_float *torques) {
  attend *t = g->t;
  ir *b = t->b;
  thread_emitter *e = &t->exprs;
  const torque_basis *basis = &torques_of(g)->basis;
  int n = t->p->spec->n_components;
  ir_value own[SPEC_MAX_BLADES], streamed[SPEC_MAX_BLADES], y[SPEC_MAX_BLADES],
      entry[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
  load_block(g, &g->own, pair->row, own);
  load_block(g, &g->streamed, pair->column, streamed);
  ir_value *q = g->of_keys ? streamed : own, *k = g->of_keys ? own : streamed;
  for (int i = 0; i < t->p->n_entries; i++) entry[i] = emit_thread_f32(e, t->p->entry[i], 0);
  attend_turn_block(t, entry, false, k, y);
  ir_value gained = mul(b, pair->gained, g->scale);
  for (int i = 0; i < n; i++) q[i] = mul(b, gained, q[i]);
  for (int i = 0; i < basis->count; i++) torques[i] = two_float_f32(torque(b, &basis->element[i], q, y));
  e->cotangents = torques;
  e->n_cotangents = basis->count;
  e->first_cotangent = 1;
}

/* The value of a gradient: 0 of a pair that gains nothing, whatever its rows are. */
static two_float value_of(attend_give *g, const expr *gradient, ir_value gained) {
  ir *b = g->t->b;
  ir_value counts = ir_compare_float(b, "une", gained, ir_float(b, b->f32, 0));
  two_float x = emit_thread_value(&g->t->exprs, gradient, 0), zero = two_float_const(b, 0);
  return two_float_select(b, counts, x, zero);
}

/* ---- blocks ---- */

typedef struct block_loop {
  ir_loop loop;
  ir_value unit;
  two_float *remembered;
} block_loop;

/* The blocks one after the other, with the operands of their entries and of `count` gradients. */
static block_loop begin_blocks(attend_give *g, int n_gradients, const expr *const *gradients, int n,
                               const ir_value *initial, ir_value *now) {
  attend *t = g->t;
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

static void end_blocks(attend_give *g, block_loop blocks, int n, const ir_value *next, ir_value *sums) {
  ir_end_for_with(g->t->b, blocks.loop, n, next, sums);
  g->t->exprs.unit = blocks.unit;
  emit_thread_forget(&g->t->exprs, blocks.remembered);
}

/* ---- operands ---- */

static void add_pair(void *context, attend_give *g, const attend_give_pair *pair, ir_value *sums) {
  const attend_give_list *list = context;
  attend *t = g->t;
  two_float torques[SPEC_MAX_BIVECTORS], *remembered = emit_thread_remember(&t->exprs);
  place_pair(g, pair);
  set_torques(g, pair, torques);
  for (int i = 0; i < list->count; i++) attend_add_sum(t->b, sums, i, value_of(g, list->of[i]->gradient, pair->gained));
  emit_thread_forget(&t->exprs, remembered);
}

static void give_group(attend_give *g, attend_give_list *list) {
  const expr *gradients[GIVE_MOST_TOGETHER];
  for (int i = 0; i < list->count; i++) gradients[i] = list->of[i]->gradient;
  block_loop blocks = begin_blocks(g, list->count, gradients, 0, NULL, NULL);
  attend_give_elements(g, list, add_pair);
  end_blocks(g, blocks, 0, NULL, NULL);
}

unsigned attend_turning_operands(const attention_plan *p) {
  unsigned bits = 0;
  if (!p->torques) return 0;
  for (int i = 0; i < p->torques->n_scatters; i++) {
    if (p->torques->scatter[i].leaf->op != EXPR_OPERAND) return 0; /* a computed place */
    bits |= 1u << p->torques->scatter[i].leaf->index;
  }
  return bits;
}

static void give_operands(attend_give *g) {
  ir *b = g->t->b;
  const attention_torques *of = torques_of(g);
  attend_give_list list = {0};
  if (g->of_keys || !attend_turning_operands(g->t->p)) return;
  ir_branch wanted = ir_if(b, attend_operands_wanted(g));
  for (int i = 0; i < of->n_scatters; i++) {
    list.of[list.count++] = &of->scatter[i];
    if (list.count < GIVE_MOST_TOGETHER && i + 1 < of->n_scatters) continue;
    give_group(g, &list);
    list.count = 0;
  }
  ir_end_if(b, wanted);
}

/* ---- coordinates ---- */

/* What a pair gives, of all blocks, to coordinates that gain. */
static void add_places(void *context, attend_give *g, const attend_give_pair *pair, ir_value *sums) {
  attend *t = g->t;
  ir *b = t->b;
  int count = 0;
  const expr *gradients[SPEC_MAX_AXES];
  two_float torques[SPEC_MAX_BIVECTORS], *remembered = emit_thread_remember(&t->exprs);
  ir_value now[SPEC_MAX_AXES];
  (void)context;
  for (int axis = 0; axis < t->p->spec->n_axes; axis++)
    if (torques_of(g)->place[axis]) gradients[count++] = torques_of(g)->place[axis];
  place_pair(g, pair);
  for (int i = 0; i < t->p->n_shared; i++) emit_thread_value(&t->exprs, t->p->shared[i], 0);
  block_loop blocks = begin_blocks(g, count, gradients, count, sums, now);
  set_torques(g, pair, torques);
  for (int i = 0; i < count; i++) now[i] = add(b, now[i], two_float_narrow(b, value_of(g, gradients[i], pair->gained)));
  end_blocks(g, blocks, count, now, sums);
  emit_thread_forget(&t->exprs, remembered);
}

void attend_give_torques(attend_give *g) {
  unsigned axes = 0;
  if (!torques_of(g)) return;
  give_operands(g);
  for (int axis = 0; axis < g->t->p->spec->n_axes && g->t->p->n_sums; axis++)
    axes |= torques_of(g)->place[axis] ? 1u << axis : 0;
  attend_give_shares(g, axes, add_places, NULL);
}
