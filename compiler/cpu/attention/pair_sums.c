/* cpu/attention/pair_sums: see cpu/attention/pair_sums.h.
 *
 * Operands: where an element stands by itself (a slope), what pairs give is summed in the lanes, in float64. Where a
 * place is computed (a table of displacements), lanes are added one after the other to the place in the chunk's own
 * table: no two threads write there. On a grid both are asked of displacements, of which there are fewer than pairs.
 *
 * Coordinates: a query's sums stay in the lanes, in float64. A key's are lanes, too, until all of a tile's queries and
 * blocks have been added, and are then summed as those of its channels are.
 *
 * Weights: a bias is a sum of weights times shapes of the displacement (algebra/polynomial.h), so that a weight gains
 * what scores gain times its shape. Scores were made by columns, monomials of the key's place from the tile's origin;
 * here monomials are those of the displacement itself: where a query looks at keys nearby alone, what they give is
 * small, and differences of sums counted from further away would have no digits of it.
 *
 * Rotations: a pair's torque in the frame of what was turned (algebra/torque.h), and from there expressions of its
 * displacement, in float64: a rotation of a pair has no other to share it with but those of other heads.
 */
#include "cpu/attention/pair_sums.h"

#include "cpu/attention/queries.h"
#include "cpu/attention/strips.h"
#include "cpu/product.h"
#include "mlir/monomial.h"

enum { MOST_TOGETHER = 8 }; /* monomials whose sums stay in registers over a tile of keys */

static const attention_emitter *emitter_of(const pair_sums *s) { return s->pairs->e; }

/* A number, or lanes of them, as float64. */
static ir_value widened(ir *b, ir_value x) {
  return mlirTypeEqual(ir_type(x), ir_like(b, x, b->f64)) ? x : ir_cast(b, "arith.extf", x, b->f64);
}

/* Lanes of float64 at an address += x. */
static void add_wide(ir *b, ir_value at, ir_value x) {
  x = widened(b, x);
  ir_store(b, add(b, ir_load(b, ir_type(x), at, 8), x), at, 8, false);
}

/* A pair that is not seen gives nothing, whatever its bias and its displacement are. */
static ir_value counted(const attention_emitter *e, ir_value cotangent, ir_value x) {
  ir_value zero = ir_float(e->b, e->lanes, 0);
  return ir_select(e->b, ir_compare_float(e->b, "une", cotangent, zero), x, zero);
}

/* ---- operands ---- */

static ir_value operand_at(const pair_sums *s, int scatter) {
  const attention_emitter *e = emitter_of(s);
  return ir_offset_const(e->b, s->operands, (int64_t)scatter * e->shape.lanes * 8);
}

static void begin_operands(pair_sums *s, delta_emitter *d) {
  const attention_emitter *e = emitter_of(s);
  ir *b = e->b;
  const attention_plan *p = e->p;
  MlirType type = ir_vector(b, e->shape.lanes, b->f64);
  s->operands = ir_alloca(b, (int64_t)p->n_scatters * e->shape.lanes * 8, CACHE_LINE);
  if (p->by_rows) s->operand_table = emit_grid_sums_room(&s->pairs->grid);
  for (int i = 0; i < p->n_scatters; i++) {
    ir_store(b, ir_float(b, type, 0), operand_at(s, i), 8, false);
    emit_expr_fixed(&d->walker, p->scatter[i].gradient);
    if (p->scatter[i].leaf->op == EXPR_ELEMENT) emit_expr_fixed(&d->walker, p->scatter[i].leaf->arg[0]);
  }
}

/* table[place] += more, a float64. */
static void add_to_place(ir *b, ir_value table, ir_value place, ir_value more) {
  ir_value at = nth(b, table, ir_cast(b, "arith.extsi", place, b->i64), 8);
  ir_store(b, add(b, ir_load(b, b->f64, at, 8), more), at, 8, false);
}

/* A lane's gain, float64, at its place, or at the place of all. */
static void add_lane(ir *b, ir_value table, ir_value place, ir_value gain, int lane) {
  if (ir_lanes(place)) place = ir_extract(b, place, lane);
  add_to_place(b, table, place, ir_extract(b, gain, lane));
}

