/* few_threads_test TARGET: few queries of 16-bit rows on a GPU whose threads run here: against the reference, with keys
 * in one chunk and in several, the same bits each time; numbers that are not finite; calls that the entry leaves to
 * others; and what is refused. */
#include "fixture.h"
#include "scoped.h"
#include "test.h"
#include "verify/run_threads.h"

#include <math.h>
#include <string.h>

static const double BOUND = 0x1p-18;
enum { GUARD = 64, MOST_BYTES = 1 << 20, HEADS = 8 };

static const char *target;
static _Alignas(64) unsigned char room[MOST_BYTES + GUARD];

static void assert_entry(const pegen_kernel *kernel, const char *word, bool is_it) {
  const char *name = run_threads_entry(kernel);
  if ((strstr(name, word) != NULL) != is_it) fail_msg("%s was launched", name);
}

/* In chunks; how many bytes they took. */
static size_t call_split(const pegen_kernel *kernel, const attention_trial *t, DLTensor *out, int filling) {
  pegen_args args = attention_trial_args(kernel, t, out);
  args.split_keys = 1;
  size_t bytes = kernel->attention_workspace(&args);
  assert_in_range(bytes, 0, MOST_BYTES);
  memset(room, filling, sizeof room);
  args.workspace = bytes ? room : NULL;
  args.workspace_bytes = bytes;
  assert_int_equal(kernel->attention(&args, 0, 1), 0);
  assert_entry(kernel, "_attention_few_", true);
  assert_int_equal(kernel->attention_finish(&args, 0, 1), 0);
  assert_entry(kernel, "_attention_finish_", bytes > 0);
  for (size_t i = 0; i < GUARD; i++) assert_int_equal(room[bytes + i], filling);
  return bytes;
}

static void compare(const fixture *f, const pegen_kernel *kernel, const attention_trial *t, DLTensor *out) {
  trial_error worst = {0};
  attention_trial_compare(f->memory, kernel, t, out, 1, &worst);
  attention_trial_compare_lse(f->memory, kernel, t, 1, &worst);
  if (worst.spoilt || worst.error > BOUND) fail_msg("%s", trial_error_text(f->memory, &worst));
}

static attention_trial trial_of(fixture *f, int round, const attention_sizes *sizes, number_type type) {
  attention_trial t = {.spec = f->spec, .causal = round % 2, .scale = round % 3 == 2 ? -0.3 : 0};
  attention_trial_fill(f->memory, &t, sizes, type, round % 2 ? ROWS_BHND : ROWS_BNHD, &f->random);
  if (f->spec->n_axes) {
    t.positions = fixture_positions(f, NUMBER_F32, round % 2 ? 0 : sizes->batch, sizes->tokens);
    t.k_positions = fixture_positions(f, NUMBER_I64, round % 2 ? sizes->batch : 0, sizes->keys);
  }
  t.operands = trial_random_operands(f->memory, f->spec, NUMBER_F32, &f->random);
  t.lse = attention_trial_lse(f->memory, &t);
  return t;
}

static void one_call(fixture *f, const pegen_kernel *kernel, const attention_trial *t, int64_t chunks) {
  DLTensor *out = attention_trial_out(f->memory, t, ROWS_BNHD), *again = attention_trial_out(f->memory, t, ROWS_BNHD);
  int64_t rows = t->q->shape[0] * t->q->shape[1] * t->q->shape[2], width = f->spec->pairwise->value_dim + 2;
  assert_int_equal(call_split(kernel, t, out, 0xff), chunks > 1 ? rows * chunks * width * (int64_t)sizeof(float) : 0);
  compare(f, kernel, t, out);
  size_t bytes = (size_t)rows * sizeof(float);
  void *lse = memcpy(arena_alloc(f->memory, bytes), t->lse->data, bytes);
  call_split(kernel, t, again, 0x40);
  assert_true(tensor_identical(again, out));
  assert_memory_equal(lse, t->lse->data, bytes);
  assert_int_equal(attention_trial_call(kernel, t, again, 1), 0);
  assert_entry(kernel, "_attention_few_", true);
  compare(f, kernel, t, again);
}

