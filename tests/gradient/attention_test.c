/* The reference's gradients of attention against differences of its outputs and log-sum-exps, for every description of
 * attention; of scores alone, for those that widen q and k.
 */
#include "described.h"
#include "difference.h"
#include "scoped.h"
#include "test.h"
#include "variants.h"
#include "verify/reference.h"
#include "verify/reference_gradient_attention.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEYS = 6, VISIBLE = 5 };

/* One query under variation. */
typedef struct call {
  arena *memory;
  const char *name;
  const spec *spec;
  reference_query query;
  double *q, *k, *v, *position, *positions, **operands, **inputs, *g, g_lse, *g_scores;
} call;

/* The sum of scores times g_scores, of descriptions that widen q and k. */
static long double loss_of_scores(const call *c) {
  const spec *s = c->spec;
  long double sum = 0;
  for (int key = 0; key < VISIBLE; key++) {
    double delta[SPEC_MAX_AXES];
    long double score = 0;
    for (int i = 0; i < s->head_dim; i++) score += (long double)c->q[i] * c->k[key * s->head_dim + i];
    for (int axis = 0; axis < s->n_axes; axis++) delta[axis] = c->positions[key * s->n_axes + axis] - c->position[axis];
    if (key >= s->skip_tokens && c->query.index >= s->skip_tokens)
      score += reference_bias(s, delta, c->query.operands, c->query.inputs, c->query.head);
    sum += c->g_scores[key] * score / sqrtl(s->head_dim);
  }
  return sum;
}

static long double loss(void *of) {
  const call *c = of;
  if (!c->spec->pairwise) return loss_of_scores(c);
  int width = c->spec->pairwise->value_dim;
  long double scores[KEYS], out[SPEC_MAX_HEAD_DIM], sum = 0, total = 0;
  reference_attention(c->spec, &c->query, scores, out);
  for (int key = 0; key < KEYS; key++) sum += expl(scores[key]);
  for (int i = 0; i < width; i++) total += c->g[i] * out[i];
  return isfinite(logl(sum)) ? total + c->g_lse * logl(sum) : total;
}

static void compare(call *c, const char *what, uint64_t *random, double *numbers, const gradient_sum *gradient,
                    int64_t count) {
  double *direction = arena_array(c->memory, double, count + 1);
  for (int trial = 0; trial < 2 && count > 0; trial++) {
    int64_t one = trial == 0 ? -1 : random_below(random, (int)count);
    long double got = 0, size = 0;
    for (int64_t k = 0; k < count; k++) {
      direction[k] = one < 0 ? random_below(random, 9) / 4.0 - 1 : k == one;
      got += gradient[k].value * direction[k];
      size += gradient[k].size * fabs(direction[k]);
    }
    long double exact = difference_along(c->memory, loss, c, numbers, direction, count);
    bool near = fabsl(got - exact) <= 1e-8L * (fabsl(exact) + 1) && fabsl(got) <= size * (1 + 1e-12L);
    if (!near) print_error("%s, %s: %.12Lg, should be %.12Lg (size %Lg)\n", c->name, what, got, exact, size);
    assert_true(near);
  }
}

static double *random_numbers(arena *a, int64_t count, uint64_t *random) {
  double *values = arena_array(a, double, count + 1);
  for (int64_t i = 0; i < count; i++) values[i] = (float)random_uniform(random, -1, 1);
  return values;
}

/* Away from whole numbers, where tables and distances have kinks, and within the grid where there is one. */
static double *random_positions(arena *a, const spec *s, int64_t count, uint64_t *random) {
  double *values = arena_array(a, double, count * s->n_axes + 1);
  for (int64_t i = 0; i < count * s->n_axes; i++) {
    int64_t reach = s->grid[0] ? s->grid[i % s->n_axes] - 1 : 4;
    values[i] = (double)random_below(random, (int)reach + 1) + random_uniform(random, 0.1, 0.4);
    values[i] = (float)values[i];
  }
  return values;
}

/* Numbers of the query's row of an input: of pairs one for each key. */
static int64_t row_size(const spec *s, int input) {
  return spec_input_is_pair(&s->input[input]) ? KEYS : spec_input_numbers(&s->input[input]);
}

static int value_dim(const spec *s) { return s->pairwise ? s->pairwise->value_dim : 1; }

static void prepare(call *c, uint64_t *random) {
  const spec *s = c->spec;
  arena *a = c->memory;
  trial_operands operands = trial_random_operands(a, s, NUMBER_F32, random);
  c->operands = arena_array(a, double *, s->n_operands + 1);
  c->inputs = arena_array(a, double *, s->n_inputs + 1);
  for (int i = 0; i < s->n_operands; i++) {
    int64_t size = spec_operand_elements(&s->operand[i]);
    c->operands[i] = memcpy(arena_array(a, double, size + 1), operands.values[i], sizeof(double) * (size_t)size);
  }
  for (int i = 0; i < s->n_inputs; i++) c->inputs[i] = random_numbers(a, row_size(s, i), random);
  c->q = random_numbers(a, s->head_dim, random);
  c->k = random_numbers(a, KEYS * s->head_dim, random);
  c->v = random_numbers(a, KEYS * value_dim(s), random);
  c->g = random_numbers(a, value_dim(s), random);
  c->g_scores = random_numbers(a, KEYS, random);
  c->g_lse = random_uniform(random, -1, 1);
  c->position = random_positions(a, s, 1, random);
  c->positions = random_positions(a, s, KEYS, random);
  c->query = (reference_query){.q = c->q,
                               .position = c->position,
                               .token = s->skip_tokens + 1,
                               .index = s->skip_tokens + 2,
                               .k = c->k,
                               .v = c->v,
                               .positions = c->positions,
                               .keys = KEYS,
                               .visible = VISIBLE,
                               .head = random_below(random, s->heads),
                               .operands = (const double *const *)c->operands,
                               .inputs = (const double *const *)c->inputs};
}