/* Adds each lane's gain at the lane's place or, where all have one place, their sum. */
static void add_to_places(const attention_emitter *e, ir_value table, ir_value place, ir_value gain) {
  ir *b = e->b;
  gain = widened(b, gain);
  if (ir_lanes(place) == 0) {
    add_to_place(b, table, place, emit_across(b, gain, add));
    return;
  }
  for (int lane = 0; lane < e->shape.lanes; lane++) add_lane(b, table, place, gain, lane);
}

/* Scatters, to one of which a pair of the tile gives. */
typedef struct scatter_visit {
  const pair_sums *s;
  const key_tile *t;
  const adjoint_scatter *scatter;
  int count;
  void (*give)(const struct scatter_visit *v, delta_emitter *d, const adjoint_scatter *scatter, ir_value gain);
} scatter_visit;

static void give_gain(const scatter_visit *v, delta_emitter *d, const adjoint_scatter *scatter) {
  ir_value gain = emit_expr_f32(&d->walker, scatter->gradient);
  v->give(v, d, scatter, counted(emitter_of(v->s), d->cotangent, gain));
}

static bool is_of_terms(const expr *leaf, int terms) { return expr_op_is_lookup(leaf->op) && leaf->terms == terms; }

/* Elements at computed places go together with those of sums of as many terms, in one loop over these. */
static void visit_scatters(void *context, delta_emitter *d) {
  const scatter_visit *v = context;
  const adjoint_scatter *of = v->scatter;
  const expr **root = arena_array(emitter_of(v->s)->memory, const expr *, 2 * v->count);
  for (int first = 0; first < v->count; first++) {
    int terms = of[first].leaf->terms, count = 0;
    if (!expr_op_is_lookup(of[first].leaf->op)) give_gain(v, d, &of[first]);
    if (!attention_begins_terms(of, first)) continue;
    for (int i = first; i < v->count; i++) {
      if (!is_of_terms(of[i].leaf, terms)) continue;
      root[count++] = of[i].gradient;
      root[count++] = of[i].leaf;
    }
    expr_loop loop = {0};
    if (terms) loop = emit_expr_terms(&d->walker, terms, root, count);
    for (int i = first; i < v->count; i++)
      if (is_of_terms(of[i].leaf, terms)) give_gain(v, d, &of[i]);
    if (terms) emit_expr_end_terms(&d->walker, loop);
  }
}

static void give_operand(const scatter_visit *v, delta_emitter *d, const adjoint_scatter *scatter, ir_value gain) {
  const attention_emitter *e = emitter_of(v->s);
  ir *b = e->b;
  if (scatter->leaf->op != EXPR_ELEMENT) {
    add_wide(b, operand_at(v->s, (int)(scatter - v->scatter)), gain);
    return;
  }
  ir_value place = emit_element_place(d, scatter->leaf), tables = GRADIENT_TILE(e, tables, b->ptr);
  ir_value table = ir_load(b, b->ptr, ir_offset_const(b, tables, scatter->leaf->index * 8), 8);
  add_to_places(e, table, place, gain);
}

/* Gains of pairs that are alike in some batches are summed there; gives where the sums stand. */
static ir_value emit_kept_sums(const pair_sums *s, const key_tile *t, ir_value gains) {
  const attention_emitter *e = emitter_of(s);
  ir *b = e->b;
  ir_value room = GRADIENT_TILE(e, pair_sums, b->ptr), is_kept = attention_is_given(e, room),
           is_first = ir_compare_int(b, "ne", ATTENTION_TILE(e, is_first, b->i64), e->zero),
           zero = ir_float(b, e->lanes, 0), at = nth(b, room, t->first, (int64_t)e->shape.queries * 4);
  ir_branch kept = ir_if(b, is_kept);
  ir_loop keys = ir_for(b, e->zero, t->count);
  for (int x = 0; x < e->shape.vectors; x++) {
    ir_value to = attention_at(e, at, keys.index, x), before = ir_select(b, is_first, zero, load(e, to));
    store(e, add(b, before, load(e, attention_at(e, gains, keys.index, x))), to);
  }
  ir_end_for(b, keys);
  ir_end_if(b, kept);
  return ir_select(b, is_kept, at, gains);
}

