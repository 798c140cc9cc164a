/* gpu/weights: see gpu/weights.h. */
#include "gpu/weights.h"

#include "gpu/index.h"

#include "kernel/launch.h"

enum { WARP = 32, PIECE = 16 };

/* ---- shared memory ---- */

/* Arrays of a token, one after the other. */
enum { MONOMIALS, GAINS, WEIGHTS, PARTS, REST, ARRAYS };

static int whole_pieces(int bytes) { return (bytes + PIECE - 1) / PIECE * PIECE; }

/* Floats from lane to lane of the sums' parts: an odd number, so that lanes side by side meet different banks. */
static int part_pitch(const plan_widen *p) { return p->p->n_weights | 1; }

/* Lanes that have terms. */
static int busy_lanes(const plan_widen *p, int lanes) { return p->spec->n_blocks < lanes ? p->spec->n_blocks : lanes; }

static int array_bytes(const plan_widen *p, const widen_tables *t, int lanes, int rest, int array) {
  int gains = t->n_gains * 4, constant = t->n_constant * TWO_FLOAT_BYTES;
  int bytes[ARRAYS] = {[MONOMIALS] = t->n_monomials * TWO_FLOAT_BYTES,
                       [GAINS] = gains > constant ? gains : constant, /* whose monomials take their place */
                       [WEIGHTS] = p->p->n_weights * 4,
                       [PARTS] = busy_lanes(p, lanes) * (p->n_constant && part_pitch(p) < 2 ? 2 : part_pitch(p)) * 4,
                       [REST] = rest};
  return whole_pieces(bytes[array]);
}

int weight_token_bytes(const plan_widen *p, const widen_tables *t, int lanes, int rest) {
  int sum = 0;
  for (int i = 0; i < ARRAYS; i++) sum += array_bytes(p, t, lanes, rest, i);
  return sum;
}

int weight_lanes_of(const plan_widen *p, const widen_tables *t, int rest, int64_t room) {
  for (int lanes = 8; lanes <= WARP; lanes *= 2)
    if ((int64_t)weight_token_bytes(p, t, lanes, rest) * (PEGEN_PTX_BLOCK / lanes) <= room) return lanes;
  return 0;
}

/* Byte base + at (an i32) of the token. */
static ir_value byte_at(weight_lanes *w, int64_t base, ir_value at) {
  ir *b = w->b;
  ir_value of_token = scaled(b, w->token, weight_token_bytes(w->p, &w->tables, w->lanes, w->rest));
  return ir_offset(b, w->shared, wide(b, add(b, add(b, of_token, i32(b, base)), at)));
}

static int begin_of(const weight_lanes *w, int array) {
  int begin = 0;
  for (int i = 0; i < array; i++) begin += array_bytes(w->p, &w->tables, w->lanes, w->rest, i);
  return begin;
}

static ir_value array_at(weight_lanes *w, int array, ir_value at) { return byte_at(w, begin_of(w, array), at); }

ir_value weight_rest_at(weight_lanes *w, int64_t begin, ir_value at) {
  return byte_at(w, begin_of(w, REST) + begin, at);
}

static ir_value table_at(weight_lanes *w, const char *table, ir_value index, int bytes) {
  ir *b = w->b;
  return ir_offset(b, ir_table_address(b, widen_table_name(w->memory, w->prefix, table)),
                   wide(b, scaled(b, index, bytes)));
}

ir_value weight_table_i32(weight_lanes *w, const char *table, ir_value index) {
  return ir_load(w->b, w->b->i32, table_at(w, table, index, 4), 4);
}

/* ---- turns ---- */

lane_turns begin_turns(weight_lanes *w, int count) {
  ir *b = w->b;
  lane_turns t = {.some = count % w->lanes != 0};
  t.loop = ir_for(b, i64(b, 0), i64(b, (count + w->lanes - 1) / w->lanes));
  t.index = add(b, w->lane, scaled(b, narrow(b, t.loop.index), w->lanes));
  if (t.some) t.branch = ir_if(b, below(b, t.index, i32(b, count)));
  return t;
}

