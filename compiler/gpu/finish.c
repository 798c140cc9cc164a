/* gpu/finish: from chunks' sums to operands, from threads' shares to positions; see gpu/gradient.h.
 *
 * Every number is added up by one thread, in an order that the call's sizes alone decide. Sums are pairs of float32;
 * float64 is used where a gradient is stored as one, and nowhere else.
 */
#include "gpu/gradient.h"

#include "base/diag.h"
#include "gpu/body.h"
#include "gpu/exponential.h"
#include "gpu/index.h"
#include "mlir/two_float.h"

#include "kernel/launch.h"

enum { TOGETHER = 8 };

typedef struct finisher {
  ir *b;
  arena *memory;
  const gpu_program *program;
  const gpu_entry *entry;
  const ir_value *parameter;
  ir_value line; /* i32: the thread */
} finisher;

static int heads_of(const finisher *f) {
  return f->program->per_head || f->program->queries_differ ? f->program->spec->heads : 1;
}
/* The description that leaves are of, or one of its parts: operands are the same. */
static const spec *spec_of(const finisher *f) {
  return f->program->of ? plan_gradient_first(f->program->of)->token->spec : f->program->spec;
}
static int parts_of(const finisher *f) { return f->program->of ? f->program->of->n_parts : 0; }
/* Returns how many blocks the part has that has most. */
static int blocks_of(const finisher *f) {
  return f->program->of ? plan_gradient_blocks(f->program->of) : f->program->spec->n_blocks;
}

/* ---- numbers ---- */

/* The address of a number (i64) of an array. */
static ir_value number_at(ir *b, ir_value array, ir_value index) {
  return ir_pointer(b, add(b, array, mul(b, index, i64(b, TWO_FLOAT_BYTES))));
}

/* Sums of `count` arrays, the one after the other: from[i] the first number of each, i64, `step` numbers apart. */
static void sum_series(ir *b, int count, const ir_value *from, ir_value step, ir_value begin, ir_value end,
                       ir_value array, two_float *sum) {
  for (int i = 0; i < count; i++) sum[i] = two_float_const(b, 0);
  ir_loop loop = two_float_for(b, begin, end, count, sum);
  for (int i = 0; i < count; i++) {
    ir_value at = number_at(b, array, add(b, from[i], mul(b, loop.index, step)));
    sum[i] = two_float_add(b, sum[i], two_float_load(b, at));
  }
  two_float_end_for(b, loop, count, sum);
}

/* A sum as float32 or float64, added to what is there where parameter `adds` says so. */
static void store_sum(finisher *f, ir_value is_f64, int adds, two_float sum, ir_value address) {
  ir *b = f->b;
  ir_value at = ir_pointer(b, address), is_added = ir_compare_int(b, "ne", f->parameter[adds], i64(b, 0));
  ir_branch branch = ir_if(b, is_f64);
  for (int narrow = 0; narrow < 2; narrow++) {
    MlirType type = narrow ? b->f32 : b->f64;
    if (narrow) ir_else(b, &branch);
    ir_choice choice = ir_choose(b, is_added, 1, &type);
    ir_value old = ir_load(b, type, at, narrow ? 4 : 8), value;
    ir_choose_else(b, &choice, 1, &old);
    ir_value zero = ir_float(b, type, 0);
    ir_end_choose(b, choice, 1, &zero, &old);
    if (narrow) value = two_float_narrow(b, two_float_add(b, sum, two_float_f32(old)));
    else value = add(b, add(b, ir_cast(b, "arith.extf", sum.hi, type), ir_cast(b, "arith.extf", sum.lo, type)), old);
    ir_store(b, value, at, narrow ? 4 : 8, false);
  }
  ir_end_if(b, branch);
}

/* The next index of a line of `size`, which is left with the rest. */
static ir_value take_index(ir *b, ir_value *line, ir_value size) {
  ir_value index = ir_op2(b, "arith.remui", *line, size);
  *line = ir_op2(b, "arith.divui", *line, size);
  return index;
}

