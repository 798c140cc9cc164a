/* cpu/exponential_adjoint: one matrix at a time, in tiles; see cpu/exponential.h. */
#include "cpu/exponential.h"

#include "algebra/torque_dense.h"
#include "cpu/exponential_matrix.h"
#include "mlir/arith.h"

#include <stdio.h>

/* What is done beside the exponential's steps, in buffers that they are done with. */
enum {
  TERM = EXPONENTIAL_X,
  OTHER = EXPONENTIAL_X2,
  PRODUCT = EXPONENTIAL_X3,
  GAINED = EXPONENTIAL_X4,
  TURNED = EXPONENTIAL_C
};

enum { SMALLER = 4 }; /* than the reach of the exponential: a norm that is called small */

typedef struct adjoint {
  exponential e;
  char bracket[96], transpose[96];
  ir_value factors; /* room for those of bracket */
  ir_value sums; /* of what each generator gains */
  ir_value wide[SPEC_MAX_AXES]; /* angles as float64, spread */
  ir_value factor; /* spread, of what goes over a matrix once */
} adjoint;

static ir_value number(const adjoint *a, double value) { return ir_float(a->e.b, a->e.vector, value); }

/* ---- functions that go over tiles of a matrix and their transposes ---- */

typedef void tile_body(const adjoint *a, const ir_value *arguments, ir_value offset, ir_value transposed);

/* NAME(arguments...): the body for each vector of a matrix, and beside it that of the transpose of arguments[1]. */
static void emit_over_tiles(adjoint *a, const char *name, const char *types, tile_body *body) {
  ir *b = a->e.b;
  const matrix_shape *m = a->e.m;
  int64_t row = (int64_t)m->padded * m->bytes, step = (int64_t)m->lanes * m->bytes;
  ir_value arguments[4], rows[64];
  ir_open(b, name, types, arguments);
  ir_loop down = ir_for(b, i64(b, 0), i64(b, m->padded / m->lanes));
  ir_loop right = ir_for(b, i64(b, 0), i64(b, m->padded / m->lanes));
  ir_value below = mul(b, right.index, i64(b, m->lanes * row));
  ir_value mirror = add(b, below, mul(b, down.index, i64(b, step)));
  ir_value beside = mul(b, down.index, i64(b, m->lanes * row));
  ir_value tile = add(b, beside, mul(b, right.index, i64(b, step)));
  for (int i = 0; i < m->lanes; i++)
    rows[i] = exponential_load(&a->e, ir_offset_const(b, arguments[1], i * row), mirror);
  emit_transpose(b, m->lanes, rows);
  for (int i = 0; i < m->lanes; i++) body(a, arguments, add(b, tile, i64(b, i * row)), rows[i]);
  ir_end_for(b, right);
  ir_end_for(b, down);
  ir_return(b);
}

static void transpose_of_tile(const adjoint *a, const ir_value *arguments, ir_value offset, ir_value transposed) {
  exponential_store(&a->e, transposed, arguments[0], offset);
}

/* bracket(term, y, gained, factors): term = factors[0] (y - y^T) + factors[1] term, gained += factors[2] term. */
static void bracket_of_tile(const adjoint *a, const ir_value *arguments, ir_value offset, ir_value transposed) {
  ir *b = a->e.b;
  ir_value factor[3], none = i64(b, 0);
  for (int i = 0; i < 3; i++)
    factor[i] =
        exponential_load(&a->e, ir_offset_const(b, arguments[3], (int64_t)i * a->e.m->lanes * a->e.m->bytes), none);
  ir_value difference = sub(b, exponential_load(&a->e, arguments[1], offset), transposed);
  ir_value kept = mul(b, factor[1], exponential_load(&a->e, arguments[0], offset));
  ir_value term = emit_multiply_add(b, a->e.m->target, factor[0], difference, kept);
  exponential_store(&a->e, term, arguments[0], offset);
  ir_value gained = exponential_load(&a->e, arguments[2], offset);
  exponential_store(&a->e, emit_multiply_add(b, a->e.m->target, factor[2], term, gained), arguments[2], offset);
}

