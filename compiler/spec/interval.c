/* spec/interval: one rule an operation; see spec/interval.h.
 *
 * Every node is bounded twice: for all displacements that there are, which folds to numbers (its range), and for those
 * at hand. A rule of the second asks ranges for signs, and for whether an infinity can meet another one or a zero:
 * where it cannot, nothing need be asked at run time.
 */
#include "spec/interval.h"

#include <float.h>
#include <math.h>

/* Slack for what may be rounded otherwise: some units of float32's last place. */
static const double SLACK = 0x1p-19;
static const double TINY = 0x1p-100;

typedef struct bounder {
  arena *memory;
  expr_pool *pool;
  const interval *displacement; /* of each axis */
  interval *range, *made;       /* by id; lo NULL: not yet bounded */
  const interval *known;        /* ranges of the nodes; in the first pass those made so far */
  const expr **hidden;          /* by id: 1 where a node is -infinity; NULL: not yet asked */
  bool is_range;                /* operands may be any numbers */
} bounder;

/* ---- expressions of bounds ---- */

static const expr *number(const bounder *t, double x) { return expr_const(t->pool, x); }
static bool is_number(const expr *x, double value) { return expr_is_const(x, value); }

static const expr *least(const bounder *t, const expr *x, const expr *y) {
  if (is_number(x, -INFINITY) || is_number(y, INFINITY)) return x;
  if (is_number(y, -INFINITY) || is_number(x, INFINITY)) return y;
  return expr_binary(t->pool, EXPR_MIN, x, y);
}

static const expr *greatest(const bounder *t, const expr *x, const expr *y) {
  if (is_number(x, INFINITY) || is_number(y, -INFINITY)) return x;
  if (is_number(y, INFINITY) || is_number(x, -INFINITY)) return y;
  return expr_binary(t->pool, EXPR_MAX, x, y);
}

static const expr *less(const bounder *t, const expr *x, const expr *y) {
  return expr_binary(t->pool, EXPR_LESS, x, y);
}

/* Whether both hold, for conditions that are 0 or 1. */
static const expr *both(const bounder *t, const expr *x, const expr *y) {
  if (is_number(x, 0) || is_number(y, 1)) return x;
  if (is_number(y, 0) || is_number(x, 1)) return y;
  return expr_binary(t->pool, EXPR_MIN, x, y);
}

static const expr *either(const bounder *t, const expr *x, const expr *y) {
  if (is_number(x, 1) || is_number(y, 0)) return x;
  if (is_number(y, 1) || is_number(x, 0)) return y;
  return expr_binary(t->pool, EXPR_MAX, x, y);
}

static const expr *not(const bounder *t, const expr *x) {
  const expr *one = number(t, 1);
  return expr_sub(t->pool, one, x);
}

static const expr *chosen(const bounder *t, const expr *condition, const expr *x, const expr *y) {
  return x == y || is_number(condition, 1) ? x : is_number(condition, 0) ? y : expr_select(t->pool, condition, x, y);
}

typedef double rounding(double x);
static double to_float(double x) { return (float)x; }
static double to_float_above(double x) { return (float)x == x ? x : nextafterf((float)x, INFINITY); }
static double to_float_below(double x) { return (float)x == x ? x : nextafterf((float)x, -INFINITY); }

/* Constants as float32; kernels have no others. */
static const expr *rounded(const bounder *t, const expr *x, rounding *of) {
  if (x->op == EXPR_CONST) return number(t, of(x->value));
  if (x->op != EXPR_TABLE) return x;
  int count = x->n_heads * expr_pool_blocks(t->pool);
  double *values = arena_array(t->memory, double, count);
  for (int i = 0; i < count; i++) values[i] = of(x->table[i]);
  return expr_table(t->pool, x->n_heads, values);
}

static interval between(const bounder *t, const expr *lo, const expr *hi, const expr *unknown) {
  lo = rounded(t, lo, to_float_below);
  return (interval){lo, rounded(t, hi, to_float_above), unknown};
}

/* ---- what is known of ranges ---- */

/* Whether a bound is a number, and all there are of it lie in [from, to]. */
static bool lies_in(const bounder *t, const expr *x, double from, double to) {
  if (x->op == EXPR_CONST) return x->value >= from && x->value <= to;
  if (x->op != EXPR_TABLE) return false;
  for (int i = 0; i < x->n_heads * expr_pool_blocks(t->pool); i++)
    if (!(x->table[i] >= from && x->table[i] <= to)) return false;
  return true;
}

