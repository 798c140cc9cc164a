/* oom_loader SPEC...: the loader when memory runs out.
 *
 * At every allocation that loading a description makes, a process forks off in which this one fails, and another in
 * which all that follow fail, too. Each must end with the description (Lua may have collected and asked again), or with
 * a message that says what was lacking; never by a signal, and, where the loader returned, with every block freed.
 */
#include "base/arena.h"
#include "loader.h"
#include "own_alloc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOADED = 0, REFUSED = 1, OUT_OF_MEMORY = 3, LEAKED = 4 };

static int log_file, failures;
static const char *path;

_Noreturn static void load(void) {
  arena *a = arena_create();
  const spec *s = loader_load(a, path, DSL_DIR, 0, NULL);
  arena_destroy(a);
  if (own.at_each) { /* nothing failed here */
    printf("%s: %ld allocations\n", path, own.count);
    exit(!s || own.live || own.count < 1 || failures);
  }
  _exit(own.live ? LEAKED : s ? LOADED : REFUSED);
}

static bool says_why(const char *message) {
  return strstr(message, "out of memory") || strstr(message, "Cannot allocate memory");
}

/* What is wrong with the way the child ended, or NULL. */
static const char *judge(int status, const char *message) {
  if (WIFSIGNALED(status)) return "ended by a signal";
  switch (WEXITSTATUS(status)) {
  case LOADED: return *message ? "loaded, and said something" : NULL;
  case LEAKED: return "blocks were not freed";
  case REFUSED:
  case OUT_OF_MEMORY: return says_why(message) ? NULL : "does not say that memory is lacking";
  default: return "exit code";
  }
}

enum { FILES = 16 };

/* Processes share the places in files that are open: a child that reads on must not move the parent's. */
static void keep_places(off_t places[FILES], bool restore) {
  for (int file = 3; file < FILES; file++)
    if (!restore) places[file] = lseek(file, 0, SEEK_CUR);
    else if (places[file] >= 0) lseek(file, places[file], SEEK_SET);
}

/* Whether this process is the one in which the allocation fails. */
static bool fork_one(bool rest) {
  off_t places[FILES];
  if (ftruncate(log_file, 0) || lseek(log_file, 0, SEEK_SET)) abort();
  keep_places(places, false);
  pid_t pid = fork();
  if (pid < 0) abort();
  if (!pid) {
    own.at_each = NULL, own.failing = own.count, own.rest = rest;
    dup2(log_file, STDERR_FILENO);
    return true;
  }
  int status;
  char message[4096];
  if (waitpid(pid, &status, 0) != pid) abort();
  keep_places(places, true);
  ssize_t length = pread(log_file, message, sizeof message - 1, 0);
  message[length > 0 ? length : 0] = 0;
  const char *wrong = judge(status, message);
  if (wrong && failures++ < 10)
    fprintf(stderr, "%s: allocation %ld%s fails: %s\n%s\n", path, own.count, rest ? " and the rest" : "", wrong,
            message);
  return false;
}

static void fork_both(void) {
  if (!fork_one(false)) fork_one(true);
}

int main(int count, char **arguments) {
  log_file = memfd_create("log", 0);
  for (int i = 1; i < count; i++) {
    pid_t pid = fork();
    if (pid < 0) abort();
    if (!pid) {
      path = arguments[i];
      own = (own_allocations){.lua = true, .at_each = fork_both};
      load();
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || status) return 1;
  }
  return count < 2;
}
