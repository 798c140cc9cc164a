/* The reference's gradients against differences of the reference's rows, for every description that encodes: of all
 * numbers of the call at once along random directions, and of single ones.
 */
#include "difference.h"
#include "forms/form.h"
#include "scoped.h"
#include "test.h"
#include "variants.h"
#include "verify/reference.h"
#include "verify/reference_gradient.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BATCHES = 2, TOKENS = 3, ANY_HEADS = 2 };

typedef struct call {
  arena *memory;
  const char *name;
  const spec *spec;
  reference_backward args;
  double *positions, **operands, *x[2], *g[2];
  int64_t rows[2]; /* numbers */
} call;

static reference_rows *tensor(call *c, int which) { return which ? &c->args.k : &c->args.q; }

/* sum of g y over all rows, by the reference's rows. */
static long double loss(void *of) {
  call *c = of;
  const spec *s = c->spec;
  long double sum = 0, y[SPEC_MAX_HEAD_DIM];
  double grid[SPEC_MAX_AXES];
  for (int t = 0; t < 2; t++)
    for (int64_t b = 0; b < BATCHES; b++)
      for (int64_t h = 0; h < tensor(c, t)->heads; h++)
        for (int64_t n = 0; n < TOKENS; n++) {
          int64_t at = ((b * tensor(c, t)->heads + h) * TOKENS + n) * s->head_dim;
          const double *positions = grid;
          if (c->args.positions)
            positions = c->positions + ((c->args.position_sets > 1 ? b : 0) * TOKENS + n) * s->n_axes;
          else reference_grid(s, n, grid);
          int head = s->heads > 1 ? (int)h : 0;
          bool is_turned = n >= s->skip_tokens;
          for (int i = 0; i < s->head_dim; i++) y[i] = c->x[t][at + i];
          if (s->additive)
            for (int i = 0; i < s->head_dim && is_turned; i++)
              y[i] += reference_sum(s, positions, c->args.operands, head, i);
          else if (is_turned) reference_row(s, positions, c->args.operands, head, c->x[t] + at, y);
          for (int i = 0; i < s->head_dim; i++) sum += c->g[t][at + i] * y[i];
        }
  return sum;
}

static void compare(call *c, const char *what, uint64_t *random, double *numbers, const gradient_sum *gradient,
                    int64_t count, bool is_row) {
  double *direction = arena_array(c->memory, double, count + 1);
  for (int trial = 0; trial < 2 && count > 0; trial++) { /* the last: one number alone */
    int64_t one = trial == 0 ? -1 : random_below(random, (int)count);
    long double got = 0, size = 0;
    for (int64_t k = 0; k < count; k++) {
      direction[k] = one < 0 ? random_below(random, 9) / 4.0 - 1 : k == one;
      got += gradient[k].value * direction[k];
      size += gradient[k].size * fabs(direction[k]);
    }
    long double exact = difference_along(c->memory, loss, c, numbers, direction, count);
    /* A row's is not the size of a sum. */
    bool near = fabsl(got - exact) <= 1e-9L * (fabsl(exact) + 1) && (is_row || fabsl(got) <= size * (1 + 1e-12L));
    if (!near) print_error("%s, %s: %.12Lg, should be %.12Lg\n", c->name, what, got, exact);
    assert_true(near);
  }
}

static double *random_numbers(arena *a, int64_t count, uint64_t *random) {
  double *values = arena_array(a, double, count + 1);
  for (int64_t i = 0; i < count; i++) values[i] = (float)random_uniform(random, -1, 1);
  return values;
}

static void prepare(call *c, bool is_shared, uint64_t *random) {
  const spec *s = c->spec;
  arena *a = c->memory;
  trial_operands operands = trial_random_operands(a, s, NUMBER_F32, random);
  c->operands = arena_array(a, double *, s->n_operands + 1);
  for (int i = 0; i < s->n_operands; i++) {
    int64_t size = spec_operand_elements(&s->operand[i]);
    c->operands[i] = memcpy(arena_array(a, double, size + 1), operands.values[i], sizeof(double) * (size_t)size);
  }
  int sets = is_shared || s->grid[0] ? 1 : BATCHES;
  c->positions = random_numbers(a, sets * TOKENS * s->n_axes, random);
  for (int axis = 0; axis < s->n_axes; axis++) c->positions[(s->skip_tokens % TOKENS) * s->n_axes + axis] = 0;
  c->args = (reference_backward){.batches = BATCHES,
                                 .tokens = TOKENS,
                                 .position_sets = sets,
                                 .positions = s->grid[0] ? NULL : c->positions,
                                 .operands = (const double *const *)c->operands,
                                 .operand = reference_operand_sums(a, s),
                                 .position = arena_array(a, gradient_sum, sets * TOKENS * s->n_axes)};
  for (int t = 0; t < 2; t++) {
    reference_rows *rows = tensor(c, t);
    rows->heads = s->heads > 1 ? s->heads : ANY_HEADS - t;
    c->rows[t] = BATCHES * rows->heads * TOKENS * s->head_dim;
    rows->x = c->x[t] = random_numbers(a, c->rows[t], random);
    rows->g = c->g[t] = random_numbers(a, c->rows[t], random);
    rows->gradient = arena_array(a, gradient_sum, c->rows[t]);
  }
}

static bool check_call(const variant *v, bool inverse, bool is_shared, uint64_t *random) {
  loader_define define[VARIANT_MAX_DEFINES + 2];
  memcpy(define, v->define, sizeof v->define);
  define[v->n_defines] = (loader_define){"inverse", "true"};
  define[v->n_defines + 1] = (loader_define){"skip_tokens", "1"};
  SCOPED call c = {.memory = arena_create(), .name = v->name};
  c.spec = loader_load(c.memory, v->file, DSL_DIR, v->n_defines + 2 * inverse, define);
  assert_non_null(c.spec);
  if (inverse && c.spec->basis) /* which is skipped tokens', too */
    c.spec = loader_load(c.memory, v->file, DSL_DIR, v->n_defines + 1, define);
  const spec *s = c.spec;
  bool encodes = !s->pairwise && !s->polynomial && !(s->dense && s->dense->map == DENSE_SCHUR) && s->n_components <= 16;
  if (encodes) {
    prepare(&c, is_shared, random);
    reference_encode_backward(s, &c.args);
    for (int i = 0; i < s->n_operands; i++)
      compare(&c, s->operand[i].name, random, c.operands[i], c.args.operand[i], spec_operand_elements(&s->operand[i]),
              false);
    if (c.args.positions)
      compare(&c, "positions", random, c.positions, c.args.position, c.args.position_sets * TOKENS * s->n_axes, false);
    for (int t = 0; t < 2; t++) compare(&c, t ? "k" : "q", random, c.x[t], tensor(&c, t)->gradient, c.rows[t], true);
  }
  return encodes;
}

TEST(rows_agree_with_differences) {
  SCOPED arena *memory = arena_create();
  variant *variants;
  uint64_t random = 12;
  int count = variants_read(memory, SPECS_DIR, VARIANTS, NULL, &variants), checked = 0;
  for (int i = 0; i < count; i++)
    if (check_call(&variants[i], false, true, &random)) {
      check_call(&variants[i], true, false, &random);
      checked++;
    }
  assert_true(checked >= 14);
}

int main(void) { return run_listed(); }
