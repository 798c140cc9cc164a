/* backward.c: gradients of encodings whose rows are turned by rotors or added to.
 *
 * Gradients of rows go the way that rows went, by the transposed matrices: an encode call of other functions. What is
 * added to a row changes no gradient of it.
 *
 * Where an operand or positions have a gradient, tokens are cut into chunks, whose number the call's sizes alone
 * decide, and a part takes whole chunks. A chunk's sums over its tokens have a place of their own in the workspace, and
 * are added in order by `finish`, so that results are the same to the bit however the work is parted. Batches that
 * share their positions are walked together, as many as the rounding of float32 sums of torques allows, so that what
 * becomes of a token's torque is computed once.
 *
 * Where rotors come of a table, nothing becomes of torques but sums in another table (gradient_table.h), of which
 * prepare_backward.c makes the gradients. The walk is the same; its chunks are no more than shares of the work.
 */
#include "prepare_backward.h"

enum { MOST_TERMS = 64, MOST_CHUNKS = 64 };

void pegen_blades_facts(const pegen_driver *driver, pegen_backward_facts *facts) {
  const pegen_blades *blades = driver->form;
  const pegen_gradient *of = blades->gradient;
  int64_t row = blades->lanes * 8;
  facts->row_bytes = blades->values_bytes;
  facts->has_operands = of && of->n_sums > 0;
  facts->has_positions = of && of->has_positions;
  facts->needs_kept = !blades->is_sum;
  facts->needs_input = driver->kernel->needs_input;
  facts->most_chunks = MOST_CHUNKS;
  facts->sums_bytes = of ? pegen_heads_apart(driver) * of->n_sums * row : 0;
  facts->finish_bytes = of ? (of->n_sums + of->n_scatters) * row : 0; /* sums, and what comes of them */
  facts->token_bytes = 0;
  facts->widens = 0;
  facts->has_inputs = driver->turns_rows && of;
  facts->torque_bytes = of && driver->kernel->prepare ? of->n_torques * row : 0;
  facts->torque_layout = 0;
}

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
  int again; /* 1: a pass before gave to the same */
  unsigned given; /* bits of those that passes have given to */
  const pegen_table_header *table; /* NULL: rotors are built */
  int section;
  pegen_torque_rows torques; /* of the section, where there is a table */
  int clears; /* 1: nothing was added to them yet */
  pegen_input_rows input[PEGEN_MAX_INPUTS], input_gains[PEGEN_MAX_INPUTS]; /* of rows that turn by inputs */
  pegen_gradient_loop loop;
} walk;

void pegen_driver_input_gradient(const pegen_gradient_loop *loop, int64_t batch, int64_t token, int64_t head,
                                 const double *gained) {
  for (int i = 0; i < loop->kernel->n_inputs; i++) {
    const pegen_input_rows *rows = &loop->input_gains[i];
    int64_t size = loop->kernel->inputs[i].size ? loop->kernel->inputs[i].size : 1;
    float *row = (float *)(uintptr_t)(rows->data + batch * rows->batch + token * rows->token + head * rows->head);
    for (int64_t k = 0; k < size && rows->data; k++) row[k] = (float)(row[k] + gained[k]);
    gained += size;
  }
}

/* A gradient that is not wanted goes to one row of scratch. */
static void set_rows(walk *w, int i, const pegen_stream *stream, char *scratch) {
  pegen_set_rows(&w->loop.loop.rows[i], stream);
  pegen_set_kept(&w->loop.loop.kept[i], &w->call->kept[stream->keys]);
  if (w->call->is_written[stream->keys]) return;
  w->loop.loop.rows[i].out = scratch;
  w->loop.loop.rows[i].out_batch = w->loop.loop.rows[i].out_token = w->loop.loop.rows[i].out_head = 0;
}

