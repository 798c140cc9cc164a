/* check_additive: sums against the description's own expression; see check_additive.h. */
#include "check_additive.h"

#include "diag.h"
#include "reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 2, ANY_HEADS = 2, TOKENS = 24, PARTS = 3 };
static const long double BOUND = 0x1p-22L;

long double additive_error(const spec *s, const DLTensor *in, const DLTensor *out, const double *positions, const trial_operands *operands) {
  number_type type = number_type_of(in->dtype);
  long double worst = 0;
  for (int64_t b = 0; b < in->shape[0]; b++)
    for (int64_t h = 0; h < in->shape[1]; h++)
      for (int64_t n = 0; n < in->shape[2]; n++) {
        double at[SPEC_MAX_AXES];
        if (!positions && n >= s->skip_tokens) reference_grid(s, n, at);
        if (positions) memcpy(at, positions + n * s->n_axes, sizeof *at * (size_t)s->n_axes);
        for (int64_t c = 0; c < in->shape[3]; c++) {
          long double x = number_load(type, tensor_at(in, b, h, n, c)), got = number_load(type, tensor_at(out, b, h, n, c));
          long double sum = n < s->skip_tokens ? 0 : reference_sum(s, at, operands->values, (int)(s->heads > 1 ? h : 0), (int)c);
          long double error = fabsl(got - (x + sum));
          if (type != NUMBER_F32) error = fmaxl(0, error - number_half_ulp(type, x + sum));
          error /= fmaxl(1, fabsl(sum));
          if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
        }
      }
  return worst;
}

typedef struct checker {
  arena *memory;
  const spec *spec;
  const pegen_kernel *kernel;
  int64_t heads, tokens;
  const double *values;
  const DLTensor *positions;
  trial_operands operands;
  uint64_t random;
  bool failed;
} checker;

static void choose_tokens(checker *c) {
  const spec *s = c->spec;
  c->heads = s->heads > 1 ? s->heads : ANY_HEADS;
  c->tokens = TOKENS + s->skip_tokens;
  c->operands = trial_random_operands(c->memory, s, NUMBER_F32, &c->random);
  if (s->grid[0]) {
    c->tokens = 1;
    for (int axis = 0; axis < s->n_axes; axis++) c->tokens *= s->grid[axis];
    c->tokens += s->skip_tokens;
    return;
  }
  double *values = arena_array(c->memory, double, c->tokens * s->n_axes);
  for (int64_t n = 1; n < c->tokens; n++)
    for (int axis = 0; axis < s->n_axes; axis++) {
      double reach = ldexp(1, (int)(n % 21));
      values[n * s->n_axes + axis] = n & 1 ? rint(random_uniform(&c->random, -reach, reach)) : random_uniform(&c->random, -reach, reach);
    }
  c->values = values;
  c->positions = tensor_contiguous(c->memory, NUMBER_F64, 2, (int64_t[]){c->tokens, s->n_axes}, values);
}

static void report(checker *c, const char *type, const char *what, bool pass, const char *figure) {
  printf("  %-5s %-44s %9s     %-7s %s\n", type, what, figure, "", pass ? "pass" : "FAIL");
  c->failed = c->failed || !pass;
}

static void check_type(checker *c, number_type type) {
  arena *a = c->memory;
  const char *name = number_type_info(type)->name;
  DLTensor *q = tensor_rows(a, type, ROWS_BHND, BATCH, c->heads, c->tokens, c->spec->head_dim), *k = tensor_rows(a, type, ROWS_BNHD, BATCH, c->heads, c->tokens, c->spec->head_dim);
  tensor_randomize(q, &c->random);
  tensor_randomize(k, &c->random);
  DLTensor *q_out = tensor_copy(a, q), *k_out = tensor_copy(a, k), *q_parts = tensor_copy(a, q), *here = tensor_copy(a, q);
  DLTensor *other = tensor_rows(a, type, ROWS_GAPS, BATCH, c->heads, c->tokens, c->spec->head_dim);
  int error = trial_call(c->kernel, c->positions, &c->operands, q, q_out, k, k_out, 1);
  if (!error) error = trial_call(c->kernel, c->positions, &c->operands, q, q_parts, NULL, NULL, PARTS);
  if (!error) error = trial_call(c->kernel, c->positions, &c->operands, here, here, NULL, NULL, 1);
  if (!error) error = trial_call(c->kernel, c->positions, &c->operands, q, other, NULL, NULL, 1);
  if (error) {
    report(c, name, "calls", false, pegen_error_name(error));
    return;
  }
  long double worst = fmaxl(additive_error(c->spec, q, q_out, c->values, &c->operands), additive_error(c->spec, k, k_out, c->values, &c->operands));
  report(c, name, "rows, bound 2^-22", worst <= BOUND, worst > 0 ? arena_printf(a, "2^%.1Lf", log2l(worst)) : "0");
  report(c, name, "in 3 parts and in one", tensor_identical(q_parts, q_out), "bits");
  report(c, name, "in place and out of place", tensor_identical(here, q_out), "bits");
  report(c, name, "other strides", tensor_identical(other, q_out), "bits");
}

int check_additive(arena *a, const spec *s, const check_options *options) {
  checker c = {.memory = a, .spec = s, .random = options->seed ? options->seed : 20260101};
  const char **targets;
  int count = trial_targets(a, options->targets, &targets);
  if (count == 0) {
    diag_error(s->file, 0, "this machine runs none of the targets '%s'", options->targets ? options->targets : "");
    return 1;
  }
  printf("%s: seed %llu; errors are relative to the larger of 1 and what is added\n", s->name, (unsigned long long)c.random);
  choose_tokens(&c);
  for (int i = 0; i < count; i++) {
    loaded_kernel *loaded = trial_load(a, s, targets[i], options->dtypes, options->optimize);
    if (!loaded) return 1;
    c.kernel = run_kernel(loaded);
    printf("%s, target %s\n", s->name, targets[i]);
    for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++)
      if (c.kernel->dtypes & number_type_info((number_type)type)->dtype) check_type(&c, (number_type)type);
    run_unload(loaded);
  }
  printf("%s: %s\n", s->name, c.failed ? "FAIL" : "pass");
  return c.failed ? 1 : 0;
}