void end_turns(weight_lanes *w, lane_turns t) {
  if (t.some) ir_end_if(w->b, t.branch);
  ir_end_for(w->b, t.loop);
}

/* ---- the token: monomials and gains ---- */

/* Powers of the coordinates, each made once. */
typedef struct two_float_powers {
  ir *b;
  two_float at[SPEC_MAX_AXES][SPEC_MAX_DEGREE + 1];
} two_float_powers;

static two_float power_of(two_float_powers *t, int axis, int exponent) {
  two_float *x = &t->at[axis][exponent];
  if (!x->hi.ptr) {
    two_float half = power_of(t, axis, exponent / 2);
    *x = two_float_mul(t->b, half, half);
    if (exponent & 1) *x = two_float_mul(t->b, *x, t->at[axis][1]);
  }
  return *x;
}

static two_float monomial_of(two_float_powers *t, const monomial *m) {
  two_float product = {.hi = {NULL}};
  for (int axis = 0; axis < SPEC_MAX_AXES; axis++)
    if (m->power[axis])
      product = product.hi.ptr ? two_float_mul(t->b, product, power_of(t, axis, m->power[axis]))
                               : power_of(t, axis, m->power[axis]);
  return product.hi.ptr ? product : two_float_const(t->b, 1);
}

static void lay_monomials(weight_lanes *w, const two_float *place, int begin, int end) {
  ir *b = w->b;
  two_float_powers powers = {.b = b};
  for (int axis = 0; axis < w->p->spec->n_axes; axis++) powers.at[axis][1] = place[axis];
  for (int i = begin; i < end; i++) {
    ir_value at = array_at(w, MONOMIALS, i32(b, (int64_t)i * TWO_FLOAT_BYTES));
    two_float_store(b, monomial_of(&powers, &w->tables.monomial[i]), at);
  }
}

void weight_lay_monomials(weight_lanes *w, const two_float *place) {
  lay_monomials(w, place, 0, w->tables.n_monomials);
}

two_float weight_exact_sum_at(weight_lanes *w, const widen_sums *sums, ir_value index) {
  ir *b = w->b;
  ir_value begin = weight_table_i32(w, sums->starts, index),
           end = weight_table_i32(w, sums->starts, add(b, index, i32(b, 1)));
  two_float sum = two_float_const(b, 0);
  ir_loop loop = two_float_for(b, wide(b, begin), wide(b, end), 1, &sum);
  ir_value at = narrow(b, loop.index);
  two_float factor = two_float_load(b, table_at(w, sums->factors, at, TWO_FLOAT_BYTES));
  ir_value monomial = scaled(b, weight_table_i32(w, sums->monomials, at), TWO_FLOAT_BYTES);
  two_float x = two_float_load(b, array_at(w, MONOMIALS, monomial));
  sum = two_float_add(b, sum, two_float_mul(b, factor, x));
  two_float_end_for(b, loop, 1, &sum);
  return sum;
}

ir_value weight_sum_at(weight_lanes *w, const widen_sums *sums, ir_value index) {
  return two_float_narrow(w->b, weight_exact_sum_at(w, sums, index));
}

ir_value weight_gain_at(weight_lanes *w, ir_value gain) {
  return ir_load(w->b, w->b->f32, array_at(w, GAINS, scaled(w->b, gain, 4)), 4);
}

void weight_lay_gains(weight_lanes *w) {
  ir *b = w->b;
  lane_turns t = begin_turns(w, w->tables.n_gains);
  ir_store(b, weight_sum_at(w, &w->tables.gains, t.index), array_at(w, GAINS, scaled(b, t.index, 4)), 4, false);
  end_turns(w, t);
}

/* ---- the query: weights ---- */

/* Sums of so many weights are kept in registers; those of more in shared memory. */
enum { MOST_CARRIED = 32 };

