/* Programs of attention and of columns that widen rows, interpreted, against the reference: every stock spec that has
 * them, with its variants and with tokens that are skipped. Attention by its output, with grouped heads, all keys or
 * those up to the query; widened rows by their products, which are the scores, up to a constant a query where the plan
 * keeps none.
 */
#include "unit.h"

#include "forms/form.h"
#include "plan/widen.h"
#include "variants.h"
#include "verify/reference.h"
#include "verify/reference_attention.h"
#include "verify/trial_program.h"

#include <math.h>
#include <string.h>

enum { BATCHES = 2, TOKENS = 6, KEYS = 9, ANY_HEADS = 4, GROUP = 2, LEAST = 8 };
static const long double BOUND = 0x1p-38L;

typedef struct fixture {
  arena *memory;
  const spec *spec;
  uint64_t random;
  program_call call;
  trial_operands operands;
} fixture;

static double *fill(fixture *f, int64_t count, double reach) {
  double *values = arena_array(f->memory, double, count + 1);
  for (int64_t i = 0; i < count; i++) values[i] = random_uniform(&f->random, -reach, reach);
  return values;
}

static double *places(fixture *f, int64_t count) {
  const spec *s = f->spec;
  double *at = fill(f, count * s->n_axes, 4);
  for (int64_t i = 0; i < count * s->n_axes; i++) at[i] = rint(at[i]); /* masks have edges, tables are of whole steps */
  for (int64_t n = s->skip_tokens; n < count && s->grid[0]; n++) reference_grid(s, n, at + n * s->n_axes);
  return at;
}

/* NULL: the spec has no program of that entry. */
static const program *open_fixture(fixture *f, const variant *v, const loader_define *more, const char *entry) {
  loader_define define[VARIANT_MAX_DEFINES + 1];
  int n = v->n_defines;
  memcpy(define, v->define, sizeof v->define);
  if (more) define[n++] = *more;
  *f = (fixture){.memory = arena_create(), .random = 11};
  f->spec = loader_load(f->memory, v->file, DSL_DIR, n, define);
  assert_non_null(f->spec);
  const spec *s = f->spec;
  const program *p = trial_program(f->memory, s, entry);
  if (!p || (!s->polynomial && !s->pairwise)) {
    arena_destroy(f->memory);
    return NULL;
  }
  const char *fault = program_fault(f->memory, p);
  if (fault) fail_msg("%s: %s", v->name, fault);
  f->operands = trial_random_operands(f->memory, s, NUMBER_F32, &f->random);
  int64_t heads = s->heads > 1 ? s->heads : ANY_HEADS;
  f->call = (program_call){.tokens = TOKENS,
                           .batches = BATCHES,
                           .heads = {heads, heads % GROUP ? heads : heads / GROUP},
                           .keys = KEYS,
                           .scale = 0.3,
                           .operands = f->operands.values};
  f->call.positions = places(f, TOKENS);
  f->call.k_positions = places(f, KEYS);
  for (int i = 0; i < s->n_inputs; i++)
    f->call.inputs[i] = fill(f, BATCHES * heads * TOKENS * (s->input[i].size ? s->input[i].size : 1), 1);
  return p;
}

static void inputs_of(const fixture *f, int64_t row, const double **inputs) {
  for (int i = 0; i < f->spec->n_inputs; i++)
    inputs[i] = f->call.inputs[i] + row * (f->spec->input[i].size ? f->spec->input[i].size : 1);
}

/* ---- attention ---- */

static void attends(const variant *v, const loader_define *more, bool is_causal) {
  fixture f;
  const program *p = open_fixture(&f, v, more, "attention");
  if (!p) return;
  const spec *s = f.spec;
  int64_t heads = f.call.heads[0], k_heads = f.call.heads[1], width = s->pairwise->value_dim;
  const double *q = fill(&f, BATCHES * heads * TOKENS * s->head_dim, 1),
               *k = fill(&f, BATCHES * k_heads * KEYS * s->head_dim, 1),
               *values = fill(&f, BATCHES * k_heads * KEYS * width, 1);
  long double *out = arena_array(f.memory, long double, BATCHES * heads * TOKENS * width), scores[KEYS],
              *exact = arena_array(f.memory, long double, width);
  f.call.is_causal = is_causal;
  f.call.rows[0][0] = q, f.call.rows[1][0] = k, f.call.rows[2][0] = values, f.call.results[3][0] = out;
  program_interpret(p, &f.call);
  for (int64_t row = 0; row < BATCHES * heads * TOKENS; row++) {
    int64_t token = row % TOKENS, head = row / TOKENS % heads, batch = row / TOKENS / heads,
            of_keys = (batch * k_heads + head * k_heads / heads) * KEYS;
    const double *inputs[SPEC_MAX_INPUTS];
    inputs_of(&f, row, inputs);
    reference_query query = {.q = q + row * s->head_dim,
                             .position = f.call.positions + token * s->n_axes,
                             .token = token,
                             .index = token + KEYS - TOKENS,
                             .k = k + of_keys * s->head_dim,
                             .v = values + of_keys * width,
                             .positions = f.call.k_positions,
                             .keys = KEYS,
                             .visible = is_causal ? token + KEYS - TOKENS + 1 : KEYS,
                             .head = s->heads > 1 ? (int)head : 0,
                             .scale = f.call.scale,
                             .operands = f.operands.values,
                             .inputs = inputs};
    reference_attention(s, &query, scores, exact);
    for (int64_t c = 0; c < width; c++)
      if (!(fabsl(out[row * width + c] - exact[c]) <= BOUND))
        fail_msg("%s %s: row %d, channel %d: %.20Lg, not %.20Lg", v->name, more ? more->name : "", (int)row, (int)c,
                 out[row * width + c], exact[c]);
  }
  arena_destroy(f.memory);
}

