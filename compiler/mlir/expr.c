/* mlir/expr: one op a node; see mlir/expr.h. */
#include "mlir/expr.h"

#include "base/diag.h"
#include "mlir/math.h"

#include <math.h>

static two_float value(expr_walker *w, const expr *x, bool is_f32);

static bool is_turn(const expr *x) {
  return x->op == EXPR_SINQ || x->op == EXPR_COSQ || x->op == EXPR_SIN_FOLDED || x->op == EXPR_COS_FOLDED;
}

/* Whether a value has been through a sine or cosine: then it carries their error, and its size is about 1. So is what
 * comes in as a gradient. */
static bool is_turned(const expr_walker *w, const expr *x) {
  if (!w->turned) return false;
  if (w->turned[x->id]) return w->turned[x->id] > 0;
  bool turned = is_turn(x) || x->op == EXPR_COTANGENT;
  for (int i = 0; i < expr_op_arity(x->op); i++) turned = is_turned(w, x->arg[i]) || turned;
  w->turned[x->id] = turned ? 1 : -1;
  return turned;
}

static const arithmetic *of_type(const expr_walker *w, bool is_f32) {
  return is_f32 ? w->machine->narrow : w->machine->wide;
}

static two_float spread(expr_walker *w, two_float x, int lanes) {
  ir *b = w->context.b;
  if (!lanes || ir_lanes(x.hi)) return x;
  return two_float_f32(ir_broadcast(b, ir_vector(b, lanes, ir_type(x.hi)), x.hi));
}

/* Whether a node is computed in float32: its own type, or all that its value is worth. */
static bool is_narrow(const expr_walker *w, const expr *x) {
  if (x->is_f32 || !w->turns_narrow || !is_turned(w, x)) return x->is_f32;
  return x->op == EXPR_SELECT || w->machine->narrow->operation[x->op];
}

/* An argument in the type and lanes that its user computes in: constants take that type. */
static two_float argument(expr_walker *w, const expr *x, int lanes, bool is_f32) {
  const arithmetic *a = of_type(w, is_f32);
  if (x->op == EXPR_CONST) return a->constant(w->context.b, lanes, x->value);
  return spread(w, a->convert(w->context.b, value(w, x, is_f32)), lanes);
}

/* ---- what the walker does itself ---- */

static bool is_f32_or_fixed(const expr *x) { return expr_is_fixed(x) || x->is_f32; }

/* 1 or 0, compared in float32 where both are. */
static two_float less(expr_walker *w, const expr *x, int lanes) {
  ir *b = w->context.b;
  bool narrow = !w->machine->compares_wide && is_f32_or_fixed(x->arg[0]) && is_f32_or_fixed(x->arg[1]);
  const arithmetic *a = of_type(w, x->is_f32);
  two_float v[2];
  for (int i = 0; i < 2; i++) v[i] = argument(w, x->arg[i], lanes, narrow);
  ir_value condition = of_type(w, narrow)->less(b, v[0], v[1]);
  two_float one = a->constant(b, lanes, 1);
  return a->select(b, condition, one, a->constant(b, lanes, 0));
}

static two_float chosen(expr_walker *w, const expr *x, int lanes) {
  ir *b = w->context.b;
  bool narrow = x->arg[0]->is_f32 && !w->machine->compares_wide;
  ir_value condition = of_type(w, narrow)->nonzero(b, argument(w, x->arg[0], lanes, narrow));
  two_float v[2];
  for (int i = 0; i < 2; i++) v[i] = argument(w, x->arg[i + 1], lanes, is_narrow(w, x));
  return of_type(w, is_narrow(w, x))->select(b, condition, v[0], v[1]);
}

/* A product that is made here: of one that is at hand, prepared before, the factors may be nowhere. */
static bool makes_product(expr_walker *w, const expr *x, bool is_f32) {
  two_float at_hand;
  return x->op == EXPR_MUL && is_narrow(w, x) == is_f32 && !w->leaf(w, x, is_f32, &at_hand);
}

