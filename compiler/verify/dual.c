/* verify/dual: see verify/dual.h. */
#include "verify/dual.h"

#include "base/diag.h"

#include <math.h>
#include <string.h>

static const long double RADIANS_PER_QUARTER_TURN = 1.57079632679489661923132169163975144L;

dual_place dual_at(arena *a, const expr_pool *pool, const expr_environment *env) {
  int nodes = expr_pool_count(pool);
  return (dual_place){a, env, arena_array(a, dual, nodes + 1), arena_alloc(a, (size_t)nodes + 1), nodes};
}

/* ---- one number of the call ---- */

static dual evaluate(dual_place *p, const dual_variable *by, const expr *x);

static int offset_of(const expr *x, const expr_environment *env) {
  return x->offsets[(x->n_heads > 1 ? env->head : 0) * env->blocks + env->block];
}

/* Whether a leaf reads a number, and which. */
static bool variable_of(dual_place *p, const expr *x, dual_variable *out) {
  switch (x->op) {
  case EXPR_POSITION: *out = (dual_variable){DUAL_POSITION, x->index, 0}; return true;
  case EXPR_OPERAND: *out = (dual_variable){DUAL_OPERAND, x->index, offset_of(x, p->env)}; return true;
  case EXPR_CHANNEL: *out = (dual_variable){DUAL_CHANNEL, x->index, 0}; return true;
  case EXPR_INPUT: *out = (dual_variable){DUAL_INPUT, x->index, offset_of(x, p->env)}; return true;
  case EXPR_ELEMENT: {
    int place = (int)floorl(evaluate(p, NULL, x->arg[0]).value);
    *out = (dual_variable){DUAL_OPERAND, x->index, offset_of(x, p->env) + place};
    return true;
  }
  default: return false;
  }
}

static bool same(const dual_variable *x, const dual_variable *y) {
  return x->kind == y->kind && x->index == y->index && x->element == y->element;
}

static dual leaf(dual_place *p, const dual_variable *by, const expr *x) {
  const expr_environment *env = p->env;
  dual_variable v;
  if (x->op == EXPR_CONST) return (dual){x->value, 0};
  if (x->op == EXPR_TABLE) return (dual){x->table[(x->n_heads > 1 ? env->head : 0) * env->blocks + env->block], 0};
  if (!variable_of(p, x, &v)) diag_bug("dual", "leaf '%s'", expr_op_name(x->op));
  long double tangent = by && same(&v, by);
  switch (v.kind) {
  case DUAL_OPERAND: return (dual){env->operands[v.index][v.element], tangent};
  case DUAL_INPUT: return (dual){env->inputs[v.index][v.element], tangent};
  case DUAL_CHANNEL: return (dual){env->channels[v.index], tangent};
  default: return (dual){env->positions[v.index], tangent};
  }
}

/* ---- operations ---- */

/* sin(pi/2 (x + turns)), reduced exactly first: the remainder of a division by 4 and the nearest quarter are. */
static long double sine(long double x, int turns) {
  if (!isfinite(x)) return NAN;
  long double quarters = rintl(x), rest = (x - quarters) * RADIANS_PER_QUARTER_TURN;
  int at = ((int)fmodl(quarters, 4) + turns + 4) % 4;
  long double size = at % 2 ? cosl(rest) : sinl(rest);
  return at < 2 ? size : -size;
}

static long double sign(long double x) { return (x > 0) - (x < 0); }

/* A tangent that is 0 stays 0 whatever it is multiplied by: what does not depend on the variable has none. */
static long double times(long double tangent, long double x) { return tangent == 0 ? 0 : tangent * x; }

static dual unary(expr_op op, dual a) {
  long double x = a.value, t = a.tangent, y;
  switch (op) {
  case EXPR_NEG: return (dual){-x, -t};
  case EXPR_ABS: return (dual){fabsl(x), times(t, sign(x))};
  case EXPR_SQRT: return y = sqrtl(x), (dual){y, y == 0 ? 0 : t / (2 * y)};
  case EXPR_FLOOR: return (dual){floorl(x), 0};
  case EXPR_EXP: return y = expl(x), (dual){y, times(t, y)};
  case EXPR_LOG: return (dual){logl(x), times(t, 1 / x)};
  case EXPR_LOG1P: return (dual){log1pl(x), times(t, 1 / (1 + x))};
  case EXPR_TANH: return y = 1 / coshl(x), (dual){tanhl(x), times(t, y * y)};
  case EXPR_SINQ: return (dual){sine(x, 0), times(t, RADIANS_PER_QUARTER_TURN * sine(x, 1))};
  case EXPR_COSQ: return (dual){sine(x, 1), times(t, -RADIANS_PER_QUARTER_TURN * sine(x, 0))};
  case EXPR_SIN_FOLDED:
  case EXPR_COS_FOLDED: {
    long double rest = 2 * (x - rintl(x)); /* quarters */
    int turns = op == EXPR_COS_FOLDED;
    return (dual){sine(rest, turns), times(t, 2 * RADIANS_PER_QUARTER_TURN * sine(rest, turns + 1))};
  }
  case EXPR_ROUND32: return (dual){(float)x, t}; /* of what it rounds: the stairs have none */
  case EXPR_NARROW:
  case EXPR_WIDEN: return a;
  default: diag_bug("dual", "operation '%s'", expr_op_name(op));
  }
}

