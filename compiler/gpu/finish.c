/* gpu/finish: from chunks' sums to operands, from threads' shares to positions; see gpu/gradient.h.
 *
 * Every number is added up by one thread, in an order that the call's sizes alone decide. Sums are pairs of float32;
 * float64 is used where a gradient is stored as one, and nowhere else.
 */
#include "gpu/finish.h"
#include "base/diag.h"
#include "gpu/body.h"
#include "gpu/gradient.h"
#include "gpu/index.h"

#include "kernel/launch.h"

enum { TOGETHER = 8 };

static int heads_of(const finisher *f) {
  return f->program->per_head || f->program->queries_differ ? f->program->spec->heads : 1;
}
/* The description that leaves are of, or one of its parts: operands are the same. */
static const spec *spec_of(const finisher *f) {
  return f->program->of ? plan_gradient_first(f->program->of)->token->spec : f->program->spec;
}
static int parts_of(const finisher *f) { return f->program->of ? f->program->of->n_parts : 0; }
/* Of the part that has most. */
static int blocks_of(const finisher *f) {
  return f->program->of ? plan_gradient_blocks(f->program->of) : f->program->spec->n_blocks;
}

/* Sums of `count` arrays, the one after the other: from[i] the first number of each, i64, `step` numbers apart. */
static void sum_series(ir *b, int count, const ir_value *from, ir_value step, ir_value begin, ir_value end,
                       ir_value array, two_float *out) {
  ir_value values[2 * TOGETHER];
  for (int i = 0; i < 2 * count; i++) values[i] = ir_float(b, b->f32, 0);
  ir_loop loop = ir_for_with(b, begin, end, 2 * count, values, values);
  for (int i = 0; i < count; i++) {
    two_float x = two_float_load(b, finish_number_at(b, array, add(b, from[i], mul(b, loop.index, step))));
    two_float old = {.hi = values[2 * i], .lo = values[2 * i + 1]}, sum = two_float_add(b, old, x);
    values[2 * i] = sum.hi;
    values[2 * i + 1] = sum.lo;
  }
  ir_end_for_with(b, loop, 2 * count, values, values);
  for (int i = 0; i < count; i++) out[i] = (two_float){.hi = values[2 * i], .lo = values[2 * i + 1]};
}

/* ---- sums of chunks ---- */

static void emit_sum(finisher *f, bool host) {
  ir *b = f->b;
  finish_open(f, PEGEN_PTX_SUM_COUNT, host);
  const ir_value *p = f->parameter;
  ir_value numbers = p[PEGEN_PTX_SUM_NUMBERS], chunks = p[PEGEN_PTX_SUM_CHUNKS], most = i64(b, PEGEN_PTX_SUM_MOST);
  ir_value line = wide(b, f->line), group = ir_op2(b, "arith.divui", line, numbers),
           number = ir_op2(b, "arith.remui", line, numbers), begin = mul(b, group, most);
  ir_branch inside = ir_if(b, ir_compare_int(b, "ult", begin, chunks));
  two_float sum;
  sum_series(b, 1, &number, numbers, begin, smaller(b, add(b, begin, most), chunks), p[PEGEN_PTX_SUM_FROM], &sum);
  two_float_store(b, sum, finish_number_at(b, p[PEGEN_PTX_SUM_TO], line));
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
    two_float_store(b, emit_thread_value(&e, roots[i], 0), finish_number_at(b, p[PEGEN_PTX_SCATTER_GAINED], at));
  }
  if (s->n_blocks < blocks) ir_end_if(b, has_block);
}

static void emit_scatter(finisher *f, bool host) {
  ir *b = f->b;
  finish_open(f, PEGEN_PTX_SCATTER_OPERANDS + f->program->spec->n_operands * PEGEN_PTX_OPERAND_COUNT, host);
  ir_branch inside = ir_if(b, below(b, f->line, i32(b, (int64_t)heads_of(f) * blocks_of(f))));
  for (int part = 0; part < parts_of(f); part++)
    if (f->program->of->part[part]) scatter_part(f, part);
  ir_end_if(b, inside);
}

/* ---- what an element gains ---- */

/* Which of the numbers that leaves gain are an element's: terms[first[e]] up to terms[first[e + 1]]. */
typedef struct element_terms {
  int count, n_terms; /* of elements, of all */
  int32_t *first, *terms;
} element_terms;

