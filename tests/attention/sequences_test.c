/* sequences_test: sequences of different lengths in one call (kernel/attention.c) are those of calls of their
 * own, to the bit, for any number of parts; and what is refused. */
#include "apart.h"
#include "scoped.h"
#include "test.h"
#include "windows.h"

#include <math.h>
#include <string.h>

enum { SEQUENCES = 6, MOST_PARTS = 5 };

/* Few queries and many, one token, none, more queries than keys and the other way round. */
static int32_t q_bounds[SEQUENCES + 1] = {0, 3, 3, 40, 41, 61, 64},
                                    k_bounds[SEQUENCES + 1] = {0, 90, 93, 130, 130, 150, 151};
static int64_t bounds_shape[] = {SEQUENCES + 1};

static DLTensor bounds_of(int32_t *at) {
  return (DLTensor){.data = at, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLInt, 32, 1}, .shape = bounds_shape};
}

typedef struct ragged_call {
  attention_trial trial; /* of one batch of all tokens */
  DLTensor q_bounds, k_bounds;
  pegen_args args;
} ragged_call;

static ragged_call ragged_of(fixture *f, const pegen_kernel *kernel, number_type type, int round) {
  ragged_call r = {.q_bounds = bounds_of(q_bounds), .k_bounds = bounds_of(k_bounds)};
  attention_trial *t = &r.trial;
  int64_t heads = f->spec->heads > 1 ? f->spec->heads : 4;
  attention_sizes sizes = {1, heads, heads / 2, q_bounds[SEQUENCES], k_bounds[SEQUENCES]};
  *t = (attention_trial){.spec = f->spec, .causal = round % 2};
  attention_trial_fill(f->memory, t, &sizes, type, round % 3 ? ROWS_BNHD : ROWS_BHND, &f->random);
  if (f->spec->n_axes) {
    t->positions = fixture_positions(f, NUMBER_F32, 0, sizes.tokens);
    t->k_positions = fixture_positions(f, NUMBER_I64, 0, sizes.keys);
  }
  t->operands = trial_random_operands(f->memory, f->spec, NUMBER_F32, &f->random);
  t->lse = attention_trial_lse(f->memory, t);
  DLTensor *rows[] = {t->q, t->k, t->v};
  for (int i = 0; i < 3; i++) set_strides(f->memory, rows[i]);
  for (int i = 0; i < f->spec->n_inputs; i++) set_strides(f->memory, (DLTensor *)(uintptr_t)t->inputs.tensors[i]);
  r.args = attention_trial_args(kernel, t, NULL);
  r.args.q = ragged_view(f->memory, t->q);
  r.args.k = ragged_view(f->memory, t->k);
  r.args.v = ragged_view(f->memory, t->v);
  r.args.inputs = inputs_of(f->memory, f->spec, t, -1, 0);
  return r;
}

/* Outputs of [1,H,total,Dv] and what sums of exponentials are, as `args` has them. */
static DLTensor *set_out(fixture *f, ragged_call *r, pegen_args *args) {
  DLTensor *out = attention_trial_out(f->memory, &r->trial, ROWS_GAPS);
  set_strides(f->memory, out);
  args->out = ragged_view(f->memory, out);
  args->lse = ragged_view(f->memory, r->trial.lse);
  return out;
}

static void call_apart(fixture *f, const pegen_kernel *kernel, const ragged_call *r, DLTensor *out, DLTensor *lse) {
  const attention_trial *t = &r->trial;
  for (int s = 0; s < SEQUENCES; s++) {
    int64_t begin = q_bounds[s], end = q_bounds[s + 1], k_begin = k_bounds[s], k_end = k_bounds[s + 1];
    pegen_args args = attention_trial_args(kernel, t, window(f->memory, out, 2, begin, end));
    args.q = window(f->memory, t->q, 2, begin, end);
    args.k = window(f->memory, t->k, 2, k_begin, k_end);
    args.v = window(f->memory, t->v, 2, k_begin, k_end);
    args.lse = window(f->memory, lse, 2, begin, end);
    args.inputs = inputs_of(f->memory, f->spec, t, begin, end);
    if (args.positions) args.positions = window(f->memory, t->positions, 0, begin, end);
    if (args.k_positions) args.k_positions = window(f->memory, t->k_positions, 0, k_begin, k_end);
    assert_int_equal(kernel->attention(&args, 0, 1), 0);
  }
}

static void as_apart(const char *what) {
  SCOPED fixture f = fixture_open(NULL, 19, "%s", what);
  int round = 0;
  for (int target = 0; target < f.n_targets; target++) {
    SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.spec, f.targets[target], 0, 1));
    const pegen_kernel *kernel = run_kernel(loaded);
    for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++, round++) {
      ragged_call r = ragged_of(&f, kernel, (number_type)type, round);
      DLTensor *apart = attention_trial_out(f.memory, &r.trial, ROWS_GAPS),
               *lse = attention_trial_lse(f.memory, &r.trial);
      set_strides(f.memory, apart);
      call_apart(&f, kernel, &r, apart, lse);
      size_t sums = (size_t)(r.trial.q->shape[1] * r.trial.q->shape[2]) * sizeof(float);
      for (int parts = 1; parts <= MOST_PARTS; parts++) {
        pegen_args args = r.args;
        DLTensor *out = set_out(&f, &r, &args);
        args.cu_seqlens = &r.q_bounds;
        args.k_cu_seqlens = &r.k_bounds;
        args.split_keys = parts % 2;
        memset(r.trial.lse->data, 0, sums);
        assert_int_equal(kernel->attention_workspace(&args), 0);
        for (int part = parts - 1; part >= 0; part--) assert_int_equal(kernel->attention(&args, part, parts), 0);
        assert_int_equal(kernel->attention_finish(&args, 0, 1), 0);
        assert_true(tensor_identical(out, apart));
        assert_memory_equal(r.trial.lse->data, lse->data, sums);
      }
    }
  }
}

