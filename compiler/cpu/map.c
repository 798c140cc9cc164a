/* cpu/map: see cpu/map.h.
 *
 * Channels lie in the lanes as they do in memory: an expression of a channel is the same of all lanes, in float32 as
 * all arithmetic on rows is, and lanes whose channels are in no block keep what they had.
 */
#include "cpu/map.h"

#include "base/diag.h"
#include "mlir/expr.h"

typedef struct map_emitter {
  expr_walker walker;
  const ir_value *channels; /* by index of the leaf */
} map_emitter;

static bool leaf(expr_walker *w, const expr *x, bool is_f32, two_float *value) {
  (void)is_f32;
  if (expr_op_arity(x->op) > 0) return false;
  if (x->op != EXPR_CHANNEL) diag_bug("cpu/map", "leaf '%s'", expr_op_name(x->op));
  *value = two_float_f32(((map_emitter *)w)->channels[x->index]);
  return true;
}

static ir_value emit_map(row_emitter *r, const expr *map, const ir_value *channels) {
  two_float *memo = arena_array(r->memory, two_float, expr_pool_count(r->p->spec->pool));
  map_emitter e = {.walker = {.context = {r->b, r->target->has_fma},
                              .machine = &expr_of_processors,
                              .varies = DEPENDS_CHANNEL,
                              .lanes = r->t->width,
                              .varying = memo,
                              .fixed = memo,
                              .stride = 1,
                              .leaf = leaf},
                   .channels = channels};
  return emit_expr_f32(&e.walker, map);
}

row_vectors emit_vectors_map(row_emitter *r, int group, const program_op *op, const row_vectors *const *rows) {
  const plan_tile *t = r->t;
  row_vectors y = {arena_array(r->memory, ir_value, t->n_vectors), arena_array(r->memory, bool, t->n_vectors),
                   arena_array(r->memory, bool, t->n_vectors)};
  const row_vectors *last = rows[op->n_arguments - 1];
  for (int j = 0; j < t->n_vectors; j++) {
    if (t->group[j] != group) continue;
    ir_value channels[PROGRAM_MAX_ARGUMENTS];
    bool mask[GATHER_MAX_LANES], some = false, all = true;
    for (int i = 0; i < t->width; i++) {
      mask[i] = r->p->block_of[plan_tile_channel(t, j, i)] >= 0;
      some = some || mask[i];
      all = all && mask[i];
    }
    y.lanes[j] = last->lanes[j];
    y.kept[j] = last->kept[j] && !some;
    if (!some) continue;
    for (int k = 0; k < op->n_arguments; k++) channels[k] = rows[k]->lanes[j];
    y.lanes[j] = emit_map(r, op->expr[0], channels);
    if (!all) y.lanes[j] = ir_select(r->b, ir_bools(r->b, t->width, mask), y.lanes[j], last->lanes[j]);
  }
  return y;
}