static ir_value step_by(ir *b, ir_value address, ir_value index, ir_value stride) {
  return add(b, address, mul(b, index, stride));
}

/* ---- sums of chunks ---- */

static void emit_sum(finisher *f) {
  ir *b = f->b;
  const ir_value *p = f->parameter;
  ir_value numbers = p[PEGEN_PTX_SUM_NUMBERS], chunks = p[PEGEN_PTX_SUM_CHUNKS], most = i64(b, PEGEN_PTX_SUM_MOST);
  ir_value line = wide(b, f->line), group = line, number = take_index(b, &group, numbers), begin = mul(b, group, most);
  ir_branch inside = ir_if(b, ir_compare_int(b, "ult", begin, chunks));
  two_float sum;
  sum_series(b, 1, &number, numbers, begin, smaller(b, add(b, begin, most), chunks), p[PEGEN_PTX_SUM_FROM], &sum);
  two_float_store(b, sum, number_at(b, p[PEGEN_PTX_SUM_TO], line));
  ir_end_if(b, inside);
}

/* ---- from sums to leaves ---- */

/* What the leaves of a part gain of a head's block. before: sums and leaves of the parts in front of it. */
static void scatter_part(finisher *f, int part) {
  ir *b = f->b;
  const plan_gradient *of = f->program->of->part[part];
  const spec *s = of->token->spec;
  const ir_value *p = f->parameter;
  int n = of->n_boundaries, heads = heads_of(f), blocks = blocks_of(f);
  int first_sum = plan_gradient_sums(f->program->of, part), first = plan_gradient_scatters(f->program->of, part),
      sums_of_all = plan_gradient_sums(f->program->of, parts_of(f));
  const char *name = part ? arena_printf(f->memory, "%s_part_%d", f->entry->name, part + 1) : f->entry->name;
  const thread_tile *tile = thread_tile_of_blocks(f->memory, s->n_blocks, 4, 4);
  thread_emitter e = thread_emitter_create(b, f->memory, s, tile, name);
  two_float *sums = arena_array(f->memory, two_float, n + 1);
  const expr **roots = arena_array(f->memory, const expr *, of->n_scatters + 1);
  ir_value *from = arena_array(f->memory, ir_value, n + 1);
  e.operands = p + PEGEN_PTX_SCATTER_OPERANDS;
  e.cotangents = sums;
  e.n_cotangents = n;
  e.first_cotangent = TORQUE_MOST;
  e.unit = rest(b, f->line, blocks);
  e.head = quotient(b, f->line, blocks);
  ir_branch has_block;
  if (s->n_blocks < blocks) has_block = ir_if(b, below(b, e.unit, i32(b, s->n_blocks)));
  ir_value step = i64(b, (int64_t)sums_of_all * heads * blocks);
  for (int i = 0; i < n; i++) from[i] = add(b, wide(b, f->line), i64(b, (int64_t)(first_sum + i) * heads * blocks));
  for (int i = 0; i < n; i += TOGETHER)
    sum_series(b, n - i < TOGETHER ? n - i : TOGETHER, from + i, step, i64(b, 0), p[PEGEN_PTX_SCATTER_CHUNKS],
               p[PEGEN_PTX_SCATTER_SUMS], sums + i);
  for (int i = 0; i < of->n_scatters; i++) roots[i] = of->scatter[i].gradient;
  emit_thread_operands(&e, roots, of->n_scatters);
  for (int i = 0; i < of->n_scatters; i++) {
    ir_value at = add(b, wide(b, f->line), i64(b, (int64_t)(first + i) * heads * blocks));
    two_float_store(b, emit_thread_value(&e, roots[i], 0), number_at(b, p[PEGEN_PTX_SCATTER_GAINED], at));
  }
  if (s->n_blocks < blocks) ir_end_if(b, has_block);
}

static void emit_scatter(finisher *f) {
  ir *b = f->b;
  ir_branch inside = ir_if(b, below(b, f->line, i32(b, (int64_t)heads_of(f) * blocks_of(f))));
  for (int part = 0; part < parts_of(f); part++)
    if (f->program->of->part[part]) scatter_part(f, part);
  ir_end_if(b, inside);
}

