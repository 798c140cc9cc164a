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
 * Where M is not simple, ad^3 = Z ad with Z = M^2 of R[J], which acts on bivectors by the product with J, and the same
 * functions are those of Z (algebra/torque_functions.h). Parts that share no vector each go through their own, one
 * after the other, unless something of the basis is moved by both. In five dimensions all other bivectors that are not
 * simple act through vectors (algebra/torque_five.h).
 *
 * Torques are sums of float32, and so is what is multiplied with them here: rounded once from the angles, whose sines
 * are float64's. But what a generator gains is multiplied by its angle afterwards, and is float64 as far as a rounding
 * would grow with that.
 */
#ifndef PEGEN_ALGEBRA_TORQUE_GROUP_H
#define PEGEN_ALGEBRA_TORQUE_GROUP_H

#include "algebra/torque.h"
#include "algebra/torque_functions.h"

typedef struct torque_group {
  expr_pool *pool;
  const torque_basis *basis;
} torque_group;

/* |M|, an angle, of Euclidean vectors; else NULL. */
const expr *torque_length(const torque_group *g, const expr *const *m);

/* out = exp(ad_M)^T tau: the torque of what stands behind exp(M). sense -1: of -M. out may be tau. length: |M|, of
 * either sign, where that is known by a shorter way; or NULL. */
void torque_through_rotor(const torque_group *g, const expr *const *m, const expr *length, double sense,
                          const expr *const *tau, const expr **out);

/* out = dexp_M^T tau: what M gains. sense -1: dexp of -M. */
void torque_through_exponential(const torque_group *g, const expr *const *m, const expr *length, double sense,
                                const expr *const *tau, const expr **out);

#endif
