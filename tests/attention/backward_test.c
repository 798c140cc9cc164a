/* backward_test: properties of attention's gradients that rows_test does not ask of every call: what is not seen,
 * positions that batches share, operands that are added to, and what is refused.
 *
 *     attention_backward_test [TARGET [TEST]]
 */
#include "fixture.h"
#include "gradients.h"
#include "scoped.h"
#include "test.h"

#include <math.h>
#include <string.h>

static const char *wanted; /* a target; NULL: all that this machine runs */

static bool is_gpu(void) { return wanted && strncmp(wanted, "sm_", 3) == 0; }

/* dtypes: PEGEN_DTYPE_ bits; 0: all. */
static loaded_kernel *load(const fixture *f, int target, unsigned dtypes) {
  return held(trial_load_gradients(f->memory, f->spec, f->targets[target], dtypes, is_gpu() ? 1 : 2));
}

/* The last `count` tokens of a tensor of rows or of numbers of tokens. */
static DLTensor *last_tokens(arena *a, const DLTensor *of, int64_t count) {
  DLTensor *last = arena_new(a, DLTensor);
  int64_t *shape = arena_array(a, int64_t, of->ndim);
  *last = *of;
  for (int i = 0; i < of->ndim; i++) shape[i] = of->shape[i];
  shape[2] = count;
  last->shape = shape;
  last->byte_offset += (uint64_t)((of->shape[2] - count) * of->strides[2] * of->dtype.bits / 8);
  return last;
}

/* What a query gains is the same to the bit in a full tile and in one whose queries fill one register, or not even
 * that. */
TEST(queries_of_their_own) {
  if (is_gpu()) skip();
  SCOPED fixture f = fixture_open(wanted, 11, "attention");
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = load(&f, target, PEGEN_DTYPE_F32);
    attention_trial t = {.spec = f.spec};
    attention_trial_fill(f.memory, &t, &(attention_sizes){1, 2, 2, 64, 75}, NUMBER_F32, ROWS_BNHD, &f.random);
    attention_gradients all, some;
    assert_int_equal(attention_gradients_fill(f.memory, &all, &t, run_kernel(loaded), true, 1, ROWS_BNHD, &f.random),
                     0);
    assert_int_equal(attention_gradients_call(run_kernel(loaded), &all, 1), 0);
    for (int64_t count = 1; count < 40; count += 3) {
      some = all;
      some.forward.q = last_tokens(f.memory, all.forward.q, count);
      some.out = last_tokens(f.memory, all.out, count);
      some.forward.lse = last_tokens(f.memory, all.forward.lse, count);
      some.g_out = last_tokens(f.memory, all.g_out, count);
      some.g_lse = last_tokens(f.memory, all.g_lse, count);
      some.q = last_tokens(f.memory, tensor_copy(f.memory, all.q), count);
      some.k = some.v = NULL;
      assert_int_equal(attention_gradients_call(run_kernel(loaded), &some, 1), 0);
      assert_true(tensor_identical(some.q, last_tokens(f.memory, all.q, count)));
    }
  }
}

/* Gradients of positions that each batch has for itself, added to or not, in float32. Positions that batches share get
 * the sum, and k's own are apart from q's. What has a grid takes none, and what is no function of positions has no
 * gradients of them. */
