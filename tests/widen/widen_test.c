/* widen_test: kernels that widen q and k by the columns of a polynomial bias.
 *
 *   widen_test            golden cases, numbers of columns, calls that must be refused
 *   widen_test SEED N     N random biases from SEED on against the definition
 */
#include "described.h"
#include "scoped.h"
#include "test.h"
#include "verify/reference.h"
#include "verify/trial_widen_backward.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- golden cases ---- */

static double *read_golden(arena *a, const char *name, const char *array, int64_t count) {
  const char *path = arena_printf(a, "%s/%s.%s.f64", GOLDEN_DIR, name, array);
  FILE *file = fopen(path, "rb");
  if (!file) fail_msg("cannot open %s", path);
  double *values = arena_array(a, double, count + 1);
  assert_int_equal(fread(values, sizeof *values, (size_t)count + 1, file), count);
  fclose(file);
  return values;
}

static void fill_rows(DLTensor *t, const double *values) {
  int64_t at = 0;
  for (int64_t h = 0; h < t->shape[1]; h++)
    for (int64_t n = 0; n < t->shape[2]; n++)
      for (int64_t c = 0; c < t->shape[3]; c++) number_store(NUMBER_F32, tensor_at(t, 0, h, n, c), values[at++]);
}

enum { HEADS = 2, TOKENS = 12, CHANNELS = 64 };
static const double SCALE = 0.125;

/* Scores of the rows against the golden ones, which may differ by a constant for each query, and against the reference.
 */
static void compare_golden(const DLTensor *q, const DLTensor *k, const double *scores, const char *name) {
  for (int h = 0; h < HEADS; h++)
    for (int i = 0; i < TOKENS; i++) {
      double low = INFINITY, high = -INFINITY, largest = 0;
      for (int j = 0; j < TOKENS; j++) {
        double sum = 0, exact = scores[(h * TOKENS + i) * TOKENS + j];
        for (int c = 0; c < q->shape[3]; c++)
          sum += number_load(NUMBER_F32, tensor_at(q, 0, h, i, c)) * number_load(NUMBER_F32, tensor_at(k, 0, h, j, c));
        double difference = SCALE * sum - exact;
        low = fmin(low, difference), high = fmax(high, difference), largest = fmax(largest, fabs(exact));
      }
      if (!((high - low) / 2 <= 0x1p-18 * largest))
        fail_msg("%s: head %d query %d: %g of %g", name, h, i, (high - low) / 2, largest);
    }
}

static void golden(const char *name, const char *line, int axes, int parabolas, bool has_b) {
  SCOPED arena *a = arena_create();
  spec *s = described(a, "%s", line);
  const double *positions = read_golden(a, name, "positions", TOKENS * axes);
  int size = parabolas ? parabolas : 1;
  const double *values[] = {read_golden(a, name, "a", HEADS * TOKENS * size),
                            has_b ? read_golden(a, name, "b", HEADS * TOKENS * size) : NULL};
  const double *projection = read_golden(a, name, "projection", parabolas ? HEADS * parabolas * axes : HEADS);
  static const char *const targets[] = {"x86-64-v4", "x86-64-v3", "x86-64-v2", "aarch64", "sm_80"};
  int ran = 0;
  for (int target = 0; target < 5; target++) {
    if (!trial_runnable(targets[target])) continue;
    loaded_kernel *loaded = held(trial_load(a, s, targets[target], PEGEN_DTYPE_F32, 3));
    const pegen_kernel *kernel = run_kernel(loaded);
    uint64_t random = 1;
    widen_shape shape = {1, HEADS, HEADS, TOKENS, TOKENS};
    widen_trial t =
        widen_trial_create(a, s, kernel, NUMBER_F32, NUMBER_F32, ROWS_BHND, &shape, positions, NULL, &random);
    fill_rows(t.q, read_golden(a, name, "q", HEADS * TOKENS * CHANNELS));
    fill_rows(t.k, read_golden(a, name, "k", HEADS * TOKENS * CHANNELS));
    t.operands = trial_given_operands(a, s, &projection);
    for (int i = 0; i < s->n_inputs; i++) {
      t.inputs.tensors[i] =
          tensor_contiguous(a, NUMBER_F32, parabolas ? 4 : 3, (int64_t[]){1, HEADS, TOKENS, size}, values[i]);
      double *rounded = arena_array(a, double, HEADS * TOKENS * size);
      for (int k = 0; k < HEADS * TOKENS * size; k++) rounded[k] = (float)values[i][k];
      t.inputs.values[i] = rounded;
    }
    assert_int_equal(widen_trial_call(kernel, &t, t.q_out, t.k_out, 3, 1), 0);
    compare_golden(t.q_out, t.k_out, read_golden(a, name, "scores", HEADS * TOKENS * TOKENS), name);
    trial_error worst = {0};
    widen_trial_compare(&t, t.q_out, t.k_out, &worst);
    assert_false(worst.spoilt || worst.error > widen_trial_bound(s, NUMBER_F32));
    run_unload(loaded);
    ran++;
  }
  assert_true(ran > 0);
}