static dual binary(expr_op op, dual a, dual b) {
  switch (op) {
  case EXPR_ADD: return (dual){a.value + b.value, a.tangent + b.tangent};
  case EXPR_SUB: return (dual){a.value - b.value, a.tangent - b.tangent};
  case EXPR_MUL: return (dual){a.value * b.value, times(a.tangent, b.value) + times(b.tangent, a.value)};
  case EXPR_DIV: {
    long double y = a.value / b.value;
    return (dual){y, times(a.tangent, 1 / b.value) - times(b.tangent, y / b.value)};
  }
  case EXPR_MIN: return b.value < a.value ? b : a.value < b.value ? a : (dual){a.value, 0};
  case EXPR_MAX: return b.value > a.value ? b : a.value > b.value ? a : (dual){a.value, 0};
  case EXPR_ATAN2: { /* b turns towards a */
    long double size = a.value * a.value + b.value * b.value;
    long double tangent = times(a.tangent, b.value) - times(b.tangent, a.value);
    return (dual){atan2l(a.value + 0.0L, b.value + 0.0L), size == 0 ? 0 : tangent / size};
  }
  case EXPR_LESS: return (dual){a.value < b.value, 0};
  default: diag_bug("dual", "operation '%s'", expr_op_name(op));
  }
}

dual dual_operation(expr_op op, const dual *arguments) {
  if (op == EXPR_SELECT) return arguments[arguments[0].value != 0 ? 1 : 2];
  return expr_op_arity(op) == 1 ? unary(op, arguments[0]) : binary(op, arguments[0], arguments[1]);
}

static dual evaluate(dual_place *p, const dual_variable *by, const expr *x) {
  if (p->is_known[x->id]) return p->known[x->id];
  dual y;
  int arity = x->op == EXPR_ELEMENT ? 0 : expr_op_arity(x->op);
  if (arity == 0) y = leaf(p, by, x);
  else if (arity == 1) y = unary(x->op, evaluate(p, by, x->arg[0]));
  else if (arity == 2) {
    dual a = evaluate(p, by, x->arg[0]), b = evaluate(p, by, x->arg[1]);
    y = binary(x->op, a, b);
  } else y = evaluate(p, by, x->arg[evaluate(p, by, x->arg[0]).value != 0 ? 1 : 2]);
  p->is_known[x->id] = 1;
  return p->known[x->id] = y;
}

static void forget(dual_place *p) { memset(p->is_known, 0, (size_t)p->nodes); }

void dual_eval(dual_place *p, const dual_variable *by, const expr *const *xs, int count, dual *out) {
  forget(p);
  for (int i = 0; i < count; i++) out[i] = evaluate(p, by, xs[i]);
}

/* ---- variables ---- */

typedef struct search {
  dual_place *place;
  unsigned char *seen;
  dual_variable *found;
  int count;
} search;

/* Of a choice only what was chosen: the other side's place may be none of its table. */
static void look(search *s, const expr *x) {
  if (s->seen[x->id]) return;
  s->seen[x->id] = 1;
  if (x->op == EXPR_SELECT) {
    look(s, x->arg[evaluate(s->place, NULL, x->arg[0]).value != 0 ? 1 : 2]);
    return;
  }
  dual_variable v;
  bool is_known = !variable_of(s->place, x, &v);
  for (int i = 0; !is_known && i < s->count; i++) is_known = same(&s->found[i], &v);
  if (!is_known) s->found[s->count++] = v;
  for (int i = 0; i < expr_op_arity(x->op); i++) look(s, x->arg[i]);
}

int dual_variables(dual_place *p, const expr *const *xs, int count, const dual_variable **out) {
  forget(p);
  search s = {p, arena_alloc(p->memory, (size_t)p->nodes + 1), arena_array(p->memory, dual_variable, p->nodes + 1), 0};
  for (int i = 0; i < count; i++) look(&s, xs[i]);
  *out = s.found;
  return s.count;
}
