/* Real Schur forms and Cayley transforms of skew matrices, as the properties that define them.
 *
 * Residuals are summed in long double, so that what is measured is the result's own error.
 */
#include "skew.h"
#include "test.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { MAX = PEGEN_SCHUR_MAX };
static const long double BOUND = 0x1p-48L;

static uint64_t state = 88172645463325252u;
static double uniform(void) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (double)(int64_t)state * 0x1p-63;
}

/* A = F - F^T of a matrix F. */
static void random_skew(int n, double *a, double size) {
  for (int i = 0; i < n * n; i++) a[i] = size * uniform();
  pegen_skew_make(n, PEGEN_SKEW_DIFFERENCE_RULE, a);
}

static long double entry_of_product_transposed(int n, const double *x, int i, const double *y, int j) {
  long double sum = 0;
  for (int k = 0; k < n; k++) sum += (long double)x[i * n + k] * y[j * n + k];
  return sum;
}

/* Rows orthonormal. */
static long double orthogonality(int n, const double *basis) {
  long double worst = 0;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++)
      worst = fmaxl(worst, fabsl(entry_of_product_transposed(n, basis, i, basis, j) - (i == j)));
  return worst;
}

/* The largest entry of A s0 - lambda s1, A s1 + lambda s0 (and A s of the last row of odd n). */
static long double residual(int n, const double *a, const double *basis, const double *lambda) {
  long double worst = 0;
  for (int j = 0; j < n; j++) {
    bool alone = n % 2 && j == n - 1;
    for (int i = 0; i < n; i++) {
      long double sum = 0;
      for (int k = 0; k < n; k++) sum += (long double)a[i * n + k] * basis[j * n + k];
      if (!alone) sum -= (j % 2 ? -1 : 1) * (long double)lambda[j / 2] * basis[(j ^ 1) * n + i];
      worst = fmaxl(worst, fabsl(sum));
    }
  }
  return worst;
}

static long double size_of(int n, const double *a) {
  long double size = 0;
  for (int i = 0; i < n * n; i++) size = fmaxl(size, fabsl(a[i]));
  return size;
}

static void check_schur(int n, const double *a, const char *what) {
  double copy[MAX * MAX], basis[MAX * MAX], lambda[MAX / 2 + 1];
  memcpy(copy, a, sizeof(double) * (size_t)(n * n));
  pegen_schur(n, copy, basis, lambda);
  long double size = size_of(n, a) * sqrtl(n), error = residual(n, a, basis, lambda);
  for (int k = 0; k < n / 2; k++) assert_true(lambda[k] >= 0 && (k == 0 || lambda[k] <= lambda[k - 1]));
  if (!(orthogonality(n, basis) <= BOUND && error <= BOUND * size))
    print_error("%s, n = %d: orthogonality %Lg, residual %Lg of %Lg\n", what, n, orthogonality(n, basis), error, size);
  assert_true(orthogonality(n, basis) <= BOUND);
  assert_true(error <= BOUND * size);
}

TEST(random_matrices_have_schur_forms) {
  double a[MAX * MAX];
  for (int n = 2; n <= MAX; n++)
    for (int round = 0; round < (n < 16 ? 200 : 5); round++) {
      random_skew(n, a, 1);
      check_schur(n, a, "uniform");
    }
}

TEST(sizes_do_not_matter) {
  static const double sizes[] = {1e-320, 0x1p-1022, 1e-200, 1e-9, 1e9, 1e200, 0x1p1015};
  double a[MAX * MAX];
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int n = 2; n <= 33; n += 5) {
      random_skew(n, a, sizes[i]);
      if (sizes[i] < 1e-300) { /* subnormal numbers have few digits: what is lost is an absolute amount */
        double copy[MAX * MAX], basis[MAX * MAX], lambda[MAX / 2];
        memcpy(copy, a, sizeof copy);
        pegen_schur(n, copy, basis, lambda);
        assert_true(orthogonality(n, basis) <= BOUND);
        assert_true(residual(n, a, basis, lambda) <= 0x1p-1073L + BOUND * size_of(n, a) * n);
      } else {
        check_schur(n, a, "scaled");
      }
    }
}

/* Entries of very different sizes within one matrix. */
TEST(graded_matrices_have_schur_forms) {
  double a[MAX * MAX];
  for (int n = 2; n <= MAX; n += 7)
    for (int round = 0; round < 20; round++) {
      for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) a[i * n + j] = ldexp(uniform(), -(round * 3) * (round % 2 ? i + j : 2 * n - i - j));
      pegen_skew_make(n, PEGEN_SKEW_UPPER_RULE, a);
      check_schur(n, a, "graded");
    }
}

/* A = S (+ lambda J) S^T with eigenvalues given, repeated or zero, S the product of random reflections. */
static void make_with_values(int n, const double *values, double *a) {
  for (int i = 0; i < n * n; i++) a[i] = 0;
  for (int k = 0; k < n / 2; k++) a[2 * k * n + 2 * k + 1] = -values[k], a[(2 * k + 1) * n + 2 * k] = values[k];
  for (int round = 0; round < 3; round++) {
    double v[MAX], square = 0, p[MAX];
    for (int i = 0; i < n; i++) v[i] = uniform(), square += v[i] * v[i];
    for (int i = 0; i < n; i++) {
      p[i] = 0;
      for (int j = 0; j < n; j++) p[i] += 2 / square * a[i * n + j] * v[j];
    }
    for (int i = 0; i < n; i++)
      for (int j = 0; j < n; j++) a[i * n + j] += v[i] * p[j] - p[i] * v[j];
  }
  pegen_skew_make(n, PEGEN_SKEW_UPPER_RULE, a); /* skew to the bit */
}