TEST(pape_of_images) { golden("pape2d", "pape head_dim=64 heads=2 axes=2 parabolas=50", 2, 50, true); }
TEST(pape_of_volumes) { golden("pape3d", "pape head_dim=64 heads=2 axes=3 parabolas=8", 3, 8, true); }
TEST(pape_rotation_invariant) { golden("pape_ri", "pape_ri head_dim=64 heads=2 axes=3", 3, 0, false); }

/* ---- sums ---- */

TEST(sincos_of_volumes) {
  enum { SUM_BATCH = 2, SUM_CHANNELS = 70, SUM_AXES = 3 };
  SCOPED arena *a = arena_create();
  spec *s = described(a, "sincos channels=70 axes=3");
  int64_t count = SUM_BATCH * TOKENS * SUM_CHANNELS;
  const double *x = read_golden(a, "sincos3d", "x", count), *expected = read_golden(a, "sincos3d", "out", count);
  const double *positions = read_golden(a, "sincos3d", "positions", TOKENS * SUM_AXES);
  const DLTensor *tensor = tensor_contiguous(a, NUMBER_F64, 2, (int64_t[]){TOKENS, SUM_AXES}, positions);
  trial_operands none = trial_given_operands(a, s, NULL);
  static const char *const targets[] = {"x86-64-v4", "x86-64-v3", "x86-64-v2", "aarch64", "sm_80"};
  for (int target = 0; target < 5; target++) {
    if (!trial_runnable(targets[target])) continue;
    SCOPED_KERNEL *loaded = held(trial_load(a, s, targets[target], PEGEN_DTYPE_F32, 3));
    DLTensor *in = tensor_rows(a, NUMBER_F32, ROWS_BHND, SUM_BATCH, 1, TOKENS, SUM_CHANNELS), *out = tensor_copy(a, in);
    for (int64_t i = 0; i < count; i++)
      number_store(NUMBER_F32,
                   tensor_at(in, i / (TOKENS * SUM_CHANNELS), 0, i / SUM_CHANNELS % TOKENS, i % SUM_CHANNELS), x[i]);
    assert_int_equal(trial_call(run_kernel(loaded), tensor, &none, in, out, NULL, NULL, 1), 0);
    for (int64_t i = 0; i < count; i++) {
      double got = number_load(
          NUMBER_F32, tensor_at(out, i / (TOKENS * SUM_CHANNELS), 0, i / SUM_CHANNELS % TOKENS, i % SUM_CHANNELS));
      if (!(fabs(got - expected[i]) <= 0x1p-22 * fmax(1, fabs(expected[i]))))
        fail_msg("%s: element %d: %.9g, not %.9g", targets[target], (int)i, got, expected[i]);
    }
  }
}

/* ---- columns ---- */

static int columns_in_use(const pegen_width *w) {
  int count = 0;
  for (int i = 0; i < w->n_columns; i++) count += strcmp(w->columns[i], "0") != 0;
  return count;
}

/* Numbers of columns in float32 and bfloat16, and E of each. */
static void expect_columns(const char *line, int f32, int bf16) {
  SCOPED arena *a = arena_create();
  spec *s = described(a, "%s", line);
  SCOPED_KERNEL *loaded = held(trial_load(a, s, "native", 0, 1));
  const pegen_kernel *kernel = run_kernel(loaded);
  int wanted[] = {f32, bf16};
  for (int type = 0; type < 2; type++) {
    assert_int_equal(columns_in_use(&kernel->widths[type]), wanted[type]);
    assert_int_equal(kernel->widths[type].out_dim, (kernel->head_dim + wanted[type] + 7) / 8 * 8);
    assert_int_equal(kernel->widths[type].n_columns, kernel->widths[type].out_dim - kernel->head_dim);
  }
  assert_int_equal(kernel->out_dim, kernel->widths[0].out_dim);
}

