/* Kernels of one target (or, without an argument, of every target that this machine runs)
 * against the golden outputs.
 *
 * f32: within 2^-20 of each block's norm (see oracle_row) of the golden float64 output (which the
 * rounding of the input fits into) and of the reference on the rounded input.
 * bf16 and f16: within half a unit in the last place, and 2^-20 of the norm, of
 * the reference on the rounded input; reference_test ties the reference to the
 * golden outputs. q alone, q with k, in place, out of place and other strides
 * must give the bits of the first call.
 */
#include "cases.h"
#include "gpu/forms.h"
#include "gpu/target.h"
#include "scoped.h"
#include "test.h"
#include "verify/oracle.h"

#include <math.h>
#include <string.h>

static const double BOUND = 0x1p-20;
enum { NOT_RUNNABLE = 77 }; /* what ctest is told to take as "skipped" */

static const char *wanted; /* target, or NULL */

typedef struct fixture {
  arena *memory;
  const golden_case *golden;
  spec *spec;
  const golden_array *x;
  DLTensor *positions;
  trial_operands operands;
  oracle *oracle;
} fixture;

/* x as a tensor of the type; with `mirrored` its batches in the opposite order (another tensor, for k). */
static DLTensor *rows_of(const fixture *f, number_type type, row_order order, int mirrored) {
  const int64_t *shape = f->x->shape;
  DLTensor *t = tensor_rows(f->memory, type, order, shape[0], shape[1], shape[2], shape[3]);
  const double *values = f->x->values;
  for (int64_t b = 0; b < shape[0]; b++)
    for (int64_t h = 0; h < shape[1]; h++)
      for (int64_t n = 0; n < shape[2]; n++)
        for (int64_t c = 0; c < shape[3]; c++) {
          int64_t from = mirrored ? shape[0] - 1 - b : b;
          double sign = mirrored ? -1 : 1;
          number_store(type, tensor_at(t, b, h, n, c),
                       sign * values[((from * shape[1] + h) * shape[2] + n) * shape[3] + c]);
        }
  return t;
}

static void within_bound(const fixture *f, const char *what, const trial_error *worst) {
  if (worst->spoilt || worst->error > BOUND) print_error("%s: %s\n", what, trial_error_text(f->memory, worst));
  assert_false(worst->spoilt || worst->error > BOUND);
}

/* The golden output itself. */
static void compare_with_golden(const fixture *f, const DLTensor *out) {
  const int64_t *shape = f->x->shape;
  long double exact[SPEC_MAX_HEAD_DIM], unit[SPEC_MAX_HEAD_DIM];
  for (int64_t row = 0; row < shape[0] * shape[1] * shape[2]; row++) {
    const double *expected = f->golden->out.values + row * shape[3], *in = f->x->values + row * shape[3];
    int64_t b = row / (shape[1] * shape[2]), h = row / shape[2] % shape[1], n = row % shape[2];
    oracle_row(f->oracle, b, n, (int)h, in, exact, unit);
    for (int64_t c = 0; c < shape[3]; c++) {
      double error = fabs(number_load(NUMBER_F32, tensor_at(out, b, h, n, c)) - expected[c]);
      if (unit[c] >= 0 && !(error <= BOUND * (double)unit[c]))
        fail_msg("batch %d head %d token %d channel %d: error %g of %g", (int)b, (int)h, (int)n, (int)c, error,
                 (double)unit[c]);
    }
  }
}

static void check_type(const fixture *f, const pegen_kernel *kernel, number_type type) {
  DLTensor *q = rows_of(f, type, ROWS_BHND, 0), *k = rows_of(f, type, ROWS_BHND, 1);
  DLTensor *q_out = tensor_copy(f->memory, q), *k_out = tensor_copy(f->memory, k);
  const char *name = number_type_info(type)->name;
  assert_int_equal(trial_call(kernel, f->positions, &f->operands, q, q_out, NULL, NULL, 1), 0);
  trial_error worst = {0};
  trial_compare_rows(f->oracle, q, q_out, &worst);
  within_bound(f, name, &worst);
  if (type == NUMBER_F32) compare_with_golden(f, q_out);
  assert_int_equal(trial_call(kernel, f->positions, &f->operands, NULL, NULL, k, k_out, 1), 0);
  trial_compare_rows(f->oracle, k, k_out, &worst);
  within_bound(f, name, &worst);

  static const row_order orders[] = {ROWS_BHND, ROWS_BNHD, ROWS_GAPS};
  for (int i = 0; i < 3; i++)
    for (int in_place = 0; in_place < 2; in_place++)
      for (int with_k = 0; with_k < 2; with_k++) {
        DLTensor *from = rows_of(f, type, orders[i], 0), *k_from = rows_of(f, type, orders[i], 1);
        DLTensor *to = in_place ? from : tensor_copy(f->memory, from),
                 *k_to = in_place ? k_from : tensor_copy(f->memory, k_from);
        DLTensor *before = tensor_copy(f->memory, from);
        if (!in_place) tensor_randomize(to, &(uint64_t){1});
        int error =
            trial_call(kernel, f->positions, &f->operands, from, to, with_k ? k_from : NULL, with_k ? k_to : NULL, 1);
        assert_int_equal(error, 0);
        assert_true(tensor_identical(to, q_out));
        assert_true(tensor_gaps_identical(to, before));
        if (with_k) assert_true(tensor_identical(k_to, k_out));
        if (!in_place) assert_true(tensor_identical(from, before));
      }
}

static void kernels_give_golden(void **state) {
  const golden_case *c = *state;
  fixture f = {.memory = arena_create(), .golden = c};
  const double **values;
  f.spec = golden_load(f.memory, c, SPECS_DIR, DSL_DIR, &values);
  assert_non_null(f.spec);
  const form *of = form_of(f.spec);
  const char *cpus;
  if (wanted && strncmp(wanted, "sm_", 3) == 0 &&
      !gpu_program_of(f.memory, gpu_target_parse(f.memory, wanted, &cpus), of, of->plan(f.memory, f.spec),
                      PEGEN_DTYPE_F32, false)) {
    print_message("             (no GPU kernel is made of it)\n");
    arena_destroy(f.memory);
    skip();
  }
  f.x = golden_input(c, "x");
  const golden_array *positions = golden_input(c, "positions");
  f.positions = tensor_contiguous(f.memory, NUMBER_F64, positions->rank, positions->shape, positions->values);
  f.operands = trial_rounded_operands(f.memory, f.spec, values, NUMBER_F64);
  f.oracle = oracle_create(f.memory, f.spec, positions->rank == 3 ? f.x->shape[0] : 1, f.x->shape[2], positions->values,
                           &f.operands);
  const char **targets;
  int count = trial_targets(f.memory, wanted, &targets);
  assert_true(count > 0);
  for (int i = 0; i < count; i++) {
    SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.spec, targets[i], 0, 2));
    for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++) check_type(&f, run_kernel(loaded), (number_type)type);
  }
  arena_destroy(f.memory);
}

int main(int argc, char **argv) {
  wanted = argc > 1 ? argv[1] : NULL;
  if (wanted && !trial_runnable(wanted)) return NOT_RUNNABLE;
  SCOPED arena *a = arena_create();
  const golden_case *cases;
  int count = golden_read(a, GOLDEN_DIR, "cases.lua", &cases);
  for (int i = 0; i < count; i++)
    if (!cases[i].reference_only) list_row(cases[i].name, kernels_give_golden, &cases[i]);
  int failed = run_listed();
  return failed;
}
