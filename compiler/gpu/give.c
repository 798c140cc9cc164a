/* gpu/give: see gpu/give.h. */
#include "gpu/give.h"
#include "gpu/index.h"
#include "mlir/exp2.h"

#include "kernel/launch.h"

enum { WARP = 32, NUMBER = TWO_FLOAT_BYTES, NOWHERE = -1 };

static bool is_placed(const adjoint_scatter *s) { return s->leaf->op == EXPR_ELEMENT; }
/* Whether all pairs give to one element, which may differ from term to term. */
static bool is_of_terms(const adjoint_scatter *s) { return is_placed(s) && s->leaf->arg[0]->op == EXPR_TERMS; }

int attend_give_single(const attention_plan *p) {
  int count = 0;
  for (int i = 0; i < p->n_scatters; i++) count += !is_placed(&p->scatter[i]);
  return count;
}

int64_t attend_give_bytes(int kept) { return (int64_t)NUMBER * PEGEN_PTX_BLOCK * (1 + kept); }

static ir_value zero(ir *b) { return ir_float(b, b->f32, 0); }

static ir_value has_address(attend_give *g, int parameter) {
  return ir_compare_int(g->t->b, "ne", g->gradient[parameter], i64(g->t->b, 0));
}

/* A number of each thread of the block: what is told or dealt out (0), sums that are kept behind it. */
static ir_value number_at(attend_give *g, int number, ir_value thread) {
  ir *b = g->t->b;
  ir_value first = ir_offset_const(b, g->numbers, (int64_t)number * NUMBER * PEGEN_PTX_BLOCK);
  return ir_offset(b, first, wide(b, scaled(b, thread, NUMBER)));
}

static ir_value thread_of(attend_give *g, ir_value lane) {
  ir *b = g->t->b;
  return add(b, scaled(b, g->warp, WARP), lane);
}

/* ---- a lane's pairs ---- */

static int lanes_of_row(const attend_give *g) { return WARP / g->rows; }

static ir_value lane_row(attend_give *g) {
  ir *b = g->t->b;
  ir_value first = scaled(b, g->warp, g->together), row = rest(b, g->lane, g->rows);
  if (g->together == g->rows) return add(b, first, row);
  ir_value before = scaled(b, quotient(b, row, g->together), (int64_t)g->together * PEGEN_PTX_ATTENTION_WARPS);
  return add(b, add(b, first, rest(b, row, g->together)), before);
}

ir_value attend_own_token(attend_give *g) { return add(g->t->b, g->own_first, lane_row(g)); }

static ir_value has_own(attend_give *g) {
  return less(g->t->b, attend_own_token(g), g->of_keys ? g->t->keys : g->t->tokens);
}

static ir_value pair_at(attend_give *g, ir_value memory, ir_value row, ir_value column) {
  ir *b = g->t->b;
  return ir_offset(b, memory, wide(b, scaled(b, add(b, scaled(b, row, g->pitch), column), 4)));
}

/* The lane's pair number `index` (i64). */
static attend_give_pair pair_of(attend_give *g, ir_value index) {
  ir *b = g->t->b;
  ir_value row = lane_row(g), part = quotient(b, g->lane, g->rows);
  ir_value column = add(b, scaled(b, part, g->columns / lanes_of_row(g)), narrow(b, index));
  ir_value own = attend_own_token(g), streamed = add(b, g->streamed_first, column);
  attend_give_pair pair = {.row = row, .column = column, .of = {row, own, column, streamed}};
  if (g->of_keys) pair.of = (attend_pair_of){column, streamed, row, own};
  ir_value encoded = attend_encoded(g->t, pair.of.query_token, pair.of.key_token), counts = has_own(g), none = zero(b);
  if (encoded.ptr) counts = both(b, counts, encoded);
  pair.gained = ir_select(b, counts, ir_load(b, b->f32, pair_at(g, g->gains, row, column), 4), none);
  return pair;
}

