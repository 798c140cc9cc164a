/* Blade signs against sorting by hand, and compounds against determinants.
 *
 * A compound matrix is what a versor does to a grade: its entries are minors of the action on
 * vectors. Where the compiler takes the complementary minor instead, the action must
 * be of the identity component, so the matrices here are products of turns: circular,
 * hyperbolic and, in degenerate metrics, parabolic.
 */
#include "algebra/clifford.h"
#include "base/number.h"
#include "scoped.h"
#include "test.h"

#include <math.h>

/* Adjacent exchanges that sort the factors of a then b, counted one by one. */
static int sign_by_sorting(unsigned a, unsigned b) {
  int list[2 * SPEC_MAX_DIMENSIONS], count = 0, sign = 1;
  for (int i = 0; i < SPEC_MAX_DIMENSIONS; i++)
    if (a & 1u << i) list[count++] = i;
  for (int i = 0; i < SPEC_MAX_DIMENSIONS; i++)
    if (b & 1u << i) list[count++] = i;
  for (int end = count; end > 1; end--)
    for (int i = 0; i + 1 < end; i++)
      if (list[i] > list[i + 1]) {
        int kept = list[i];
        list[i] = list[i + 1];
        list[i + 1] = kept;
        sign = -sign;
      }
  return sign;
}

TEST(reorder_signs) {
  for (unsigned a = 0; a < SPEC_MAX_BLADES; a++)
    for (unsigned b = 0; b < SPEC_MAX_BLADES; b++) assert_int_equal(clifford_reorder_sign(a, b), sign_by_sorting(a, b));
}

TEST(squares_and_grades) {
  spec_algebra g = {2, 1, 2};
  static const int squares[] = {1, 1, -1, 0, 0};
  for (int i = 0; i < 5; i++) assert_int_equal(clifford_square(g, i), squares[i]);
  assert_int_equal(clifford_dimensions(g), 5);
  assert_int_equal(clifford_grade(0), 0);
  assert_int_equal(clifford_grade(0x15), 3);
}

/* ---- compounds ---- */

typedef long double square_matrix[SPEC_MAX_DIMENSIONS][SPEC_MAX_DIMENSIONS];

/* v times exp of a basis plane's action: e_i -> c e_i - s_i s e_j, e_j -> s_j s e_i + c e_j. */
static void turn(square_matrix v, spec_algebra g, int i, int j, long double angle) {
  int n = clifford_dimensions(g), si = clifford_square(g, i), sj = clifford_square(g, j), kind = si * sj;
  long double c = kind > 0 ? cosl(angle) : kind < 0 ? coshl(angle) : 1;
  long double s = kind > 0 ? sinl(angle) : kind < 0 ? sinhl(angle) : angle;
  for (int row = 0; row < n; row++) {
    long double x = v[row][i], y = v[row][j];
    v[row][i] = c * x - si * s * y;
    v[row][j] = sj * s * x + c * y;
  }
}

static void random_action(square_matrix v, spec_algebra g, uint64_t *random) {
  int n = clifford_dimensions(g);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) v[i][j] = i == j;
  for (int round = 0; round < 2; round++)
    for (int i = 0; i < n; i++)
      for (int j = i + 1; j < n; j++) turn(v, g, i, j, random_uniform(random, -1, 1));
}

/* Gauss, with the largest pivot. */
static long double determinant(square_matrix v, unsigned rows, unsigned columns) {
  square_matrix m;
  int n = 0;
  long double product = 1;
  for (int i = 0; i < SPEC_MAX_DIMENSIONS; i++) {
    if (!(rows & 1u << i)) continue;
    for (int j = 0, at = 0; j < SPEC_MAX_DIMENSIONS; j++)
      if (columns & 1u << j) m[n][at++] = v[i][j];
    n++;
  }
  for (int k = 0; k < n; k++) {
    int pivot = k;
    for (int i = k + 1; i < n; i++)
      if (fabsl(m[i][k]) > fabsl(m[pivot][k])) pivot = i;
    if (m[pivot][k] == 0) return 0;
    for (int j = 0; j < n && pivot != k; j++) {
      long double kept = m[k][j];
      m[k][j] = m[pivot][j];
      m[pivot][j] = kept;
    }
    product *= pivot == k ? m[k][k] : -m[k][k];
    for (int i = k + 1; i < n; i++)
      for (int j = n - 1; j >= k; j--) m[i][j] -= m[k][j] * m[i][k] / m[k][k];
  }
  return product;
}

