/* verify/run_block: threads as coroutines; see verify/run_block.h. */
#include "verify/run_block.h"

#include "base/arena.h"
#include "base/diag.h"
#include "mlir/ir.h"
#include "verify/coroutine.h"
#include "verify/run_warp.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_THREADS = 1024, STACK_BYTES = 256 << 10 };

typedef enum state { READY, WAITS_FOR_WARP, WAITS_FOR_BLOCK, DONE } state;

/* 16 bytes on their way, read where the copy began. */
typedef struct copy {
  char *to;
  int group;
  char bytes[16];
} copy;

typedef struct thread {
  coroutine coroutine;
  state state;
  run_warp_lane lane; /* what it has come to, where that is not a barrier */
  copy *copies; /* under way, the earliest first */
  int n_copies, most_copies;
  int group; /* that the next copy is of */
  char *stack;
} thread;

typedef struct block_run {
  thread_function *run;
  int32_t block, grid_row;
  const int64_t *parameters;
  int current; /* -1: none */
  thread thread[MOST_THREADS];
} block_run;

/* One block at a time; stacks are kept for the next. */
static block_run b = {.current = -1};

static void begin_thread(void) {
  b.run(b.block, b.grid_row, b.current, b.parameters);
  thread *t = &b.thread[b.current];
  if (t->n_copies) diag_bug("run_block", "a thread ends with %d copies that it did not wait for", t->n_copies);
  t->state = DONE;
  coroutine_wait(&t->coroutine);
}

void run_block_wait(int32_t of) {
  if (b.current < 0) return;
  thread *t = &b.thread[b.current];
  t->lane = (run_warp_lane){.op = RUN_WARP_BARRIER};
  t->state = of == IR_BARRIER_WARP ? WAITS_FOR_WARP : WAITS_FOR_BLOCK;
  coroutine_wait(&t->coroutine);
}

/* ---- copies ---- */

static void begin_copy(thread *t, const int32_t *in) {
  char *both[2];
  memcpy(both, in, sizeof both);
  if (((uintptr_t)both[0] | (uintptr_t)both[1]) % sizeof t->copies->bytes)
    diag_bug("run_block", "an asynchronous copy is not aligned to 16 bytes");
  if (t->n_copies == t->most_copies) {
    t->most_copies = t->most_copies ? 2 * t->most_copies : 64;
    t->copies = arena_must(realloc(t->copies, sizeof *t->copies * (size_t)t->most_copies));
  }
  copy *c = &t->copies[t->n_copies++];
  c->to = both[0];
  c->group = t->group;
  memcpy(c->bytes, both[1], sizeof c->bytes);
  memset(c->to, 0xff, sizeof c->bytes);
}

static void finish_copies(thread *t, int groups) {
  int done = 0;
  for (; done < t->n_copies && t->copies[done].group < t->group - groups; done++)
    memcpy(t->copies[done].to, t->copies[done].bytes, sizeof t->copies->bytes);
  t->n_copies -= done;
  if (done) memmove(t->copies, t->copies + done, sizeof *t->copies * (size_t)t->n_copies);
}

void run_block_warp(int32_t op, int32_t detail, const int32_t *in, int32_t *out) {
  if (b.current < 0) diag_bug("run_block", "a warp is at work where threads run one after the other");
  thread *t = &b.thread[b.current];
  if (op < IR_WARP_COLLECTIVES) {
    t->lane = (run_warp_lane){op, detail, in, out};
    t->state = WAITS_FOR_WARP;
    coroutine_wait(&t->coroutine);
  } else if (op == IR_WARP_COPY) begin_copy(t, in);
  else if (op == IR_WARP_COPY_COMMIT) t->group++;
  else finish_copies(t, detail);
}

/* ---- turns ---- */

static void resume(int index) {
  b.current = index;
  coroutine_resume(&b.thread[index].coroutine);
  b.current = -1;
}

/* Does what the lanes that wait for their warp came to. */
static void finish_warp(int first, int count, int waiting) {
  const run_warp_lane *lane[RUN_WARP];
  int op = 0, n = 0;
  for (int i = 0; i < count; i++) {
    const thread *t = &b.thread[first + i];
    if (t->state != WAITS_FOR_WARP) continue;
    if (n && (t->lane.op != op || t->lane.detail != lane[0]->detail))
      diag_bug("run_block", "lanes of one warp have come to different operations, lane %d among them", i);
    op = t->lane.op;
    lane[n++] = &t->lane;
  }
  if (op == RUN_WARP_BARRIER) return;
  if (waiting < RUN_WARP) diag_bug("run_block", "%d lanes of a warp do what all of them have to do", waiting);
  run_warp_do(lane);
}

/* Lets a warp's threads go on until all of them are done or wait for the block. */
static void run_warp(int first, int count, bool reverse) {
  for (;;) {
    int seen[DONE + 1] = {0};
    for (int i = 0; i < count; i++) {
      int index = first + (reverse ? count - 1 - i : i);
      if (b.thread[index].state == READY) resume(index);
      seen[b.thread[index].state]++;
    }
    if (seen[WAITS_FOR_WARP] && seen[WAITS_FOR_BLOCK])
      diag_bug("run_block", "threads of one warp wait at two barriers");
    if (!seen[WAITS_FOR_WARP]) return;
    finish_warp(first, count, seen[WAITS_FOR_WARP]);
    for (int i = 0; i < count; i++)
      if (b.thread[first + i].state == WAITS_FOR_WARP) b.thread[first + i].state = READY;
  }
}

static void create(int index) {
  thread *t = &b.thread[index];
  if (!t->stack && !(t->stack = malloc(STACK_BYTES))) diag_bug("run_block", "no memory for %d threads", index + 1);
  coroutine_create(&t->coroutine, begin_thread, t->stack, STACK_BYTES);
  t->state = READY;
  t->group = 0;
}

void run_block(thread_function *run, int32_t block, int32_t grid_row, int threads, bool reverse,
               const int64_t *parameters) {
  if (threads > MOST_THREADS) diag_bug("run_block", "%d threads of a block", threads);
  b.run = run;
  b.block = block;
  b.grid_row = grid_row;
  b.parameters = parameters;
  for (int i = 0; i < threads; i++) create(i);
  int warps = (threads + RUN_WARP - 1) / RUN_WARP;
  for (bool waiting = true; waiting;) {
    waiting = false;
    for (int i = 0; i < warps; i++) {
      int first = (reverse ? warps - 1 - i : i) * RUN_WARP;
      run_warp(first, threads - first < RUN_WARP ? threads - first : RUN_WARP, reverse);
    }
    for (int i = 0; i < threads; i++)
      if (b.thread[i].state == WAITS_FOR_BLOCK) {
        b.thread[i].state = READY;
        waiting = true;
      }
  }
}
