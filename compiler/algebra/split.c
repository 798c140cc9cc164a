/* algebra/split: see algebra/split.h. */
#include "algebra/split.h"

#include "algebra/entire.h"
#include "algebra/identity.h"

static const double RADIANS_PER_QUARTER_TURN = 1.57079632679489661923;

/* Below this the square of a half or of a part counts as it: the turn or boost by its root is then t. */
static const double TINY_SQUARE = 0x1p-100;

/* Below this two squares count as equal. Far above the least float32, in pairs of which GPUs compute: its square is of
 * their range. */
static const double TINY_DIFFERENCE = 0x1p-60;

enum { FOUR = 4 };

static const expr *number(const spec *s, double value) { return expr_const(s->pool, value); }

static const expr *at_least(const spec *s, const expr *x, double least) {
  return expr_binary(s->pool, EXPR_MAX, x, number(s, least));
}

static const expr *root_of(const spec *s, const expr *x) { return expr_unary(s->pool, EXPR_SQRT, x); }

/* ---- simple or not ---- */

/* The Pfaffian of the planes among four vectors. */
static const expr *pfaffian_of(const spec *s, const expr *const *coefficient, const int *e) {
  const expr *sum = number(s, 0);
  for (int k = 1; k < FOUR; k++) {
    unsigned four = 1u << e[0] | 1u << e[1] | 1u << e[2] | 1u << e[3], with = 1u << e[0] | 1u << e[k];
    const expr *term = expr_mul(s->pool, coefficient[with], coefficient[four & ~with]);
    sum = k == 2 ? expr_sub(s->pool, sum, term) : expr_add(s->pool, sum, term);
  }
  return sum;
}

static void spread(const spec *s, const spec_bivector *plane, const expr **coefficient) {
  for (int i = 0; i < SPEC_MAX_BLADES; i++) coefficient[i] = number(s, 0);
  for (int t = 0; t < plane->count; t++) coefficient[plane->blade[t]] = plane->coefficient[t];
}

static int vectors_in(unsigned blade, int *e) {
  int count = 0;
  for (; blade; blade &= blade - 1) e[count++] = __builtin_ctz(blade);
  return count;
}

bool split_is_simple(const spec *s, const spec_bivector *plane) {
  const expr *coefficient[SPEC_MAX_BLADES];
  spread(s, plane, coefficient);
  for (unsigned four = 0; four < 1u << clifford_dimensions(s->algebra); four++) {
    int e[SPEC_MAX_DIMENSIONS];
    if (vectors_in(four, e) == FOUR && !identity_is_zero(s, pfaffian_of(s, coefficient, e))) return false;
  }
  return true;
}

/* ---- parts by their planes ---- */

unsigned split_vectors(const spec_bivector *plane) {
  unsigned vectors = 0;
  for (int t = 0; t < plane->count; t++) vectors |= plane->blade[t];
  return vectors;
}

spec_bivector split_without_zeros(const spec_bivector *plane) {
  spec_bivector clean = {0};
  for (int t = 0; t < plane->count; t++) {
    if (expr_is_const(plane->coefficient[t], 0)) continue;
    clean.blade[clean.count] = plane->blade[t];
    clean.coefficient[clean.count++] = plane->coefficient[t];
  }
  return clean;
}

int split_groups(const spec_bivector *plane, spec_bivector group[SPLIT_MOST_GROUPS]) {
  spec_bivector clean = split_without_zeros(plane);
  unsigned first = clean.count ? clean.blade[0] : 0;
  for (int pass = 0; pass < clean.count; pass++)
    for (int t = 0; t < clean.count; t++)
      if (clean.blade[t] & first) first |= clean.blade[t];
  for (int g = 0; g < SPLIT_MOST_GROUPS; g++) group[g] = (spec_bivector){0};
  for (int t = 0; t < clean.count; t++) {
    spec_bivector *of = &group[!(clean.blade[t] & first)];
    of->blade[of->count] = clean.blade[t];
    of->coefficient[of->count++] = clean.coefficient[t];
  }
  return (group[0].count > 0) + (group[1].count > 0);
}

split_kind split_kind_of(spec_algebra g, unsigned vectors) {
  int determinant = 1;
  for (; vectors; vectors &= vectors - 1) determinant *= clifford_square(g, __builtin_ctz(vectors));
  return determinant > 0 ? SPLIT_HALVES : determinant < 0 ? SPLIT_BOOST_AND_TURN : SPLIT_SCREW;
}

/* B . B: -sum of eta_i eta_j b_ij^2. */
static const expr *square_of(const spec *s, const spec_bivector *plane) {
  const expr *sum = number(s, 0);
  for (int t = 0; t < plane->count; t++) {
    int i = __builtin_ctz(plane->blade[t]), j = 31 - __builtin_clz(plane->blade[t]);
    const expr *square = expr_mul(s->pool, plane->coefficient[t], plane->coefficient[t]);
    int sign = clifford_square(s->algebra, i) * clifford_square(s->algebra, j);
    if (sign) sum = expr_add(s->pool, sum, expr_scaled(s->pool, square, -sign));
  }
  return sum;
}

