/* skew.h: real skew matrices in double precision: their making, real Schur form and Cayley transform.
 *
 * Freestanding C, shared by the drivers of kernels that have learned skew generators and by libpegen, which
 * folds bases into weights. Matrices are row-major, memory is the caller's, and nothing is called: square roots
 * are the instruction (build with -fno-math-errno).
 */
#pragma once

#ifndef PEGEN_INTERNAL
#define PEGEN_INTERNAL __attribute__((visibility("hidden")))
#endif

/* The largest matrix that pegen_schur takes; it works on its stack. */
enum { PEGEN_SCHUR_MAX = 64 };

/* How A is made of a raw matrix F.                       ORDER spec_skew_rule */
enum { PEGEN_SKEW_UPPER_RULE, PEGEN_SKEW_DIFFERENCE_RULE };

/* F [n][n] becomes A, in place: triu(F, 1) - triu(F, 1)^T, which does not read the rest of F, or F - F^T. */
PEGEN_INTERNAL void pegen_skew_make(int n, int rule, double *matrix);

/* A = S (+ lambda_k J) S^T with J = (0 -1; 1 0), S orthogonal. `a` [n][n] is destroyed; row j of `basis` [n][n]
 * receives column j of S, so that basis * x = S^T x; lambda [n / 2] >= 0, descending. A plane k is rows 2k and 2k + 1:
 * exp(t A) turns the first towards the second by t lambda_k, as y0 = c x0 - s x1, y1 = s x0 + c x1. For odd n
 * the last row is a vector that A takes to 0. Repeated and zero eigenvalues are fine; which vectors span
 * their planes is then arbitrary. Orthogonal to 2^-50, residual below 2^-48 of the norm. Where an
 * element is not finite, everything is NaN. n <= PEGEN_SCHUR_MAX. */
PEGEN_INTERNAL void pegen_schur(int n, double *a, double *basis, double *lambda);

/* out [n][n] = (I - A)(I + A)^-1, which is orthogonal, to about 2^-46 (1 + ||A||); `a` [n][n] is destroyed. NaN
 * throughout where an element of A is not finite. Any n; 4/3 n^3 multiply-adds. */
PEGEN_INTERNAL void pegen_cayley(int n, double *a, double *out);
