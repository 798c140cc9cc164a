/* attention_places.c: from what coordinates gain in each head to what positions gain: sums over heads, and over batches
 * that share them, in order. */
#include "attention_backward.h"

/* The sum over heads of a token's coordinate in batches [first, last). */
static double sum_of(const pegen_view *rows, int64_t axes, const double *sums, int64_t first, int64_t last,
                     int64_t token, int64_t axis) {
  int64_t heads = rows->size[PEGEN_HEAD], tokens = rows->size[PEGEN_TOKEN];
  double sum = 0;
  for (int64_t head = first * heads; sums && head < last * heads; head++)
    sum += sums[(head * tokens + token) * axes + axis];
  return sum;
}

void pegen_attention_finish_places(const pegen_driver *driver, const pegen_args *args,
                                   const pegen_attention_backward_call *call, int part, int parts) {
  const pegen_view *q = &call->forward.q, *k = &call->forward.k;
  const DLTensor *tensor[] = {call->grad->positions, call->grad->k_positions};
  const double *of_q = pegen_attention_place_sums(driver, args, call, 0),
               *of_k = pegen_attention_place_sums(driver, args, call, 1);
  int64_t axes = driver->kernel->n_axes, batches = q->size[PEGEN_BATCH], begin, end;
  for (int own = 0; own < 2; own++) {
    const pegen_view *view = &call->g_positions[own];
    int takes_q = !own, takes_k = own || !args->k_positions;
    if (view->empty) continue;
    int64_t sets = view->size[PEGEN_POSITION_BATCH], tokens = view->size[PEGEN_POSITION_TOKEN];
    pegen_share(tokens, part, parts, &begin, &end);
    for (int64_t i = 0; i < sets * (end - begin) * axes; i++) {
      int64_t set = i / ((end - begin) * axes), token = begin + i / axes % (end - begin), axis = i % axes;
      int64_t first = sets > 1 ? set : 0, last = sets > 1 ? set + 1 : batches;
      double sum = sum_of(q, axes, takes_q ? of_q : 0, first, last, token, axis) +
                   sum_of(k, axes, takes_k ? of_k : 0, first, last, token, axis);
      uintptr_t at = view->base +
                     (uintptr_t)(set * view->stride[PEGEN_POSITION_BATCH] + token * view->stride[PEGEN_POSITION_TOKEN] +
                                 axis * view->stride[PEGEN_POSITION_AXIS]);
      pegen_gain((char *)at, tensor[own]->dtype.bits == 64, call->grad->flags & PEGEN_GRAD_ACCUMULATE, sum);
    }
  }
}