static bool range_in(const bounder *t, const expr *x, double from, double to) {
  const interval *r = &t->known[x->id];
  return is_number(r->unknown, 0) && lies_in(t, r->lo, from, to) && lies_in(t, r->hi, from, to);
}

static bool is_finite(const bounder *t, const expr *x) { return range_in(t, x, -0x1p120, 0x1p120); }
static bool is_positive(const bounder *t, const expr *x) { return range_in(t, x, 0, INFINITY); }
static bool is_negative(const bounder *t, const expr *x) { return range_in(t, x, -INFINITY, 0); }
static bool is_nonzero(const bounder *t, const expr *x) {
  return range_in(t, x, DBL_MIN, INFINITY) || range_in(t, x, -INFINITY, -DBL_MIN);
}

/* 1 where a value may be an infinity. */
static const expr *may_be_infinite(const bounder *t, const expr *x, const interval *v) {
  if (is_finite(t, x)) return number(t, 0);
  const expr *most = number(t, FLT_MAX), *lowest = number(t, -FLT_MAX);
  const expr *above = less(t, lowest, v->lo), *below = less(t, v->hi, most);
  return not(t, both(t, above, below));
}

/* ---- rules ---- */

typedef struct operands {
  const expr *x; /* the node */
  interval v[3]; /* of its arguments */
  const expr *unknown; /* 1: some argument is */
} operands;

static interval anything(const bounder *t) {
  const expr *lo = number(t, -INFINITY), *hi = number(t, INFINITY);
  return (interval){lo, hi, number(t, 1)};
}

static interval exactly(const bounder *t, const expr *x) { return (interval){x, x, number(t, 0)}; }

/* A bound by 2^-19 of itself further out; sign: of the value, where it is known. */
static const expr *slackened(const bounder *t, const expr *x, bool up, int sign) {
  const expr *more = expr_mul(t->pool, x, number(t, 1 + SLACK)),
             *less_of_it = expr_mul(t->pool, x, number(t, 1 - SLACK));
  if (sign) return up == (sign > 0) ? more : less_of_it;
  return up ? greatest(t, more, less_of_it) : least(t, more, less_of_it);
}

static interval slack(const bounder *t, interval v, int sign) {
  const expr *lo = slackened(t, v.lo, false, sign), *hi = slackened(t, v.hi, true, sign);
  return between(t, lo, hi, v.unknown);
}

static interval bound_CONST(bounder *t, const operands *o) {
  return isnan(o->x->value) ? anything(t) : exactly(t, rounded(t, o->x, to_float));
}

static interval bound_TABLE(bounder *t, const operands *o) {
  for (int i = 0; i < o->x->n_heads * expr_pool_blocks(t->pool); i++)
    if (isnan(o->x->table[i])) return anything(t);
  return exactly(t, rounded(t, o->x, to_float));
}

static interval bound_POSITION(bounder *t, const operands *o) {
  if (o->x->index != INTERVAL_OF_SCORE) return t->displacement[o->x->index];
  const expr *lo = number(t, -0x1p119), *hi = number(t, 0x1p119);
  return (interval){lo, hi, number(t, 0)};
}

/* A number that the call brings is its own bound, where it is finite. */
static interval bound_OPERAND(bounder *t, const operands *o) {
  if (t->is_range) return anything(t);
  const expr *x = expr_unary(t->pool, EXPR_NARROW, o->x), *size = expr_unary(t->pool, EXPR_ABS, x);
  const expr *is_finite_number = less(t, size, number(t, FLT_MAX));
  return (interval){x, x, not(t, is_finite_number)};
}

static interval bound_anything(bounder *t, const operands *o) {
  (void)o;
  return anything(t);
}
#define bound_INPUT bound_anything
#define bound_CHANNEL bound_anything
#define bound_COTANGENT bound_anything
#define bound_ELEMENT bound_anything
#define bound_INPUT_AT bound_anything

/* All of its numbers are finite: spec_validate. */
static interval bound_TERMS(bounder *t, const operands *o) {
  double least_of_all = o->x->table[0], most = least_of_all;
  for (int i = 1; i < o->x->terms; i++) {
    least_of_all = fmin(least_of_all, o->x->table[i]);
    most = fmax(most, o->x->table[i]);
  }
  const expr *lo = number(t, least_of_all), *hi = number(t, most);
  return between(t, lo, hi, number(t, 0));
}

static interval bound_NEG(bounder *t, const operands *o) {
  const expr *lo = expr_neg(t->pool, o->v[0].hi), *hi = expr_neg(t->pool, o->v[0].lo);
  return (interval){lo, hi, o->unknown};
}

