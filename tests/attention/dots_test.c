/* dots_test: attention in bfloat16 where this processor multiplies pairs of it by an instruction: that it
 * does, rows that are copied first, and numbers that are not finite; rows_test has sizes. Where it does not, all
 * but the first test hold of float32 products. */
#include "fixture.h"
#include "gradients.h"
#include "test.h"

#include <math.h>
#include <string.h>

static const double BOUND = 0x1p-18;

typedef struct compiled {
  fixture f;
  loaded_kernel *loaded;
  const pegen_kernel *kernel;
} compiled;

static compiled compile(const char *what) {
  compiled c = {.f = fixture_open(NULL, 11, "%s", what)};
  c.loaded = trial_load_gradients(c.f.memory, c.f.spec, c.f.targets[0], PEGEN_DTYPE_BF16, 2);
  assert_non_null(c.loaded);
  c.kernel = run_kernel(c.loaded);
  return c;
}

static void finish(compiled *c) {
  run_unload(c->loaded);
  arena_destroy(c->f.memory);
}

static attention_trial fill(compiled *c, attention_sizes sizes, row_order order) {
  attention_trial t = {.spec = c->f.spec};
  attention_trial_fill(c->f.memory, &t, &sizes, NUMBER_BF16, order, &c->f.random);
  t.operands = trial_random_operands(c->f.memory, c->f.spec, NUMBER_F32, &c->f.random);
  return t;
}

static DLTensor *call(const compiled *c, const attention_trial *t, int parts) {
  DLTensor *out = attention_trial_out(c->f.memory, t, ROWS_BHND);
  assert_int_equal(attention_trial_call(c->kernel, t, out, parts), 0);
  return out;
}

static void compare(const compiled *c, const attention_trial *t, DLTensor *out) {
  trial_error worst = {0};
  attention_trial_compare(c->f.memory, c->kernel, t, out, 1, &worst);
  if (t->lse) attention_trial_compare_lse(c->f.memory, c->kernel, t, 1, &worst);
  if (worst.spoilt || worst.error > BOUND) fail_msg("%s", trial_error_text(c->f.memory, &worst));
}

static attention_gradients gradients_of(compiled *c, const attention_trial *t) {
  attention_gradients g;
  assert_int_equal(attention_gradients_fill(c->f.memory, &g, t, c->kernel, true, 1, ROWS_GAPS, &c->f.random), 0);
  return g;
}

static double number_of(const DLTensor *t, int64_t h, int64_t n, int64_t c) {
  return number_load(NUMBER_BF16, tensor_at(t, 0, h, n, c));
}

/* All are at the origin, so that rows that turn stay as they are. */
static void place(compiled *c, attention_trial *t) {
  size_t axes = (size_t)c->f.spec->n_axes, tokens = (size_t)t->q->shape[2], keys = (size_t)t->k->shape[2];
  if (!axes) return;
  t->positions = fixture_positions(&c->f, NUMBER_F32, 0, (int)tokens);
  memset(t->positions->data, 0, sizeof(float) * tokens * axes);
  t->k_positions = fixture_positions(&c->f, NUMBER_F32, 0, (int)keys);
  memset(t->k_positions->data, 0, sizeof(float) * keys * axes);
}

/* Two keys have the values 1 and -1, and the second weighs 2^-10 less: rounded to bfloat16 both weigh the same. */
static void are_used_by(const char *what) {
  enum { TOKENS = 40 };
  compiled c = compile(what);
  attention_trial t = fill(&c, (attention_sizes){1, 2, 2, TOKENS, 2}, ROWS_BHND);
  place(&c, &t);
  t.scale = 1;
  for (int64_t h = 0; h < 2; h++)
    for (int64_t n = 0; n < TOKENS; n++)
      for (int64_t i = 0; i < c.f.spec->head_dim; i++) {
        number_store(NUMBER_BF16, tensor_at(t.q, 0, h, n, i), 1);
        if (n < 2) number_store(NUMBER_BF16, tensor_at(t.k, 0, h, n, i), n || i ? 0 : 0x1p-10L);
        if (n < 2) number_store(NUMBER_BF16, tensor_at(t.v, 0, h, n, i), n ? -1 : 1);
      }
  DLTensor *out = call(&c, &t, 1);
  pegen_args args = attention_trial_args(c.kernel, &t, out);
  bool expected = attention_trial_rounds_weights(t.spec, c.kernel, false, &args);
  for (int64_t n = 0; n < TOKENS; n++) assert_true((number_of(out, 1, n, 1) == 0) == expected);
  finish(&c);
  if (expected) return;
  print_message("             (this processor has no dot products of bfloat16 that pay: products are float32)\n");
  skip();
}

TEST(are_used) { are_used_by("attention head_dim=2 value_dim=2"); }
TEST(are_used_by_turned_rows) {
  are_used_by("more/gta head_dim=4");
  are_used_by("./rows_turned head_dim=20 value_dim=12");
}