/* ---- refusals ---- */

#define REFUSED(error, change) \
  do { \
    pegen_args args = sound; \
    change; \
    DLTensor *before = tensor_copy(f.memory, out); \
    assert_int_equal(kernel->attention(&args, 0, 1), error); \
    assert_int_equal(kernel->attention_finish(&args, 0, 1), error); \
    assert_true(tensor_identical(before, out)); \
  } while (0)
#define BOUNDS(field, at, value, error) \
  do { \
    int32_t held = (field)[at]; \
    (field)[at] = value; \
    REFUSED(error, (void)0); \
    (field)[at] = held; \
  } while (0)

TEST(refused) {
  SCOPED fixture f = fixture_open(NULL, 23, "alibi heads=4");
  SCOPED_KERNEL *loaded = trial_load(f.memory, f.spec, f.targets[0], PEGEN_DTYPE_F32, 1);
  const pegen_kernel *kernel = run_kernel(loaded);
  ragged_call r = ragged_of(&f, kernel, NUMBER_F32, 1);
  pegen_args sound = r.args;
  DLTensor *out = set_out(&f, &r, &sound), other = r.k_bounds;
  sound.cu_seqlens = &r.q_bounds;
  sound.k_cu_seqlens = &r.k_bounds;
  BOUNDS(q_bounds, 0, 1, PEGEN_ERROR_BOUNDS);
  BOUNDS(q_bounds, SEQUENCES, 65, PEGEN_ERROR_BOUNDS);
  BOUNDS(q_bounds, SEQUENCES, 63, PEGEN_ERROR_BOUNDS);
  BOUNDS(q_bounds, 2, 2, PEGEN_ERROR_BOUNDS);
  BOUNDS(k_bounds, 1, -1, PEGEN_ERROR_BOUNDS);
  BOUNDS(k_bounds, 3, 1 << 30, PEGEN_ERROR_BOUNDS);
  REFUSED(PEGEN_ERROR_SEQUENCES, args.cu_seqlens = NULL);
  REFUSED(PEGEN_ERROR_BOUNDS, args.k_cu_seqlens = NULL); /* as of q: another number of rows */
  int64_t fewer[] = {SEQUENCES}, none[] = {0}, apart[] = {2};
  REFUSED(PEGEN_ERROR_SEQUENCES, (other.shape = none, args.k_cu_seqlens = &other));
  k_bounds[SEQUENCES - 1] += 1;
  REFUSED(PEGEN_ERROR_SEQUENCES, (other.shape = fewer, args.k_cu_seqlens = &other));
  k_bounds[SEQUENCES - 1] -= 1;
  other = r.k_bounds;
  REFUSED(PEGEN_ERROR_SEQUENCES, (other.dtype.bits = 64, args.k_cu_seqlens = &other));
  other = r.k_bounds;
  REFUSED(PEGEN_ERROR_SEQUENCES, (other.ndim = 0, args.k_cu_seqlens = &other));
  other = r.k_bounds;
  REFUSED(PEGEN_ERROR_SEQUENCES, (other.strides = apart, args.k_cu_seqlens = &other));
  other = r.k_bounds;
  REFUSED(PEGEN_ERROR_DEVICE, (other.device.device_type = kDLCUDA, args.k_cu_seqlens = &other));
  other = r.k_bounds;
  REFUSED(PEGEN_ERROR_NULL_DATA, (other.data = NULL, args.k_cu_seqlens = &other));
  other = r.k_bounds;
  REFUSED(PEGEN_ERROR_ALIGNMENT, (other.byte_offset = 2, args.k_cu_seqlens = &other));
  REFUSED(PEGEN_ERROR_RANK, args.q = r.trial.q);
  REFUSED(PEGEN_ERROR_LSE, args.lse = r.trial.lse);
  REFUSED(PEGEN_ERROR_MISSING_TENSOR, args.v = NULL);
  REFUSED(PEGEN_ERROR_MISSING_POSITIONS, args.positions = NULL);
  REFUSED(PEGEN_ERROR_POSITIONS_SHAPE, args.k_positions = args.positions);
  REFUSED(PEGEN_ERROR_OVERLAP, (args.out = (DLTensor *)(uintptr_t)args.q));
  other = r.k_bounds;
  REFUSED(PEGEN_ERROR_OVERLAP, (other.data = memcpy(out->data, k_bounds, sizeof k_bounds), args.k_cu_seqlens = &other));
  pegen_args backward = sound;
  assert_int_equal(kernel->attention_workspace(&backward), 0);
}

/* Entries that have none say so: a call of rows without them would be another one. */
TEST(elsewhere) {
  DLTensor bounds = bounds_of(q_bounds);
  pegen_args args = {.struct_size = sizeof args, .cu_seqlens = &bounds};
  static const char *const names[] = {"rope", "attention"};
  for (int i = 0; i < 2; i++) {
    SCOPED fixture f = fixture_open(i == 1 ? "sm_80" : NULL, 3, "%s", names[i]);
    SCOPED_KERNEL *loaded = trial_load_gradients(f.memory, f.spec, f.targets[0], PEGEN_DTYPE_F32, 1);
    const pegen_kernel *k = run_kernel(loaded);
    pegen_entry *entries[] = {k->prepare, k->prepare_backward, i == 1 ? k->attention : NULL};
    for (int e = 0; e < 3; e++)
      if (entries[e]) assert_int_equal(entries[e](&args, 0, 1), PEGEN_ERROR_NO_SEQUENCES);
  }
}

int main(void) { return run_listed(); }
