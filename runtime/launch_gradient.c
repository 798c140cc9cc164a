/* launch_gradient.c: launches of gradients: of rows, and of operands and positions; see launch.h and kernel/launch.h.
 *
 * Gradients of rows alone are launches of rows (launch_encode.c). With those of operands or positions, tokens are cut
 * into chunks (launch_chunks.c), whose sums the launches of `finish` add up in order. All is queued on one stream,
 * which is the barrier.
 */
#include "launch_chunks.h"

#include <string.h>

enum { NUMBER = PEGEN_LAUNCH_NUMBER };
/* Threads of a launch are counted in 32 bits. */
static const int64_t MOST_THREADS = INT32_MAX / 2;

/* A call of which launches are made. Without run: only whether they would be refused. */
typedef struct gradient_launch {
  pegen_gradient_cut *cut;
  const pegen_args *args;
  int64_t workspace; /* address */
  pegen_launch_run *run;
  void *context;
} gradient_launch;

static gradient_launch launch_of(const pegen_launch_request *request, pegen_gradient_cut *cut, pegen_launch_run *run,
                                 void *context) {
  return (gradient_launch){cut, request->args, (int64_t)(uintptr_t)request->args->workspace, run, context};
}

/* ---- checks ---- */

/* call->facts stay behind nothing: only the check reads them. */
int pegen_launch_check_backward(const pegen_launch_request *request, int with_workspace, pegen_backward_call *call) {
  const pegen_ptx_gradient *of = pegen_launch_gradient_of(request->kernel);
  pegen_backward_facts facts;
  pegen_driver driver;
  memset(&facts, 0, sizeof facts);
  if (of) {
    facts.has_operands = of->n_sums > 0 || of->matrix_sums > 0;
    facts.has_positions = of->has_positions;
    facts.needs_kept = of->needs_kept;
  }
  facts.needs_input = pegen_launch_needs_input(request->kernel);
  facts.needs_kept |= facts.needs_input;
  facts.widens = pegen_launch_has_columns(request->kernel);
  facts.has_inputs =
      of && ((facts.widens && pegen_launch_inputs_of(request->kernel) > 0) || pegen_launch_turns_rows(request->kernel));
  pegen_launch_driver(request->kernel, &driver);
  int error = pegen_check_backward(&driver, &facts, request->args, 0, 1, with_workspace, call);
  call->facts = NULL;
  return error;
}

/* ---- entries ---- */

/* A launch of the only entry of a word: pegen_ptx.gradient says that it is there. */
static pegen_launch_step step_of(const pegen_gradient_cut *g, const char *word, int64_t threads) {
  return pegen_launch_threads(g->kernel, &g->kernel->ptx->entries[pegen_launch_next(g->kernel, word, 0)], threads);
}

static const pegen_ptx_entry *choose_entry(const pegen_gradient_cut *g, const pegen_gradient_pass *p) {
  uint32_t dtype = pegen_number_pair(p->stream[0]->in_type, p->stream[0]->in_type);
  for (int i = pegen_launch_next(g->kernel, PEGEN_PTX_WORD_GRADIENT, 0); i >= 0;
       i = pegen_launch_next(g->kernel, PEGEN_PTX_WORD_GRADIENT, i + 1)) {
    const pegen_ptx_entry *entry = &g->kernel->ptx->entries[i];
    int fits = entry->dtype == dtype;
    for (int s = 0; fits && s < p->n; s++) {
      const pegen_stream *stream = p->stream[s];
      fits = pegen_launch_is_aligned(&stream->in, entry->access) &&
             (!g->call->is_written[stream->keys] || pegen_launch_is_aligned(stream->out, entry->access)) &&
             (!g->of->needs_kept || pegen_launch_is_aligned(&g->call->kept[stream->keys], entry->access));
    }
    if (fits) return entry;
  }
  return NULL;
}

/* ---- rows and positions ---- */

static void set_rows(pegen_launch_step *step, const pegen_gradient_cut *g, const pegen_gradient_pass *p, int64_t *own) {
  for (int s = 0; s < p->n; s++) {
    int is_second = s || (pegen_launch_has_columns(g->kernel) && p->stream[s]->keys);
    int64_t *of = step->parameter + (is_second ? PEGEN_PTX_K : PEGEN_PTX_Q);
    pegen_launch_set_tensor(of, p->stream[s], 0);
    if (!g->call->is_written[p->stream[s]->keys]) of[PEGEN_PTX_TENSOR_OUT] = 0;
    if (g->of->needs_kept)
      pegen_launch_set_rows(own + (s ? PEGEN_PTX_KEPT_K : PEGEN_PTX_KEPT_Q), &g->call->kept[p->stream[s]->keys], 0);
  }
}

