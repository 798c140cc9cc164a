#include "call.h"

#include <stdlib.h>
#include <string.h>

bool sample_has(const pegen_kernel *kernel, entry_kind kind) {
  pegen_entry *const entries[] = {kernel->encode, kernel->encode_backward, kernel->attention,
                                  kernel->attention_backward};
  return entries[kind] != NULL;
}

/* ---- tensors of other shapes ---- */

static DLTensor *strided_copy(arena *a, const DLTensor *of) {
  DLTensor *t = arena_new(a, DLTensor);
  *t = *of;
  t->shape = arena_array(a, int64_t, of->ndim + 1);
  t->strides = arena_array(a, int64_t, of->ndim + 1);
  int64_t step = 1;
  for (int i = of->ndim - 1; i >= 0; step *= of->shape[i--]) {
    t->shape[i] = of->shape[i];
    t->strides[i] = of->strides ? of->strides[i] : step;
  }
  return t;
}

DLTensor *without_batch(arena *a, const DLTensor *rows) {
  static const int from[] = {2, 1, 3};
  const DLTensor *of = strided_copy(a, rows);
  DLTensor *t = strided_copy(a, rows);
  t->ndim--;
  for (int i = 0; i < t->ndim; i++) t->shape[i] = of->shape[from[i]], t->strides[i] = of->strides[from[i]];
  return t;
}

DLTensor *without_axes(arena *a, const DLTensor *positions) {
  DLTensor *t = strided_copy(a, positions);
  t->ndim--;
  return t;
}

DLTensor *slice(arena *a, const DLTensor *of, int dim, int64_t begin, int64_t end, int64_t step) {
  DLTensor *t = strided_copy(a, of);
  t->byte_offset += (uint64_t)(begin * t->strides[dim] * (t->dtype.bits / 8));
  t->shape[dim] = (end - begin + step - 1) / step;
  t->strides[dim] *= step;
  return t;
}

/* ---- a call ---- */

static DLTensor *writes(sample *s, DLTensor *t) {
  assert_true(s->n_written < MOST_WRITTEN);
  return s->written[s->n_written++] = t;
}

static DLTensor *like(sample *s, number_type type, const DLTensor *of) {
  int64_t count = 1;
  for (int i = 0; i < of->ndim; i++) count *= of->shape[i];
  double *zeros = arena_array(s->f->memory, double, count + 1);
  memset(zeros, 0, (size_t)count * sizeof *zeros);
  return writes(s, tensor_contiguous(s->f->memory, type, of->ndim, of->shape, zeros));
}

static DLTensor *rows(sample *s, number_type type, int64_t heads, int64_t tokens, int64_t channels) {
  row_order order = (row_order)random_below(&s->f->random, ROW_ORDER_COUNT);
  DLTensor *t = tensor_rows(s->f->memory, type, order, s->sizes.batch, heads, tokens, channels);
  tensor_randomize(t, &s->f->random);
  return t;
}

static DLTensor *of_queries(sample *s, number_type type, int64_t channels) {
  return rows(s, type, s->sizes.heads, s->sizes.tokens, channels);
}

static DLTensor *of_keys(sample *s, number_type type, int64_t channels) {
  return rows(s, type, s->sizes.k_heads, s->sizes.keys, channels);
}

static void set_common(sample *s, number_type type) {
  fixture *f = s->f;
  const spec *of = f->spec;
  int64_t batch = s->sizes.by_batch ? s->sizes.batch : 0;
  trial_inputs inputs =
      trial_random_inputs(f->memory, of, type, s->sizes.batch, s->sizes.heads, s->sizes.tokens, &f->random);
  s->args = (pegen_args){.struct_size = sizeof s->args,
                         .n_operands = s->kernel->n_operands,
                         .operands = trial_random_operands(f->memory, of, NUMBER_F32, &f->random).tensors,
                         .n_inputs = s->kernel->n_inputs,
                         .inputs = inputs.tensors};
  if (of->n_axes && !s->kernel->grid) s->args.positions = fixture_positions(f, NUMBER_F32, batch, s->sizes.tokens);
  if (of->n_axes && !s->kernel->grid && !s->sizes.same_places)
    s->args.k_positions = fixture_positions(f, NUMBER_I32, batch, s->sizes.keys);
  s->grad = (pegen_grad_args){.struct_size = sizeof s->grad};
}

