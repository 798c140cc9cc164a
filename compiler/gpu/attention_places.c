/* gpu/attention_places: see gpu/attention_backward.h.
 *
 * A displacement is the key's coordinate less the query's. In a tile of pairs every thread sums what the pairs of its
 * columns give to each of its rows; the sums of a team's 8 threads are added up in order, and by one of them to the
 * row's place in memory, which no other thread touches. Rows are queries in one entry and keys in the other, so that
 * either adds only to what is its own.
 */
#include "gpu/attention_backward.h"
#include "gpu/index.h"

#include "kernel/launch.h"

enum { NUMBER = TWO_FLOAT_BYTES };

/* Sums of a row: of its coordinates, and of numbers behind them. */
static int axes_of(const attend_gradient *g) { return g->t.p->n_sums; }

bool attend_gives_places(const attend_gradient_shape *s, const attention_plan *p) {
  return p->n_sums > 0 && (!attend_has_columns(p) || s->moves);
}

ir_value attend_places_wanted(attend_gradient *g) {
  return ir_compare_int(g->t.b, "ne", g->parameter[PEGEN_PTX_ATTENTION_SHARES], i64(g->t.b, 0));
}

void attend_places_begin(attend_gradient *g) {
  const attention_plan *p = g->t.p;
  const expr *roots[SPEC_MAX_AXES];
  int count = 0;
  for (int axis = 0; axis < axes_of(g) && attend_gives_places(&g->shape, p); axis++)
    if (p->place[axis]) roots[count++] = p->place[axis];
  if (count) emit_thread_operands(&g->t.exprs, roots, count);
}

static int elements_of(const spec_input *input) { return input->size ? (int)input->size : 1; }

const gpu_input_sums *attend_input_sums_of(arena *a, const attention_plan *p) {
  gpu_input_sums *s = arena_new(a, gpu_input_sums);
  int own = p->n_places - p->n_numbers;
  s->n_sums = p->n_sums;
  s->terms = arena_array(a, int32_t, p->n_numbers);
  for (int i = 0; i < p->spec->n_inputs; i++) s->count += elements_of(&p->spec->input[i]);
  s->first = arena_array(a, int32_t, s->count + 1);
  for (int i = 0, element = 0; i < p->spec->n_inputs; i++)
    for (int k = 0; k < elements_of(&p->spec->input[i]); k++) {
      for (int n = 0; n < p->n_numbers; n++)
        if (p->number[n].input == i && p->number[n].element == k) s->terms[s->n_terms++] = own + n;
      s->first[++element] = s->n_terms;
    }
  return s;
}

/* ---- a row's place ---- */

/* Calls for rows (i32, of the tile) that there are, by one thread of their team. */
static ir_branch if_own(attend_gradient *g, ir_value row) {
  attend *t = &g->t;
  ir *b = t->b;
  ir_value token = add(b, t->first, row), is_first = ir_compare_int(b, "eq", t->lane, i32(b, 0));
  return ir_if(b, both(b, is_first, less(b, token, g->of_keys ? t->keys : t->tokens)));
}

static ir_value share_at(attend_gradient *g, ir_value row) {
  attend *t = &g->t;
  ir *b = t->b;
  ir_value heads = t->parameter[PEGEN_PTX_ATTENTION_HEADS];
  if (g->of_keys && !t->p->sums_inputs)
    heads = ir_op2(b, "arith.divui", heads, t->parameter[PEGEN_PTX_ATTENTION_GROUP]);
  ir_value tokens = t->parameter[g->of_keys ? PEGEN_PTX_ATTENTION_KEYS : PEGEN_PTX_ATTENTION_TOKENS];
  ir_value token = wide(b, add(b, t->first, row)), batch = wide(b, t->batch);
  ir_value at = add(b, mul(b, batch, tokens), token);
  at = mul(b, at, heads);
  at = add(b, at, wide(b, g->owner));
  at = mul(b, at, i64(b, (int64_t)axes_of(g) * NUMBER));
  return ir_pointer(b, add(b, g->parameter[PEGEN_PTX_ATTENTION_SHARES], at));
}