static int accumulates(const gradient_launch *l) { return (l->cut->call->grad->flags & PEGEN_GRAD_ACCUMULATE) != 0; }

/* Those that a query's rows are made with, and what they gain. */
static void set_inputs(pegen_launch_step *step, const gradient_launch *l, int64_t *own) {
  const pegen_gradient_cut *g = l->cut;
  pegen_launch_request request = {.kernel = g->kernel, .entry = PEGEN_LAUNCH_encode_backward, .args = l->args};
  pegen_launch_set_inputs(step->parameter + PEGEN_PTX_OPERANDS, &request, g->call->rows.input, 0);
  own[PEGEN_PTX_COLUMN_ADDS] = accumulates(l);
  pegen_launch_set_gained_inputs(own + PEGEN_PTX_COLUMN_INPUTS, g->kernel,
                                 step->parameter + pegen_ptx_inputs(PEGEN_PTX_OPERANDS, g->kernel->n_operands),
                                 g->call->inputs);
}

/* batches: of the shares; 0: nothing is gained. */
static int launch_positions(const gradient_launch *l, int which, int64_t batches, int64_t count, int adds) {
  const pegen_gradient_cut *g = l->cut;
  pegen_launch_shares of = {l->workspace + g->at.shares, batches, count, adds};
  pegen_launch_step step = pegen_launch_gained_positions(
      g->kernel, PEGEN_PTX_WORD_POSITIONS, &g->call->positions[which], g->call->position_is_f64[which] != 0, &of);
  return l->run(l->context, &step);
}

/* What rows of a pass, or none (NULL), give to each input that is wanted. */
static int launch_inputs(const gradient_launch *l, const pegen_gradient_pass *p, int adds) {
  const pegen_gradient_cut *g = l->cut;
  int64_t first = 0;
  int error = 0;
  for (int i = 0; i < g->kernel->n_inputs && !error; first += pegen_launch_input_size(g->kernel, i++)) {
    const pegen_view *out = &g->call->inputs[i];
    int64_t elements = pegen_launch_input_elements(g, i);
    if (elements == 0) continue;
    pegen_launch_step step = step_of(g, PEGEN_PTX_WORD_INPUTS, elements);
    int64_t *of = step.parameter;
    of[PEGEN_PTX_INPUTS_SHARES] = l->workspace + g->at.input_shares;
    of[PEGEN_PTX_INPUTS_BATCHES] = p ? p->stream[0]->in.size[PEGEN_BATCH] : 0;
    of[PEGEN_PTX_INPUTS_HEADS] = p ? p->heads : 1;
    pegen_launch_set_input(of, out, first, pegen_launch_input_size(g->kernel, i), adds);
    error = l->run(l->context, &step);
  }
  return error;
}

/* Whether inputs gain row by row, of launches of their own. */
static int gives_inputs(const pegen_gradient_cut *g) {
  return g->call->of_inputs && pegen_launch_turns_rows(g->kernel);
}

