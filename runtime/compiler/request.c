/* request.c: see request.h. */
#include "request.h"

#include "spawn.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool pegen_request_read(const pegen_compile_request *given, pegen_compile_request *request, const char **error) {
  *request = (pegen_compile_request){0};
  if (!given || given->struct_size < offsetof(pegen_compile_request, max_seconds) ||
      given->struct_size > sizeof *request) {
    *error = "request->struct_size is not sizeof(pegen_compile_request) of a known version";
    return false;
  }
  memcpy(request, given, given->struct_size);
  if (!request->file == !request->text) *error = "a request names either a file or a text";
  else if (request->n_defines < 0 || (request->n_defines && !request->defines)) *error = "defines is NULL";
  else return true;
  return false;
}

/* ---- the program --------------------------------------------------------------------- */

static bool is_program(const char *path) {
  struct stat file;
  return !stat(path, &file) && S_ISREG(file.st_mode) && !access(path, X_OK);
}

void pegen_request_program(const pegen_compile_request *request, char path[PATH_MAX]) {
  const char *named = request->program ? request->program : getenv("PEGEN");
  Dl_info library;
  path[0] = 0;
  if (named && *named) {
    snprintf(path, PATH_MAX, "%s", named);
    return;
  }
  union {
    void (*function)(const pegen_compile_request *, char *);
    void *address;
  } here = {pegen_request_program};
  char own[PATH_MAX];
  /* Linked into the program, the library's name is what the program was called by. */
  if (!dladdr(here.address, &library) || !library.dli_fname ||
      (!realpath(library.dli_fname, own) && !realpath("/proc/self/exe", own)))
    return;
  *strrchr(own, '/') = 0;
  static const char *const places[] = {"pegen", "bin/pegen", "../bin/pegen", "../../bin/pegen", "../pegen"};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    int length = snprintf(path, PATH_MAX, "%s/%s", own, places[i]);
    if (length < PATH_MAX && is_program(path)) return;
  }
  path[0] = 0;
}

/* ---- the key ------------------------------------------------------------------------- */

/* --target native is another target on every machine, and a cache may lie on a disk that several share. */
static void add_processor(bytes *key) {
  bytes info = {0};
  static const char *const lines[] = {"vendor_id",       "cpu family", "model\t",     "stepping", "flags",
                                      "CPU implementer", "CPU part",   "CPU variant", "Features"};
  if (pegen_bytes_read_file(&info, "/proc/cpuinfo")) {
    char *end = strstr(info.data, "\n\n"); /* of the first one */
    if (end) *end = 0;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
      char *line = strstr(info.data, lines[i]);
      if (line) pegen_bytes_add(key, line, strcspn(line, "\n"));
    }
  }
  pegen_bytes_free(&info);
}

void pegen_request_key(const pegen_compile_request *request, const char *program, bytes *key) {
  struct stat is = {0};
  char path[PATH_MAX];
  pegen_bytes_print(key, "pegen/compiler.h 1, %s\n", request->text ? "text" : "file");
  pegen_bytes_add_text(key, realpath(program, path) ? path : program);
  if (!stat(program, &is))
    pegen_bytes_print(key, "%lld %lld.%09ld", (long long)is.st_size, (long long)is.st_mtim.tv_sec, is.st_mtim.tv_nsec);
  pegen_bytes_add_text(key, getenv("PEGEN_DSL"));
  if (request->file) pegen_bytes_add_path(key, request->file);
  pegen_bytes_add_text(key, request->text);
  pegen_bytes_add_text(key, request->targets);
  if (request->targets && strstr(request->targets, "native")) add_processor(key);
  pegen_bytes_add_text(key, request->dtypes);
  pegen_bytes_add_text(key, request->name);
  for (int i = 0; i < request->n_defines; i++) pegen_bytes_add_text(key, request->defines[i]);
  if (request->tangents) pegen_bytes_add_text(key, "--tangents");
}

/* ---- arguments ----------------------------------------------------------------------- */

typedef struct list {
  char **words;
  int count;
} list;

static void add(list *l, const char *word) { l->words[l->count++] = (char *)word; }

static void add_pair(list *l, const char *option, const char *value) {
  if (!value) return;
  add(l, option);
  add(l, value);
}

enum { MOST_FIXED = 40, NUMBER_SIZE = 40 };

/* The list with what both commands take. */
static list begin(const pegen_compile_request *request, const char *command) {
  list l = {calloc((size_t)request->n_defines * 2 + MOST_FIXED, sizeof(char *)), 0};
  if (!l.words) return l;
  add(&l, "pegen");
  if (command) add(&l, command);
  for (int i = 0; i < request->n_defines; i++) add_pair(&l, "-D", request->defines[i]);
  if (request->trust_spec) add(&l, "--trust-spec");
  return l;
}

/* Behind "--", so that no path is taken for an option. */
static char **finish(list *l, const pegen_compile_request *request) {
  add(l, "--");
  add(l, request->text ? SPAWN_TEXT : request->file);
  return l->words;
}

char **pegen_request_compile_arguments(const pegen_compile_request *request, bytes *texts) {
  list l = begin(request, NULL);
  char *numbers = pegen_bytes_reserve(texts, 2 * NUMBER_SIZE);
  if (!l.words || !numbers) {
    free(l.words);
    return NULL;
  }
  const char *const fixed[] = {"-o", "-", "--emit", "shared", "--header", SPAWN_HEADER, "--sources", SPAWN_SOURCES};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) add(&l, fixed[i]);
  add_pair(&l, "--target", request->targets);
  add_pair(&l, "--dtype", request->dtypes);
  add_pair(&l, "--name", request->name);
  if (request->tangents) add(&l, "--tangents");
  if (request->max_seconds > 0) {
    snprintf(numbers, NUMBER_SIZE, "%.17g", request->max_seconds);
    add_pair(&l, "--max-seconds", numbers);
  }
  if (request->max_memory > 0) {
    snprintf(numbers + NUMBER_SIZE, NUMBER_SIZE, "%lld", (long long)request->max_memory);
    add_pair(&l, "--max-memory", numbers + NUMBER_SIZE);
  }
  return finish(&l, request);
}

char **pegen_request_explain_arguments(const pegen_compile_request *request, bytes *texts) {
  (void)texts;
  list l = begin(request, "explain");
  if (!l.words) return NULL;
  add_pair(&l, "--format", "json");
  return finish(&l, request);
}
