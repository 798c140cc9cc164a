/* check_attention_backward.c: every argument of a call for the gradients of attention, in this order, before a byte is
 * written:
 *
 *   1. args, struct_size, part                    NULL_ARGS STRUCT_SIZE UNKNOWN_FIELD PART
 *   2. grad, its struct_size and flags            MISSING_GRADIENT STRUCT_SIZE UNKNOWN_FIELD GRADIENT_FLAGS
 *      what is asked for, what comes in           NO_GRADIENT MISSING_OPERAND MISSING_INPUT MISSING_GRADIENT LSE
 *   3. the forward call                           as check_attention.c, but that out and lse are not written
 *   4. gradients: shapes and types                RANK NULL_SHAPE NEGATIVE_SIZE GRADIENT_SHAPE GRADIENT_DTYPE LSE
 *   5. memory of each, workspace                  DEVICE CHANNEL_STRIDE SIZE_OVERFLOW NULL_DATA ALIGNMENT STRIDE
 *                                                 WORKSPACE
 *   6. what is written, the workspace too, against every other tensor  OVERLAP
 */
#include "attention_row_gains.h"

/* ---- 2. what is asked for ---- */

static int check_wanted(const pegen_driver *driver, const pegen_args *args, pegen_attention_backward_call *call) {
  const pegen_grad_args *grad = call->grad;
  const pegen_attention *form = driver->form;
  if (grad->q_out || grad->k_out || PEGEN_GRAD_GIVEN(grad, table)) return PEGEN_ERROR_NO_GRADIENT;
  if (!form->gradients) return PEGEN_ERROR_NO_GRADIENT;
  pegen_gained gained;
  PEGEN_TRY(pegen_find_gained(driver->kernel, args, grad, &gained));
  call->of_operands = gained.operands != 0;
  call->of_inputs = gained.inputs != 0;
  if ((gained.inputs && !form->weights && !form->n_sums) || gained.operands & ~form->gaining ||
      (grad->positions && !(form->has_places && args->positions)) ||
      (grad->k_positions && !(form->has_places && args->k_positions)))
    return PEGEN_ERROR_NO_GRADIENT;
  if (!grad->out) return PEGEN_ERROR_MISSING_GRADIENT;
  return PEGEN_GIVEN(args, lse) ? 0 : PEGEN_ERROR_LSE;
}

/* ---- 4., 5. gradients of rows ---- */

static int check_rows(const DLTensor *rows, const DLTensor *of, pegen_view *view, int is_written) {
  view->empty = 1;
  if (!rows) return 0;
  PEGEN_TRY(pegen_check_rows_like(rows, of, of->shape[of->ndim - 1], 1, view));
  return !is_written || view->empty || pegen_view_nests(view) ? 0 : PEGEN_ERROR_STRIDE;
}

/* of_rows: gradients of rows go out; else what rows change by comes in, and what out and lse do goes out. */
static int check_rows_of_all(const pegen_args *args, int of_rows, pegen_attention_backward_call *call) {
  const pegen_grad_args *grad = call->grad;
  PEGEN_TRY(check_rows(grad->out, args->out, &call->g_out, !of_rows));
  PEGEN_TRY(check_rows(grad->q, args->q, &call->g_q, of_rows));
  PEGEN_TRY(check_rows(grad->k, args->k, &call->g_k, of_rows));
  PEGEN_TRY(check_rows(grad->v, args->v, &call->g_v, of_rows));
  PEGEN_TRY(pegen_check_lse(grad->lse, args->q));
  PEGEN_TRY(pegen_view_lse(grad->lse, &call->g_lse));
  return of_rows || call->g_lse.empty || pegen_view_nests(&call->g_lse) ? 0 : PEGEN_ERROR_STRIDE;
}

/* ---- 5. the workspace ---- */

#ifndef PEGEN_CHECK_ANY_DEVICE /* the launcher's is another (runtime/launch_attention_backward.c) */