static void emit_operands(const pair_sums *s, const key_tile *t, ir_value gains) {
  const attention_emitter *e = emitter_of(s);
  ir *b = e->b;
  scatter_visit visit = {s, t, e->p->scatter, e->p->n_scatters, give_operand};
  ir_branch wanted = ir_if(b, s->wants_operands);
  if (attention_keeps_pairs(e->p)) {
    ir_value sums = emit_kept_sums(s, t, gains);
    ir_branch last = ir_if(b, ir_compare_int(b, "ne", GRADIENT_TILE(e, is_last, b->i64), e->zero));
    emit_pair_gains(s->pairs, t, sums, true, s->operand_table, visit_scatters, &visit);
    ir_end_if(b, last);
  } else emit_pair_gains(s->pairs, t, gains, true, s->operand_table, visit_scatters, &visit);
  ir_end_if(b, wanted);
}

/* Sums of a bias, of block 0, and behind them those of rotations, of all blocks. */
static void end_operands(const pair_sums *s) {
  const attention_emitter *e = emitter_of(s);
  ir *b = e->b;
  int blocks = expr_pool_blocks(e->p->spec->pool);
  int64_t lanes = (int64_t)e->shape.lanes * 8;
  ir_branch wanted = ir_if(b, s->wants_operands);
  ir_value to = GRADIENT_TILE(e, operand_sums, b->ptr);
  for (int i = 0; i < e->p->n_scatters; i++) {
    if (e->p->scatter[i].leaf->op == EXPR_ELEMENT) continue;
    ir_value sum = ir_offset_const(b, to, (int64_t)i * blocks * 8);
    emit_add_lanes(e, operand_at(s, i), sum);
  }
  if (e->p->torques) {
    ir_loop sums = ir_for(b, e->zero, i64(b, e->p->torques->n_scatters * e->p->spec->n_blocks));
    ir_value of_bias = ir_offset_const(b, to, (int64_t)e->p->n_scatters * e->p->spec->n_blocks * 8),
             sum = nth(b, of_bias, sums.index, 8);
    emit_add_lanes(e, nth(b, s->torques, sums.index, lanes), sum);
    ir_end_for(b, sums);
  }
  ir_end_if(b, wanted);
}

/* ---- coordinates ---- */

static int axes_of(const pair_sums *s) { return emitter_of(s)->p->n_sums; }

static int64_t key_bytes(const pair_sums *s) { return (int64_t)emitter_of(s)->shape.lanes * 4; }

static int64_t axis_bytes(const pair_sums *s) { return key_places_room(&emitter_of(s)->shape) * key_bytes(s); }

static ir_value key_at(const pair_sums *s, int axis, ir_value key) {
  ir *b = emitter_of(s)->b;
  return nth(b, ir_offset_const(b, s->keys, axis * axis_bytes(s)), key, key_bytes(s));
}

static ir_value query_at(const pair_sums *s, int axis, ir_value index, int64_t bytes) {
  const attention_emitter *e = emitter_of(s);
  return nth(e->b, ir_offset_const(e->b, s->queries, (int64_t)axis * e->shape.queries * 8), index, bytes);
}

static void begin_places(pair_sums *s, delta_emitter *d) {
  const attention_emitter *e = emitter_of(s);
  ir *b = e->b;
  ir_value of_keys = attention_is_given(e, GRADIENT_TILE(e, key_place_sums, b->ptr)),
           of_queries = attention_is_given(e, GRADIENT_TILE(e, place_sums, b->ptr));
  s->wants_places = ir_op2(b, "arith.ori", of_queries, of_keys);
  s->queries = ir_alloca(b, (int64_t)axes_of(s) * e->shape.queries * 8, CACHE_LINE);
  s->keys = ir_alloca(b, axes_of(s) * axis_bytes(s), CACHE_LINE);
  emit_zeros(e, s->queries, (int64_t)axes_of(s) * e->shape.queries * 2);
  for (int axis = 0; axis < axes_of(s); axis++)
    if (e->p->place[axis]) emit_expr_fixed(&d->walker, e->p->place[axis]);
}