/* first_chunk: of all chunks of the call, the round's first. */
static int launch_round(const gradient_launch *l, const pegen_gradient_pass *p, int64_t round, int64_t first_chunk) {
  const pegen_gradient_cut *g = l->cut;
  const pegen_stream *first = p->stream[0];
  const pegen_ptx_entry *entry = choose_entry(g, p);
  if (!entry) return PEGEN_ERROR_DTYPE;
  if (entry->units * p->heads > MOST_THREADS / p->chunks) return PEGEN_ERROR_SIZE_OVERFLOW;
  if (!l->run) return 0;
  pegen_launch_step step = pegen_launch_threads(g->kernel, entry, entry->units * p->heads * p->chunks);
  int64_t *own = step.parameter + pegen_launch_behind_inputs(g->kernel, PEGEN_PTX_OPERANDS);
  set_rows(&step, g, p, own);
  if (pegen_launch_has_sides(g->kernel)) step.parameter[PEGEN_PTX_SIDE] = first->keys;
  pegen_launch_set_positions(step.parameter + PEGEN_PTX_POSITIONS, &first->positions,
                             first->grid ? -1 : first->position_type, 0);
  pegen_launch_set_operands(step.parameter + PEGEN_PTX_OPERANDS, g->kernel, l->args);
  pegen_launch_set_origin(own + pegen_ptx_behind_inputs(PEGEN_PTX_COLUMN_INPUTS, 0, pegen_launch_inputs_of(g->kernel)),
                          g->kernel, &g->call->rows.origin, 0);
  if (pegen_launch_has_columns(g->kernel) && !first->keys) set_inputs(&step, l, own);
  if (pegen_launch_turns_rows(g->kernel)) {
    pegen_launch_request request = {.kernel = g->kernel, .entry = PEGEN_LAUNCH_encode_backward, .args = l->args};
    pegen_launch_set_inputs(step.parameter + PEGEN_PTX_OPERANDS, &request, g->call->rows.input, 0);
    own[PEGEN_PTX_INPUT_SHARES] = gives_inputs(g) && g->of->n_input_gains ? l->workspace + g->at.input_shares : 0;
  }
  step.parameter[PEGEN_PTX_BATCHES] = first->in.size[PEGEN_BATCH];
  step.parameter[PEGEN_PTX_TOKENS] = first->in.size[PEGEN_TOKEN];
  step.parameter[PEGEN_PTX_ROWS] = p->rows;
  own[PEGEN_PTX_FROM_INPUT] = (g->call->grad->flags & PEGEN_GRAD_FROM_INPUT) != 0;
  own[PEGEN_PTX_ITEMS] = p->items;
  own[PEGEN_PTX_CHUNK] = p->chunk;
  own[PEGEN_PTX_SUMS] = g->call->of_operands ? l->workspace + g->at.sums + first_chunk * g->numbers * NUMBER : 0;
  own[PEGEN_PTX_SHARES] = p->which >= 0 ? l->workspace + g->at.shares : 0;
  if (g->of->matrix_sums) {
    int64_t sums = l->workspace + g->at.matrix_sums + first_chunk * g->of->matrix_sums * NUMBER;
    own[PEGEN_PTX_MATRIX_SUMS] = g->call->of_operands ? sums : 0;
    own[PEGEN_PTX_MATRIX_ROOM] = l->workspace + g->at.room;
  }
  int error = l->run(l->context, &step);
  if (!error && gives_inputs(g)) error = launch_inputs(l, p, p != g->pass || accumulates(l));
  if (error || p->which < 0) return error;
  int64_t batches = p->items / first->in.size[PEGEN_TOKEN]; /* those of a set meet in one coordinate */
  return launch_positions(l, p->which, batches, p->heads * (g->of->n_shares ? g->of->n_shares : entry->units),
                          round > 0 || p->again || accumulates(l));
}

static int launch_pass(const gradient_launch *l, const pegen_gradient_pass *p, int64_t first_chunk) {
  int error = 0;
  for (int64_t round = 0; round < p->rounds && !error; round++) {
    if (!p->stream[0]->keys) pegen_take_group(&l->cut->head_groups, round);
    error = launch_round(l, p, round, first_chunk + round * p->sums);
  }
  return error;
}

/* Positions and inputs of tensors without rows gain nothing, which is written. */
static int launch_nothing(const gradient_launch *l) {
  const pegen_gradient_cut *g = l->cut;
  int error = 0;
  for (int which = 0; which < 2 && !error; which++) {
    int gains = g->call->positions[which].empty || accumulates(l);
    for (int i = 0; i < g->n; i++) gains = gains || g->pass[i].which == which;
    if (!gains && l->run) error = launch_positions(l, which, 0, 0, 0);
  }
  if (!error && l->run && g->n == 0 && gives_inputs(g) && !accumulates(l)) error = launch_inputs(l, NULL, 0);
  return error;
}

static int launch_all(const gradient_launch *l) {
  int64_t first_chunk = 0;
  int error = launch_nothing(l);
  for (int i = 0; i < l->cut->n && !error; i++) {
    error = launch_pass(l, &l->cut->pass[i], first_chunk);
    first_chunk += l->cut->pass[i].sums * l->cut->pass[i].rounds;
  }
  return error;
}

/* ---- finish ---- */

/* Sums of a chunk, `numbers` of them: where they are, and of how many chunks, once there are few. */
typedef struct chunk_sums {
  int64_t at, chunks;
} chunk_sums;

static int sum_chunks(const gradient_launch *l, int64_t numbers, int64_t sums, int64_t groups, chunk_sums *out) {
  const pegen_gradient_cut *g = l->cut;
  *out = (chunk_sums){l->workspace + sums, g->chunks};
  if (g->chunks <= PEGEN_PTX_SUM_MOST) return 0;
  *out = (chunk_sums){l->workspace + groups, g->groups};
  pegen_launch_step step =
      pegen_launch_sums(g->kernel, PEGEN_PTX_WORD_SUM, l->workspace + sums, l->workspace + groups, numbers, g->chunks);
  return l->run(l->context, &step);
}