/* x + y or x - y, a product among them fused: of float32 in exact code said here and not left to the target, so that
 * all machines give one result; on processors because LLVM fuses no product that others read, too. */
static bool may_fuse(const expr_walker *w, const expr *x) {
  bool is_f32 = is_narrow(w, x), in_lanes = w->machine->has_idioms && w->context.has_fma && expr_lanes(w, x);
  return (x->op == EXPR_ADD || x->op == EXPR_SUB) && (in_lanes || (w->context.b->exact && is_f32));
}

static bool fused(expr_walker *w, const expr *x, int lanes, two_float *v) {
  ir *b = w->context.b;
  bool is_f32 = is_narrow(w, x);
  int side = 0; /* what the product is added to */
  if (!may_fuse(w, x)) return false;
  while (side < 2 && !makes_product(w, x->arg[1 - side], is_f32)) side++;
  if (side == 2) return false;
  const expr *product = x->arg[1 - side], *other = x->arg[side];
  ir_value factor = argument(w, product->arg[0], lanes, is_f32).hi, rest = argument(w, other, lanes, is_f32).hi;
  if (x->op == EXPR_SUB && side == 0) factor = ir_op1(b, "arith.negf", factor);
  if (x->op == EXPR_SUB && side == 1) rest = ir_op1(b, "arith.negf", rest);
  *v = two_float_f32(ir_fma(b, factor, argument(w, product->arg[1], lanes, is_f32).hi, rest));
  return true;
}

/* ---- idioms: nodes that are dearer one by one ---- */

/* A phase that is a product goes unrounded into its reduction. */
static math_phase phase_of(expr_walker *w, const expr *phase, int lanes) {
  if (!w->context.has_fma || !lanes || phase->op != EXPR_MUL)
    return (math_phase){.factor = {argument(w, phase, lanes, false).hi}};
  return (math_phase){
      .is_product = true,
      .factor = {argument(w, phase->arg[0], lanes, false).hi, argument(w, phase->arg[1], lanes, false).hi}};
}

/* A sine that will be rounded is computed in float32 after its phase was reduced. */
static two_float rounded_turn(expr_walker *w, const expr *turn, int lanes) {
  math_phase p = phase_of(w, turn->arg[0], lanes);
  return two_float_f32(turn->op == EXPR_SINQ ? math_sinq_f32(w->context.b, p) : math_cosq_f32(w->context.b, p));
}

/* One that is not takes the phase in the same way: a sine and a cosine of one angle, of which one alone is rounded,
 * would be of two angles where phases have no digits. */
static two_float wide_turn(expr_walker *w, const expr *turn, int lanes) {
  math_phase p = phase_of(w, turn->arg[0], lanes);
  ir *b = w->context.b;
  switch (turn->op) {
  case EXPR_SINQ: return two_float_f32(math_sinq_f64(b, p));
  case EXPR_COSQ: return two_float_f32(math_cosq_f64(b, p));
  case EXPR_SIN_FOLDED: return two_float_f32(math_sin_folded_f64(b, p));
  default: return two_float_f32(math_cos_folded_f64(b, p));
  }
}

static bool idiom(expr_walker *w, const expr *x, int lanes, two_float *v) {
  if (fused(w, x, lanes, v)) return true;
  if (!w->machine->has_idioms) return false;
  if (!x->is_f32 && is_turn(x)) return *v = wide_turn(w, x, lanes), true;
  if (x->op != EXPR_NARROW || (x->arg[0]->op != EXPR_SINQ && x->arg[0]->op != EXPR_COSQ)) return false;
  return *v = rounded_turn(w, x->arg[0], lanes), true;
}

/* ---- sums ---- */

expr_term emit_expr_term(expr_walker *w, ir_value index, int nodes) {
  expr_term before = w->term;
  w->term = (expr_term){index, arena_array(w->memory, two_float, nodes)};
  return before;
}

