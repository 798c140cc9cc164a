/* program/print: text of a program, the same for the same program; see program/program.h. */
#include "program/program.h"

static const char *const level_words[] = {"of the call", "of a token", "of a row",
                                          "of a pair"}; /* ORDER program_level */

const char *program_value_name(arena *a, const program *p, int value) {
  static const char letters[] = {'v', 'm', 'x'}; /* ORDER program_kind */
  return arena_printf(a, "%c%d", letters[p->value[value].kind], value);
}

typedef struct printer {
  FILE *out;
  const program *p;
  arena *memory;
} printer;

static const char *name(const printer *t, int value) { return program_value_name(t->memory, t->p, value); }

static const char *part_text(const printer *t, program_space space, program_part part) {
  if (space == SPACE_TENSORS) return part == PART_Q ? " q" : part == PART_K ? " k" : "";
  int skipped = t->p->spec->skip_tokens;
  if (part == PART_SKIPPED) return arena_printf(t->memory, " below %d", skipped);
  return part == PART_ENCODED && skipped ? arena_printf(t->memory, " from %d", skipped) : "";
}

/* "f32, of a token and head" */
static const char *comment(const printer *t, const program_op *op) {
  const program_value *v = &t->p->value[op->result];
  program_level level = program_level_of(v->spaces);
  const char *head = level < LEVEL_ROW && v->spaces & IN(HEADS) ? " and head" : "";
  const char *table = op->is_tabled ? ", or from a table" : "";
  const char *made = op->skew.in_f64 ? ", made in f64" : op->skew.may_act ? ", made or acting" : "";
  return arena_printf(t->memory, "%s, %s%s%s%s", number_type_info(v->type)->name, level_words[level], head, made,
                      table);
}

/* ", exp of raw, raw" */
static void print_source(const printer *t, const program_op *op) {
  const program_skew *skew = &op->skew;
  if (skew->source == SOURCE_ENTRIES) return;
  fprintf(t->out, ", ");
  if (skew->count && skew->factor != 1) fprintf(t->out, "%g ", skew->factor);
  fprintf(t->out, "%s", program_source_word(skew->source));
  for (int i = 0; i < skew->count; i++)
    fprintf(t->out, "%s %s", i ? "," : " of", t->p->spec->operand[skew->of[i].operand].name);
}

static void print_over(FILE *out, const program_op *op) {
  const char *separator = " over ";
  for (int s = 0; s < SPACE_COUNT; s++) {
    if (!(op->over & 1u << s)) continue;
    fprintf(out, "%s%s", separator, program_space_word((program_space)s));
    separator = ", ";
  }
  if (op->over_blocks) fprintf(out, "%sblocks", separator);
}

static void print_what(const printer *t, const program_op *op) {
  FILE *out = t->out;
  switch (op->kind) {
  case OP_EVAL: fprintf(out, " %d number%s", op->n_exprs, op->n_exprs == 1 ? "" : "s"); break;
  case OP_MATRIX: fprintf(out, " %d x %d", op->blocks.size, op->blocks.size); break;
  case OP_COLUMNS: fprintf(out, " %d after", op->n_columns); break;
  case OP_GATHER:
    fprintf(out, " %d number%s of the last %d:", op->n_exprs, op->n_exprs == 1 ? "" : "s", op->n_columns);
    break;
  case OP_TAKE: fprintf(out, " %d of", t->p->value[op->result].count); break;
  case OP_SCORE: fprintf(out, op->scales_all ? " scaled" : ""); break;
  case OP_MAP: fprintf(out, " channels of %d block%s of", op->blocks.count, op->blocks.count == 1 ? "" : "s"); break;
  default: break;
  }
  if (op->kind == OP_WEDGE || op->kind == OP_READ)
    fprintf(out, " %d number%s", op->n_exprs, op->n_exprs == 1 ? "" : "s");
  if (op->kind == OP_EVAL || op->kind == OP_MATRIX || op->kind == OP_WEDGE || op->kind == OP_READ)
    fprintf(out, " of %d block%s", op->blocks.count, op->blocks.count == 1 ? "" : "s");
  print_source(t, op);
  if (op->stream >= 0) fprintf(out, " %s", t->p->stream[op->stream].name);
  if (op->array >= 0) fprintf(out, "%s %s", op->kind == OP_READ ? " of" : "", t->p->array[op->array].name);
  const char *separator = op->kind == OP_EVAL || op->kind == OP_MATRIX ? " with"
                          : op->kind == OP_WEDGE                       ? ":"
                          : op->stream >= 0 || op->array >= 0          ? ","
                                                                       : "";
  for (int i = 0; i < op->n_arguments; i++) {
    fprintf(out, "%s %s%s", separator, name(t, op->argument[i]), op->transposed && i == 0 ? "^T" : "");
    separator = ",";
  }
  if (op->kind == OP_REDUCE) print_over(out, op);
}

