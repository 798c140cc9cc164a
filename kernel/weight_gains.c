/* weight_gains.c: see weight_gains.h. */
#include "weight_gains.h"

void pegen_weights_begin(pegen_weights *w, const pegen_driver *driver, const pegen_args *args, const pegen_gradient *of,
                         int target, int64_t type, const pegen_view *input, const pegen_view *gain) {
  w->driver = driver;
  w->args = args;
  w->of = of;
  w->code = &of->targets[target];
  w->unweigh = w->code->unweigh[type];
  w->input = input;
  w->gain = gain;
  w->head = -1;
  w->work.adds = (args->grad->flags & PEGEN_GRAD_ACCUMULATE) != 0;
  w->work.prepared = w->prepared;
  w->work.sums = 0;
  for (int64_t i = 0; i < of->n_sums * w->lanes; i++) w->sums[i] = 0;
  for (int i = 0; i < driver->kernel->n_inputs; i++) {
    w->work.input_step[i] = input[i].stride[PEGEN_TOKEN];
    w->work.gain_step[i] = gain[i].empty ? 0 : gain[i].stride[PEGEN_TOKEN];
  }
}

static char *row_of(const pegen_view *view, int64_t batch, int64_t head) {
  return view->empty ? 0 : pegen_at(view, batch, head, 0);
}

void pegen_weights_set_head(pegen_weights *w, int64_t batch, int64_t head) {
  for (int i = 0; i < w->driver->kernel->n_inputs; i++) {
    w->input_row[i] = row_of(&w->input[i], batch, head);
    w->gain_row[i] = pegen_input_is_of_pairs(w->driver->kernel, i) ? 0 : row_of(&w->gain[i], batch, head);
  }
  if (w->head >= 0 && (w->head == head || !w->driver->per_head)) return;
  w->head = head;
  if (!w->code->prepare) return;
  pegen_gather_leaves(w->of->leaves, w->of->n_leaves, w->n_blocks, w->lanes, w->args, head, w->leaves);
  w->code->prepare(w->leaves, w->prepared);
}

void pegen_weights_run(pegen_weights *w, int64_t token, int64_t count) {
  pegen_weight_gains *work = &w->work;
  work->count = count;
  for (int i = 0; i < w->driver->kernel->n_inputs; i++) {
    work->input[i] = w->input_row[i] + token * work->input_step[i];
    work->gain[i] = w->gain_row[i] ? w->gain_row[i] + token * work->gain_step[i] : 0;
  }
  w->unweigh(work);
}

void pegen_weights_skip(pegen_weights *w, int64_t token, int64_t count) {
  if (w->work.adds) return;
  for (int i = 0; i < w->driver->kernel->n_inputs; i++)
    for (int64_t n = 0; n < count && w->gain_row[i]; n++) {
      char *row = w->gain_row[i] + (token + n) * w->work.gain_step[i];
      for (int64_t k = 0; k < w->gain[i].width; k++) row[k] = 0;
    }
}

void pegen_weights_add_head(pegen_weights *w, int64_t head, double *elements) {
  const pegen_gradient *of = w->of;
  if (!w->code->scatter) return;
  pegen_gather_leaves(of->scatter_leaves, of->n_scatter_leaves, w->n_blocks, w->lanes, w->args, head, w->leaves);
  w->code->scatter(w->leaves, w->sums, w->gained);
  for (int64_t i = 0; i < of->n_scatters; i++) {
    const pegen_leaf *leaf = &of->scatters[i];
    const int32_t *offsets = leaf->offsets + (leaf->n_heads > 1 ? head * w->n_blocks : 0);
    double *first = elements + pegen_elements_before(w->driver->kernel, leaf->operand);
    for (int64_t block = 0; block < w->n_blocks; block++) first[offsets[block]] += w->gained[i * w->lanes + block];
  }
  for (int64_t i = 0; i < of->n_sums * w->lanes; i++) w->sums[i] = 0;
}