/* Calls for the lane's pairs of the tile, one after the other. */
static void walk(attend_give *g, attend_give_visit *visit, void *context, int count, ir_value *sums) {
  ir *b = g->t->b;
  ir_value now[2 * GIVE_MOST_TOGETHER];
  ir_loop loop = ir_for_with(b, i64(b, 0), i64(b, g->columns / lanes_of_row(g)), count, sums, now);
  attend_give_pair pair = pair_of(g, loop.index);
  visit(context, g, &pair, now);
  ir_end_for_with(b, loop, count, now, sums);
}

/* Expressions' leaves are those of a pair whose score gains so much, until close_gain. product: in powers of two; null:
 * it is not read. */
static two_float *open_gain(attend *t, const attend_pair_of *of, ir_value product, two_float *gained) {
  thread_emitter *e = &t->exprs;
  two_float *remembered = emit_thread_remember(e);
  if (t->places.ptr) attend_pair_place(t, of->query, of->key);
  attend_pair_numbers(t, of);
  if (product.ptr) e->positions[SPEC_OF_SCORE] = two_float_f32(product);
  e->cotangents = gained;
  e->n_cotangents = 1;
  e->first_cotangent = 0;
  return remembered;
}

static void close_gain(attend *t, two_float *remembered) {
  emit_thread_forget(&t->exprs, remembered);
  t->exprs.cotangents = NULL;
}

static ir_value counting(ir *b, ir_value gained, ir_value x) {
  ir_value none = zero(b);
  return ir_select(b, ir_compare_float(b, "une", gained, none), x, none);
}

/* A pair that is not encoded has its product for a score. */
ir_value attend_product_gain(attend *t, ir_value gained, ir_value product, const attend_pair_of *of) {
  ir *b = t->b;
  ir_value encoded = attend_encoded(t, of->query_token, of->key_token), gain = zero(b);
  two_float cotangent = two_float_f32(gained), *remembered = open_gain(t, of, product, &cotangent);
  if (t->p->gain) gain = emit_thread_f32(&t->exprs, t->p->gain, 0);
  close_gain(t, remembered);
  gain = counting(b, gained, gain);
  return encoded.ptr ? ir_select(b, encoded, gain, gained) : gain;
}

static expr_walker *walker_of(attend_give *g) { return &g->t->exprs.walker; }
static int nodes_of(const attend_give *g) { return expr_pool_count(g->t->p->spec->pool); }

/* A pair whose expressions' leaves are its own. */
typedef struct open_pair {
  const attend_give_pair *pair;
  two_float cotangent, *remembered;
  expr_term term; /* of which nothing is known of this pair */
} open_pair;

static void begin_pair(attend_give *g, const attend_give_pair *pair, open_pair *open) {
  ir *b = g->t->b;
  ir_value product = {NULL};
  if (g->t->p->score) product = ir_load(b, b->f32, pair_at(g, g->products, pair->row, pair->column), 4);
  *open = (open_pair){.pair = pair, .cotangent = two_float_f32(pair->gained)};
  open->remembered = open_gain(g->t, &pair->of, product, &open->cotangent);
  open->term = emit_expr_term(walker_of(g), walker_of(g)->term.index, nodes_of(g));
}

static void end_pair(attend_give *g, const open_pair *open) {
  walker_of(g)->term = open->term;
  close_gain(g->t, open->remembered);
}

/* The value of a gradient: 0 of a pair that is not seen, whatever its score is. */
static ir_value value_of(attend_give *g, const open_pair *open, const expr *gradient) {
  ir_value x = emit_thread_f32(&g->t->exprs, gradient, 0);
  return counting(g->t->b, open->pair->gained, x);
}

/* ---- elements of operands ---- */

ir_value attend_operands_wanted(attend_give *g) { return has_address(g, PEGEN_PTX_ATTENTION_CHUNKS); }

static int64_t n_elements(const attend_give *g) {
  return spec_elements_before(g->t->p->spec, g->t->p->spec->n_operands);
}