/* Groups of 1, 4 and 8 heads; keys that no tile divides, in 1 up to 11 chunks; queries that see no key. */
static void against_the_reference(const char *what) {
  static const struct {
    attention_sizes sizes;
    int64_t chunks;
  } cases[] = {{{1, HEADS, 8, 1, 100}, 1}, {{1, HEADS, 8, 3, 131}, 2},   {{2, HEADS, 2, 1, 700}, 6},
               {{1, HEADS, 2, 3, 513}, 5}, {{1, HEADS, 1, 1, 1300}, 11}, {{2, HEADS, 1, 3, 257}, 3},
               {{1, HEADS, 1, 4, 2}, 1},   {{1, HEADS, 4, 16, 200}, 2},  {{1, HEADS, 8, 1, 0}, 1}};
  SCOPED fixture f = fixture_open(target, 7, "%s", what);
  SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.spec, target, PEGEN_DTYPE_BF16 | PEGEN_DTYPE_F16, 2));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    attention_trial t = trial_of(&f, (int)i, &cases[i].sizes, i % 2 ? NUMBER_F16 : NUMBER_BF16);
    one_call(&f, run_kernel(loaded), &t, cases[i].chunks);
  }
}

TEST(plain) { against_the_reference("attention head_dim=24 value_dim=40"); }

/* Slopes of heads, and prefix tokens. */
TEST(biased) { against_the_reference("alibi heads=8 head_dim=32 value_dim=16 skip_tokens=2"); }

/* Scores that read inputs: of heads of keys that k has, too, and of more, which other entries serve. */
TEST(inputs) {
  fixture f = fixture_open(target, 5, "./score_inputs kind=mixed skip_tokens=2");
  SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.spec, target, PEGEN_DTYPE_BF16, 2));
  attention_sizes sizes = {2, 4, 2, 3, 300};
  for (int64_t heads = 1; heads <= 4; heads *= 2) {
    attention_trial t = trial_of(&f, 1, &sizes, NUMBER_BF16);
    for (int i = 0; i < f.spec->n_inputs; i++) {
      bool of_keys = f.spec->input[i].of_keys;
      int64_t size = f.spec->input[i].size ? f.spec->input[i].size : 1, own = of_keys ? heads : sizes.heads,
              tokens = of_keys ? sizes.keys : sizes.tokens, shape[] = {sizes.batch, own, tokens, size};
      double *values = arena_array(f.memory, double, sizes.batch * own * tokens * size);
      for (int64_t n = 0; n < sizes.batch * own * tokens * size; n++)
        values[n] = (double)(float)random_uniform(&f.random, -1, 1);
      t.inputs.values[i] = values;
      t.inputs.tensors[i] = tensor_contiguous(f.memory, NUMBER_F32, f.spec->input[i].size ? 4 : 3, shape, values);
    }
    if (heads <= sizes.k_heads) {
      one_call(&f, run_kernel(loaded), &t, 3);
      continue;
    }
    DLTensor *out = attention_trial_out(f.memory, &t, ROWS_BNHD);
    pegen_args args = attention_trial_args(run_kernel(loaded), &t, out);
    args.split_keys = 1;
    assert_int_equal(run_kernel(loaded)->attention_workspace(&args), 0);
    assert_int_equal(run_kernel(loaded)->attention(&args, 0, 1), 0);
    assert_entry(run_kernel(loaded), "_attention_few_", false);
    assert_int_equal(run_kernel(loaded)->attention_finish(&args, 0, 1), 0);
    compare(&f, run_kernel(loaded), &t, out);
  }
  arena_destroy(f.memory);
}

/* ---- one call in small ---- */

typedef struct small {
  fixture f;
  loaded_kernel *loaded;
  const pegen_kernel *kernel;
  attention_trial trial;
  DLTensor *out;
} small;

static small open_small(const attention_sizes *sizes, int causal) {
  small s = {.f = fixture_open(target, 3, "attention head_dim=16")};
  s.loaded = held(trial_load(s.f.memory, s.f.spec, target, PEGEN_DTYPE_BF16, 1));
  s.kernel = run_kernel(s.loaded);
  s.trial = (attention_trial){.spec = s.f.spec, .causal = causal};
  attention_trial_fill(s.f.memory, &s.trial, sizes, NUMBER_BF16, ROWS_BHND, &s.f.random);
  s.trial.lse = attention_trial_lse(s.f.memory, &s.trial);
  s.out = attention_trial_out(s.f.memory, &s.trial, ROWS_BHND);
  return s;
}

static void close_small(small *s) {
  run_unload(s->loaded);
  arena_destroy(s->f.memory);
}

static double number_of(const DLTensor *t, int64_t head, int64_t token, int64_t channel) {
  return number_load(NUMBER_BF16, tensor_at(t, 0, head, token, channel));
}