enum { MOST_CHUNKS = 64, KEPT_BATCHES = 8 };

/* Units of some batches of a head: the more batches, the less what is kept of pairs costs, and the fewer parts have
 * keys of their own. Not where that takes more room than q and k do. */
static void keep_pairs(const pegen_attention_backward_call *call, int64_t most, pegen_attention_cut *cut) {
  const pegen_view *k = &call->forward.k;
  int64_t batches = k->size[PEGEN_BATCH], of_head = (batches + KEPT_BATCHES - 1) / KEPT_BATCHES,
          units = pegen_smaller(k->size[PEGEN_HEAD] * of_head, most), chunks = most / units,
          numbers = (pegen_view_bytes(&call->forward.q) + pegen_view_bytes(k)) / (int64_t)sizeof(float);
  if (numbers / (2 * PEGEN_ATTENTION_QUERIES * units * chunks) < k->size[PEGEN_TOKEN] + PEGEN_ATTENTION_MORE_KEYS)
    return;
  cut->keeps = 1;
  cut->units = units;
  cut->chunks = chunks;
}

/* How many batches, or heads of q, have one number of a pair that gains, at the most. */
static int64_t sharing(const pegen_driver *driver, const pegen_attention_backward_call *call, int dim) {
  int64_t most = 1;
  for (int i = 0; i < driver->kernel->n_inputs; i++)
    if (driver->kernel->inputs[i].size == PEGEN_SIZE_OF_KEYS && !call->g_input[i].empty)
      most = pegen_larger(most, call->forward.q.size[dim] / call->g_input[i].size[dim]);
  return most;
}

/* So many chunks that their sums are not more numbers than q. */
void pegen_attention_cut_of(const pegen_driver *driver, const pegen_attention_backward_call *call,
                            pegen_attention_cut *cut) {
  int is_empty = call->forward.q.empty && call->forward.k.empty; /* then sizes may be any */
  int64_t items = is_empty ? 0 : call->forward.k.size[PEGEN_BATCH] * call->forward.k.size[PEGEN_HEAD],
          numbers = pegen_view_bytes(&call->forward.q) / (int64_t)sizeof(float), most = MOST_CHUNKS;
  cut->items = cut->units = items;
  cut->chunks = cut->keeps = 0;
  /* Then parts share each item's tiles of queries, so that a tile's pairs are those of one part in all items. */
  int64_t batches = is_empty ? 1 : sharing(driver, call, PEGEN_BATCH),
          heads = is_empty ? 1 : sharing(driver, call, PEGEN_HEAD);
  cut->shares = batches * heads > 1 && items;
  if (cut->shares) cut->units = 1;
  if (!call->of_operands || !items) return;
  if (numbers / pegen_all_elements(driver->kernel) < most) most = numbers / pegen_all_elements(driver->kernel);
  if (most < 1) most = 1;
  if (cut->units > most) cut->units = most;
  cut->chunks = heads > 1 && call->forward.group > 1 ? 1 : most / cut->units;
  if (((const pegen_attention *)driver->form)->keeps && pegen_attention_shares_places(&call->forward))
    keep_pairs(call, most, cut);
}

int64_t pegen_attention_key_numbers(const pegen_attention_backward_call *call) {
  int64_t of_keys = call->g_k.empty ? 0 : pegen_attention_pitch(call->grad->k->shape[call->grad->k->ndim - 1]),
          of_values = call->g_v.empty ? 0 : pegen_attention_pitch(call->grad->v->shape[call->grad->v->ndim - 1]);
  return of_keys + of_values;
}

int64_t pegen_attention_key_bytes(const pegen_attention_backward_call *call) {
  const pegen_view *k = &call->forward.k;
  int64_t bytes = pegen_attention_key_numbers(call) * (int64_t)sizeof(float);
  for (int i = 0; i < PEGEN_VIEW_DIMS && bytes; i++)
    if (__builtin_mul_overflow(bytes, k->size[i], &bytes)) return -1;
  return bytes;
}

