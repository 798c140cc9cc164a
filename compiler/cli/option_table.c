/* cli/option_table: the rows of the table, one function an option; see cli/option_table.h. */
#include "cli/option_table.h"

#include "base/diag.h"
#include "base/number.h"
#include "bench/shapes.h"
#include "cli/parser.h"
#include "dsl/confine.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

int usage(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("pegen: ", stderr);
  vfprintf(stderr, format, arguments);
  fputs("\nTry 'pegen --help'.\n", stderr);
  va_end(arguments);
  return STATUS_USAGE;
}

/* "unknown WHAT 'word', did you mean 'x'? WHATs: a, b, c" */
static int unknown(const char *what, const char *word, const char *const *names, int count) {
  const char *nearest = diag_nearest(word, names, count);
  fprintf(stderr, "pegen: unknown %s '%s'", what, word);
  if (nearest) fprintf(stderr, ", did you mean '%s'?", nearest);
  else fputs(", expected one of:", stderr);
  for (int i = 0; !nearest && i < count; i++) fprintf(stderr, "%s %s", i ? "," : "", names[i]);
  fputs("\nTry 'pegen --help'.\n", stderr);
  return STATUS_USAGE;
}

/* ---- names that options take -------------------------------------------------------- */

/* ORDER EMIT_KIND */
static const struct {
  const char *name, *ending;
} emit_kinds[EMIT_KIND_COUNT] = {
    [EMIT_OBJ] = {"obj", ".o"},      [EMIT_ASM] = {"asm", ".s"},      [EMIT_LLVM] = {"llvm", ".ll"},
    [EMIT_MLIR] = {"mlir", ".mlir"}, [EMIT_EXPR] = {"expr", ".expr"}, [EMIT_PROGRAM] = {"program", ".program"},
    [EMIT_TILE] = {"tile", ".tile"}, [EMIT_PTX] = {"ptx", ".ptx"},    [EMIT_SHARED] = {"shared", ".so"},
};

const char *ending_of_kind(emit_kind kind) { return emit_kinds[kind].ending; }

static const struct {
  const char *name;
  unsigned bit;
} layouts[] = {{"bnhd", LAYOUT_BNHD}, {"bhnd", LAYOUT_BHND}};
enum { LAYOUT_COUNT = sizeof layouts / sizeof *layouts };

static const char *const formats[EXPLAIN_FORMAT_COUNT] = {"text", "json"}; /* ORDER EXPLAIN_FORMAT */

static const struct {
  const char *name;
  void (*print)(FILE *out, const option_table *t);
} shells[] = {{"bash", option_print_bash}, {"zsh", option_print_zsh}};
enum { SHELL_COUNT = sizeof shells / sizeof *shells };

static const char *const levels[] = {"0", "1", "2", "3"};
enum { LEVEL_COUNT = sizeof levels / sizeof *levels };

/* The words of a value one by one, for completion; NULL ends them. */
static const char *emit_word(int i) { return i < EMIT_KIND_COUNT ? emit_kinds[i].name : NULL; }
static const char *dtype_word(int i) { return i < NUMBER_CHANNEL_TYPES ? number_name(i) : NULL; }
static const char *layout_word(int i) { return i < LAYOUT_COUNT ? layouts[i].name : NULL; }
static const char *shell_word(int i) { return i < SHELL_COUNT ? shells[i].name : NULL; }
static const char *format_word(int i) { return i < EXPLAIN_FORMAT_COUNT ? formats[i] : NULL; }
static const char *level_word(int i) { return i < LEVEL_COUNT ? levels[i] : NULL; }
static const char *abi_word(int i) { return i == 0 ? "tvm-ffi" : NULL; }
static const char *target_name(int i) {
  const target_info *list;
  return i < target_list(&list) ? list[i].name : NULL;
}
static const char *target_word(int i) {
  return target_name(i) ? target_name(i) : i == 0 || target_name(i - 1) ? "help" : NULL;
}

/* Which of the words a value is; -1 after a message. */
static int find_word(parser *p, const char *what, const char *value, const char *(*word)(int i)) {
  int count = 0;
  while (word(count)) count++;
  const char **names = arena_array(p->a, const char *, count + 1);
  for (int i = 0; i < count; i++) {
    names[i] = word(i);
    if (!strcmp(value, names[i])) return i;
  }
  unknown(what, value, names, count);
  return -1;
}

