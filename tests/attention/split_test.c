/* split_test: few queries whose keys go in chunks (kernel/attention_items.c): the same bits for any number of parts,
 * against the reference, of a sequence the same in any batch; and what is refused. */
#include "fixture.h"
#include "scoped.h"
#include "test.h"

#include <math.h>
#include <string.h>

static const double BOUND = 0x1p-18;
enum { MOST_PARTS = 7, GUARD = 64, MOST_BYTES = 1 << 20 };

static _Alignas(64) unsigned char room[8 + MOST_BYTES + GUARD];

/* A call in parts from the last to the first, of both entries; what the workspace held is no matter, nor where it
 * begins, and beside it nothing is written. */
static int call_split(const pegen_kernel *kernel, const attention_trial *t, DLTensor *out, int parts, int finishers) {
  pegen_args args = attention_trial_args(kernel, t, out);
  args.split_keys = 1;
  size_t bytes = kernel->attention_workspace(&args);
  assert_in_range(bytes, 1, MOST_BYTES);
  memset(room, 0x40 + parts, sizeof room);
  args.workspace = room + 8 * (parts % 2);
  args.workspace_bytes = bytes;
  int error = 0;
  for (int part = parts - 1; part >= 0 && !error; part--) error = kernel->attention(&args, part, parts);
  for (int part = finishers - 1; part >= 0 && !error; part--) error = kernel->attention_finish(&args, part, finishers);
  for (size_t i = 0; i < GUARD; i++) assert_int_equal(((unsigned char *)args.workspace)[bytes + i], 0x40 + parts);
  return error;
}

static void compare(const fixture *f, const pegen_kernel *kernel, const attention_trial *t, DLTensor *out) {
  trial_error worst = {0};
  attention_trial_compare(f->memory, kernel, t, out, 1, &worst);
  if (t->lse) attention_trial_compare_lse(f->memory, kernel, t, 1, &worst);
  if (worst.spoilt || worst.error > BOUND) fail_msg("%s", trial_error_text(f->memory, &worst));
}

static attention_trial trial_of(fixture *f, int round, const attention_sizes *sizes, number_type type) {
  attention_trial t = {.spec = f->spec, .causal = round % 2, .scale = round % 5 ? 0 : 0.3};
  attention_trial_fill(f->memory, &t, sizes, type, (row_order)(round % ROW_ORDER_COUNT), &f->random);
  if (f->spec->n_axes) {
    t.positions = fixture_positions(f, NUMBER_F32, round % 3 ? 0 : sizes->batch, sizes->tokens);
    t.k_positions = fixture_positions(f, NUMBER_I64, round % 5 ? 0 : sizes->batch, sizes->keys);
  }
  t.operands = trial_random_operands(f->memory, f->spec, NUMBER_F32, &f->random);
  if (round % 3) t.lse = attention_trial_lse(f->memory, &t);
  return t;
}

static void parts_and_targets(const char *what) {
  static const int keys[] = {513, 600, 1030};
  SCOPED fixture f = fixture_open(NULL, 7, "%s", what);
  int heads = f.spec->heads > 1 ? f.spec->heads : 6, groups[] = {2, heads, 1}, round = 0, split = 0;
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.spec, f.targets[target], 0, 1));
    const pegen_kernel *kernel = run_kernel(loaded);
    for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++, round++) {
      attention_sizes sizes = {1 + round % 2, heads, heads / groups[round % 3], 1 + round % 4, keys[round % 3]};
      attention_trial t = trial_of(&f, round, &sizes, (number_type)type);
      DLTensor *out = attention_trial_out(f.memory, &t, ROWS_GAPS), *before = tensor_copy(f.memory, out);
      pegen_args args = attention_trial_args(kernel, &t, out);
      args.split_keys = 1;
      if (!kernel->attention_workspace(&args)) continue; /* a target without code for few queries */
      split++;
      assert_int_equal(call_split(kernel, &t, out, 1, 1), 0);
      compare(&f, kernel, &t, out);
      assert_true(tensor_gaps_identical(out, before));
      size_t bytes = t.lse ? (size_t)(sizes.batch * sizes.heads * sizes.tokens) * sizeof(float) : 0;
      void *sums = t.lse ? memcpy(arena_alloc(f.memory, bytes), t.lse->data, bytes) : NULL;
      for (int parts = 2; parts <= MOST_PARTS; parts++) {
        DLTensor *again = attention_trial_out(f.memory, &t, ROWS_BNHD);
        assert_int_equal(call_split(kernel, &t, again, parts, 1 + (parts * 5) % MOST_PARTS), 0);
        assert_true(tensor_identical(again, out));
        if (sums) assert_memory_equal(t.lse->data, sums, bytes);
      }
    }
  }
  assert_true(split > 0);
}

