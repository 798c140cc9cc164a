/* explain/dense: what is known of blocks that turn by exponentials of learned skew matrices.
 *
 * Skewness is the description's own; that generators commute is seen where one matrix acts on each block
 * (algebra/torus.h).
 */
#include "plan/dense.h"
#include "algebra/block_of_four.h"
#include "algebra/exponential.h"
#include "algebra/torus.h"
#include "explain/explain.h"
#include "explain/numbers.h"
#include "explain/rotor_facts.h"
#include "explain/words.h"
#include "spec/expr_facts.h"
#include "verify/reference.h"

#include <math.h>

/* A of an axis' generator in a block. */
static void generator_of(const rotor_facts *f, int axis, int head, int block, long double *matrix) {
  const spec *s = f->spec;
  reference_skew(&s->dense->generator[axis], s->n_components, head, block, s->n_blocks, f->operands.values, matrix);
}

/* The largest entry of AB - BA, relative to the norms of A and B. */
static long double commutator_of(int n, const long double *a, const long double *b) {
  long double worst = 0, size_a = 0, size_b = 0;
  for (int i = 0; i < n * n; i++) size_a = hypotl(size_a, a[i]), size_b = hypotl(size_b, b[i]);
  if (size_a == 0 || size_b == 0) return 0;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      long double sum = 0;
      for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j] - b[i * n + k] * a[k * n + j];
      worst = fmaxl(worst, fabsl(sum));
    }
  return worst / (size_a * size_b);
}

static long double commutator(const rotor_facts *f) {
  const spec *s = f->spec;
  int n = s->n_components;
  long double worst = 0;
  for (int index = 0; index < f->looked_at; index++) {
    int head, block;
    rotor_facts_block(f, index, &head, &block);
    for (int a = 0; a < s->n_axes; a++)
      for (int b = a + 1; b < s->n_axes; b++) {
        if (expr_is_zero_in(s->angle[a], head, block, s->n_blocks) ||
            expr_is_zero_in(s->angle[b], head, block, s->n_blocks))
          continue;
        generator_of(f, a, head, block, f->matrix[0]);
        generator_of(f, b, head, block, f->matrix[1]);
        worst = fmaxl(worst, commutator_of(n, f->matrix[0], f->matrix[1]));
      }
  }
  return worst;
}

/* The standard deviation of what turns a step along an axis, phase times generator, above the diagonal: ComRoPE, table
 * 8. Blocks that do not listen to the axis are left out. */
static double deviation(const rotor_facts *f, int axis) {
  const spec *s = f->spec;
  int n = s->n_components, count = 0;
  double sum = 0, squares = 0;
  for (int head = 0; head < s->heads; head++)
    for (int block = 0; block < s->n_blocks; block++) {
      if (expr_is_zero_in(s->angle[axis], head, block, s->n_blocks)) continue;
      double phase = explain_unit_phase(s, f->operands.values, head, block, axis);
      generator_of(f, axis, head, block, f->matrix[0]);
      for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++, count++) {
          double entry = phase * (double)f->matrix[0][i * n + j];
          sum += entry, squares += entry * entry;
        }
    }
  return count ? sqrt(fmax(0, squares / count - sum / count * (sum / count))) : 0;
}

/* of_values: operands were given. */
static const char *generator_text(const rotor_facts *f, int axis, bool of_values) {
  const spec *s = f->spec;
  const spec_skew *g = &s->dense->generator[axis];
  const char *rule = g->rule == SKEW_DIFFERENCE ? "less its transpose" : "its upper triangle less the transpose";
  const char *text = arena_printf(f->memory, "skew %d x %d: %s, %s", s->n_components, s->n_components,
                                  s->operand[g->operand].name, rule);
  if (!of_values) return text;
  return arena_printf(f->memory, "%s; above the diagonal of deviation %.3g", text, deviation(f, axis));
}

/* Forming exp(M) by products of matrices, after the sum over axes, or turning S^T; then a matrix times a vector for
 * every row. */
static void fill_cost(const plan_dense *p, explain_cost *cost) {
  const spec *s = p->spec;
  double b = s->n_components, products = exponential_products(TYPICAL_NORM, p->is_f64);
  if (s->dense->map == DENSE_SCHUR)
    cost->token = (operation_count){.arithmetic = (int)(3 * b * b) * s->n_blocks, .sines = 2 * (int)b * s->n_blocks};
  else cost->token.arithmetic = (int)(s->n_blocks * (2 * products * b * b * b + 2 * p->n_generators * b * b));
  cost->per_head = p->per_head;
  cost->row_operations = (int)(2 * b * b) * s->n_blocks;
}

/* Blocks whose exponential is a closed form (algebra/block_of_four.h). */
static void explain_four(arena *a, const spec *s, explanation *out) {
  block_program program;
  block_four_build(a, s, &program);
  out->normal_form = block_normal_form(a, &program);
  explain_program_cost(a, plan_build(a, &program), &out->cost);
  out->entries_precision = "within 2^-22 for phases up to 2^24 radians";
  out->rows_precision =
      "float32 within 2^-20 of a block's norm; bfloat16 and float16 half a unit in the last place more";
}

static bool explain_exponential(arena *a, const spec *s, explanation *out) {
  const plan_dense *plan = plan_dense_build(a, s);
  if (!plan) return false;
  fill_cost(plan, &out->cost);
  if (s->dense->map == DENSE_SCHUR)
    out->normal_form =
        "plane rotations in the basis of the real Schur form A = S (+ lambda J) S^T; the output stays in it";
  else
    out->normal_form =
        arena_printf(a,
                     "the exponential by scaling and squaring, %.1f products of matrices where |M| is %g; "
                     "NAME_prepare forms it once a position",
                     exponential_products(TYPICAL_NORM, plan->is_f64), (double)TYPICAL_NORM);
  out->entries_precision = plan->is_f64 ? "within 2^-22" : "within 2^-22 times the larger of 1 and |M|";
  out->rows_precision =
      plan->is_f64 || s->dense->is_f64
          ? "float32 within 2^-20 of a block's norm; bfloat16 and float16 half a unit in the last place more"
          : "float32 within 2^-20 of a block's norm, times |M| above 1; bfloat16 and float16 half a unit in the last "
            "place more";
  return true;
}

bool explain_dense(arena *a, const spec *s, explanation *out) {
  rotor_facts facts;
  torus found;
  torus_find(a, s, &found);
  rotor_facts_open(a, s, pow(s->n_components / 3.0, 3), out, &facts);
  rotor_proofs proofs = {.orthogonal = true,
                         .commute = !found.why_not,
                         .why_commute = s->n_axes == 1 ? "there is one axis" : "one matrix acts on each block",
                         .commutator = commutator(&facts),
                         .rebased = s->basis || s->dense->map == DENSE_SCHUR,
                         .inverse = s->dense->map == DENSE_SCHUR
                                        ? "rotations have inverses; -D inverse=true is for the channels' own basis"
                                        : "the exponential of -M undoes that of M; -D inverse=true turns back"};
  rotor_facts_fill(&facts, &proofs, out->property);
  explain_blocks(a, s, out);
  out->role = "separable";
  out->block = "channels that turn among themselves";
  for (int axis = 0; axis < s->n_axes; axis++) out->generator[axis] = generator_text(&facts, axis, out->operands);
  out->group = proofs.commute ? "torus: turns of planes that commute" : arena_printf(a, "SO(%d)", s->n_components);
  if (s->n_components != 4 || s->dense->map == DENSE_SCHUR) return explain_exponential(a, s, out);
  explain_four(a, s, out);
  return true;
}
