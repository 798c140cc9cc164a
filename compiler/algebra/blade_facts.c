/* algebra/blade_facts: proofs about generators on blades; see algebra/blade_facts.h. */
#include "algebra/blade_facts.h"

#include "algebra/clifford.h"
#include "spec/expr_facts.h"

#include <math.h>

/* A bivector acts by a skew matrix where its planes' vectors square to one sign: then exp is orthogonal. */
bool blades_are_orthogonal(const spec *s) {
  for (int axis = 0; axis < s->n_axes; axis++)
    for (int i = 0; i < s->generator[axis].count; i++) {
      unsigned blade = s->generator[axis].blade[i];
      int low = __builtin_ctz(blade), high = 31 - __builtin_clz(blade);
      if (expr_is_const(s->generator[axis].coefficient[i], 0)) continue;
      if (clifford_square(s->algebra, low) != clifford_square(s->algebra, high)) return false;
    }
  return true;
}

/* c_t d_u = c_u d_t in a block: by being one expression, by zeros, or as numbers. */
static bool products_agree(const spec *s, const expr *x[2], const expr *y[2], int head, int block) {
  if (expr_mul(s->pool, x[0], x[1]) == expr_mul(s->pool, y[0], y[1])) return true;
  bool zero[2];
  for (int i = 0; i < 2; i++) {
    const expr *const *factor = i ? y : x;
    zero[i] =
        expr_is_zero_in(factor[0], head, block, s->n_blocks) || expr_is_zero_in(factor[1], head, block, s->n_blocks);
  }
  if (zero[0] && zero[1]) return true;
  if (!expr_is_fixed(x[0]) || !expr_is_fixed(x[1]) || !expr_is_fixed(y[0]) || !expr_is_fixed(y[1])) return false;
  expr_environment env = {.head = head, .block = block, .blocks = s->n_blocks};
  return expr_eval(x[0], &env) * expr_eval(x[1], &env) == expr_eval(y[0], &env) * expr_eval(y[1], &env);
}

static const expr *coefficient_of(const spec *s, const spec_bivector *b, unsigned blade) {
  for (int i = 0; i < b->count; i++)
    if (b->blade[i] == blade) return b->coefficient[i];
  return expr_const(s->pool, 0);
}

/* Whether e_t and e_u, planes of the algebra, do not commute: they share one vector, and its square is not 0. */
static bool clash(const spec *s, unsigned t, unsigned u) {
  unsigned shared = t & u;
  return clifford_grade(shared) == 1 && clifford_square(s->algebra, __builtin_ctz(shared)) != 0;
}

/* [sum c_t e_t, sum d_u e_u] has a term c_t d_u - c_u d_t for every two planes that clash. */
static bool commute_in(const spec *s, int a, int b, int head, int block) {
  const spec_bivector *c = &s->generator[a], *d = &s->generator[b];
  unsigned top = 1u << clifford_dimensions(s->algebra);
  for (unsigned t = 0; t < top; t++)
    for (unsigned u = t + 1; u < top; u++) {
      if (clifford_grade(t) != 2 || clifford_grade(u) != 2 || !clash(s, t, u)) continue;
      const expr *x[2] = {coefficient_of(s, c, t), coefficient_of(s, d, u)},
                 *y[2] = {coefficient_of(s, c, u), coefficient_of(s, d, t)};
      if (!products_agree(s, x, y, head, block)) return false;
    }
  return true;
}

bool blades_listen(const spec *s, int axis, int head, int block) {
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

/* The largest |c_t d_u - c_u d_t| / (|c| |d|) of two axes that a block listens to. */
long double blades_commutator(const spec *s, const double *const *operands) {
  long double worst = 0;
  unsigned top = 1u << clifford_dimensions(s->algebra);
  for (int head = 0; head < s->heads; head++)
    for (int block = 0; block < s->n_blocks; block++) {
      long double value[SPEC_MAX_AXES][SPEC_MAX_BLADES] = {{0}}, norm[SPEC_MAX_AXES] = {0};
      expr_environment env = {.head = head, .block = block, .blocks = s->n_blocks, .operands = operands};
      for (int axis = 0; axis < s->n_axes; axis++)
        for (int i = 0; i < s->generator[axis].count; i++) {
          long double c = expr_eval_long(s->generator[axis].coefficient[i], &env);
          value[axis][s->generator[axis].blade[i]] = c;
          norm[axis] = hypotl(norm[axis], c);
        }
      for (int a = 0; a < s->n_axes; a++)
        for (int b = a + 1; b < s->n_axes; b++) {
          if (!blades_listen(s, a, head, block) || !blades_listen(s, b, head, block) || norm[a] == 0 || norm[b] == 0)
            continue;
          for (unsigned t = 0; t < top; t++)
            for (unsigned u = t + 1; u < top; u++)
              if (clifford_grade(t) == 2 && clifford_grade(u) == 2 && clash(s, t, u))
                worst =
                    fmaxl(worst, fabsl(value[a][t] * value[b][u] - value[a][u] * value[b][t]) / (norm[a] * norm[b]));
        }
    }
  return worst;
}
