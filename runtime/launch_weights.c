/* launch_weights.c: see launch_weights.h and kernel/launch.h.
 *
 * The launch of queries has laid what each query's weights gain in the workspace. Tokens are cut into chunks, whose
 * number the call's sizes alone decide: as many as keep a large device busy, few enough that their sums are not more
 * numbers than q has, or SMALL bytes. The launches of finish add these up in order.
 */
#include "launch_weights.h"

#include "../kernel/loop.h"

#include <string.h>

enum { MOST_CHUNKS = PEGEN_PTX_SUM_MOST * PEGEN_PTX_SUM_MOST, NUMBER = 8 };
static const int64_t SMALL = 32 << 20;
/* Items and threads of a launch are counted in 32 bits. */
static const int64_t MOST_THREADS = INT32_MAX / 2;

int pegen_launch_has_weights(const pegen_kernel *kernel) {
  return pegen_launch_next(kernel, PEGEN_PTX_WORD_WEIGHTS, 0) >= 0;
}

int64_t pegen_launch_n_weights(const pegen_kernel *kernel) {
  const pegen_ptx_gradient *of = pegen_launch_gradient_of(kernel); /* older kernels of attention have none */
  return of ? of->n_weights : 0;
}

/* ---- the workspace ---- */

/* Where an array of so many elements of `each` bytes begins, behind all that is there; 0: it is too large. */
static int reserve(int64_t count, int64_t each, int64_t *bytes, int64_t *begin) {
  int64_t own;
  *begin = *bytes;
  if (__builtin_mul_overflow(count, each, &own) || __builtin_add_overflow(own, NUMBER - 1, &own)) return 0;
  return !__builtin_add_overflow(*bytes, own / NUMBER * NUMBER, bytes);
}

static int cut_operands(const pegen_ptx_gradient *of, int64_t channels, int64_t *bytes, pegen_weights_cut *cut) {
  int64_t room = channels > SMALL / NUMBER ? channels : SMALL / NUMBER, most = room / cut->numbers;
  most = most < 1 ? 1 : most > MOST_CHUNKS ? MOST_CHUNKS : most;
  cut->chunk = cut->items ? pegen_divide_up(cut->items, most) : 1;
  cut->chunks = pegen_divide_up(cut->items, cut->chunk);
  int64_t groups = pegen_divide_up(cut->chunks, PEGEN_PTX_SUM_MOST), leaves = cut->heads * of->n_blocks * of->n_gained;
  return cut->numbers <= MOST_THREADS / PEGEN_PTX_SUM_MOST &&
         reserve(cut->chunks, cut->numbers * NUMBER, bytes, &cut->sums) &&
         reserve(groups, cut->numbers * NUMBER, bytes, &cut->groups) && reserve(leaves, NUMBER, bytes, &cut->gained);
}

int pegen_launch_cut_weights(const pegen_kernel *kernel, const pegen_attention_backward_call *call, int64_t *bytes,
                             pegen_weights_cut *cut) {
  const int64_t *size = call->forward.q.size;
  memset(cut, 0, sizeof *cut);
  cut->is_wanted = pegen_launch_has_weights(kernel) && (call->of_operands || call->of_inputs);
  if (!cut->is_wanted) return 1;
  const pegen_ptx_gradient *of = pegen_launch_gradient_of(kernel);
  cut->heads = kernel->ptx->per_head == PEGEN_PER_HEAD_NONE ? 1 : kernel->heads;
  cut->numbers = cut->heads * of->n_sums * of->n_blocks;
  if (!call->forward.q.empty) cut->items = size[PEGEN_BATCH] * size[PEGEN_TOKEN]; /* of rows in memory: below 2^63 */
  if (cut->items > MOST_THREADS) return 0;
  int64_t rows = cut->items * size[PEGEN_HEAD];
  cut->chunk = cut->items ? pegen_divide_up(cut->items, MOST_CHUNKS) : 1;
  cut->chunks = pegen_divide_up(cut->items, cut->chunk);
  return reserve(rows, (int64_t)sizeof(float) * of->n_weights, bytes, &cut->gains) &&
         (!call->of_operands || cut_operands(of, rows * kernel->head_dim, bytes, cut));
}

/* ---- inputs and sums ---- */

static const pegen_ptx_entry *choose_entry(const pegen_kernel *kernel, int64_t type) {
  for (int i = pegen_launch_next(kernel, PEGEN_PTX_WORD_WEIGHTS, 0); i >= 0;
       i = pegen_launch_next(kernel, PEGEN_PTX_WORD_WEIGHTS, i + 1))
    if (kernel->ptx->entries[i].dtype == pegen_number_at(type)->dtype) return &kernel->ptx->entries[i];
  return NULL;
}

/* [batches][heads][queries][weights], as rows of q. */
static void set_gains(int64_t *parameter, const pegen_kernel *kernel, const int64_t *size, int64_t address) {
  int64_t row = pegen_launch_n_weights(kernel) * (int64_t)sizeof(float);
  parameter[PEGEN_PTX_TENSOR_IN] = address;
  parameter[PEGEN_PTX_TENSOR_HEADS] = size[PEGEN_HEAD];
  parameter[PEGEN_PTX_TENSOR_IN_TOKEN] = row;
  parameter[PEGEN_PTX_TENSOR_IN_HEAD] = row * size[PEGEN_TOKEN];
  parameter[PEGEN_PTX_TENSOR_IN_BATCH] = row * size[PEGEN_TOKEN] * size[PEGEN_HEAD];
}