int pegen_attention_wants_sums(const pegen_driver *driver, const pegen_attention_backward_call *call,
                               const pegen_args *args, int of_keys) {
  const pegen_view *rows = of_keys ? &call->forward.k : &call->forward.q;
  int wants = pegen_attention_wants_places(call, args, of_keys);
  for (int i = 0; i < driver->kernel->n_inputs; i++)
    wants |= pegen_input_is_of_pairs(driver->kernel, i) && !call->g_input[i].empty &&
             pegen_input_is_of_keys(driver->kernel, i) == of_keys && pegen_reads_numbers(driver->form, i, 0);
  return wants && !rows->empty;
}

/* -1: more than can be addressed. */
static int64_t place_bytes(const pegen_driver *driver, const pegen_args *args,
                           const pegen_attention_backward_call *call, int of_keys) {
  const pegen_attention *form = driver->form;
  int64_t bytes = form->n_sums * (int64_t)sizeof(double), sizes[PEGEN_VIEW_DIMS];
  if (!pegen_attention_wants_sums(driver, call, args, of_keys)) return 0;
  pegen_attention_place_sizes(driver, call, of_keys, sizes);
  for (int i = 0; i < PEGEN_VIEW_DIMS; i++)
    if (__builtin_mul_overflow(bytes, sizes[i], &bytes)) return -1;
  return bytes;
}

static int64_t chunk_bytes(const pegen_driver *driver, const pegen_attention_backward_call *call) {
  pegen_attention_cut cut;
  pegen_attention_cut_of(driver, call, &cut);
  return cut.units * cut.chunks * pegen_all_elements(driver->kernel) * (int64_t)sizeof(double);
}

static int64_t pair_bytes(const pegen_driver *driver, const pegen_attention_backward_call *call) {
  pegen_attention_cut cut;
  pegen_attention_cut_of(driver, call, &cut);
  if (!cut.keeps) return 0;
  return cut.units * cut.chunks * 2 * pegen_attention_pair_numbers(call) * (int64_t)sizeof(float);
}

/* Rooms of the workspace, in their order. */
enum {
  ROOM_OF_KEYS,
  ROOM_OF_CHUNKS,
  ROOM_OF_PLACES,
  ROOM_OF_ROWS = ROOM_OF_PLACES + 2,
  ROOM_OF_PAIRS = ROOM_OF_ROWS + 2,
  ROOMS
};

/* Bytes of the rooms before `last`. -1: more than can be addressed. */
static int64_t bytes_before(const pegen_driver *driver, const pegen_args *args,
                            const pegen_attention_backward_call *call, int last) {
  int64_t bytes = 0, of[ROOMS] = {pegen_attention_key_bytes(call),
                                  chunk_bytes(driver, call),
                                  place_bytes(driver, args, call, 0),
                                  place_bytes(driver, args, call, 1),
                                  pegen_row_gains_bytes(driver, call, 0),
                                  pegen_row_gains_bytes(driver, call, 1),
                                  pair_bytes(driver, call)};
  for (int i = 0; i < last; i++)
    if (of[i] < 0 || __builtin_add_overflow(bytes, of[i], &bytes)) return -1;
  return bytes;
}

double *pegen_attention_place_sums(const pegen_driver *driver, const pegen_args *args,
                                   const pegen_attention_backward_call *call, char *workspace, int of_keys) {
  if (!pegen_attention_wants_sums(driver, call, args, of_keys)) return 0;
  return (double *)(void *)(workspace + bytes_before(driver, args, call, ROOM_OF_PLACES + of_keys));
}

