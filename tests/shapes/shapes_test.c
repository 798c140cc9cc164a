/* shapes_test: shapes that engines have. Rows [N,H,D] are those of [1,H,N,D], positions [N] and [B,N] of one axis those
 * of [N,1] and [B,N,1], to the bit, in every entry; heads of q that share operands with one of k are as calls of one
 * head of each group; and what is refused. */
#include "call.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const descriptions[] = {
    "rope head_dim=20",
    "rope_mixed head_dim=12 heads=2",
    "string_cayley head_dim=8 heads=2",
    "comrope_ld head_dim=16 heads=2",
    "sincos channels=12",
    "pape head_dim=8 heads=2 axes=1 parabolas=2",
    "alibi head_dim=12 heads=4",
    "lookhere head_dim=12 heads=12",
    "pape role=pairwise heads=4 axes=1 parabolas=2",
};

typedef struct opened {
  fixture f;
  loaded_kernel *loaded;
  const pegen_kernel *kernel;
} opened;

static opened open_description(const char *line, const char *target, unsigned dtypes) {
  opened o = {.f = fixture_open(target, 29, "%s", line)};
  o.loaded = trial_load_gradients(o.f.memory, o.f.spec, o.f.targets[0], dtypes, 1);
  assert_non_null(o.loaded);
  o.kernel = run_kernel(o.loaded);
  return o;
}

static void close_description(opened *o) {
  run_unload(o->loaded);
  arena_destroy(o->f.memory);
}

static sizes sizes_of(const opened *o, int64_t batch) {
  int64_t heads = o->kernel->heads ? o->kernel->heads : 4;
  bool is_pairs = o->kernel->attention != NULL;
  return (sizes){batch, heads, is_pairs || !o->kernel->heads ? heads / 2 : heads, 9, 13, false, false, false};
}

static void as_of_four(const opened *o, entry_kind kind, number_type type, int64_t batch, bool same_places,
                       bool by_batch) {
  sizes z = sizes_of(o, batch);
  z.same_places = same_places;
  z.by_batch = by_batch;
  if (same_places) z.keys = z.tokens;
  sample s;
  fixture f = o->f;
  sample_make(&s, &f, o->kernel, kind, type, &z);
  assert_int_equal(sample_run(&s, &s.args, 3), 0);
  void *taken = sample_take(&s);
  bool is_bare = o->kernel->n_axes == 1;
  for (int way = 1; way < 4; way++) {
    if ((way & 1 && batch > 1) || (way & 2 && !is_bare)) continue;
    reshaped r;
    sample_reshape(&s, way & 1, way & 2, &r);
    assert_int_equal(sample_run(&s, &r.args, 2), 0);
    assert_true(sample_is(&s, taken));
    sample_take(&s);
  }
}

TEST(every_entry) {
  for (size_t i = 0; i < sizeof descriptions / sizeof *descriptions; i++) {
    opened o = open_description(descriptions[i], NULL, PEGEN_DTYPE_F32 | PEGEN_DTYPE_BF16);
    for (int kind = 0; kind < ENTRY_KINDS; kind++)
      for (int way = 0; way < 8 && sample_has(o.kernel, (entry_kind)kind); way++)
        as_of_four(&o, (entry_kind)kind, way & 1 ? NUMBER_BF16 : NUMBER_F32, way & 2 ? 2 : 1, way & 4, way & 2);
    close_description(&o);
  }
}

/* Tables are of positions without rows, where [x,1] is x tokens. */
TEST(tables) {
  opened o = open_description(descriptions[0], NULL, PEGEN_DTYPE_F32);
  for (int batch = 1; batch < 3; batch++) {
    sizes z = sizes_of(&o, batch);
    z.by_batch = batch == 2;
    sample s;
    sample_make(&s, &o.f, o.kernel, ENCODE, NUMBER_F32, &z);
    assert_int_equal(sample_run(&s, &s.args, 1), 0);
    void *taken = sample_take(&s);
    reshaped r;
    sample_reshape(&s, batch == 1, true, &r);
    size_t bytes = o.kernel->table_bytes(&r.args);
    assert_int_equal(bytes, o.kernel->table_bytes(&s.args));
    r.args.table = aligned_alloc(64, (bytes + 63) / 64 * 64);
    r.args.table_bytes = bytes;
    assert_int_equal(o.kernel->prepare(&r.args, 0, 1), 0);
    assert_int_equal(sample_run(&s, &r.args, 2), 0);
    assert_true(sample_is(&s, taken));
    free(r.args.table);
  }
  close_description(&o);
}