TEST(plain) { parts_and_targets("attention"); }

/* Rows that no register divides, and prefix tokens: also more of them than a chunk. */
TEST(biased) {
  parts_and_targets("alibi heads=6 head_dim=24 value_dim=43 skip_tokens=2");
  parts_and_targets("alibi heads=6 head_dim=16 skip_tokens=550");
}

TEST(hiding) { parts_and_targets("lookhere heads=12"); }

TEST(dear) { parts_and_targets("more/t5 heads=6"); }

TEST(rotated) {
  parts_and_targets("lingeope head_dim=20");
  parts_and_targets("./rows_turned heads=6 head_dim=24 skip_tokens=550");
  parts_and_targets("./values head_dim=6");
}

/* ---- one call in small ---- */

typedef struct small {
  fixture f;
  loaded_kernel *loaded;
  const pegen_kernel *kernel;
  attention_trial trial;
  DLTensor *out;
  pegen_args args;
} small;

/* With the first target that splits. */
static small open_small(const attention_sizes *sizes, int causal) {
  small s = {.f = fixture_open(NULL, 3, "attention")};
  for (int target = 0; target < s.f.n_targets; target++) {
    s.loaded = trial_load(s.f.memory, s.f.spec, s.f.targets[target], PEGEN_DTYPE_F32, 1);
    s.kernel = run_kernel(s.loaded);
    s.trial = (attention_trial){.spec = s.f.spec, .causal = causal};
    attention_trial_fill(s.f.memory, &s.trial, sizes, NUMBER_F32, ROWS_BHND, &s.f.random);
    s.out = attention_trial_out(s.f.memory, &s.trial, ROWS_BHND);
    s.args = attention_trial_args(s.kernel, &s.trial, s.out);
    s.args.split_keys = 1;
    s.args.workspace = room;
    if ((s.args.workspace_bytes = s.kernel->attention_workspace(&s.args)) > 0) return s;
    run_unload(s.loaded);
  }
  fail_msg("no target splits");
  return s;
}

static void close_small(small *s) {
  run_unload(s->loaded);
  arena_destroy(s->f.memory);
}

static DLTensor *of_batch(const small *s, const DLTensor *all, int64_t batch) {
  DLTensor *one = arena_new(s->f.memory, DLTensor);
  *one = *all;
  one->shape = arena_array(s->f.memory, int64_t, 4);
  memcpy(one->shape, all->shape, 4 * sizeof(int64_t));
  one->shape[0] = 1;
  one->data = tensor_at(all, batch, 0, 0, 0);
  one->byte_offset = 0;
  return one;
}

TEST(batches) {
  small s = open_small(&(attention_sizes){3, 6, 2, 2, 1100}, 1);
  assert_int_equal(call_split(s.kernel, &s.trial, s.out, 3, 2), 0);
  for (int64_t batch = 0; batch < 3; batch++) {
    attention_trial one = s.trial;
    one.q = of_batch(&s, s.trial.q, batch), one.k = of_batch(&s, s.trial.k, batch);
    one.v = of_batch(&s, s.trial.v, batch);
    DLTensor *alone = attention_trial_out(s.f.memory, &one, ROWS_BHND);
    assert_int_equal(call_split(s.kernel, &one, alone, 2, 3), 0);
    assert_memory_equal(tensor_at(alone, 0, 0, 0, 0), tensor_at(s.out, batch, 0, 0, 0), 6 * 2 * 64 * sizeof(float));
  }
  close_small(&s);
}

