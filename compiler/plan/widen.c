/* plan/widen: columns, their parts, and what is prepared; see plan/widen.h. */
#include "plan/widen.h"

#include "base/diag.h"

#include <math.h>
#include <string.h>

/* What is prepared is read by whole vectors, which should not lie across cache lines. */
enum { ALIGNED_LANES = 16 };

enum { MOST_COLUMNS = POLYNOMIAL_MAX_MONOMIALS, MOST_GAINS = 1 << 14 };

bool plan_widen_keeps_constant(const spec *s) {
  return s->polynomial->exact_scores || s->skip_tokens > 0 || (s->pairwise && s->pairwise->score);
}

/* ---- multiplying out ---- */

/* A monomial of the key's coordinates and the query side it multiplies. */
typedef struct row {
  monomial key;
  int count;
  widen_gain *gain;
} row;

typedef struct expansion {
  arena *memory;
  const spec *spec;
  int n_rows;
  row *row;
  row constant; /* of key 1, where it is dropped */
  bool failed;
} expansion;

static double binomial(int n, int k) {
  double value = 1;
  for (int i = 1; i <= k; i++) value = value * (n - k + i) / i;
  return value;
}

static row *row_of(expansion *e, const monomial *key) {
  for (int i = 0; i < e->n_rows; i++)
    if (monomial_equal(&e->row[i].key, key)) return &e->row[i];
  if (e->n_rows == MOST_GAINS) return NULL;
  e->row[e->n_rows] = (row){.key = *key};
  return &e->row[e->n_rows++];
}

static void add_gain(expansion *e, row *r, int weight, const monomial *power, double factor) {
  for (int i = 0; i < r->count; i++) {
    if (r->gain[i].weight != weight || !monomial_equal(&r->gain[i].power, power)) continue;
    r->gain[i].factor += factor;
    return;
  }
  widen_gain *grown = arena_array(e->memory, widen_gain, r->count + 1);
  if (r->count) memcpy(grown, r->gain, sizeof *grown * (size_t)r->count);
  grown[r->count++] = (widen_gain){.weight = weight, .power = *power, .factor = factor};
  r->gain = grown;
}

/* (s_j - s_i)^alpha = product over axes of sum over b of C(alpha, b) s_j^b (-s_i)^(alpha - b). */
static void multiply_out(expansion *e, int weight, const monomial *alpha, double factor) {
  int n = e->spec->n_axes;
  monomial key = *alpha; /* numbers of keys are whole in it */
  for (int a = 0; a < n; a++) key.power[a] = 0;
  for (;;) {
    monomial rest = {{0}};
    double product = factor;
    for (int a = 0; a < n; a++) {
      rest.power[a] = (unsigned char)(alpha->power[a] - key.power[a]);
      product *= binomial(alpha->power[a], key.power[a]) * (rest.power[a] & 1 ? -1 : 1);
    }
    bool kept = monomial_degree(&key) > 0 || plan_widen_keeps_constant(e->spec);
    row *r = kept ? row_of(e, &key) : &e->constant;
    if (!r) {
      e->failed = true;
      return;
    }
    add_gain(e, r, weight, &rest, product);
    int a = 0;
    while (a < n && key.power[a] == alpha->power[a]) key.power[a++] = 0;
    if (a == n) return;
    key.power[a]++;
  }
}

/* ---- columns ---- */

/* Whether a row's query side is a constant times a column's. */
static bool is_multiple(const row *of, const row *r, double *factor) {
  if (of->count != r->count) return false;
  for (int i = 0; i < r->count; i++) {
    int j = 0;
    while (j < of->count &&
           (of->gain[j].weight != r->gain[i].weight || !monomial_equal(&of->gain[j].power, &r->gain[i].power)))
      j++;
    if (j == of->count || of->gain[j].factor == 0) return false;
    double ratio = r->gain[i].factor / of->gain[j].factor;
    if (i > 0 && fabs(ratio - *factor) > 1e-12 * fabs(*factor)) return false;
    *factor = ratio;
  }
  return true;
}

static void drop_zeros(row *r) {
  int kept = 0;
  for (int i = 0; i < r->count; i++)
    if (r->gain[i].factor != 0) r->gain[kept++] = r->gain[i];
  r->count = kept;
}

static void add_key(arena *a, widen_column *c, const monomial *key, double factor, int room) {
  if (!c->key) {
    c->key = arena_array(a, monomial, room);
    c->key_factor = arena_array(a, double, room);
  }
  c->key[c->n_key] = *key;
  c->key_factor[c->n_key++] = factor;
}

