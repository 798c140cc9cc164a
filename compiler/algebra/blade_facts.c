/* algebra/blade_facts: proofs about generators on blades; see algebra/blade_facts.h. */
#include "algebra/blade_facts.h"

#include "algebra/clifford.h"
#include "spec/expr_facts.h"

#include <math.h>

/* Planes by the squares of their two vectors: equal, of two signs, or one of them 0. */
enum { PLANE_EUCLIDEAN, PLANE_MIXED, PLANE_DEGENERATE };

static int plane_kind(const spec *s, unsigned blade) {
  int low = clifford_square(s->algebra, __builtin_ctz(blade)),
      high = clifford_square(s->algebra, 31 - __builtin_clz(blade));
  if (low == high) return PLANE_EUCLIDEAN;
  return low == 0 || high == 0 ? PLANE_DEGENERATE : PLANE_MIXED;
}

static bool turns_in(const spec *s, int kind) {
  for (int axis = 0; axis < s->n_axes; axis++)
    for (int i = 0; i < s->generator[axis].count; i++)
      if (!expr_is_const(s->generator[axis].coefficient[i], 0) && plane_kind(s, s->generator[axis].blade[i]) == kind)
        return true;
  return false;
}

/* A bivector acts by a skew matrix where its planes' vectors square to one sign: then exp is orthogonal. */
bool blades_are_orthogonal(const spec *s) { return !turns_in(s, PLANE_MIXED) && !turns_in(s, PLANE_DEGENERATE); }

const char *blades_distortion(const spec *s) {
  bool mixed = turns_in(s, PLANE_MIXED), degenerate = turns_in(s, PLANE_DEGENERATE);
  if (mixed && degenerate) return "planes of mixed signature stretch, degenerate planes shear";
  return mixed ? "planes of mixed signature stretch" : degenerate ? "degenerate planes shear" : NULL;
}

bool blades_have_duals(const spec *s) {
  int boosts = 0;
  for (int axis = 0; axis < s->n_axes; axis++) {
    spec one = *s;
    one.n_axes = 1;
    one.generator[0] = s->generator[axis];
    if (turns_in(&one, PLANE_DEGENERATE) || (turns_in(&one, PLANE_MIXED) && turns_in(&one, PLANE_EUCLIDEAN)))
      return false;
    boosts += turns_in(&one, PLANE_MIXED);
  }
  return boosts > 0;
}

static const expr *coefficient_of(const spec *s, const spec_bivector *b, unsigned blade) {
  for (int i = 0; i < b->count; i++)
    if (b->blade[i] == blade) return b->coefficient[i];
  return expr_const(s->pool, 0);
}

/* The sign s of [e_t, e_u] = 2 s e_(t ^ u), planes of the algebra: 0 where they share no vector, both, or one whose
 * square is 0. */
static int commutator_sign(const spec *s, unsigned t, unsigned u) {
  unsigned shared = t & u;
  if (clifford_grade(t) != 2 || clifford_grade(u) != 2 || clifford_grade(shared) != 1) return 0;
  return clifford_reorder_sign(t, u) * clifford_square(s->algebra, __builtin_ctz(shared));
}

/* A sum of products of coefficients, as far as the description shows it: equal products are counted, numbers added. */
typedef struct product_sum {
  const expr *product[2 * SPEC_MAX_BIVECTORS * SPEC_MAX_BIVECTORS];
  int times[2 * SPEC_MAX_BIVECTORS * SPEC_MAX_BIVECTORS], count;
  double number;
} product_sum;

static void add_product(const spec *s, product_sum *sum, int sign, const expr *x, const expr *y, int head, int block) {
  expr_environment env = {.head = head, .block = block, .blocks = s->n_blocks};
  if (expr_is_zero_in(x, head, block, s->n_blocks) || expr_is_zero_in(y, head, block, s->n_blocks)) return;
  if (expr_is_fixed(x) && expr_is_fixed(y)) {
    sum->number += sign * expr_eval(x, &env) * expr_eval(y, &env);
    return;
  }
  const expr *product = expr_mul(s->pool, x, y);
  int i = 0;
  while (i < sum->count && sum->product[i] != product) i++;
  if (i == sum->count) {
    sum->product[i] = product;
    sum->times[i] = 0;
    sum->count++;
  }
  sum->times[i] += sign;
}