/* x + y: opposite infinities, where neither is finite, make no number. */
static interval sum(const bounder *t, const operands *o, const interval *y) {
  const interval *x = &o->v[0];
  const expr *lo = expr_add(t->pool, x->lo, y->lo), *hi = expr_add(t->pool, x->hi, y->hi), *unknown = o->unknown;
  if (!is_finite(t, o->x->arg[0]) && !is_finite(t, o->x->arg[1])) {
    const expr *most = number(t, FLT_MAX), *lowest = number(t, -FLT_MAX);
    const expr *one = less(t, most, x->hi), *other = less(t, y->lo, lowest), *clash = both(t, one, other);
    one = less(t, most, y->hi), other = less(t, x->lo, lowest);
    const expr *opposite = both(t, one, other);
    unknown = either(t, unknown, either(t, clash, opposite));
  }
  return between(t, lo, hi, unknown);
}

static interval bound_ADD(bounder *t, const operands *o) { return sum(t, o, &o->v[1]); }

static interval bound_SUB(bounder *t, const operands *o) {
  operands negated = {.v = {o->v[1]}};
  interval y = bound_NEG(t, &negated);
  return sum(t, o, &y);
}

static interval bound_ABS(bounder *t, const operands *o) {
  if (is_positive(t, o->x->arg[0])) return o->v[0];
  interval negated = bound_NEG(t, o);
  if (is_negative(t, o->x->arg[0])) return negated;
  const expr *inside = greatest(t, o->v[0].lo, negated.lo), *lo = greatest(t, inside, number(t, 0)),
             *hi = greatest(t, o->v[0].hi, negated.hi);
  return (interval){lo, hi, o->unknown};
}

static int sign_of(const bounder *t, const expr *x) { return is_positive(t, x) ? 1 : is_negative(t, x) ? -1 : 0; }

typedef const expr *binary(const bounder *t, const expr *x, const expr *y);
static const expr *product(const bounder *t, const expr *x, const expr *y) { return expr_mul(t->pool, x, y); }
static const expr *quotient(const bounder *t, const expr *x, const expr *y) { return expr_div(t->pool, x, y); }

/* The least and the greatest at the corners. */
static interval corners(const bounder *t, binary *of, const interval *x, const interval *y) {
  const expr *lo = NULL, *hi = NULL;
  for (int i = 0; i < 4; i++) {
    const expr *corner = of(t, i & 1 ? x->hi : x->lo, i & 2 ? y->hi : y->lo);
    lo = lo ? least(t, lo, corner) : corner;
    hi = hi ? greatest(t, hi, corner) : corner;
  }
  return (interval){lo, hi, NULL};
}

/* Where y is one number of a known sign, two corners are all. */
static interval corners_of(const bounder *t, binary *of, const operands *o) {
  const interval *x = &o->v[0], *y = &o->v[1];
  int sign = y->lo == y->hi ? sign_of(t, o->x->arg[1]) : 0;
  if (!sign) return corners(t, of, x, y);
  const expr *one = of(t, x->lo, y->lo), *other = of(t, x->hi, y->lo);
  return sign > 0 ? (interval){one, other, NULL} : (interval){other, one, NULL};
}

static interval bound_MUL(bounder *t, const operands *o) {
  const expr *x = o->x->arg[0], *y = o->x->arg[1];
  bool is_square = x == y;
  int sign = is_square ? 1 : sign_of(t, x) * sign_of(t, y);
  interval v;
  if (is_square) {
    interval size = bound_ABS(t, o);
    v.lo = expr_mul(t->pool, size.lo, size.lo);
    v.hi = expr_mul(t->pool, size.hi, size.hi);
  } else v = corners_of(t, product, o);
  v.unknown = o->unknown;
  bool x_meets = !is_finite(t, x) && !is_nonzero(t, y), y_meets = !is_finite(t, y) && !is_nonzero(t, x);
  if (!is_square && (x_meets || y_meets)) { /* 0 times infinity */
    const expr *of_x = may_be_infinite(t, x, &o->v[0]), *of_y = may_be_infinite(t, y, &o->v[1]);
    v.unknown = either(t, v.unknown, either(t, of_x, of_y));
  }
  return slack(t, v, sign);
}