static int by_weight(const widen_gain *x, const widen_gain *y) {
  return x->weight != y->weight ? x->weight - y->weight : x->column - y->column;
}

static void sort_gains(widen_gain *gain, int count) {
  for (int i = 1; i < count; i++) {
    widen_gain g = gain[i];
    int at = i;
    for (; at > 0 && by_weight(&gain[at - 1], &g) > 0; at--) gain[at] = gain[at - 1];
    gain[at] = g;
  }
}

static bool too_many(const spec *s) {
  diag_error(s->file, s->line, "the bias needs more than %d columns; fewer axes or a lower degree were expected",
             MOST_COLUMNS);
  return false;
}

static bool build_columns(arena *a, plan_widen *p) {
  const polynomial *bias = p->p;
  expansion e = {.memory = a, .spec = p->spec, .row = arena_array(a, row, MOST_GAINS)};
  for (int w = 0; w < bias->n_weights && !e.failed; w++)
    for (int i = 0; i < bias->weight[w].n_monomials; i++)
      multiply_out(&e, w, &bias->weight[w].monomial[i], bias->weight[w].factor[i]);
  if (e.failed) return too_many(p->spec);
  const row **representative = arena_array(a, const row *, MOST_COLUMNS);
  p->column = arena_array(a, widen_column, MOST_COLUMNS);
  p->gain = arena_array(a, widen_gain, MOST_GAINS);
  for (int degree = 0; degree <= bias->order; degree++)
    for (int i = 0; i < e.n_rows; i++) {
      row *r = &e.row[i];
      if (monomial_degree(&r->key) != degree) continue;
      drop_zeros(r);
      if (r->count == 0) continue;
      int c = 0;
      double factor = 1;
      while (c < p->n_columns && !is_multiple(representative[c], r, &factor)) c++;
      if (c == MOST_COLUMNS || p->n_gains + r->count > MOST_GAINS) return too_many(p->spec);
      if (c == p->n_columns) {
        p->n_columns++;
        factor = 1;
        representative[c] = r;
        for (int k = 0; k < r->count; k++) {
          p->gain[p->n_gains] = r->gain[k];
          p->gain[p->n_gains++].column = c;
        }
      }
      add_key(a, &p->column[c], &r->key, factor, e.n_rows);
    }
  sort_gains(p->gain, p->n_gains);
  drop_zeros(&e.constant);
  p->n_constant = e.constant.count;
  p->constant = e.constant.gain;
  sort_gains(p->constant, p->n_constant);
  return true;
}

/* ---- 16 bits ---- */

static double key_value(const plan_widen *p, int column, const double *at) {
  const widen_column *c = &p->column[column];
  double value = 0;
  for (int i = 0; i < c->n_key; i++) value += c->key_factor[i] * monomial_value(&c->key[i], p->spec->n_axes, at);
  return value;
}

/* Whether a number of a type with so many binary digits, up to the largest, is what it rounds to. */
static bool is_exact(double value, int digits, double largest) {
  int exponent;
  double scaled = ldexp(frexp(value, &exponent), digits);
  return value == 0 || (scaled == rint(scaled) && fabs(value) <= largest && exponent > -13);
}

/* Float16 ends at 65504 and loses digits below 2^-14: a power of two brings the largest key of the grid to about 8, or,
 * of positions that are given at the call, that of 8 units from the origin. */
static double key_scale(const plan_widen *p, int column) {
  const spec *s = p->spec;
  double at[SPEC_MAX_AXES], value = 0;
  for (int a = 0; a < s->n_axes; a++) {
    at[a] = 8;
    if (s->grid[0])
      at[a] = fmax(fabs(s->polynomial->origin[a]), fabs((double)(s->grid[a] - 1) - s->polynomial->origin[a]));
  }
  const widen_column *c = &p->column[column];
  for (int i = 0; i < c->n_key; i++) value += fabs(c->key_factor[i]) * monomial_value(&c->key[i], s->n_axes, at);
  int exponent;
  frexp(value, &exponent);
  return value > 16 ? ldexp(1, 4 - exponent) : 1;
}

/* Whether a column's keys are numbers of the type at every point of a built-in grid. Where positions are
 * given at the call nothing is known of them. */
