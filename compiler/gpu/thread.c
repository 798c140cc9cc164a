/* gpu/thread: the leaves of a thread's expressions; see gpu/thread.h. */
#include "gpu/thread.h"

#include "base/diag.h"
#include "gpu/index.h"
#include "mlir/math.h"
#include "mlir/number.h"

#include "kernel/launch.h"

#include <string.h>

static int slots_of(const thread_tile *t) { return t->n_blocks > 0 ? t->n_blocks : 1; }

static int memo_count(const thread_emitter *e) { return expr_pool_count(e->spec->pool) * slots_of(e->t) + 1; }

static bool leaf(expr_walker *w, const expr *x, bool is_f32, two_float *value);

thread_emitter thread_emitter_create(ir *b, arena *a, const spec *s, const thread_tile *t, const char *prefix) {
  int nodes = expr_pool_count(s->pool) + 1;
  thread_emitter e = {.walker = {.context = {b, true},
                                 .machine = &expr_of_threads,
                                 .varies = DEPENDS_BLOCK,
                                 .stride = slots_of(t),
                                 .turned = arena_array(a, signed char, nodes),
                                 .leaf = leaf,
                                 .memory = a},
                      .b = b,
                      .memory = a,
                      .spec = s,
                      .t = t,
                      .prefix = prefix};
  e.memo = arena_array(a, two_float, memo_count(&e));
  e.positions = arena_array(a, two_float, SPEC_MAX_PLACES);
  e.has_table = arena_array(a, bool, nodes);
  return e;
}

two_float *emit_thread_remember(thread_emitter *e) {
  two_float *before = e->memo;
  e->memo = arena_array(e->memory, two_float, memo_count(e));
  memcpy(e->memo, before, sizeof *before * (size_t)memo_count(e));
  return before;
}

void emit_thread_forget(thread_emitter *e, two_float *remembered) { e->memo = remembered; }

/* ---- tables ---- */

static const char *next_table(thread_emitter *e) {
  return arena_printf(e->memory, "%s_table_%d", e->prefix, e->n_tables++);
}

/* Address of element index * bytes of a table. */
static ir_value table_at(thread_emitter *e, const char *name, ir_value index, int bytes) {
  ir *b = e->b;
  return ir_offset(b, ir_table_address(b, name), wide(b, mul(b, index, i32(b, bytes))));
}

static bool is_line(const int *values, int count, int *start, int *step) {
  int first = -1, second = -1;
  for (int u = 0; u < count; u++) {
    if (values[u] < 0) continue;
    if (first < 0) first = u;
    else if (second < 0) second = u;
  }
  *start = *step = 0;
  if (first < 0) return true;
  if (second >= 0) {
    if ((values[second] - values[first]) % (second - first)) return false;
    *step = (values[second] - values[first]) / (second - first);
  }
  *start = values[first] - *step * first;
  for (int u = 0; u < count; u++)
    if (values[u] >= 0 && values[u] != *start + *step * u) return false;
  return true;
}

ir_value emit_thread_index(thread_emitter *e, const int *values) {
  ir *b = e->b;
  int units = e->t->n_units, start, step;
  if (is_line(values, units, &start, &step)) {
    if (step == 0) return i32(b, start);
    return add(b, mul(b, e->unit, i32(b, step)), i32(b, start));
  }
  int32_t *integers = arena_array(e->memory, int32_t, units);
  for (int u = 0; u < units; u++) integers[u] = values[u] < 0 ? 0 : values[u];
  const char *name = next_table(e);
  ir_table(b, name, units, NULL, integers);
  return ir_load(b, b->i32, table_at(e, name, e->unit, 4), 4);
}

ir_value emit_thread_present(thread_emitter *e, const int *values) {
  ir *b = e->b;
  int units = e->t->n_units, present = 0, front = 0;
  for (int u = 0; u < units; u++) present += values[u] >= 0;
  while (front < units && values[front] >= 0) front++;
  if (present == units) return (ir_value){NULL};
  if (front == present) return ir_compare_int(b, "ult", e->unit, i32(b, front));
  int *flags = arena_array(e->memory, int, units);
  for (int u = 0; u < units; u++) flags[u] = values[u] >= 0;
  return ir_compare_int(b, "ne", emit_thread_index(e, flags), i32(b, 0));
}