/* An axis of the displacement of key `key` (of the tile) and register `vector` (i64) gains lanes. */
static void add_place(const pair_sums *s, int axis, ir_value key, ir_value vector, ir_value gain) {
  const attention_emitter *e = emitter_of(s);
  ir *b = e->b;
  ir_value narrow = mlirTypeEqual(ir_type(gain), e->lanes) ? gain : ir_cast(b, "arith.truncf", gain, b->f32),
           at = key_at(s, axis, key);
  add_wide(b, query_at(s, axis, vector, (int64_t)e->shape.lanes * 8), gain);
  store(e, add(b, load(e, at), narrow), at);
}

static void visit_places(void *context, delta_emitter *d) {
  const pair_sums *s = context;
  const attention_emitter *e = emitter_of(s);
  for (int axis = 0; axis < axes_of(s); axis++) {
    if (!e->p->place[axis]) continue;
    ir_value gain = counted(e, d->cotangent, emit_expr_f32(&d->walker, e->p->place[axis]));
    if (is_pair_place(e->p, axis)) emit_lay_pair_gain(s->pairs, axis, d->key, d->vector, gain);
    else add_place(s, axis, d->key, d->vector, gain);
  }
}

/* Whether pairs give a coordinate anything: by themselves, or by what rotates them or is a polynomial of them. */
static bool is_moved(const attention_plan *p, int axis) {
  int moved = p->columns ? plan_widen_coordinates(p->columns) : p->torques ? p->spec->n_axes : 0;
  return p->place[axis] || axis < moved;
}

/* Sums of a register of keys, from `first` of the tile on, along an axis, to [key][axes]. */
static void close_keys(const pair_sums *s, const key_tile *t, int axis, ir_value first, ir_value to) {
  const attention_emitter *e = emitter_of(s);
  ir *b = e->b;
  ir_value sums = key_at(s, axis, first);
  emit_lane_sums(e, sums, sums);
  ir_loop keys = ir_for(b, e->zero, smaller(b, sub(b, t->count, first), i64(b, e->shape.lanes)));
  ir_value key = add(b, t->first, add(b, first, keys.index)),
           at = ir_offset_const(b, nth(b, to, key, e->p->n_sums * 8), axis * 8);
  add_wide(b, at, ir_load(b, b->f32, nth(b, sums, keys.index, 4), 4));
  ir_end_for(b, keys);
}

void emit_pair_sums_close(const pair_sums *s, const key_tile *t) {
  const attention_emitter *e = emitter_of(s);
  ir *b = e->b;
  if (!attention_moves(e->p)) return;
  int lanes = e->shape.lanes;
  ir_value to = GRADIENT_TILE(e, key_place_sums, b->ptr);
  ir_branch wanted = ir_if(b, attention_is_given(e, to));
  ir_loop groups = ir_for(b, e->zero, attention_groups(b, t->count, lanes));
  for (int axis = 0; axis < axes_of(s); axis++)
    if (is_moved(e->p, axis)) close_keys(s, t, axis, attention_mul(b, groups.index, lanes), to);
  ir_end_for(b, groups);
  ir_end_if(b, wanted);
}

/* What the queries gain, written: each of them is of this tile alone. */
static void end_places(const pair_sums *s) {
  const attention_emitter *e = emitter_of(s);
  ir *b = e->b;
  ir_value to = GRADIENT_TILE(e, place_sums, b->ptr);
  ir_branch wanted = ir_if(b, attention_is_given(e, to));
  ir_loop lanes = ir_for(b, e->zero, i64(b, e->shape.queries));
  ir_value token = attention_lane_token(e, e->zero, lanes.index);
  ir_branch given = ir_if(b, ir_compare_int(b, "sge", token, e->zero));
  for (int axis = 0; axis < axes_of(s); axis++) {
    ir_value sum = ir_load(b, b->f64, query_at(s, axis, lanes.index, 8), 8),
             at = ir_offset_const(b, nth(b, to, token, e->p->n_sums * 8), axis * 8);
    ir_store(b, sub(b, ir_float(b, b->f64, 0), sum), at, 8, false);
  }
  ir_end_if(b, given);
  ir_end_for(b, lanes);
  ir_end_if(b, wanted);
}

/* ---- elements of rows of inputs, read at computed places ---- */