/* ---- grouped heads ---- */

enum { GROUP = 3 };

/* Heads `which`, which + GROUP .. of q; k and its gradients in the first call alone. */
static void of_group(const sample *s, int64_t which, reshaped *to) {
  arena *a = s->f->memory;
  int64_t heads = s->sizes.heads;
  to->args = s->args;
  to->grad = s->grad;
  if (to->args.grad) to->args.grad = &to->grad;
#define TAKE(field) \
  if (field) field = slice(a, field, 1, which, heads, GROUP)
  TAKE(to->args.q);
  TAKE(to->args.q_out);
  TAKE(to->grad.q_out);
  TAKE(to->grad.q);
#undef TAKE
  if (!which) return;
  to->args.k = NULL;
  to->args.k_out = NULL;
  to->grad.k_out = NULL;
  to->grad.k = NULL;
  to->grad.k_positions = NULL;
  to->grad.flags |= PEGEN_GRAD_ACCUMULATE;
}

/* Copied: what was taken lies behind what was taken before, on no boundary of its type. */
static double element_of(const DLTensor *t, int64_t i) {
  const char *at = (const char *)t->data + i * (t->dtype.bits / 8);
  double wide;
  float narrow;
  if (t->dtype.bits == 64) return memcpy(&wide, at, sizeof wide), wide;
  return memcpy(&narrow, at, sizeof narrow), (double)narrow;
}

/* What operands and positions gain is a sum whose order is another. */
static void assert_close(const DLTensor *t, const void *before) {
  DLTensor other = *t;
  other.data = (void *)(uintptr_t)before;
  int64_t count = 1;
  double largest = 1e-6;
  for (int i = 0; i < t->ndim; i++) count *= t->shape[i];
  for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(element_of(&other, i)));
  for (int64_t i = 0; i < count; i++)
    if (!(fabs(element_of(t, i) - element_of(&other, i)) <= 0x1p-18 * largest))
      fail_msg("element %d: %.9g, apart %.9g", (int)i, element_of(t, i), element_of(&other, i));
}

static void groups_as_apart(const opened *o, entry_kind kind, int64_t batch, int way) {
  sizes z = {batch, GROUP * o->kernel->heads, o->kernel->heads, 9, 9, way & 1, batch > 1 && way & 2, false};
  sample s;
  fixture f = o->f;
  sample_make(&s, &f, o->kernel, kind, NUMBER_F32, &z);
  for (int which = 0; which < GROUP; which++) {
    reshaped r;
    of_group(&s, which, &r);
    assert_int_equal(sample_run(&s, &r.args, 1), 0);
  }
  char *apart = sample_take(&s), *first = NULL;
  for (int parts = 1; parts < 6; parts += 2) {
    assert_int_equal(sample_run(&s, &s.args, parts), 0);
    const char *at = apart;
    for (int i = 0; i < s.n_written; i++) {
      const DLTensor *t = s.written[i];
      int64_t last = 1, step = 1;
      for (int d = t->ndim - 1; d >= 0; step *= t->shape[d--])
        last += (t->shape[d] - 1) * (t->strides ? t->strides[d] : step);
      bool is_row = i < 2;
      if (!is_row) assert_close(t, at);
      else
        for (int64_t b = 0; b < t->shape[0]; b++)
          for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t n = 0; n < t->shape[2]; n++) {
              const char *row = tensor_at(t, b, h, n, 0);
              assert_memory_equal(row, at + (row - (const char *)t->data), (size_t)t->shape[3] * sizeof(float));
            }
      at += last * t->dtype.bits / 8;
    }
    if (first) assert_true(sample_is(&s, first));
    first = sample_take(&s);
  }
}

