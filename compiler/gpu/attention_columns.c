/* gpu/attention_columns: what weights and coordinates gain of a bias that is a polynomial; see
 * gpu/attention_backward.h.
 *
 * A bias is a sum of weights times shapes of the displacement (algebra/polynomial.h): a weight gains what scores gain
 * times its shape. As on processors (cpu/attention/pair_sums) shapes are those of the displacement itself, not of
 * columns that count from further away: of keys nearby, differences of what columns gain would have no digits.
 *
 * Every thread sums what the pairs of its columns give to 8 weights of a row, the team's 8 threads tell each other, and
 * each of them adds up, in order, what is one weight's, which stays with it from tile to tile.
 */
#include "gpu/attention_backward.h"
#include "gpu/index.h"
#include "mlir/monomial.h"

#include "kernel/launch.h"

/* Of weights that a team adds up at a time; words of a team, so many that teams of a warp meet different banks. */
enum { HALF = ATTEND_LANES / 2, WORDS = HALF * ATTEND_LANES + ATTEND_LANES };

static const polynomial *polynomial_of(const attend_gradient *g) { return g->t.p->columns->p; }
static int groups_of(int weights) { return (weights + ATTEND_LANES - 1) / ATTEND_LANES; }

int64_t attend_weight_word_bytes(void) { return 4LL * WORDS * (PEGEN_PTX_BLOCK / ATTEND_LANES); }

/* ---- a pair ---- */

/* A key's place less a query's, as float32; 0 where the score gains nothing, for the key may be nowhere. */
static void set_displacement(attend_gradient *g, ir_value row, ir_value column, ir_value gained, power_table *powers) {
  attend *t = &g->t;
  ir *b = t->b;
  ir_value query = g->of_keys ? column : row, key = g->of_keys ? row : column, zero = ir_float(b, b->f32, 0),
           counts = ir_compare_float(b, "une", gained, zero);
  for (int axis = 0; axis < t->p->spec->n_axes; axis++)
    powers->at[axis][1] = ir_select(b, counts, attend_narrow_displacement(t, query, key, axis), zero);
}

ir_value attend_columns_left(attend_gradient *g, ir_value first) {
  attend *t = &g->t;
  ir *b = t->b;
  ir_value end = g->of_keys ? t->tokens : t->keys, own = sub(b, sub(b, end, first), t->lane),
           left = quotient_up(b, larger(b, own, i32(b, 0)), ATTEND_LANES);
  return wide(b, smaller(b, left, i32(b, t->shape.columns)));
}

ir_value attend_rows_left(attend_gradient *g) {
  attend *t = &g->t;
  ir *b = t->b;
  ir_value end = g->of_keys ? t->keys : t->tokens;
  ir_value left = quotient_up(b, sub(b, end, t->first), PEGEN_PTX_BLOCK / ATTEND_LANES);
  return wide(b, smaller(b, left, i32(b, t->shape.rows)));
}

/* The shape of a weight. */
static ir_value shape_of(const polynomial_weight *weight, power_table *powers) {
  ir_value sum = {NULL};
  for (int i = 0; i < weight->n_monomials; i++) {
    ir_value term = emit_monomial(powers, &weight->monomial[i], weight->factor[i]);
    sum = sum.ptr ? add(powers->b, sum, term) : term;
  }
  return sum;
}

/* ---- weights ---- */

int attend_weight_values(const attend_gradient *g) {
  return g->shape.weighs && !g->of_keys ? g->t.shape.rows * groups_of(polynomial_of(g)->n_weights) : 0;
}

ir_value attend_weights_wanted(attend_gradient *g) {
  return ir_compare_int(g->t.b, "ne", g->parameter[PEGEN_PTX_ATTENTION_WEIGHTS], i64(g->t.b, 0));
}

/* What the thread's columns give to weights [begin, begin + n) of a row. */
static void sum_columns(attend_gradient *g, ir_value first, ir_value row, int begin, int n, ir_value *sums) {
  attend *t = &g->t;
  ir *b = t->b;
  ir_value now[ATTEND_LANES];
  for (int i = 0; i < n; i++) sums[i] = ir_float(b, b->f32, 0);
  ir_loop columns = ir_for_with(b, i64(b, 0), attend_columns_left(g, first), n, sums, now);
  ir_value column = attend_column_of_thread(t, narrow(b, columns.index)),
           gained = attend_gain_of_pair(g, first, row, column);
  power_table powers = {.b = b, .type = b->f32};
  set_displacement(g, row, column, gained, &powers);
  for (int i = 0; i < n; i++)
    now[i] = ir_fma(b, shape_of(&polynomial_of(g)->weight[begin + i], &powers), gained, now[i]);
  ir_end_for_with(b, columns, n, now, sums);
}

/* Of `n` numbers of each of a team's threads, HALF at most, the sum of those that are the lane's. */
static ir_value sum_team(attend_gradient *g, int n, const ir_value *numbers) {
  attend *t = &g->t;
  ir *b = t->b;
  ir_value words = ir_offset(b, g->words, wide(b, scaled(b, t->team, 4LL * WORDS))),
           to = ir_offset(b, words, wide(b, scaled(b, t->lane, 4))),
           own = ir_offset(b, words, wide(b, scaled(b, rest(b, t->lane, HALF), 4LL * ATTEND_LANES))), sum = {NULL};
  for (int i = 0; i < n; i++) ir_store(b, numbers[i], ir_offset_const(b, to, 4LL * ATTEND_LANES * i), 4, false);
  ir_wait(b, IR_BARRIER_WARP);
  for (int i = 0; i < ATTEND_LANES; i += ATTEND_QUAD) {
    ir_value four = ir_load(b, ir_vector(b, ATTEND_QUAD, b->f32), ir_offset_const(b, own, 4LL * i), 16);
    for (int k = 0; k < ATTEND_QUAD; k++) {
      ir_value word = ir_extract(b, four, k);
      sum = sum.ptr ? add(b, sum, word) : word;
    }
  }
  ir_wait(b, IR_BARRIER_WARP);
  return sum;
}