TEST(compounds_are_determinants) {
  uint64_t random = 5;
  int algebras = 0;
  for (int p = 0; p <= SPEC_MAX_DIMENSIONS; p++)
    for (int q = 0; p + q <= SPEC_MAX_DIMENSIONS; q++)
      for (int r = 0; p + q + r <= SPEC_MAX_DIMENSIONS; r++) {
        spec_algebra g = {p, q, r};
        int n = p + q + r;
        square_matrix v;
        if (n == 0) continue;
        algebras++;
        random_action(v, g, &random);
        SCOPED arena *memory = arena_create();
        expr_pool *pool = expr_pool_create(memory, 1);
        expr_matrix m = {n, arena_array(memory, const expr *, n *n)};
        double entries[SPEC_MAX_DIMENSIONS * SPEC_MAX_DIMENSIONS];
        long double scale = 1;
        /* As channels, not constants: nothing folds. */
        for (int i = 0; i < n * n; i++) {
          entries[i] = (double)v[i / n][i % n];
          v[i / n][i % n] = entries[i];
          m.entry[i] = expr_channel(pool, i);
          scale = fmaxl(scale, fabsl(v[i / n][i % n]));
        }
        expr_environment env = {.blocks = 1, .channels = entries};
        for (unsigned row = 0; row < 1u << n; row++)
          for (unsigned column = 0; column < 1u << n; column++) {
            if (clifford_grade(row) != clifford_grade(column)) continue;
            long double got = expr_eval_long(clifford_compound(pool, g, m, row, column), &env),
                        expected = determinant(v, row, column);
            if (!(fabsl(got - expected) <= 1e-12L * powl(scale, n)))
              print_error("Cl(%d,%d,%d) %u %u: %Lg, expected %Lg\n", p, q, r, row, column, got, expected);
            assert_true(fabsl(got - expected) <= 1e-12L * powl(scale, n));
          }
      }
  assert_int_equal(algebras, 55);
}

/* The point of the complement: bivectors of three dimensions turn by entries of the vectors' own matrix. */
TEST(complements_are_entries) {
  SCOPED arena *memory = arena_create();
  expr_pool *pool = expr_pool_create(memory, 1);
  expr_matrix m = {3, arena_array(memory, const expr *, 9)};
  for (int i = 0; i < 9; i++) m.entry[i] = expr_channel(pool, i);
  spec_algebra euclidean = {3, 0, 0}, degenerate = {2, 0, 1};
  assert_ptr_equal(clifford_compound(pool, euclidean, m, 3, 3), m.entry[8]);      /* e12, e12: the entry of e3 */
  assert_ptr_equal(clifford_compound(pool, euclidean, m, 6, 3), m.entry[2]);      /* e23, e12: of e1 and e3 */
  assert_ptr_equal(clifford_compound(pool, euclidean, m, 5, 3), expr_neg(pool, m.entry[5]));
  assert_true(expr_is_const(clifford_compound(pool, euclidean, m, 7, 7), 1));
  assert_true(expr_is_const(clifford_compound(pool, euclidean, m, 0, 0), 1));
  assert_int_equal(clifford_compound(pool, degenerate, m, 3, 3)->op, EXPR_SUB);   /* no inverse metric: a minor */
}

TEST(products_of_matrices) {
  SCOPED arena *memory = arena_create();
  expr_pool *pool = expr_pool_create(memory, 1);
  expr_matrix m = {2, arena_array(memory, const expr *, 4)}, one = expr_matrix_identity(memory, pool, 2);
  for (int i = 0; i < 4; i++) m.entry[i] = expr_channel(pool, i);
  expr_matrix left = expr_matrix_product(memory, pool, one, m), square = expr_matrix_product(memory, pool, m, m);
  static const double in[] = {1, 2, 3, 4}, out[] = {7, 10, 15, 22};
  expr_environment env = {.blocks = 1, .channels = in};
  for (int i = 0; i < 4; i++) {
    assert_ptr_equal(left.entry[i], m.entry[i]);
    assert_true(expr_eval(square.entry[i], &env) == out[i]);
  }
}

int main(void) { return run_listed(); }
