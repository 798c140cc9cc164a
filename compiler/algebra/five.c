/* algebra/five: see algebra/five.h. */
#include "algebra/five.h"

#include "algebra/entire.h"

static const double RADIANS_PER_QUARTER_TURN = 1.57079632679489661923;

/* What is divided by is at least this wherever the quotient is chosen. */
static const double LEAST = 0x1p-6;

static const expr *size_of(expr_pool *pool, const expr *x) { return expr_unary(pool, EXPR_ABS, x); }

static const expr *at_least(expr_pool *pool, const expr *x, double least) {
  return expr_binary(pool, EXPR_MAX, x, expr_const(pool, least));
}

static const expr *is_less(expr_pool *pool, const expr *x, const expr *y) { return expr_binary(pool, EXPR_LESS, x, y); }

/* x y + z. */
static const expr *fused(expr_pool *pool, const expr *x, const expr *y, const expr *z) {
  return expr_add(pool, expr_mul(pool, x, y), z);
}

/* ---- invariants ---- */

enum { FIVE_MATCHINGS = 15 };

/* Two planes that share no vector: sign b_first b_second is a term of pf of the four vectors without `without`. */
typedef struct five_matching {
  int without, sign;
  unsigned first, second;
} five_matching;

/* The product of a blade's vectors' squares. */
static int five_square(spec_algebra g, unsigned blade) {
  int product = 1;
  for (; blade; blade &= blade - 1) product *= clifford_square(g, __builtin_ctz(blade));
  return product;
}

static void five_matchings(five_matching out[FIVE_MATCHINGS]) {
  for (int k = 0; k < FIVE; k++) {
    unsigned e[FIVE - 1];
    for (int i = 0; i < FIVE - 1; i++) e[i] = 1u << (i + (i >= k));
    *out++ = (five_matching){k, 1, e[0] | e[1], e[2] | e[3]};
    *out++ = (five_matching){k, -1, e[0] | e[2], e[1] | e[3]};
    *out++ = (five_matching){k, 1, e[0] | e[3], e[1] | e[2]};
  }
}

/* a and q. */
static void find_squares(const spec *s, five_bivector *of) {
  expr_pool *pool = s->pool;
  of->square = of->product = expr_const(pool, 0);
  for (unsigned blade = 0; blade < 1u << FIVE; blade++)
    if (clifford_grade(blade) == 2) {
      const expr *part = expr_scaled(pool, expr_squared(pool, of->b[blade]), -five_square(s->algebra, blade));
      of->square = expr_add(pool, of->square, part);
    }
  for (int k = 0; k < FIVE; k++) {
    int of_four = five_square(s->algebra, ((1u << FIVE) - 1) & ~(1u << k));
    of->product = expr_add(pool, of->product, expr_scaled(pool, expr_squared(pool, of->pfaffian[k]), of_four));
  }
}

five_bivector five_bivector_of(const spec *s, const spec_bivector *plane) {
  expr_pool *pool = s->pool;
  five_bivector of;
  five_matching all[FIVE_MATCHINGS];
  five_matchings(all);
  for (int i = 0; i < SPEC_MAX_BLADES; i++) of.b[i] = of.w[i] = expr_const(pool, 0);
  for (int t = 0; t < plane->count; t++) of.b[plane->blade[t]] = plane->coefficient[t];
  for (int k = 0; k < FIVE; k++) of.pfaffian[k] = expr_const(pool, 0);
  for (const five_matching *m = all; m < all + FIVE_MATCHINGS; m++) {
    const expr *product = expr_scaled(pool, expr_mul(pool, of.b[m->first], of.b[m->second]), m->sign);
    of.pfaffian[m->without] = expr_add(pool, of.pfaffian[m->without], product);
  }
  for (const five_matching *m = all; m < all + FIVE_MATCHINGS; m++)
    for (int i = 0; i < 2; i++) {
      unsigned blade = i ? m->second : m->first, other = i ? m->first : m->second;
      const expr *dual = expr_scaled(pool, of.b[other], m->sign * five_square(s->algebra, other));
      of.w[blade] = expr_add(pool, of.w[blade], expr_mul(pool, of.pfaffian[m->without], dual));
    }
  find_squares(s, &of);
  return of;
}

/* M of coefficients by blade. */
static expr_matrix five_action(arena *a, const spec *s, const expr *const *coefficient) {
  spec_bivector all = {0};
  for (unsigned blade = 0; blade < 1u << FIVE; blade++)
    if (clifford_grade(blade) == 2) {
      all.blade[all.count] = blade;
      all.coefficient[all.count++] = coefficient[blade];
    }
  return clifford_bivector_action(a, s->pool, s->algebra, &all);
}

