/* launch_attention_backward.c: a backward call of attention becomes a launch of tiles of queries and then one of tiles
 * of keys, its finish one or two of what operands gain; of a polynomial's inputs and operands there are others
 * (launch_weights.c). Where tile programs serve rows, both launches are theirs. What else gains is theirs, too, or has
 * a launch before, which is told of no rows: rows have the same bits whatever is asked. See launch.h, kernel/launch.h.
 *
 * The workspace has a number of each query, which the first launch writes and the second reads, behind those what
 * positions gain by token and head, which a launch of finish adds up, and the sums of chunks: every warp of the first
 * launch has a place for all elements. How many blocks there are then, each with a run of tiles, the call's sizes alone
 * decide: few enough that their sums are not more numbers than q has, or SMALL bytes. All is queued on one stream,
 * which is the barrier.
 */
#include "launch_chunks.h"
#include "launch_turned.h"
#include "launch_weights.h"

#include "../kernel/float_state.h"

#include <string.h>

enum { MOST_BLOCKS_OF_SUMS = PEGEN_PTX_SUM_MOST * PEGEN_PTX_SUM_MOST / PEGEN_PTX_ATTENTION_WARPS, NUMBER = 8 };
static const int64_t SMALL = 32 << 20;

/* Tensors of the call: what is read, what gains, and where rows are turned what entries of others read. */
enum { Q, K, V, OUT, G_OUT, G_Q, G_K, G_V, Q_AS_IS, K_AS_IS, V_AS_IS, OUT_AS_IS, G_OUT_AS_IS, TENSORS };

typedef struct backward_plan {
  const pegen_launch_request *request;
  const pegen_attention_backward_call *call;
  int64_t items, each, blocks, key_blocks;
  int64_t most_blocks; /* that have room for sums of operands' elements */
  int64_t elements, chunks;          /* of all operands; 0: they gain nothing */
  int64_t shares[2]; /* of queries, of keys; where they begin in the workspace, as the others */
  int64_t pairs, n_pairs; /* where what numbers of pairs gain begins; inputs of them, 0: none gains */
  int64_t n_sums, key_heads; /* numbers of a share; heads of the shares of keys */
  int64_t kept, less, sums, groups, before, bytes; /* before: where rows begin; bytes: its end */
  pegen_weights_cut weights;
  int keeps; /* 1: weights of queries are kept */
  int first[2], end[2]; /* entries among which are those of queries, and of keys */
  const pegen_ptx_entry *mma[2]; /* tile programs of rows of queries and of keys; NULL: there is none for them */
  const pegen_ptx_entry *gives[2]; /* the same, of what else gains, too; NULL: there is none, or nothing else gains */
  int apart[2]; /* those read rows that are not turned, and make none */
  pegen_turning turning; /* entry NULL: rows are not turned */
  pegen_turned_rows tensor[TENSORS];
  pegen_attention_backward_call of; /* rows as entries of tile programs take them */
  pegen_attention_backward_call as_is; /* and as those do that take none turned */
} backward_plan;

/* ---- the call ---- */

/* The checks leave call->grad, no view of what they stand on. */
static int check(const pegen_launch_request *request, int with_workspace, pegen_attention_backward_call *call) {
  static const pegen_attention_gradient_code some; /* that there are gradients */
  static const pegen_gradient weights;
  const pegen_ptx_attention *of = request->kernel->ptx->attention;
  pegen_driver driver;
  pegen_attention form;
  pegen_launch_attention_driver(request->kernel, &driver, &form);
  form.gradients = &some;
  form.gaining = of->gaining;
  form.weights = pegen_launch_has_weights(request->kernel) ? &weights : NULL;
  form.has_places = pegen_launch_next(request->kernel, PEGEN_PTX_WORD_ATTENTION_POSITIONS, 0) >= 0;
  form.n_sums = pegen_launch_has_pair_inputs(request->kernel) ? of->n_sums : 0;
  return pegen_check_attention_backward(&driver, request->args, 0, 1, with_workspace, call);
}