/* ---- lists: what an element gains ---- */

/* Which numbers are an element's: terms[first[e]] up to terms[first[e + 1]]. A walk over all numbers in their order is
 * made twice: elements' are counted, then they have places. */
typedef struct term_list {
  int count, n_terms; /* of elements, of all */
  int32_t *first, *terms;
  bool counts;
} term_list;
typedef void term_walk(const finisher *f, term_list *list);

static void add_term(term_list *t, int element, int term) {
  if (t->counts) t->first[element + 2]++, t->n_terms++;
  else t->terms[t->first[element + 1]++] = term;
}

static term_list list_terms(const finisher *f, int count, term_walk *walk) {
  term_list list = {.count = count, .first = arena_array(f->memory, int32_t, count + 2), .counts = true};
  walk(f, &list);
  for (int e = 0; e <= count; e++) list.first[e + 1] += list.first[e];
  list.terms = arena_array(f->memory, int32_t, list.n_terms + 1);
  list.counts = false;
  walk(f, &list);
  return list;
}

/* As tables of the entry. */
typedef struct term_tables {
  const char *first, *terms;
} term_tables;

static term_tables lay_terms(const finisher *f, const term_list *t) {
  term_tables tables = {arena_printf(f->memory, "%s_first", f->entry->name),
                        arena_printf(f->memory, "%s_terms", f->entry->name)};
  ir_table(f->b, tables.first, t->count + 1, NULL, t->first);
  ir_table(f->b, tables.terms, t->n_terms + (t->n_terms == 0), NULL, t->terms);
  return tables;
}

/* A loop over an element's (i32) terms, but for `counts` (i1): over none. */
static ir_loop each_term(finisher *f, const term_tables *tables, ir_value element, ir_value counts, two_float *sum) {
  ir *b = f->b;
  ir_value begin = table_i32(b, tables->first, element), behind = add(b, element, i32(b, 1));
  ir_value end = table_i32(b, tables->first, behind);
  if (counts.ptr) end = ir_select(b, counts, end, begin);
  return two_float_for(b, wide(b, begin), wide(b, end), 1, sum);
}

static ir_value term_of(finisher *f, const term_tables *tables, ir_loop loop) {
  return wide(f->b, table_i32(f->b, tables->terms, narrow(f->b, loop.index)));
}

/* ---- operands: their elements in one line ---- */

static bool generates(const program_op *matrix, int operand) {
  for (int k = 0; k < matrix->skew.count; k++)
    if (matrix->skew.of[k].operand == operand) return true;
  return false;
}

/* The matrix of an encode program that is made of what operands hold. */
static const program_op *learned_matrix(const program *encode) {
  for (int v = 0; v < encode->n_values; v++)
    if (encode->value[v].kind == KIND_MATRIX && encode->value[v].maker->skew.count > 0) return encode->value[v].maker;
  diag_bug("gpu/finish", "'%s' has no learned matrix", encode->entry);
}

/* Whether elements of an operand are the entry's: those that hold generators gain of matrices, and of these alone. */
static bool is_own(const finisher *f, int operand) {
  bool of_matrix = f->program->matrices && generates(learned_matrix(f->program->encode), operand);
  return of_matrix == (f->entry->kind == GPU_MATRICES);
}

static int elements_before(const finisher *f, int operand) {
  int count = 0;
  for (int i = 0; i < operand; i++)
    if (is_own(f, i)) count += (int)spec_operand_elements(&spec_of(f)->operand[i]);
  return count;
}

/* The thread's element, whose gradient is wanted. */
typedef struct gained_element {
  ir_value wanted, is_f64; /* i1 */
  ir_value at; /* i64 */
} gained_element;

