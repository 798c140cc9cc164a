/* object/header: prints the C header of a kernel; see object/header.h. */
#include "object/header.h"

#include "base/diag.h"
#include "base/number.h"
#include "forms/form.h"
#include "kernel/launch.h"
#include "pegen/pegen.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* NAME of "name". */
static const char *upper(arena *a, const char *name) {
  char *copy = arena_strdup(a, name);
  for (char *c = copy; *c; c++) *c = (char)toupper((unsigned char)*c);
  return copy;
}

/* What the macros and constants of a kernel begin with: NAME of "name". Names that differ in case alone are different
 * kernels, whose headers one file may include: a name of both cases stays, and "NAME" becomes name. */
static const char *prefix_of(arena *a, const char *name) {
  bool has_small = false, has_capital = false;
  for (const char *c = name; *c; c++) {
    has_small = has_small || islower((unsigned char)*c);
    has_capital = has_capital || isupper((unsigned char)*c);
  }
  if (!has_capital) return upper(a, name);
  char *copy = arena_strdup(a, name);
  for (char *c = copy; *c && !has_small; c++) *c = (char)tolower((unsigned char)*c);
  return copy;
}

/* What the macros and constants of a header are called behind NAME_; OUT_DIM_, OPERAND_ and INPUT_ go on. */
static bool is_word_of_header(const char *name) {
  static const char *const words[] = {"HEAD_DIM", "AXES", "HEADS", "SKIP_TOKENS", "VALUE_DIM", "GRID_TOKENS"};
  static const char *const fronts[] = {"OUT_DIM_", "OPERAND_", "INPUT_"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strcmp(name, words[i])) return true;
  for (size_t i = 0; i < sizeof fronts / sizeof *fronts; i++)
    if (!strncmp(name, fronts[i], strlen(fronts[i]))) return true;
  return false;
}

/* The constant of item `index`: its name in capitals, or as it is where another item's, that of their number (COUNT,
 * which spec_validate keeps free), or a constant of a kernel called NAME_operand would be the same. */
static const char *constant_of(arena *a, const char *const *names, int count, int index) {
  const char *name = upper(a, names[index]);
  bool is_taken = !strcmp(name, "COUNT") || is_word_of_header(name);
  for (int i = 0; i < count; i++) is_taken = is_taken || (i != index && !strcasecmp(name, names[i]));
  return is_taken ? names[index] : name;
}

/* Characters that move, hide or end what stands around them, or that are none. */
static bool is_harmful(uint32_t c) {
  static const uint32_t ranges[][2] = {
      {0x80, 0x9f},     /* controls */
      {0xad, 0xad},     /* soft hyphen */
      {0x61c, 0x61c},   /* marks of direction */
      {0x180e, 0x180e}, /* Mongolian vowel separator */
      {0x200b, 0x200f}, /* of no width; marks of direction */
      {0x2028, 0x202e}, /* ends of lines and paragraphs; overrides of direction */
      {0x2060, 0x206f}, /* of no width; isolates of direction */
      {0xd800, 0xdfff}, /* surrogates */
      {0xfdd0, 0xfdef}, /* no characters */
      {0xfeff, 0xfeff}, /* byte order mark */
      {0xfff0, 0xfffb}, /* annotations */
      {0xe0000, 0xe0fff}, /* tags */
  };
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
    if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
  return c > 0x10ffff || (c & 0xfffe) == 0xfffe;
}

/* Bytes of the UTF-8 character at text, 1 where there is none; *shows: it may stand in a comment as it is. */
static size_t character(const char *text, bool *shows) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* shorter is no UTF-8 */
  unsigned char first = (unsigned char)*text;
  size_t bytes = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
  uint32_t c = bytes > 1 ? first & (0x7fu >> bytes) : first;
  *shows = bytes == 1 && first != '\\';
  for (size_t i = 1; i < bytes; i++) {
    if (((unsigned char)text[i] & 0xc0) != 0x80) return 1;
    c = c << 6 | ((unsigned char)text[i] & 0x3f);
  }
  if (bytes <= 1 || c < least[bytes]) return 1;
  *shows = !is_harmful(c);
  return bytes;
}