TEST(degenerate_values_are_found) {
  double a[MAX * MAX], copy[MAX * MAX], basis[MAX * MAX], values[MAX / 2], lambda[MAX / 2];
  for (int n = 2; n <= MAX; n += 3)
    for (int kind = 0; kind < 6; kind++) {
      int m = n / 2;
      for (int k = 0; k < m; k++)
        values[k] = kind == 0   ? 1                                   /* all alike */
                    : kind == 1 ? (k < m / 2)                         /* alike and zero */
                    : kind == 2 ? 1 + (k / 3)                         /* threefold */
                    : kind == 3 ? 0                                   /* nothing */
                    : kind == 4 ? ldexp(1, -4 * k)                    /* down to 2^-128 */
                                : 1 + ldexp(1, -50) * k;              /* nearly alike */
      make_with_values(n, values, a);
      check_schur(n, a, "degenerate");
      memcpy(copy, a, sizeof copy);
      pegen_schur(n, copy, basis, lambda);
      for (int k = 0; k < m; k++) { /* values ascend in kinds 2 and 5 */
        double expected = kind == 2 || kind == 5 ? values[m - 1 - k] : values[k];
        assert_true(fabs(lambda[k] - expected) <= 0x1p-46 * (1 + values[kind == 2 ? m - 1 : 0]));
      }
    }
}

/* Matrices of a few entries, which are tridiagonal or split from the start. */
TEST(sparse_matrices_have_schur_forms) {
  double a[MAX * MAX];
  for (int n = 2; n <= 24; n++)
    for (int round = 0; round < 200; round++) {
      for (int i = 0; i < n * n; i++) {
        double chance = uniform();
        a[i] = chance > 0.8 ? (round % 2 ? 1 : uniform()) : 0;
      }
      pegen_skew_make(n, PEGEN_SKEW_UPPER_RULE, a);
      check_schur(n, a, "sparse");
    }
}

TEST(what_is_not_finite_spoils_all) {
  static const double bad[] = {NAN, INFINITY, -INFINITY};
  double a[MAX * MAX], basis[MAX * MAX], lambda[MAX / 2];
  for (int i = 0; i < 3; i++) {
    random_skew(7, a, 1);
    a[3 * 7 + 5] = bad[i];
    pegen_schur(7, a, basis, lambda);
    for (int k = 0; k < 49; k++) assert_true(isnan(basis[k]));
    for (int k = 0; k < 3; k++) assert_true(isnan(lambda[k]));
    random_skew(7, a, 1);
    a[2] = bad[i];
    pegen_cayley(7, a, basis);
    for (int k = 0; k < 49; k++) assert_true(isnan(basis[k]));
  }
}

/* (I + A) X = I - A, and X orthogonal. Its error is relative to what I + A magnifies. */
TEST(cayley_transforms_are_rotations) {
  double *a = malloc(sizeof(double) * 128 * 128), *copy = malloc(sizeof(double) * 128 * 128),
         *x = malloc(sizeof(double) * 128 * 128);
  assert_true(a && copy && x);
  static const int sizes[] = {1, 2, 3, 8, 31, 64, 128};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (double scale = 1e-12; scale < 1e7; scale *= 1e3) {
      int n = sizes[i];
      random_skew(n, a, scale);
      memcpy(copy, a, sizeof(double) * (size_t)(n * n));
      pegen_cayley(n, copy, x);
      long double bound = 0x1p-46L * (1 + scale * n);
      assert_true(orthogonality(n, x) <= bound);
      for (int r = 0; r < n; r++)
        for (int c = 0; c < n; c++) {
          long double sum = x[r * n + c] - (r == c) + (long double)a[r * n + c];
          for (int k = 0; k < n; k++) sum += (long double)a[r * n + k] * x[k * n + c];
          assert_true(fabsl(sum) <= bound);
        }
    }
  free(a), free(copy), free(x);
}

TEST(rules_make_skew_matrices) {
  double upper[9] = {9, 1, 2, NAN, NAN, 3, NAN, INFINITY, 8}, difference[9] = {9, 1, 2, 4, 8, 3, 5, 6, 7};
  const double from_upper[9] = {0, 1, 2, -1, 0, 3, -2, -3, 0}, from_difference[9] = {0, -3, -3, 3, 0, -3, 3, 3, 0};
  pegen_skew_make(3, PEGEN_SKEW_UPPER_RULE, upper);
  pegen_skew_make(3, PEGEN_SKEW_DIFFERENCE_RULE, difference);
  for (int i = 0; i < 9; i++) {
    assert_true(upper[i] == from_upper[i]);
    assert_true(difference[i] == from_difference[i]);
  }
}

int main(void) { return run_listed(); }
