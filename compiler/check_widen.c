/* check_widen: the table for descriptions that widen; see check_widen.h. */
#include "check_widen.h"

#include "diag.h"
#include "trial_widen.h"

#include <math.h>
#include <stdio.h>

enum { BATCH = 2, ANY_HEADS = 4, ANY_K_HEADS = 2, TOKENS = 21, PARTS = 5, GRID_MOST = 256 };

typedef struct checker {
  arena *memory;
  const spec *spec;
  const pegen_kernel *kernel;
  widen_shape shape;
  const double *positions; /* NULL: a grid */
  uint64_t random;
  bool failed;
} checker;

static void choose_tokens(checker *c) {
  const spec *s = c->spec;
  c->shape = (widen_shape){BATCH, s->heads > 1 ? s->heads : ANY_HEADS, s->heads > 1 && s->heads % 2 ? s->heads : ANY_K_HEADS, TOKENS, TOKENS};
  if (s->heads > 1 && s->heads % 2 == 0) c->shape.k_heads = s->heads / 2;
  c->shape.tokens += s->skip_tokens;
  if (s->grid[0]) {
    c->shape.tokens = 1;
    for (int axis = 0; axis < s->n_axes; axis++) c->shape.tokens *= s->grid[axis];
    c->shape.tokens += s->skip_tokens;
  } else {
    double *values = arena_array(c->memory, double, c->shape.tokens * s->n_axes);
    for (int64_t i = 0; i < c->shape.tokens * s->n_axes; i++)
      values[i] = s->polynomial->origin[i % s->n_axes] + (i & 1 ? random_uniform(&c->random, -7, 7) : rint(random_uniform(&c->random, -7, 7)));
    c->positions = values;
  }
  c->shape.k_tokens = c->shape.tokens;
}

static const char *as_power(arena *a, long double value) { return value == 0 ? "0" : arena_printf(a, "2^%.1Lf", log2l(value)); }

static void report(checker *c, const char *type, const char *what, long double bound, const trial_error *e) {
  bool pass = !e->spoilt && e->error <= bound;
  printf("  %-5s %-44s %9s  <= %-7s %s\n", type, what, as_power(c->memory, e->error), as_power(c->memory, bound), pass ? "pass" : "FAIL");
  if (!pass) printf("        batch %lld head %lld query %lld: %g against %Lg%s\n", (long long)e->batch, (long long)e->head, (long long)e->token, e->got, e->exact,
                    e->spoilt ? " (not finite, or a channel that is moved was changed)" : "");
  c->failed = c->failed || !pass;
}

static void report_bits(checker *c, const char *type, const char *what, bool same) {
  printf("  %-5s %-44s %9s     %-7s %s\n", type, what, same ? "same bits" : "differs", "", same ? "pass" : "FAIL");
  c->failed = c->failed || !same;
}

static bool called(checker *c, const char *type, const char *what, int error) {
  if (error == 0) return true;
  printf("  %-5s %-44s refused: %s FAIL\n", type, what, pegen_strerror(error));
  c->failed = true;
  return false;
}

static void check_type(checker *c, number_type type, number_type input_type) {
  arena *a = c->memory;
  const char *name = number_type_info(type)->name;
  widen_trial t = widen_trial_create(a, c->spec, c->kernel, type, input_type, ROWS_BNHD, &c->shape, c->positions, NULL, &c->random);
  const char *what = type == input_type ? "scores" : "scores, inputs of f32";
  if (!called(c, name, what, widen_trial_call(c->kernel, &t, t.q_out, t.k_out, 3, 1))) return;
  trial_error worst = {0};
  widen_trial_compare(&t, t.q_out, t.k_out, &worst);
  report(c, name, what, widen_trial_bound(c->spec, type), &worst);

  DLTensor *q_out = tensor_copy(a, t.q_out), *k_out = tensor_copy(a, t.k_out);
  if (called(c, name, "parts", widen_trial_call(c->kernel, &t, q_out, k_out, 3, PARTS)))
    report_bits(c, name, "in 5 parts and in one", tensor_identical(q_out, t.q_out) && tensor_identical(k_out, t.k_out));
  for (int order = 0; order < ROW_ORDER_COUNT; order++) {
    DLTensor *q_other = tensor_rows(a, type, (row_order)order, t.q->shape[0], t.q->shape[1], t.q->shape[2], t.q_out->shape[3]);
    DLTensor *k_other = tensor_rows(a, type, (row_order)order, t.k->shape[0], t.k->shape[1], t.k->shape[2], t.k_out->shape[3]);
    widen_trial other = t;
    other.q = tensor_rows(a, type, (row_order)order, t.q->shape[0], t.q->shape[1], t.q->shape[2], t.q->shape[3]);
    for (int64_t b = 0; b < t.q->shape[0]; b++)
      for (int64_t h = 0; h < t.q->shape[1]; h++)
        for (int64_t n = 0; n < t.q->shape[2]; n++)
          for (int64_t d = 0; d < t.q->shape[3]; d++) number_store(type, tensor_at(other.q, b, h, n, d), number_load(type, tensor_at(t.q, b, h, n, d)));
    int error = widen_trial_call(c->kernel, &other, q_other, NULL, 1, 1);
    if (!error) error = widen_trial_call(c->kernel, &other, NULL, k_other, 2, 2);
    if (!called(c, name, "memory orders", error)) return;
    if (!tensor_identical(q_other, t.q_out) || !tensor_identical(k_other, t.k_out)) {
      report_bits(c, name, "other strides, q and k apart", false);
      return;
    }
  }
  report_bits(c, name, "other strides, q and k apart", true);
}

static bool check_target(checker *c, const check_options *options, const char *target) {
  loaded_kernel *loaded = trial_load(c->memory, c->spec, target, options->dtypes, options->optimize);
  if (!loaded) return false;
  c->kernel = run_kernel(loaded);
  printf("%s, target %s\n", c->spec->name, target);
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++) {
    if (!(c->kernel->dtypes & number_type_info((number_type)type)->dtype)) continue;
    check_type(c, (number_type)type, (number_type)type);
    if (type != NUMBER_F32 && c->spec->n_inputs > 0) check_type(c, (number_type)type, NUMBER_F32);
  }
  run_unload(loaded);
  return true;
}

int check_widen(arena *a, const spec *s, const check_options *options) {
  checker c = {.memory = a, .spec = s, .random = options->seed ? options->seed : 20260101};
  const char **targets;
  int count = trial_targets(a, options->targets, &targets);
  if (count == 0) {
    diag_error(s->file, 0, "this machine runs none of the targets '%s'", options->targets ? options->targets : "");
    return 1;
  }
  printf("%s: seed %llu; errors of scores are relative to the largest of the query\n", s->name, (unsigned long long)c.random);
  choose_tokens(&c);
  for (int i = 0; i < count; i++)
    if (!check_target(&c, options, targets[i])) return 1;
  printf("%s: %s\n", s->name, c.failed ? "FAIL" : "pass");
  return c.failed ? 1 : 0;
}
