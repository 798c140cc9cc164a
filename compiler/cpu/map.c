/* cpu/map: see cpu/map.h.
 *
 * Channels lie in the lanes as they do in memory: an expression of a channel is the same of all lanes, in float32 as
 * all arithmetic on rows is, and lanes whose channels are in no block keep what they had.
 */
#include "cpu/map.h"

#include "mlir/expr.h"

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
    y.lanes[j] = emit_expr_map(r->memory, &expr_of_processors, (arithmetic_context){r->b, r->target->has_fma}, t->width,
                               r->p->spec->pool, op->expr[0], channels);
    if (!all) y.lanes[j] = ir_select(r->b, ir_bools(r->b, t->width, mask), y.lanes[j], last->lanes[j]);
  }
  return y;
}
