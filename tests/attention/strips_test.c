/* strips_test: parts of a score that are made of the query and one coordinate of the key, against the reference and
 * with gradients: where keys have few coordinates, which are computed once for each, and where they have many, or
 * float32 does not hold them. */
#include "fixture.h"
#include "gradients.h"
#include "scoped.h"
#include "test.h"

enum { BATCHES = 2, HEADS = 4, K_HEADS = 2, TOKENS = 61, KEYS = 150, WIDTH = 12 };

static double on_a_grid(int64_t token, int axis) { return (double)(axis ? token % WIDTH : token / WIDTH); }
static double many(int64_t token, int axis) { return (double)(axis ? token : token % 3); }
static double fractions(int64_t token, int axis) {
  return axis ? 0.1 * (double)(token % 9) : 0.3 * (double)(token % 5);
}
static double rounded(int64_t token, int axis) { return axis ? 1000.1 * (double)(token % 2) : (double)(token % 4); }
static double some_nowhere(int64_t token, int axis) { return axis && token == 7 ? NAN : (double)(token % 6); }

static const struct {
  const char *name;
  double (*at)(int64_t token, int axis);
} places[] = {{"a grid", on_a_grid},
              {"many coordinates", many},
              {"fractions", fractions},
              {"coordinates that float32 does not hold", rounded},
              {"a key that is nowhere", some_nowhere}};

/* Positions of all batches, or of each, which differ by where they begin. */
static const DLTensor *positions_of(fixture *f, int which, bool is_shared, int64_t tokens) {
  int64_t batches = is_shared ? 1 : BATCHES, shape[] = {batches, tokens, 2};
  double *values = arena_array(f->memory, double, batches * tokens * 2);
  for (int64_t i = 0; i < batches * tokens * 2; i++) {
    int64_t batch = i / 2 / tokens, token = i / 2 % tokens;
    values[i] = places[which].at(token + 5 * batch, (int)(i % 2));
  }
  return tensor_contiguous(f->memory, NUMBER_F64, 3 - is_shared, shape + is_shared, values);
}

static void one_call(fixture *f, const pegen_kernel *kernel, int which, int round) {
  attention_trial t = {.spec = f->spec, .causal = round % 2};
  attention_sizes sizes = {BATCHES, HEADS, K_HEADS, TOKENS, KEYS};
  attention_trial_fill(f->memory, &t, &sizes, NUMBER_F32, ROWS_BHND, &f->random);
  t.positions = positions_of(f, which, round % 2, TOKENS);
  t.k_positions = positions_of(f, which, round % 2, KEYS);
  t.operands = trial_random_operands(f->memory, f->spec, NUMBER_F32, &f->random);
  gradients_of_call(f, kernel, &t, places[which].name, places[which].at != some_nowhere);
}

TEST(against_the_reference) {
  SCOPED fixture f = fixture_open(NULL, 5, "./strips");
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = held(trial_load_gradients(f.memory, f.spec, f.targets[target], PEGEN_DTYPE_F32, 1));
    for (size_t which = 0; which < sizeof places / sizeof *places; which++)
      one_call(&f, run_kernel(loaded), (int)which, (int)which + target);
  }
}

/* A key's coordinate gives the same bits whether it is one of few or not: keys that the first queries do not see have
 * many. */
TEST(few_or_many) {
  enum { FIRST = 20, SEEN = FIRST + KEYS - TOKENS };
  SCOPED fixture f = fixture_open(NULL, 6, "./strips");
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.spec, f.targets[target], PEGEN_DTYPE_F32, 1));
    attention_trial t = {.spec = f.spec, .causal = 1};
    attention_sizes sizes = {1, HEADS, K_HEADS, TOKENS, KEYS};
    attention_trial_fill(f.memory, &t, &sizes, NUMBER_F32, ROWS_BHND, &f.random);
    t.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
    DLTensor *out[2];
    for (int is_many = 0; is_many < 2; is_many++) {
      double *values = arena_array(f.memory, double, KEYS * 2);
      for (int64_t i = 0; i < KEYS * 2; i++)
        values[i] = is_many && i / 2 >= SEEN ? (double)i / 4 : on_a_grid(i / 2, (int)(i % 2));
      t.k_positions = tensor_contiguous(f.memory, NUMBER_F64, 2, (int64_t[]){KEYS, 2}, values);
      t.positions = tensor_contiguous(f.memory, NUMBER_F64, 2, (int64_t[]){TOKENS, 2}, values);
      out[is_many] = attention_trial_out(f.memory, &t, ROWS_BHND);
      assert_int_equal(attention_trial_call(run_kernel(loaded), &t, out[is_many], 1), 0);
    }
    for (int64_t row = 0; row < HEADS * FIRST; row++)
      assert_false(fixture_rows_differ(out[0], out[1], row / FIRST, row % FIRST, 0));
  }
}

int main(void) { return run_listed(); }
