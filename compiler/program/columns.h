/* program/columns: columns that widen rows (plan/widen.h) as expressions, and the gradients of widened rows as a
 * program, of rows of float32, in which no column is split.
 *
 * What a row's columns gain is read off its further channels. Times what weights became columns by it is what a
 * query's weights gain, of which inputs and operands do (plan/widen_gradient.h); and monomials' derivatives give it to
 * the coordinates of queries and of keys.
 */
#pragma once

#include "plan/widen_gradient.h"
#include "program/program.h"

/* Polynomials of the position, float64: a token's columns as its keys have them, [columns], and by which weights become
 * those of its queries, [weights][columns]. */
const expr **columns_of_keys(arena *a, const plan_widen *p);
const expr **columns_gains(arena *a, const plan_widen *p);
/* Which column each channel more is, [lanes]; -1: what rounding took, of which float32 has none. */
const int *columns_of_lanes(arena *a, const widen_layout *l, bool of_query);
/* A query's weights as evals of all terms and a sum over these. */
int columns_sum_weights(program_builder *b, const plan_widen *p, int prepared);

const program *columns_backward(arena *a, const plan_widen *p);
