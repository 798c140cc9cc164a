/* compiler.c: pegen/compiler.h: request -> cache, or the program -> a mapped kernel. */
#include "pegen/compiler.h"

#include "cache.h"
#include "request.h"
#include "spawn.h"
#include "turns.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* pegen_compiled with what it stands on. */
typedef struct result {
  pegen_compiled shown; /* first: its address is the result's */
  bytes error, object, header, explanation;
  void *library;
  int memory_file; /* the library lies there; open as long as it is mapped, since the loader knows files by name; or -1
                    */
} result;

static const char kernel_symbol[] = "pegen_kernel_of_library";

/* ---- errors -------------------------------------------------------------------------- */

static const char *label_of(const pegen_compile_request *request) {
  return request->label ? request->label : "description";
}

/* What the program said, with the text's own name in place of the file that the child saw. */
static void add_messages(result *r, const pegen_compile_request *request, const bytes *messages) {
  const char *text = messages->data ? messages->data : "", *found;
  for (; request->text && (found = strstr(text, SPAWN_TEXT)); text = found + strlen(SPAWN_TEXT)) {
    pegen_bytes_add(&r->error, text, (size_t)(found - text));
    pegen_bytes_print(&r->error, "%s", label_of(request));
  }
  pegen_bytes_print(&r->error, "%s", text);
  while (r->error.size && r->error.data[r->error.size - 1] == '\n') r->error.data[--r->error.size] = 0;
}

/* Why a run counts for nothing; false where it is sound. */
static bool is_failed(result *r, const pegen_compile_request *request, const char *program, const spawned *run) {
  int status = run->status;
  bool known = status != -1;
  if (known && WIFEXITED(status) && WEXITSTATUS(status) == 0) return false;
  /* Nobody can say how it ended: the list of sources is written last. */
  const bytes *sources = &run->stream[SPAWN_SOURCES_STREAM];
  if (!known && run->stream[SPAWN_OUTPUT].size && sources->size && !sources->data[sources->size - 1]) return false;
  add_messages(r, request, &run->stream[SPAWN_MESSAGES]);
  if (known && WIFSIGNALED(status))
    pegen_bytes_print(&r->error, "%s%s: ended by signal %d (%s)", r->error.size ? "\n" : "", program, WTERMSIG(status),
                      strsignal(WTERMSIG(status)));
  else if (!r->error.size)
    pegen_bytes_print(&r->error,
                      known ? "%s: ended with status %d and said nothing" : "%s: ended, and nothing came of it",
                      program, known ? WEXITSTATUS(status) : 0);
  return true;
}

static bool run_program(result *r, const pegen_compile_request *request, const char *program, char **arguments,
                        spawned *run) {
  if (!arguments) {
    pegen_bytes_print(&r->error, "no memory");
    return false;
  }
  if (!pegen_spawn_run(program, arguments, request->text, run)) {
    pegen_bytes_print(&r->error, "cannot run the compiler '%s': %s", program, strerror(errno));
    return false;
  }
  if (is_failed(r, request, program, run)) return false;
  for (int i = 0; i < SPAWN_STREAMS; i++)
    if (run->stream[i].failed) {
      pegen_bytes_print(&r->error, "no memory for what the compiler wrote");
      return false;
    }
  return true;
}

/* ---- mapping ------------------------------------------------------------------------- */

#ifndef MFD_EXEC
#define MFD_EXEC 0x10u
#endif

/* Kernels that know the flag may want it; those before Linux 6.3 refuse it. */
static int executable_memory(void) {
  int fd = memfd_create("pegen-kernel", MFD_CLOEXEC | MFD_EXEC);
  return fd < 0 && errno == EINVAL ? memfd_create("pegen-kernel", MFD_CLOEXEC) : fd;
}

/* From memory, also what the cache has on disk: the very bytes that were checked. */
static void map(result *r) {
  int fd = executable_memory();
  if (fd < 0 || !pegen_bytes_write(fd, r->object.data, r->object.size)) {
    pegen_bytes_print(&r->error, "cannot put the kernel into memory: %s", strerror(errno));
    if (fd >= 0) close(fd);
    return;
  }
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  r->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  r->memory_file = fd;
  const pegen_kernel *kernel = r->library ? dlsym(r->library, kernel_symbol) : NULL;
  if (!kernel) pegen_bytes_print(&r->error, "cannot map the kernel: %s", dlerror());
  else if (!pegen_kernel_supported(kernel))
    pegen_bytes_print(&r->error, "the kernel was made by a pegen of another version than this library");
  else r->shown.kernel = kernel;
}

