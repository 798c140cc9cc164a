/* cpu/attention/column_sums: see cpu/attention/column_sums.h.
 *
 * A bias is a sum of weights times shapes of the displacement (algebra/polynomial.h), so that a weight gains what
 * scores gain times its shape. Scores were made by columns, monomials of the key's place from the tile's origin; here
 * monomials are those of the displacement itself: where a query looks at keys nearby alone, what they give is small,
 * and differences of sums counted from further away would have no digits of it.
 */
#include "cpu/attention/column_sums.h"

#include "mlir/arith.h"
#include "mlir/monomial.h"

enum { MOST_TOGETHER = 8 }; /* monomials whose sums stay in registers over a tile of keys */

static const double LN_2 = 0.69314718055994530942;

column_sums emit_columns_sums_begin(const column_emitter *columns) {
  const attention_emitter *e = columns->e;
  const polynomial *p = e->p->columns->p;
  ir *b = e->b;
  column_sums s = {.columns = columns};
  s.monomial = arena_array(e->memory, const monomial *, POLYNOMIAL_MAX_MONOMIALS);
  for (int w = 0; w < p->n_weights; w++)
    for (int i = 0; i < p->weight[w].n_monomials; i++) s.monomial[s.n_monomials++] = &p->weight[w].monomial[i];
  int64_t numbers = (int64_t)s.n_monomials * e->shape.queries;
  s.is_wanted = attention_is_given(e, GRADIENT_TILE(e, weight_gains, b->ptr));
  s.sums = ir_alloca(b, numbers * 4, CACHE_LINE);
  emit_zeros(e, s.sums, numbers);
  return s;
}

/* Displacements of a key from a register of queries at `from`; 0 where it gains nothing, for it may be nowhere. */
static void load_displacements(const column_sums *s, ir_value key, ir_value gain, const ir_value *from,
                               power_table *powers) {
  const attention_emitter *e = s->columns->e;
  ir *b = e->b;
  const key_places *places = &s->columns->places;
  ir_value at = nth(b, places->narrow, key, 4), zero = ir_float(b, e->lanes, 0),
           seen = ir_compare_float(b, "une", gain, zero);
  for (int axis = 0; axis < e->p->spec->n_axes; axis++) {
    ir_value place = ir_load(b, b->f32, ir_offset_const(b, at, (int64_t)axis * places->room * 4), 4);
    powers->at[axis][1] = ir_select(b, seen, sub(b, ir_broadcast(b, e->lanes, place), from[axis]), zero);
  }
}

/* Coordinates of a register of queries. */
static void load_queries(const column_sums *s, int vector, ir_value *from) {
  const attention_emitter *e = s->columns->e;
  for (int axis = 0; axis < e->p->spec->n_axes; axis++)
    from[axis] = ir_cast(e->b, "arith.truncf", emit_query_coordinate(e, axis, vector), e->b->f32);
}

/* Monomials [first, first + n) of a register of queries. */
static void add_monomials(const column_sums *s, const key_tile *t, ir_value gains, int vector, int first, int n) {
  const attention_emitter *e = s->columns->e;
  ir *b = e->b;
  ir_value sums[MOST_TOGETHER], now[MOST_TOGETHER], from[SPEC_MAX_AXES];
  load_queries(s, vector, from);
  for (int i = 0; i < n; i++) sums[i] = load(e, attention_at_constant(e, s->sums, first + i, vector));
  ir_loop keys = ir_for_with(b, e->zero, t->count, n, sums, now);
  ir_value gain = load(e, attention_at(e, gains, keys.index, vector));
  power_table powers = {.b = b, .type = e->lanes};
  load_displacements(s, keys.index, gain, from, &powers);
  for (int i = 0; i < n; i++)
    now[i] = monomial_degree(s->monomial[first + i]) == 0
                 ? add(b, gain, now[i])
                 : attention_multiply_add(b, emit_monomial(&powers, s->monomial[first + i], 1), gain, now[i]);
  ir_end_for_with(b, keys, n, now, sums);
  for (int i = 0; i < n; i++) store(e, sums[i], attention_at_constant(e, s->sums, first + i, vector));
}

