/* sizes_test [TARGET]: attention's properties that rows_test does not ask of every call: strides that are copied first,
 * queries that see nothing, heads that are walked together, rows that are not finite. */
#include "fixture.h"
#include "scoped.h"
#include "test.h"

#include <math.h>
#include <string.h>

static const double BOUND = 0x1p-18;

static const char *wanted; /* target; NULL: all that this machine runs */

static loaded_kernel *load(const fixture *f, int target) {
  return held(trial_load(f->memory, f->spec, f->targets[target], 0, 2));
}

static void compare(const fixture *f, const pegen_kernel *kernel, const attention_trial *t, DLTensor *out) {
  trial_error worst = {0};
  attention_trial_compare(f->memory, kernel, t, out, 1, &worst);
  if (t->lse) attention_trial_compare_lse(f->memory, kernel, t, 1, &worst);
  if (worst.spoilt || worst.error > BOUND) fail_msg("%s", trial_error_text(f->memory, &worst));
}

/* Rows whose strides are powers of two are copied first: the same bits as without. */
TEST(unkind_strides) {
  SCOPED fixture f = fixture_open(wanted, 7, "attention");
  SCOPED_KERNEL *loaded = load(&f, 0);
  attention_trial t = {.spec = f.spec};
  attention_trial_fill(f.memory, &t, &(attention_sizes){1, 16, 16, 40, 40}, NUMBER_F32, ROWS_BNHD,
                       &f.random); /* 4096 bytes a token */
  DLTensor *out = attention_trial_out(f.memory, &t, ROWS_BHND), *again = attention_trial_out(f.memory, &t, ROWS_BHND);
  assert_int_equal(attention_trial_call(run_kernel(loaded), &t, out, 1), 0);
  compare(&f, run_kernel(loaded), &t, out);
  DLTensor **tensors[] = {&t.k, &t.v};
  for (int i = 0; i < 2; i++) {
    DLTensor *kind = tensor_rows(f.memory, NUMBER_F32, ROWS_BHND, 1, 16, 40, 64);
    for (int64_t h = 0; h < 16; h++)
      for (int64_t n = 0; n < 40; n++)
        memcpy(tensor_at(kind, 0, h, n, 0), tensor_at(*tensors[i], 0, h, n, 0), 64 * sizeof(float));
    *tensors[i] = kind;
  }
  assert_int_equal(attention_trial_call(run_kernel(loaded), &t, again, 1), 0);
  assert_true(tensor_identical(out, again));
}

/* Queries that see nothing give zeros: hidden by the bias, or causal before the first key. */
TEST(nothing_seen) {
  SCOPED fixture f = fixture_open(wanted, 7, "./blind");
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = load(&f, target);
    attention_trial t = {.spec = f.spec};
    attention_trial_fill(f.memory, &t, &(attention_sizes){1, 2, 2, 50, 40}, NUMBER_F32, ROWS_BHND, &f.random);
    double *places = arena_array(f.memory, double, 50);
    for (int i = 0; i < 50; i++) places[i] = i;
    t.positions = tensor_contiguous(f.memory, NUMBER_I32, 2, (int64_t[]){50, 1}, places);
    t.k_positions = tensor_contiguous(f.memory, NUMBER_I32, 2, (int64_t[]){40, 1}, places);
    DLTensor *out = attention_trial_out(f.memory, &t, ROWS_BHND);
    t.lse = attention_trial_lse(f.memory, &t);
    for (t.causal = 0; t.causal < 2; t.causal++) {
      assert_int_equal(attention_trial_call(run_kernel(loaded), &t, out, 1), 0);
      compare(&f, run_kernel(loaded), &t, out);
      for (int64_t n = 0; n < 50; n++)
        for (int c = 0; c < 16; c++) {
          /* Head 0 sees keys at most 2 away; query 42 and later have none; causal query i sees keys up to i - 10. */
          bool blind = n > 41 || (t.causal && n < 10) || t.causal;
          double seen = number_load(NUMBER_F32, tensor_at(out, 0, 0, n, c)),
                 hidden = number_load(NUMBER_F32, tensor_at(out, 0, 1, n, c));
          assert_true(hidden == 0 && (!blind || seen == 0));
          const float *lse = t.lse ? (const float *)t.lse->data + n * 2 : NULL;
          if (lse) assert_true(lse[1] == -INFINITY && (!blind || lse[0] == -INFINITY));
        }
    }
  }
}

