/* widen.c: form "polynomial": a checked call becomes calls of the emitted functions that widen q and k.
 *
 * Work is cut into items as in encode.c, one for each token of each batch, batch outermost, and what is
 * computed for an item does not depend on the part it falls into. Rows of q need what is prepared of
 * operands for their head; rows of k need the token's position alone. Where a head's tokens are
 * neighbours in memory, heads go one after the other.
 */
#include "pages.h"

/* One run over the items: rows of q, of k, or of both where they share tokens and positions. */
typedef struct run {
  const pegen_widen *widen;
  pegen_widen_function *function;
  const pegen_stream *stream[2]; /* q, k; NULL: not in this run */
  pegen_stream *slotted;         /* k, where its rows go to slots; else NULL */
  const pegen_call *call;
  int64_t skip, inputs;
  int copies_prefix; /* once, though heads may go one after the other */
  pegen_widen_loop loop;
} run;

static const pegen_stream *any_stream(const run *r) { return r->stream[0] ? r->stream[0] : r->stream[1]; }

/* One token after the other, for rows of k go to slots. */
static void run_slots(run *r, int64_t batch, int64_t begin, int64_t end) {
  pegen_rows *rows = &r->loop.loop.rows[1];
  char *first = rows->out;
  int64_t heads = rows->heads, page = 0;
  for (int64_t token = begin; token < end; token++) {
    int64_t bytes = pegen_slot_bytes(r->slotted, batch, token, &page), has_row = bytes != PEGEN_NO_ROW;
    if (!has_row && !r->stream[0]) continue;
    rows->heads = has_row ? heads : 0;
    rows->out = first + (has_row ? bytes : 0);
    r->loop.loop.token_begin = token;
    r->loop.loop.token_end = token + 1;
    r->function(&r->loop);
  }
  rows->heads = heads;
  rows->out = first;
}

/* Tokens [begin, end) of one batch. */
static void run_tokens(run *r, int64_t batch, int64_t begin, int64_t end) {
  if (begin < r->skip) { /* tokens that pass through: their columns are zeros, and scores the product alone */
    int64_t stop = end < r->skip ? end : r->skip;
    for (int s = 0; s < 2 && r->copies_prefix; s++)
      if (s && r->stream[s] && r->slotted) pegen_copy_to_slots(r->slotted, batch, begin, stop);
      else if (r->stream[s]) pegen_copy_tokens(r->stream[s], batch, begin, stop);
    begin = stop;
  }
  if (begin >= end) return;
  r->loop.loop.token_begin = begin;
  r->loop.loop.token_end = end;
  r->loop.loop.batch_begin = batch;
  r->loop.loop.batch_end = batch + 1;
  pegen_set_positions(&r->loop.loop, any_stream(r), batch);
  r->loop.loop.origin_batch = batch;
  if (r->stream[1] && r->slotted) run_slots(r, batch, begin, end);
  else r->function(&r->loop);
}

static void run_items(run *r, int64_t begin, int64_t end) {
  int64_t tokens = any_stream(r)->in.size[PEGEN_TOKEN];
  r->loop.loop.sequences = &r->call->bounds[r->stream[0] ? 0 : 1];
  pegen_run run;
  while (pegen_next_run(tokens, &begin, end, &run)) run_tokens(r, run.batch, run.begin, run.end);
}

/* Heads [head, head + count) of a stream. */
static void set_heads(run *r, int s, int64_t head, int64_t count) {
  pegen_rows *rows = &r->loop.loop.rows[s];
  pegen_set_rows(rows, r->stream[s]);
  rows->in += head * rows->in_head;
  rows->out += head * rows->out_head;
  rows->heads = count;
}

static void set_inputs(run *r, int64_t head) {
  for (int i = 0; i < r->inputs; i++) {
    pegen_input_rows *rows = &r->loop.input[i];
    pegen_set_kept(rows, &r->call->input[i]);
    rows->data += head * rows->head;
  }
}

/* Rows of k alone, or together with heads [head, head + count) of q. */
static void run_heads(run *r, const pegen_stream *q, const pegen_stream *k, int64_t head, int64_t count, int64_t begin,
                      int64_t end) {
  r->stream[0] = q;
  r->stream[1] = k;
  r->copies_prefix = head == 0;
  r->loop.loop.rows[0].heads = r->loop.loop.rows[1].heads = 0;
  if (q) {
    set_heads(r, 0, head, count);
    set_inputs(r, head);
  }
  if (k) set_heads(r, 1, 0, k->in.size[PEGEN_HEAD]);
  run_items(r, begin, end);
}