static interval bound_DIV(bounder *t, const operands *o) {
  const expr *x = o->x->arg[0], *y = o->x->arg[1];
  interval v = corners_of(t, quotient, o);
  v.unknown = o->unknown;
  if (!is_nonzero(t, y)) {
    const expr *zero = number(t, 0), *above = less(t, zero, o->v[1].lo), *below = less(t, o->v[1].hi, zero);
    v.unknown = either(t, v.unknown, not(t, either(t, above, below)));
  }
  const expr *of_x = may_be_infinite(t, x, &o->v[0]), *of_y = may_be_infinite(t, y, &o->v[1]);
  v.unknown = either(t, v.unknown, either(t, of_x, of_y));
  return slack(t, v, sign_of(t, x) * sign_of(t, y));
}

/* So many times its argument, with the roundings of all additions. */
static interval bound_SUM(bounder *t, const operands *o) {
  const expr *terms = number(t, o->x->index), *lo = expr_mul(t->pool, o->v[0].lo, terms),
             *hi = expr_mul(t->pool, o->v[0].hi, terms), *unknown = o->unknown;
  if (!is_finite(t, o->x->arg[0])) { /* opposite infinities */
    const expr *above = less(t, number(t, FLT_MAX), o->v[0].hi), *below = less(t, o->v[0].lo, number(t, -FLT_MAX));
    unknown = either(t, unknown, both(t, above, below));
  }
  interval v = {lo, hi, unknown};
  for (int i = 0; i <= o->x->index / 32; i++) v = slack(t, v, 0);
  return v;
}

static interval bound_MIN(bounder *t, const operands *o) {
  const expr *lo = least(t, o->v[0].lo, o->v[1].lo), *hi = least(t, o->v[0].hi, o->v[1].hi);
  return (interval){lo, hi, o->unknown};
}

static interval bound_MAX(bounder *t, const operands *o) {
  const expr *lo = greatest(t, o->v[0].lo, o->v[1].lo), *hi = greatest(t, o->v[0].hi, o->v[1].hi);
  return (interval){lo, hi, o->unknown};
}

/* 0 or 1, whatever is compared. */
static interval bound_LESS(bounder *t, const operands *o) {
  const expr *surely = less(t, o->v[0].hi, o->v[1].lo), *maybe = less(t, o->v[0].lo, o->v[1].hi);
  const expr *lo = both(t, surely, not(t, o->unknown)), *hi = either(t, maybe, o->unknown);
  return (interval){lo, hi, number(t, 0)};
}

static interval monotone(bounder *t, const operands *o) {
  const expr *lo = expr_unary(t->pool, o->x->op, o->v[0].lo), *hi = expr_unary(t->pool, o->x->op, o->v[0].hi);
  return between(t, lo, hi, o->unknown);
}
#define bound_FLOOR monotone
#define bound_NARROW monotone
#define bound_ROUND32 monotone
#define bound_WIDEN monotone

/* Also no number where the argument may be `below` or less. */
static interval monotone_above(bounder *t, const operands *o, double below, bool is_below) {
  operands of = *o;
  if (!range_in(t, o->x->arg[0], is_below ? below : nextafterf((float)below, INFINITY), INFINITY)) {
    const expr *bound = number(t, below), *outside = less(t, o->v[0].lo, bound), *above = less(t, bound, o->v[0].lo);
    of.unknown = either(t, of.unknown, is_below ? outside : not(t, above));
  }
  return monotone(t, &of);
}

static interval bound_SQRT(bounder *t, const operands *o) { return slack(t, monotone_above(t, o, 0, true), 1); }

static interval shifted(const bounder *t, interval v, double by) {
  const expr *lo = expr_add(t->pool, v.lo, number(t, -by)), *hi = expr_add(t->pool, v.hi, number(t, by));
  return between(t, lo, hi, v.unknown);
}

static interval bound_EXP(bounder *t, const operands *o) { return shifted(t, slack(t, monotone(t, o), 1), TINY); }
static interval bound_LOG(bounder *t, const operands *o) {
  return shifted(t, slack(t, monotone_above(t, o, 0, false), 0), SLACK);
}
static interval bound_LOG1P(bounder *t, const operands *o) {
  return shifted(t, slack(t, monotone_above(t, o, -1, false), 0), TINY);
}

static interval bound_TANH(bounder *t, const operands *o) { return shifted(t, slack(t, monotone(t, o), 0), TINY); }
#define bound_SIGMOID bound_EXP
#define bound_SOFTPLUS bound_EXP

static const double HALF_TURN = 3.14159265358979323846;

