/* finish.c: how backward entries begin, what positions gain, and from chunks' sums to operands; see finish.h. */
#include "finish.h"

size_t pegen_backward_needs(const pegen_driver *driver, const pegen_backward_facts *facts, const pegen_args *args) {
  pegen_backward_call call;
  if (pegen_check_backward(driver, facts, args, 0, 1, 0, &call)) return 0;
  return (size_t)pegen_backward_workspace(driver, &call);
}

/* ---- positions ---- */

void pegen_driver_position_gradient(const pegen_gradient_loop *loop, int64_t token, int64_t axes,
                                    const double *gained) {
  char *at = loop->positions + token * loop->position_token;
  for (int64_t axis = 0; axis < axes; axis++, at += loop->position_axis)
    pegen_gain(at, loop->position_is_f64, loop->position_adds, gained[axis]);
}

void pegen_clear(char *at, int64_t bytes) {
  double *sums = (double *)at;
  for (int64_t i = 0; i < bytes / 8; i++) sums[i] = 0;
}

static void gain_nothing(const pegen_backward_call *call, int which, int part, int parts) {
  const pegen_view *positions = &call->positions[which];
  int64_t begin, end;
  if (positions->empty || (call->grad->flags & PEGEN_GRAD_ACCUMULATE)) return;
  if (!pegen_share(positions->size[PEGEN_POSITION_TOKEN], part, parts, &begin, &end)) return;
  for (int64_t batch = 0; batch < positions->size[PEGEN_POSITION_BATCH]; batch++)
    for (int64_t token = begin; token < end; token++)
      for (int64_t axis = 0; axis < positions->size[PEGEN_POSITION_AXIS]; axis++)
        pegen_gain(pegen_at(positions, batch, token, axis), call->position_is_f64[which], 0, 0);
}

void pegen_gain_without_rows(const pegen_backward_call *call, int part, int parts) {
  for (int s = 0; s < 2; s++) {
    int others = s == 0 && !call->args.k_positions && pegen_has_rows(call, 1); /* k's rows are at q's positions */
    if (!pegen_has_rows(call, s) && !others) gain_nothing(call, s, part, parts);
  }
}

/* ---- finish ---- */

int64_t pegen_finish_line(const pegen_finish *f, int64_t operand) {
  int64_t at = 0;
  for (int64_t i = 0; i < operand; i++)
    if (f->call->grad->operands[i]) at += pegen_operand_elements(f->driver->kernel, (int)i);
  return at;
}

static const int32_t *offsets_of(const pegen_finish *f, const pegen_leaf *leaf, int64_t head) {
  return leaf->offsets + (leaf->n_heads > 1 ? head * f->n_blocks : 0);
}

/* Adds what blocks gain to the part's elements; NULL: only whether there are any. */
static int add_scatter(const pegen_finish *f, const pegen_leaf *leaf, int64_t head, const double *gained) {
  int64_t n_blocks = f->n_blocks, first = pegen_finish_line(f, leaf->operand);
  const int32_t *offsets = offsets_of(f, leaf, head);
  int any = 0;
  if (!f->call->grad->operands[leaf->operand]) return 0;
  for (int64_t block = 0; block < n_blocks; block++) {
    int64_t at = first + offsets[block];
    if (offsets[block] < 0 || at < f->begin || at >= f->end) continue;
    if (gained) f->elements[at] += gained[block];
    any = 1;
  }
  return any;
}

/* A head's sums over all chunks, in their order. */
static void sum_chunks(const pegen_finish *f, int64_t at, int64_t count) {
  int64_t chunks = pegen_backward_chunks(f->call), step = f->call->facts->sums_bytes / 8;
  const double *from = (const double *)f->args->workspace + at;
  for (int64_t i = 0; i < count; i++) f->sums[i] = from[i];
  for (int64_t chunk = 1; chunk < chunks; chunk++)
    for (int64_t i = 0; i < count; i++) f->sums[i] += from[chunk * step + i];
}

void pegen_finish_head(const pegen_finish *f, int64_t head, int64_t at) {
  const pegen_gradient *of = f->of;
  int64_t count = of->n_sums * f->lanes;
  double *gained = f->sums + count;
  int any = 0;
  for (int64_t i = 0; i < of->n_scatters; i++) any |= add_scatter(f, &of->scatters[i], head, 0);
  if (!any) return;
  double *leaves = PEGEN_STACK(sizeof(double) * (size_t)(of->n_scatter_leaves * f->lanes) + 64);
  sum_chunks(f, at, count);
  pegen_gather_leaves(of->scatter_leaves, of->n_scatter_leaves, f->n_blocks, f->lanes, f->args, head, leaves);
  f->code->scatter(leaves, f->sums, gained);
  for (int64_t i = 0; i < of->n_scatters; i++) add_scatter(f, &of->scatters[i], head, gained + i * f->lanes);
}

void pegen_finish_store(const pegen_finish *f) {
  const pegen_grad_args *grad = f->call->grad;
  for (int i = 0; i < f->driver->kernel->n_operands; i++) {
    const DLTensor *tensor = grad->operands[i];
    int64_t first = pegen_finish_line(f, i), size = tensor ? pegen_operand_elements(f->driver->kernel, i) : 0;
    for (int64_t k = 0; k < size; k++)
      if (first + k >= f->begin && first + k < f->end)
        pegen_gain_element(tensor, k, grad->flags & PEGEN_GRAD_ACCUMULATE, f->elements[first + k]);
  }
}

int pegen_finish_begin(pegen_finish *f, const pegen_driver *driver, const pegen_args *args,
                       const pegen_backward_call *call, int part, int parts) {
  f->driver = driver;
  f->args = args;
  f->call = call;
  if (!call->of_operands || part >= PEGEN_FINISHERS) return 0;
  if (parts > PEGEN_FINISHERS) parts = PEGEN_FINISHERS;
  if (!pegen_share(pegen_finish_line(f, driver->kernel->n_operands), part, parts, &f->begin, &f->end)) return 0;
  char *elements = (char *)args->workspace + pegen_backward_chunks(call) * call->facts->sums_bytes;
  f->elements = (double *)elements;
  f->sums = (double *)(elements + pegen_all_elements(driver->kernel) * 8 + part * call->facts->finish_bytes);
  pegen_clear((char *)(f->elements + f->begin), (f->end - f->begin) * 8);
  return 1;
}

void pegen_finish_heads(pegen_finish *f, int target) {
  f->code = &f->of->targets[target];
  for (int64_t head = 0; head < pegen_heads_apart(f->driver); head++)
    pegen_finish_head(f, head, head * f->of->n_sums * f->lanes);
  pegen_finish_store(f);
}
