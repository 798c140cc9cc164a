/* verify/reference_dense: the reference's exponentials of skew matrices and its changes of basis; see
 * verify/reference.h.
 *
 * In: a description with dense blocks or a basis. Out: matrices in long double. exp is scaled by a power of two,
 * summed as a Taylor series and squared back, as in verify/reference.c; the Cayley transform is a solved system.
 * Nothing here knows that skew matrices have a normal form, or that products of theirs have symmetries.
 */
#include "verify/reference.h"

#include "base/diag.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static long double *allocate(int count) {
  long double *memory = calloc((size_t)count, sizeof *memory);
  if (!memory) diag_bug("reference", "out of memory");
  return memory;
}

/* sum += factor * A, A as the description makes it of the raw matrix. */
static void add_skew(const spec_skew *m, int n, int head, int block, int blocks, const double *const *operands,
                     long double factor, long double *sum) {
  const double *raw = operands[m->operand] + m->offset[(m->n_heads > 1 ? head : 0) * blocks + block];
  for (int i = 0; i < n; i++)
    for (int j = i + 1; j < n; j++) {
      long double value = raw[i * n + j];
      if (m->rule == SKEW_DIFFERENCE) value -= raw[j * n + i];
      sum[i * n + j] += factor * value;
      sum[j * n + i] -= factor * value;
    }
}

void reference_skew(const spec_skew *m, int n, int head, int block, int blocks, const double *const *operands,
                    long double *matrix) {
  memset(matrix, 0, sizeof *matrix * (size_t)(n * n));
  add_skew(m, n, head, block, blocks, operands, 1, matrix);
}

/* M of a block: sum over axes of angle times A. */
static void exponent(const spec *s, const expr_environment *env, long double *m) {
  int n = s->n_components;
  memset(m, 0, sizeof *m * (size_t)(n * n));
  for (int axis = 0; axis < s->n_axes; axis++)
    add_skew(&s->dense->generator[axis], n, env->head, env->block, s->n_blocks, env->operands,
             expr_eval_long(s->angle[axis], env), m);
}

enum { COLUMNS = 4 }; /* of a product at once: storing a long double costs more than multiplying two */

static void multiply(int n, const long double *x, const long double *y, long double *product) {
  for (int i = 0; i < n; i++) {
    int j = 0;
    for (; j + COLUMNS <= n; j += COLUMNS) {
      long double sum[COLUMNS] = {0};
      for (int k = 0; k < n; k++)
        for (int c = 0; c < COLUMNS; c++) sum[c] += x[i * n + k] * y[k * n + j + c];
      for (int c = 0; c < COLUMNS; c++) product[i * n + j + c] = sum[c];
    }
    for (; j < n; j++) {
      long double sum = 0;
      for (int k = 0; k < n; k++) sum += x[i * n + k] * y[k * n + j];
      product[i * n + j] = sum;
    }
  }
}

static long double largest_row_sum(int n, const long double *x) {
  long double largest = 0;
  for (int i = 0; i < n; i++) {
    long double sum = 0;
    for (int j = 0; j < n; j++) sum += fabsl(x[i * n + j]);
    if (!(sum <= largest)) largest = sum; /* NaN stays */
  }
  return largest;
}

/* The series up to x^24 for |x| < 1/2, of which 0.5^20 / 20! is below 2^-81 already: a polynomial in x^5 with
 * polynomials in x for coefficients takes 8 products in place of 23 (Paterson and Stockmeyer). */
static void taylor(int n, const long double *x, long double *sum) {
  enum { STEP = 5 };
  int count = n * n;
  long double *power[STEP + 1], *next = allocate(count), factor[STEP * STEP];
  for (int k = 1; k <= STEP; k++) {
    power[k] = allocate(count);
    if (k == 1) memcpy(power[k], x, sizeof *x * (size_t)count);
    else multiply(n, power[k - 1], x, power[k]);
  }
  factor[0] = 1; /* 1 / k! */
  for (int k = 1; k < STEP * STEP; k++) factor[k] = factor[k - 1] / k;
  for (int row = STEP - 1; row >= 0; row--) {
    if (row < STEP - 1) multiply(n, sum, power[STEP], next);
    for (int i = 0; i < count; i++) {
      long double part = i % (n + 1) == 0 ? factor[row * STEP] : 0;
      for (int k = STEP - 1; k > 0; k--) part += factor[row * STEP + k] * power[k][i];
      sum[i] = part + next[i]; /* next is 0 in the first row */
    }
  }
  for (int k = 1; k <= STEP; k++) free(power[k]);
  free(next);
}

