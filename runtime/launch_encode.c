/* launch_encode.c: launches of rows that are encoded, or of gradients that are turned back as rows are; see launch.h
 * and kernel/launch.h.
 *
 * The work of a call lies on a plane: along x the threads that share nothing (units of
 * channels, tokens, and batches or heads), along y the rows that could share a rotor.
 * Few rows a thread make many threads and many rotors, many rows the opposite: y is cut
 * just finely enough to keep the device busy.
 */
#include "launch.h"

#include "../kernel/driver.h"
#include "../kernel/loop.h"

#include <string.h>

/* Threads along x and rows are counted in 32 bits, and y has 16. */
static const int64_t MOST_X = INT32_MAX - 1024, MOST_ROWS = INT32_MAX / 2, MOST_Y = 65535;

/* One pass over the tensors that share tokens and positions. */
typedef struct pass {
  const pegen_launch_request *request;
  const pegen_call *call;
  const pegen_view *kept; /* of q and k: what encode read; NULL: it is not asked for */
  const pegen_stream *stream[2];
  int n;
} pass;

static int64_t at_least_one(int64_t x) { return x > 1 ? x : 1; }
static int64_t smaller(int64_t x, int64_t y) { return x < y ? x : y; }

/* Whether rows of a thread are batches of one head, or of one head and batch. */
static int by_head(const pegen_ptx *ptx) {
  return ptx->per_head == PEGEN_PER_HEAD_ALL || ptx->per_head == PEGEN_PER_HEAD_ROWS;
}

/* Heads that are columns of the grid, where they are. */
static int64_t heads_of(const pass *p) {
  const pegen_kernel *kernel = p->request->kernel;
  return pegen_launch_turns_rows(kernel) ? p->stream[0]->in.size[PEGEN_HEAD] : kernel->heads;
}

/* ---- entry ---- */

/* Bytes of an access to what is written for those of one to what is read. */
static int64_t out_access(const pegen_stream *stream, int64_t access) {
  return pegen_converts(stream)
             ? access * pegen_number_at(stream->out_type)->bits / pegen_number_at(stream->in_type)->bits
             : access;
}

static const pegen_ptx_entry *choose_entry(const pass *p, uint32_t dtype) {
  const pegen_ptx *ptx = p->request->kernel->ptx;
  for (int i = 0; i < ptx->n_entries; i++) {
    const pegen_ptx_entry *entry = &ptx->entries[i];
    int fits = pegen_launch_is_for(p->request->kernel, i, p->request->entry) && entry->dtype == dtype;
    for (int s = 0; fits && s < p->n; s++)
      fits = pegen_launch_is_aligned(&p->stream[s]->in, entry->access) &&
             pegen_launch_is_aligned(p->stream[s]->out, out_access(p->stream[s], entry->access)) &&
             (!p->kept || pegen_launch_is_aligned(&p->kept[p->stream[s]->keys], entry->access));
    if (fits) return entry;
  }
  return NULL;
}

/* ---- grid ---- */

/* Rows of a thread: just few enough that the device is busy, whole groups of those under way together. */
static int64_t rows_of_thread(const pass *p, const pegen_ptx_entry *entry, int64_t threads, int64_t rows) {
  int64_t groups = smaller(pegen_divide_up(p->request->threads, threads), pegen_divide_up(rows, entry->flight));
  int64_t each = pegen_divide_up(rows, at_least_one(groups));
  each = pegen_divide_up(each, entry->flight) * entry->flight;
  return each > pegen_divide_up(rows, MOST_Y) ? each : pegen_divide_up(rows, MOST_Y);
}

/* Blocks along x for this many tokens of batches, or of heads where rotors differ by head. */
static int64_t blocks_of(const pegen_ptx *ptx, const pegen_ptx_entry *entry, int64_t columns) {
  enum { WARP = 32 };
  return entry->columns ? pegen_divide_up(columns, entry->columns * (ptx->block / WARP))
                        : pegen_divide_up(columns * entry->units, ptx->block);
}

static int launch_batches(const pass *p, const pegen_ptx_entry *entry, int64_t first, int64_t batches,
                          pegen_launch_run *run, void *context) {
  const pegen_ptx *ptx = p->request->kernel->ptx;
  const pegen_stream *stream = p->stream[0];
  int64_t tokens = stream->in.size[PEGEN_TOKEN], rows = 0, others = by_head(ptx) ? heads_of(p) : batches;
  int64_t blocks = blocks_of(ptx, entry, tokens * others);
  pegen_launch_step step;
  memset(&step, 0, sizeof step);
  step.entry = entry;
  int64_t *behind = step.parameter + pegen_launch_behind_inputs(p->request->kernel, PEGEN_PTX_OPERANDS);
  for (int s = 0; s < p->n; s++) {
    int is_second = s || (pegen_launch_has_columns(p->request->kernel) && p->stream[s]->keys);
    pegen_launch_set_tensor(step.parameter + (is_second ? PEGEN_PTX_K : PEGEN_PTX_Q), p->stream[s], first);
    if (pegen_converts(p->stream[s]) && !p->stream[s]->scale.empty)
      behind[is_second ? PEGEN_PTX_SCALE_K : PEGEN_PTX_SCALE_Q] = (int64_t)p->stream[s]->scale.base;
    if (p->kept)
      pegen_launch_set_rows(behind + (is_second ? PEGEN_PTX_KEPT_K : PEGEN_PTX_KEPT_Q), &p->kept[p->stream[s]->keys],
                            first);
    rows += by_head(ptx) ? batches : p->stream[s]->in.size[PEGEN_HEAD];
  }
  if (pegen_launch_has_sides(p->request->kernel)) step.parameter[PEGEN_PTX_SIDE] = stream->keys;
  pegen_launch_set_positions(step.parameter + PEGEN_PTX_POSITIONS, &stream->positions,
                             stream->grid ? -1 : stream->position_type, first);
  pegen_launch_set_operands(step.parameter + PEGEN_PTX_OPERANDS, p->request->kernel, p->request->args);
  pegen_launch_set_origin(behind, p->request->kernel, &p->call->origin, first);
  if (p->request->args->q || pegen_launch_turns_rows(p->request->kernel))
    pegen_launch_set_inputs(step.parameter + PEGEN_PTX_OPERANDS, p->request, p->call->input, first);
  int64_t each = rows_of_thread(p, entry, blocks * ptx->block, rows);
  if (by_head(ptx) && (step.parameter[PEGEN_PTX_POSITION_BATCH] || pegen_launch_turns_rows(p->request->kernel)))
    each = p->n; /* a batch has its own rotors */
  step.parameter[PEGEN_PTX_BATCHES] = batches;
  step.parameter[PEGEN_PTX_TOKENS] = tokens;
  step.parameter[PEGEN_PTX_ROWS] = each;
  step.grid_x = (uint32_t)blocks;
  step.grid_y = (uint32_t)pegen_divide_up(rows, each);
  return run(context, &step);
}