static ir_value element_at(attend_give *g, ir_value element) {
  ir *b = g->t->b;
  ir_value warp = add(b, scaled(b, g->t->block, PEGEN_PTX_ATTENTION_WARPS), g->warp),
           before = mul(b, wide(b, warp), i64(b, NUMBER * n_elements(g))),
           first = add(b, g->gradient[PEGEN_PTX_ATTENTION_CHUNKS], before);
  return ir_pointer(b, add(b, first, mul(b, wide(b, element), i64(b, NUMBER))));
}

static void gain_element(attend_give *g, ir_value element, two_float gain) {
  ir *b = g->t->b;
  ir_value at = element_at(g, element);
  two_float_store(b, two_float_add(b, two_float_load(b, at), gain), at);
}

static ir_value first_element(attend_give *g, const expr *leaf) {
  return i32(g->t->b, spec_elements_before(g->t->p->spec, leaf->index));
}

void attend_clear_elements(attend_give *g) {
  ir *b = g->t->b;
  ir_branch wanted = ir_if(b, attend_operands_wanted(g));
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, (n_elements(g) + WARP - 1) / WARP));
  ir_value element = add(b, g->lane, scaled(b, narrow(b, loop.index), WARP));
  ir_branch inside = ir_if(b, below(b, element, i32(b, n_elements(g))));
  two_float_store(b, two_float_const(b, 0), element_at(g, element));
  ir_end_if(b, inside);
  ir_end_for(b, loop);
  ir_wait(b, IR_BARRIER_WARP); /* elements are dealt out to other lanes */
  ir_end_if(b, wanted);
}

void attend_begin_operands(attend_give *g) {
  const attention_plan *p = g->t->p;
  const expr **roots = arena_array(g->t->memory, const expr *, 2 * p->n_scatters + 1);
  int count = 0;
  for (int i = 0; i < p->n_scatters; i++) {
    roots[count++] = p->scatter[i].gradient;
    if (is_placed(&p->scatter[i])) roots[count++] = p->scatter[i].leaf->arg[0];
  }
  if (count) emit_thread_operands(&g->t->exprs, roots, count);
  for (int i = 0; i < g->kept; i++)
    two_float_store(g->t->b, two_float_const(g->t->b, 0), number_at(g, 1 + i, g->t->thread));
}

static two_float sum_of(const ir_value *sums, int i) { return (two_float){.hi = sums[2 * i], .lo = sums[2 * i + 1]}; }

void attend_add_sum(ir *b, ir_value *sums, int i, two_float x) {
  two_float sum = two_float_add(b, sum_of(sums, i), x);
  sums[2 * i] = sum.hi;
  sums[2 * i + 1] = sum.lo;
}

/* Adds gradients of the pair to sums, two numbers each. */
static void add_gradients(void *context, attend_give *g, const attend_give_pair *pair, ir_value *sums) {
  const attend_give_list *list = context;
  open_pair open;
  begin_pair(g, pair, &open);
  for (int i = 0; i < list->count; i++)
    attend_add_sum(g->t->b, sums, i, two_float_f32(value_of(g, &open, list->of[i]->gradient)));
  end_pair(g, &open);
}

/* What a warp's threads have at a number, in order, to the leaf's element; all of them. */
static void add_warp(attend_give *g, int number, const expr *leaf) {
  ir *b = g->t->b;
  ir_wait(b, IR_BARRIER_WARP);
  ir_branch one = ir_if(b, ir_compare_int(b, "eq", g->lane, i32(b, 0)));
  ir_value values[2] = {zero(b), zero(b)}, now[2];
  ir_loop lanes = ir_for_with(b, i64(b, 0), i64(b, WARP), 2, values, now);
  ir_value thread = thread_of(g, narrow(b, lanes.index));
  attend_add_sum(b, now, 0, two_float_load(b, number_at(g, number, thread)));
  ir_end_for_with(b, lanes, 2, now, values);
  ir_value inside =
      leaf->op == EXPR_ELEMENT ? emit_thread_place(&g->t->exprs, leaf) : emit_thread_offset(&g->t->exprs, leaf, 0);
  ir_value element = add(b, inside, first_element(g, leaf));
  gain_element(g, element, sum_of(values, 0));
  ir_end_if(b, one);
  ir_wait(b, IR_BARRIER_WARP); /* the number is free, and the element seen by those it may be dealt out to */
}

