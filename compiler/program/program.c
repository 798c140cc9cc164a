/* program/program: building and copying; see program/program.h. */
#include "program/program.h"

#include "base/diag.h"

/* ORDER PROGRAM_SPACE */
static const char *const space_words[SPACE_COUNT] = {
#define X(name, text) text,
    PROGRAM_SPACES(X)
#undef X
};

/* ORDER PROGRAM_OP */
static const struct {
  const char *word;
  int arguments;
} ops[OP_COUNT] = {
#define X(name, text, arguments) {text, arguments},
    PROGRAM_OPS(X)
#undef X
};

/* ORDER PROGRAM_SOURCE */
static const char *const source_words[SOURCE_COUNT] = {
#define X(name, text) text,
    PROGRAM_SOURCES(X)
#undef X
};

const char *program_space_word(program_space space) { return space_words[space]; }
const char *program_op_word(program_op_kind kind) { return ops[kind].word; }
const char *program_source_word(program_source source) { return source_words[source]; }
int program_op_arguments(program_op_kind kind) { return ops[kind].arguments; }

program_level program_level_of(unsigned spaces) {
  if (spaces & IN(KEYS)) return LEVEL_PAIR;
  if (!(spaces & IN(TOKENS))) return LEVEL_CALL;
  return (spaces & SPACES_OF_QUERY) == SPACES_OF_QUERY ? LEVEL_ROW : LEVEL_TOKEN;
}

/* ---- building ---- */

program_builder program_begin(arena *a, const spec *s, const char *entry) {
  program_builder b = {.memory = a, .p = arena_new(a, program)};
  b.p->spec = s;
  b.p->entry = entry;
  b.end[0] = &b.p->body;
  return b;
}

static int new_stream(program_builder *b, program_stream stream) {
  if (b->p->n_streams == PROGRAM_MAX_STREAMS) diag_bug("program", "more than %d streams", PROGRAM_MAX_STREAMS);
  b->p->stream[b->p->n_streams] = stream;
  return b->p->n_streams++;
}

int program_stream_in(program_builder *b, const char *name, int channels) {
  return new_stream(b, (program_stream){name, channels, SPACES_OF_ROW, false, -1});
}

int program_stream_out(program_builder *b, const char *name, int channels, int replaces) {
  return new_stream(b, (program_stream){name, channels, SPACES_OF_ROW, true, replaces});
}

int program_stream_of(program_builder *b, const char *name, int channels, unsigned spaces, bool is_output) {
  return new_stream(b, (program_stream){name, channels, spaces, is_output, -1});
}

static int new_array(program_builder *b, program_array array) {
  if (b->p->n_arrays == PROGRAM_MAX_ARRAYS) diag_bug("program", "more than %d arrays", PROGRAM_MAX_ARRAYS);
  b->p->array[b->p->n_arrays] = array;
  return b->p->n_arrays++;
}

int program_array_out(program_builder *b, const char *name, unsigned spaces) {
  return new_array(b, (program_array){name, spaces, true});
}

int program_array_in(program_builder *b, const char *name, unsigned spaces) {
  return new_array(b, (program_array){name, spaces, false});
}

static program_op *append(program_builder *b, program_op op) {
  program_op *made = arena_new(b->memory, program_op);
  *made = op;
  made->next = made->body = NULL;
  made->result = -1;
  *b->end[b->depth] = made;
  b->end[b->depth] = &made->next;
  return made;
}

void program_for(program_builder *b, program_space space, program_part part) {
  if (b->depth == PROGRAM_MAX_DEPTH) diag_bug("program", "loops deeper than %d", PROGRAM_MAX_DEPTH);
  program_op *loop = append(b, (program_op){.kind = OP_FOR, .space = space, .part = part});
  b->end[++b->depth] = &loop->body;
  b->open[b->depth] = space;
  b->part[b->depth] = part;
  b->spaces |= 1u << space;
  loop->stream = loop->array = -1;
}

void program_for_rows(program_builder *b) {
  static const program_space inwards[] = {SPACE_BATCHES, SPACE_TENSORS, SPACE_HEADS};
  for (int i = 0; i < 3; i++)
    if (!(b->spaces & 1u << inwards[i])) program_for(b, inwards[i], PART_ALL);
}

void program_end_for(program_builder *b, int depth) {
  if (depth > b->depth) diag_bug("program", "a loop ends that did not begin");
  while (b->depth > depth) b->spaces &= ~(1u << b->open[b->depth--]);
}

static int make(program_builder *b, program_op *op, program_value value) {
  if (b->p->n_values == PROGRAM_MAX_VALUES) diag_bug("program", "more than %d values", PROGRAM_MAX_VALUES);
  value.spaces = b->spaces & SPACES_OF_VALUES;
  value.maker = op;
  for (int i = 1; i <= b->depth; i++)
    if (b->open[i] == SPACE_KEYS) value.keys = b->part[i];
    else if (b->open[i] == SPACE_TENSORS) value.tensors = b->part[i];
  op->result = b->p->n_values;
  b->p->value[b->p->n_values] = value;
  return b->p->n_values++;
}

