/* spec/adjoint: one rule per operation; see spec/adjoint.h.
 *
 * Arguments have smaller ids than what is made of them, so that by falling ids every node is met after all of its
 * users, when its gradient is complete.
 */
#include "spec/adjoint.h"

#include "base/diag.h"

static const double RADIANS_PER_QUARTER_TURN = 1.57079632679489661923;

typedef struct adjoint {
  expr_pool *pool;
  int count;           /* nodes of the forward expressions have smaller ids; the arrays below go by id */
  const expr **node;
  const expr **gradient; /* the sum of what has come in; NULL: nothing */
  bool *active;        /* a wanted node is below it, or it is one */
  bool *wanted;
  bool *open;          /* something came in for it by a way without a choice */
  const expr *zero;
  const expr *incoming; /* of the node at hand */
  int terms;             /* of the sum that the node at hand stands in; 0: of none */
  bool is_guarded;     /* nothing came in for it but through choices: it may hold anything where 0 comes in */
} adjoint;

/* ---- what rules are written with ---- */

/* A node that is the same in all terms of a sum gains of each of them. */
static void gain(adjoint *t, const expr *x, const expr *gradient, bool is_open) {
  if (x->id >= t->count || !t->active[x->id]) return;
  if (t->terms && !x->terms) gradient = expr_sum(t->pool, t->terms, gradient);
  const expr *sum = t->gradient[x->id];
  t->gradient[x->id] = sum ? expr_add(t->pool, sum, gradient) : gradient;
  t->open[x->id] = t->open[x->id] || is_open;
}

static void give(adjoint *t, const expr *x, const expr *gradient) { gain(t, x, gradient, !t->is_guarded); }

/* What x gains through a slope that is 0 where x is infinite: there its own slopes are infinite or NaN, and the limit
 * of the product is 0. */
static void give_limit(adjoint *t, const expr *x, const expr *gradient) {
  gain(t, x, gradient, !t->is_guarded && !x->unbounded);
}

/* What x gains where the condition holds. */
static void give_where(adjoint *t, const expr *condition, const expr *x, const expr *gradient) {
  gain(t, x, expr_select(t->pool, condition, gradient, t->zero), false);
}

/* y computed from the gradient g by a product or a quotient: 0 where g is, whatever the other number is. */
static const expr *guarded(const adjoint *t, const expr *g, const expr *y) {
  return t->is_guarded && !expr_is_fixed(y) ? expr_select(t->pool, g, y, t->zero) : y;
}

static const expr *times(const adjoint *t, const expr *g, const expr *x) {
  const expr *product = expr_mul(t->pool, g, x);
  return expr_is_fixed(x) ? product : guarded(t, g, product);
}

static const expr *over(const adjoint *t, const expr *g, const expr *x) {
  const expr *quotient = expr_div(t->pool, g, x);
  return expr_is_fixed(x) ? quotient : guarded(t, g, quotient);
}

static bool is_active(const adjoint *t, const expr *x) { return x->id < t->count && t->active[x->id]; }

/* ---- rules: what the arguments of x gain of t->incoming ---- */

static void back_nothing(adjoint *t, const expr *x) { (void)t, (void)x; }

#define back_CONST back_nothing
#define back_TABLE back_nothing
#define back_POSITION back_nothing
#define back_OPERAND back_nothing
#define back_INPUT back_nothing
#define back_CHANNEL back_nothing
#define back_COTANGENT back_nothing
#define back_TERMS back_nothing
#define back_LESS back_nothing
#define back_FLOOR back_nothing
#define back_ELEMENT back_nothing /* the place is rounded down */
#define back_INPUT_AT back_nothing

static void back_ADD(adjoint *t, const expr *x) {
  give(t, x->arg[0], t->incoming);
  give(t, x->arg[1], t->incoming);
}

static void back_SUB(adjoint *t, const expr *x) {
  give(t, x->arg[0], t->incoming);
  if (is_active(t, x->arg[1])) give(t, x->arg[1], expr_neg(t->pool, t->incoming));
}

static void back_MUL(adjoint *t, const expr *x) {
  for (int i = 0; i < 2; i++)
    if (is_active(t, x->arg[i])) give(t, x->arg[i], times(t, t->incoming, x->arg[1 - i]));
}

/* A term of a denominator: the others' sum, and what the term is multiplied by. */
typedef struct pole {
  const expr *rest, *factor;
} pole;

/* Where e is 0 and nothing else of the denominator is infinite, a / (factor d / e + rest) is a e / (factor d) to first
 * order. So e gains g a / (factor d), while the slopes on the way are 0 and infinite. gained: g a. */
