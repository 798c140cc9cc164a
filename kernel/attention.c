/* attention.c: the entries of attention. A call is checked as a whole, and then walked sequence by sequence; a call
 * without cu_seqlens and without pages is one sequence.
 *
 * Sequences of different lengths are rows [total,H,D] that follow each other. Each one is a window of the checked call:
 * the views of rows, places and inputs begin at its first token and are as long as it is. What walks a window knows
 * nothing of others, so its numbers are those of a call of its own. Where keys are in pages (attention_pages.c),
 * queries may also be batches of as many tokens each. Keys of few queries may go in chunks (attention_items.c): a
 * sequence has its own piece of the workspace.
 */
#include "attention_items.h"
#include "attention_pages.h"
#include "gradient.h"

/* ---- one call ---- */

typedef struct attention_call {
  const pegen_driver *driver;
  pegen_args args;           /* the call that is checked: without pages, and then without boundaries, too */
  pegen_attention_call call; /* a sequence's window */
  int64_t sequences;
  int by_bounds; /* 1: queries of sequences are between boundaries */
  int has_pages; /* 1: keys of sequences are in pages, and queries without boundaries are batches */
  pegen_pages pages;
  int target;
  pegen_tuning tuning;
  int64_t sequence; /* the window's */
  int64_t before;   /* work of the sequences before it */
  int finishes;     /* 1: behind chunks of keys */
} attention_call;

static int take_args(attention_call *r, const pegen_args *args) {
  int error =
      args ? pegen_check_struct(args, args->struct_size, PEGEN_ARGS_FIRST_SIZE, sizeof *args) : PEGEN_ERROR_NULL_ARGS;
  if (error) return error;
  pegen_copy_args(&r->args, args);
  r->has_pages = pegen_has_pages(args);
  r->by_bounds = r->args.cu_seqlens || (!r->has_pages && r->args.k_cu_seqlens);
  if (!r->has_pages && !r->by_bounds) return 0;
  if (!args->q || !args->k || !args->v || !args->out) return PEGEN_ERROR_MISSING_TENSOR;
  if (!r->has_pages) {
    r->args.split_keys = 0;
    return 0;
  }
  r->args.cu_seqlens = r->args.k_cu_seqlens = r->args.block_table = r->args.lengths = 0;
  if (args->q->ndim != (r->by_bounds ? 3 : 4)) return PEGEN_ERROR_RANK;
  if (!args->q->shape) return PEGEN_ERROR_NULL_SHAPE;
  return pegen_pages_flatten(&r->pages, r->driver, args, r->by_bounds ? 0 : args->q->shape, &r->args);
}

static int check_pages(attention_call *r, const pegen_args *args) {
  pegen_attention_call *c = &r->call;
  const pegen_attention *form = r->driver->form; /* the grid's points are of one sequence */
  if (r->by_bounds) {
    PEGEN_TRY(pegen_read_bounds(args, 0, c->q.size[PEGEN_TOKEN], &c->bounds[0]));
    r->sequences = c->bounds[0].sequences;
    if (form->placed && c->position_type < 0 && r->sequences > 1) return PEGEN_ERROR_SEQUENCE_POSITIONS;
  }
  return pegen_pages_check(&r->pages, args, r->sequences, c);
}

static int check(attention_call *r, const pegen_args *args, int part, int parts) {
  PEGEN_TRY(take_args(r, args));
  PEGEN_TRY(pegen_check_attention(r->driver, &r->args, part, parts, &r->call));
  r->sequences = r->by_bounds ? r->call.bounds[0].sequences : r->has_pages ? r->call.q.size[PEGEN_BATCH] : 1;
  return r->has_pages ? check_pages(r, args) : 0;
}

static void go_to_batch(pegen_view *view, int64_t by) {
  view->base += (uintptr_t)(by * view->stride[PEGEN_BATCH]);
  view->size[PEGEN_BATCH] = 1;
}

static void go_to_batches(attention_call *r, int64_t by) {
  pegen_attention_call *c = &r->call;
  go_to_batch(&c->q, by);
  go_to_batch(&c->out, by);
  if (!c->lse.empty) go_to_batch(&c->lse, by);
  for (int i = 0; i < r->driver->kernel->n_inputs; i++) go_to_batch(&c->input[i], by); /* those in pages stay */
  if (c->position_type >= 0) go_to_batch(&c->positions, by);
}

static void move_to(attention_call *r, int64_t sequence) {
  pegen_attention_call *c = &r->call;
  if (r->by_bounds) pegen_attention_go_to(r->driver, c, r->sequence, sequence);
  if (r->has_pages) {
    if (!r->by_bounds) go_to_batches(r, sequence - r->sequence);
    if (c->k_position_type >= 0) go_to_batch(&c->k_positions, sequence - r->sequence);
    pegen_pages_set(&r->pages, sequence, c);
  }
  r->sequence = sequence;
}

/* ---- parts ---- */

enum { KEYS_OF_WORK = 64, LINE = 64 };

/* What is asked of every sequence: bytes of its workspace, its work, or to do some of that. */
typedef enum pass { ROOM, COUNT, RUN } pass;

