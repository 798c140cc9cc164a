/* verify/dual: derivatives of expressions by dual numbers, forwards, for the reference of gradients.
 *
 * It shares nothing with spec/adjoint: each operation is done on value and tangent at once, in long double, and where
 * it has a kink the tangent is 0. A variable is one number of what a call brings; which of them an expression reads at
 * a place is found by evaluating it.
 */
#pragma once

#include "spec/expr.h"

#include <stdint.h>

/* size: the sum of the absolute values of the terms that the tangent adds. Terms may cancel, as where interpolation's
 * weights add to 1, and rounding leaves of them what is small beside their size. */
typedef struct dual {
  long double value, tangent, size;
} dual;

typedef enum dual_kind { DUAL_OPERAND, DUAL_INPUT, DUAL_POSITION, DUAL_CHANNEL } dual_kind;

/* One number: element of operand or of the query's row of input `index`, or (element 0) the coordinate on axis `index`,
 * or channel `index` of a map of channels. */
typedef struct dual_variable {
  dual_kind kind;
  int index;
  int64_t element;
} dual_variable;

/* Where expressions are evaluated, with what has been found: values, and by the variable at hand what depends on it. */
typedef struct dual_place {
  arena *memory;
  const expr_environment *env;
  int nodes;
  struct {
    dual *known; /* by id */
    int *when; /* it was found, of `now` */
    int now;
  } plain, by;
  const dual_variable *variable; /* of dual_variables; NULL: not looked for */
  int count;
  uint64_t *reads; /* [nodes][words], a bit for each variable: what a node's tangent may depend on */
  int words, bit; /* the variable at hand; -1: none of them, then all nodes may */
} dual_place;

/* Begins for expressions that are in the pool now. */
dual_place dual_at(arena *a, const expr_pool *pool, const expr_environment *env);

/* What the expressions read there, each variable once. */
int dual_variables(dual_place *p, const expr *const *xs, int count, const dual_variable **out);

/* The derivatives by one of them: out[i] of xs[i]. */
void dual_eval(dual_place *p, const dual_variable *by, const expr *const *xs, int count, dual *out);
/* One operation (of arguments, not a leaf) on numbers with their tangents. */
dual dual_operation(expr_op op, const dual *arguments);
