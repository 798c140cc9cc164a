/* launch_attention.c: a call of attention becomes one launch: a block for each tile of queries of each head of each
 * batch, all along x; of few queries a block for each head of k and chunk of its keys, and attention_finish merges
 * chunks. Where rows are turned or copied into the workspace, launches of launch_turned.c stand before it, and one that
 * brings out back behind all. See launch.h and kernel/launch.h. Rows of k that are not there are never many: with no
 * keys at all, the row that a block reads before it counts them is q's. */
#include "launch.h"

#include "launch_turned.h"

#include "../kernel/check_attention.h"
#include "../kernel/float_state.h"

#include <string.h>

/* Blocks are counted in 32 bits, tokens and heads too. */
static const int64_t MOST_BLOCKS = INT32_MAX - 1024;

int64_t pegen_launch_tiles(int64_t rows, int64_t tile, int64_t heads, int64_t batches) {
  int64_t blocks;
  if (!rows || !heads || !batches) return 0;
  if (rows > MOST_BLOCKS || __builtin_mul_overflow(pegen_divide_up(rows, tile), heads, &blocks) ||
      __builtin_mul_overflow(blocks, batches, &blocks) || blocks > MOST_BLOCKS)
    return -1;
  return blocks;
}

int pegen_launch_attention_parameters(const pegen_kernel *kernel) {
  int count = pegen_ptx_behind_lse(kernel->n_operands, pegen_launch_inputs_of(kernel));
  return count + (pegen_launch_has_pair_inputs(kernel) ? kernel->n_inputs : 0);
}

/* Kernels of before lse have no parameters for it. */
static int has_lse(const pegen_kernel *kernel) {
  return kernel->ptx->attention->n_parameters >= pegen_launch_lse_parameter(kernel) + PEGEN_PTX_ROWS_COUNT;
}

void pegen_launch_attention_driver(const pegen_kernel *kernel, pegen_driver *driver, pegen_attention *form) {
  const pegen_ptx_attention *of = kernel->ptx->attention;
  memset(driver, 0, sizeof *driver);
  memset(form, 0, sizeof *form);
  form->value_dim = of->value_dim;
  form->placed = of->placed;
  form->by_rows = of->grid_only;
  form->indexed = of->indexed;
  driver->kernel = kernel;
  driver->per_head = kernel->ptx->per_head;
  driver->turns_rows = 0;
  driver->form = form;
}

enum { Q, K, V, OUT, TENSORS };

/* A call that was checked, what with, and what is launched. */
typedef struct attention_plan {
  const pegen_launch_request *request;
  pegen_driver driver;
  pegen_attention form;
  pegen_attention_call call, of; /* of: rows as the entry reads them */
  pegen_turning turning;
  pegen_turned_rows tensor[TENSORS];
  const pegen_ptx_entry *entry,
      *finish; /* finish: of the chunks of few queries; NULL: they are many, or there is none */
  int64_t chunks, keys; /* of few queries: how many, and keys of each */
  int64_t rows, states; /* queries of all heads and batches; bytes of what chunks come to, 0: keys are not split */
  int64_t value_dim; /* channels of a row of out that chunks have */
  int64_t bytes;        /* of the workspace */
} attention_plan;

static int check(const pegen_launch_request *request, attention_plan *p) {
  memset(p, 0, sizeof *p);
  p->request = request;
  pegen_launch_attention_driver(request->kernel, &p->driver, &p->form);
  int error = pegen_check_attention(&p->driver, request->args, 0, 1, &p->call);
  return error || p->call.lse.empty || has_lse(request->kernel) ? error : PEGEN_ERROR_UNKNOWN_FIELD;
}

/* Entries of a type come in the order in which they are taken. */
static const pegen_ptx_entry *choose_entry(const attention_plan *p, const char *word) {
  const pegen_kernel *kernel = p->request->kernel;
  const pegen_attention_call *call = &p->of;
  for (int i = pegen_launch_next(kernel, word, 0); i >= 0; i = pegen_launch_next(kernel, word, i + 1)) {
    const pegen_ptx_entry *entry = &kernel->ptx->entries[i];
    int64_t access = entry->access;
    if (pegen_launch_fits(p->request, entry) && entry->dtype == pegen_number_at(call->type)->dtype &&
        pegen_launch_is_aligned(&call->q, access) && pegen_launch_is_aligned(&call->k, access) &&
        pegen_launch_is_aligned(&call->v, access) && pegen_launch_is_aligned(&call->out, access))
      return entry;
  }
  return NULL;
}

/* ---- few queries ---- */

/* Blocks that keep a large device busy: two for each of an H200's multiprocessors. */
enum { FEW_BLOCKS = 264 };