void attend_give_elements(attend_give *g, attend_give_list *list, attend_give_visit *visit) {
  ir *b = g->t->b;
  ir_value sums[2 * GIVE_MOST_TOGETHER];
  for (int i = 0; i < 2 * list->count; i++) sums[i] = zero(b);
  walk(g, visit, list, 2 * list->count, sums);
  for (int i = 0; i < list->count; i++) {
    two_float_store(b, sum_of(sums, i), number_at(g, 0, g->t->thread));
    add_warp(g, 0, list->of[i]->leaf);
  }
}

/* Adds a list's gradients to the sums that are kept, of which the list's first one is number `first`. */
static void add_kept(attend_give *g, attend_give_list *list, int first) {
  ir *b = g->t->b;
  ir_value sums[2 * GIVE_MOST_TOGETHER];
  for (int i = 0; i < list->count; i++) {
    two_float sum = two_float_load(b, number_at(g, 1 + first + i, g->t->thread));
    sums[2 * i] = sum.hi;
    sums[2 * i + 1] = sum.lo;
  }
  walk(g, add_gradients, list, 2 * list->count, sums);
  for (int i = 0; i < list->count; i++) two_float_store(b, sum_of(sums, i), number_at(g, 1 + first + i, g->t->thread));
}

/* Those that stand by themselves, in groups that are kept or are not. */
static void give_single(attend_give *g) {
  const attention_plan *p = g->t->p;
  attend_give_list list = {0};
  for (int i = 0, index = 0, all = attend_give_single(p); i < p->n_scatters; i++) {
    if (is_placed(&p->scatter[i])) continue;
    list.of[list.count++] = &p->scatter[i];
    index++;
    if (list.count < GIVE_MOST_TOGETHER && index < all && index != g->kept) continue;
    if (index <= g->kept) add_kept(g, &list, index - list.count);
    else attend_give_elements(g, &list, add_gradients);
    list.count = 0;
  }
}

/* A gain of each lane, and its place; a lane takes its own of them. A place below 0 is nobody's. */
static void add_placed(void *context, attend_give *g, const attend_give_pair *pair, ir_value *sums) {
  const adjoint_scatter *s = context;
  ir *b = g->t->b;
  MlirType two = ir_vector(b, 2, b->i32);
  open_pair open;
  (void)sums;
  begin_pair(g, pair, &open);
  ir_value gain = value_of(g, &open, s->gradient), inside = emit_thread_place(&g->t->exprs, s->leaf);
  ir_value place = add(b, inside, first_element(g, s->leaf));
  end_pair(g, &open);
  ir_value is_some = ir_compare_float(b, "une", gain, zero(b));
  ir_value of_lane[] = {ir_cast(b, "arith.bitcast", gain, b->i32), ir_select(b, is_some, place, i32(b, NOWHERE))};
  ir_store(b, ir_elements(b, two, 2, of_lane), number_at(g, 0, g->t->thread), NUMBER, false);
  ir_wait(b, IR_BARRIER_WARP);
  ir_loop lanes = ir_for(b, i64(b, 0), i64(b, WARP));
  ir_value given = ir_load(b, two, number_at(g, 0, thread_of(g, narrow(b, lanes.index))), NUMBER),
           at = ir_extract(b, given, 1), dealt = ir_op2(b, "arith.andi", at, i32(b, INT32_MIN | (WARP - 1)));
  ir_branch own = ir_if(b, ir_compare_int(b, "eq", dealt, g->lane));
  gain_element(g, at, two_float_f32(ir_cast(b, "arith.bitcast", ir_extract(b, given, 0), b->f32)));
  ir_end_if(b, own);
  ir_end_for(b, lanes);
  ir_wait(b, IR_BARRIER_WARP);
}