/* Cuts a comma list into words, calling each for every one of them. */
static int each_word(parser *p, const char *list, int (*each)(parser *, const char *)) {
  char *copy = arena_strdup(p->a, list), *word;
  if (!*copy) return usage("an empty list where names were expected");
  while ((word = strsep(&copy, ",")))
    if (each(p, word)) return STATUS_USAGE;
  return STATUS_OK;
}

/* One whole number from least to most; false where there is none, or more than it. */
static bool read_integer(const char *text, long long least, long long most, long long *value) {
  char *end;
  *value = strtoll(text, &end, 10);
  return end != text && !*end && *value >= least && *value <= most;
}

/* ---- one function an option; each returns 0 or STATUS_USAGE ------------------------- */

#define TEXT(name, field, is_empty) \
  static int name(parser *p, const char *value) { \
    p->out->field = value; \
    return *value ? STATUS_OK : usage(is_empty); \
  }

TEXT(set_output, output, "-o: the name of the output is empty")
TEXT(set_header, header, "--header: the name of the header is empty")
TEXT(set_sources, sources, "--sources: the name of the list is empty")

/* A C identifier, since symbols and macros begin with it. */
static int set_name(parser *p, const char *value) {
  p->out->name = value;
  bool identifier = *value && !isdigit((unsigned char)*value);
  for (const char *c = value; *c; c++) identifier = identifier && (isalnum((unsigned char)*c) || *c == '_');
  return identifier ? STATUS_OK : usage("--name %s: expected letters, digits and _, no digit first", value);
}

static int add_target(parser *p, const char *word) {
  return find_word(p, "target", word, target_name) < 0 ? STATUS_USAGE : STATUS_OK;
}

static int set_target(parser *p, const char *value) {
  if (strcmp(value, "help")) {
    p->out->compile.targets = value;
    return each_word(p, value, add_target);
  }
  const target_info *list;
  int count = target_list(&list);
  for (int i = 0; i < count; i++) printf("%-12s %s\n", list[i].name, list[i].description);
  p->exit_early = STATUS_OK;
  return STATUS_OK;
}

/* One of the first `count` number types, by its short or its long name; -1 after a message. */
static int dtype_of(const char *word, int first, int count) {
  const char *names[NUMBER_OUT_TYPES];
  for (int i = 0; i < count; i++) {
    const number_info *info = number_type_info((number_type)(first + i));
    names[i] = info->name;
    if (!strcmp(word, info->name) || !strcmp(word, info->words)) return first + i;
  }
  unknown("number type", word, names, count);
  return -1;
}

/* TYPE, or IN:OUT of rows that are read as one and written as another. */
static int add_dtype(parser *p, const char *word) {
  char *in = arena_strdup(p->a, word), *out = strchr(in, ':');
  if (out) *out++ = 0;
  int from = dtype_of(in, 0, NUMBER_CHANNEL_TYPES), to = from;
  if (from >= 0 && out) to = dtype_of(out, NUMBER_CHANNEL_TYPES, NUMBER_OUT_TYPES - NUMBER_CHANNEL_TYPES);
  if (to < 0) return STATUS_USAGE;
  p->out->compile.dtypes |= number_pair(from, to);
  return STATUS_OK;
}

static int set_dtype(parser *p, const char *value) { return each_word(p, value, add_dtype); }

static int set_emit(parser *p, const char *value) {
  int kind = find_word(p, "form for --emit", value, emit_word);
  if (kind < 0) return STATUS_USAGE;
  p->out->compile.emit = (emit_kind)kind;
  p->emit_given = true;
  return STATUS_OK;
}

static int add_define(parser *p, const char *value) {
  const char *equals = strchr(value, '=');
  if (!equals || equals == value) return usage("-D %s: expected -D name=value", value);
  loader_define *d = &p->out->defines[p->out->n_defines++];
  char *name = arena_strdup(p->a, value);
  name[equals - value] = 0;
  *d = (loader_define){name, equals + 1};
  return STATUS_OK;
}

static int set_abi(parser *p, const char *value) {
  if (find_word(p, "interface", value, abi_word) < 0) return STATUS_USAGE;
  p->out->compile.tvm_ffi = true;
  return STATUS_OK;
}

static int set_optimize(parser *p, const char *value) {
  if (value[0] < '0' || value[0] > '3' || value[1]) return usage("-O%s: expected -O0, -O1, -O2 or -O3", value);
  p->out->compile.optimize = value[0] - '0';
  return STATUS_OK;
}