/* Whether all heads of q that share one of k and v read the same numbers of keys. */
static int keys_agree(const attention_plan *p) {
  const pegen_kernel *kernel = p->request->kernel;
  for (int i = 0; pegen_launch_has_pair_inputs(kernel) && i < kernel->n_inputs; i++) {
    int64_t heads = p->call.input[i].size[PEGEN_HEAD];
    if (pegen_input_is_of_keys(kernel, i) && heads > p->call.q.size[PEGEN_HEAD] / p->call.group) return 0;
  }
  return 1;
}

/* The number of keys, heads and batches alone decides. */
static void cut_keys(attention_plan *p, int64_t items) {
  int64_t keys = p->call.k.size[PEGEN_TOKEN], steps = keys ? pegen_divide_up(keys, PEGEN_PTX_FEW_STEP) : 1;
  int64_t most = PEGEN_GIVEN(p->request->args, split_keys) && p->finish ? FEW_BLOCKS / items : 1;
  int64_t each = pegen_divide_up(steps, most > 1 ? most : 1);
  p->keys = each * PEGEN_PTX_FEW_STEP;
  p->chunks = pegen_divide_up(steps, each);
  p->value_dim = pegen_turning_whole(&p->call.out) / p->turning.element;
  if (p->chunks > 1) p->states = p->rows * p->chunks * (p->value_dim + 2) * (int64_t)sizeof(float);
}

/* Takes the entry of few queries where the call is one of these, and there is one. */
static void take_few(attention_plan *p, const char *word) {
  const pegen_kernel *kernel = p->request->kernel;
  const int64_t *size = p->call.q.size;
  if (!PEGEN_LAUNCH_HAS(kernel, attention_workspace) || p->call.out.empty || !keys_agree(p) ||
      p->call.group > PEGEN_PTX_FEW_QUERIES || size[PEGEN_TOKEN] > PEGEN_PTX_FEW_QUERIES / p->call.group)
    return;
  const pegen_ptx_entry *entry = choose_entry(p, word);
  int64_t items = pegen_launch_tiles(1, 1, size[PEGEN_HEAD] / p->call.group, size[PEGEN_BATCH]);
  if (!entry || items < 0) return;
  p->entry = entry;
  p->rows = size[PEGEN_BATCH] * size[PEGEN_HEAD] * size[PEGEN_TOKEN]; /* of elements in memory */
  const char *last = pegen_launch_word(PEGEN_LAUNCH_attention_finish);
  for (int i = pegen_launch_next(kernel, last, 0); i >= 0; i = pegen_launch_next(kernel, last, i + 1))
    if (kernel->ptx->entries[i].dtype == entry->dtype) p->finish = &kernel->ptx->entries[i];
  cut_keys(p, items);
}

/* ---- rows that are turned or copied ---- */

/* Room for them behind the states of chunks. 0: they are more than can be counted, or cannot be turned. */
static int place_rows(attention_plan *p, int turns) {
  pegen_turning *t = &p->turning;
  const pegen_attention_call *c = &p->call;
  pegen_attention_call *of = &p->of;
  pegen_turning_begin(t, p->request, c, p->states);
  if (turns && !t->entry) return 0;
  if (!turns) t->entry = NULL;
  int values = t->has_values ? 0 : PEGEN_TURN_NOT;
  p->tensor[Q] = (pegen_turned_rows){&c->q, &of->q, PEGEN_TURN_QUERIES};
  p->tensor[K] = (pegen_turned_rows){&c->k, &of->k, PEGEN_TURN_KEYS};
  p->tensor[V] = (pegen_turned_rows){&c->v, &of->v, PEGEN_TURN_KEYS | values};
  p->tensor[OUT] = (pegen_turned_rows){&c->out, &of->out, PEGEN_TURN_QUERIES | PEGEN_TURN_BACK | values};
  for (int i = 0; i < TENSORS; i++)
    if (!pegen_turning_place(t, &p->tensor[i])) return 0;
  return 1;
}

/* Takes an entry of rows that come turned, or of rows as they are. 0: there is none for them. */
static int take(attention_plan *p, int turns) {
  p->entry = NULL;
  p->chunks = p->states = 0;
  if (!place_rows(p, turns)) return 0;
  if (!turns) take_few(p, PEGEN_PTX_WORD_FEW);
  else if (p->turning.group == 1) take_few(p, PEGEN_PTX_WORD_FEW_TURNED);
  if (!p->entry) p->entry = choose_entry(p, turns ? PEGEN_PTX_WORD_TURNED : pegen_launch_word(PEGEN_LAUNCH_attention));
  return p->entry && place_rows(p, turns); /* behind states that there are now */
}

