/* cli/option_print: the help, the manual page and the completion scripts, from the option table. */
#include "cli/option_table.h"

#include <ctype.h>
#include <string.h>

static const char PURPOSE[] = "compiles a description of a position encoding to a specialised kernel";

/* What stands after the options, in the help and in the manual page. */
static const struct {
  const char *head, *text;
} notes[] = {
    {"Exit status", "0 done, 1 an error in the description or its files, 2 a wrong call, 3 a bug in pegen."},
    {"Descriptions of others",
     "A description runs in a process of its own that can open no file, start no program and reach "
     "no network (docs/security.md)."},
    {"Words from a pipe", "pegen @- reads its words from the standard input, a NUL after each, once it ends."},
    {"Environment", "PEGEN_DSL names the folder of the vocabulary (pegen.lua)."},
};
enum { NOTE_COUNT = sizeof notes / sizeof *notes };

void option_spell(const option_row *row, char *text, size_t size) {
  snprintf(text, size, "%s%.*s%s%s%s%s%s", row->letter ? "-" : "", row->letter != 0, &row->letter,
           row->letter && row->name ? ", " : "", row->name ? "--" : "", row->name ? row->name : "",
           row->argument && !row->joined ? " " : "", row->argument ? row->argument : "");
}

/* Whether compiling does not take the option: then its help names the commands that do. */
static bool is_of_some_commands(const option_row *row) {
  return row->commands != FOR_ALL && !(row->commands & FOR_COMPILE);
}

static void print_commands_of(FILE *out, const option_table *t, const option_row *row) {
  const char *separator = " (";
  for (int c = 1; c < COMMAND_COUNT; c++)
    if (row->commands >> c & 1) {
      fprintf(out, "%s%s", separator, t->commands[c].name);
      separator = ", ";
    }
  fputs(")", out);
}

static void print_option_help(FILE *out, const option_row *row) {
  char text[64];
  option_spell(row, text, sizeof text);
  fprintf(out, "  %-26s %s", text, row->help);
}

static void print_notes(FILE *out) {
  fputs("\n", out);
  for (int i = 0; i < NOTE_COUNT; i++) fprintf(out, "%s: %s\n", notes[i].head, notes[i].text);
}

void option_print_help(FILE *out, const option_table *t) {
  fprintf(out, "pegen %s.\n\n", PURPOSE);
  for (int c = 0; c < COMMAND_COUNT; c++) fprintf(out, "  %-34s %s\n", t->commands[c].synopsis, t->commands[c].help);
  fputs("\n", out);
  for (int i = 0; i < t->n_rows; i++) {
    print_option_help(out, &t->rows[i]);
    if (is_of_some_commands(&t->rows[i])) print_commands_of(out, t, &t->rows[i]);
    fputs("\n", out);
  }
  print_notes(out);
}

void option_print_command_help(FILE *out, const option_table *t, command of) {
  fprintf(out, "%s\n\n  %s.\n\n", t->commands[of].synopsis, t->commands[of].help);
  for (int i = 0; i < t->n_rows; i++)
    if (t->rows[i].commands >> of & 1) {
      print_option_help(out, &t->rows[i]);
      fputs("\n", out);
    }
  print_notes(out);
}

/* ---- the manual page ---------------------------------------------------------------- */

/* Text as roff shows it: hyphens that can be copied, no request at the start of a line. */
static void roff(FILE *out, const char *text) {
  if (*text == '.' || *text == '\'') fputs("\\&", out);
  for (; *text; text++) {
    if (*text == '-') fputs("\\-", out);
    else if (*text == '\\') fputs("\\e", out);
    else if (*text == '\'') fputs("\\(aq", out);
    else fputc(*text, out);
  }
}

/* A synopsis: its words in bold, but those in capitals or brackets. */
static void roff_synopsis(FILE *out, const char *text) {
  while (*text) {
    int length = (int)strcspn(text, " ");
    bool placeholder = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") >= 2 || *text == '[';
    char word[64];
    snprintf(word, sizeof word, "%.*s", length, text);
    fputs(placeholder ? "\\fI" : "\\fB", out);
    roff(out, word);
    fputs("\\fR", out);
    text += length;
    while (*text == ' ') fputc(*text++, out);
  }
  fputs("\n", out);
}

static void roff_option(FILE *out, const option_table *t, const option_row *row) {
  fputs(".TP\n", out);
  char letter[3] = {'-', row->letter, 0};
  if (row->letter) fputs("\\fB", out), roff(out, letter), fputs("\\fR", out);
  if (row->letter && row->name) fputs(", ", out);
  if (row->name) fputs("\\fB\\-\\-", out), roff(out, row->name), fputs("\\fR", out);
  if (row->argument) {
    fprintf(out, "%s\\fI", row->joined ? "" : " ");
    roff(out, row->argument);
    fputs("\\fR", out);
  }
  fputs("\n", out);
  roff(out, row->help);
  if (is_of_some_commands(row)) print_commands_of(out, t, row);
  fputs(".\n", out);
}