/* ---- widened rows ---- */

static long double score(const long double *x, const long double *y, int from, int to) {
  long double sum = 0;
  for (int c = from; c < to; c++) sum += x[c] * y[c];
  return sum;
}

static void widens(const variant *v, const loader_define *more) {
  fixture f;
  const program *p = open_fixture(&f, v, more, "encode");
  if (!p) return;
  const spec *s = f.spec;
  long double *rows[2];
  int width = p->stream[1].channels;
  f.call.k_positions = NULL;
  f.call.keys = 0;
  for (int tensor = 0; tensor < 2; tensor++) {
    int64_t count = BATCHES * f.call.heads[tensor] * TOKENS;
    f.call.rows[0][tensor] = fill(&f, count * s->head_dim, 1);
    f.call.results[1][tensor] = rows[tensor] = arena_array(f.memory, long double, count *width);
  }
  program_interpret(p, &f.call);
  for (int64_t row = 0; row < BATCHES * f.call.heads[0] * TOKENS; row++) {
    int64_t i = row % TOKENS, head = row / TOKENS % f.call.heads[0], batch = row / TOKENS / f.call.heads[0],
            keys = (batch * f.call.heads[1] + head * f.call.heads[1] / f.call.heads[0]) * TOKENS;
    const double *inputs[SPEC_MAX_INPUTS];
    long double shift = 0, largest = 1;
    inputs_of(&f, row, inputs);
    for (int64_t j = s->skip_tokens; j < TOKENS; j++) {
      const long double *q = rows[0] + row * width, *k = rows[1] + (keys + j) * width;
      double delta[SPEC_MAX_AXES];
      for (int a = 0; a < s->n_axes; a++)
        delta[a] = f.call.positions[j * s->n_axes + a] - f.call.positions[i * s->n_axes + a];
      long double bias =
          i < s->skip_tokens ? 0 : reference_bias(s, delta, f.operands.values, inputs, s->heads > 1 ? (int)head : 0);
      long double off = score(q, k, s->head_dim, width) - bias;
      largest = fmaxl(largest, fabsl(bias));
      if (j == s->skip_tokens && !plan_widen_keeps_constant(s)) shift = off;
      if (!(fabsl(off - shift) <= BOUND * largest))
        fail_msg("%s %s: row %d, key %d: %.20Lg, not %.20Lg", v->name, more ? more->name : "", (int)row, (int)j,
                 off + bias, bias + shift);
    }
    for (int c = 0; c < s->head_dim; c++)
      assert_true(rows[0][row * width + c] == f.call.rows[0][0][row * s->head_dim + c]);
  }
  arena_destroy(f.memory);
}

static void reference(void **state) {
  static const loader_define skip = {"skip_tokens", "2"}, fused = {"role", "pairwise"};
  attends(*state, NULL, false);
  attends(*state, NULL, true);
  attends(*state, &skip, false);
  widens(*state, NULL);
  widens(*state, &skip);
  fixture f;
  if (!open_fixture(&f, *state, NULL, "encode")) return;
  arena_destroy(f.memory);
  attends(*state, &fused, true); /* the same bias inside attention */
}

/* Scores that are functions of the product. */
static void of_products(void **state) {
  (void)state;
  static const char *const kinds[] = {"prefix", "learned", "turned", "table"};
  variant v = {.name = "scores", .file = SCORES};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) attends(&v, &(loader_define){"kind", kinds[i]}, i % 2);
}

int main(void) {
  arena *a = arena_create();
  variant *variants;
  int count = variants_read(a, SPECS_DIR, VARIANTS, NULL, &variants), n = 0;
  struct CMUnitTest *tests = arena_array(a, struct CMUnitTest, count + 1);
  for (int i = 0; i < count; i++) {
    fixture f;
    bool has = open_fixture(&f, &variants[i], NULL, "encode");
    if (has) arena_destroy(f.memory);
    if (!has && open_fixture(&f, &variants[i], NULL, "attention")) {
      has = true;
      arena_destroy(f.memory);
    }
    if (has) tests[n++] = (struct CMUnitTest){variants[i].name, reference, NULL, NULL, &variants[i]};
  }
  tests[n] = (struct CMUnitTest)cmocka_unit_test(of_products);
  int failed = _cmocka_run_group_tests("scores", tests, (size_t)n + 1, NULL, NULL);
  if (n < LEAST) { /* a form that loses its programs is a failure here */
    print_error("%d specs have a program\n", n);
    failed++;
  }
  arena_destroy(a);
  return failed;
}
