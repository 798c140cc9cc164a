/* spec/expr: construction and simplification of the expression DAG; see spec/expr.h.
 *
 * Every constructor first tries the rules of simplify_*, then looks the node up
 * in the pool's hash table. Rules only ever look at the arguments' tops, so
 * construction is linear in the size of what is built.
 */
#include "spec/expr.h"

#include "base/diag.h"

#include <math.h>
#include <string.h>

struct expr_pool {
  arena *memory;
  int blocks;
  int count;
  int capacity; /* of table: a power of two */
  expr **table;
  const expr **unrolled; /* by id, of those asked for; grown with them */
  int n_unrolled;
};

static const struct {
  const char *name;
  int arity;
} OPS[EXPR_OP_COUNT] = {
#define X(name, arity, text) {text, arity},
    EXPR_OPS(X)
#undef X
};

const char *expr_op_name(expr_op op) { return OPS[op].name; }
int expr_op_arity(expr_op op) { return OPS[op].arity; }

bool expr_op_is_elementary(expr_op op) {
  switch (op) {
  case EXPR_ATAN2:
  case EXPR_EXP:
  case EXPR_LOG:
  case EXPR_LOG1P:
  case EXPR_TANH:
  case EXPR_SIGMOID:
  case EXPR_SOFTPLUS:
  case EXPR_SINQ:
  case EXPR_COSQ:
  case EXPR_SIN_FOLDED:
  case EXPR_COS_FOLDED: return true;
  default: return false;
  }
}

/* ---- the pool ---- */

expr_pool *expr_pool_create(arena *a, int blocks) {
  expr_pool *pool = arena_new(a, expr_pool);
  pool->memory = a;
  pool->blocks = blocks;
  pool->capacity = 1024;
  pool->table = arena_array(a, expr *, pool->capacity);
  return pool;
}

int expr_pool_blocks(const expr_pool *pool) { return pool->blocks; }
int expr_pool_count(const expr_pool *pool) { return pool->count; }

void expr_pool_nodes(const expr_pool *pool, const expr **nodes) {
  for (int i = 0; i < pool->capacity; i++)
    if (pool->table[i]) nodes[pool->table[i]->id] = pool->table[i];
}

static uint64_t mix(uint64_t h, uint64_t value) {
  h ^= value + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
  return h * 0xff51afd7ed558ccdull;
}

