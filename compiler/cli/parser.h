/* cli/parser: a command line while it is read: what options set, and what is decided once all of it is known. */
#pragma once

#include "cli/option_table.h"

struct parser {
  arena *a;
  options *out;
  const option_table *table;
  bool emit_given, depend;
  int exit_early; /* -1: go on; otherwise the exit code after help, version, a list */
};
typedef struct parser parser;

extern const option_table all_options;

/* STATUS_USAGE, after a message that names --help. */
int usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* With its dot: what a file of this form is called. */
const char *ending_of_kind(emit_kind kind);