/* M W. On the diagonal D_i pf_i^2 - q is what the others have of -q. */
static expr_matrix five_crossed(arena *a, const spec *s, const five_bivector *of) {
  expr_pool *pool = s->pool;
  expr_matrix m = {FIVE, arena_array(a, const expr *, FIVE *FIVE)};
  int four[FIVE];
  for (int k = 0; k < FIVE; k++) four[k] = five_square(s->algebra, ((1u << FIVE) - 1) & ~(1u << k));
  for (int i = 0; i < FIVE; i++)
    for (int j = 0; j < FIVE; j++) {
      const expr *product = expr_mul(pool, of->pfaffian[i], of->pfaffian[j]), *sum = expr_const(pool, 0);
      for (int k = 0; k < FIVE && i == j; k++)
        if (k != i) sum = expr_add(pool, sum, expr_scaled(pool, expr_squared(pool, of->pfaffian[k]), -four[k]));
      m.entry[i * FIVE + j] = i == j ? sum : expr_scaled(pool, product, (i + j) % 2 ? -four[i] : four[i]);
    }
  return m;
}

/* ---- entire functions of z ---- */

enum { TERMS = 12, ENTIRE = 3 };

/* c[k] = rho^k times c_k, the sum over j of z^j/(2j + k)!: cosh, rho S, rho^2 C. */
typedef struct entire {
  const expr *c[ENTIRE];
} entire;

static double reciprocal_factorial(int k) {
  double x = 1;
  for (int i = 2; i <= k; i++) x /= i;
  return x;
}

static entire entire_of(expr_pool *pool, const expr *scaled_z, const expr *rho) {
  const expr *z = expr_mul(pool, scaled_z, expr_squared(pool, rho));
  entire_functions f = entire_functions_of(pool, expr_neg(pool, z), ENTIRE_EITHER, true);
  entire e = {.c = {fused(pool, z, f.cosine, expr_const(pool, 1))}};
  e.c[1] = expr_mul(pool, f.sine, rho);
  e.c[2] = expr_mul(pool, expr_mul(pool, f.cosine, rho), rho);
  return e;
}

/* S[x,y] or C[x,y] in one of the three ways, and (z S)[x,y] or (z C)[x,y]. */
typedef struct divided {
  const expr *value, *raised;
} divided;

static divided chosen(expr_pool *pool, const expr *which, divided x, divided y) {
  return (divided){.value = expr_select(pool, which, x.value, y.value),
                   .raised = expr_select(pool, which, x.raised, y.raised)};
}

/* A Horner scheme for the sum of `first` modulo z^2 - a z + q: it is f0 + f1 z with f1 = f[x,y]. */
static divided by_series(expr_pool *pool, const expr *a, const expr *q, int first) {
  const expr *f0 = expr_const(pool, reciprocal_factorial(2 * TERMS + first)), *f1 = expr_const(pool, 0);
  for (int j = TERMS - 1; j >= 0; j--) {
    const expr *constant = expr_sub(pool, expr_const(pool, reciprocal_factorial(2 * j + first)), expr_mul(pool, q, f1));
    f1 = fused(pool, a, f1, f0);
    f0 = constant;
  }
  return (divided){f1, fused(pool, a, f1, f0)};
}

/* By two real roots, x the larger one in size. */
static void by_roots(expr_pool *pool, const expr *a, const expr *q, const expr *rho, divided out[2]) {
  const expr *half = expr_scaled(pool, a, 0.5), *is_negative = is_less(pool, a, expr_const(pool, 0));
  const expr *distance = expr_sub(pool, expr_squared(pool, half), q);
  distance = expr_unary(pool, EXPR_SQRT, at_least(pool, distance, LEAST));
  distance = expr_select(pool, is_negative, expr_neg(pool, distance), distance);
  const expr *x = expr_add(pool, half, distance), *apart = expr_scaled(pool, distance, 2); /* x - y */
  const expr *y = expr_div(pool, q, x);
  entire at_x = entire_of(pool, x, rho), at_y = entire_of(pool, y, rho);
  for (int k = 0; k < 2; k++) {
    const expr *value = expr_div(pool, expr_sub(pool, at_x.c[k + 1], at_y.c[k + 1]), apart);
    out[k] = (divided){value, fused(pool, y, value, at_x.c[k + 1])};
  }
}