static void bracket(adjoint *a, ir_value term, ir_value y, ir_value factor, double kept, double coefficient) {
  ir *b = a->e.b;
  ir_value factors[] = {factor, number(a, kept), number(a, coefficient)};
  for (int i = 0; i < 3; i++)
    exponential_store(&a->e, factors[i], a->factors, i64(b, (int64_t)i * a->e.m->lanes * a->e.m->bytes));
  ir_value arguments[] = {term, y, a->e.buffer[GAINED], a->factors};
  ir_call(b, a->bracket, 4, arguments);
}

/* ---- what goes over a matrix once ---- */

static void clear(void *context, ir_value offset, ir_value *carried) {
  adjoint *a = context;
  (void)carried;
  static const int buffers[] = {TERM, OTHER, GAINED};
  for (int i = 0; i < 3; i++) exponential_store(&a->e, number(a, 0), a->e.buffer[buffers[i]], offset);
}

/* gained = factor term */
static void begin_sum(void *context, ir_value offset, ir_value *carried) {
  adjoint *a = context;
  (void)carried;
  exponential_store(&a->e, mul(a->e.b, a->factor, exponential_load(&a->e, a->e.buffer[TERM], offset)),
                    a->e.buffer[GAINED], offset);
}

/* term = 1/2 (term - product) */
static void halve(void *context, ir_value offset, ir_value *carried) {
  adjoint *a = context;
  (void)carried;
  ir_value difference = sub(a->e.b, exponential_load(&a->e, a->e.buffer[TERM], offset),
                            exponential_load(&a->e, a->e.buffer[PRODUCT], offset));
  exponential_store(&a->e, mul(a->e.b, number(a, 0.5), difference), a->e.buffer[TERM], offset);
}

static void multiply_generators(void *context, ir_value offset, ir_value *carried) {
  adjoint *a = context;
  ir *b = a->e.b;
  ir_value gained = exponential_load(&a->e, a->e.buffer[GAINED], offset);
  for (int axis = 0; axis < a->e.n_axes; axis++) {
    ir_value generator =
        exponential_load(&a->e, ir_offset_const(b, a->e.generators, axis * matrix_bytes(a->e.m)), offset);
    carried[axis] = emit_multiply_add(b, a->e.m->target, generator, gained, carried[axis]);
  }
}

static void add_to_sums(void *context, ir_value offset, ir_value *carried) {
  adjoint *a = context;
  ir *b = a->e.b;
  (void)carried;
  MlirType wide = ir_vector(b, a->e.m->lanes, b->f64);
  ir_value gained = exponential_load(&a->e, a->e.buffer[GAINED], offset);
  ir_value at = mul(b, offset, i64(b, 8 / a->e.m->bytes));
  if (a->e.m->bytes != 8) gained = ir_cast(b, "arith.extf", gained, b->f64);
  for (int axis = 0; axis < a->e.n_axes; axis++) {
    int64_t of_axis = axis * matrix_bytes(a->e.m) / a->e.m->bytes * 8;
    ir_value place = ir_offset(b, ir_offset_const(b, a->sums, of_axis), at), sum = ir_load(b, wide, place, 8);
    ir_store(b, emit_multiply_add(b, a->e.m->target, a->wide[axis], gained, sum), place, 8, false);
  }
}

/* ---- the function ---- */