/* Numbers that a query does not see, whole chunks of them too, and queries that see nothing at all. */
TEST(unseen) {
  small s = open_small(&(attention_sizes){1, 2, 1, 2, 1537}, 1);
  DLTensor *clean = attention_trial_out(s.f.memory, &s.trial, ROWS_BHND);
  assert_int_equal(call_split(s.kernel, &s.trial, clean, 2, 1), 0);
  *(float *)tensor_at(s.trial.k, 0, 0, 1536, 3) = NAN;
  *(float *)tensor_at(s.trial.v, 0, 0, 1536, 5) = INFINITY;
  assert_int_equal(call_split(s.kernel, &s.trial, s.out, 4, 1), 0);
  for (int64_t head = 0; head < 2; head++) {
    assert_memory_equal(tensor_at(s.out, 0, head, 0, 0), tensor_at(clean, 0, head, 0, 0), 64 * sizeof(float));
    assert_true(isnan(*(float *)tensor_at(s.out, 0, head, 1, 5)));
  }
  close_small(&s);
}

static void expect_refused(const small *s, int error) {
  DLTensor *before = tensor_copy(s->f.memory, s->out);
  static unsigned char held[sizeof room];
  memcpy(held, room, sizeof room);
  assert_int_equal(s->kernel->attention(&s->args, 0, 1), error);
  assert_int_equal(s->kernel->attention_finish(&s->args, 0, 1), error);
  assert_true(tensor_identical(before, s->out));
  assert_memory_equal(held, room, sizeof room);
}

TEST(refused) {
  small s = open_small(&(attention_sizes){1, 2, 1, 1, 700}, 0);
  pegen_args sound = s.args;
  s.args.workspace = NULL;
  expect_refused(&s, PEGEN_ERROR_WORKSPACE);
  s.args = sound;
  s.args.workspace_bytes--;
  expect_refused(&s, PEGEN_ERROR_WORKSPACE);
  s.args = sound;
  s.args.workspace = room + 4;
  expect_refused(&s, PEGEN_ERROR_ALIGNMENT);
  s.args = sound;
  const DLTensor *tensors[] = {s.args.q, s.args.k, s.args.v, s.args.out};
  for (int i = 0; i < 4; i++) {
    s.args.workspace = tensor_at(tensors[i], 0, 0, 0, 0);
    expect_refused(&s, PEGEN_ERROR_OVERLAP);
  }
  s.args = sound;
  s.args.k = NULL;
  assert_int_equal(s.kernel->attention_workspace(&s.args), 0);
  expect_refused(&s, PEGEN_ERROR_MISSING_TENSOR);
  close_small(&s);
}

/* Without split_keys, also in a struct that ends before it, a workspace is not looked at; nor where keys are few. */
TEST(unsplit) {
  small s = open_small(&(attention_sizes){1, 6, 2, 1, 900}, 0);
  DLTensor *plain_out = attention_trial_out(s.f.memory, &s.trial, ROWS_BHND);
  assert_int_equal(attention_trial_call(s.kernel, &s.trial, plain_out, 1), 0);
  s.args.workspace = room + 1;
  s.args.struct_size = offsetof(pegen_args, split_keys);
  assert_int_equal(s.kernel->attention_workspace(&s.args), 0);
  assert_int_equal(s.kernel->attention(&s.args, 0, 1), 0);
  assert_int_equal(s.kernel->attention_finish(&s.args, 0, 1), 0);
  assert_true(tensor_identical(plain_out, s.out));
  s.args.struct_size = sizeof s.args;
  s.trial.k->shape[2] = s.trial.v->shape[2] = 512;
  assert_int_equal(attention_trial_call(s.kernel, &s.trial, plain_out, 1), 0);
  assert_int_equal(s.kernel->attention_workspace(&s.args), 0);
  assert_int_equal(s.kernel->attention(&s.args, 0, 1), 0);
  assert_int_equal(s.kernel->attention_finish(&s.args, 0, 1), 0);
  assert_true(tensor_identical(plain_out, s.out));
  close_small(&s);
}

int main(void) { return run_listed(); }