static bool is_exact_on_grid(const plan_widen *p, int column, int digits, double largest) {
  enum { MOST_POINTS = 1 << 18 };
  const spec *s = p->spec;
  int64_t points = 1;
  if (s->grid[0] == 0) return p->column[column].n_key == 1 && monomial_degree(&p->column[column].key[0]) == 0;
  for (int a = 0; a < s->n_axes; a++)
    if ((points *= s->grid[a]) > MOST_POINTS) return false;
  for (int64_t point = 0; point < points; point++) {
    double at[SPEC_MAX_AXES];
    int64_t rest = point;
    for (int a = s->n_axes - 1; a >= 0; a--) {
      at[a] = (double)(rest % s->grid[a]) - s->polynomial->origin[a];
      rest /= s->grid[a];
    }
    if (!is_exact(key_value(p, column, at), digits, largest)) return false;
  }
  return true;
}

static void add_lanes(widen_layout *l, const plan_widen *p, bool low_query, bool low_key, const bool *wanted) {
  for (int c = 0; c < p->n_columns; c++)
    if (!wanted || wanted[c]) l->lane[l->n_lanes++] = (widen_lane){c, low_query, low_key};
}

/* q k = (q' + q")(k' + k") with q' and k' rounded to the type: of the four products all but the last are kept. */
static bool build_layout(arena *a, plan_widen *p, int type) {
  const number_info *number = number_type_info(type);
  double largest = ldexp(2 - ldexp(1, 1 - number->digits), number->high);
  widen_layout *l = &p->layout[type];
  l->lane = arena_array(a, widen_lane, 3 * p->n_columns + WIDEN_ALIGNMENT);
  l->scale = arena_array(a, double, p->n_columns + 1);
  for (int c = 0; c < p->n_columns; c++)
    l->scale[c] = number->high < number_type_info(NUMBER_F32)->high ? key_scale(p, c) : 1;
  l->is_split = type > 0 && p->spec->polynomial->split_columns;
  add_lanes(l, p, false, false, NULL);
  if (l->is_split) {
    bool *inexact = arena_array(a, bool, p->n_columns);
    for (int c = 0; c < p->n_columns; c++) inexact[c] = !is_exact_on_grid(p, c, number->digits, largest / l->scale[c]);
    add_lanes(l, p, true, false, NULL);
    add_lanes(l, p, false, true, inexact);
  }
  while ((p->spec->head_dim + l->n_lanes) % WIDEN_ALIGNMENT) l->lane[l->n_lanes++] = (widen_lane){-1, false, false};
  l->out_dim = p->spec->head_dim + l->n_lanes;
  if (l->out_dim <= SPEC_MAX_HEAD_DIM) return true;
  diag_error(p->spec->file, p->spec->line, "%d channels and %d columns; at most %d together were expected",
             p->spec->head_dim, l->n_lanes, SPEC_MAX_HEAD_DIM);
  return false;
}

/* ---- values ---- */

/* Rewrites x in float32: what operands and constants say of it is computed in float64 and rounded once. */
static const expr *in_f32(expr_pool *pool, const expr *x) {
  if (!(x->depends & DEPENDS_QUERY)) return expr_is_fixed_for_heads(x) ? x : expr_unary(pool, EXPR_NARROW, x);
  const expr *v[3] = {NULL};
  for (int i = 0; i < expr_op_arity(x->op); i++) v[i] = in_f32(pool, x->arg[i]);
  return expr_rebuild(pool, x, v);
}

static void build_values(arena *a, plan_widen *p) {
  const polynomial *bias = p->p;
  expr_pool *pool = p->spec->pool;
  int n_products = 0, n_roots = 0;
  for (int w = 0; w < bias->n_weights; w++) n_products += bias->weight[w].n_products;
  p->n_queries = bias->n_queries;
  p->query = arena_array(a, const expr *, bias->n_queries + 1);
  p->fixed = arena_array(a, const expr *, n_products + 1);
  p->product_query = arena_array(a, int, n_products + 1);
  p->first_product = arena_array(a, int, bias->n_weights + 1);
  const expr **roots = arena_array(a, const expr *, bias->n_queries + n_products + 1);
  for (int i = 0; i < bias->n_queries; i++) roots[n_roots++] = p->query[i] = in_f32(pool, bias->query[i]);
  int at = 0;
  for (int w = 0; w < bias->n_weights; w++) {
    p->first_product[w] = at;
    for (int i = 0; i < bias->weight[w].n_products; i++, at++) {
      p->product_query[at] = polynomial_query_index(bias, bias->weight[w].product[i].query);
      roots[n_roots++] = p->fixed[at] = in_f32(pool, bias->weight[w].product[i].fixed);
    }
  }
  p->first_product[bias->n_weights] = at;
  p->values = plan_of_expressions(a, p->spec, roots, n_roots);
  if (p->values->lanes > ALIGNED_LANES)
    p->values->lanes = (p->values->lanes + ALIGNED_LANES - 1) / ALIGNED_LANES * ALIGNED_LANES;
}

