/* program/check: what the ops of a program promise; see program/program.h.
 *
 * Every value is made before it is read, inside loops over the spaces that it is indexed by, and is of the kind and
 * type that its readers take. Expressions find what they are made of where they stand. Every row of an output is stored
 * by one iteration and by one alone, and no row is read again after what may lie in its place was written.
 */
#include "program/program.h"

#include "base/diag.h"

#include <string.h>

typedef struct checker {
  arena *memory;
  const program *p;
  unsigned around;     /* spaces of the open loops */
  program_part part, tensors; /* of the tokens and tensors that are walked */
  unsigned stored[PROGRAM_MAX_STREAMS], written[PROGRAM_MAX_ARRAYS]; /* bits of regions and of program_part */
  bool made[PROGRAM_MAX_VALUES], read[PROGRAM_MAX_VALUES];
  const char *fault;
} checker;

static const char *const kind_words[] = {"numbers", "a matrix", "a row"}; /* ORDER program_kind */

/* "store y: " and what is wrong; the first fault stays. */
static void fail(checker *c, const program_op *op, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void fail(checker *c, const program_op *op, const char *format, ...) {
  if (c->fault) return;
  va_list arguments;
  va_start(arguments, format);
  const char *wrong = arena_vprintf(c->memory, format, arguments), *of = "";
  va_end(arguments);
  if (op->kind == OP_FOR) of = program_space_word(op->space);
  else if (op->stream >= 0 && op->stream < c->p->n_streams) of = c->p->stream[op->stream].name;
  else if (op->array >= 0 && op->array < c->p->n_arrays) of = c->p->array[op->array].name;
  else if (op->result >= 0) of = program_value_name(c->memory, c->p, op->result);
  c->fault = arena_printf(c->memory, "%s%s%s: %s", program_op_word(op->kind), *of ? " " : "", of, wrong);
}

static const char *spaces_text(checker *c, unsigned spaces) {
  const char *text = "";
  for (int s = 0; s < SPACE_COUNT; s++)
    if (spaces & 1u << s)
      text = arena_printf(c->memory, "%s%s%s", text, *text ? ", " : "", program_space_word((program_space)s));
  return *text ? text : "nothing";
}

/* ---- loops ---- */

static void check_loop(checker *c, const program_op *op) {
  unsigned space = 1u << op->space;
  if (!op->body) fail(c, op, "the loop is empty");
  if (c->around & space) fail(c, op, "a loop over the same space stands around");
  if (op->space == SPACE_TILES && c->around & IN(TOKENS)) fail(c, op, "tiles are cut from tokens, not inside of them");
  if (op->space == SPACE_GROUPS && c->around & (IN(TENSORS) | IN(HEADS)))
    fail(c, op, "groups are cut from all rows of a token, not inside of tensors or heads");
  if (op->space == SPACE_RUNS && c->around & (IN(TENSORS) | IN(HEADS)))
    fail(c, op, "runs are cut from all heads, not inside of tensors or heads");
  if (!(op->part & PART_ALL)) fail(c, op, "no part of the %s is walked", program_space_word(op->space));
  if (op->space == SPACE_KEYS && !(c->around & IN(TOKENS))) fail(c, op, "keys of no query");
}

/* ---- values ---- */

static void check_result(checker *c, const program_op *op) {
  if (op->result < 0) return;
  const program_value *v = &c->p->value[op->result];
  if (op->result >= c->p->n_values || v->maker != op) fail(c, op, "the value is another op's");
  else if (v->spaces != (c->around & SPACES_OF_VALUES))
    fail(c, op, "the value is indexed by %s, the loops around walk %s", spaces_text(c, v->spaces),
         spaces_text(c, c->around & SPACES_OF_VALUES));
  c->made[op->result] = true;
}

static bool check_argument(checker *c, const program_op *op, int i) {
  int value = op->argument[i];
  if (value < 0 || value >= c->p->n_values || !c->made[value]) {
    fail(c, op, "argument %d is read before it is made", i);
    return false;
  }
  const program_value *v = &c->p->value[value];
  c->read[value] = true;
  unsigned reduced = op->kind == OP_ATTEND ? IN(KEYS) : op->kind == OP_REDUCE ? op->over : 0u;
  if (v->spaces & ~c->around & ~reduced)
    fail(c, op, "%s is indexed by %s, which no loop around walks", program_value_name(c->memory, c->p, value),
         spaces_text(c, v->spaces & ~c->around));
  return true;
}

/* The kind that an argument must have: N numbers, M a matrix, R a row; the last letter also of further arguments. */
static program_kind kind_of_argument(const program_op *op, int i) {
  static const char *const kinds[OP_COUNT] = {
      [OP_APPLY] = "MR", [OP_ADD] = "NR",     [OP_STORE] = "R",   [OP_MAP] = "R",     [OP_SUM] = "N",
      [OP_TAKE] = "R",   [OP_COLUMNS] = "RN", [OP_GATHER] = "RN", [OP_SCORE] = "RRN", [OP_ATTEND] = "NR",
      [OP_WEDGE] = "R",  [OP_REDUCE] = "N",   [OP_EVAL] = "N",    [OP_MATRIX] = "N"};
  const char *of = op->kind == OP_MATRIX && op->skew.source == SOURCE_PRODUCT ? "M" : kinds[op->kind];
  if (!of) return KIND_COUNT;
  int last = (int)strlen(of) - 1, at = op->kind == OP_ATTEND ? i % 2 : i < last ? i : last;
  return of[at] == 'N' ? KIND_NUMBERS : of[at] == 'M' ? KIND_MATRIX : KIND_ROW;
}

static void check_kind(checker *c, const program_op *op, int i) {
  const program_value *v = &c->p->value[op->argument[i]];
  program_kind kind = kind_of_argument(op, i);
  if (kind == KIND_COUNT) return;
  if (v->kind != kind) fail(c, op, "argument %d is %s, expected %s", i, kind_words[v->kind], kind_words[kind]);
  bool takes_f64 = op->kind == OP_EVAL || op->kind == OP_MATRIX || op->kind == OP_REDUCE;
  if (v->type != NUMBER_F32 && !takes_f64)
    fail(c, op, "argument %d is %s, expected f32", i, number_type_info(v->type)->name);
}

static void check_arguments(checker *c, const program_op *op) {
  int expected = program_op_arguments(op->kind);
  if (expected >= 0 && op->n_arguments != expected) fail(c, op, "%d arguments, expected %d", op->n_arguments, expected);
  for (int i = 0; i < op->n_arguments; i++)
    if (!check_argument(c, op, i)) return;
  for (int i = 0; i < op->n_arguments && !c->fault; i++) check_kind(c, op, i);
}

/* ---- expressions ---- */

static void check_leaf(checker *c, const program_op *op, const expr *x) {
  if (x->op == EXPR_CHANNEL) fail(c, op, "%%%d is a channel, which no expression of a program reads", x->id);
  if (x->op == EXPR_COTANGENT) fail(c, op, "%%%d is a gradient that no op before has made", x->id);
  if (x->op == EXPR_POSITION && !(c->around & IN(TOKENS))) fail(c, op, "%%%d is a position, outside of tokens", x->id);
  if (x->n_heads > 1 && !(c->around & IN(HEADS)))
    fail(c, op, "%%%d differs from head to head, outside of heads", x->id);
  bool turns_rows = spec_turns_rows(c->p->spec), is_of_query = !(c->around & IN(TENSORS)) || c->tensors == PART_Q;
  unsigned of_inputs = c->p->heads_share ? IN(TOKENS) | IN(BATCHES) : SPACES_OF_ROW;
  bool of_row = turns_rows ? (c->around & of_inputs) == of_inputs
                           : is_of_query && (c->around & SPACES_OF_QUERY) == SPACES_OF_QUERY;
  bool is_input = expr_op_is_input(x->op);
  const spec_input *in = is_input ? &c->p->spec->input[x->index] : NULL;
  if (in && (in->of_keys || spec_input_is_pair(in)) && !(c->around & IN(KEYS)))
    fail(c, op, "%%%d is of a %s, outside of keys", x->id, in->of_keys ? "key" : "pair");
  if (in && !in->of_keys && !of_row)
    fail(c, op, "%%%d is of a %s, outside of %s", x->id, turns_rows ? "row" : "query",
         turns_rows ? "rows" : "queries' rows");
}

/* seen: by id; what evals that are used hold counts as seen. */
static void check_expr(checker *c, const program_op *op, const expr *x, unsigned char *seen) {
  if (seen[x->id]) return;
  seen[x->id] = 1;
  if (x->n_heads > 1 || expr_op_arity(x->op) == 0 || x->op == EXPR_INPUT_AT) check_leaf(c, op, x);
  for (int i = 0; i < expr_op_arity(x->op); i++) check_expr(c, op, x->arg[i], seen);
}

/* A matrix of skew ones: as many numbers as there are of them. */
static void check_skew(checker *c, const program_op *op) {
  const program_skew *skew = &op->skew;
  bool has_numbers = skew->source != SOURCE_CAYLEY && (skew->source != SOURCE_SCHUR || op->n_arguments > 0);
  if (op->n_arguments != has_numbers) fail(c, op, "%d arguments, expected %d", op->n_arguments, has_numbers);
  else if (skew->count < 1 || (skew->count > 1 && (!has_numbers || skew->source == SOURCE_SCHUR)))
    fail(c, op, "%s of %d skew matrices", program_source_word(skew->source), skew->count);
  else if (has_numbers && c->p->value[op->argument[0]].count != skew->count)
    fail(c, op, "%d numbers for %d skew matrices", c->p->value[op->argument[0]].count, skew->count);
  for (int i = 0; i < skew->count; i++)
    if (skew->of[i].n_heads > 1 && !(c->around & IN(HEADS))) fail(c, op, "differs from head to head, outside of heads");
}

static void check_product(checker *c, const program_op *op) {
  if (op->n_arguments != 2) {
    fail(c, op, "%d arguments, expected 2", op->n_arguments);
    return;
  }
  const program_blocks *first = &c->p->value[op->argument[0]].maker->blocks, *whole = &op->blocks;
  if (c->p->value[op->argument[1]].count != whole->size || whole->count != 1)
    fail(c, op, "%d blocks of %d channels, expected one of %d", whole->count, whole->size,
         c->p->value[op->argument[1]].count);
  for (int i = 0; i < first->size * first->count; i++) {
    int k = 0;
    while (k < whole->size && whole->channel[k] != first->channel[i]) k++;
    if (k == whole->size) fail(c, op, "channel %d is in the first alone", first->channel[i]);
  }
}

static void check_exprs(checker *c, const program_op *op) {
  if (op->n_exprs == 0 && op->kind == OP_EVAL) fail(c, op, "no expression");
  if (op->kind == OP_MATRIX && op->skew.source != SOURCE_ENTRIES) {
    if (op->skew.source == SOURCE_PRODUCT) check_product(c, op);
    else check_skew(c, op);
    return;
  }
  if (op->kind == OP_MATRIX && op->n_exprs != op->blocks.size * op->blocks.size)
    fail(c, op, "%d entries, expected %d", op->n_exprs, op->blocks.size * op->blocks.size);
  if (c->fault) return;
  unsigned char *seen = arena_alloc(c->memory, (size_t)expr_pool_count(program_spec_of(c->p, op)->pool));
  for (int i = 0; i < op->n_arguments; i++) {
    const program_op *used = c->p->value[op->argument[i]].maker;
    if (used->n_exprs && program_part_of(used) != program_part_of(op))
      fail(c, op, "numbers of another part of the head");
    for (int k = 0; k < used->n_exprs && !c->fault; k++) seen[used->expr[k]->id] = 1;
  }
  for (int i = 0; i < op->n_exprs; i++) check_expr(c, op, op->expr[i], seen);
}

/* ---- rows ---- */

static void check_blocks(checker *c, const program_op *op, const program_blocks *blocks, int channels) {
  bool *taken = arena_array(c->memory, bool, channels + 1);
  for (int i = 0; i < blocks->size * blocks->count; i++) {
    int channel = blocks->channel[i];
    if (channel < 0 || channel >= channels) {
      fail(c, op, "channel %d of a row of %d", channel, channels);
      return;
    }
    if (taken[channel]) fail(c, op, "channel %d belongs to two blocks", channel);
    taken[channel] = true;
  }
}

/* Numbers and channels of the rows at hand are all that a map is of. */
static void check_map_of(checker *c, const program_op *op, const expr *x) {
  bool is_leaf = expr_op_arity(x->op) == 0, reads = x->op == EXPR_CHANNEL && x->index < op->n_arguments;
  if (expr_op_is_lookup(x->op) || (is_leaf && !reads && x->op != EXPR_CONST))
    fail(c, op, "%%%d is neither a number nor a channel of one of %d rows", x->id, op->n_arguments);
  for (int i = 0; i < expr_op_arity(x->op) && !c->fault; i++) check_map_of(c, op, x->arg[i]);
}

static void check_map(checker *c, const program_op *op) {
  int channels = c->p->value[op->result].count;
  if (op->n_exprs != 1 || op->n_arguments < 1)
    fail(c, op, "%d expressions of %d rows, expected one", op->n_exprs, op->n_arguments);
  for (int i = 0; i < op->n_arguments; i++)
    if (c->p->value[op->argument[i]].count != channels) fail(c, op, "rows of several widths");
  if (!c->fault) check_blocks(c, op, &op->blocks, channels);
  if (!c->fault) check_map_of(c, op, op->expr[0]);
}

static void check_apply(checker *c, const program_op *op) {
  const program_op *made = c->p->value[op->argument[0]].maker;
  const program_blocks *blocks = op->kind == OP_ADD ? &op->blocks : &made->blocks;
  if (op->kind == OP_ADD && (blocks->size != 1 || made->n_exprs != 1 || made->blocks.count != blocks->count))
    fail(c, op, "%d numbers for %d blocks of %d channels", made->n_exprs, blocks->count, blocks->size);
  else check_blocks(c, op, blocks, c->p->value[op->argument[1]].count);
}

/* Rows of an output that the open loops walk: a bit for each part of the tokens and of the tensors. */
static unsigned region(const checker *c) {
  unsigned bits = 0;
  for (int tensor = 0; tensor < 2; tensor++)
    if (c->tensors & 1u << tensor) bits |= (unsigned)c->part << 2 * tensor;
  return bits;
}

/* Channels that are appended: of numbers of one block. */
static void check_columns(checker *c, const program_op *op) {
  const program_value *numbers = op->n_arguments > 1 ? &c->p->value[op->argument[1]] : NULL;
  int count = numbers ? numbers->count : 0;
  for (int i = 1; i < op->n_arguments; i++)
    if (c->p->value[op->argument[i]].maker->blocks.count != 1) fail(c, op, "argument %d is of several blocks", i);
  if (op->n_arguments > 2) {
    int gains = c->p->value[op->argument[2]].count;
    if (gains % count) fail(c, op, "%d gains of %d weights", gains, count);
    count = gains / count;
  }
  if (op->n_arguments > 3) fail(c, op, "%d arguments, expected 3", op->n_arguments);
  for (int i = 0; i < op->n_columns; i++)
    if (numbers && (op->column[i] >= count || op->column[i] < -1)) fail(c, op, "column %d of %d", op->column[i], count);
}

/* What channels gained that columns has appended: numbers of one block, each of which has a name. */
static void check_gather(checker *c, const program_op *op) {
  int count = c->p->value[op->result].count, channels = c->p->value[op->argument[0]].count, columns = count;
  if (op->n_arguments < 1 || op->n_arguments > 2) {
    fail(c, op, "%d arguments, expected 1 or 2", op->n_arguments);
    return;
  }
  if (op->n_exprs != count || count < 1) fail(c, op, "%d names of %d numbers", op->n_exprs, count);
  if (op->n_columns > channels) fail(c, op, "%d columns of a row of %d channels", op->n_columns, channels);
  if (c->fault) return;
  if (op->n_arguments > 1) {
    int gains = c->p->value[op->argument[1]].count;
    if (c->p->value[op->argument[1]].maker->blocks.count != 1) fail(c, op, "argument 1 is of several blocks");
    if (gains % count) fail(c, op, "%d gains of %d weights", gains, count);
    columns = gains / count;
  }
  for (int i = 0; i < op->n_columns; i++)
    if (op->column[i] >= columns || op->column[i] < -1) fail(c, op, "column %d of %d", op->column[i], columns);
}

static void check_take(checker *c, const program_op *op) {
  int count = c->p->value[op->result].count, channels = c->p->value[op->argument[0]].count;
  if (count < 1 || count > channels) fail(c, op, "%d channels of a row of %d", count, channels);
}

static void check_score(checker *c, const program_op *op) {
  if (!(c->around & IN(KEYS))) fail(c, op, "of no key");
  if (op->n_arguments < 2 || op->n_arguments > 3) fail(c, op, "%d arguments, expected 2 or 3", op->n_arguments);
  else if (c->p->value[op->argument[0]].count != c->p->value[op->argument[1]].count)
    fail(c, op, "rows of %d and %d channels", c->p->value[op->argument[0]].count, c->p->value[op->argument[1]].count);
  else if (op->n_arguments == 3) {
    const program_value *number = &c->p->value[op->argument[2]];
    if (number->count * number->maker->blocks.count != 1) fail(c, op, "argument 2 is not one number");
  }
}

/* Every key's score and row once. */
static void check_attend(checker *c, const program_op *op) {
  unsigned keys = 0;
  for (int i = 0; i + 1 < op->n_arguments; i += 2) {
    const program_value *score = &c->p->value[op->argument[i]], *row = &c->p->value[op->argument[i + 1]];
    if (!(score->spaces & IN(KEYS)) || score->keys != row->keys || keys & score->keys)
      fail(c, op, "arguments %d and %d are not of the same keys, or of some twice", i, i + 1);
    if (row->count != c->p->value[op->argument[1]].count) fail(c, op, "rows of several widths");
    keys |= score->keys;
  }
  if (op->n_arguments % 2 || keys != PART_ALL) fail(c, op, "not all keys are attended to");
}

static bool check_stream(checker *c, const program_op *op, bool is_output) {
  if (op->stream < 0 || op->stream >= c->p->n_streams || c->p->stream[op->stream].is_output != is_output) {
    fail(c, op, "rows that are not %s", is_output ? "written" : "read");
    return false;
  }
  unsigned row = c->p->stream[op->stream].spaces, around = c->around & SPACES_OF_VALUES;
  if (is_output ? around == row : (around & row) == row) return true;
  if (row != SPACES_OF_ROW) {
    fail(c, op, "a row is of one of %s; the loops around walk %s", spaces_text(c, row), spaces_text(c, around));
    return false;
  }
  fail(c, op, "a row is of one token, batch, tensor and head; the loops around walk %s", spaces_text(c, c->around));
  return false;
}

static void check_load(checker *c, const program_op *op) {
  if (!check_stream(c, op, false)) return;
  for (int s = 0; s < c->p->n_streams; s++)
    if (c->p->stream[s].replaces == op->stream && c->stored[s] & region(c))
      fail(c, op, "read after %s was written, which may lie in its place", c->p->stream[s].name);
}

static void check_store(checker *c, const program_op *op) {
  if (!check_stream(c, op, true)) return;
  const program_stream *s = &c->p->stream[op->stream];
  if (c->p->value[op->argument[0]].count != s->channels)
    fail(c, op, "a row of %d channels, expected %d", c->p->value[op->argument[0]].count, s->channels);
  if (c->stored[op->stream] & region(c)) fail(c, op, "rows are stored twice");
  c->stored[op->stream] |= region(c);
}

/* Every number has a sum of its own, and stands for a leaf of its own. */
static void check_wedge(checker *c, const program_op *op) {
  int expected = op->n_arguments > 1 ? torque_count(op->basis) : op->blocks.size;
  if (op->n_arguments < 1 || op->n_arguments > 2 || (op->n_arguments > 1) != (op->basis != NULL))
    fail(c, op, "%d rows", op->n_arguments);
  else if (c->p->value[op->result].count != expected)
    fail(c, op, "%d numbers of a block, expected %d", c->p->value[op->result].count, expected);
  else check_blocks(c, op, &op->blocks, c->p->value[op->argument[0]].count);
}

static void check_reduce(checker *c, const program_op *op) {
  unsigned spaces = c->p->value[op->argument[0]].spaces;
  if (op->over & ~spaces) fail(c, op, "sums over %s, which no number has", spaces_text(c, op->over & ~spaces));
  if (op->over & c->around) fail(c, op, "sums over %s inside of a loop over it", spaces_text(c, op->over & c->around));
}

static bool check_array(checker *c, const program_op *op, bool is_output) {
  bool there = op->array >= 0 && op->array < c->p->n_arrays;
  if (!there) fail(c, op, "no such array");
  else if (c->p->array[op->array].is_output != is_output)
    fail(c, op, "an array that is not %s", is_output ? "written" : "read");
  return !c->fault;
}

static void check_read(checker *c, const program_op *op) {
  if (!check_array(c, op, false)) return;
  unsigned spaces = c->p->array[op->array].spaces, around = c->around & SPACES_OF_VALUES;
  if (spaces & ~around)
    fail(c, op, "elements of %s, inside loops over %s", spaces_text(c, spaces), spaces_text(c, around));
  if (op->n_exprs != c->p->value[op->result].count || !op->n_exprs) fail(c, op, "%d names", op->n_exprs);
}

static void check_write(checker *c, const program_op *op) {
  if (!check_array(c, op, true)) return;
  unsigned spaces = c->p->array[op->array].spaces;
  if (spaces != (c->around & SPACES_OF_VALUES))
    fail(c, op, "elements of %s, inside loops over %s", spaces_text(c, spaces), spaces_text(c, c->around));
  if (c->written[op->array] & c->part) fail(c, op, "elements are written twice");
  c->written[op->array] |= c->part;
}

/* ---- the whole ---- */

static void check_list(checker *c, const program_op *list);

static void check_body(checker *c, const program_op *op) {
  checker outer = *c;
  check_loop(c, op);
  c->around |= 1u << op->space;
  if (op->space == SPACE_TOKENS) c->part = op->part;
  if (op->space == SPACE_TENSORS) c->tensors = op->part;
  check_list(c, op->body);
  c->around = outer.around;
  c->part = outer.part;
  c->tensors = outer.tensors;
}

static void (*const checks[OP_COUNT])(checker *c, const program_op *op) = {
    [OP_FOR] = check_body,     [OP_EVAL] = check_exprs,  [OP_MATRIX] = check_exprs,    [OP_LOAD] = check_load,
    [OP_STORE] = check_store,  [OP_APPLY] = check_apply, [OP_ADD] = check_apply,       [OP_MAP] = check_map,
    [OP_WRITE] = check_write,  [OP_READ] = check_read,   [OP_COLUMNS] = check_columns, [OP_GATHER] = check_gather,
    [OP_TAKE] = check_take,    [OP_SCORE] = check_score, [OP_ATTEND] = check_attend,   [OP_WEDGE] = check_wedge,
    [OP_REDUCE] = check_reduce};

static void check_list(checker *c, const program_op *list) {
  for (const program_op *op = list; op && !c->fault; op = op->next) {
    check_arguments(c, op);
    if (!c->fault && checks[op->kind]) checks[op->kind](c, op);
    if (!c->fault) check_result(c, op);
  }
}

const char *program_fault(arena *a, const program *p) {
  checker c = {.memory = a, .p = p, .part = PART_ALL, .tensors = PART_ALL};
  check_list(&c, p->body);
  if (c.fault) return c.fault;
  for (int i = 0; i < p->n_values; i++)
    if (!c.read[i]) return arena_printf(a, "%s is never read", program_value_name(a, p, i));
  for (int i = 0; i < p->n_streams; i++)
    if (p->stream[i].is_output && c.stored[i] != region(&c))
      return arena_printf(a, "rows %s: not all are stored", p->stream[i].name);
  for (int i = 0; i < p->n_arrays; i++)
    if (p->array[i].is_output && !c.written[i]) return arena_printf(a, "array %s is not written", p->array[i].name);
  return NULL;
}

void program_check(arena *a, const program *p, const char *stage) {
  const char *fault = program_fault(a, p);
  if (fault) diag_bug(stage, "the program of '%s_%s' is not sound: %s", p->spec->name, p->entry, fault);
}
