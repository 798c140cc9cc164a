/* cpu/attention/delta: expressions of a displacement, with the queries in the lanes; see cpu/attention/attention.h.
 *
 * An expression's leaves are the displacement's coordinates (lanes: the key's less the queries'), and numbers
 * that the driver gathered for the head (scalars, one a block). What does not depend on the displacement is
 * computed as a scalar before the loops over pairs.
 */
#include "cpu/attention/delta.h"
#include "base/diag.h"
#include "cpu/attention/attention.h"
#include "mlir/expr.h"
#include "mlir/math.h"

#include "kernel/attention.h"

#include <stddef.h>

static int lanes_of(const delta_emitter *d, const expr *x) {
  return x->depends & DEPENDS_POSITION ? d->e->shape.lanes : 0;
}

static MlirType type_of(const delta_emitter *d, int lanes, bool is_f32) {
  MlirType element = is_f32 ? d->e->b->f32 : d->e->b->f64;
  return lanes ? ir_vector(d->e->b, lanes, element) : element;
}

/* A number that the driver gathered: float64. */
static ir_value gathered(delta_emitter *d, const expr *x) {
  ir *b = d->e->b;
  const attention_plan *p = d->e->p;
  int index = p->leaf_index[x->id];
  if (index < 0) diag_bug("emit_delta", "leaf %%%d was not gathered", x->id);
  ir_value leaves = ir_load(b, b->ptr, ir_offset_const(b, d->e->tile, offsetof(pegen_attention_tile, leaves)), 8);
  ir_value at = ir_offset_const(b, leaves, (int64_t)index * expr_pool_blocks(p->spec->pool) * 8);
  if (d->block.ptr) at = ir_offset(b, at, attention_mul(b, d->block, 8));
  return ir_load(b, b->f64, at, 8);
}

/* An argument in the type and lanes that its user computes in. */
static ir_value argument(delta_emitter *d, const expr *x, int lanes, bool is_f32) {
  ir *b = d->e->b;
  if (x->op == EXPR_CONST) return ir_float(b, type_of(d, lanes, is_f32), x->value);
  ir_value v = emit_delta(d, x);
  bool narrow = x->is_f32;
  if (narrow && !is_f32) v = ir_cast(b, "arith.extf", v, b->f64);
  if (!narrow && is_f32) v = ir_cast(b, "arith.truncf", v, b->f32); /* a table of numbers, which fits either */
  return lanes && !ir_lanes(v) ? ir_broadcast(b, type_of(d, lanes, is_f32), v) : v;
}

static ir_value narrowed(delta_emitter *d, const expr *x) {
  ir *b = d->e->b;
  const expr *inner = x->arg[0];
  int lanes = lanes_of(d, x);
  if (inner->op == EXPR_POSITION && d->narrow) return d->narrow[inner->index];
  if (inner->op == EXPR_SINQ || inner->op == EXPR_COSQ) {
    const expr *phase = inner->arg[0];
    math_phase p = {.factor = {argument(d, phase, lanes, false)}};
    if (d->e->target->has_fma && lanes && phase->op == EXPR_MUL)
      p = (math_phase){.is_product = true,
                       .factor = {argument(d, phase->arg[0], lanes, false), argument(d, phase->arg[1], lanes, false)}};
    return inner->op == EXPR_SINQ ? math_sinq_f32(b, p) : math_cosq_f32(b, p);
  }
  return ir_cast(b, "arith.truncf", argument(d, inner, lanes, false), b->f32);
}

static ir_value elementary(delta_emitter *d, const expr *x, ir_value (*function)(ir *, ir_value)) {
  ir_value v = function(d->e->b, argument(d, x->arg[0], lanes_of(d, x), false));
  return x->is_f32 ? ir_cast(d->e->b, "arith.truncf", v, d->e->b->f32) : v;
}

static bool is_f32_or_fixed(const expr *x) { return expr_is_fixed(x) || x->is_f32; }

/* An integer kept inside [0, count): whatever the index was, memory is read inside the operand. */
static ir_value clamped(ir *b, ir_value index, int64_t count) {
  ir_value low = ir_int(b, ir_type(index), 0), high = ir_int(b, ir_type(index), count - 1);
  index = ir_select(b, ir_compare_int(b, "slt", index, low), low, index);
  return ir_select(b, ir_compare_int(b, "sgt", index, high), high, index);
}

