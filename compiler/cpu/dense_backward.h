/* cpu/dense_backward: gradients of programs whose rows are multiplied with matrices, for one target; see kernel/dense.h
 * for what the functions are called with. Rows are multiplied with transposed matrices by the functions of cpu/dense:
 * transposes are formed as those of what is turned back, or made of a table's. */
#pragma once

#include "cpu/dense.h"
#include "cpu/gain.h"

void emit_dense_backward(ir *b, arena *a, const program *encode, const cpu_target *target, unsigned dtypes);

/* The gradient of the angles of a program in the order of the target; NULL: they depend on nothing that gains. */
const plan_gradient *dense_gradient_of(arena *a, const program *scheduled, const dense_shape *shape);
gradient_code dense_gradient_code(arena *a, const plan_gradient *of, const cpu_target *target);

/* The exponential whose matrix gains: that of whole units, where there is one. */
const char *emit_adjoint_of(arena *a, const dense_shape *shape, const cpu_target *target);

/* What a row adds to the torques of its blocks, before they are made skew (cpu/wedge). Emits NAME(g, y, block, count,
 * outer): of `count` blocks from `block` on, at most the shape's unit, adds g y^T to outer, where g and y are rows of a
 * number type: elements [padded][padded] or, with a block in each lane, [size][size][unit], in float64 where matrices
 * are made so. */
void emit_wedge(ir *b, arena *a, const dense_shape *shape, int dtype, const cpu_target *target, const char *name);
