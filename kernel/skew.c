/* skew: making skew matrices, and their Cayley transform; see skew.h. */
#include "skew.h"

void pegen_skew_make(int n, int rule, double *matrix) {
  for (int i = 0; i < n; i++) {
    matrix[i * n + i] = 0;
    for (int j = i + 1; j < n; j++) {
      double value = matrix[i * n + j];
      if (rule == PEGEN_SKEW_DIFFERENCE_RULE) value -= matrix[j * n + i];
      matrix[i * n + j] = value;
      matrix[j * n + i] = -value;
    }
  }
}

static double magnitude(double x) { return x < 0 ? -x : x; }

static void subtract_row(double *from, const double *row, double factor, int begin, int n) {
  for (int j = begin; j < n; j++) from[j] -= factor * row[j];
}

static void swap_rows(double *x, double *y, int n) {
  for (int j = 0; j < n; j++) {
    double value = x[j];
    x[j] = y[j];
    y[j] = value;
  }
}

/* Gaussian elimination with partial pivoting on I + A, of which nothing is singular: its eigenvalues are 1 +- i sigma.
 * The factors commute, so (I + A)^-1 (I - A) is what is asked for. */
void pegen_cayley(int n, double *a, double *out) {
  double spoilt = 0; /* 0, or NaN */
  for (int i = 0; i < n * n; i++) spoilt += a[i] * 0;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      out[i * n + j] = (i == j) - a[i * n + j] + spoilt;
      a[i * n + j] += (i == j);
    }
  if (spoilt != 0) {
    for (int i = 0; i < n * n; i++) out[i] = spoilt;
    return;
  }
  for (int k = 0; k < n; k++) {
    int pivot = k;
    for (int i = k + 1; i < n; i++)
      if (magnitude(a[i * n + k]) > magnitude(a[pivot * n + k])) pivot = i;
    if (pivot != k) {
      swap_rows(a + k * n, a + pivot * n, n);
      swap_rows(out + k * n, out + pivot * n, n);
    }
    for (int i = k + 1; i < n; i++) {
      double factor = a[i * n + k] / a[k * n + k];
      if (factor == 0) continue;
      subtract_row(a + i * n, a + k * n, factor, k + 1, n);
      subtract_row(out + i * n, out + k * n, factor, 0, n);
    }
  }
  for (int k = n - 1; k >= 0; k--) {
    for (int i = k + 1; i < n; i++) subtract_row(out + k * n, out + i * n, a[k * n + i], 0, n);
    for (int j = 0; j < n; j++) out[k * n + j] /= a[k * n + k];
  }
}
