/* far_test [TARGET]: tokens that are near each other and far from the others: a class token in front of time stamps,
 * documents by their numbers. Displacements are as exact there as near 0, of every type of positions, forward and back.
 *
 * Scores are as large as the largest distance, so that errors are compared with 1, not with them. */
#include "fixture.h"
#include "scoped.h"
#include "test.h"
#include "verify/trial_attention_backward.h"

#include <math.h>
#include <string.h>

enum { TOKENS = 70, KEYS = 90, HEADS = 2 };
static const double OUTPUT_BOUND = 0x1p-13, GRADIENT_BOUND = 0x1p-12;

static const char *wanted; /* NULL: all that this machine runs */

/* ---- where tokens are ---- */

static double events(int i) { return i ? 1767225600.0 + 7 * i : 0; }
static double behind(int i) { return i % 30 == 29 ? 0 : 1767225600.0 + 3 * i; }
static double film(int i) { return i ? 18000000.0 + 40 * i : 0; }
static double numbers(int i) { return (double[]){5, 0x1p25, 0x1p25 + 1, 6}[i % 4]; }
static double extents(int i) { return (double[]){5, 0x1p52, 0x1p52 + 1, 0x1p53 - 1, 6, -0x1p51}[i % 6]; }
static double fractions(int i) { return i % 20 ? 0x1p30 + 0.37 * i : 0.3 * i; }
static double clouds(int i) { return 1000 * sin(i * 0.7); }

static const struct {
  const char *name;
  double (*at)(int);
  bool is_whole;
} patterns[] = {{"events", events, true},   {"class token behind", behind, true}, {"film", film, true},
                {"numbers", numbers, true}, {"extents", extents, true},           {"fractions", fractions, false},
                {"clouds", clouds, false}};
enum { PATTERNS = sizeof patterns / sizeof *patterns };

static const DLTensor *positions_of(arena *a, int pattern, number_type type, int count) {
  double *values = arena_array(a, double, count);
  for (int i = 0; i < count; i++) values[i] = patterns[pattern].at(i);
  return tensor_contiguous(a, type, 2, (int64_t[]){count, 1}, values);
}

/* ---- a call against the reference ---- */

typedef struct comparison {
  const attention_trial *trial;
  const DLTensor *out;
  double worst;
} comparison;

static void compare_query(void *context, const reference_query *query, int64_t b, int64_t h) {
  comparison *c = context;
  long double scores[KEYS], exact[SPEC_MAX_HEAD_DIM];
  reference_attention(c->trial->spec, query, scores, exact);
  for (int i = 0; i < c->trial->spec->pairwise->value_dim; i++) {
    double error = fabs(number_load(NUMBER_F32, tensor_at(c->out, b, h, query->token, i)) - (double)exact[i]);
    if (!(error <= c->worst)) c->worst = error;
  }
}

static void compare(const fixture *f, const attention_trial *t, const DLTensor *out, const char *what) {
  comparison c = {t, out, 0};
  attention_trial_queries(f->memory, t, 1, compare_query, &c);
  if (!(c.worst <= OUTPUT_BOUND)) fail_msg("%s: off by %g", what, c.worst);
}

static void compare_gradients(arena *a, const attention_gradients *g, const char *what) {
  static const char *const names[] = {"q", "k", "v", "operands", "positions"};
  attention_answer exact = attention_gradients_answer(a, g, 1);
  trial_error worst[5];
  memset(worst, 0, sizeof worst);
  exact.score = 1;
  attention_gradients_compare(g->q, exact.q, 1, &worst[0]);
  attention_gradients_compare(g->k, exact.k, 1, &worst[1]);
  attention_gradients_compare(g->v, exact.v, 1, &worst[2]);
  if (g->operands) attention_gradients_compare_operands(g, &exact, &worst[3]);
  attention_gradients_compare_positions(g, &exact, &worst[4]);
  for (int i = 0; i < 5; i++)
    if (worst[i].spoilt || !(worst[i].error <= GRADIENT_BOUND))
      fail_msg("%s, gradients of %s: %s", what, names[i], trial_error_text(a, &worst[i]));
}

static attention_trial trial_of(fixture *f, int tokens, int keys) {
  attention_trial t = {.spec = f->spec};
  attention_trial_fill(f->memory, &t, &(attention_sizes){1, HEADS, 1, tokens, keys}, NUMBER_F32, ROWS_BHND, &f->random);
  t.operands = trial_random_operands(f->memory, f->spec, NUMBER_F32, &f->random);
  return t;
}

static void call_backward(fixture *f, const loaded_kernel *loaded, const attention_trial *t, bool moves,
                          const char *what) {
  const pegen_kernel *kernel = run_kernel(loaded);
  attention_gradients g;
  assert_int_equal(attention_gradients_fill(f->memory, &g, t, kernel, false, 1, ROWS_BHND, &f->random), 0);
  if (moves) attention_gradients_of_positions(f->memory, &g, NUMBER_F64);
  assert_int_equal(attention_gradients_call(kernel, &g, 2), 0);
  compare_gradients(f->memory, &g, what);
}

