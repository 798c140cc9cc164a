/* One floating-point state for all entries: whatever the caller's thread rounds to, flushes or traps, kernels and
 * libpegen give the same bits, and the state is the caller's again on every way out.
 *
 * An argument names one target; without, all that this machine runs.
 */
#include "../interface/float_states.h"
#include "base/number.h"
#include "described.h"
#include "pegen/fold.h"
#include "pegen/scan.h"
#include "scoped.h"
#include "test.h"
#include "verify/trial.h"

#include <string.h>

enum { BATCH = 2, TOKENS = 10, HEADS = 2, NOT_RUNNABLE = 77 };

static const char *wanted; /* target, or NULL */

/* Every form, every road of a form's arithmetic. */
typedef struct state_case {
  const char *name, *line;
} state_case;

static const state_case cases[] = {
    {"rope", "rope head_dim=64"},
    {"geope3d", "geope3d head_dim=64"},
    {"care", "care head_dim=64 heads=2"},
    {"quatro", "quatro head_dim=48 heads=2"},
    {"liere4", "liere head_dim=36 heads=2 block=4"},
    {"liere8", "liere head_dim=64 heads=2 block=8"},
    {"liere64", "liere head_dim=64 heads=2 block=64"},
    {"comrope_schur", "comrope_ap head_dim=64 heads=2 block=8 basis=schur"},
    {"string", "string_cayley head_dim=48 heads=2"},
    {"sincos", "sincos channels=60"},
    {"pape_columns", "pape head_dim=32 heads=2 parabolas=7"},
    {"attention", "attention head_dim=32"},
    {"alibi", "alibi head_dim=32 heads=2"},
    {"lookhere", "lookhere head_dim=32"},
    {"lingeope", "lingeope head_dim=30"},
    {"pape_pairs", "pape head_dim=32 heads=2 parabolas=7 role=pairwise"},
};
enum { CASE_COUNT = sizeof cases / sizeof *cases };

typedef struct fixture {
  arena *memory;
  const spec *spec;
  const pegen_kernel *kernel;
  int64_t heads, tokens;
  uint64_t random;
  pegen_args args;
  DLTensor *out[2];
  void *table;
} fixture;

static int64_t storage(const DLTensor *t) {
  return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3] * t->dtype.bits / 8;
}

static DLTensor *rows(fixture *f, number_type type, int64_t channels) {
  DLTensor *t = tensor_rows(f->memory, type, ROWS_BHND, BATCH, f->heads, f->tokens, channels);
  tensor_randomize(t, &f->random);
  float *first = t->data; /* denormals of float32: a row of nothing else, then some beside normal numbers */
  for (int i = 0; type == NUMBER_F32 && i < 2 * channels; i += i < channels ? 1 : 5) first[i] *= 0x1p-130f;
  return t;
}

/* A call of everything that the kernel can do at once. */
static void fill(fixture *f, number_type type) {
  const spec *s = f->spec;
  const pegen_kernel *kernel = f->kernel;
  int64_t width = kernel->widths ? kernel->widths[type].out_dim : kernel->out_dim;
  trial_operands operands = trial_random_operands(f->memory, s, NUMBER_F32, &f->random);
  trial_inputs inputs = trial_random_inputs(f->memory, s, type, BATCH, f->heads, f->tokens, &f->random);
  double *values = arena_array(f->memory, double, f->tokens * s->n_axes);
  for (int i = 0; i < f->tokens * s->n_axes; i++) values[i] = random_uniform(&f->random, -40, 40);
  f->args = (pegen_args){.struct_size = sizeof(pegen_args),
                         .q = rows(f, type, s->head_dim),
                         .k = rows(f, type, s->head_dim),
                         .n_operands = kernel->n_operands,
                         .operands = operands.tensors,
                         .n_inputs = kernel->n_inputs,
                         .inputs = inputs.tensors};
  if (!s->grid[0])
    f->args.positions = tensor_contiguous(f->memory, NUMBER_F64, 2, (int64_t[]){f->tokens, s->n_axes}, values);
  if (kernel->attention) {
    f->args.v = rows(f, type, s->pairwise->value_dim);
    f->args.out = f->out[0] = f->out[1] = rows(f, type, s->pairwise->value_dim);
  } else {
    f->args.q_out = f->out[0] = rows(f, type, width);
    f->args.k_out = f->out[1] = rows(f, type, width);
  }
}

