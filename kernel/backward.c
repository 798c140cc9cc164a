/* backward.c: gradients of encodings whose rows are turned by rotors or added to.
 *
 * Gradients of rows go the way that rows went, by the transposed matrices: an encode call of other functions. What is
 * added to a row changes no gradient of it.
 *
 * Where an operand or positions have a gradient, tokens are cut into chunks, whose number the call's sizes alone
 * decide, and a part takes whole chunks. A chunk's sums over its tokens have a place of their own in the workspace, and
 * are added in order by `finish`, so that results are the same to the bit however the work is parted. Batches that
 * share their positions are walked together, a few at a time, so that a token belongs to one chunk and no float32 sum
 * of its torques has more terms than its rounding allows.
 */
#include "backward.h"

enum { MOST_TERMS = 64 };

/* ---- rows alone ---- */

/* Rows as they are. */
static void copy_rows(const pegen_call *call, int part, int parts) {
  for (int s = 0; s < 2; s++) {
    const pegen_stream *stream = &call->stream[s];
    int64_t begin, end;
    if (!stream->given || stream->in.empty || stream->in_place) continue;
    int64_t tokens = stream->in.size[PEGEN_TOKEN];
    pegen_run run;
    if (!pegen_share(stream->in.size[PEGEN_BATCH] * tokens, part, parts, &begin, &end)) continue;
    while (pegen_next_run(tokens, &begin, end, &run)) pegen_copy_tokens(stream, run.batch, run.begin, run.end);
  }
}

/* ---- what positions gain ---- */

static void gain(char *at, int64_t is_f64, int64_t adds, double value) {
  if (is_f64) *(double *)at = adds ? *(double *)at + value : value;
  else *(float *)at = (float)(adds ? *(float *)at + value : value);
}

void pegen_driver_position_gradient(const pegen_gradient_loop *loop, int64_t token, int64_t axes,
                                    const double *gained) {
  char *at = loop->positions + token * loop->position_token;
  for (int64_t axis = 0; axis < axes; axis++, at += loop->position_axis)
    gain(at, loop->position_is_f64, loop->position_adds, gained[axis]);
}

/* ---- the walk ---- */

/* One pass: the streams that share tokens and positions. */
typedef struct walk {
  const pegen_driver *driver;
  const pegen_backward_call *call;
  const pegen_gradient *of;
  const pegen_gradient_code *code;
  pegen_gradient_function *encode;
  const pegen_stream *streams[2];
  int n;
  int64_t tokens, batches, together; /* batches of one position that are walked in one go */
  int64_t chunks, first_chunk, last_chunk;
  char *workspace;
  int which; /* of grad->positions and k_positions; -1: neither */
  pegen_gradient_loop loop;
} walk;

static void set_kept(pegen_input_rows *rows, const pegen_view *kept) {
  rows->data = (const char *)kept->base;
  rows->batch = kept->stride[PEGEN_BATCH];
  rows->token = kept->stride[PEGEN_TOKEN];
  rows->head = kept->stride[PEGEN_HEAD];
}

/* A gradient that is not wanted goes to one row of scratch. */
static void set_rows(walk *w, int i, const pegen_stream *stream, char *scratch) {
  pegen_set_rows(&w->loop.loop.rows[i], stream);
  set_kept(&w->loop.kept[i], &w->call->kept[stream->keys]);
  if (w->call->is_written[stream->keys]) return;
  w->loop.loop.rows[i].out = scratch;
  w->loop.loop.rows[i].out_batch = w->loop.loop.rows[i].out_token = w->loop.loop.rows[i].out_head = 0;
}