static int64_t count_of(const pegen_view *rows) {
  int64_t count = 1;
  for (int i = 0; i < PEGEN_VIEW_DIMS && count; i++)
    if (__builtin_mul_overflow(count, rows->size[i], &count)) return -1;
  return count;
}

/* Whether inputs of scores gain. */
static int gives_inputs(const pegen_kernel *kernel) {
  return pegen_launch_has_pair_inputs(kernel) && kernel->ptx->attention->n_sums;
}

/* Whether coordinates of queries, or of keys, or inputs that are read of them, gain. */
static int wants_sums(const pegen_launch_request *request, const pegen_attention_backward_call *call, int of_keys) {
  const pegen_kernel *kernel = request->kernel;
  int wants = pegen_attention_wants_places(call, request->args, of_keys);
  if (!gives_inputs(kernel)) return wants;
  for (int i = 0; i < kernel->n_inputs; i++)
    wants |=
        pegen_input_is_of_pairs(kernel, i) && !call->g_input[i].empty && pegen_input_is_of_keys(kernel, i) == of_keys;
  return wants && !(of_keys ? &call->forward.k : &call->forward.q)->empty;
}

/* Threads of finish are counted in 31 bits. */
static int are_few(const pegen_view *view, int64_t size) {
  int64_t count = size;
  for (int i = 0; i < PEGEN_VIEW_DIMS; i++)
    if (__builtin_mul_overflow(count, view->size[i], &count)) return 0;
  return count <= INT32_MAX / 2;
}

/* What coordinates and inputs gain stands behind all that the workspace has so far. 0: there is more than can be
 * counted. */
static int place_shares(const pegen_launch_request *request, const pegen_attention_backward_call *call,
                        backward_plan *p) {
  for (int which = 0; which < 2; which++) {
    const pegen_view *out = &call->g_positions[which];
    if (!out->empty && (out->size[PEGEN_POSITION_TOKEN] > INT32_MAX / 2 / out->size[PEGEN_POSITION_AXIS] ||
                        out->size[PEGEN_POSITION_BATCH] >
                            INT32_MAX / 2 / out->size[PEGEN_POSITION_AXIS] / out->size[PEGEN_POSITION_TOKEN]))
      return 0;
  }
  int has_inputs = gives_inputs(request->kernel);
  for (int i = 0; has_inputs && i < request->kernel->n_inputs; i++)
    if (!call->g_input[i].empty && !are_few(&call->g_input[i], pegen_launch_input_size(request->kernel, i))) return 0;
  p->n_sums = has_inputs ? request->kernel->ptx->attention->n_sums : request->kernel->n_axes;
  p->key_heads = call->forward.k.size[PEGEN_HEAD] * (has_inputs ? call->forward.group : 1);
  for (int of_keys = 0; of_keys < 2; of_keys++) {
    int64_t numbers = count_of(of_keys ? &call->forward.k : &call->forward.q), bytes,
            row = NUMBER * p->n_sums * (of_keys && has_inputs ? call->forward.group : 1);
    p->shares[of_keys] = p->bytes;
    if (!wants_sums(request, call, of_keys)) continue;
    if (numbers < 0 || __builtin_mul_overflow(numbers, row, &bytes) ||
        __builtin_add_overflow(p->bytes, bytes, &p->bytes))
      return 0;
  }
  return 1;
}

/* What numbers of pairs gain: [queries][inputs][keys]. */
static int place_pairs(const pegen_attention_backward_call *call, int64_t queries, backward_plan *p) {
  const pegen_kernel *kernel = p->request->kernel;
  int64_t bytes, wanted = 0;
  for (int i = 0; gives_inputs(kernel) && i < kernel->n_inputs; i++)
    if (kernel->inputs[i].size == PEGEN_SIZE_OF_KEYS) {
      p->n_pairs++;
      wanted |= !call->g_input[i].empty;
      if (!call->g_input[i].empty && !are_few(&call->g_input[i], call->forward.k.size[PEGEN_TOKEN])) return 0;
    }
  p->pairs = p->bytes;
  if (!wanted) p->n_pairs = 0;
  int64_t row = p->n_pairs * (int64_t)sizeof(float);
  if (__builtin_mul_overflow(queries, call->forward.k.size[PEGEN_TOKEN], &bytes) ||
      __builtin_mul_overflow(bytes, row, &bytes) || __builtin_add_overflow(p->bytes, bytes, &p->bytes))
    return 0;
  p->bytes = pegen_divide_up(p->bytes, NUMBER) * NUMBER;
  return 1;
}

