/* cli/pegen: the command line. Parses the options, loads the description, and hands it
 * to the stage that was asked for; output is written last and all at once. */
#include "base/arena.h"
#include "base/diag.h"
#include "base/limit.h"
#include "bench/bench.h"
#include "cli/depfile.h"
#include "cli/options.h"
#include "cli/specs.h"
#include "compile.h"
#include "dsl/loader.h"
#include "object/header.h"
#include "object/output.h"
#include "sass/explain.h"
#include "verify/check.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder of pegen.lua: PEGEN_DSL; beside the installed program; the source tree it was built from. */
static const char *find_dsl(arena *a) {
  const char *given = getenv("PEGEN_DSL");
  if (given) return given;
  char program[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length > 0) {
    program[length] = 0;
    char *slash = strrchr(program, '/');
    if (slash) *slash = 0;
    const char *installed = arena_printf(a, "%s/%s", program, PEGEN_INSTALLED_DSL);
    if (!access(arena_printf(a, "%s/pegen.lua", installed), R_OK)) return installed;
  }
  return PEGEN_SOURCE_DSL;
}

static spec *load(arena *a, const char *dsl, const options *o) {
  if (access(arena_printf(a, "%s/pegen.lua", dsl), R_OK)) {
    diag_error(NULL, 0, "cannot read the vocabulary '%s/pegen.lua'; PEGEN_DSL can name its folder", dsl);
    return NULL;
  }
  /* A name with no file of its own is a stock description's. */
  const char *stock = access(o->spec, F_OK) ? specs_find(a, dsl, o->spec) : NULL;
  const char *file = stock ? stock : o->spec;
  spec *s = o->trust_spec ? loader_load(a, file, dsl, o->n_defines, o->defines)
                          : loader_load_isolated(a, file, dsl, o->n_defines, o->defines, NULL);
  if (s && o->name) s->description = s->name, s->name = o->name;
  return s && spec_validate(s) ? s : NULL;
}

/* No output is a file that the description was read from. */
static bool spares_sources(const options *o, const spec *s) {
  const char *paths[] = {o->output, o->header, o->depfile, o->sources};
  for (int i = 0; i < 4; i++)
    for (int k = 0; paths[i] && k < s->n_sources; k++)
      if (output_is_same(paths[i], s->source[k])) {
        diag_error(NULL, 0, "'%s' is part of the description: it would be replaced", paths[i]);
        return false;
      }
  return true;
}

/* The names of all sources, a NUL after each. */
static output_file list_of_sources(arena *a, const char *path, const spec *s) {
  size_t size = 0;
  for (int i = 0; i < s->n_sources; i++) size += strlen(s->source[i]) + 1;
  char *list = arena_array(a, char, size + 1), *end = list;
  for (int i = 0; i < s->n_sources; i++) end = stpcpy(end, s->source[i]) + 1;
  return (output_file){path, list, size};
}

static int run_compile(arena *a, const spec *s, const options *o) {
  compile_output object;
  const char *depfile = NULL;
  if ((o->depfile && !(depfile = depfile_text(a, o, s))) || !spares_sources(o, s) ||
      !compile(a, s, &o->compile, &object))
    return STATUS_ERROR;
  output_file files[4] = {{o->output, object.data, object.size}};
  int count = 1;
  if (o->header) {
    const char *header = header_text(a, s, object.gpu, o->compile.dtypes, compile_entries(&o->compile));
    files[count++] = (output_file){o->header, header, strlen(header)};
  }
  if (depfile) files[count++] = (output_file){o->depfile, depfile, strlen(depfile)};
  if (o->sources) files[count++] = list_of_sources(a, o->sources, s);
  bool written = output_write(files, count);
  free(object.data);
  return written ? STATUS_OK : STATUS_ERROR;
}

static int run_check(arena *a, const spec *s, const options *o) {
  check_options check = {.targets = o->compile.targets,
                         .dtypes = o->compile.dtypes,
                         .optimize = o->compile.optimize,
                         .gradients = !o->compile.no_gradients,
                         .print = o->json      ? CHECK_JSON
                                  : o->verbose ? CHECK_EVERYTHING
                                               : CHECK_FAILURES};
  return check_spec(a, s, &check);
}

static int run_bench(arena *a, const spec *s, const options *o) { return bench_spec(a, s, &o->compile, &o->bench); }

static int run_explain(arena *a, const spec *s, const options *o) {
  if (o->sass) return sass_explain(a, s, &o->compile, o->explain.format == EXPLAIN_JSON);
  return explain_spec(a, s, &o->explain);
}

/* Commands on a description. */
static int (*const commands[COMMAND_COUNT])(arena *, const spec *, const options *) = {
    [COMMAND_COMPILE] = run_compile,
    [COMMAND_CHECK] = run_check,
    [COMMAND_EXPLAIN] = run_explain,
    [COMMAND_BENCH] = run_bench,
};

/* The command line from the standard input, a NUL after each word, up to its end: a process that was started ahead of
 * its question saves the time that linking it takes. NULL: the error has been told. */
static char **read_words(arena *a, char *program, int *count) {
  enum { MOST = 1 << 21 };
  char *text = arena_array(a, char, MOST), **words;
  size_t size = fread(text, 1, MOST, stdin);
  if (!size || size == MOST || text[size - 1]) {
    diag_error(NULL, 0, "@-: expected words on the standard input, a NUL after each, of at most %d bytes", MOST - 1);
    return NULL;
  }
  *count = 1;
  for (size_t i = 0; i < size; i++) *count += !text[i];
  words = arena_array(a, char *, *count + 1);
  words[0] = program;
  for (int i = 1; i < *count; i++, text += strlen(text) + 1) words[i] = text;
  return words;
}

int main(int argc, char **argv) {
  arena *a = arena_create();
  options o;
  int status = STATUS_USAGE;
  const char *dsl = find_dsl(a);
  if (argc == 2 && !strcmp(argv[1], "@-")) argv = read_words(a, argv[0], &argc);
  if (argv && options_parse(a, dsl, argc, argv, &o, &status)) {
    limit_of_process(o.max_seconds, o.max_memory);
    if (o.command == COMMAND_SPECS) {
      status = specs_list(a, dsl, o.spec, o.json);
    } else {
      const spec *s = load(a, dsl, &o);
      status = s ? commands[o.command](a, s, &o) : STATUS_ERROR;
    }
  }
  if (fflush(stdout) || ferror(stdout)) {
    diag_error(NULL, 0, "cannot write to the standard output");
    if (!status) status = STATUS_ERROR;
  }
  arena_destroy(a);
  return status;
}