/* ---- entries ------------------------------------------------------------------------- */

static int64_t most_cached(const pegen_compile_request *request) {
  if (request->max_cache < 0 || request->max_cache > INT64_MAX >> 20) return INT64_MAX;
  return (request->max_cache ? request->max_cache : PEGEN_CACHE_MIB) << 20;
}

static void compile(result *r, const pegen_compile_request *request, const char *program, const cache *c) {
  char path[PATH_MAX];
  bytes texts = {0};
  spawned run = {0};
  if (pegen_cache_find(c, &r->object, &r->header)) {
    r->shown.from_cache = 1;
    map(r);
    return;
  }
  pegen_bytes_free(&r->object); /* of a find that ended without memory */
  pegen_bytes_free(&r->header);
  struct timespec since;
  clock_gettime(CLOCK_REALTIME, &since);
  char **arguments = pegen_request_compile_arguments(request, &texts);
  if (run_program(r, request, program, arguments, &run)) {
    r->object = run.stream[SPAWN_OUTPUT];
    r->header = run.stream[SPAWN_HEADER_STREAM];
    run.stream[SPAWN_OUTPUT] = run.stream[SPAWN_HEADER_STREAM] = (bytes){0};
    if (pegen_cache_store(c, &run.stream[SPAWN_SOURCES_STREAM], since, &r->object, &r->header, path))
      pegen_cache_trim(c, most_cached(request), path);
    map(r);
  }
  free(arguments);
  pegen_spawn_free(&run);
  pegen_bytes_free(&texts);
}

static void explain(result *r, const pegen_compile_request *request, const char *program) {
  bytes texts = {0};
  spawned run = {0};
  char **arguments = pegen_request_explain_arguments(request, &texts);
  if (run_program(r, request, program, arguments, &run)) {
    r->explanation = run.stream[SPAWN_OUTPUT];
    run.stream[SPAWN_OUTPUT] = (bytes){0};
  }
  free(arguments);
  pegen_spawn_free(&run);
  pegen_bytes_free(&texts);
}

static pegen_compiled *answer(const pegen_compile_request *given, bool compiles) {
  result *r = calloc(1, sizeof *r);
  pegen_compile_request request;
  const char *wrong = NULL;
  char program[PATH_MAX];
  if (!r) return NULL;
  r->memory_file = -1;
  r->shown.struct_size = sizeof r->shown;
  if (!pegen_request_read(given, &request, &wrong)) pegen_bytes_print(&r->error, "%s", wrong);
  else if (pegen_request_program(&request, program), !program[0])
    pegen_bytes_print(&r->error, "no program 'pegen' beside the library; PEGEN or the request's program can name it");
  else if (!compiles) explain(r, &request, program);
  else {
    bytes key = {0};
    cache c;
    pegen_request_key(&request, program, &key);
    if (key.failed) pegen_bytes_print(&r->error, "no memory");
    else {
      uint64_t number = XXH3_64bits(key.data, key.size);
      pegen_cache_open(&c, request.cache, &key);
      pegen_turn_take(number);
      compile(r, &request, program, &c);
      pegen_turn_give(number);
    }
    pegen_bytes_free(&key);
  }
  r->shown.error = r->error.size || r->error.failed ? (r->error.data ? r->error.data : "no memory") : NULL;
  r->shown.header = r->header.data;
  r->shown.explanation = r->explanation.data;
  r->shown.object = r->object.data;
  r->shown.object_size = r->object.size;
  return &r->shown;
}

pegen_compiled *pegen_compile(const pegen_compile_request *request) { return answer(request, true); }

pegen_compiled *pegen_explain(const pegen_compile_request *request) { return answer(request, false); }

void pegen_compiled_free(pegen_compiled *compiled) {
  result *r = (result *)compiled;
  if (!r) return;
  if (r->library) dlclose(r->library);
  if (r->memory_file >= 0) close(r->memory_file);
  pegen_bytes_free(&r->error);
  pegen_bytes_free(&r->object);
  pegen_bytes_free(&r->header);
  pegen_bytes_free(&r->explanation);
  free(r);
}