TEST(columns_are_monomials) {
  for (int m = 1; m < 80; m += 26) {
    SCOPED arena *a = arena_create();
    expect_columns(arena_printf(a, "pape axes=2 parabolas=%d", m), 5, 15);
  }
  expect_columns("pape axes=3", 9, 27);
  expect_columns("pape axes=1", 2, 6);
  /* A grid's keys are bfloat16 as they are; then the query's values alone are split. */
  expect_columns("pape axes=2 grid=14,14", 5, 10);
  expect_columns("pape axes=2 grid=14,14 split_columns=false", 5, 5);
  expect_columns("pape axes=2 grid=14,14 exact_scores=true", 6, 12);
  expect_columns("pape axes=2 grid=14,14 skip_tokens=1", 6, 12);
  expect_columns("pape_ri axes=3 grid=4,4,4", 4, 8);
  expect_columns("pape_ri axes=2 split_columns=false", 3, 3);
  expect_columns("polynomial axes=2 degree=3 split_columns=false", 9, 9);
  expect_columns("polynomial axes=3 degree=4 split_columns=false head_dim=63", 34, 34);
}

/* ---- calls that must be refused ---- */

typedef struct call {
  arena *memory;
  loaded_kernel *loaded;
  const pegen_kernel *kernel;
  widen_trial trial;
} call;

static call make_call(void) {
  arena *a = arena_create();
  call c = {.memory = a};
  spec *s = described(a, "pape axes=2 parabolas=6 heads=2");
  c.loaded = held(trial_load(a, s, "native", 0, 1));
  c.kernel = run_kernel(c.loaded);
  static const double positions[] = {0, 0, 1, 2, 3, 1};
  uint64_t random = 5;
  widen_shape shape = {1, 2, 1, 3, 3};
  c.trial = widen_trial_create(a, s, c.kernel, NUMBER_BF16, NUMBER_BF16, ROWS_BHND, &shape, positions, NULL, &random);
  return c;
}

static int refused(const call *c) {
  DLTensor *before = tensor_copy(c->memory, c->trial.q_out);
  int error = widen_trial_call(c->kernel, &c->trial, c->trial.q_out, c->trial.k_out, 3, 1);
  if (error) assert_true(tensor_identical(before, c->trial.q_out));
  return error;
}

/* Leaves a stack on which nothing is 0 by chance to the call that follows. */
static void __attribute__((noinline)) dirty_stack(void) {
  volatile unsigned char bytes[64 * 1024];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = 0x5a;
}

