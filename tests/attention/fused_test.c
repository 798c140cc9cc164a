/* fused_test: biases that are polynomials, inside attention.
 *
 *   fused_test [TARGET]            against columns and plain attention, calls that must be refused, rows that are not
 *                                  finite
 *   fused_test SEED N [TARGET]     N random biases from SEED on against the definition
 */
#include "fixture.h"
#include "scoped.h"
#include "test.h"
#include "verify/trial_widen.h"

#include <math.h>
#include <string.h>

static const long double BOUND = 0x1p-18L;

static const char *wanted; /* target; NULL: this machine's own, or all that it runs */

/* target: NULL: the one that is wanted. */
static loaded_kernel *compiled(arena *a, const spec *s, const char *target, int optimize) {
  return held(trial_load(a, s, target ? target : wanted ? wanted : "native", 0, optimize));
}

static double *random_places(arena *a, const spec *s, int64_t tokens, double extent, uint64_t *random) {
  double *values = arena_array(a, double, tokens * s->n_axes + 1);
  for (int64_t i = 0; i < tokens * s->n_axes; i++) values[i] = random_uniform(random, -extent, extent);
  return values;
}

static const DLTensor *places(arena *a, const spec *s, number_type type, int64_t tokens, double extent,
                              uint64_t *random) {
  return tensor_contiguous(a, type, 2, (int64_t[]){tokens, s->n_axes}, random_places(a, s, tokens, extent, random));
}

static void compare(arena *a, const pegen_kernel *kernel, const attention_trial *t, DLTensor *out, int64_t step) {
  trial_error worst = {0};
  attention_trial_compare(a, kernel, t, out, step, &worst);
  if (worst.spoilt || worst.error > BOUND) fail_msg("%s", trial_error_text(a, &worst));
}

/* ---- against widened rows and plain attention ---- */

static void one_description(const char *line, double extent) {
  enum { HEADS = 4, K_HEADS = 2, QUERIES = 41, KEYS = 77 };
  SCOPED arena *a = arena_create();
  spec *s = described(a, "%s role=pairwise head_dim=24 value_dim=19", line),
       *wide = described(a, "%s head_dim=24", line);
  SCOPED_KERNEL *fused = compiled(a, s, NULL, 3), *widening = compiled(a, wide, "native", 3);
  int width = run_kernel(widening)->widths[NUMBER_F32].out_dim;
  spec *plain = described(a, "attention head_dim=%d value_dim=19", width);
  SCOPED_KERNEL *attention = compiled(a, plain, "native", 3);

  uint64_t random = 3;
  attention_trial t = {.spec = s, .scale = 0.3};
  attention_trial_fill(a, &t, &(attention_sizes){2, HEADS, K_HEADS, QUERIES, KEYS}, NUMBER_F32, ROWS_BHND, &random);
  t.operands = trial_random_operands(a, s, NUMBER_F32, &random);
  t.positions = places(a, s, NUMBER_F32, QUERIES, extent, &random);
  t.k_positions = places(a, s, NUMBER_F32, KEYS, extent, &random);
  DLTensor *out = attention_trial_out(a, &t, ROWS_BHND), *other = attention_trial_out(a, &t, ROWS_BHND);
  assert_int_equal(attention_trial_call(run_kernel(fused), &t, out, 1), 0);
  compare(a, run_kernel(fused), &t, out, 1);

  widen_trial columns = {.spec = wide,
                         .q = t.q,
                         .k = t.k,
                         .positions = t.positions,
                         .k_positions = t.k_positions,
                         .operands = t.operands,
                         .inputs = t.inputs};
  columns.q_out = tensor_rows(a, NUMBER_F32, ROWS_BHND, 2, HEADS, QUERIES, width);
  columns.k_out = tensor_rows(a, NUMBER_F32, ROWS_BHND, 2, K_HEADS, KEYS, width);
  assert_int_equal(widen_trial_call(run_kernel(widening), &columns, columns.q_out, columns.k_out, 3, 1), 0);
  attention_trial unfused = {.spec = plain, .q = columns.q_out, .k = columns.k_out, .v = t.v, .scale = t.scale};
  assert_int_equal(attention_trial_call(run_kernel(attention), &unfused, other, 1), 0);
  double moved = 0;
  for (int64_t i = 0; i < 2 * HEADS * QUERIES * 19; i++) {
    int64_t row = i / 19, b = row / (HEADS * QUERIES), h = row / QUERIES % HEADS;
    double x = number_load(NUMBER_F32, tensor_at(out, b, h, row % QUERIES, i % 19)),
           y = number_load(NUMBER_F32, tensor_at(other, b, h, row % QUERIES, i % 19));
    if (!(fabs(x - y) <= 0x1p-14)) fail_msg("%s: %g fused, %g by columns", line, x, y);
    moved = fmax(moved, fabs(x));
  }
  assert_true(moved > 0.1);
}

