/* algebra/torque_dense: torques of b x b blocks, by the squares that the exponential goes through.
 *
 * A torque is a skew matrix here, tau_ij = sum over rows of g_i y_j - g_j y_i, and <A, B> the sum over i < j. For skew
 * M
 *
 *     dexp_M = 1/2 (1 + Ad(exp(M/2))) dexp_(M/2),
 *
 * so that with E_j = exp(M / 2^j)
 *
 *     for j = 1 .. levels:  tau <- 1/2 (tau + E_j^T tau E_j)              two products a level
 *     what M gains = a series in ad of M / 2^levels, of tau
 *
 * and since A tau - tau A = A tau - (A tau)^T for skew matrices, a commutator is one product.
 */
#pragma once

#include <stdbool.h>

enum { TORQUE_MOST_TERMS = 24 };

/* Coefficients of (e^z - 1) / z = sum of c[k] U_k(z / reach) for imaginary z up to reach, U_0 = 1, U_1 = w,
 * U_k+1 = 2 w U_k + U_k-1 (Chebyshev's polynomials on the imaginary axis), to 2^-22 (is_f64: 2^-30): c[k] is 2 (of U_0:
 * 1) times the mean of the Bessel function J_k from 0 to reach. With w = ad_M / reach that is dexp_M. Returns their
 * number, at most TORQUE_MOST_TERMS. */
int torque_series(double reach, bool is_f64, double *c);
