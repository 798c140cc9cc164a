/* polynomial_backward_test: gradients of attention whose bias is a polynomial, of its inputs and operands beside q, k
 * and v: what is not seen, added to, and refused, and random biases against the reference's.
 *
 *     polynomial_backward_test [TARGET]
 *     polynomial_backward_test SEED COUNT [TARGET]    of random biases
 */
#include "fixture.h"
#include "gradients.h"
#include "scoped.h"
#include "test.h"

#include <math.h>
#include <string.h>

static const char *wanted; /* a target; NULL: all that this machine runs */

static bool is_gpu(void) { return wanted && strncmp(wanted, "sm_", 3) == 0; }

/* ---- calls ---- */

/* dtypes: PEGEN_DTYPE_ bits; 0: all. */
static loaded_kernel *load(const fixture *f, int target, unsigned dtypes) {
  return held(trial_load_gradients(f->memory, f->spec, f->targets[target], dtypes, is_gpu() ? 1 : 2));
}

static const DLTensor *places(fixture *f, int64_t tokens, double extent) {
  int64_t count = tokens * f->spec->n_axes;
  double *values = arena_array(f->memory, double, count + 1);
  for (int64_t i = 0; i < count; i++) values[i] = random_uniform(&f->random, -extent, extent);
  return tensor_contiguous(f->memory, NUMBER_F64, 2, (int64_t[]){tokens, f->spec->n_axes}, values);
}

static attention_trial trial_of(fixture *f, const attention_sizes *sizes, number_type type, row_order order) {
  attention_trial t = {.spec = f->spec};
  attention_trial_fill(f->memory, &t, sizes, type, order, &f->random);
  t.operands = trial_random_operands(f->memory, f->spec, NUMBER_F32, &f->random);
  if (f->spec->grid[0]) return t;
  t.positions = places(f, sizes->tokens, 3);
  t.k_positions = places(f, sizes->keys, 3);
  return t;
}

static attention_gradients filled(fixture *f, const attention_trial *t, const pegen_kernel *kernel, bool has_lse) {
  attention_gradients g;
  assert_int_equal(attention_gradients_fill(f->memory, &g, t, kernel, has_lse, 1, ROWS_GAPS, &f->random), 0);
  if (t->positions) attention_gradients_of_positions(f->memory, &g, NUMBER_F64);
  return g;
}

static void called(const pegen_kernel *kernel, const attention_gradients *g, int parts) {
  assert_int_equal(attention_gradients_call(kernel, g, parts), 0);
}

/* ---- against the reference ---- */

/* A second call doubles what inputs, operands and positions gain, and rows stay. */
TEST(added_to) {
  SCOPED fixture f = fixture_open(wanted, 7, "pape role=pairwise parabolas=21 skip_tokens=3");
  int first = is_gpu() ? NUMBER_BF16 : 0, end = is_gpu() ? NUMBER_BF16 + 1 : NUMBER_CHANNEL_TYPES;
  SCOPED_KERNEL *loaded = load(&f, 0, is_gpu() ? PEGEN_DTYPE_BF16 : 0);
  for (int type = first; type < end; type++) {
    attention_trial t = trial_of(&f, &(attention_sizes){1, 2, 2, 37, 37}, (number_type)type, ROWS_BHND);
    attention_gradients g = filled(&f, &t, run_kernel(loaded), true), twice = attention_gradients_room(f.memory, &g);
    called(run_kernel(loaded), &g, 1);
    called(run_kernel(loaded), &twice, 1);
    twice.flags = PEGEN_GRAD_ACCUMULATE;
    called(run_kernel(loaded), &twice, 2);
    assert_true(tensor_identical(g.q, twice.q) && tensor_identical(g.k, twice.k));
    for (int i = 0; i < f.spec->n_inputs; i++)
      for (int64_t n = 0; n < 37; n++)
        for (int64_t c = 0; c < 21; c++)
          assert_true(2 * number_load((number_type)type, tensor_at(g.inputs[i], 0, 1, n, c)) ==
                      number_load((number_type)type, tensor_at(twice.inputs[i], 0, 1, n, c)));
    for (int k = 0; k < 37 * 2; k++) {
      assert_true(2 * ((double *)g.positions->data)[k] == ((double *)twice.positions->data)[k]);
      assert_true(2 * ((double *)g.k_positions->data)[k] == ((double *)twice.k_positions->data)[k]);
    }
    for (int k = 0; k < 42; k++)
      assert_true(2 * ((double *)g.operands[0]->data)[k] == ((double *)twice.operands[0]->data)[k]);
  }
}