/* Emits what below x is the same in all terms. */
static void emit_shared(expr_walker *w, const expr *x, bool *seen) {
  if (seen[x->id] || x->op == EXPR_CONST) return;
  seen[x->id] = true;
  if (!x->terms) value(w, x, x->is_f32);
  for (int i = 0; x->terms && i < expr_op_arity(x->op); i++) emit_shared(w, x->arg[i], seen);
}

static int nodes_of(const expr *const *roots, int count) {
  int nodes = 0;
  for (int i = 0; i < count; i++) nodes = roots[i]->id >= nodes ? roots[i]->id + 1 : nodes;
  return nodes;
}

expr_loop emit_expr_terms(expr_walker *w, int terms, const expr *const *roots, int count) {
  ir *b = w->context.b;
  int nodes = nodes_of(roots, count);
  bool *seen = arena_array(w->memory, bool, nodes);
  for (int i = 0; i < count; i++) emit_shared(w, roots[i], seen);
  ir_value end = ir_int(b, b->i64, terms);
  expr_loop l = {.loop = ir_for(b, ir_int(b, b->i64, 0), end)};
  l.before = emit_expr_term(w, l.loop.index, nodes);
  return l;
}

void emit_expr_end_terms(expr_walker *w, expr_loop loop) {
  w->term = loop.before;
  ir_end_for(w->context.b, loop.loop);
}

static two_float summed(expr_walker *w, const expr *x, int lanes) {
  ir *b = w->context.b;
  const expr *of_term = x->arg[0];
  MlirType type = lanes ? ir_vector(b, lanes, b->f32) : b->f32;
  if (!is_narrow(w, x)) diag_bug("emit_expr", "a sum of float64");
  emit_shared(w, of_term, arena_array(w->memory, bool, of_term->id + 1));
  ir_value zero = ir_float(b, type, 0), end = ir_int(b, b->i64, x->index), now, sum;
  ir_loop loop = ir_for_with(b, ir_int(b, b->i64, 0), end, 1, &zero, &now);
  expr_term before = emit_expr_term(w, loop.index, of_term->id + 1);
  ir_value next = ir_op2(b, "arith.addf", now, argument(w, of_term, lanes, true).hi);
  w->term = before;
  ir_end_for_with(b, loop, 1, &next, &sum);
  return two_float_f32(sum);
}

static ir_value scaled(ir *b, ir_value x, int64_t by) {
  return by == 1 ? x : ir_op2(b, "arith.muli", x, ir_int(b, b->i64, by));
}

ir_value emit_expr_place_of_terms(expr_walker *w, const expr *x) {
  ir *b = w->context.b;
  int32_t *place = arena_array(w->memory, int32_t, x->terms);
  bool is_line = true;
  for (int i = 0; i < x->terms; i++) place[i] = (int32_t)floor(x->table[i]);
  int step = place[1] - place[0];
  for (int i = 0; i < x->terms; i++) is_line = is_line && place[i] == place[0] + i * step;
  if (is_line) return ir_op2(b, "arith.addi", scaled(b, w->term.index, step), ir_int(b, b->i64, place[0]));
  const char *name = ir_table_of(b, x->terms, NULL, place);
  ir_value at = ir_offset(b, ir_table_address(b, name), scaled(b, w->term.index, 4));
  return ir_cast(b, "arith.extsi", ir_load(b, b->i32, at, 4), b->i64);
}

ir_value emit_expr_of_terms(expr_walker *w, const expr *x) {
  ir *b = w->context.b;
  float *values = arena_array(w->memory, float, x->terms);
  for (int i = 0; i < x->terms; i++) values[i] = (float)x->table[i];
  const char *name = ir_table_of(b, x->terms, values, NULL);
  return ir_load(b, b->f32, ir_offset(b, ir_table_address(b, name), scaled(b, w->term.index, 4)), 4);
}

/* ---- the walk ---- */

