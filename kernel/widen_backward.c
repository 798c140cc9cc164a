/* widen_backward.c: gradients of rows that columns widen (widen.c).
 *
 * The channels that were moved move back. What the columns of a query gain becomes what the weights of its bias do,
 * some queries of a head at a time, and of these inputs and operands gain (weight_gains.c); the columns of both, by
 * what monomials do where coordinates move, is what positions gain. Rows of k hold nothing else.
 *
 * Work is cut into items, a few tokens each, of one batch after the other, or, where batches share what their positions
 * gain, of all batches. Where an operand has a gradient, items make chunks, whose sums have places of their own in the
 * workspace and are added in order by `finish`; else each part has its share of items, and what is computed of one does
 * not depend on it.
 */
#include "finish.h"
#include "weight_gains.h"

enum { MOST_CHUNKS = 64 };

static void find_facts(const pegen_driver *driver, pegen_backward_facts *facts) {
  const pegen_widen *widen = driver->form;
  const pegen_gradient *of = widen->gradient;
  int64_t row = widen->lanes * 8;
  facts->row_bytes = 0;
  facts->has_operands = of && of->n_sums > 0;
  facts->has_positions = 1;
  facts->has_inputs = of && driver->kernel->n_inputs > 0;
  facts->widens = 1;
  facts->needs_kept = 0;
  facts->needs_input = 0;
  facts->most_chunks = MOST_CHUNKS;
  facts->sums_bytes = of ? pegen_heads_apart(driver) * of->n_sums * row : 0;
  facts->finish_bytes = of ? (of->n_sums + of->n_scatters) * row : 0; /* sums, and what comes of them */
  facts->token_bytes = 0;
  facts->torque_bytes = facts->torque_layout = 0; /* there are no tables */
}

/* ---- the walk ---- */

/* One pass: rows of q, of k, or of both where they share tokens and positions. */
typedef struct walk {
  const pegen_driver *driver;
  const pegen_args *args;
  const pegen_backward_call *call;
  const pegen_widen *widen;
  const pegen_widen_gradient_code *code;
  pegen_prepare_function *prepare; /* of encode */
  const pegen_stream *stream[2]; /* q, k; NULL: not in this pass */
  int which; /* of grad->positions and k_positions; -1: neither */
  int64_t batches; /* of an item */
  char *chunk; /* its sums; NULL: no operand has a gradient */
  int64_t prepared_head; /* whose values encode's `prepare` has made; -1: none */
  double *leaves; /* room for it */
  char *prepared;
  pegen_weights weights;
  pegen_column_gains work;
} walk;

static const pegen_stream *any_stream(const walk *w) { return w->stream[0] ? w->stream[0] : w->stream[1]; }

/* ---- rows of a head of q ---- */

/* What encode's weights are made of, whose products with what columns gain positions do. */
static void prepare_weights(walk *w, int64_t head) {
  const pegen_widen *widen = w->widen;
  if (!w->prepare || (w->prepared_head >= 0 && (w->prepared_head == head || !w->driver->per_head))) return;
  w->prepared_head = head;
  pegen_gather_leaves(widen->leaves, widen->n_leaves, widen->n_blocks, widen->lanes, w->args, head, w->leaves);
  w->prepare(w->leaves, w->prepared);
}

static void run_query_places(walk *w, int64_t batch, int64_t head) {
  for (int i = 0; i < w->driver->kernel->n_inputs; i++) {
    const pegen_view *input = &w->call->rows.input[i];
    w->work.input[i] = pegen_at(input, batch, head, 0);
    w->work.input_step[i] = input->stride[PEGEN_TOKEN];
  }
  prepare_weights(w, head);
  w->code->queries[w->call->rows.type][w->call->rows.wide_inputs](&w->work);
}

/* Where the sums of a head are. */
static double *sums_of(const walk *w, int64_t head) {
  if (!w->chunk) return 0;
  int64_t bytes = w->weights.of->n_sums * w->weights.lanes * 8;
  return (double *)(void *)(w->chunk + (w->driver->per_head ? head * bytes : 0));
}

static void run_head(walk *w, int64_t batch, int64_t head) {
  const pegen_stream *q = w->stream[0];
  pegen_loop *loop = &w->work.loop;
  loop->rows[0].in = pegen_at(&q->in, batch, head, 0);
  if (w->weights.unweigh) {
    pegen_weights_set_head(&w->weights, batch, head);
    w->weights.work.sums = sums_of(w, head);
    w->code->weights[w->call->rows.type](&w->work);
    pegen_weights_run(&w->weights, loop->token_begin, loop->token_end - loop->token_begin);
  }
  if (w->which >= 0) run_query_places(w, batch, head);
}

/* ---- tokens ---- */

static void copy_rows(const walk *w, int64_t batch, int64_t begin, int64_t end) {
  for (int s = 0; s < 2; s++)
    if (w->stream[s] && w->call->is_written[s]) pegen_copy_tokens(w->stream[s], batch, begin, end);
}