/* What came in for two queries cancels where their weights are alike, as they are rounded: .5 and .5 + 2^-12. */
static void gradients_use(const char *what) {
  compiled c = compile(what);
  attention_trial t = fill(&c, (attention_sizes){1, 2, 2, 2, 2}, ROWS_BHND);
  t.scale = 1;
  place(&c, &t);
  for (int64_t n = 0; n < 2; n++)
    for (int64_t i = 0; i < c.f.spec->head_dim; i++) {
      number_store(NUMBER_BF16, tensor_at(t.q, 0, 0, n, i), n);
      number_store(NUMBER_BF16, tensor_at(t.k, 0, 0, n, i), n || i ? 0 : 0x1p-10L);
    }
  attention_gradients g = gradients_of(&c, &t);
  for (int64_t n = 0; n < 2; n++)
    for (int64_t i = 0; i < t.v->shape[3]; i++) number_store(NUMBER_BF16, tensor_at(g.g_out, 0, 0, n, i), n ? -1 : 1);
  assert_int_equal(attention_gradients_call(c.kernel, &g, 1), 0);
  pegen_args args = attention_trial_args(c.kernel, &t, g.out);
  bool expected = attention_trial_rounds_weights(t.spec, c.kernel, true, &args);
  assert_true((number_of(g.v, 0, 0, 1) == 0) == expected);
  finish(&c);
  if (!expected) skip();
}

TEST(are_used_by_gradients) { gradients_use("attention head_dim=2 value_dim=2"); }
TEST(are_used_by_gradients_of_turned_rows) {
  gradients_use("more/gta head_dim=4");
  gradients_use("./rows_turned head_dim=20 value_dim=12");
}

static DLTensor *reordered(arena *a, const DLTensor *of) {
  DLTensor *t = tensor_rows(a, NUMBER_BF16, ROWS_BHND, of->shape[0], of->shape[1], of->shape[2], of->shape[3]);
  for (int64_t h = 0; h < of->shape[1]; h++)
    for (int64_t n = 0; n < of->shape[2]; n++)
      memcpy(tensor_at(t, 0, h, n, 0), tensor_at(of, 0, h, n, 0), (size_t)of->shape[3] * 2);
  return t;
}

/* Rows that are 4096 bytes apart are copied first: the same bits as without. */
TEST(copied_rows) {
  compiled c = compile("attention head_dim=64 value_dim=64");
  attention_trial t = fill(&c, (attention_sizes){1, 32, 32, 40, 71}, ROWS_BNHD);
  DLTensor *out = call(&c, &t, 1);
  compare(&c, &t, out);
  attention_gradients g = gradients_of(&c, &t);
  assert_int_equal(attention_gradients_call(c.kernel, &g, 1), 0);
  gradients_compare(c.f.memory, &g, 1);
  t.k = reordered(c.f.memory, t.k);
  t.v = reordered(c.f.memory, t.v);
  assert_true(tensor_identical(call(&c, &t, 1), out));
  attention_gradients others = attention_gradients_room(c.f.memory, &g);
  others.forward = t;
  others.forward.lse = g.forward.lse;
  assert_int_equal(attention_gradients_call(c.kernel, &others, 1), 0);
  assert_true(attention_gradients_same(&g, &others));
  finish(&c);
}

/* Keys that a query does not see leave no trace in it, the other one of a pair too. */
TEST(unseen_keys) {
  enum { TOKENS = 75, WIDTH = 34 };
  compiled c = compile("attention head_dim=34 value_dim=34");
  for (int64_t spoilt = 50; spoilt < 52; spoilt++) {
    attention_trial t = fill(&c, (attention_sizes){1, 3, 1, TOKENS, TOKENS}, ROWS_BHND);
    t.causal = true;
    DLTensor *good = call(&c, &t, 1);
    attention_gradients g = gradients_of(&c, &t);
    assert_int_equal(attention_gradients_call(c.kernel, &g, 1), 0);
    for (int64_t key = spoilt; key < TOKENS; key++) {
      number_store(NUMBER_BF16, tensor_at(t.k, 0, 0, key, 3), NAN);
      number_store(NUMBER_BF16, tensor_at(t.v, 0, 0, key, 4), INFINITY);
    }
    DLTensor *bad = call(&c, &t, 1);
    for (int64_t h = 0; h < 3; h++)
      for (int64_t n = 0; n < TOKENS; n++)
        for (int64_t i = 0; i < WIDTH; i++)
          assert_true(n < spoilt ? number_of(bad, h, n, i) == number_of(good, h, n, i)
                                 : isnan(number_of(bad, h, n, i)));
    attention_gradients spoilt_too = attention_gradients_room(c.f.memory, &g);
    spoilt_too.out = bad;
    assert_int_equal(attention_gradients_call(c.kernel, &spoilt_too, 1), 0);
    for (int64_t h = 0; h < 3; h++)
      for (int64_t n = 0; n < spoilt; n++)
        for (int64_t i = 0; i < WIDTH; i++) assert_true(number_of(spoilt_too.q, h, n, i) == number_of(g.q, h, n, i));
  }
  finish(&c);
}

/* A key that is seen keeps what it holds, also where it is the last one and has no partner. */
TEST(infinite_values) {
  static const int64_t keys[] = {37, 38};
  compiled c = compile("attention head_dim=32 value_dim=32");
  for (int i = 0; i < 2; i++) {
    attention_trial t = fill(&c, (attention_sizes){1, 1, 1, 40, keys[i]}, ROWS_BHND);
    DLTensor *good = call(&c, &t, 1);
    number_store(NUMBER_BF16, tensor_at(t.v, 0, 0, keys[i] - 1, 5), -INFINITY);
    DLTensor *bad = call(&c, &t, 1);
    for (int64_t n = 0; n < 40; n++)
      for (int64_t channel = 0; channel < 32; channel++)
        assert_true(number_of(bad, 0, n, channel) == (channel == 5 ? -INFINITY : number_of(good, 0, n, channel)));
  }
  finish(&c);
}

int main(void) { return run_listed(); }