/* ---- what is not seen ---- */

/* Keys that are nowhere and hold nothing, from some on, reach those queries alone that see them; prefix tokens' inputs
 * are not read and gain 0. Every input of queries has five numbers. */
static void unseen_keys(const char *description) {
  enum { TOKENS = 70, SPOILT = 50, SKIP = 2 };
  SCOPED fixture f = fixture_open(wanted, 9, "%s head_dim=8 skip_tokens=2", description);
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = load(&f, target, PEGEN_DTYPE_F32);
    attention_trial t = trial_of(&f, &(attention_sizes){1, 1, 1, TOKENS, TOKENS}, NUMBER_F32, ROWS_BHND);
    t.causal = 1;
    for (int i = 0; i < 5 * SKIP; i++) ((float *)t.inputs.tensors[0]->data)[i] = NAN;
    attention_gradients good = filled(&f, &t, run_kernel(loaded), false);
    called(run_kernel(loaded), &good, 1);
    attention_gradients bad = attention_gradients_room(f.memory, &good);
    for (int64_t n = SPOILT; n < TOKENS; n++) {
      ((double *)t.k_positions->data)[2 * n] = NAN;
      ((float *)tensor_at(t.k, 0, 0, n, 3))[0] = NAN;
      for (int i = 0; i < f.spec->n_inputs; i++)
        if (f.spec->input[i].of_keys) ((float *)t.inputs.tensors[i]->data)[n] = NAN;
    }
    /* A tile program makes blocks with such rows again, in another order of sums: gradients start from the same out. */
    if (!fixture_has_tiles(run_kernel(loaded), &t, bad.out))
      assert_int_equal(attention_trial_call(run_kernel(loaded), &bad.forward, bad.out, 1), 0);
    called(run_kernel(loaded), &bad, 1);
    assert_memory_equal(good.positions->data, bad.positions->data, sizeof(double) * 2 * SPOILT);
    for (int i = 0; i < f.spec->n_inputs; i++)
      for (int64_t n = 0; n < TOKENS && !f.spec->input[i].of_keys; n++) {
        const float *x = tensor_at(good.inputs[i], 0, 0, n, 0), *y = tensor_at(bad.inputs[i], 0, 0, n, 0);
        if (n >= SPOILT) assert_true(isnan(y[0]));
        else assert_memory_equal(x, y, 5 * sizeof *x);
        for (int c = 0; c < 5 && n < SKIP; c++) assert_true(x[c] == 0);
      }
  }
}

TEST(unseen_keys_leave_no_trace) {
  unseen_keys("pape role=pairwise parabolas=5");
  unseen_keys("polynomial role=pairwise of=both degree=2 terms=5");
}

/* ---- refusals ---- */