/* Many queries, and few, which processors serve by other functions. */
static void call_pattern(fixture *f, const loaded_kernel *loaded, int pattern, number_type type, bool moves,
                         const char *what) {
  static const int counts[] = {TOKENS, 3};
  for (int i = 0; i < 2; i++) {
    attention_trial t = trial_of(f, counts[i], KEYS);
    t.positions = positions_of(f->memory, pattern, type, counts[i]);
    t.k_positions = positions_of(f->memory, pattern, type, KEYS);
    DLTensor *out = attention_trial_out(f->memory, &t, ROWS_BHND);
    assert_int_equal(attention_trial_call(run_kernel(loaded), &t, out, 3), 0);
    compare(f, &t, out, what);
    if (i == 0) call_backward(f, loaded, &t, moves, what);
  }
}

TEST(displacements_are_exact) {
  static const struct {
    const char *name;
    bool moves; /* positions have gradients */
  } kinds[] = {{"slope", true}, {"table", false}, {"documents", false}, {"window", true}};
  for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
    SCOPED fixture f = fixture_open(wanted, 3, "./far kind=%s", kinds[kind].name);
    for (int target = 0; target < f.n_targets; target++) {
      SCOPED_KERNEL *loaded = held(trial_load_gradients(f.memory, f.spec, f.targets[target], PEGEN_DTYPE_F32, 1));
      for (int pattern = 0; pattern < PATTERNS; pattern++)
        for (int whole = 0; whole <= patterns[pattern].is_whole; whole++)
          call_pattern(&f, loaded, pattern, whole ? NUMBER_I64 : NUMBER_F64, kinds[kind].moves,
                       arena_printf(f.memory, "%s, %s, %s, %s", f.targets[target], kinds[kind].name,
                                    patterns[pattern].name, whole ? "int64" : "float64"));
    }
  }
}

/* Documents by numbers of 64 bits, as hashes are, and by small ones, which the reference counts with. */
TEST(numbers_of_64_bits_differ) {
  static const int64_t names[] = {(1LL << 62) + 1, INT64_MIN, (1LL << 62) + 2, INT64_MAX,
                                  (1LL << 62) + 3, 5,         INT64_MAX - 1,   INT64_MIN + 1};
  enum { NAMES = sizeof names / sizeof *names };
  SCOPED fixture f = fixture_open(wanted, 3, "./far kind=documents");
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.spec, f.targets[target], PEGEN_DTYPE_F32, 1));
    for (int round = 0; round < 4; round++) {
      int tokens = round % 2 ? 3 : TOKENS;
      attention_trial t = trial_of(&f, tokens, KEYS), small = t;
      double values[KEYS];
      int64_t named[KEYS];
      for (int i = 0; i < KEYS; i++) {
        int name = (i + round) % NAMES; /* another one is the origin */
        values[i] = name;
        named[i] = names[name];
      }
      small.positions = tensor_contiguous(f.memory, NUMBER_I32, 2, (int64_t[]){tokens, 1}, values);
      small.k_positions = tensor_contiguous(f.memory, NUMBER_I32, 2, (int64_t[]){KEYS, 1}, values);
      t.positions = tensor_contiguous(f.memory, NUMBER_I64, 2, (int64_t[]){tokens, 1}, values);
      t.k_positions = tensor_contiguous(f.memory, NUMBER_I64, 2, (int64_t[]){KEYS, 1}, values);
      memcpy(t.positions->data, named, (size_t)tokens * sizeof *named);
      memcpy(t.k_positions->data, named, sizeof named);
      DLTensor *out = attention_trial_out(f.memory, &t, ROWS_BHND);
      assert_int_equal(attention_trial_call(run_kernel(loaded), &t, out, 1), 0);
      compare(&f, &small, out, arena_printf(f.memory, "%s, round %d", f.targets[target], round));
    }
  }
}

/* Queries and keys whose positions have different types. */
TEST(types_mix) {
  static const number_type types[][2] = {{NUMBER_I64, NUMBER_F64}, {NUMBER_F64, NUMBER_I64}};
  SCOPED fixture f = fixture_open(wanted, 3, "./far kind=slope");
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.spec, f.targets[target], PEGEN_DTYPE_F32, 1));
    for (int round = 0; round < 4; round++) {
      int tokens = round % 2 ? 3 : TOKENS;
      attention_trial t = trial_of(&f, tokens, KEYS);
      t.positions = positions_of(f.memory, 0, types[round / 2][0], tokens);
      t.k_positions = positions_of(f.memory, 0, types[round / 2][1], KEYS);
      DLTensor *out = attention_trial_out(f.memory, &t, ROWS_BHND);
      assert_int_equal(attention_trial_call(run_kernel(loaded), &t, out, 1), 0);
      compare(&f, &t, out, f.targets[target]);
    }
  }
}

int main(int arguments, char **argument) {
  wanted = arguments > 1 ? argument[1] : NULL;
  return run_listed();
}
