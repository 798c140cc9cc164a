/* cpu/exponential_lanes_adjoint: a small matrix in each lane; see cpu/exponential.h.
 *
 * For skew matrices only what is above the diagonal is stored and read.
 */
#include "cpu/exponential.h"

#include "algebra/exponential.h"
#include "algebra/torque_dense.h"
#include "cpu/exponential_lanes.h"
#include "cpu/product.h"
#include "mlir/arith.h"
#include "mlir/exp2.h"

#include <stdio.h>

enum { TERM = LANES_X, OTHER = LANES_X2, GAINED = LANES_X4, PRODUCT = LANES_C, WHOLE = LANES_P };

typedef struct adjoint {
  lane_exponential e;
  char bracket[96], conjugate[96];
} adjoint;

static ir_value negated(const lane_matrices *m, ir_value x) { return ir_op1(m->b, "arith.negf", x); }

/* Entry of a skew matrix off the diagonal. */
static ir_value skew_entry(const lane_matrices *m, ir_value matrix, int i, int j) {
  return i < j ? lane_load(m, matrix, i, j) : negated(m, lane_load(m, matrix, j, i));
}

/* bracket(next, m, last, gained, factors): next = factors[0] (m last - last m) + factors[1] next,
 * gained += factors[2] next. */
static void emit_bracket(const lane_matrices *m, const char *name) {
  enum { NEXT, M, LAST, SUM, FACTORS, COUNT };
  ir *b = m->b;
  ir_value a[COUNT], factor[3], sum[LANES_MOST];
  ir_open(b, name, "ppppp", a);
  for (int i = 0; i < 3; i++) factor[i] = lane_load(m, a[FACTORS], 0, i);
  for (int i = 0; i < m->size; i++) {
    for (int j = i + 1; j < m->size; j++) {
      ir_value plus = {NULL}, minus = {NULL};
      for (int k = 0; k < m->size; k++) {
        if (k != i && k != j) {
          ir_value left = skew_entry(m, a[M], i, k), right = skew_entry(m, a[LAST], k, j);
          plus = emit_multiply_add(m->b, m->target, left, right, plus);
          left = skew_entry(m, a[LAST], i, k), right = skew_entry(m, a[M], k, j);
          minus = emit_multiply_add(m->b, m->target, left, right, minus);
        }
      }
      sum[j] = plus.ptr ? sub(b, plus, minus) : lane_number(m, 0);
    }
    for (int j = i + 1; j < m->size; j++) {
      ir_value kept = mul(b, factor[1], lane_load(m, a[NEXT], i, j));
      ir_value next = emit_multiply_add(b, m->target, factor[0], sum[j], kept);
      lane_store(m, next, a[NEXT], i, j);
      ir_value gained = lane_load(m, a[SUM], i, j);
      lane_store(m, emit_multiply_add(b, m->target, factor[2], next, gained), a[SUM], i, j);
    }
  }
  ir_return(b);
}

/* conjugate(term, product, e, half): term += half (product e^T - term), a number of each lane. */
static void emit_conjugate(const lane_matrices *m, const char *name) {
  enum { OUT, PRODUCT_OF, E, HALF, COUNT };
  ir *b = m->b;
  ir_value a[COUNT], row[LANES_MOST];
  ir_open(b, name, "pppp", a);
  ir_value half = lane_load(m, a[HALF], 0, 0);
  for (int i = 0; i < m->size; i++) {
    for (int k = 0; k < m->size; k++) row[k] = lane_load(m, a[PRODUCT_OF], i, k);
    for (int j = i + 1; j < m->size; j++) {
      ir_value sum = {NULL};
      for (int k = 0; k < m->size; k++) sum = emit_multiply_add(m->b, m->target, row[k], lane_load(m, a[E], j, k), sum);
      ir_value term = lane_load(m, a[OUT], i, j);
      lane_store(m, emit_multiply_add(b, m->target, half, sub(b, sum, term), term), a[OUT], i, j);
    }
  }
  ir_return(b);
}

/* ---- steps ---- */