/* ---- leaves ---- */

/* Rows of leaves' tables: the description's blocks, or one where it has none. */
static int blocks_of(const thread_emitter *e) { return expr_pool_blocks(e->spec->pool); }

static bool of_block(const expr *x) { return x->depends & DEPENDS_BLOCK; }

/* Block of the template's slot in a unit; an absent one reads what another has. */
static int block_of(const thread_emitter *e, int slot, int u) {
  int block = e->t->block_at[slot * e->t->n_units + u];
  return block < 0 ? blocks_of(e) - 1 : block;
}

/* Index of a leaf's element in a table [n_heads][slots][units], or [n_heads] where blocks agree. */
static ir_value leaf_index(thread_emitter *e, const expr *x, int slot) {
  ir *b = e->b;
  int slots = of_block(x) ? e->t->n_blocks : 1, units = of_block(x) ? e->t->n_units : 1;
  ir_value index = of_block(x) ? add(b, e->unit, i32(b, (int64_t)slot * units)) : i32(b, 0);
  if (x->n_heads == 1) return index;
  return add(b, mul(b, e->head, i32(b, (int64_t)slots * units)), index);
}

/* Calls for every element of that table in order. */
#define EACH_ELEMENT(e, x, head, slot, unit) \
  for (int head = 0; head < (x)->n_heads; head++) \
    for (int slot = 0; slot < (of_block(x) ? (e)->t->n_blocks : 1); slot++) \
      for (int unit = 0; unit < (of_block(x) ? (e)->t->n_units : 1); unit++)

static int element_count(const thread_emitter *e, const expr *x) {
  return x->n_heads * (of_block(x) ? e->t->n_blocks * e->t->n_units : 1);
}

/* The leaf's table is one for all slots: made when the first asks. */
static const char *leaf_table(thread_emitter *e, const expr *x, int count, const float *values,
                              const int32_t *integers) {
  const char *name = arena_printf(e->memory, "%s_leaf_%d", e->prefix, x->id);
  if (!e->has_table[x->id]) ir_table(e->b, name, count, values, integers);
  e->has_table[x->id] = true;
  return name;
}

static two_float constants(thread_emitter *e, const expr *x, int slot) {
  ir *b = e->b;
  int count = element_count(e, x), i = 0;
  float *values = arena_array(e->memory, float, 2 * count), *high = arena_array(e->memory, float, count);
  bool single = true;
  EACH_ELEMENT(e, x, head, s, unit) {
    double value = x->table[head * blocks_of(e) + (of_block(x) ? block_of(e, s, unit) : 0)];
    two_float_split(value, &values[2 * i], &values[2 * i + 1]);
    high[i] = values[2 * i];
    single = single && values[2 * i + 1] == 0;
    i++;
  }
  const char *name = leaf_table(e, x, single ? count : 2 * count, single ? high : values, NULL);
  ir_value at = table_at(e, name, leaf_index(e, x, slot), single ? 4 : 8);
  if (single) return two_float_f32(ir_load(b, b->f32, at, 4));
  return two_float_load(b, at);
}

/* Offset of an operand's element. Over units and heads it is a plane as a rule. */
static ir_value operand_offset(thread_emitter *e, const expr *x, int slot) {
  ir *b = e->b;
  int n = blocks_of(e), units = e->t->n_units, start, step, i = 0;
  int head_step = x->n_heads > 1 ? x->offsets[n] - x->offsets[0] : 0;
  const int *blocks = e->t->block_at + slot * units;
  int *of_unit = arena_array(e->memory, int, units);
  bool regular = true;
  for (int u = 0; u < units; u++)
    of_unit[u] = !of_block(x) ? x->offsets[0] : blocks[u] < 0 ? -1 : x->offsets[blocks[u]];
  for (int h = 0; h < x->n_heads; h++)
    for (int g = 0; g < n; g++) regular = regular && x->offsets[h * n + g] == x->offsets[g] + h * head_step;
  if (!regular || !is_line(of_unit, units, &start, &step)) {
    int32_t *integers = arena_array(e->memory, int32_t, element_count(e, x));
    EACH_ELEMENT(e, x, head, s, unit) integers[i++] = x->offsets[head * n + (of_block(x) ? block_of(e, s, unit) : 0)];
    const char *name = leaf_table(e, x, i, NULL, integers);
    return ir_load(b, b->i32, table_at(e, name, leaf_index(e, x, slot), 4), 4);
  }
  ir_value offset = emit_thread_index(e, of_unit), present = {NULL};
  if (of_block(x)) present = emit_thread_present(e, blocks);
  if (present.ptr)
    offset = ir_select(b, present, offset, i32(b, x->offsets[0])); /* what is absent reads what is there */
  if (!head_step) return offset;
  return add(b, offset, mul(b, e->head, i32(b, head_step)));
}