/* of: address and type of each operand's gradient. */
static gained_element find_element(const finisher *f, const ir_value *of) {
  ir *b = f->b;
  ir_value address = i64(b, 0), type = address, element = wide(b, f->line);
  int all = spec_of(f)->n_operands;
  for (int i = 0; i < all; i++, of += PEGEN_PTX_OPERAND_COUNT) {
    if (!is_own(f, i)) continue;
    int before = elements_before(f, i);
    ir_value is_behind = ir_compare_int(b, "uge", f->line, i32(b, before));
    address = ir_select(b, is_behind, of[PEGEN_PTX_OPERAND_ADDRESS], address);
    type = ir_select(b, is_behind, of[PEGEN_PTX_OPERAND_TYPE], type);
    element = ir_select(b, is_behind, wide(b, sub(b, f->line, i32(b, before))), element);
  }
  ir_value is_f64 = ir_compare_int(b, "eq", type, i64(b, PEGEN_PTX_OPERAND_F64));
  ir_value bytes = ir_select(b, is_f64, i64(b, 8), i64(b, 4)), given = ir_compare_int(b, "ne", address, i64(b, 0));
  return (gained_element){.wanted = both(b, below(b, f->line, i32(b, elements_before(f, all))), given),
                          .is_f64 = is_f64,
                          .at = step_by(b, address, element, bytes)};
}

static void emit_total(finisher *f) {
  ir *b = f->b;
  const spec *s = f->program->spec;
  const ir_value *p = f->parameter;
  gained_element to = find_element(f, p + PEGEN_PTX_TOTAL_OPERANDS);
  ir_branch inside = ir_if(b, to.wanted);
  ir_value line = wide(b, f->line), first = i64(b, 0);
  two_float sum;
  sum_series(b, 1, &line, i64(b, spec_elements_before(s, s->n_operands)), first, p[PEGEN_PTX_TOTAL_CHUNKS],
             p[PEGEN_PTX_TOTAL_SUMS], &sum);
  store_sum(f, to.is_f64, PEGEN_PTX_TOTAL_ADDS, sum, to.at);
  ir_end_if(b, inside);
}

/* Numbers of the leaves of a part: head by head, blocks as on processors. */
static void walk_leaves(const finisher *f, int part, int head, term_list *list) {
  const plan_gradient *of = f->program->of->part[part];
  int own = of->leaves->spec->n_blocks;
  for (int i = 0; i < of->n_scatters; i++) {
    const expr *leaf = of->scatter[i].leaf;
    const int32_t *offset = leaf->offsets + (leaf->n_heads > 1 ? head * own : 0);
    int start = elements_before(f, leaf->index), number = plan_gradient_scatters(f->program->of, part) + i;
    for (int block = 0; block < own; block++)
      add_term(list, start + offset[block], (number * heads_of(f) + head) * blocks_of(f) + block);
  }
}

static void walk_parts(const finisher *f, term_list *list) {
  for (int head = 0; head < heads_of(f); head++)
    for (int part = 0; part < parts_of(f); part++)
      if (f->program->of->part[part]) walk_leaves(f, part, head, list);
}

static void emit_gather(finisher *f) {
  ir *b = f->b;
  term_list list = list_terms(f, elements_before(f, spec_of(f)->n_operands), walk_parts);
  term_tables tables = lay_terms(f, &list);
  gained_element to = find_element(f, f->parameter + PEGEN_PTX_GATHER_OPERANDS);
  ir_branch inside = ir_if(b, to.wanted);
  two_float sum = two_float_const(b, 0);
  ir_loop loop = each_term(f, &tables, f->line, (ir_value){NULL}, &sum);
  ir_value at = number_at(b, f->parameter[PEGEN_PTX_GATHER_GAINED], term_of(f, &tables, loop));
  sum = two_float_add(b, sum, two_float_load(b, at));
  two_float_end_for(b, loop, 1, &sum);
  store_sum(f, to.is_f64, PEGEN_PTX_GATHER_ADDS, sum, to.at);
  ir_end_if(b, inside);
}

/* ---- matrices ----
 *
 * A thread has an element of a raw matrix F and adds up the chunks' sums, in order, of every generator, head and block
 * that is made of it, above the diagonal: of F - F^T an element below it gains the opposite. */