TEST(fused_and_unfused) {
  one_description("pape axes=2", 1);
  one_description("pape axes=3 heads=4 parabolas=13", 1);
  one_description("pape_ri axes=3 heads=4", 2);
  one_description("polynomial axes=2 degree=3", 3);
  one_description("polynomial axes=1 degree=5 leading=softplus terms=3", 3);
}

/* ---- sizes ---- */

/* Where the origin is does not matter, neither to the bits of whole numbers nor to what float32 holds of distances. */
TEST(far_from_the_origin) {
  enum { TOKENS = 45 };
  SCOPED arena *a = arena_create();
  spec *s = described(a, "polynomial role=pairwise axes=2 degree=4 head_dim=8");
  SCOPED_KERNEL *loaded = compiled(a, s, NULL, 3);
  uint64_t random = 4;
  attention_trial t = {.spec = s};
  attention_trial_fill(a, &t, &(attention_sizes){1, 2, 2, TOKENS, TOKENS}, NUMBER_F32, ROWS_BHND, &random);
  t.operands = trial_random_operands(a, s, NUMBER_F32, &random);
  double near[2 * TOKENS], far[2 * TOKENS];
  for (int i = 0; i < 2 * TOKENS; i++) far[i] = 0x1p40 + (near[i] = random_below(&random, 100));
  DLTensor *out[2];
  for (int i = 0; i < 2; i++) {
    t.positions = tensor_contiguous(a, NUMBER_F64, 2, (int64_t[]){TOKENS, 2}, i ? far : near);
    out[i] = attention_trial_out(a, &t, ROWS_BHND);
    assert_int_equal(attention_trial_call(run_kernel(loaded), &t, out[i], 1), 0);
    compare(a, run_kernel(loaded), &t, out[i], 1);
  }
  assert_true(tensor_identical(out[0], out[1]));
}

/* ---- refusals ---- */