/* Places the weights of queries, by which a polynomial's coordinates gain and entries of keys make its columns. */
static int place_kept(const pegen_launch_request *request, int64_t queries, backward_plan *p) {
  int64_t row = pegen_launch_n_weights(request->kernel) * (int64_t)sizeof(float), bytes;
  p->kept = p->bytes;
  if (!row) return 1;
  if (__builtin_mul_overflow(queries, row, &bytes) || __builtin_add_overflow(p->bytes, bytes, &p->bytes)) return 0;
  p->bytes = pegen_divide_up(p->bytes, NUMBER) * NUMBER;
  p->keeps = 1;
  return 1;
}

enum { ROWS, GAINS, GIVES, VALUES, WORDS };
static const char *word_of(const backward_plan *p, int of_keys, int what) {
  static const char *const words[2][2][WORDS] = {
      {{PEGEN_PTX_WORD_QUERIES_MMA, PEGEN_PTX_WORD_QUERIES_GAINS, PEGEN_PTX_WORD_QUERIES_GIVES},
       {PEGEN_PTX_WORD_KEYS_MMA, PEGEN_PTX_WORD_KEYS_GAINS, PEGEN_PTX_WORD_KEYS_GIVES, PEGEN_PTX_WORD_VALUES_MMA}},
      {{PEGEN_PTX_WORD_QUERIES_TURNED, PEGEN_PTX_WORD_QUERIES_GAINS_TURNED, PEGEN_PTX_WORD_QUERIES_GIVES},
       {PEGEN_PTX_WORD_KEYS_TURNED, PEGEN_PTX_WORD_KEYS_GAINS_TURNED, PEGEN_PTX_WORD_KEYS_GIVES,
        PEGEN_PTX_WORD_VALUES_TURNED}}};
  return words[p->turning.entry != NULL][of_keys][what];
}

static int takes(const backward_plan *p, int i) {
  const pegen_ptx_entry *entry = &p->request->kernel->ptx->entries[i];
  return entry->dtype == pegen_number_at(p->call->forward.type)->dtype && pegen_launch_fits(p->request, entry);
}

/* The first entry that serves the call. */
static const pegen_ptx_entry *choose_entry(const backward_plan *p, int of_keys, int what) {
  const char *word = word_of(p, of_keys, what);
  int i = pegen_launch_next(p->request->kernel, word, p->first[of_keys]);
  while (i >= 0 && !takes(p, i)) i = pegen_launch_next(p->request->kernel, word, i + 1);
  return i >= 0 && i < p->end[of_keys] ? &p->request->kernel->ptx->entries[i] : NULL;
}

/* Entries of keys follow each other by machine, that of rows first. By what it stores values have an entry of their
 * own, so a machine is taken whose entries all fit the device. Compilers of before made kernels that copy no rows, and
 * have other entries of gradients. 0: there are none. */
static int choose_machine(backward_plan *p) {
  const pegen_kernel *kernel = p->request->kernel;
  const char *word = word_of(p, 1, ROWS);
  int count = p->turning.copy ? kernel->ptx->n_entries : 0;
  p->end[0] = count;
  for (int end = pegen_launch_next(kernel, word, 0); count && end >= 0;) {
    p->first[1] = end;
    end = pegen_launch_next(kernel, word, end + 1);
    p->end[1] = end < 0 ? count : end;
    int fits = takes(p, p->first[1]);
    for (int what = GAINS; what < WORDS; what++) {
      int i = pegen_launch_next(kernel, word_of(p, 1, what), p->first[1]);
      fits = fits && (i < 0 || i >= p->end[1] || takes(p, i));
    }
    if (fits) return choose_entry(p, 0, ROWS) != NULL;
  }
  p->end[1] = 0;
  return 0;
}

