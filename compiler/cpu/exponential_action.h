/* cpu/exponential_action: rows times exp(M) without exp(M), for matrices that serve few rows.
 *
 * M is skew: its eigenvalues are i times real numbers of at most rho, so Chebyshev's series converges as Bessel
 * functions fall:
 *     exp(M) x = sum over k of c_k w_k, w_0 = x, w_1 = N w_0, w_k+1 = 2 N w_k + w_k-1, N = M / rho, c_k = (k ? 2 : 1)
 *     J_k(rho)
 * with about rho terms and a few dozen more: b^2 multiply-adds each where forming takes b^3 a product, and no term is
 * larger than x. (Y. Saad, "Analysis of some Krylov subspace approximations to the matrix exponential"; H. Tal-Ezer and
 * R. Kosloff, 1984, for the series.)
 */
#pragma once

#include "cpu/apply_rows.h"

/* The first coefficient is that of exp(M) x - x, which is what is summed: x is added last, so that turns by little are
 * rounded by less. The matrix at hand is 2 N, column by column; coefficients and their number are the work's
 * (kernel/dense.h). */
void emit_action_rows(applier *e, const ir_value *in, const ir_value *out, int rows);
