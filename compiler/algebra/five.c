/* algebra/five: see algebra/five.h. */
#include "algebra/five.h"

#include "algebra/torque_functions.h"

static const double RADIANS_PER_QUARTER_TURN = 1.57079632679489661923;

/* What is divided by is at least this wherever the quotient is chosen. */
static const double LEAST = 0x1p-6;

static const expr *number(expr_pool *pool, double value) { return expr_const(pool, value); }
static const expr *scaled(expr_pool *pool, const expr *x, double c) { return expr_mul(pool, x, number(pool, c)); }
static const expr *squared(expr_pool *pool, const expr *x) { return expr_mul(pool, x, x); }
static const expr *size_of(expr_pool *pool, const expr *x) { return expr_unary(pool, EXPR_ABS, x); }

static const expr *at_least(expr_pool *pool, const expr *x, double least) {
  return expr_binary(pool, EXPR_MAX, x, number(pool, least));
}

static const expr *is_less(expr_pool *pool, const expr *x, const expr *y) { return expr_binary(pool, EXPR_LESS, x, y); }

/* x y + z. */
static const expr *fused(expr_pool *pool, const expr *x, const expr *y, const expr *z) {
  return expr_add(pool, expr_mul(pool, x, y), z);
}

/* ---- invariants ---- */

int five_square(spec_algebra g, unsigned blade) {
  int product = 1;
  for (; blade; blade &= blade - 1) product *= clifford_square(g, __builtin_ctz(blade));
  return product;
}

void five_matchings(five_matching out[FIVE_MATCHINGS]) {
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
  of->square = of->product = number(pool, 0);
  for (unsigned blade = 0; blade < 1u << FIVE; blade++)
    if (clifford_grade(blade) == 2) {
      const expr *part = scaled(pool, squared(pool, of->b[blade]), -five_square(s->algebra, blade));
      of->square = expr_add(pool, of->square, part);
    }
  for (int k = 0; k < FIVE; k++) {
    int of_four = five_square(s->algebra, ((1u << FIVE) - 1) & ~(1u << k));
    of->product = expr_add(pool, of->product, scaled(pool, squared(pool, of->pfaffian[k]), of_four));
  }
}

five_bivector five_bivector_of(const spec *s, const spec_bivector *plane) {
  expr_pool *pool = s->pool;
  five_bivector of;
  five_matching all[FIVE_MATCHINGS];
  five_matchings(all);
  for (int i = 0; i < SPEC_MAX_BLADES; i++) of.b[i] = of.w[i] = number(pool, 0);
  for (int t = 0; t < plane->count; t++) of.b[plane->blade[t]] = plane->coefficient[t];
  for (int k = 0; k < FIVE; k++) of.pfaffian[k] = number(pool, 0);
  for (const five_matching *m = all; m < all + FIVE_MATCHINGS; m++) {
    const expr *product = scaled(pool, expr_mul(pool, of.b[m->first], of.b[m->second]), m->sign);
    of.pfaffian[m->without] = expr_add(pool, of.pfaffian[m->without], product);
  }
  for (const five_matching *m = all; m < all + FIVE_MATCHINGS; m++)
    for (int i = 0; i < 2; i++) {
      unsigned blade = i ? m->second : m->first, other = i ? m->first : m->second;
      const expr *dual = scaled(pool, of.b[other], m->sign * five_square(s->algebra, other));
      of.w[blade] = expr_add(pool, of.w[blade], expr_mul(pool, of.pfaffian[m->without], dual));
    }
  find_squares(s, &of);
  return of;
}

void five_scale(const spec *s, five_bivector *of, const expr *c) {
  const expr *square = squared(s->pool, c), *cube = expr_mul(s->pool, c, square);
  for (int i = 0; i < SPEC_MAX_BLADES; i++) {
    of->b[i] = expr_mul(s->pool, of->b[i], c);
    of->w[i] = expr_mul(s->pool, of->w[i], cube);
  }
  for (int k = 0; k < FIVE; k++) of->pfaffian[k] = expr_mul(s->pool, of->pfaffian[k], square);
  of->square = expr_mul(s->pool, of->square, square);
  of->product = expr_mul(s->pool, of->product, squared(s->pool, square));
}

expr_matrix five_action(arena *a, const spec *s, const expr *const *coefficient) {
  spec_bivector all = {0};
  for (unsigned blade = 0; blade < 1u << FIVE; blade++)
    if (clifford_grade(blade) == 2) {
      all.blade[all.count] = blade;
      all.coefficient[all.count++] = coefficient[blade];
    }
  return clifford_bivector_action(a, s->pool, s->algebra, &all);
}

