/* attention_gradients.c: the entries of attention's gradients. A call of sequences goes one by one, as windows of it
 * whose rooms in the workspace follow each other: a sequence's numbers are those of a call of its own, and what
 * operands gain is the sum over them in their order. Parts share each sequence. */
#include "attention.h"
#include "attention_backward.h"

/* A call's sequences, or the call. */
typedef struct windows {
  const pegen_driver *driver;
  const pegen_args *args;
  pegen_attention_backward_call *call; /* the window at hand */
  int64_t count, next;
  char *workspace; /* the window's */
} windows;

static void open_windows(windows *w, const pegen_driver *driver, const pegen_args *args,
                         pegen_attention_backward_call *call) {
  int64_t sequences = call->forward.bounds[0].sequences;
  w->driver = driver;
  w->args = args;
  w->call = call;
  w->count = sequences ? sequences : 1;
  w->next = 0;
  w->workspace = args->workspace;
}

static int next_window(windows *w) {
  int64_t at = w->next++;
  if (at == w->count) return 0;
  if (at) w->workspace += pegen_attention_sequence_bytes(w->driver, w->args, w->call);
  if (w->call->forward.bounds[0].sequences) pegen_attention_backward_go_to(w->driver, w->call, at ? at - 1 : 0, at);
  return 1;
}

int pegen_driver_attention_backward(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  pegen_attention_backward_call call;
  pegen_tuning tuning;
  windows w;
  PEGEN_TRY(pegen_check_attention_backward(driver, args, part, parts, 1, &call));
  int target = pegen_dispatch(driver, &tuning);
  if (target < 0) return PEGEN_ERROR_PROCESSOR;
  const pegen_attention *form = driver->form;
  if (!form->gradients[target].attend[call.forward.type]) return PEGEN_ERROR_DTYPE;
  open_windows(&w, driver, args, &call);
  while (next_window(&w)) { /* of few heads the first parts have more: others begin with each window */
    int turned = (int)((part + w.next) % parts);
    pegen_attention_backward_run(driver, args, &call, target, &tuning, w.count > 1 ? turned : part, parts, w.workspace);
  }
  return 0;
}

/* What operands' elements [begin, end) gain of a window: added to sums, [elements] of the part. */
static void add_chunks(const windows *w, int64_t begin, int64_t end, double *to) {
  pegen_attention_cut cut;
  pegen_attention_cut_of(w->driver, w->call, &cut);
  int64_t all = pegen_all_elements(w->driver->kernel);
  const double *sums = (const double *)(const void *)(w->workspace + pegen_attention_key_bytes(w->call));
  for (int64_t chunk = 0; chunk < cut.units * cut.chunks; chunk++)
    for (int64_t element = begin; element < end; element++) to[element - begin] += sums[chunk * all + element];
}

/* Elements of operands whose gradients are summed at a time, in an array on the stack. */
enum { ELEMENTS = 512 };

static void finish_operands(const pegen_driver *driver, const pegen_args *args, pegen_attention_backward_call *call,
                            int64_t begin, int64_t end) {
  double sums[ELEMENTS];
  windows w;
  for (int64_t i = 0; i < end - begin; i++) sums[i] = 0;
  open_windows(&w, driver, args, call);
  while (next_window(&w)) add_chunks(&w, begin, end, sums);
  if (w.count > 1) pegen_attention_backward_go_to(driver, call, w.count - 1, 0);
  int64_t before = 0;
  for (int i = 0; i < driver->kernel->n_operands; i++) {
    int64_t size = pegen_operand_elements(driver->kernel, i);
    const DLTensor *tensor = call->grad->operands[i];
    for (int64_t at = begin > before ? begin : before; tensor && at < before + size && at < end; at++)
      pegen_gain_element(tensor, at - before, call->grad->flags & PEGEN_GRAD_ACCUMULATE, sums[at - begin]);
    before += size;
  }
}

int pegen_driver_attention_backward_finish(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  pegen_attention_backward_call call;
  windows w;
  PEGEN_TRY(pegen_check_attention_backward(driver, args, part, parts, 1, &call));
  open_windows(&w, driver, args, &call);
  while (next_window(&w)) pegen_attention_finish_places(driver, args, &call, w.workspace, part, parts);
  if (!call.of_operands) return 0;
  if (w.count > 1) pegen_attention_backward_go_to(driver, &call, w.count - 1, 0);
  int64_t begin, end;
  pegen_share(pegen_all_elements(driver->kernel), part, parts, &begin, &end);
  for (; begin < end; begin += ELEMENTS)
    finish_operands(driver, args, &call, begin, begin + ELEMENTS < end ? begin + ELEMENTS : end);
  return 0;
}

size_t pegen_driver_attention_backward_workspace(const pegen_driver *driver, const pegen_args *args) {
  pegen_attention_backward_call call;
  if (pegen_check_attention_backward(driver, args, 0, 1, 0, &call)) return 0;
  int64_t bytes = pegen_attention_backward_bytes(driver, args, &call);
  return bytes < 0 ? 0 : (size_t)bytes;
}
