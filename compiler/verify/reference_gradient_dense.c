/* verify/reference_gradient_dense: gradients through exponentials of skew matrices and through changes of basis; see
 * verify/reference_gradient.h.
 *
 * The exponential by its series and squarings, on matrices of dual numbers: M^T with the tangent G, whose result's
 * tangent is what M gains. The Cayley transform by its system: (I + A) dC = -dA (I + C), so that with (I + A)^T Z = G
 * it is -Z (I + C)^T that A gains.
 */
#include "verify/reference_gradient.h"

#include "verify/reference.h"

#include <math.h>
#include <string.h>

/* ---- matrices of dual numbers ---- */

typedef struct matrix {
  long double *value, *tangent;
} matrix;

static matrix matrix_new(arena *a, int n) {
  return (matrix){arena_array(a, long double, n *n), arena_array(a, long double, n *n)};
}

/* sum += x y */
static void add_product(int n, const long double *x, const long double *y, long double *sum) {
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++) {
      long double factor = x[i * n + k];
      for (int j = 0; j < n && factor != 0; j++) sum[i * n + j] += factor * y[k * n + j];
    }
}

static void multiply(int n, matrix x, matrix y, matrix out) {
  memset(out.value, 0, sizeof *out.value * (size_t)(n * n));
  memset(out.tangent, 0, sizeof *out.tangent * (size_t)(n * n));
  add_product(n, x.value, y.value, out.value);
  add_product(n, x.value, y.tangent, out.tangent);
  add_product(n, x.tangent, y.value, out.tangent);
}

static matrix exponential(arena *a, int n, matrix x) {
  int count = n * n, squarings = 0;
  long double norm = 0;
  for (int i = 0; i < count; i++) norm += x.value[i] * x.value[i];
  norm = sqrtl(norm);
  if (!isfinite(norm)) {
    for (int i = 0; i < count; i++) x.value[i] = x.tangent[i] = NAN;
    return x;
  }
  while (ldexpl(norm, -squarings) > 0.5L) squarings++;
  for (int i = 0; i < count; i++) {
    x.value[i] = ldexpl(x.value[i], -squarings);
    x.tangent[i] = ldexpl(x.tangent[i], -squarings);
  }
  matrix sum = matrix_new(a, n), term = matrix_new(a, n), next = matrix_new(a, n), swap;
  for (int i = 0; i < n; i++) sum.value[i * n + i] = term.value[i * n + i] = 1;
  for (int k = 1; k <= 22; k++) {
    multiply(n, term, x, next);
    for (int i = 0; i < count; i++) {
      sum.value[i] += next.value[i] /= k;
      sum.tangent[i] += next.tangent[i] /= k;
    }
    swap = term, term = next, next = swap;
  }
  for (; squarings > 0; squarings--) {
    multiply(n, sum, sum, next);
    swap = sum, sum = next, next = swap;
  }
  return sum;
}

/* ---- what raw matrices gain ---- */

/* A_ij = F_ij (and - F_ji where both are read), A_ji = -A_ij. */
static void gain_skew(const spec_skew *m, int n, int head, int block, int blocks, long double factor,
                      const long double *gained, long double size, const reference_gains *to) {
  int32_t offset = m->offset[(m->n_heads > 1 ? head : 0) * blocks + block];
  gradient_sum *raw = to->operand ? to->operand[m->operand] + offset : NULL;
  for (int i = 0; raw && i < n; i++)
    for (int j = i + 1; j < n; j++) {
      long double value = factor * (gained[i * n + j] - gained[j * n + i]);
      raw[i * n + j].value += value;
      raw[i * n + j].size += size;
      if (m->rule != SKEW_DIFFERENCE) continue;
      raw[j * n + i].value -= value;
      raw[j * n + i].size += size;
    }
}

void reference_dense_backward(const spec *s, const expr_environment *env, reference_outer outer,
                              const reference_gains *to) {
  arena *a = arena_create();
  int n = s->n_components;
  long double turn = s->inverse ? -1 : 1,
              amplitude = s->inverse ? 1 / (long double)s->amplitude : (long double)s->amplitude,
              size = outer.size * fabsl(amplitude);
  matrix x = matrix_new(a, n);
  long double *generator[SPEC_MAX_AXES], angle[SPEC_MAX_AXES];
  for (int axis = 0; axis < s->n_axes; axis++) {
    generator[axis] = arena_array(a, long double, n *n);
    reference_skew(&s->dense->generator[axis], n, env->head, env->block, s->n_blocks, env->operands, generator[axis]);
    angle[axis] = expr_eval_long(s->angle[axis], env);
    for (int i = 0; i < n; i++)
      for (int j = 0; j < n; j++) x.value[i * n + j] += turn * angle[axis] * generator[axis][j * n + i];
  }
  for (int i = 0; i < n * n; i++) x.tangent[i] = amplitude * outer.sum[i];
  const long double *gained = exponential(a, n, x).tangent;
  gradient_sum of_angle[SPEC_MAX_AXES];
  for (int axis = 0; axis < s->n_axes; axis++) {
    long double square = 0;
    of_angle[axis].value = 0;
    for (int i = 0; i < n * n; i++) {
      of_angle[axis].value += turn * gained[i] * generator[axis][i];
      square += generator[axis][i] * generator[axis][i];
    }
    of_angle[axis].size = size * sqrtl(square);
    gain_skew(&s->dense->generator[axis], n, env->head, env->block, s->n_blocks, turn * angle[axis], gained,
              size * sqrtl(2) * fabsl(angle[axis]), to);
  }
  reference_expr_backward(s->pool, env, s->angle, s->n_axes, of_angle, to);
  arena_destroy(a);
}

/* ---- changes of basis ---- */

void reference_basis_backward(const spec *s, const double *const *operands, int head, const long double *outer,
                              long double size, const reference_gains *to) {
  arena *a = arena_create();
  int n = s->head_dim;
  long double *skew = arena_array(a, long double, n *n), *system = arena_array(a, long double, n *n);
  long double *z = arena_array(a, long double, n *n), *c = arena_array(a, long double, n *n);
  long double *transposed = arena_array(a, long double, n *n), *gained = arena_array(a, long double, n *n);
  reference_skew(&s->basis->matrix, n, head, 0, 1, operands, skew);
  reference_basis(s, operands, head, c);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      system[i * n + j] = (i == j) + skew[j * n + i];
      transposed[i * n + j] = (i == j) + c[j * n + i];
      z[i * n + j] = outer[i * n + j];
    }
  reference_solve(n, system, z);
  add_product(n, z, transposed, gained);
  /* |dC| is at most |I + C| |(I + A)^-1| |dA|, which is 2 |dA|. */
  gain_skew(&s->basis->matrix, n, head, 0, 1, -1, gained, 2 * sqrtl(2) * size, to);
  arena_destroy(a);
}