/* The lane's part of a weight. */
static ir_value part_at(weight_lanes *w, int weight) {
  ir *b = w->b;
  ir_value lane = scaled(b, w->lane, 4LL * part_pitch(w->p));
  return array_at(w, PARTS, add(b, lane, i32(b, 4LL * weight)));
}

static void add_to_part(weight_lanes *w, int weight, ir_value exists, ir_value sum) {
  ir *b = w->b;
  ir_branch own = ir_if(b, exists);
  ir_value at = part_at(w, weight), old = ir_load(b, b->f32, at, 4);
  ir_store(b, add(b, old, sum), at, 4, false);
  ir_end_if(b, own);
}

/* Adds what the term adds to every weight; a lane past the last term adds nothing. sums: NULL: to the lane's parts. */
static void add_term(weight_lanes *w, ir_value exists, ir_value *sums) {
  ir *b = w->b;
  const plan_widen *p = w->p;
  int n_products = p->first_product[p->p->n_weights], count = 0;
  const expr **roots = arena_array(w->memory, const expr *, p->n_queries + n_products + 1);
  for (int i = 0; i < p->n_queries; i++) roots[count++] = p->query[i];
  for (int i = 0; i < n_products; i++) roots[count++] = p->fixed[i];
  emit_thread_operands(w->exprs, roots, count);
  for (int weight = 0; weight < p->p->n_weights; weight++) {
    ir_value sum = {NULL};
    for (int k = p->first_product[weight]; k < p->first_product[weight + 1]; k++) {
      ir_value fixed = emit_thread_f32(w->exprs, p->fixed[k], 0);
      if (p->product_query[k] < 0) sum = sum.ptr ? add(b, sum, fixed) : fixed;
      else {
        ir_value query = emit_thread_f32(w->exprs, p->query[p->product_query[k]], 0);
        sum = sum.ptr ? ir_fma(b, query, fixed, sum) : mul(b, query, fixed);
      }
    }
    if (sum.ptr && !sums) add_to_part(w, weight, exists, sum);
    if (sum.ptr && sums) sums[weight] = ir_select(b, exists, add(b, sums[weight], sum), sums[weight]);
  }
}

static void store_parts(weight_lanes *w, const ir_value *sums) {
  ir *b = w->b;
  int busy = busy_lanes(w->p, w->lanes);
  ir_branch branch;
  if (busy < w->lanes) branch = ir_if(b, below(b, w->lane, i32(b, busy)));
  for (int i = 0; i < w->p->p->n_weights; i++) ir_store(b, sums[i], part_at(w, i), 4, false);
  if (busy < w->lanes) ir_end_if(b, branch);
}

/* The lane's part of each weight: of its terms. */
static void lay_parts(weight_lanes *w) {
  ir *b = w->b;
  const plan_widen *p = w->p;
  int n = p->p->n_weights, terms = p->spec->n_blocks, carried = n > MOST_CARRIED ? 0 : n;
  ir_value *zeros = arena_array(w->memory, ir_value, 3 * n + 1), *now = zeros + n, *sums = now + n;
  for (int i = 0; i < n; i++) zeros[i] = ir_float(b, b->f32, 0);
  if (!carried) store_parts(w, zeros);
  ir_loop loop = ir_for_with(b, i64(b, 0), i64(b, (terms + w->lanes - 1) / w->lanes), carried, zeros, now);
  ir_value term = add(b, w->lane, scaled(b, narrow(b, loop.index), w->lanes)), exists = below(b, term, i32(b, terms));
  two_float *remembered = emit_thread_remember(w->exprs);
  w->exprs->unit = ir_select(b, exists, term, i32(b, terms - 1));
  add_term(w, exists, carried ? now : NULL);
  emit_thread_forget(w->exprs, remembered);
  ir_end_for_with(b, loop, carried, now, sums);
  if (carried) store_parts(w, sums);
}