static int matrix_elements(const finisher *f) {
  int n = learned_matrix(f->program->encode)->blocks.size;
  return n * n;
}

/* Generators, heads and blocks in one line, as sums are numbered. */
static int count_uses(const finisher *f) {
  const program_op *matrix = learned_matrix(f->program->encode);
  return matrix->skew.count * heads_of(f) * matrix->blocks.count;
}

static void walk_uses(const finisher *f, term_list *list) {
  const program_op *matrix = learned_matrix(f->program->encode);
  int blocks = matrix->blocks.count, elements = matrix_elements(f);
  for (int use = 0; use < count_uses(f); use++) {
    const spec_skew *g = &matrix->skew.of[use / (heads_of(f) * blocks)];
    int head = use / blocks % heads_of(f), block = use % blocks,
        at = elements_before(f, g->operand) + g->offset[(g->n_heads > 1 ? head * blocks : 0) + block];
    if (at % elements) diag_bug("gpu/finish", "a matrix begins inside of another");
    add_term(list, at / elements, use);
  }
}

/* i1: A of the thread's operand is F - F^T. */
static ir_value is_difference(const finisher *f) {
  ir *b = f->b;
  ir_value differs = ir_int(b, b->i1, 0);
  const program_skew *skew = &learned_matrix(f->program->encode)->skew;
  for (int i = 0; i < spec_of(f)->n_operands; i++) {
    bool own = false;
    for (int k = 0; k < skew->count; k++)
      own = own || (skew->of[k].operand == i && skew->of[k].rule == SKEW_DIFFERENCE);
    ir_value is_behind = ir_compare_int(b, "uge", f->line, i32(b, elements_before(f, i)));
    if (is_own(f, i)) differs = ir_select(b, is_behind, ir_int(b, b->i1, own), differs);
  }
  return differs;
}

static void emit_matrices(finisher *f) {
  ir *b = f->b;
  int elements = matrix_elements(f), n = learned_matrix(f->program->encode)->blocks.size, padded = team_padded(n);
  int64_t numbers = (int64_t)padded * padded;
  const ir_value *p = f->parameter;
  term_list list = list_terms(f, elements_before(f, spec_of(f)->n_operands) / elements, walk_uses);
  term_tables tables = lay_terms(f, &list);
  gained_element to = find_element(f, p + PEGEN_PTX_MATRICES_OPERANDS);
  ir_branch inside = ir_if(b, to.wanted);
  ir_value element = rest(b, f->line, elements), row = quotient(b, element, n), column = rest(b, element, n),
           upper = below(b, row, column), lower = both(b, below(b, column, row), is_difference(f));
  ir_value at = ir_select(b, upper, add(b, scaled(b, row, padded), column), add(b, scaled(b, column, padded), row));
  two_float sum = two_float_const(b, 0);
  ir_value matrix = quotient(b, f->line, elements), counts = ir_op2(b, "arith.ori", upper, lower);
  ir_loop uses = each_term(f, &tables, matrix, counts, &sum);
  ir_value first = add(b, mul(b, term_of(f, &tables, uses), i64(b, numbers)), wide(b, at));
  ir_loop chunks = two_float_for(b, i64(b, 0), p[PEGEN_PTX_MATRICES_CHUNKS], 1, &sum);
  ir_value index = step_by(b, first, chunks.index, i64(b, numbers * count_uses(f)));
  sum = two_float_add(b, sum, two_float_load(b, number_at(b, p[PEGEN_PTX_MATRICES_SUMS], index)));
  two_float_end_for(b, chunks, 1, &sum);
  two_float_end_for(b, uses, 1, &sum);
  two_float less = two_float_neg(b, sum);
  sum = f->program->spec->inverse ? two_float_select(b, upper, less, sum) : two_float_select(b, upper, sum, less);
  store_sum(f, to.is_f64, PEGEN_PTX_MATRICES_ADDS, sum, to.at);
  ir_end_if(b, inside);
}

/* ---- positions ---- */

/* `count` where shares of the token (i64) count, else 0: those of attention's prefix tokens, wherever these end, are 0.
 */
