/* scheduled: see scheduled.h. */
#include "scheduled.h"

const tile_program *scheduled(arena *a, const tile_program *p) {
  tile_program *to = arena_new(a, tile_program);
  *to = *p;
  to->n_ops = 0;
  bool loading = false, turning = false;
  for (int i = 0; i < p->n_ops; i++) {
    bool loads = p->op[i].kind == TILE_LOAD, begins = p->op[i].kind == TILE_EACH,
         turns = p->op[i].kind == TILE_TURN && !p->value[p->op[i].value].is_sum;
    if ((loading && !loads && !begins) || (turning && !turns && !begins)) tile_add_op(to, TILE_WAIT, TILE_NONE);
    loading = loads;
    turning = turns;
    to->op[to->n_ops++] = p->op[i];
    if (begins) tile_add_op(to, TILE_WAIT, TILE_NONE);
  }
  return tile_check(to);
}