TEST(bad_calls_are_refused) {
  call c = make_call();
  assert_int_equal(refused(&c), 0); /* k has other heads than q: its columns are the same for all */
  widen_trial good = c.trial;
  DLTensor *other = arena_new(c.memory, DLTensor);
  int64_t shape[4];
  const DLTensor *inputs[] = {good.inputs.tensors[0], good.inputs.tensors[1]};
  c.trial.inputs.tensors = inputs;
#define WITH_SHAPE(of, at, value) \
  (*other = *(of), memcpy(shape, (of)->shape, (size_t)(of)->ndim * 8), shape[at] = (value), other->shape = shape, \
   other->strides = NULL, other)

  inputs[1] = WITH_SHAPE(good.inputs.tensors[1], 3, 5);
  assert_int_equal(refused(&c), PEGEN_ERROR_INPUT_SHAPE); /* m */
  inputs[1] = WITH_SHAPE(good.inputs.tensors[1], 2, 2);
  assert_int_equal(refused(&c), PEGEN_ERROR_INPUT_SHAPE); /* N */
  inputs[1] = WITH_SHAPE(good.inputs.tensors[1], 1, 1);
  assert_int_equal(refused(&c), PEGEN_ERROR_INPUT_SHAPE); /* H */
  inputs[1] = WITH_SHAPE(good.inputs.tensors[1], 0, 1);
  other->ndim = 3;
  assert_int_equal(refused(&c), PEGEN_ERROR_INPUT_SHAPE);
  inputs[1] = NULL;
  assert_int_equal(refused(&c), PEGEN_ERROR_MISSING_INPUT);
  c.trial.inputs.tensors = NULL;
  assert_int_equal(refused(&c), PEGEN_ERROR_MISSING_INPUT);
  c.trial.inputs.tensors = inputs;
  *other = *good.inputs.tensors[1];
  other->dtype.code = kDLFloat; /* float16 beside bfloat16 */
  inputs[1] = other;
  assert_int_equal(refused(&c), PEGEN_ERROR_INPUT_DTYPE);
  other->dtype.bits = 32; /* float32 beside bfloat16 */
  assert_int_equal(refused(&c), PEGEN_ERROR_INPUT_DTYPE);
  *other = *good.inputs.tensors[1];
  other->data = good.q_out->data; /* an input that the output writes to */
  assert_int_equal(refused(&c), PEGEN_ERROR_OVERLAP);
  *other = *good.inputs.tensors[1];
  other->data = NULL;
  assert_int_equal(refused(&c), PEGEN_ERROR_NULL_DATA);
  inputs[1] = good.inputs.tensors[1];

  c.trial.positions = NULL;
  assert_int_equal(refused(&c), PEGEN_ERROR_MISSING_POSITIONS);
  c.trial.positions = WITH_SHAPE(good.positions, 1, 3);
  assert_int_equal(refused(&c), PEGEN_ERROR_POSITIONS_SHAPE); /* P */
  c.trial.positions = good.positions;
  const DLTensor *operand = good.operands.tensors[0];
  c.trial.operands.tensors = &operand;
  operand = WITH_SHAPE(good.operands.tensors[0], 1, 7);
  assert_int_equal(refused(&c), PEGEN_ERROR_OPERAND_SHAPE); /* m of the projection */
  operand = WITH_SHAPE(good.operands.tensors[0], 2, 3);
  assert_int_equal(refused(&c), PEGEN_ERROR_OPERAND_SHAPE); /* P of the projection */
  operand = good.operands.tensors[0];
  assert_int_equal(refused(&c), 0);

  c.trial.q_out = WITH_SHAPE(good.q_out, 3, 64);
  assert_int_equal(widen_trial_call(c.kernel, &c.trial, c.trial.q_out, c.trial.k_out, 1, 1),
                   PEGEN_ERROR_HEAD_DIM); /* not widened */
  /* Inputs are the query's: k alone needs none, but to know where it counts from, which the trial says. */
  c.trial = good;
  c.trial.inputs.tensors = NULL;
  dirty_stack();
  assert_int_equal(widen_trial_call(c.kernel, &c.trial, NULL, c.trial.k_out, 2, 1), 0);
  run_unload(c.loaded);
  arena_destroy(c.memory);
}

/* ---- gradients ---- */

/* A small call for all gradients, of descriptions whose queries have inputs and operands. */
typedef struct gradient_call {
  arena *memory;
  loaded_kernel *loaded;
  const pegen_kernel *kernel;
  widen_gradients g;
} gradient_call;

enum { GRAD_BATCH = 2, GRAD_TOKENS = 70 }; /* more than go through a kernel in one block */

/* Gradients are tested in the code of processors and in that of a GPU's threads. */
static const char *const gradient_targets[] = {"native", "sm_80"};
enum { GRADIENT_TARGETS = 2 };

static gradient_call make_gradient_call(const char *defines, const char *target, number_type type) {
  arena *a = arena_create();
  gradient_call c = {.memory = a};
  spec *s = described(a, "pape %s", defines);
  c.loaded = held(trial_load_gradients(a, s, target, 0, 1));
  c.kernel = run_kernel(c.loaded);
  uint64_t random = 11;
  double *positions = arena_array(a, double, GRAD_TOKENS * s->n_axes);
  for (int i = 0; i < GRAD_TOKENS * s->n_axes; i++) positions[i] = random_uniform(&random, -5, 5);
  widen_shape shape = {GRAD_BATCH, s->heads > 1 ? s->heads : 4, 2, GRAD_TOKENS, GRAD_TOKENS};
  widen_trial t = widen_trial_create(a, s, c.kernel, type, type, ROWS_BNHD, &shape, positions, NULL, &random);
  assert_int_equal(widen_gradients_fill(a, &c.g, &t, c.kernel, 23, ROWS_GAPS, &random), 0);
  assert_int_equal(widen_gradients_call(c.kernel, &c.g, &c.g.out, 0, 1), 0);
  return c;
}