/* Elements of the term at hand: of those that one element gains of all pairs, as many together as may be. */
static void give_term(attend_give *g, int terms) {
  const attention_plan *p = g->t->p;
  attend_give_list list = {0};
  for (int i = 0; i < p->n_scatters; i++) {
    if (!is_placed(&p->scatter[i]) || p->scatter[i].leaf->terms != terms) continue;
    adjoint_scatter scatter = p->scatter[i];
    if (is_of_terms(&scatter)) list.of[list.count++] = &p->scatter[i];
    else walk(g, add_placed, &scatter, 0, NULL);
    if (list.count < GIVE_MOST_TOGETHER) continue;
    attend_give_elements(g, &list, add_gradients);
    list.count = 0;
  }
  if (list.count) attend_give_elements(g, &list, add_gradients);
}

/* Elements at computed places, of the sums of so many terms a term after the other; 0: of no sum. */
static void give_placed(attend_give *g, int terms) {
  ir *b = g->t->b;
  if (!terms) {
    give_term(g, 0);
    return;
  }
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, terms));
  expr_term before = emit_expr_term(walker_of(g), loop.index, nodes_of(g));
  give_term(g, terms);
  walker_of(g)->term = before;
  ir_end_for(b, loop);
}

void attend_give_operands(attend_give *g) {
  const attention_plan *p = g->t->p;
  ir_branch wanted = ir_if(g->t->b, attend_operands_wanted(g));
  give_single(g);
  for (int i = 0; i < p->n_scatters; i++)
    if (attention_begins_terms(p->scatter, i)) give_placed(g, p->scatter[i].leaf->terms);
  ir_end_if(g->t->b, wanted);
}

/* What the score of the lane's query gains that its sink has, whose value is 0; x: that score. */
static ir_value sink_gain(attend_give *g, ir_value x) {
  ir *b = g->t->b;
  ir_value own = attend_own_token(g), token = clamped(b, own, g->t->tokens), none = zero(b);
  ir_value weight = emit_exp2(b, sub(b, x, attend_load_lse(g->t, token))),
           delta = ir_load(b, b->f32, attend_delta_at(g->t, g->gradient, token), 4);
  ir_value counts = both(b, less(b, g->lane, i32(b, g->rows)), has_own(g));
  counts = both(b, counts, ir_compare_float(b, "une", weight, none));
  return ir_select(b, counts, ir_op1(b, "arith.negf", mul(b, weight, delta)), none);
}

static void give_sinks(attend_give *g) {
  const attention_plan *p = g->t->p;
  thread_emitter *e = &g->t->exprs;
  const expr **roots = arena_array(g->t->memory, const expr *, p->n_sinks + 1);
  two_float *remembered = emit_thread_remember(e);
  for (int i = 0; i < p->n_sinks; i++) roots[i] = p->of_sink[i].gradient;
  roots[p->n_sinks] = p->sink;
  emit_thread_operands(e, roots, p->n_sinks + 1);
  ir_wait(g->t->b, IR_BARRIER_WARP); /* another lane may have written delta */
  two_float gained = two_float_f32(sink_gain(g, emit_thread_f32(e, p->sink, 0)));
  e->cotangents = &gained;
  e->n_cotangents = 1;
  e->first_cotangent = 0;
  for (int i = 0; i < p->n_sinks; i++) {
    two_float value = two_float_f32(emit_thread_f32(e, roots[i], 0));
    two_float_store(g->t->b, value, number_at(g, 0, g->t->thread));
    add_warp(g, 0, p->of_sink[i].leaf);
  }
  close_gain(g->t, remembered);
}

void attend_end_operands(attend_give *g) {
  const attention_plan *p = g->t->p;
  if (!g->kept && !p->n_sinks) return;
  ir_branch wanted = ir_if(g->t->b, attend_operands_wanted(g));
  if (p->n_sinks) give_sinks(g);
  for (int i = 0, number = 1; i < p->n_scatters && number <= g->kept; i++)
    if (!is_placed(&p->scatter[i])) add_warp(g, number++, p->scatter[i].leaf);
  ir_end_if(g->t->b, wanted);
}

/* ---- own tokens ---- */