/* Elements of an operand, float32: data[offset of the head + index], lane by lane. */
static ir_value element(delta_emitter *d, const expr *x) {
  ir *b = d->e->b;
  const spec_operand *operand = &d->e->p->spec->operand[x->index];
  int64_t count = 1;
  for (int i = 0; i < operand->rank; i++) count *= operand->shape[i];
  int lanes = lanes_of(d, x);
  ir_value operands = ir_load(b, b->ptr, ir_offset_const(b, d->e->tile, offsetof(pegen_attention_tile, operands)), 8);
  ir_value data = ir_load(b, b->ptr, ir_offset_const(b, operands, x->index * 8), 8);
  ir_value index = ir_cast(b, "arith.fptosi", argument(d, x->arg[0], lanes, x->arg[0]->is_f32), b->i32);
  ir_value base = ir_cast(b, "arith.fptosi", gathered(d, x), b->i32);
  if (lanes) base = ir_broadcast(b, ir_type(index), base);
  index = clamped(b, ir_op2(b, "arith.addi", index, base), count);
  ir_value values[64];
  for (int i = 0; i < (lanes ? lanes : 1); i++) {
    ir_value at = ir_cast(b, "arith.extsi", lanes ? ir_extract(b, index, i) : index, b->i64);
    values[i] = ir_load(b, b->f32, ir_offset(b, data, attention_mul(b, at, 4)), 4);
  }
  ir_value v = lanes ? ir_elements(b, ir_vector(b, lanes, b->f32), lanes, values) : values[0];
  return x->is_f32 ? v : ir_cast(b, "arith.extf", v, b->f64);
}

static ir_value floor_f64(ir *b, ir_value x) {
  ir_value rounder = ir_float(b, ir_type(x), 0x1.8p52), one = ir_float(b, ir_type(x), 1);
  ir_value nearest = ir_op2(b, "arith.subf", ir_op2(b, "arith.addf", x, rounder), rounder);
  return ir_select(b, ir_compare_float(b, "ogt", nearest, x), ir_op2(b, "arith.subf", nearest, one), nearest);
}

static ir_value compute(delta_emitter *d, const expr *x) {
  ir *b = d->e->b;
  int lanes = lanes_of(d, x);
  bool f32 = x->is_f32;
  ir_value v[3] = {{NULL}};
  switch (x->op) {
  case EXPR_FLOOR: return elementary(d, x, floor_f64);
  case EXPR_EXP: return elementary(d, x, math_exp_f64);
  case EXPR_LOG: return elementary(d, x, math_log_f64);
  case EXPR_SINQ: return elementary(d, x, math_sinq_f64);
  case EXPR_COSQ: return elementary(d, x, math_cosq_f64);
  case EXPR_NARROW: return narrowed(d, x);
  case EXPR_WIDEN: return argument(d, x->arg[0], lanes, false);
  case EXPR_ELEMENT: return element(d, x);
  case EXPR_LESS: {
    bool narrow = is_f32_or_fixed(x->arg[0]) && is_f32_or_fixed(x->arg[1]);
    MlirType type = type_of(d, lanes, f32);
    ir_value less =
        ir_compare_float(b, "olt", argument(d, x->arg[0], lanes, narrow), argument(d, x->arg[1], lanes, narrow));
    return ir_select(b, less, ir_float(b, type, 1), ir_float(b, type, 0));
  }
  case EXPR_SELECT: {
    ir_value condition = argument(d, x->arg[0], lanes, x->arg[0]->is_f32);
    ir_value chosen = ir_compare_float(b, "une", condition, ir_float(b, ir_type(condition), 0));
    return ir_select(b, chosen, argument(d, x->arg[1], lanes, f32), argument(d, x->arg[2], lanes, f32));
  }
  default:
    for (int i = 0; i < expr_op_arity(x->op); i++) v[i] = argument(d, x->arg[i], lanes, f32);
    return emit_arithmetic(b, x->op, v);
  }
}

ir_value emit_delta(delta_emitter *d, const expr *x) {
  ir_value *memo = x->depends & DEPENDS_POSITION ? d->varying : d->fixed;
  if (memo[x->id].ptr) return memo[x->id];
  ir_value v;
  if (x->op == EXPR_POSITION) {
    if (!d->wide) diag_bug("emit_delta", "a coordinate of float64 where there is none");
    v = d->wide[x->index];
  } else if (x->op == EXPR_TABLE || x->op == EXPR_OPERAND) v = gathered(d, x);
  else v = compute(d, x);
  return memo[x->id] = v;
}

ir_value emit_delta_f32(delta_emitter *d, const expr *x) { return argument(d, x, d->e->shape.lanes, true); }

void emit_delta_fixed(delta_emitter *d, const expr *x) {
  if (x->op == EXPR_CONST) return;
  if (!(x->depends & DEPENDS_POSITION)) {
    emit_delta(d, x);
    return;
  }
  for (int i = 0; i < expr_op_arity(x->op); i++) emit_delta_fixed(d, x->arg[i]);
}
