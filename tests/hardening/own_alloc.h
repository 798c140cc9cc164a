/* own_alloc: allocations of pegen's own code, counted, of which one can be made to fail.
 *
 * The archives of the build are linked once more with malloc and its like renamed to these (CMakeLists.txt), so that
 * LLVM's and libc's own allocations are not meant: they end a program that runs out of memory in ways of their own.
 */
#ifndef PEGEN_TESTS_OWN_ALLOC_H
#define PEGEN_TESTS_OWN_ALLOC_H

#include <stdbool.h>
#include <stdio.h>

typedef struct own_allocations {
  long count;      /* so far */
  long failing;    /* number of the one that fails, from 1; 0: none */
  bool rest;       /* all that follow fail, too */
  bool lua;        /* those that realloc serves (Lua's) count */
  long live;       /* blocks that were not freed: of a pure Lua state only, since free is libc's */
  void (*at_each)(void); /* called as each begins: oom_loader.c forks there; or NULL */
} own_allocations;

/* Where they are counted; memory that processes share, where one of them forks another. */
extern own_allocations *own_state;
#define own (*own_state)

void *own_malloc(size_t size);
void *own_calloc(size_t n, size_t size);
void *own_realloc(void *old, size_t size);
void own_free(void *block);
FILE *own_fopen(const char *path, const char *mode);
FILE *own_open_memstream(char **text, size_t *size);

#endif