/* float64 where one of them is. */
static number_type type_of(const expr *const *exprs, int count) {
  for (int i = 0; i < count; i++)
    if (!exprs[i]->is_f32 && !expr_is_fixed(exprs[i])) return NUMBER_F64;
  return NUMBER_F32;
}

static program_op of_exprs(program_op_kind kind, const plan *how, const expr *const *exprs, int count, const int *used,
                           int n_used) {
  program_op op = {.kind = kind, .stream = -1, .array = -1, .n_exprs = count, .expr = exprs, .plan = how};
  if (n_used > PROGRAM_MAX_ARGUMENTS) diag_bug("program", "more than %d arguments", PROGRAM_MAX_ARGUMENTS);
  for (int i = 0; i < n_used; i++) op.argument[op.n_arguments++] = used[i];
  return op;
}

int program_eval(program_builder *b, const plan *how, const expr *const *exprs, int count, const int *used,
                 int n_used) {
  program_op *op = append(b, of_exprs(OP_EVAL, how, exprs, count, used, n_used));
  op->blocks.count = expr_pool_blocks(program_spec_of(b->p, op)->pool);
  return make(b, op, (program_value){.kind = KIND_NUMBERS, .type = type_of(exprs, count), .count = count});
}

static int of_one_block(program_builder *b, int numbers) {
  ((program_op *)b->p->value[numbers].maker)->blocks.count = 1;
  return numbers;
}

int program_eval_once(program_builder *b, const plan *how, const expr *const *exprs, int count) {
  return of_one_block(b, program_eval(b, how, exprs, count, NULL, 0));
}

int program_eval_once_of(program_builder *b, const expr *const *exprs, int count, const int *used, int n_used) {
  return of_one_block(b, program_eval(b, NULL, exprs, count, used, n_used));
}

int program_matrix(program_builder *b, const plan *how, program_blocks blocks, const expr *const *entries,
                   const int *used, int n_used) {
  int count = blocks.size * blocks.size;
  program_op *op = append(b, of_exprs(OP_MATRIX, how, entries, count, used, n_used));
  op->blocks = blocks;
  return make(b, op, (program_value){.kind = KIND_MATRIX, .type = type_of(entries, count), .count = blocks.size});
}

int program_skew_matrix(program_builder *b, const plan *how, program_blocks blocks, program_skew skew, int numbers) {
  program_op *op = append(b, of_exprs(OP_MATRIX, how, NULL, 0, &numbers, numbers >= 0));
  op->blocks = blocks;
  op->skew = skew;
  return make(b, op, (program_value){.kind = KIND_MATRIX, .type = NUMBER_F32, .count = blocks.size});
}

int program_product(program_builder *b, int first, int second) {
  int both[] = {first, second};
  program_op *op = append(b, of_exprs(OP_MATRIX, NULL, NULL, 0, both, 2));
  op->blocks = b->p->value[second].maker->blocks;
  op->skew.source = SOURCE_PRODUCT;
  return make(b, op, (program_value){.kind = KIND_MATRIX, .type = NUMBER_F32, .count = op->blocks.size});
}

int program_load(program_builder *b, int stream) {
  program_op *op = append(b, (program_op){.kind = OP_LOAD, .stream = stream, .array = -1});
  program_value row = {.kind = KIND_ROW, .type = NUMBER_F32, .count = b->p->stream[stream].channels};
  return make(b, op, row);
}

static program_op of_two(program_op_kind kind, int first, int second) {
  return (program_op){.kind = kind, .stream = -1, .array = -1, .n_arguments = 2, .argument = {first, second}};
}

int program_apply(program_builder *b, int matrix, int row, bool transposed) {
  program_op *op = append(b, of_two(OP_APPLY, matrix, row));
  op->transposed = transposed;
  return make(b, op, (program_value){.kind = KIND_ROW, .type = NUMBER_F32, .count = b->p->value[row].count});
}

int program_add(program_builder *b, int numbers, int row, program_blocks blocks) {
  program_op *op = append(b, of_two(OP_ADD, numbers, row));
  op->blocks = blocks;
  return make(b, op, (program_value){.kind = KIND_ROW, .type = NUMBER_F32, .count = b->p->value[row].count});
}

int program_map(program_builder *b, const plan *of, program_blocks blocks, const expr *x, const int *rows, int n_rows) {
  const expr **one = arena_array(b->memory, const expr *, 1);
  one[0] = x;
  program_op *op = append(b, of_exprs(OP_MAP, of, one, 1, rows, n_rows));
  op->blocks = blocks;
  return make(b, op, (program_value){.kind = KIND_ROW, .type = NUMBER_F32, .count = b->p->value[rows[0]].count});
}

