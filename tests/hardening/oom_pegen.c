/* oom_pegen: pegen's main, with PEGEN_FAIL_ALLOC=N and PEGEN_FAIL_REST in the environment (see own_alloc.h). Lua's
 * allocations do not count: oom_loader is there for them. Ends with the word "reached" on the standard output where
 * the program came to allocation N. */
#include "own_alloc.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void report(void) {
  if (own.count >= own.failing && write(STDOUT_FILENO, "reached\n", 8) != 8) _exit(9);
}

int pegen_main(int argc, char **argv);

int main(int argc, char **argv) {
  /* The process that runs the description counts on. */
  own_state = mmap(NULL, sizeof *own_state, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (own_state == MAP_FAILED) return 9;
  const char *n = getenv("PEGEN_FAIL_ALLOC");
  own.failing = n ? atol(n) : 0;
  own.rest = getenv("PEGEN_FAIL_REST") != NULL;
  atexit(report);
  return pegen_main(argc, argv);
}
