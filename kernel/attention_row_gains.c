/* attention_row_gains.c: see attention_row_gains.h. */
#include "attention_row_gains.h"

int pegen_reads_numbers(const pegen_attention *form, int64_t input, int at_places) {
  int reads = 0;
  for (int64_t i = 0; i < form->n_numbers; i++)
    reads |= form->numbers[i].input == input && (form->numbers[i].kind == PEGEN_READS_ROW) == at_places;
  return reads;
}

/* Whether an input has rows of that side. */
static int has_rows(const pegen_driver *driver, int input, int of_keys) {
  return pegen_reads_numbers(driver->form, input, 1) && pegen_input_is_of_keys(driver->kernel, input) == of_keys;
}

/* Whether each row of an input is of one head and batch, and has no other numbers. */
static int is_own(const pegen_driver *driver, const pegen_attention_backward_call *call, int input) {
  const pegen_view *view = &call->g_input[input], *q = &call->forward.q;
  return view->size[PEGEN_HEAD] == q->size[PEGEN_HEAD] && view->size[PEGEN_BATCH] == q->size[PEGEN_BATCH] &&
         !pegen_reads_numbers(driver->form, input, 0);
}

/* Rows of queries are added to all at once, one number each: an odd number of lines apart, they are in all sets of a
 * cache. Emitted code goes through rows of keys, which follow each other without gaps. */
static int64_t pitch_of(int64_t elements, int of_keys) {
  enum { LINE = 8 };
  return of_keys ? elements : ((elements + LINE - 1) / LINE | 1) * LINE;
}

pegen_row_gains pegen_row_gains_of(const pegen_driver *driver, const pegen_attention_backward_call *call, int of_keys) {
  const pegen_view *tokens = of_keys ? &call->forward.k : &call->forward.q;
  pegen_row_gains g = {.of_keys = of_keys};
  int is_wanted = 0;
  for (int i = 0; i < driver->kernel->n_inputs; i++) {
    if (!has_rows(driver, i, of_keys)) continue;
    g.elements += driver->kernel->inputs[i].size;
    if (call->g_input[i].empty) continue;
    is_wanted = 1;
    g.is_kept |= !is_own(driver, call, i);
  }
  if (!is_wanted || tokens->empty) return (pegen_row_gains){.of_keys = of_keys};
  g.rows = tokens->size[PEGEN_TOKEN];
  g.pitch = pitch_of(g.elements, of_keys);
  return g;
}

int64_t pegen_row_gains_bytes(const pegen_driver *driver, const pegen_attention_backward_call *call, int of_keys) {
  const pegen_view *q = &call->forward.q;
  pegen_row_gains g = pegen_row_gains_of(driver, call, of_keys);
  int64_t bytes = g.pitch * (int64_t)sizeof(double), by[] = {g.rows, q->size[PEGEN_HEAD], q->size[PEGEN_BATCH]};
  for (int i = 0; i < 3; i++)
    if (__builtin_mul_overflow(bytes, by[i], &bytes)) return -1;
  return bytes;
}

int64_t pegen_row_gains_first(const pegen_driver *driver, const pegen_row_gains *g, int64_t input) {
  int64_t first = 0;
  for (int i = 0; i < input; i++)
    if (has_rows(driver, i, g->of_keys)) first += driver->kernel->inputs[i].size;
  return first;
}

void pegen_row_gains_store(const pegen_driver *driver, const pegen_row_gains *g,
                           const pegen_attention_backward_call *call, int64_t batch, int64_t head, int64_t token,
                           const double *row) {
  int64_t adds = call->grad->flags & PEGEN_GRAD_ACCUMULATE;
  for (int i = 0; i < driver->kernel->n_inputs; i++) {
    if (!has_rows(driver, i, g->of_keys)) continue;
    int64_t size = driver->kernel->inputs[i].size;
    float *to = call->g_input[i].empty ? 0 : (float *)(void *)pegen_at(&call->g_input[i], batch, head, token);
    for (int64_t n = 0; to && n < size; n++) to[n] = (float)(adds ? to[n] + row[n] : row[n]);
    row += size;
  }
}
