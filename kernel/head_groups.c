/* head_groups.c: heads of q that share operands with a head of k (grouped queries): head h uses those of head
 * h / group. In a call of one batch, heads of a group are walked as batches that share everything. So a token's rotors
 * or matrices are built once. In a call of several batches, the first head of each group goes with k, then the second,
 * and so on. */
#include "driver.h"

static void narrow(pegen_head_groups *g, pegen_view *view, int64_t group, int is_folded) {
  int64_t step = view->stride[PEGEN_HEAD];
  view->size[PEGEN_HEAD] /= group;
  view->stride[PEGEN_HEAD] = view->size[PEGEN_HEAD] > 1 ? step * group : 0;
  if (is_folded) {
    view->size[PEGEN_BATCH] = group;
    view->stride[PEGEN_BATCH] = step;
  }
  g->view[g->n] = view;
  g->first[g->n] = view->base;
  g->step[g->n++] = step;
}

int64_t pegen_group_heads(pegen_call *call, pegen_view *kept, pegen_head_groups *g) {
  pegen_stream *q = &call->stream[0];
  int64_t group = q->given && !q->in.empty ? q->group : 1;
  g->n = 0;
  if (group == 1) return 1;
  int is_folded = q->in.size[PEGEN_BATCH] == 1;
  narrow(g, &q->in, group, is_folded);
  if (q->out != &q->in) narrow(g, &q->out_of_place, group, is_folded);
  if (kept && !kept->empty) narrow(g, kept, group, is_folded);
  q->group = 1;
  call->joint = 0;
  return is_folded ? 1 : group;
}

void pegen_take_group(pegen_head_groups *g, int64_t round) {
  for (int i = 0; i < g->n; i++) g->view[i]->base = g->first[i] + (uintptr_t)(round * g->step[i]);
}
