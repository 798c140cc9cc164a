/* verify/reference_map: what becomes of a channel before it turns, and what it gains, in long double.
 *
 * Kernels do it in float32, operation by operation. `rounding` is by how much, in units of float32's relative
 * precision, the result moves where each operation on the way is off by one unit: no less than the result's size, and
 * more where numbers cancel. Errors are measured by it.
 */
#pragma once

#include "spec/spec.h"

typedef struct reference_mapped {
  long double value, value_rounding;
  long double slope, slope_rounding; /* the derivative, 0 at kinks */
} reference_mapped;

/* Descriptions without a map give x, which is 1 times itself. */
reference_mapped reference_map(const spec *s, double x);
