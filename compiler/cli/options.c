/* cli/options: the table's getopt_long driver, and what needs the whole line; see cli/options.h. */
#include "cli/options.h"

#include "base/diag.h"
#include "cli/parser.h"
#include "cli/specs.h"
#include "gpu/target.h"
#include "object/output.h"

#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- driving getopt_long ------------------------------------------------------------ */

enum { LONG_ONLY = 256 }; /* getopt's value of row i without a letter: LONG_ONLY + i */

static const option_row *find_row(const option_table *table, int code) {
  if (code >= LONG_ONLY) return &table->rows[code - LONG_ONLY];
  for (int i = 0; i < table->n_rows; i++)
    if (table->rows[i].letter == code) return &table->rows[i];
  return NULL;
}

static int bad_option(parser *p, int code, char **argv) {
  char letter[3] = {'-', (char)optopt, 0};
  if (code == ':' && optopt && optopt < LONG_ONLY) return usage("option '%s' needs a value", letter);
  const char *word = argv[optind - 1];
  if (code == ':') return usage("option '%s' needs a value", word);
  if (strncmp(word, "--", 2)) return usage("unknown option '%s'", optopt ? letter : word);
  char *name = arena_strdup(p->a, word + 2);
  char *equals = strchr(name, '=');
  if (equals) *equals = 0;
  const option_row *rows = p->table->rows;
  const char **names = arena_array(p->a, const char *, p->table->n_rows);
  int count = 0;
  for (int i = 0; i < p->table->n_rows; i++) {
    if (!rows[i].name) continue;
    if (!strcmp(rows[i].name, name) && equals) return usage("option '--%s' takes no value", name);
    names[count++] = rows[i].name;
  }
  const char *nearest = diag_nearest(name, names, count);
  if (nearest) return usage("unknown option '--%s', did you mean '--%s'?", name, nearest);
  return usage("unknown option '--%s'", name);
}

/* -MF takes the next word; getopt has only seen -M with the argument "F". NULL: there is none. */
static const char *joined_depfile(parser *p, const char *value, int argc, char **argv) {
  if (strcmp(value, "F")) return value;
  if (optind >= argc) return NULL;
  return arena_printf(p->a, "F%s", argv[optind++]);
}

static int read_options(parser *p, int argc, char **argv) {
  const option_row *rows = p->table->rows;
  int n_rows = p->table->n_rows, n_longs = 0, n_shorts = 0;
  struct option *longs = arena_array(p->a, struct option, n_rows + 1);
  char *shorts = arena_array(p->a, char, 2 * n_rows + 2);
  shorts[n_shorts++] = ':';
  for (int i = 0; i < n_rows; i++) {
    if (rows[i].name)
      longs[n_longs++] = (struct option){rows[i].name, rows[i].argument ? required_argument : no_argument, NULL,
                                         rows[i].letter ? rows[i].letter : LONG_ONLY + i};
    if (!rows[i].letter || !rows[i].set) continue;
    shorts[n_shorts++] = rows[i].letter;
    if (rows[i].argument) shorts[n_shorts++] = ':';
  }
  shorts[n_shorts] = 0;
  longs[n_longs] = (struct option){NULL, 0, NULL, 0};
  opterr = 0;
  for (int code; (code = getopt_long(argc, argv, shorts, longs, NULL)) != -1;) {
    if (code == '?' || code == ':') return bad_option(p, code, argv);
    const option_row *row = find_row(p->table, code);
    if (row->letter == 'M') optarg = (char *)joined_depfile(p, optarg, argc, argv);
    if (row->argument && !optarg) return usage("option '-MF' needs a value");
    if (!(row->commands >> p->out->command & 1)) {
      char text[64];
      option_spell(row, text, sizeof text);
      return usage("option '%s' has no meaning for this command", text);
    }
    if (!row->set) *(bool *)((char *)p->out + row->flag) = true;
    else if (row->set(p, optarg)) return STATUS_USAGE;
    if (p->exit_early >= 0) return STATUS_OK;
  }
  return STATUS_OK;
}

/* ---- decisions that need the whole line --------------------------------------------- */

/* Text after the last dot of the last path component, dot included; "" where there is none. */
static const char *ending_of(const char *path) {
  const char *slash = strrchr(path, '/');
  const char *dot = strrchr(slash ? slash : path, '.');
  return dot ? dot : "";
}