/* Inputs of tokens that are skipped gain nothing. */
static void skip_inputs(walk *w, int64_t batch, int64_t begin, int64_t end) {
  if (!w->stream[0] || !w->weights.unweigh) return;
  for (int64_t head = 0; head < w->stream[0]->in.size[PEGEN_HEAD]; head++) {
    pegen_weights_set_head(&w->weights, batch, head);
    pegen_weights_skip(&w->weights, begin, end - begin);
  }
}

/* Computes the gradients of a batch's tokens that are encoded, at most PEGEN_WEIGHT_QUERIES of them. */
static void run_batch(walk *w, int64_t batch) {
  pegen_loop *loop = &w->work.loop;
  pegen_set_positions(loop, any_stream(w), batch);
  loop->origin_batch = batch;
  for (int64_t head = 0; w->stream[0] && head < w->stream[0]->in.size[PEGEN_HEAD]; head++) run_head(w, batch, head);
  if (!w->stream[1] || w->which < 0) return;
  loop->rows[1].in = pegen_at(&w->stream[1]->in, batch, 0, 0);
  w->code->keys[w->call->rows.type](&w->work);
}

/* What the positions of tokens [begin, end) of a batch gain: places [token - begin][axes]. */
static void write_places(const walk *w, int64_t batch, int64_t begin, int64_t end) {
  if (w->which < 0) return;
  const pegen_view *view = &w->call->positions[w->which];
  int64_t axes = w->driver->kernel->n_axes, adds = (w->call->grad->flags & PEGEN_GRAD_ACCUMULATE) != 0;
  for (int64_t token = begin; token < end; token++)
    for (int64_t axis = 0; axis < axes; axis++)
      pegen_gain(pegen_at(view, batch, token, axis), w->call->position_is_f64[w->which], adds,
                 w->work.places[(token - begin) * axes + axis]);
}

/* Tokens [begin, end), at most PEGEN_WEIGHT_QUERIES, all skipped or all encoded, of the batches from `first` on that go
 * together. */
static void run_block(walk *w, int64_t first, int64_t begin, int64_t end, int is_skipped) {
  w->work.loop.token_begin = begin;
  w->work.loop.token_end = end;
  if (w->which >= 0) pegen_clear((char *)w->work.places, (end - begin) * w->driver->kernel->n_axes * 8);
  for (int64_t batch = first; batch < first + w->batches; batch++) {
    copy_rows(w, batch, begin, end);
    if (is_skipped) skip_inputs(w, batch, begin, end);
    else run_batch(w, batch);
  }
  write_places(w, first, begin, end);
}

/* Tokens that are summed together are the same, whatever else is asked for and however work is cut. */
static void run_items(walk *w, int64_t begin, int64_t end) {
  const int64_t few = PEGEN_WEIGHT_FEW, most = PEGEN_WEIGHT_QUERIES, skip = w->driver->kernel->skip_tokens,
                tokens = any_stream(w)->in.size[PEGEN_TOKEN];
  pegen_run run;
  while (pegen_next_run((tokens + few - 1) / few, &begin, end, &run)) {
    int64_t last = pegen_smaller(run.end * few, tokens);
    for (int64_t token = run.begin * few, stop; token < last; token = stop) {
      stop = pegen_smaller(token % few ? token + few - token % few : token + most, last);
      if (token < skip && stop > skip) stop = skip;
      run_block(w, run.batch, token, stop, token < skip);
    }
  }
}

/* ---- passes ---- */

static int64_t items_of(walk *w) {
  const pegen_stream *first = any_stream(w);
  int64_t all = first->in.size[PEGEN_BATCH];
  w->which = pegen_gaining_positions(w->call, first);
  w->batches = w->which >= 0 && pegen_batches_share(w->call, first) ? all : 1;
  return (first->in.size[PEGEN_TOKEN] + PEGEN_WEIGHT_FEW - 1) / PEGEN_WEIGHT_FEW * (all / w->batches);
}

/* Sums are those of rows of q. */
static void run_pass(walk *w, int part, int parts) {
  int64_t items = items_of(w), begin, end;
  const pegen_backward_call *call = w->call;
  w->work.loop.sequences = &call->rows.bounds[w->stream[0] ? 0 : 1];
  if (w->stream[1]) {
    pegen_set_rows(&w->work.loop.rows[1], w->stream[1]);
    w->work.loop.rows[1].in_token = w->stream[1]->in.stride[PEGEN_TOKEN];
  }
  if (w->stream[0]) pegen_set_rows(&w->work.loop.rows[0], w->stream[0]);
  w->chunk = 0;
  if (!call->of_operands || !w->stream[0]) {
    if (pegen_share(items, part, parts, &begin, &end)) run_items(w, begin, end);
    return;
  }
  int64_t chunks = pegen_backward_chunks(call), first, last, bytes = call->facts->sums_bytes;
  if (!pegen_share(chunks, part, parts, &first, &last)) return;
  for (int64_t chunk = first; chunk < last; chunk++) {
    w->chunk = (char *)w->args->workspace + chunk * bytes;
    pegen_clear(w->chunk, bytes);
    if (pegen_share(items, (int)chunk, (int)chunks, &begin, &end)) run_items(w, begin, end);
  }
}