/* Tokens that are skipped: their rows go on as they came, and their positions gain nothing. */
static void skip_tokens(walk *w, int64_t batch_begin, int64_t batch_end, int64_t begin, int64_t end) {
  static const double nothing[PEGEN_MAX_ROTOR_AXES] = {0};
  for (int i = 0; i < w->n; i++)
    for (int64_t batch = batch_begin; batch < batch_end; batch++)
      if (w->call->is_written[w->streams[i]->keys] && !w->streams[i]->in_place)
        pegen_copy_tokens(w->streams[i], batch, begin, end);
  for (int64_t token = begin; token < end && w->loop.positions; token++)
    pegen_driver_position_gradient(&w->loop, token, w->driver->kernel->n_axes, nothing);
}

static void run_batches(walk *w, int64_t batch_begin, int64_t batch_end, int64_t begin, int64_t end, int is_first) {
  int64_t skip = w->driver->kernel->skip_tokens, stop = end < skip ? end : skip;
  const pegen_view *positions = w->which < 0 ? 0 : &w->call->positions[w->which];
  w->loop.positions = 0;
  if (positions) {
    w->loop.positions = (char *)(positions->base + (uintptr_t)(batch_begin * positions->stride[PEGEN_POSITION_BATCH]));
    w->loop.position_is_f64 = w->call->position_is_f64[w->which];
    w->loop.position_token = positions->stride[PEGEN_POSITION_TOKEN];
    w->loop.position_axis = positions->stride[PEGEN_POSITION_AXIS];
    w->loop.position_adds = !is_first || (w->call->grad->flags & PEGEN_GRAD_ACCUMULATE) != 0;
  }
  if (begin < stop) {
    if (is_first || batch_begin > 0) skip_tokens(w, batch_begin, batch_end, begin, stop);
    begin = stop;
  }
  if (begin >= end) return;
  w->loop.loop.token_begin = begin;
  w->loop.loop.token_end = end;
  w->loop.loop.batch_begin = batch_begin;
  w->loop.loop.batch_end = batch_end;
  pegen_set_positions(&w->loop.loop, w->streams[0], batch_begin);
  w->encode(&w->loop);
}

/* Where heads share their rotors, and no coordinate gains of several batches, tokens go by batch, in order of memory.
 */
static int goes_by_batch(const walk *w) {
  int adds = w->which >= 0 && w->call->positions[w->which].stride[PEGEN_POSITION_BATCH] == 0 && w->batches > 1;
  return !w->driver->per_head && !adds;
}

/* Tokens [begin, end) of all batches. Those of one set of positions go together; is_first: nothing was added to what
 * positions gain. */
static void run_tokens(walk *w, int64_t begin, int64_t end, int is_first) {
  const pegen_stream *first = w->streams[0];
  int shared = first->grid || first->positions.stride[PEGEN_POSITION_BATCH] == 0;
  if (w->which >= 0 && w->call->positions[w->which].stride[PEGEN_POSITION_BATCH] != 0) shared = 0;
  int64_t step = shared ? w->together : 1;
  for (int64_t batch = 0; batch < w->batches; batch += step) {
    int64_t last = batch + step < w->batches ? batch + step : w->batches;
    run_batches(w, batch, last, begin, end, is_first && (batch == 0 || !shared));
  }
}

static void run_chunks(walk *w, int64_t head, int64_t heads, int64_t sums_stride) {
  int64_t bytes = pegen_backward_sums(w->driver);
  for (int64_t chunk = w->first_chunk; chunk < w->last_chunk; chunk++) {
    int64_t begin, end;
    int64_t items = goes_by_batch(w) ? w->tokens * w->batches : w->tokens;
    if (!pegen_share(items, (int)chunk, (int)w->chunks, &begin, &end)) continue;
    w->loop.sums = w->call->of_operands ? w->workspace + chunk * bytes + head * sums_stride : 0;
    w->loop.sums_stride = sums_stride;
    w->loop.loop.head_begin = head;
    w->loop.loop.head_end = head + heads;
    if (!goes_by_batch(w)) run_tokens(w, begin, end, head == 0);
    pegen_run run;
    while (goes_by_batch(w) && pegen_next_run(w->tokens, &begin, end, &run))
      run_batches(w, run.batch, run.batch + 1, run.begin, run.end, head == 0);
  }
}

