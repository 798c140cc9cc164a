/* few_test: few queries against many keys, which go another way (kernel/attention_few.c): against the reference, in
 * every number of queries, and the same bits in parts. */
#include "fixture.h"
#include "scoped.h"
#include "test.h"

#include <math.h>
#include <string.h>

static const double BOUND = 0x1p-18;

static void compare(const fixture *f, const pegen_kernel *kernel, const attention_trial *t, DLTensor *out) {
  trial_error worst = {0};
  attention_trial_compare(f->memory, kernel, t, out, 7, &worst);
  if (t->lse) attention_trial_compare_lse(f->memory, kernel, t, 7, &worst);
  if (worst.spoilt || worst.error > BOUND) fail_msg("%s", trial_error_text(f->memory, &worst));
}

/* 1 to 15 queries of 1 to 12 heads that share keys, causal or not, all types, strides and targets. */
static void queries_and_groups(const char *what) {
  static const int groups[] = {1, 3, 2, 12, 6, 4};
  SCOPED fixture f = fixture_open(NULL, 11, "%s", what);
  int round = 0;
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.spec, f.targets[target], 0, 2));
    for (int queries = 1; queries <= 15; queries++)
      for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++, round++) {
        if (queries > 6 && (queries + type + target) % 3) continue;
        attention_sizes sizes = {1 + round % 2, 12, 12 / groups[round % 6], queries, 1 + 37 * round % 131};
        attention_trial t = {.spec = f.spec, .causal = round % 4 == 1, .scale = round % 5 ? 0 : 0.3};
        attention_trial_fill(f.memory, &t, &sizes, (number_type)type, (row_order)(round % ROW_ORDER_COUNT), &f.random);
        if (f.spec->n_axes) {
          t.positions = fixture_positions(&f, NUMBER_F32, round % 3 ? 0 : sizes.batch, sizes.tokens);
          t.k_positions = fixture_positions(&f, NUMBER_I64, round % 5 ? 0 : sizes.batch, sizes.keys);
        }
        t.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
        if (round % 2) t.lse = attention_trial_lse(f.memory, &t);
        DLTensor *out = attention_trial_out(f.memory, &t, ROWS_GAPS), *before = tensor_copy(f.memory, out);
        assert_int_equal(attention_trial_call(run_kernel(loaded), &t, out, 1), 0);
        compare(&f, run_kernel(loaded), &t, out);
        assert_true(tensor_gaps_identical(out, before));
        DLTensor *parts = attention_trial_out(f.memory, &t, ROWS_BNHD);
        assert_int_equal(attention_trial_call(run_kernel(loaded), &t, parts, 2 + round % 9), 0);
        assert_true(tensor_identical(parts, out));
      }
  }
}

TEST(plain) { queries_and_groups("attention"); }

/* Rows that no register divides, of both kinds, and prefix tokens without a bias. */
TEST(biased) { queries_and_groups("alibi heads=12 head_dim=24 value_dim=43 skip_tokens=2"); }

TEST(hiding) { queries_and_groups("lookhere heads=12 head_dim=80"); }

/* Dear biases: read by computed places, and by buckets of a logarithm. */
TEST(indexed) {
  queries_and_groups("./slopes heads=12");
  queries_and_groups("more/t5 heads=12");
}

/* Pairs rotated one by one, alike for all heads of a group or not, with and without channels that no rotation changes,
 * prefix tokens, a bias beside. */
TEST(rotated) {
  queries_and_groups("lingeope head_dim=20 value_dim=43");
  queries_and_groups("./mirrors skip_tokens=2");
  queries_and_groups("./turning skip_tokens=2 heads=12");
  queries_and_groups("./score_inputs kind=stays heads=12");
}

/* Rows turned in panels, and values with them. */
TEST(turned) {
  queries_and_groups("./rows_turned heads=12 head_dim=24 value_dim=40 skip_tokens=2");
  queries_and_groups("./score_inputs kind=turned heads=12");
  queries_and_groups("./values head_dim=6 heads=12");
  queries_and_groups("./values head_dim=18 kind=learned heads=12");
}

/* Functions of the product, of indices, and of inputs of queries and keys. */
TEST(scored) {
  queries_and_groups("./scores kind=softcap");
  queries_and_groups("./scores kind=nested");
  queries_and_groups("more/gpt_oss heads=12 window=40");
  queries_and_groups("more/gpt_oss heads=12");
  queries_and_groups("./score_inputs skip_tokens=1");
  queries_and_groups("./score_inputs kind=documents");
  queries_and_groups("./score_inputs kind=pairs");
}

/* What a query does not see is not in its output, number or not; nor, of a row that sees it, is it left out. */
TEST(unseen) {
  SCOPED fixture f = fixture_open(NULL, 5, "attention");
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = trial_load(f.memory, f.spec, f.targets[target], 0, 2);
    attention_trial t = {.spec = f.spec, .causal = 1};
    attention_trial_fill(f.memory, &t, &(attention_sizes){1, 6, 2, 3, 150}, NUMBER_F32, ROWS_BNHD, &f.random);
    DLTensor *clean = attention_trial_out(f.memory, &t, ROWS_BHND), *out = attention_trial_out(f.memory, &t, ROWS_BHND);
    assert_int_equal(attention_trial_call(run_kernel(loaded), &t, clean, 1), 0);
    for (int64_t head = 0; head < 2; head++) {
      *(float *)tensor_at(t.v, 0, head, 149, 5) = NAN;
      *(float *)tensor_at(t.k, 0, head, 149, 9) = NAN;
    }
    assert_int_equal(attention_trial_call(run_kernel(loaded), &t, out, 1), 0);
    for (int64_t head = 0; head < 6; head++) {
      for (int64_t token = 0; token < 2; token++)
        assert_memory_equal(tensor_at(out, 0, head, token, 0), tensor_at(clean, 0, head, token, 0), 64 * sizeof(float));
      assert_true(isnan(*(float *)tensor_at(out, 0, head, 2, 5)));
    }
  }
}

int main(void) { return run_listed(); }