/* Text from the description as part of a comment: one line, never its end, and what is read is what is there. */
static const char *comment(arena *a, const char *text) {
  char *out = arena_alloc(a, 2 * strlen(text) + 1), *o = out;
  while (*text) {
    bool shows;
    size_t bytes = character(text, &shows);
    if (*text == '/' && o - out >= 2 && o[-1] == '?' && o[-2] == '?') *o++ = ' '; /* together a backslash, once */
    if (!shows) *o++ = '?';
    else if (iscntrl((unsigned char)*text)) *o++ = ' ';
    else o = (char *)memcpy(o, text, bytes) + bytes;
    if ((text[0] == '*' && text[1] == '/') || (text[0] == '/' && text[1] == '*')) *o++ = ' ';
    text += bytes;
  }
  return out;
}

/* What rows may be written as a type that outputs alone have. */
static void print_pairs(FILE *f, unsigned dtypes, int out) {
  const char *separator = " where q, k are";
  for (int in = 0; in < NUMBER_CHANNEL_TYPES; in++) {
    if (!(dtypes & number_pair(in, out))) continue;
    if (*separator == ' ') fprintf(f, "\n *   or q_out, k_out     %s", number_type_info(out)->words);
    fprintf(f, "%s %s", separator, number_type_info(in)->words);
    separator = ",";
  }
  if (*separator != ' ') fprintf(f, ": values divided by q_scale, k_scale");
}

static void print_summary(FILE *f, arena *a, const spec *s, const gpu_program *gpu, unsigned dtypes) {
  fprintf(f, "/* %s: %s\n *\n", s->name, *s->doc ? comment(a, s->doc) : "a position encoding.");
  fprintf(f, " * Made by pegen %s from the description %s", PEGEN_VERSION, s->description ? s->description : s->name);
  for (int i = 0; i < s->n_options; i++)
    fprintf(f, "%s%s=%s", i ? " " : " with\n *   ", s->option[i].name, comment(a, s->option[i].value));
  fprintf(
      f,
      gpu ? ".\n * Load the module that was written together with this file; its head says what a launch takes.\n *\n"
          : ".\n * Link the object that was written together with this file; it needs no library.\n *\n");
  const char *heads = s->heads > 1 ? arena_printf(a, "%d", s->heads) : "H";
  if (s->pairwise)
    fprintf(f,
            " *   q, k                [B,%s,N,%d], [B,Hkv,M,%d]; Hkv divides H\n *   v, out              [B,Hkv,M,%d], "
            "[B,%s,N,%d] of",
            heads, s->head_dim, s->head_dim, s->pairwise->value_dim, heads, s->pairwise->value_dim);
  else fprintf(f, " *   q, k, q_out, k_out  [B,%s,N,%d] of", heads, s->head_dim);
  const char *separator = " ";
  for (int i = 0; i < NUMBER_CHANNEL_TYPES; i++) {
    if (dtypes && !(dtypes & number_type_info(i)->dtype)) continue;
    fprintf(f, "%s%s", separator, number_type_info(i)->words);
    separator = ", ";
  }
  for (int out = NUMBER_CHANNEL_TYPES; out < NUMBER_OUT_TYPES; out++) print_pairs(f, dtypes, out);
  if (s->pairwise && s->pairwise->scale > 0)
    fprintf(f, "\n *   scale               of q k^T: %.9g where it is 0", s->pairwise->scale);
  fprintf(f, "\n *   positions           [N,%d] or [B,N,%d]: ", s->n_axes, s->n_axes);
  for (int axis = 0; axis < s->n_axes; axis++) fprintf(f, "%s%s", axis ? ", " : "", s->axis[axis]);
  if (s->grid[0]) fprintf(f, "; or NULL for the built-in grid");
  fprintf(f, "\n");
  if (s->n_components) fprintf(f, " *   blocks              %d of %d channels each\n", s->n_blocks, s->n_components);
  for (int i = 0; i < s->n_parts; i++) {
    const spec_part *part = &s->part[i];
    fprintf(f, " *   %-19s %d of %d channels each, on channels %d to %d\n", i ? "" : "blocks", part->of->n_blocks,
            part->of->n_components, part->first, part->first + part->count - 1);
  }
  if (s->skip_tokens) fprintf(f, " *   The first %d tokens pass through.\n", s->skip_tokens);
  if (s->inverse) fprintf(f, " *   Turns back: the inverse of the encoding.\n");
  fprintf(f, " */\n");
}