static bool is_zero(const product_sum *sum) {
  for (int i = 0; i < sum->count; i++)
    if (sum->times[i]) return false;
  return sum->number == 0;
}

/* [sum c_t e_t, sum d_u e_u] = 2 sum over t < u of sign (c_t d_u - c_u d_t) e_(t ^ u), plane by plane: terms of one
 * plane may cancel where none of them is 0, as those of e13 + e14 and e23 + e24 do in Cl(3,1). */
static bool commute_in(const spec *s, int a, int b, int head, int block) {
  const spec_bivector *c = &s->generator[a], *d = &s->generator[b];
  unsigned top = 1u << clifford_dimensions(s->algebra);
  for (unsigned plane = 0; plane < top; plane++) {
    product_sum sum = {.count = 0};
    for (unsigned t = 0; t < top; t++) {
      unsigned u = t ^ plane;
      int sign = t < u ? commutator_sign(s, t, u) : 0;
      if (!sign) continue;
      const expr *c_t = coefficient_of(s, c, t), *c_u = coefficient_of(s, c, u);
      add_product(s, &sum, sign, c_t, coefficient_of(s, d, u), head, block);
      add_product(s, &sum, -sign, c_u, coefficient_of(s, d, t), head, block);
    }
    if (!is_zero(&sum)) return false;
  }
  return true;
}

/* False where the phase of an axis is seen to be 0 in a block. */
static bool blades_listen(const spec *s, int axis, int head, int block) {
  return !expr_is_zero_in(s->angle[axis], head, block, s->n_blocks);
}

bool blades_commute(const spec *s) {
  for (int head = 0; head < s->heads; head++)
    for (int block = 0; block < s->n_blocks; block++)
      for (int a = 0; a < s->n_axes; a++)
        for (int b = a + 1; b < s->n_axes; b++)
          if (blades_listen(s, a, head, block) && blades_listen(s, b, head, block) && !commute_in(s, a, b, head, block))
            return false;
  return true;
}

/* The most axes that any block listens to. */
int blades_axes_of_a_block(const spec *s) {
  int most = 0;
  for (int head = 0; head < s->heads; head++)
    for (int block = 0; block < s->n_blocks; block++) {
      int axes = 0;
      for (int axis = 0; axis < s->n_axes; axis++) axes += blades_listen(s, axis, head, block);
      most = axes > most ? axes : most;
    }
  return most;
}

/* The largest component of the commutator of two axes' generators in a block, over 2 |c| |d|. */
static long double commutator_of(const spec *s, const long double *c, const long double *d) {
  unsigned top = 1u << clifford_dimensions(s->algebra);
  long double worst = 0, c_norm = 0, d_norm = 0;
  for (unsigned plane = 0; plane < top; plane++) {
    long double sum = 0;
    for (unsigned t = 0; t < top; t++)
      if (t < (t ^ plane)) sum += commutator_sign(s, t, t ^ plane) * (c[t] * d[t ^ plane] - c[t ^ plane] * d[t]);
    worst = fmaxl(worst, fabsl(sum));
    c_norm = hypotl(c_norm, c[plane]);
    d_norm = hypotl(d_norm, d[plane]);
  }
  return c_norm == 0 || d_norm == 0 ? 0 : worst / (c_norm * d_norm);
}

long double blades_commutator(const spec *s, const double *const *operands) {
  long double worst = 0;
  for (int head = 0; head < s->heads; head++)
    for (int block = 0; block < s->n_blocks; block++) {
      long double value[SPEC_MAX_AXES][SPEC_MAX_BLADES] = {{0}};
      expr_environment env = {.head = head, .block = block, .blocks = s->n_blocks, .operands = operands};
      for (int axis = 0; axis < s->n_axes; axis++)
        for (int i = 0; i < s->generator[axis].count; i++)
          value[axis][s->generator[axis].blade[i]] = expr_eval_long(s->generator[axis].coefficient[i], &env);
      for (int a = 0; a < s->n_axes; a++)
        for (int b = a + 1; b < s->n_axes; b++)
          if (blades_listen(s, a, head, block) && blades_listen(s, b, head, block))
            worst = fmaxl(worst, commutator_of(s, value[a], value[b]));
    }
  return worst;
}