/* Batches at a time as the grid allows: as a rule all of them. Without run: only whether it would. */
static int launch_pass(const pass *p, uint32_t dtype, pegen_launch_run *run, void *context) {
  if (p->n == 0) return 0;
  const pegen_kernel *kernel = p->request->kernel;
  const pegen_stream *stream = p->stream[0];
  const pegen_ptx_entry *entry = choose_entry(p, dtype);
  if (!entry) return PEGEN_ERROR_DTYPE;
  int64_t batches = stream->in.size[PEGEN_BATCH], tokens = stream->in.size[PEGEN_TOKEN];
  int64_t per_batch =
      blocks_of(kernel->ptx, entry, tokens * (by_head(kernel->ptx) ? heads_of(p) : 1)) * kernel->ptx->block;
  int64_t heads = 0;
  for (int s = 0; s < p->n; s++) heads += p->stream[s]->in.size[PEGEN_HEAD];
  if (per_batch > MOST_X || heads > MOST_ROWS) return PEGEN_ERROR_SIZE_OVERFLOW;
  int64_t most = by_head(kernel->ptx) ? MOST_Y : MOST_X / per_batch;
  for (int64_t first = 0; run && first < batches; first += most) {
    int error = launch_batches(p, entry, first, smaller(most, batches - first), run, context);
    if (error) return error;
  }
  return 0;
}

static uint32_t pass_dtype(const pass *p) {
  return p->n ? pegen_number_pair(p->stream[0]->in_type, p->stream[0]->out_type) : 0;
}

static int launch_streams(const pegen_launch_request *request, const pegen_call *call, const pegen_view *kept,
                          int streams, pegen_launch_run *run, void *context) {
  pass p = {.request = request, .call = call, .kept = kept};
  int error = 0;
  for (int s = 0; s < streams && !error; s++) {
    const pegen_stream *stream = &call->stream[s];
    /* An entry writes one type. */
    if (p.n > 0 && stream->given && p.stream[0]->out_type != stream->out_type) {
      error = launch_pass(&p, pass_dtype(&p), run, context);
      p.n = 0;
    }
    if (error) break;
    if (stream->given && !stream->in.empty) p.stream[p.n++] = stream;
    if (!call->joint || s == streams - 1) {
      error = launch_pass(&p, pass_dtype(&p), run, context);
      p.n = 0;
    }
  }
  return error;
}

int pegen_launch_rows_of(const pegen_launch_request *request, const pegen_call *call, const pegen_view *kept,
                         pegen_launch_run *run, void *context) {
  pegen_call of;
  pegen_view of_kept[2];
  pegen_head_groups groups;
  for (int s = 0; s < 2 && kept; s++) of_kept[s] = kept[s];
  pegen_launch_copy_call(call, &of);
  /* A thread has a row of q and that of k beside it. */
  if (pegen_launch_turns_rows(request->kernel) && of.joint)
    of.joint = of.stream[0].in.size[PEGEN_HEAD] == of.stream[1].in.size[PEGEN_HEAD];
  int error = 0;
  int64_t rounds = pegen_group_heads(&of, kept ? of_kept : NULL, &groups);
  for (int64_t round = 0; round < rounds && !error; round++) {
    pegen_take_group(&groups, round);
    error = launch_streams(request, &of, kept ? of_kept : NULL, round ? 1 : 2, run, context);
  }
  return error;
}

/* ---- the call ---- */

static int check(const pegen_kernel *kernel, const pegen_args *args, pegen_call *call) {
  pegen_driver driver;
  pegen_launch_driver(kernel, &driver);
  return pegen_check(&driver, args, 0, 1, 0, call);
}

int pegen_launch_plan_encode(const pegen_launch_request *request, pegen_launch_run *run, void *context) {
  pegen_call call;
  int error = check(request->kernel, request->args, &call);
  if (!error) error = pegen_launch_rows_of(request, &call, NULL, NULL, NULL); /* k is refused before q is launched */
  return error || !run ? error : pegen_launch_rows_of(request, &call, NULL, run, context);
}