/* ---- operands ---- */

/* Elements of one operand, as many as one choice of their type has results for: two a number. */
enum { GROUP_ELEMENTS = IR_MAX_RESULTS / 2 };

typedef struct element_group {
  int operand, count;
  ir_value offset[GROUP_ELEMENTS]; /* i32 */
  two_float *value[GROUP_ELEMENTS];     /* where the results go */
} element_group;

static two_float *memo_of(thread_emitter *e, const expr *x, int slot) {
  return &e->memo[x->id * slots_of(e->t) + (of_block(x) ? slot : 0)];
}

static ir_value element_at(thread_emitter *e, const element_group *g, int i, int bytes) {
  ir *b = e->b;
  ir_value at = ir_pointer(b, e->operands[g->operand * PEGEN_PTX_OPERAND_COUNT + PEGEN_PTX_OPERAND_ADDRESS]);
  return ir_offset(b, at, wide(b, mul(b, g->offset[i], i32(b, bytes))));
}

static two_float load_f32(thread_emitter *e, const element_group *g, int i) {
  return two_float_f32(ir_load(e->b, e->b->f32, element_at(e, g, i, 4), 4));
}

static two_float load_f64(thread_emitter *e, const element_group *g, int i) {
  ir *b = e->b;
  ir_value both = ir_load(b, ir_vector(b, 2, b->i32), element_at(e, g, i, 8), 8);
  ir_value high = ir_extract(b, both, 1);
  return two_float_from_f64(b, ir_extract(b, both, 0), high);
}

ir_value emit_load_16(ir *b, ir_value at, ir_value is_bf16) {
  ir_value bits = ir_load(b, b->i16, at, 2);
  ir_value half = ir_cast(b, "arith.extf", ir_cast(b, "arith.bitcast", bits, b->f16), b->f32);
  return ir_select(b, is_bf16, math_f32_from_bf16(b, bits), half);
}

static two_float load_16(thread_emitter *e, const element_group *g, int i, ir_value is_bf16) {
  return two_float_f32(emit_load_16(e->b, element_at(e, g, i, 2), is_bf16));
}

/* A tensor's number type is the same for all threads: no warp takes two ways. */
static void load_group(thread_emitter *e, const element_group *g) {
  ir *b = e->b;
  MlirType types[IR_MAX_RESULTS];
  ir_value sides[3][IR_MAX_RESULTS], narrow[IR_MAX_RESULTS], results[IR_MAX_RESULTS], type;
  int count = 2 * g->count;
  if (g->count == 0) return;
  for (int i = 0; i < count; i++) types[i] = b->f32;
  type = ir_cast(b, "arith.trunci", e->operands[g->operand * PEGEN_PTX_OPERAND_COUNT + PEGEN_PTX_OPERAND_TYPE], b->i32);
  ir_choice outer = ir_choose(b, ir_compare_int(b, "eq", type, i32(b, PEGEN_PTX_OPERAND_F32)), count, types), inner;
  ir_value is_bf16 = {NULL};
  for (int side = 0; side < 3; side++) {
    if (side == 1) inner = ir_choose(b, ir_compare_int(b, "eq", type, i32(b, PEGEN_PTX_OPERAND_F64)), count, types);
    if (side == 2) is_bf16 = ir_compare_int(b, "eq", type, i32(b, PEGEN_PTX_OPERAND_BF16));
    for (int i = 0; i < g->count; i++) {
      two_float x = side == 0 ? load_f32(e, g, i) : side == 1 ? load_f64(e, g, i) : load_16(e, g, i, is_bf16);
      sides[side][2 * i] = x.hi;
      sides[side][2 * i + 1] = x.lo.ptr ? x.lo : ir_float(b, b->f32, 0);
    }
    if (side == 0) ir_choose_else(b, &outer, count, sides[0]);
    if (side == 1) ir_choose_else(b, &inner, count, sides[1]);
  }
  ir_end_choose(b, inner, count, sides[2], narrow);
  ir_end_choose(b, outer, count, narrow, results);
  for (int i = 0; i < g->count; i++) *g->value[i] = (two_float){.hi = results[2 * i], .lo = results[2 * i + 1]};
}