static DLTensor *one_head(arena *a, const DLTensor *rows, int64_t head) {
  DLTensor *t = arena_new(a, DLTensor);
  *t = *rows;
  t->shape = arena_array(a, int64_t, rows->ndim);
  for (int i = 0; i < rows->ndim; i++) t->shape[i] = rows->shape[i];
  t->shape[1] = 1;
  t->data = tensor_at(rows, 0, head, 0, 0);
  t->byte_offset = 0;
  return t;
}

/* Processors walk some heads of a tile together where all their pairs are rotated alike: numbers of heads that fill no
 * such group, heads that share keys across groups, and every head alone gives the same bits. */
TEST(heads_together) {
  static const attention_sizes sizes[] = {
      {1, 1, 1, 20, 70}, {2, 3, 1, 65, 65}, {1, 5, 5, 65, 65}, {1, 6, 2, 65, 65}, {1, 9, 3, 65, 65}};
  for (int round = 0; round < 2 * (int)(sizeof sizes / sizeof *sizes); round++) {
    const attention_sizes *of = &sizes[round / 2];
    if (round % 2 && of->tokens != 65) continue;
    SCOPED fixture f = fixture_open(wanted, 7, "./mirrors skip_tokens=2%s", round % 2 ? " grid=3,21" : "");
    SCOPED_KERNEL *loaded = load(&f, round % f.n_targets);
    attention_trial t = {.spec = f.spec, .causal = round / 2 & 1};
    attention_trial_fill(f.memory, &t, of, NUMBER_F32, ROWS_BNHD, &f.random);
    if (round % 2 == 0) {
      t.positions = fixture_positions(&f, NUMBER_F32, of->batch, of->tokens);
      t.k_positions = fixture_positions(&f, NUMBER_F32, 0, of->keys);
    }
    t.lse = attention_trial_lse(f.memory, &t);
    DLTensor *out = attention_trial_out(f.memory, &t, ROWS_BNHD), *parts = attention_trial_out(f.memory, &t, ROWS_BNHD),
             *alone = attention_trial_out(f.memory, &t, ROWS_BNHD);
    assert_int_equal(attention_trial_call(run_kernel(loaded), &t, out, 1), 0);
    compare(&f, run_kernel(loaded), &t, out);
    assert_int_equal(attention_trial_call(run_kernel(loaded), &t, parts, 3), 0);
    assert_true(tensor_identical(parts, out));
    for (int64_t h = 0; h < of->heads; h++) {
      attention_trial one = t;
      one.lse = NULL;
      one.q = one_head(f.memory, t.q, h);
      one.k = one_head(f.memory, t.k, h / (of->heads / of->k_heads));
      one.v = one_head(f.memory, t.v, h / (of->heads / of->k_heads));
      DLTensor *to = one_head(f.memory, alone, h);
      assert_int_equal(attention_trial_call(run_kernel(loaded), &one, to, 1), 0);
    }
    assert_true(tensor_identical(alone, out));
  }
}

/* A rotation of pairs by commuting rotations is what rope.lua does to q and k beforehand. */
TEST(fused_and_unfused) {
  SCOPED fixture fused = fixture_open(wanted, 7, "./rope_pairwise");
  SCOPED fixture encoding = fixture_open(wanted, 7, "rope head_dim=32"),
                 plain = fixture_open(wanted, 7, "attention head_dim=32");
  loaded_kernel *kernels[] = {load(&fused, 0), load(&encoding, 0), load(&plain, 0)};
  attention_trial t = {.spec = fused.spec};
  attention_trial_fill(fused.memory, &t, &(attention_sizes){1, 2, 2, 45, 45}, NUMBER_F32, ROWS_BHND, &fused.random);
  t.positions = fixture_positions(&fused, NUMBER_I32, 0, 45);
  DLTensor *out = attention_trial_out(fused.memory, &t, ROWS_BHND),
           *other = attention_trial_out(fused.memory, &t, ROWS_BHND);
  assert_int_equal(attention_trial_call(run_kernel(kernels[0]), &t, out, 1), 0);
  compare(&fused, run_kernel(kernels[0]), &t, out);
  assert_int_equal(trial_call(run_kernel(kernels[1]), t.positions, &t.operands, t.q, t.q, t.k, t.k, 1), 0);
  assert_int_equal(attention_trial_call(run_kernel(kernels[2]), &t, other, 1), 0);
  for (int64_t h = 0; h < 2; h++)
    for (int64_t n = 0; n < 45; n++)
      for (int c = 0; c < 32; c++)
        assert_true(fabs(number_load(NUMBER_F32, tensor_at(out, 0, h, n, c)) -
                         number_load(NUMBER_F32, tensor_at(other, 0, h, n, c))) < 1e-5);
  for (int i = 0; i < 3; i++) run_unload(kernels[i]);
}

