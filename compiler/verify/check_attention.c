/* verify/check_attention: outputs of attention against the reference; see verify/check_kind.h. */
#include "verify/check_kind.h"

#include "base/diag.h"
#include "verify/kinks.h"
#include "verify/trial_attention.h"

static const long double OUTPUT_BOUND = 0x1p-18L, COLUMNS_LSE_BOUND = 0x1p-15L;
/* Phases of rotations are as exact there as near 0, whether pairs are rotated or rows. */
static const double FAR_AWAY = 0x1p20;
enum { TOKENS = 37, KEYS = 85, ANY_HEADS = 4, K_HEADS = 2, PAIRS_SEEN = 20000 };

/* Whole numbers of a window as large as the bias' tables are likely to be, or real ones. */
static const DLTensor *random_positions(checker *c, int64_t tokens, bool whole, double from) {
  int axes = c->spec->n_axes;
  double *values = arena_array(c->memory, double, tokens *axes);
  for (int64_t i = 0; i < tokens * axes; i++)
    values[i] = from + (whole ? random_below(&c->random, 32) : random_uniform(&c->random, -16, 16));
  return tensor_contiguous(c->memory, NUMBER_F64, 2, (int64_t[]){tokens, axes}, values);
}

/* The first pair for which rounding decides on which side of a step its bias is; false: there is none. */
static bool find_rounded(const checker *c, const attention_trial *t, double *delta) {
  const spec *s = c->spec;
  const double *from = t->positions->data, *to = t->k_positions->data;
  for (int64_t pair = 0; s->pairwise->bias && !s->n_inputs && pair < t->q->shape[2] * t->k->shape[2]; pair++) {
    for (int axis = 0; axis < s->n_axes; axis++)
      delta[axis] = to[pair % t->k->shape[2] * s->n_axes + axis] - from[pair / t->k->shape[2] * s->n_axes + axis];
    expr_environment env = {.blocks = expr_pool_blocks(s->pool), .positions = delta, .operands = t->operands.values};
    if (kinks_are_rounded(s, expr_unrolled(s->pool, s->pairwise->bias), &env)) return true;
  }
  return false;
}

/* Whole positions, whose displacements are exact, or such as no step of the bias is near. */
static void choose_positions(checker *c, attention_trial *t, const attention_sizes *sizes, bool whole, double from) {
  enum { TRIES = 16 };
  const spec *s = c->spec;
  double delta[SPEC_MAX_AXES];
  for (int i = 0; i < TRIES; i++, whole = false) {
    t->positions = random_positions(c, sizes->tokens, whole, from);
    t->k_positions = random_positions(c, sizes->keys, whole, from);
    if (!find_rounded(c, t, delta)) return;
    if (whole && !t->causal)
      diag_warning(s->file, s->line,
                   "rounding decides on which side of a step of the bias the displacement %g%s is; "
                   "its kernels are checked at positions that are not whole",
                   delta[0], s->n_axes > 1 ? ", ..." : "");
  }
}

static attention_trial make_trial(checker *c, number_type type, number_type input_type, bool causal) {
  const spec *s = c->spec;
  attention_trial t = {.spec = s, .causal = causal};
  int64_t shared_by = s->heads % 2 ? 1 : 2; /* heads that differ may share keys, too */
  attention_sizes sizes = {1, s->heads > 1 ? s->heads : ANY_HEADS, s->heads > 1 ? s->heads / shared_by : K_HEADS,
                           TOKENS + s->skip_tokens, KEYS + s->skip_tokens};
  if (s->grid[0]) sizes.tokens = sizes.keys = spec_grid_tokens(s);
  attention_trial_fill(c->memory, &t, &sizes, type, ROWS_BHND, &c->random);
  t.operands = trial_random_operands(c->memory, s, NUMBER_F32, &c->random);
  if (input_type != type) t.inputs = trial_pair_inputs(c->memory, s, input_type, t.q->shape, sizes.keys, &c->random);
  if (!s->grid[0] && (s->pairwise->bias || s->pairwise->score || s->pairwise->rotates || s->polynomial)) {
    bool whole = !s->polynomial || s->pairwise->score; /* masks have edges, on which only whole numbers stand exactly */
    double from = causal && s->pairwise->rotates ? FAR_AWAY : 0;
    choose_positions(c, &t, &sizes, whole, from);
  }
  return t;
}