static void add_elements(thread_emitter *e, element_group *g, const expr *x) {
  for (int slot = 0; slot < (of_block(x) ? e->t->n_blocks : 1); slot++) {
    if (g->count == GROUP_ELEMENTS) {
      load_group(e, g);
      g->count = 0;
    }
    g->offset[g->count] = operand_offset(e, x, slot);
    g->value[g->count++] = memo_of(e, x, slot);
  }
}

/* Marks what the expression is made of. */
static void mark(const expr *x, const expr **seen) {
  if (seen[x->id]) return;
  seen[x->id] = x;
  for (int i = 0; i < expr_op_arity(x->op); i++) mark(x->arg[i], seen);
}

void emit_thread_elements(thread_emitter *e, int operand, int count, const ir_value *offsets, two_float *values) {
  for (int first = 0; first < count; first += GROUP_ELEMENTS) {
    element_group group = {.operand = operand};
    for (int i = first; i < count && group.count < GROUP_ELEMENTS; i++) {
      group.offset[group.count] = offsets[i];
      group.value[group.count++] = &values[i];
    }
    load_group(e, &group);
  }
}

ir_value emit_thread_offset(thread_emitter *e, const expr *leaf, int slot) { return operand_offset(e, leaf, slot); }

static expr_walker *at_slot(thread_emitter *e, int slot) {
  e->slot = slot;
  e->walker.varying = e->memo + slot;
  e->walker.fixed = e->memo;
  return &e->walker;
}

/* A computed place, whatever it was, is one inside the operand, or the row of an input. */
static ir_value place_of(thread_emitter *e, const expr *x, int slot) {
  ir *b = e->b;
  bool is_row = x->op == EXPR_INPUT_AT;
  int64_t count = is_row ? x->last + 1 : spec_operand_elements(&e->spec->operand[x->index]);
  ir_value zero = i32(b, 0), last = i32(b, count - 1);
  if (!is_row && x->arg[0]->op == EXPR_TERMS) /* the description was checked: it is inside */
    return add(b, narrow(b, emit_expr_place_of_terms(&e->walker, x->arg[0])), operand_offset(e, x, slot));
  ir_value index = ir_cast(b, "arith.fptosi", emit_expr_f32(at_slot(e, slot), x->arg[0]), b->i32);
  if (!is_row) index = add(b, index, operand_offset(e, x, slot));
  index = ir_select(b, ir_compare_int(b, "slt", index, zero), zero, index);
  return ir_select(b, ir_compare_int(b, "sgt", index, last), last, index);
}

/* The element there of a float32 operand. */
static ir_value indexed_element(thread_emitter *e, const expr *x, int slot) {
  ir *b = e->b;
  ir_value index = place_of(e, x, slot);
  ir_value data = ir_pointer(b, e->operands[x->index * PEGEN_PTX_OPERAND_COUNT + PEGEN_PTX_OPERAND_ADDRESS]);
  return ir_load(b, b->f32, ir_offset(b, data, wide(b, mul(b, index, i32(b, 4)))), 4);
}

/* The element there of the row of an input that the pair at hand reads. */
static ir_value row_element(thread_emitter *e, const expr *x, int slot) {
  ir *b = e->b;
  ir_value row = ir_pointer(b, e->inputs[x->index]);
  return ir_load(b, b->f32, ir_offset(b, row, wide(b, mul(b, place_of(e, x, slot), i32(b, 4)))), 4);
}

