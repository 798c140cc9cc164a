/* launch_chunks.c: see launch_chunks.h.
 *
 * Tokens are cut into chunks, whose number the call's sizes alone decide: as many as keep a large device busy, each
 * with sums of its own in the workspace, which the launches of `finish` add up in order. What a thread gives to a
 * position lies there, too, until the launch behind its own has summed it. Heads of q that share operands with one of k
 * go by rounds of launches, a head of each group at a time.
 */
#include "launch_chunks.h"

#include "../kernel/head_groups.c"
#include "../kernel/loop.h"

#include <string.h>

/* Chunks of threads that have 8 channels each; chunks at most. */
enum { THREADS = 1 << 17, MOST_CHUNKS = 4096, NUMBER = PEGEN_LAUNCH_NUMBER };
/* Chunks of gradients of matrices are for fewer threads: each has much to do, and its sums are large. */
enum { MATRIX_THREADS = 1 << 15 };
/* Items and threads are counted in 32 bits. */
static const int64_t MOST_ITEMS = INT32_MAX / 2;

static int64_t smaller(int64_t x, int64_t y) { return x < y ? x : y; }

/* ---- passes ---- */

/* The most of any entry: which one is launched is a matter of addresses. */
static int64_t most_units(const pegen_kernel *kernel) {
  int64_t units = 0;
  for (int i = pegen_launch_next(kernel, PEGEN_PTX_WORD_GRADIENT, 0); i >= 0;
       i = pegen_launch_next(kernel, PEGEN_PTX_WORD_GRADIENT, i + 1))
    if (kernel->ptx->entries[i].units > units) units = kernel->ptx->entries[i].units;
  return units;
}

static void measure(const pegen_gradient_cut *g, pegen_gradient_pass *p) {
  const pegen_stream *first = p->stream[0];
  const pegen_kernel *kernel = g->kernel;
  int turns_rows = pegen_launch_turns_rows(kernel),
      per_head = turns_rows || kernel->ptx->per_head == PEGEN_PER_HEAD_ALL;
  int64_t tokens = first->in.size[PEGEN_TOKEN], batches = first->in.size[PEGEN_BATCH];
  p->which = pegen_gaining_positions(g->call, first);
  p->by_batch = turns_rows || !pegen_batches_share(g->call, first);
  p->heads = !per_head ? 1 : turns_rows ? first->in.size[PEGEN_HEAD] : kernel->heads;
  int shares = per_head && !p->by_batch; /* an item has all batches */
  p->items = shares ? tokens : tokens * batches; /* of elements in memory: far below 2^63 */
  p->rows = 0;
  for (int s = 0; s < p->n; s++)
    p->rows += !per_head ? p->stream[s]->in.size[PEGEN_HEAD] : shares ? p->stream[s]->in.size[PEGEN_BATCH] : 1;
  int64_t most = g->of->matrix_sums ? MATRIX_THREADS / (most_units(kernel) * p->heads)
                                    : THREADS / pegen_divide_up(kernel->head_dim * p->heads, 8);
  most = most < 1 ? 1 : smaller(most, MOST_CHUNKS);
  p->chunk = pegen_divide_up(p->items, smaller(most, p->items));
  p->chunks = pegen_divide_up(p->items, p->chunk);
  p->sums = g->sum_heads < p->heads ? p->chunks * p->heads : p->chunks;
}

/* A thread of rows that turn by inputs has a row of q and that of k beside it. */
static int is_joint(const pegen_gradient_cut *g) {
  const pegen_stream *stream = g->call->rows.stream;
  if (!g->call->rows.joint || !pegen_launch_turns_rows(g->kernel)) return g->call->rows.joint != 0;
  return stream[0].in.size[PEGEN_HEAD] == stream[1].in.size[PEGEN_HEAD];
}

static void find_passes(pegen_gradient_cut *g, int64_t rounds) {
  int joint = is_joint(g);
  for (int s = 0; s < 2; s++) {
    pegen_gradient_pass *p = &g->pass[g->n];
    if (pegen_has_rows(g->call, s)) p->stream[p->n++] = &g->call->rows.stream[s];
    if (p->n == 0 || (joint && s == 0)) continue;
    measure(g, p);
    p->rounds = p->stream[0]->keys ? 1 : rounds;
    p->again = g->n > 0 && p->which >= 0 && p->which == g->pass[0].which;
    g->chunks += p->sums * p->rounds;
    g->n++;
  }
  g->groups = pegen_divide_up(g->chunks, PEGEN_PTX_SUM_MOST);
}

/* ---- the workspace ---- */

typedef struct room {
  int64_t bytes;
  int is_too_large;
} room;

/* Where an array of so many numbers begins. */
static int64_t reserve(room *r, int64_t count, int64_t each) {
  int64_t begin = r->bytes, bytes;
  if (__builtin_mul_overflow(count, each, &bytes) || __builtin_mul_overflow(bytes, (int64_t)NUMBER, &bytes) ||
      __builtin_add_overflow(r->bytes, bytes, &r->bytes))
    r->is_too_large = 1, r->bytes = 0;
  return begin;
}