static void set_encode(sample *s, number_type type) {
  int64_t wide = s->kernel->widths ? s->kernel->widths[type].out_dim : s->kernel->out_dim, narrow = s->kernel->head_dim;
  s->args.q = of_queries(s, type, narrow);
  s->args.k = of_keys(s, type, narrow);
  if (s->kind == ENCODE) {
    s->args.q_out = writes(s, of_queries(s, type, wide));
    s->args.k_out = writes(s, of_keys(s, type, wide));
    return;
  }
  s->grad.flags = wide == narrow ? PEGEN_GRAD_FROM_INPUT : 0;
  s->grad.q_out = of_queries(s, type, wide);
  s->grad.k_out = of_keys(s, type, wide);
  s->grad.q = writes(s, of_queries(s, type, narrow));
  s->grad.k = writes(s, of_keys(s, type, narrow));
}

static void set_attention(sample *s, number_type type) {
  int64_t dim = s->kernel->head_dim, value_dim = s->f->spec->pairwise->value_dim;
  s->args.q = of_queries(s, type, dim);
  s->args.k = of_keys(s, type, dim);
  s->args.v = of_keys(s, type, value_dim);
  s->args.out = of_queries(s, type, value_dim);
  int64_t shape[] = {s->sizes.batch, s->sizes.heads, s->sizes.tokens};
  DLTensor of_lse = {.ndim = 3, .shape = shape};
  s->args.lse = like(s, NUMBER_F32, &of_lse);
  if (s->kind == ATTENTION) {
    writes(s, s->args.out);
    return;
  }
  if (!s->sizes.is_later) assert_int_equal(s->kernel->attention(&s->args, 0, 1), 0);
  s->n_written = 0;
  s->grad.out = of_queries(s, type, value_dim);
  s->grad.q = writes(s, of_queries(s, type, dim));
  s->grad.k = writes(s, of_keys(s, type, dim));
  s->grad.v = writes(s, of_keys(s, type, value_dim));
}

static pegen_entry *entry_of(const sample *s) {
  pegen_entry *const entries[] = {s->kernel->encode, s->kernel->encode_backward, s->kernel->attention,
                                  s->kernel->attention_backward};
  return entries[s->kind];
}

/* Whether a gradient is had: a call for it that lacks rows is refused for that. */
static bool gains(const sample *s, DLTensor *const *operands, DLTensor *const *inputs, DLTensor *positions,
                  DLTensor *k_positions) {
  pegen_grad_args grad = {.struct_size = sizeof grad,
                          .operands = operands,
                          .inputs = inputs,
                          .positions = positions,
                          .k_positions = k_positions};
  if (s->kind == ENCODE_BACKWARD) grad.q_out = s->grad.q_out, grad.k_out = s->grad.k_out;
  pegen_args args = s->args;
  args.grad = &grad;
  args.workspace = NULL;
  return entry_of(s)(&args, 0, 1) != PEGEN_ERROR_NO_GRADIENT;
}

static void set_gradients(sample *s, number_type type) {
  for (int i = 0; i < s->kernel->n_operands; i++) {
    int before = s->n_written;
    DLTensor *one[8] = {NULL};
    one[i] = like(s, NUMBER_F64, s->args.operands[i]);
    if (gains(s, one, NULL, NULL, NULL)) s->operand_gradients[i] = one[i], s->grad.operands = s->operand_gradients;
    else s->n_written = before;
  }
  for (int i = 0; i < s->kernel->n_inputs; i++) {
    int before = s->n_written;
    DLTensor *one[8] = {NULL};
    one[i] = like(s, type, s->args.inputs[i]);
    if (gains(s, NULL, one, NULL, NULL)) s->input_gradients[i] = one[i], s->grad.inputs = s->input_gradients;
    else s->n_written = before;
  }
  for (int own = 0; own < 2; own++) {
    const DLTensor *of = own ? s->args.k_positions : s->args.positions;
    int before = s->n_written;
    DLTensor *one = of ? like(s, own ? NUMBER_F32 : NUMBER_F64, of) : NULL;
    if (!one || !gains(s, NULL, NULL, own ? NULL : one, own ? one : NULL)) s->n_written = before;
    else if (own) s->grad.k_positions = one;
    else s->grad.positions = one;
  }
}

void sample_make(sample *s, fixture *f, const pegen_kernel *kernel, entry_kind kind, number_type type,
                 const sizes *sizes) {
  *s = (sample){.f = f, .kernel = kernel, .kind = kind, .sizes = *sizes};
  set_common(s, type);
  (kind == ENCODE || kind == ENCODE_BACKWARD ? set_encode : set_attention)(s, type);
  if (kind == ENCODE_BACKWARD || kind == ATTENTION_BACKWARD) {
    set_gradients(s, type);
    s->args.grad = &s->grad;
  }
  sample_take(s);
}

