/* algebra/quaternion: see algebra/quaternion.h. */
#include "algebra/quaternion.h"

quaternion quaternion_product(expr_pool *pool, const quaternion *x, const quaternion *y) {
  quaternion q = {expr_mul(pool, x->w, y->w), {NULL}};
  for (int i = 0; i < 3; i++) {
    int j = (i + 1) % 3, k = (i + 2) % 3;
    q.w = expr_sub(pool, q.w, expr_mul(pool, x->v[i], y->v[i]));
    const expr *sum = expr_add(pool, expr_mul(pool, x->w, y->v[i]), expr_mul(pool, y->w, x->v[i]));
    sum = expr_add(pool, sum, expr_mul(pool, x->v[j], y->v[k]));
    q.v[i] = expr_sub(pool, sum, expr_mul(pool, x->v[k], y->v[j]));
  }
  return q;
}

expr_matrix quaternion_rotation(arena *a, expr_pool *pool, const quaternion *q) {
  const expr *twice[3];
  for (int i = 0; i < 3; i++) twice[i] = expr_add(pool, q->v[i], q->v[i]);
  expr_matrix m = {3, arena_array(a, const expr *, 9)};
  for (int i = 0; i < 3; i++) {
    int j = (i + 1) % 3, k = (i + 2) % 3;
    int first = j < k ? j : k, second = j < k ? k : j;
    const expr *rest = expr_sub(pool, expr_const(pool, 1), expr_mul(pool, q->v[first], twice[first]));
    m.entry[i * 3 + i] = expr_sub(pool, rest, expr_mul(pool, q->v[second], twice[second]));
    const expr *even = expr_mul(pool, q->v[i], twice[j]), *odd = expr_mul(pool, q->w, twice[k]);
    m.entry[i * 3 + j] = expr_sub(pool, even, odd);
    m.entry[j * 3 + i] = expr_add(pool, even, odd);
  }
  return m;
}
