/* algebra/torque_five: Ad and dexp of bivectors that are not simple, transposed, through their action on vectors.
 *
 * Bivectors act on vectors as they do on one another: with V = exp(M) as in algebra/five.h, Ad takes X to V X V^-1, and
 * dexp takes dM to dV V^-1. dV is the differential of the closed form, by spec/adjoint.h. M/rho stands for M there with
 * a rho that does not vary, since the factors are functions of it that no power of a large angle overflows in.
 */
#pragma once

#include "algebra/torque_group.h"

/* torque_through of a bivector of at most five vectors. float64. */
void torque_through_five(const torque_factor *of, torque_map map, const expr *const *tau, const expr **out);
