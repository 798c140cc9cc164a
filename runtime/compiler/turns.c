/* turns.c: see turns.h. A fork leaves the child with the threads' turns and without the threads: turns carry the
 * process that they belong to, and those of another count for nothing. Without room in the table nobody waits. */
#include "turns.h"

#include <pthread.h>
#include <unistd.h>

enum { MOST_TURNS = 256 };
static struct {
  uint64_t number;
  pid_t process; /* 0: free */
} turns[MOST_TURNS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }
static void after_fork_in_child(void) {
  pthread_cond_t fresh = PTHREAD_COND_INITIALIZER; /* nobody waits here */
  given = fresh;
  pthread_mutex_unlock(&lock);
}
static void watch_forks(void) { pthread_atfork(before_fork, after_fork, after_fork_in_child); }

static int find(uint64_t number, pid_t process) {
  for (int i = 0; i < MOST_TURNS; i++)
    if (turns[i].process == process && turns[i].number == number) return i;
  return -1;
}

void pegen_turn_take(uint64_t number) {
  pid_t process = getpid();
  pthread_once(&once, watch_forks);
  pthread_mutex_lock(&lock);
  while (find(number, process) >= 0) pthread_cond_wait(&given, &lock);
  for (int i = 0; i < MOST_TURNS; i++)
    if (turns[i].process != process) {
      turns[i].number = number;
      turns[i].process = process;
      break;
    }
  pthread_mutex_unlock(&lock);
}

void pegen_turn_give(uint64_t number) {
  pthread_mutex_lock(&lock);
  int i = find(number, getpid());
  if (i >= 0) turns[i].process = 0;
  pthread_cond_broadcast(&given);
  pthread_mutex_unlock(&lock);
}
