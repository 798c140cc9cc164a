/* verify/dual: see verify/dual.h. */
#include "verify/dual.h"

#include "base/diag.h"

#include <math.h>

static const long double RADIANS_PER_QUARTER_TURN = 1.57079632679489661923132169163975144L;

dual_place dual_at(arena *a, const expr_pool *pool, const expr_environment *env) {
  int nodes = expr_pool_count(pool);
  dual_place p = {.memory = a, .env = env, .nodes = nodes};
  p.plain.known = arena_array(a, dual, nodes + 1);
  p.plain.when = arena_array(a, int, nodes + 1);
  p.plain.now = 1;
  p.by.known = arena_array(a, dual, nodes + 1);
  p.by.when = arena_array(a, int, nodes + 1);
  return p;
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
    int place = expr_element_place(x, p->env, evaluate(p, NULL, x->arg[0]).value);
    *out = (dual_variable){DUAL_OPERAND, x->index, place};
    return true;
  }
  case EXPR_INPUT_AT: {
    int place = expr_element_place(x, p->env, evaluate(p, NULL, x->arg[0]).value);
    *out = (dual_variable){DUAL_INPUT, x->index, place};
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
  if (x->op == EXPR_CONST) return (dual){x->value, 0, 0};
  if (x->op == EXPR_TABLE) return (dual){x->table[(x->n_heads > 1 ? env->head : 0) * env->blocks + env->block], 0, 0};
  if (!variable_of(p, x, &v)) diag_bug("dual", "leaf '%s'", expr_op_name(x->op));
  long double one = by && same(&v, by);
  switch (v.kind) {
  case DUAL_OPERAND: return (dual){env->operands[v.index][v.element], one, one};
  case DUAL_INPUT: return (dual){env->inputs[v.index][v.element], one, one};
  case DUAL_CHANNEL: return (dual){env->channels[v.index], one, one};
  default: return (dual){env->positions[v.index], one, one};
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

/* Through a slope of 0 nothing comes, from an infinite argument either: the limit of what saturates there. */
static long double through(long double tangent, long double slope) { return slope == 0 ? 0 : times(tangent, slope); }

/* x, whose tangent and its terms go through a slope. */
static dual sloped(long double value, dual a, long double slope) {
  return (dual){value, times(a.tangent, slope), times(a.size, fabsl(slope))};
}

static dual saturated(long double value, dual a, long double slope) {
  return (dual){value, through(a.tangent, slope), through(a.size, fabsl(slope))};
}

/* A slope that is computed as a sum of terms, of which near its zeros rounding leaves what is small beside them. */
static dual cancelling(long double value, dual a, long double slope, long double terms) {
  return (dual){value, through(a.tangent, slope), slope == 0 ? 0 : times(a.size, terms)};
}

/* The tangents of two arguments through their slopes are added. */
static dual added(long double value, dual a, dual b) { return (dual){value, a.tangent + b.tangent, a.size + b.size}; }

/* A sine's slope is exact beside 1. */
static dual turned(long double value, dual a, long double slope) {
  return (dual){value, times(a.tangent, RADIANS_PER_QUARTER_TURN * slope), times(a.size, RADIANS_PER_QUARTER_TURN)};
}

static dual constant(long double value) { return (dual){value, 0, 0}; }

static dual unary(expr_op op, dual a) {
  long double x = a.value, y;
  switch (op) {
  case EXPR_NEG: return sloped(-x, a, -1);
  case EXPR_ABS: return sloped(fabsl(x), a, sign(x));
  case EXPR_SQRT: return y = sqrtl(x), y == 0 ? constant(y) : sloped(y, a, 1 / (2 * y));
  case EXPR_FLOOR: return constant(floorl(x));
  case EXPR_EXP: return y = expl(x), saturated(y, a, y);
  case EXPR_LOG: return sloped(logl(x), a, 1 / x);
  case EXPR_LOG1P: return sloped(log1pl(x), a, 1 / (1 + x));
  case EXPR_TANH: return y = 1 / coshl(x), cancelling(tanhl(x), a, y * y, 2 - y * y); /* 1 - tanh^2 */
  case EXPR_SIGMOID: return y = expl(-fabsl(x)), saturated((x < 0 ? y : 1) / (1 + y), a, y / (1 + y) / (1 + y));
  case EXPR_SOFTPLUS: return y = expl(-fabsl(x)), saturated((0 > x ? 0 : x) + log1pl(y), a, (x < 0 ? y : 1) / (1 + y));
  case EXPR_SINQ: return turned(sine(x, 0), a, sine(x, 1));
  case EXPR_COSQ: return turned(sine(x, 1), a, -sine(x, 0));
  case EXPR_SIN_FOLDED:
  case EXPR_COS_FOLDED: {
    long double rest = 2 * (x - rintl(x)); /* quarters */
    int turns = op == EXPR_COS_FOLDED;
    return sloped(sine(rest, turns), a, 2 * RADIANS_PER_QUARTER_TURN * sine(rest, turns + 1));
  }
  case EXPR_ROUND32: return sloped((float)x, a, 1); /* of what it rounds: the stairs have none */
  case EXPR_NARROW:
  case EXPR_WIDEN: return a;
  default: diag_bug("dual", "operation '%s'", expr_op_name(op));
  }
}

static dual binary(expr_op op, dual a, dual b) {
  switch (op) {
  case EXPR_ADD: return added(a.value + b.value, a, b);
  case EXPR_SUB: return added(a.value - b.value, a, sloped(0, b, -1));
  case EXPR_MUL: return added(a.value * b.value, sloped(0, a, b.value), sloped(0, b, a.value));
  case EXPR_DIV: {
    long double y = a.value / b.value;
    return added(y, sloped(0, a, 1 / b.value), saturated(0, b, -y / b.value));
  }
  case EXPR_MIN: return b.value < a.value ? b : a.value < b.value ? a : constant(a.value);
  case EXPR_MAX: return b.value > a.value ? b : a.value > b.value ? a : constant(a.value);
  case EXPR_ATAN2: { /* b turns towards a */
    long double square = a.value * a.value + b.value * b.value, y = atan2l(a.value + 0.0L, b.value + 0.0L);
    if (square == 0) return constant(y);
    dual sum = added(y, sloped(0, a, b.value), sloped(0, b, -a.value));
    return (dual){y, sum.tangent / square, sum.size / square};
  }
  case EXPR_LESS: return constant(a.value < b.value);
  default: diag_bug("dual", "operation '%s'", expr_op_name(op));
  }
}

dual dual_operation(expr_op op, const dual *arguments) {
  if (op == EXPR_SELECT) return arguments[arguments[0].value != 0 ? 1 : 2];
  return expr_op_arity(op) == 1 ? unary(op, arguments[0]) : binary(op, arguments[0], arguments[1]);
}

static dual evaluate_anew(dual_place *p, const dual_variable *by, const expr *x) {
  int arity = expr_op_is_lookup(x->op) ? 0 : expr_op_arity(x->op);
  if (arity == 0) return leaf(p, by, x);
  if (arity == 1) return unary(x->op, evaluate(p, by, x->arg[0]));
  if (arity == 3) return evaluate(p, by, x->arg[evaluate(p, by, x->arg[0]).value != 0 ? 1 : 2]);
  dual a = evaluate(p, by, x->arg[0]), b = evaluate(p, by, x->arg[1]);
  return binary(x->op, a, b);
}

static bool may_depend(const dual_place *p, const expr *x) {
  return p->bit < 0 || p->reads[x->id * p->words + p->bit / 64] >> p->bit % 64 & 1;
}

/* What does not depend on the variable is computed once for all of them. */
static dual evaluate(dual_place *p, const dual_variable *by, const expr *x) {
  if (by && !may_depend(p, x)) by = NULL;
  dual *known = by ? p->by.known : p->plain.known;
  int *when = by ? p->by.when : p->plain.when, now = by ? p->by.now : p->plain.now;
  if (when[x->id] == now) return known[x->id];
  dual y = evaluate_anew(p, by, x);
  when[x->id] = now;
  return known[x->id] = y;
}

void dual_eval(dual_place *p, const dual_variable *by, const expr *const *xs, int count, dual *out) {
  p->by.now++;
  p->bit = -1;
  for (int i = 0; i < p->count && p->bit < 0; i++)
    if (same(by, &p->variable[i])) p->bit = i;
  for (int i = 0; i < count; i++) out[i] = evaluate(p, by, xs[i]);
}

/* ---- variables ---- */

typedef struct search {
  dual_place *place;
  unsigned char *seen;
  int *variable; /* by id: of a leaf, its number plus 1 */
  dual_variable *found;
  int count;
} search;

/* What x's tangent comes of. A choice gives only what was chosen: the other side's index may lie outside its table. */
static int arguments_of(dual_place *p, const expr *x, const expr *const **out) {
  *out = x->arg;
  if (x->op != EXPR_SELECT) return expr_op_arity(x->op);
  *out += evaluate(p, NULL, x->arg[0]).value != 0 ? 1 : 2;
  return 1;
}

static void look(search *s, const expr *x) {
  const expr *const *arguments;
  dual_variable v;
  if (s->seen[x->id]) return;
  s->seen[x->id] = 1;
  if (variable_of(s->place, x, &v)) {
    int i = 0;
    while (i < s->count && !same(&s->found[i], &v)) i++;
    s->found[i] = v;
    s->variable[x->id] = i + 1;
    if (i == s->count) s->count++;
  }
  int n = arguments_of(s->place, x, &arguments);
  for (int i = 0; i < n; i++) look(s, arguments[i]);
}

static const uint64_t *mark(search *s, const expr *x) {
  const expr *const *arguments;
  dual_place *p = s->place;
  uint64_t *reads = p->reads + x->id * p->words;
  if (s->seen[x->id] == 2) return reads;
  s->seen[x->id] = 2;
  int variable = s->variable[x->id] - 1, n = arguments_of(p, x, &arguments);
  if (variable >= 0) reads[variable / 64] |= 1ull << variable % 64;
  for (int i = 0; i < n; i++) {
    const uint64_t *of = mark(s, arguments[i]);
    for (int w = 0; w < p->words; w++) reads[w] |= of[w];
  }
  return reads;
}

int dual_variables(dual_place *p, const expr *const *xs, int count, const dual_variable **out) {
  arena *a = p->memory;
  search s = {.place = p,
              .seen = arena_alloc(a, (size_t)p->nodes + 1),
              .variable = arena_array(a, int, p->nodes + 1),
              .found = arena_array(a, dual_variable, p->nodes + 1)};
  for (int i = 0; i < count; i++) look(&s, xs[i]);
  p->words = s.count / 64 + 1;
  p->reads = arena_array(a, uint64_t, (p->nodes + 1) * p->words);
  for (int i = 0; i < count; i++) mark(&s, xs[i]);
  p->variable = *out = s.found;
  p->count = s.count;
  return s.count;
}