TEST(positions) {
  enum { BATCHES = 3, PLACES = 20 };
  static const char *const names[] = {"turning", "slopes"};
  for (int i = 0; i < 2; i++) {
    SCOPED fixture f = fixture_open(wanted, 11, "./%s heads=2", names[i]);
    SCOPED_KERNEL *loaded = load(&f, 0, PEGEN_DTYPE_F32);
    const pegen_kernel *kernel = run_kernel(loaded);
    attention_trial t = {.spec = f.spec};
    attention_trial_fill(f.memory, &t, &(attention_sizes){BATCHES, 2, 1, PLACES, PLACES}, NUMBER_F32, ROWS_BHND,
                         &f.random);
    t.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
    t.positions = fixture_positions(&f, NUMBER_F64, 0, PLACES);
    attention_gradients shared, own, apart;
    assert_int_equal(attention_gradients_fill(f.memory, &shared, &t, kernel, true, 1, ROWS_BHND, &f.random), 0);
    shared.operands = NULL;
    own = apart = shared;
    attention_gradients_of_positions(f.memory, &shared, NUMBER_F64);
    assert_int_equal(attention_gradients_call(kernel, &shared, 1), 0);
    int64_t axes = f.spec->n_axes, count = PLACES * axes, shape[] = {BATCHES, PLACES, axes};
    double *values = arena_array(f.memory, double, BATCHES *count);
    for (int64_t n = 0; n < BATCHES * count; n++) values[n] = ((double *)t.positions->data)[n % count];
    own.forward.positions = tensor_contiguous(f.memory, NUMBER_F64, 3, shape, values);
    attention_gradients_of_positions(f.memory, &own, NUMBER_F32);
    apart.forward.k_positions = t.positions;
    attention_gradients_of_positions(f.memory, &apart, NUMBER_F64);
    assert_int_equal(attention_gradients_call(kernel, &apart, 2), 0);
    for (uint32_t flags = 0; flags < 2; flags++) {
      own.flags = flags;
      assert_int_equal(attention_gradients_call(kernel, &own, 3), 0);
    }
    for (int64_t n = 0; n < count; n++) {
      double sum = 0, size = 1e-3, expected = ((double *)shared.positions->data)[n];
      for (int b = 0; b < BATCHES; b++) sum += ((float *)own.positions->data)[b * count + n] / 2;
      for (int b = 0; b < BATCHES; b++) size += fabs(((float *)own.positions->data)[b * count + n]);
      assert_true(fabs(sum - expected) <= 1e-5 * size);
      sum = ((double *)apart.positions->data)[n] + ((double *)apart.k_positions->data)[n];
      assert_true(fabs(sum - expected) <= 1e-9 * (size + fabs(sum)));
    }
    own = shared;
    own.k_positions = own.positions; /* k has none of its own */
    assert_int_equal(attention_gradients_call(kernel, &own, 1), PEGEN_ERROR_NO_GRADIENT);
    own.k_positions = NULL, own.positions = shared.q;
    assert_int_equal(attention_gradients_call(kernel, &own, 1), PEGEN_ERROR_GRADIENT_SHAPE);
    DLTensor wrong = *shared.positions;
    own.positions = &wrong, wrong.dtype.bits = 16;
    assert_int_equal(attention_gradients_call(kernel, &own, 1), PEGEN_ERROR_GRADIENT_DTYPE);
    void *const taken[] = {t.positions->data, shared.q->data, t.k->data, shared.out->data};
    for (size_t n = 0; n < sizeof taken / sizeof *taken; n++) {
      wrong = *shared.positions, wrong.data = taken[n];
      assert_int_equal(attention_gradients_call(kernel, &own, 1), PEGEN_ERROR_OVERLAP);
    }
  }
}

/* A query that sees nothing gains nothing, nor does a key that nobody sees. */
TEST(nothing_seen) {
  SCOPED fixture f = fixture_open(wanted, 11, "./blind");
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = load(&f, target, PEGEN_DTYPE_F32);
    attention_trial t = {.spec = f.spec, .causal = 1};
    attention_trial_fill(f.memory, &t, &(attention_sizes){1, 2, 2, 50, 40}, NUMBER_F32, ROWS_BHND, &f.random);
    double *numbers = arena_array(f.memory, double, 50);
    for (int i = 0; i < 50; i++) numbers[i] = i;
    t.positions = tensor_contiguous(f.memory, NUMBER_I32, 2, (int64_t[]){50, 1}, numbers);
    t.k_positions = tensor_contiguous(f.memory, NUMBER_I32, 2, (int64_t[]){40, 1}, numbers);
    for (t.causal = 0; t.causal < 2; t.causal++) {
      attention_gradients g;
      assert_int_equal(attention_gradients_fill(f.memory, &g, &t, run_kernel(loaded), true, 1, ROWS_BHND, &f.random),
                       0);
      assert_int_equal(attention_gradients_call(run_kernel(loaded), &g, 1), 0);
      gradients_compare(f.memory, &g, 1);
      for (int64_t n = 0; n < 50; n++)
        for (int c = 0; c < 16; c++) assert_true(*(float *)tensor_at(g.q, 0, 1, n, c) == 0); /* head 1 sees nothing */
      for (int64_t n = 0; n < 40; n++)
        for (int c = 0; c < 16; c++) assert_true(*(float *)tensor_at(g.v, 0, 1, n, c) == 0);
    }
  }
}

static void spoil(const DLTensor *rows, int64_t token, int channel, double value) {
  number_store(number_type_of(rows->dtype), tensor_at(rows, 0, 0, token, channel), value);
}

enum { TOKENS = 90, SPOILT = 60, EARLY = 20 };