static void begin_terms(adjoint *a, ir_value outer) {
  const lane_matrices *m = &a->e.m;
  for (int i = 0; i < m->size; i++)
    for (int j = i + 1; j < m->size; j++) {
      ir_value above = lane_load(m, outer, i, j), below = lane_load(m, outer, j, i);
      lane_store(m, sub(m->b, above, below), a->e.buffer[TERM], i, j);
      lane_store(m, lane_number(m, 0), a->e.buffer[OTHER], i, j);
    }
}

/* Both halves of a term, for a product of whole matrices. */
static void make_whole(adjoint *a) {
  const lane_matrices *m = &a->e.m;
  for (int i = 0; i < m->size; i++)
    for (int j = i; j < m->size; j++) {
      ir_value x = i == j ? lane_number(m, 0) : lane_load(m, a->e.buffer[TERM], i, j);
      lane_store(m, x, a->e.buffer[WHOLE], i, j);
      if (i != j) lane_store(m, negated(m, x), a->e.buffer[WHOLE], j, i);
    }
}

static void undo_halvings(adjoint *a, ir_value count) {
  lane_exponential *e = &a->e;
  const lane_matrices *m = &e->m;
  ir *b = m->b;
  ir_loop loop = ir_for(b, i64(b, 0), lane_most(m, count));
  ir_value wanted = lane_wants(m, count, loop.index);
  lane_store(m, ir_select(b, wanted, lane_number(m, 0.5), lane_number(m, 0)), e->factors, 0, 0);
  make_whole(a);
  lane_product(e, e->general, PRODUCT, LANES_T, WHOLE);
  ir_value arguments[] = {e->buffer[TERM], e->buffer[PRODUCT], e->buffer[LANES_T], e->factors};
  ir_call(b, a->conjugate, 4, arguments);
  lane_product(e, e->general, LANES_R, LANES_T, LANES_T);
  ir_loop rows = ir_for(b, i64(b, 0), i64(b, m->size));
  ir_value row = mul(b, rows.index, i64(b, m->size * m->bytes));
  ir_value from = ir_offset(b, e->buffer[LANES_R], row), to = ir_offset(b, e->buffer[LANES_T], row);
  for (int j = 0; j < m->size; j++) lane_store(m, lane_load(m, from, 0, j), to, 0, j);
  ir_end_for(b, rows);
  ir_end_for(b, loop);
}

static void add_commutators(adjoint *a, ir_value scale) {
  lane_exponential *e = &a->e;
  const lane_matrices *m = &e->m;
  ir *b = m->b;
  double coefficient[TORQUE_MOST_TERMS], reach = 2 * (m->is_f64 ? EXPONENTIAL_REACH_F64 : EXPONENTIAL_REACH_F32);
  int count = torque_series(reach, m->is_f64, coefficient);
  for (int i = 0; i < m->size; i++)
    for (int j = i + 1; j < m->size; j++) {
      ir_value first = mul(b, lane_number(m, coefficient[0]), lane_load(m, e->buffer[TERM], i, j));
      lane_store(m, first, e->buffer[GAINED], i, j);
    }
  ir_value factor = emit_exp2_integer(b, scale, m->is_f64);
  for (int k = 1; k < count; k++) {
    lane_store(m, mul(b, factor, lane_number(m, (k == 1 ? 1 : 2) / reach)), e->factors, 0, 0);
    lane_store(m, lane_number(m, k > 1), e->factors, 0, 1);
    lane_store(m, lane_number(m, coefficient[k]), e->factors, 0, 2);
    ir_value arguments[] = {e->buffer[k % 2 ? OTHER : TERM], e->buffer[LANES_M], e->buffer[k % 2 ? TERM : OTHER],
                            e->buffer[GAINED], e->factors};
    ir_call(b, a->bracket, 5, arguments);
  }
}

static ir_value widened(const lane_matrices *m, ir_value x) {
  return m->is_f64 ? x : ir_cast(m->b, "arith.extf", x, m->b->f64);
}

static void write_gains(adjoint *a, ir_value generators, ir_value gains, int n_axes, int64_t angle_step) {
  const lane_matrices *m = &a->e.m;
  int pairs = m->size * (m->size - 1) / 2;
  for (int axis = 0; axis < n_axes; axis++) {
    ir_value sum = {NULL};
    for (int i = 0, pair = 0; i < m->size; i++)
      for (int j = i + 1; j < m->size; j++, pair++) {
        ir_value generator = lane_load(m, generators, 0, axis * pairs + pair);
        sum = emit_multiply_add(m->b, m->target, generator, lane_load(m, a->e.buffer[GAINED], i, j), sum);
      }
    ir_store(m->b, widened(m, negated(m, sum)), ir_offset_const(m->b, gains, axis * angle_step), 8, false);
  }
}