static void give_at_pole(adjoint *t, const expr *quotient, pole p, const expr *gained) {
  static const double FINITE = 0x1p100;
  expr_pool *pool = t->pool;
  const expr *scale = expr_mul(pool, p.factor, quotient->arg[0]), *e = quotient->arg[1];
  const expr *slope = expr_select(pool, scale, over(t, gained, scale), t->zero);
  if (p.rest->unbounded) {
    const expr *size = expr_unary(pool, EXPR_ABS, p.rest);
    slope = expr_select(pool, expr_binary(pool, EXPR_LESS, size, expr_const(pool, FINITE)), slope, t->zero);
  }
  gain(t, e, expr_select(pool, e, t->zero, slope), false);
}

/* The quotients among the terms of x. */
static void give_at_poles(adjoint *t, const expr *x, pole p, const expr *gained) {
  expr_pool *pool = t->pool;
  const expr *a = x->arg[0], *b = x->arg[1];
  if (!x->unbounded || !is_active(t, x)) return;
  pole of_a = p, of_b = p;
  const expr *to_b = gained;
  switch (x->op) {
  case EXPR_SUB: to_b = expr_neg(pool, gained); /* fall through */
  case EXPR_ADD:
    of_a.rest = expr_add(pool, p.rest, b);
    of_b.rest = expr_add(pool, p.rest, a);
    break;
  case EXPR_MUL:
    of_a.factor = expr_mul(pool, p.factor, b);
    of_b.factor = expr_mul(pool, p.factor, a);
    break;
  case EXPR_DIV:
    if (is_active(t, b)) give_at_pole(t, x, p, gained);
    p.factor = expr_div(pool, p.factor, b);
    give_at_poles(t, a, p, gained);
    return;
  case EXPR_NEG: give_at_poles(t, a, p, expr_neg(pool, gained)); return;
  case EXPR_NARROW:
  case EXPR_WIDEN: give_at_poles(t, a, p, gained); return;
  default: return;
  }
  give_at_poles(t, a, of_a, gained);
  give_at_poles(t, b, of_b, to_b);
}

/* x = a / b: g / b, and -(g / b) x. */
static void back_DIV(adjoint *t, const expr *x) {
  const expr *a = x->arg[0], *b = x->arg[1], *share = over(t, t->incoming, b);
  give(t, a, share);
  if (!is_active(t, b)) return;
  give_limit(t, b, expr_neg(t->pool, times(t, share, x)));
  pole whole = {.rest = t->zero, .factor = expr_const(t->pool, 1)};
  if (b->unbounded) give_at_poles(t, b, whole, times(t, t->incoming, a));
}

/* To a where a < b, to b where b < a. */
static void back_smaller(adjoint *t, const expr *a, const expr *b, const expr *to_a, const expr *to_b) {
  if (is_active(t, to_a)) give_where(t, expr_binary(t->pool, EXPR_LESS, a, b), to_a, t->incoming);
  if (is_active(t, to_b)) give_where(t, expr_binary(t->pool, EXPR_LESS, b, a), to_b, t->incoming);
}

static void back_MIN(adjoint *t, const expr *x) { back_smaller(t, x->arg[0], x->arg[1], x->arg[0], x->arg[1]); }
static void back_MAX(adjoint *t, const expr *x) { back_smaller(t, x->arg[0], x->arg[1], x->arg[1], x->arg[0]); }

static void back_NEG(adjoint *t, const expr *x) { give(t, x->arg[0], expr_neg(t->pool, t->incoming)); }

static void back_ABS(adjoint *t, const expr *x) {
  const expr *a = x->arg[0], *g = t->incoming;
  const expr *negative =
      expr_select(t->pool, expr_binary(t->pool, EXPR_LESS, a, t->zero), expr_neg(t->pool, g), t->zero);
  give(t, a, expr_select(t->pool, expr_binary(t->pool, EXPR_LESS, t->zero, a), g, negative));
}

/* A root that is seen not to be 0. */
static bool is_positive(const expr *a) {
  const expr *least = a->arg[1];
  return a->op == EXPR_MAX && least->op == EXPR_CONST && least->value > 0;
}

static void back_SQRT(adjoint *t, const expr *x) {
  const expr *g = expr_div(t->pool, expr_mul(t->pool, t->incoming, expr_const(t->pool, 0.5)), x);
  if (!is_positive(x->arg[0])) g = expr_select(t->pool, x, g, t->zero);
  give(t, x->arg[0], guarded(t, t->incoming, g));
}