static void print_operand(FILE *f, arena *a, const spec *s, const char *NAME, const char *const *names, int index) {
  const spec_operand *o = &s->operand[index];
  fprintf(f, "  /* %s: %s", o->name, *o->doc ? comment(a, o->doc) : "learned.");
  fprintf(f, "\n   * shape  [");
  for (int d = 0; d < o->rank; d++) {
    const char *dimension = o->dimension[d];
    bool named = dimension && !isdigit((unsigned char)*dimension);
    fprintf(f, "%s%s%s%" PRId64, d ? ", " : "", named ? comment(a, dimension) : "", named ? "=" : "", o->shape[d]);
  }
  fprintf(f, "], contiguous; float32, float64, float16 or bfloat16");
  if (o->units && *o->units) fprintf(f, "\n   * units  %s", comment(a, o->units));
  if (o->initializer && *o->initializer) fprintf(f, "\n   * start  %s", comment(a, o->initializer));
  if (o->source && *o->source) fprintf(f, "\n   * source %s", comment(a, o->source));
  fprintf(f, " */\n  %s_OPERAND_%s = %d,\n", NAME, constant_of(a, names, s->n_operands, index), index);
}

static void print_operands(FILE *f, arena *a, const spec *s, const char *NAME) {
  const char **names = arena_array(a, const char *, s->n_operands + 1);
  for (int i = 0; i < s->n_operands; i++) names[i] = s->operand[i].name;
  fprintf(f, "/* Index of each operand in pegen_args.operands. */\nenum {\n");
  for (int i = 0; i < s->n_operands; i++) print_operand(f, a, s, NAME, names, i);
  fprintf(f, "  %s_OPERAND_COUNT = %d\n};\n\n", NAME, s->n_operands);
}

static void print_input(FILE *f, arena *a, const spec *s, const char *NAME, const char *const *names, int index) {
  const spec_input *in = &s->input[index];
  fprintf(f, "  /* %s: %s", in->name, comment(a, in->doc));
  bool of_pairs = spec_input_is_of_pairs(s, index);
  const char *tokens = in->of_keys ? "M" : "N";
  fprintf(f, "\n   * shape  [B,H,%s", tokens);
  if (in->size > 0) fprintf(f, ",%" PRId64, in->size);
  if (spec_input_is_pair(in)) fprintf(f, ",M");
  if (in->of_keys) fprintf(f, "], M keys, H heads of q or of k");
  else fprintf(f, "]");
  if (spec_turns_rows(s) || of_pairs)
    fprintf(f, ", B and H also 1 for all; any strides of B, H and %s; float32", tokens);
  else fprintf(f, ", any strides of B, H and N; the number type of q, or float32 as all inputs are");
  if (*in->units) fprintf(f, "\n   * units  %s", comment(a, in->units));
  if (*in->source) fprintf(f, "\n   * source %s", comment(a, in->source));
  fprintf(f, " */\n  %s_INPUT_%s = %d,\n", NAME, constant_of(a, names, s->n_inputs, index), index);
}

static void print_inputs(FILE *f, arena *a, const spec *s, const char *NAME) {
  if (!s->n_inputs) return;
  const char **names = arena_array(a, const char *, s->n_inputs);
  bool reads_keys = false;
  for (int i = 0; i < s->n_inputs; i++) {
    names[i] = s->input[i].name;
    reads_keys = reads_keys || spec_input_is_of_pairs(s, i);
  }
  fprintf(f, "/* Index of each input in pegen_args.inputs: tensors with a row for each %s. */\nenum {\n",
          spec_turns_rows(s)
              ? "token and head,\n * of q and of k alike: where their tokens or heads differ, they go in "
                "two calls"
          : reads_keys ? "query token, or key, and head"
                       : "query token and head");
  for (int i = 0; i < s->n_inputs; i++) print_input(f, a, s, NAME, names, i);
  fprintf(f, "  %s_INPUT_COUNT = %d\n};\n\n", NAME, s->n_inputs);
}