/* A GPU whose assembly is PTX: a file called .s is meant for a processor. */
static bool names_only_ptx(parser *p) {
  const char *cpus;
  const gpu_target *gpu = gpu_target_parse(p->a, p->out->compile.targets, &cpus);
  return gpu && !cpus && gpu->vendor->assembly == EMIT_PTX;
}

static int decide_kind(parser *p) {
  const char *output = p->out->output;
  if (p->emit_given) return STATUS_OK;
  if (!strcmp(output, "-"))
    return usage("-o -: say what to write with --emit obj, shared, asm, llvm, mlir, tile, program, expr or ptx");
  if (!strcmp(ending_of(output), ending_of_kind(EMIT_ASM)) && names_only_ptx(p))
    return usage("-o %s: --target %s names only GPUs, whose assembly is PTX; expected an output that ends in .ptx",
                 output, p->out->compile.targets);
  for (int i = 0; i < EMIT_KIND_COUNT; i++)
    if (!strcmp(ending_of(output), ending_of_kind((emit_kind)i))) {
      p->out->compile.emit = (emit_kind)i;
      return STATUS_OK;
    }
  return usage("-o %s: the ending decides what is written: .o, .so, .s, .ll, .mlir, .program, .expr or .ptx; or say it "
               "with --emit",
               output);
}

static int decide_outputs(parser *p) {
  options *out = p->out;
  if (out->command != COMMAND_COMPILE) return STATUS_OK;
  if (!out->output) return usage("no output: give -o FILE (-o - is the standard output)");
  if (decide_kind(p)) return STATUS_USAGE;
  if (p->depend && !out->depfile) {
    if (!strcmp(out->output, "-")) return usage("-MD with -o - needs -MF DEPFILE");
    int stem = (int)(strlen(out->output) - strlen(ending_of(out->output)));
    out->depfile = arena_printf(p->a, "%.*s.d", stem, out->output);
  }
  enum { OUTPUTS = 4 };
  const char *paths[OUTPUTS] = {out->output, out->header, out->depfile, out->sources};
  for (int i = 0; i < OUTPUTS; i++)
    if (paths[i] && output_is_same(paths[i], out->spec))
      return usage("'%s' is the description itself: it would be replaced", paths[i]);
  for (int i = 0; i < OUTPUTS; i++)
    for (int j = i + 1; j < OUTPUTS; j++)
      if (paths[i] && paths[j] && output_is_same(paths[i], paths[j]))
        return strcmp(paths[i], paths[j])
                   ? usage("'%s' and '%s' are one file, named for two outputs", paths[i], paths[j])
                   : usage("'%s' is named for two outputs", paths[i]);
  return STATUS_OK;
}

static int decide_prints(const parser *p) {
  if (p->out->json && p->out->verbose) return usage("--json and --verbose exclude each other; JSON has every check");
  const compile_options *kernel = &p->out->compile;
  const explain_request *numbers = &p->out->explain;
  if (p->out->command == COMMAND_EXPLAIN && !p->out->sass &&
      (kernel->targets || kernel->dtypes || kernel->no_gradients))
    return usage("--target, --dtype and --no-grad are for explain --sass; a description is the same for all");
  if (p->out->sass && (numbers->n_grid || numbers->n_positions || numbers->n_files || numbers->is_seeded))
    return usage("--grid, --at, --operands and --seed have no meaning for explain --sass, which runs nothing");
  if (p->out->bench.in_place && p->out->bench.out_of_place)
    return usage("--in-place and --out-of-place exclude each other; without them both are measured");
  return STATUS_OK;
}

static int decide_help(parser *p, int argc, char **argv) {
  const command_row *commands = p->table->commands;
  const char *word = optind < argc ? argv[optind] : NULL, *names[COMMAND_COUNT] = {"compile"};
  if (optind + 1 < argc) return usage("unexpected argument '%s': one command a call", argv[optind + 1]);
  p->exit_early = STATUS_OK;
  if (!word) option_print_help(stdout, p->table);
  for (int c = 0; word && c < COMMAND_COUNT; c++) {
    if (c) names[c] = commands[c].name;
    if (strcmp(word, names[c])) continue;
    option_print_command_help(stdout, p->table, (command)c);
    word = NULL;
  }
  if (!word) return STATUS_OK;
  const char *nearest = diag_nearest(word, names, COMMAND_COUNT);
  return nearest ? usage("unknown command '%s', did you mean '%s'?", word, nearest)
                 : usage("unknown command '%s'", word);
}

