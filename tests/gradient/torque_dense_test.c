/* Torques of dense blocks and of Cayley forms against the reference's gradients, which go through the definition, over
 * all norms: near the identity, at half and whole turns, beyond; and what the schemes promise.
 */
#include "unit.h"

#include "algebra/torque_dense.h"
#include "base/number.h"
#include "verify/reference.h"
#include "verify/reference_gradient.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 32 };

/* One block of b channels (or a basis of all of them) made of operand 0, a raw b x b matrix. */
static spec *description(arena *a, int b, bool is_basis) {
  static const int32_t offset[1] = {0};
  spec *s = arena_new(a, spec);
  *s = (spec){.name = "x", .n_axes = 1, .heads = 1, .n_components = b, .n_blocks = 1, .head_dim = b, .amplitude = 1};
  s->pool = expr_pool_create(a, 1);
  s->angle[0] = expr_position(s->pool, 0);
  s->n_operands = 1;
  s->operand = arena_new(a, spec_operand);
  *s->operand = (spec_operand){.name = "f", .rank = 2, .shape = {b, b}};
  spec_skew skew = {0, SKEW_UPPER, 1, offset};
  if (is_basis) {
    spec_basis *basis = arena_new(a, spec_basis);
    basis->matrix = skew;
    s->basis = basis;
  } else {
    spec_dense *dense = arena_new(a, spec_dense);
    dense->generator[0] = skew;
    s->dense = dense;
  }
  return s;
}

typedef struct trial {
  arena *memory;
  int b;
  spec *spec;
  double *raw, norm; /* of the skew matrix, at most */
  long double *outer, *matrix; /* g x^T, and what turns x */
  double *tau;
  gradient_sum **gains;
} trial;

/* Norms of skew matrices by their largest row sums, which are not less. */
static double scaled(double *raw, int b, double norm) {
  double largest = 0;
  for (int i = 0; i < b; i++) {
    double sum = 0;
    for (int j = 0; j < b; j++) sum += i == j ? 0 : fabs(i < j ? raw[i * b + j] : raw[j * b + i]);
    largest = fmax(largest, sum);
  }
  for (int i = 0; i < b * b; i++) raw[i] *= norm / largest;
  return norm;
}

static trial begin(int b, double norm, bool is_basis, uint64_t *random) {
  trial t = {.memory = arena_create(), .b = b};
  arena *a = t.memory;
  t.spec = description(a, b, is_basis);
  t.raw = arena_array(a, double, b *b);
  for (int i = 0; i < b * b; i++) t.raw[i] = random_uniform(random, -1, 1);
  t.norm = scaled(t.raw, b, norm);
  double x[MOST], g[MOST], one = 1;
  const double *operands[] = {t.raw};
  for (int i = 0; i < b; i++) x[i] = random_uniform(random, -1, 1), g[i] = random_uniform(random, -1, 1);
  t.outer = arena_array(a, long double, b *b);
  t.matrix = arena_array(a, long double, b *b);
  t.tau = arena_array(a, double, b *b);
  if (is_basis) reference_basis(t.spec, operands, 0, t.matrix);
  else reference_block(t.spec, &one, operands, 0, 0, t.matrix);
  long double y[MOST] = {0};
  for (int i = 0; i < b; i++)
    for (int j = 0; j < b; j++) {
      t.outer[i * b + j] = (long double)g[i] * x[j];
      y[i] += t.matrix[i * b + j] * x[j];
    }
  for (int i = 0; i < b; i++)
    for (int j = 0; j < b; j++) t.tau[i * b + j] = (double)(g[i] * y[j] - g[j] * y[i]);
  t.gains = reference_operand_sums(a, t.spec);
  reference_gains to = {.operand = t.gains};
  if (is_basis) reference_basis_backward(t.spec, operands, 0, t.outer, 1, &to);
  else reference_block_backward(t.spec, &one, operands, 0, 0, t.outer, 1, &to);
  return t;
}

static void skew_of(const trial *t, double *m) {
  for (int i = 0; i < t->b; i++)
    for (int j = 0; j < t->b; j++) m[i * t->b + j] = i == j ? 0 : i < j ? t->raw[i * t->b + j] : -t->raw[j * t->b + i];
}

static long double norm_of(const trial *t, const double *x) {
  long double sum = 0;
  for (int i = 0; i < t->b * t->b; i++) sum += (long double)x[i] * x[i];
  return sqrtl(sum / 2);
}