static int accumulates(const pegen_attention_backward_call *call) {
  return (call->grad->flags & PEGEN_GRAD_ACCUMULATE) != 0;
}

int pegen_launch_weights(const pegen_launch_request *request, const pegen_attention_backward_call *call,
                         const pegen_weights_cut *cut, pegen_launch_run *run, void *context) {
  const pegen_kernel *kernel = request->kernel;
  const int64_t *size = call->forward.q.size;
  int64_t workspace = (int64_t)(uintptr_t)request->args->workspace;
  if (!cut->is_wanted || !cut->items) return 0;
  const pegen_ptx_entry *entry = choose_entry(kernel, call->forward.type);
  if (!entry) return PEGEN_ERROR_DTYPE;
  if (!run) return 0;
  pegen_launch_step step = pegen_launch_threads(kernel, entry, cut->chunks * entry->units);
  int64_t *own = step.parameter + pegen_launch_behind_inputs(kernel, PEGEN_PTX_OPERANDS);
  step.parameter[PEGEN_PTX_BATCHES] = size[PEGEN_BATCH];
  step.parameter[PEGEN_PTX_TOKENS] = size[PEGEN_TOKEN];
  step.parameter[PEGEN_PTX_ROWS] = size[PEGEN_HEAD];
  step.parameter[PEGEN_PTX_PREFIX] =
      pegen_attention_prefix(kernel->skip_tokens, size[PEGEN_TOKEN], call->forward.k.size[PEGEN_TOKEN]);
  set_gains(step.parameter + PEGEN_PTX_Q, kernel, size, workspace + cut->gains);
  pegen_launch_set_operands(step.parameter + PEGEN_PTX_OPERANDS, kernel, request->args);
  pegen_launch_set_inputs(step.parameter + PEGEN_PTX_OPERANDS, request, call->forward.input, 0);
  own[PEGEN_PTX_ITEMS] = cut->items;
  own[PEGEN_PTX_CHUNK] = cut->chunk;
  own[PEGEN_PTX_SUMS] = call->of_operands ? workspace + cut->sums : 0;
  own[PEGEN_PTX_COLUMN_ADDS] = accumulates(call);
  pegen_launch_set_gained_inputs(own + PEGEN_PTX_COLUMN_INPUTS, kernel,
                                 step.parameter + pegen_ptx_inputs(PEGEN_PTX_OPERANDS, kernel->n_operands),
                                 call->g_input);
  return run(context, &step);
}

/* ---- operands ---- */

int pegen_launch_finish_weights(const pegen_launch_request *request, const pegen_attention_backward_call *call,
                                const pegen_weights_cut *cut, pegen_launch_run *run, void *context) {
  const pegen_kernel *kernel = request->kernel;
  const pegen_ptx_entry *entries = kernel->ptx->entries;
  const pegen_ptx_gradient *of = pegen_launch_gradient_of(kernel);
  int64_t workspace = (int64_t)(uintptr_t)request->args->workspace, sums = workspace + cut->sums, chunks = cut->chunks;
  int error = 0;
  if (chunks > PEGEN_PTX_SUM_MOST) {
    pegen_launch_step groups =
        pegen_launch_sums(kernel, PEGEN_PTX_WORD_ATTENTION_SUM, sums, workspace + cut->groups, cut->numbers, chunks);
    error = run(context, &groups);
    sums = workspace + cut->groups;
    chunks = pegen_divide_up(chunks, PEGEN_PTX_SUM_MOST);
  }
  pegen_launch_step scatter = pegen_launch_threads(
      kernel, &entries[pegen_launch_next(kernel, PEGEN_PTX_WORD_ATTENTION_SCATTER, 0)], cut->heads * of->n_blocks);
  scatter.parameter[PEGEN_PTX_SCATTER_SUMS] = sums;
  scatter.parameter[PEGEN_PTX_SCATTER_CHUNKS] = chunks;
  scatter.parameter[PEGEN_PTX_SCATTER_GAINED] = workspace + cut->gained;
  pegen_launch_set_operands(scatter.parameter + PEGEN_PTX_SCATTER_OPERANDS, kernel, request->args);
  if (!error) error = run(context, &scatter);
  pegen_launch_step gather = pegen_launch_threads(
      kernel, &entries[pegen_launch_next(kernel, PEGEN_PTX_WORD_ATTENTION_GATHER, 0)], pegen_all_elements(kernel));
  gather.parameter[PEGEN_PTX_GATHER_GAINED] = workspace + cut->gained;
  gather.parameter[PEGEN_PTX_GATHER_ADDS] = accumulates(call);
  pegen_launch_set_gained(gather.parameter + PEGEN_PTX_GATHER_OPERANDS, kernel, call->grad);
  return error ? error : run(context, &gather);
}