static void begin_rows(pair_sums *s, delta_emitter *d) {
  const attention_emitter *e = emitter_of(s);
  ir_value of_queries = attention_is_given(e, GRADIENT_TILE(e, row_gains, e->b->ptr)),
           of_keys = attention_is_given(e, GRADIENT_TILE(e, key_row_gains, e->b->ptr));
  s->wants_rows = ir_op2(e->b, "arith.ori", of_queries, of_keys);
  for (int i = 0; i < e->p->n_row_scatters; i++) emit_expr_fixed(&d->walker, e->p->row_scatter[i].gradient);
  if (e->p->n_strips) emit_strip_sums_begin(s->pairs);
}

/* Adds lanes' gains to their elements of the row that a leaf reads: of key `key`, which all lanes share, */
static void add_to_key_row(const pair_sums *s, delta_emitter *d, const expr *leaf, ir_value gain, ir_value key) {
  const attention_emitter *e = emitter_of(s);
  ir *b = e->b;
  ir_value index = emit_row_index(d, leaf), rows = GRADIENT_TILE(e, key_row_gains, b->ptr);
  ir_branch wanted = ir_if(b, attention_is_given(e, rows));
  ir_value row = nth(b, rows, key, (int64_t)attention_row_elements(e->p, true) * 8);
  add_to_places(e, ir_offset_const(b, row, (int64_t)attention_row_element(e->p, leaf->index) * 8), index, gain);
  ir_end_if(b, wanted);
}

/* or of the queries of register `vector`, each of which has its own. */
static void add_to_query_rows(const pair_sums *s, delta_emitter *d, const expr *leaf, ir_value gain, ir_value vector) {
  const attention_emitter *e = emitter_of(s);
  ir *b = e->b;
  ir_value index = emit_row_index(d, leaf), rows = GRADIENT_TILE(e, row_gains, b->ptr);
  ir_branch wanted = ir_if(b, attention_is_given(e, rows));
  rows = nth(b, rows, vector, (int64_t)e->shape.lanes * 8);
  gain = widened(b, gain);
  for (int lane = 0; lane < e->shape.lanes; lane++) {
    ir_value row = ir_load(b, b->ptr, ir_offset_const(b, rows, lane * 8), 8),
             own = ir_offset_const(b, row, (int64_t)attention_row_element(e->p, leaf->index) * 8);
    add_lane(b, own, index, gain, lane);
  }
  ir_end_if(b, wanted);
}

/* A strip's coordinates have sums of their own, which become those of rows when no more is added. */
static void give_row(const scatter_visit *v, delta_emitter *d, const adjoint_scatter *scatter, ir_value gain) {
  const attention_emitter *e = emitter_of(v->s);
  ir *b = e->b;
  int strip = attention_strip_of(e->p, scatter->leaf);
  if (strip >= 0) {
    emit_strip_gain(v->s->pairs, strip, d->key, d->vector, gain);
    return;
  }
  if (e->p->spec->input[scatter->leaf->index].of_keys)
    add_to_key_row(v->s, d, scatter->leaf, gain, add(b, v->t->first, d->key));
  else add_to_query_rows(v->s, d, scatter->leaf, gain, d->vector);
}

static void give_strip(void *context, delta_emitter *d, int strip, ir_value vector, ir_value sum) {
  const pair_sums *s = context;
  const attention_plan *p = emitter_of(s)->p;
  for (int i = 0; i < p->n_row_scatters; i++)
    if (p->row_scatter[i].leaf == p->strip[strip].value) add_to_query_rows(s, d, p->row_scatter[i].leaf, sum, vector);
}

/* ---- a polynomial's ---- */

static void begin_weights(pair_sums *s) {
  const attention_emitter *e = emitter_of(s);
  const polynomial *p = e->p->columns->p;
  s->monomial = arena_array(e->memory, const monomial *, POLYNOMIAL_MAX_MONOMIALS);
  for (int w = 0; w < p->n_weights; w++)
    for (int i = 0; i < p->weight[w].n_monomials; i++) s->monomial[s->n_monomials++] = &p->weight[w].monomial[i];
  int64_t numbers = (int64_t)s->n_monomials * e->shape.queries;
  s->wants_weights = attention_is_given(e, GRADIENT_TILE(e, weight_gains, e->b->ptr));
  s->weights = ir_alloca(e->b, numbers * 4, CACHE_LINE);
  emit_zeros(e, s->weights, numbers);
}

