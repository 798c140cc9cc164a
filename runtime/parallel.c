/* parallel.c: one call of a kernel's entry, or of anything else that comes in parts, cut into as many parts as threads.
 *
 * A part whose thread cannot be created runs in the caller: a machine short of threads
 * is slower, never wrong.
 */
#include "parallel.h"

#include "pegen/pegen.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct worker {
  pegen_part_of *run;
  const void *of;
  int part, parts;
  int error;
  int started;
  pthread_t thread;
} worker;

static void *work(void *data) {
  worker *w = data;
  w->error = w->run(w->of, w->part, w->parts);
  return NULL;
}

int pegen_run_parts(pegen_part_of *run, const void *of, int threads) {
  worker *workers;
  int error;
  if (threads <= 1) return run(of, 0, 1);
  workers = calloc((size_t)threads, sizeof *workers);
  if (!workers) return run(of, 0, 1);
  for (int i = threads - 1; i >= 0; i--) { /* the caller's own part, 0, comes last */
    worker *w = &workers[i];
    w->run = run;
    w->of = of;
    w->part = i;
    w->parts = threads;
    w->started = i > 0 && pthread_create(&w->thread, NULL, work, w) == 0;
    if (!w->started) work(w);
  }
  for (int i = 1; i < threads; i++)
    if (workers[i].started) pthread_join(workers[i].thread, NULL);
  error = 0;
  for (int i = 0; i < threads && !error; i++) error = workers[i].error;
  free(workers);
  return error;
}

typedef struct call {
  pegen_entry *entry;
  const pegen_args *args;
} call;

static int run_call(const void *of, int part, int parts) {
  const call *c = of;
  return c->entry(c->args, part, parts);
}

int pegen_parallel(pegen_entry *entry, const pegen_args *args, int threads) {
  call of = {entry, args};
  return pegen_run_parts(run_call, &of, threads);
}