ir_branch attend_if_first(attend_give *g) {
  ir *b = g->t->b;
  return ir_if(b, both(b, less(b, g->lane, i32(b, g->rows)), has_own(g)));
}

void attend_sum_rows(attend_give *g, int n, attend_give_visit *visit, void *context, ir_value *sums) {
  ir *b = g->t->b;
  for (int i = 0; i < n; i++) sums[i] = zero(b);
  walk(g, visit, context, n, sums);
  for (int i = 0; i < n && lanes_of_row(g) > 1; i++) {
    ir_store(b, sums[i], number_at(g, 0, g->t->thread), 4, false);
    ir_wait(b, IR_BARRIER_WARP);
    for (int part = 0; part < lanes_of_row(g); part++) {
      ir_value lane = add(b, rest(b, g->lane, g->rows), i32(b, (int64_t)part * g->rows));
      ir_value x = ir_load(b, b->f32, number_at(g, 0, thread_of(g, lane)), 4);
      sums[i] = part ? add(b, sums[i], x) : x;
    }
    ir_wait(b, IR_BARRIER_WARP);
  }
}

static ir_value tokens_wanted(attend_give *g) { return has_address(g, PEGEN_PTX_ATTENTION_SHARES); }

/* Whether an own token gains there by expressions: of the numbers of inputs those that are read of its side. */
static bool gains(const attend_give *g, int axis) {
  const attention_plan *p = g->t->p;
  int number = axis - (p->n_places - p->n_numbers);
  bool is_pair = number >= 0 && attention_is_pair(p, number);
  return p->place[axis] && !is_pair && (!p->sums_inputs || number < 0 || p->number[number].of_key == g->of_keys);
}

void attend_begin_tokens(attend_give *g) {
  const attention_plan *p = g->t->p;
  const expr **roots = arena_array(g->t->memory, const expr *, p->n_sums + 2 * p->n_row_scatters + 1);
  int count = 0;
  for (int axis = 0; axis < p->n_sums; axis++)
    if (gains(g, axis)) roots[count++] = p->place[axis];
  for (int i = 0; i < p->n_row_scatters; i++) {
    roots[count++] = p->row_scatter[i].gradient;
    roots[count++] = p->row_scatter[i].leaf->arg[0];
  }
  if (count) emit_thread_operands(&g->t->exprs, roots, count);
}

/* Returns the address of the own token's share. Where inputs have gradients, keys have a share of each head of q. */
static ir_value share_at(attend_give *g) {
  ir *b = g->t->b;
  const attend *t = g->t;
  ir_value heads = t->parameter[PEGEN_PTX_ATTENTION_HEADS],
           tokens = t->parameter[g->of_keys ? PEGEN_PTX_ATTENTION_KEYS : PEGEN_PTX_ATTENTION_TOKENS];
  if (g->of_keys && !t->p->sums_inputs)
    heads = ir_op2(b, "arith.divui", heads, t->parameter[PEGEN_PTX_ATTENTION_GROUP]);
  ir_value at = add(b, mul(b, wide(b, t->batch), tokens), wide(b, attend_own_token(g)));
  at = add(b, mul(b, at, heads), wide(b, g->owner));
  at = mul(b, at, i64(b, (int64_t)t->p->sum_width * NUMBER));
  return ir_pointer(b, add(b, g->gradient[PEGEN_PTX_ATTENTION_SHARES], at));
}

/* ---- elements of rows of inputs, read at computed places ---- */

static ir_value row_element_at(attend_give *g, int first, ir_value element) {
  ir *b = g->t->b;
  return ir_offset(b, ir_offset_const(b, share_at(g), (int64_t)first * NUMBER), wide(b, scaled(b, element, NUMBER)));
}

/* Which of its row's lanes a lane is. */
static ir_value part_of(const attend_give *g) { return quotient(g->t->b, g->lane, g->rows); }