static ir_value count_gaining(const finisher *f, ir_value token, ir_value count) {
  ir *b = f->b;
  int64_t first = f->program->attention ? 0 : f->program->spec->skip_tokens;
  return ir_select(b, ir_compare_int(b, "sge", token, i64(b, first)), count, i64(b, 0));
}

static void emit_positions(finisher *f) {
  ir *b = f->b;
  const ir_value *p = f->parameter;
  int axes = f->program->spec->n_axes, numbers = f->program->inputs ? f->program->inputs->n_sums : axes;
  ir_value tokens = p[PEGEN_PTX_POSITIONS_TOKENS], count = p[PEGEN_PTX_POSITIONS_COUNT],
           batches = p[PEGEN_PTX_POSITIONS_BATCHES], set = wide(b, f->line);
  ir_value axis = take_index(b, &set, i64(b, axes)), token = take_index(b, &set, tokens);
  ir_branch inside = ir_if(b, ir_compare_int(b, "ult", set, p[PEGEN_PTX_POSITIONS_SETS]));
  two_float sum = two_float_const(b, 0), more;
  ir_value shares = count_gaining(f, token, count);
  ir_loop loop = two_float_for(b, i64(b, 0), batches, 1, &sum);
  ir_value item = add(b, mul(b, add(b, mul(b, set, batches), loop.index), tokens), token),
           from = add(b, mul(b, mul(b, item, count), i64(b, numbers)), axis), first = i64(b, 0);
  sum_series(b, 1, &from, i64(b, numbers), first, shares, p[PEGEN_PTX_POSITIONS_SHARES], &more);
  sum = two_float_add(b, sum, more);
  two_float_end_for(b, loop, 1, &sum);
  ir_value at = step_by(b, p[PEGEN_PTX_POSITIONS_OUT], set, p[PEGEN_PTX_POSITIONS_OUT_SET]);
  at = step_by(b, at, token, p[PEGEN_PTX_POSITIONS_OUT_TOKEN]);
  at = step_by(b, at, axis, p[PEGEN_PTX_POSITIONS_OUT_AXIS]);
  ir_value is_f64 = ir_compare_int(b, "eq", p[PEGEN_PTX_POSITIONS_OUT_TYPE], i64(b, PEGEN_PTX_OPERAND_F64));
  store_sum(f, is_f64, PEGEN_PTX_POSITIONS_ADDS, sum, at);
  ir_end_if(b, inside);
}

/* ---- inputs of rows, and of scores ---- */

/* Shares of a row, of elements of the rows of all inputs in one line. */
static int input_elements_before(const spec *s, int input) {
  int count = 0;
  for (int i = 0; i < input; i++) count += (int)(s->input[i].size ? s->input[i].size : 1);
  return count;
}

static void walk_shares(const finisher *f, term_list *list) {
  const plan_gradient *of = plan_gradient_first(f->program->of);
  const spec *s = spec_of(f);
  for (int i = 0; i < of->n_row_inputs[TORQUE_OF_Y]; i++) {
    const expr *leaf = of->of_row_input[TORQUE_OF_Y][i].leaf;
    int start = input_elements_before(s, leaf->index);
    for (int block = 0; block < s->n_blocks; block++)
      add_term(list, start + leaf->offsets[block], i * s->n_blocks + block);
  }
}

static term_list input_terms_of(const finisher *f) {
  const gpu_input_sums *of_scores = f->program->inputs;
  if (of_scores) return (term_list){of_scores->count, of_scores->n_terms, of_scores->first, of_scores->terms, false};
  return list_terms(f, input_elements_before(spec_of(f), spec_of(f)->n_inputs), walk_shares);
}

/* Bytes of a row's shares: float32, or numbers. */
static int64_t share_bytes(const finisher *f) {
  if (f->program->inputs) return (int64_t)f->program->inputs->n_sums * TWO_FLOAT_BYTES;
  const plan_gradient *of = plan_gradient_first(f->program->of);
  return (int64_t)of->n_row_inputs[TORQUE_OF_Y] * spec_of(f)->n_blocks * 4;
}