/* Beyond it exp, tanh and sigmoid have reached their limits in float64. */
static const double SATURATED = 745;

/* g where x is below that, which is said of x: a kernel's exponential or hyperbolic tangent may come near its limit and
 * not reach it. */
static const expr *unsaturated(adjoint *t, const expr *x, const expr *g) {
  return expr_select(t->pool, expr_binary(t->pool, EXPR_LESS, x, expr_const(t->pool, SATURATED)), g, t->zero);
}

/* A power is made of it: of 0^p, p > 0, the logarithm is -infinity, and what that is made of gains nothing. */
static void back_EXP(adjoint *t, const expr *x) {
  const expr *a = x->arg[0], *g = times(t, t->incoming, x);
  if (is_active(t, a)) give_limit(t, a, a->unbounded ? unsaturated(t, expr_neg(t->pool, a), g) : g);
}

static void back_LOG(adjoint *t, const expr *x) { give(t, x->arg[0], over(t, t->incoming, x->arg[0])); }

static void back_LOG1P(adjoint *t, const expr *x) {
  give(t, x->arg[0], over(t, t->incoming, expr_add(t->pool, x->arg[0], expr_const(t->pool, 1))));
}

static void back_TANH(adjoint *t, const expr *x) {
  const expr *slope = expr_sub(t->pool, expr_const(t->pool, 1), expr_mul(t->pool, x, x));
  const expr *a = x->arg[0], *g = times(t, t->incoming, slope);
  if (is_active(t, a)) give_limit(t, a, a->unbounded ? unsaturated(t, expr_unary(t->pool, EXPR_ABS, a), g) : g);
}

/* x = sigmoid(a): g x sigmoid(-a), since 1 - x has no digits where x is near 1. */
static void back_SIGMOID(adjoint *t, const expr *x) {
  const expr *a = x->arg[0], *rest = expr_unary(t->pool, EXPR_SIGMOID, expr_neg(t->pool, a));
  const expr *g = times(t, t->incoming, expr_mul(t->pool, x, rest));
  if (is_active(t, a)) give_limit(t, a, a->unbounded ? unsaturated(t, expr_unary(t->pool, EXPR_ABS, a), g) : g);
}

static void back_SOFTPLUS(adjoint *t, const expr *x) {
  const expr *a = x->arg[0], *g = times(t, t->incoming, expr_unary(t->pool, EXPR_SIGMOID, a));
  if (is_active(t, a)) give_limit(t, a, a->unbounded ? unsaturated(t, expr_neg(t->pool, a), g) : g);
}

/* x = angle of (b, a): g b / (a^2 + b^2), and -g a of the same; where there is no angle, nothing. */
static void back_ATAN2(adjoint *t, const expr *x) {
  const expr *a = x->arg[0], *b = x->arg[1];
  const expr *square = expr_mul(t->pool, a, a), *size = expr_add(t->pool, square, expr_mul(t->pool, b, b));
  const expr *share = expr_select(t->pool, size, expr_div(t->pool, t->incoming, size), t->zero);
  share = guarded(t, t->incoming, share);
  if (is_active(t, a)) give(t, a, times(t, share, b));
  if (is_active(t, b)) give(t, b, expr_neg(t->pool, times(t, share, a)));
}

static void back_turn(adjoint *t, const expr *x, expr_op derivative, double factor) {
  const expr *turned = expr_unary(t->pool, derivative, x->arg[0]);
  give(t, x->arg[0], expr_mul(t->pool, times(t, t->incoming, turned), expr_const(t->pool, factor)));
}

static void back_SINQ(adjoint *t, const expr *x) { back_turn(t, x, EXPR_COSQ, RADIANS_PER_QUARTER_TURN); }
static void back_COSQ(adjoint *t, const expr *x) { back_turn(t, x, EXPR_SINQ, -RADIANS_PER_QUARTER_TURN); }

static void back_SIN_FOLDED(adjoint *t, const expr *x) {
  back_turn(t, x, EXPR_COS_FOLDED, 2 * RADIANS_PER_QUARTER_TURN);
}
static void back_COS_FOLDED(adjoint *t, const expr *x) {
  back_turn(t, x, EXPR_SIN_FOLDED, -2 * RADIANS_PER_QUARTER_TURN);
}

static void back_NARROW(adjoint *t, const expr *x) { give(t, x->arg[0], t->incoming); }
static void back_ROUND32(adjoint *t, const expr *x) { give(t, x->arg[0], t->incoming); } /* as if it were not rounded */
static void back_WIDEN(adjoint *t, const expr *x) { give(t, x->arg[0], t->incoming); }