/* Any angle; of two infinities it need be none. */
static interval bound_ATAN2(bounder *t, const operands *o) {
  const expr *of_y = may_be_infinite(t, o->x->arg[0], &o->v[0]), *of_x = may_be_infinite(t, o->x->arg[1], &o->v[1]);
  const expr *infinite = both(t, of_y, of_x), *lo = number(t, -HALF_TURN - SLACK), *hi = number(t, HALF_TURN + SLACK);
  return between(t, lo, hi, either(t, o->unknown, infinite));
}

static interval bound_turn(bounder *t, const operands *o) {
  const expr *infinite = may_be_infinite(t, o->x->arg[0], &o->v[0]);
  const expr *lo = number(t, -1 - SLACK), *hi = number(t, 1 + SLACK);
  return between(t, lo, hi, either(t, o->unknown, infinite));
}
#define bound_SINQ bound_turn
#define bound_COSQ bound_turn
#define bound_SIN_FOLDED bound_turn
#define bound_COS_FOLDED bound_turn

/* Whether a condition, which may be any number, surely holds, and whether it surely does not. */
static void decide(const bounder *t, const interval *c, bool is_comparison, const expr **holds, const expr **fails) {
  const expr *zero = number(t, 0), *sure = not(t, c->unknown);
  if (is_comparison) {
    *holds = c->lo;
    *fails = not(t, c->hi);
    return;
  }
  const expr *above = less(t, zero, c->lo), *below = less(t, c->hi, zero);
  *holds = both(t, either(t, above, below), sure);
  const expr *not_above = not(t, less(t, zero, c->hi)), *not_below = not(t, less(t, c->lo, zero));
  *fails = both(t, both(t, not_above, not_below), sure);
}

static interval bound_SELECT(bounder *t, const operands *o) {
  const interval *x = &o->v[1], *y = &o->v[2];
  const expr *holds, *fails;
  decide(t, &o->v[0], o->x->arg[0]->op == EXPR_LESS, &holds, &fails);
  const expr *lo = least(t, x->lo, y->lo), *hi = greatest(t, x->hi, y->hi),
             *unknown = either(t, x->unknown, y->unknown);
  lo = chosen(t, fails, y->lo, lo);
  hi = chosen(t, fails, y->hi, hi);
  unknown = chosen(t, fails, y->unknown, unknown);
  lo = chosen(t, holds, x->lo, lo);
  hi = chosen(t, holds, x->hi, hi);
  return (interval){lo, hi, chosen(t, holds, x->unknown, unknown)};
}

/* ORDER EXPR_OP: an operation without a rule does not compile. */
static interval (*const RULES[EXPR_OP_COUNT])(bounder *t, const operands *o) = {
#define X(name, arity, text) [EXPR_##name] = bound_##name,
    EXPR_OPS(X)
#undef X
};

/* ---- the walk ---- */

static const interval *bounds_of(bounder *t, const expr *x) {
  interval *made = &t->made[x->id];
  if (made->lo) return made;
  const interval *range = &t->known[x->id];
  if (!t->is_range && is_number(range->unknown, 0) && range->lo == range->hi) return *made = *range, made;
  operands o = {.x = x, .unknown = number(t, 0)};
  for (int i = 0; i < expr_op_arity(x->op); i++) {
    o.v[i] = *bounds_of(t, x->arg[i]);
    o.unknown = either(t, o.unknown, o.v[i].unknown);
  }
  *made = RULES[x->op](t, &o);
  return made;
}

static bounder begin(arena *a, expr_pool *pool, const expr *x, int axes, interval *everywhere) {
  bounder t = {.memory = a, .pool = pool, .displacement = everywhere, .is_range = true};
  const expr *lo = number(&t, -2 * INTERVAL_FURTHEST), *hi = number(&t, 2 * INTERVAL_FURTHEST), *sure = number(&t, 0);
  for (int axis = 0; axis < axes; axis++) everywhere[axis] = (interval){lo, hi, sure};
  t.made = t.range = arena_array(a, interval, x->id + 1);
  t.known = t.range;
  bounds_of(&t, x);
  return t;
}

enum { MOST_AXES = 64 };

/* Begins a bounder, with scratch for bounds at the displacements at hand. */
static bounder begin_at(arena *a, expr_pool *pool, const expr *x, int axes, interval *everywhere,
                        const interval *displacement) {
  bounder t = begin(a, pool, x, axes, everywhere);
  t.is_range = false;
  t.displacement = displacement;
  t.made = arena_array(a, interval, x->id + 1);
  return t;
}

