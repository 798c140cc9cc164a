/* cpu/attention/delta: expressions of a displacement, with the queries in the lanes; see cpu/attention/delta.h.
 *
 * An expression's leaves are the displacement's coordinates (lanes: the key's less the queries'), and numbers
 * that the driver gathered for the head (scalars, one a block), or reads at a computed place (lanes). What does not
 * depend on the displacement is computed as a scalar before the loops over pairs.
 */
#include "cpu/attention/delta.h"
#include "base/diag.h"
#include "mlir/exp2.h"

/* A number that the driver gathered: float64. */
static ir_value gathered(delta_emitter *d, const expr *x) {
  ir *b = d->e->b;
  const attention_plan *p = d->e->p;
  int index = p->leaf_index[x->id];
  if (index < 0) diag_bug("emit_delta", "leaf %%%d was not gathered", x->id);
  ir_value leaves = d->e->leaves.ptr ? d->e->leaves : ATTENTION_TILE(d->e, leaves, b->ptr);
  ir_value at = ir_offset_const(b, leaves, (int64_t)index * expr_pool_blocks(p->spec->pool) * 8);
  if (d->block.ptr) at = nth(b, at, d->block, 8);
  return ir_load(b, b->f64, at, 8);
}

/* An integer kept inside [0, count): whatever the index was, memory is read inside the operand. */
static ir_value clamped(ir *b, ir_value index, int64_t count) {
  ir_value low = ir_int(b, ir_type(index), 0), high = ir_int(b, ir_type(index), count - 1);
  index = ir_select(b, ir_compare_int(b, "slt", index, low), low, index);
  return ir_select(b, ir_compare_int(b, "sgt", index, high), high, index);
}

ir_value emit_element_place(delta_emitter *d, const expr *x) {
  ir *b = d->e->b;
  if (x->arg[0]->op == EXPR_TERMS) { /* the description was checked: it is inside */
    ir_value base = ir_cast(b, "arith.fptosi", gathered(d, x), b->i32);
    return add(b, base, ir_cast(b, "arith.trunci", emit_expr_place_of_terms(&d->walker, x->arg[0]), b->i32));
  }
  const spec_operand *operand = &d->e->p->spec->operand[x->index];
  int64_t count = 1;
  for (int i = 0; i < operand->rank; i++) count *= operand->shape[i];
  int lanes = expr_lanes(&d->walker, x);
  ir_value index = ir_cast(b, "arith.fptosi", emit_expr(&d->walker, x->arg[0]), b->i32);
  ir_value base = ir_cast(b, "arith.fptosi", gathered(d, x), b->i32);
  if (lanes) base = ir_broadcast(b, ir_type(index), base);
  return clamped(b, add(b, index, base), count);
}

/* Elements of an operand, float32: data[offset of the head + index], lane by lane. */
static ir_value element(delta_emitter *d, const expr *x) {
  ir *b = d->e->b;
  int lanes = expr_lanes(&d->walker, x);
  ir_value operands = ir_load(b, b->ptr, ir_offset_const(b, d->e->tile, offsetof(pegen_attention_tile, operands)), 8);
  ir_value data = ir_load(b, b->ptr, ir_offset_const(b, operands, x->index * 8), 8);
  ir_value index = emit_element_place(d, x), values[64];
  for (int i = 0; i < (lanes ? lanes : 1); i++) {
    ir_value at = ir_cast(b, "arith.extsi", lanes ? ir_extract(b, index, i) : index, b->i64);
    values[i] = ir_load(b, b->f32, nth(b, data, at, 4), 4);
  }
  ir_value v = lanes ? ir_elements(b, ir_vector(b, lanes, b->f32), lanes, values) : values[0];
  return x->is_f32 ? v : ir_cast(b, "arith.extf", v, b->f64);
}

/* ---- rows of inputs ---- */

ir_value emit_row_index(delta_emitter *d, const expr *x) {
  ir *b = d->e->b;
  return clamped(b, ir_cast(b, "arith.fptosi", emit_expr(&d->walker, x->arg[0]), b->i32), x->last + 1);
}

/* A lane's value, or the one that all lanes have. */
static ir_value lane_of(ir *b, ir_value x, int lane) { return ir_lanes(x) ? ir_extract(b, x, lane) : x; }

