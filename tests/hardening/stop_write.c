/* stop_write: a library to preload that kills the program (SIGKILL) at one moment of its output.
 *
 * PEGEN_STOP=write:N   in the N-th write to a file, after half of its bytes
 *            rename:N  before the N-th rename
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool now(const char *what, int *count) {
  const char *stop = getenv("PEGEN_STOP");
  size_t length = strlen(what);
  return stop && !strncmp(stop, what, length) && stop[length] == ':' && ++*count == atoi(stop + length + 1);
}

ssize_t write(int fd, const void *data, size_t size) {
  static int count;
  ssize_t (*next)(int, const void *, size_t) = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
  if (fd > STDERR_FILENO && now("write", &count)) {
    if (next(fd, data, size / 2) < 0) _exit(9);
    raise(SIGKILL);
  }
  return next(fd, data, size);
}

int rename(const char *from, const char *to) {
  static int count;
  int (*next)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
  if (now("rename", &count)) raise(SIGKILL);
  return next(from, to);
}
