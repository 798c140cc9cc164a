/* parts.c: a call shared with XLA's pool of threads.
 *
 * The caller is a thread of that pool itself and must not wait for tasks that may never get a thread. So it takes parts
 * like any other thread until none is left, and then waits for those alone that others are at. A task that comes later
 * finds no part, and touches nothing but the counters, which the last to leave frees.
 */
#include "call.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { PART_BYTES = 1 << 20, MOST_PARTS = 256 }; /* less is done before another thread has woken up */

typedef struct job {
  pegen_entry *entry;
  const pegen_args *args;
  int parts;
  atomic_int next, error, users;
  int done;
  pthread_mutex_t lock;
  pthread_cond_t finished;
} job;

static void leave(job *j) {
  if (atomic_fetch_sub(&j->users, 1) != 1) return;
  pthread_mutex_destroy(&j->lock);
  pthread_cond_destroy(&j->finished);
  free(j);
}

static void take_parts(job *j) {
  int done = 0, part;
  while ((part = atomic_fetch_add(&j->next, 1)) < j->parts) {
    int error = j->entry(j->args, part, j->parts);
    if (error) atomic_store(&j->error, error); /* all parts check the same arguments and refuse alike */
    done++;
  }
  if (!done) return;
  pthread_mutex_lock(&j->lock);
  j->done += done;
  if (j->done == j->parts) pthread_cond_signal(&j->finished);
  pthread_mutex_unlock(&j->lock);
}

static void help(void *data) {
  take_parts(data);
  leave(data);
}

static int64_t count_threads(const xla_frame *frame) {
  int64_t threads = 1;
  xla_threads_request request = {sizeof request, NULL, frame->context, &threads};
  const xla_api *api = frame->api;
  if (api->struct_size < offsetof(xla_api, create_future) || !api->count_threads) return 1;
  void *error = api->count_threads(&request);
  if (!error) return threads;
  api->destroy_error(&(xla_destroy_request){sizeof(xla_destroy_request), NULL, error});
  return 1;
}

/* Asks for one more thread. */
static void call_for_help(const xla_frame *frame, job *j) {
  xla_schedule_request request = {sizeof request, NULL, frame->context, help, j};
  atomic_fetch_add(&j->users, 1);
  void *error = frame->api->schedule(&request);
  if (!error) return;
  frame->api->destroy_error(&(xla_destroy_request){sizeof(xla_destroy_request), NULL, error});
  leave(j);
}

int pegen_xla_run_parts(const xla_frame *frame, pegen_entry *entry, const pegen_args *args, int64_t bytes) {
  int64_t parts = bytes / PART_BYTES, threads;
  job *j = NULL;
  if (parts > 1 && (threads = count_threads(frame)) < parts) parts = threads;
  if (parts > MOST_PARTS) parts = MOST_PARTS;
  if (parts <= 1 || !(j = malloc(sizeof *j))) return entry(args, 0, 1);
  *j = (job){.entry = entry, .args = args, .parts = (int)parts, .users = 1};
  pthread_mutex_init(&j->lock, NULL);
  pthread_cond_init(&j->finished, NULL);
  for (int64_t i = 1; i < parts; i++) call_for_help(frame, j);
  take_parts(j);
  pthread_mutex_lock(&j->lock);
  while (j->done < j->parts) pthread_cond_wait(&j->finished, &j->lock);
  pthread_mutex_unlock(&j->lock);
  int error = atomic_load(&j->error);
  leave(j);
  return error;
}
