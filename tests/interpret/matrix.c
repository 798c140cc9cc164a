/* interpret/matrix: see interpret/matrix.h. */
#include "interpret/matrix.h"

#include "base/arena.h"
#include "base/diag.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The caller's to destroy. */
static long double *matrices(arena **memory, int n, int count) {
  *memory = arena_create();
  return arena_array(*memory, long double, (int64_t)count * n * n);
}

static void multiply(int n, const long double *x, const long double *y, long double *out) {
  memset(out, 0, sizeof *out * (size_t)(n * n));
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++)
      for (int j = 0; j < n; j++) out[i * n + j] += x[i * n + k] * y[k * n + j];
}

static long double frobenius(int n, const long double *x) {
  long double sum = 0;
  for (int i = 0; i < n * n; i++) sum += x[i] * x[i];
  return sqrtl(sum);
}

/* The series of m / 2^s, until what it adds is nothing, squared s times. */
static void exponential(int n, long double *m) {
  arena *memory;
  long double *term = matrices(&memory, n, 3), *next = term + n * n, *scaled = next + n * n, *sum = m;
  long double norm = frobenius(n, m);
  int squarings = norm > 0.25L && isfinite(norm) ? ilogbl(norm) + 3 : 0;
  for (int i = 0; i < n * n; i++) scaled[i] = ldexpl(m[i], -squarings);
  for (int i = 0; i < n * n; i++) sum[i] = term[i] = i % (n + 1) == 0;
  for (int k = 1; k < 30 && frobenius(n, term) > 0x1p-80L; k++) {
    multiply(n, term, scaled, next);
    for (int i = 0; i < n * n; i++) sum[i] += term[i] = next[i] / k;
  }
  for (; squarings > 0; squarings--) {
    multiply(n, sum, sum, next);
    memcpy(sum, next, sizeof *sum * (size_t)(n * n));
  }
  arena_destroy(memory);
}

/* 2 (I + A)^-1 - I by Gauss and Jordan's elimination. No pivot is below 1: the symmetric part of I + A, and of what is
 * left of it, is not less than I. */
static void cayley(int n, long double *a) {
  for (int i = 0; i < n; i++) a[i * n + i] = 1;
  for (int k = 0; k < n; k++) {
    long double pivot = a[k * n + k];
    a[k * n + k] = 1;
    for (int j = 0; j < n; j++) a[k * n + j] /= pivot;
    for (int i = 0; i < n; i++) {
      if (i == k) continue;
      long double factor = a[i * n + k];
      a[i * n + k] = 0;
      for (int j = 0; j < n; j++) a[i * n + j] -= factor * a[k * n + j];
    }
  }
  for (int i = 0; i < n * n; i++) a[i] = 2 * a[i] - (i % (n + 1) == 0);
}

/* ---- the real Schur form ---- */

/* Jacobi's rotations: x symmetric becomes diagonal, the rows of v its eigenvectors. */
static void diagonalize(int n, long double *x, long double *v) {
  for (int i = 0; i < n * n; i++) v[i] = i % (n + 1) == 0;
  for (int sweep = 0; sweep < 30; sweep++)
    for (int p = 0; p < n; p++)
      for (int q = p + 1; q < n; q++) {
        long double off = x[p * n + q];
        if (off == 0) continue;
        long double turn = atan2l(2 * off, x[p * n + p] - x[q * n + q]) / 2, c = cosl(turn), s = sinl(turn);
        for (int k = 0; k < n; k++) {
          long double first = x[p * n + k], second = x[q * n + k];
          x[p * n + k] = c * first + s * second, x[q * n + k] = c * second - s * first;
        }
        for (int k = 0; k < n; k++) {
          long double first = x[k * n + p], second = x[k * n + q], at = v[p * n + k], other = v[q * n + k];
          x[k * n + p] = c * first + s * second, x[k * n + q] = c * second - s * first;
          v[p * n + k] = c * at + s * other, v[q * n + k] = c * other - s * at;
        }
        x[p * n + q] = x[q * n + p] = 0;
      }
}