/* Rows of inputs, and of what they gain, of tokens [begin, end), which begins as 0 unless it is added to. */
static void set_inputs(walk *w, int64_t begin, int64_t end) {
  int adds = (w->call->grad->flags & PEGEN_GRAD_ACCUMULATE) != 0;
  for (int i = 0; i < w->driver->kernel->n_inputs; i++) {
    const pegen_view *gains = &w->call->inputs[i];
    pegen_set_kept(&w->input[i], &w->call->rows.input[i]);
    w->input_gains[i].data = 0;
    if (gains->empty) continue;
    pegen_set_kept(&w->input_gains[i], gains);
    for (int64_t b = 0; b < gains->size[PEGEN_BATCH] && !adds; b++)
      for (int64_t h = 0; h < gains->size[PEGEN_HEAD]; h++)
        for (int64_t n = begin; n < end; n++) {
          float *row = (float *)(void *)pegen_at(gains, b, h, n);
          for (int64_t k = 0; k < gains->width / (int64_t)sizeof *row; k++) row[k] = 0;
        }
  }
  w->loop.loop.inputs = w->input;
  w->loop.input_gains = w->call->of_inputs ? w->input_gains : 0;
  w->loop.kernel = w->driver->kernel;
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

/* Rows of tables of tokens [begin, end), which batches of one call share or which are those of one batch. */
static void set_table(walk *w, int64_t batch_begin, int64_t batch_end, int64_t begin, int64_t end) {
  const pegen_table_header *h = w->table;
  int64_t batch = h->batches[w->section] > 1 ? batch_begin : 0;
  w->loop.loop.table =
      (const char *)h + pegen_table_section(h, w->section) + batch * h->tokens[w->section] * w->loop.loop.table_token;
  w->loop.torques = w->torques.at + batch * w->torques.batch;
  if (w->clears) pegen_clear_torques(&w->torques, batch_begin, batch_end, begin, end);
}

static void run_batches(walk *w, int64_t batch_begin, int64_t batch_end, int64_t begin, int64_t end, int is_first) {
  if (w->table) set_table(w, batch_begin, batch_end, begin, end);
  int64_t skip = w->driver->kernel->skip_tokens, stop = end < skip ? end : skip;
  const pegen_view *positions = w->which < 0 ? 0 : &w->call->positions[w->which];
  w->loop.positions = 0;
  if (positions) {
    w->loop.positions = pegen_at(positions, batch_begin, 0, 0);
    w->loop.position_is_f64 = w->call->position_is_f64[w->which];
    w->loop.position_token = positions->stride[PEGEN_POSITION_TOKEN];
    w->loop.position_axis = positions->stride[PEGEN_POSITION_AXIS];
    w->loop.position_adds = !is_first || w->again || (w->call->grad->flags & PEGEN_GRAD_ACCUMULATE) != 0;
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
  if (w->driver->turns_rows && w->loop.positions && !w->loop.position_adds) { /* row after row adds to them */
    static const double nothing[PEGEN_MAX_ROTOR_AXES] = {0};
    for (int64_t token = begin; token < end; token++)
      pegen_driver_position_gradient(&w->loop, token, w->driver->kernel->n_axes, nothing);
    w->loop.position_adds = 1;
  }
  if (!w->table) pegen_set_positions(&w->loop.loop, w->streams[0], batch_begin);
  w->encode(&w->loop);
}

static int is_shared(const walk *w) { return pegen_batches_share(w->call, w->streams[0]); }

/* Where heads share their rotors and batches do not, tokens go by batch, in order of memory; not where inputs gain of q
 * and of k, and perhaps of all batches: a token is one part's. */
static int goes_by_batch(const walk *w) {
  return !w->driver->per_head && !w->driver->turns_rows && (w->batches == 1 || !is_shared(w));
}

/* Returns how many heads a pass covers. Where rows turn by inputs, q may have another number of heads than k, and the
 * larger one counts. In kernels that are made for some number of heads, all tensors have that number. */
static int64_t most_heads(const walk *w) {
  int64_t q = w->loop.loop.rows[0].heads, k = w->loop.loop.rows[1].heads;
  return w->driver->turns_rows && k > q ? k : q;
}

/* Runs tokens [begin, end) of all batches, with batches that share positions together. is_first: nothing was added to
 * the gradient of positions yet. */
static void run_tokens(walk *w, int64_t begin, int64_t end, int is_first) {
  int shared = is_shared(w);
  int64_t step = shared ? w->together : 1;
  for (int64_t batch = 0; batch < w->batches; batch += step) {
    int64_t last = batch + step < w->batches ? batch + step : w->batches;
    run_batches(w, batch, last, begin, end, is_first && (batch == 0 || !shared));
  }
}

/* Items are tokens of one batch after the other: each chunk is a run of items. */
static void run_chunks_by_batch(walk *w, int64_t head) {
  char *sums = w->loop.sums;
  w->loop.chunk_tokens = INT64_MAX;
  for (int64_t chunk = w->first_chunk; chunk < w->last_chunk; chunk++) {
    int64_t begin, end;
    if (!pegen_share(w->tokens * w->batches, (int)chunk, (int)w->chunks, &begin, &end)) continue;
    w->loop.sums = sums ? sums + chunk * w->loop.chunk_bytes : 0;
    pegen_run run;
    while (pegen_next_run(w->tokens, &begin, end, &run))
      run_batches(w, run.batch, run.batch + 1, run.begin, run.end, head == 0);
  }
}

/* Items are tokens: neighbouring chunks are walked in one go, in long runs of memory. */
static void run_chunks(walk *w, int64_t head, int64_t heads, int64_t sums_stride) {
  w->loop.sums = w->call->of_operands ? w->workspace + head * sums_stride : 0;
  w->loop.sums_stride = sums_stride;
  w->loop.chunk_bytes = w->call->facts->sums_bytes;
  w->loop.loop.head_begin = head;
  w->loop.loop.head_end = head + heads;
  if (goes_by_batch(w)) {
    run_chunks_by_batch(w, head);
    return;
  }
  int64_t length = w->loop.chunk_tokens = (w->tokens + w->chunks - 1) / w->chunks;
  int64_t begin = w->first_chunk * length, end = w->last_chunk * length;
  if (end > w->tokens) end = w->tokens;
  if (begin < end) run_tokens(w, begin, end, head == 0);
}

/* Values that the emitted code prepares from operands, for as many heads at a time as fit on the stack. */
static void run_heads(walk *w, const pegen_args *args, const pegen_target_code *rows) {
  const pegen_blades *blades = w->driver->form;
  int64_t bytes = blades->prepared_bytes + 64, own = w->of->prepared_bytes + 64, both = bytes + own, tile = 1;
  int64_t heads = pegen_heads_apart(w->driver);
  int64_t leaves_count = blades->n_leaves > w->of->n_leaves ? blades->n_leaves : w->of->n_leaves;
  int64_t larger = bytes > own ? bytes : own; /* each has as much room as encode's */
  while (tile < heads && (tile + 1) * larger <= PEGEN_STACK_PREPARED) tile++;
  char *prepared = PEGEN_STACK(tile * both);
  double *leaves = PEGEN_STACK(sizeof(double) * (size_t)(leaves_count * blades->lanes) + 64);
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
    run_chunks(w, head, w->driver->per_head ? count : most_heads(w), sums_stride);
  }
}

/* Batches of which no float32 sum gets more than MOST_TERMS terms: a token's rows are summed first, of each tensor of a
 * group of heads or of both tensors of a head, and of these sums the token's. */
static int64_t most_together(const walk *w) {
  int64_t rows = w->n, sums = 1, heads = 0;
  if (!w->driver->per_head) {
    for (int i = 0; i < w->n; i++) heads += w->streams[i]->in.size[PEGEN_HEAD];
    rows = heads < w->loop.loop.group_rows ? heads : w->loop.loop.group_rows;
    sums = rows > 0 ? (heads + rows - 1) / rows + w->n - 1 : 1;
  }
  return MOST_TERMS - rows > sums ? (MOST_TERMS - rows) / sums : 1;
}

/* The rows of both tables: `is_first`: none of the call were added to torques yet. */
static void open_tables(walk *w, int is_first) {
  const pegen_backward_call *call = w->call;
  w->table = call->of_table ? call->args.table : 0;
  w->loop.loop.table = 0;
  w->loop.loop.table_token = w->loop.loop.table_head = 0;
  w->loop.torques = 0;
  if (!w->table) return;
  w->section = pegen_torque_section(call, w->streams[0]);
  w->loop.loop.table_head = w->table->row_bytes;
  w->loop.loop.table_token = w->table->heads * w->table->row_bytes;
  pegen_torque_rows_of(call, w->section, &w->torques);
  w->loop.torque_token = w->torques.token;
  w->loop.torque_head = w->torques.head;
  w->clears = !(call->grad->flags & PEGEN_GRAD_ACCUMULATE) && (is_first || w->section == 1);
}

static void run_pass(walk *w, const pegen_args *args, const pegen_target_code *rows, const pegen_tuning *tuning,
                     int64_t touched, char *scratch, int is_first_pass) {
  const pegen_stream *first = w->streams[0];
  for (int i = 0; i < w->n; i++) set_rows(w, i, w->streams[i], scratch);
  if (w->n == 1) {
    set_rows(w, 1, first, scratch);
    w->loop.loop.rows[1].heads = 0;
  }
  w->tokens = first->in.size[PEGEN_TOKEN];
  w->batches = first->in.size[PEGEN_BATCH];
  if (is_first_pass) w->given = 0;
  w->which = pegen_gaining_positions(w->call, first);
  w->again = w->which >= 0 && (w->given >> w->which & 1);
  if (w->which >= 0) w->given |= 1u << w->which;
  pegen_set_prefetch(&w->loop.loop, tuning, pegen_by_head(first), touched);
  w->loop.loop.tile_tokens = pegen_by_head(first) || !goes_by_batch(w) ? tuning->tile_tokens : 1;
  w->loop.loop.group_rows = pegen_by_head(first) ? tuning->group_rows : INT32_MAX;
  if (w->driver->turns_rows) pegen_set_own_rows(&w->loop.loop, tuning, pegen_by_head(first));
  if (w->driver->per_head && tuning->torque_prefetch) {
    w->loop.loop.prefetch = tuning->torque_prefetch;
    w->loop.loop.tile_tokens = 1;
  } else if (w->driver->per_head) {
    int64_t tile =
        w->batches > 1 ? tuning->tile_rotors / (w->driver->kernel->heads > 0 ? w->driver->kernel->heads : 1) : 1;
    w->loop.loop.tile_tokens = tile < 1 ? 1 : tile;
  }
  w->together = most_together(w);
  w->loop.loop.rotor = rows ? rows->rotor : 0;
  w->loop.loop.rotor_own = rows ? rows->rotor_own : 0;
  w->loop.loop.unfold = rows ? rows->unfold : 0;
  w->loop.loop.side = (double)first->keys;
  open_tables(w, is_first_pass);
  if (w->driver->per_head && !w->driver->turns_rows && !w->table)
    pegen_prefetch_built(&w->loop.loop, tuning, first, touched);
  if (w->table) run_chunks(w, 0, w->driver->per_head ? w->driver->kernel->heads : w->loop.loop.rows[0].heads, 0);
  else run_heads(w, args, rows);
}

static int run_torques(const pegen_driver *driver, const pegen_args *args, pegen_backward_call *call, int chosen,
                       int part, int parts) {
  const pegen_blades *blades = driver->form;
  walk w;
  w.driver = driver;
  w.call = call;
  w.loop.input_gains = 0;
  w.of = blades->gradient;
  w.code = &w.of->targets[chosen];
  w.encode = w.code->encode[call->rows.type];
  if (!w.encode) return PEGEN_ERROR_DTYPE;
  w.workspace = args->workspace;
  w.chunks = pegen_backward_chunks(call);
  w.loop.from_input = call->from_input;
  if (call->of_table && !(call->grad->flags & PEGEN_GRAD_ACCUMULATE)) {
    if (part == 0) pegen_gradient_table_sign(call);
    pegen_clear_torques_without_rows(call, part, parts);
  }
  pegen_gain_without_rows(call, part, parts);
  if (!pegen_share(w.chunks, part, parts, &w.first_chunk, &w.last_chunk)) return 0;
  int64_t touched = 0, sums = call->of_operands ? call->facts->sums_bytes : 0;
  pegen_clear(w.workspace + w.first_chunk * sums, (w.last_chunk - w.first_chunk) * sums);
  char *scratch = PEGEN_STACK(driver->kernel->head_dim * 4 + 64);
  for (int s = 0; s < 2; s++) {
    pegen_stream *stream = &call->rows.stream[s];
    if (stream->given && stream->in.empty) stream->given = 0;
    if (stream->given) touched += 3 * pegen_view_bytes(&stream->in);
  }
  if (driver->turns_rows) {
    int64_t tokens = call->rows.stream[!call->rows.stream[0].given].in.size[PEGEN_TOKEN];
    int64_t length = (tokens + w.chunks - 1) / w.chunks, begin = w.first_chunk * length, end = w.last_chunk * length;
    set_inputs(&w, begin, end < tokens ? end : tokens);
  }
  w.n = 0;
  pegen_head_groups groups;
  int64_t rounds = pegen_group_heads(&call->rows, &call->kept[0], &groups);
  for (int64_t round = 0, passes = 0; round < rounds; round++) {
    pegen_take_group(&groups, round);
    for (int s = 0; s < (round ? 1 : 2); s++) {
      if (call->rows.stream[s].given) w.streams[w.n++] = &call->rows.stream[s];
      if (w.n == 0 || (call->rows.joint && s == 0)) continue;
      run_pass(&w, args, blades->backward ? &blades->backward[chosen] : 0, &call->tuning, touched, scratch,
               passes++ == 0);
      w.n = 0;
    }
  }
  return 0;
}

/* ---- the entries ---- */

static int encode_backward(const pegen_driver *driver, const pegen_args *args, pegen_backward_call *call, int chosen,
                           int part, int parts) {
  const pegen_blades *blades = driver->form;
  if (call->of_operands || call->of_positions || call->of_inputs || call->of_table)
    return run_torques(driver, args, call, chosen, part, parts);
  if (blades->backward)
    return pegen_encode_checked(driver, &call->args, &call->rows, &blades->backward[chosen], &call->tuning,
                                call->facts->needs_input ? call->kept : 0, part, parts);
  copy_rows(&call->rows, part, parts);
  return 0;
}

int pegen_blades_finish(const pegen_driver *driver, const pegen_args *args, const pegen_backward_call *call, int chosen,
                        int part, int parts) {
  const pegen_blades *blades = driver->form;
  pegen_finish f;
  f.of = blades->gradient;
  f.n_blocks = blades->n_blocks;
  f.lanes = blades->lanes;
  if (pegen_finish_begin(&f, driver, args, call, part, parts)) pegen_finish_heads(&f, chosen);
  return 0;
}

PEGEN_BACKWARD_ENTRY(pegen_driver_encode_backward, pegen_blades_facts, pegen_check_backward, encode_backward)
PEGEN_BACKWARD_ENTRY(pegen_driver_encode_backward_finish, pegen_blades_facts, pegen_check_backward, pegen_blades_finish)
PEGEN_SIZE_ENTRY(pegen_driver_encode_backward_workspace, pegen_blades_facts, pegen_backward_needs)