/* Whether something that is not a row gains in the launch of this side. Tensor cores' keeps weights, too. */
static int gains_more(const backward_plan *p, int of_keys) {
  return wants_sums(p->request, p->call, of_keys) || (!of_keys && (p->elements || p->weights.is_wanted));
}

static int gives_more(const backward_plan *p) { return gains_more(p, 0) || gains_more(p, 1); }

static void list_rows(backward_plan *p) {
  const pegen_attention_backward_call *c = p->call;
  const pegen_turning *t = &p->turning;
  pegen_attention_backward_call *of = &p->of, *as_is = &p->as_is;
  enum { NOT = PEGEN_TURN_NOT, KEYS = PEGEN_TURN_KEYS, BACK = PEGEN_TURN_BACK };
  int values = t->entry && t->has_values ? 0 : NOT,
      gains = t->entry && !t->has_values && t->group > 1 ? PEGEN_TURN_SUM : values;
  const pegen_turned_rows rows[TENSORS] = {[Q] = {&c->forward.q, &of->forward.q, PEGEN_TURN_QUERIES},
                                           [K] = {&c->forward.k, &of->forward.k, KEYS},
                                           [V] = {&c->forward.v, &of->forward.v, KEYS | values},
                                           [OUT] = {&c->forward.out, &of->forward.out, values},
                                           [G_OUT] = {&c->g_out, &of->g_out, values},
                                           [G_Q] = {&c->g_q, &of->g_q, BACK},
                                           [G_K] = {&c->g_k, &of->g_k, KEYS | BACK},
                                           [G_V] = {&c->g_v, &of->g_v, KEYS | BACK | gains},
                                           [Q_AS_IS] = {&c->forward.q, &as_is->forward.q, NOT},
                                           [K_AS_IS] = {&c->forward.k, &as_is->forward.k, KEYS | NOT},
                                           [V_AS_IS] = {&c->forward.v, &as_is->forward.v, KEYS | NOT},
                                           [OUT_AS_IS] = {&c->forward.out, &as_is->forward.out, NOT},
                                           [G_OUT_AS_IS] = {&c->g_out, &as_is->g_out, NOT}};
  memcpy(p->tensor, rows, sizeof rows);
}

/* Room for rows that are turned, or copied. 0: they are more than can be counted, or there is no entry that turns them,
 * or none that takes them. */
static int place_rows(backward_plan *p, int turns) {
  pegen_turning *t = &p->turning;
  const pegen_attention_backward_call *c = p->call;
  p->of = p->as_is = *c;
  pegen_turning_begin(t, p->request, &c->forward, p->before);
  if (turns && !t->entry) return 0;
  if (!turns) t->entry = NULL;
  if (t->entry && c->forward.q.empty && t->group > 1) { /* zeros are written where they belong */
    t->group = p->of.forward.group = 1;
    p->of.forward.q.size[PEGEN_HEAD] = c->forward.k.size[PEGEN_HEAD];
  }
  list_rows(p);
  for (int i = Q; i < (t->entry && gives_more(p) ? TENSORS : Q_AS_IS); i++) {
    if (p->tensor[i].given->empty) continue;
    if (!pegen_turning_place(t, &p->tensor[i])) return 0;
  }
  p->bytes = t->bytes;
  return choose_machine(p) || !turns;
}

static int64_t tiles_of(const pegen_view *rows, int64_t tile) {
  return pegen_launch_tiles(rows->size[PEGEN_TOKEN], tile, rows->size[PEGEN_HEAD], rows->size[PEGEN_BATCH]);
}