/* What an entry wrote, in one run of bytes. */
static size_t written(const fixture *f, pegen_entry *entry, char *bytes) {
  if (entry == f->kernel->prepare) {
    memcpy(bytes, f->table, f->args.table_bytes);
    return f->args.table_bytes;
  }
  size_t first = (size_t)storage(f->out[0]), second = f->out[1] == f->out[0] ? 0 : (size_t)storage(f->out[1]);
  memcpy(bytes, f->out[0]->data, first);
  memcpy(bytes + first, f->out[1]->data, second);
  return first + second;
}

static void wipe(const fixture *f, pegen_entry *entry) {
  if (entry == f->kernel->prepare) memset(f->table, 0x55, f->args.table_bytes);
  for (int i = 0; i < 2 && entry != f->kernel->prepare; i++) memset(f->out[i]->data, 0x55, (size_t)storage(f->out[i]));
}

/* Asserts that an entry gives the same bits in all states, and gives every state back, after a refusal, too. */
static void assert_independent(fixture *f, pegen_entry *entry, const char *what) {
  enum { ROOM = 1 << 20 };
  char *usual = malloc(ROOM), *now = malloc(ROOM);
  wipe(f, entry);
  assert_int_equal(entry(&f->args, 0, 1), 0);
  size_t bytes = written(f, entry, usual);
  assert_true(bytes > 0 && bytes <= ROOM);
  for (int state = 0; state < FLOAT_STATES; state++) {
    wipe(f, entry);
    uint64_t entered = float_states_enter(state);
    int error = entry(&f->args, 0, 1);
    int kept = float_states_leave(entered);
    if (error || !kept || written(f, entry, now) != bytes || memcmp(usual, now, bytes))
      fail_msg("%s, state %d: error %d, %s, %s", what, state, error, kept ? "given back" : "changed",
               memcmp(usual, now, bytes) ? "other bits" : "the same bits");
    entered = float_states_enter(state);
    error = entry(&f->args, 2, 1);
    kept = float_states_leave(entered);
    assert_true(error == PEGEN_ERROR_PART && kept);
    entered = float_states_enter(state);
    error = entry(NULL, 0, 1);
    kept = float_states_leave(entered);
    assert_true(error == PEGEN_ERROR_NULL_ARGS && kept);
  }
  free(usual), free(now);
}

static void assert_entries(fixture *f, number_type type) {
  fill(f, type);
  if (f->kernel->attention) {
    assert_independent(f, f->kernel->attention, "attention");
    return;
  }
  assert_independent(f, f->kernel->encode, "encode");
  if (!f->kernel->prepare) return;
  f->args.table_bytes = f->kernel->table_bytes(&f->args);
  f->args.table = f->table = aligned_alloc(64, f->args.table_bytes);
  assert_independent(f, f->kernel->prepare, "prepare");
  f->kernel->prepare(&f->args, 0, 1);
  assert_independent(f, f->kernel->encode, "encode with a table");
  free(f->table);
}

static void entries_compute_alike(void **state) {
  const state_case *which = *state;
  SCOPED fixture f = {.memory = arena_create(), .random = 9};
  f.spec = described(f.memory, "%s", which->line);
  f.heads = f.spec->heads > 1 ? f.spec->heads : HEADS;
  f.tokens = f.spec->grid[0] ? spec_grid_tokens(f.spec) : TOKENS;
  const char **targets;
  int count = trial_targets(f.memory, wanted, &targets);
  for (int i = 0; i < count; i++) {
    SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.spec, targets[i], 0, 2));
    f.kernel = run_kernel(loaded);
    assert_entries(&f, NUMBER_F32);
    if (i == count - 1) assert_entries(&f, NUMBER_BF16);
  }
}