/* Powers of the displacements of a tile's keys from a register of queries: at a key, they are 0 where it gains nothing,
 * for it may be nowhere. */
typedef struct displaced_keys {
  const pair_sums *s;
  ir_value gains;
  int vector;
  ir_value from[SPEC_MAX_AXES]; /* coordinates of the queries */
} displaced_keys;

static displaced_keys displaced_from(const pair_sums *s, ir_value gains, int vector) {
  const attention_emitter *e = emitter_of(s);
  displaced_keys d = {.s = s, .gains = gains, .vector = vector};
  for (int axis = 0; axis < plan_widen_coordinates(e->p->columns); axis++)
    d.from[axis] = ir_cast(e->b, "arith.truncf", emit_query_coordinate(e, axis, vector), e->b->f32);
  return d;
}

/* Gives what the key's scores gain. */
static ir_value displace_key(const displaced_keys *d, ir_value key, power_table *powers) {
  const attention_emitter *e = emitter_of(d->s);
  ir *b = e->b;
  const key_places *places = &d->s->columns->places;
  *powers = (power_table){.b = b, .type = e->lanes};
  ir_value gain = load(e, attention_at(e, d->gains, key, d->vector)), at = nth(b, places->narrow, key, 4);
  for (int axis = 0; axis < plan_widen_coordinates(e->p->columns); axis++) {
    ir_value place = ir_load(b, b->f32, ir_offset_const(b, at, (int64_t)axis * places->room * 4), 4);
    powers->at[axis][1] = counted(e, gain, sub(b, ir_broadcast(b, e->lanes, place), d->from[axis]));
  }
  return gain;
}

/* Monomials [first, first + n) of a register of queries. */
static void add_monomials(const pair_sums *s, const key_tile *t, ir_value gains, int vector, int first, int n) {
  const attention_emitter *e = emitter_of(s);
  ir *b = e->b;
  ir_value sums[MOST_TOGETHER], now[MOST_TOGETHER];
  displaced_keys d = displaced_from(s, gains, vector);
  for (int i = 0; i < n; i++) sums[i] = load(e, attention_at_constant(e, s->weights, first + i, vector));
  ir_loop keys = ir_for_with(b, e->zero, t->count, n, sums, now);
  power_table powers;
  ir_value gain = displace_key(&d, keys.index, &powers);
  for (int i = 0; i < n; i++)
    now[i] = monomial_degree(s->monomial[first + i]) == 0
                 ? add(b, gain, now[i])
                 : attention_multiply_add(b, emit_monomial(&powers, s->monomial[first + i], 1), gain, now[i]);
  ir_end_for_with(b, keys, n, now, sums);
  for (int i = 0; i < n; i++) store(e, sums[i], attention_at_constant(e, s->weights, first + i, vector));
}

static void emit_weights(const pair_sums *s, const key_tile *t, ir_value gains) {
  ir *b = emitter_of(s)->b;
  ir_branch wanted = ir_if(b, s->wants_weights);
  for (int x = 0; x < emitter_of(s)->shape.vectors; x++)
    for (int first = 0, n; first < s->n_monomials; first += n) {
      n = s->n_monomials - first < MOST_TOGETHER ? s->n_monomials - first : MOST_TOGETHER;
      add_monomials(s, t, gains, x, first, n);
    }
  ir_end_if(b, wanted);
}

/* What displacements gain of the same, whatever the weights of a query that does not see the key are. */
static void emit_slopes(const pair_sums *s, const key_tile *t, ir_value gains) {
  const attention_emitter *e = emitter_of(s);
  ir *b = e->b;
  const polynomial *p = e->p->columns->p;
  ir_branch wanted = ir_if(b, s->wants_places);
  for (int x = 0; x < e->shape.vectors; x++) {
    displaced_keys d = displaced_from(s, gains, x);
    ir_loop keys = ir_for(b, e->zero, t->count);
    power_table powers;
    ir_value gain = displace_key(&d, keys.index, &powers), scaled = mul(b, gain, s->scale), vector = i64(b, x);
    for (int axis = 0; axis < plan_widen_coordinates(e->p->columns); axis++) {
      ir_value slope = ir_float(b, e->lanes, 0);
      for (int w = 0; w < p->n_weights; w++) {
        ir_value of_shape = emit_shape_slope(&powers, &p->weight[w], axis);
        if (of_shape.ptr) slope = attention_multiply_add(b, emit_query_weight(e, w, x), of_shape, slope);
      }
      add_place(s, axis, keys.index, vector, counted(e, gain, mul(b, scaled, slope)));
    }
    ir_end_for(b, keys);
  }
  ir_end_if(b, wanted);
}