int program_sum(program_builder *b, int numbers) {
  program_op *op = append(b, (program_op){.kind = OP_SUM, .stream = -1, .array = -1, .n_arguments = 1});
  op->argument[0] = numbers;
  op->blocks.count = 1;
  return make(b, op, (program_value){.kind = KIND_NUMBERS, .type = NUMBER_F32, .count = b->p->value[numbers].count});
}

int program_columns(program_builder *b, const plan_widen *how, int row, int numbers, int gains, const int *column,
                    int count) {
  program_op *op = append(b, of_two(OP_COLUMNS, row, numbers));
  op->argument[2] = gains;
  op->n_arguments = numbers < 0 ? 1 : gains < 0 ? 2 : 3;
  op->widen = how;
  op->column = column;
  op->n_columns = count;
  return make(b, op, (program_value){.kind = KIND_ROW, .type = NUMBER_F32, .count = b->p->value[row].count + count});
}

int program_gather(program_builder *b, int row, int gains, const int *column, int count, const expr *const *names,
                   int n_names) {
  program_op *op = append(b, of_two(OP_GATHER, row, gains));
  op->n_arguments = gains < 0 ? 1 : 2;
  op->blocks.count = 1;
  op->column = column;
  op->n_columns = count;
  op->n_exprs = n_names;
  op->expr = names;
  return make(b, op, (program_value){.kind = KIND_NUMBERS, .type = NUMBER_F32, .count = n_names});
}

int program_take(program_builder *b, int row, int channels) {
  program_op *op = append(b, (program_op){.kind = OP_TAKE, .stream = -1, .array = -1, .n_arguments = 1});
  op->argument[0] = row;
  return make(b, op, (program_value){.kind = KIND_ROW, .type = NUMBER_F32, .count = channels});
}

int program_score(program_builder *b, int query, int key, int number, bool scales_all) {
  program_op *op = append(b, of_two(OP_SCORE, query, key));
  op->argument[2] = number;
  op->n_arguments = number < 0 ? 2 : 3;
  op->scales_all = scales_all;
  op->blocks.count = 1;
  return make(b, op, (program_value){.kind = KIND_NUMBERS, .type = NUMBER_F32, .count = 1});
}

void program_name_sum(program_builder *b, int sum, const expr *const *names) {
  program_op *op = (program_op *)b->p->value[sum].maker;
  op->expr = names;
  op->n_exprs = b->p->value[sum].count;
}

void program_name_score(program_builder *b, int score, const expr *leaf) {
  program_op *op = (program_op *)b->p->value[score].maker;
  const expr **name = arena_array(b->memory, const expr *, 1);
  name[0] = leaf;
  op->expr = name;
  op->n_exprs = 1;
}

int program_attend(program_builder *b, const int *scores_and_rows, int count) {
  program_op *op = append(b, (program_op){.kind = OP_ATTEND, .stream = -1, .array = -1, .n_arguments = 2 * count});
  if (2 * count > PROGRAM_MAX_ARGUMENTS) diag_bug("program", "more than %d arguments", PROGRAM_MAX_ARGUMENTS);
  for (int i = 0; i < 2 * count; i++) op->argument[i] = scores_and_rows[i];
  int channels = b->p->value[scores_and_rows[1]].count;
  return make(b, op, (program_value){.kind = KIND_ROW, .type = NUMBER_F32, .count = channels});
}

int program_wedge(program_builder *b, const plan *of, const torque_basis *basis, program_blocks blocks,
                  const expr *const *tau, int count, int g, int y) {
  program_op wedge = of_two(OP_WEDGE, g, y);
  if (y < 0) wedge.n_arguments = 1;
  wedge.plan = of;
  program_op *op = append(b, wedge);
  op->blocks = blocks;
  op->basis = basis;
  op->n_exprs = count;
  op->expr = tau;
  return make(b, op, (program_value){.kind = KIND_NUMBERS, .type = NUMBER_F32, .count = count});
}

int program_reduce(program_builder *b, int value, unsigned over, bool over_blocks, const expr *const *names) {
  const program_value *from = &b->p->value[value];
  program_op *op =
      append(b, (program_op){.kind = OP_REDUCE, .stream = -1, .array = -1, .n_arguments = 1, .argument = {value}});
  op->blocks.count = over_blocks ? 1 : from->maker->blocks.count;
  op->over = over;
  op->over_blocks = over_blocks;
  if (program_part_of(from->maker)) op->plan = from->maker->plan;
  op->n_exprs = names ? from->count : 0;
  op->expr = names;
  number_type type = over & IN(TOKENS) ? NUMBER_F64 : from->type;
  return make(b, op, (program_value){.kind = KIND_NUMBERS, .type = type, .count = from->count});
}