/* A word that names neither a file nor a description: what may be meant. */
static int decide_missing(parser *p, const char *dsl, const char *word) {
  const char *names[COMMAND_COUNT];
  int count = 0;
  for (int c = 1; c < COMMAND_COUNT; c++) names[count++] = p->table->commands[c].name;
  const char *command = diag_nearest(word, names, count), *stock = specs_nearest(p->a, dsl, word);
  if (stock) return usage("there is no file '%s', and no description of this name, did you mean '%s'?", word, stock);
  if (command) return usage("unknown command '%s', did you mean '%s'?", word, command);
  return usage("there is no file '%s', and no description of this name; pegen specs lists them", word);
}

/* Whether a word can only be a name: of a command, or of a description that comes with pegen. */
static bool is_missing_name(const parser *p, const char *dsl, const char *word) {
  return *word && !strpbrk(word, "./") && access(word, F_OK) && !specs_find(p->a, dsl, word);
}

static int decide_spec(parser *p, const char *dsl, int argc, char **argv) {
  if (p->out->command == COMMAND_HELP) return decide_help(p, argc, argv);
  bool takes_no_file = p->table->commands[p->out->command].takes_no_file;
  if (optind == argc && takes_no_file) return STATUS_OK;
  if (optind == argc) return usage("no description: give a SPEC.lua, or the name of one that pegen specs lists");
  p->out->spec = argv[optind];
  bool is_missing = !takes_no_file && is_missing_name(p, dsl, argv[optind]);
  if (optind + 1 == argc) return is_missing ? decide_missing(p, dsl, argv[optind]) : STATUS_OK;
  const char *names[COMMAND_COUNT];
  int count = 0;
  for (int c = 1; c < COMMAND_COUNT; c++) names[count++] = p->table->commands[c].name;
  const char *nearest = diag_nearest(argv[optind], names, count);
  if (takes_no_file) return usage("unexpected argument '%s': one name a call", argv[optind + 1]);
  if (nearest) return usage("unknown command '%s', did you mean '%s'?", argv[optind], nearest);
  return usage("unexpected argument '%s': one description a call", argv[optind + 1]);
}

/* The command line as a shell would take it. */
static const char *joined(arena *a, int argc, char **argv) {
  const char *text = "pegen";
  for (int i = 1; i < argc; i++) {
    bool plain = argv[i][0] != 0;
    for (const char *c = argv[i]; *c; c++) plain = plain && (isalnum((unsigned char)*c) || strchr("_-./,=+:@%", *c));
    if (plain) {
      text = arena_printf(a, "%s %s", text, argv[i]);
      continue;
    }
    text = arena_printf(a, "%s '", text);
    for (const char *c = argv[i]; *c; c++)
      text = *c == '\'' ? arena_printf(a, "%s'\\''", text) : arena_printf(a, "%s%c", text, *c);
    text = arena_printf(a, "%s'", text);
  }
  return text;
}

/* Commands that the Python package adds to the program's. */
static bool is_of_python(const char *word) {
  static const char *const commands[] = {"plot", "compare", "lab"};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    if (!strcmp(word, commands[i])) return access(word, F_OK);
  return false;
}

bool options_parse(arena *a, const char *dsl, int argc, char **argv, options *out, int *status) {
  *out = (options){.compile = {.optimize = 2}, .bench = {.threads = 1}, .max_seconds = 300, .max_memory = 4096};
  out->defines = arena_array(a, loader_define, argc);
  out->bench.command = joined(a, argc, argv);
  parser p = {.a = a, .out = out, .table = &all_options, .exit_early = -1};
  /* The command, where there is one, is the first word. */
  for (int c = 1; c < COMMAND_COUNT && argc > 1; c++)
    if (!strcmp(argv[1], all_options.commands[c].name)) {
      out->command = (command)c;
      argv++, argc--;
      break;
    }
  if (argc > 1 && is_of_python(argv[1])) {
    *status = usage("%s is a command of the Python package, which has this program, too: pip install pegen-kernels "
                    "(docs/python.md)",
                    argv[1]);
    return false;
  }
  *status = read_options(&p, argc, argv);
  if (*status) return false;
  if (p.exit_early >= 0) {
    *status = p.exit_early;
    return false;
  }
  *status = decide_spec(&p, dsl, argc, argv);
  if (p.exit_early >= 0) return false;
  if (!*status) *status = decide_outputs(&p);
  if (!*status) *status = decide_prints(&p);
  return !*status;
}
