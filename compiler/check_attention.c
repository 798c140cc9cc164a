/* check_attention: `pegen check` of attention: outputs against the reference; see check.h. */
#include "check_attention.h"

#include "diag.h"
#include "trial_attention.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const uint64_t DEFAULT_SEED = 20260101;
static const long double OUTPUT_BOUND = 0x1p-18L;
enum { TOKENS = 37, KEYS = 85, ANY_HEADS = 4, K_HEADS = 2, PARTS = 3, PAIRS_SEEN = 20000 };

typedef struct checker {
  arena *memory;
  const spec *spec;
  const pegen_kernel *kernel;
  uint64_t random;
  bool failed;
} checker;

static const char *as_power(arena *a, long double value) { return value == 0 ? "0" : arena_printf(a, "2^%.1Lf", log2l(value)); }

static void report(checker *c, const char *type, const char *what, const trial_error *e) {
  bool pass = !e->spoilt && e->error <= OUTPUT_BOUND;
  printf("  %-5s %-44s %9s  <= %-7s %s\n", type, what, as_power(c->memory, e->error), as_power(c->memory, OUTPUT_BOUND), pass ? "pass" : "FAIL");
  if (!pass) printf("        %s\n", trial_error_text(c->memory, e));
  c->failed = c->failed || !pass;
}

static void report_bits(checker *c, const char *type, const char *what, bool same) {
  printf("  %-5s %-44s %9s     %-7s %s\n", type, what, same ? "same bits" : "differs", "", same ? "pass" : "FAIL");
  c->failed = c->failed || !same;
}

static bool called(checker *c, const char *type, const char *what, int error) {
  if (error == 0) return true;
  printf("  %-5s %-44s refused: error %d FAIL\n", type, what, error);
  c->failed = true;
  return false;
}

/* Whole numbers of a window as large as the bias' tables are likely to be, or real ones. */
static const DLTensor *random_positions(checker *c, int64_t tokens, bool whole) {
  int axes = c->spec->n_axes;
  double *values = arena_array(c->memory, double, tokens * axes);
  for (int64_t i = 0; i < tokens * axes; i++) values[i] = whole ? random_below(&c->random, 32) : random_uniform(&c->random, -16, 16);
  return tensor_contiguous(c->memory, NUMBER_F64, 2, (int64_t[]){tokens, axes}, values);
}

static int64_t grid_tokens(const spec *s) {
  int64_t tokens = 1;
  for (int axis = 0; axis < s->n_axes; axis++) tokens *= s->grid[axis];
  return tokens + s->skip_tokens;
}

static attention_trial make_trial(checker *c, number_type type, bool causal) {
  const spec *s = c->spec;
  attention_trial t = {.spec = s, .causal = causal};
  attention_sizes sizes = {1, s->heads > 1 ? s->heads : ANY_HEADS, s->heads > 1 ? s->heads : K_HEADS, TOKENS + s->skip_tokens, KEYS + s->skip_tokens};
  if (s->grid[0]) sizes.tokens = sizes.keys = grid_tokens(s);
  attention_trial_fill(c->memory, &t, &sizes, type, ROWS_BHND, &c->random);
  if (!s->grid[0] && (s->pairwise->bias || s->pairwise->rotates)) {
    /* Masks have edges, on which only whole numbers stand exactly. */
    t.positions = random_positions(c, sizes.tokens, true);
    t.k_positions = random_positions(c, sizes.keys, true);
  }
  t.operands = trial_random_operands(c->memory, s, NUMBER_F32, &c->random);
  return t;
}

static int64_t step_of(const attention_trial *t) {
  /* A rotation of a pair is exponentiated block by block: dear. */
  int64_t pairs = t->q->shape[1] * t->q->shape[2] * t->k->shape[2], blocks = t->spec->pairwise->rotates ? t->spec->n_blocks : 1;
  return (pairs * blocks / PAIRS_SEEN) | 1;
}

static void check_type(checker *c, number_type type, bool causal) {
  arena *a = c->memory;
  const char *name = number_type_info(type)->name;
  const char *what = causal ? "outputs, causal" : "outputs";
  attention_trial t = make_trial(c, type, causal);
  DLTensor *out = attention_trial_out(a, &t, ROWS_BHND), *again = attention_trial_out(a, &t, ROWS_BNHD);
  if (!called(c, name, what, attention_trial_call(c->kernel, &t, out, 1))) return;
  trial_error worst = {0};
  attention_trial_compare(a, &t, out, step_of(&t), &worst);
  report(c, name, what, &worst);
  if (!called(c, name, "parts", attention_trial_call(c->kernel, &t, again, PARTS))) return;
  report_bits(c, name, "in 3 parts, other strides", tensor_identical(out, again));
}

static bool check_target(checker *c, const check_options *options, const char *target) {
  loaded_kernel *loaded = trial_load(c->memory, c->spec, target, options->dtypes, options->optimize);
  if (!loaded) return false;
  c->kernel = run_kernel(loaded);
  printf("%s, target %s\n", c->spec->name, target);
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++)
    if (c->kernel->dtypes & number_type_info((number_type)type)->dtype)
      for (int causal = 0; causal < 2; causal++) check_type(c, (number_type)type, causal);
  run_unload(loaded);
  return true;
}

int check_attention(arena *a, const spec *s, const check_options *options) {
  checker c = {.memory = a, .spec = s, .random = options->seed ? options->seed : DEFAULT_SEED};
  const char **targets;
  int count = trial_targets(a, options->targets, &targets);
  if (count == 0) {
    diag_error(s->file, 0, "this machine runs none of the targets '%s'", options->targets ? options->targets : "");
    return 1;
  }
  printf("%s: seed %llu; errors are relative to the row's largest score (1 at least) times the largest value\n", s->name, (unsigned long long)c.random);
  for (int i = 0; i < count; i++)
    if (!check_target(&c, options, targets[i])) return 1;
  printf("%s: %s\n", s->name, c.failed ? "FAIL" : "pass");
  return c.failed ? 1 : 0;
}
