/* ragged_test: sequences of different lengths in one call, in encode, in its gradients and in attention's: rows and
 * what positions and inputs gain are those of calls of their own, to the bit; what operands gain is their sum; the same
 * bits for any number of parts; and what is refused, before a byte is written. */
#include "call.h"
#include "scoped.h"

#include <math.h>
#include <string.h>

enum { MOST_SEQUENCES = 6 };

typedef struct ragged {
  const char *line;
  int sequences;
  int32_t q[MOST_SEQUENCES + 1], k[MOST_SEQUENCES + 1];
} ragged;

static const ragged calls[] = {
    {"rope head_dim=20", 4, {0, 3, 3, 40, 41}, {0, 5, 7, 7, 60}},
    {"rope_mixed head_dim=12 heads=2", 3, {0, 9, 9, 30}, {0, 9, 9, 30}},
    {"string_cayley head_dim=8 heads=2", 3, {0, 9, 9, 30}, {0, 4, 5, 12}},
    {"care head_dim=32 grid=3,2 skip_tokens=2", 4, {0, 8, 8, 16, 24}, {0, 8, 16, 16, 16}},
    {"comrope_ld head_dim=16 grid=3,2 skip_tokens=1", 3, {0, 7, 7, 14}, {0, 7, 7, 14}},
    {"pape head_dim=8 grid=2,3 skip_tokens=1 parabolas=2", 3, {0, 7, 14, 14}, {0, 7, 7, 14}},
    {"alibi head_dim=12 heads=4 skip_tokens=2", 6, {0, 3, 3, 40, 41, 61, 64}, {0, 90, 93, 130, 130, 150, 151}},
    {"pape role=pairwise heads=4 axes=1 parabolas=2", 4, {0, 3, 3, 40, 41}, {0, 5, 7, 7, 60}},
    {"lingeope head_dim=12", 3, {0, 6, 6, 20}, {0, 9, 11, 13}},
};

static DLTensor bounds_of(const int32_t *at, int64_t *shape) {
  return (DLTensor){
      .data = (void *)(uintptr_t)at, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLInt, 32, 1}, .shape = shape};
}

static const DLTensor *cut(const sample *s, const DLTensor *t, int dim, const int32_t *at, int i) {
  return t ? slice(s->f->memory, t, dim, at[i], at[i + 1], 1) : NULL;
}

static bool is_operand_gradient(const sample *s, const DLTensor *t) {
  for (int i = 0; i < 8; i++)
    if (t == s->operand_gradients[i]) return true;
  return false;
}

static int64_t count_of(const DLTensor *t) {
  int64_t count = 1;
  for (int i = 0; i < t->ndim; i++) count *= t->shape[i];
  return count;
}

/* A call of one sequence. */
static void call_alone(sample *s, const ragged *r, int i) {
  reshaped one = {.args = s->args, .grad = s->grad};
  if (one.args.grad) one.args.grad = &one.grad;
#define Q(field) field = (void *)(uintptr_t)cut(s, field, 2, r->q, i)
#define K(field) field = (void *)(uintptr_t)cut(s, field, 2, r->k, i)
  Q(one.args.q), Q(one.args.q_out), Q(one.args.out), Q(one.args.lse);
  Q(one.grad.q_out), Q(one.grad.q), Q(one.grad.out);
  K(one.args.k), K(one.args.k_out), K(one.args.v), K(one.grad.k_out), K(one.grad.k), K(one.grad.v);
#undef Q
#undef K
  one.args.positions = cut(s, one.args.positions, 0, r->q, i);
  one.args.k_positions = cut(s, one.args.k_positions, 0, r->k, i);
  one.grad.positions = (void *)(uintptr_t)cut(s, one.grad.positions, 0, r->q, i);
  one.grad.k_positions = (void *)(uintptr_t)cut(s, one.grad.k_positions, 0, r->k, i);
  const DLTensor *inputs[8];
  DLTensor *gained[8] = {NULL};
  for (int n = 0; n < s->kernel->n_inputs; n++) {
    inputs[n] = cut(s, s->args.inputs[n], 2, r->q, i);
    if (one.grad.inputs) gained[n] = (void *)(uintptr_t)cut(s, s->grad.inputs[n], 2, r->q, i);
  }
  one.args.inputs = inputs;
  if (one.grad.inputs) one.grad.inputs = gained;
  bool no_q = r->q[i] == r->q[i + 1], no_k = r->k[i] == r->k[i + 1];
  if (no_q && no_k) return;
  if (s->kernel->grid && s->kind <= ENCODE_BACKWARD) { /* of no tokens a grid is refused */
    if (no_q)
      one.args.q = NULL, one.args.q_out = NULL, one.grad.q_out = NULL, one.grad.q = NULL, one.grad.inputs = NULL;
    if (no_k) one.args.k = NULL, one.args.k_out = NULL, one.grad.k_out = NULL, one.grad.k = NULL;
  }
  assert_int_equal(sample_run(s, &one.args, 1), 0);
}

