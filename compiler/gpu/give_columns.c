/* gpu/give_columns: what weights and coordinates gain of a bias that is a polynomial; see gpu/give.h.
 *
 * A bias is a sum of weights times shapes of the displacement (algebra/polynomial.h): a weight gains what scores gain
 * times its shape. As on processors (cpu/attention/pair_sums) shapes are those of the displacement itself, not of
 * columns that count from further away: of keys nearby, differences of what columns gain would have no digits.
 */
#include "gpu/give.h"
#include "gpu/index.h"
#include "mlir/monomial.h"

#include "kernel/launch.h"

enum { TOGETHER = 8 /* weights that gain in one walk over a tile's pairs */ };

static const polynomial *polynomial_of(const attend_give *g) { return g->t->p->columns->p; }

/* A key's place less a query's, as float32, and numbers of the key's inputs; 0 where the score gains nothing, for the
 * key may be nowhere. */
static power_table powers_of(attend_give *g, const attend_give_pair *pair) {
  attend *t = g->t;
  ir *b = t->b;
  power_table powers = {.b = b, .type = b->f32};
  ir_value zero = ir_float(b, b->f32, 0), counts = ir_compare_float(b, "une", pair->gained, zero);
  for (int axis = 0; axis < plan_widen_coordinates(t->p->columns); axis++) {
    int number = axis - t->p->spec->n_axes;
    ir_value displacement = number < 0 ? attend_narrow_displacement(t, pair->of.query, pair->of.key, axis)
                                       : attend_key_number(t, number, pair->of.key);
    powers.at[axis][1] = ir_select(b, counts, displacement, zero);
  }
  return powers;
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

static ir_value weights_wanted(attend_give *g) {
  return ir_compare_int(g->t->b, "ne", g->gradient[PEGEN_PTX_ATTENTION_WEIGHTS], i64(g->t->b, 0));
}

static ir_value weights_at(attend_give *g, int parameter, ir_value query) {
  ir *b = g->t->b;
  return ir_pointer(b, add(b, g->gradient[parameter], attend_weight_byte(g->t, query)));
}

void attend_clear_weights(attend_give *g) {
  ir *b = g->t->b;
  ir_branch wanted = ir_if(b, weights_wanted(g)), first = attend_if_first(g);
  ir_value at = weights_at(g, PEGEN_PTX_ATTENTION_WEIGHTS, attend_own_token(g));
  ir_loop weights = ir_for(b, i64(b, 0), i64(b, polynomial_of(g)->n_weights));
  ir_store(b, ir_float(b, b->f32, 0), ir_offset(b, at, mul(b, weights.index, i64(b, 4))), 4, false);
  ir_end_for(b, weights);
  ir_end_if(b, first);
  ir_end_if(b, wanted);
}

/* Neighbouring weights. */
typedef struct weight_run {
  int first, count;
} weight_run;

static void add_weights(void *context, attend_give *g, const attend_give_pair *pair, ir_value *sums) {
  const weight_run *run = context;
  power_table powers = powers_of(g, pair);
  for (int i = 0; i < run->count; i++)
    sums[i] = ir_fma(g->t->b, shape_of(&polynomial_of(g)->weight[run->first + i], &powers), pair->gained, sums[i]);
}

void attend_give_weights(attend_give *g) {
  ir *b = g->t->b;
  int all = polynomial_of(g)->n_weights;
  ir_branch wanted = ir_if(b, weights_wanted(g));
  ir_value scale = attend_natural_scale(g->t);
  for (weight_run run = {0, 0}; run.first < all; run.first += TOGETHER) {
    ir_value sums[TOGETHER];
    run.count = all - run.first < TOGETHER ? all - run.first : TOGETHER;
    attend_sum_rows(g, run.count, add_weights, &run, sums);
    ir_branch first = attend_if_first(g);
    ir_value at = weights_at(g, PEGEN_PTX_ATTENTION_WEIGHTS, attend_own_token(g));
    for (int i = 0; i < run.count; i++) {
      ir_value weight = ir_offset_const(b, at, 4LL * (run.first + i)), before = ir_load(b, b->f32, weight, 4);
      ir_store(b, ir_fma(b, sums[i], scale, before), weight, 4, false);
    }
    ir_end_if(b, first);
  }
  ir_end_if(b, wanted);
}

/* ---- coordinates ---- */

static bool moves(const polynomial *p) {
  for (int w = 0; w < p->n_weights; w++)
    for (int i = 0; i < p->weight[w].n_monomials; i++)
      if (monomial_degree(&p->weight[w].monomial[i]) > 0) return true;
  return false;
}

/* Coordinates that own rows have: numbers of inputs are of keys alone. */
static int moved(const attend_give *g) {
  return g->of_keys ? plan_widen_coordinates(g->t->p->columns) : g->t->p->spec->n_axes;
}

static void add_slopes(void *context, attend_give *g, const attend_give_pair *pair, ir_value *sums) {
  ir *b = g->t->b;
  const polynomial *p = polynomial_of(g);
  ir_value zero = ir_float(b, b->f32, 0), counts = ir_compare_float(b, "une", pair->gained, zero);
  ir_value query = clamped(b, pair->of.query_token, g->t->tokens),
           weights = weights_at(g, PEGEN_PTX_ATTENTION_KEPT, query), scale = attend_natural_scale(g->t);
  power_table powers = powers_of(g, pair);
  (void)context;
  for (int axis = 0; axis < moved(g); axis++) {
    ir_value slope = zero;
    for (int w = 0; w < p->n_weights; w++) {
      ir_value of_shape = emit_shape_slope(&powers, &p->weight[w], axis);
      if (of_shape.ptr) {
        ir_value weight = mul(b, ir_load(b, b->f32, ir_offset_const(b, weights, 4LL * w), 4), scale);
        slope = ir_fma(b, weight, of_shape, slope);
      }
    }
    sums[axis] = add(b, sums[axis], ir_select(b, counts, mul(b, pair->gained, slope), zero));
  }
}

void attend_give_moves(attend_give *g) {
  const attention_plan *p = g->t->p;
  if (p->has_places && attend_has_columns(p) && moves(polynomial_of(g)))
    attend_give_shares(g, (1u << moved(g)) - 1, add_slopes, NULL);
}