/* A weight's sums times the factors of its shape, in the units of the bias. */
static ir_value weight_gain(const pair_sums *s, const polynomial_weight *weight, int first, int vector) {
  const attention_emitter *e = emitter_of(s);
  ir *b = e->b;
  ir_value gain = {NULL};
  for (int i = 0; i < weight->n_monomials; i++) {
    ir_value sum = load(e, attention_at_constant(e, s->weights, first + i, vector));
    if (weight->factor[i] != 1) sum = mul(b, sum, ir_float(b, e->lanes, weight->factor[i]));
    gain = gain.ptr ? add(b, gain, sum) : sum;
  }
  return mul(b, gain, s->scale);
}

static void end_weights(const pair_sums *s) {
  const attention_emitter *e = emitter_of(s);
  ir *b = e->b;
  const polynomial *p = e->p->columns->p;
  ir_branch wanted = ir_if(b, s->wants_weights);
  ir_value to = GRADIENT_TILE(e, weight_gains, b->ptr);
  for (int w = 0, first = 0; w < p->n_weights; first += p->weight[w++].n_monomials)
    for (int x = 0; x < e->shape.vectors; x++) {
      int64_t at = ((int64_t)w * PEGEN_ATTENTION_QUERIES + (int64_t)x * e->shape.lanes) * 4;
      store(e, weight_gain(s, &p->weight[w], first, x), ir_offset_const(b, to, at));
    }
  ir_end_if(b, wanted);
}

/* ---- rotations ---- */

static ir_value torque_at(const pair_sums *s, int scatter, ir_value block) {
  const attention_emitter *e = emitter_of(s);
  int64_t bytes = (int64_t)e->shape.lanes * 8;
  return nth(e->b, ir_offset_const(e->b, s->torques, scatter * e->p->spec->n_blocks * bytes), block, bytes);
}

static void begin_torques(pair_sums *s) {
  const attention_emitter *e = emitter_of(s);
  int64_t lanes = (int64_t)e->p->spec->n_blocks * e->shape.lanes, scatters = e->p->torques->n_scatters;
  s->torques = ir_alloca(e->b, (scatters + 1) * lanes * 8, CACHE_LINE);
  emit_zeros(e, s->torques, scatters * lanes * 2);
}

void emit_torque_sums_fixed(const pair_sums *s, delta_emitter *d) {
  const attention_torques *t = emitter_of(s)->p->torques;
  for (int i = 0; i < t->n_scatters; i++) emit_expr_fixed(&d->walker, t->scatter[i].gradient);
  for (int axis = 0; axis < emitter_of(s)->p->spec->n_axes; axis++)
    if (t->place[axis]) emit_expr_fixed(&d->walker, t->place[axis]);
}

/* g^T E y. */
static ir_value emit_torque(const pair_sums *s, const torque_element *element, const ir_value *g, const ir_value *y) {
  ir *b = emitter_of(s)->b;
  ir_value sum = {NULL};
  for (int i = 0; i < element->n_entries; i++) {
    const torque_entry *at = &element->entry[i];
    ir_value product = mul(b, g[at->row], y[at->column]);
    if (sum.ptr) sum = at->sign < 0 ? sub(b, sum, product) : add(b, sum, product);
    else sum = at->sign < 0 ? ir_op1(b, "arith.negf", product) : product;
  }
  return mul(b, sum, s->scale);
}

/* Lanes of float64, 0 where the pair does not count. */
static ir_value torque_gain(const pair_sums *s, delta_emitter *d, const expr *gradient, ir_value counts) {
  ir *b = emitter_of(s)->b;
  ir_value gain = emit_expr_lanes(&d->walker, gradient);
  if (gradient->is_f32) gain = ir_cast(b, "arith.extf", gain, b->f64);
  return ir_select(b, counts, gain, ir_float(b, ir_type(gain), 0));
}