/* Kernels of before also have entries that turn rows themselves, for calls without a workspace. */
static int may_turn(const attention_plan *p) {
  return PEGEN_LAUNCH_HAS(p->request->kernel, attention_workspace) && !p->call.out.empty &&
         (PEGEN_GIVEN(p->request->args, split_keys) || !choose_entry(p, pegen_launch_word(PEGEN_LAUNCH_attention)));
}

static int bring_rows(const attention_plan *p, pegen_launch_run *run, void *context) {
  return pegen_turning_run(&p->turning, &p->call, &p->tensor[Q], V - Q + 1, run, context);
}

/* What turned values add up to is turned back. */
static int bring_out(const attention_plan *p, pegen_launch_run *run, void *context) {
  return pegen_turning_run(&p->turning, &p->call, &p->tensor[OUT], 1, run, context);
}

/* The checks and the entry. Not inlined: the scale is computed in it. */
static __attribute__((noinline)) int make_plan(const pegen_launch_request *request, attention_plan *p) {
  int error = check(request, p);
  if (error) return error;
  p->of = p->call;
  if (!(may_turn(p) && take(p, 1)) && !take(p, 0)) { /* others cannot be rotated ahead: they are too many, or none */
    if (!place_rows(p, 0)) return PEGEN_ERROR_SIZE_OVERFLOW;
    p->entry = choose_entry(p, PEGEN_PTX_WORD_TURNED);
    if (!p->entry) return PEGEN_ERROR_DTYPE;
    if (!p->call.out.empty) return PEGEN_ERROR_SIZE_OVERFLOW;
  }
  p->bytes = p->call.out.empty ? 0 : p->turning.bytes;
  return p->call.k.size[PEGEN_TOKEN] > MOST_BLOCKS ? PEGEN_ERROR_SIZE_OVERFLOW : 0;
}

/* Makes the plan of a call and checks the workspace that it needs. */
static int plan(const pegen_launch_request *request, attention_plan *p) {
  uint64_t found = pegen_float_begin();
  int error = make_plan(request, p);
  pegen_float_end(found);
  return error ? error : pegen_check_split(&p->driver, request->args, &p->call, p->bytes);
}

static int64_t blocks_of(const attention_plan *p) {
  const int64_t *size = p->call.q.size;
  if (p->chunks) return pegen_launch_tiles(p->chunks, 1, size[PEGEN_HEAD] / p->call.group, size[PEGEN_BATCH]);
  return pegen_launch_tiles(size[PEGEN_TOKEN], p->entry->columns, size[PEGEN_HEAD], size[PEGEN_BATCH]);
}

/* Not inlined, as make_plan. */
static __attribute__((noinline)) void fill(const attention_plan *p, int64_t *parameter) {
  pegen_launch_set_attention(parameter, p->request, &p->of);
}

static void set_parameters(const attention_plan *p, int64_t *parameter) {
  uint64_t found = pegen_float_begin();
  fill(p, parameter);
  pegen_float_end(found);
  if (!p->chunks) return;
  int64_t *few = parameter + p->request->kernel->ptx->attention->n_parameters;
  few[PEGEN_PTX_FEW_STATES] = p->states ? (int64_t)(uintptr_t)p->request->args->workspace : 0;
  few[PEGEN_PTX_FEW_CHUNKS] = p->chunks;
  few[PEGEN_PTX_FEW_KEYS] = p->keys;
  few[PEGEN_PTX_FEW_ROWS] = p->rows;
}

int pegen_launch_plan_attention(const pegen_launch_request *request, pegen_launch_run *run, void *context) {
  attention_plan p;
  int error = plan(request, &p);
  if (error || p.call.out.empty) return error;
  int64_t blocks = blocks_of(&p);
  if (blocks < 0) return PEGEN_ERROR_SIZE_OVERFLOW;
  if (!run) return 0;
  pegen_launch_step step = {.entry = p.entry, .grid_x = (uint32_t)blocks, .grid_y = 1};
  set_parameters(&p, step.parameter);
  if ((error = bring_rows(&p, run, context)) != 0 || (error = run(context, &step)) != 0 || p.states) return error;
  return bring_out(&p, run, context);
}

int pegen_launch_plan_attention_finish(const pegen_launch_request *request, pegen_launch_run *run, void *context) {
  attention_plan p;
  int error = plan(request, &p);
  if (error || !p.states || !run) return error;
  pegen_launch_step step =
      pegen_launch_threads(request->kernel, p.finish, p.rows * (p.value_dim / 2)); /* at most 264 blocks' rows */
  set_parameters(&p, step.parameter);
  error = run(context, &step);
  return error ? error : bring_out(&p, run, context);
}

size_t pegen_launch_split_bytes(const pegen_launch_request *request) {
  attention_plan p;
  uint64_t found = pegen_float_begin();
  int error = make_plan(request, &p);
  pegen_float_end(found);
  return error ? 0 : (size_t)p.bytes;
}
