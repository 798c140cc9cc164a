/* algebra/polynomial: expansion by walking the expression; see algebra/polynomial.h.
 *
 * Every node below becomes a list of items, query * fixed * delta^alpha, with equal (query, alpha)
 * merged; sums and products of lists are the algebra of polynomials. What does not depend on
 * delta is one item, whatever functions it is made of.
 */
#include "algebra/polynomial.h"

#include "base/diag.h"

#include <math.h>
#include <string.h>

/* ---- monomials ---- */

int monomial_degree(const monomial *m) {
  int degree = 0;
  for (int a = 0; a < SPEC_MAX_AXES; a++) degree += m->power[a];
  return degree;
}

bool monomial_equal(const monomial *x, const monomial *y) { return memcmp(x, y, sizeof *x) == 0; }

double monomial_value(const monomial *m, int n_axes, const double *at) {
  double value = 1;
  for (int a = 0; a < n_axes; a++)
    for (int i = 0; i < m->power[a]; i++) value *= at[a];
  return value;
}

static const char *coordinate_name(arena *a, const polynomial *p, int axis) {
  const spec *s = p->spec;
  if (axis < s->n_axes) return s->axis[axis];
  const expr *key = p->key[axis - s->n_axes];
  const spec_input *in = &s->input[key->index];
  return in->size ? arena_printf(a, "%s[%d]", in->name, key->offsets[0]) : in->name;
}

const char *monomial_text(arena *a, const polynomial *p, const monomial *m) {
  const char *text = "";
  for (int axis = 0; axis < SPEC_MAX_AXES; axis++) {
    if (!m->power[axis]) continue;
    text = arena_printf(a, "%s%s%s", text, *text ? " " : "", coordinate_name(a, p, axis));
    if (m->power[axis] > 1) text = arena_printf(a, "%s^%d", text, m->power[axis]);
  }
  return *text ? text : "1";
}

/* ---- lists of items ---- */

typedef struct item {
  monomial power;
  const expr *query, *fixed;
} item;

typedef struct items {
  int count;
  item *item;
} items;

typedef struct expander {
  arena *memory;
  const spec *spec;
  expr_pool *pool;
  polynomial *p; /* whose keys are collected */
  const items **memo; /* by expr id, of the nodes there were at the start */
  unsigned char *varies; /* by expr id, what varies() found */
  bool failed;
} expander;

static const items *fail(expander *e, const char *text) {
  static const items nothing;
  if (!e->failed) diag_error(e->spec->file, e->spec->line, "%s", text);
  e->failed = true;
  return &nothing;
}

static items *new_items(expander *e, int room) {
  items *list = arena_new(e->memory, items);
  list->item = arena_array(e->memory, item, room + 1);
  return list;
}

/* Adds to the item of the same query half and monomial, or as a new one; the list has room. */
static void add_item(expander *e, items *list, item x) {
  if (expr_is_const(x.fixed, 0)) return;
  for (int i = 0; i < list->count; i++) {
    if (list->item[i].query != x.query || !monomial_equal(&list->item[i].power, &x.power)) continue;
    list->item[i].fixed = expr_add(e->pool, list->item[i].fixed, x.fixed);
    return;
  }
  list->item[list->count++] = x;
}

static const items *sum(expander *e, const items *x, const items *y, double sign) {
  items *list = new_items(e, x->count + y->count);
  for (int i = 0; i < x->count; i++) add_item(e, list, x->item[i]);
  for (int i = 0; i < y->count; i++) {
    item scaled = y->item[i];
    scaled.fixed = expr_mul(e->pool, scaled.fixed, expr_const(e->pool, sign));
    add_item(e, list, scaled);
  }
  return list;
}

static const expr *times(expander *e, const expr *x, const expr *y) {
  return !x ? y : !y ? x : expr_mul(e->pool, x, y);
}

/* Degree in coordinates of positions. */
static int degree_of(const spec *s, const monomial *m) {
  int degree = 0;
  for (int a = 0; a < s->n_axes; a++) degree += m->power[a];
  return degree;
}

static bool is_too_high(const spec *s, const monomial *m) {
  bool is_high = degree_of(s, m) > SPEC_MAX_DEGREE;
  for (int a = s->n_axes; a < SPEC_MAX_AXES; a++) is_high = is_high || m->power[a] > SPEC_MAX_DEGREE;
  return is_high;
}