/* A walk over all numbers in their order is made twice: elements' are counted, then they have places. */
typedef struct term_list {
  element_terms of;
  bool counts;
} term_list;
typedef void term_walk(const finisher *f, term_list *list);

static void add_term(term_list *list, int element, int term) {
  element_terms *t = &list->of;
  if (list->counts) t->first[element + 2]++, t->n_terms++;
  else t->terms[t->first[element + 1]++] = term;
}

static element_terms list_terms(const finisher *f, int count, term_walk *walk) {
  term_list list = {.of = {.count = count, .first = arena_array(f->memory, int32_t, count + 2)}, .counts = true};
  walk(f, &list);
  for (int e = 0; e <= count; e++) list.of.first[e + 1] += list.of.first[e];
  list.of.terms = arena_array(f->memory, int32_t, list.of.n_terms + 1);
  list.counts = false;
  walk(f, &list);
  return list.of;
}

/* As tables of the entry. */
typedef struct term_tables {
  const char *first, *terms;
} term_tables;

static term_tables lay_terms(const finisher *f, const element_terms *t) {
  term_tables tables = {arena_printf(f->memory, "%s_first", f->entry->name),
                        arena_printf(f->memory, "%s_terms", f->entry->name)};
  ir_table(f->b, tables.first, t->count + 1, NULL, t->first);
  ir_table(f->b, tables.terms, t->n_terms + (t->n_terms == 0), NULL, t->terms);
  return tables;
}

/* Those that hold generators gain of matrices (finish_matrices). */
static bool is_gathered(const finisher *f, int operand) {
  return !f->program->matrices || !gpu_generates(gpu_learned_matrix(f->program->encode), operand);
}

/* Of all gathered operands in one line. */
static int gathered_before(const finisher *f, int operand) {
  int count = 0;
  for (int i = 0; i < operand; i++)
    if (is_gathered(f, i)) count += (int)spec_operand_elements(&spec_of(f)->operand[i]);
  return count;
}

/* Numbers of the leaves of a part: head by head, blocks as on processors. */
static void walk_leaves(const finisher *f, int part, int head, term_list *list) {
  const plan_gradient *of = f->program->of->part[part];
  int own = of->leaves->spec->n_blocks;
  for (int i = 0; i < of->n_scatters; i++) {
    const expr *leaf = of->scatter[i].leaf;
    const int32_t *offset = leaf->offsets + (leaf->n_heads > 1 ? head * own : 0);
    int start = gathered_before(f, leaf->index), number = plan_gradient_scatters(f->program->of, part) + i;
    for (int block = 0; block < own; block++)
      add_term(list, start + offset[block], (number * heads_of(f) + head) * blocks_of(f) + block);
  }
}

static void walk_parts(const finisher *f, term_list *list) {
  for (int head = 0; head < heads_of(f); head++)
    for (int part = 0; part < parts_of(f); part++)
      if (f->program->of->part[part]) walk_leaves(f, part, head, list);
}

static ir_value table_element(ir *b, const char *name, ir_value index) {
  return ir_load(b, b->i32, ir_offset(b, ir_table_address(b, name), mul(b, index, i64(b, 4))), 4);
}

/* The thread's element, of all gathered operands' in one line; of: address and type of each of their gradients. */
typedef struct gained_element {
  ir_value wanted, is_f64; /* i1 */
  ir_value at; /* i64 */
} gained_element;

static gained_element find_element(const finisher *f, const spec *s, const ir_value *of) {
  ir *b = f->b;
  ir_value address = i64(b, 0), type = address, element = wide(b, f->line);
  int count = 0;
  for (int i = 0; i < s->n_operands; i++, of += PEGEN_PTX_OPERAND_COUNT) {
    if (!is_gathered(f, i)) continue;
    if (count) {
      ir_value behind = ir_compare_int(b, "uge", f->line, i32(b, count));
      address = ir_select(b, behind, of[PEGEN_PTX_OPERAND_ADDRESS], address);
      type = ir_select(b, behind, of[PEGEN_PTX_OPERAND_TYPE], type);
      element = ir_select(b, behind, wide(b, sub(b, f->line, i32(b, count))), element);
    } else {
      address = of[PEGEN_PTX_OPERAND_ADDRESS];
      type = of[PEGEN_PTX_OPERAND_TYPE];
    }
    count += (int)spec_operand_elements(&s->operand[i]);
  }
  ir_value is_f64 = ir_compare_int(b, "eq", type, i64(b, PEGEN_PTX_OPERAND_F64));
  ir_value bytes = ir_select(b, is_f64, i64(b, 8), i64(b, 4));
  return (gained_element){.wanted =
                              both(b, below(b, f->line, i32(b, count)), ir_compare_int(b, "ne", address, i64(b, 0))),
                          .is_f64 = is_f64,
                          .at = add(b, address, mul(b, element, bytes))};
}