static void add_to_sums(adjoint *a, ir_value angles, ir_value sums, int n_axes, int64_t angle_step) {
  const lane_matrices *m = &a->e.m;
  ir *b = m->b;
  int pairs = m->size * (m->size - 1) / 2;
  MlirType wide = ir_vector(b, m->lanes, b->f64);
  for (int axis = 0; axis < n_axes; axis++) {
    ir_value angle = ir_load(b, wide, ir_offset_const(b, angles, axis * angle_step), 8);
    for (int i = 0, pair = 0; i < m->size; i++)
      for (int j = i + 1; j < m->size; j++, pair++) {
        ir_value at = ir_offset_const(b, sums, (int64_t)(axis * pairs + pair) * m->lanes * 8);
        ir_value gained = widened(m, lane_load(m, a->e.buffer[GAINED], i, j));
        ir_store(b, emit_multiply_add(b, m->target, angle, gained, ir_load(b, wide, at, 8)), at, 8, false);
      }
  }
}

/* ---- the functions ---- */

static adjoint open_adjoint(ir *b, const cpu_target *target, bool is_f64, int size, int lanes, const char *name,
                            const char *word, const char *types, ir_value *arguments) {
  char function[96];
  adjoint a = {.e = lane_begin(b, target, is_f64, size, lanes, name)};
  snprintf(function, sizeof function, "%s_%s", name, word);
  snprintf(a.bracket, sizeof a.bracket, "%s_bracket", name);
  snprintf(a.conjugate, sizeof a.conjugate, "%s_conjugate", name);
  if (types) ir_open(b, function, types, arguments);
  return a;
}

void emit_exponential_lanes_adjoint(ir *b, const cpu_target *target, bool is_f64, int size, int lanes, const char *name,
                                    int n_axes, int64_t angle_step, double amplitude) {
  enum { GENERATORS, ANGLES, OUTER, GAINS, SUMS, COUNT };
  ir_value arguments[COUNT], scale;
  adjoint a = open_adjoint(b, target, is_f64, size, lanes, name, "", NULL, NULL);
  emit_bracket(&a.e.m, a.bracket);
  emit_conjugate(&a.e.m, a.conjugate);

  a = open_adjoint(b, target, is_f64, size, lanes, name, "turn", "ppp", arguments);
  ir_value count = lane_open(&a.e, arguments, n_axes, angle_step, &scale);
  lane_series(&a.e, scale);
  lane_square(&a.e, count);
  ir_value product[] = {a.e.buffer[LANES_R], arguments[OUTER], a.e.buffer[LANES_T]};
  ir_call(b, a.e.general, 3, product);
  for (int i = 0; i < size * size; i++) {
    ir_value x = mul(b, lane_number(&a.e.m, amplitude), lane_load(&a.e.m, a.e.buffer[LANES_R], 0, i));
    lane_store(&a.e.m, x, arguments[OUTER], 0, i);
  }
  ir_return(b);

  a = open_adjoint(b, target, is_f64, size, lanes, name, "adjoint", "ppppp", arguments);
  count = lane_open(&a.e, arguments, n_axes, angle_step, &scale);
  ir_branch squares = ir_if(b, ir_compare_int(b, "sgt", lane_most(&a.e.m, count), i64(b, 0)));
  lane_series(&a.e, scale);
  ir_end_if(b, squares);
  begin_terms(&a, arguments[OUTER]);
  undo_halvings(&a, count);
  add_commutators(&a, scale);
  write_gains(&a, arguments[GENERATORS], arguments[GAINS], n_axes, angle_step);
  ir_branch wanted = ir_if(b, ir_compare_int(b, "ne", ir_address(b, arguments[SUMS]), i64(b, 0)));
  add_to_sums(&a, arguments[ANGLES], arguments[SUMS], n_axes, angle_step);
  ir_end_if(b, wanted);
  ir_return(b);
}
