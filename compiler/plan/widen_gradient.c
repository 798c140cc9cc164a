/* plan/widen_gradient: see plan/widen_gradient.h. */
#include "plan/widen_gradient.h"

const plan_gradient *plan_widen_gradient(arena *a, const plan_widen *p) {
  expr_pool *pool = p->spec->pool;
  int count = p->p->n_weights;
  const expr **weight = arena_array(a, const expr *, count + 1);
  for (int w = 0; w < count; w++) {
    weight[w] = expr_const(pool, 0);
    for (int k = p->first_product[w]; k < p->first_product[w + 1]; k++) {
      int query = p->product_query[k];
      const expr *product = query < 0 ? p->fixed[k] : expr_mul(pool, p->query[query], p->fixed[k]);
      weight[w] = expr_add(pool, weight[w], product);
    }
  }
  return plan_gradient_of_sums(a, p->values, weight, count);
}