static void end_gradient_call(const gradient_call *c) {
  run_unload(c->loaded);
  arena_destroy(c->memory);
}

/* Twice as much, to the bit: rows are written, the others are added to. */
static void added_on(const char *target, number_type type) {
  gradient_call c = make_gradient_call("axes=2 parabolas=21 heads=4 skip_tokens=1", target, type);
  const spec *s = c.g.forward.spec;
  attention_gradients twice = attention_gradients_room(c.memory, &c.g.out);
  assert_int_equal(widen_gradients_call(c.kernel, &c.g, &twice, 0, 3), 0);
  assert_int_equal(widen_gradients_call(c.kernel, &c.g, &twice, PEGEN_GRAD_ACCUMULATE, 2), 0);
  assert_true(tensor_identical(twice.q, c.g.out.q) && tensor_identical(twice.k, c.g.out.k));
  for (int64_t i = 0; i < spec_operand_elements(&s->operand[0]); i++)
    assert_true(((double *)twice.operands[0]->data)[i] == 2 * ((double *)c.g.out.operands[0]->data)[i]);
  for (int64_t i = 0; i < GRAD_TOKENS * s->n_axes; i++)
    assert_true(((double *)twice.positions->data)[i] == 2 * ((double *)c.g.out.positions->data)[i]);
  for (int i = 0; i < s->n_inputs; i++)
    for (int64_t h = 0; h < 4; h++)
      for (int64_t n = 0; n < GRAD_TOKENS; n++)
        for (int64_t m = 0; m < 21; m++)
          assert_true(number_load(type, tensor_at(twice.inputs[i], 1, h, n, m)) ==
                      2 * number_load(type, tensor_at(c.g.out.inputs[i], 1, h, n, m)));
  end_gradient_call(&c);
}

TEST(gradients_are_added) {
  for (int i = 0; i < GRADIENT_TARGETS; i++)
    for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++) added_on(gradient_targets[i], (number_type)type);
}

/* Positions of each batch, alike, gain together what shared ones do; and all else is the same. */
static void positions_of_batches_on(const char *target) {
  gradient_call c = make_gradient_call("axes=3 parabolas=6", target, NUMBER_F32);
  int64_t axes = c.g.forward.spec->n_axes, count = GRAD_TOKENS * axes, shape[] = {GRAD_BATCH, GRAD_TOKENS, axes};
  double *values = arena_array(c.memory, double, GRAD_BATCH *count);
  for (int b = 0; b < GRAD_BATCH; b++) memcpy(values + b * count, c.g.forward.q_values, sizeof *values * (size_t)count);
  attention_gradients own = attention_gradients_room(c.memory, &c.g.out);
  widen_gradients g = c.g;
  g.forward.positions = tensor_contiguous(c.memory, NUMBER_F64, 3, shape, values);
  own.positions = tensor_contiguous(c.memory, NUMBER_F64, 3, shape, values);
  for (int parts = 1; parts < 4; parts += 2) {
    assert_int_equal(widen_gradients_call(c.kernel, &g, &own, 0, parts), 0);
    const double *each = own.positions->data, *all = c.g.out.positions->data;
    for (int64_t i = 0; i < count; i++)
      assert_true(fabs(each[i] + each[count + i] - all[i]) <= 1e-12 * (fabs(each[i]) + fabs(each[count + i])));
  }
  own.positions = c.g.out.positions;
  double *sum = own.operands[0]->data, *shared = c.g.out.operands[0]->data; /* in another order */
  for (int64_t i = 0; i < spec_operand_elements(&c.g.forward.spec->operand[0]); i++)
    assert_true(fabs(sum[i] - shared[i]) <= 1e-10 * fabs(shared[i]) + 1e-12), sum[i] = shared[i];
  assert_true(attention_gradients_same(&own, &c.g.out));
  end_gradient_call(&c);
}

TEST(batches_have_their_positions) {
  for (int i = 0; i < GRADIENT_TARGETS; i++) positions_of_batches_on(gradient_targets[i]);
}