static void lose(const DLTensor *positions, int64_t token) {
  ((float *)positions->data)[token * positions->shape[1]] = NAN;
}

/* Causal, a key from SPOILT on meets queries from there on alone. lost: its position is no number, or the query's. */
static void assert_no_trace(fixture *f, const pegen_kernel *kernel, attention_trial *t, bool of_keys, bool lost) {
  attention_gradients good, bad;
  assert_int_equal(attention_gradients_fill(f->memory, &good, t, kernel, true, 1, ROWS_BHND, &f->random), 0);
  assert_int_equal(attention_gradients_call(kernel, &good, 1), 0);
  bad = attention_gradients_room(f->memory, &good);
  if (lost) lose(of_keys ? t->k_positions : t->positions, of_keys ? SPOILT : EARLY);
  if (of_keys) {
    if (!lost) spoil(t->k, SPOILT, 3, NAN), spoil(t->v, SPOILT, 5, INFINITY);
    assert_int_equal(attention_trial_call(kernel, &bad.forward, bad.out, 1), 0);
  } else if (!lost) spoil(t->q, EARLY, 3, NAN), spoil(bad.g_out, EARLY, 5, INFINITY);
  assert_int_equal(attention_gradients_call(kernel, &bad, 1), 0);
  /* Blocks of a tile program with such rows are made again without them, and nothing is rounded on the way there. */
  number_type type = number_type_of(t->q->dtype);
  double within = fixture_has_tiles(kernel, t, good.out) ? fmax(16 * (double)number_half_ulp(type, 1), 0x1p-18) : 0;
  for (int64_t n = 0; n < TOKENS; n++) {
    bool q_reached = of_keys ? n >= SPOILT : n == EARLY, k_reached = of_keys || n <= EARLY;
    assert_true(q_reached == fixture_rows_differ(good.q, bad.q, 0, n, within));
    if (!k_reached)
      assert_false(fixture_rows_differ(good.k, bad.k, 0, n, within) ||
                   fixture_rows_differ(good.v, bad.v, 0, n, within));
  }
}

/* Keys and values, queries and what comes in that are no numbers leave no trace in pairs that do not see each other,
 * rotated, by pairs or by rows, or not; nor do positions that are none. */
TEST(unseen_rows_leave_no_trace) {
  static const char *const lines[] = {"attention", "lingeope", "./rope_pairwise", "lingeope grid=6,15"};
  for (int i = 0; i < 4; i++) {
    SCOPED fixture f = fixture_open(wanted, 11, "%s", lines[i]);
    int placed = i == 1 || i == 2, loses = placed && !is_gpu();
    for (int target = 0; target < f.n_targets; target++) {
      SCOPED_KERNEL *loaded = load(&f, target, 0);
      for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++)
        for (int of_keys = 0, lost = 0; lost <= loses; lost += of_keys, of_keys ^= 1) {
          attention_trial t = {.spec = f.spec, .causal = 1, .splits = i == 2}; /* rows are turned in a workspace */
          attention_trial_fill(f.memory, &t, &(attention_sizes){1, 1, 1, TOKENS, TOKENS}, (number_type)type, ROWS_BHND,
                               &f.random);
          if (placed) t.positions = fixture_positions(&f, NUMBER_F32, 0, TOKENS);
          if (placed) t.k_positions = fixture_positions(&f, NUMBER_F32, 0, TOKENS);
          assert_no_trace(&f, run_kernel(loaded), &t, of_keys, lost);
        }
    }
  }
}

/* ---- refusals ---- */

enum { B = 1, H = 4, HKV = 2, N = 5, M = 7, D = 8, DV = 6, ROWS = 10 };
enum { T_Q, T_K, T_V, T_OUT, T_G_OUT, T_GQ, T_GK, T_GV, T_LSE, T_G_LSE };

typedef struct call {
  DLTensor tensor[ROWS];
  int64_t shape[ROWS][4], strides[4];
  float memory[ROWS][1024];
  double workspace[1024];
  pegen_grad_args grad;
  pegen_args args;
} call;

