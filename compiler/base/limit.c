/* base/limit: a timer of the process's own processor time; see base/limit.h.
 *
 * The handler calls what POSIX allows in one (open, read, write, clock_gettime, _exit) and nothing else: messages are
 * made before. The timer's signals are this thread's: a library that a profiler loads into the process may have threads
 * with stacks that have no room for a signal, and the kernel would hand them one. Memory is what is resident, from
 * /proc/self/statm; where there is none, memory has no limit.
 */
#include "base/limit.h"

#include "base/diag.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum { EVERY_MS = 10, STATUS = 1, MESSAGE = 8192 };

static double most_seconds;
static long most_mebibytes;

static double end; /* of the process's processor time */
static long page;  /* bytes */
static char late[MESSAGE], large[MESSAGE];
static timer_t timer;
static struct sigaction before;
static bool watched;

void limit_of_process(double seconds, long mebibytes) {
  most_seconds = seconds;
  most_mebibytes = mebibytes;
}

static double processor_seconds(void) {
  struct timespec now = {0};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The second number of statm, in MiB. */
static long resident_mebibytes(void) {
  char text[128];
  int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t length = read(fd, text, sizeof text);
  close(fd);
  ssize_t i = 0;
  long pages = 0;
  while (i < length && text[i] != ' ') i++;
  for (i++; i < length && text[i] >= '0' && text[i] <= '9'; i++) pages = pages * 10 + (text[i] - '0');
  return pages / 1024 * page / 1024;
}

static void stop(const char *message) {
  ssize_t written = write(STDERR_FILENO, message, strlen(message));
  (void)written; /* there is nobody else to tell */
  _exit(STATUS);
}

static void on_tick(int signal) {
  (void)signal;
  int error = errno;
  if (most_seconds > 0 && processor_seconds() > end) stop(late);
  if (most_mebibytes > 0 && resident_mebibytes() > most_mebibytes) stop(large);
  errno = error;
}

void limit_begin(const char *file, int line) {
  if (most_seconds <= 0 && most_mebibytes <= 0) return;
  page = sysconf(_SC_PAGESIZE);
  end = processor_seconds() + most_seconds;
  snprintf(late, sizeof late,
           "%.4096s:%d: error: compiling took more than %g seconds of processor time; expected a smaller description, "
           "--no-grad, or another --max-seconds\n",
           file, line, most_seconds);
  snprintf(large, sizeof large,
           "%.4096s:%d: error: compiling took more than %ld MiB of memory; expected a smaller description, or another "
           "--max-memory\n",
           file, line, most_mebibytes);
  struct sigaction tick = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGXCPU};
  event.sigev_notify_thread_id = gettid();
  struct itimerspec often = {{0, EVERY_MS * 1000000}, {0, EVERY_MS * 1000000}};
  sigemptyset(&tick.sa_mask);
  if (sigaction(SIGXCPU, &tick, &before)) diag_bug("limit", "no handler of SIGXCPU");
  if (timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) || timer_settime(timer, 0, &often, NULL))
    diag_bug("limit", "no timer of processor time");
  watched = true;
}

void limit_end(void) {
  if (!watched) return;
  watched = false;
  timer_delete(timer);
  sigaction(SIGXCPU, &before, NULL);
}