/* Elements at computed places of the rows at hand, float32, lane by lane. */
static ir_value row_element(delta_emitter *d, const expr *x) {
  ir *b = d->e->b;
  const attention_plan *p = d->e->p;
  int lanes = expr_lanes(&d->walker, x);
  size_t side =
      p->spec->input[x->index].of_keys ? offsetof(pegen_attention_tile, keys) : offsetof(pegen_attention_tile, places);
  ir_value places = ir_load(b, b->ptr, ir_offset_const(b, d->e->tile, (int64_t)side), 8);
  int64_t data = (int64_t)offsetof(pegen_attention_places, data) + x->index * 8;
  ir_value first = ir_load(b, b->ptr, ir_offset_const(b, places, data), 8), values[64];
  ir_value row = d->narrow[attention_row_place(p, x->index)], index = emit_row_index(d, x);
  for (int i = 0; i < lanes; i++) {
    ir_value at = ir_offset(b, first, lane_of(b, row, i));
    values[i] = ir_load(b, b->f32, nth(b, at, ir_cast(b, "arith.extsi", lane_of(b, index, i), b->i64), 4), 4);
  }
  return ir_elements(b, ir_vector(b, lanes, b->f32), lanes, values);
}

static bool leaf(expr_walker *w, const expr *x, bool is_f32, two_float *value) {
  delta_emitter *d = (delta_emitter *)w;
  int strip = d->narrow ? attention_strip_of(d->e->p, x) : -1;
  (void)is_f32;
  if (strip >= 0 && d->narrow[SPEC_MAX_PLACES + strip].ptr) {
    value->hi = d->narrow[SPEC_MAX_PLACES + strip];
    return true;
  }
  if (x->op == EXPR_POSITION) {
    if (!d->wide) diag_bug("emit_delta", "a coordinate of float64 where there is none");
    value->hi = d->wide[x->index];
  } else if (x->op == EXPR_NARROW && x->arg[0]->op == EXPR_POSITION && d->narrow) {
    value->hi = d->narrow[x->arg[0]->index];
  } else if (x->op == EXPR_NARROW && x->arg[0]->op == EXPR_COTANGENT) {
    value->hi = x->arg[0]->index ? d->torques[x->arg[0]->index - 1] : d->cotangent;
  } else if (x->op == EXPR_COTANGENT && d->torques) {
    value->hi = ir_cast(d->e->b, "arith.extf", d->torques[x->index - 1], d->e->b->f64);
  } else if (x->op == EXPR_TABLE || x->op == EXPR_OPERAND) value->hi = gathered(d, x);
  else if (x->op == EXPR_ELEMENT) value->hi = element(d, x);
  else if (x->op == EXPR_INPUT_AT) value->hi = row_element(d, x);
  else return false;
  return true;
}

delta_emitter delta_emitter_create(const attention_emitter *e, two_float *fixed) {
  return (delta_emitter){.walker = {.context = {e->b, e->target->has_fma},
                                    .machine = &expr_of_processors,
                                    .varies = DEPENDS_POSITION | DEPENDS_QUERY,
                                    .lanes = e->shape.lanes,
                                    .fixed = fixed,
                                    .stride = 1,
                                    .leaf = leaf,
                                    .memory = e->memory},
                         .e = e};
}

delta_emitter delta_emitter_at(const attention_emitter *e, two_float *fixed, const ir_value *narrow) {
  delta_emitter d = delta_emitter_create(e, fixed);
  d.walker.varying = delta_memo(e);
  d.narrow = narrow;
  return d;
}

two_float *delta_memo(const attention_emitter *e) {
  return arena_array(e->memory, two_float, expr_pool_count(e->p->spec->pool));
}

ir_value emit_sink(const attention_emitter *e) {
  delta_emitter d = delta_emitter_at(e, delta_memo(e), NULL);
  return emit_expr_f32(&d.walker, e->p->sink);
}

/* A maximum no score is expected below: a query that sees nothing keeps it, and its sum stays 0. */
static const double NOTHING_SEEN = -0x1p126;

void emit_nothing_seen(const attention_emitter *e, ir_value has_sink, ir_value *maximum, ir_value *sum) {
  ir *b = e->b;
  *maximum = ir_float(b, e->lanes, NOTHING_SEEN);
  *sum = ir_float(b, e->lanes, 0);
  if (!e->p->sink) return;
  ir_value sink = emit_sink(e);
  if (has_sink.ptr) sink = ir_select(b, has_sink, sink, ir_float(b, e->lanes, -__builtin_inf()));
  *maximum = larger(b, sink, *maximum);
  *sum = emit_exp2(b, sub(b, sink, *maximum));
}
