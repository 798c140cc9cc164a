/* verify/kinks: see verify/kinks.h. */
#include "verify/kinks.h"

#include <math.h>

enum { PLACES = 4, MOST_LEAVES = 16, LEAST_POWER = -8, MOST_POWER = 24 };

static const double MODERATE = 1024; /* how much larger a value may become */

/* The kinks of one expression of the description that depend on operands. */
typedef struct search {
  arena *memory;
  const spec *spec;
  const expr *root;
  const expr **kink;
  int count;
  unsigned char *seen; /* by id */
  double positions[PLACES][SPEC_MAX_PLACES];
  double *const *operands;
  number_type type;
} search;

static bool is_kink(const expr *x) {
  bool kind = x->op == EXPR_MIN || x->op == EXPR_MAX || x->op == EXPR_LESS || x->op == EXPR_ABS || x->op == EXPR_FLOOR;
  return kind && x->depends & DEPENDS_OPERAND;
}

static void collect(search *t, const expr *x) {
  if (t->seen[x->id]) return;
  t->seen[x->id] = 1;
  if (is_kink(x)) t->kink[t->count++] = x;
  for (int i = 0; i < expr_op_arity(x->op); i++) collect(t, x->arg[i]);
}

static long double value_at(const search *t, const expr *x, int head, int block, int place) {
  const spec *s = t->spec;
  expr_environment env = {.head = head,
                          .block = block,
                          .blocks = s->n_blocks,
                          .positions = t->positions[place],
                          .operands = (const double *const *)t->operands,
                          .inputs = (const double *const *)t->operands + s->n_operands};
  return expr_eval_long(x, &env);
}

/* Which side of its kink a node is on, NaN where it is at it; of a floor the whole number. */
static long double side_of(const search *t, const expr *x, int head, int block, int place) {
  long double a = value_at(t, x->arg[0], head, block, place);
  if (x->op == EXPR_FLOOR) return floorl(a);
  long double b = x->op == EXPR_ABS ? 0 : value_at(t, x->arg[1], head, block, place);
  return a > b ? 1 : a < b ? -1 : NAN;
}

static bool is_other(long double side, long double first) { return side > first || side < first; }

static bool is_crossed(const search *t, const expr *x) {
  long double first = NAN;
  for (int head = 0; head < t->spec->heads; head++)
    for (int block = 0; block < t->spec->n_blocks; block++)
      for (int place = 0; place < PLACES; place++) {
        long double side = side_of(t, x, head, block, place);
        if (is_other(side, first)) return true;
        if (isnan(first)) first = side;
      }
  return false;
}

/* Elements that x reads in a head and block; those at computed places are not among them. */
static int elements_of(const search *t, const expr *x, int head, int block, double **out, int count) {
  if (count == MOST_LEAVES || !(x->depends & DEPENDS_OPERAND)) return count;
  if (x->op == EXPR_OPERAND)
    out[count++] = t->operands[x->index] + x->offsets[(x->n_heads > 1 ? head : 0) * t->spec->n_blocks + block];
  for (int i = 0; i < expr_op_arity(x->op); i++) count = elements_of(t, x->arg[i], head, block, out, count);
  return count;
}

/* Whether the element, as it is now, puts the kink on another side and leaves what it is in moderate. */
static bool is_across(const search *t, const expr *x, int head, int block, long double side, long double before) {
  bool crosses = false;
  for (int place = 0; place < PLACES; place++) {
    long double now = value_at(t, t->root, head, block, place);
    if (!isinf(before) && !(fabsl(now) <= MODERATE * fmaxl(1, fabsl(before)))) return false;
    long double there = side_of(t, x, head, block, place);
    crosses = crosses || (isnan(side) ? !isnan(there) : is_other(there, side));
  }
  return crosses;
}

static void cross(const search *t, const expr *x, int head, int block) {
  double *element[MOST_LEAVES];
  long double side = side_of(t, x, head, block, 0), before = value_at(t, t->root, head, block, 0);
  int count = elements_of(t, x, head, block, element, 0);
  for (int power = LEAST_POWER; power <= MOST_POWER; power++)
    for (int i = 0; i < 2 * count; i++) {
      double *at = element[i / 2], kept = *at;
      *at = number_round(t->type, ldexp(i % 2 ? -1.5 : 1.5, power));
      if (is_across(t, x, head, block, side, before)) return;
      *at = kept;
    }
}