/* Calls of their own; sums: what operands gain in all of them, one behind the other. */
static void call_apart(sample *s, const ragged *r, double *sums) {
  for (int i = 0; i < r->sequences; i++) {
    for (int n = 0; n < 8; n++)
      if (s->operand_gradients[n])
        memset(s->operand_gradients[n]->data, 0, (size_t)count_of(s->operand_gradients[n]) * sizeof(double));
    call_alone(s, r, i);
    double *to = sums;
    for (int n = 0; n < 8; n++) {
      const DLTensor *t = s->operand_gradients[n];
      for (int64_t e = 0; t && e < count_of(t); e++) *to++ += ((const double *)t->data)[e];
    }
  }
}

static void assert_sums(const sample *s, const double *sums) {
  for (int n = 0; n < 8; n++) {
    const DLTensor *t = s->operand_gradients[n];
    double largest = 1e-6;
    for (int64_t e = 0; t && e < count_of(t); e++) largest = fmax(largest, fabs(sums[e]));
    for (int64_t e = 0; t && e < count_of(t); e++)
      if (!(fabs(((const double *)t->data)[e] - sums[e]) <= 0x1p-18 * largest))
        fail_msg("operand %d, element %d: %.9g, apart %.9g", n, (int)e, ((const double *)t->data)[e], sums[e]);
    if (t) sums += count_of(t);
  }
}

/* The memory of all that was written but sums. */
static bool rows_are(const sample *s, const char *taken) {
  for (int i = 0; i < s->n_written; i++) {
    const DLTensor *t = s->written[i];
    int64_t last = 1, step = 1;
    for (int d = t->ndim - 1; d >= 0; step *= t->shape[d--])
      last += (t->shape[d] - 1) * (t->strides ? t->strides[d] : step);
    size_t bytes = (size_t)(last * t->dtype.bits / 8);
    if (!is_operand_gradient(s, t) && memcmp(t->data, taken, bytes)) return false;
    taken += bytes;
  }
  return true;
}

static void as_apart(fixture *f, const pegen_kernel *kernel, const ragged *r, entry_kind kind, number_type type) {
  int64_t heads = kernel->heads ? kernel->heads : 4, shape[] = {r->sequences + 1};
  bool is_pairs = kind >= ATTENTION;
  sizes z = {1,     heads, is_pairs && heads > 1 ? heads / 2 : heads, r->q[r->sequences], r->k[r->sequences], false,
             false, true};
  sample s;
  sample_make(&s, f, kernel, kind, type, &z);
  DLTensor q = bounds_of(r->q, shape), k = bounds_of(r->k, shape);
  reshaped whole;
  sample_reshape(&s, true, kernel->n_axes == 1, &whole);
  whole.args.cu_seqlens = &q;
  whole.args.k_cu_seqlens = &k;
  if (kind == ATTENTION_BACKWARD) assert_int_equal(kernel->attention(&whole.args, 0, 1), 0);
  double *sums = arena_array(f->memory, double, 4096);
  memset(sums, 0, 4096 * sizeof *sums);
  call_apart(&s, r, sums);
  char *apart = sample_take(&s), *first = NULL;
  for (int parts = 1; parts < 8; parts += 2) {
    assert_int_equal(sample_run(&s, &whole.args, parts), 0);
    if (!rows_are(&s, apart)) fail_msg("%s, entry %d, %d parts", kernel->name, kind, parts);
    assert_sums(&s, sums);
    if (first) assert_true(sample_is(&s, first));
    first = sample_take(&s);
  }
}

