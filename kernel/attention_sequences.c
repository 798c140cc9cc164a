/* attention_sequences.c: sequences of different lengths in one call, as rows [total,H,D] that follow each other.
 *
 * What is checked is the call of one batch that all rows make together, and the boundaries beside it. Then each
 * sequence is a window of it: the views of rows, places and inputs begin at its first token and are as long as it is,
 * and what walks them knows nothing of others. So its numbers are those of a call of its own.
 */
#include "attention_sequences.h"

/* ---- [total,H,D] as [1,H,total,D] ---- */

typedef struct rows {
  DLTensor tensor;
  int64_t shape[4], stride[4];
} rows;

/* Tensors of a call that have rows of tokens, as those of one batch. */
typedef struct flat {
  pegen_args args;
  rows q, k, v, out, lse, input[PEGEN_MAX_INPUTS];
  const DLTensor *inputs[PEGEN_MAX_INPUTS];
} flat;

/* Dimensions [total,H] or [total,H,size]. */
static int flatten(rows *to, const DLTensor *of, int rank) {
  if (of->ndim != rank) return PEGEN_ERROR_RANK;
  if (!of->shape) return PEGEN_ERROR_NULL_SHAPE;
  static const int from[] = {-1, 1, 0, 2};
  int64_t contiguous[3];
  for (int i = 0; i < rank; i++)
    if (of->shape[i] < 0) return PEGEN_ERROR_NEGATIVE_SIZE;
  contiguous[2] = 1;
  contiguous[1] = rank > 2 ? of->shape[2] : 1;
  if (__builtin_mul_overflow(of->shape[1], contiguous[1], &contiguous[0])) return PEGEN_ERROR_SIZE_OVERFLOW;
  to->shape[0] = 1;
  to->stride[0] = 0;
  for (int i = 1; i <= rank; i++) {
    to->shape[i] = of->shape[from[i]];
    to->stride[i] = of->strides ? of->strides[from[i]] : contiguous[from[i]];
  }
  DLTensor *tensor = &to->tensor;
  tensor->data = of->data;
  tensor->device.device_type = of->device.device_type;
  tensor->device.device_id = of->device.device_id;
  tensor->ndim = rank + 1;
  tensor->dtype.code = of->dtype.code;
  tensor->dtype.bits = of->dtype.bits;
  tensor->dtype.lanes = of->dtype.lanes;
  tensor->shape = to->shape;
  tensor->strides = to->stride;
  tensor->byte_offset = of->byte_offset;
  return 0;
}

static int flatten_inputs(flat *f, const pegen_kernel *kernel) {
  const DLTensor *const *inputs = f->args.inputs;
  for (int i = 0; i < kernel->n_inputs; i++) {
    int error = flatten(&f->input[i], inputs[i], kernel->inputs[i].size ? 3 : 2);
    if (error) return error == PEGEN_ERROR_RANK ? PEGEN_ERROR_INPUT_SHAPE : error;
    f->inputs[i] = &f->input[i].tensor;
  }
  f->args.inputs = f->inputs;
  return 0;
}

static int flatten_call(flat *f, const pegen_driver *driver, const pegen_args *args) {
  uint64_t *to = (uint64_t *)&f->args;
  const uint64_t *from = (const uint64_t *)args;
  for (size_t i = 0; i < sizeof *args / sizeof *to; i++) to[i] = i < args->struct_size / sizeof *to ? from[i] : 0;
  f->args.struct_size = sizeof *args;
  f->args.cu_seqlens = f->args.k_cu_seqlens = 0;
  f->args.split_keys = 0;
  if (!args->q || !args->k || !args->v || !args->out) return PEGEN_ERROR_MISSING_TENSOR;
  int error = pegen_check_inputs_given(driver->kernel, args);
  if (error || (error = flatten(&f->q, args->q, 3)) != 0 || (error = flatten(&f->k, args->k, 3)) != 0 ||
      (error = flatten(&f->v, args->v, 3)) != 0 || (error = flatten(&f->out, args->out, 3)) != 0)
    return error;
  f->args.q = &f->q.tensor;
  f->args.k = &f->k.tensor;
  f->args.v = &f->v.tensor;
  f->args.out = &f->out.tensor;
  if (f->args.lse && (error = flatten(&f->lse, f->args.lse, 2)) != 0) return PEGEN_ERROR_LSE;
  if (f->args.lse) f->args.lse = &f->lse.tensor;
  return flatten_inputs(f, driver->kernel);
}

/* ---- boundaries ---- */

/* Where sequences begin, and where the last one ends. */
typedef struct bounds {
  const int32_t *at;
  int64_t sequences;
  pegen_view view;
} bounds;

static int read_bounds(const DLTensor *of, int64_t total, bounds *b) {
  if (!of || of->ndim != 1 || !of->shape || of->shape[0] < 1 || !pegen_one_of(of, kDLInt, 32) ||
      (of->strides && of->shape[0] > 1 && of->strides[0] != 1))
    return PEGEN_ERROR_SEQUENCES;
  if (!pegen_on_host(of)) return PEGEN_ERROR_DEVICE;
  int error = pegen_view_contiguous(of, &b->view);
  if (error) return error;
  b->at = (const int32_t *)b->view.base;
  b->sequences = of->shape[0] - 1;
  int64_t wrong = b->at[0] != 0 || b->at[b->sequences] != total;
  for (int64_t i = 0; i < b->sequences; i++) wrong |= b->at[i] > b->at[i + 1];
  return wrong ? PEGEN_ERROR_SEQUENCES : 0;
}

/* ---- one call ---- */