static const char *const examples[][2] = {
    {"An object and its header, for a head of 96 channels:",
     "pegen specs/geope3d.lua \\-o geope3d.o \\-\\-header geope3d.h \\-D head_dim=96"},
    {"Both in one object, the best chosen at the first call:",
     "pegen specs/rope.lua \\-o rope.o \\-\\-target x86\\-64\\-v3,x86\\-64\\-v4"},
    {"PTX:", "pegen specs/care.lua \\-o care.ptx \\-\\-target sm_90"},
    {"What Llama 3 uses, and with which options:", "pegen specs llama3"},
    {"What is known of an encoding, for a program:", "pegen explain specs/care.lua \\-\\-format=json"},
};

void option_print_man(FILE *out, const option_table *t) {
  const option_row *rows = t->rows;
  int count = t->n_rows;
  fprintf(out, ".\\\" Made by pegen --man from the option table.\n.TH PEGEN 1 \"\" \"pegen %s\" \"User Commands\"\n",
          PEGEN_VERSION);
  fprintf(out, ".SH NAME\npegen \\- %s\n.SH SYNOPSIS\n.nf\n", PURPOSE);
  for (int c = 0; c < COMMAND_COUNT; c++) roff_synopsis(out, t->commands[c].synopsis);
  fputs(".fi\n.SH DESCRIPTION\nA description is a Lua file that says how the positions of tokens act on the channels "
        "of an attention head.\n"
        ".B pegen\nturns it into an object file for x86\\-64 or aarch64 with a C header, or into PTX for NVIDIA GPUs.\n"
        "The same input gives the same bytes. Outputs are written last and renamed into place; on an error nothing is "
        "written.\n"
        ".SS Commands\n",
        out);
  for (int c = 0; c < COMMAND_COUNT; c++) {
    fprintf(out, ".TP\n\\fB%s\\fR\n", t->commands[c].name ? t->commands[c].name : "(none)");
    roff(out, t->commands[c].help);
    fputs(".\n", out);
  }
  fputs(".SH OPTIONS\n", out);
  for (int i = 0; i < count; i++) roff_option(out, t, &rows[i]);
  for (int i = 0; i < NOTE_COUNT; i++) {
    fputs(".SH ", out);
    for (const char *c = notes[i].head; *c; c++) fputc(toupper((unsigned char)*c), out);
    fputs("\n", out);
    roff(out, notes[i].text);
    fputs("\n", out);
  }
  fputs(".SH EXAMPLES\n", out);
  for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
    fprintf(out, ".TP\n%s\n.B %s\n", examples[i][0], examples[i][1]);
  fputs(".SH SEE ALSO\nThe reference of the language is docs/spec\\-language.md; the C interface is pegen/pegen.h.\n",
        out);
}

/* ---- completion --------------------------------------------------------------------- */

static void print_words(FILE *out, const option_row *row, const char *before) {
  const char *word;
  for (int i = 0; row->word && (word = row->word(i)); i++) fprintf(out, "%s%s", i ? before : "", word);
}

/* "-O0 -O1": options whose value is joined to the letter, otherwise each spelling. */
static void bash_option(FILE *out, const option_row *row) {
  const char *word;
  if (row->name) fprintf(out, " --%s", row->name);
  if (row->letter && !row->joined) fprintf(out, " -%c", row->letter);
  if (row->letter && row->joined && !row->word) fprintf(out, " -%c%.1s", row->letter, row->argument);
  for (int i = 0; row->joined && row->word && (word = row->word(i)); i++) fprintf(out, " -%c%s", row->letter, word);
}

/* The line of the script that completes a value. */
static void bash_value(FILE *out, const option_row *row) {
  if (!row->argument || (row->joined && row->values != VALUES_FILE)) return;
  fputs("    ", out);
  if (row->joined) fprintf(out, "-%c%.1s", row->letter, row->argument);
  else if (row->letter) fprintf(out, "-%c|", row->letter);
  fprintf(out, "%s%s)", row->joined ? "" : "--", row->joined ? "" : row->name);
  switch (row->values) {
  case VALUES_FILE: fputs(" COMPREPLY=($(compgen -f -- \"$current\"))", out); break;
  case VALUES_LIST: fputs(" [[ $current == *,* ]] && before=${current%,*},", out); /* fall through */
  case VALUES_WORDS:
    fputs("\n      COMPREPLY=($(compgen -P \"$before\" -W \"", out);
    print_words(out, row, " ");
    fputs("\" -- \"${current##*,}\"))", out);
    break;
  case VALUES_FREE: fputs(" COMPREPLY=()", out); break;
  }
  fputs("; return ;;\n", out);
}

/* Names of all commands, or of those that take no file. */
static void print_commands(FILE *out, const option_table *t, bool without_file, const char *before,
                           const char *between) {
  for (int c = 1; c < COMMAND_COUNT; c++)
    if (!without_file || t->commands[c].takes_no_file)
      fprintf(out, "%s%s", before, t->commands[c].name), before = between;
}

