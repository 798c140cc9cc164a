/* algebra/torque_five: Ad and dexp of bivectors of five dimensions, transposed, through their action on vectors.
 *
 * Bivectors act on vectors as they do on one another: with V = exp(M) as in algebra/five.h, Ad takes X to V X V^-1, and
 * dexp takes dM to dV V^-1, where dV is the closed form's differential: of the four factors by a and q, of W, of M^2
 * and of M W = v u^T - q by the Pfaffians. So no quotient of differences stands here either.
 */
#ifndef PEGEN_ALGEBRA_TORQUE_FIVE_H
#define PEGEN_ALGEBRA_TORQUE_FIVE_H

#include "algebra/torque.h"

/* out = exp(ad_M)^T tau and dexp_M^T tau; sense -1: of -M. m, tau, out: by element of the basis; out may be tau.
 * float64. */
void torque_five_rotor(const torque_basis *basis, const expr *const *m, double sense, const expr *const *tau,
                       const expr **out);
void torque_five_exponential(const torque_basis *basis, const expr *const *m, double sense, const expr *const *tau,
                             const expr **out);

#endif
