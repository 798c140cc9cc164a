/* algebra/torque_dense: see algebra/torque_dense.h. */
#include "algebra/torque_dense.h"

#include <math.h>

/* The integral of J_n from 0 to x, term by term of its series. */
static double bessel_integral(int n, double x) {
  double term = x / (n + 1), sum = 0;
  for (int i = 1; i <= n; i++) term *= x / 2 / i;
  for (int m = 0; m < 60; m++) {
    sum += term;
    term *= -x * x / 4 / ((m + 1.0) * (m + 1 + n)) * (n + 2 * m + 1) / (n + 2 * m + 3);
  }
  return sum;
}

int torque_series(double reach, bool is_f64, double *c) {
  double error = is_f64 ? 0x1p-30 : 0x1p-22;
  int count = 0;
  for (; count < TORQUE_MOST_TERMS; count++) {
    c[count] = (count ? 2 : 1) * bessel_integral(count, reach) / reach;
    if (count > reach && fabs(c[count]) < error) break;
  }
  return count;
}