/* Channels of outputs that are wider than what goes in, and the meaning of those appended. */
static void print_columns(FILE *f, arena *a, const spec *s, unsigned dtypes, const char *NAME) {
  const form *kind = form_of(s);
  const void *plan = kind && kind->out_dim ? kind->plan(a, s) : NULL;
  if (!kind || (kind->out_dim && !plan))
    diag_bug("header", "no plan of '%s'", s->name); /* there was one a moment ago */
  if (!plan) return;
  fprintf(f,
          "/* Channels of the rows of q_out and k_out, by their number type. Those from %s_HEAD_DIM on are, in q and k "
          "alike,\n",
          NAME);
  fprintf(f, " * what the score's bias needs of the query and of the key's position: scores are scale (q_out . k_out). "
             "Positions count from");
  if (s->polynomial->has_call_origin) fprintf(f, "\n * args->origin, or the middle of args->positions");
  for (int axis = 0; axis < s->n_axes && !s->polynomial->has_call_origin; axis++)
    fprintf(f, "%s %s = %.9g", axis ? "," : "", comment(a, s->axis[axis]), s->polynomial->origin[axis]);
  fprintf(f, ". */\n");
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++) {
    const char **columns;
    if (dtypes && !(dtypes & number_type_info(type)->dtype)) continue;
    int out_dim = kind->out_dim(a, plan, type, &columns);
    fprintf(f, "#define %s_OUT_DIM_%s %d\n/* channel: what k holds there", NAME, number_type_info(type)->constant,
            out_dim);
    for (int i = s->head_dim; i < out_dim; i++) fprintf(f, "\n *   %4d  %s", i, comment(a, columns[i - s->head_dim]));
    fprintf(f, " */\n");
  }
  fprintf(f, "\n");
}

static void print_sizes(FILE *f, arena *a, const spec *s, const char *NAME) {
  fprintf(f, "#define %s_HEAD_DIM %d /* channels of a row */\n", NAME, s->head_dim);
  fprintf(f, "#define %s_AXES %d /* coordinates of a position */\n", NAME, s->n_axes);
  fprintf(f, "#define %s_HEADS %d /* heads it is made for%s */\n", NAME, s->heads > 1 ? s->heads : 0,
          s->heads > 1 ? "" : "; 0: any number");
  fprintf(f, "#define %s_SKIP_TOKENS %d /* tokens at the front that pass through */\n", NAME, s->skip_tokens);
  if (s->pairwise)
    fprintf(f, "#define %s_VALUE_DIM %d /* channels of a row of v and out */\n", NAME, s->pairwise->value_dim);
  if (s->grid[0]) {
    int64_t tokens = 1;
    for (int axis = 0; axis < s->n_axes; axis++) tokens *= s->grid[axis];
    fprintf(f, "#define %s_GRID_TOKENS %" PRId64 " /* of the built-in grid, row-major:", NAME, tokens);
    for (int axis = 0; axis < s->n_axes; axis++)
      fprintf(f, "%s %s=%" PRId64, axis ? "," : "", comment(a, s->axis[axis]), s->grid[axis]);
    fprintf(f, " */\n");
  }
  fprintf(f, "\n");
}

static const char *scores_text(const spec *s) {
  if (s->pairwise && s->pairwise->score) return "score(scale q k^T)";
  return s->polynomial ? "scale (q k^T + bias)" : "scale q k^T + bias";
}

/* An entry's text as a comment; %s in it: what softmax is taken of. */
static void print_text(FILE *f, const spec *s, const char *text) {
  for (fputs("/* ", f); *text; text++)
    if (*text == '\n') fputs("\n * ", f);
    else if (text[0] != '%' || text[1] != 's') fputc(*text, f);
    else fputs(scores_text(s), f), text++;
  fputs(" */\n", f);
}

static void print_entry(FILE *f, const spec *s, const entry_row *row) {
  if (row->text) print_text(f, s, row->text);
  if (row->role == ENTRY_SIZE) fprintf(f, "size_t %s_%s(const pegen_args *args);\n", s->name, row->name);
  else fprintf(f, "int %s_%s(const pegen_args *args, int part, int parts);\n", s->name, row->name);
}

