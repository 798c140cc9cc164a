/* program/matrix: what matrices that are not made of expressions are, as the interpreter computes them.
 *
 * Long double, [n][n] in place; slow and obvious, and nothing of how targets compute them.
 */
#ifndef PEGEN_PROGRAM_MATRIX_H
#define PEGEN_PROGRAM_MATRIX_H

void matrix_exponential(int n, long double *m);
/* Of a skew A: (I - A)(I + A)^-1. */
void matrix_cayley(int n, long double *a);
/* Of a skew A with the real Schur form S (+ lambda_k J) S^T, planes side by side: (+ R(angle lambda_k)) S^T. S is one
 * of many, the same for every angle. */
void matrix_schur_turned(int n, long double angle, long double *a);

#endif