static const items *product(expander *e, const items *x, const items *y) {
  if ((long)x->count * y->count > POLYNOMIAL_MAX_PRODUCTS)
    return fail(e, "the bias has too many products when it is multiplied out");
  items *list = new_items(e, x->count * y->count);
  for (int i = 0; i < x->count; i++)
    for (int j = 0; j < y->count; j++) {
      item z = {x->item[i].power, times(e, x->item[i].query, y->item[j].query),
                expr_mul(e->pool, x->item[i].fixed, y->item[j].fixed)};
      for (int a = 0; a < SPEC_MAX_AXES; a++)
        z.power.power[a] = (unsigned char)(z.power.power[a] + y->item[j].power.power[a]);
      if (is_too_high(e->spec, &z.power))
        return fail(e, arena_printf(e->memory, "the bias has a degree above %d in the displacement or a key's input",
                                    SPEC_MAX_DEGREE));
      add_item(e, list, z);
    }
  return list;
}

/* ---- the walk ---- */

/* What does not depend on delta: of the query, or of operands and constants alone. */
static const items *constant(expander *e, const expr *x) {
  items *list = new_items(e, 1);
  bool of_query = x->depends & DEPENDS_QUERY;
  item one = {.query = of_query ? x : NULL, .fixed = of_query ? expr_const(e->pool, 1) : x};
  add_item(e, list, one);
  return list;
}

static bool is_of_key(const expander *e, const expr *x) {
  return x->op == EXPR_INPUT && e->spec->input[x->index].of_keys;
}

/* Whether an expression depends on delta: on the displacement or a number of the key's token. */
static bool varies(expander *e, const expr *x) {
  enum { UNKNOWN, NO, YES };
  unsigned char *found = &e->varies[x->id];
  if (*found == UNKNOWN) {
    bool does = x->op == EXPR_POSITION || is_of_key(e, x);
    for (int i = 0; i < expr_op_arity(x->op); i++) does = varies(e, x->arg[i]) || does;
    *found = does ? YES : NO;
  }
  return *found == YES;
}

static const items *axis(expander *e, int index) {
  items *list = new_items(e, 1);
  item one = {.fixed = expr_const(e->pool, 1)};
  one.power.power[index] = 1;
  add_item(e, list, one);
  return list;
}

static const items *expand(expander *e, const expr *x);

/* The coordinate of a number of the key's token, which is added where it is new. */
static const items *key_axis(expander *e, const expr *x) {
  polynomial *p = e->p;
  int i = 0, room = SPEC_MAX_AXES - e->spec->n_axes;
  if (x->depends & DEPENDS_BLOCK) return fail(e, "a polynomial bias reads a key's input at one index in all its terms");
  while (i < p->n_keys && p->key[i] != x) i++;
  if (i == room)
    return fail(e, arena_printf(e->memory, "the bias reads more than %d numbers of the key's token", room));
  if (i == p->n_keys) p->key[p->n_keys++] = x;
  return axis(e, e->spec->n_axes + i);
}

/* What does not depend on delta but on the query is taken apart where operands or constants can be found in it: a sum
 * of inputs alone (a softplus, say) stays one value. */
static bool is_taken_apart(const expr *x) {
  if (!(x->depends & DEPENDS_QUERY)) return false;
  if (x->op == EXPR_NEG || (x->op == EXPR_MUL && expr_is_fixed(x->arg[1]))) return true;
  return (x->depends & DEPENDS_OPERAND) && (x->op == EXPR_ADD || x->op == EXPR_SUB || x->op == EXPR_MUL);
}

