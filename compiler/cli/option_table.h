/* cli/option_table: the one table of commands and options, as its readers see it.
 *
 * cli/option_table.c holds the rows, cli/options.c parses by them, and cli/option_print.c writes the help, the manual
 * page and the completion scripts from them. Nothing else names an option.
 */
#pragma once

#include "cli/options.h"

#include <stdio.h>

enum {
  FOR_COMPILE = 1 << COMMAND_COMPILE,
  FOR_CHECK = 1 << COMMAND_CHECK,
  FOR_EXPLAIN = 1 << COMMAND_EXPLAIN,
  FOR_BENCH = 1 << COMMAND_BENCH,
  FOR_SPECS = 1 << COMMAND_SPECS,
  FOR_HELP = 1 << COMMAND_HELP
};
#define FOR_KERNELS (FOR_COMPILE | FOR_CHECK | FOR_BENCH)
#define FOR_DESCRIPTIONS (FOR_KERNELS | FOR_EXPLAIN)
#define FOR_ALL (FOR_DESCRIPTIONS | FOR_SPECS | FOR_HELP)

/* What completion offers for a value. */
typedef enum option_values {
  VALUES_FREE,  /* nothing */
  VALUES_FILE,  /* files */
  VALUES_WORDS, /* one of the words */
  VALUES_LIST   /* words, separated by commas */
} option_values;

struct parser;
typedef struct option_row {
  const char *name;     /* long name; NULL: only the letter */
  char letter;          /* short name; 0: only the long one */
  const char *argument; /* NULL: takes none */
  bool joined;          /* shown without a space between letter and argument (-O3) */
  unsigned commands;    /* FOR_ bits */
  int (*set)(struct parser *p, const char *value); /* NULL: `flag` becomes true */
  size_t flag;          /* offset in options of a bool */
  const char *help;
  option_values values;
  const char *(*word)(int i); /* the i-th word of the values, NULL beyond the last */
} option_row;

typedef struct command_row {
  const char *name, *synopsis, *help; /* name NULL: compiling needs no word */
  bool takes_no_file;
} command_row;

typedef struct option_table {
  const command_row *commands; /* [COMMAND_COUNT]                                ORDER COMMAND */
  const option_row *rows;
  int n_rows;
} option_table;

/* ---- printers (cli/option_print.c) ---- */

void option_print_help(FILE *out, const option_table *t); /* of all commands */
void option_print_command_help(FILE *out, const option_table *t, command of);
void option_print_man(FILE *out, const option_table *t); /* roff with the man macros */
void option_print_bash(FILE *out, const option_table *t);
void option_print_zsh(FILE *out, const option_table *t);

/* "-o, --output FILE" */
void option_spell(const option_row *row, char *text, size_t size);