static two_float load_share(const finisher *f, ir_value row, ir_value term) {
  ir *b = f->b;
  if (f->program->inputs) return two_float_load(b, number_at(b, row, term));
  return two_float_f32(ir_load(b, b->f32, ir_pointer(b, step_by(b, row, term, i64(b, 4))), 4));
}

static void emit_inputs(finisher *f) {
  ir *b = f->b;
  const ir_value *p = f->parameter;
  bool of_pairs = f->entry->kind == GPU_PAIRS; /* an element's share is one number */
  term_list list = of_pairs ? (term_list){0} : input_terms_of(f);
  term_tables tables = of_pairs ? (term_tables){0} : lay_terms(f, &list);
  ir_value batch = wide(b, f->line), one = i64(b, 1), all_heads = p[PEGEN_PTX_INPUTS_OUT_HEADS],
           all_batches = p[PEGEN_PTX_INPUTS_OUT_BATCHES], tokens = p[PEGEN_PTX_INPUTS_TOKENS];
  ir_value element = take_index(b, &batch, p[PEGEN_PTX_INPUTS_SIZE]), token = take_index(b, &batch, tokens),
           head = take_index(b, &batch, all_heads);
  ir_value to = step_by(b, p[PEGEN_PTX_INPUTS_OUT], batch, p[PEGEN_PTX_INPUTS_OUT_BATCH]);
  to = step_by(b, to, token, p[PEGEN_PTX_INPUTS_OUT_TOKEN]);
  to = step_by(b, to, head, p[PEGEN_PTX_INPUTS_OUT_HEAD]);
  to = step_by(b, to, element, i64(b, 4));
  ir_branch inside = ir_if(b, ir_compare_int(b, "ult", batch, all_batches));
  /* One row for all gains of them all; tokens that are skipped, of none. */
  ir_value gaining = count_gaining(f, token, p[PEGEN_PTX_INPUTS_BATCHES]),
           is_one = ir_compare_int(b, "eq", all_batches, one);
  ir_value batches = smaller(b, ir_select(b, is_one, gaining, one), gaining),
           heads = ir_op2(b, "arith.divui", p[PEGEN_PTX_INPUTS_HEADS], all_heads);
  two_float sum = two_float_const(b, 0);
  ir_loop rows = two_float_for(b, i64(b, 0), mul(b, batches, heads), 1, &sum);
  ir_value of_batch = rows.index, of_head = add(b, mul(b, head, heads), take_index(b, &of_batch, heads)),
           item = add(b, mul(b, add(b, batch, of_batch), tokens), token),
           row = add(b, mul(b, item, p[PEGEN_PTX_INPUTS_HEADS]), of_head),
           bytes = of_pairs ? mul(b, p[PEGEN_PTX_INPUTS_FIRST], i64(b, 4)) : i64(b, share_bytes(f)),
           at = step_by(b, p[PEGEN_PTX_INPUTS_SHARES], row, bytes);
  if (of_pairs) {
    ir_value share = ir_load(b, b->f32, ir_pointer(b, step_by(b, at, element, i64(b, 4))), 4);
    sum = two_float_add(b, sum, two_float_f32(share));
  } else {
    ir_value line = narrow(b, add(b, element, p[PEGEN_PTX_INPUTS_FIRST]));
    ir_loop terms = each_term(f, &tables, line, (ir_value){NULL}, &sum);
    sum = two_float_add(b, sum, load_share(f, at, term_of(f, &tables, terms)));
    two_float_end_for(b, terms, 1, &sum);
  }
  two_float_end_for(b, rows, 1, &sum);
  store_sum(f, ir_int(b, b->i1, 0), PEGEN_PTX_INPUTS_ADDS, sum, to);
  ir_end_if(b, inside);
}

/* ---- entries ---- */

