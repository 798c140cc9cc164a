/* sass/resources: what an entry takes of a multiprocessor; see sass/code.h. */
#include "sass/code.h"

#include <stdlib.h>
#include <string.h>

/* The number in front of a word, between two places of a text; 0: there is none. */
static int number_before(const char *from, const char *end, const char *word) {
  const char *at = strstr(from, word);
  if (!at || at >= end) return 0;
  while (at > from && at[-1] == ' ') at--;
  while (at > from && at[-1] >= '0' && at[-1] <= '9') at--;
  return (int)strtol(at, NULL, 10);
}

/* From what ptxas says of an entry to what it says of the next one. */
static bool read_log(arena *a, const char *log, const char *entry, sass_resources *out) {
  const char *begin = strstr(log, arena_printf(a, "entry function '%s'", entry));
  if (!begin) return false;
  const char *end = strstr(begin + 1, "Compiling entry function");
  if (!end) end = begin + strlen(begin);
  const char *used = strstr(begin, "Used ");
  out->spill_stores = number_before(begin, end, "bytes spill stores");
  out->spill_loads = number_before(begin, end, "bytes spill loads");
  out->registers = number_before(begin, end, "registers");
  out->shared = used && used < end ? number_before(used, end, "bytes smem") : 0;
  return out->registers > 0;
}

/* The PTX's head has lines "//   ENTRY   BYTES" behind one that says what they are. */
static int dynamic_bytes(arena *a, const char *ptx, const char *entry) {
  const char *at = strstr(ptx, "// Entries launched with dynamic shared memory"), *head = strstr(ptx, "\n.version");
  at = at ? strstr(at, arena_printf(a, "//   %s ", entry)) : NULL;
  return at && head && at < head ? (int)strtol(at + strlen("//   ") + strlen(entry), NULL, 10) : 0;
}

bool sass_read_resources(arena *a, const char *ptx, const char *log, const char *entry, sass_resources *out) {
  *out = (sass_resources){.threads = 0};
  const char *begin = strstr(ptx, arena_printf(a, ".entry %s(", entry)),
             *threads = begin ? strstr(begin, ".maxntid ") : NULL;
  if (!threads || !read_log(a, log, entry, out)) return false;
  out->threads = (int)strtol(threads + strlen(".maxntid "), NULL, 10);
  out->shared += dynamic_bytes(a, ptx, entry);
  return out->threads > 0;
}