pegen_row_gains pegen_attention_row_gains(const pegen_driver *driver, const pegen_args *args,
                                          const pegen_attention_backward_call *call, char *workspace, int of_keys) {
  pegen_row_gains g = pegen_row_gains_of(driver, call, of_keys);
  pegen_attention_cut cut;
  if (!g.rows) return g;
  g.at = (double *)(void *)(workspace + bytes_before(driver, args, call, ROOM_OF_ROWS + of_keys));
  pegen_attention_cut_of(driver, call, &cut);
  g.is_kept |= cut.keeps != 0; /* then batches of a head take turns */
  return g;
}

float *pegen_attention_pair_rooms(const pegen_driver *driver, const pegen_args *args,
                                  const pegen_attention_backward_call *call, char *workspace) {
  return (float *)(void *)(workspace + bytes_before(driver, args, call, ROOM_OF_PAIRS));
}

int64_t pegen_attention_sequence_bytes(const pegen_driver *driver, const pegen_args *args,
                                       const pegen_attention_backward_call *call) {
  return bytes_before(driver, args, call, ROOMS);
}

static void go_to(pegen_view *view, int dim, const pegen_bounds *b, int64_t from, int64_t to) {
  if (!view->empty) pegen_go_to_sequence(view, dim, b, from, to);
}

void pegen_attention_backward_go_to(const pegen_driver *driver, pegen_attention_backward_call *c, int64_t from,
                                    int64_t to) {
  const pegen_bounds *q = &c->forward.bounds[0], *k = &c->forward.bounds[1];
  pegen_view *of_q[] = {&c->g_out, &c->g_lse, &c->g_q}, *of_k[] = {&c->g_k, &c->g_v};
  pegen_attention_go_to(driver, &c->forward, from, to);
  c->forward.q.empty = pegen_view_bytes(&c->forward.q) == 0;
  c->forward.k.empty = pegen_view_bytes(&c->forward.k) == 0;
  for (int i = 0; i < 3; i++) go_to(of_q[i], PEGEN_TOKEN, q, from, to);
  for (int i = 0; i < 2; i++) go_to(of_k[i], PEGEN_TOKEN, k, from, to);
  for (int i = 0; i < driver->kernel->n_inputs; i++)
    go_to(&c->g_input[i], PEGEN_TOKEN, pegen_input_is_of_keys(driver->kernel, i) ? k : q, from, to);
  go_to(&c->g_positions[0], PEGEN_POSITION_TOKEN, q, from, to);
  go_to(&c->g_positions[1], PEGEN_POSITION_TOKEN, k, from, to);
}

int64_t pegen_attention_backward_bytes(const pegen_driver *driver, const pegen_args *args,
                                       const pegen_attention_backward_call *call) {
  pegen_attention_backward_call window;
  int64_t sequences = call->forward.bounds[0].sequences, bytes = 0;
  if (!sequences) return pegen_attention_sequence_bytes(driver, args, call);
  pegen_copy_bytes(&window, call, sizeof window);
  for (int64_t i = 0; i < sequences; i++) {
    pegen_attention_backward_go_to(driver, &window, i ? i - 1 : 0, i);
    int64_t own = pegen_attention_sequence_bytes(driver, args, &window);
    if (own < 0 || __builtin_add_overflow(bytes, own, &bytes)) return -1;
  }
  return bytes;
}

#endif

/* ---- 6. overlap ---- */

static int check_overlap(const pegen_driver *driver, const pegen_args *args, const pegen_attention_backward_call *call,
                         const pegen_view *workspace) {
  const pegen_view *read[] = {&call->forward.out, &call->forward.lse, &call->g_out, &call->g_lse},
                   *written[] = {&call->g_q,           &call->g_k, &call->g_v, workspace, &call->g_positions[0],
                                 &call->g_positions[1]};
  pegen_memory memory;
  pegen_memory_of_attention(&memory, driver, args, &call->forward);
  for (int i = 0; i < 4; i++) pegen_memory_reads(&memory, read[i]);
  for (int i = 0; i < 6; i++) pegen_memory_writes(&memory, written[i]);
  for (int i = 0; i < driver->kernel->n_inputs; i++) pegen_memory_writes(&memory, &call->g_input[i]);
  memory.gained = call->grad->operands;
  return pegen_check_memory(&memory);
}

