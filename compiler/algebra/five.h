/* algebra/five: exponentials of bivectors of five dimensions that are not simple, whatever their planes.
 *
 * M = b eta is the action of B = sum of b_ij e_ij on vectors, as in algebra/split.h. pf_k is the Pfaffian of the four
 * vectors without k, D_k the product of their squares, and W = w eta with w = the sum over k of pf_k times the dual of
 * B among these four. By Cayley and Hamilton M^5 = a M^3 - q M, and
 *
 *     a = B . B,   q = sum of D_k pf_k^2,   M^3 = a M + W,   (M W)_ij = (-1)^(i + j) D_i pf_i pf_j - q [i = j],
 *
 * identities of polynomials, so that they hold for null vectors, too. The squares x, y of B's two parts are the roots
 * of z^2 - a z + q: real, or conjugates where B has no real parts (of Cl(2,2) in Cl(3,2)). With the entire functions S
 * = sinh(sqrt z)/sqrt z and C = (cosh(sqrt z) - 1)/z, and f[x,y] = (f(x) - f(y))/(x - y),
 *
 *     exp(M) = 1 + (z S)[x,y] M + S[x,y] W + (z C)[x,y] M^2 + C[x,y] M W.
 *
 * The four factors are entire functions of a and q, and so are their slopes. They are computed
 *
 *     below 1     by their series, in which roots do not occur;
 *     apart       (q <= 3/16 a^2) by the roots: of different signs, or one of them three times the other or more;
 *     elsewhere   by P, N = (a +- 2 sqrt q)/4, the squares of half the sum and half the difference of the roots' roots:
 *                 real, and apart, where the roots meet and where they are conjugates. By the addition theorems
 *                     S[x,y]     = (ch P S(N) - S(P) ch N)/(2 sqrt q)      (z S)[x,y] = (ch P S(N) + S(P) ch N)/2
 *                     C[x,y]     = (1 - ch P ch N + a/4 S(P) S(N))/q       (z C)[x,y] = S(P) S(N)/2
 *                 with ch z = cosh(sqrt z).
 *
 * So no digits are lost where the parts' squares meet, where one is 0 and where both are.
 */
#pragma once

#include "algebra/clifford.h"

enum { FIVE = 5 };

typedef struct five_bivector {
  const expr *b[SPEC_MAX_BLADES], *w[SPEC_MAX_BLADES]; /* by blade */
  const expr *pfaffian[FIVE], *square, *product;       /* a and q */
} five_bivector;
five_bivector five_bivector_of(const spec *s, const spec_bivector *plane);

/* The larger one of |a| and sqrt |q|; and rho, the root of it or of 1 where that is larger. */
const expr *five_size(expr_pool *pool, const expr *square, const expr *product);
const expr *five_rho(expr_pool *pool, const expr *size);

/* The factors of M, W, M^2 and M W in exp(M), in this order; each as that of M/rho and so on, so that no power of a
 * large angle leaves the range of float32. a and q are those of M/rho, size is that of M. */
typedef enum five_term { FIVE_M, FIVE_W, FIVE_MM, FIVE_MW, FIVE_TERMS } five_term;
void five_factors_of(expr_pool *pool, const expr *a, const expr *q, const expr *size, const expr *of[FIVE_TERMS]);

/* 1 and the sum of factors times M, W, M^2 and M W of a bivector, as they act on vectors: in a. */
expr_matrix five_sum(arena *a, const spec *s, const five_bivector *of, const expr *const factor[FIVE_TERMS]);

/* exp of `quarters` quarter turns times a bivector of five dimensions, as it acts on vectors: float64. */
expr_matrix five_exponential(arena *a, const spec *s, const expr *quarters, const spec_bivector *plane);
