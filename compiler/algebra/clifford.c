/* algebra/clifford: blade signs and compound matrices; see algebra/clifford.h. */
#include "algebra/clifford.h"

#include "base/diag.h"

int clifford_square(spec_algebra g, int i) { return i < g.p ? 1 : i < g.p + g.q ? -1 : 0; }

int clifford_reorder_sign(unsigned a, unsigned b) {
  int swaps = 0;
  for (a >>= 1; a; a >>= 1) swaps += clifford_grade(a & b);
  return swaps % 2 ? -1 : 1;
}

expr_matrix expr_matrix_identity(arena *a, expr_pool *pool, int size) {
  expr_matrix m = {size, arena_array(a, const expr *, size *size)};
  for (int i = 0; i < size * size; i++) m.entry[i] = expr_const(pool, i / size == i % size);
  return m;
}

expr_matrix expr_matrix_product(arena *a, expr_pool *pool, expr_matrix x, expr_matrix y) {
  expr_matrix m = {x.size, arena_array(a, const expr *, x.size *x.size)};
  for (int i = 0; i < x.size; i++)
    for (int j = 0; j < x.size; j++) {
      const expr *sum = expr_const(pool, 0);
      for (int k = 0; k < x.size; k++)
        sum = expr_add(pool, sum, expr_mul(pool, x.entry[i * x.size + k], y.entry[k * x.size + j]));
      m.entry[i * x.size + j] = sum;
    }
  return m;
}

expr_matrix clifford_bivector_action(arena *a, expr_pool *pool, spec_algebra g, const spec_bivector *plane) {
  int n = clifford_dimensions(g);
  expr_matrix m = {n, arena_array(a, const expr *, n *n)};
  for (int i = 0; i < n * n; i++) m.entry[i] = expr_const(pool, 0);
  for (int t = 0; t < plane->count; t++) {
    int i = __builtin_ctz(plane->blade[t]), j = 31 - __builtin_clz(plane->blade[t]);
    m.entry[j * n + i] = expr_mul(pool, plane->coefficient[t], expr_const(pool, -clifford_square(g, i)));
    m.entry[i * n + j] = expr_mul(pool, plane->coefficient[t], expr_const(pool, clifford_square(g, j)));
  }
  return m;
}

/* Determinant of v on the given rows and columns (bit masks of equal weight), by Laplace expansion
 * along the lowest row; conjugate: each entry times the squares of its row's and column's vectors. */
static const expr *minor_of(expr_pool *pool, spec_algebra g, expr_matrix v, unsigned rows, unsigned columns,
                            bool conjugate) {
  if (!rows) return expr_const(pool, 1);
  int i = __builtin_ctz(rows), sign = 1;
  const expr *sum = expr_const(pool, 0);
  for (unsigned left = columns; left; left &= left - 1, sign = -sign) {
    int j = __builtin_ctz(left);
    const expr *entry = v.entry[i * v.size + j];
    int factor = sign * (conjugate ? clifford_square(g, i) * clifford_square(g, j) : 1);
    const expr *rest = minor_of(pool, g, v, rows & (rows - 1), columns & ~(1u << j), conjugate);
    const expr *term = expr_mul(pool, entry, rest);
    sum = factor > 0 ? expr_add(pool, sum, term) : expr_sub(pool, sum, term);
  }
  return sum;
}

static int index_sum(unsigned blade) {
  int sum = 0;
  for (; blade; blade &= blade - 1) sum += __builtin_ctz(blade);
  return sum;
}

const expr *clifford_compound(expr_pool *pool, spec_algebra g, expr_matrix v, unsigned row, unsigned column) {
  int n = clifford_dimensions(g), k = clifford_grade(row);
  if (k != clifford_grade(column))
    diag_bug("clifford", "a versor keeps grades, asked for %d to %d", clifford_grade(column), k);
  if (g.r > 0 || 2 * k <= n) return minor_of(pool, g, v, row, column, false);
  /* Jacobi: minor(A,B) of v = (-1)^(A+B) det v minor(A^c,B^c) of v^-T, and v^-T = eta v eta. */
  unsigned all = (1u << n) - 1;
  const expr *dual = minor_of(pool, g, v, all & ~row, all & ~column, true);
  return (index_sum(row) + index_sum(column)) % 2 ? expr_neg(pool, dual) : dual;
}