static uint64_t bits_of(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Numbers of a leaf's table, or offsets. */
static int leaves_of(const expr_pool *pool, const expr *x) {
  return x->op == EXPR_TERMS ? x->index : x->n_heads * pool->blocks;
}

static uint64_t hash_of(const expr_pool *pool, const expr *x) {
  uint64_t h = mix((uint64_t)x->op, (uint64_t)x->index);
  h = mix(mix(h, (uint64_t)x->n_heads), bits_of(x->value));
  for (int i = 0; i < OPS[x->op].arity; i++) h = mix(h, (uint64_t)x->arg[i]->id);
  int leaves = leaves_of(pool, x);
  for (int i = 0; x->table && i < leaves; i++) h = mix(h, bits_of(x->table[i]));
  for (int i = 0; x->offsets && i < leaves; i++) h = mix(h, (uint64_t)x->offsets[i]);
  return h;
}

static bool same_bytes(const void *x, const void *y, size_t size) { return x && y ? !memcmp(x, y, size) : x == y; }

static bool same(const expr_pool *pool, const expr *x, const expr *y) {
  if (x->hash != y->hash || x->op != y->op || x->index != y->index || x->last != y->last || x->n_heads != y->n_heads)
    return false;
  if (bits_of(x->value) != bits_of(y->value)) return false;
  if (x->op == EXPR_COTANGENT && x->depends != y->depends) return false;
  for (int i = 0; i < OPS[x->op].arity; i++)
    if (x->arg[i] != y->arg[i]) return false;
  size_t leaves = (size_t)leaves_of(pool, x);
  return same_bytes(x->table, y->table, leaves * sizeof *x->table) &&
         same_bytes(x->offsets, y->offsets, leaves * sizeof *x->offsets);
}

static void grow(expr_pool *pool) {
  expr **old = pool->table;
  int n = pool->capacity;
  pool->capacity *= 2;
  pool->table = arena_array(pool->memory, expr *, pool->capacity);
  for (int i = 0; i < n; i++) {
    if (!old[i]) continue;
    uint64_t slot = old[i]->hash;
    while (pool->table[slot & (uint64_t)(pool->capacity - 1)]) slot++;
    pool->table[slot & (uint64_t)(pool->capacity - 1)] = old[i];
  }
}

bool expr_is_fixed(const expr *x) { return x->op == EXPR_CONST || x->op == EXPR_TABLE; }
bool expr_is_fixed_for_heads(const expr *x) { return expr_is_fixed(x) && !(x->depends & DEPENDS_HEAD); }

/* A node is float32 where every argument that has a type is; constants take either. */
static bool type_is_f32(const expr *x) {
  if (x->op == EXPR_NARROW || x->op == EXPR_CHANNEL || expr_op_is_input(x->op) || x->op == EXPR_TERMS) return true;
  if (x->op == EXPR_WIDEN) return false;
  if (OPS[x->op].arity == 0) return false;
  bool typed = false;
  for (int i = x->op == EXPR_SELECT; i < OPS[x->op].arity; i++) {
    if (expr_is_fixed(x->arg[i])) continue;
    if (!x->arg[i]->is_f32) return false;
    typed = true;
  }
  return typed;
}

const expr *expr_narrow(expr_pool *pool, const expr *x) {
  return x->is_f32 || expr_is_fixed(x) ? x : expr_unary(pool, EXPR_NARROW, x);
}

const expr *expr_widen(expr_pool *pool, const expr *x) { return x->is_f32 ? expr_unary(pool, EXPR_WIDEN, x) : x; }

/* Whether x is above 0, or not below it, whatever its leaves hold. */
static bool is_positive(const expr *x);
static bool is_at_least_0(const expr *x) {
  switch (x->op) {
  case EXPR_ABS:
  case EXPR_SQRT:
  case EXPR_EXP:
  case EXPR_SIGMOID:
  case EXPR_SOFTPLUS:
  case EXPR_LESS: return true;
  case EXPR_MUL: return x->arg[0] == x->arg[1] || (is_at_least_0(x->arg[0]) && is_at_least_0(x->arg[1]));
  case EXPR_ADD: return is_at_least_0(x->arg[0]) && is_at_least_0(x->arg[1]);
  default: return is_positive(x);
  }
}

static bool is_positive(const expr *x) {
  switch (x->op) {
  case EXPR_CONST: return x->value > 0;
  case EXPR_ADD:
    return (is_positive(x->arg[0]) && is_at_least_0(x->arg[1])) || (is_at_least_0(x->arg[0]) && is_positive(x->arg[1]));
  case EXPR_MAX: return is_positive(x->arg[0]) || is_positive(x->arg[1]);
  case EXPR_SQRT: return is_positive(x->arg[0]);
  default: return false;
  }
}

/* Whether an operation has infinite values at finite arguments, or passes on those that an argument has. */
static bool is_unbounded(const expr *x) {
  switch (x->op) {
  case EXPR_EXP:
  case EXPR_LOG:
  case EXPR_LOG1P: return true;
  case EXPR_SINQ:
  case EXPR_COSQ:
  case EXPR_SIN_FOLDED:
  case EXPR_COS_FOLDED:
  case EXPR_TANH:
  case EXPR_SIGMOID:
  case EXPR_ATAN2:
  case EXPR_LESS: return false;
  case EXPR_DIV:
    if (!expr_is_fixed(x->arg[1]) && !is_positive(x->arg[1])) return true;
    break;
  default: break;
  }
  for (int i = 0; i < OPS[x->op].arity; i++)
    if (x->arg[i]->unbounded) return true;
  return false;
}

/* The pool's node equal to candidate, made if need be. */
static const expr *intern(expr_pool *pool, expr candidate) {
  for (int i = 0; i < OPS[candidate.op].arity; i++) {
    candidate.depends |= candidate.arg[i]->depends;
    if (candidate.op != EXPR_SUM && candidate.arg[i]->terms) candidate.terms = candidate.arg[i]->terms;
  }
  candidate.hash = hash_of(pool, &candidate);
  uint64_t slot = candidate.hash, wrap = (uint64_t)(pool->capacity - 1);
  for (; pool->table[slot & wrap]; slot++)
    if (same(pool, pool->table[slot & wrap], &candidate)) return pool->table[slot & wrap];
  expr *fresh = arena_new(pool->memory, expr);
  *fresh = candidate;
  fresh->id = pool->count++;
  fresh->is_f32 = type_is_f32(fresh);
  fresh->unbounded = is_unbounded(fresh);
  size_t leaves = (size_t)leaves_of(pool, &candidate);
  if (candidate.table) {
    double *copy = arena_array(pool->memory, double, leaves);
    fresh->table = memcpy(copy, candidate.table, leaves * sizeof *copy);
  }
  if (candidate.offsets) {
    int32_t *copy = arena_array(pool->memory, int32_t, leaves);
    fresh->offsets = memcpy(copy, candidate.offsets, leaves * sizeof *copy);
  }
  pool->table[slot & wrap] = fresh;
  if (pool->count * 2 > pool->capacity) grow(pool);
  return fresh;
}

/* ---- leaves ---- */

const expr *expr_const(expr_pool *pool, double value) {
  return intern(pool, (expr){.op = EXPR_CONST, .value = value == 0 ? 0 : value});
}

const expr *expr_table(expr_pool *pool, int heads, const double *values) {
  int blocks = pool->blocks;
  bool one_row = true, one_value = true;
  for (int i = 0; i < heads * blocks; i++) {
    one_row = one_row && bits_of(values[i]) == bits_of(values[i % blocks]);
    one_value = one_value && values[i] == values[0];
  }
  if (one_value) return expr_const(pool, values[0]);
  expr x = {.op = EXPR_TABLE, .n_heads = one_row ? 1 : heads, .table = values};
  x.depends = DEPENDS_BLOCK | (one_row ? 0 : DEPENDS_HEAD);
  return intern(pool, x);
}

const expr *expr_position(expr_pool *pool, int axis) {
  return intern(pool, (expr){.op = EXPR_POSITION, .index = axis, .depends = DEPENDS_POSITION});
}

static int place_inside(int32_t offset, int last, long double index) {
  long double place = offset + floorl(index);
  return !(place > 0) ? 0 : place < last ? (int)place : last;
}

const expr *expr_operand(expr_pool *pool, int operand, int heads, const int32_t *offsets) {
  int blocks = pool->blocks;
  bool one_row = true, one_value = true;
  for (int i = 0; i < heads * blocks; i++) {
    one_row = one_row && offsets[i] == offsets[i % blocks];
    one_value = one_value && offsets[i] == offsets[i / blocks * blocks];
  }
  expr x = {.op = EXPR_OPERAND, .index = operand, .n_heads = one_row ? 1 : heads, .offsets = offsets};
  x.depends = DEPENDS_OPERAND | (one_value ? 0 : DEPENDS_BLOCK) | (one_row ? 0 : DEPENDS_HEAD);
  return intern(pool, x);
}

/* A place of an element that is known: an operand's. */
static const expr *element_at(expr_pool *pool, int operand, int last, int heads, const int32_t *offsets, double index) {
  int32_t *places = arena_array(pool->memory, int32_t, heads * pool->blocks);
  for (int i = 0; i < heads * pool->blocks; i++) places[i] = place_inside(offsets[i], last, index);
  return expr_operand(pool, operand, heads, places);
}

const expr *expr_element(expr_pool *pool, int operand, int last, int heads, const int32_t *offsets, const expr *index) {
  if (index->op == EXPR_CONST) return element_at(pool, operand, last, heads, offsets, index->value);
  bool one_row = true, one_value = true;
  for (int i = 0; i < heads * pool->blocks; i++) {
    one_row = one_row && offsets[i] == offsets[i % pool->blocks];
    one_value = one_value && offsets[i] == offsets[i / pool->blocks * pool->blocks];
  }
  expr x = {.op = EXPR_ELEMENT,
            .index = operand,
            .last = last,
            .n_heads = one_row ? 1 : heads,
            .offsets = offsets,
            .arg = {index}};
  x.depends = DEPENDS_OPERAND | (one_value ? 0 : DEPENDS_BLOCK) | (one_row ? 0 : DEPENDS_HEAD);
  return intern(pool, x);
}

const expr *expr_input(expr_pool *pool, int input, const int32_t *offsets) {
  bool one_value = true;
  for (int i = 0; i < pool->blocks; i++) one_value = one_value && offsets[i] == offsets[0];
  expr x = {.op = EXPR_INPUT, .index = input, .n_heads = 1, .offsets = offsets};
  x.depends = DEPENDS_QUERY | (one_value ? 0 : DEPENDS_BLOCK);
  return intern(pool, x);
}

const expr *expr_input_at(expr_pool *pool, int input, int last, const expr *index) {
  if (index->op == EXPR_CONST) {
    int32_t *places = arena_array(pool->memory, int32_t, pool->blocks);
    for (int i = 0; i < pool->blocks; i++) places[i] = place_inside(0, last, index->value);
    return expr_input(pool, input, places);
  }
  return intern(pool,
                (expr){.op = EXPR_INPUT_AT, .index = input, .last = last, .depends = DEPENDS_QUERY, .arg = {index}});
}

const expr *expr_channel(expr_pool *pool, int component) {
  return intern(pool, (expr){.op = EXPR_CHANNEL, .index = component, .depends = DEPENDS_CHANNEL | DEPENDS_BLOCK});
}

const expr *expr_terms(expr_pool *pool, int terms, const double *values) {
  bool one_value = true;
  for (int i = 0; i < terms; i++) one_value = one_value && values[i] == values[0];
  if (one_value) return expr_const(pool, values[0]);
  return intern(pool, (expr){.op = EXPR_TERMS, .index = terms, .terms = terms, .table = values});
}

const expr *expr_cotangent(expr_pool *pool, int which, unsigned depends) {
  return intern(pool, (expr){.op = EXPR_COTANGENT, .index = which, .depends = depends});
}

/* ---- arithmetic shared by folding and the interpreters ---- */

#define APPLY(type, suffix) \
  static type apply##suffix(expr_op op, type a, type b, type c) { \
    switch (op) { \
    case EXPR_ADD: return a + b; \
    case EXPR_SUB: return a - b; \
    case EXPR_MUL: return a * b; \
    case EXPR_DIV: return a / b; \
    case EXPR_MIN: return b < a ? b : a; \
    case EXPR_MAX: return b > a ? b : a; \
    case EXPR_ATAN2: return atan2##suffix(a + (type)0, b + (type)0); /* -0 + 0 is 0 */ \
    case EXPR_LESS: return a < b; \
    case EXPR_NEG: return -a; \
    case EXPR_ABS: return fabs##suffix(a); \
    case EXPR_SQRT: return sqrt##suffix(a); \
    case EXPR_FLOOR: return floor##suffix(a); \
    case EXPR_EXP: return exp##suffix(a); \
    case EXPR_LOG: return log##suffix(a); \
    case EXPR_LOG1P: return log1p##suffix(a); \
    case EXPR_TANH: return tanh##suffix(a); \
    case EXPR_SIGMOID: return (a < 0 ? exp##suffix(a) : 1) / (1 + exp##suffix(-fabs##suffix(a))); \
    case EXPR_SOFTPLUS: return (0 > a ? 0 : a) + log1p##suffix(exp##suffix(-fabs##suffix(a))); \
    case EXPR_SINQ: return sinq##suffix(a); \
    case EXPR_COSQ: return sinq##suffix(fmod##suffix(a, 4) + 1); \
    case EXPR_SIN_FOLDED: return sinq##suffix(2 * (a - nearbyint##suffix(a))); \
    case EXPR_COS_FOLDED: return sinq##suffix(2 * (a - nearbyint##suffix(a)) + 1); \
    case EXPR_NARROW: return a; \
    case EXPR_WIDEN: return a; \
    case EXPR_ROUND32: return (type)(float)a; \
    case EXPR_SELECT: return a != 0 ? b : c; \
    default: diag_bug("expr", "operation %d has no arithmetic", (int)op); \
    } \
  }

/* sin(pi/2 x), reduced exactly first so that large arguments keep their digits. */
static double sinq(double x) {
  if (!isfinite(x)) return x - x; /* NaN, which no integer can hold */
  double r = fmod(x, 4), n = nearbyint(r), f = (r - n) * 1.57079632679489661923;
  switch (((int)n % 4 + 4) % 4) {
  case 0: return sin(f);
  case 1: return cos(f);
  case 2: return -sin(f);
  default: return -cos(f);
  }
}

static long double sinql(long double x) {
  if (!isfinite(x)) return x - x; /* NaN, which no integer can hold */
  long double r = fmodl(x, 4), n = nearbyintl(r), f = (r - n) * 1.57079632679489661923132169163975144L;
  switch (((int)n % 4 + 4) % 4) {
  case 0: return sinl(f);
  case 1: return cosl(f);
  case 2: return -sinl(f);
  default: return -cosl(f);
  }
}

APPLY(double, )
APPLY(long double, l)

double expr_apply(expr_op op, double a, double b, double c) { return apply(op, a, b, c); }

static double constant_at(const expr *x, int heads, int blocks, int i) {
  if (x->op == EXPR_CONST) return x->value;
  return x->table[x->n_heads == heads ? i : i % blocks];
}

/* op over constants and tables, element by element. */
static const expr *fold(expr_pool *pool, expr_op op, const expr *a, const expr *b, const expr *c) {
  const expr *arguments[3] = {a, b, c};
  int heads = 1, blocks = pool->blocks, arity = OPS[op].arity;
  bool scalar = true;
  for (int i = 0; i < arity; i++) {
    scalar = scalar && arguments[i]->op == EXPR_CONST;
    if (arguments[i]->n_heads > heads) heads = arguments[i]->n_heads;
  }
  if (scalar) return expr_const(pool, apply(op, a->value, b ? b->value : 0, c ? c->value : 0));
  double *values = arena_array(pool->memory, double, heads *blocks);
  for (int i = 0; i < heads * blocks; i++) {
    double v[3] = {0};
    for (int j = 0; j < arity; j++) v[j] = constant_at(arguments[j], heads, blocks, i);
    values[i] = apply(op, v[0], v[1], v[2]);
  }
  return expr_table(pool, heads, values);
}

static bool is_of_terms(const expr *x) { return x->op == EXPR_CONST || x->op == EXPR_TERMS; }

/* op over constants and numbers of terms, term by term. */
static const expr *fold_terms(expr_pool *pool, expr_op op, int terms, const expr *a, const expr *b, const expr *c) {
  const expr *arguments[3] = {a, b, c};
  double *values = arena_array(pool->memory, double, terms);
  for (int i = 0; i < terms; i++) {
    double v[3] = {0};
    for (int j = 0; j < OPS[op].arity; j++)
      v[j] = arguments[j]->op == EXPR_CONST ? arguments[j]->value : arguments[j]->table[i];
    values[i] = apply(op, v[0], v[1], v[2]);
  }
  return expr_terms(pool, terms, values);
}

const expr *expr_polynomial(expr_pool *pool, const expr *x, const double *c, int count) {
  const expr *sum = expr_const(pool, c[count - 1]);
  for (int k = count - 2; k >= 0; k--) sum = expr_add(pool, expr_mul(pool, sum, x), expr_const(pool, c[k]));
  return sum;
}

bool expr_is_const(const expr *x, double value) { return x->op == EXPR_CONST && x->value == value; }

/* ---- simplification ---- */

static const expr *simplify_unary(expr_pool *pool, expr_op op, const expr *x) {
  if (expr_is_fixed(x)) return fold(pool, op, x, NULL, NULL);
  if (x->op == EXPR_TERMS && op != EXPR_WIDEN) return fold_terms(pool, op, x->terms, x, NULL, NULL);
  switch (op) {
  case EXPR_NEG:
    if (x->op == EXPR_NEG) return x->arg[0];
    if (x->op == EXPR_SUB) return expr_sub(pool, x->arg[1], x->arg[0]);
    if (x->op == EXPR_MUL && expr_is_fixed(x->arg[1])) return expr_mul(pool, x->arg[0], expr_neg(pool, x->arg[1]));
    return NULL;
  case EXPR_NARROW:
    if (x->is_f32) return x;
    if (x->op == EXPR_WIDEN) return x->arg[0];
    if (x->op == EXPR_NEG) return expr_neg(pool, expr_unary(pool, EXPR_NARROW, x->arg[0]));
    return NULL;
  case EXPR_WIDEN:
    if (!x->is_f32) return x;
    return x->op == EXPR_NEG ? expr_neg(pool, expr_unary(pool, EXPR_WIDEN, x->arg[0])) : NULL;
  case EXPR_ROUND32:
    if (x->is_f32 || x->op == EXPR_ROUND32) return x;
    return x->op == EXPR_NEG ? expr_neg(pool, expr_unary(pool, EXPR_ROUND32, x->arg[0])) : NULL;
  case EXPR_SINQ: return x->op == EXPR_NEG ? expr_neg(pool, expr_unary(pool, EXPR_SINQ, x->arg[0])) : NULL;
  case EXPR_COSQ: return x->op == EXPR_NEG ? expr_unary(pool, EXPR_COSQ, x->arg[0]) : NULL;
  case EXPR_SIN_FOLDED: return x->op == EXPR_NEG ? expr_neg(pool, expr_unary(pool, EXPR_SIN_FOLDED, x->arg[0])) : NULL;
  case EXPR_COS_FOLDED: return x->op == EXPR_NEG ? expr_unary(pool, EXPR_COS_FOLDED, x->arg[0]) : NULL;
  case EXPR_ABS: return x->op == EXPR_NEG || x->op == EXPR_ABS ? expr_unary(pool, EXPR_ABS, x->arg[0]) : NULL;
  default: return NULL;
  }
}

static const expr *simplify_mul(expr_pool *pool, const expr *x, const expr *y) {
  if (expr_is_const(y, 0)) return y;
  if (expr_is_const(y, 1)) return x;
  if (expr_is_const(y, -1)) return expr_neg(pool, x);
  /* Constants gather on the right: (x c) d -> x (c d), (x c) y -> (x y) c. Exact up to rounding. */
  if (x->op == EXPR_MUL && expr_is_fixed(x->arg[1])) {
    if (expr_is_fixed(y)) return expr_mul(pool, x->arg[0], expr_mul(pool, x->arg[1], y));
    return expr_mul(pool, expr_mul(pool, x->arg[0], y), x->arg[1]);
  }
  if (y->op == EXPR_MUL && expr_is_fixed(y->arg[1])) return expr_mul(pool, expr_mul(pool, x, y->arg[0]), y->arg[1]);
  if (x->op == EXPR_NEG && y->op == EXPR_NEG) return expr_mul(pool, x->arg[0], y->arg[0]);
  if (x->op == EXPR_NEG && expr_is_fixed(y)) return expr_mul(pool, x->arg[0], expr_neg(pool, y));
  if (x->op == EXPR_NEG) return expr_neg(pool, expr_mul(pool, x->arg[0], y));
  if (y->op == EXPR_NEG) return expr_neg(pool, expr_mul(pool, x, y->arg[0]));
  return NULL;
}

/* x K + y K -> (x + y) K: what is common to all blocks is then added once. */
static const expr *factor_constant(expr_pool *pool, expr_op op, const expr *x, const expr *y) {
  if (x->op != EXPR_MUL || y->op != EXPR_MUL || x->arg[1] != y->arg[1] || !expr_is_fixed(x->arg[1])) return NULL;
  return expr_mul(pool, expr_binary(pool, op, x->arg[0], y->arg[0]), x->arg[1]);
}

/* Powers of two. x times any other inverse can differ from x / y, and floor shows it: 49 times 1/49 is below 1. */
static bool has_exact_inverse(double y) {
  int exponent;
  return fabs(frexp(y, &exponent)) == 0.5 && isnormal(1 / y);
}

static const expr *simplify_binary(expr_pool *pool, expr_op op, const expr *x, const expr *y) {
  if (expr_is_fixed(x) && expr_is_fixed(y)) return fold(pool, op, x, y, NULL);
  if (is_of_terms(x) && is_of_terms(y)) return fold_terms(pool, op, x->terms ? x->terms : y->terms, x, y, NULL);
  const expr *factored = op == EXPR_ADD || op == EXPR_SUB ? factor_constant(pool, op, x, y) : NULL;
  if (factored) return factored;
  switch (op) {
  case EXPR_ADD:
    if (expr_is_const(y, 0)) return x;
    if (y->op == EXPR_NEG) return expr_sub(pool, x, y->arg[0]);
    if (x->op == EXPR_NEG) return expr_sub(pool, y, x->arg[0]);
    return NULL;
  case EXPR_SUB:
    if (expr_is_const(y, 0)) return x;
    if (expr_is_const(x, 0)) return expr_neg(pool, y);
    if (y->op == EXPR_NEG) return expr_add(pool, x, y->arg[0]);
    return NULL;
  case EXPR_MUL: return simplify_mul(pool, x, y);
  case EXPR_DIV:
    if (expr_is_const(y, 1)) return x;
    if (y->op == EXPR_CONST && has_exact_inverse(y->value)) return expr_mul(pool, x, expr_const(pool, 1 / y->value));
    return NULL;
  case EXPR_MIN:
  case EXPR_MAX: return x == y ? x : NULL;
  default: return NULL;
  }
}

/* ---- constructors ---- */

const expr *expr_unary(expr_pool *pool, expr_op op, const expr *x) {
  const expr *simple = simplify_unary(pool, op, x);
  return simple ? simple : intern(pool, (expr){.op = op, .arg = {x}});
}

const expr *(expr_binary)(expr_pool * pool, expr_op op, const expr *x, const expr *y) {
  bool commutes = op == EXPR_ADD || op == EXPR_MUL;
  /* Canonical order of commuting operations: constants right, older nodes left. */
  if (commutes && (expr_is_fixed(x) ? !expr_is_fixed(y) : !expr_is_fixed(y) && x->id > y->id)) {
    const expr *swap = x;
    x = y;
    y = swap;
  }
  const expr *simple = simplify_binary(pool, op, x, y);
  return simple ? simple : intern(pool, (expr){.op = op, .arg = {x, y}});
}

const expr *(expr_select)(expr_pool * pool, const expr *condition, const expr *x, const expr *y) {
  if (x == y) return x;
  if (condition->op == EXPR_CONST) return condition->value != 0 ? x : y;
  if (expr_is_fixed(condition) && expr_is_fixed(x) && expr_is_fixed(y)) return fold(pool, EXPR_SELECT, condition, x, y);
  if (condition->op == EXPR_TERMS && is_of_terms(x) && is_of_terms(y))
    return fold_terms(pool, EXPR_SELECT, condition->terms, condition, x, y);
  return intern(pool, (expr){.op = EXPR_SELECT, .arg = {condition, x, y}});
}

const expr *expr_sum(expr_pool *pool, int terms, const expr *x) {
  if (!x->terms) return expr_mul(pool, x, expr_const(pool, terms));
  double sum = 0;
  for (int i = 0; i < terms && x->op == EXPR_TERMS; i++) sum += x->table[i];
  if (x->op == EXPR_TERMS) return expr_const(pool, sum);
  return intern(pool, (expr){.op = EXPR_SUM, .index = terms, .arg = {x}});
}

const expr *expr_rebuild(expr_pool *pool, const expr *x, const expr *const *arg) {
  if (x->op == EXPR_ELEMENT) return expr_element(pool, x->index, x->last, x->n_heads, x->offsets, arg[0]);
  if (x->op == EXPR_INPUT_AT) return expr_input_at(pool, x->index, x->last, arg[0]);
  if (x->op == EXPR_SUM) return expr_sum(pool, x->index, arg[0]);
  switch (OPS[x->op].arity) {
  case 0: return x;
  case 1: return expr_unary(pool, x->op, arg[0]);
  case 2: return expr_binary(pool, x->op, arg[0], arg[1]);
  default: return expr_select(pool, arg[0], arg[1], arg[2]);
  }
}

static const expr *unrolled(expr_pool *pool, const expr *x, int term, const expr **made);

/* Writes out what below x is the same in all terms. seen: by id, nodes that differ. */
static void unroll_shared(expr_pool *pool, const expr *x, const expr **made, bool *seen) {
  if (!x->terms) unrolled(pool, x, 0, made);
  if (!x->terms || seen[x->id]) return;
  seen[x->id] = true;
  for (int i = 0; i < OPS[x->op].arity; i++) unroll_shared(pool, x->arg[i], made, seen);
}

/* term: of the sum around; made: by id, of that term where a node differs from term to term. */
static const expr *unrolled(expr_pool *pool, const expr *x, int term, const expr **made) {
  if (x->op == EXPR_TERMS) return expr_const(pool, x->table[term]);
  if (made[x->id]) return made[x->id];
  const expr *arg[3] = {NULL}, *sum = NULL;
  if (x->op != EXPR_SUM) {
    for (int i = 0; i < OPS[x->op].arity; i++) arg[i] = unrolled(pool, x->arg[i], term, made);
    return made[x->id] = expr_rebuild(pool, x, arg);
  }
  arena *scratch = arena_create();
  const expr **of_term = arena_array(scratch, const expr *, x->id);
  unroll_shared(pool, x->arg[0], made, arena_array(scratch, bool, x->id));
  for (int i = 0; i < x->index; i++) {
    memcpy(of_term, made, sizeof *made * (size_t)x->id);
    const expr *next = unrolled(pool, x->arg[0], i, of_term);
    sum = sum ? expr_add(pool, sum, next) : next;
  }
  arena_destroy(scratch);
  return made[x->id] = sum;
}

const expr *expr_unrolled(expr_pool *pool, const expr *x) {
  if (x->id >= pool->n_unrolled) {
    const expr **before = pool->unrolled;
    pool->unrolled = arena_array(pool->memory, const expr *, pool->count);
    if (before) memcpy(pool->unrolled, before, sizeof *before * (size_t)pool->n_unrolled);
    pool->n_unrolled = pool->count;
  }
  return unrolled(pool, x, 0, pool->unrolled);
}

/* ---- interpreters ---- */

double expr_eval(const expr *x, const expr_environment *env) { return (double)expr_eval_long(x, env); }

static int leaf_index(const expr *x, const expr_environment *env) {
  return (x->n_heads > 1 ? env->head : 0) * env->blocks + env->block;
}

int expr_element_place(const expr *x, const expr_environment *env, long double index) {
  return place_inside(x->op == EXPR_INPUT_AT ? 0 : x->offsets[leaf_index(x, env)], x->last, index);
}

static long double evaluate(const expr *x, const expr_environment *env, expr_memo *memo);

/* What is known of nodes below x in one term is unknown in the next. */
static void forget(const expr *x, expr_memo *memo) {
  if (!x->terms || !memo->known[x->id]) return;
  memo->known[x->id] = 0;
  for (int i = 0; i < OPS[x->op].arity; i++) forget(x->arg[i], memo);
}

/* What is the same in all terms is computed once, another sum among it. */
static long double compute_sum(const expr *x, const expr_environment *env, expr_memo *memo) {
  arena *scratch = memo ? NULL : arena_create();
  expr_memo own = {.value = NULL};
  expr_environment at = *env;
  long double sum = 0;
  if (!memo) own = (expr_memo){arena_array(scratch, long double, x->id), arena_array(scratch, unsigned char, x->id)};
  for (at.term = 0; at.term < x->index; at.term++) {
    sum += evaluate(x->arg[0], &at, memo ? memo : &own);
    forget(x->arg[0], memo ? memo : &own);
  }
  if (scratch) arena_destroy(scratch);
  return sum;
}

static long double compute(const expr *x, const expr_environment *env, expr_memo *memo) {
  switch (x->op) {
  case EXPR_CONST: return x->value;
  case EXPR_TABLE: return x->table[leaf_index(x, env)];
  case EXPR_POSITION: return env->positions[x->index];
  case EXPR_OPERAND: return env->operands[x->index][x->offsets[leaf_index(x, env)]];
  case EXPR_INPUT: return env->inputs[x->index][x->offsets[leaf_index(x, env)]];
  case EXPR_CHANNEL: return env->channels[x->index];
  case EXPR_COTANGENT: return env->cotangents[x->index];
  case EXPR_TERMS: return x->table[env->term];
  case EXPR_SUM: return compute_sum(x, env, memo);
  case EXPR_ELEMENT: return env->operands[x->index][expr_element_place(x, env, evaluate(x->arg[0], env, memo))];
  case EXPR_INPUT_AT: return env->inputs[x->index][expr_element_place(x, env, evaluate(x->arg[0], env, memo))];
  default: break;
  }
  long double v[3] = {0};
  for (int i = 0; i < OPS[x->op].arity; i++) v[i] = evaluate(x->arg[i], env, memo);
  return applyl(x->op, v[0], v[1], v[2]);
}

static long double evaluate(const expr *x, const expr_environment *env, expr_memo *memo) {
  if (!memo) return compute(x, env, NULL);
  if (!memo->known[x->id]) memo->value[x->id] = compute(x, env, memo);
  memo->known[x->id] = 1;
  return memo->value[x->id];
}

long double expr_eval_long(const expr *x, const expr_environment *env) { return evaluate(x, env, NULL); }

long double expr_eval_known(const expr *x, const expr_environment *env, expr_memo *memo) {
  return evaluate(x, env, memo);
}

/* ---- text ---- */

static void print_leaf(FILE *out, const expr *x) {
  switch (x->op) {
  case EXPR_CONST: fprintf(out, "%.17g", x->value); break;
  case EXPR_POSITION: fprintf(out, "position[%d]", x->index); break;
  case EXPR_CHANNEL: fprintf(out, "channel[%d]", x->index); break;
  case EXPR_COTANGENT: fprintf(out, "cotangent[%d]", x->index); break;
  case EXPR_TABLE:
    fprintf(out, "table%s {%.9g, %.9g, ...}", x->n_heads > 1 ? "[head][block]" : "[block]", x->table[0], x->table[1]);
    break;
  case EXPR_OPERAND:
    fprintf(out, "operand %d%s {%d, ...}", x->index, x->n_heads > 1 ? "[head][block]" : "[block]", x->offsets[0]);
    break;
  case EXPR_TERMS: fprintf(out, "terms {%.9g, %.9g, ...}", x->table[0], x->table[1]); break;
  case EXPR_INPUT: fprintf(out, "input %d[block] {%d, ...}", x->index, x->offsets[0]); break;
  default: break;
  }
}

static void print_node(FILE *out, const expr *x, unsigned char *seen) {
  if (seen[x->id]) return;
  seen[x->id] = 1;
  for (int i = 0; i < OPS[x->op].arity; i++)
    if (x->arg[i]->op != EXPR_CONST) print_node(out, x->arg[i], seen);
  if (x->op == EXPR_CONST) return;
  fprintf(out, "  %%%d = ", x->id);
  if (OPS[x->op].arity == 0) print_leaf(out, x);
  else {
    fprintf(out, "%s", OPS[x->op].name);
    for (int i = 0; i < OPS[x->op].arity; i++) {
      fputs(i ? ", " : " ", out);
      if (x->arg[i]->op == EXPR_CONST) print_leaf(out, x->arg[i]);
      else fprintf(out, "%%%d", x->arg[i]->id);
    }
  }
  if (x->op == EXPR_ELEMENT)
    fprintf(out, " of operand %d%s {%d, ...}", x->index, x->n_heads > 1 ? "[head][block]" : "[block]", x->offsets[0]);
  if (x->op == EXPR_INPUT_AT) fprintf(out, " of input %d", x->index);
  if (x->op == EXPR_SUM) fprintf(out, " over %d terms", x->index);
  fprintf(out, " : %s\n", x->is_f32 ? "f32" : "f64");
}

void expr_print_roots(FILE *out, const expr *const *roots, const char *const *names, int count) {
  int top = 0;
  for (int i = 0; i < count; i++)
    if (roots[i]->id >= top) top = roots[i]->id + 1;
  arena *memory = arena_create();
  unsigned char *seen = arena_alloc(memory, (size_t)top);
  for (int i = 0; i < count; i++) {
    print_node(out, roots[i], seen);
    fprintf(out, "  %s = ", names[i]);
    if (roots[i]->op == EXPR_CONST) print_leaf(out, roots[i]);
    else fprintf(out, "%%%d", roots[i]->id);
    fputc('\n', out);
  }
  arena_destroy(memory);
}
