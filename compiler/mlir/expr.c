/* mlir/expr: one op a node; see mlir/expr.h. */
#include "mlir/expr.h"

#include "base/diag.h"
#include "cpu/rows.h"
#include "mlir/math.h"

/* base + offset + shift * size. */
static ir_value emit_shifted(expr_emitter *e, ir_value base, int64_t offset, int size) {
  if (e->shift.ptr) base = ir_offset(e->b, base, ir_op2(e->b, "arith.muli", e->shift, ir_int(e->b, e->b->i64, size)));
  return ir_offset_const(e->b, base, offset);
}

ir_value emit_prepared_at(expr_emitter *e, ir_value base, int i) {
  bool is_f32 = e->p->prepared[i]->is_f32;
  return emit_shifted(e, base, (int64_t)i * e->p->lanes * 8 + e->begin * (is_f32 ? 4 : 8), is_f32 ? 4 : 8);
}

/* What is the same for all blocks is computed as a scalar, once; 0 lanes. */
static int lanes_of(const expr_emitter *e, const expr *x) { return x->depends & DEPENDS_BLOCK ? e->width : 0; }

static MlirType type_of(const expr_emitter *e, int lanes, bool is_f32) {
  MlirType element = is_f32 ? e->b->f32 : e->b->f64;
  return lanes ? ir_vector(e->b, lanes, element) : element;
}

/* A chunk's part of a table in memory. */
static ir_value shifted_constant(expr_emitter *e, const expr *x, MlirType type, bool is_f32) {
  const char *name = arena_printf(e->memory, "table%d_%s_%s", x->id, is_f32 ? "f32" : "f64", e->suffix);
  bool *known = &e->has_table[2 * x->id + is_f32];
  if (!*known) ir_table_floats(e->b, name, is_f32, e->p->spec->n_blocks, x->table);
  *known = true;
  int size = is_f32 ? 4 : 8;
  ir_value at = ir_offset(e->b, ir_table_address(e->b, name),
                          ir_op2(e->b, "arith.muli", e->shift, ir_int(e->b, e->b->i64, size)));
  return ir_load(e->b, type, ir_offset_const(e->b, at, (int64_t)e->begin * size), size);
}

static ir_value constant(expr_emitter *e, const expr *x, int lanes_wanted, bool is_f32) {
  MlirType type = type_of(e, lanes_wanted, is_f32);
  if (x->op == EXPR_CONST) return ir_float(e->b, type, x->value);
  if (e->shift.ptr) return shifted_constant(e, x, type, is_f32);
  double lanes[64];
  for (int i = 0; i < e->width; i++) {
    int block = e->begin + i;
    lanes[i] = x->table[block < e->p->spec->n_blocks ? block : e->p->spec->n_blocks - 1];
  }
  return ir_floats(e->b, type, lanes);
}

/* An argument in the type and lanes its user computes in; constants take that type, float32 widens. */
static ir_value argument(expr_emitter *e, const expr *x, int lanes, bool is_f32) {
  if (expr_is_fixed_for_heads(x)) return constant(e, x, lanes, is_f32);
  ir_value v = emit_expr(e, x);
  if (x->is_f32 && !is_f32) v = ir_cast(e->b, "arith.extf", v, e->b->f64);
  return lanes && !ir_lanes(v) ? ir_broadcast(e->b, type_of(e, lanes, is_f32), v) : v;
}

ir_value emit_expr_f32(expr_emitter *e, const expr *x) { return argument(e, x, e->width, true); }

static ir_value narrowed(expr_emitter *e, const expr *x) {
  const expr *inner = x->arg[0];
  int lanes = lanes_of(e, x);
  if (inner->op == EXPR_SINQ || inner->op == EXPR_COSQ) {
    const expr *phase = inner->arg[0];
    math_phase p = {.factor = {argument(e, phase, lanes, false)}};
    if (e->has_fma && lanes && phase->op == EXPR_MUL && e->p->prepared_index[phase->id] < 0)
      p = (math_phase){.is_product = true,
                       .factor = {argument(e, phase->arg[0], lanes, false), argument(e, phase->arg[1], lanes, false)}};
    return inner->op == EXPR_SINQ ? math_sinq_f32(e->b, p) : math_cosq_f32(e->b, p);
  }
  return ir_cast(e->b, "arith.truncf", emit_expr(e, inner), e->b->f32);
}

/* exp(-|x|), which lies between 0 and 1: what a softplus is made of. */
static bool is_decay(const expr *x) {
  return x->op == EXPR_EXP && x->arg[0]->op == EXPR_NEG && x->arg[0]->arg[0]->op == EXPR_ABS;
}

/* The other elementary functions are computed in float64 and rounded where float32 is asked for. */
static ir_value elementary(expr_emitter *e, const expr *x, ir_value (*function)(ir *, ir_value)) {
  ir_value v = function(e->b, argument(e, x->arg[0], lanes_of(e, x), false));
  return x->is_f32 ? ir_cast(e->b, "arith.truncf", v, e->b->f32) : v;
}

/* Rounding to an integer by adding and taking away 1.5 2^52, then down by one where that rounded up:
 * no instruction beyond SSE2 and no library call. |x| < 2^51, as positions are. */
static ir_value floor_f64(ir *b, ir_value x) {
  ir_value rounder = ir_float(b, ir_type(x), 0x1.8p52), one = ir_float(b, ir_type(x), 1);
  ir_value nearest = ir_op2(b, "arith.subf", ir_op2(b, "arith.addf", x, rounder), rounder);
  return ir_select(b, ir_compare_float(b, "ogt", nearest, x), ir_op2(b, "arith.subf", nearest, one), nearest);
}