/* What a key that a query does not see holds is no matter, in the chunk of others that it sees, too. */
TEST(unseen) {
  small s = open_small(&(attention_sizes){1, 4, 1, 2, 300}, 1);
  DLTensor *clean = attention_trial_out(s.f.memory, &s.trial, ROWS_BHND);
  call_split(s.kernel, &s.trial, clean, 0xff);
  number_store(NUMBER_BF16, tensor_at(s.trial.v, 0, 0, 299, 5), (long double)INFINITY);
  number_store(NUMBER_BF16, tensor_at(s.trial.v, 0, 0, 299, 6), (long double)NAN);
  for (int split = 0; split < 2; split++) {
    if (split) call_split(s.kernel, &s.trial, s.out, 0xff);
    else assert_int_equal(attention_trial_call(s.kernel, &s.trial, s.out, 1), 0);
    for (int64_t head = 0; head < 4; head++)
      for (int64_t c = 0; c < s.f.spec->pairwise->value_dim; c++) {
        assert_true(fabs(number_of(s.out, head, 0, c) - number_of(clean, head, 0, c)) < 0x1p-8);
        double last = number_of(s.out, head, 1, c);
        assert_true(c == 5   ? last == INFINITY
                    : c == 6 ? isnan(last)
                             : fabs(last - number_of(clean, head, 1, c)) < 0x1p-8);
      }
  }
  close_small(&s);
}

/* A chunk whose weight is 0 beside another's adds nothing, whatever its values are. */
TEST(outweighed) {
  small s = open_small(&(attention_sizes){1, 1, 1, 1, 300}, 0);
  int64_t width = s.f.spec->pairwise->value_dim;
  s.trial.scale = 100;
  for (int64_t c = 0; c < s.f.spec->head_dim; c++)
    number_store(NUMBER_BF16, tensor_at(s.trial.k, 0, 0, 5, c), (long double)(4 * number_of(s.trial.q, 0, 0, c)));
  for (int64_t c = 0; c < width; c++)
    for (int64_t key = 128; key < 256; key++)
      number_store(NUMBER_BF16, tensor_at(s.trial.v, 0, 0, key, c), (long double)NAN);
  for (int split = 0; split < 2; split++) {
    if (split) call_split(s.kernel, &s.trial, s.out, 0xff);
    else assert_int_equal(attention_trial_call(s.kernel, &s.trial, s.out, 1), 0);
    for (int64_t c = 0; c < width; c++)
      assert_true(number_of(s.out, 0, 0, c) == number_load(NUMBER_BF16, tensor_at(s.trial.v, 0, 0, 5, c)));
  }
  close_small(&s);
}

static void expect_refused(const small *s, const pegen_args *args, int error) {
  static unsigned char held[sizeof room];
  DLTensor *before = tensor_copy(s->f.memory, s->out);
  memcpy(held, room, sizeof room);
  assert_int_equal(s->kernel->attention(args, 0, 1), error);
  assert_int_equal(s->kernel->attention_finish(args, 0, 1), error);
  assert_true(tensor_identical(before, s->out));
  assert_memory_equal(held, room, sizeof room);
}

TEST(refused) {
  small s = open_small(&(attention_sizes){1, 4, 2, 1, 300}, 0);
  pegen_args sound = attention_trial_args(s.kernel, &s.trial, s.out), args;
  sound.split_keys = 1;
  sound.workspace = room;
  sound.workspace_bytes = s.kernel->attention_workspace(&sound);
  assert_true(sound.workspace_bytes > 0);
  args = sound, args.workspace = NULL;
  expect_refused(&s, &args, PEGEN_ERROR_WORKSPACE);
  args = sound, args.workspace_bytes--;
  expect_refused(&s, &args, PEGEN_ERROR_WORKSPACE);
  args = sound, args.workspace = room + 4;
  expect_refused(&s, &args, PEGEN_ERROR_ALIGNMENT);
  const DLTensor *tensors[] = {sound.q, sound.k, sound.v, sound.out, sound.lse};
  for (int i = 0; i < 5; i++) {
    args = sound, args.workspace = (char *)tensors[i]->data + tensors[i]->byte_offset;
    expect_refused(&s, &args, PEGEN_ERROR_OVERLAP);
  }
  /* Without split_keys a workspace is not looked at. */
  args = sound, args.workspace = room + 1, args.struct_size = offsetof(pegen_args, split_keys);
  assert_int_equal(s.kernel->attention_workspace(&args), 0);
  assert_int_equal(s.kernel->attention(&args, 0, 1), 0);
  assert_int_equal(s.kernel->attention_finish(&args, 0, 1), 0);
  compare(&s.f, s.kernel, &s.trial, s.out);
  close_small(&s);
}

int main(int argc, char **argv) {
  target = argc > 1 ? argv[1] : "sm_80";
  return run_listed();
}
