/* The slow reference against the golden outputs: settles every sign without a kernel.
 *
 * The bound is 1e-12 and what float64 loses of the largest phase (of exponentials of b x b matrices b times
 * that): the golden outputs were computed in it, and positions reach 2^17.
 */
#include "cases.h"
#include "scoped.h"
#include "test.h"
#include "verify/reference.h"
#include "verify/trial.h"

#include <math.h>

static void reference_gives_golden(void **state) {
  const golden_case *c = *state;
  SCOPED arena *a = arena_create();
  const double **operands;
  spec *s = golden_load(a, c, SPECS_DIR, DSL_DIR, &operands);
  assert_non_null(s);
  const golden_array *x = golden_input(c, "x"), *positions = golden_input(c, "positions");
  assert_non_null(x);
  assert_non_null(positions);
  int64_t batch = x->shape[0], heads = x->shape[1], tokens = x->shape[2], channels = x->shape[3];
  assert_int_equal(channels, s->head_dim);
  long double *row = arena_array(a, long double, channels), worst = 0;
  for (int64_t b = 0; b < batch; b++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t n = 0; n < tokens; n++) {
        int64_t token = positions->rank == 3 ? b * tokens + n : n;
        const double *in = x->values + ((b * heads + h) * tokens + n) * channels;
        const double *out = c->out.values + ((b * heads + h) * tokens + n) * channels;
        reference_row(s, positions->values + token * s->n_axes, operands, s->heads > 1 ? (int)h : 0, in, row);
        for (int64_t i = 0; i < channels; i++) worst = fmaxl(worst, fabsl(row[i] - out[i]));
      }
  trial_operands given = trial_given_operands(a, s, operands);
  double phase = 0;
  for (int64_t n = 0; n < (positions->rank == 3 ? batch * tokens : tokens); n++)
    phase = fmax(phase, trial_largest_phase(s, positions->values + n * s->n_axes, &given));
  long double bound = 1e-12L + 0x1p-52L * phase * (s->dense ? s->n_components : 1);
  print_message("             largest difference %.2Lg, largest phase %.6g, bound %.2Lg\n", worst, phase, bound);
  assert_true(worst < bound);
}

int main(void) {
  SCOPED arena *a = arena_create();
  const golden_case *cases;
  int count = golden_read(a, GOLDEN_DIR, "cases.lua", &cases);
  for (int i = 0; i < count; i++) list_row(cases[i].name, reference_gives_golden, &cases[i]);
  int failed = run_listed();
  return failed;
}
