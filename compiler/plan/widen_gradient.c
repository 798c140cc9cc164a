/* plan/widen_gradient: see plan/widen_gradient.h. */
#include "plan/widen_gradient.h"

const plan_gradient *plan_widen_gradient(arena *a, const plan_widen *p) {
  return plan_gradient_of_sums(a, p->values, plan_widen_weights(a, p), p->p->n_weights);
}