static void add_rows(attend_gradient *g, ir_value first, int count, ir_value *sums) {
  attend *t = &g->t;
  ir *b = t->b;
  int weights = polynomial_of(g)->n_weights, groups = groups_of(weights);
  ir_value *now = arena_array(t->memory, ir_value, count), of_columns[ATTEND_LANES];
  ir_loop rows = ir_for_with(b, i64(b, 0), attend_rows_left(g), count, sums, now);
  ir_value index = narrow(b, rows.index), row = attend_row_of_thread(t, index);
  for (int group = 0; group < groups; group++) {
    int begin = group * ATTEND_LANES, n = weights - begin < ATTEND_LANES ? weights - begin : ATTEND_LANES;
    sum_columns(g, first, row, begin, n, of_columns);
    ir_value own = sum_team(g, n < HALF ? n : HALF, of_columns);
    if (n > HALF) {
      ir_value others = sum_team(g, n - HALF, of_columns + HALF);
      own = ir_select(b, less(b, t->lane, i32(b, HALF)), own, others);
    }
    for (int i = 0; i < t->shape.rows; i++) {
      ir_value *sum = &now[i * groups + group];
      *sum = ir_select(b, ir_compare_int(b, "eq", index, i32(b, i)), add(b, *sum, own), *sum);
    }
  }
  ir_end_for_with(b, rows, count, now, sums);
}

void attend_weights_add(attend_gradient *g, ir_value first, ir_value *sums) {
  ir *b = g->t.b;
  int count = attend_weight_values(g);
  if (!count) return;
  MlirType *types = arena_array(g->t.memory, MlirType, count);
  ir_value *more = arena_array(g->t.memory, ir_value, count);
  for (int i = 0; i < count; i++) types[i] = b->f32, more[i] = sums[i];
  ir_choice choice = ir_choose(b, attend_weights_wanted(g), count, types);
  add_rows(g, first, count, more);
  ir_choose_else(b, &choice, count, more);
  ir_end_choose(b, choice, count, sums, sums);
}

void attend_weights_begin(attend_gradient *g, ir_value *sums) {
  for (int i = 0; i < attend_weight_values(g); i++) sums[i] = ir_float(g->t.b, g->t.b->f32, 0);
}

void attend_weights_end(attend_gradient *g, const ir_value *sums) {
  attend *t = &g->t;
  ir *b = t->b;
  if (!attend_weight_values(g)) return;
  int weights = polynomial_of(g)->n_weights, groups = groups_of(weights);
  ir_branch wanted = ir_if(b, attend_weights_wanted(g));
  ir_value scale = attend_natural_scale(t);
  for (int i = 0; i < t->shape.rows; i++) {
    ir_value token = add(b, t->first, attend_own_row(t, i));
    ir_branch given = ir_if(b, less(b, token, t->tokens));
    ir_value at = ir_pointer(b, add(b, g->parameter[PEGEN_PTX_ATTENTION_WEIGHTS], attend_weight_byte(t, token)));
    for (int group = 0; group < groups; group++) {
      ir_value weight = add(b, t->lane, i32(b, (int64_t)group * ATTEND_LANES));
      ir_branch exists = ir_if(b, below(b, weight, i32(b, weights)));
      ir_store(b, mul(b, sums[i * groups + group], scale), ir_offset(b, at, wide(b, scaled(b, weight, 4))), 4, false);
      ir_end_if(b, exists);
    }
    ir_end_if(b, given);
  }
  ir_end_if(b, wanted);
}

/* ---- coordinates ---- */

bool attend_columns_move(const attention_plan *p) {
  bool moves = false;
  for (int w = 0; attend_has_columns(p) && w < p->columns->p->n_weights; w++)
    for (int i = 0; i < p->columns->p->weight[w].n_monomials; i++)
      moves = moves || monomial_degree(&p->columns->p->weight[w].monomial[i]) > 0;
  return moves;
}

void attend_columns_pull(attend_gradient *g, ir_value first, ir_value row, ir_value column, ir_value gained,
                         ir_value *sums) {
  attend *t = &g->t;
  ir *b = t->b;
  const polynomial *p = polynomial_of(g);
  ir_value zero = ir_float(b, b->f32, 0), counts = ir_compare_float(b, "une", gained, zero);
  ir_value query = g->of_keys ? add(b, first, column) : clamped(b, add(b, t->first, row), t->tokens),
           weights = ir_pointer(b, add(b, g->parameter[PEGEN_PTX_ATTENTION_KEPT], attend_weight_byte(t, query)));
  ir_value scale = attend_natural_scale(t);
  power_table powers = {.b = b, .type = b->f32};
  set_displacement(g, row, column, gained, &powers);
  for (int axis = 0; axis < t->p->spec->n_axes; axis++) {
    ir_value slope = zero;
    for (int w = 0; w < p->n_weights; w++) {
      ir_value of_shape = emit_shape_slope(&powers, &p->weight[w], axis);
      if (of_shape.ptr) {
        ir_value weight = mul(b, ir_load(b, b->f32, ir_offset_const(b, weights, 4LL * w), 4), scale);
        slope = ir_fma(b, weight, of_shape, slope);
      }
    }
    sums[axis] = add(b, sums[axis], ir_select(b, counts, mul(b, gained, slope), zero));
  }
}