static void add_row_element(void *context, attend_give *g, const attend_give_pair *pair, ir_value *sums) {
  const adjoint_scatter *s = context;
  ir *b = g->t->b;
  const expr *roots[] = {s->gradient, s->leaf};
  open_pair open;
  (void)sums;
  begin_pair(g, pair, &open);
  expr_loop terms = {0};
  if (s->leaf->terms) terms = emit_expr_terms(walker_of(g), s->leaf->terms, roots, 2);
  ir_value gain = value_of(g, &open, s->gradient), element = emit_thread_place(&g->t->exprs, s->leaf);
  ir_branch some = ir_if(b, ir_compare_float(b, "une", gain, zero(b)));
  ir_value at = row_element_at(g, attention_first_element(g->t->p, s->leaf->index), element);
  two_float_store(b, two_float_add(b, two_float_load(b, at), two_float_f32(gain)), at);
  ir_end_if(b, some);
  if (s->leaf->terms) emit_expr_end_terms(walker_of(g), terms);
  end_pair(g, &open);
}

/* Lanes of one row take turns: elements are those of the whole row. */
static void give_row_elements(attend_give *g) {
  ir *b = g->t->b;
  const attention_plan *p = g->t->p;
  for (int i = 0; i < p->n_row_scatters; i++) {
    const adjoint_scatter *s = &p->row_scatter[i];
    if (p->spec->input[s->leaf->index].of_keys != g->of_keys) continue;
    ir_branch wanted = ir_if(b, tokens_wanted(g));
    ir_loop turns = ir_for(b, i64(b, 0), i64(b, lanes_of_row(g)));
    ir_branch own = ir_if(b, ir_compare_int(b, "eq", part_of(g), narrow(b, turns.index)));
    walk(g, add_row_element, (void *)s, 0, NULL);
    ir_end_if(b, own);
    ir_wait(b, IR_BARRIER_WARP);
    ir_end_for(b, turns);
    ir_end_if(b, wanted);
  }
}

/* ---- numbers of pairs ---- */

static bool gives_pairs(const attend_give *g) { return !g->of_keys && attend_pair_rows(g->t->p); }

static ir_value pairs_wanted(attend_give *g) { return has_address(g, PEGEN_PTX_ATTENTION_PAIRS); }

/* Numbers of a query's row: those of all inputs of pairs one behind the other. */
static ir_value pairs_of_row(const attend_give *g) {
  ir *b = g->t->b;
  return mul(b, wide(b, g->t->keys), i64(b, attend_pair_rows(g->t->p)));
}

/* Number `element` of the row's. */
static ir_value pair_share_at(attend_give *g, ir_value element) {
  ir *b = g->t->b;
  const attend *t = g->t;
  ir_value tokens = t->parameter[PEGEN_PTX_ATTENTION_TOKENS], heads = t->parameter[PEGEN_PTX_ATTENTION_HEADS];
  ir_value row = add(b, mul(b, wide(b, t->batch), tokens), wide(b, attend_own_token(g)));
  row = add(b, mul(b, row, heads), wide(b, g->owner));
  row = mul(b, row, pairs_of_row(g));
  ir_value at = add(b, g->gradient[PEGEN_PTX_ATTENTION_PAIRS], mul(b, add(b, row, element), i64(b, 4)));
  return ir_pointer(b, at);
}

static void write_pair(void *context, attend_give *g, const attend_give_pair *pair, ir_value *sums) {
  ir *b = g->t->b;
  const attention_plan *p = g->t->p;
  int own = p->n_places - p->n_numbers;
  open_pair open;
  (void)context, (void)sums;
  begin_pair(g, pair, &open);
  for (int i = 0, before = 0; i < p->n_numbers; i++) {
    if (!attention_is_pair(p, i)) continue;
    ir_value element = add(b, mul(b, wide(b, g->t->keys), i64(b, before++)), wide(b, pair->of.key_token));
    if (!p->place[own + i]) continue;
    ir_value gain = value_of(g, &open, p->place[own + i]);
    ir_branch some = ir_if(b, ir_compare_float(b, "une", gain, zero(b)));
    ir_store(b, gain, pair_share_at(g, element), 4, false);
    ir_end_if(b, some);
  }
  end_pair(g, &open);
}