static int launch_scatter(const gradient_launch *l) {
  const pegen_gradient_cut *g = l->cut;
  chunk_sums sums;
  int error = sum_chunks(l, g->numbers, g->at.sums, g->at.groups, &sums);
  pegen_launch_step step = step_of(g, PEGEN_PTX_WORD_SCATTER, g->sum_heads * g->of->n_blocks);
  step.parameter[PEGEN_PTX_SCATTER_SUMS] = sums.at;
  step.parameter[PEGEN_PTX_SCATTER_CHUNKS] = sums.chunks;
  step.parameter[PEGEN_PTX_SCATTER_GAINED] = l->workspace + g->at.gained;
  pegen_launch_set_operands(step.parameter + PEGEN_PTX_SCATTER_OPERANDS, g->kernel, l->args);
  return error ? error : l->run(l->context, &step);
}

static int launch_gather(const gradient_launch *l) {
  const pegen_gradient_cut *g = l->cut;
  int64_t elements = pegen_all_elements(g->kernel) - g->of->matrix_elements;
  if (elements == 0) return 0;
  pegen_launch_step step = step_of(g, PEGEN_PTX_WORD_GATHER, elements);
  step.parameter[PEGEN_PTX_GATHER_GAINED] = l->workspace + g->at.gained;
  step.parameter[PEGEN_PTX_GATHER_ADDS] = accumulates(l);
  pegen_launch_set_gained(step.parameter + PEGEN_PTX_GATHER_OPERANDS, g->kernel, g->call->grad);
  return l->run(l->context, &step);
}

static int launch_matrices(const gradient_launch *l) {
  const pegen_gradient_cut *g = l->cut;
  chunk_sums sums;
  int error = sum_chunks(l, g->of->matrix_sums, g->at.matrix_sums, g->at.matrix_groups, &sums);
  pegen_launch_step step = step_of(g, PEGEN_PTX_WORD_MATRICES, g->of->matrix_elements);
  step.parameter[PEGEN_PTX_MATRICES_SUMS] = sums.at;
  step.parameter[PEGEN_PTX_MATRICES_CHUNKS] = sums.chunks;
  step.parameter[PEGEN_PTX_MATRICES_ADDS] = accumulates(l);
  pegen_launch_set_gained(step.parameter + PEGEN_PTX_MATRICES_OPERANDS, g->kernel, g->call->grad);
  return error ? error : l->run(l->context, &step);
}

static int launch_finish(const gradient_launch *l) {
  int error = l->cut->of->matrix_sums ? launch_matrices(l) : 0;
  if (!error && l->cut->of->n_sums) error = launch_scatter(l);
  return error ? error : launch_gather(l);
}

/* ---- the calls ---- */

/* What of the call is more than its rows, cut; cut->call NULL where there is nothing. */
static int cut_checked(const pegen_launch_request *request, pegen_backward_call *call, pegen_gradient_cut *cut) {
  cut->call = NULL;
  if (!call->of_operands && !call->of_positions && !call->of_inputs) return 0;
  return pegen_launch_cut(request->kernel, call, cut);
}

int pegen_launch_plan_backward(const pegen_launch_request *request, pegen_launch_run *run, void *context) {
  pegen_backward_call call;
  pegen_gradient_cut cut;
  int error = pegen_launch_check_backward(request, 1, &call);
  if (!error) error = cut_checked(request, &call, &cut);
  if (error) return error;
  pegen_launch_request rows = *request;
  rows.args = &call.args;
  gradient_launch checked = launch_of(request, &cut, NULL, NULL), run_now = launch_of(request, &cut, run, context);
  const pegen_view *kept = pegen_launch_needs_input(request->kernel) ? call.kept : NULL;
  error = cut.call ? launch_all(&checked) : pegen_launch_rows_of(&rows, &call.rows, kept, NULL, NULL);
  if (error || !run) return error;
  return cut.call ? launch_all(&run_now) : pegen_launch_rows_of(&rows, &call.rows, kept, run, context);
}

int pegen_launch_plan_finish(const pegen_launch_request *request, pegen_launch_run *run, void *context) {
  pegen_backward_call call;
  pegen_gradient_cut cut;
  int error = pegen_launch_check_backward(request, 1, &call);
  if (!error) error = cut_checked(request, &call, &cut);
  if (error || !run || !call.of_operands) return error;
  gradient_launch l = launch_of(request, &cut, run, context);
  return launch_finish(&l);
}

size_t pegen_launch_backward_bytes(const pegen_launch_request *request) {
  pegen_backward_call call;
  pegen_gradient_cut cut;
  if (pegen_launch_check_backward(request, 0, &call) || cut_checked(request, &call, &cut) || !cut.call) return 0;
  gradient_launch l = launch_of(request, &cut, NULL, NULL);
  return launch_all(&l) ? 0 : (size_t)cut.at.end;
}