/* On the diagonal D_i pf_i^2 - q is what the others have of -q. */
expr_matrix five_crossed(arena *a, const spec *s, const five_bivector *of) {
  expr_pool *pool = s->pool;
  expr_matrix m = {FIVE, arena_array(a, const expr *, FIVE *FIVE)};
  int four[FIVE];
  for (int k = 0; k < FIVE; k++) four[k] = five_square(s->algebra, ((1u << FIVE) - 1) & ~(1u << k));
  for (int i = 0; i < FIVE; i++)
    for (int j = 0; j < FIVE; j++) {
      const expr *product = expr_mul(pool, of->pfaffian[i], of->pfaffian[j]), *sum = number(pool, 0);
      for (int k = 0; k < FIVE && i == j; k++)
        if (k != i) sum = expr_add(pool, sum, scaled(pool, squared(pool, of->pfaffian[k]), -four[k]));
      m.entry[i * FIVE + j] = i == j ? sum : scaled(pool, product, (i + j) % 2 ? -four[i] : four[i]);
    }
  return m;
}

/* ---- entire functions of z ---- */

enum { TERMS = 12, ENTIRE = 3 };

/* c[k] = rho^k times c_k, the sum over j of z^j/(2j + k)!: cosh, rho S, rho^2 C; and the slopes of the last two by
 * z/rho^2. */
typedef struct entire {
  const expr *c[ENTIRE], *slope[ENTIRE];
} entire;

static double reciprocal_factorial(int k) {
  double x = 1;
  for (int i = 2; i <= k; i++) x /= i;
  return x;
}

static const expr *raised_to(expr_pool *pool, const expr *x, const expr *rho, int power) {
  for (int i = 0; i < power; i++) x = expr_mul(pool, x, rho);
  return x;
}

/* c_k' is (c_(k-1) - k c_k)/(2 z), below z = 1 its series. Not by c_(k+1) and c_(k+2), whose leading terms would
 * cancel: on GPUs what sines are in has no more digits than float32. */
static const expr *slope_of(expr_pool *pool, const expr *z, const expr *scaled_z, const expr *rho, const entire *e,
                            int k) {
  const expr *one = number(pool, 1), *is_near = is_less(pool, size_of(pool, z), one);
  const expr *near = number(pool, TERMS * reciprocal_factorial(2 * TERMS + k));
  for (int j = TERMS - 1; j > 0; j--) near = fused(pool, near, z, number(pool, j * reciprocal_factorial(2 * j + k)));
  const expr *far = expr_sub(pool, expr_mul(pool, rho, e->c[k - 1]), scaled(pool, e->c[k], k));
  far = expr_div(pool, scaled(pool, far, 0.5), expr_select(pool, is_near, one, scaled_z));
  return expr_select(pool, is_near, raised_to(pool, near, rho, k + 2), far);
}

static entire entire_of(expr_pool *pool, const expr *scaled_z, const expr *rho) {
  const expr *z = expr_mul(pool, scaled_z, squared(pool, rho));
  torque_functions f = torque_functions_of(pool, expr_neg(pool, z), false, true);
  entire e = {.c = {fused(pool, z, f.cosine, number(pool, 1))}};
  e.c[1] = raised_to(pool, f.sine, rho, 1);
  e.c[2] = raised_to(pool, f.cosine, rho, 2);
  for (int k = 1; k < ENTIRE; k++) e.slope[k] = slope_of(pool, z, scaled_z, rho, &e, k);
  return e;
}

/* What is known of S[x,y] or C[x,y] in one of the three ways, and of (z S)[x,y] or (z C)[x,y] but for its slopes. */
typedef struct divided {
  five_factor factor;
  const expr *raised;
} divided;

static divided chosen(expr_pool *pool, const expr *which, divided x, divided y) {
  return (divided){.factor = {.value = expr_select(pool, which, x.factor.value, y.factor.value),
                              .by_square = expr_select(pool, which, x.factor.by_square, y.factor.by_square),
                              .by_product = expr_select(pool, which, x.factor.by_product, y.factor.by_product)},
                   .raised = expr_select(pool, which, x.raised, y.raised)};
}

/* A Horner scheme for the sum of `first` modulo p^2, p = z^2 - a z + q: it is f0 + f1 z + (g0 + g1 z) p with f1 =
 * f[x,y]. The sum does not depend on a and q, and p's slopes are -z and 1: f1 gains -g1 by q and g0 + a g1
 * by a. */
static divided by_series(expr_pool *pool, const expr *a, const expr *q, int first) {
  const expr *f0 = number(pool, reciprocal_factorial(2 * TERMS + first)), *f1 = number(pool, 0), *g0 = f1, *g1 = f1;
  for (int j = TERMS - 1; j >= 0; j--) {
    const expr *constant = expr_sub(pool, number(pool, reciprocal_factorial(2 * j + first)), expr_mul(pool, q, f1));
    const expr *linear = fused(pool, a, f1, f0), *next = fused(pool, a, g1, g0);
    g0 = expr_sub(pool, f1, expr_mul(pool, q, g1));
    g1 = next;
    f0 = constant;
    f1 = linear;
  }
  return (divided){{f1, fused(pool, a, g1, g0), expr_neg(pool, g1)}, fused(pool, a, f1, f0)};
}