/* term = 1/2 (term + E term E^T), and E is squared where a step more comes. */
static void undo_halvings(adjoint *a, ir_value count) {
  exponential *e = &a->e;
  ir *b = e->b;
  ir_value pair[2] = {e->buffer[EXPONENTIAL_T], e->buffer[EXPONENTIAL_P]}, current[2];
  ir_loop loop = ir_for_with(b, i64(b, 0), count, 2, pair, current);
  exponential_call(e, e->full, e->buffer[PRODUCT], current[0], e->buffer[TERM]);
  ir_value turned[] = {e->buffer[TURNED], e->buffer[PRODUCT]}; /* -term E^T */
  ir_call(b, a->transpose, 2, turned);
  exponential_call(e, e->full, e->buffer[PRODUCT], current[0], e->buffer[TURNED]);
  emit_each_vector(b, e->m, false, 0, NULL, halve, a);
  ir_branch more = ir_if(b, ir_compare_int(b, "slt", add(b, loop.index, i64(b, 1)), count));
  exponential_call(e, e->full, current[1], current[0], current[0]);
  ir_end_if(b, more);
  ir_value swapped[2] = {current[1], current[0]};
  ir_end_for_with(b, loop, 2, swapped, pair);
}

/* Chebyshev's series up to a reach: term_k+1 = (2/rho) ad term_k + term_k-1. */
static void add_series(adjoint *a, ir_value scale, double reach) {
  exponential *e = &a->e;
  ir *b = e->b;
  double coefficient[TORQUE_MOST_TERMS];
  int count = torque_series(reach, e->m->bytes == 8, coefficient);
  a->factor = number(a, coefficient[0]);
  emit_each_vector(b, e->m, false, 0, NULL, begin_sum, a);
  ir_value factor = ir_broadcast(b, e->vector, exponential_power_of_two(e, scale));
  for (int k = 1; k < count; k++) {
    ir_value last = e->buffer[k % 2 ? TERM : OTHER], next = e->buffer[k % 2 ? OTHER : TERM];
    exponential_call(e, e->full, e->buffer[PRODUCT], e->buffer[EXPONENTIAL_M], last);
    bracket(a, next, e->buffer[PRODUCT], mul(b, factor, number(a, (k == 1 ? 1 : 2) / reach)), k > 1, coefficient[k]);
  }
}

/* Where norms are small a series of about half as many terms is enough. */
static void add_commutators(adjoint *a, ir_value scale, ir_value is_small) {
  double reach = 2 * exponential_reach(a->e.m);
  ir_branch branch = ir_if(a->e.b, is_small);
  add_series(a, scale, reach / SMALLER);
  ir_else(a->e.b, &branch);
  add_series(a, scale, reach);
  ir_end_if(a->e.b, branch);
}

static void write_gains(adjoint *a, ir_value gains, int64_t angle_step) {
  exponential *e = &a->e;
  ir *b = e->b;
  ir_value sums[SPEC_MAX_AXES];
  for (int axis = 0; axis < e->n_axes; axis++) sums[axis] = number(a, 0);
  emit_each_vector(b, e->m, false, e->n_axes, sums, multiply_generators, a);
  for (int axis = 0; axis < e->n_axes; axis++) { /* over all entries, where pairs are meant; of -A, where A is */
    ir_value sum = ir_extract(b, sums[axis], 0);
    for (int i = 1; i < e->m->lanes; i++) sum = add(b, sum, ir_extract(b, sums[axis], i));
    if (e->m->bytes != 8) sum = ir_cast(b, "arith.extf", sum, b->f64);
    ir_store(b, mul(b, sum, ir_float(b, b->f64, -0.5)), ir_offset_const(b, gains, axis * angle_step), 8, false);
  }
}

static void set_names(adjoint *a, const char *name) {
  snprintf(a->bracket, sizeof a->bracket, "%s_bracket", name);
  snprintf(a->transpose, sizeof a->transpose, "%s_transposed", name);
}

static adjoint open_adjoint(ir *b, const matrix_shape *m, const char *name, const char *word, int n_axes,
                            int64_t angle_step, const char *types, ir_value *arguments) {
  char function[96];
  adjoint a = {.factors = {NULL}};
  snprintf(function, sizeof function, "%s_%s", name, word);
  set_names(&a, name);
  a.e = exponential_open(b, m, name, function, n_axes, angle_step, types, arguments);
  return a;
}

