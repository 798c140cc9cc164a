/* cli/options: from the command line to plain data.
 *
 * In: argv. Out: struct options, or a message and the exit code of a wrong
 * call (2). One table holds every option: getopt_long's table, the help text,
 * the nearest-name suggestions and what each command accepts are all read from it.
 */
#pragma once

#include "base/arena.h"
#include "base/status.h"
#include "bench/request.h"
#include "compile.h"
#include "dsl/loader.h"
#include "explain/explain.h"

#include <stdbool.h>
#include <stdint.h>

/* What the program is asked to do.                              ORDER COMMAND */
typedef enum command {
  COMMAND_COMPILE,
  COMMAND_CHECK,
  COMMAND_EXPLAIN,
  COMMAND_BENCH,
  COMMAND_SPECS,
  COMMAND_HELP,
  COMMAND_COUNT
} command;

typedef struct options {
  command command;
  const char *spec; /* the spec file, or the name of a stock one; of COMMAND_SPECS what is looked for, or NULL */
  const char *name; /* prefix of the kernel's symbols; NULL: the description's */
  const char *output, *header, *depfile, *sources; /* NULL: not asked for; "-" is the standard output */
  compile_options compile;
  bool json;    /* bench, check, specs */
  bool verbose; /* check */
  bool trust_spec; /* the description runs in this process */
  int n_defines;
  loader_define *defines;
  bench_options bench;
  explain_request explain;
  bool sass; /* explain what machine code takes, not the description */
  double max_seconds;    /* of processor time for one compilation; 0: any */
  long max_memory;       /* MiB of the process while it compiles; 0: any */
} options;

/* Reads the command line. dsl: the folder of the vocabulary, beside which stock descriptions are found. False where the
 * program is done: *status is the exit code, and help, version or target list (0) or the message of a wrong call (2)
 * has been printed. */
bool options_parse(arena *a, const char *dsl, int argc, char **argv, options *out, int *status);