void emit_columns_sums(const column_sums *s, const key_tile *t, ir_value gains) {
  ir *b = s->columns->e->b;
  ir_branch wanted = ir_if(b, s->is_wanted);
  for (int x = 0; x < s->columns->e->shape.vectors; x++)
    for (int first = 0, n; first < s->n_monomials; first += n) {
      n = s->n_monomials - first < MOST_TOGETHER ? s->n_monomials - first : MOST_TOGETHER;
      add_monomials(s, t, gains, x, first, n);
    }
  ir_end_if(b, wanted);
}

/* The caller's factor of scores, which biases have too. */
static ir_value natural_scale(const attention_emitter *e) {
  ir *b = e->b;
  ir_value natural = mul(b, ATTENTION_TILE(e, scale, b->f64), ir_float(b, b->f64, LN_2));
  return ir_broadcast(b, e->lanes, ir_cast(b, "arith.truncf", natural, b->f32));
}

/* ---- coordinates ---- */

/* Of a pair that is not seen nothing, whatever its query's weights are. */
void emit_columns_place_gains(const column_sums *s, const place_sums *places, const key_tile *t, ir_value gains) {
  const attention_emitter *e = s->columns->e;
  ir *b = e->b;
  const polynomial *p = e->p->columns->p;
  ir_branch wanted = ir_if(b, places->is_wanted);
  ir_value scale = natural_scale(e), zero = ir_float(b, e->lanes, 0);
  for (int x = 0; x < e->shape.vectors; x++) {
    ir_value from[SPEC_MAX_AXES];
    load_queries(s, x, from);
    ir_loop keys = ir_for(b, e->zero, t->count);
    ir_value gain = load(e, attention_at(e, gains, keys.index, x)), counts = ir_compare_float(b, "une", gain, zero);
    power_table powers = {.b = b, .type = e->lanes};
    load_displacements(s, keys.index, gain, from, &powers);
    gain = mul(b, gain, scale);
    for (int axis = 0; axis < e->p->spec->n_axes; axis++) {
      ir_value slope = zero;
      for (int w = 0; w < p->n_weights; w++) {
        ir_value of_shape = emit_shape_slope(&powers, &p->weight[w], axis);
        if (of_shape.ptr) slope = attention_multiply_add(b, emit_query_weight(e, w, x), of_shape, slope);
      }
      ir_value of_axis = ir_select(b, counts, mul(b, gain, slope), zero);
      emit_place_gain(places, axis, keys.index, i64(b, x), of_axis);
    }
    ir_end_for(b, keys);
  }
  ir_end_if(b, wanted);
}

/* ---- weights ---- */

/* A weight's sums times the factors of its shape, in the units of the bias. */
static ir_value weight_gain(const column_sums *s, const polynomial_weight *weight, int first, ir_value scale,
                            int vector) {
  const attention_emitter *e = s->columns->e;
  ir *b = e->b;
  ir_value gain = {NULL};
  for (int i = 0; i < weight->n_monomials; i++) {
    ir_value sum = load(e, attention_at_constant(e, s->sums, first + i, vector));
    if (weight->factor[i] != 1) sum = mul(b, sum, ir_float(b, e->lanes, weight->factor[i]));
    gain = gain.ptr ? add(b, gain, sum) : sum;
  }
  return mul(b, gain, scale);
}

void emit_columns_sums_end(const column_sums *s) {
  const attention_emitter *e = s->columns->e;
  ir *b = e->b;
  const polynomial *p = e->p->columns->p;
  ir_branch wanted = ir_if(b, s->is_wanted);
  ir_value scale = natural_scale(e), to = GRADIENT_TILE(e, weight_gains, b->ptr);
  for (int w = 0, first = 0; w < p->n_weights; first += p->weight[w++].n_monomials)
    for (int x = 0; x < e->shape.vectors; x++) {
      int64_t at = ((int64_t)w * PEGEN_ATTENTION_QUERIES + (int64_t)x * e->shape.lanes) * 4;
      store(e, weight_gain(s, &p->weight[w], first, scale, x), ir_offset_const(b, to, at));
    }
  ir_end_if(b, wanted);
}