/* Rows of q: what is prepared of operands lies on the stack, for as many heads at a time as fit. */
static void run_queries(run *r, const pegen_driver *driver, const pegen_args *args, pegen_prepare_function *prepare,
                        const pegen_stream *q, const pegen_stream *k, int64_t begin, int64_t end) {
  const pegen_widen *widen = r->widen;
  int64_t bytes = widen->prepared_bytes > 0 ? widen->prepared_bytes : 64, heads = q->in.size[PEGEN_HEAD], tile = bytes;
  int64_t sets = driver->per_head ? heads : 1;
  for (int64_t n = 1; n < sets && tile + bytes <= PEGEN_STACK_PREPARED; n++) tile += bytes;
  char *prepared = PEGEN_STACK(tile);
  double *leaves = PEGEN_STACK(sizeof(double) * (size_t)(widen->n_leaves * widen->lanes) + 64);
  r->loop.loop.prepared_stride = driver->per_head ? bytes : 0;
  for (int64_t set = 0; set < sets;) {
    int64_t first = set, used = 0;
    for (; set < sets && used + bytes <= tile; set++, used += bytes)
      if (prepare) {
        pegen_gather_leaves(widen->leaves, widen->n_leaves, widen->n_blocks, widen->lanes, args, set, leaves);
        prepare(leaves, prepared + used);
      }
    int64_t last = driver->per_head ? set : heads, step = pegen_by_head(q) ? 1 : last - first;
    for (int64_t head = first; head < last; head += step) {
      r->loop.loop.prepared = prepared + (driver->per_head ? (head - first) * bytes : 0);
      run_heads(r, q, head == 0 ? k : 0, head, step, begin, end);
    }
  }
}

/* Rows of k, together where a token's are neighbours. */
static void run_keys(run *r, const pegen_stream *k, int64_t begin, int64_t end) {
  int64_t heads = k->in.size[PEGEN_HEAD], step = pegen_by_head(k) ? 1 : heads;
  r->loop.loop.prepared = 0;
  for (int64_t head = 0; head < heads; head += step) {
    r->stream[0] = 0;
    r->stream[1] = k;
    r->copies_prefix = head == 0;
    r->loop.loop.rows[0].heads = 0;
    set_heads(r, 1, head, step);
    run_items(r, begin, end);
  }
}

static int share(const pegen_stream *s, int part, int parts, int64_t *begin, int64_t *end) {
  return pegen_share(s->in.size[PEGEN_TOKEN] * s->in.size[PEGEN_BATCH], part, parts, begin, end);
}

/* The longest vector whose multiple a widened row is: what streaming stores are made of. */
static int64_t whole_vector(const pegen_stream *s) {
  int64_t bytes = s->out->width & -s->out->width;
  return bytes < 64 ? bytes : 64;
}

int pegen_driver_widen(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  pegen_call call;
  run r;
  pegen_tuning tuning;
  int error = pegen_check(driver, args, part, parts, 0, &call), streaming = 1;
  if (error) return error;
  int chosen = pegen_dispatch(driver, &tuning);
  if (chosen < 0) return PEGEN_ERROR_PROCESSOR;
  const pegen_stream *stream[2] = {0, 0};
  int64_t touched = 0;
  for (int s = 0; s < 2; s++) {
    if (!call.stream[s].given || call.stream[s].in.empty) continue;
    stream[s] = &call.stream[s];
    touched += pegen_view_bytes(&stream[s]->in) + pegen_view_bytes(stream[s]->out);
    streaming = streaming && !stream[s]->slots && pegen_streams_aligned(stream[s], whole_vector(stream[s]));
  }
  r.widen = driver->form;
  call.origin.fixed = r.widen->origin;
  r.loop.loop.origin = &call.origin;
  r.loop.loop.skipped = driver->kernel->skip_tokens;
  const pegen_widen_code *code = &r.widen->targets[chosen];
  pegen_widen_function *const *functions = code->widen[call.type][call.wide_inputs];
  streaming = streaming && touched > tuning.stream_above && functions[1];
  r.function = functions[streaming];
  if (!r.function) return PEGEN_ERROR_DTYPE;
  r.call = &call;
  r.slotted = stream[1] && stream[1]->slots ? &call.stream[1] : 0;
  r.skip = driver->kernel->skip_tokens;
  r.inputs = driver->kernel->n_inputs;
  /* A row of q is arithmetic longer than a processor looks ahead. */
  pegen_set_prefetch(&r.loop.loop, &tuning, streaming, touched);
  r.loop.loop.head_begin = r.loop.loop.head_end = 0;
  r.loop.loop.tile_tokens = r.loop.loop.group_rows = 1;

  /* One pass where q and k share their tokens and both keep a token's rows together. */
  int joint = call.joint && stream[0] && stream[1] && !pegen_by_head(stream[0]) && !pegen_by_head(stream[1]) &&
              pegen_same_bounds(&call.bounds[0], &call.bounds[1]);
  int64_t begin, end;
  if (stream[0] && share(stream[0], part, parts, &begin, &end))
    run_queries(&r, driver, args, code->prepare, stream[0], joint ? stream[1] : 0, begin, end);
  if (stream[1] && !joint && share(stream[1], part, parts, &begin, &end)) run_keys(&r, stream[1], begin, end);
  pegen_order_stores(streaming);
  return 0;
}