/* Values that the emitted code prepares from operands, for as many heads at a time as fit on the stack. */
static void run_heads(walk *w, const pegen_args *args, const pegen_target_code *rows) {
  const pegen_blades *blades = w->driver->form;
  int64_t bytes = blades->prepared_bytes + 64, own = w->of->prepared_bytes + 64, both = bytes + own, tile = 1;
  int64_t heads = w->driver->per_head ? w->driver->kernel->heads : 1;
  int64_t leaves_count = blades->n_leaves > w->of->n_leaves ? blades->n_leaves : w->of->n_leaves;
  int64_t larger = bytes > own ? bytes : own; /* each has as much room as encode's */
  while (tile < heads && (tile + 1) * larger <= PEGEN_STACK_PREPARED) tile++;
  char *prepared = __builtin_alloca_with_align((size_t)(tile * both), 512);
  double *leaves = __builtin_alloca_with_align(sizeof(double) * (size_t)(leaves_count * blades->lanes) + 64, 512);
  int64_t sums_stride = w->of->n_sums * blades->lanes * 8;
  w->loop.loop.prepared = prepared;
  w->loop.loop.prepared_stride = bytes;
  w->loop.prepared = prepared + tile * bytes;
  w->loop.prepared_stride = own;
  for (int64_t head = 0; head < heads; head += tile) {
    int64_t count = head + tile < heads ? tile : heads - head;
    for (int64_t i = 0; i < count; i++) {
      if (rows && rows->prepare) {
        pegen_gather_leaves(blades->leaves, blades->n_leaves, blades->n_blocks, blades->lanes, args, head + i, leaves);
        rows->prepare(leaves, prepared + i * bytes);
      }
      if (w->code->prepare) {
        pegen_gather_leaves(w->of->leaves, w->of->n_leaves, blades->n_blocks, blades->lanes, args, head + i, leaves);
        w->code->prepare(leaves, prepared + tile * bytes + i * own);
      }
    }
    run_chunks(w, head, w->driver->per_head ? count : w->loop.loop.rows[0].heads, sums_stride);
  }
}

static void run_pass(walk *w, const pegen_args *args, const pegen_target_code *rows, const pegen_tuning *tuning,
                     int64_t touched, char *scratch) {
  const pegen_stream *first = w->streams[0];
  int64_t rows_of_token = 0;
  for (int i = 0; i < w->n; i++) {
    set_rows(w, i, w->streams[i], scratch);
    rows_of_token += w->driver->per_head ? 1 : w->streams[i]->in.size[PEGEN_HEAD];
  }
  if (w->n == 1) {
    set_rows(w, 1, first, scratch);
    w->loop.loop.rows[1].heads = 0;
  }
  w->tokens = first->in.size[PEGEN_TOKEN];
  w->batches = first->in.size[PEGEN_BATCH];
  w->together = rows_of_token > 0 && MOST_TERMS / rows_of_token > 1 ? MOST_TERMS / rows_of_token : 1;
  w->which = -1;
  int own = first->keys && args->k_positions;
  if (!w->call->positions[own].empty) w->which = own;
  pegen_set_prefetch(&w->loop.loop, tuning, pegen_by_head(first), touched);
  w->loop.loop.tile_tokens = pegen_by_head(first) ? tuning->tile_tokens : 1;
  if (w->driver->per_head) {
    int64_t tile =
        w->batches > 1 ? tuning->tile_rotors / (w->driver->kernel->heads > 0 ? w->driver->kernel->heads : 1) : 1;
    w->loop.loop.tile_tokens = tile < 1 ? 1 : tile;
  }
  w->loop.loop.group_rows = pegen_by_head(first) ? tuning->group_rows : INT32_MAX;
  w->loop.loop.table = 0;
  w->loop.loop.table_token = w->loop.loop.table_head = 0;
  run_heads(w, args, rows);
}

