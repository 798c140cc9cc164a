/* wire_test: spec/wire with every description of some folders.
 *
 *   wire_test DSL_DIR FOLDER...
 *
 * What is written reads back as the same: written again it is the same bytes, and the expressions print alike. Then
 * bytes are changed, thousands of times: the reader refuses them with a reason, or reads a description that is written
 * as those very bytes; what it reads, spec_validate judges without harm. Random numbers have a fixed seed.
 */
#include "loader.h"
#include "spec/wire.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MUTANTS = 1500 }; /* of each description */

static uint64_t state = 20;

static uint64_t draw(uint64_t below) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return below ? state % below : 0;
}

static const char *current = "";

static void expect(bool holds, const char *what) {
  if (holds) return;
  printf("%s: does not hold: %s\n", current, what);
  exit(1);
}

static char *printed(const expr_pool *pool) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  int count = expr_pool_count(pool);
  const expr **nodes = calloc((size_t)count + 1, sizeof(expr *));
  const char **names = calloc((size_t)count + 1, sizeof(char *));
  expr_pool_nodes(pool, nodes);
  for (int i = 0; i < count; i++) names[i] = "root";
  expr_print_roots(out, nodes, names, count);
  for (int i = 0; i < count; i++)
    fprintf(out, "%u %d %016llx\n", nodes[i]->depends, nodes[i]->is_f32, (unsigned long long)nodes[i]->hash);
  fclose(out);
  free(nodes);
  free(names);
  return text;
}

static spec *read_back(arena *a, const unsigned char *bytes, size_t size, const char **why) {
  unsigned char *exact = malloc(size ? size : 1); /* a read past the end is a sanitizer's or valgrind's */
  memcpy(exact, bytes, size);
  spec *s = wire_read(a, exact, size, why);
  expect((s == NULL) == (*why != NULL), "a refusal has a reason");
  /* What was read does not point into the message. */
  memset(exact, 0xa5, size);
  free(exact);
  if (s) s->file = current;
  return s;
}

static void round_trip(arena *a, const spec *s, const unsigned char *bytes, size_t size) {
  const char *why;
  spec *again = read_back(a, bytes, size, &why);
  if (!again) printf("%s: %s\n", current, why);
  expect(again != NULL, "what is written is read");
  expect(spec_validate(again), "what is read is valid");
  size_t length;
  unsigned char *written = wire_write(a, again, &length);
  expect(length == size && !memcmp(written, bytes, size), "written again it is the same");
  char *x = printed(s->pool), *y = printed(again->pool);
  expect(!strcmp(x, y), "expressions are the same, node by node");
  free(x);
  free(y);
}

/* One to three edits. */
static size_t mutate(unsigned char *bytes, size_t size, size_t room) {
  static const int64_t odd[] = {
      -1, 0, 1, 2, 3, 255, 4097, 65537, 1 << 20, INT32_MAX, INT64_MAX, INT64_MIN, 0x7ff0000000000000};
  for (uint64_t edits = 1 + draw(3); edits > 0 && size > 16; edits--) {
    size_t at = draw(size), length = 1 + draw(16);
    switch (draw(7)) {
    case 0: bytes[at] ^= (unsigned char)(1u << draw(8)); break;
    case 1: bytes[at] = (unsigned char)draw(256); break;
    case 2: return at;
    case 3: /* a number of the message, mostly */
      if (at / 8 * 8 + 8 <= size) memcpy(bytes + at / 8 * 8, &odd[draw(sizeof odd / sizeof *odd)], 8);
      break;
    case 4:
      if (at + 8 <= size) memcpy(bytes + at, &odd[draw(sizeof odd / sizeof *odd)], 8);
      break;
    case 5: /* some bytes twice */
      if (size + length > room || at + length > size) break;
      memmove(bytes + at + length, bytes + at, size - at);
      size += length;
      break;
    default: /* some bytes less */
      if (at + length > size) break;
      memmove(bytes + at, bytes + at + length, size - at - length);
      size -= length;
    }
  }
  return size;
}

static int mutants(const unsigned char *bytes, size_t size) {
  int accepted = 0;
  size_t room = size + 64;
  unsigned char *changed = malloc(room);
  for (int i = 0; i < MUTANTS; i++) {
    arena *a = arena_create();
    const char *why;
    memcpy(changed, bytes, size);
    size_t length = mutate(changed, size, room);
    spec *s = read_back(a, changed, length, &why);
    if (s) {
      size_t again;
      unsigned char *written = wire_write(a, s, &again);
      expect(again == length && !memcmp(written, changed, length), "what is accepted is written as it was");
      accepted += spec_validate(s);
    }
    arena_destroy(a);
  }
  free(changed);
  return accepted;
}

static bool quietly_mutate(const unsigned char *bytes, size_t size, int *accepted) {
  fflush(stderr);
  int before = dup(STDERR_FILENO);
  if (before < 0 || !freopen("/dev/null", "w", stderr)) return false; /* spec_validate says what it minds */
  *accepted = mutants(bytes, size);
  fflush(stderr);
  dup2(before, STDERR_FILENO);
  close(before);
  return true;
}

static int run(const char *dsl, const char *folder) {
  DIR *dir = opendir(folder);
  int count = 0;
  for (struct dirent *entry; dir && (entry = readdir(dir));) {
    const char *end = strrchr(entry->d_name, '.');
    if (!end || strcmp(end, ".lua")) continue;
    arena *a = arena_create();
    current = arena_printf(a, "%s/%s", folder, entry->d_name);
    loader_define define = {"head_dim", "32"}; /* what tests/spec/good/options.lua asks for */
    const spec *s = loader_load(a, current, dsl, strstr(entry->d_name, "options") != NULL, &define);
    if (s) {
      size_t size;
      unsigned char *bytes = wire_write(a, s, &size);
      int accepted = 0;
      round_trip(a, s, bytes, size);
      expect(quietly_mutate(bytes, size, &accepted), "no message");
      printf("%s: %zu bytes, %d of %d mutants are descriptions\n", entry->d_name, size, accepted, MUTANTS);
      count++;
    }
    arena_destroy(a);
  }
  if (dir) closedir(dir);
  return count;
}

int main(int count, char **arguments) {
  int ran = 0;
  for (int i = 2; i < count; i++) ran += run(arguments[1], arguments[i]);
  printf("%d descriptions\n", ran);
  return ran < 20;
}