/* What it answers, where it refuses, and nothing is written. */
static int gradients_refused(const gradient_call *c, attention_gradients *out) {
  attention_gradients room = attention_gradients_room(c->memory, &c->g.out), before = room;
  if (out->q == c->g.out.q) out->q = room.q, before.q = tensor_copy(c->memory, room.q);
  int error = widen_gradients_call(c->kernel, &c->g, out, 0, 1);
  if (error) assert_true(tensor_identical(before.q, room.q));
  return error;
}

static void refused_on(const char *target) {
  gradient_call c = make_gradient_call("axes=2 parabolas=5 heads=2", target, NUMBER_F32);
  const widen_gradients good = c.g;
  DLTensor other, *inputs[2] = {&other, NULL};
  int64_t shape[4];
  attention_gradients out = good.out;
  assert_int_equal(gradients_refused(&c, &out), 0);
  out.inputs = inputs;
  other = *good.out.inputs[0]; /* one of two inputs */
  assert_int_equal(gradients_refused(&c, &out), 0);
  other.shape = memcpy(shape, good.out.inputs[0]->shape, sizeof shape);
  shape[3] = 4;
  assert_int_equal(gradients_refused(&c, &out), PEGEN_ERROR_GRADIENT_SHAPE);
  other = *good.out.inputs[0];
  other.dtype.bits = 16;
  assert_int_equal(gradients_refused(&c, &out), PEGEN_ERROR_GRADIENT_DTYPE);
  other = *good.out.inputs[0];
  other.data = good.forward.inputs.tensors[1]->data;
  assert_int_equal(gradients_refused(&c, &out), PEGEN_ERROR_OVERLAP);
  other.data = good.q_out->data;
  assert_int_equal(gradients_refused(&c, &out), PEGEN_ERROR_OVERLAP);
  other.data = good.out.operands[0]->data;
  assert_int_equal(gradients_refused(&c, &out), PEGEN_ERROR_OVERLAP);
  out = good.out;
  out.q = &other;
  other = *good.q_out; /* as wide as what came in */
  assert_int_equal(gradients_refused(&c, &out), PEGEN_ERROR_HEAD_DIM);
  out.q = (DLTensor *)(uintptr_t)good.q_out; /* the tensor itself */
  assert_int_equal(gradients_refused(&c, &out), PEGEN_ERROR_HEAD_DIM);
  out.q = &other;
  other = *good.out.q;
  other.data = good.q_out->data;
  assert_int_equal(gradients_refused(&c, &out), PEGEN_ERROR_OVERLAP);
  out = good.out;
  c.g.q_out = &other;
  other = *good.forward.q; /* not widened */
  assert_int_equal(gradients_refused(&c, &out), PEGEN_ERROR_HEAD_DIM);
  c.g.q_out = NULL; /* without which inputs and q gain nothing */
  out.q = NULL;
  assert_int_equal(gradients_refused(&c, &out), PEGEN_ERROR_NO_GRADIENT);
  out.inputs = NULL;
  assert_int_equal(gradients_refused(&c, &out), 0); /* positions gain of k alone, the operand 0 */
  for (int64_t i = 0; i < spec_operand_elements(&good.forward.spec->operand[0]); i++)
    assert_true(((double *)out.operands[0]->data)[i] == 0);
  c.g = good;
  c.g.forward.inputs.tensors = NULL;
  out = good.out;
  assert_int_equal(gradients_refused(&c, &out), PEGEN_ERROR_MISSING_INPUT);
  c.g = good;
  end_gradient_call(&c);
}

TEST(bad_gradient_calls_are_refused) {
  for (int i = 0; i < GRADIENT_TARGETS; i++) refused_on(gradient_targets[i]);
}

/* ---- random biases ---- */

static int seed = 0, count = 0;

static void expect_gradients(const widen_gradients *g, const char *what, long double error, const char *defines) {
  if (error > widen_gradients_bound(g->forward.type))
    fail_msg("%s, %s: gradients of %s are off by %Lg", defines, number_name(g->forward.type), what, error);
}