void emit_thread_inputs(thread_emitter *e, const ir_value *parameter, ir_value batch, ir_value token, ir_value head,
                        int dtype) {
  ir *b = e->b;
  ir_value *rows = arena_array(e->memory, ir_value, e->spec->n_inputs + 1);
  for (int i = 0; i < e->spec->n_inputs; i++) {
    const ir_value *of = parameter + i * PEGEN_PTX_INPUT_COUNT;
    ir_value at = add(b, of[PEGEN_PTX_INPUT_ADDRESS], mul(b, wide(b, batch), of[PEGEN_PTX_INPUT_BATCH]));
    at = add(b, at, mul(b, wide(b, token), of[PEGEN_PTX_INPUT_TOKEN]));
    rows[i] = add(b, at, mul(b, wide(b, head), of[PEGEN_PTX_INPUT_HEAD]));
    if (i == 0 && dtype != NUMBER_F32)
      e->wide_inputs = ir_compare_int(b, "eq", of[PEGEN_PTX_INPUT_TYPE], i64(b, PEGEN_PTX_OPERAND_F32));
  }
  e->inputs = rows;
  e->input_type = dtype;
}

/* An element of the row of an input at hand: of the rows' own type, or float32 whatever they are. */
static ir_value input_element(thread_emitter *e, const expr *x, int slot) {
  ir *b = e->b;
  int units = e->t->n_units;
  int *of_unit = arena_array(e->memory, int, units);
  for (int u = 0; u < units; u++) of_unit[u] = x->offsets[of_block(x) ? block_of(e, slot, u) : 0];
  ir_value row = ir_pointer(b, e->inputs[x->index]), offset = emit_thread_index(e, of_unit), value[2], result;
  if (!e->wide_inputs.ptr) return ir_load(b, b->f32, ir_offset(b, row, wide(b, mul(b, offset, i32(b, 4)))), 4);
  ir_choice choice = ir_choose(b, e->wide_inputs, 1, &b->f32);
  value[0] = ir_load(b, b->f32, ir_offset(b, row, wide(b, mul(b, offset, i32(b, 4)))), 4);
  ir_choose_else(b, &choice, 1, &value[0]);
  int bytes = number_bytes(e->input_type);
  ir_value at = ir_offset(b, row, wide(b, mul(b, offset, i32(b, bytes))));
  value[1] = emit_number_value(b, e->native, e->input_type, ir_load(b, number_bits(b, e->input_type), at, bytes));
  ir_end_choose(b, choice, 1, &value[1], &result);
  return result;
}

void emit_thread_operands(thread_emitter *e, const expr *const *roots, int count) {
  int nodes = expr_pool_count(e->spec->pool);
  const expr **seen = arena_array(e->memory, const expr *, nodes + 1);
  for (int i = 0; i < count; i++) mark(roots[i], seen);
  for (int operand = 0; operand < e->spec->n_operands; operand++) {
    element_group group = {.operand = operand};
    for (int id = 0; id < nodes; id++)
      if (seen[id] && seen[id]->op == EXPR_OPERAND && seen[id]->index == operand) add_elements(e, &group, seen[id]);
    load_group(e, &group);
  }
}

/* ---- nodes ---- */

void emit_thread_know(thread_emitter *e, const expr *x, two_float value) { *memo_of(e, x, 0) = value; }

static bool leaf(expr_walker *w, const expr *x, bool is_f32, two_float *value) {
  thread_emitter *e = (thread_emitter *)w;
  int slot = of_block(x) ? e->slot : 0;
  (void)is_f32;
  switch (x->op) {
  case EXPR_POSITION: return *value = e->positions[x->index], true;
  case EXPR_TABLE: return *value = constants(e, x, slot), true;
  case EXPR_INPUT: return *value = two_float_f32(input_element(e, x, slot)), true;
  case EXPR_ELEMENT: return *value = two_float_f32(indexed_element(e, x, slot)), true;
  case EXPR_INPUT_AT: return *value = two_float_f32(row_element(e, x, slot)), true;
  case EXPR_COTANGENT: return *value = e->cotangents[slot * e->n_cotangents + x->index - e->first_cotangent], true;
  case EXPR_OPERAND: diag_bug("emit_thread", "operand %%%d was not loaded", x->id);
  default: return false;
  }
}

two_float emit_thread_value(thread_emitter *e, const expr *x, int slot) { return emit_expr_wide(at_slot(e, slot), x); }

ir_value emit_thread_f32(thread_emitter *e, const expr *x, int slot) { return emit_expr_f32(at_slot(e, slot), x); }

ir_value emit_thread_place(thread_emitter *e, const expr *element) { return place_of(e, element, 0); }