static void cross_in(search *t, const expr *root, uint64_t *random) {
  root = expr_unrolled(t->spec->pool, root);
  int nodes = expr_pool_count(t->spec->pool);
  if (!(root->depends & DEPENDS_OPERAND)) return;
  t->root = root;
  t->count = 0;
  t->kink = arena_array(t->memory, const expr *, nodes);
  t->seen = arena_alloc(t->memory, (size_t)nodes);
  collect(t, root);
  for (int i = 0; i < t->count; i++) {
    if (is_crossed(t, t->kink[i])) continue;
    for (int head = 0; head < t->spec->heads; head++)
      for (int block = 0; block < t->spec->n_blocks; block++)
        if ((head == 0 && block == 0) || random_below(random, 2)) cross(t, t->kink[i], head, block);
  }
}

void kinks_cross(const spec *s, number_type type, uint64_t *random, double *const *operands) {
  arena *scratch = arena_create();
  search t = {.memory = scratch, .spec = s, .operands = operands, .type = type};
  for (int place = 1; place < PLACES; place++) /* and the origin */
    for (int i = 0; i < SPEC_MAX_PLACES; i++) t.positions[place][i] = random_uniform(random, -8, 8);
  const expr **roots = arena_array(scratch, const expr *, SPEC_MAX_EXPRESSIONS);
  int count = spec_expressions(s, roots);
  for (int i = 0; i < count; i++) cross_in(&t, roots[i], random);
  arena_destroy(scratch);
  for (int i = 0; i < s->n_parts; i++) kinks_cross(s->part[i].of, type, random, operands);
}

/* ---- steps ---- */

/* A node's value as float32, as float64 and as the reference has it. */
typedef struct precisions {
  bool known, is_rounded; /* a step below depends on which of them is taken */
  long double reference;
  double wide;
  float narrow;
} precisions;

/* Near enough to a step for the errors of functions of float32 to cross it, and not on it in all precisions. */
static bool is_rounded_step(const precisions *a, const precisions *b, bool is_floor) {
  const long double margin = 0x1p-20L;
  long double edge = is_floor ? rintl(a->reference) : b->reference;
  if (!isfinite(a->reference) || !isfinite(edge)) return false;
  if (fabsl(a->reference - edge) > margin * fmaxl(1, fabsl(edge))) return false;
  if (is_floor) return a->reference != edge || a->wide != edge || a->narrow != edge;
  return a->reference != b->reference || a->wide != b->wide || a->narrow != b->narrow;
}

typedef struct steps {
  const expr_environment *env;
  precisions *node; /* by id, as in memo */
  expr_memo memo;
} steps;

static const precisions *in_precisions(steps *t, const expr *x) {
  precisions *y = &t->node[x->id];
  const precisions *v[3] = {NULL};
  double wide[3] = {0}, narrow[3] = {0};
  if (y->known) return y;
  y->known = true;
  y->reference = expr_eval_known(x, t->env, &t->memo);
  for (int i = 0; i < expr_op_arity(x->op); i++) {
    v[i] = in_precisions(t, x->arg[i]);
    y->is_rounded = y->is_rounded || v[i]->is_rounded;
    wide[i] = v[i]->wide;
    narrow[i] = v[i]->narrow;
  }
  bool is_leaf = expr_op_is_lookup(x->op) || expr_op_arity(x->op) == 0;
  y->wide = is_leaf ? (double)y->reference : expr_apply(x->op, wide[0], wide[1], wide[2]);
  y->narrow = is_leaf ? (float)y->reference : (float)expr_apply(x->op, narrow[0], narrow[1], narrow[2]);
  if (x->op == EXPR_FLOOR || x->op == EXPR_LESS)
    y->is_rounded = y->is_rounded || is_rounded_step(v[0], v[1], x->op == EXPR_FLOOR);
  return y;
}

bool kinks_are_rounded(const spec *s, const expr *x, const expr_environment *env) {
  arena *scratch = arena_create();
  int nodes = expr_pool_count(s->pool);
  steps t = {env,
             arena_array(scratch, precisions, nodes),
             {arena_array(scratch, long double, nodes), arena_alloc(scratch, (size_t)nodes)}};
  bool is_rounded = in_precisions(&t, x)->is_rounded;
  arena_destroy(scratch);
  return is_rounded;
}
