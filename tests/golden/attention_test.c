/* attention_test [TARGET]: attention against the golden scores and outputs: the reference alone, then the kernels of
 * the target, or of every one that this machine runs.
 *
 * Scores are read through attention itself: with the values one-hot, output c of a query is the probability of key c,
 * and the logarithms of two probabilities differ by what their scores do. f32: scores and outputs within 2^-18 of the
 * row's largest score. bf16 and f16: outputs within that and half a unit in the last place of the reference on rounded
 * inputs.
 */
#include "cases.h"
#include "scoped.h"
#include "test.h"
#include "verify/reference_attention.h"
#include "verify/trial_attention.h"

#include <math.h>
#include <string.h>

static const double BOUND = 0x1p-18, LEAST_SEEN = -85;

static const char *wanted; /* target; NULL: all */

typedef struct fixture {
  arena *memory;
  const golden_case *golden;
  spec *spec;
  const golden_array *q, *k, *v, *positions;
  attention_trial trial;
} fixture;

static DLTensor *rows_of(arena *a, const golden_array *values, number_type type) {
  const int64_t *n = values->shape;
  DLTensor *t = tensor_rows(a, type, ROWS_BNHD, n[0], n[1], n[2], n[3]);
  for (int64_t i = 0; i < n[0] * n[1] * n[2] * n[3]; i++)
    number_store(type, tensor_at(t, i / (n[1] * n[2] * n[3]), i / (n[2] * n[3]) % n[1], i / n[3] % n[2], i % n[3]),
                 values->values[i]);
  return t;
}

/* The encoding's inputs, as float32 (whatever q is) and exactly. */
static trial_inputs inputs_of(fixture *f, bool rounded) {
  const spec *s = f->spec;
  trial_inputs inputs = {arena_array(f->memory, const double *, s->n_inputs + 1),
                         arena_array(f->memory, const DLTensor *, s->n_inputs + 1)};
  for (int i = 0; i < s->n_inputs; i++) {
    const golden_array *given = golden_input(f->golden, s->input[i].name);
    assert_non_null(given);
    int64_t count = 1;
    for (int d = 0; d < given->rank; d++) count *= given->shape[d];
    double *values = arena_array(f->memory, double, count);
    for (int64_t k = 0; k < count; k++) values[k] = rounded ? (float)given->values[k] : given->values[k];
    inputs.values[i] = values;
    inputs.tensors[i] = tensor_contiguous(f->memory, NUMBER_F32, given->rank, given->shape, values);
  }
  return inputs;
}

static fixture open_case(const golden_case *c) {
  fixture f = {.memory = arena_create(), .golden = c};
  const double **operands;
  f.spec = golden_load(f.memory, c, SPECS_DIR, DSL_DIR, &operands);
  assert_non_null(f.spec);
  f.q = golden_input(c, "q");
  f.k = golden_input(c, "k");
  f.v = golden_input(c, "v");
  f.positions = golden_input(c, "positions");
  f.trial = (attention_trial){
      .spec = f.spec, .scale = c->scale, .operands = trial_given_operands(f.memory, f.spec, operands)};
  f.trial.inputs = inputs_of(&f, true);
  f.trial.positions =
      tensor_contiguous(f.memory, NUMBER_F64, f.positions->rank, f.positions->shape, f.positions->values);
  return f;
}

static double largest_score(const fixture *f, int64_t row) {
  double largest = 1;
  int64_t keys = f->k->shape[2];
  for (int64_t j = 0; j < keys; j++)
    if (isfinite(f->golden->scores.values[row * keys + j]))
      largest = fmax(largest, fabs(f->golden->scores.values[row * keys + j]));
  return largest;
}

static void reference_gives_golden(void **state) {
  SCOPED fixture f = open_case(*state);
  int64_t heads = f.q->shape[1], tokens = f.q->shape[2], keys = f.k->shape[2], D = f.spec->head_dim,
          Dv = f.spec->pairwise->value_dim;
  trial_inputs inputs = inputs_of(&f, false);
  long double *scores = arena_array(f.memory, long double, keys), *out = arena_array(f.memory, long double, Dv);
  for (int64_t row = 0; row < f.q->shape[0] * heads * tokens; row++) {
    int64_t head = row / tokens, token = row % tokens;
    const double *given[SPEC_MAX_INPUTS];
    trial_input_rows(f.spec, &inputs, row, given);
    reference_query query = {.q = f.q->values + row * D,
                             .position = f.positions->values + token * f.spec->n_axes,
                             .token = token,
                             .index = token,
                             .k = f.k->values + head * keys * D,
                             .v = f.v->values + head * keys * Dv,
                             .positions = f.positions->values,
                             .keys = keys,
                             .visible = keys,
                             .head = f.spec->heads > 1 ? (int)(head % heads) : 0,
                             .scale = f.golden->scale,
                             .operands = f.trial.operands.values,
                             .inputs = given};
    reference_attention(f.spec, &query, scores, out);
    for (int64_t j = 0; j < keys; j++) assert_true(fabsl(scores[j] - f.golden->scores.values[row * keys + j]) < 1e-11L);
    for (int64_t c = 0; c < Dv; c++) assert_true(fabsl(out[c] - f.golden->attention.values[row * Dv + c]) < 1e-11L);
  }
}