/* Lanes' parts in the order of lanes. */
static void gather_parts(weight_lanes *w) {
  ir *b = w->b;
  lane_turns t = begin_turns(w, w->p->p->n_weights);
  ir_value sum = {NULL};
  for (int lane = 0; lane < busy_lanes(w->p, w->lanes); lane++) {
    ir_value part =
        ir_load(b, b->f32, array_at(w, PARTS, add(b, scaled(b, t.index, 4), i32(b, 4LL * lane * part_pitch(w->p)))), 4);
    sum = sum.ptr ? add(b, sum, part) : part;
  }
  ir_store(b, sum, array_at(w, WEIGHTS, scaled(b, t.index, 4)), 4, false);
  end_turns(w, t);
}

void weight_lay_weights(weight_lanes *w) {
  lay_parts(w);
  ir_wait(w->b, IR_BARRIER_WARP);
  gather_parts(w);
  ir_wait(w->b, IR_BARRIER_WARP);
}

ir_value weight_at(weight_lanes *w, ir_value index) {
  return ir_load(w->b, w->b->f32, array_at(w, WEIGHTS, scaled(w->b, index, 4)), 4);
}

ir_value weight_of_gain(weight_lanes *w, ir_value gain) {
  return weight_at(w, weight_table_i32(w, "gain_weights", gain));
}

void weight_lay_constant_monomials(weight_lanes *w, const two_float *place) {
  lay_monomials(w, place, w->tables.n_monomials, w->tables.n_monomials + w->tables.n_constant);
}

static two_float part_of_constant(weight_lanes *w, int busy) {
  ir *b = w->b;
  const widen_tables *t = &w->tables;
  int first = t->n_gains, rounds = (t->gains.count - first + busy - 1) / busy;
  two_float sum = two_float_const(b, 0);
  ir_loop loop = two_float_for(b, i64(b, 0), i64(b, rounds), 1, &sum);
  ir_value at = add(b, add(b, w->lane, i32(b, first)), scaled(b, narrow(b, loop.index), busy)),
           exists = below(b, at, i32(b, t->gains.count));
  at = ir_select(b, exists, at, i32(b, first));
  two_float weight = two_float_f32(weight_of_gain(w, at)),
            term = two_float_mul(b, weight, weight_exact_sum_at(w, &t->gains, at));
  sum = two_float_select(b, exists, two_float_add(b, sum, term), sum);
  two_float_end_for(b, loop, 1, &sum);
  return sum;
}

/* Its gains are used once and kept nowhere. Two-float throughout: it takes from scores what they have too much. */
ir_value weight_constant(weight_lanes *w) {
  ir *b = w->b;
  int busy = busy_lanes(w->p, w->lanes);
  ir_branch branch = ir_if(b, below(b, w->lane, i32(b, busy)));
  ir_value at = array_at(w, PARTS, scaled(b, w->lane, TWO_FLOAT_BYTES));
  two_float_store(b, part_of_constant(w, busy), at);
  ir_end_if(b, branch);
  ir_wait(b, IR_BARRIER_WARP);
  two_float whole = two_float_load(b, array_at(w, PARTS, i32(b, 0)));
  for (int lane = 1; lane < busy; lane++)
    whole = two_float_add(b, whole, two_float_load(b, array_at(w, PARTS, i32(b, (int64_t)lane * TWO_FLOAT_BYTES))));
  return two_float_narrow(b, whole);
}

ir_value weight_column(weight_lanes *w, ir_value index) {
  ir *b = w->b;
  ir_value zero = ir_float(b, b->f32, 0), sum;
  ir_value begin = weight_table_i32(w, "column_starts", index),
           end = weight_table_i32(w, "column_starts", add(b, index, i32(b, 1)));
  ir_loop loop = ir_for_with(b, wide(b, begin), wide(b, end), 1, &zero, &sum);
  ir_value at = narrow(b, loop.index), gain = ir_load(b, b->f32, array_at(w, GAINS, scaled(b, at, 4)), 4);
  ir_value next = ir_fma(b, weight_of_gain(w, at), gain, sum);
  ir_end_for_with(b, loop, 1, &next, &sum);
  return sum;
}