static void clear(char *at, int64_t bytes) {
  double *sums = (double *)at;
  for (int64_t i = 0; i < bytes / 8; i++) sums[i] = 0;
}

/* Positions of streams without rows gain nothing; where others share them, those see to it. A part's share of tokens.
 */
static void gain_nothing(const pegen_backward_call *call, int which, int part, int parts) {
  const pegen_view *positions = &call->positions[which];
  int64_t begin, end;
  if (positions->empty || (call->grad->flags & PEGEN_GRAD_ACCUMULATE)) return;
  if (!pegen_share(positions->size[PEGEN_POSITION_TOKEN], part, parts, &begin, &end)) return;
  for (int64_t batch = 0; batch < positions->size[PEGEN_POSITION_BATCH]; batch++)
    for (int64_t token = begin; token < end; token++)
      for (int64_t axis = 0; axis < positions->size[PEGEN_POSITION_AXIS]; axis++)
        gain((char *)(positions->base + (uintptr_t)(batch * positions->stride[PEGEN_POSITION_BATCH] +
                                                    token * positions->stride[PEGEN_POSITION_TOKEN] +
                                                    axis * positions->stride[PEGEN_POSITION_AXIS])),
             call->position_is_f64[which], 0, 0);
}

static int run_torques(const pegen_driver *driver, const pegen_args *args, pegen_backward_call *call, int chosen,
                       const pegen_tuning *tuning, int part, int parts) {
  const pegen_blades *blades = driver->form;
  walk w;
  w.driver = driver;
  w.call = call;
  w.of = blades->gradient;
  w.code = &w.of->targets[chosen];
  w.encode = w.code->encode[call->rows.type];
  if (!w.encode) return PEGEN_ERROR_DTYPE;
  w.workspace = args->workspace;
  w.chunks = pegen_backward_chunks(call);
  w.loop.from_input = (call->grad->flags & PEGEN_GRAD_FROM_INPUT) != 0;
  for (int s = 0; s < 2; s++) {
    const pegen_stream *own = &call->rows.stream[s], *q = &call->rows.stream[0], *k = &call->rows.stream[1];
    int has_rows = own->given && !own->in.empty;
    if (s == 0 && !args->k_positions) has_rows = (q->given && !q->in.empty) || (k->given && !k->in.empty);
    if (!has_rows) gain_nothing(call, s, part, parts);
  }
  if (!pegen_share(w.chunks, part, parts, &w.first_chunk, &w.last_chunk)) return 0;
  int64_t touched = 0, sums = call->of_operands ? pegen_backward_sums(driver) : 0;
  clear(w.workspace + w.first_chunk * sums, (w.last_chunk - w.first_chunk) * sums);
  char *scratch = __builtin_alloca_with_align((size_t)driver->kernel->head_dim * 4 + 64, 512);
  for (int s = 0; s < 2; s++) {
    pegen_stream *stream = &call->rows.stream[s];
    if (stream->given && stream->in.empty) stream->given = 0;
    if (stream->given) touched += 3 * pegen_view_bytes(&stream->in);
  }
  w.n = 0;
  for (int s = 0; s < 2; s++) {
    if (call->rows.stream[s].given) w.streams[w.n++] = &call->rows.stream[s];
    if (w.n == 0 || (call->rows.joint && s == 0)) continue;
    run_pass(&w, args, blades->backward ? &blades->backward[chosen] : 0, tuning, touched, scratch);
    w.n = 0;
  }
  return 0;
}

/* ---- the entries ---- */

