/* algebra/torque_group: Ad and dexp of bivectors, transposed, as expressions.
 *
 * In: coordinates of M over a torque basis, as expressions, and a torque. A simple bivector's action on vectors has
 * M^3 = beta M, and its action on bivectors (its commutators) ad^3 = beta ad with the same beta. With t^2 = -beta
 *
 *     exp(ad)  = 1 + sin(t)/t ad + (1 - cos t)/t^2 ad^2
 *     dexp     = 1 + (1 - cos t)/t^2 ad + (t - sin t)/t^3 ad^2,
 *
 * and where beta is positive the hyperbolic functions. 1 - cos t is 2 sin^2(t/2), and what is a difference of near
 * numbers still is a series below t = 1.
 *
 * Bivectors of four vectors that all square to 1, or all to -1, are so(3) + so(3): E_01 + E_23, E_02 + E_31, E_03 +
 * E_12 and the three differences. M is the sum of one element of each, which commute, and each of which goes through
 * dexp on its own. Where three of the vectors square to one sign and one to the other, ad^3 = Z ad with Z = a + 2 pf J,
 * J = e_0123, whose product with bivectors squares to -1: Z is a complex number, and so are the functions. All others
 * that are not simple act through vectors (algebra/torque_five.h): there the digits that a large boost's V V^-1 takes
 * are float32's on GPUs.
 *
 * Torques are sums of float32, and so is what is multiplied with them here: rounded once from the angles, whose sines
 * are float64's. But what a generator gains is multiplied by its angle afterwards, and is float64 as far as a rounding
 * would grow with that.
 */
#pragma once

#include "algebra/entire.h"
#include "algebra/torque.h"

/* |M|, an angle, where all planes of the basis are Euclidean; else NULL. */
const expr *torque_length(const torque_basis *basis, const expr *const *m);

/* exp(M) of a bivector, or (sense -1) exp(-M). length: |M|, of either sign, where that is known by a shorter way. */
typedef struct torque_factor {
  const torque_basis *basis;
  const expr *const *m;
  const expr *length; /* or NULL */
  double sense;
} torque_factor;

/* TORQUE_ROTOR: exp(ad_M)^T tau, the torque of what stands behind exp(M). TORQUE_EXPONENTIAL: dexp_M^T tau, what M
 * gains; what it gains where it is 0 everywhere is not told. */
typedef enum torque_map { TORQUE_ROTOR, TORQUE_EXPONENTIAL } torque_map;

/* out may be tau. */
void torque_through(const torque_factor *x, torque_map map, const expr *const *tau, const expr **out);