/* 1 where it is more than an address can say. */
static int find_places(pegen_gradient_cut *g) {
  int of_operands = g->call->of_operands != 0, of_positions = g->call->of_positions != 0;
  int64_t set = of_operands ? g->numbers : 0, matrices = of_operands ? g->of->matrix_sums : 0, items = 0, threads = 0;
  int64_t input_gains = g->call->of_inputs && pegen_launch_turns_rows(g->kernel) ? g->of->n_input_gains : 0;
  int64_t units = most_units(g->kernel), shares = g->of->n_shares ? g->of->n_shares : units;
  room r = {0, 0};
  for (int i = 0; i < g->n; i++) {
    int64_t own =
        pegen_divide_up(units * g->pass[i].heads * g->pass[i].chunks, g->kernel->ptx->block) * g->kernel->ptx->block;
    int64_t of_heads = g->pass[i].items * g->pass[i].heads; /* of elements in memory, too */
    if (of_heads > items) items = of_heads;
    if (own > threads) threads = own;
  }
  g->at.shares = reserve(&r, items, of_positions ? shares * g->kernel->n_axes : 0);
  g->at.input_shares = reserve(&r, items, pegen_divide_up(input_gains, NUMBER / 4)); /* float32 */
  g->at.sums = reserve(&r, g->chunks, set);
  g->at.groups = reserve(&r, g->groups, set);
  g->at.gained = reserve(&r, g->of->n_gained, of_operands ? g->sum_heads * g->of->n_blocks : 0);
  g->at.matrix_sums = reserve(&r, g->chunks, matrices);
  g->at.matrix_groups = reserve(&r, g->groups, matrices);
  g->at.room = reserve(&r, threads, g->of->thread_bytes / NUMBER);
  g->at.end = r.bytes;
  return r.is_too_large;
}

/* ---- limits ---- */

void pegen_launch_copy_call(const pegen_call *call, pegen_call *copy) {
  *copy = *call;
  for (int s = 0; s < 2; s++) {
    pegen_stream *stream = &copy->stream[s];
    if (stream->given) stream->out = stream->out == &call->stream[s].in ? &stream->in : &stream->out_of_place;
  }
}

void pegen_launch_set_input(int64_t *of, const pegen_view *out, int64_t first, int64_t size, int64_t adds) {
  of[PEGEN_PTX_INPUTS_TOKENS] = out->size[PEGEN_TOKEN];
  of[PEGEN_PTX_INPUTS_FIRST] = first;
  of[PEGEN_PTX_INPUTS_SIZE] = size;
  of[PEGEN_PTX_INPUTS_OUT] = (int64_t)out->base;
  of[PEGEN_PTX_INPUTS_OUT_BATCH] = out->stride[PEGEN_BATCH];
  of[PEGEN_PTX_INPUTS_OUT_TOKEN] = out->stride[PEGEN_TOKEN];
  of[PEGEN_PTX_INPUTS_OUT_HEAD] = out->stride[PEGEN_HEAD];
  of[PEGEN_PTX_INPUTS_OUT_BATCHES] = out->size[PEGEN_BATCH];
  of[PEGEN_PTX_INPUTS_OUT_HEADS] = out->size[PEGEN_HEAD];
  of[PEGEN_PTX_INPUTS_ADDS] = adds;
}

int64_t pegen_launch_input_elements(const pegen_gradient_cut *g, int input) {
  const pegen_view *out = &g->call->inputs[input];
  if (out->empty) return 0; /* not wanted; of elements in memory: far below 2^63 */
  return out->size[PEGEN_BATCH] * out->size[PEGEN_HEAD] * out->size[PEGEN_TOKEN] *
         pegen_launch_input_size(g->kernel, input);
}

static int exceeds(int64_t x, int64_t y) {
  int64_t product;
  return __builtin_mul_overflow(x, y, &product) || product > MOST_ITEMS;
}

/* Threads of the launches that a pass' own is followed by, and of positions that gain without rows. */
static int is_too_large(const pegen_gradient_cut *g) {
  for (int i = 0; i < g->n; i++)
    if (g->pass[i].items > MOST_ITEMS || g->pass[i].rows > MOST_ITEMS) return 1;
  for (int i = 0; i < g->kernel->n_inputs && pegen_launch_turns_rows(g->kernel); i++)
    if (pegen_launch_input_elements(g, i) > MOST_ITEMS) return 1;
  for (int which = 0; which < 2; which++) {
    const pegen_view *out = &g->call->positions[which];
    if (out->empty) continue;
    if (exceeds(out->size[PEGEN_POSITION_BATCH], out->size[PEGEN_POSITION_TOKEN]) ||
        exceeds(out->size[PEGEN_POSITION_BATCH] * out->size[PEGEN_POSITION_TOKEN], out->size[PEGEN_POSITION_AXIS]))
      return 1;
  }
  return exceeds(g->groups, g->numbers) || exceeds(g->groups, g->of->matrix_sums);
}

int pegen_launch_cut(const pegen_kernel *kernel, pegen_backward_call *call, pegen_gradient_cut *g) {
  memset(g, 0, sizeof *g);
  g->kernel = kernel;
  g->call = call;
  g->of = pegen_launch_gradient_of(kernel);
  g->sum_heads = kernel->heads && kernel->ptx->per_head != PEGEN_PER_HEAD_NONE ? kernel->heads : 1;
  g->numbers = g->of->n_sums * g->sum_heads * g->of->n_blocks;
  find_passes(g, pegen_group_heads(&call->rows, &call->kept[0], &g->head_groups));
  return is_too_large(g) || find_places(g) ? PEGEN_ERROR_SIZE_OVERFLOW : 0;
}

/* What the checks of a call (kernel/check_backward.c) ask of its workspace; a call that is too large is refused behind
 * them. */
int64_t pegen_backward_workspace(const pegen_driver *driver, const pegen_backward_call *call) {
  pegen_gradient_cut g;
  pegen_backward_call own = *call;
  pegen_launch_copy_call(&call->rows, &own.rows);
  if ((!call->of_operands && !call->of_positions && !call->of_inputs) || pegen_launch_cut(driver->kernel, &own, &g))
    return 0;
  return g.at.end;
}