split_invariants split_invariants_of(const spec *s, const spec_bivector *plane) {
  const expr *coefficient[SPEC_MAX_BLADES];
  int e[SPEC_MAX_DIMENSIONS];
  unsigned vectors = split_vectors(plane);
  spread(s, plane, coefficient);
  split_invariants found = {square_of(s, plane), number(s, 0), {0}};
  if (vectors_in(vectors, e) != FOUR) return found;
  found.pfaffian = pfaffian_of(s, coefficient, e);
  for (int i = 0; i < FOUR; i++)
    for (int j = i + 1; j < FOUR; j++) {
      unsigned blade = 1u << e[i] | 1u << e[j], other = vectors & ~blade;
      int sign = i + j == 2 || i + j == 4 ? -1 : 1; /* of e_02 and e_13 */
      sign *= clifford_square(s->algebra, __builtin_ctz(other));
      sign *= clifford_square(s->algebra, 31 - __builtin_clz(other));
      if (!sign || expr_is_const(coefficient[other], 0)) continue;
      found.dual.blade[found.dual.count] = blade;
      found.dual.coefficient[found.dual.count++] = expr_scaled(s->pool, coefficient[other], sign);
    }
  return found;
}

/* x B + y C. */
static spec_bivector combined(const spec *s, const expr *x, const spec_bivector *b, const expr *y,
                              const spec_bivector *c) {
  const expr *first[SPEC_MAX_BLADES], *second[SPEC_MAX_BLADES];
  spec_bivector sum = {0};
  spread(s, b, first);
  spread(s, c, second);
  for (unsigned blade = 0; blade < SPEC_MAX_BLADES; blade++) {
    const expr *term = expr_mul(s->pool, y, second[blade]), *whole = expr_mul(s->pool, x, first[blade]);
    whole = expr_add(s->pool, whole, term);
    if (expr_is_const(whole, 0)) continue;
    sum.blade[sum.count] = blade;
    sum.coefficient[sum.count++] = whole;
  }
  return sum;
}

/* ---- functions of a part ---- */

/* Functions of a part whose square is z, rotated by t: cosh(t r), S = sinh(t r)/r, C = (cosh(t r) - 1)/r^2 and
 * (sinh(t r) - t r)/r^3, r^2 = z. A turn's angle is t times a root that operands alone may say. */
static entire_functions of_part(const spec *s, const expr *quarters, const expr *z, entire_range range) {
  expr_pool *pool = s->pool;
  const expr *t = expr_scaled(s->pool, quarters, RADIANS_PER_QUARTER_TURN), *tt = expr_mul(pool, t, t);
  entire_functions f;
  if (range == ENTIRE_TURN) {
    const expr *length = root_of(s, at_least(s, expr_neg(pool, z), TINY_SQUARE));
    f = entire_circular(pool, expr_unary(pool, EXPR_ABS, expr_mul(pool, t, length)), true);
  } else {
    f = entire_functions_of(pool, expr_neg(pool, expr_mul(pool, z, tt)), range, true);
  }
  return (entire_functions){.whole_cosine = f.whole_cosine,
                            .sine = expr_mul(pool, f.whole_sine, t),
                            .cosine = expr_mul(pool, f.cosine, tt),
                            .rest = expr_mul(pool, expr_mul(pool, f.rest, tt), t)};
}

/* ---- exponentials ---- */

static expr_matrix weighed(arena *a, const spec *s, expr_matrix m, const expr *factor) {
  expr_matrix v = {m.size, arena_array(a, const expr *, m.size *m.size)};
  for (int i = 0; i < m.size * m.size; i++) v.entry[i] = expr_mul(s->pool, m.entry[i], factor);
  return v;
}

static expr_matrix added(arena *a, const spec *s, expr_matrix x, expr_matrix y) {
  expr_matrix v = {x.size, arena_array(a, const expr *, x.size *x.size)};
  for (int i = 0; i < x.size * x.size; i++) v.entry[i] = expr_add(s->pool, x.entry[i], y.entry[i]);
  return v;
}

static bool is_definite(spec_algebra g, unsigned vectors) {
  int first = clifford_square(g, __builtin_ctz(vectors));
  for (; vectors; vectors &= vectors - 1)
    if (clifford_square(g, __builtin_ctz(vectors)) != first) return false;
  return true;
}

/* exp of (M + side K)/2, whose square is a number: that of its planes at one vector, the others being their duals. */
static expr_matrix exp_half(arena *a, const spec *s, const expr *quarters, const spec_bivector *plane,
                            const split_invariants *of, int side) {
  const expr *share = number(s, 0.5 * side);
  spec_bivector half = combined(s, number(s, 0.5), plane, share, &of->dual), star = {0};
  unsigned vectors = split_vectors(plane);
  expr_matrix one = expr_matrix_identity(a, s->pool, clifford_dimensions(s->algebra));
  for (int t = 0; t < half.count; t++)
    if (half.blade[t] & vectors & -vectors) {
      star.blade[star.count] = half.blade[t];
      star.coefficient[star.count++] = half.coefficient[t];
    }
  if (star.count == 0) return one;
  const expr *square = square_of(s, &star);
  entire_functions f = of_part(s, quarters, square, is_definite(s->algebra, vectors) ? ENTIRE_TURN : ENTIRE_EITHER);
  expr_matrix v = weighed(a, s, clifford_bivector_action(a, s->pool, s->algebra, &half), f.sine);
  for (int i = 0; i < v.size; i++) v.entry[i * v.size + i] = vectors & 1u << i ? f.whole_cosine : number(s, 1);
  return v;
}