/* -MD, and -MF with its file in the same or the next word (as compilers spell it). */
static int set_depend(parser *p, const char *value) {
  if (!strcmp(value, "D")) p->depend = true;
  else if (value[0] == 'F' && value[1]) p->out->depfile = value + 1;
  else return usage("unknown option '-M%s', expected -MD or -MF FILE", value);
  return STATUS_OK;
}

static int set_format(parser *p, const char *value) {
  int format = find_word(p, "format", value, format_word);
  if (format >= 0) p->out->explain.format = (explain_format)format;
  return format < 0 ? STATUS_USAGE : STATUS_OK;
}

static int add_grid_size(parser *p, const char *word) {
  explain_request *request = &p->out->explain;
  long long size;
  if (request->n_grid == SPEC_MAX_AXES) return usage("--grid: more than %d axes", SPEC_MAX_AXES);
  if (!read_integer(word, 1, 1 << 20, &size)) return usage("--grid: '%s' is no number of tokens", word);
  request->grid[request->n_grid++] = size;
  return STATUS_OK;
}

static int set_grid(parser *p, const char *value) {
  p->out->explain.n_grid = 0;
  return each_word(p, value, add_grid_size);
}

/* One position more: as many coordinates as those before it. */
static int add_position(parser *p, const char *value) {
  explain_request *request = &p->out->explain;
  double *positions = arena_array(p->a, double, (request->n_positions + 1) * SPEC_MAX_AXES);
  char *copy = arena_strdup(p->a, value), *word;
  int axes = 0;
  double *next = positions + request->n_positions * request->axes_of_positions;
  for (; (word = strsep(&copy, ",")); axes++) {
    char *end;
    if (axes == SPEC_MAX_AXES) return usage("--at %s: more than %d axes", value, SPEC_MAX_AXES);
    next[axes] = strtod(word, &end);
    if (end == word || *end || !isfinite(next[axes])) return usage("--at %s: expected numbers, as in --at 1,2", value);
  }
  if (request->n_positions && axes != request->axes_of_positions)
    return usage("--at %s: %d coordinates, after positions of %d", value, axes, request->axes_of_positions);
  for (int i = 0; i < request->n_positions * axes; i++) positions[i] = request->position[i];
  request->axes_of_positions = axes;
  request->position = positions;
  request->n_positions++;
  return STATUS_OK;
}

static int set_seed(parser *p, const char *value) {
  long long seed;
  if (!read_integer(value, 0, LLONG_MAX, &seed)) return usage("--seed %s: expected a whole number", value);
  p->out->explain.seed = (uint64_t)seed;
  p->out->explain.is_seeded = true;
  return STATUS_OK;
}

static int add_operand_file(parser *p, const char *value) {
  explain_request *request = &p->out->explain;
  explain_file *files = arena_array(p->a, explain_file, request->n_files + 1);
  const char *equals = strchr(value, '=');
  char *name = equals ? arena_strdup(p->a, value) : NULL;
  if (equals == value) return usage("--operands %s: no operand is named", value);
  if (!*value || (equals && !equals[1]))
    return usage("--operands %s: expected NAME=FILE.npy, or a checkpoint, FILE.safetensors", value);
  if (name) name[equals - value] = 0;
  for (int i = 0; i < request->n_files; i++) files[i] = request->file[i];
  files[request->n_files++] = (explain_file){name, equals ? equals + 1 : value};
  request->file = files;
  return STATUS_OK;
}

static int add_map(parser *p, const char *value) {
  explain_request *request = &p->out->explain;
  explain_map *maps = arena_array(p->a, explain_map, request->n_maps + 1);
  const char *equals = strchr(value, '=');
  if (!equals || equals == value || !equals[1]) return usage("--map %s: expected NAME=TENSOR", value);
  char *name = arena_strdup(p->a, value);
  name[equals - value] = 0;
  for (int i = 0; i < request->n_maps; i++) {
    maps[i] = request->map[i];
    if (!strcmp(maps[i].operand, name)) return usage("--map %s: operand '%s' has one already", value, name);
  }
  maps[request->n_maps++] = (explain_map){name, equals + 1};
  request->map = maps;
  return STATUS_OK;
}

