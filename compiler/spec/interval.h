/* spec/interval: from an expression of displacements to expressions of its bounds, when displacements lie in intervals.
 *
 * What is made are expressions like any other: with numbers for the displacements' bounds they fold to numbers, which
 * is how it is known when a kernel is compiled what a mask can ever do; with leaves for them they are code, which asks
 * the same of a tile of pairs when the kernel runs.
 *
 * Bounds hold of values as kernels round them. Operations that round monotonely are done to the bounds as they are done
 * to values, in float32, and what may be rounded another way (a product that is fused with a sum, an elementary
 * function, constants that were gathered) is bounded 2^-19 further out.
 */
#pragma once

#include "spec/expr.h"

/* A value lies in [lo, hi] (infinities among them) where `unknown` is 0, and may be anything, NaN too, where it is 1.
 * For a comparison lo = 1 says that it holds, hi = 0 that it does not. */
typedef struct interval {
  const expr *lo, *hi, *unknown;
} interval;

/* No displacement that bounds are asked of is larger, so that sums of some are finite in float32. */
#define INTERVAL_FURTHEST 0x1p40

/* The POSITION leaf that is no displacement, but scale q . k (SPEC_OF_SCORE): any finite number. */
enum { INTERVAL_OF_SCORE = 8 };

/* What a mask does to pairs within bounds. */
typedef struct interval_mask {
  const expr *unseen; /* 1: the expression is -infinity at all displacements; else 0: it need not be */
  const expr *whole; /* 1: every choice that has -infinity on one side takes the other one, at all displacements */
  const expr *open; /* the expression where that is so, without those choices; NULL: -infinity is still in it */
} interval_mask;

void interval_of_mask(arena *a, expr_pool *pool, const expr *x, int axes, const interval *displacement,
                      interval_mask *out);

/* Whether some number in x is an infinity; no other x is one at finite displacements, but by overflow. */
bool interval_has_infinity(arena *a, const expr_pool *pool, const expr *x);
/* Whether x may be -infinity at some displacement, whatever operands are. */
bool interval_may_hide(arena *a, expr_pool *pool, const expr *x, int axes);