bool interval_may_hide(arena *a, expr_pool *pool, const expr *x, int axes) {
  interval everywhere[MOST_AXES];
  bounder t = begin(a, pool, x, axes, everywhere);
  const interval *v = &t.range[x->id];
  return !is_number(v->unknown, 0) || !lies_in(&t, v->lo, -0x1p120, INFINITY);
}

/* ---- masks ---- */

static bool hides(const expr *x) { return x->op == EXPR_CONST && x->value == -INFINITY; }

/* x without its choices of -infinity; *whole: whether all of them take the other side. */
static const expr *opened(bounder *t, const expr *x, const expr **made, const expr **whole) {
  if (made[x->id]) return made[x->id];
  const expr *arg[3] = {NULL};
  int arity = expr_op_arity(x->op);
  if (x->op == EXPR_SELECT && hides(x->arg[1]) != hides(x->arg[2])) {
    const expr *holds, *fails;
    decide(t, bounds_of(t, x->arg[0]), x->arg[0]->op == EXPR_LESS, &holds, &fails);
    *whole = both(t, *whole, hides(x->arg[2]) ? holds : fails);
    return made[x->id] = opened(t, x->arg[hides(x->arg[2]) ? 1 : 2], made, whole);
  }
  for (int i = 0; i < arity; i++) arg[i] = opened(t, x->arg[i], made, whole);
  return made[x->id] = expr_rebuild(t->pool, x, arg);
}

/* seen: by id, of nodes without one. */
static bool has_infinity(const expr_pool *pool, const expr *x, bool *seen) {
  if (seen[x->id]) return false;
  seen[x->id] = true;
  if (x->op == EXPR_CONST) return isinf(x->value);
  for (int i = 0; x->op == EXPR_TABLE && i < x->n_heads * expr_pool_blocks(pool); i++)
    if (isinf(x->table[i])) return true;
  for (int i = 0; i < expr_op_arity(x->op); i++)
    if (has_infinity(pool, x->arg[i], seen)) return true;
  return false;
}

bool interval_has_infinity(arena *a, const expr_pool *pool, const expr *x) {
  return has_infinity(pool, x, arena_array(a, bool, x->id + 1));
}

static const expr *find_hidden(bounder *t, const expr *x);

/* 1: x is -infinity. What is finite, or a finite number's business, is not asked of. */
static const expr *hidden(bounder *t, const expr *x) {
  if (!t->hidden[x->id]) t->hidden[x->id] = find_hidden(t, x);
  return t->hidden[x->id];
}

static const expr *find_hidden(bounder *t, const expr *x) {
  if (range_in(t, x, -0x1p120, INFINITY)) return number(t, 0);
  if (hides(x)) return number(t, 1);
  int arity = expr_op_arity(x->op);
  if ((x->op == EXPR_ADD || x->op == EXPR_SUB) && is_finite(t, x->arg[1])) return hidden(t, x->arg[0]);
  if (x->op == EXPR_ADD && is_finite(t, x->arg[0])) return hidden(t, x->arg[1]);
  if (x->op == EXPR_MUL && range_in(t, x->arg[1], 0x1p-60, 0x1p60)) return hidden(t, x->arg[0]);
  if (x->op == EXPR_SELECT) {
    const expr *holds, *fails, *one = hidden(t, x->arg[1]), *other = hidden(t, x->arg[2]);
    decide(t, bounds_of(t, x->arg[0]), x->arg[0]->op == EXPR_LESS, &holds, &fails);
    const expr *chosen_one = both(t, holds, one), *chosen_other = both(t, fails, other),
               *is_chosen = either(t, chosen_one, chosen_other);
    return either(t, both(t, one, other), is_chosen);
  }
  if (arity == 0) return number(t, 0);
  const interval *v = bounds_of(t, x);
  const expr *below = less(t, v->hi, number(t, -FLT_MAX));
  return both(t, below, not(t, v->unknown));
}

void interval_of_mask(arena *a, expr_pool *pool, const expr *x, int axes, const interval *displacement,
                      interval_mask *out) {
  interval everywhere[MOST_AXES];
  bounder t = begin_at(a, pool, x, axes, everywhere, displacement);
  t.hidden = arena_array(a, const expr *, x->id + 1);
  out->unseen = hidden(&t, x);
  const expr **made = arena_array(a, const expr *, x->id + 1);
  out->whole = number(&t, 1);
  out->open = opened(&t, x, made, &out->whole);
  if (!interval_has_infinity(a, pool, out->open)) return;
  out->open = NULL;
  out->whole = number(&t, 0);
}
