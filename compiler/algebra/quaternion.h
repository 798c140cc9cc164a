/* algebra/quaternion: unit quaternions as expressions, rotations of three dimensions.
 *
 * A rotation by the angle phi about the unit vector u, x -> x cos phi + u x x sin phi + ..., is w = cos(phi/2),
 * v = sin(phi/2) u, and -w, -v as well.
 */
#pragma once

#include "algebra/clifford.h"

typedef struct quaternion {
  const expr *w, *v[3];
} quaternion;

quaternion quaternion_product(expr_pool *pool, const quaternion *x, const quaternion *y);

/* I + 2 w V + 2 V^2 for V x = v x x: of q and of -q the same. */
expr_matrix quaternion_rotation(arena *a, expr_pool *pool, const quaternion *q);