static void back_SUM(adjoint *t, const expr *x) { give(t, x->arg[0], t->incoming); }

static void back_SELECT(adjoint *t, const expr *x) {
  if (is_active(t, x->arg[1])) give_where(t, x->arg[0], x->arg[1], t->incoming);
  if (is_active(t, x->arg[2])) gain(t, x->arg[2], expr_select(t->pool, x->arg[0], t->zero, t->incoming), false);
}

/* ORDER EXPR_OP: an operation without a rule does not compile. */
static void (*const RULES[EXPR_OP_COUNT])(adjoint *t, const expr *x) = {
#define X(name, arity, text) [EXPR_##name] = back_##name,
    EXPR_OPS(X)
#undef X
};

/* ---- the walk ---- */

static adjoint begin(arena *a, expr_pool *pool) {
  adjoint t = {.pool = pool};
  t.zero = expr_const(pool, 0);
  t.count = expr_pool_count(pool);
  t.node = arena_array(a, const expr *, t.count + 1);
  t.gradient = arena_array(a, const expr *, t.count + 1);
  t.active = arena_array(a, bool, t.count + 1);
  t.wanted = arena_array(a, bool, t.count + 1);
  t.open = arena_array(a, bool, t.count + 1);
  expr_pool_nodes(pool, t.node);
  return t;
}

/* t->wanted is set. Gradients are in t->gradient afterwards. */
static void walk(adjoint *t, const adjoint_output *outputs, int n_outputs) {
  for (int id = 0; id < t->count; id++) {
    const expr *x = t->node[id];
    t->active[id] = t->wanted[id];
    for (int i = 0; i < expr_op_arity(x->op); i++) t->active[id] = t->active[id] || t->active[x->arg[i]->id];
  }
  for (int i = 0; i < n_outputs; i++) gain(t, outputs[i].value, outputs[i].cotangent, true);
  for (int id = t->count - 1; id >= 0; id--) {
    t->incoming = t->gradient[id];
    if (!t->incoming || t->wanted[id] || expr_is_const(t->incoming, 0)) continue;
    t->is_guarded = !t->open[id];
    t->terms = t->node[id]->terms;
    RULES[t->node[id]->op](t, t->node[id]);
  }
}

void adjoint_of(arena *a, expr_pool *pool, const adjoint_output *outputs, int n_outputs, const expr *const *nodes,
                int n_nodes, const expr **gradients) {
  adjoint t = begin(a, pool);
  for (int i = 0; i < n_nodes; i++) t.wanted[nodes[i]->id] = true;
  walk(&t, outputs, n_outputs);
  for (int i = 0; i < n_nodes; i++) {
    const expr *g = t.gradient[nodes[i]->id];
    gradients[i] = g ? g : t.zero;
  }
}

/* ---- leaves ---- */

static unsigned kind_of(const expr *x) {
  switch (x->op) {
  case EXPR_OPERAND:
  case EXPR_ELEMENT: return ADJOINT_OPERANDS;
  case EXPR_INPUT:
  case EXPR_INPUT_AT: return ADJOINT_INPUTS;
  case EXPR_POSITION: return ADJOINT_POSITIONS;
  case EXPR_CHANNEL: return ADJOINT_CHANNELS;
  default: return 0;
  }
}

int adjoint_scatters(arena *a, expr_pool *pool, const adjoint_output *outputs, int n_outputs, unsigned wanted,
                     const adjoint_scatter **out) {
  adjoint t = begin(a, pool);
  for (int id = 0; id < t.count; id++) t.wanted[id] = kind_of(t.node[id]) & wanted;
  walk(&t, outputs, n_outputs);
  adjoint_scatter *list = arena_array(a, adjoint_scatter, t.count + 1);
  int count = 0;
  for (int id = 0; id < t.count; id++)
    if (t.wanted[id] && t.gradient[id] && !expr_is_const(t.gradient[id], 0))
      list[count++] = (adjoint_scatter){t.node[id], t.gradient[id]};
  *out = list;
  return count;
}

/* ---- the same with other leaves ---- */