static int set_shape(parser *p, const char *value) {
  p->out->bench.shape = value;
  if (bench_shape_known(value)) return STATUS_OK;
  return usage("--shape %s: expected B,N,H or B,N,H,D or vit_b1, vit_b8, vit_b64, vit1024, llm, decode", value);
}

static int add_layout(parser *p, const char *word) {
  int layout = find_word(p, "layout", word, layout_word);
  if (layout >= 0) p->out->bench.layouts |= layouts[layout].bit;
  return layout < 0 ? STATUS_USAGE : STATUS_OK;
}

static int set_layout(parser *p, const char *value) { return each_word(p, value, add_layout); }

static int set_count(const char *option, const char *value, int *count) {
  long long read;
  if (!read_integer(value, 1, 1024, &read)) return usage("--%s %s: expected a number from 1 to 1024", option, value);
  *count = (int)read;
  return STATUS_OK;
}

static int set_threads(parser *p, const char *value) { return set_count("threads", value, &p->out->bench.threads); }
static int set_group(parser *p, const char *value) { return set_count("group", value, &p->out->bench.group); }

static int set_max_seconds(parser *p, const char *value) {
  char *end;
  double seconds = strtod(value, &end);
  if (*end || end == value || !(seconds >= 0 && seconds <= 1e9))
    return usage("--max-seconds %s: expected a number of seconds, 0 for no limit", value);
  p->out->max_seconds = seconds;
  return STATUS_OK;
}

static int set_max_memory(parser *p, const char *value) {
  long long mebibytes;
  if (!read_integer(value, 0, 1 << 30, &mebibytes))
    return usage("--max-memory %s: expected a number of MiB, 0 for no limit", value);
  p->out->max_memory = (long)mebibytes;
  return STATUS_OK;
}

static int add_keys(parser *p, const char *word) {
  long long keys;
  bench_options *bench = &p->out->bench;
  if (!read_integer(word, 1, 1 << 24, &keys)) return usage("--keys: '%s' is no number of keys", word);
  int *longer = arena_array(p->a, int, bench->n_keys + 1);
  if (bench->n_keys) memcpy(longer, bench->keys, (size_t)bench->n_keys * sizeof *longer);
  longer[bench->n_keys++] = (int)keys;
  bench->keys = longer;
  return STATUS_OK;
}

static int set_keys(parser *p, const char *value) { return each_word(p, value, add_keys); }

static int set_json(parser *p, const char *value) {
  (void)value;
  p->out->json = p->out->bench.json = true;
  return STATUS_OK;
}

static int show_help(parser *p, const char *value) {
  (void)value;
  if (p->out->command == COMMAND_COMPILE) option_print_help(stdout, p->table);
  else option_print_command_help(stdout, p->table, p->out->command);
  p->exit_early = STATUS_OK;
  return STATUS_OK;
}

static int show_man(parser *p, const char *value) {
  (void)value;
  option_print_man(stdout, p->table);
  p->exit_early = STATUS_OK;
  return STATUS_OK;
}

static int show_completion(parser *p, const char *value) {
  int shell = find_word(p, "shell", value, shell_word);
  if (shell < 0) return STATUS_USAGE;
  shells[shell].print(stdout, p->table);
  p->exit_early = STATUS_OK;
  return STATUS_OK;
}

static int show_version(parser *p, const char *value) {
  (void)value;
  printf("pegen %s%s\n", PEGEN_VERSION, confine_is_built() ? "" : " (for sanitizers: descriptions are not confined)");
  p->exit_early = STATUS_OK;
  return STATUS_OK;
}

/* ---- the table ---------------------------------------------------------------------- */

/* ORDER COMMAND */
static const command_row commands[COMMAND_COUNT] = {
    [COMMAND_COMPILE] = {NULL, "pegen SPEC.lua -o FILE [options]", "compile a description to a kernel"},
    [COMMAND_CHECK] = {"check", "pegen check SPEC.lua [options]",
                       "compile, run, compare with the slow reference, print the errors"},
    [COMMAND_EXPLAIN] = {"explain", "pegen explain SPEC.lua [options]",
                         "what was understood: group, normal form, properties, cost per token"},
    [COMMAND_BENCH] =
        {"bench", "pegen bench SPEC.lua [options]",
         "time the kernel against a copy of the same bytes in the same run, attention against multiply-adds"},
    [COMMAND_SPECS] =
        {"specs", "pegen specs [NAME] [options]",
         "list the descriptions that come with pegen, or those that a model of this name uses, with options",
         .takes_no_file = true},
    [COMMAND_HELP] = {"help", "pegen help [COMMAND]", "print the options of a command, or of all",
                      .takes_no_file = true},
};