/* By P and N. */
static void by_halves(expr_pool *pool, const expr *a, const expr *q, const expr *rho, divided out[2]) {
  q = at_least(pool, q, LEAST);
  const expr *s = expr_unary(pool, EXPR_SQRT, q), *half = expr_scaled(pool, s, 0.5),
             *quarter = expr_scaled(pool, a, 0.25);
  entire p = entire_of(pool, expr_add(pool, quarter, half), rho);
  entire n = entire_of(pool, expr_sub(pool, quarter, half), rho);
  const expr *first = expr_mul(pool, p.c[0], n.c[1]), *second = expr_mul(pool, p.c[1], n.c[0]);
  const expr *sines = expr_scaled(pool, expr_sub(pool, first, second), 0.5);
  out[0] = (divided){expr_div(pool, sines, s), expr_scaled(pool, expr_add(pool, first, second), 0.5)};
  const expr *both = expr_mul(pool, p.c[1], n.c[1]), *whole = expr_mul(pool, p.c[0], n.c[0]);
  const expr *cosines = fused(pool, quarter, both, expr_sub(pool, expr_const(pool, 1), whole));
  out[1] = (divided){expr_div(pool, cosines, q), expr_scaled(pool, both, 0.5)};
}

const expr *five_size(expr_pool *pool, const expr *square, const expr *product) {
  const expr *root = expr_unary(pool, EXPR_SQRT, size_of(pool, product));
  return expr_binary(pool, EXPR_MAX, size_of(pool, square), root);
}

const expr *five_rho(expr_pool *pool, const expr *size) { return expr_unary(pool, EXPR_SQRT, at_least(pool, size, 1)); }

void five_factors_of(expr_pool *pool, const expr *a, const expr *q, const expr *size, const expr *of[FIVE_TERMS]) {
  const expr *rho = five_rho(pool, size), *is_small = is_less(pool, size, expr_const(pool, 1)); /* small: rho is 1 */
  const expr *is_close = is_less(pool, expr_scaled(pool, expr_squared(pool, a), 3.0 / 16), q);
  divided close[2], far[2];
  by_roots(pool, a, q, rho, far);
  by_halves(pool, a, q, rho, close);
  for (int k = 0; k < 2; k++) {
    divided whole = chosen(pool, is_close, close[k], far[k]);
    whole = chosen(pool, is_small, by_series(pool, a, q, k + 1), whole);
    of[k ? FIVE_MM : FIVE_M] = whole.raised;
    of[k ? FIVE_MW : FIVE_W] = whole.value;
  }
}

/* ---- exponentials ---- */

expr_matrix five_sum(arena *a, const spec *s, const five_bivector *of, const expr *const factor[FIVE_TERMS]) {
  expr_matrix m = five_action(a, s, of->b), v = expr_matrix_identity(a, s->pool, FIVE);
  expr_matrix term[FIVE_TERMS] = {m, five_action(a, s, of->w), expr_matrix_product(a, s->pool, m, m),
                                  five_crossed(a, s, of)};
  for (int k = FIVE_TERMS - 1; k >= 0; k--)
    for (int i = 0; i < FIVE * FIVE; i++) v.entry[i] = fused(s->pool, term[k].entry[i], factor[k], v.entry[i]);
  return v;
}

/* What positions have no part in stands by itself: a, q and the matrices of B, whose angle multiplies the factors. */
expr_matrix five_exponential(arena *a, const spec *s, const expr *quarters, const spec_bivector *plane) {
  expr_pool *pool = s->pool;
  five_bivector of = five_bivector_of(s, plane);
  const expr *t = expr_scaled(pool, quarters, RADIANS_PER_QUARTER_TURN), *tt = expr_squared(pool, t),
             *factor[FIVE_TERMS];
  const expr *square = expr_mul(pool, of.square, tt), *product = expr_mul(pool, of.product, expr_squared(pool, tt));
  const expr *size = five_size(pool, square, product), *rho = five_rho(pool, size);
  const expr *inverse = expr_div(pool, expr_const(pool, 1), expr_squared(pool, rho));
  square = expr_mul(pool, square, inverse);
  product = expr_mul(pool, expr_mul(pool, product, inverse), inverse);
  five_factors_of(pool, square, product, size, factor);
  const expr *share = expr_div(pool, t, rho), *twice = expr_squared(pool, share);
  const expr *power[FIVE_TERMS] = {[FIVE_M] = share,
                                   [FIVE_W] = expr_mul(pool, share, twice),
                                   [FIVE_MM] = twice,
                                   [FIVE_MW] = expr_squared(pool, twice)};
  for (int k = 0; k < FIVE_TERMS; k++) factor[k] = expr_mul(pool, factor[k], power[k]);
  return five_sum(a, s, &of, factor);
}