/* Two real roots, x the larger one in size. */
typedef struct roots {
  const expr *x, *y, *apart; /* x - y */
  entire at_x, at_y;
} roots;

static roots roots_of(expr_pool *pool, const expr *a, const expr *q, const expr *rho) {
  const expr *half = scaled(pool, a, 0.5), *is_negative = is_less(pool, a, number(pool, 0));
  const expr *distance = expr_sub(pool, squared(pool, half), q);
  distance = expr_unary(pool, EXPR_SQRT, at_least(pool, distance, LEAST));
  roots r = {.apart = scaled(pool, distance, 2)};
  r.x = expr_add(pool, size_of(pool, half), distance);
  r.x = expr_select(pool, is_negative, expr_neg(pool, r.x), r.x);
  r.apart = expr_select(pool, is_negative, expr_neg(pool, r.apart), r.apart);
  r.y = expr_div(pool, q, r.x);
  r.at_x = entire_of(pool, r.x, rho);
  r.at_y = entire_of(pool, r.y, rho);
  return r;
}

static divided by_roots(expr_pool *pool, const expr *a, const roots *r, int k) {
  const expr *of_x = r->at_x.slope[k], *of_y = r->at_y.slope[k];
  const expr *value = expr_div(pool, expr_sub(pool, r->at_x.c[k], r->at_y.c[k]), r->apart);
  const expr *area = squared(pool, r->apart), *weighed = fused(pool, r->x, of_x, expr_mul(pool, r->y, of_y));
  const expr *by_square = expr_div(pool, expr_sub(pool, weighed, expr_mul(pool, a, value)), area);
  const expr *slopes = expr_add(pool, of_x, of_y), *doubled = scaled(pool, value, 2);
  const expr *by_product = expr_div(pool, expr_sub(pool, doubled, slopes), area);
  return (divided){{value, by_square, by_product}, fused(pool, r->y, value, r->at_x.c[k])};
}

/* P and N, and s = sqrt q. */
typedef struct halves {
  const expr *a, *q, *s, *rho;
  entire p, n;
} halves;

static halves halves_of(expr_pool *pool, const expr *a, const expr *q, const expr *rho) {
  halves h = {.a = a, .rho = rho, .q = at_least(pool, q, LEAST)};
  h.s = expr_unary(pool, EXPR_SQRT, h.q);
  const expr *half = scaled(pool, h.s, 0.5), *quarter = scaled(pool, a, 0.25);
  h.p = entire_of(pool, expr_add(pool, quarter, half), rho);
  h.n = entire_of(pool, expr_sub(pool, quarter, half), rho);
  return h;
}

/* Slopes of a numerator by P and N as those of the quotient by a and q: P and N gain 1/4 each by a, and 1/(4 s) and
 * -1/(4 s) by q; `own` is what the numerator gains by a itself, `share` what the divisor, q^share, takes of it. */
static five_factor quotient(expr_pool *pool, const halves *h, const expr *value, const expr *by_p, const expr *by_n,
                            const expr *own, const expr *divisor, double share) {
  const expr *sum = scaled(pool, expr_add(pool, by_p, by_n), 0.25);
  const expr *rest = scaled(pool, expr_sub(pool, by_p, by_n), 0.25), *quotient = expr_div(pool, value, divisor);
  const expr *taken = scaled(pool, expr_div(pool, quotient, h->q), share);
  const expr *gained = expr_div(pool, rest, expr_mul(pool, h->s, divisor));
  return (five_factor){.value = quotient,
                       .by_square = expr_div(pool, expr_add(pool, sum, own), divisor),
                       .by_product = expr_sub(pool, gained, taken)};
}

static divided sines_by_halves(expr_pool *pool, const halves *h) {
  const expr *const *p = h->p.c, *const *n = h->n.c, *both = scaled(pool, expr_mul(pool, p[1], n[1]), 0.5);
  both = expr_mul(pool, both, h->rho);
  const expr *first = expr_mul(pool, p[0], n[1]), *second = expr_mul(pool, p[1], n[0]);
  const expr *value = scaled(pool, expr_sub(pool, first, second), 0.5);
  const expr *by_p = expr_sub(pool, both, expr_mul(pool, h->p.slope[1], n[0]));
  const expr *by_n = expr_sub(pool, expr_mul(pool, p[0], h->n.slope[1]), both);
  by_p = scaled(pool, by_p, 0.5);
  by_n = scaled(pool, by_n, 0.5);
  five_factor f = quotient(pool, h, value, by_p, by_n, number(pool, 0), h->s, 0.5);
  return (divided){f, scaled(pool, expr_add(pool, first, second), 0.5)};
}