static void print_list(const printer *t, const program_op *list, int depth) {
  for (const program_op *op = list; op; op = op->next) {
    fprintf(t->out, "%*s", 2 * depth, "");
    if (op->kind == OP_FOR) {
      fprintf(t->out, "for %s%s\n", program_space_word(op->space),
              op->space == SPACE_TOKENS || op->space == SPACE_TENSORS || op->space == SPACE_KEYS
                  ? part_text(t, op->space, op->part)
                  : "");
      print_list(t, op->body, depth + 1);
      continue;
    }
    if (op->result >= 0) fprintf(t->out, "%s = ", name(t, op->result));
    fprintf(t->out, "%s", program_op_word(op->kind));
    print_what(t, op);
    if (op->result >= 0) fprintf(t->out, "  ; %s", comment(t, op));
    fputc('\n', t->out);
  }
}

/* ---- expressions ---- */

typedef struct roots {
  const expr **expr;
  const char **name;
  int count, room;
} roots;

static void add_root(const printer *t, roots *r, const expr *x, const char *text) {
  if (r->count == r->room) {
    int room = 2 * r->room + 64;
    const expr **exprs = arena_array(t->memory, const expr *, room);
    const char **names = arena_array(t->memory, const char *, room);
    for (int i = 0; i < r->count; i++) exprs[i] = r->expr[i], names[i] = r->name[i];
    *r = (roots){exprs, names, r->count, room};
  }
  r->expr[r->count] = x;
  r->name[r->count++] = text;
}

/* Collects a part's expressions, whose numbers are its own; NULL: the whole's. */
static void collect(const printer *t, const program_op *list, const spec_part *part, roots *r) {
  for (const program_op *op = list; op; op = op->next) {
    collect(t, op->body, part, r);
    if (program_part_of(op) != part) continue;
    if (op->kind != OP_EVAL && op->kind != OP_MATRIX && op->kind != OP_MAP)
      continue; /* others have names for their numbers alone */
    for (int i = 0; i < op->n_exprs; i++) {
      const char *of = name(t, op->result);
      int size = op->blocks.size;
      if (op->kind == OP_MAP) add_root(t, r, op->expr[i], of);
      else if (op->kind == OP_EVAL) add_root(t, r, op->expr[i], arena_printf(t->memory, "%s[%d]", of, i));
      else if (!expr_is_const(op->expr[i], 0))
        add_root(t, r, op->expr[i], arena_printf(t->memory, "%s[%d][%d]", of, i / size, i % size));
    }
  }
}

static void print_where(const printer *t, const spec_part *part) {
  roots r = {0};
  collect(t, t->p->body, part, &r);
  if (!r.count) return;
  if (part) fprintf(t->out, "where, on the channels %d to %d\n", part->first, part->first + part->count - 1);
  else fprintf(t->out, "where\n");
  expr_print_roots(t->out, r.expr, r.name, r.count);
}

void program_print(FILE *out, const program *p) {
  printer t = {out, p, arena_create()};
  fprintf(out, "program %s_%s\n", p->spec->name, p->entry);
  for (int i = 0; i < p->n_streams; i++) {
    const program_stream *s = &p->stream[i];
    fprintf(out, "rows %s: %d channels, %s", s->name, s->channels, s->is_output ? "written" : "read");
    if (s->replaces >= 0) fprintf(out, ", may lie where %s does", p->stream[s->replaces].name);
    fputc('\n', out);
  }
  for (int i = 0; i < p->n_arrays; i++) {
    fprintf(out, "array %s of", p->array[i].name);
    for (int s = 0; s < SPACE_COUNT; s++)
      if (p->array[i].spaces & 1u << s) fprintf(out, " %s", program_space_word((program_space)s));
    if (!p->array[i].is_output) fprintf(out, ", read");
    fputc('\n', out);
  }
  print_list(&t, p->body, 0);
  print_where(&t, NULL);
  for (int i = 0; i < p->spec->n_parts; i++) print_where(&t, &p->spec->part[i]);
  arena_destroy(t.memory);
}
