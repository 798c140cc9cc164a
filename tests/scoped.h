/* scoped.h: arenas and kernels that are given back where their block ends, the last first. */
#ifndef PEGEN_TESTS_SCOPED_H
#define PEGEN_TESTS_SCOPED_H

#include "base/arena.h"
#include "verify/run.h"

#include <stdio.h>
#include <stdlib.h>

/* owner: a pointer to an arena, or a struct that begins with one. */
static inline void leave_arena(void *owner) { arena_destroy(*(arena **)owner); }
static inline void leave_kernel(loaded_kernel **loaded) { run_unload(*loaded); }

/* What a test cannot do without: where the compiler could not make it, which says why, the program ends. */
static inline loaded_kernel *held(loaded_kernel *loaded) {
  if (!loaded) fprintf(stderr, "no kernel\n"), exit(2);
  return loaded;
}

#define SCOPED __attribute__((cleanup(leave_arena)))
#define SCOPED_KERNEL __attribute__((cleanup(leave_kernel))) loaded_kernel

#endif
