/* own_alloc: see own_alloc.h. */
#include "own_alloc.h"

#include <errno.h>
#include <stdlib.h>

static own_allocations of_this_process;
own_allocations *own_state = &of_this_process;

static bool fails(void) {
  own.count++;
  if (own.at_each) own.at_each();
  bool now = own.failing && (own.count == own.failing || (own.rest && own.count > own.failing));
  if (now) errno = ENOMEM;
  return now;
}

static void *counted(void *block) {
  if (block) own.live++;
  return block;
}

void *own_malloc(size_t size) { return fails() ? NULL : counted(malloc(size)); }
void *own_calloc(size_t n, size_t size) { return fails() ? NULL : counted(calloc(n, size)); }
void *own_realloc(void *old, size_t size) {
  if (own.lua && fails()) return NULL;
  void *block = realloc(old, size);
  return old ? block : counted(block);
}
void own_free(void *block) {
  if (block) own.live--;
  free(block);
}
FILE *own_fopen(const char *path, const char *mode) { return fails() ? NULL : fopen(path, mode); }
FILE *own_open_memstream(char **text, size_t *size) { return fails() ? NULL : open_memstream(text, size); }
