/* asked_test: gradients of attention in random sizes, some of them asked for and others not: they are the reference's,
 * each what it is beside all others, to the bit, and nothing is written outside of the workspace, however many the
 * parts are.
 *
 *     attention_asked_test SEED COUNT [TARGET [TEST]]    so many calls of each description
 */
#include "fixture.h"
#include "gradients.h"
#include "scoped.h"
#include "test.h"

#include <math.h>
#include <string.h>

static uint64_t seed = 1;
static int count = 2;
static const char *wanted; /* a target; NULL: all that this machine runs */

/* Polynomial biases on GPUs have a test of their own (polynomial_backward_test). */
static bool is_on(const spec *s) {
  bool is_gpu = wanted && strncmp(wanted, "sm_", 3) == 0;
  return !is_gpu || !s->polynomial;
}

/* ---- a call whose workspace stands between numbers that nobody touches ---- */

enum { MARGIN = 4096, FILL = 0xa5 };

static int call(const pegen_kernel *kernel, const attention_gradients *g, int parts) {
  pegen_grad_args grad = attention_gradients_args(g);
  pegen_args args = attention_trial_args(kernel, &g->forward, g->out);
  args.grad = &grad;
  args.workspace_bytes = kernel->attention_backward_workspace(&args);
  unsigned char *room = malloc(args.workspace_bytes + 2 * MARGIN);
  assert_non_null(room);
  memset(room, FILL, args.workspace_bytes + 2 * MARGIN);
  args.workspace = room + MARGIN;
  int error = 0;
  for (int part = parts - 1; part >= 0 && !error; part--) error = kernel->attention_backward(&args, part, parts);
  for (int part = 0; part < parts && !error; part++) error = kernel->attention_backward_finish(&args, part, parts);
  for (int i = 0; i < MARGIN; i++) {
    assert_int_equal(room[i], FILL);
    assert_int_equal(room[MARGIN + args.workspace_bytes + (size_t)i], FILL);
  }
  free(room);
  return error;
}

/* ---- what is asked for ---- */

static bool toss(fixture *f) { return random_below(&f->random, 2) != 0; }

static attention_gradients some_of(fixture *f, const attention_gradients *g) {
  attention_gradients some = attention_gradients_room(f->memory, g);
  if (toss(f)) some.q = NULL;
  if (toss(f)) some.k = NULL;
  if (toss(f)) some.v = NULL;
  if (toss(f)) some.positions = NULL;
  if (toss(f)) some.k_positions = NULL;
  for (int i = 0; some.operands && i < f->spec->n_operands; i++)
    if (toss(f)) some.operands[i] = NULL;
  if (some.operands && !random_below(&f->random, 4)) some.operands = NULL;
  if (some.inputs && toss(f)) some.inputs = NULL;
  return some;
}

/* ---- random calls ---- */

static attention_trial trial_of(fixture *f, number_type type) {
  attention_trial t = {.spec = f->spec, .causal = toss(f), .scale = toss(f) ? 0 : 0.4};
  int64_t heads = f->spec->heads > 1 ? f->spec->heads : 1 + random_below(&f->random, 4), k_heads = heads;
  while (heads % (k_heads = 1 + random_below(&f->random, (int)heads)) != 0) continue;
  attention_sizes sizes = {1 + random_below(&f->random, 2), heads, k_heads, 1 + random_below(&f->random, 75),
                           random_below(&f->random, 150)};
  bool of_keys = toss(f), is_own = toss(f);
  if (!of_keys) sizes.keys = sizes.tokens;
  if (f->spec->grid[0]) sizes.tokens = sizes.keys = spec_grid_tokens(f->spec);
  attention_trial_fill(f->memory, &t, &sizes, type, (row_order)random_below(&f->random, ROW_ORDER_COUNT), &f->random);
  t.operands = trial_random_operands(f->memory, f->spec, NUMBER_F32, &f->random);
  if (f->spec->grid[0]) return t;
  t.positions = fixture_positions(f, NUMBER_F32, is_own ? sizes.batch : 0, sizes.tokens);
  if (of_keys) t.k_positions = fixture_positions(f, NUMBER_F64, toss(f) ? sizes.batch : 0, sizes.keys);
  return t;
}

static bool is_shared(const DLTensor *positions) { return !positions || positions->ndim == 2; }

static void assert_some(fixture *f, const pegen_kernel *kernel, const attention_gradients *g) {
  for (int i = 0; i < 6; i++) {
    attention_gradients some = some_of(f, g);
    assert_int_equal(call(kernel, &some, 1 + random_below(&f->random, i < 3 ? 4 : 60)), 0);
    if (!attention_gradients_same(g, &some))
      fail_msg("%s: q %d k %d v %d positions %d k_positions %d operands %d inputs %d: other bits than with all others",
               f->spec->name, !!some.q, !!some.k, !!some.v, !!some.positions, !!some.k_positions, !!some.operands,
               !!some.inputs);
  }
}

static void assert_doubled(const DLTensor *once, const DLTensor *twice) {
  int64_t numbers = once ? 1 : 0;
  for (int d = 0; once && d < once->ndim; d++) numbers *= once->shape[d];
  for (int64_t i = 0; i < numbers; i++) assert_true(2 * ((double *)once->data)[i] == ((double *)twice->data)[i]);
}