void option_print_bash(FILE *out, const option_table *t) {
  const option_row *rows = t->rows;
  int count = t->n_rows;
  fputs("# bash completion for pegen; made by pegen --completion bash from the option table.\n_pegen() {\n"
        "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command=compile before= "
        "options=\n"
        "  COMPREPLY=()\n"
        "  # --option=value is three words to bash.\n"
        "  if [[ $current == = ]]; then current=\n"
        "  elif [[ $previous == = ]]; then previous=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
        "  case ${COMP_WORDS[1]} in",
        out);
  print_commands(out, t, false, " ", "|");
  fputs(") command=${COMP_WORDS[1]} ;; esac\n  case $previous in\n", out);
  for (int i = 0; i < count; i++) bash_value(out, &rows[i]);
  fputs("  esac\n  case $command in\n", out);
  for (int c = 0; c < COMMAND_COUNT; c++) {
    fprintf(out, "    %s) options=\"", c ? t->commands[c].name : "compile");
    for (int i = 0; i < count; i++)
      if (rows[i].commands >> c & 1) bash_option(out, &rows[i]);
    fputs("\" ;;\n", out);
  }
  fputs("  esac\n  if [[ $current == -* ]]; then COMPREPLY=($(compgen -W \"$options\" -- \"$current\")); return; fi\n"
        "  case $command in",
        out);
  print_commands(out, t, true, " ", "|");
  fputs(") return ;; esac\n  COMPREPLY=($(compgen -f -X '!*.lua' -- \"$current\") $(compgen -d -- \"$current\"))\n"
        "  if ((COMP_CWORD == 1)); then COMPREPLY+=($(compgen -W \"",
        out);
  print_commands(out, t, false, "", " ");
  fputs("\" -- \"$current\")); fi\n}\ncomplete -o filenames -F _pegen pegen\n", out);
}

/* Help as zsh takes it between brackets in a quoted word. */
static void zsh_help(FILE *out, const char *text) {
  for (; *text; text++) {
    if (*text == '\'') fputs("'\\''", out);
    else if (strchr("[]:\\", *text)) fprintf(out, "\\%c", *text);
    else fputc(*text, out);
  }
}

/* ":argument:action" */
static void zsh_value(FILE *out, const option_row *row) {
  if (!row->argument || (row->joined && !row->word && row->values != VALUES_FILE)) return;
  fprintf(out, ":%s:", row->joined && row->values == VALUES_FILE ? "DEPFILE" : row->argument);
  switch (row->values) {
  case VALUES_FILE: fputs("_files", out); break;
  case VALUES_LIST: fputs("_values -s , value ", out), print_words(out, row, " "); break;
  case VALUES_WORDS: fputs("(", out), print_words(out, row, " "), fputs(")", out); break;
  case VALUES_FREE: fputs(" ", out); break;
  }
}

/* One or two specifications of _arguments. */
static void zsh_option(FILE *out, const option_row *row) {
  char spelling[2][32] = {{0}};
  int count = 0;
  if (row->letter && row->joined && !row->word)
    snprintf(spelling[count++], 32, "-%c%.1s%s", row->letter, row->argument, row->values == VALUES_FILE ? "+" : "");
  else if (row->letter)
    snprintf(spelling[count++], 32, "-%c%s", row->letter, !row->argument ? "" : row->joined ? "-" : "+");
  if (row->name) snprintf(spelling[count++], 32, "--%s%s", row->name, row->argument ? "=" : "");
  for (int i = 0; i < count; i++) {
    bool repeats = row->argument && !strcmp(row->argument, "NAME=VALUE");
    fprintf(out, "        '%s%s[", repeats ? "*" : "", spelling[i]);
    zsh_help(out, row->help);
    fputs("]", out);
    zsh_value(out, row);
    fputs("'\n", out);
  }
}

void option_print_zsh(FILE *out, const option_table *t) {
  const option_row *rows = t->rows;
  int count = t->n_rows;
  fputs(
      "#compdef pegen\n# zsh completion for pegen; made by pegen --completion zsh from the option table.\n_pegen() {\n"
      "  local command=compile\n  local -a options names\n  names=(\n",
      out);
  for (int c = 1; c < COMMAND_COUNT; c++) {
    fprintf(out, "    '%s:", t->commands[c].name);
    zsh_help(out, t->commands[c].help);
    fputs("'\n", out);
  }
  fputs("  )\n  (( $+words[2] )) && (( ${names[(I)$words[2]:*]} )) && command=$words[2]\n  case $command in\n", out);
  for (int c = 0; c < COMMAND_COUNT; c++) {
    fprintf(out, "    %s) options=(\n", c ? t->commands[c].name : "compile");
    for (int i = 0; i < count; i++)
      if (rows[i].commands >> c & 1) zsh_option(out, &rows[i]);
    fputs("      ) ;;\n", out);
  }
  fputs("  esac\n  (( CURRENT == 2 )) && [[ $words[2] != -* ]] && _describe -t commands command names\n"
        "  case $command in",
        out);
  print_commands(out, t, true, " ", "|");
  fputs(") _arguments -s $options ':name: ' ;;\n"
        "    *) _arguments -s $options '*:description:_files -g \"*.lua\"' ;;\n  esac\n}\n_pegen \"$@\"\n",
        out);
}