/* x -> exp(x). */
static void exponential(int n, long double *x) {
  int squarings = 0, count = n * n;
  long double norm = largest_row_sum(n, x);
  if (!isfinite(norm)) {
    for (int i = 0; i < count; i++) x[i] = NAN;
    return;
  }
  if (norm > 0.5L) {
    frexpl(norm, &squarings);
    squarings++; /* norm / 2^squarings is in [1/4, 1/2) */
  }
  for (int i = 0; i < count; i++) x[i] = ldexpl(x[i], -squarings);
  long double *sum = allocate(count), *next = allocate(count);
  taylor(n, x, sum);
  for (; squarings > 0; squarings--) {
    multiply(n, sum, sum, next);
    memcpy(sum, next, sizeof *sum * (size_t)count);
  }
  memcpy(x, sum, sizeof *sum * (size_t)count);
  free(sum), free(next);
}

void reference_dense_block(const spec *s, const expr_environment *env, long double *matrix) {
  int count = s->n_components * s->n_components;
  long double amplitude = s->inverse ? 1 / (long double)s->amplitude : (long double)s->amplitude;
  exponent(s, env, matrix);
  for (int i = 0; i < count && s->inverse; i++) matrix[i] = -matrix[i];
  exponential(s->n_components, matrix);
  for (int i = 0; i < count; i++) matrix[i] *= amplitude;
}

/* The spectral norm of a skew matrix is the growth of its powers: ||M^64||^(1/64) in the Frobenius norm
 * is too large by a factor of at most b^(1/128), 1.04. */
long double reference_norm(const spec *s, const double *positions, const double *const *operands, int head, int block) {
  int n = s->n_components, count = n * n;
  expr_environment env = reference_environment(s, positions, operands, head, block);
  long double *m = allocate(count), *square = allocate(count), logarithm = 0, share = 1;
  exponent(s, &env, m);
  for (int k = 0; k <= 6; k++, share /= 2) {
    long double sum = 0;
    for (int i = 0; i < count; i++) sum += m[i] * m[i];
    long double size = sqrtl(sum);
    if (size == 0 || !isfinite(size)) {
      free(m), free(square);
      return size;
    }
    logarithm += share * logl(size);
    for (int i = 0; i < count; i++) m[i] /= size;
    if (k < 6) multiply(n, m, m, square);
    if (k < 6) memcpy(m, square, sizeof *m * (size_t)count);
  }
  free(m), free(square);
  return expl(logarithm);
}

void reference_solve(int n, long double *system, long double *right) {
  for (int k = 0; k < n; k++) {
    int pivot = k;
    for (int i = k + 1; i < n; i++)
      if (fabsl(system[i * n + k]) > fabsl(system[pivot * n + k])) pivot = i;
    for (int j = 0; j < n && pivot != k; j++) {
      long double a = system[k * n + j], b = right[k * n + j];
      system[k * n + j] = system[pivot * n + j], system[pivot * n + j] = a;
      right[k * n + j] = right[pivot * n + j], right[pivot * n + j] = b;
    }
    for (int i = 0; i < n; i++) {
      long double factor = system[i * n + k] / system[k * n + k];
      if (i == k || factor == 0) continue;
      for (int j = k; j < n; j++) system[i * n + j] -= factor * system[k * n + j];
      for (int j = 0; j < n; j++) right[i * n + j] -= factor * right[k * n + j];
    }
  }
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) right[i * n + j] /= system[i * n + i];
}

/* (I + A) C = I - A by reference_solve: the factors of (I - A)(I + A)^-1 commute. */
void reference_basis(const spec *s, const double *const *operands, int head, long double *matrix) {
  int n = s->head_dim;
  long double *system = allocate(n * n);
  memset(matrix, 0, sizeof *matrix * (size_t)n * (size_t)n);
  add_skew(&s->basis->matrix, n, head, 0, 1, operands, 1, system);
  add_skew(&s->basis->matrix, n, head, 0, 1, operands, -1, matrix);
  for (int i = 0; i < n; i++) system[i * n + i] = matrix[i * n + i] = 1;
  reference_solve(n, system, matrix);
  free(system);
}