static const expr *remade(expr_pool *pool, const expr *x, bool is_rounded, const expr **made) {
  if (made[x->id]) return made[x->id];
  const expr *arg[3] = {NULL};
  for (int i = 0; i < expr_op_arity(x->op); i++) arg[i] = remade(pool, x->arg[i], is_rounded, made);
  const expr *y = expr_rebuild(pool, x, arg);
  if (!is_rounded && (x->op == EXPR_NARROW || x->op == EXPR_WIDEN)) y = arg[0];
  else if (!is_rounded && (expr_op_is_input(x->op) || x->op == EXPR_CHANNEL)) y = expr_unary(pool, EXPR_WIDEN, y);
  return made[x->id] = y;
}

void adjoint_unrounded(arena *a, expr_pool *pool, const expr *const *values, int count, const expr **out) {
  const expr **made = arena_array(a, const expr *, expr_pool_count(pool) + 1);
  for (int i = 0; i < count; i++) out[i] = remade(pool, values[i], false, made);
}

void adjoint_replaced(arena *a, expr_pool *pool, const expr *const *values, int count, const expr *const *leaves,
                      const expr *const *by, int n_leaves, const expr **out) {
  const expr **made = arena_array(a, const expr *, expr_pool_count(pool) + 1);
  for (int i = 0; i < n_leaves; i++) made[leaves[i]->id] = by[i];
  for (int i = 0; i < count; i++) out[i] = remade(pool, values[i], true, made);
}

/* ---- size ---- */

typedef struct field {
  const expr *value;
  const char *name;
} field;

enum { MOST_FIELDS = SPEC_MAX_AXES * (1 + SPEC_MAX_BIVECTORS) + 2 * SPEC_MAX_ENTRIES * SPEC_MAX_ENTRIES + 3 };

/* Whatever of a description gradients go through, with its name. */
static int fields_of(arena *a, const spec *s, field *out) {
  int count = 0;
  for (int axis = 0; s->n_components > 0 && axis < s->n_axes; axis++) {
    out[count++] = (field){s->angle[axis], arena_printf(a, "the phase of axis '%s'", s->axis[axis])};
    for (int i = 0; !s->dense && i < s->generator[axis].count; i++)
      out[count++] =
          (field){s->generator[axis].coefficient[i], arena_printf(a, "the generator of axis '%s'", s->axis[axis])};
  }
  for (int side = 0; side < 2 && s->entries[0]; side++)
    for (int i = 0; i < s->n_components * s->n_components; i++)
      out[count++] = (field){s->entries[side][i], "an entry of the matrix"};
  if (s->additive) out[count++] = (field){s->additive->value, "what is added to a channel"};
  if (s->pairwise && s->pairwise->bias) out[count++] = (field){s->pairwise->bias, "the bias of a pair"};
  if (s->pairwise && s->pairwise->score) out[count++] = (field){s->pairwise->score, "the score of a pair"};
  if (s->pairwise && s->pairwise->sink) out[count++] = (field){s->pairwise->sink, "the sink"};
  if (s->polynomial) out[count++] = (field){s->polynomial->value, "a term of the bias"};
  return count;
}

static bool fits(arena *a, const spec *s, const adjoint_output *outputs, int n_outputs, const char *what) {
  unsigned wanted = ADJOINT_OPERANDS | ADJOINT_INPUTS | ADJOINT_POSITIONS;
  const adjoint_scatter *gradients;
  int count = adjoint_scatters(a, s->pool, outputs, n_outputs, wanted, &gradients);
  const expr **roots = arena_array(a, const expr *, count + 1);
  for (int i = 0; i < count; i++) roots[i] = gradients[i].gradient;
  int64_t size = expr_size_of_all(a, s->pool, roots, count);
  if (size <= ADJOINT_MOST_OPERATIONS) return true;
  diag_error(s->file, s->line,
             "the gradients of %s take %lld operations, %d at most; expected a smaller description, or --no-grad", what,
             (long long)size, ADJOINT_MOST_OPERATIONS);
  return false;
}

bool adjoint_check_size(arena *a, const spec *s) {
  field fields[MOST_FIELDS];
  adjoint_output outputs[MOST_FIELDS];
  const expr *values[MOST_FIELDS];
  int count = fields_of(a, s, fields);
  for (int i = 0; i < count; i++) values[i] = fields[i].value;
  if (expr_size_of_all(a, s->pool, values, count) < ADJOINT_MOST_OPERATIONS / 16) return true; /* and makes no nodes */
  for (int i = 0; i < count; i++) {
    outputs[i] = (adjoint_output){fields[i].value, expr_cotangent(s->pool, i, fields[i].value->depends)};
    if (!fits(a, s, &outputs[i], 1, fields[i].name)) return false;
  }
  return fits(a, s, outputs, count, "all phases, generators and entries together");
}
