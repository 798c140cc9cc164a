/* gpu/attention_rows: plans of rows that are turned once each; see gpu/attention.h.
 *
 * Where R(s - r) = R(r)^-1 R(s) (algebra/relative.h) a row of queries, keys or values is turned once, by the rotation
 * of its own place, and pairs need none.
 */
#include "gpu/attention.h"

/* Whether rows are turned, and pairs are not: rotations are those of rows' own places, and there are no prefix tokens,
 * whose pairs see rows as they are. */
static bool turns_rows(const attention_plan *p) { return p->matrix && !p->stays && p->spec->skip_tokens == 0; }

const attention_plan *attend_plan_of_products(arena *a, const attention_plan *p) {
  if (!turns_rows(p)) return p;
  attention_plan *of = arena_new(a, attention_plan);
  *of = *p;
  of->matrix = NULL;
  of->n_shared = 0;
  of->operations = p->own_operations;
  of->turns_values = false;
  of->torques = NULL;
  if (!of->bias && !of->score && !of->columns) of->n_places = 0;
  return of;
}

bool attend_turns_by_head(const attention_plan *p) { return turns_rows(p) && p->per_head; }