TEST(folding_computes_alike) {
  enum { D = 16, HEAD = 2, BLOCK = 8, INPUTS = 5 };
  float raw[HEAD * 2 * BLOCK * BLOCK], weight[HEAD * D * INPUTS], usual[HEAD * D * INPUTS], given[HEAD * D * INPUTS];
  int64_t raw_shape[] = {HEAD, 2, BLOCK, BLOCK}, weight_shape[] = {HEAD * D, INPUTS};
  uint64_t random = 4;
  for (size_t i = 0; i < sizeof raw / sizeof *raw; i++) raw[i] = (float)random_uniform(&random, -1, 1);
  for (size_t i = 0; i < sizeof given / sizeof *given; i++) given[i] = (float)random_uniform(&random, -1, 1);
  DLTensor generators = {raw, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, raw_shape, NULL, 0};
  DLTensor q_weight = {weight, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, weight_shape, NULL, 0};
  pegen_fold fold = {.struct_size = sizeof fold,
                     .rule = PEGEN_SKEW_DIFFERENCE,
                     .head_dim = D,
                     .generators = &generators,
                     .q_weight = &q_weight};
  memcpy(weight, given, sizeof weight);
  assert_int_equal(pegen_fold_basis(&fold), 0);
  memcpy(usual, weight, sizeof weight);
  for (int i = 0; i < FLOAT_STATES; i++) {
    memcpy(weight, given, sizeof weight);
    uint64_t entered = float_states_enter(i);
    int error = pegen_fold_basis(&fold);
    int kept = float_states_leave(entered);
    assert_true(!error && kept);
    assert_memory_equal(weight, usual, sizeof weight);
    entered = float_states_enter(i);
    error = pegen_fold_basis(NULL);
    kept = float_states_leave(entered);
    assert_true(error == PEGEN_ERROR_NULL_ARGS && kept);
  }
}

TEST(scanning_computes_alike) {
  enum { N = 9 };
  float in[N], out[N], usual[N];
  int64_t shape[] = {1, 1, N};
  uint64_t random = 4;
  for (int i = 0; i < N; i++) in[i] = (float)random_uniform(&random, -1, 1);
  DLTensor x = {in, {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, shape, NULL, 0}, y = x;
  y.data = out;
  pegen_scan scan = {.struct_size = sizeof scan, .in = &x, .out = &y, .period = 0.75};
  assert_int_equal(pegen_scan_tokens(&scan, 0, 1), 0);
  memcpy(usual, out, sizeof out);
  for (int i = 0; i < FLOAT_STATES; i++) {
    uint64_t entered = float_states_enter(i);
    int error = pegen_scan_tokens(&scan, 0, 1);
    int kept = float_states_leave(entered);
    assert_true(!error && kept);
    assert_memory_equal(out, usual, sizeof out);
    entered = float_states_enter(i);
    error = pegen_scan_tokens(NULL, 0, 1);
    kept = float_states_leave(entered);
    assert_true(error == PEGEN_ERROR_NULL_ARGS && kept);
  }
}

/* The states are real ones: of 16 without traps, all but the default change what arithmetic gives. */
TEST(states_matter) {
  for (int i = 0; i < 16; i++)
    if (i & 7) assert_true(float_states_matter(i));
  assert_false(float_states_matter(0));
}

int main(int argc, char **argv) {
  wanted = argc > 1 ? argv[1] : NULL;
  if (wanted && !trial_runnable(wanted)) return NOT_RUNNABLE;
  for (int i = 0; i < CASE_COUNT; i++) list_row(cases[i].name, entries_compute_alike, &cases[i]);
  return run_listed();
}
