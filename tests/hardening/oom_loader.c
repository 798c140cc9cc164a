/* oom_loader SPEC...: the loader when memory runs out.
 *
 * For every allocation n that loading a description makes: it alone fails, then it and all that follow. In a process of
 * its own each time, which must end with the description (Lua may have collected and asked again), or with a message
 * that says what was lacking; never by a signal, and, where the loader returned, with every block freed.
 */
#include "base/arena.h"
#include "loader.h"
#include "own_alloc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOADED = 0, REFUSED = 1, OUT_OF_MEMORY = 3, LEAKED = 4 };

typedef struct shared {
  long count; /* allocations that the child made */
  char message[4096];
} shared;

static shared *common;

static void child(const char *path, int log) {
  dup2(log, STDERR_FILENO);
  own.count = 0;
  arena *a = arena_create();
  const spec *s = loader_load(a, path, DSL_DIR, 0, NULL);
  arena_destroy(a);
  common->count = own.count;
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

static const char *run(const char *path, long n, bool rest, int log) {
  if (ftruncate(log, 0) || lseek(log, 0, SEEK_SET)) abort();
  own = (own_allocations){.failing = n, .rest = rest, .lua = true};
  common->count = -1;
  pid_t pid = fork();
  if (pid < 0) abort();
  if (!pid) child(path, log);
  int status;
  if (waitpid(pid, &status, 0) != pid) abort();
  ssize_t length = pread(log, common->message, sizeof common->message - 1, 0);
  common->message[length > 0 ? length : 0] = 0;
  return judge(status, common->message);
}

int main(int count, char **arguments) {
  common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int log = memfd_create("log", 0), failures = 0;
  for (int i = 1; i < count; i++) {
    const char *wrong = run(arguments[i], 0, false, log);
    long total = common->count;
    if (wrong || total < 1) return 2;
    for (int rest = 0; rest < 2; rest++)
      for (long n = 1; n <= total && failures < 10; n++) {
        wrong = run(arguments[i], n, rest, log);
        if (!wrong) continue;
        printf("%s: allocation %ld%s fails: %s\n%s\n", arguments[i], n, rest ? " and the rest" : "", wrong,
               common->message);
        failures++;
      }
    printf("%s: %ld allocations\n", arguments[i], total);
  }
  return failures > 0 || count < 2;
}