/* Takes out of v what lies along the first `count` rows, twice for the last digits; gives what is left of its length.
 */
static long double clear_of(int n, int count, const long double *rows, long double *v) {
  for (int time = 0; time < 2; time++)
    for (int i = 0; i < count; i++) {
      long double along = 0;
      for (int k = 0; k < n; k++) along += rows[i * n + k] * v[k];
      for (int k = 0; k < n; k++) v[k] -= along * rows[i * n + k];
    }
  long double square = 0;
  for (int k = 0; k < n; k++) square += v[k] * v[k];
  return sqrtl(square);
}

/* Adds v as row `count` of length 1 where enough of it is new. */
static bool add_row(int n, int *count, long double *rows, const long double *v, long double least) {
  long double *row = rows + *count * n;
  memcpy(row, v, sizeof *row * (size_t)n);
  long double length = clear_of(n, *count, rows, row);
  if (!(length > least)) return false;
  for (int k = 0; k < n; k++) row[k] /= length;
  (*count)++;
  return true;
}

/* The least length that is kept of a unit vector. What n < 1 / NEW^2 of them leave out is less than one dimension, so n
 * rows are found. */
static const long double NEW = 0.1L;

/* For a skew A with the real Schur form S (+ lambda_k J) S^T, planes side by side: makes (+ R(angle lambda_k)) S^T. S
 * is one of many, the same for every angle. Planes are spanned by an eigenvector v of A^2, those of the largest
 * -lambda^2 first, and A v. */
static void schur_turned(int n, long double angle, long double *a) {
  arena *memory;
  long double *square = matrices(&memory, n, 3), *v = square + n * n, *rows = v + n * n;
  long double *image = arena_array(memory, long double, n), size = frobenius(n, a);
  multiply(n, a, a, square);
  diagonalize(n, square, v);
  bool *used = arena_array(memory, bool, n);
  int count = 0;
  for (int turn = 0; turn < n && count < n; turn++) {
    int best = -1;
    for (int i = 0; i < n; i++)
      if (!used[i] && (best < 0 || square[i * n + i] < square[best * n + best])) best = i;
    used[best] = true;
    if (!add_row(n, &count, rows, v + best * n, NEW) || count == n) continue;
    const long double *first = rows + (count - 1) * n;
    for (int i = 0; i < n; i++) {
      image[i] = 0;
      for (int j = 0; j < n; j++) image[i] += a[i * n + j] * first[j];
    }
    add_row(n, &count, rows, image, 1e-12L * size);
  }
  memcpy(square, rows, sizeof *rows * (size_t)(n * n));
  /* A restricted to neighbouring rows is lambda J, and nothing where they are no plane. */
  for (int i = 0; i + 1 < n; i++) {
    long double lambda = 0;
    for (int j = 0; j < n; j++)
      for (int k = 0; k < n; k++) lambda += rows[(i + 1) * n + j] * a[j * n + k] * rows[i * n + k];
    if (!(fabsl(lambda) > 1e-12L * size)) continue;
    long double c = cosl(angle * lambda), s = sinl(angle * lambda);
    for (int k = 0; k < n; k++) {
      square[i * n + k] = c * rows[i * n + k] - s * rows[(i + 1) * n + k];
      square[(i + 1) * n + k] = s * rows[i * n + k] + c * rows[(i + 1) * n + k];
    }
    i++;
  }
  memcpy(a, square, sizeof *a * (size_t)(n * n));
  arena_destroy(memory);
}

void matrix_make(program_source source, int n, long double angle, long double *m) {
  switch (source) {
  case SOURCE_EXP: exponential(n, m); break;
  case SOURCE_SCHUR: schur_turned(n, angle, m); break;
  case SOURCE_CAYLEY: cayley(n, m); break;
  default: diag_bug("program/matrix", "what '%s' makes is not known", program_source_word(source));
  }
}