static void emit_total(finisher *f, bool host) {
  ir *b = f->b;
  const spec *s = f->program->spec;
  finish_open(f, PEGEN_PTX_TOTAL_OPERANDS + s->n_operands * PEGEN_PTX_OPERAND_COUNT, host);
  const ir_value *p = f->parameter;
  gained_element to = find_element(f, s, p + PEGEN_PTX_TOTAL_OPERANDS);
  ir_branch inside = ir_if(b, to.wanted);
  ir_value line = wide(b, f->line);
  two_float sum;
  ir_value first = i64(b, 0);
  sum_series(b, 1, &line, i64(b, spec_elements_before(s, s->n_operands)), first, p[PEGEN_PTX_TOTAL_CHUNKS],
             p[PEGEN_PTX_TOTAL_SUMS], &sum);
  ir_value at = ir_pointer(b, to.at);
  finish_store(b, to.is_f64, ir_compare_int(b, "ne", p[PEGEN_PTX_TOTAL_ADDS], i64(b, 0)), sum, at);
  ir_end_if(b, inside);
}

static void emit_gather(finisher *f, bool host) {
  ir *b = f->b;
  const spec *s = spec_of(f);
  element_terms terms = list_terms(f, gathered_before(f, s->n_operands), walk_parts);
  finish_open(f, PEGEN_PTX_GATHER_OPERANDS + s->n_operands * PEGEN_PTX_OPERAND_COUNT, host);
  term_tables tables = lay_terms(f, &terms);
  const ir_value *p = f->parameter;
  gained_element to = find_element(f, s, p + PEGEN_PTX_GATHER_OPERANDS);
  ir_branch inside = ir_if(b, to.wanted);
  ir_value line = wide(b, f->line), begin = table_element(b, tables.first, line),
           end = table_element(b, tables.first, add(b, line, i64(b, 1)));
  ir_value values[2] = {ir_float(b, b->f32, 0), ir_float(b, b->f32, 0)};
  ir_loop loop = ir_for_with(b, wide(b, begin), wide(b, end), 2, values, values);
  ir_value at = wide(b, table_element(b, tables.terms, loop.index));
  two_float old = {.hi = values[0], .lo = values[1]};
  two_float sum = two_float_add(b, old, two_float_load(b, finish_number_at(b, p[PEGEN_PTX_GATHER_GAINED], at)));
  ir_end_for_with(b, loop, 2, (ir_value[]){sum.hi, sum.lo}, values);
  ir_value element = ir_pointer(b, to.at);
  finish_store(b, to.is_f64, ir_compare_int(b, "ne", p[PEGEN_PTX_GATHER_ADDS], i64(b, 0)),
               (two_float){.hi = values[0], .lo = values[1]}, element);
  ir_end_if(b, inside);
}

/* ---- positions ---- */

/* The first token whose shares count: those of attention's prefix tokens, wherever these end, are 0. */
static int64_t first_turned(const finisher *f) { return f->program->attention ? 0 : f->program->spec->skip_tokens; }