static void fill(call *c) {
  const int64_t shapes[][4] = {{B, H, N, D}, {B, HKV, M, D}, {B, HKV, M, DV}, {B, H, N, DV}, {B, H, N, DV},
                               {B, H, N, D}, {B, HKV, M, D}, {B, HKV, M, DV}, {B, H, N},     {B, H, N}};
  memset(c, 0, sizeof *c);
  memcpy(c->shape, shapes, sizeof shapes);
  for (int i = 0; i < ROWS; i++)
    c->tensor[i] = (DLTensor){.data = c->memory[i],
                              .device = {kDLCPU, 0},
                              .ndim = i < T_LSE ? 4 : 3,
                              .dtype = {kDLFloat, 32, 1},
                              .shape = c->shape[i]};
  DLTensor *t = c->tensor;
  for (int i = T_GQ; i <= T_GV; i++) memset(c->memory[i], 0x5a, sizeof c->memory[i]);
  c->grad = (pegen_grad_args){.struct_size = sizeof c->grad,
                              .out = &t[T_G_OUT],
                              .lse = &t[T_G_LSE],
                              .q = &t[T_GQ],
                              .k = &t[T_GK],
                              .v = &t[T_GV]};
  c->args = (pegen_args){.struct_size = sizeof c->args,
                         .q = &t[T_Q],
                         .k = &t[T_K],
                         .v = &t[T_V],
                         .out = &t[T_OUT],
                         .lse = &t[T_LSE],
                         .workspace = c->workspace,
                         .grad = &c->grad};
}

/* Runs it; where it was refused, gradients must be as before. */
static int run(const pegen_kernel *kernel, call *c) {
  int error = kernel->attention_backward(&c->args, 0, 1);
  for (int t = T_GQ; t <= T_GV && error; t++)
    for (size_t i = 0; i < sizeof c->memory[t]; i++) assert_int_equal(((unsigned char *)c->memory[t])[i], 0x5a);
  return error;
}