TEST(grouped_heads) {
  for (int i = 1; i < 4; i++) {
    opened o = open_description(descriptions[i], NULL, PEGEN_DTYPE_F32);
    for (int kind = ENCODE; kind <= ENCODE_BACKWARD; kind++)
      for (int way = 0; way < 4; way++)
        for (int batch = 1; batch < 3; batch++) groups_as_apart(&o, (entry_kind)kind, batch, way);
    close_description(&o);
  }
}

/* A launch of a GPU, thread by thread. */
TEST(grouped_launches) {
  opened o = open_description(descriptions[1], "sm_80", PEGEN_DTYPE_F32);
  for (int kind = ENCODE; kind <= ENCODE_BACKWARD; kind++)
    for (int way = 0; way < 4; way++)
      for (int batch = 1; batch < 3; batch++) groups_as_apart(&o, (entry_kind)kind, batch, way);
  for (int way = 0; way < 2; way++) as_of_four(&o, ENCODE, NUMBER_F32, 1, way, false);
  close_description(&o);
}

/* ---- refusals ---- */

#define REFUSED(error, change) \
  do { \
    pegen_args args = r.args; \
    change; \
    assert_int_equal(sample_run(&s, &args, 1), error); \
    assert_true(sample_is(&s, before)); \
  } while (0)

TEST(refused) {
  opened o = open_description(descriptions[0], NULL, PEGEN_DTYPE_F32);
  arena *a = o.f.memory;
  sizes z = sizes_of(&o, 1);
  sample s;
  sample_make(&s, &o.f, o.kernel, ENCODE, NUMBER_F32, &z);
  reshaped r;
  sample_reshape(&s, true, true, &r);
  sample_take(&s);
  void *before = sample_take(&s);
  int64_t negative[] = {-1, 4, 20}, fewer[] = {8}, transposed[] = {4, 9, 20};
  DLTensor other = *r.args.q, *places = without_axes(a, s.args.positions);
  REFUSED(PEGEN_ERROR_RANK, args.q = s.args.q);
  REFUSED(PEGEN_ERROR_RANK, args.q_out = s.args.q_out);
  REFUSED(PEGEN_ERROR_RANK, (args.k = s.args.k, args.k_out = s.args.k_out));
  REFUSED(PEGEN_ERROR_RANK, (other.ndim = 2, args.q = &other));
  other = *r.args.q;
  REFUSED(PEGEN_ERROR_NULL_SHAPE, (other.shape = NULL, args.q = &other));
  REFUSED(PEGEN_ERROR_NEGATIVE_SIZE, (other.shape = negative, args.q = &other));
  REFUSED(PEGEN_ERROR_SHAPE_MISMATCH, (other.shape = transposed, args.q = &other));
  places->shape = fewer;
  REFUSED(PEGEN_ERROR_POSITIONS_SHAPE, args.positions = places);
  places->shape = NULL;
  REFUSED(PEGEN_ERROR_NULL_SHAPE, args.positions = places);
  DLTensor onto = *r.args.q_out;
  REFUSED(PEGEN_ERROR_OVERLAP, (onto.data = r.args.k_out->data, args.q_out = &onto));
  close_description(&o);

  o = open_description(descriptions[1], NULL, PEGEN_DTYPE_F32); /* of two axes and two heads */
  z = (sizes){1, 5, 2, 9, 13, false, false, false};
  sample_make(&s, &o.f, o.kernel, ENCODE, NUMBER_F32, &z);
  sample_reshape(&s, true, false, &r);
  sample_take(&s);
  before = sample_take(&s);
  REFUSED(PEGEN_ERROR_HEADS, (void)0);
  z.heads = z.k_heads = 4; /* those of k are the operands' */
  sample_make(&s, &o.f, o.kernel, ENCODE, NUMBER_F32, &z);
  sample_reshape(&s, true, false, &r);
  sample_take(&s);
  before = sample_take(&s);
  REFUSED(PEGEN_ERROR_HEADS, (void)0);
  z.heads = z.k_heads = 2;
  sample_make(&s, &o.f, o.kernel, ENCODE, NUMBER_F32, &z);
  sample_reshape(&s, true, false, &r);
  sample_take(&s);
  before = sample_take(&s);
  REFUSED(PEGEN_ERROR_POSITIONS_SHAPE, args.positions = without_axes(o.f.memory, args.positions));
  close_description(&o);
}

int main(void) { return run_listed(); }