TEST(every_entry) {
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    const ragged *r = &calls[i];
    SCOPED fixture f = fixture_open(NULL, 31, "%s", r->line);
    SCOPED_KERNEL *loaded =
        held(trial_load_gradients(f.memory, f.spec, f.targets[0], PEGEN_DTYPE_F32 | PEGEN_DTYPE_BF16, 1));
    const pegen_kernel *kernel = run_kernel(loaded);
    for (int kind = 0; kind < ENTRY_KINDS; kind++)
      for (int type = NUMBER_F32; type <= NUMBER_BF16 && sample_has(kernel, (entry_kind)kind); type++)
        as_apart(&f, kernel, r, (entry_kind)kind, (number_type)type);
  }
}

/* ---- refusals ---- */

static void assert_refused(sample *s, const pegen_args *args, int error, const void *before) {
  assert_int_equal(sample_run(s, args, 2), error);
  assert_true(sample_is(s, before));
}

static void refused_of(fixture *f, const pegen_kernel *kernel, entry_kind kind) {
  int32_t q_at[] = {0, 4, 9}, k_at[] = {0, 6, 13};
  int64_t shape[] = {3}, fewer[] = {2};
  int64_t heads = kernel->heads ? kernel->heads : 4;
  sizes z = {1, heads, heads, 9, 13, false, false, false};
  sample s;
  sample_make(&s, f, kernel, kind, NUMBER_F32, &z);
  void *before = sample_take(&s);
  before = sample_take(&s);
  DLTensor q = bounds_of(q_at, shape), k = bounds_of(k_at, shape), other;
  reshaped r;
  sample_reshape(&s, true, false, &r);
  r.args.cu_seqlens = &q;
  r.args.k_cu_seqlens = &k;
  struct {
    int32_t *at, value;
  } wrong[] = {{&q_at[0], 1}, {&q_at[2], 10}, {&q_at[2], 8}, {&q_at[1], 10}, {&k_at[1], -1}, {&k_at[1], 1 << 30}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    int32_t held = *wrong[i].at;
    *wrong[i].at = wrong[i].value;
    assert_refused(&s, &r.args, PEGEN_ERROR_BOUNDS, before);
    *wrong[i].at = held;
  }
  pegen_args args = r.args;
  args.cu_seqlens = NULL;
  assert_refused(&s, &args, PEGEN_ERROR_SEQUENCES, before);
  args = r.args;
  args.k_cu_seqlens = NULL;
  assert_refused(&s, &args, PEGEN_ERROR_BOUNDS, before);
  args = r.args;
  other = k;
  other.shape = fewer;
  k_at[1] = 13;
  args.k_cu_seqlens = &other;
  assert_refused(&s, &args, PEGEN_ERROR_SEQUENCES, before);
  k_at[1] = 6;
  other = k;
  other.device.device_type = kDLCUDA;
  assert_refused(&s, &args, PEGEN_ERROR_DEVICE, before);
  args = s.args; /* rows of four dimensions */
  args.cu_seqlens = &q;
  args.k_cu_seqlens = &k;
  assert_refused(&s, &args, PEGEN_ERROR_RANK, before);
  args = r.args;
  DLTensor within = *s.written[0]; /* where the call would write */
  other = q;
  other.data = memcpy(within.data, q_at, sizeof q_at);
  args.cu_seqlens = &other;
  assert_int_equal(sample_run(&s, &args, 1), PEGEN_ERROR_OVERLAP);
  assert_memory_equal(within.data, q_at, sizeof q_at);
}

TEST(refused) {
  static const char *const lines[] = {"rope head_dim=12", "alibi head_dim=12 heads=4"};
  for (int i = 0; i < 2; i++) {
    SCOPED fixture f = fixture_open(NULL, 37, "%s", lines[i]);
    SCOPED_KERNEL *loaded = trial_load_gradients(f.memory, f.spec, f.targets[0], PEGEN_DTYPE_F32, 1);
    for (int kind = 0; kind < ENTRY_KINDS; kind++)
      if (sample_has(run_kernel(loaded), (entry_kind)kind)) refused_of(&f, run_kernel(loaded), (entry_kind)kind);
  }
}

int main(void) { return run_listed(); }
