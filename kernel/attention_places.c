/* attention_places.c: from what coordinates gain in each head to what positions, and inputs of scores, gain: sums over
 * heads, and over batches, that share them, in order. */
#include "attention_row_gains.h"

/* What coordinates of queries, or of keys, gained; or elements of rows. */
typedef struct place_sums {
  const double *at; /* [B][H][tokens][n]; NULL: nothing */
  int64_t heads, tokens, n;
} place_sums;

static place_sums sums_of(const pegen_driver *driver, const pegen_args *args, const pegen_attention_backward_call *call,
                          char *workspace, int of_keys) {
  int64_t sizes[PEGEN_VIEW_DIMS];
  const pegen_attention *form = driver->form;
  pegen_attention_place_sizes(driver, call, of_keys, sizes);
  return (place_sums){pegen_attention_place_sums(driver, args, call, workspace, of_keys), sizes[PEGEN_HEAD],
                      sizes[PEGEN_TOKEN], form->n_sums};
}

static place_sums rows_of(const pegen_attention_backward_call *call, const pegen_row_gains *g) {
  return (place_sums){g->at, call->forward.q.size[PEGEN_HEAD], g->rows, g->pitch};
}

/* The sum over heads [of, end) of a token's coordinate in batches [first, last). */
static double sum_of(const place_sums *s, int64_t first, int64_t last, int64_t of, int64_t end, int64_t token,
                     int64_t axis) {
  double sum = 0;
  for (int64_t batch = first; s->at && batch < last; batch++)
    for (int64_t head = of; head < end; head++)
      sum += s->at[((batch * s->heads + head) * s->tokens + token) * s->n + axis];
  return sum;
}

/* The sum over the heads and batches that share a token's row of an input. */
static double shared_sum(const place_sums *s, const pegen_view *view, int64_t batches, int64_t batch, int64_t head,
                         int64_t token, int64_t number) {
  int64_t is_shared = view->size[PEGEN_BATCH] == 1, group = s->heads / view->size[PEGEN_HEAD];
  return sum_of(s, is_shared ? 0 : batch, is_shared ? batches : batch + 1, head * group, (head + 1) * group, token,
                number);
}

/* Part `part` of `parts`, by tokens, of what input `input` gains: of numbers, and of rows that were kept. */
static void finish_input(const pegen_driver *driver, const pegen_args *args, const pegen_attention_backward_call *call,
                         char *workspace, int input, int part, int parts) {
  const pegen_attention *form = driver->form;
  const pegen_view *view = &call->g_input[input];
  int of_keys = pegen_input_is_of_keys(driver->kernel, input);
  int64_t size = driver->kernel->inputs[input].size, batches = call->forward.q.size[PEGEN_BATCH], begin, end,
          own = form->placed ? driver->kernel->n_axes : 0;
  pegen_row_gains g = pegen_attention_row_gains(driver, args, call, workspace, of_keys);
  place_sums s = sums_of(driver, args, call, workspace, of_keys), rows = rows_of(call, &g);
  int has_rows = pegen_reads_numbers(form, input, 1);
  if (g.at && !g.is_kept && has_rows) return;
  int64_t first = has_rows ? pegen_row_gains_first(driver, &g, input) : -1;
  pegen_share(view->size[PEGEN_TOKEN], part, parts, &begin, &end);
  for (int64_t batch = 0; batch < view->size[PEGEN_BATCH]; batch++)
    for (int64_t head = 0; head < view->size[PEGEN_HEAD]; head++)
      for (int64_t token = begin; token < end; token++)
        for (int64_t element = 0; element < (size ? size : 1); element++) {
          char *row = pegen_at(view, batch, head, token);
          double sum = first < 0 ? 0 : shared_sum(&rows, view, batches, batch, head, token, first + element);
          for (int64_t i = 0; i < form->n_numbers; i++) {
            const pegen_attention_number *n = &form->numbers[i];
            if (n->input == input && n->kind != PEGEN_READS_ROW && n->element == element)
              sum += shared_sum(&s, view, batches, batch, head, token, own + i);
          }
          pegen_gain(row + element * (int64_t)sizeof(float), 0, call->grad->flags & PEGEN_GRAD_ACCUMULATE, sum);
        }
}

void pegen_attention_finish_places(const pegen_driver *driver, const pegen_args *args,
                                   const pegen_attention_backward_call *call, char *workspace, int part, int parts) {
  const DLTensor *tensor[] = {call->grad->positions, call->grad->k_positions};
  place_sums of_q = sums_of(driver, args, call, workspace, 0), of_k = sums_of(driver, args, call, workspace, 1), none;
  int64_t axes = driver->kernel->n_axes, batches = call->forward.q.size[PEGEN_BATCH], begin, end;
  none = of_q;
  none.at = 0;
  for (int i = 0; i < driver->kernel->n_inputs; i++)
    if (pegen_input_is_of_pairs(driver->kernel, i) && driver->kernel->inputs[i].size >= 0 && !call->g_input[i].empty)
      finish_input(driver, args, call, workspace, i, part, parts);
  for (int own = 0; own < 2; own++) {
    const pegen_view *view = &call->g_positions[own];
    int takes_q = !own, takes_k = own || !args->k_positions;
    if (view->empty) continue;
    int64_t sets = view->size[PEGEN_POSITION_BATCH], tokens = view->size[PEGEN_POSITION_TOKEN];
    pegen_share(tokens, part, parts, &begin, &end);
    for (int64_t i = 0; i < sets * (end - begin) * axes; i++) {
      int64_t set = i / ((end - begin) * axes), token = begin + i / axes % (end - begin), axis = i % axes;
      int64_t first = sets > 1 ? set : 0, last = sets > 1 ? set + 1 : batches;
      double sum = sum_of(takes_q ? &of_q : &none, first, last, 0, of_q.heads, token, axis) +
                   sum_of(takes_k ? &of_k : &none, first, last, 0, of_k.heads, token, axis);
      pegen_gain(pegen_at(view, set, token, axis), tensor[own]->dtype.bits == 64,
                 call->grad->flags & PEGEN_GRAD_ACCUMULATE, sum);
    }
  }
}