static void assert_gained(const trial *t, const double *got, long double bound) {
  for (int i = 0; i < t->b; i++)
    for (int j = i + 1; j < t->b; j++) {
      long double exact = t->gains[0][i * t->b + j].value, error = fabsl(got[i * t->b + j] - exact);
      bool near = error <= bound * norm_of(t, t->tau) && fabs(got[i * t->b + j] + got[j * t->b + i]) <= 1e-14;
      if (!near)
        print_error("b %d, norm %g, (%d, %d): %.12g, should be %.12Lg\n", t->b, t->norm, i, j, got[i * t->b + j],
                    exact);
      assert_true(near);
    }
}

static void exponentials_gain_what_the_definition_says(void **state) {
  (void)state;
  static const int sizes[] = {2, 4, 5, 8, 16};
  const double pi = 3.14159265358979323846, norms[] = {1e-300, 1e-9, 0.01, 1, pi, 2 * pi, 20, 300};
  uint64_t random = 21;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (size_t k = 0; k < sizeof norms / sizeof *norms; k++)
      for (int is_f64 = 0; is_f64 < 2; is_f64++) {
        trial t = begin(sizes[i], norms[k], false, &random);
        int b = t.b, count = b * b;
        torque_scheme scheme = torque_scheme_for(t.norm, is_f64);
        assert_true(scheme.levels < TORQUE_MOST_LEVELS && scheme.terms <= TORQUE_MOST_TERMS);
        double *m = arena_array(t.memory, double, count), *work = arena_array(t.memory, double, 2 * count);
        double *halves = arena_array(t.memory, double, scheme.levels *count + 1),
               *out = arena_array(t.memory, double, count);
        const double *operands[] = {t.raw};
        skew_of(&t, m);
        for (int j = 0; j < scheme.levels; j++) {
          double share = ldexp(1, -j - 1);
          reference_block(t.spec, &share, operands, 0, 0, t.matrix);
          for (int e = 0; e < count; e++) halves[j * count + e] = (double)t.matrix[e];
        }
        torque_dense_exponential(b, scheme, m, halves, t.tau, work, out);
        assert_gained(&t, out, is_f64 ? 0x1p-44L : 0x1p-24L);
        arena_destroy(t.memory);
      }
}

static void cayley_forms_gain_what_the_definition_says(void **state) {
  (void)state;
  static const int sizes[] = {2, 8, 32};
  static const double norms[] = {1e-300, 0.01, 1, 30};
  uint64_t random = 22;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (size_t k = 0; k < sizeof norms / sizeof *norms; k++) {
      trial t = begin(sizes[i], norms[k], true, &random);
      int count = t.b * t.b;
      double *c = arena_array(t.memory, double, count), *work = arena_array(t.memory, double, count);
      double *out = arena_array(t.memory, double, count);
      for (int e = 0; e < count; e++) c[e] = (double)t.matrix[e];
      torque_dense_cayley(t.b, c, t.tau, work, out);
      assert_gained(&t, out, 0x1p-44L);
      arena_destroy(t.memory);
    }
}

/* The fewest products: of a turn about six times those of its exponential, none where nothing turns. */
static void schemes_are_short(void **state) {
  (void)state;
  assert_int_equal(torque_scheme_products(torque_scheme_for(0, false)), 0);
  assert_true(torque_scheme_products(torque_scheme_for(0.01, false)) <= 4);
  assert_true(torque_scheme_products(torque_scheme_for(1, false)) <= 13);
  assert_true(torque_scheme_products(torque_scheme_for(6, false)) <= 21);
  int before = 0;
  for (double norm = 0.001; norm < 1e4; norm *= 1.5) {
    int now = torque_scheme_products(torque_scheme_for(norm, false));
    assert_true(now >= before && now <= torque_scheme_products(torque_scheme_for(norm, true)));
    before = now;
  }
  assert_true(torque_scheme_factor(0) == 1 && torque_scheme_factor(1) == -0.5 &&
              fabs(torque_scheme_factor(2) - 1 / 6.0) < 1e-16);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(exponentials_gain_what_the_definition_says),
                                     cmocka_unit_test(cayley_forms_gain_what_the_definition_says),
                                     cmocka_unit_test(schemes_are_short)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