/* ---- all of them ---- */

int pegen_check_attention_backward(const pegen_driver *driver, const pegen_args *args, int part, int parts,
                                   int with_workspace, pegen_attention_backward_call *call) {
  PEGEN_TRY(pegen_check_part(args, part, parts, PEGEN_USE_attention_backward));
  const pegen_grad_args *grad = call->grad = PEGEN_GIVEN(args, grad);
  PEGEN_TRY(pegen_check_grad(grad, PEGEN_GRAD_ACCUMULATE));
  PEGEN_TRY(check_wanted(driver, args, call));
  PEGEN_TRY(pegen_check_attention_read(driver, args, part, parts, &call->forward));
  PEGEN_TRY(check_rows_of_all(args, 1, call));
  const int64_t is_bare[2] = {call->forward.bare, call->forward.k_bare};
  PEGEN_TRY(pegen_check_gradients(driver->kernel, args, grad, is_bare, call->g_positions, call->g_input));
  /* Positions that k shares gain of both: of the same tokens. */
  if (grad->positions && !args->k_positions && !pegen_same_bounds(&call->forward.bounds[0], &call->forward.bounds[1]))
    return PEGEN_ERROR_SEQUENCES;
  pegen_view workspace;
  workspace.empty = 1;
  if (!with_workspace) return 0;
  int64_t bytes = pegen_attention_backward_bytes(driver, args, call);
  if (bytes < 0) return PEGEN_ERROR_SIZE_OVERFLOW;
  PEGEN_TRY(pegen_check_workspace(args, bytes, &workspace));
  return check_overlap(driver, args, call, &workspace);
}

/* ---- tangents ---- */

static int check_tangents(const pegen_args *args, const pegen_grad_args *grad) {
  if (grad->q_out || grad->k_out || grad->operands || grad->inputs || grad->positions || grad->k_positions ||
      PEGEN_GRAD_GIVEN(grad, table))
    return PEGEN_ERROR_NO_GRADIENT;
  if (!grad->q || !grad->k || !grad->v || !grad->out) return PEGEN_ERROR_MISSING_GRADIENT;
  return PEGEN_GIVEN(args, lse) ? 0 : PEGEN_ERROR_LSE;
}

static void clear_gains(pegen_attention_backward_call *call) {
  call->of_operands = call->of_inputs = 0;
  for (int s = 0; s < 2; s++) call->g_positions[s].empty = 1;
  for (int i = 0; i < PEGEN_MAX_INPUTS; i++) call->g_input[i].empty = 1;
}

int pegen_check_attention_tangent(const pegen_driver *driver, const pegen_args *args, int part, int parts,
                                  pegen_attention_backward_call *call) {
  PEGEN_TRY(pegen_check_part(args, part, parts, PEGEN_USE_attention_tangent));
  const pegen_grad_args *grad = call->grad = PEGEN_GIVEN(args, grad);
  PEGEN_TRY(pegen_check_grad(grad, 0));
  PEGEN_TRY(check_tangents(args, grad));
  PEGEN_TRY(pegen_check_attention_read(driver, args, part, parts, &call->forward));
  PEGEN_TRY(check_rows_of_all(args, 0, call));
  clear_gains(call);
  const pegen_view *read[] = {&call->forward.out, &call->forward.lse, &call->g_q, &call->g_k, &call->g_v};
  pegen_memory memory;
  pegen_memory_of_attention(&memory, driver, args, &call->forward);
  for (int i = 0; i < 5; i++) pegen_memory_reads(&memory, read[i]);
  pegen_memory_writes(&memory, &call->g_out);
  pegen_memory_writes(&memory, &call->g_lse);
  return pegen_check_memory(&memory);
}