/* M and its squares; gives how often the exponential is squared, *scale the exponent of what M is yet to be scaled by,
 * *is_small whether the norm is. */
static ir_value begin(adjoint *a, ir_value *scale, ir_value *is_small) {
  exponential *e = &a->e;
  ir_value exponent = exponential_scale(e);
  exponential_symmetric(e, EXPONENTIAL_X, EXPONENTIAL_M, EXPONENTIAL_M);
  exponential_symmetric(e, EXPONENTIAL_X2, EXPONENTIAL_X, EXPONENTIAL_X);
  ir_value count = exponential_squarings(e, exponent, exponential_reach(e->m));
  ir_value more = exponential_squarings(e, exponent, exponential_reach(e->m) / SMALLER);
  *is_small = ir_compare_int(e->b, "eq", more, i64(e->b, 0));
  *scale = sub(e->b, exponent, count);
  return count;
}

static void emit_turn(ir *b, const matrix_shape *m, const char *name, int n_axes, int64_t angle_step,
                      double amplitude) {
  enum { OUTER = 2, COUNT };
  ir_value arguments[COUNT], scale, is_small;
  adjoint a = open_adjoint(b, m, name, "turn", n_axes, angle_step, "ppp", arguments);
  exponential *e = &a.e;
  ir_value count = begin(&a, &scale, &is_small);
  exponential_series(e, scale);
  exponential_call(e, e->full, e->buffer[TERM], arguments[OUTER], exponential_square(e, count));
  e->buffer[GAINED] = arguments[OUTER];
  a.factor = number(&a, amplitude);
  emit_each_vector(b, m, false, 0, NULL, begin_sum, &a);
  ir_return(b);
}

void emit_exponential_adjoint(ir *b, const matrix_shape *m, const char *name, int n_axes, int64_t angle_step,
                              double amplitude) {
  enum { OUTER = 2, GAINS, SUMS, COUNT, CACHE_LINE = 64 };
  ir_value arguments[COUNT], scale, is_small;
  adjoint a = {.e = {.b = b, .m = m, .vector = ir_vector(b, m->lanes, m->element)}};
  set_names(&a, name);
  emit_over_tiles(&a, a.bracket, "pppp", bracket_of_tile);
  emit_over_tiles(&a, a.transpose, "pp", transpose_of_tile);
  emit_turn(b, m, name, n_axes, angle_step, amplitude);

  a = open_adjoint(b, m, name, "adjoint", n_axes, angle_step, "ppppp", arguments);
  exponential *e = &a.e;
  a.factors = ir_alloca(b, (int64_t)3 * m->lanes * m->bytes, CACHE_LINE);
  ir_value count = begin(&a, &scale, &is_small);
  ir_branch squares = ir_if(b, ir_compare_int(b, "sgt", count, i64(b, 0)));
  exponential_series(e, scale);
  ir_end_if(b, squares);
  emit_each_vector(b, m, false, 0, NULL, clear, &a);
  bracket(&a, e->buffer[TERM], arguments[OUTER], number(&a, 1), 0, 0);
  undo_halvings(&a, count);
  add_commutators(&a, scale, is_small);
  write_gains(&a, arguments[GAINS], angle_step);
  a.sums = arguments[SUMS];
  ir_branch wanted = ir_if(b, ir_compare_int(b, "ne", ir_address(b, a.sums), i64(b, 0)));
  for (int axis = 0; axis < n_axes; axis++) {
    ir_value angle = ir_load(b, b->f64, ir_offset_const(b, arguments[1], axis * angle_step), 8);
    a.wide[axis] = ir_broadcast(b, ir_vector(b, m->lanes, b->f64), angle);
  }
  emit_each_vector(b, m, false, 0, NULL, add_to_sums, &a);
  ir_end_if(b, wanted);
  ir_return(b);
}