plan_widen *plan_widen_build(arena *a, const spec *s) {
  plan_widen *p = arena_new(a, plan_widen);
  p->spec = s;
  p->p = polynomial_expand(a, s);
  if (!p->p || !build_columns(a, p)) return NULL;
  for (int type = 0; !s->pairwise && type < NUMBER_CHANNEL_TYPES; type++)
    if (!build_layout(a, p, type)) return NULL;
  build_values(a, p);
  return p;
}

/* ---- text ---- */

static const char *key_text(arena *a, const plan_widen *p, int column) {
  const widen_column *c = &p->column[column];
  const char *text = "";
  for (int i = 0; i < c->n_key; i++) {
    const char *monomial = monomial_text(a, p->p, &c->key[i]);
    if (c->key_factor[i] != 1) monomial = arena_printf(a, "%.9g %s", c->key_factor[i], monomial);
    text = arena_printf(a, "%s%s%s", text, i ? " + " : "", monomial);
  }
  return text;
}

const expr **plan_widen_weights(arena *a, const plan_widen *p) {
  expr_pool *pool = p->spec->pool;
  const expr **weight = arena_array(a, const expr *, p->p->n_weights + 1);
  for (int w = 0; w < p->p->n_weights; w++) {
    weight[w] = expr_const(pool, 0);
    for (int k = p->first_product[w]; k < p->first_product[w + 1]; k++) {
      int query = p->product_query[k];
      const expr *product = query < 0 ? p->fixed[k] : expr_mul(pool, p->query[query], p->fixed[k]);
      weight[w] = expr_add(pool, weight[w], product);
    }
  }
  return weight;
}

const char *plan_widen_lane_text(arena *a, const plan_widen *p, const widen_layout *l, int i) {
  const widen_lane *lane = &l->lane[i];
  if (lane->column < 0) return "0";
  const char *key = key_text(a, p, lane->column);
  if (l->scale[lane->column] != 1)
    key = arena_printf(a, p->column[lane->column].n_key > 1 ? "(%s) / %.0f" : "%s / %.0f", key,
                       1 / l->scale[lane->column]);
  if (lane->low_query) return arena_printf(a, "%s; q holds what rounding took", key);
  return lane->low_key ? arena_printf(a, "%s; k holds what rounding took", key) : key;
}

bool plan_widen_has_gain(const plan_widen *p, const widen_layout *l, int weight, int first, int count) {
  for (int i = 0; i < p->n_gains; i++)
    for (int lane = first; lane < first + count; lane++)
      if (p->gain[i].weight == weight && p->gain[i].column == l->lane[lane].column) return true;
  return false;
}

void plan_widen_print(FILE *out, const plan_widen *p) {
  arena *a = arena_create();
  const spec *s = p->spec;
  polynomial_print(out, p->p);
  fprintf(out, "; %d columns", p->n_columns);
  if (!s->pairwise)
    fprintf(out, ", positions counted from%s", s->polynomial->has_call_origin ? " the call's origin" : "");
  for (int axis = 0; !s->pairwise && !s->polynomial->has_call_origin && axis < s->n_axes; axis++)
    fprintf(out, " %s=%.9g", s->axis[axis], s->polynomial->origin[axis]);
  fputc('\n', out);
  for (int type = 0; !s->pairwise && type < NUMBER_CHANNEL_TYPES; type++)
    fprintf(out, "; %s: %d channels become %d\n", number_name(type), s->head_dim, p->layout[type].out_dim);
  for (int c = 0; c < p->n_columns; c++) {
    fprintf(out, "column %d: key %s; query", c, key_text(a, p, c));
    for (int i = 0; i < p->n_gains; i++)
      if (p->gain[i].column == c)
        fprintf(out, " %+.9g weight %d%s%s", p->gain[i].factor, p->gain[i].weight,
                monomial_degree(&p->gain[i].power) ? " " : "",
                monomial_degree(&p->gain[i].power) ? monomial_text(a, p->p, &p->gain[i].power) : "");
    fputc('\n', out);
  }
  arena_destroy(a);
}