int pegen_driver_encode_backward(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  const pegen_blades *blades = driver->form;
  pegen_backward_call call;
  pegen_tuning tuning;
  int error = pegen_check_backward(driver, args, part, parts, 1, &call);
  if (error) return error;
  int chosen = pegen_dispatch(driver, &tuning);
  if (chosen < 0) return PEGEN_ERROR_PROCESSOR;
  if (call.of_operands || call.of_positions) return run_torques(driver, args, &call, chosen, &tuning, part, parts);
  if (blades->backward)
    return pegen_encode_checked(driver, &call.args, &call.rows, &blades->backward[chosen], &tuning, part, parts);
  copy_rows(&call.rows, part, parts);
  return 0;
}

/* What a head's sums over all chunks, in their order, give the elements of operands. */
static void add_head(const pegen_driver *driver, const pegen_args *args, const pegen_gradient_code *code,
                     int64_t chunks, int64_t head, double *elements, double *sums) {
  const pegen_blades *blades = driver->form;
  const pegen_gradient *of = blades->gradient;
  int64_t count = of->n_sums * blades->lanes, step = pegen_backward_sums(driver) / 8;
  const double *from = (const double *)args->workspace + head * count;
  double *gained = sums + count;
  double *leaves =
      __builtin_alloca_with_align(sizeof(double) * (size_t)(of->n_scatter_leaves * blades->lanes) + 64, 512);
  for (int64_t i = 0; i < count; i++) sums[i] = from[i];
  for (int64_t chunk = 1; chunk < chunks; chunk++)
    for (int64_t i = 0; i < count; i++) sums[i] += from[chunk * step + i];
  pegen_gather_leaves(of->scatter_leaves, of->n_scatter_leaves, blades->n_blocks, blades->lanes, args, head, leaves);
  code->scatter(leaves, sums, gained);
  for (int64_t i = 0; i < of->n_scatters; i++) {
    const pegen_leaf *leaf = &of->scatters[i];
    double *operand = elements;
    for (int k = 0; k < leaf->operand; k++) operand += pegen_backward_size(driver->kernel, k);
    const int32_t *offsets = leaf->offsets + (leaf->n_heads > 1 ? head * blades->n_blocks : 0);
    for (int64_t block = 0; block < blades->n_blocks; block++)
      operand[offsets[block]] += gained[i * blades->lanes + block];
  }
}

static void store_operands(const pegen_driver *driver, const pegen_grad_args *grad, const double *elements) {
  for (int i = 0; i < driver->kernel->n_operands; i++) {
    int64_t size = pegen_backward_size(driver->kernel, i);
    const DLTensor *tensor = grad->operands[i];
    for (int64_t k = 0; tensor && k < size; k++)
      gain((char *)tensor->data + tensor->byte_offset + k * (tensor->dtype.bits / 8), tensor->dtype.bits == 64,
           grad->flags & PEGEN_GRAD_ACCUMULATE, elements[k]);
    elements += size;
  }
}

int pegen_driver_encode_backward_finish(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  pegen_backward_call call;
  pegen_tuning tuning;
  int error = pegen_check_backward(driver, args, part, parts, 1, &call);
  if (error) return error;
  int chosen = pegen_dispatch(driver, &tuning);
  if (chosen < 0) return PEGEN_ERROR_PROCESSOR;
  if (!call.of_operands || part > 0) return 0; /* it is little work: one part does it */
  int64_t chunks = pegen_backward_chunks(&call), bytes = pegen_backward_elements(driver);
  char *elements = (char *)args->workspace + chunks * pegen_backward_sums(driver);
  clear(elements, bytes);
  for (int64_t head = 0; head < (driver->per_head ? driver->kernel->heads : 1); head++)
    add_head(driver, args, &((const pegen_blades *)driver->form)->gradient->targets[chosen], chunks, head,
             (double *)elements, (double *)(elements + bytes));
  store_operands(driver, call.grad, (const double *)elements);
  return 0;
}

size_t pegen_driver_encode_backward_workspace(const pegen_driver *driver, const pegen_args *args) {
  pegen_backward_call call;
  return pegen_check_backward(driver, args, 0, 1, 0, &call) ? 0 : (size_t)pegen_backward_workspace(driver, &call);
}