static two_float compute(expr_walker *w, const expr *x) {
  int lanes = expr_lanes(w, x);
  bool is_f32 = is_narrow(w, x);
  two_float v[3];
  if (idiom(w, x, lanes, &v[0])) return v[0];
  switch (x->op) {
  case EXPR_NARROW:
  case EXPR_WIDEN: return of_type(w, is_f32)->convert(w->context.b, argument(w, x->arg[0], lanes, x->arg[0]->is_f32));
  case EXPR_LESS: return less(w, x, lanes);
  case EXPR_SELECT: return chosen(w, x, lanes);
  case EXPR_TERMS: return two_float_f32(emit_expr_of_terms(w, x));
  case EXPR_SUM: return summed(w, x, lanes);
  default: break;
  }
  const arithmetic *a = of_type(w, is_f32);
  if (!is_f32 && is_turned(w, x)) a = w->machine->turned;
  bool narrows = is_f32 && !a->operation[x->op];
  if (narrows) a = w->machine->wide;
  if (!a->operation[x->op]) diag_bug("emit_expr", "'%s' has no code", expr_op_name(x->op));
  for (int i = 0; i < expr_op_arity(x->op); i++) v[i] = argument(w, x->arg[i], lanes, is_f32 && !narrows);
  two_float result = a->operation[x->op](&w->context, v);
  bool may_be_infinite = x->unbounded || x->arg[0]->unbounded || (x->op == EXPR_DIV && x->arg[1]->unbounded);
  if (a->settle && may_be_infinite) result = a->settle(&w->context, x->op, v, result);
  return narrows ? w->machine->narrow->convert(w->context.b, result) : result;
}

static two_float value(expr_walker *w, const expr *x, bool is_f32) {
  bool is_typed = w->types_tables && expr_is_fixed_for_heads(x);
  if (x->terms && !w->term.known) diag_bug("emit_expr", "%%%d stands in no sum", x->id);
  two_float *memo = expr_known(w, x), v;
  if (!is_typed && memo->hi.ptr) return *memo;
  if (!w->leaf(w, x, is_f32, &v)) v = compute(w, x);
  if (!is_typed) *expr_known(w, x) = v;
  return v;
}

ir_value emit_expr(expr_walker *w, const expr *x) { return argument(w, x, expr_lanes(w, x), x->is_f32).hi; }

ir_value emit_expr_lanes(expr_walker *w, const expr *x) { return argument(w, x, w->lanes, x->is_f32).hi; }

ir_value emit_expr_f32(expr_walker *w, const expr *x) { return argument(w, x, w->lanes, true).hi; }

two_float emit_expr_wide(expr_walker *w, const expr *x) { return argument(w, x, expr_lanes(w, x), false); }

void emit_expr_fixed(expr_walker *w, const expr *x) {
  if (x->op == EXPR_CONST) return;
  if (!expr_varies(w, x) && !x->terms) {
    emit_expr(w, x);
    return;
  }
  for (int i = 0; i < expr_op_arity(x->op); i++) emit_expr_fixed(w, x->arg[i]);
}

typedef struct map_walker {
  expr_walker walker; /* first: a leaf is asked for by it */
  const ir_value *channels;
} map_walker;

static bool map_leaf(expr_walker *w, const expr *x, bool is_f32, two_float *value) {
  (void)is_f32;
  if (expr_op_arity(x->op) > 0) return false;
  if (x->op != EXPR_CHANNEL) diag_bug("mlir/expr", "leaf '%s' of a map", expr_op_name(x->op));
  *value = two_float_f32(((map_walker *)w)->channels[x->index]);
  return true;
}

ir_value emit_expr_map(arena *a, const expr_machine *machine, arithmetic_context context, int lanes, expr_pool *pool,
                       const expr *map, const ir_value *channels) {
  two_float *memo = arena_array(a, two_float, expr_pool_count(pool) + 1);
  map_walker m = {.walker = {.context = context,
                             .machine = machine,
                             .varies = DEPENDS_CHANNEL,
                             .lanes = lanes,
                             .varying = memo,
                             .fixed = memo,
                             .stride = 1,
                             .leaf = map_leaf},
                  .channels = channels};
  return emit_expr_f32(&m.walker, map);
}
