/* spec_test: loads every spec of a folder and compares what is said with what it asks for.
 *
 *   spec_test DSL_DIR FOLDER bad|good [isolated]
 *
 * The first lines of a spec say what is expected, as comments:
 *   -- error: TEXT     the message contains TEXT (bad)
 *   -- define: N=V     loaded with -D N=V
 *   -- no line         the message names the file alone, as for -D
 * The line of the message is the one that ends in "-- HERE", where there is one. Every message must begin
 * "FILE:LINE: error: ", and nothing else may be printed. isolated: in a process of its own, with the same to say.
 */
#include "loader.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char *read_file(arena *a, const char *path) {
  FILE *in = fopen(path, "rb");
  if (!in) {
    perror(path);
    exit(1);
  }
  char *text = arena_alloc(a, 1 << 20);
  text[fread(text, 1, (1 << 20) - 1, in)] = 0;
  fclose(in);
  return text;
}

/* The rest of the line after a mark, or NULL. */
static char *after(arena *a, const char *text, const char *mark) {
  const char *found = strstr(text, mark);
  if (!found) return NULL;
  found += strlen(mark);
  return arena_printf(a, "%.*s", (int)strcspn(found, "\n"), found);
}

/* The line that ends in "-- HERE", 0 where none does. */
static int marked_line(const char *text) {
  const char *mark = strstr(text, "-- HERE");
  int line = 1;
  for (const char *c = text; mark && c < mark; c++) line += *c == '\n';
  return mark ? line : 0;
}

static bool isolated;

/* Loads with standard error going to a file; the spec, and what was printed. */
static const spec *load_captured(arena *a, const char *dsl_dir, const char *path, const char *text, char **printed) {
  char capture[] = "/tmp/spec_test_XXXXXX";
  loader_define define = {NULL, NULL};
  char *definition = after(a, text, "-- define: ");
  if (definition) {
    char *equals = strchr(definition, '=');
    *equals = 0;
    define = (loader_define){definition, equals + 1};
  }
  int file = mkstemp(capture), before = dup(STDERR_FILENO);
  if (file < 0 || before < 0) {
    perror("spec_test");
    exit(1);
  }
  fflush(stderr);
  dup2(file, STDERR_FILENO);
  const spec *s = isolated ? loader_load_isolated(a, path, dsl_dir, definition ? 1 : 0, &define, NULL)
                           : loader_load(a, path, dsl_dir, definition ? 1 : 0, &define);
  fflush(stderr);
  dup2(before, STDERR_FILENO);
  close(before);
  close(file);
  *printed = read_file(a, capture);
  unlink(capture);
  return s;
}

static const char *judge_bad(arena *a, const char *path, const char *text, const spec *s, const char *printed) {
  const char *expected = after(a, text, "-- error: ");
  if (s) return "was accepted";
  if (!expected) return "does not say which error it expects";
  if (!strstr(printed, expected)) return "gave another message";
  const char *newline = strchr(printed, '\n');
  if (!newline || newline[1]) return "printed more than one line";
  size_t length = strlen(path);
  if (strncmp(printed, path, length) != 0 || printed[length] != ':') return "does not begin with its file";
  if (strstr(text, "-- no line")) return strncmp(printed + length, ": error: ", 9) == 0 ? NULL : "names a line";
  int line = 0, used = 0;
  if (sscanf(printed + length, ":%d: error: %n", &line, &used) != 1 || used == 0) return "does not name its line";
  int marked = marked_line(text);
  return marked && marked != line ? "names another line" : NULL;
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int list_specs(arena *a, const char *folder, char **names, int room) {
  DIR *dir = opendir(folder);
  int count = 0;
  for (struct dirent *entry; dir && (entry = readdir(dir)) && count < room;) {
    const char *end = strrchr(entry->d_name, '.');
    if (end && strcmp(end, ".lua") == 0) names[count++] = arena_strdup(a, entry->d_name);
  }
  if (dir) closedir(dir);
  qsort(names, (size_t)count, sizeof *names, compare_names);
  return count;
}

int main(int count, char **arguments) {
  if (count != 4 && count != 5) return 2;
  isolated = count == 5;
  enum { ROOM = 1000 };
  arena *a = arena_create();
  char **names = arena_array(a, char *, ROOM);
  int n = list_specs(a, arguments[2], names, ROOM), failures = 0, ran = 0;
  bool bad = strcmp(arguments[3], "bad") == 0;
  for (int i = 0; i < n; i++) {
    arena *b = arena_create();
    const char *path = arena_printf(b, "%s/%s", arguments[2], names[i]);
    const char *text = read_file(b, path);
    char *printed = "";
    clock_t begun = clock();
    if (!strstr(text, "-- a module, no spec")) {
      const spec *s = load_captured(b, arguments[1], path, text, &printed);
      const char *wrong = bad ? judge_bad(b, path, text, s, printed) : s ? NULL : "was refused";
      double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
      if (!wrong && seconds > 20) wrong = "took too long";
      if (wrong) printf("%s %s:\n  %s", path, wrong, *printed ? printed : "(nothing printed)\n");
      if (seconds > 1) printf("%s: %.1f s\n", path, seconds);
      failures += wrong != NULL;
      ran++;
    }
    arena_destroy(b);
  }
  printf("%d specs, %d failures\n", ran, failures);
  arena_destroy(a);
  return failures > 0 || ran == 0;
}