/* An item takes about as long as it has keys. */
static int64_t work_of_item(const pegen_attention_walk *w, const pegen_attention_work *work, int finishes) {
  if (finishes) return 1 + work->chunks / work->items;
  return 1 + w->keys * work->items / (work->chunks * KEYS_OF_WORK);
}

/* Returns what one sequence takes: bytes of its workspace (ROOM), or work, of which RUN does [begin, end). -1: too much
 * to count. It is not inlined, so that each sequence has its own stack: what stands there depends on its keys. */
__attribute__((noinline)) static int64_t run_sequence(const attention_call *r, int64_t begin, int64_t end, pass of) {
  pegen_attention_walk w;
  pegen_attention_work work;
  pegen_attention_begin(&w, r->driver, &r->args, &r->call, r->target, &r->tuning);
  pegen_attention_work_of(&w, r->target, &work);
  if (work.bytes < 0 || of == ROOM) return work.bytes < 0 ? -1 : (work.bytes + LINE - 1) / LINE * LINE;
  int64_t count = r->finishes ? (work.bytes ? work.items : 0) : work.chunks, all, first, last;
  if (!count) return 0;
  int64_t each = work_of_item(&w, &work, r->finishes);
  if (__builtin_mul_overflow(count, each, &all)) return -1;
  if (of == COUNT) return all;
  /* those that begin in [begin, end) */
  first = begin <= r->before ? 0 : (begin - r->before + each - 1) / each;
  last = end <= r->before ? 0 : (end - r->before + each - 1) / each;
  if (last > count) last = count;
  if (first < last) pegen_attention_run_work(&w, r->target, &work, first, last, r->finishes);
  return all;
}

/* The sum over all sequences; -1: too much to count. */
static int64_t walk(attention_call *r, int64_t begin, int64_t end, pass of) {
  char *workspace = r->args.workspace;
  r->before = 0;
  for (int64_t sequence = 0; sequence < r->sequences; sequence++) {
    move_to(r, sequence);
    if (r->call.q.size[PEGEN_TOKEN] == 0) continue;
    int64_t room = of == RUN && r->args.split_keys ? run_sequence(r, 0, 0, ROOM) : 0,
            sum = run_sequence(r, begin, end, of);
    if (sum < 0 || __builtin_add_overflow(r->before, sum, &r->before)) return -1;
    if (room) r->args.workspace = (char *)r->args.workspace + room;
  }
  r->args.workspace = workspace;
  return r->before;
}

/* Bytes of the workspace, which is another tensor's memory nowhere; -1: too many. */
static int64_t room_of(attention_call *r) { return r->args.split_keys && !r->call.out.empty ? walk(r, 0, 0, ROOM) : 0; }

/* It is not inlined, so that its views leave the stack before rows are multiplied. */
static __attribute__((noinline)) int check_room(attention_call *r, const pegen_args *args) {
  int64_t bytes = room_of(r);
  pegen_view room;
  pegen_attention_call whole; /* the call's own are windows by now */
  if (bytes < 0) return PEGEN_ERROR_SIZE_OVERFLOW;
  if (!r->by_bounds && !r->has_pages) return pegen_check_split(r->driver, args, &r->call, bytes);
  int error = pegen_check_workspace(args, bytes, &room);
  if (error || !bytes || (error = pegen_check_attention(r->driver, &r->args, 0, 1, &whole)) != 0) return error;
  pegen_memory memory;
  pegen_memory_of_attention(&memory, r->driver, &r->args, &whole);
  if (r->has_pages) pegen_memory_of_pages(&memory, &r->pages, &r->call);
  pegen_memory_reads(&memory, &whole.out);
  pegen_memory_reads(&memory, &whole.lse);
  pegen_memory_writes(&memory, &room);
  return pegen_check_memory(&memory);
}

static int begin_call(attention_call *r, const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  r->driver = driver;
  r->sequence = 0;
  PEGEN_TRY(check(r, args, part, parts));
  const pegen_attention *form = driver->form;
  r->target = pegen_dispatch(driver, &r->tuning);
  if (r->target < 0) return PEGEN_ERROR_PROCESSOR;
  return form->targets[r->target].attend[r->call.type] ? 0 : PEGEN_ERROR_DTYPE;
}

static int run_call(const pegen_driver *driver, const pegen_args *args, int part, int parts, int finishes) {
  attention_call r;
  int64_t begin, end, work;
  int error = begin_call(&r, driver, args, part, parts);
  r.finishes = finishes;
  if (error || (error = check_room(&r, args)) != 0 || r.call.out.empty) return error;
  if ((work = walk(&r, 0, 0, COUNT)) < 0) return PEGEN_ERROR_SIZE_OVERFLOW;
  if (pegen_share(work, part, parts, &begin, &end)) walk(&r, begin, end, RUN);
  return 0;
}

int pegen_driver_attention(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  return run_call(driver, args, part, parts, 0);
}

int pegen_driver_attention_finish(const pegen_driver *driver, const pegen_args *args, int part, int parts) {
  return run_call(driver, args, part, parts, 1);
}

size_t pegen_driver_attention_workspace(const pegen_driver *driver, const pegen_args *args) {
  attention_call r;
  if (begin_call(&r, driver, args, 0, 1)) return 0;
  int64_t bytes = room_of(&r);
  return bytes < 0 ? 0 : (size_t)bytes;
}
