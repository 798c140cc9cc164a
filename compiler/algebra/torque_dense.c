/* algebra/torque_dense: see algebra/torque_dense.h. */
#include "algebra/torque_dense.h"

#include <math.h>
#include <string.h>

double torque_scheme_factor(int k) {
  double factor = 1;
  for (int i = 2; i <= k + 1; i++) factor /= -i;
  return factor;
}

/* Commutators of what has norm `norm` double what they are done to at most: 2 norm to the power k. */
static int terms_for(double norm, double error) {
  double size = 1;
  for (int k = 1; k <= TORQUE_MOST_TERMS; k++) {
    size *= 2 * norm;
    if (size * fabs(torque_scheme_factor(k)) < error) return k - 1;
  }
  return TORQUE_MOST_TERMS + 1;
}

torque_scheme torque_scheme_for(double norm, bool is_f64) {
  double error = is_f64 ? 0x1p-48 : 0x1p-26;
  torque_scheme best = {0, TORQUE_MOST_TERMS + 1};
  for (int levels = 0; levels <= TORQUE_MOST_LEVELS; levels++) {
    torque_scheme next = {levels, terms_for(ldexp(norm, -levels), error)};
    bool is_better = best.terms > TORQUE_MOST_TERMS || torque_scheme_products(next) < torque_scheme_products(best);
    if (next.terms <= TORQUE_MOST_TERMS && is_better) best = next;
  }
  return best;
}

int torque_scheme_products(torque_scheme scheme) { return 3 * scheme.levels + scheme.terms; }

/* out = x y, or x^T y. */
static void multiply(int b, const double *x, bool transposed, const double *y, double *out) {
  memset(out, 0, sizeof *out * (size_t)(b * b));
  for (int i = 0; i < b; i++)
    for (int k = 0; k < b; k++) {
      double factor = transposed ? x[k * b + i] : x[i * b + k];
      for (int j = 0; j < b; j++) out[i * b + j] += factor * y[k * b + j];
    }
}

void torque_dense_exponential(int b, torque_scheme scheme, const double *m, const double *halves, const double *tau,
                              double *work, double *out) {
  int count = b * b;
  double *product = work, *term = work + count;
  memcpy(term, tau, sizeof *term * (size_t)count);
  for (int j = 0; j < scheme.levels; j++) {
    const double *e = halves + j * count;
    multiply(b, term, false, e, product);
    multiply(b, e, true, product, out);
    for (int i = 0; i < count; i++) term[i] = (term[i] + out[i]) / 2;
  }
  memcpy(out, term, sizeof *term * (size_t)count);
  for (int k = 1; k <= scheme.terms; k++) {
    multiply(b, m, false, term, product);
    for (int i = 0; i < b; i++)
      for (int j = 0; j < b; j++) {
        term[i * b + j] = ldexp(product[i * b + j] - product[j * b + i], -scheme.levels);
        out[i * b + j] += torque_scheme_factor(k) * term[i * b + j];
      }
  }
}

void torque_dense_cayley(int b, const double *c, const double *tau, double *work, double *out) {
  /* (I + C)^T tau (I + C) = (I + C)^T (tau + tau C). */
  multiply(b, tau, false, c, work);
  for (int i = 0; i < b * b; i++) work[i] += tau[i];
  multiply(b, c, true, work, out);
  for (int i = 0; i < b * b; i++) out[i] = -(out[i] + work[i]) / 2;
}