TEST(refusals) {
  fixture f = fixture_open(wanted, 9, "pape role=pairwise parabolas=5 head_dim=8");
  loaded_kernel *loaded = trial_load_gradients(f.memory, f.spec, f.targets[0], PEGEN_DTYPE_BF16, 1);
  attention_trial t = trial_of(&f, &(attention_sizes){1, 2, 2, 6, 6}, NUMBER_BF16, ROWS_BHND);
  attention_gradients g = filled(&f, &t, run_kernel(loaded), false);
  DLTensor good = *g.inputs[0];
  int64_t shape[] = {1, 2, 6, 6}, strides[] = {60, 30, 5, 1};
#define REFUSED(error, change) \
  do { \
    DLTensor wrong = good; \
    g.inputs[0] = &wrong; \
    change; \
    assert_int_equal(attention_gradients_call(run_kernel(loaded), &g, 1), PEGEN_ERROR_##error); \
    g.inputs[0] = &good; \
  } while (0)
  REFUSED(GRADIENT_SHAPE, wrong.shape = shape);
  REFUSED(GRADIENT_SHAPE, wrong.ndim = 3);
  REFUSED(GRADIENT_DTYPE, wrong.dtype = g.forward.lse->dtype);
  REFUSED(DEVICE, wrong.device.device_type = kDLCUDA);
  REFUSED(NULL_DATA, wrong.data = NULL);
  REFUSED(ALIGNMENT, wrong.byte_offset = 1);
  REFUSED(STRIDE, (wrong.strides = strides, strides[2] = 4));
  REFUSED(CHANNEL_STRIDE, (wrong.strides = strides, strides[2] = 5, strides[3] = 2));
  void *const taken[] = {g.q->data,          t.q->data,   t.inputs.tensors[0]->data,
                         g.inputs[1]->data,  g.out->data, t.operands.tensors[0]->data,
                         g.operands[0]->data};
  for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) REFUSED(OVERLAP, wrong.data = taken[i]);
#undef REFUSED
  DLTensor *places = g.positions, elsewhere = *places;
  elsewhere.device.device_type = kDLCUDA;
  g.positions = &elsewhere;
  assert_int_equal(attention_gradients_call(run_kernel(loaded), &g, 1), PEGEN_ERROR_DEVICE);
  g.positions = places;
  called(run_kernel(loaded), &g, 1);
  run_unload(loaded);
  arena_destroy(f.memory);
}

/* ---- random biases ---- */

static int seed = 0, count = 0;

static void one_random(int number) {
  char seed_text[16], skip_text[16];
  snprintf(seed_text, sizeof seed_text, "%d", number);
  snprintf(skip_text, sizeof skip_text, "%d", number % 3 == 0 ? 2 : 0);
  SCOPED fixture f = fixture_open(wanted, (uint64_t)number * 77 + 5,
                                  "../tests/widen/random role=pairwise seed=%s skip_tokens=%s", seed_text, skip_text);
  unsigned dtype = 1u << number % NUMBER_CHANNEL_TYPES;
  SCOPED_KERNEL *loaded = trial_load_gradients(f.memory, f.spec, f.targets[number % f.n_targets], dtype, number % 4);
  int64_t heads = f.spec->heads > 1 ? f.spec->heads : 2, tokens = 5 + number % 40, keys = 9 + number * 7 % 60;
  attention_trial t = trial_of(&f, &(attention_sizes){2, heads, heads, tokens, keys},
                               (number_type)(number % NUMBER_CHANNEL_TYPES), (row_order)(number % ROW_ORDER_COUNT));
  if (number % 2) t.inputs = trial_pair_inputs(f.memory, f.spec, NUMBER_F32, t.q->shape, keys, &f.random);
  t.causal = number % 5 == 4;
  attention_gradients g = filled(&f, &t, run_kernel(loaded), number % 7 > 2);
  int error = attention_gradients_call(run_kernel(loaded), &g, 1);
  for (int i = 0; i < f.spec->n_operands && error == PEGEN_ERROR_NO_GRADIENT; i++) { /* one that is not read */
    attention_gradients alone = attention_gradients_room(f.memory, &g);
    for (int k = 0; k < f.spec->n_operands; k++) alone.operands[k] = k == i ? alone.operands[k] : NULL;
    if (attention_gradients_call(run_kernel(loaded), &alone, 1)) g.operands[i] = NULL;
  }
  called(run_kernel(loaded), &g, 1);
  gradients_compare(f.memory, &g, 1);
  attention_gradients parted = attention_gradients_room(f.memory, &g);
  called(run_kernel(loaded), &parted, 5);
  assert_true(attention_gradients_same(&g, &parted));
}

TEST(random_biases) {
  if (!count) skip();
  for (int i = 0; i < count; i++) one_random(seed + i);
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
