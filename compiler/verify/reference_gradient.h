/* verify/reference_gradient: gradients in long double, the slow and sure way, that check and the tests compare kernels
 * with.
 *
 * Forward mode through the definition: dual multivectors and dual matrices through Taylor series and squarings, the
 * Cayley table and the solved system, expressions by verify/dual. It knows no closed form, no torque and no rule of
 * reverse mode. Two transpositions save it from one pass per entry of a matrix: of sums, <g, M x> = <g x^T, M>, and of
 * the derivative L of a power series, <G, L(M, E)> = <L(M^T, G), E>.
 *
 * The loss is the sum over outputs of g times what the kernel writes. Beside each gradient stands what errors are
 * measured by: of rows as forward rows (verify/oracle.h), of numbers that are sums the sum of absolute values,
 * where |g| |dM| |x| counts as the size of <g, dM x>.
 */
#pragma once

#include "spec/spec.h"
#include "verify/dual.h"

/* The gradient of one number. Where a row holds the number, `size` is the unit of its errors. */
typedef struct gradient_sum {
  long double value, size;
} gradient_sum;

/* Rows of one tensor, [batches][heads][tokens][head_dim]. */
typedef struct reference_rows {
  int64_t heads;           /* 0: the call has none */
  const double *x, *g;     /* what the kernel reads, and the gradient of what it writes */
  gradient_sum *gradient;  /* of x, written; zeros before */
} reference_rows;

typedef struct reference_backward {
  int64_t batches, tokens;
  int64_t position_sets; /* 1 where batches share them, or `batches` */
  const double *positions; /* [position_sets][tokens][axes]; NULL: the grid's */
  const double *const *operands;
  reference_rows q, k;
  gradient_sum *const *operand; /* [n_operands][elements], added to */
  gradient_sum *const *input;   /* [n_inputs][size] of the rows behind the operands' values, added to; NULL: none */
  gradient_sum *position;       /* [position_sets][tokens][axes], added to; of a grid too */
} reference_backward;

/* Gradients of encode: blocks that rotate, changes of basis, sums. Where dense->map == DENSE_SCHUR rows lie in a basis
 * of the kernel's own; here what is written, its gradients and those of rows are of the channels' basis, whose scores
 * are the same. */
void reference_encode_backward(const spec *s, const reference_backward *call);

/* For a kernel whose rows y = a R S^T x lie in the basis of a Schur form: goes from what it gives back of gradients g,
 * rows a S R^T g of a token and head, to the gradients S g of the same rows in the channels' basis, in their place. */
void reference_gradients_in_channels(const spec *s, const double *positions, const double *const *operands, int head,
                                     int count, double *const *rows);

/* Arrays for the gradients of all operands, zeros. */
gradient_sum **reference_operand_sums(arena *a, const spec *s);

/* ---- what the above is made of ---- */

/* Where gradients of one token and head go. */
typedef struct reference_gains {
  gradient_sum *const *operand;
  gradient_sum *position; /* [axes] */
  gradient_sum *const *input; /* [n_inputs] of the query's rows */
} reference_gains;

/* What a block's matrix gains. */
typedef struct reference_outer {
  const long double *sum; /* over rows of g x^T, [n][n] */
  long double size;       /* the sum of |g| |x| */
} reference_outer;

/* env: of the block (reference_environment). */
void reference_block_backward(const spec *s, const expr_environment *env, reference_outer outer,
                              const reference_gains *to);
/* reference_block_backward calls these for dense blocks and for functions of rotors. */
void reference_dense_backward(const spec *s, const expr_environment *env, reference_outer outer,
                              const reference_gains *to);
void reference_rotors_backward(const spec *s, const expr_environment *env, reference_outer outer,
                               const reference_gains *to);
/* outer: the gradient of C [head_dim][head_dim] of a head. */
void reference_basis_backward(const spec *s, const double *const *operands, int head, const long double *outer,
                              long double size, const reference_gains *to);
/* A function of expressions at hand, and how large its derivative along their tangents is. */
typedef struct reference_slope {
  const void *of;
  long double (*norm)(const void *of);
} reference_slope;

/* What rounding is measured by where terms of tangents cancel: each such tangent alone, as large as its terms. There
 * are at most REFERENCE_ROTORS_MOST; afterwards they are as before. */
long double reference_cancelled(dual *value, int count, reference_slope slope);
/* Whether there is a sum for a variable's gradient. */
bool reference_is_asked(const reference_gains *to, const dual_variable *v);
/* A gradient of one variable, where it is asked for. */
void reference_gain(const reference_gains *to, const dual_variable *v, long double value, long double size);
/* count expressions at a place, and the gradients of their values. */
void reference_expr_backward(expr_pool *pool, const expr_environment *env, const expr *const *xs, int count,
                             const gradient_sum *gradient, const reference_gains *to);