void emit_torque_sums(const pair_sums *s, delta_emitter *d, const ir_value *g, const ir_value *y, ir_value counts,
                      ir_value key, int vector) {
  const attention_emitter *e = emitter_of(s);
  ir *b = e->b;
  const attention_torques *t = e->p->torques;
  ir_value torques[SPEC_MAX_BIVECTORS], index = i64(b, vector);
  ir_branch wanted = ir_if(b, ir_op2(b, "arith.ori", s->wants_operands, s->wants_places));
  for (int k = 0; k < t->basis.count; k++) torques[k] = emit_torque(s, &t->basis.element[k], g, y);
  d->torques = torques;
  for (int axis = 0; axis < e->p->spec->n_axes; axis++)
    if (t->place[axis]) add_place(s, axis, key, index, torque_gain(s, d, t->place[axis], counts));
  for (int i = 0; i < t->n_scatters; i++) {
    ir_value gain = torque_gain(s, d, t->scatter[i].gradient, counts);
    add_wide(b, torque_at(s, i, d->block), gain);
  }
  d->torques = NULL;
  ir_end_if(b, wanted);
}

/* ---- all of them ---- */

pair_sums emit_pair_sums_begin(const pair_emitter *pairs, const column_emitter *columns) {
  const attention_emitter *e = pairs->e;
  const attention_plan *p = e->p;
  pair_sums s = {.pairs = pairs, .columns = columns};
  delta_emitter d = delta_emitter_create(e, pairs->fixed);
  s.wants_places = ir_int(e->b, e->b->i1, 0);
  if (p->columns || p->torques) s.scale = attention_natural_scale(e);
  if (p->n_scatters || p->torques) s.wants_operands = attention_is_given(e, GRADIENT_TILE(e, operand_sums, e->b->ptr));
  if (p->columns) begin_weights(&s);
  if (p->n_scatters) begin_operands(&s, &d);
  if (p->n_sums) begin_places(&s, &d);
  if (p->n_row_scatters) begin_rows(&s, &d);
  if (p->torques) begin_torques(&s);
  return s;
}

void emit_pair_sums(const pair_sums *s, const key_tile *t, ir_value gains) {
  const attention_emitter *e = emitter_of(s);
  const attention_plan *p = e->p;
  bool moves = attention_moves(p);
  scatter_visit rows = {s, t, p->row_scatter, p->n_row_scatters, give_row};
  if (p->n_scatters) emit_operands(s, t, gains);
  if (moves) {
    ir_branch wanted = ir_if(e->b, s->wants_places);
    emit_zeros(e, s->keys, axes_of(s) * axis_bytes(s) / 4);
    if (p->bias || p->score) emit_pair_gains(s->pairs, t, gains, false, (ir_value){NULL}, visit_places, (void *)s);
    for (int axis = 0; axis < axes_of(s); axis++)
      if (p->place[axis] && is_pair_place(p, axis)) emit_give_pair_gains(s->pairs, t, axis);
    ir_end_if(e->b, wanted);
  }
  if (p->n_row_scatters) {
    ir_branch wanted = ir_if(e->b, s->wants_rows);
    emit_pair_gains(s->pairs, t, gains, false, (ir_value){NULL}, visit_scatters, &rows);
    emit_strip_sums(s->pairs, t, give_strip, (void *)s);
    ir_end_if(e->b, wanted);
  }
  if (p->score) emit_product_gains(s->pairs, t, gains); /* columns are part of the product */
  if (p->columns) emit_weights(s, t, gains);
  if (p->columns && moves) emit_slopes(s, t, gains);
}

void emit_pair_sums_end(const pair_sums *s) {
  const attention_plan *p = emitter_of(s)->p;
  if (p->n_scatters || p->torques) end_operands(s);
  if (p->columns) end_weights(s);
  if (p->n_sums) end_places(s);
  if (!p->n_row_scatters || !p->n_strips) return;
  ir_branch wanted = ir_if(emitter_of(s)->b, s->wants_rows);
  emit_strip_sums(s->pairs, NULL, give_strip, (void *)s);
  ir_end_if(emitter_of(s)->b, wanted);
}
