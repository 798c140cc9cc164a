/* verify/reference_gradient_rotors: functions of rotors, by differences of their matrices in long double along the
 * tangents of what they are of; see verify/reference_gradient.h. No rule of reverse mode and no derivative of a mean or
 * a logarithm is written down here.
 */
#include "verify/reference.h"
#include "verify/reference_gradient.h"
#include "verify/reference_rotors.h"

#include <math.h>

/* Steps of rotations, in radians; what a step moves a matrix by at most. */
static const long double LARGEST_STEP = 0x1p-12L, SMALLEST_STEP = 0x1p-32L, JUMP = 0x1p-9L;

typedef struct differences {
  const spec *spec;
  int count;
  const expr **input;
  dual *value;
  long double *moved;
} differences;

/* How fast rotations and shares move along the tangents. */
static long double rate_of(const differences *d) {
  const dual *v = d->value, *end = d->value + d->count;
  long double rate = 0;
  for (int axis = 0; axis < d->spec->n_axes; axis++) {
    const dual *angle = v++;
    for (int i = 0; i < d->spec->generator[axis].count; i++, v++)
      rate += fabsl(angle->tangent * v->value) + fabsl(angle->value * v->tangent);
  }
  for (; v < end; v++) rate += fabsl(v->tangent);
  return rate;
}

static void matrix_at(const differences *d, long double step, long double *matrix) {
  for (int i = 0; i < d->count; i++) d->moved[i] = d->value[i].value + step * d->value[i].tangent;
  reference_rotors_block(d->spec, d->moved, 0, NULL, matrix);
}

/* dM by a step; false where a place moves the matrix further than a smooth function does: a cut lies between them. */
static bool derive(const differences *d, long double step, long double *sum) {
  static const int weight[4] = {1, -8, 8, -1}, place[4] = {-2, -1, 1, 2};
  int entries = d->spec->n_components * d->spec->n_components;
  long double matrix[4][SPEC_MAX_BLADES * SPEC_MAX_BLADES], jump = 0;
  for (int k = 0; k < 4; k++) matrix_at(d, place[k] * step, matrix[k]);
  for (int i = 0; i < entries; i++) {
    sum[i] = 0;
    for (int k = 0; k < 4; k++) sum[i] += weight[k] * matrix[k][i] / (12 * step);
    for (int k = 1; k < 4; k++) jump = fmaxl(jump, fabsl(matrix[k][i] - matrix[k - 1][i]));
  }
  return jump <= JUMP;
}

/* <outer, dM> and |dM|, which is taken for at least 2^-20 of what inputs move: where a function stops depending on a
 * rotor (slerp at an end), kernels' tangents are what is left of terms that cancel. */
static long double contract(const differences *d, const long double *outer, long double *value) {
  int entries = d->spec->n_components * d->spec->n_components;
  long double rate = rate_of(d), square = 0, sum[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
  *value = 0;
  if (rate == 0) return 0;
  for (int i = 0; i < d->count; i++) d->moved[i] = d->value[i].value;
  long double stiff = fmaxl(1, ldexpl(reference_rotors_reach(d->spec, d->moved, 0x1p-30L, 0), 30)),
              step = LARGEST_STEP / (rate * stiff), least = SMALLEST_STEP / (rate * stiff);
  while (!derive(d, step, sum) && step > least) step /= 16;
  for (int i = 0; i < entries; i++) {
    *value += outer[i] * sum[i];
    square += sum[i] * sum[i];
  }
  if (sqrtl(square) <= ldexpl(1, -56) / step) *value = 0; /* of rounding */
  return fmaxl(sqrtl(square), ldexpl(rate, -20));
}

static long double norm_of_tangent(const void *d) {
  static const long double zeros[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
  long double value;
  return contract(d, zeros, &value);
}

void reference_rotors_backward(const spec *s, const expr_environment *env, reference_outer outer,
                               const reference_gains *to) {
  arena *scratch = arena_create();
  dual_place place = dual_at(scratch, s->pool, env);
  differences d = {.spec = s,
                   .input = arena_array(scratch, const expr *, REFERENCE_ROTORS_MOST),
                   .value = arena_array(scratch, dual, REFERENCE_ROTORS_MOST),
                   .moved = arena_array(scratch, long double, REFERENCE_ROTORS_MOST)};
  const dual_variable *by;
  d.count = reference_rotors_inputs(s, d.input);
  int count = dual_variables(&place, d.input, d.count, &by);
  for (int i = 0; i < count; i++) {
    long double value, norm;
    if (!reference_is_asked(to, &by[i])) continue;
    dual_eval(&place, &by[i], d.input, d.count, d.value);
    norm =
        contract(&d, outer.sum, &value) + reference_cancelled(d.value, d.count, (reference_slope){&d, norm_of_tangent});
    reference_gain(to, &by[i], value, outer.size * norm);
  }
  arena_destroy(scratch);
}
