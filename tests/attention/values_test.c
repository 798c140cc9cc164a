/* values_test [TARGET]: values that turn with their keys, where the position of a key that nobody sees is no number. */
#include "fixture.h"
#include "gradients.h"
#include "scoped.h"
#include "test.h"

#include <math.h>
#include <string.h>

enum { HEADS = 4, K_HEADS = 2, TOKENS = 11, KEYS = 37 };

static const char *wanted; /* NULL: all that this machine runs */

static fixture open_kind(const char *kind) {
  return fixture_open(wanted, 5, "./values kind=%s heads=4 head_dim=6", kind);
}

static attention_trial trial_of(fixture *f, int64_t tokens, int64_t k_heads) {
  attention_trial t = {.spec = f->spec, .causal = true};
  attention_sizes sizes = {1, HEADS, k_heads, tokens, KEYS};
  attention_trial_fill(f->memory, &t, &sizes, NUMBER_F32, ROWS_BHND, &f->random);
  t.operands = trial_random_operands(f->memory, f->spec, NUMBER_F32, &f->random);
  t.positions = fixture_positions(f, NUMBER_F32, 0, tokens);
  t.k_positions = fixture_positions(f, NUMBER_F32, 0, KEYS);
  return t;
}

/* A row of each head but the last, which sees the key. */
static void assert_same_but_last(const DLTensor *x, const DLTensor *y) {
  for (int64_t h = 0; h < HEADS; h++)
    for (int64_t n = 0; n < KEYS - 1; n++) {
      const float *one = tensor_at(x, 0, h, n, 0);
      assert_true(isfinite(one[0]));
      const float *other = tensor_at(y, 0, h, n, 0);
      /* A block of a GPU where something is not finite is made again, in another order. */
      for (int i = 0; wanted && i < 6; i++) assert_float_equal(one[i], other[i], 0x1p-18);
      if (!wanted) assert_memory_equal(one, other, 6 * sizeof(float));
    }
}

/* Fills g for a call of the trial by the target's kernel. */
static loaded_kernel *loaded_with(fixture *f, int target, attention_trial *t, attention_gradients *g) {
  loaded_kernel *loaded = held(trial_load_gradients(f->memory, f->spec, f->targets[target], PEGEN_DTYPE_F32, 1));
  assert_int_equal(attention_gradients_fill(f->memory, g, t, run_kernel(loaded), false, 1, ROWS_BHND, &f->random), 0);
  return loaded;
}

TEST(unseen_keys_are_nowhere) {
  SCOPED fixture f = open_kind("planes");
  for (int target = 0; target < f.n_targets; target++) {
    attention_trial t = trial_of(&f, KEYS, K_HEADS);
    attention_gradients g, other;
    SCOPED_KERNEL *loaded = loaded_with(&f, target, &t, &g);
    assert_int_equal(attention_gradients_call(run_kernel(loaded), &g, 1), 0);
    ((float *)t.k_positions->data)[2 * (KEYS - 1)] = NAN; /* which the last query alone sees */
    other = attention_gradients_room(f.memory, &g);
    other.forward.lse = attention_trial_lse(f.memory, &t);
    other.out = attention_trial_out(f.memory, &t, ROWS_BHND);
    assert_int_equal(attention_trial_call(run_kernel(loaded), &other.forward, other.out, 1), 0);
    assert_int_equal(attention_gradients_call(run_kernel(loaded), &other, 1), 0);
    assert_same_but_last(other.out, g.out);
    assert_same_but_last(other.q, g.q);
  }
}

/* Heads that share keys turn them in their own ways, and what keys gain is theirs before it is added up. */
TEST(keys_of_no_queries_gain_zeros) {
  SCOPED fixture f = open_kind("planes");
  for (int target = 0; target < f.n_targets; target++) {
    attention_trial t = trial_of(&f, 0, K_HEADS);
    attention_gradients g;
    SCOPED_KERNEL *loaded = loaded_with(&f, target, &t, &g);
    const DLTensor *gained[] = {g.k, g.v};
    for (int i = 0; i < 2; i++)
      for (int64_t h = 0; h < K_HEADS; h++)
        for (int64_t n = 0; n < KEYS; n++) *(float *)tensor_at(gained[i], 0, h, n, 0) = 1;
    assert_int_equal(attention_gradients_call(run_kernel(loaded), &g, 1), 0);
    for (int i = 0; i < 2; i++)
      for (int64_t h = 0; h < K_HEADS; h++)
        for (int64_t n = 0; n < KEYS; n++) assert_true(((const float *)tensor_at(gained[i], 0, h, n, 0))[0] == 0);
  }
}

/* Keys that are values, too, are turned once: bits are those of values that are a copy of them. */
TEST(keys_are_values) {
  SCOPED fixture f = open_kind("planes");
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.spec, f.targets[target], 0, 1));
    for (int round = 0; round < 4; round++) {
      attention_trial t = trial_of(&f, round % 2 ? 3 : KEYS, K_HEADS);
      attention_sizes sizes = {1, HEADS, K_HEADS, t.q->shape[2], KEYS};
      attention_trial_fill(f.memory, &t, &sizes, round / 2 ? NUMBER_BF16 : NUMBER_F32, ROWS_BHND, &f.random);
      DLTensor *out[2];
      t.v = tensor_copy(f.memory, t.k);
      for (int i = 0; i < 2; i++, t.v = t.k) {
        out[i] = attention_trial_out(f.memory, &t, ROWS_BHND);
        assert_int_equal(attention_trial_call(run_kernel(loaded), &t, out[i], 1), 0);
      }
      assert_true(tensor_identical(out[0], out[1]));
    }
  }
}

/* A GPU rotates rows of float32 ahead, and refuses a call without room for them. */
TEST(rows_have_room) {
  SCOPED fixture f = open_kind("planes");
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.spec, f.targets[target], PEGEN_DTYPE_F32, 1));
    const pegen_kernel *kernel = run_kernel(loaded);
    attention_trial t = trial_of(&f, TOKENS, HEADS);
    t.splits = true;
    DLTensor *out = attention_trial_out(f.memory, &t, ROWS_BHND);
    pegen_args args = attention_trial_args(kernel, &t, out);
    bool is_needed = kernel->attention_workspace(&args) > 0;
    assert_int_equal(is_needed, wanted != NULL);
    assert_int_equal(kernel->attention(&args, 0, 1), is_needed ? PEGEN_ERROR_WORKSPACE : 0);
    trial_error worst = {0};
    assert_int_equal(attention_trial_call(kernel, &t, out, 1), 0);
    attention_trial_compare(f.memory, kernel, &t, out, 1, &worst);
    if (worst.spoilt || !(worst.error <= 0x1p-18L)) fail_msg("out: %s", trial_error_text(f.memory, &worst));
  }
}

int main(int arguments, char **argument) {
  wanted = arguments > 1 ? argument[1] : NULL;
  return run_listed();
}
