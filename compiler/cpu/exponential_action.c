/* cpu/exponential_action: rows times exp(M) without exp(M), for matrices that serve few rows.
 *
 * M is skew: its eigenvalues are i times real numbers of at most rho, so Chebyshev's series converges as Bessel
 * functions fall:
 *     exp(M) x = sum over k of c_k w_k, w_0 = x, w_1 = N w_0, w_k+1 = 2 N w_k + w_k-1, N = M / rho, c_k = (k ? 2 : 1)
 *     J_k(rho)
 * with about rho terms and a few dozen more: b^2 multiply-adds each where forming takes b^3 a product, and no term is
 * larger than x. (Y. Saad, "Analysis of some Krylov subspace approximations to the matrix exponential"; H. Tal-Ezer and
 * R. Kosloff, 1984, for the series.)
 */
#include "cpu/apply_rows.h"

#include "cpu/product.h"
#include "mlir/arith.h"

#include "kernel/dense.h"

#include <stddef.h>

/* Rows of float32 in scratch memory: two terms of the series and the sum. */
enum { FIRST, SECOND, SUM, BUFFERS };

typedef struct action {
  applier *e;
  int rows;
  ir_value sum;         /* [rows][size] */
  ir_value coefficient; /* of the term at hand */
  ir_value scale;       /* of what it adds: a half for the first */
} action;

static ir_value row_of(const action *a, ir_value buffer, int row) {
  return ir_offset_const(a->e->b, buffer, (int64_t)row * a->e->size * 4);
}

static ir_value piece_of(const action *a, ir_value buffer, int row, int piece) {
  return ir_offset_const(a->e->b, row_of(a, buffer, row), (int64_t)a->e->shape.start[piece] * 4);
}

static ir_value load(const action *a, ir_value buffer, int row, int piece) {
  ir *b = a->e->b;
  return ir_load(b, ir_vector(b, a->e->shape.width[piece], b->f32), piece_of(a, buffer, row, piece), 4);
}

static void store(const action *a, ir_value v, ir_value buffer, int row, int piece) {
  ir_store(a->e->b, v, piece_of(a, buffer, row, piece), 4, false);
}

static ir_value times(const action *a, ir_value v, ir_value scalar) {
  return mul(a->e->b, v, ir_broadcast(a->e->b, ir_type(v), scalar));
}

/* to = scale 2 N from + to; the sum gets its part. */
static void emit_term(action *a, ir_value from, ir_value to) {
  applier *e = a->e;
  ir *b = e->b;
  int all = e->shape.n_pieces, step = apply_vectors_of(e->target, &e->shape, a->rows);
  ir_value x[APPLY_LISTED], sums[APPLY_LISTED * APPLY_VECTORS];
  for (int i = 0; i < a->rows; i++) x[i] = row_of(a, from, i);
  for (int start = 0; start < all; start += step) {
    int count = all - start < step ? all - start : step;
    for (int i = 0; i < a->rows * count; i++)
      sums[i] = ir_float(b, ir_vector(b, e->shape.width[start + i % count], b->f32), 0);
    emit_column_sums(e, x, a->rows, start, count, sums);
    for (int i = 0; i < a->rows * count; i++) {
      int row = i / count, piece = start + i % count;
      ir_value scale = ir_broadcast(b, ir_type(sums[i]), a->scale);
      ir_value term = emit_multiply_add(b, e->target, scale, sums[i], load(a, to, row, piece));
      store(a, term, to, row, piece);
      ir_value coefficient = ir_broadcast(b, ir_type(term), a->coefficient);
      store(a, emit_multiply_add(b, e->target, coefficient, term, load(a, a->sum, row, piece)), a->sum, row, piece);
    }
  }
}

static ir_value coefficient_at(applier *e, ir_value coefficients, ir_value k) {
  ir *b = e->b;
  return ir_load(b, b->f32, ir_offset(b, coefficients, mul(b, k, i64(b, 4))), 4);
}

static ir_value work_field(applier *e, size_t offset, MlirType type) {
  return ir_load(e->b, type, ir_offset_const(e->b, e->work, (int64_t)offset), 8);
}

void emit_action_rows(applier *e, const ir_value *in, const ir_value *out, int rows) {
  ir *b = e->b;
  ir_value buffer[BUFFERS], coefficients = work_field(e, offsetof(pegen_apply, coefficients), b->ptr);
  for (int i = 0; i < BUFFERS; i++)
    buffer[i] = ir_offset_const(b, e->action_scratch, (int64_t)i * APPLY_LISTED * e->size * 4);
  action a = {.e = e, .rows = rows, .sum = buffer[SUM]};
  ir_value x[APPLY_LISTED];
  ir_value zero = i64(b, 0), one = i64(b, 1);
  a.coefficient = coefficient_at(e, coefficients, zero);
  for (int i = 0; i < rows; i++) {
    x[i] = emit_fetch(e, 0, in[i], i);
    for (int p = 0; p < e->shape.n_pieces; p++) {
      ir_value v = load(&a, x[i], 0, p);
      store(&a, v, buffer[FIRST], i, p);
      store(&a, ir_float(b, ir_type(v), 0), buffer[SECOND], i, p);
      store(&a, times(&a, v, a.coefficient), a.sum, i, p);
    }
  }
  ir_value pair[2] = {buffer[SECOND], buffer[FIRST]}, current[2];
  ir_loop loop = ir_for_with(b, one, work_field(e, offsetof(pegen_apply, terms), b->i64), 2, pair, current);
  a.coefficient = coefficient_at(e, coefficients, loop.index);
  a.scale = ir_select(b, ir_compare_int(b, "eq", loop.index, one), ir_float(b, b->f32, 0.5), ir_float(b, b->f32, 1));
  emit_term(&a, current[1], current[0]);
  ir_value swapped[2] = {current[1], current[0]};
  ir_end_for_with(b, loop, 2, swapped, pair);
  double amplitude = e->of->factor;
  for (int i = 0; i < rows; i++)
    for (int p = 0; p < e->shape.n_pieces; p++) {
      ir_value y = add(b, load(&a, x[i], 0, p), load(&a, a.sum, i, p));
      emit_put(e, 0, amplitude != 1 ? times(&a, y, ir_float(b, b->f32, amplitude)) : y, out[i], p);
    }
}