static int run_parts(pegen_entry *entry, const pegen_args *args, int parts) {
  int error = 0;
  for (int part = parts - 1; part >= 0; part--) {
    int failed = entry(args, part, parts);
    if (failed) error = failed;
  }
  return error;
}

int sample_run(const sample *s, const pegen_args *given, int parts) {
  pegen_args args = *given;
  pegen_workspace_entry *size = s->kind == ENCODE_BACKWARD      ? s->kernel->encode_backward_workspace
                                : s->kind == ATTENTION_BACKWARD ? s->kernel->attention_backward_workspace
                                                                : s->kernel->workspace;
  pegen_entry *finish = s->kind == ENCODE_BACKWARD      ? s->kernel->encode_backward_finish
                        : s->kind == ATTENTION_BACKWARD ? s->kernel->attention_backward_finish
                                                        : NULL;
  args.workspace_bytes = size(&args);
  args.workspace = malloc(args.workspace_bytes + 8);
  assert_non_null(args.workspace);
  memset(args.workspace, 0xff, args.workspace_bytes); /* NaN */
  int error = run_parts(entry_of(s), &args, parts);
  if (!error && finish) error = run_parts(finish, &args, parts);
  free(args.workspace);
  return error;
}

/* ---- what was written ---- */

static size_t bytes_of(const DLTensor *t) {
  size_t last = 1, step = 1; /* elements up to the last, gaps included */
  for (int i = t->ndim - 1; i >= 0; i--) {
    if (!t->shape[i]) return 0;
    last += (size_t)(t->shape[i] - 1) * (t->strides ? (size_t)t->strides[i] : step);
    step *= (size_t)t->shape[i];
  }
  return last * t->dtype.bits / 8;
}

void *sample_take(sample *s) {
  size_t all = 0, at = 0;
  for (int i = 0; i < s->n_written; i++) all += bytes_of(s->written[i]);
  char *taken = arena_alloc(s->f->memory, all + 1);
  for (int i = 0; i < s->n_written; at += bytes_of(s->written[i++])) {
    memcpy(taken + at, s->written[i]->data, bytes_of(s->written[i]));
    memset(s->written[i]->data, 0x11, bytes_of(s->written[i])); /* gaps, too */
  }
  return taken;
}

bool sample_is(const sample *s, const void *taken) {
  size_t at = 0;
  for (int i = 0; i < s->n_written; at += bytes_of(s->written[i++]))
    if (memcmp((const char *)taken + at, s->written[i]->data, bytes_of(s->written[i]))) return false;
  return true;
}

/* ---- other shapes ---- */

static DLTensor *flat(const sample *s, const DLTensor *t) { return t ? without_batch(s->f->memory, t) : NULL; }
static DLTensor *bare(const sample *s, const DLTensor *t) { return t ? without_axes(s->f->memory, t) : NULL; }

static DLTensor **flat_inputs(const sample *s, const DLTensor *const *inputs) {
  DLTensor **to = arena_array(s->f->memory, DLTensor *, s->kernel->n_inputs + 1);
  for (int i = 0; i < s->kernel->n_inputs; i++) to[i] = flat(s, inputs[i]);
  return to;
}

void sample_reshape(sample *s, bool is_flat, bool is_bare, reshaped *to) {
  to->args = s->args;
  to->grad = s->grad;
  pegen_args *args = &to->args;
  pegen_grad_args *grad = &to->grad;
  if (args->grad) args->grad = grad;
  if (is_flat) {
    const DLTensor **read[] = {&args->q, &args->k, &args->v, &grad->q_out, &grad->k_out, &grad->out};
    DLTensor **written[] = {&args->q_out, &args->k_out, &args->out, &args->lse, &grad->q, &grad->k, &grad->v};
    for (size_t i = 0; i < sizeof read / sizeof *read; i++) *read[i] = flat(s, *read[i]);
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) *written[i] = flat(s, *written[i]);
    args->inputs = (const DLTensor *const *)flat_inputs(s, args->inputs);
    if (grad->inputs) grad->inputs = flat_inputs(s, (const DLTensor *const *)grad->inputs);
  }
  if (!is_bare) return;
  args->positions = bare(s, args->positions);
  args->k_positions = bare(s, args->k_positions);
  grad->positions = bare(s, grad->positions);
  grad->k_positions = bare(s, grad->k_positions);
}