#define OPTION_OF(name, letter, argument, commands, set, help, values, word) \
  {name, letter, argument, false, commands, set, 0, help, values, word}
#define OPTION(name, letter, argument, commands, set, help) \
  OPTION_OF(name, letter, argument, commands, set, help, VALUES_FREE, NULL)
#define JOINED(letter, argument, commands, set, help, values, word) \
  {NULL, letter, argument, true, commands, set, 0, help, values, word}
#define FLAG(name, commands, field, help) \
  {name, 0, NULL, false, commands, NULL, offsetof(options, field), help, VALUES_FREE, NULL}

static const option_row rows[] = {
    OPTION_OF(
        "output", 'o', "FILE", FOR_COMPILE, set_output,
        "what to write; the ending decides the form: .o .so .s .ll .mlir .ptx .program .expr; - is the standard output",
        VALUES_FILE, NULL),
    OPTION_OF("header", 0, "FILE", FOR_COMPILE, set_header, "also write the C header", VALUES_FILE, NULL),
    OPTION_OF("sources", 0, "FILE", FOR_COMPILE, set_sources,
              "also write the names of the files that the description was read from, each ended by a NUL: for programs",
              VALUES_FILE, NULL),
    OPTION("name", 0, "NAME", FOR_COMPILE, set_name,
           "what the symbols begin with, for variants in one program; default: the description's name"),
    OPTION_OF("emit", 0, "FORM", FOR_COMPILE, set_emit,
              "obj, shared, asm, llvm, mlir, ptx, program, tile or expr, whatever the ending of FILE", VALUES_WORDS,
              emit_word),
    OPTION_OF("target", 0, "LIST", FOR_DESCRIPTIONS, set_target,
              "processors, separated by commas; the kernel picks the best at its first call; 'help' lists them",
              VALUES_LIST, target_word),
    OPTION_OF("dtype", 0, "LIST", FOR_DESCRIPTIONS, set_dtype,
              "number types of q and k: f32, bf16, f16 (or float32, ...); default: all (bench: f32, of a GPU bf16); "
              "bf16:f8e4m3 or the like: outputs of float8, too (f8e4m3, f8e5m2)",
              VALUES_LIST, dtype_word),
    FLAG("no-grad", FOR_DESCRIPTIONS, compile.no_gradients, "leave out the entries of gradients"),
    FLAG("tangents", FOR_COMPILE, compile.tangents,
         "add the entry of forward mode (Jacobian times vector) to attention for processors"),
    FLAG("cubin", FOR_COMPILE, compile.cubin,
         "also assemble PTX to machine code, so that a first call on that chip does not wait; needs ptxas"),
    OPTION_OF("abi", 0, "NAME", FOR_COMPILE, set_abi,
              "also export the entries for callers of another interface: tvm-ffi (docs/tvm-ffi.md)", VALUES_WORDS,
              abi_word),
    OPTION("define", 'D', "NAME=VALUE", FOR_DESCRIPTIONS, add_define,
           "set an option of the description; lists with commas"),
    FLAG("trust-spec", FOR_DESCRIPTIONS, trust_spec,
         "run the description in this process, not in one that can reach nothing: for your own, where the system has "
         "no seccomp"),
    JOINED('O', "LEVEL", FOR_KERNELS, set_optimize, "optimisation, 0 to 3; default 2", VALUES_WORDS, level_word),
    JOINED('M', "D", FOR_COMPILE, set_depend, "also write a make dependency file, FILE with the ending .d", VALUES_FREE,
           NULL),
    JOINED('M', "F DEPFILE", FOR_COMPILE, NULL, "the same, to DEPFILE", VALUES_FILE, NULL),
    OPTION_OF("format", 0, "FORM", FOR_EXPLAIN, set_format, "text (default) or json", VALUES_WORDS, format_word),
    FLAG("sass", FOR_EXPLAIN, sass,
         "what the kernels' machine code takes of a GPU, and the bound that follows: --target sm_90, --dtype (default "
         "bf16), --no-grad; needs ptxas and nvdisasm or cuobjdump, and no GPU"),
    OPTION("grid", 0, "SIZES", FOR_EXPLAIN, set_grid,
           "tell scores by displacement over a grid of tokens, as 14,14, in JSON, and measure properties on it"),
    OPTION("at", 0, "POSITION", FOR_EXPLAIN, add_position,
           "tell the matrices of this position, as 1,2.5, in JSON; more than once for more"),
    OPTION_OF("operands", 0, "NAME=FILE", FOR_EXPLAIN, add_operand_file,
              "take an operand from a .npy file, or operands from a checkpoint, FILE.safetensors; others are drawn as "
              "their descriptions say",
              VALUES_FILE, NULL),
    OPTION("map", 0, "NAME=TENSOR", FOR_EXPLAIN, add_map,
           "what an operand is called in the checkpoint, as axis=blocks.0.attn.pe.axis"),
    OPTION("seed", 0, "NUMBER", FOR_EXPLAIN, set_seed, "of operands that are drawn; default 0"),
    OPTION_OF(
        "shape", 0, "SHAPE", FOR_BENCH, set_shape,
        "B,N,H or B,N,H,D or one of vit_b1, vit_b8, vit_b64, vit1024, llm, decode; default: those that fit the target",
        VALUES_WORDS, bench_shape_name),
    OPTION_OF("layout", 0, "LIST", FOR_BENCH, set_layout, "order of the memory: bnhd (default), bhnd", VALUES_LIST,
              layout_word),
    OPTION("threads", 0, "COUNT", FOR_BENCH, set_threads, "threads that share each call; default 1"),
    FLAG("in-place", FOR_BENCH, bench.in_place, "only q_out = q, k_out = k"),
    FLAG("out-of-place", FOR_BENCH, bench.out_of_place, "only outputs apart from the inputs"),
    FLAG("table", FOR_BENCH, bench.table,
         "time NAME_encode by the table that NAME_prepare writes, and NAME_prepare; the limit reads the table, too"),
    FLAG("backward", FOR_BENCH, bench.backward,
         "time gradients, too: NAME_encode_backward of rows alone and with those of operands (with --table by a table, "
         "and NAME_prepare_backward), or NAME_attention_backward; of an encode on processors alone"),
    FLAG("append", FOR_BENCH, bench.append,
         "time NAME_append instead: with norms and without, beside NAME_encode and a copy of k and v to their slots"),
    OPTION("keys", 0, "LIST", FOR_BENCH, set_keys,
           "of attention: the shape's queries (one, where none is given) against so many keys, beside one reading of "
           "keys and values and the multiply-adds"),
    FLAG("causal", FOR_BENCH, bench.causal,
         "of attention: queries see earlier keys alone, beside the same of all keys"),
    OPTION("group", 0, "COUNT", FOR_BENCH, set_group,
           "with --append or --keys: heads of q for each head of k and v; default 1"),
    FLAG("shared-inputs", FOR_BENCH, bench.shared_inputs,
         "of rows that turn by inputs: one head of inputs, for all heads of q and k"),
    FLAG("then-read", FOR_BENCH, bench.then_read,
         "time each call, and each limit, together with one reading of q and k after it, as attention reads them"),
    FLAG("verbose", FOR_CHECK, verbose, "print every check, not failures alone"),
    OPTION("json", 0, NULL, FOR_BENCH | FOR_CHECK | FOR_SPECS, set_json,
           "JSON: of bench the machine, the command and all figures in rows (docs/speed.md), of check every check with "
           "its error and bound, of specs a list (docs/specs.md)"),
    OPTION("max-seconds", 0, "SECONDS", FOR_KERNELS, set_max_seconds,
           "processor time that one compilation may take; default 300, 0: any"),
    OPTION("max-memory", 0, "MIB", FOR_KERNELS, set_max_memory,
           "memory that the program may take while it compiles; default 4096, 0: any"),
    OPTION_OF("completion", 0, "SHELL", FOR_ALL, show_completion, "print the completion script for bash or zsh",
              VALUES_WORDS, shell_word),
    OPTION("man", 0, NULL, FOR_ALL, show_man, "print the manual page, as roff"),
    OPTION("help", 'h', NULL, FOR_ALL, show_help, "print this"),
    OPTION("version", 'V', NULL, FOR_ALL, show_version, "print the version"),
};
enum { ROW_COUNT = sizeof rows / sizeof *rows };

const option_table all_options = {commands, rows, ROW_COUNT};
