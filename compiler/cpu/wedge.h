/* cpu/wedge: what a row adds to the torques of its blocks, before they are made skew. */
#pragma once

#include "cpu/dense.h"

/* Emits NAME(g, y, block, count, outer): of `count` blocks from `block` on, at most the shape's unit, adds g y^T to
 * outer, where g and y are rows of a number type: elements [padded][padded] or, with a block in each lane,
 * [size][size][unit], in float64 where matrices are made so. */
void emit_wedge(ir *b, arena *a, const dense_shape *shape, int dtype, const cpu_target *target, const char *name);