static void emit_positions(finisher *f, bool host) {
  ir *b = f->b;
  int axes = f->program->spec->n_axes, numbers = f->program->inputs ? f->program->inputs->n_sums : axes;
  finish_open(f, PEGEN_PTX_POSITIONS_PARAMETERS, host);
  const ir_value *p = f->parameter;
  ir_value tokens = p[PEGEN_PTX_POSITIONS_TOKENS], count = p[PEGEN_PTX_POSITIONS_COUNT],
           batches = p[PEGEN_PTX_POSITIONS_BATCHES], line = wide(b, f->line), of_axes = i64(b, axes);
  ir_value axis = ir_op2(b, "arith.remui", line, of_axes), place = ir_op2(b, "arith.divui", line, of_axes),
           token = ir_op2(b, "arith.remui", place, tokens), set = ir_op2(b, "arith.divui", place, tokens);
  ir_branch inside = ir_if(b, ir_compare_int(b, "ult", set, p[PEGEN_PTX_POSITIONS_SETS]));
  ir_value is_turned = ir_compare_int(b, "sge", token, i64(b, first_turned(f)));
  ir_value shares = ir_select(b, is_turned, count, i64(b, 0)),
           values[2] = {ir_float(b, b->f32, 0), ir_float(b, b->f32, 0)};
  ir_loop loop = ir_for_with(b, i64(b, 0), batches, 2, values, values);
  ir_value item = add(b, mul(b, add(b, mul(b, set, batches), loop.index), tokens), token),
           from = add(b, mul(b, mul(b, item, count), i64(b, numbers)), axis), first = i64(b, 0);
  two_float sum, old = {.hi = values[0], .lo = values[1]};
  sum_series(b, 1, &from, i64(b, numbers), first, shares, p[PEGEN_PTX_POSITIONS_SHARES], &sum);
  sum = two_float_add(b, old, sum);
  ir_end_for_with(b, loop, 2, (ir_value[]){sum.hi, sum.lo}, values);
  ir_value at = add(b, p[PEGEN_PTX_POSITIONS_OUT], mul(b, set, p[PEGEN_PTX_POSITIONS_OUT_SET]));
  at = add(b, at, mul(b, token, p[PEGEN_PTX_POSITIONS_OUT_TOKEN]));
  at = add(b, at, mul(b, axis, p[PEGEN_PTX_POSITIONS_OUT_AXIS]));
  at = ir_pointer(b, at);
  ir_value adds = ir_compare_int(b, "ne", p[PEGEN_PTX_POSITIONS_ADDS], i64(b, 0));
  ir_value is_f64 = ir_compare_int(b, "eq", p[PEGEN_PTX_POSITIONS_OUT_TYPE], i64(b, PEGEN_PTX_OPERAND_F64));
  finish_store(b, is_f64, adds, (two_float){.hi = values[0], .lo = values[1]}, at);
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

static element_terms input_terms_of(const finisher *f) {
  const gpu_input_sums *of_scores = f->program->inputs;
  if (of_scores) return (element_terms){of_scores->count, of_scores->n_terms, of_scores->first, of_scores->terms};
  return list_terms(f, input_elements_before(spec_of(f), spec_of(f)->n_inputs), walk_shares);
}

/* Where the thread's element is, and which rows it gains of: all of i64. */
typedef struct input_element {
  ir_value element, token, first_batch, batches, first_head, heads;
  ir_value at;     /* its address */
  ir_value exists; /* i1 */
} input_element;

/* The next index of a line of `size`, which is left with the rest. */
static ir_value take_index(ir *b, ir_value *line, ir_value size) {
  ir_value index = ir_op2(b, "arith.remui", *line, size);
  *line = ir_op2(b, "arith.divui", *line, size);
  return index;
}

static input_element find_input_element(const finisher *f) {
  ir *b = f->b;
  const ir_value *p = f->parameter;
  ir_value line = wide(b, f->line), one = i64(b, 1), all_batches = p[PEGEN_PTX_INPUTS_OUT_BATCHES],
           all_heads = p[PEGEN_PTX_INPUTS_OUT_HEADS];
  input_element e = {.element = take_index(b, &line, p[PEGEN_PTX_INPUTS_SIZE])};
  e.token = take_index(b, &line, p[PEGEN_PTX_INPUTS_TOKENS]);
  e.first_head = take_index(b, &line, all_heads);
  e.first_batch = line;
  e.exists = ir_compare_int(b, "ult", line, all_batches);
  e.at = add(b, p[PEGEN_PTX_INPUTS_OUT], mul(b, e.first_batch, p[PEGEN_PTX_INPUTS_OUT_BATCH]));
  e.at = add(b, e.at, mul(b, e.token, p[PEGEN_PTX_INPUTS_OUT_TOKEN]));
  e.at = add(b, e.at, mul(b, e.first_head, p[PEGEN_PTX_INPUTS_OUT_HEAD]));
  e.at = add(b, e.at, mul(b, e.element, i64(b, 4)));
  /* One row for all gains of them all; tokens that are skipped, of none. */
  ir_value is_turned = ir_compare_int(b, "sge", e.token, i64(b, first_turned(f)));
  ir_value gaining = ir_select(b, is_turned, p[PEGEN_PTX_INPUTS_BATCHES], i64(b, 0));
  e.batches = smaller(b, ir_select(b, ir_compare_int(b, "eq", all_batches, one), gaining, one), gaining);
  e.heads = ir_op2(b, "arith.divui", p[PEGEN_PTX_INPUTS_HEADS], all_heads);
  return e;
}

/* Bytes of a row's shares: float32, or numbers. */
static int64_t share_bytes(const finisher *f) {
  if (f->program->inputs) return (int64_t)f->program->inputs->n_sums * TWO_FLOAT_BYTES;
  const plan_gradient *of = plan_gradient_first(f->program->of);
  return (int64_t)of->n_row_inputs[TORQUE_OF_Y] * spec_of(f)->n_blocks * 4;
}

static two_float load_share(const finisher *f, ir_value row, ir_value term) {
  ir *b = f->b;
  if (f->program->inputs) return two_float_load(b, finish_number_at(b, row, term));
  return two_float_f32(ir_load(b, b->f32, ir_pointer(b, add(b, row, mul(b, term, i64(b, 4)))), 4));
}

/* The sum of an element's shares over the rows that it gains of. */
static two_float sum_input_shares(const finisher *f, const input_element *e, const term_tables *tables) {
  ir *b = f->b;
  const ir_value *p = f->parameter;
  ir_value zero = ir_float(b, b->f32, 0), values[2] = {zero, zero}, inner[2], line, begin, end;
  line = add(b, e->element, p[PEGEN_PTX_INPUTS_FIRST]);
  begin = wide(b, table_element(b, tables->first, line));
  end = wide(b, table_element(b, tables->first, add(b, line, i64(b, 1))));
  ir_loop rows = ir_for_with(b, i64(b, 0), mul(b, e->batches, e->heads), 2, values, values);
  ir_value batch = add(b, e->first_batch, ir_op2(b, "arith.divui", rows.index, e->heads)),
           head = add(b, mul(b, e->first_head, e->heads), ir_op2(b, "arith.remui", rows.index, e->heads)),
           item = add(b, mul(b, batch, p[PEGEN_PTX_INPUTS_TOKENS]), e->token),
           row = add(b, mul(b, item, p[PEGEN_PTX_INPUTS_HEADS]), head),
           at = add(b, p[PEGEN_PTX_INPUTS_SHARES], mul(b, row, i64(b, share_bytes(f))));
  ir_loop of_row = ir_for_with(b, begin, end, 2, values, inner);
  ir_value term = wide(b, table_element(b, tables->terms, of_row.index));
  two_float old = {.hi = inner[0], .lo = inner[1]}, sum = two_float_add(b, old, load_share(f, at, term));
  ir_end_for_with(b, of_row, 2, (ir_value[]){sum.hi, sum.lo}, inner);
  ir_end_for_with(b, rows, 2, inner, values);
  return (two_float){.hi = values[0], .lo = values[1]};
}

static void emit_inputs(finisher *f, bool host) {
  ir *b = f->b;
  element_terms terms = input_terms_of(f);
  finish_open(f, PEGEN_PTX_INPUTS_PARAMETERS, host);
  term_tables tables = lay_terms(f, &terms);
  input_element e = find_input_element(f);
  ir_branch inside = ir_if(b, e.exists);
  two_float sum = sum_input_shares(f, &e, &tables);
  ir_value adds = ir_compare_int(b, "ne", f->parameter[PEGEN_PTX_INPUTS_ADDS], i64(b, 0)), at = ir_pointer(b, e.at);
  finish_store(b, ir_int(b, b->i1, 0), adds, sum, at);
  ir_end_if(b, inside);
}

void gpu_emit_finish(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, bool host) {
  finisher f = {.b = b, .memory = a, .program = program, .entry = entry};
  switch (entry->kind) {
  case GPU_SUM: emit_sum(&f, host); break;
  case GPU_SCATTER: emit_scatter(&f, host); break;
  case GPU_GATHER: emit_gather(&f, host); break;
  case GPU_POSITIONS: emit_positions(&f, host); break;
  case GPU_INPUTS: emit_inputs(&f, host); break;
  case GPU_TOTAL: emit_total(&f, host); break;
  case GPU_MATRICES: finish_matrices(&f, host); break;
  default: diag_bug("gpu/finish", "'%s' finishes nothing", entry->name);
  }
  ir_return(b);
}
