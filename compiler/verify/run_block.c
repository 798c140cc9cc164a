/* verify/run_block: threads as coroutines; see verify/run_block.h. */
#include "verify/run_block.h"

#include "base/diag.h"
#include "mlir/ir.h"
#include "verify/coroutine.h"

#include <stdlib.h>

enum { WARP = 32, MOST_THREADS = 1024, STACK_BYTES = 256 << 10 };

typedef enum state { READY, WAITS_FOR_WARP, WAITS_FOR_BLOCK, DONE } state;

typedef struct thread {
  coroutine coroutine;
  state state;
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
  b.thread[b.current].state = DONE;
  coroutine_wait(&b.thread[b.current].coroutine);
}

void run_block_wait(int32_t of) {
  if (b.current < 0) return;
  thread *t = &b.thread[b.current];
  t->state = of == IR_BARRIER_WARP ? WAITS_FOR_WARP : WAITS_FOR_BLOCK;
  coroutine_wait(&t->coroutine);
}

static void resume(int index) {
  b.current = index;
  coroutine_resume(&b.thread[index].coroutine);
  b.current = -1;
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
    for (int i = 0; i < count; i++)
      if (b.thread[first + i].state == WAITS_FOR_WARP) b.thread[first + i].state = READY;
  }
}

static void create(int index) {
  thread *t = &b.thread[index];
  if (!t->stack && !(t->stack = malloc(STACK_BYTES))) diag_bug("run_block", "no memory for %d threads", index + 1);
  coroutine_create(&t->coroutine, begin_thread, t->stack, STACK_BYTES);
  t->state = READY;
}

void run_block(thread_function *run, int32_t block, int32_t grid_row, int threads, bool reverse,
               const int64_t *parameters) {
  if (threads > MOST_THREADS) diag_bug("run_block", "%d threads of a block", threads);
  b.run = run;
  b.block = block;
  b.grid_row = grid_row;
  b.parameters = parameters;
  for (int i = 0; i < threads; i++) create(i);
  int warps = (threads + WARP - 1) / WARP;
  for (bool waiting = true; waiting;) {
    waiting = false;
    for (int i = 0; i < warps; i++) {
      int first = (reverse ? warps - 1 - i : i) * WARP;
      run_warp(first, threads - first < WARP ? threads - first : WARP, reverse);
    }
    for (int i = 0; i < threads; i++)
      if (b.thread[i].state == WAITS_FOR_BLOCK) {
        b.thread[i].state = READY;
        waiting = true;
      }
  }
}