static int64_t step_of(const attention_trial *t) {
  /* A rotation of a pair is exponentiated block by block, a polynomial summed term by term: dear. */
  int64_t pairs = t->q->shape[1] * t->q->shape[2] * t->k->shape[2],
          blocks = t->spec->pairwise->rotates || t->spec->polynomial ? t->spec->n_blocks : 1;
  return (pairs * blocks / PAIRS_SEEN) | 1;
}

/* A call that is asked for the log-sum-exp, too. */
static void check_lse(checker *c, const attention_trial *without, const DLTensor *out, const char *name,
                      const char *what) {
  attention_trial t = *without;
  t.lse = attention_trial_lse(c->memory, &t);
  DLTensor *again = attention_trial_out(c->memory, &t, ROWS_BHND);
  int error = attention_trial_call(c->kernel, &t, again, CHECK_PARTS);
  if (!check_called(c, name, what, error)) return;
  trial_error worst = {0};
  attention_trial_compare_lse(c->memory, c->kernel, &t, step_of(&t), &worst);
  check_report(c, name, what, t.spec->polynomial ? COLUMNS_LSE_BOUND : OUTPUT_BOUND, &worst);
  check_report_bits(c, name, "outputs beside log-sum-exp", tensor_identical(out, again));
}

/* A call with a workspace, where that is another way. */
static void check_split(checker *c, const attention_trial *without, const char *name, const char *kind) {
  attention_trial t = *without;
  t.splits = true;
  DLTensor *out = attention_trial_out(c->memory, &t, ROWS_BHND);
  pegen_args args = attention_trial_args(c->kernel, &t, out);
  if (!c->kernel->attention_workspace || !c->kernel->attention_workspace(&args)) return;
  const char *what = arena_printf(c->memory, "outputs with a workspace%s", kind);
  if (!check_called(c, name, what, attention_trial_call(c->kernel, &t, out, 1))) return;
  trial_error worst = {0};
  attention_trial_compare(c->memory, c->kernel, &t, out, step_of(&t), &worst);
  check_report(c, name, what, OUTPUT_BOUND, &worst);
  check_lse(c, &t, out, name, arena_printf(c->memory, "log-sum-exp with a workspace%s", kind));
}

static void check_outputs(checker *c, number_type type, number_type input_type, bool causal) {
  arena *a = c->memory;
  const char *name = number_type_info(type)->name;
  const char *kind = arena_printf(a, "%s%s", causal ? ", causal" : "", type == input_type ? "" : ", inputs of f32"),
             *what = arena_printf(a, "outputs%s", kind);
  attention_trial t = make_trial(c, type, input_type, causal);
  DLTensor *out = attention_trial_out(a, &t, ROWS_BHND), *again = attention_trial_out(a, &t, ROWS_BNHD);
  if (!check_called(c, name, what, attention_trial_call(c->kernel, &t, out, 1))) return;
  trial_error worst = {0};
  attention_trial_compare(a, c->kernel, &t, out, step_of(&t), &worst);
  check_report(c, name, what, OUTPUT_BOUND, &worst);
  if (!check_called(c, name, "parts", attention_trial_call(c->kernel, &t, again, CHECK_PARTS))) return;
  check_report_bits(c, name, "in 3 parts, other strides", tensor_identical(out, again));
  check_lse(c, &t, out, name, arena_printf(a, "log-sum-exp%s", kind));
  check_split(c, &t, name, kind);
  /* The reference makes a query's scores three times there. */
  check_attention_backward(c, &t, name, arena_printf(a, "gradients of rows%s", kind),
                           t.spec->pairwise->rotates ? 3 * step_of(&t) : step_of(&t));
}

static void check_type(checker *c, number_type type) {
  for (int causal = 0; causal < 2; causal++) {
    check_outputs(c, type, type, causal);
    if (type != NUMBER_F32 && c->spec->n_inputs > 0 && c->spec->polynomial) check_outputs(c, type, NUMBER_F32, causal);
  }
}

static void run(checker *c) { check_each_type(c, check_type); }

static const char *units(const spec *s) {
  (void)s;
  return "are relative to the row's largest score (1 at least) times the largest value";
}

const check_kind check_attention = {.units = units, .run = run};
