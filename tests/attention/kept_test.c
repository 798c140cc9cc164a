/* kept_test: biases that a tile of queries has in all batches, since these have one tensor of positions, are computed
 * for the first of them: bits are those of each batch alone, in any number of parts. */
#include "fixture.h"
#include "scoped.h"
#include "test.h"
#include "windows.h"

#include <math.h>

enum { BATCHES = 3, HEADS = 4, K_HEADS = 2, MOST_PARTS = 5 };

/* The last two are around the most keys that biases are kept of. */
static const struct {
  int64_t tokens, keys;
} sizes[] = {{49, 49}, {70, 31}, {45, 208}, {45, 209}};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Some value of the batch in the middle is no number: tiles that do not see it are computed again. */
static void spoil(const attention_trial *t) {
  int64_t last = t->v->shape[2] - 1;
  number_store(number_type_of(t->v->dtype), tensor_at(t->v, 1, 0, last, 2), NAN);
}

static void call_apart(fixture *f, const pegen_kernel *kernel, const attention_trial *t, DLTensor *out) {
  for (int64_t b = 0; b < BATCHES; b++) {
    pegen_args args = attention_trial_args(kernel, t, window(f->memory, out, 0, b, b + 1));
    args.q = window(f->memory, t->q, 0, b, b + 1);
    args.k = window(f->memory, t->k, 0, b, b + 1);
    args.v = window(f->memory, t->v, 0, b, b + 1);
    const DLTensor **inputs = arena_array(f->memory, const DLTensor *, f->spec->n_inputs + 1);
    for (int i = 0; i < f->spec->n_inputs; i++) {
      int64_t at = t->inputs.tensors[i]->shape[0] > 1 ? b : 0;
      inputs[i] = window(f->memory, t->inputs.tensors[i], 0, at, at + 1);
    }
    args.inputs = inputs;
    assert_int_equal(kernel->attention(&args, 0, 1), 0);
  }
}

static void one_call(fixture *f, const pegen_kernel *kernel, number_type type, int round) {
  int64_t tokens = sizes[round % SIZES].tokens, keys = sizes[round % SIZES].keys;
  attention_trial t = {.spec = f->spec, .causal = round % 2};
  attention_sizes of = {BATCHES, HEADS, K_HEADS, tokens, keys};
  attention_trial_fill(f->memory, &t, &of, type, (row_order)(round % ROW_ORDER_COUNT), &f->random);
  t.operands = trial_random_operands(f->memory, f->spec, NUMBER_F32, &f->random);
  t.positions = fixture_positions(f, NUMBER_F32, 0, tokens);
  t.k_positions = fixture_positions(f, NUMBER_F32, 0, keys);
  if (round / 4 % 2) spoil(&t);
  DLTensor *apart = attention_trial_out(f->memory, &t, ROWS_BHND);
  call_apart(f, kernel, &t, apart);
  for (int parts = 1; parts <= MOST_PARTS; parts++) {
    DLTensor *out = attention_trial_out(f->memory, &t, ROWS_GAPS);
    assert_int_equal(attention_trial_call(kernel, &t, out, parts), 0);
    if (!tensor_identical(out, apart)) fail_msg("%s, round %d, %d parts", f->spec->name, round, parts);
  }
}

static void compare(const char *what) {
  SCOPED fixture f = fixture_open(NULL, 7, "%s", what);
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.spec, f.targets[target], 0, 1));
    for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++)
      for (int round = 0; round < 2 * SIZES; round++) one_call(&f, run_kernel(loaded), (number_type)type, round);
  }
}

TEST(tables) { compare("relative_bias_table"); }
TEST(masks) { compare("more/swin heads=4"); }
TEST(in_order) { compare("more/t5 heads=4"); }
TEST(of_inputs) { compare("./bias_inputs"); }
TEST(prefixed) { compare("relative_bias_table skip_tokens=2 head_dim=20"); }

int main(void) { return run_listed(); }