static void random_gradients(arena *a, const widen_trial *t, const pegen_kernel *kernel, const char *defines,
                             uint64_t *random) {
  widen_gradients g;
  trial_error rows = {0}, inputs = {0}, operands = {0}, positions = {0};
  assert_int_equal(widen_gradients_fill(a, &g, t, kernel, 4, (row_order)random_below(random, ROW_ORDER_COUNT), random),
                   0);
  attention_answer exact = widen_gradients_answer(a, &g);
  assert_int_equal(widen_gradients_call(kernel, &g, &g.out, 0, 1), 0);
  attention_gradients_compare(g.out.q, exact.q, 1, &rows);
  attention_gradients_compare(g.out.k, exact.k, 1, &rows);
  attention_gradients_compare_inputs(&g.out, &exact, &inputs);
  attention_gradients_compare_operands(&g.out, &exact, &operands);
  attention_gradients_compare_positions(&g.out, &exact, &positions);
  expect_gradients(&g, "rows", rows.error, defines);
  expect_gradients(&g, "inputs", inputs.error, defines);
  expect_gradients(&g, "operands", operands.error, defines);
  expect_gradients(&g, "positions", positions.error, defines);
  attention_gradients parted = attention_gradients_room(a, &g.out);
  assert_int_equal(widen_gradients_call(kernel, &g, &parted, 0, 5), 0);
  assert_true(attention_gradients_same(&g.out, &parted));
}

static void one_random(arena *a, int number, const char *target, int optimize) {
  const char *defines = arena_printf(a, "seed=%d skip_tokens=%d exact_scores=%s", number, number % 3 == 0 ? 2 : 0,
                                     number % 4 == 1 ? "true" : "false");
  spec *s = described(a, "./random %s", defines);
  SCOPED_KERNEL *loaded = held(trial_load_gradients(a, s, target, 0, optimize));
  const pegen_kernel *kernel = run_kernel(loaded);
  uint64_t random = (uint64_t)number * 77 + 5;
  int64_t heads = s->heads > 1 ? s->heads : 2, tokens = 7 + s->skip_tokens, k_tokens = 9 + s->skip_tokens;
  double *positions = arena_array(a, double, k_tokens * s->n_axes),
         *k_positions = arena_array(a, double, k_tokens * s->n_axes);
  for (int64_t i = 0; i < k_tokens * s->n_axes; i++) {
    positions[i] = random_uniform(&random, -4, 4);
    k_positions[i] = random_uniform(&random, -4, 4);
  }
  widen_shape shape = {2, heads, heads, tokens, k_tokens};
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++) {
    number_type input_type = number % 2 ? (number_type)type : NUMBER_F32;
    widen_trial t = widen_trial_create(a, s, kernel, (number_type)type, input_type,
                                       (row_order)(number % ROW_ORDER_COUNT), &shape, positions, k_positions, &random);
    trial_error worst = {0};
    assert_int_equal(widen_trial_call(kernel, &t, t.q_out, t.k_out, 3, 1), 0);
    widen_trial_compare(&t, t.q_out, t.k_out, &worst);
    if (worst.spoilt || worst.error > widen_trial_bound(s, (number_type)type))
      fail_msg("%s, %s, %s: error %Lg at batch %d head %d query %d: %g, %Lg", defines, target,
               number_type_info((number_type)type)->name, worst.error, (int)worst.batch, (int)worst.head,
               (int)worst.token, worst.got, worst.exact);
    DLTensor *q_out = tensor_copy(a, t.q_out), *k_out = tensor_copy(a, t.k_out);
    assert_int_equal(widen_trial_call(kernel, &t, q_out, k_out, 3, 4), 0);
    assert_true(tensor_identical(q_out, t.q_out) && tensor_identical(k_out, t.k_out));
    assert_true(tensor_gaps_identical(q_out, t.q_out));
    if (kernel->encode_backward && number % NUMBER_CHANNEL_TYPES == type)
      random_gradients(a, &t, kernel, defines, &random);
  }
}

TEST(random_biases) {
  if (!count) skip();
  static const char *const targets[] = {"x86-64-v4", "x86-64-v3", "x86-64-v2", "aarch64", "sm_80"};
  for (int i = 0; i < count; i++)
    for (int target = 0; target < 5; target++) {
      if (!trial_runnable(targets[target]) || (i % 3 != target % 3 && target < 3)) continue;
      SCOPED arena *a = arena_create();
      one_random(a, seed + i, targets[target], i % 4);
    }
}

int main(int arguments, char **argument) {
  if (arguments == 3) {
    seed = atoi(argument[1]);
    count = atoi(argument[2]);
    cmocka_set_test_filter("random_biases");
  }
  return run_listed();
}