/* What is added to what a call before gave is twice that. */
static void assert_added(const fixture *f, const pegen_kernel *kernel, const attention_gradients *g) {
  attention_gradients twice = attention_gradients_room(f->memory, g);
  assert_int_equal(call(kernel, &twice, 3), 0);
  twice.flags = PEGEN_GRAD_ACCUMULATE;
  assert_int_equal(call(kernel, &twice, 2), 0);
  assert_doubled(g->positions, twice.positions);
  assert_doubled(g->k_positions, twice.k_positions);
  for (int i = 0; g->operands && i < f->spec->n_operands; i++) assert_doubled(g->operands[i], twice.operands[i]);
}

/* Whether positions gain. */
static bool has_places(const spec *s) {
  const spec_pairwise *pair = s->pairwise;
  return (pair->bias || pair->rotates) && !pair->turns_values;
}

static void random_call(fixture *f, const pegen_kernel *kernel, bool gains) {
  attention_trial t = trial_of(f, NUMBER_F32);
  attention_gradients g;
  int64_t step = f->spec->n_components ? 16 : 1;
  row_order order = (row_order)random_below(&f->random, ROW_ORDER_COUNT);
  assert_int_equal(attention_gradients_fill(f->memory, &g, &t, kernel, toss(f), step, order, &f->random), 0);
  if (!gains) g.operands = NULL;
  if (t.positions && has_places(f->spec)) attention_gradients_of_positions(f->memory, &g, NUMBER_F64);
  assert_int_equal(call(kernel, &g, 1), 0);
  if (is_shared(t.positions) && is_shared(t.k_positions)) gradients_compare(f->memory, &g, step);
  assert_some(f, kernel, &g);
  assert_added(f, kernel, &g);
}

TEST(asked_for_or_not) {
  static const struct {
    const char *line;
    bool gains;
  } cases[] = {
      {"./slopes heads=4 head_dim=20 skip_tokens=2", true},
      {"./steep", true},
      {"./steep grid=3,35", true},
      {"./turning skip_tokens=2 heads=2", true},
      {"./turning combine=mean head_dim=7", true},
      {"./turning combine=sum grid=4,9", true},
      {"./rows_turned head_dim=6 skip_tokens=2 value_dim=3", true},
      {"./values head_dim=6", true},
      {"./values head_dim=6 heads=4 kind=learned", false},
      {"./values head_dim=6 heads=1 grid=5,9", true},
      {"relative_bias_table heads=2 head_dim=16", true},
      {"relative_bias_table grid=6,7 heads=2 head_dim=16", true},
      {"pape role=pairwise parabolas=19 head_dim=20 skip_tokens=1", true},
      {"alibi axes=3 heads=4 head_dim=17 value_dim=40", false},
      {"./mirrors skip_tokens=2", false},
      {"./rope_pairwise", false},
      {"lingeope head_dim=10 value_dim=9", false},
      {"attention head_dim=5 value_dim=33", false},
      {"./scores kind=both skip_tokens=2", false},
      {"./score_inputs kind=mixed skip_tokens=2", true},
      {"./score_inputs kind=stays heads=3", true},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    SCOPED fixture f = fixture_open(wanted, seed + i, "%s", cases[i].line);
    if (!is_on(f.spec)) continue;
    int target = random_below(&f.random, f.n_targets);
    SCOPED_KERNEL *loaded = trial_load_gradients(f.memory, f.spec, f.targets[target], PEGEN_DTYPE_F32, 1);
    print_message("%s %s\n", cases[i].line, f.targets[target]);
    for (int k = 0; k < count; k++) random_call(&f, run_kernel(loaded), cases[i].gains);
  }
}

/* Tensor cores have a program of their own for gradients of values where rows are long, and programs of rows alone
 * beside those in which operands, inputs and positions gain, too. */
TEST(rows_of_tensor_cores) {
  static const char *const lines[] = {"attention head_dim=256 value_dim=0", "attention head_dim=64 value_dim=256",
                                      "attention head_dim=64 value_dim=48", "./slopes head_dim=32 heads=4",
                                      "./slopes head_dim=192 heads=2",      "./score_inputs kind=mixed heads=2",
                                      "./turning combine=mean head_dim=16", "lingeope head_dim=32 value_dim=16"};
  if (!wanted || strncmp(wanted, "sm_", 3) != 0) return;
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    SCOPED fixture f = fixture_open(wanted, seed + i, "%s", lines[i]);
    SCOPED_KERNEL *loaded = trial_load_gradients(f.memory, f.spec, wanted, PEGEN_DTYPE_BF16, 1);
    attention_trial t = trial_of(&f, NUMBER_BF16);
    attention_gradients g;
    assert_int_equal(attention_gradients_fill(f.memory, &g, &t, run_kernel(loaded), toss(&f), 1, ROWS_BHND, &f.random),
                     0);
    if (has_places(f.spec)) attention_gradients_of_positions(f.memory, &g, NUMBER_F64);
    assert_int_equal(call(run_kernel(loaded), &g, 1), 0);
    assert_some(&f, run_kernel(loaded), &g);
  }
}

int main(int argc, char **argv) {
  if (argc > 2) seed = strtoull(argv[1], NULL, 10), count = atoi(argv[2]);
  wanted = argc > 3 ? argv[3] : NULL;
  if (argc > 4) cmocka_set_test_filter(argv[4]);
  return run_listed();
}