/* Probabilities of keys, as outputs for one-hot values. */
static void check_scores(fixture *f, const pegen_kernel *kernel) {
  int64_t heads = f->q->shape[1], tokens = f->q->shape[2], keys = f->k->shape[2];
  assert_true(keys <= f->spec->pairwise->value_dim);
  for (int64_t h = 0; h < heads; h++)
    for (int64_t j = 0; j < keys; j++)
      for (int c = 0; c < f->spec->pairwise->value_dim; c++)
        number_store(NUMBER_F32, tensor_at(f->trial.v, 0, h, j, c), c == j);
  DLTensor *out = attention_trial_out(f->memory, &f->trial, ROWS_BHND);
  assert_int_equal(attention_trial_call(kernel, &f->trial, out, 1), 0);
  for (int64_t h = 0; h < heads; h++)
    for (int64_t n = 0; n < tokens; n++) {
      const double *scores = f->golden->scores.values + (h * tokens + n) * keys;
      int64_t best = 0;
      for (int64_t j = 1; j < keys; j++)
        if (scores[j] > scores[best]) best = j;
      double of_best = number_load(NUMBER_F32, tensor_at(out, 0, h, n, best));
      for (int64_t j = 0; j < keys; j++) {
        double p = number_load(NUMBER_F32, tensor_at(out, 0, h, n, j)), below = scores[j] - scores[best],
               difference = log(p / of_best) - below;
        if (below < LEAST_SEEN) { /* float32 has no such numbers */
          assert_true(p >= 0 && log(p) <= LEAST_SEEN);
          continue;
        }
        if (!(fabs(difference) <= BOUND * largest_score(f, h * tokens + n)))
          fail_msg("head %d query %d key %d: the score is off by %g", (int)h, (int)n, (int)j, difference);
      }
    }
}

static void check_outputs(fixture *f, const pegen_kernel *kernel, number_type type) {
  int64_t heads = f->q->shape[1], tokens = f->q->shape[2];
  DLTensor *out = attention_trial_out(f->memory, &f->trial, ROWS_GAPS);
  assert_int_equal(attention_trial_call(kernel, &f->trial, out, 1), 0);
  trial_error worst = {0};
  attention_trial_compare(f->memory, kernel, &f->trial, out, 1, &worst);
  if (worst.spoilt || worst.error > BOUND) fail_msg("%s", trial_error_text(f->memory, &worst));
  for (int64_t h = 0; type == NUMBER_F32 && h < heads; h++)
    for (int64_t n = 0; n < tokens; n++)
      for (int c = 0; c < f->spec->pairwise->value_dim; c++) {
        double golden = f->golden->attention.values[(h * tokens + n) * f->spec->pairwise->value_dim + c];
        assert_true(fabs(number_load(type, tensor_at(out, 0, h, n, c)) - golden) <=
                    BOUND * largest_score(f, h * tokens + n));
      }
}

static void kernels_give_golden(void **state) {
  SCOPED fixture f = open_case(*state);
  const char **targets;
  int count = trial_targets(f.memory, wanted, &targets);
  assert_true(count > 0);
  for (int i = 0; i < count; i++) {
    SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.spec, targets[i], 0, 2));
    for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++) {
      f.trial.q = rows_of(f.memory, f.q, (number_type)type);
      f.trial.k = rows_of(f.memory, f.k, (number_type)type);
      f.trial.v = rows_of(f.memory, f.v, (number_type)type);
      check_outputs(&f, run_kernel(loaded), (number_type)type);
      if (type == NUMBER_F32) check_scores(&f, run_kernel(loaded));
    }
  }
}

int main(int argc, char **argv) {
  SCOPED arena *a = arena_create();
  wanted = argc > 1 ? argv[1] : NULL;
  const golden_case *cases;
  int count = golden_read(a, GOLDEN_DIR, "attention.lua", &cases);
  for (int i = 0; i < count; i++) {
    list_row(arena_printf(a, "reference %s", cases[i].name), reference_gives_golden, &cases[i]);
    list_row(arena_printf(a, "kernels %s", cases[i].name), kernels_give_golden, &cases[i]);
  }
  int failed = run_listed();
  return failed;
}