/* Entries of a role that belong to none but themselves, each before those that belong to it. */
static void print_entries(FILE *f, const spec *s, entry_role role, entry_option most) {
  const form *kind = form_of(s);
  for (int of = 0; kind && of < PEGEN_ENTRY_COUNT; of++) {
    bool is_first = entry_rows[of].role == role && (int)entry_rows[of].of == of;
    if (!is_first || !form_entry(kind, (pegen_entry_kind)of, most)) continue;
    for (int i = of; i < PEGEN_ENTRY_COUNT; i++)
      if ((int)entry_rows[i].of == of && form_entry(kind, (pegen_entry_kind)i, most)) print_entry(f, s, &entry_rows[i]);
    fputc('\n', f);
  }
}

/* What launches must know, as pegen_ptx_entry has it in an object. */
static void print_launches(FILE *f, arena *a, const gpu_program *gpu, const char *NAME) {
  size_t prefix = strlen(gpu->spec->name);
  fprintf(
      f,
      "#define %s_LAUNCH_BLOCK %d /* threads of a block */\n\n"
      "/* Entries. ACCESS: bytes that addresses and strides of rows are multiples of. UNITS: threads of a token.\n"
      " * COLUMNS: tokens of a warp, 0: units lie in one line; of attention queries of a block. FLIGHT: rows under\n"
      " * way; of attention keys of a tile. SHARED: bytes of dynamic shared memory of a block. */\nenum {\n",
      NAME, PEGEN_PTX_BLOCK);
  for (int i = 0; i < gpu->n_entries; i++) {
    const gpu_entry *e = &gpu->entry[i];
    const char *entry = arena_printf(a, "%s%s", NAME, upper(a, e->name + prefix));
    const struct {
      const char *word;
      int value;
    } constants[] = {{"ACCESS", e->access},
                     {"UNITS", gpu_entry_units(e)},
                     {"COLUMNS", e->tile ? e->tile->owners : 0},
                     {"FLIGHT", e->flight},
                     {"SHARED", e->shared}};
    fprintf(f, "  /* %s: launched for \"%s\" */\n", e->name, gpu_entry_word(e));
    for (int c = 0; c < 5; c++)
      fprintf(f, "  %s_%s = %d%s\n", entry, constants[c].word, constants[c].value,
              c < 4 || i < gpu->n_entries - 1 ? "," : "");
  }
  fprintf(f, "};\n\n");
}

char *header_text(arena *a, const spec *s, const gpu_program *gpu, unsigned dtypes, entry_option most) {
  char *text = NULL;
  size_t size = 0;
  FILE *f = arena_must(open_memstream(&text, &size));
  const char *NAME = prefix_of(a, s->name);

  print_summary(f, a, s, gpu, dtypes);
  fprintf(f, "#ifndef PEGEN_KERNEL_%s_H\n#define PEGEN_KERNEL_%s_H\n\n", NAME, NAME);
  if (!gpu)
    fprintf(f,
            "#include <pegen/pegen.h>\n\n#if PEGEN_ABI_VERSION != %d\n"
            "#error \"%s was made for another version of pegen/pegen.h\"\n#endif\n\n"
            "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n",
            PEGEN_ABI_VERSION, s->name);
  print_sizes(f, a, s, NAME);
  print_columns(f, a, s, dtypes, NAME);
  print_operands(f, a, s, NAME);
  print_inputs(f, a, s, NAME);
  if (gpu) {
    print_launches(f, a, gpu, NAME);
  } else {
    fprintf(f, "/* What the object says of itself. */\nextern const pegen_kernel %s_kernel;\n\n", s->name);
    print_entries(f, s, ENTRY_CALL, most);
    print_entries(f, s, ENTRY_SIZE, most);
    fprintf(f, "#ifdef __cplusplus\n}\n#endif\n");
  }
  fprintf(f, "#endif\n");

  if (fclose(f)) arena_must(NULL);
  char *copy = arena_strdup(a, text);
  free(text);
  return copy;
}
