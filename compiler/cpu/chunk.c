/* cpu/chunk: the leaves of a chunk of blocks; see cpu/chunk.h. */
#include "cpu/chunk.h"
#include "mlir/arith.h"

#include "base/diag.h"
#include "mlir/number.h"

/* base + offset + shift * size. */
static ir_value emit_shifted(chunk_emitter *e, ir_value base, int64_t offset, int size) {
  if (e->shift.ptr) base = ir_offset(e->b, base, mul(e->b, e->shift, i64(e->b, size)));
  return ir_offset_const(e->b, base, offset);
}

ir_value emit_prepared_at(chunk_emitter *e, ir_value base, int i) {
  bool is_f32 = e->p->prepared[i]->is_f32;
  return emit_shifted(e, base, (int64_t)i * e->p->lanes * 8 + e->begin * (is_f32 ? 4 : 8), is_f32 ? 4 : 8);
}

static MlirType type_of(const chunk_emitter *e, const expr *x, bool is_f32) {
  MlirType element = is_f32 ? e->b->f32 : e->b->f64;
  int lanes = expr_lanes(&e->walker, x);
  return lanes ? ir_vector(e->b, lanes, element) : element;
}

/* A chunk's part of a table in memory. */
static ir_value shifted_constant(chunk_emitter *e, const expr *x, bool is_f32) {
  const char *of =
      e->p->part ? arena_printf(e->memory, "_%d", e->p->part->first) : ""; /* parts count their own nodes */
  const char *name = arena_printf(e->memory, "table%d%s_%s_%s", x->id, of, is_f32 ? "f32" : "f64", e->target->suffix);
  bool *known = &e->has_table[2 * x->id + is_f32];
  if (!*known) ir_table_floats(e->b, name, is_f32, e->p->spec->n_blocks, x->table);
  *known = true;
  int size = is_f32 ? 4 : 8;
  ir_value at = ir_offset(e->b, ir_table_address(e->b, name), mul(e->b, e->shift, i64(e->b, size)));
  return ir_load(e->b, type_of(e, x, is_f32), ir_offset_const(e->b, at, (int64_t)e->begin * size), size);
}

static ir_value table_of_numbers(chunk_emitter *e, const expr *x, bool is_f32) {
  if (e->shift.ptr) return shifted_constant(e, x, is_f32);
  double lanes[64];
  for (int i = 0; i < e->width; i++) {
    int block = e->begin + i;
    lanes[i] = x->table[block < e->p->spec->n_blocks ? block : e->p->spec->n_blocks - 1];
  }
  return ir_floats(e->b, type_of(e, x, is_f32), lanes);
}

/* Elements of the query's row of an input: one vector where they are neighbours, else one at a time. */
static ir_value input_elements(chunk_emitter *e, const expr *x) {
  ir *b = e->b;
  int lanes = expr_lanes(&e->walker, x), bytes = number_bytes(e->input_dtype);
  int last = e->p->spec->n_blocks - 1;
  int64_t offset[64];
  bool adjacent = true;
  for (int i = 0; i < lanes; i++) {
    offset[i] = x->offsets[e->begin + i < last ? e->begin + i : last];
    adjacent = adjacent && offset[i] == offset[0] + i;
  }
  ir_value row = e->input[x->index];
  if (lanes == 0)
    return emit_load_channels(b, e->target->native, e->input_dtype, 0,
                              ir_offset_const(b, row, (int64_t)x->offsets[0] * bytes));
  if (adjacent)
    return emit_load_channels(b, e->target->native, e->input_dtype, lanes,
                              emit_shifted(e, row, offset[0] * bytes, bytes));
  if (e->shift.ptr) diag_bug("emit_chunk", "input %d is not read in order", x->index);
  ir_value element[64];
  for (int i = 0; i < lanes; i++)
    element[i] =
        emit_load_channels(b, e->target->native, e->input_dtype, 0, ir_offset_const(b, row, offset[i] * bytes));
  return ir_elements(b, type_of(e, x, true), lanes, element);
}

static bool leaf(expr_walker *w, const expr *x, bool is_f32, two_float *value) {
  chunk_emitter *e = (chunk_emitter *)w;
  ir *b = e->b;
  int prepared = e->p->prepared_index[x->id], index = e->p->leaf_index[x->id];
  if (!e->has_leaves && prepared >= 0) {
    value->hi = ir_load(b, type_of(e, x, x->is_f32), emit_prepared_at(e, e->prepared, prepared), 4);
    return true;
  }
  if (expr_op_arity(x->op) > 0) return false;
  if (expr_is_fixed_for_heads(x)) value->hi = table_of_numbers(e, x, is_f32);
  else if (x->op == EXPR_POSITION) value->hi = e->positions[x->index];
  else if (x->op == EXPR_INPUT) value->hi = input_elements(e, x);
  else if (x->op == EXPR_COTANGENT) {
    int64_t row = x->index - e->first_cotangent;
    value->hi =
        ir_load(b, type_of(e, x, false), emit_shifted(e, e->cotangents, (row * e->p->lanes + e->begin) * 8, 8), 8);
  } else {
    if (!e->has_leaves || index < 0) diag_bug("emit_chunk", "leaf %%%d was not gathered", x->id);
    ir_value at = emit_shifted(e, e->leaves, ((int64_t)index * e->p->lanes + e->begin) * 8, 8);
    value->hi = ir_load(b, type_of(e, x, false), at, 8);
  }
  return true;
}

chunk_emitter chunk_emitter_create(ir *b, arena *a, const plan *p, const cpu_target *target, bool *has_table, int begin,
                                   int width) {
  two_float *memo = arena_array(a, two_float, expr_pool_count(p->spec->pool));
  return (chunk_emitter){.walker = {.context = {b, target->has_fma},
                                    .machine = &expr_of_processors,
                                    .varies = DEPENDS_BLOCK,
                                    .lanes = width,
                                    .varying = memo,
                                    .fixed = memo,
                                    .stride = 1,
                                    .leaf = leaf,
                                    .types_tables = true},
                         .b = b,
                         .memory = a,
                         .p = p,
                         .target = target,
                         .begin = begin,
                         .width = width,
                         .has_table = has_table};
}

bool emit_is_shared(const plan *p) {
  int entries = p->spec->n_components * p->spec->n_components;
  if (!p->part || !p->per_head) return false;
  for (int i = 0; i < entries; i++)
    if (p->program->matrix.entry[i]->depends & DEPENDS_HEAD) return false;
  return true;
}
