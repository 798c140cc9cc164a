/* launch_attention_backward.c: a backward call of attention becomes a launch of tiles of queries and then one of tiles
 * of keys, its finish one or two of what operands gain; see launch.h and kernel/launch.h.
 *
 * The workspace has a number of each query, which the first launch writes and the second reads, and behind those the
 * sums of chunks: every warp of the first launch has a place for all elements. How many blocks there are then, each
 * with a run of tiles, the call's sizes alone decide: few enough that their sums are not more numbers than q has, or
 * SMALL bytes. All is queued on one stream, which is the barrier.
 */
#include "launch.h"

#include "launch_names.h"

#include "../kernel/attention_backward.h"
#include "../kernel/float_state.h"

#include <string.h>

enum { MOST_BLOCKS_OF_SUMS = PEGEN_PTX_SUM_MOST * PEGEN_PTX_SUM_MOST / PEGEN_PTX_ATTENTION_WARPS, NUMBER = 8 };
static const int64_t SMALL = 32 << 20;

typedef struct backward_plan {
  const pegen_launch_request *request;
  const pegen_attention_backward_call *call;
  int64_t items, each, blocks, key_blocks;
  int64_t elements, chunks;          /* of all operands; 0: they gain nothing */
  int64_t less, sums, groups, bytes; /* where they begin in the workspace, and its end */
} backward_plan;

/* ---- the call ---- */

/* The checks leave call->grad, no view of what they stand on. */
static int check(const pegen_launch_request *request, int with_workspace, pegen_attention_backward_call *call) {
  static const pegen_attention_gradient_code some; /* that there are gradients */
  const pegen_ptx_attention *of = request->kernel->ptx->attention;
  pegen_driver driver;
  pegen_attention form;
  pegen_launch_attention_driver(request->kernel, &driver, &form);
  form.gradients = &some;
  form.gaining = of->gaining;
  return pegen_check_attention_backward(&driver, request->args, 0, 1, with_workspace, call);
}

static int64_t count_of(const pegen_view *rows) {
  int64_t count = 1;
  for (int i = 0; i < PEGEN_VIEW_DIMS && count; i++)
    if (__builtin_mul_overflow(count, rows->size[i], &count)) return -1;
  return count;
}

/* 0: the sizes are more than can be counted. */
static int make_plan(const pegen_launch_request *request, const pegen_attention_backward_call *call, backward_plan *p) {
  const pegen_kernel *kernel = request->kernel;
  const pegen_view *q = &call->forward.q, *k = &call->forward.k;
  int64_t tile = kernel->ptx->entries[pegen_launch_next(kernel, PEGEN_PTX_WORD_QUERIES, 0)].columns,
          queries = count_of(q);
  memset(p, 0, sizeof *p);
  p->request = request;
  p->call = call;
  p->each = 1;
  p->items = pegen_launch_tiles(q->size[PEGEN_TOKEN], tile, q->size[PEGEN_HEAD], q->size[PEGEN_BATCH]);
  p->key_blocks = pegen_launch_tiles(k->size[PEGEN_TOKEN], tile, k->size[PEGEN_HEAD], k->size[PEGEN_BATCH]);
  if (p->items < 0 || p->key_blocks < 0 || queries < 0 || queries > INT64_MAX / 2 / NUMBER / kernel->head_dim) return 0;
  p->blocks = p->items;
  p->sums = p->groups = p->bytes = pegen_divide_up(queries * (int64_t)sizeof(float), NUMBER) * NUMBER;
  if (!call->of_operands) return 1;
  int64_t chunk = pegen_all_elements(kernel) * NUMBER, block = chunk * PEGEN_PTX_ATTENTION_WARPS,
          room = queries * kernel->head_dim * NUMBER, most;
  p->elements = chunk / NUMBER;
  most = (room > SMALL ? room : SMALL) / block;
  most = most < 1 ? 1 : most > MOST_BLOCKS_OF_SUMS ? MOST_BLOCKS_OF_SUMS : most;
  p->each = p->items ? pegen_divide_up(p->items, most) : 1;
  p->blocks = pegen_divide_up(p->items, p->each);
  p->chunks = p->blocks * PEGEN_PTX_ATTENTION_WARPS;
  p->groups = p->sums + p->chunks * chunk;
  p->bytes = p->groups + pegen_divide_up(p->chunks, PEGEN_PTX_SUM_MOST) * chunk;
  return 1;
}

/* The driver's own is not the launches'. */
int64_t pegen_attention_backward_bytes(const pegen_driver *driver, const pegen_args *args,
                                       const pegen_attention_backward_call *call) {
  pegen_launch_request request = {.kernel = driver->kernel, .args = args};
  backward_plan p;
  return make_plan(&request, call, &p) ? p.bytes : -1;
}

size_t pegen_launch_attention_bytes(const pegen_launch_request *request) {
  pegen_attention_backward_call call;
  backward_plan p;
  return check(request, 0, &call) || !make_plan(request, &call, &p) ? 0 : (size_t)p.bytes;
}

/* ---- launches ---- */

static int is_aligned(const pegen_attention_backward_call *c, int64_t access) {
  const pegen_view *rows[] = {&c->forward.q, &c->forward.k, &c->forward.v, &c->forward.out,
                              &c->g_out,     &c->g_q,       &c->g_k,       &c->g_v};
  for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++)
    if (!pegen_launch_is_aligned(rows[i], access)) return 0;
  return 1;
}

