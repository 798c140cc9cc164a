/* verify/reference_rotors: functions of rotors among 3 x 3 matrices in long double, by other ways than kernels'.
 *
 * A rotation is its matrix (of two dimensions with a third at rest): Rodrigues' formula, transposes, angles by atan2 of
 * the skew part and the trace. The chordal mean is the rotation of the polar decomposition of the sum of the matrices,
 * from its singular value decomposition by one-sided Jacobi rotations; no quaternion, no eigenvector of four numbers.
 */
#pragma once

#include "spec/spec.h"

enum { REFERENCE_ROTORS_MOST = SPEC_MAX_AXES * (1 + SPEC_MAX_BIVECTORS) + SPEC_MAX_ROTORS * SPEC_MAX_ARGUMENTS };

/* What the function is of, in order: of each axis its angle and its generator's coefficients, of each node its factors.
 * Returns their number, at most REFERENCE_ROTORS_MOST. */
int reference_rotors_inputs(const spec *s, const expr **out);

/* The block's matrix [n_components][n_components] of the values of those; amplitude and `inverse` included. nudge [3],
 * or NULL: a rotation vector by which the rotor of `axis` is turned further. */
void reference_rotors_block(const spec *s, const long double *values, int axis, const long double *nudge,
                            long double *matrix);

/* By how much the rotation moves (the largest entry of its matrix, summed) where every axis' rotation moves by `step`
 * radians and per_radian of its angle. Large where the function has a cut. */
long double reference_rotors_reach(const spec *s, const long double *values, long double step, long double per_radian);
