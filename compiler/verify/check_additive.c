/* verify/check_additive: sums against the description's own expression; see verify/check_kind.h. */
#include "verify/check_kind.h"
#include "verify/trial_sums.h"

#include <math.h>

enum { BATCH = 2, ANY_HEADS = 2, TOKENS = 24 };
static const long double BOUND = 0x1p-22L, NORMALISED_BOUND = 0x1p-20L;

typedef struct sample {
  int64_t heads, tokens;
  const double *values;
  const DLTensor *positions; /* NULL: a grid */
  trial_operands operands;
} sample;

static void compare(const checker *c, const DLTensor *in, const DLTensor *out, trial_error *worst) {
  const sample *t = c->sample;
  trial_compare_sums(c->spec, t->values, false, &t->operands, in, out, worst);
}

static const double *random_positions(checker *c, int64_t tokens) {
  int axes = c->spec->n_axes;
  double *values = arena_array(c->memory, double, tokens *axes);
  for (int64_t n = 1; n < tokens; n++)
    for (int axis = 0; axis < axes; axis++) {
      double reach = ldexp(1, (int)(n % 21)), value = random_uniform(&c->random, -reach, reach);
      values[n * axes + axis] = n & 1 ? rint(value) : value;
    }
  return values;
}

static const void *choose(checker *c) {
  const spec *s = c->spec;
  sample *t = arena_new(c->memory, sample);
  t->heads = s->heads > 1 ? s->heads : ANY_HEADS;
  t->tokens = s->grid[0] ? spec_grid_tokens(s) : TOKENS + s->skip_tokens;
  t->operands = trial_random_operands(c->memory, s, NUMBER_F32, &c->random);
  if (s->grid[0]) return t;
  t->values = random_positions(c, t->tokens);
  t->positions = tensor_contiguous(c->memory, NUMBER_F64, 2, (int64_t[]){t->tokens, s->n_axes}, t->values);
  return t;
}

static DLTensor *rows(checker *c, number_type type, row_order order) {
  const sample *t = c->sample;
  return tensor_rows(c->memory, type, order, BATCH, t->heads, t->tokens, c->spec->head_dim);
}

static void check_type(checker *c, number_type type) {
  arena *a = c->memory;
  const sample *t = c->sample;
  const char *name = number_type_info(type)->name;
  DLTensor *q = rows(c, type, ROWS_BHND), *k = rows(c, type, ROWS_BNHD);
  tensor_randomize(q, &c->random);
  tensor_randomize(k, &c->random);
  DLTensor *q_out = tensor_copy(a, q), *k_out = tensor_copy(a, k), *parts = tensor_copy(a, q),
           *here = tensor_copy(a, q);
  DLTensor *other = rows(c, type, ROWS_GAPS);
  if (!check_called(c, name, "rows", trial_call(c->kernel, t->positions, &t->operands, q, q_out, k, k_out, 1))) return;
  trial_error worst = {0};
  compare(c, q, q_out, &worst);
  compare(c, k, k_out, &worst);
  check_report(c, name, type == NUMBER_F32 ? "rows" : "rows, beyond half a unit in the last place", BOUND, &worst);
  if (check_called(c, name, "parts",
                   trial_call(c->kernel, t->positions, &t->operands, q, parts, NULL, NULL, CHECK_PARTS)))
    check_report_bits(c, name, "in 3 parts and in one", tensor_identical(parts, q_out));
  if (check_called(c, name, "in place", trial_call(c->kernel, t->positions, &t->operands, here, here, NULL, NULL, 1)))
    check_report_bits(c, name, "in place and out of place", tensor_identical(here, q_out));
  if (check_called(c, name, "memory orders",
                   trial_call(c->kernel, t->positions, &t->operands, q, other, NULL, NULL, 1)))
    check_report_bits(c, name, "other strides, q alone", tensor_identical(other, q_out));
}

static void compare_normalised(const checker *c, bool of_k, const DLTensor *in, const DLTensor *out,
                               trial_error *worst) {
  (void)of_k; /* one sum for both */
  compare(c, in, out, worst);
}

static void run(checker *c) {
  const sample *t = c->sample;
  check_each_type(c, check_type);
  check_append(c, &(append_call){t->positions, &t->operands, t->heads, t->heads, t->tokens, NORMALISED_BOUND,
                                 compare_normalised});
  check_encode_backward(c);
  check_each_pair(c, &(converted_call){t->positions, &t->operands, t->heads, t->heads, t->tokens});
}

static const char *units(const spec *s) {
  (void)s;
  return "are relative to the larger of 1 and what is added";
}

const check_kind check_additive = {.units = units, .choose = choose, .run = run};