ir_value emit_arithmetic(ir *b, expr_op op, const ir_value *v) {
  switch (op) {
  case EXPR_ADD: return ir_op2(b, "arith.addf", v[0], v[1]);
  case EXPR_SUB: return ir_op2(b, "arith.subf", v[0], v[1]);
  case EXPR_MUL: return ir_op2(b, "arith.mulf", v[0], v[1]);
  case EXPR_DIV: return ir_op2(b, "arith.divf", v[0], v[1]);
  case EXPR_MIN: return ir_select(b, ir_compare_float(b, "olt", v[1], v[0]), v[1], v[0]);
  case EXPR_MAX: return ir_select(b, ir_compare_float(b, "ogt", v[1], v[0]), v[1], v[0]);
  case EXPR_NEG: return ir_op1(b, "arith.negf", v[0]);
  case EXPR_ABS: return ir_op1(b, "math.absf", v[0]);
  case EXPR_SQRT: return ir_op1(b, "math.sqrt", v[0]);
  default: diag_bug("emit_expr", "'%s' has no code", expr_op_name(op));
  }
}

static ir_value compute(expr_emitter *e, const expr *x) {
  ir *b = e->b;
  bool f32 = x->is_f32;
  int lanes = lanes_of(e, x);
  ir_value v[3] = {{NULL}};
  bool generic = x->op != EXPR_NARROW && x->op != EXPR_WIDEN && x->op != EXPR_SELECT && x->op != EXPR_LESS;
  for (int i = 0; generic && i < expr_op_arity(x->op); i++) v[i] = argument(e, x->arg[i], lanes, f32);
  MlirType type = type_of(e, lanes, f32);
  switch (x->op) {
  case EXPR_FLOOR: return elementary(e, x, floor_f64);
  case EXPR_EXP: return f32 ? math_exp_f32(b, v[0], e->has_fma) : elementary(e, x, math_exp_f64);
  case EXPR_LOG: return elementary(e, x, math_log_f64);
  case EXPR_LOG1P: /* what the exponential loses of a NaN, softplus has from max(x, 0) */
    if (!f32 || !is_decay(x->arg[0])) return elementary(e, x, math_log1p_f64);
    return math_log1p_unit_f32(b, math_decay_f32(b, argument(e, x->arg[0]->arg[0], lanes, true), e->has_fma));
  case EXPR_SINQ: return elementary(e, x, math_sinq_f64);
  case EXPR_COSQ: return elementary(e, x, math_cosq_f64);
  case EXPR_NARROW: return narrowed(e, x);
  case EXPR_WIDEN: return argument(e, x->arg[0], lanes, false);
  case EXPR_LESS: {
    bool narrow = (expr_is_fixed_for_heads(x->arg[0]) || x->arg[0]->is_f32) &&
                  (expr_is_fixed_for_heads(x->arg[1]) || x->arg[1]->is_f32);
    ir_value less =
        ir_compare_float(b, "olt", argument(e, x->arg[0], lanes, narrow), argument(e, x->arg[1], lanes, narrow));
    return ir_select(b, less, ir_float(b, type, 1), ir_float(b, type, 0));
  }
  case EXPR_SELECT: {
    ir_value condition = argument(e, x->arg[0], lanes, x->arg[0]->is_f32);
    ir_value chosen = ir_compare_float(b, "une", condition, ir_float(b, ir_type(condition), 0));
    return ir_select(b, chosen, argument(e, x->arg[1], lanes, f32), argument(e, x->arg[2], lanes, f32));
  }
  default: return emit_arithmetic(b, x->op, v);
  }
}

/* Elements of the query's row of an input: one vector where they are neighbours, else one at a time. */
static ir_value input_elements(expr_emitter *e, const expr *x) {
  ir *b = e->b;
  int lanes = lanes_of(e, x), bytes = number_bytes(e->input_dtype), last = e->p->spec->n_blocks - 1;
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
  if (e->shift.ptr) diag_bug("emit_expr", "input %d is not read in order", x->index);
  ir_value element[64];
  for (int i = 0; i < lanes; i++)
    element[i] =
        emit_load_channels(b, e->target->native, e->input_dtype, 0, ir_offset_const(b, row, offset[i] * bytes));
  return ir_elements(b, type_of(e, lanes, true), lanes, element);
}

static ir_value leaf(expr_emitter *e, const expr *x) {
  ir *b = e->b;
  MlirType type = type_of(e, lanes_of(e, x), false);
  if (expr_is_fixed_for_heads(x)) return constant(e, x, lanes_of(e, x), false);
  if (x->op == EXPR_POSITION) return e->positions[x->index];
  if (x->op == EXPR_INPUT) return input_elements(e, x);
  int index = e->p->leaf_index[x->id];
  if (!e->has_leaves || index < 0) diag_bug("emit_expr", "leaf %%%d was not gathered", x->id);
  return ir_load(b, type, emit_shifted(e, e->leaves, ((int64_t)index * e->p->lanes + e->begin) * 8, 8), 8);
}

ir_value emit_expr_lanes(expr_emitter *e, const expr *x) { return argument(e, x, e->width, x->is_f32); }

ir_value emit_expr(expr_emitter *e, const expr *x) {
  if (e->memo[x->id].ptr) return e->memo[x->id];
  ir_value v;
  int prepared = e->p->prepared_index[x->id];
  if (!e->has_leaves && prepared >= 0) {
    MlirType type = type_of(e, lanes_of(e, x), x->is_f32);
    v = ir_load(e->b, type, emit_prepared_at(e, e->prepared, prepared), 4);
  } else v = expr_op_arity(x->op) == 0 ? leaf(e, x) : compute(e, x);
  return e->memo[x->id] = v;
}