static divided cosines_by_halves(expr_pool *pool, const halves *h) {
  const expr *const *p = h->p.c, *const *n = h->n.c, *both = expr_mul(pool, p[1], n[1]);
  const expr *quarter = scaled(pool, h->a, 0.25), *whole = expr_mul(pool, p[0], n[0]);
  const expr *value = fused(pool, quarter, both, expr_sub(pool, number(pool, 1), whole));
  const expr *first = scaled(pool, expr_mul(pool, h->rho, expr_mul(pool, p[1], n[0])), -0.5);
  const expr *second = scaled(pool, expr_mul(pool, h->rho, expr_mul(pool, p[0], n[1])), -0.5);
  const expr *by_p = fused(pool, quarter, expr_mul(pool, h->p.slope[1], n[1]), first);
  const expr *by_n = fused(pool, quarter, expr_mul(pool, p[1], h->n.slope[1]), second);
  five_factor f = quotient(pool, h, value, by_p, by_n, scaled(pool, both, 0.25), h->q, 1);
  return (divided){f, scaled(pool, both, 0.5)};
}

/* From f's factor, that of z f: f = f0 + f1 z + (g0 + g1 z) p, and z^2 = a z - q + p. */
static five_factor raised(expr_pool *pool, const expr *a, const expr *q, const divided *f) {
  const expr *by_product = expr_neg(pool, f->factor.by_square);
  const expr *by_square = fused(pool, a, f->factor.by_square, f->factor.value);
  return (five_factor){f->raised, fused(pool, q, f->factor.by_product, by_square), by_product};
}

five_factors five_factors_of(expr_pool *pool, const expr *square, const expr *product) {
  const expr *one = number(pool, 1), *root = expr_unary(pool, EXPR_SQRT, size_of(pool, product));
  const expr *largest = expr_binary(pool, EXPR_MAX, size_of(pool, square), root);
  five_factors f = {.rho = expr_unary(pool, EXPR_SQRT, expr_binary(pool, EXPR_MAX, largest, one))};
  const expr *is_small = is_less(pool, largest, one), *share = expr_div(pool, one, squared(pool, f.rho));
  const expr *a = expr_mul(pool, square, share), *q = expr_mul(pool, expr_mul(pool, product, share), share);
  const expr *is_close = is_less(pool, scaled(pool, squared(pool, a), 3.0 / 16), q);
  roots r = roots_of(pool, a, q, f.rho);
  halves h = halves_of(pool, a, q, f.rho);
  for (int k = 0; k < 2; k++) {
    divided close = k ? cosines_by_halves(pool, &h) : sines_by_halves(pool, &h);
    divided far = chosen(pool, is_close, close, by_roots(pool, a, &r, k + 1));
    divided whole = chosen(pool, is_small, by_series(pool, square, product, k + 1), far); /* small: rho is 1 */
    f.of[k ? FIVE_MM : FIVE_M] = raised(pool, a, q, &whole);
    f.of[k ? FIVE_MW : FIVE_W] = whole.factor;
  }
  return f;
}

/* ---- exponentials ---- */

/* What positions have no part in stands by itself: a, q and the matrices of B, whose angle multiplies the factors. */
expr_matrix five_exponential(arena *a, const spec *s, const expr *quarters, const spec_bivector *plane) {
  expr_pool *pool = s->pool;
  five_bivector of = five_bivector_of(s, plane);
  const expr *t = scaled(pool, quarters, RADIANS_PER_QUARTER_TURN), *tt = squared(pool, t);
  const expr *square = expr_mul(pool, of.square, tt), *product = expr_mul(pool, of.product, squared(pool, tt));
  five_factors f = five_factors_of(pool, square, product);
  const expr *share = expr_div(pool, t, f.rho), *twice = squared(pool, share);
  const expr *power[FIVE_TERMS] = {
      [FIVE_M] = share, [FIVE_W] = expr_mul(pool, share, twice), [FIVE_MM] = twice, [FIVE_MW] = squared(pool, twice)};
  expr_matrix m = five_action(a, s, of.b), v = expr_matrix_identity(a, pool, FIVE);
  expr_matrix term[FIVE_TERMS] = {m, five_action(a, s, of.w), expr_matrix_product(a, pool, m, m),
                                  five_crossed(a, s, &of)};
  for (int k = FIVE_TERMS - 1; k >= 0; k--) {
    const expr *factor = expr_mul(pool, f.of[k].value, power[k]);
    for (int i = 0; i < FIVE * FIVE; i++) v.entry[i] = fused(pool, term[k].entry[i], factor, v.entry[i]);
  }
  return v;
}
