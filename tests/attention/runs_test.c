/* runs_test: a bias of tokens in order, or a part of one, which is computed once for each displacement, against the
 * reference, with gradients: where coordinates count up by one, where they do not, and where only some tiles' do. */
#include "fixture.h"
#include "gradients.h"
#include "scoped.h"
#include "test.h"

#include <math.h>
#include <string.h>

enum { BATCHES = 2, HEADS = 4, K_HEADS = 2, TOKENS = 131, KEYS = 150 };

static double in_order(int64_t token) { return (double)token; }
static double from_a_fraction(int64_t token) { return 0.25 + (double)token; }
static double far_away(int64_t token) { return 0x1p22 - 70 + (double)token; }
static double with_a_gap(int64_t token) { return (double)(token + (token > 70)); }
static double backwards(int64_t token) { return -(double)token; }
static double halves(int64_t token) { return 0.5 * (double)token; }
static double some_nowhere(int64_t token) { return token == 80 ? NAN : (double)token; }

static const struct {
  const char *name;
  double (*at)(int64_t token);
} places[] = {{"in order", in_order},
              {"from a fraction", from_a_fraction},
              {"far away", far_away},
              {"a gap", with_a_gap},
              {"backwards", backwards},
              {"halves", halves},
              {"a token that is nowhere", some_nowhere}};
enum { PLACES = sizeof places / sizeof *places };

/* Positions of all batches, or of each, which differ by where they begin. */
static const DLTensor *positions_of(fixture *f, int which, bool is_shared, int64_t tokens) {
  int64_t batches = is_shared ? 1 : BATCHES, shape[] = {batches, tokens, 1};
  double *values = arena_array(f->memory, double, batches *tokens);
  for (int64_t i = 0; i < batches * tokens; i++) values[i] = places[which].at(i % tokens + 3 * (i / tokens));
  return tensor_contiguous(f->memory, NUMBER_F64, 3 - is_shared, shape + is_shared, values);
}

static attention_trial trial_of(fixture *f, attention_sizes sizes, bool causal) {
  attention_trial t = {.spec = f->spec, .causal = causal};
  attention_trial_fill(f->memory, &t, &sizes, NUMBER_F32, ROWS_BHND, &f->random);
  t.operands = trial_random_operands(f->memory, f->spec, NUMBER_F32, &f->random);
  return t;
}

static void one_call(fixture *f, const pegen_kernel *kernel, int which, int round) {
  attention_trial t = trial_of(f, (attention_sizes){BATCHES, HEADS, K_HEADS, TOKENS, KEYS}, round % 2);
  t.positions = positions_of(f, which, round / 2 % 2, TOKENS);
  t.k_positions = positions_of(f, which, round / 2 % 2, KEYS);
  gradients_of_call(f, kernel, &t, places[which].name, places[which].at != some_nowhere);
}

static const char *const kinds[] = {"table", "rows"};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void compare_kind(const char *kind) {
  SCOPED fixture f = fixture_open(NULL, 5, "./runs kind=%s", kind);
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = held(trial_load_gradients(f.memory, f.spec, f.targets[target], PEGEN_DTYPE_F32, 1));
    for (int i = 0; i < PLACES; i++) one_call(&f, run_kernel(loaded), i, i + target);
  }
}

TEST(against_the_reference) {
  for (int i = 0; i < KINDS; i++) compare_kind(kinds[i]);
}

/* Rows of q and out, the last first. */
static DLTensor *reversed(arena *a, const DLTensor *rows) {
  int64_t last = rows->shape[2] - 1, bytes = rows->shape[3] * (int64_t)sizeof(float);
  DLTensor *to = tensor_contiguous(a, NUMBER_F32, 4, rows->shape, NULL);
  for (int64_t i = 0; i < rows->shape[0] * rows->shape[1]; i++)
    for (int64_t token = 0; token <= last; token++)
      memcpy((char *)to->data + (i * (last + 1) + token) * bytes,
             (const char *)rows->data + (i * (last + 1) + last - token) * bytes, (size_t)bytes);
  return to;
}

static void reverse_kind(const char *kind, double from) {
  SCOPED fixture f = fixture_open(NULL, 6, "./runs kind=%s", kind);
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.spec, f.targets[target], PEGEN_DTYPE_F32, 1));
    attention_trial t = trial_of(&f, (attention_sizes){1, HEADS, K_HEADS, TOKENS, KEYS}, false), other = t;
    double values[KEYS];
    for (int i = 0; i < KEYS; i++) values[i] = from + i;
    t.positions = tensor_contiguous(f.memory, NUMBER_F64, 2, (int64_t[]){TOKENS, 1}, values);
    t.k_positions = other.k_positions = tensor_contiguous(f.memory, NUMBER_F64, 2, (int64_t[]){KEYS, 1}, values);
    for (int i = 0; i < TOKENS; i++) values[i] = from + (TOKENS - 1 - i);
    other.positions = tensor_contiguous(f.memory, NUMBER_F64, 2, (int64_t[]){TOKENS, 1}, values);
    other.q = reversed(f.memory, t.q);
    DLTensor *out[] = {attention_trial_out(f.memory, &t, ROWS_BHND), attention_trial_out(f.memory, &t, ROWS_BHND)};
    assert_int_equal(attention_trial_call(run_kernel(loaded), &t, out[0], 1), 0);
    assert_int_equal(attention_trial_call(run_kernel(loaded), &other, out[1], 1), 0);
    size_t bytes = (size_t)(HEADS * TOKENS * out[0]->shape[3]) * sizeof(float);
    assert_memory_equal(out[0]->data, reversed(f.memory, out[1])->data, bytes);
  }
}

/* A query has the same bits whether its tile is in order or not. */
TEST(in_any_order) {
  for (int i = 0; i < KINDS; i++)
    for (int tenths = 0; tenths < 2; tenths++) reverse_kind(kinds[i], 0.1 * tenths);
}

int main(void) { return run_listed(); }