static void of_one(program_builder *b, program_op_kind kind, int value, int stream, int array) {
  append(b, (program_op){.kind = kind, .stream = stream, .array = array, .n_arguments = 1, .argument = {value}});
}

void program_store(program_builder *b, int stream, int row) { of_one(b, OP_STORE, row, stream, -1); }
void program_hold(program_builder *b, int value) { of_one(b, OP_HOLD, value, -1, -1); }
void program_write(program_builder *b, int array, int value) { of_one(b, OP_WRITE, value, -1, array); }

int program_read(program_builder *b, const plan *of, int array, int blocks, const expr *const *names, int count,
                 number_type type) {
  program_op *op = append(b, (program_op){.kind = OP_READ, .stream = -1, .array = array, .plan = of});
  op->blocks.count = blocks;
  op->n_exprs = count;
  op->expr = names;
  return make(b, op, (program_value){.kind = KIND_NUMBERS, .type = type, .count = count});
}

void program_set_tabled(program_builder *b, int value) { ((program_op *)b->p->value[value].maker)->is_tabled = true; }

bool program_stream_is_kept(const program *p, int stream) {
  bool kept = !p->stream[stream].is_output;
  for (int i = 0; i < p->n_streams; i++) kept = kept && p->stream[i].replaces != stream;
  return kept;
}

const plan *program_plan(const program *p) {
  for (int v = 0; v < p->n_values; v++)
    if (p->value[v].maker->plan) return p->value[v].maker->plan;
  diag_bug("program", "'%s' computes nothing", p->entry);
}

int program_plans(const program *p, const plan **plans) {
  int count = 0;
  for (int i = 0; i < p->spec->n_parts; i++)
    for (int v = 0; v < p->n_values; v++)
      if (program_part_of(p->value[v].maker) == &p->spec->part[i]) {
        plans[count++] = p->value[v].maker->plan;
        break;
      }
  if (count == 0) plans[count++] = program_plan(p);
  return count;
}

const spec_part *program_part_of(const program_op *op) { return op->plan ? op->plan->part : NULL; }

const spec *program_spec_of(const program *p, const program_op *op) {
  const spec_part *part = program_part_of(op);
  return part ? part->of : p->spec;
}

static const program_op *find_apply(const program_op *list) {
  for (const program_op *op = list; op; op = op->next) {
    bool skipped = op->kind == OP_FOR && op->space == SPACE_TOKENS && !(op->part & PART_ENCODED);
    const program_op *found = skipped ? NULL : op->kind == OP_APPLY ? op : find_apply(op->body);
    if (found) return found;
  }
  return NULL;
}

const program_op *program_encoded_apply(const program *p) { return find_apply(p->body); }

static const program_op *find_row(const program_op *list, program_part tensor) {
  for (const program_op *op = list; op; op = op->next) {
    if (op->kind == OP_LOAD) return list;
    if (op->kind != OP_FOR || (op->space == SPACE_TENSORS && !(op->part & tensor))) continue;
    if (op->space == SPACE_TOKENS && !(op->part & PART_ENCODED)) continue;
    const program_op *found = find_row(op->body, tensor);
    if (found) return found;
  }
  return NULL;
}

const program_op *program_row_ops(const program *p, program_part tensor) { return find_row(p->body, tensor); }

const plan_widen *program_widen_plan(const program *p) {
  for (int v = 0; v < p->n_values; v++)
    if (p->value[v].maker->kind == OP_COLUMNS) return p->value[v].maker->widen;
  diag_bug("program", "'%s' has no columns", p->entry);
}

/* ---- from one program to another ---- */

program_rewrite program_begin_rewrite(arena *a, const program *from, const char *entry) {
  program_rewrite r = {.from = from, .to = program_begin(a, from->spec, entry)};
  for (int i = 0; i < from->n_streams; i++) new_stream(&r.to, from->stream[i]);
  for (int i = 0; i < from->n_arrays; i++) new_array(&r.to, from->array[i]);
  for (int i = 0; i < from->n_values; i++) r.value[i] = -1;
  return r;
}

void program_repeat(program_rewrite *r, const program_op *op) {
  if (op->kind == OP_FOR) {
    int depth = r->to.depth;
    program_for(&r->to, op->space, op->part);
    for (const program_op *inner = op->body; inner; inner = inner->next) program_repeat(r, inner);
    program_end_for(&r->to, depth);
    return;
  }
  program_op copy = *op;
  for (int i = 0; i < op->n_arguments; i++) copy.argument[i] = r->value[op->argument[i]];
  program_op *made = append(&r->to, copy);
  if (op->result >= 0) r->value[op->result] = make(&r->to, made, r->from->value[op->result]);
}
