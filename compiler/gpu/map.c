/* gpu/map: see gpu/map.h. Arithmetic is float32, as all on rows; functions that threads have as sums of two float32 are
 * computed so and rounded once. */
#include "gpu/map.h"

#include "base/diag.h"
#include "mlir/expr.h"

typedef struct map_walk {
  expr_walker walker; /* first: a leaf is asked for by it */
  const ir_value *channels;
} map_walk;

static bool leaf(expr_walker *w, const expr *x, bool is_f32, two_float *value) {
  (void)is_f32;
  if (expr_op_arity(x->op) > 0) return false;
  if (x->op != EXPR_CHANNEL) diag_bug("gpu/map", "leaf '%s'", expr_op_name(x->op));
  *value = two_float_f32(((map_walk *)w)->channels[x->index]);
  return true;
}

ir_value emit_thread_map(ir *b, arena *a, const spec *s, const expr *map, const ir_value *channels) {
  two_float *memo = arena_array(a, two_float, expr_pool_count(s->pool) + 1);
  map_walk m = {.walker = {.context = {b, true},
                           .machine = &expr_of_threads,
                           .varies = DEPENDS_CHANNEL,
                           .varying = memo,
                           .fixed = memo,
                           .stride = 1,
                           .leaf = leaf},
                .channels = channels};
  return emit_expr_f32(&m.walker, map);
}