static const pegen_ptx_entry *choose_entry(const backward_plan *p, const char *word) {
  const pegen_kernel *kernel = p->request->kernel;
  for (int i = pegen_launch_next(kernel, word, 0); i >= 0; i = pegen_launch_next(kernel, word, i + 1)) {
    const pegen_ptx_entry *entry = &kernel->ptx->entries[i];
    if (entry->dtype == pegen_number_at(p->call->forward.type)->dtype && is_aligned(p->call, entry->access))
      return entry;
  }
  return NULL;
}

static void set_given(int64_t *parameter, const pegen_view *rows) {
  if (!rows->empty) pegen_launch_set_rows(parameter, rows);
}

/* Not inlined: the scale is computed in it. */
static __attribute__((noinline)) void set_parameters(const backward_plan *p, pegen_launch_step *step) {
  const pegen_attention_backward_call *c = p->call;
  int64_t workspace = (int64_t)(uintptr_t)p->request->args->workspace;
  pegen_launch_set_attention(step->parameter, p->request, &c->forward);
  int64_t *own = step->parameter + pegen_launch_lse_parameter(p->request->kernel) + PEGEN_PTX_ROWS_COUNT;
  set_given(own + PEGEN_PTX_ATTENTION_G_OUT, &c->g_out);
  set_given(own + PEGEN_PTX_ATTENTION_G_LSE, &c->g_lse);
  set_given(own + PEGEN_PTX_ATTENTION_G_Q, &c->g_q);
  set_given(own + PEGEN_PTX_ATTENTION_G_K, &c->g_k);
  set_given(own + PEGEN_PTX_ATTENTION_G_V, &c->g_v);
  own[PEGEN_PTX_ATTENTION_LESS] = workspace + p->less;
  own[PEGEN_PTX_ATTENTION_ITEMS] = p->items;
  own[PEGEN_PTX_ATTENTION_EACH] = p->each;
  own[PEGEN_PTX_ATTENTION_CHUNKS] = c->of_operands ? workspace + p->sums : 0;
}

static int launch_rows(const backward_plan *p, const char *word, int64_t blocks, pegen_launch_run *run, void *context) {
  pegen_launch_step step;
  memset(&step, 0, sizeof step);
  step.entry = choose_entry(p, word);
  if (!step.entry) return PEGEN_ERROR_DTYPE;
  step.grid_x = (uint32_t)blocks;
  step.grid_y = 1;
  uint64_t found = pegen_float_begin();
  set_parameters(p, &step);
  pegen_float_end(found);
  return run ? run(context, &step) : 0;
}

int pegen_launch_plan_attention_backward(const pegen_launch_request *request, pegen_launch_run *run, void *context) {
  pegen_attention_backward_call call;
  backward_plan p;
  int error = check(request, 1, &call);
  if (error) return error;
  if (!make_plan(request, &call, &p)) return PEGEN_ERROR_SIZE_OVERFLOW;
  if (p.blocks) error = launch_rows(&p, PEGEN_PTX_WORD_QUERIES, p.blocks, run, context);
  if (!error && p.key_blocks && !(call.g_k.empty && call.g_v.empty))
    error = launch_rows(&p, PEGEN_PTX_WORD_KEYS, p.key_blocks, run, context);
  return error;
}

/* ---- finish ---- */

/* pegen_ptx_attention.gaining says that the entries are there. */
static int launch_groups(const backward_plan *p, int64_t workspace, pegen_launch_run *run, void *context) {
  pegen_launch_step step = pegen_launch_sums(p->request->kernel, PEGEN_PTX_WORD_ATTENTION_SUM, workspace + p->sums,
                                             workspace + p->groups, p->elements, p->chunks);
  return run(context, &step);
}
int pegen_launch_plan_attention_finish(const pegen_launch_request *request, pegen_launch_run *run, void *context) {
  pegen_attention_backward_call call;
  backward_plan p;
  int error = check(request, 1, &call);
  if (error || !run || !call.of_operands) return error;
  if (!make_plan(request, &call, &p)) return PEGEN_ERROR_SIZE_OVERFLOW;
  int64_t workspace = (int64_t)(uintptr_t)request->args->workspace;
  int in_groups = p.chunks > PEGEN_PTX_SUM_MOST;
  if (in_groups) error = launch_groups(&p, workspace, run, context);
  if (error) return error;
  const pegen_kernel *kernel = request->kernel;
  const pegen_ptx_entry *total = &kernel->ptx->entries[pegen_launch_next(kernel, PEGEN_PTX_WORD_TOTAL, 0)];
  pegen_launch_step step = pegen_launch_threads(kernel, total, p.elements);
  step.parameter[PEGEN_PTX_TOTAL_SUMS] = workspace + (in_groups ? p.groups : p.sums);
  step.parameter[PEGEN_PTX_TOTAL_CHUNKS] = in_groups ? pegen_divide_up(p.chunks, PEGEN_PTX_SUM_MOST) : p.chunks;
  step.parameter[PEGEN_PTX_TOTAL_ADDS] = (call.grad->flags & PEGEN_GRAD_ACCUMULATE) != 0;
  pegen_launch_set_gained(step.parameter + PEGEN_PTX_TOTAL_OPERANDS, request->kernel, call.grad);
  return run(context, &step);
}
