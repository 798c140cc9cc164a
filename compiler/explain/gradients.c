/* explain/gradients: what the entries of gradients cost and what they need kept; see explain/explain.h. */
#include "explain/explain.h"
#include "explain/words.h"
#include "plan/gradient.h"

/* Products and sums of a row: of every pair of components that some torque is made of. */
static int torque_operations(const plan_gradient *g, const plan *p) {
  int count = 0;
  if (plan_is_sum(p)) return p->spec->head_dim;
  for (int k = 0; k < g->basis.count; k++) count += g->basis.element[k].n_entries;
  return 2 * count * p->spec->n_blocks;
}

static void count_token(arena *a, const plan_gradient *g, const plan *p, operation_count *out) {
  const spec *s = p->spec;
  unsigned char *seen = arena_alloc(a, (size_t)expr_pool_count(s->pool) + 1);
  for (int i = 0; i < g->n_boundaries; i++) operation_count_add(out, g->of_boundary[TORQUE_OF_Y][i], s->n_blocks, seen);
  for (int axis = 0; axis < s->n_axes && g->has_positions; axis++)
    operation_count_add(out, g->of_position[TORQUE_OF_Y][axis], s->n_blocks, seen);
}

void explain_gradients(arena *a, const plan *p, int row_operations, explain_gradient *out) {
  const plan_gradient *g = plan_gradient_build(a, p);
  out->has_rows = true;
  out->row_operations = plan_is_sum(p) ? 0 : row_operations;
  if (!g) return;
  out->torques = g->n_torques;
  out->torque_operations = torque_operations(g, p);
  out->keeps_rows = !plan_is_sum(p);
  count_token(a, g, p, &out->token);
  out->chunk_bytes = (int64_t)(p->per_head ? p->spec->heads : 1) * g->n_boundaries * p->lanes * 8;
}