#define REFUSED(error, change) \
  do { \
    fill(c); \
    change; \
    assert_int_equal(run(kernel, c), PEGEN_ERROR_##error); \
  } while (0)

TEST(refusals) {
  SCOPED fixture f = fixture_open(wanted, 11, "attention head_dim=8 value_dim=6");
  SCOPED_KERNEL *loaded = load(&f, 0, PEGEN_DTYPE_F32);
  const pegen_kernel *kernel = run_kernel(loaded);
  call *c = arena_new(f.memory, call);
  fill(c);
  assert_int_equal(run(kernel, c), 0);
  fill(c);
  int64_t bytes = (int64_t)kernel->attention_backward_workspace(&c->args);
  int64_t copied = (B * H * N + B * HKV * M) * 2 * 32; /* rows of 6 values, as GPUs read and write them */
  assert_int_equal(bytes, is_gpu() ? B * H * N * 4 + 16 + copied : B * HKV * M * (16 + 16) * 4);
  assert_int_equal(kernel->attention_backward(NULL, 0, 1), PEGEN_ERROR_NULL_ARGS);
  assert_int_equal(kernel->attention_backward(&c->args, 1, 1), PEGEN_ERROR_PART);
  REFUSED(MISSING_GRADIENT, c->args.grad = NULL);
  REFUSED(MISSING_GRADIENT, c->grad.out = NULL);
  REFUSED(STRUCT_SIZE, c->grad.struct_size = 4);
  REFUSED(GRADIENT_FLAGS, c->grad.flags = PEGEN_GRAD_FROM_INPUT);
  REFUSED(NO_GRADIENT, c->grad.q_out = &c->tensor[T_G_OUT]);
  REFUSED(NO_GRADIENT, c->grad.positions = &c->tensor[T_GQ]);
  REFUSED(LSE, c->args.lse = NULL);
  REFUSED(LSE, c->shape[T_LSE][2] = M);
  REFUSED(LSE, c->shape[T_G_LSE][2] = M);
  REFUSED(MISSING_TENSOR, c->args.out = NULL);
  REFUSED(SCALE, c->args.scale = NAN);
  REFUSED(SHAPE_MISMATCH, c->shape[T_V][2] = M - 1);
  REFUSED(GRADIENT_SHAPE, c->shape[T_G_OUT][3] = D);
  REFUSED(GRADIENT_SHAPE, c->shape[T_GQ][2] = M);
  REFUSED(GRADIENT_SHAPE, c->shape[T_GK][1] = H);
  REFUSED(RANK, c->tensor[T_GV].ndim = 3);
  REFUSED(GRADIENT_DTYPE, c->tensor[T_GK].dtype.bits = 16);
  REFUSED(GRADIENT_DTYPE, c->tensor[T_G_OUT].dtype.bits = 16);
  REFUSED(DEVICE, c->tensor[T_GV].device.device_type = kDLCUDA);
  REFUSED(DEVICE, c->tensor[T_G_LSE].device.device_type = kDLCUDA);
  REFUSED(NULL_DATA, c->tensor[T_G_OUT].data = NULL);
  REFUSED(ALIGNMENT, c->tensor[T_GQ].byte_offset = 2);
  REFUSED(STRIDE,
          (memcpy(c->strides, (int64_t[]){1, 1, 1, 1}, sizeof c->strides), c->tensor[T_GK].strides = c->strides));
  REFUSED(WORKSPACE, c->args.workspace = NULL);
  REFUSED(WORKSPACE, c->args.workspace_bytes = (size_t)bytes - 1);
  REFUSED(ALIGNMENT, c->args.workspace = (char *)c->workspace + 4);
  for (int read = T_Q; read <= T_G_LSE; read++)
    for (int written = T_GQ; written <= T_GV; written++)
      if (read < T_GQ || read > T_GV) REFUSED(OVERLAP, c->tensor[read].data = c->memory[written]);
  REFUSED(OVERLAP, c->tensor[T_GK].data = c->memory[T_GQ]);
  REFUSED(OVERLAP, c->tensor[T_GV].data = c->memory[T_GK]);
  REFUSED(OVERLAP, c->args.workspace = c->memory[T_K]);
  REFUSED(OVERLAP, c->args.workspace = c->memory[T_GV]);
}

/* Gradients of operands: shapes, types, memory, and what is added to. */
TEST(operands) {
  enum { TOKENS = 12, HEADS = 3 };
  SCOPED fixture f = fixture_open(wanted, 11, "./slopes heads=3");
  SCOPED_KERNEL *loaded = load(&f, 0, PEGEN_DTYPE_F32);
  const pegen_kernel *kernel = run_kernel(loaded);
  attention_trial t = {.spec = f.spec};
  attention_trial_fill(f.memory, &t, &(attention_sizes){1, HEADS, HEADS, TOKENS, TOKENS}, NUMBER_F32, ROWS_BHND,
                       &f.random);
  t.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
  t.positions = fixture_positions(&f, NUMBER_F32, 0, TOKENS);
  attention_gradients g;
  assert_int_equal(attention_gradients_fill(f.memory, &g, &t, kernel, false, 1, ROWS_BHND, &f.random), 0);
  assert_int_equal(attention_gradients_call(kernel, &g, 1), 0);
  gradients_compare(f.memory, &g, 1);
  DLTensor slope = *g.operands[0],
           narrow = *tensor_contiguous(f.memory, NUMBER_F32, 1, (int64_t[]){HEADS}, (double[]){1, 2, 3});
  g.operands[0] = &narrow; /* float32, overwritten and then added to */
  for (uint32_t flags = 0; flags < 2; flags++) {
    g.flags = flags;
    assert_int_equal(attention_gradients_call(kernel, &g, 1 + (int)flags), 0);
    for (int h = 0; h < HEADS; h++) {
      double expected = (1 + flags) * ((double *)slope.data)[h];
      assert_true(fabs(((float *)narrow.data)[h] - expected) <= 1e-6 * fabs(expected));
    }
  }
  g.flags = 0;
  DLTensor wrong = slope;
  int64_t shape = HEADS + 1, stride = 2;
  g.operands[0] = &wrong;
  wrong.shape = &shape;
  assert_int_equal(attention_gradients_call(kernel, &g, 1), PEGEN_ERROR_GRADIENT_SHAPE);
  wrong = slope, wrong.strides = &stride;
  assert_int_equal(attention_gradients_call(kernel, &g, 1), PEGEN_ERROR_GRADIENT_SHAPE);
  wrong = slope, wrong.dtype.bits = 16;
  assert_int_equal(attention_gradients_call(kernel, &g, 1), PEGEN_ERROR_GRADIENT_DTYPE);
  wrong = slope, wrong.device.device_type = kDLCUDA;
  assert_int_equal(attention_gradients_call(kernel, &g, 1), PEGEN_ERROR_DEVICE);
  void *const taken[] = {g.q->data, t.q->data, t.operands.tensors[0]->data, g.operands[1]->data, g.out->data};
  for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
    wrong = slope, wrong.data = taken[i];
    assert_int_equal(attention_gradients_call(kernel, &g, 1), PEGEN_ERROR_OVERLAP);
  }
}

int main(int argc, char **argv) {
  wanted = argc > 1 ? argv[1] : NULL;
  if (argc > 2) cmocka_set_test_filter(argv[2]);
  return run_listed();
}