/* has_operands: parameters of operands, or of their gradients, follow. */
static const struct finishing {
  void (*emit)(finisher *f);
  const char *word; /* of encode's gradients */
  int parameters;
  bool has_operands;
} finishings[] = {
    [GPU_SUM] = {emit_sum, PEGEN_PTX_WORD_SUM, PEGEN_PTX_SUM_COUNT, false},
    [GPU_MATRICES] = {emit_matrices, PEGEN_PTX_WORD_MATRICES, PEGEN_PTX_MATRICES_OPERANDS, true},
    [GPU_SCATTER] = {emit_scatter, PEGEN_PTX_WORD_SCATTER, PEGEN_PTX_SCATTER_OPERANDS, true},
    [GPU_GATHER] = {emit_gather, PEGEN_PTX_WORD_GATHER, PEGEN_PTX_GATHER_OPERANDS, true},
    [GPU_POSITIONS] = {emit_positions, PEGEN_PTX_WORD_POSITIONS, PEGEN_PTX_POSITIONS_PARAMETERS, false},
    [GPU_INPUTS] = {emit_inputs, PEGEN_PTX_WORD_INPUTS, PEGEN_PTX_INPUTS_PARAMETERS, false},
    [GPU_PAIRS] = {emit_inputs, NULL, PEGEN_PTX_INPUTS_PARAMETERS, false},
    [GPU_TOTAL] = {emit_total, NULL, PEGEN_PTX_TOTAL_OPERANDS, true},
};

static void emit(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  const struct finishing *of = &finishings[entry->kind];
  int operands = of->has_operands ? program->spec->n_operands * PEGEN_PTX_OPERAND_COUNT : 0;
  gpu_function function = gpu_open_function(b, a, entry->name, of->parameters + operands, 0, host);
  finisher f = {.b = b, .memory = a, .program = program, .entry = entry, .parameter = function.parameter};
  (void)native;
  f.line = add(b, scaled(b, function.block, PEGEN_PTX_BLOCK), function.thread);
  of->emit(&f);
  ir_return(b);
}

gpu_entry gpu_finish_entry(arena *a, const spec *s, pegen_launch_entry of, gpu_entry_kind kind, const char *word) {
  return (gpu_entry){
      .name = arena_printf(a, "%s_%s", s->name, word), .of = of, .word = word, .kind = kind, .emit = emit};
}

void gpu_add_finishing(arena *a, gpu_program *program) {
  const plan_gradient_row *of = program->of;
  const gpu_matrices *matrices = program->matrices;
  const plan *rows = program->rows.of[0];
  bool has_sums = of && plan_gradient_sums(of, of->n_parts), gathers = has_sums && !matrices;
  for (int i = 0; matrices && i < program->spec->n_operands; i++)
    gathers = gathers || !generates(learned_matrix(program->encode), i);
  const bool wanted[] = {
      [GPU_SUM] = has_sums || matrices,
      [GPU_MATRICES] = matrices,
      [GPU_SCATTER] = has_sums,
      [GPU_GATHER] = gathers,
      [GPU_POSITIONS] = program->has_columns || (of && plan_gradient_has_positions(of)),
      [GPU_INPUTS] = rows && rows->of_rows,
  };
  for (int kind = GPU_SUM; kind <= GPU_INPUTS; kind++)
    if (wanted[kind])
      program->entry[program->n_entries++] = gpu_finish_entry(a, program->spec, PEGEN_LAUNCH_encode_backward_finish,
                                                              (gpu_entry_kind)kind, finishings[kind].word);
}

void gpu_keep_matrices(arena *a, gpu_program *program, int thread_bytes) {
  const spec *s = program->spec;
  const program_op *matrix = learned_matrix(program->encode);
  gpu_matrices *m = arena_new(a, gpu_matrices);
  int padded = team_padded(matrix->blocks.size), heads = program->per_head ? s->heads : 1;
  m->numbers = matrix->skew.count * heads * matrix->blocks.count * padded * padded;
  m->thread_bytes = thread_bytes;
  for (int i = 0; i < s->n_operands; i++)
    if (generates(matrix, i)) m->elements += (int)spec_operand_elements(&s->operand[i]);
  program->matrices = m;
}