/* The boost's share of B and of its dual, and both squares: the larger root first, the other as their product by it. */
static expr_matrix exp_boost_and_turn(arena *a, const spec *s, const expr *quarters, const spec_bivector *plane,
                                      const split_invariants *of) {
  expr_pool *pool = s->pool;
  const expr *a_half = expr_scaled(s->pool, of->square, 0.5), *pf = of->pfaffian, *product = expr_mul(pool, pf, pf);
  const expr *distance = root_of(s, expr_add(pool, expr_mul(pool, a_half, a_half), product));
  const expr *large = expr_add(pool, expr_unary(pool, EXPR_ABS, a_half), distance);
  const expr *small = expr_div(pool, product, at_least(s, large, TINY_DIFFERENCE));
  const expr *is_turn = expr_binary(pool, EXPR_LESS, of->square, number(s, 0));
  const expr *x = expr_select(pool, is_turn, small, large), *minus_y = expr_select(pool, is_turn, large, small);
  const expr *apart = at_least(s, expr_add(pool, large, small), TINY_DIFFERENCE);
  const expr *share = expr_div(pool, x, apart), *cross = expr_div(pool, pf, apart), *minus = number(s, -1);
  spec_bivector boost = combined(s, share, plane, cross, &of->dual);
  spec_bivector turn = combined(s, number(s, 1), plane, minus, &boost);
  entire_functions f = of_part(s, quarters, x, ENTIRE_BOOST);
  entire_functions g = of_part(s, quarters, expr_neg(pool, minus_y), ENTIRE_TURN);
  expr_matrix m = clifford_bivector_action(a, pool, s->algebra, plane), square = expr_matrix_product(a, pool, m, m);
  expr_matrix odd = weighed(a, s, clifford_bivector_action(a, pool, s->algebra, &boost), f.sine);
  odd = added(a, s, odd, weighed(a, s, clifford_bivector_action(a, pool, s->algebra, &turn), g.sine));
  expr_matrix v = expr_matrix_identity(a, pool, m.size);
  unsigned vectors = split_vectors(plane);
  for (int i = 0; i < m.size * m.size; i++) {
    bool is_diagonal = i % (m.size + 1) == 0 && vectors & 1u << i % m.size;
    const expr *entry = square.entry[i]; /* M^2 - y is (x - y) times the projection on the boost's plane */
    const expr *above = is_diagonal ? expr_add(pool, entry, minus_y) : entry;
    const expr *boosted = expr_mul(pool, share, above), *turned = expr_sub(pool, entry, boosted);
    const expr *even = expr_add(pool, expr_mul(pool, boosted, f.cosine), expr_mul(pool, turned, g.cosine));
    v.entry[i] = expr_add(pool, expr_add(pool, v.entry[i], even), odd.entry[i]);
  }
  return v;
}

static expr_matrix exp_screw(arena *a, const spec *s, const expr *quarters, const spec_bivector *plane,
                             const split_invariants *of) {
  expr_pool *pool = s->pool;
  expr_matrix m = clifford_bivector_action(a, pool, s->algebra, plane), square = expr_matrix_product(a, pool, m, m);
  unsigned turning = 0, vectors = split_vectors(plane);
  for (unsigned left = vectors; left; left &= left - 1)
    if (clifford_square(s->algebra, __builtin_ctz(left))) turning |= left & -left;
  bool turns = turning && is_definite(s->algebra, turning);
  entire_functions f = of_part(s, quarters, of->square, turns ? ENTIRE_TURN : ENTIRE_EITHER);
  const expr *third = expr_mul(pool, f.rest, of->pfaffian);
  expr_matrix v = expr_matrix_identity(a, pool, m.size);
  v = added(a, s, v, weighed(a, s, square, f.cosine));
  v = added(a, s, v, weighed(a, s, m, f.sine));
  return added(a, s, v, weighed(a, s, clifford_bivector_action(a, pool, s->algebra, &of->dual), third));
}

expr_matrix split_exponential(arena *a, const spec *s, const expr *quarters, const spec_bivector *plane) {
  spec_bivector clean = split_without_zeros(plane);
  split_invariants of = split_invariants_of(s, &clean);
  switch (split_kind_of(s->algebra, split_vectors(&clean))) {
  case SPLIT_BOOST_AND_TURN: return exp_boost_and_turn(a, s, quarters, &clean, &of);
  case SPLIT_SCREW: return exp_screw(a, s, quarters, &clean, &of);
  default: break;
  }
  expr_matrix left = exp_half(a, s, quarters, &clean, &of, 1), right = exp_half(a, s, quarters, &clean, &of, -1);
  return expr_matrix_product(a, s->pool, left, right);
}
