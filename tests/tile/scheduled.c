/* scheduled: see scheduled.h. */
#include "scheduled.h"

const tile_program *scheduled(arena *a, const tile_program *p) {
  tile_program *to = arena_new(a, tile_program);
  *to = *p;
  to->n_ops = 0;
  bool loading = false;
  for (int i = 0; i < p->n_ops; i++) {
    bool loads = p->op[i].kind == TILE_LOAD, begins = p->op[i].kind == TILE_EACH;
    if (loading && !loads && !begins) tile_add_op(to, TILE_WAIT, TILE_NONE);
    loading = loads;
    to->op[to->n_ops++] = p->op[i];
    if (begins) tile_add_op(to, TILE_WAIT, TILE_NONE);
  }
  return tile_check(to);
}