static const items *expand_node(expander *e, const expr *x) {
  if (expr_op_is_lookup(x->op))
    return fail(e, "a polynomial bias reads operands and inputs at places that are known when it is compiled only");
  if (x->op == EXPR_CONST && !isfinite(x->value)) return fail(e, "a polynomial bias has no pe.masked in it");
  if (x->op == EXPR_POSITION) return axis(e, x->index);
  if (is_of_key(e, x)) return key_axis(e, x);
  if (x->op == EXPR_DIV && !varies(e, x->arg[1])) {
    const expr *inverse = expr_div(e->pool, expr_const(e->pool, 1), x->arg[1]);
    return product(e, expand(e, x->arg[0]), constant(e, inverse));
  }
  if (!varies(e, x) && !is_taken_apart(x)) return constant(e, x);
  switch (x->op) {
  case EXPR_ADD: return sum(e, expand(e, x->arg[0]), expand(e, x->arg[1]), 1);
  case EXPR_SUB: return sum(e, expand(e, x->arg[0]), expand(e, x->arg[1]), -1);
  case EXPR_MUL: return product(e, expand(e, x->arg[0]), expand(e, x->arg[1]));
  case EXPR_NEG: return sum(e, new_items(e, 0), expand(e, x->arg[0]), -1);
  default:
    return fail(e, arena_printf(e->memory,
                                "the bias takes '%s' of the displacement or a key's input; a polynomial adds and "
                                "multiplies them only",
                                expr_op_name(x->op)));
  }
}

static const items *expand(expander *e, const expr *x) {
  if (e->failed) return fail(e, "");
  if (!e->memo[x->id]) e->memo[x->id] = expand_node(e, x);
  return e->memo[x->id];
}

/* ---- weights ---- */

/* x as a constant times a base: pointers of bases can be compared. */
static const expr *base_of(expr_pool *pool, const expr *x, double *factor) {
  *factor = 1;
  if (x->op == EXPR_NEG) *factor = -1, x = x->arg[0];
  if (x->op == EXPR_MUL && x->arg[1]->op == EXPR_CONST) *factor *= x->arg[1]->value, x = x->arg[0];
  if (x->op == EXPR_CONST) *factor *= x->value, x = expr_const(pool, 1);
  return x;
}

/* The products of one monomial, ordered by their query halves. */
static int products_of(const items *list, const monomial *m, polynomial_product *out) {
  int count = 0;
  for (int i = 0; i < list->count; i++) {
    if (!monomial_equal(&list->item[i].power, m)) continue;
    int id = list->item[i].query ? list->item[i].query->id : -1, at = count++;
    for (; at > 0 && (out[at - 1].query ? out[at - 1].query->id : -1) > id; at--) out[at] = out[at - 1];
    out[at] = (polynomial_product){list->item[i].query, list->item[i].fixed};
  }
  return count;
}

/* Whether products are a constant times a weight's. */
static bool is_multiple(expr_pool *pool, const polynomial_weight *w, const polynomial_product *products, int count,
                        double *factor) {
  if (w->n_products != count) return false;
  for (int i = 0; i < count; i++) {
    double mine, its;
    if (products[i].query != w->product[i].query) return false;
    if (base_of(pool, products[i].fixed, &mine) != base_of(pool, w->product[i].fixed, &its) || its == 0) return false;
    if (i > 0 && mine / its != *factor) return false;
    *factor = mine / its;
  }
  return true;
}

static void add_to_shape(arena *a, polynomial_weight *w, const monomial *m, double factor) {
  monomial *monomials = arena_array(a, monomial, w->n_monomials + 1);
  double *factors = arena_array(a, double, w->n_monomials + 1);
  if (w->n_monomials) {
    memcpy(monomials, w->monomial, sizeof *monomials * (size_t)w->n_monomials);
    memcpy(factors, w->factor, sizeof *factors * (size_t)w->n_monomials);
  }
  monomials[w->n_monomials] = *m;
  factors[w->n_monomials++] = factor;
  w->monomial = monomials;
  w->factor = factors;
}

static void add_weight(arena *a, polynomial *p, const items *list, const monomial *m) {
  polynomial_product *products = arena_array(a, polynomial_product, list->count);
  int count = products_of(list, m, products);
  double factor = 1;
  for (int w = 0; w < p->n_weights; w++) {
    if (!is_multiple(p->spec->pool, &p->weight[w], products, count, &factor)) continue;
    add_to_shape(a, &p->weight[w], m, factor);
    return;
  }
  p->weight[p->n_weights] = (polynomial_weight){.n_products = count, .product = products};
  add_to_shape(a, &p->weight[p->n_weights++], m, 1);
}

int polynomial_query_index(const polynomial *p, const expr *query) {
  for (int i = 0; i < p->n_queries; i++)
    if (p->query[i] == query) return i;
  return -1;
}

