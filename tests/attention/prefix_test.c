/* prefix_test [TARGET]: prefix tokens are the first of the keys' sequence, at whose end queries end, too: what the last
 * queries of a call give alone is what they give in it, however few they are. */
#include "fixture.h"
#include "scoped.h"
#include "test.h"

#include <math.h>

enum { KEYS = 75, HEADS = 4, SKIP = 3 };

static const char *wanted; /* NULL: all that this machine runs */

static const char *const lines[] = {"alibi skip_tokens=3 heads=4 head_dim=16 axes=2",
                                    "./rows_turned skip_tokens=3 head_dim=12 heads=4 inverse=true",
                                    "./score_inputs skip_tokens=3 heads=4 kind=mixed head_dim=12",
                                    "polynomial skip_tokens=3 heads=4 head_dim=16 role=pairwise"};
enum { CASES = sizeof lines / sizeof *lines };

/* The last `count` of a tensor's rows, of the dimension that has KEYS of them. */
static DLTensor *last_rows(arena *a, const DLTensor *all, int axis, int64_t count) {
  DLTensor *t = arena_new(a, DLTensor);
  int64_t stride = 1;
  *t = *all;
  t->shape = arena_array(a, int64_t, all->ndim);
  t->strides = arena_array(a, int64_t, all->ndim);
  for (int i = all->ndim - 1; i >= 0; i--) {
    t->shape[i] = all->shape[i];
    t->strides[i] = all->strides ? all->strides[i] : stride;
    stride *= all->shape[i];
  }
  t->byte_offset += (uint64_t)((t->shape[axis] - count) * t->strides[axis] * (t->dtype.bits / 8));
  t->shape[axis] = count;
  return t;
}

static attention_trial last_queries(arena *a, const attention_trial *all, int64_t count) {
  attention_trial t = *all;
  const DLTensor **inputs = arena_array(a, const DLTensor *, t.spec->n_inputs + 1);
  t.q = last_rows(a, all->q, 2, count);
  t.k_positions = all->positions;
  t.positions = last_rows(a, all->positions, 0, count);
  for (int i = 0; i < t.spec->n_inputs; i++)
    inputs[i] = t.spec->input[i].of_keys ? all->inputs.tensors[i] : last_rows(a, all->inputs.tensors[i], 2, count);
  t.inputs.tensors = inputs;
  return t;
}

static void compare_last(const DLTensor *all, const DLTensor *last, const char *what) {
  int64_t before = all->shape[2] - last->shape[2];
  for (int64_t h = 0; h < last->shape[1]; h++)
    for (int64_t n = 0; n < last->shape[2]; n++)
      for (int64_t c = 0; c < last->shape[3]; c++) {
        double x = number_load(NUMBER_F32, tensor_at(all, 0, h, before + n, c)),
               y = number_load(NUMBER_F32, tensor_at(last, 0, h, n, c));
        if (!(fabs(x - y) <= 1e-4)) fail_msg("%s, query %d of the last: %g, alone %g", what, (int)n, x, y);
      }
}

static void run_case(int at) {
  static const int64_t counts[] = {1, 3, 40, KEYS - 2, KEYS - 1};
  SCOPED fixture f = fixture_open(wanted, 5, "%s", lines[at]);
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.spec, f.targets[target], PEGEN_DTYPE_F32, 1));
    attention_trial all = {.spec = f.spec, .causal = target % 2};
    attention_trial_fill(f.memory, &all, &(attention_sizes){1, HEADS, 2, KEYS, KEYS}, NUMBER_F32, ROWS_BHND, &f.random);
    all.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
    all.positions = fixture_positions(&f, NUMBER_F64, 0, KEYS);
    DLTensor *out = attention_trial_out(f.memory, &all, ROWS_BHND);
    assert_int_equal(attention_trial_call(run_kernel(loaded), &all, out, 2), 0);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
      const char *what = arena_printf(f.memory, "%s, %s", lines[at], f.targets[target]);
      attention_trial t = last_queries(f.memory, &all, counts[i]);
      DLTensor *last = attention_trial_out(f.memory, &t, ROWS_BHND);
      assert_int_equal(attention_trial_call(run_kernel(loaded), &t, last, 2), 0);
      compare_last(out, last, what);
    }
  }
}

TEST(last_queries_alone) {
  for (int at = 0; at < CASES; at++) run_case(at);
}

int main(int arguments, char **argument) {
  wanted = arguments > 1 ? argument[1] : NULL;
  return run_listed();
}
