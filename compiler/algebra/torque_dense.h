/* algebra/torque_dense: torques of b x b blocks, by the squares that the exponential goes through, and of Cayley forms.
 *
 * A torque is a skew matrix here, tau_ij = sum over rows of g_i y_j - g_j y_i, and <A, B> the sum over i < j. For skew
 * M
 *
 *     dexp_M = 1/2 (1 + Ad(exp(M/2))) dexp_(M/2),
 *
 * so that with E_j = exp(M / 2^j)
 *
 *     for j = 1 .. levels:  tau <- 1/2 (tau + E_j^T tau E_j)              two products a level
 *     what M gains = sum over k <= terms of (-1)^k / (k + 1)! ad^k tau,   ad of M / 2^levels
 *
 * and since A tau - tau A = A tau - (A tau)^T for skew matrices, a commutator is one product. Numbers of both are
 * chosen for the fewest products; a target's micro-kernel walks them as the functions here do, which are its oracle.
 */
#ifndef PEGEN_ALGEBRA_TORQUE_DENSE_H
#define PEGEN_ALGEBRA_TORQUE_DENSE_H

#include <stdbool.h>

enum { TORQUE_MOST_LEVELS = 32, TORQUE_MOST_TERMS = 24 };

typedef struct torque_scheme {
  int levels; /* halvings of M: E_1 .. E_levels are needed */
  int terms; /* commutators behind them */
} torque_scheme;

/* For ||M|| up to norm, to 2^-26 (is_f64: 2^-48) of |tau|. */
torque_scheme torque_scheme_for(double norm, bool is_f64);
/* Products of b^3 multiplications: squarings to make the E_j beyond those of the exponential are among them. */
int torque_scheme_products(torque_scheme scheme);
/* (-1)^k / (k + 1)!, k = 0 .. TORQUE_MOST_TERMS. */
double torque_scheme_factor(int k);

/* What M gains of the torque of R = exp(M): out[b][b], skew; M skew, tau skew. halves[levels][b][b]: E_1 first. work:
 * 2 b b numbers. */
void torque_dense_exponential(int b, torque_scheme scheme, const double *m, const double *halves, const double *tau,
                              double *work, double *out);

/* What S gains of the torque of C = (I - S)(I + S)^-1: -1/2 (I + C)^T tau (I + C). work: b b numbers. */
void torque_dense_cayley(int b, const double *c, const double *tau, double *work, double *out);

#endif