TEST(bad_calls_are_refused) {
  arena *a = arena_create();
  spec *s = described(a, "pape role=pairwise axes=2 parabolas=6 heads=2 head_dim=16");
  loaded_kernel *loaded = compiled(a, s, NULL, 1);
  const pegen_kernel *kernel = run_kernel(loaded);
  uint64_t random = 5;
  attention_trial t = {.spec = s};
  attention_trial_fill(a, &t, &(attention_sizes){1, 2, 1, 3, 3}, NUMBER_BF16, ROWS_BHND, &random);
  t.operands = trial_random_operands(a, s, NUMBER_F32, &random);
  t.positions = places(a, s, NUMBER_F32, 3, 2, &random);
  DLTensor *out = attention_trial_out(a, &t, ROWS_BHND), *untouched = tensor_copy(a, out),
           *other = arena_new(a, DLTensor);
  const attention_trial good = t;
  const DLTensor *inputs[] = {good.inputs.tensors[0], good.inputs.tensors[1]}, *operand;
  int64_t shape[4];
#define WITH_SHAPE(of, at, value) \
  (*other = *(of), memcpy(shape, (of)->shape, (size_t)(of)->ndim * 8), shape[at] = (value), other->shape = shape, \
   other->strides = NULL, other)
#define REFUSED(error) \
  do { \
    assert_int_equal(attention_trial_call(kernel, &t, out, 1), PEGEN_ERROR_##error); \
    assert_true(tensor_identical(out, untouched)); \
  } while (0)
  t.inputs.tensors = inputs;
  for (int i = 0; i < 4; i++) { /* B, H, N, m */
    inputs[1] = WITH_SHAPE(good.inputs.tensors[1], i, 5);
    REFUSED(INPUT_SHAPE);
  }
  other->ndim = 3;
  REFUSED(INPUT_SHAPE);
  inputs[1] = NULL;
  REFUSED(MISSING_INPUT);
  t.inputs.tensors = NULL;
  REFUSED(MISSING_INPUT);
  t.inputs.tensors = inputs;
  inputs[1] = other;
  *other = *good.inputs.tensors[1];
  other->dtype.code = kDLFloat; /* float16 beside bfloat16 */
  REFUSED(INPUT_DTYPE);
  other->dtype.bits = 32; /* float32 beside bfloat16 */
  REFUSED(INPUT_DTYPE);
  *other = *good.inputs.tensors[1];
  other->data = out->data;
  REFUSED(OVERLAP);
  *other = *good.inputs.tensors[1];
  other->data = NULL;
  REFUSED(NULL_DATA);
  inputs[1] = good.inputs.tensors[1];
  t.positions = NULL;
  REFUSED(MISSING_POSITIONS);
  t.positions = WITH_SHAPE(good.positions, 1, 3); /* P */
  REFUSED(POSITIONS_SHAPE);
  t.positions = good.positions;
  t.operands.tensors = &operand;
  operand = WITH_SHAPE(good.operands.tensors[0], 1, 7); /* m of the projection */
  REFUSED(OPERAND_SHAPE);
  operand = WITH_SHAPE(good.operands.tensors[0], 2, 3); /* P of the projection */
  REFUSED(OPERAND_SHAPE);
  operand = good.operands.tensors[0];
  t.q = WITH_SHAPE(good.q, 1, 4);
  REFUSED(SHAPE_MISMATCH);
  t.q = good.q;
  assert_int_equal(attention_trial_call(kernel, &t, out, 1), 0);
  run_unload(loaded);
  arena_destroy(a);
}

/* ---- numbers that are none ---- */

/* What queries may differ by, of their largest number: nothing, but where tile programs make blocks again. */
static double allowed(const loaded_kernel *loaded, const attention_trial *t, DLTensor *out) {
  return fixture_has_tiles(run_kernel(loaded), t, out) ? 0x1p-18 : 0;
}

/* An input that is no number spoils its own query, of its own head. */
TEST(nan_stays_in_its_query) {
  enum { TOKENS = 37, QUERY = 20 };
  SCOPED arena *a = arena_create();
  spec *s = described(a, "pape role=pairwise axes=2 parabolas=20 head_dim=8");
  SCOPED_KERNEL *loaded = compiled(a, s, NULL, 3);
  uint64_t random = 6;
  attention_trial t = {.spec = s};
  attention_trial_fill(a, &t, &(attention_sizes){1, 2, 2, TOKENS, TOKENS}, NUMBER_F32, ROWS_BHND, &random);
  t.operands = trial_random_operands(a, s, NUMBER_F32, &random);
  t.positions = places(a, s, NUMBER_F32, TOKENS, 1, &random);
  DLTensor *good = attention_trial_out(a, &t, ROWS_BHND), *out = attention_trial_out(a, &t, ROWS_BHND);
  assert_int_equal(attention_trial_call(run_kernel(loaded), &t, good, 1), 0);
  double within = allowed(loaded, &t, good);
  const uint32_t payload = 0x7fc01fff; /* one whose low bits would count in an exponent */
  memcpy((float *)t.inputs.tensors[1]->data + (TOKENS + QUERY) * 20 + 19, &payload, sizeof payload);
  assert_int_equal(attention_trial_call(run_kernel(loaded), &t, out, 1), 0);
  for (int64_t h = 0; h < 2; h++)
    for (int64_t n = 0; n < TOKENS; n++)
      if (h == 1 && n == QUERY)
        for (int c = 0; c < 8; c++) assert_true(isnan(*(float *)tensor_at(out, 0, h, n, c)));
      else assert_true(!fixture_rows_differ(good, out, h, n, within));
}

/* Sets a coordinate of a token to what is no number. */
static void spoil_place(const DLTensor *positions, int64_t token) {
  ((float *)positions->data)[token * positions->shape[1]] = NAN;
}

/* Rows, operands and places in float32, the keys' places others than the queries'. */
static attention_trial placed_trial(arena *a, const spec *s, attention_sizes sizes, bool causal, uint64_t random) {
  attention_trial t = {.spec = s, .causal = causal};
  attention_trial_fill(a, &t, &sizes, NUMBER_F32, ROWS_BHND, &random);
  t.operands = trial_random_operands(a, s, NUMBER_F32, &random);
  t.positions = places(a, s, NUMBER_F32, sizes.tokens, 1, &random);
  t.k_positions = places(a, s, NUMBER_F32, sizes.keys, 1, &random);
  return t;
}

/* A key that a query does not see leaves no trace in it, be its place or its rows no numbers. */
TEST(unseen_keys_leave_no_trace) {
  enum { TOKENS = 75, SPOILT = 50 };
  SCOPED arena *a = arena_create();
  spec *s = described(a, "pape role=pairwise axes=2 parabolas=6 head_dim=8 value_dim=5");
  SCOPED_KERNEL *loaded = compiled(a, s, NULL, 3);
  attention_trial t = placed_trial(a, s, (attention_sizes){1, 3, 1, TOKENS, TOKENS}, true, 8);
  DLTensor *good = attention_trial_out(a, &t, ROWS_BHND), *bad = attention_trial_out(a, &t, ROWS_BHND);
  assert_int_equal(attention_trial_call(run_kernel(loaded), &t, good, 1), 0);
  double within = allowed(loaded, &t, good);
  for (int64_t key = SPOILT; key < TOKENS; key++) {
    spoil_place(t.k_positions, key);
    *(float *)tensor_at(t.k, 0, 0, key, 3) = NAN;
    *(float *)tensor_at(t.v, 0, 0, key, 4) = INFINITY;
  }
  assert_int_equal(attention_trial_call(run_kernel(loaded), &t, bad, 1), 0);
  for (int64_t h = 0; h < 3; h++)
    for (int64_t n = 0; n < TOKENS; n++)
      assert_true(n < SPOILT ? !fixture_rows_differ(good, bad, h, n, within)
                             : isnan(*(float *)tensor_at(bad, 0, h, n, 0)));
}

/* Pairs with a prefix token have no bias, whatever inputs and places say; a query that sees nothing gives zeros. */
TEST(prefix_tokens_have_no_bias) {
  enum { SKIP = 2, TOKENS = 40, KEYS = 38 }; /* causal: query n sees keys below n - 1 */
  SCOPED arena *a = arena_create();
  spec *s = described(a, "polynomial role=pairwise axes=2 degree=3 skip_tokens=2 head_dim=8");
  SCOPED_KERNEL *loaded = compiled(a, s, NULL, 3);
  for (int causal = 0; causal < 2; causal++) {
    attention_trial t = placed_trial(a, s, (attention_sizes){1, 2, 2, TOKENS, KEYS}, causal, 9);
    DLTensor *good = attention_trial_out(a, &t, ROWS_BHND), *bad = attention_trial_out(a, &t, ROWS_BHND);
    assert_int_equal(attention_trial_call(run_kernel(loaded), &t, good, 1), 0);
    compare(a, run_kernel(loaded), &t, good, 1);
    double within = allowed(loaded, &t, good);
    for (int64_t i = 0; i < 2 * TOKENS * 8; i++) ((float *)t.inputs.tensors[0]->data)[i] = NAN;
    for (int64_t key = 0; key < KEYS; key++) spoil_place(t.k_positions, key);
    assert_int_equal(attention_trial_call(run_kernel(loaded), &t, bad, 1), 0);
    for (int64_t h = 0; h < 2; h++)
      for (int64_t n = 0; n < TOKENS; n++) {
        bool unbiased = n < SKIP + TOKENS - KEYS; /* prefix tokens are counted from the keys' end */
        assert_true(unbiased ? !fixture_rows_differ(good, bad, h, n, within)
                             : isnan(*(float *)tensor_at(bad, 0, h, n, 0)));
        for (int c = 0; causal && n < 2 && c < 8; c++) assert_true(*(float *)tensor_at(bad, 0, h, n, c) == 0);
      }
  }
}

/* ---- random biases ---- */

static int seed = 0, count = 0;

static void one_random(arena *a, int number, const char *target, int optimize) {
  spec *s = described(a, "../tests/widen/random role=pairwise seed=%d skip_tokens=%d", number, number % 3 == 0 ? 2 : 0);
  SCOPED_KERNEL *loaded = compiled(a, s, target, optimize);
  uint64_t random = (uint64_t)number * 77 + 5;
  int64_t heads = s->heads > 1 ? s->heads : 2, tokens = 7 + number % 40, keys = 9 + number * 7 % 80;
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++) {
    attention_trial t = {.spec = s, .causal = number % 5 == 4};
    attention_trial_fill(a, &t, &(attention_sizes){2, heads, heads, tokens, keys}, (number_type)type,
                         (row_order)(number % ROW_ORDER_COUNT), &random);
    if (number % 2) t.inputs = trial_pair_inputs(a, s, NUMBER_F32, t.q->shape, t.k->shape[2], &random);
    t.operands = trial_random_operands(a, s, NUMBER_F32, &random);
    t.positions = places(a, s, NUMBER_F64, tokens, 4, &random);
    t.k_positions = places(a, s, NUMBER_F64, keys, 4, &random);
    DLTensor *out = attention_trial_out(a, &t, ROWS_GAPS), *parts = attention_trial_out(a, &t, ROWS_BHND);
    assert_int_equal(attention_trial_call(run_kernel(loaded), &t, out, 1), 0);
    compare(a, run_kernel(loaded), &t, out, 5);
    assert_int_equal(attention_trial_call(run_kernel(loaded), &t, parts, 4), 0);
    if (target)
      compare(a, run_kernel(loaded), &t, parts, 5); /* rows at multiples of 16 bytes have tiles of their own */
    else assert_true(tensor_identical(parts, out));
  }
}

TEST(random_biases) {
  if (!count) skip();
  SCOPED arena *outer = arena_create();
  const char **targets;
  int n_targets = trial_targets(outer, wanted, &targets);
  for (int i = 0; i < count; i++) {
    SCOPED arena *a = arena_create();
    one_random(a, seed + i, targets[i % n_targets], i % 4);
  }
}

int main(int arguments, char **argument) {
  if (arguments > 2) {
    seed = atoi(argument[1]);
    count = atoi(argument[2]);
    cmocka_set_test_filter("random_biases");
  }
  wanted = arguments % 2 ? NULL : argument[arguments - 1]; /* alone, or behind a seed and a count */
  return run_listed();
}