static void give_pairs(attend_give *g) {
  if (!gives_pairs(g)) return;
  ir_branch wanted = ir_if(g->t->b, pairs_wanted(g));
  walk(g, write_pair, NULL, 0, NULL);
  ir_end_if(g->t->b, wanted);
}

/* Lanes of a row write `count` (i64) float32 zeros from `to` on: tiles of which no pair is seen write none. */
static void clear_words(attend_give *g, ir_value count, ir_value to) {
  ir *b = g->t->b;
  ir_branch own = ir_if(b, has_own(g));
  ir_value lanes = i64(b, lanes_of_row(g)), more = sub(b, lanes, i64(b, 1));
  ir_loop loop = ir_for(b, i64(b, 0), ir_op2(b, "arith.divui", add(b, count, more), lanes));
  ir_value word = add(b, mul(b, loop.index, lanes), wide(b, part_of(g)));
  ir_branch inside = ir_if(b, ir_compare_int(b, "ult", word, count));
  ir_store(b, zero(b), ir_offset(b, to, mul(b, word, i64(b, 4))), 4, false);
  ir_end_if(b, inside);
  ir_end_for(b, loop);
  ir_end_if(b, own);
  ir_wait(b, IR_BARRIER_WARP);
}

void attend_clear_shares(attend_give *g) {
  ir *b = g->t->b;
  int sums = g->t->p->n_sums, behind = g->t->p->sum_width - sums;
  ir_branch wanted = ir_if(b, tokens_wanted(g)), first = attend_if_first(g);
  ir_value share = share_at(g);
  for (int axis = 0; axis < sums; axis++)
    two_float_store(b, two_float_const(b, 0), ir_offset_const(b, share, (int64_t)axis * NUMBER));
  ir_end_if(b, first);
  if (behind) {
    ir_value own = ir_offset_const(b, share_at(g), (int64_t)sums * NUMBER);
    clear_words(g, i64(b, NUMBER / 4 * behind), own);
  }
  if (gives_pairs(g)) {
    ir_branch pairs = ir_if(b, pairs_wanted(g));
    ir_value own = pair_share_at(g, i64(b, 0));
    clear_words(g, pairs_of_row(g), own);
    ir_end_if(b, pairs);
  }
  ir_end_if(b, wanted);
}

void attend_give_shares(attend_give *g, unsigned axes, attend_give_visit *visit, void *context) {
  ir *b = g->t->b;
  ir_value sums[SPEC_MAX_AXES];
  int count = 0;
  for (int axis = 0; axis < g->t->p->n_sums; axis++) count += axes >> axis & 1;
  if (!count) return;
  ir_branch wanted = ir_if(b, tokens_wanted(g));
  attend_sum_rows(g, count, visit, context, sums);
  ir_branch first = attend_if_first(g);
  ir_value share = share_at(g);
  for (int axis = 0, i = 0; axis < g->t->p->n_sums; axis++) {
    if (!(axes >> axis & 1)) continue;
    ir_value at = ir_offset_const(b, share, (int64_t)axis * NUMBER), sum = sums[i++];
    if (!g->of_keys) sum = ir_op1(b, "arith.negf", sum);
    two_float before = two_float_load(b, at);
    two_float_store(b, two_float_add(b, before, two_float_f32(sum)), at);
  }
  ir_end_if(b, first);
  ir_end_if(b, wanted);
}

static void add_places(void *context, attend_give *g, const attend_give_pair *pair, ir_value *sums) {
  open_pair open;
  (void)context;
  begin_pair(g, pair, &open);
  for (int axis = 0, i = 0; axis < g->t->p->n_sums; axis++)
    if (gains(g, axis)) sums[i] = add(g->t->b, sums[i], value_of(g, &open, g->t->p->place[axis])), i++;
  close_gain(g->t, open.remembered);
}

void attend_give_tokens(attend_give *g) {
  unsigned axes = 0;
  for (int axis = 0; axis < g->t->p->n_sums; axis++) axes |= gains(g, axis) ? 1u << axis : 0;
  attend_give_shares(g, axes, add_places, NULL);
  give_row_elements(g);
  give_pairs(g);
}