/* Rows of k and v that are no numbers at keys that a query does not see leave no trace in it, and all in those that do.
 */
TEST(unseen_rows_leave_no_trace) {
  enum { TOKENS = 75, SPOILT = 3 };
  static const int64_t spoilt[SPOILT] = {30, 50, 74};
  static const float values[SPOILT] = {NAN, INFINITY, -INFINITY};
  static const struct {
    const char *line;
    int reach; /* of keys that are seen, beside causal; in head 0 */
  } cases[] = {{"./blind", 2}, {"./rope_pairwise", TOKENS}, {"attention", TOKENS}};
  for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
    SCOPED fixture f = fixture_open(wanted, 7, "%s", cases[at].line);
    for (int target = 0; target < f.n_targets; target++) {
      SCOPED_KERNEL *loaded = load(&f, target);
      for (int round = 0; round < 2 * NUMBER_CHANNEL_TYPES; round++) {
        number_type type = (number_type)(round / 2);
        attention_trial t = {.spec = f.spec, .causal = round % 2};
        attention_trial_fill(f.memory, &t, &(attention_sizes){1, 2, 2, TOKENS, TOKENS}, type, ROWS_BHND, &f.random);
        double places[TOKENS];
        for (int i = 0; i < TOKENS; i++) places[i] = i;
        t.positions = tensor_contiguous(f.memory, NUMBER_I32, 2, (int64_t[]){TOKENS, 1}, places);
        DLTensor *good = attention_trial_out(f.memory, &t, ROWS_BHND),
                 *bad = attention_trial_out(f.memory, &t, ROWS_BHND);
        assert_int_equal(attention_trial_call(run_kernel(loaded), &t, good, 1), 0);
        for (int i = 0; i < SPOILT; i++) {
          number_store(type, tensor_at(t.v, 0, 0, spoilt[i], f.spec->pairwise->value_dim - 1), values[i]);
          number_store(type, tensor_at(t.k, 0, 0, spoilt[i], 3), NAN); /* an infinite one may well hide the key */
          number_store(type, tensor_at(t.v, 0, 1, spoilt[i], 0), values[i]);
        }
        assert_int_equal(attention_trial_call(run_kernel(loaded), &t, bad, 1), 0);
        bool again = fixture_has_tiles(run_kernel(loaded), &t, bad);
        for (int64_t h = 0; h < 2; h++)
          for (int64_t n = 0; n < TOKENS; n++) {
            bool sees = false;
            int reach = h == 1 && cases[at].reach < TOKENS ? -1 : cases[at].reach;
            for (int i = 0; i < SPOILT; i++)
              sees = sees || (llabs(n - spoilt[i]) <= reach && (!t.causal || spoilt[i] <= n));
            for (int c = 0; c < f.spec->pairwise->value_dim; c++) {
              double x = number_load(type, tensor_at(good, 0, h, n, c)),
                     y = number_load(type, tensor_at(bad, 0, h, n, c));
              bool reached = sees && (h == 0 || c == 0); /* a score that is no number spoils all channels */
              /* Blocks of a tile program with such rows are made again without them, and no weight is rounded there. */
              int roundings = type == NUMBER_F32 ? 16 : 1;
              double off = again ? (double)(roundings * number_half_ulp(type, 1) + 2 * number_half_ulp(type, x)) : 0;
              if (reached ? isfinite(y) : !(fabs(x - y) <= off))
                fail_msg("%s, head %d query %d channel %d: %g, %g with the others spoilt", cases[at].line, (int)h,
                         (int)n, c, x, y);
            }
          }
      }
    }
  }
}

/* A bias of distances does not know where the origin is. */
TEST(far_from_the_origin) {
  SCOPED fixture f = fixture_open(wanted, 7, "alibi axes=2 heads=1 head_dim=8");
  SCOPED_KERNEL *loaded = load(&f, 0);
  attention_trial t = {.spec = f.spec};
  attention_trial_fill(f.memory, &t, &(attention_sizes){1, 1, 1, 30, 30}, NUMBER_F32, ROWS_BHND, &f.random);
  double values[60];
  for (int i = 0; i < 60; i++) values[i] = 0x1p30 + random_below(&f.random, 1000) / 64.0;
  t.positions = tensor_contiguous(f.memory, NUMBER_F64, 2, (int64_t[]){30, 2}, values);
  DLTensor *out = attention_trial_out(f.memory, &t, ROWS_BHND);
  assert_int_equal(attention_trial_call(run_kernel(loaded), &t, out, 1), 0);
  compare(&f, run_kernel(loaded), &t, out);
}

int main(int argc, char **argv) {
  wanted = argc > 1 ? argv[1] : NULL;
  return run_listed();
}