static bool check_query(const variant *v, uint64_t *random) {
  SCOPED call c = {.memory = arena_create(), .name = v->name};
  c.spec = loader_load(c.memory, v->file, DSL_DIR, v->n_defines, v->define);
  assert_non_null(c.spec);
  const spec *s = c.spec;
  arena *a = c.memory;
  bool attends = s->pairwise || s->polynomial;
  for (int trial = 0; trial < 2 && attends; trial++) {
    prepare(&c, random);
    if (trial && s->skip_tokens) c.query.index = 0;
    reference_query_gradients to = {.q = arena_array(a, gradient_sum, s->head_dim),
                                    .k = arena_array(a, gradient_sum, KEYS * s->head_dim),
                                    .v = arena_array(a, gradient_sum, KEYS * value_dim(s)),
                                    .position = arena_array(a, gradient_sum, s->n_axes),
                                    .k_positions = arena_array(a, gradient_sum, KEYS * s->n_axes),
                                    .operand = reference_operand_sums(a, s)};
    gradient_sum **input = arena_array(a, gradient_sum *, s->n_inputs + 1);
    for (int i = 0; i < s->n_inputs; i++) input[i] = arena_array(a, gradient_sum, row_size(s, i));
    to.input = input;
    gradient_sum scores[KEYS];
    for (int i = 0; i < KEYS; i++) scores[i] = (gradient_sum){c.g_scores[i], fabs(c.g_scores[i])};
    if (s->pairwise) reference_attention_backward(s, &c.query, c.g, c.g_lse, &to);
    else reference_scores_backward(s, &c.query, scores, &to);
    compare(&c, "q", random, c.q, to.q, s->head_dim);
    compare(&c, "k", random, c.k, to.k, VISIBLE * s->head_dim);
    if (s->pairwise) compare(&c, "v", random, c.v, to.v, VISIBLE * s->pairwise->value_dim);
    compare(&c, "position", random, c.position, to.position, s->n_axes);
    compare(&c, "positions", random, c.positions, to.k_positions, VISIBLE * s->n_axes);
    for (int i = 0; i < s->n_operands; i++)
      compare(&c, s->operand[i].name, random, c.operands[i], to.operand[i], spec_operand_elements(&s->operand[i]));
    for (int i = 0; i < s->n_inputs; i++)
      compare(&c, s->input[i].name, random, c.inputs[i], to.input[i], row_size(s, i));
    for (int i = VISIBLE * s->head_dim; i < KEYS * s->head_dim; i++) assert_true(to.k[i].value == 0);
  }
  return attends;
}

TEST(queries_agree_with_differences) {
  SCOPED arena *memory = arena_create();
  variant *variants;
  uint64_t random = 13;
  int count = variants_read(memory, SPECS_DIR, VARIANTS, NULL, &variants), checked = 0;
  for (int i = 0; i < count; i++) checked += check_query(&variants[i], &random);
  assert_true(checked >= 5);
}

TEST(scores_agree_with_differences) {
  static const char *const kinds[] = {"softcap", "squared", "learned", "turned", "tempered", "table"};
  uint64_t random = 15;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    loader_define kind = {"kind", kinds[i]};
    assert_true(check_query(&(variant){.name = kinds[i], .file = SCORES, .n_defines = 1, .define = {kind}}, &random));
  }
}

/* Keys that are not seen may hold anything, and a query that sees nothing gains nothing. */
TEST(unseen_keys_leave_no_trace) {
  uint64_t random = 14;
  SCOPED call c = {.memory = arena_create(), .name = "alibi"};
  c.spec = described(c.memory, "alibi");
  int d = c.spec->head_dim, width = c.spec->pairwise->value_dim;
  prepare(&c, &random);
  for (int i = 0; i < d; i++) c.k[VISIBLE * d + i] = NAN;
  for (int i = 0; i < width; i++) c.v[VISIBLE * width + i] = INFINITY;
  for (int visible = 0; visible <= VISIBLE; visible += VISIBLE) {
    gradient_sum q[SPEC_MAX_HEAD_DIM] = {{0, 0}};
    c.query.visible = visible;
    reference_attention_backward(c.spec, &c.query, c.g, c.g_lse, &(reference_query_gradients){.q = q});
    long double scores[KEYS], out[SPEC_MAX_HEAD_DIM];
    reference_attention(c.spec, &c.query, scores, out);
    for (int i = 0; i < width; i++) assert_true(visible ? isfinite(out[i]) && out[i] != 0 : out[i] == 0);
    for (int i = 0; i < d; i++) assert_true(visible ? isfinite(q[i].value) && q[i].value != 0 : q[i].value == 0);
  }
}

int main(void) { return run_listed(); }
