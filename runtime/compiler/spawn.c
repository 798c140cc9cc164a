/* spawn.c: posix_spawn with pipes; see spawn.h.
 *
 * The child's descriptors are opened close-on-exec, far above those that it will know them by, and moved there by
 * posix_spawn. A fork elsewhere in the host may hold the pipes' ends open for as long as it likes, so the end of the
 * child is watched, too, and not the end of the pipes alone. */
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { FIRST_OWN = 16, TEXT_FD = 3, STEP = 1 << 16, WATCH_MILLISECONDS = 50 };

/* ORDER SPAWN_STREAM */
static const int child_fd[SPAWN_STREAMS] = {STDOUT_FILENO, STDERR_FILENO, 4, 5};

/* Above all that the child is given by number; closes the old one. */
static int lift(int fd) {
  if (fd < 0) return -1;
  int high = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_OWN);
  int error = errno;
  close(fd);
  errno = error;
  return high;
}

static void close_all(int *fds, int count) {
  for (int i = 0; i < count; i++)
    if (fds[i] >= 0) close(fds[i]), fds[i] = -1;
}

static int text_file(const char *text) {
  int fd = lift(memfd_create("description", MFD_CLOEXEC));
  if (fd < 0 || pegen_bytes_write(fd, text, strlen(text))) return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

static bool open_pipes(int *ours, int *theirs) {
  for (int i = 0; i < SPAWN_STREAMS; i++) ours[i] = theirs[i] = -1;
  for (int i = 0; i < SPAWN_STREAMS; i++) {
    int ends[2];
    bool ok = !pipe2(ends, O_CLOEXEC);
    if (ok) {
      ours[i] = lift(ends[0]);
      theirs[i] = lift(ends[1]);
      ok = ours[i] >= 0 && theirs[i] >= 0 && !fcntl(ours[i], F_SETFL, O_NONBLOCK);
    }
    if (!ok) {
      int error = errno;
      close_all(ours, SPAWN_STREAMS);
      close_all(theirs, SPAWN_STREAMS);
      errno = error;
      return false;
    }
  }
  return true;
}

/* No signal is blocked or ignored in the child because it is here. */
static int set_signals(posix_spawnattr_t *attributes) {
  sigset_t none, usual;
  sigemptyset(&none);
  sigemptyset(&usual);
  const int signals[] = {SIGPIPE, SIGCHLD, SIGINT, SIGTERM, SIGXCPU, SIGALRM};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaddset(&usual, signals[i]);
  posix_spawnattr_setsigmask(attributes, &none);
  posix_spawnattr_setsigdefault(attributes, &usual);
  return posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

static int start(const char *program, char *const *arguments, int text, const int *theirs, pid_t *pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  int error = posix_spawn_file_actions_init(&actions);
  if (error) return error;
  if (!(error = posix_spawnattr_init(&attributes))) {
    error = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!error && text >= 0) error = posix_spawn_file_actions_adddup2(&actions, text, TEXT_FD);
    for (int i = 0; !error && i < SPAWN_STREAMS; i++)
      error = posix_spawn_file_actions_adddup2(&actions, theirs[i], child_fd[i]);
    if (!error) error = set_signals(&attributes);
    if (!error) error = posix_spawn(pid, program, &actions, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

/* Takes what is there. False at the end of the pipe. */
static bool drain(int fd, bytes *into) {
  char dropped[4096]; /* without memory the child is still listened to, so that it can end */
  for (;;) {
    char *end = pegen_bytes_reserve(into, STEP);
    ssize_t got = read(fd, end ? end : dropped, end ? STEP : sizeof dropped);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
    if (!end) continue;
    into->size += (size_t)got;
    into->data[into->size] = 0;
  }
}

/* Reads all streams until they end, or the child does. */
static void listen_to(pid_t pid, int *ours, spawned *out) {
  struct pollfd poller[SPAWN_STREAMS];
  int open = SPAWN_STREAMS;
  bool ended = false;
  for (int i = 0; i < SPAWN_STREAMS; i++) poller[i] = (struct pollfd){.fd = ours[i], .events = POLLIN};
  while (open > 0 && !ended) {
    int ready = poll(poller, SPAWN_STREAMS, WATCH_MILLISECONDS);
    if (ready == 0) {
      pid_t done = waitpid(pid, &out->status, WNOHANG);
      ended = done == pid || (done < 0 && errno == ECHILD);
      if (done < 0) out->status = -1;
    }
    for (int i = 0; i < SPAWN_STREAMS; i++)
      if (poller[i].fd >= 0 && (ended || poller[i].revents) && !drain(poller[i].fd, &out->stream[i]))
        poller[i].fd = -1, open--;
  }
  while (!ended && waitpid(pid, &out->status, 0) < 0)
    if (errno != EINTR) {
      out->status = -1;
      break;
    }
}

bool pegen_spawn_run(const char *program, char *const *arguments, const char *text, spawned *out) {
  int ours[SPAWN_STREAMS], theirs[SPAWN_STREAMS], text_fd = -1;
  pid_t pid;
  *out = (spawned){.status = -1};
  if ((text && (text_fd = text_file(text)) < 0)) return false;
  int error = open_pipes(ours, theirs) ? 0 : errno;
  if (!error) {
    error = start(program, arguments, text_fd, theirs, &pid);
    close_all(theirs, SPAWN_STREAMS);
    if (!error) listen_to(pid, ours, out);
    close_all(ours, SPAWN_STREAMS);
  }
  if (text_fd >= 0) close(text_fd);
  errno = error;
  return !error;
}

void pegen_spawn_free(spawned *s) {
  for (int i = 0; i < SPAWN_STREAMS; i++) pegen_bytes_free(&s->stream[i]);
}
