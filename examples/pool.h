/* pool: threads that live as long as the program and run one stage after the other, in place of a real
 * engine's. */
#ifndef POOL_H
#define POOL_H

#include <pegen/pegen.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

/* One share of a stage's work; 0 or an error. */
typedef int stage(const void *context, int part, int parts);

/* A kernel's entry as a stage: its part is a part of the rows. */
typedef struct entry_call {
  pegen_entry *entry;
  const pegen_args *args;
} entry_call;

static int enter(const void *context, int part, int parts) {
  const entry_call *c = context;
  return c->entry(c->args, part, parts);
}

static struct {
  pthread_barrier_t start, end;
  int threads;
  stage *run;
  const void *context;
  atomic_int error;
} pool;

static void pool_work(int part) {
  int error = pool.run(pool.context, part, pool.threads);
  if (error) atomic_store(&pool.error, error);
}

static void *pool_serve(void *part) {
  for (;;) {
    pthread_barrier_wait(&pool.start);
    pool_work((int)(intptr_t)part);
    pthread_barrier_wait(&pool.end);
  }
  return NULL;
}

static void pool_start(int threads) {
  pool.threads = threads > 1 ? threads : 1;
  pthread_barrier_init(&pool.start, NULL, (unsigned)pool.threads);
  pthread_barrier_init(&pool.end, NULL, (unsigned)pool.threads);
  for (intptr_t part = 1; part < pool.threads; part++)
    if (pthread_create(&(pthread_t){0}, NULL, pool_serve, (void *)part)) abort();
}

/* Runs the stage on every thread, the caller's too, until all are done; the error of one of them, or 0. */
static int pool_run(stage *run, const void *context) {
  pool.run = run, pool.context = context;
  pthread_barrier_wait(&pool.start);
  pool_work(0);
  pthread_barrier_wait(&pool.end);
  return atomic_exchange(&pool.error, 0);
}

#endif