static void collect_queries(arena *a, polynomial *p, const items *list) {
  p->query = arena_array(a, const expr *, list->count + 1);
  for (int w = 0; w < p->n_weights; w++)
    for (int i = 0; i < p->weight[w].n_products; i++) {
      const expr *query = p->weight[w].product[i].query;
      if (query && polynomial_query_index(p, query) < 0) p->query[p->n_queries++] = query;
    }
}

static bool check_degree(const spec *s, polynomial *p, const items *list) {
  for (int i = 0; i < list->count; i++) {
    int degree = degree_of(s, &list->item[i].power), order = monomial_degree(&list->item[i].power);
    if (degree > p->degree) p->degree = degree;
    if (order > p->order) p->order = order;
  }
  if (p->degree <= s->polynomial->degree && p->degree > 0) return true;
  if (p->degree == 0) diag_error(s->file, s->line, "the bias does not depend on the displacement");
  else
    diag_error(s->file, s->line, "the bias has degree %d in the displacement, and 'degree' says %d", p->degree,
               s->polynomial->degree);
  return false;
}

const polynomial *polynomial_expand(arena *a, const spec *s) {
  polynomial *p = arena_new(a, polynomial);
  expander e = {.memory = a, .spec = s, .pool = s->pool, .p = p};
  e.memo = arena_array(a, const items *, expr_pool_count(s->pool) + 1);
  e.varies = arena_array(a, unsigned char, expr_pool_count(s->pool) + 1);
  const items *list = expand(&e, s->polynomial->value);
  if (e.failed) return NULL;
  p->spec = s;
  if (!check_degree(s, p, list)) return NULL;
  p->weight = arena_array(a, polynomial_weight, list->count);
  monomial *seen = arena_array(a, monomial, list->count);
  int n_seen = 0;
  /* By degree, and within one as they come: the first column is the first axis. */
  for (int degree = 0; degree <= p->order; degree++)
    for (int i = 0; i < list->count; i++) {
      const monomial *m = &list->item[i].power;
      bool known = monomial_degree(m) != degree;
      for (int k = 0; k < n_seen; k++) known = known || monomial_equal(&seen[k], m);
      if (known) continue;
      seen[n_seen++] = *m;
      add_weight(a, p, list, m);
    }
  if (n_seen > POLYNOMIAL_MAX_MONOMIALS) {
    diag_error(s->file, s->line, "the bias has %d monomials in the displacement; at most %d were expected", n_seen,
               POLYNOMIAL_MAX_MONOMIALS);
    return NULL;
  }
  collect_queries(a, p, list);
  return p;
}

/* ---- text ---- */

void polynomial_print(FILE *out, const polynomial *p) {
  const spec *s = p->spec;
  arena *a = arena_create();
  fprintf(out, "; %s: a bias of degree %d in r_j - r_i, summed over %d terms; %d weights\n", s->name, p->degree,
          s->polynomial->n_terms, p->n_weights);
  int count = 0;
  const expr **roots = arena_array(a, const expr *, 2 * POLYNOMIAL_MAX_PRODUCTS);
  const char **names = arena_array(a, const char *, 2 * POLYNOMIAL_MAX_PRODUCTS);
  for (int w = 0; w < p->n_weights; w++) {
    const polynomial_weight *weight = &p->weight[w];
    fprintf(out, "weight %d of", w);
    for (int i = 0; i < weight->n_monomials; i++)
      fprintf(out, "%s %.9g %s", i ? " +" : "", weight->factor[i], monomial_text(a, p, &weight->monomial[i]));
    fprintf(out, ": sum over terms of");
    for (int i = 0; i < weight->n_products && count < 2 * POLYNOMIAL_MAX_PRODUCTS - 2; i++) {
      const polynomial_product *product = &weight->product[i];
      fprintf(out, "%s %s fixed[%d][%d]", i ? " +" : "",
              product->query ? arena_printf(a, "%%%d", product->query->id) : "1", w, i);
      if (product->query) {
        roots[count] = product->query;
        names[count++] = arena_printf(a, "query[%d][%d]", w, i);
      }
      roots[count] = product->fixed;
      names[count++] = arena_printf(a, "fixed[%d][%d]", w, i);
    }
    fputc('\n', out);
  }
  expr_print_roots(out, roots, names, count);
  arena_destroy(a);
}