/* What is summed. 0: the sizes are more than can be counted. */
static int plan_sums(const pegen_launch_request *request, const pegen_attention_backward_call *call, backward_plan *p) {
  const pegen_kernel *kernel = request->kernel;
  const pegen_view *q = &call->forward.q, *k = &call->forward.k;
  int first = pegen_launch_next(kernel, PEGEN_PTX_WORD_QUERIES_MMA, 0);
  if (first < 0) first = pegen_launch_next(kernel, PEGEN_PTX_WORD_QUERIES_TURNED, 0);
  int64_t tile = kernel->ptx->entries[first].columns, queries = count_of(q);
  memset(p, 0, sizeof *p);
  p->request = request;
  p->call = call;
  p->items = tiles_of(q, tile);
  p->key_blocks = tiles_of(k, tile);
  if (p->items < 0 || p->key_blocks < 0 || queries < 0 || queries > INT64_MAX / 2 / NUMBER / kernel->head_dim) return 0;
  p->bytes = pegen_divide_up(queries * (int64_t)sizeof(float), NUMBER) * NUMBER;
  if (!place_shares(request, call, p) || !place_pairs(call, queries, p) || !place_kept(request, queries, p)) return 0;
  if (!pegen_launch_cut_weights(kernel, call, &p->bytes, &p->weights)) return 0;
  p->sums = p->groups = p->bytes;
  if (!call->of_operands || p->weights.is_wanted) return 1;
  int64_t chunk = pegen_all_elements(kernel) * NUMBER, block = chunk * PEGEN_PTX_ATTENTION_WARPS,
          room = queries * kernel->head_dim * NUMBER, most;
  p->elements = chunk / NUMBER;
  most = (room > SMALL ? room : SMALL) / block;
  most = most < 1 ? 1 : most > MOST_BLOCKS_OF_SUMS ? MOST_BLOCKS_OF_SUMS : most;
  p->most_blocks = p->items < most ? p->items : most;
  p->groups = p->sums + p->most_blocks * block;
  p->bytes = p->groups + pegen_divide_up(p->most_blocks * PEGEN_PTX_ATTENTION_WARPS, PEGEN_PTX_SUM_MOST) * chunk;
  return 1;
}

static void choose_giving(backward_plan *p, int of_keys) {
  if (!gains_more(p, of_keys)) return;
  const pegen_ptx_entry *both = choose_entry(p, of_keys, GAINS), *other = choose_entry(p, of_keys, GIVES);
  p->apart[of_keys] = other && (!both || other < both); /* entries come in the order in which they are taken */
  p->gives[of_keys] = p->apart[of_keys] ? other : both;
}

/* Blocks of queries, each with a run of tiles. */
static void cut_items(backward_plan *p) {
  if (p->gives[0]) p->items = tiles_of(&p->call->forward.q, p->gives[0]->columns);
  p->each = p->elements && p->items ? pegen_divide_up(p->items, p->most_blocks) : 1;
  p->blocks = pegen_divide_up(p->items, p->each);
  p->chunks = p->elements ? p->blocks * PEGEN_PTX_ATTENTION_WARPS : 0;
}