static void clear_chunks(const pegen_backward_call *call, const pegen_args *args, int part, int parts) {
  int64_t first, last, bytes = call->facts->sums_bytes;
  if (pegen_share(pegen_backward_chunks(call), part, parts, &first, &last))
    pegen_clear((char *)args->workspace + first * bytes, (last - first) * bytes);
}

static void run_passes(walk *w, const pegen_stream *q, const pegen_stream *k, int part, int parts) {
  int joint = w->call->rows.joint && q && k && pegen_same_bounds(&w->call->rows.bounds[0], &w->call->rows.bounds[1]);
  w->stream[0] = q;
  w->stream[1] = joint ? k : 0;
  if (q) run_pass(w, part, parts);
  else if (w->call->of_operands) clear_chunks(w->call, w->args, part, parts); /* which finish adds up */
  w->stream[0] = 0;
  w->stream[1] = k;
  if (k && !joint) run_pass(w, part, parts);
}

/* 1: all functions that the call needs are there. */
static int begin_walk(walk *w, const pegen_driver *driver, const pegen_args *args, const pegen_backward_call *call,
                      int target) {
  const pegen_widen *widen = driver->form;
  const pegen_gradient *of = call->of_operands || call->of_inputs ? widen->gradient : 0;
  int64_t type = call->rows.type;
  w->driver = driver;
  w->args = args;
  w->call = call;
  w->widen = widen;
  w->code = &widen->backward[target];
  w->prepare = widen->targets[target].prepare;
  w->prepared_head = -1;
  w->work.loop.prepared = w->prepared;
  w->work.loop.prepared_stride = 0;
  w->work.weights = (float *)(uintptr_t)w->weights.work.weights;
  w->work.loop.rows[0].heads = w->work.loop.rows[1].heads = 0;
  w->weights.unweigh = 0;
  if (of)
    pegen_weights_begin(&w->weights, driver, args, of, target,
                        call->rows.wide_inputs || !driver->kernel->n_inputs ? PEGEN_NUMBER_F32 : type, call->rows.input,
                        call->inputs);
  return w->code->weights[type] && (!of || w->weights.unweigh);
}

/* ---- the entries ---- */

static int widen_backward(const pegen_driver *driver, const pegen_args *args, pegen_backward_call *call, int chosen,
                          int part, int parts) {
  const pegen_widen *widen = driver->form;
  walk w;
  const pegen_gradient *of = call->of_operands || call->of_inputs ? widen->gradient : 0;
  w.weights.lanes = widen->lanes;
  w.weights.n_blocks = widen->n_blocks;
  PEGEN_WEIGHTS_ROOM(&w.weights, of, widen->lanes, widen->n_weights);
  w.leaves = PEGEN_STACK(sizeof(double) * (size_t)(widen->n_leaves * widen->lanes) + 64);
  w.prepared = PEGEN_STACK(widen->prepared_bytes + 64);
  w.work.places = __builtin_alloca(sizeof(double) * (size_t)(PEGEN_WEIGHT_QUERIES * driver->kernel->n_axes));
  if (!begin_walk(&w, driver, args, call, chosen)) return PEGEN_ERROR_DTYPE;
  call->rows.origin.fixed = widen->origin;
  w.work.loop.origin = &call->rows.origin;
  w.work.loop.skipped = driver->kernel->skip_tokens;
  pegen_gain_without_rows(call, part, parts);
  const pegen_stream *stream[2] = {0, 0};
  for (int s = 0; s < 2; s++)
    if (pegen_has_rows(call, s)) stream[s] = &call->rows.stream[s];
  run_passes(&w, stream[0], stream[1], part, parts);
  return 0;
}

static int finish_sums(const pegen_driver *driver, const pegen_args *args, const pegen_backward_call *call, int target,
                       int part, int parts) {
  const pegen_widen *widen = driver->form;
  pegen_finish f;
  f.of = widen->gradient;
  f.n_blocks = widen->n_blocks;
  f.lanes = widen->lanes;
  if (pegen_finish_begin(&f, driver, args, call, part, parts)) pegen_finish_heads(&f, target);
  return 0;
}

PEGEN_BACKWARD_ENTRY(pegen_driver_widen_backward, find_facts, pegen_check_backward, widen_backward)
PEGEN_BACKWARD_ENTRY(pegen_driver_widen_backward_finish, find_facts, pegen_check_backward, finish_sums)
PEGEN_SIZE_ENTRY(pegen_driver_widen_backward_workspace, find_facts, pegen_backward_needs)
