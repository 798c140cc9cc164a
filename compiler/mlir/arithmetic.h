/* mlir/arithmetic: what an operation of an expression is in code, one table of functions for each kind of numbers.
 *
 * A machine has two kinds: the narrow one of float32 nodes and the wide one of all others. Processors have vectors
 * (or scalars) of float32 and float64; a GPU's threads have scalars of float32 and sums of two (mlir/two_float).
 * Values have the type of the latter throughout; only two-float arithmetic has a lo.
 */
#pragma once

#include "mlir/two_float.h"
#include "spec/expr.h"

/* What operations ask about: where they are emitted. */
typedef struct arithmetic_context {
  ir *b;
  bool has_fma; /* the target multiplies and adds with one rounding */
} arithmetic_context;

typedef struct arithmetic {
  /* By operation. Missing in a narrow arithmetic: it is done in the wide one and rounded. A wide arithmetic lacks only
   * those that the walker does itself (leaves, conversions, comparisons). */
  two_float (*operation[EXPR_OP_COUNT])(const arithmetic_context *c, const two_float *v);
  /* What an operation gives whose arguments or result may be infinite, `y` being what its function gave; NULL: that. */
  two_float (*settle)(const arithmetic_context *c, expr_op op, const two_float *v, two_float y);
  two_float (*constant)(ir *b, int lanes, double value); /* lanes 0: a scalar */
  two_float (*convert)(ir *b, two_float x); /* from either kind of its machine */
  ir_value (*less)(ir *b, two_float x, two_float y); /* i1 with their lanes */
  ir_value (*nonzero)(ir *b, two_float x);
  two_float (*select)(ir *b, ir_value condition, two_float x, two_float y);
} arithmetic;

typedef struct expr_machine {
  const arithmetic *narrow, *wide;
  const arithmetic
      *turned; /* of wide nodes that have been through a sine or cosine: numbers of size 1 with its error */
  bool compares_wide; /* comparisons of float32 nodes too: float32 is a case of its wide numbers */
  bool has_idioms; /* rounded sines, and softplus in float32, have code of their own */
} expr_machine;

/* Threads whose float32 elementary functions, quotients and roots may be some units of the last place off. */
extern const expr_machine expr_of_processors, expr_of_threads, expr_of_fast_threads;
/* Threads that rotate 16-bit rows: sines and cosines, too, with an error of 2^-20. */
extern const expr_machine expr_of_turning_threads;