static int make_plan(const pegen_launch_request *request, const pegen_attention_backward_call *call, backward_plan *p) {
  if (!plan_sums(request, call, p)) return 0;
  p->before = p->bytes;
  if (!place_rows(p, 1) && !place_rows(p, 0)) return 0;
  for (int of_keys = 0; of_keys < 2; of_keys++) {
    p->mma[of_keys] = choose_entry(p, of_keys, ROWS);
    choose_giving(p, of_keys);
  }
  cut_items(p);
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

static void set_given(int64_t *parameter, const pegen_view *rows) {
  if (!rows->empty) pegen_launch_set_rows(parameter, rows, 0);
}

/* Not inlined: the scale is computed in it. */
static __attribute__((noinline)) void set_parameters(const backward_plan *p, const pegen_attention_backward_call *c,
                                                     int of_keys, int of_rows, pegen_launch_step *step) {
  int64_t workspace = (int64_t)(uintptr_t)p->request->args->workspace;
  pegen_launch_set_attention(step->parameter, p->request, &c->forward);
  int64_t *own = step->parameter + pegen_launch_attention_parameters(p->request->kernel);
  set_given(own + PEGEN_PTX_ATTENTION_G_OUT, &c->g_out);
  set_given(own + PEGEN_PTX_ATTENTION_G_LSE, &c->g_lse);
  if (of_rows) {
    set_given(own + PEGEN_PTX_ATTENTION_G_Q, &c->g_q);
    set_given(own + PEGEN_PTX_ATTENTION_G_K, &c->g_k);
    set_given(own + PEGEN_PTX_ATTENTION_G_V, &c->g_v);
  }
  own[PEGEN_PTX_ATTENTION_LESS] = workspace + p->less;
  own[PEGEN_PTX_ATTENTION_ITEMS] = p->items;
  own[PEGEN_PTX_ATTENTION_EACH] = p->each;
  own[PEGEN_PTX_ATTENTION_CHUNKS] = p->elements ? workspace + p->sums : 0;
  own[PEGEN_PTX_ATTENTION_KEPT] = p->keeps ? workspace + p->kept : 0;
  own[PEGEN_PTX_ATTENTION_WEIGHTS] = p->weights.is_wanted && !of_keys ? workspace + p->weights.gains : 0;
  own[PEGEN_PTX_ATTENTION_PAIRS] = p->n_pairs && !of_keys ? workspace + p->pairs : 0;
  if (wants_sums(p->request, c, of_keys)) own[PEGEN_PTX_ATTENTION_SHARES] = workspace + p->shares[of_keys];
}

/* call: the plan's, or its rows as they are turned. */
static int launch(const backward_plan *p, const pegen_attention_backward_call *call, const pegen_ptx_entry *entry,
                  int64_t blocks, int of_keys, int of_rows, pegen_launch_run *run, void *context) {
  pegen_launch_step step;
  memset(&step, 0, sizeof step);
  step.entry = entry;
  if (blocks < 0) return PEGEN_ERROR_SIZE_OVERFLOW;
  step.grid_x = (uint32_t)blocks;
  step.grid_y = 1;
  uint64_t found = pegen_float_begin();
  set_parameters(p, call, of_keys, of_rows, &step);
  pegen_float_end(found);
  return run ? run(context, &step) : 0;
}

/* What entries read, turned or copied; what rows gained, brought back. */
static int bring(const backward_plan *p, int first, int last, pegen_launch_run *run, void *context) {
  return pegen_turning_run(&p->turning, &p->call->forward, &p->tensor[first], last - first + 1, run, context);
}

static int bring_gains(const backward_plan *p, int of_keys, pegen_launch_run *run, void *context) {
  return of_keys ? bring(p, G_K, G_V, run, context) : bring(p, G_Q, G_Q, run, context);
}

static int launch_mma(const backward_plan *p, const pegen_ptx_entry *entry, int of_keys, pegen_launch_run *run,
                      void *context) {
  int gives = entry == p->gives[of_keys], apart = gives && p->apart[of_keys];
  const pegen_attention_backward_call *call = apart && p->turning.entry ? &p->as_is : &p->of;
  const pegen_view *rows = of_keys ? &call->forward.k : &call->forward.q;
  int64_t blocks = gives && !of_keys ? p->blocks : tiles_of(rows, entry->columns);
  return launch(p, call, entry, blocks, of_keys, !apart, run, context);
}

/* Rows of one side by `mma`, and, where values have an entry of their own, by it; only those that are wanted. */
static int launch_mma_rows(const backward_plan *p, const pegen_ptx_entry *mma, int of_keys, pegen_launch_run *run,
                           void *context) {
  const pegen_ptx_entry *values = of_keys ? choose_entry(p, 1, VALUES) : NULL;
  int error = values && p->call->g_k.empty && mma != p->gives[of_keys] ? 0 : launch_mma(p, mma, of_keys, run, context);
  if (error || !values || p->call->g_v.empty) return error;
  return launch_mma(p, values, of_keys, run, context);
}

/* What else gains than turned rows is launched before them, so that what is known of queries comes from rows' entries
 * last: other launches read the same bits whatever is asked. */
static int launch_rows(const backward_plan *p, int of_keys, pegen_launch_run *run, void *context) {
  const pegen_ptx_entry *mma = p->mma[of_keys], *gives = p->gives[of_keys];
  if (!mma || (gains_more(p, of_keys) && !gives)) return PEGEN_ERROR_DTYPE;
  int error = p->apart[of_keys] ? launch_mma(p, gives, of_keys, run, context) : 0;
  if (error) return error;
  error = launch_mma_rows(p, gives && !p->apart[of_keys] ? gives : mma, of_keys, run, context);
  return error ? error : bring_gains(p, of_keys, run, context);
}

int pegen_launch_plan_attention_backward(const pegen_launch_request *request, pegen_launch_run *run, void *context) {
  pegen_attention_backward_call call;
  backward_plan p;
  int error = check(request, 1, &call);
  if (error) return error;
  if (!make_plan(request, &call, &p)) return PEGEN_ERROR_SIZE_OVERFLOW;
  int of_keys = !call.g_k.empty || !call.g_v.empty || wants_sums(request, &call, 1);
  error = bring(&p, Q, G_OUT, run, context);
  if (!error && p.turning.entry && (p.apart[0] || p.apart[1])) error = bring(&p, Q_AS_IS, G_OUT_AS_IS, run, context);
  if (!error && p.blocks) error = launch_rows(&p, 0, run, context);
  if (!error) error = pegen_launch_weights(request, &call, &p.weights, run, context);
  return !error && p.key_blocks && of_keys ? launch_rows(&p, 1, run, context) : error;
}

/* ---- finish ---- */

/* A call of finish; pegen_ptx_attention.gaining, and that positions may gain, say that the entries are there. */
typedef struct finish {
  const backward_plan *p;
  int64_t workspace, adds;
  pegen_launch_run *run;
  void *context;
} finish;

/* Shares of queries or keys become what positions `which` gain; of neither: zeros. */
static int launch_positions(const finish *f, int which, const pegen_view *rows, int64_t heads, int64_t shares,
                            int64_t adds) {
  const pegen_attention_backward_call *call = f->p->call;
  const DLTensor *tensor = which ? call->grad->k_positions : call->grad->positions;
  pegen_launch_shares of = {f->workspace + shares, rows ? rows->size[PEGEN_BATCH] : 0, heads, adds};
  pegen_launch_step step = pegen_launch_gained_positions(f->p->request->kernel, PEGEN_PTX_WORD_ATTENTION_POSITIONS,
                                                         &call->g_positions[which], tensor->dtype.bits == 64, &of);
  return f->run(f->context, &step);
}

static int finish_positions(const finish *f, int which) {
  const backward_plan *p = f->p;
  const pegen_args *args = p->request->args;
  int64_t adds = f->adds;
  int error = 0, gains = 0;
  if (p->call->g_positions[which].empty) return 0;
  for (int of_keys = 0; of_keys < 2 && !error; of_keys++) {
    const pegen_view *rows = of_keys ? &p->call->forward.k : &p->call->forward.q;
    if ((of_keys && args->k_positions) != which || !pegen_attention_wants_places(p->call, args, of_keys)) continue;
    error = launch_positions(f, which, rows, of_keys ? p->key_heads : rows->size[PEGEN_HEAD], p->shares[of_keys], adds);
    adds = gains = 1;
  }
  return error || gains || adds ? error : launch_positions(f, which, NULL, 0, 0, 0);
}

/* What tokens or pairs gave to an input. first: its rows' first element among those of all inputs; pair: its number
 * among those of pairs. */
static int launch_input(const finish *f, int input, int64_t first, int64_t pair) {
  const backward_plan *p = f->p;
  const pegen_kernel *kernel = p->request->kernel;
  const pegen_view *out = &p->call->g_input[input];
  int of_keys = pegen_input_is_of_keys(kernel, input), is_pair = kernel->inputs[input].size == PEGEN_SIZE_OF_KEYS;
  const pegen_view *rows = of_keys ? &p->call->forward.k : &p->call->forward.q;
  int64_t keys = p->call->forward.k.size[PEGEN_TOKEN], size = is_pair ? keys : pegen_launch_input_size(kernel, input),
          elements = out->size[PEGEN_BATCH] * out->size[PEGEN_TOKEN] * out->size[PEGEN_HEAD] * size;
  const char *word = is_pair ? PEGEN_PTX_WORD_ATTENTION_PAIRS : PEGEN_PTX_WORD_ATTENTION_INPUTS;
  pegen_launch_step step =
      pegen_launch_threads(kernel, &kernel->ptx->entries[pegen_launch_next(kernel, word, 0)], elements);
  int64_t *of = step.parameter;
  of[PEGEN_PTX_INPUTS_SHARES] =
      f->workspace + (is_pair ? p->pairs + pair * keys * (int64_t)sizeof(float) : p->shares[of_keys]);
  of[PEGEN_PTX_INPUTS_BATCHES] = wants_sums(p->request, p->call, of_keys) ? rows->size[PEGEN_BATCH] : 0;
  of[PEGEN_PTX_INPUTS_HEADS] = of_keys ? p->key_heads : rows->size[PEGEN_HEAD];
  pegen_launch_set_input(of, out, is_pair ? p->n_pairs * keys : first, size, f->adds);
  return f->run(f->context, &step);
}

static int finish_inputs(const finish *f) {
  const pegen_kernel *kernel = f->p->request->kernel;
  int64_t first = 0, pair = 0;
  int error = 0;
  for (int i = 0; gives_inputs(kernel) && i < kernel->n_inputs && !error; i++) {
    if (!f->p->call->g_input[i].empty && pegen_launch_is_pair_input(kernel, i)) error = launch_input(f, i, first, pair);
    first += pegen_launch_input_size(kernel, i);
    pair += kernel->inputs[i].size == PEGEN_SIZE_OF_KEYS;
  }
  return error;
}

static int launch_groups(const finish *f) {
  const backward_plan *p = f->p;
  pegen_launch_step step = pegen_launch_sums(p->request->kernel, PEGEN_PTX_WORD_ATTENTION_SUM, f->workspace + p->sums,
                                             f->workspace + p->groups, p->elements, p->chunks);
  return f->run(f->context, &step);
}

static int finish_operands(const finish *f) {
  const backward_plan *p = f->p;
  const pegen_kernel *kernel = p->request->kernel;
  int in_groups = p->chunks > PEGEN_PTX_SUM_MOST, error = in_groups ? launch_groups(f) : 0;
  const pegen_ptx_entry *total = &kernel->ptx->entries[pegen_launch_next(kernel, PEGEN_PTX_WORD_TOTAL, 0)];
  pegen_launch_step step = pegen_launch_threads(kernel, total, p->elements);
  step.parameter[PEGEN_PTX_TOTAL_SUMS] = f->workspace + (in_groups ? p->groups : p->sums);
  step.parameter[PEGEN_PTX_TOTAL_CHUNKS] = in_groups ? pegen_divide_up(p->chunks, PEGEN_PTX_SUM_MOST) : p->chunks;
  step.parameter[PEGEN_PTX_TOTAL_ADDS] = f->adds;
  pegen_launch_set_gained(step.parameter + PEGEN_PTX_TOTAL_OPERANDS, kernel, p->call->grad);
  return error ? error : f->run(f->context, &step);
}

int pegen_launch_plan_attention_backward_finish(const pegen_launch_request *request, pegen_launch_run *run,
                                                void *context) {
  pegen_attention_backward_call call;
  backward_plan p;
  int error = check(request, 1, &call);
  if (error || !run) return error;
  if (!make_plan(request, &call, &p)) return PEGEN_ERROR_SIZE_OVERFLOW;
  finish f = {&p, (int64_t)(uintptr_t)request->args->workspace, (call.grad->flags & PEGEN_GRAD_ACCUMULATE) != 0, run,
              context};
  for (int which = 0; which < 2 && !error; which++) error = finish_positions(&f, which);
  if (!error) error = finish_inputs(&f);
  if (error || !call.of_operands) return error;
  return p.weights.is_wanted ? pegen_launch_finish_weights(request, &call, &p.weights, run, context)
                             : finish_operands(&f);
}