typedef struct ragged {
  const pegen_driver *driver;
  flat flat;
  pegen_attention_call call; /* a sequence's window */
  bounds q, k;
  int target;
  int64_t sequence; /* the window's */
  int64_t before;   /* work of the sequences before it */
} ragged;

static int check(ragged *r, const pegen_args *args, int part, int parts) {
  int error =
      args ? pegen_check_struct(args, args->struct_size, PEGEN_ARGS_FIRST_SIZE, sizeof *args) : PEGEN_ERROR_NULL_ARGS;
  if (error || (error = flatten_call(&r->flat, r->driver, args)) != 0 ||
      (error = pegen_check_attention(r->driver, &r->flat.args, part, parts, &r->call)) != 0)
    return error;
  const pegen_attention_call *c = &r->call;
  const DLTensor *of_keys = args->k_cu_seqlens ? args->k_cu_seqlens : args->cu_seqlens;
  if ((error = read_bounds(args->cu_seqlens, c->q.size[PEGEN_TOKEN], &r->q)) != 0 ||
      (error = read_bounds(of_keys, c->k.size[PEGEN_TOKEN], &r->k)) != 0)
    return error;
  if (r->q.sequences != r->k.sequences) return PEGEN_ERROR_SEQUENCES;
  const pegen_attention *form = r->driver->form; /* the grid's points are of one sequence */
  if (form->placed && (c->position_type < 0 || c->k_position_type < 0) && r->q.sequences > 1)
    return PEGEN_ERROR_SEQUENCES;
  int meets = pegen_views_meet(&c->out, &r->q.view) || pegen_views_meet(&c->out, &r->k.view) ||
              (!c->lse.empty && (pegen_views_meet(&c->lse, &r->q.view) || pegen_views_meet(&c->lse, &r->k.view)));
  return meets ? PEGEN_ERROR_OVERLAP : 0;
}

typedef struct step {
  const bounds *of;
  int64_t from, to; /* sequences */
} step;

static void move(pegen_view *view, int dim, const step *s) {
  const int32_t *at = s->of->at;
  view->base += (uintptr_t)((at[s->to] - at[s->from]) * view->stride[dim]);
  view->size[dim] = at[s->to + 1] - at[s->to];
}

static void move_to(ragged *r, int64_t sequence) {
  pegen_attention_call *c = &r->call;
  const step q = {&r->q, r->sequence, sequence}, k = {&r->k, r->sequence, sequence};
  r->sequence = sequence;
  move(&c->q, PEGEN_TOKEN, &q);
  move(&c->out, PEGEN_TOKEN, &q);
  if (!c->lse.empty) move(&c->lse, PEGEN_TOKEN, &q);
  for (int i = 0; i < r->driver->kernel->n_inputs; i++) move(&c->input[i], PEGEN_TOKEN, &q);
  move(&c->k, PEGEN_TOKEN, &k);
  move(&c->v, PEGEN_TOKEN, &k);
  if (c->position_type >= 0) move(&c->positions, PEGEN_POSITION_TOKEN, &q);
  if (c->k_position_type >= 0) move(&c->k_positions, PEGEN_POSITION_TOKEN, &k);
}

/* ---- parts ---- */

enum { KEYS_OF_WORK = 64 };

/* An item takes about as long as its sequence has keys. */
static int64_t work_of_item(const pegen_attention_walk *w) { return 1 + w->keys / KEYS_OF_WORK; }

/* Its own stack for each sequence, for what stands there depends on the number of keys. */
__attribute__((noinline)) static int64_t run_sequence(const ragged *r, int64_t begin, int64_t end, int is_run) {
  pegen_attention_walk w;
  pegen_attention_begin(&w, r->driver, &r->flat.args, &r->call, r->target);
  int64_t items = pegen_attention_items(&w, r->target), each = work_of_item(&w), work, first, last;
  if (__builtin_mul_overflow(items, each, &work)) return -1;
  if (!is_run) return work;
  /* those that begin in [begin, end) */
  first = begin <= r->before ? 0 : (begin - r->before + each - 1) / each;
  last = end <= r->before ? 0 : (end - r->before + each - 1) / each;
  if (last > items) last = items;
  if (first < last) pegen_attention_run_items(&w, r->target, first, last);
  return work;
}

/* Work of all sequences; is_run: and that of [begin, end) is done. -1: too much to count. */
static int64_t walk(ragged *r, int64_t begin, int64_t end, int is_run) {
  r->before = 0;
  for (int64_t sequence = 0; sequence < r->q.sequences; sequence++) {
    move_to(r, sequence);
    if (r->call.q.size[PEGEN_TOKEN] == 0) continue;
    int64_t work = run_sequence(r, begin, end, is_run);
    if (work < 0 || __builtin_add_overflow(r->before, work, &r->before)) return -1;
  }
  return r->before;
}

int pegen_attention_sequences(const pegen_driver *driver, const pegen_args *args, int part, int parts, int is_run) {
  ragged r;
  pegen_tuning tuning;
  int64_t begin, end;
  r.driver = driver;
  r.sequence = 0;
  int error = check(&r, args, part, parts);
  if (error) return error;
  const pegen_attention *form = driver->form;
  r.target = pegen_dispatch(driver, &tuning);
  if (r.target < 0) return PEGEN_ERROR_PROCESSOR;
  if (!form->targets[r.target].attend[r.call.type]) return PEGEN_ERROR_DTYPE;
  if (!is_run || r.call.out.empty) return 0;
  int64_t work = walk(&r, 0, 0, 0);
  if (work < 0) return PEGEN_ERROR_SIZE_OVERFLOW;
  if (!pegen_share(work, part, parts, &begin, &end)) return 0;
  walk(&r, begin, end, 1);
  return 0;
}