void attend_places_clear(attend_gradient *g) {
  attend *t = &g->t;
  ir *b = t->b;
  if (!attend_gives_places(&g->shape, t->p)) return;
  ir_branch wanted = ir_if(b, attend_places_wanted(g));
  for (int i = 0; i < t->shape.rows; i++) {
    ir_value row = attend_own_row(t, i);
    ir_branch own = if_own(g, row);
    ir_value at = share_at(g, row);
    for (int axis = 0; axis < axes_of(g); axis++)
      two_float_store(b, two_float_const(b, 0), ir_offset_const(b, at, (int64_t)axis * NUMBER));
    ir_end_if(b, own);
  }
  ir_end_if(b, wanted);
}

void attend_places_begin_keys(attend_gradient *g) {
  if (!g->t.p->sums_inputs) attend_places_clear(g);
}

void attend_places_begin_head(attend_gradient *g) {
  if (!g->t.p->sums_inputs) return;
  g->owner = g->t.head;
  attend_places_clear(g);
}

/* ---- pairs ---- */

/* What its row gains: of the numbers of inputs those that are read of queries, or of keys. */
static bool gains(const attend_gradient *g, int axis) {
  const attention_plan *p = g->t.p;
  int number = axis - (p->n_places - p->n_numbers);
  return p->place[axis] && (!p->sums_inputs || number < 0 || p->number[number].of_key == g->of_keys);
}

/* What the pairs of the thread's columns give to its row, [n_axes]. */
static void sum_columns(attend_gradient *g, ir_value row, ir_value first, ir_value *sums) {
  attend *t = &g->t;
  ir *b = t->b;
  int axes = axes_of(g);
  ir_value now[SPEC_MAX_AXES], next[SPEC_MAX_AXES];
  for (int axis = 0; axis < axes; axis++) sums[axis] = ir_float(b, b->f32, 0);
  ir_value end = g->shape.moves ? attend_columns_left(g, first) : i64(b, t->shape.columns);
  ir_loop columns = ir_for_with(b, i64(b, 0), end, axes, sums, now);
  ir_value column = attend_column_of_thread(t, narrow(b, columns.index)),
           gained = attend_gain_of_pair(g, first, row, column);
  two_float cotangent = two_float_f32(gained), *remembered = attend_gain_open(g, first, row, column, &cotangent);
  for (int axis = 0; axis < axes; axis++) {
    next[axis] = now[axis];
    if (gains(g, axis)) next[axis] = add(b, now[axis], attend_gain_value(g, t->p->place[axis], gained));
  }
  emit_thread_forget(&t->exprs, remembered);
  if (g->shape.moves) attend_columns_pull(g, first, row, column, gained, next);
  ir_end_for_with(b, columns, axes, next, sums);
}

void attend_place_give(attend_gradient *g, ir_value row, int axis, ir_value sum) {
  attend *t = &g->t;
  ir *b = t->b;
  ir_store(b, sum, attend_own_word(t, row), 4, false);
  ir_wait(b, IR_BARRIER_WARP);
  ir_branch own = if_own(g, row);
  ir_value all = attend_sum_words(t, row), at = ir_offset_const(b, share_at(g, row), (int64_t)axis * NUMBER);
  if (!g->of_keys) all = ir_op1(b, "arith.negf", all);
  two_float before = two_float_load(b, at);
  two_float_store(b, two_float_add(b, before, two_float_f32(all)), at);
  ir_end_if(b, own);
  ir_wait(b, IR_BARRIER_WARP);
}

void attend_places_add(attend_gradient *g, ir_value first) {
  attend *t = &g->t;
  ir *b = t->b;
  bool of_columns = g->shape.moves && attend_columns_move(t->p), has_some = of_columns;
  for (int axis = 0; axis < axes_of(g) && attend_gives_places(&g->shape, t->p); axis++)
    has_some = has_some || gains(g, axis);
  if (!has_some) return; /* steps alone */
  ir_branch wanted = ir_if(b, attend_places_wanted(g));
  ir_loop rows = ir_for(b, i64(b, 0), of_columns ? attend_rows_left(g) : i64(b, t->shape.rows));
  ir_value row = attend_row_of_thread(t, narrow(b, rows.index)), sums[SPEC_MAX_AXES];
  sum_columns(g, row, first, sums);
  for (int axis = 0; axis < axes_of(g); axis++)
    if (gains(g, axis) || of_columns) attend_place_give(g, row, axis, sums[axis]);
  ir_end_for(b, rows);
  ir_end_if(b, wanted);
}
