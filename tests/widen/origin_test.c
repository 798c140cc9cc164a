/* origin_test: where columns count positions from. Scores keep their digits however far from 0 tokens stand, every
 * batch and sequence has an origin of its own, and calls that cannot know it are refused.
 */
#include "described.h"
#include "test.h"
#include "verify/trial_widen_backward.h"

#include <math.h>
#include <string.h>

static const char *const targets[] = {"native", "sm_80"};
enum { TARGETS = 2, HEADS = 2, SIDE = 14, AXES = 2 };

typedef struct fixture {
  arena *memory;
  const spec *spec;
  loaded_kernel *loaded;
  const pegen_kernel *kernel;
  uint64_t random;
} fixture;

static fixture open_fixture(const char *target, const char *options) {
  fixture f = {.memory = arena_create(), .random = 3};
  f.spec = described(f.memory, "pape %s", options);
  f.loaded = trial_load_gradients(f.memory, f.spec, target, 0, 1);
  assert_non_null(f.loaded);
  f.kernel = run_kernel(f.loaded);
  return f;
}

static void close_fixture(fixture *f) {
  run_unload(f->loaded);
  arena_destroy(f->memory);
}

/* The tokens of an image, row by row, from (offset, offset) on. */
static double *image(fixture *f, double offset) {
  double *values = arena_array(f->memory, double, SIDE * SIDE * AXES);
  for (int i = 0; i < SIDE * SIDE; i++) {
    values[AXES * i] = offset + i / SIDE;
    values[AXES * i + 1] = offset + i % SIDE;
  }
  return values;
}

static widen_trial trial_at(fixture *f, number_type type, int64_t batch, const double *positions, int64_t tokens) {
  widen_shape shape = {batch, HEADS, HEADS, tokens, tokens};
  return widen_trial_create(f->memory, f->spec, f->kernel, type, type, ROWS_BNHD, &shape, positions, NULL, &f->random);
}

/* ---- far from 0 ---- */

TEST(far_from_zero) {
  static const double offsets[] = {0, 100, 1000, 1e4, 1e5, -1e5};
  for (int target = 0; target < TARGETS; target++) {
    fixture f = open_fixture(targets[target], "");
    assert_int_equal(f.kernel->has_origin, 1);
    for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++)
      for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        widen_trial t = trial_at(&f, (number_type)type, 1, image(&f, offsets[i]), SIDE * SIDE);
        trial_error worst = {0};
        assert_int_equal(widen_trial_call(f.kernel, &t, t.q_out, t.k_out, 3, 1), 0);
        widen_trial_compare(&t, t.q_out, t.k_out, &worst);
        if (worst.spoilt || worst.error > widen_trial_bound(f.spec, (number_type)type))
          fail_msg("%s, %s, %g away: error %Lg", targets[target], number_name(type), offsets[i], worst.error);
      }
    close_fixture(&f);
  }
}

/* A token that stands elsewhere, be it first, last or in the middle, does not take the others' digits. */
TEST(one_token_elsewhere) {
  static const int which[] = {0, SIDE * SIDE / 2, SIDE * SIDE - 1};
  fixture f = open_fixture("native", "");
  for (int i = 0; i < 3; i++) {
    double *positions = image(&f, 1e5);
    positions[AXES * which[i]] = positions[AXES * which[i] + 1] = 0;
    widen_trial t = trial_at(&f, NUMBER_F32, 1, positions, SIDE * SIDE);
    assert_true(t.from[0] >= 1e5 && t.from[0] < 1e5 + SIDE && t.from[1] >= 1e5 && t.from[1] < 1e5 + SIDE);
    DLTensor *q = tensor_copy(f.memory, t.q_out), *k = tensor_copy(f.memory, t.k_out);
    assert_int_equal(widen_trial_call(f.kernel, &t, q, k, 3, 1), 0);
    assert_int_equal(widen_trial_call(f.kernel, &t, t.q_out, NULL, 1, 1), 0); /* which gives t.from */
    assert_int_equal(widen_trial_call(f.kernel, &t, NULL, t.k_out, 2, 1), 0);
    assert_true(tensor_identical(q, t.q_out) && tensor_identical(k, t.k_out));
  }
  close_fixture(&f);
}

static void expect_finite(const DLTensor *rows, int64_t but) {
  for (int64_t h = 0; h < rows->shape[1]; h++)
    for (int64_t n = 0; n < rows->shape[2]; n++)
      for (int64_t c = 0; n != but && c < rows->shape[3]; c++)
        assert_true(isfinite(number_load(NUMBER_F32, tensor_at(rows, 0, h, n, c))));
}

TEST(a_place_that_is_not_finite) {
  for (int target = 0; target < TARGETS; target++) {
    fixture f = open_fixture(targets[target], "");
    for (int i = 0; i < 2; i++) {
      enum { MIDDLE = SIDE * SIDE / 2 };
      double *positions = image(&f, 50);
      positions[AXES * MIDDLE] = i ? INFINITY : NAN;
      widen_trial t = trial_at(&f, NUMBER_F32, 1, positions, SIDE * SIDE);
      assert_int_equal(widen_trial_call(f.kernel, &t, t.q_out, t.k_out, 3, 1), 0);
      expect_finite(t.q_out, MIDDLE);
      expect_finite(t.k_out, MIDDLE);
    }
    close_fixture(&f);
  }
}

/* ---- batches and sequences ---- */

/* Gradients of rows, positions and operands, of a call in which every score gains the same. */
static int call_backward(const fixture *f, const pegen_args *forward, DLTensor *q, DLTensor *positions) {
  pegen_grad_args grad = {
      .struct_size = sizeof grad, .q_out = forward->q_out, .k_out = forward->k_out, .q = q, .positions = positions};
  pegen_args args = *forward;
  args.q = args.k = NULL;
  args.q_out = args.k_out = NULL;
  args.grad = &grad;
  args.workspace_bytes = f->kernel->encode_backward_workspace(&args);
  args.workspace = malloc(args.workspace_bytes + 8);
  int error = f->kernel->encode_backward(&args, 1, 2);
  if (!error) error = f->kernel->encode_backward(&args, 0, 2);
  free(args.workspace);
  return error;
}

static pegen_args args_of(const fixture *f, const widen_trial *t) {
  return (pegen_args){.struct_size = sizeof(pegen_args),
                      .n_operands = f->kernel->n_operands,
                      .operands = t->operands.tensors,
                      .q = t->q,
                      .k = t->k,
                      .q_out = t->q_out,
                      .k_out = t->k_out,
                      .positions = t->positions,
                      .inputs = t->inputs.tensors,
                      .n_inputs = f->kernel->n_inputs};
}

static void expect_batch(const DLTensor *all, const DLTensor *alone, int64_t batch) {
  for (int64_t h = 0; h < all->shape[1]; h++)
    for (int64_t n = 0; n < all->shape[2]; n++)
      assert_memory_equal(tensor_at(all, batch, h, n, 0), tensor_at(alone, batch, h, n, 0),
                          (size_t)(all->shape[3] * 4));
}

/* Batches that are far from each other: each counts from its own middle, or from what it is given. */
TEST(batches_count_alone) {
  enum { COUNT = SIDE * SIDE * AXES };
  for (int target = 0; target < TARGETS; target++) {
    fixture f = open_fixture(targets[target], "");
    double *both = arena_array(f.memory, double, 2 * COUNT), *one[2] = {image(&f, 0), image(&f, 1e5)}, from[2 * AXES];
    for (int b = 0; b < 2; b++) memcpy(both + b * COUNT, one[b], COUNT * sizeof *both);
    widen_trial t = trial_at(&f, NUMBER_F32, 2, one[0], SIDE * SIDE);
    pegen_args args = args_of(&f, &t);
    args.positions = tensor_contiguous(f.memory, NUMBER_F64, 3, (int64_t[]){2, SIDE * SIDE, AXES}, both);
    assert_int_equal(f.kernel->encode(&args, 0, 1), 0);
    DLTensor *q = tensor_copy(f.memory, t.q_out), *k = tensor_copy(f.memory, t.k_out);
    for (int b = 0; b < 2; b++) {
      args.positions = tensor_contiguous(f.memory, NUMBER_F64, 2, (int64_t[]){SIDE * SIDE, AXES}, one[b]);
      assert_int_equal(f.kernel->encode(&args, 0, 1), 0);
      expect_batch(q, t.q_out, b);
      expect_batch(k, t.k_out, b);
      for (int axis = 0; axis < AXES; axis++) from[b * AXES + axis] = t.from[axis] + (b ? 1e5 : 0);
    }
    args.positions = tensor_contiguous(f.memory, NUMBER_F64, 3, (int64_t[]){2, SIDE * SIDE, AXES}, both);
    args.origin = tensor_contiguous(f.memory, NUMBER_F64, 2, (int64_t[]){2, AXES}, from);
    assert_int_equal(f.kernel->encode(&args, 0, 1), 0);
    assert_true(tensor_identical(q, t.q_out) && tensor_identical(k, t.k_out));
    close_fixture(&f);
  }
}

/* Rows [from, to) of rows [N,H,D], as they lie in memory. */
static DLTensor *rows_between(fixture *f, const DLTensor *rows, int64_t from, int64_t to) {
  DLTensor *some = arena_new(f->memory, DLTensor);
  int64_t *shape = arena_array(f->memory, int64_t, 3), width = 1;
  *some = *rows;
  for (int i = 1; i < rows->ndim; i++) width *= rows->shape[i];
  memcpy(shape, rows->shape, (size_t)rows->ndim * 8);
  shape[0] = to - from;
  some->shape = shape;
  some->byte_offset = (uint64_t)(from * width * rows->dtype.bits / 8);
  return some;
}

static DLTensor *random_rows(fixture *f, int rank, const int64_t *shape) {
  int64_t count = 1;
  for (int i = 0; i < rank; i++) count *= shape[i];
  double *values = arena_array(f->memory, double, count);
  for (int64_t i = 0; i < count; i++) values[i] = random_uniform(&f->random, -1, 1);
  return tensor_contiguous(f->memory, NUMBER_F32, rank, shape, values);
}

/* Sequences in one tensor, far from each other: rows and gradients are to the bit those of calls of their own. */
TEST(sequences_count_alone) {
  enum { SEQUENCES = 4, TOTAL = 41, TERMS = 50 };
  static const int32_t bounds[SEQUENCES + 1] = {0, 17, 17, 30, TOTAL};
  fixture f = open_fixture("native", "");
  int64_t head = f.kernel->head_dim, wide = f.kernel->out_dim, count = SEQUENCES + 1;
  int64_t narrow_shape[] = {TOTAL, HEADS, head}, wide_shape[] = {TOTAL, HEADS, wide},
          input_shape[] = {TOTAL, HEADS, TERMS}, places_shape[] = {TOTAL, AXES};
  double places[TOTAL * AXES];
  for (int s = 0; s < SEQUENCES; s++)
    for (int i = bounds[s]; i < bounds[s + 1]; i++)
      for (int axis = 0; axis < AXES; axis++) places[AXES * i + axis] = 1e5 * s + random_uniform(&f.random, -7, 7);
  DLTensor *q = random_rows(&f, 3, narrow_shape), *q_out = random_rows(&f, 3, wide_shape),
           *k_out = random_rows(&f, 3, wide_shape), *g_q = random_rows(&f, 3, narrow_shape);
  const DLTensor *inputs[] = {random_rows(&f, 3, input_shape), random_rows(&f, 3, input_shape)};
  DLTensor *positions = tensor_contiguous(f.memory, NUMBER_F64, 2, places_shape, places),
           *g_positions = tensor_contiguous(f.memory, NUMBER_F64, 2, places_shape, places);
  DLTensor cu = *q;
  cu.data = (void *)(uintptr_t)bounds;
  cu.dtype = (DLDataType){kDLInt, 32, 1};
  cu.ndim = 1;
  cu.shape = &count;
  cu.strides = NULL;
  cu.byte_offset = 0;
  trial_operands operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = f.kernel->n_operands,
                     .operands = operands.tensors,
                     .q = q,
                     .k = q,
                     .q_out = q_out,
                     .k_out = k_out,
                     .positions = positions,
                     .inputs = inputs,
                     .n_inputs = 2,
                     .cu_seqlens = &cu};
  for (int part = 0; part < 3; part++) assert_int_equal(f.kernel->encode(&args, part, 3), 0);
  assert_int_equal(call_backward(&f, &args, g_q, g_positions), 0);
  for (int s = 0; s < SEQUENCES; s++) {
    int64_t from = bounds[s], to = bounds[s + 1], width = HEADS * wide * 4;
    if (from == to) continue;
    DLTensor *one_q = random_rows(&f, 3, wide_shape), *one_k = random_rows(&f, 3, wide_shape),
             *one_g = random_rows(&f, 3, narrow_shape),
             *one_places = tensor_contiguous(f.memory, NUMBER_F64, 2, places_shape, places);
    const DLTensor *one_inputs[] = {rows_between(&f, inputs[0], from, to), rows_between(&f, inputs[1], from, to)};
    pegen_args alone = args;
    alone.cu_seqlens = NULL;
    alone.q = alone.k = rows_between(&f, q, from, to);
    alone.q_out = rows_between(&f, one_q, from, to);
    alone.k_out = rows_between(&f, one_k, from, to);
    alone.positions = rows_between(&f, positions, from, to);
    alone.inputs = one_inputs;
    assert_int_equal(f.kernel->encode(&alone, 0, 1), 0);
    assert_memory_equal((char *)one_q->data + from * width, (char *)q_out->data + from * width,
                        (size_t)((to - from) * width));
    assert_memory_equal((char *)one_k->data + from * width, (char *)k_out->data + from * width,
                        (size_t)((to - from) * width));
    assert_int_equal(
        call_backward(&f, &alone, rows_between(&f, one_g, from, to), rows_between(&f, one_places, from, to)), 0);
    assert_memory_equal((double *)one_places->data + from * AXES, (double *)g_positions->data + from * AXES,
                        (size_t)((to - from) * AXES * 8));
  }
  close_fixture(&f);
}

/* ---- what is refused ---- */

static void origins_are_checked_on(const char *target) {
  enum { FEW = 5 };
  fixture f = open_fixture(target, "");
  widen_trial t = trial_at(&f, NUMBER_F32, 1, image(&f, 0), FEW);
  pegen_args args = args_of(&f, &t);
  DLTensor *before = tensor_copy(f.memory, t.k_out), other = *t.origin;
  double places[2 * AXES] = {0};
  int64_t shape[2] = {AXES, AXES};
  args.q = NULL, args.q_out = NULL;
  assert_int_equal(f.kernel->encode(&args, 0, 1), PEGEN_ERROR_ORIGIN); /* k alone, for a cache */
  args.origin = &other;
  assert_int_equal(f.kernel->encode(&args, 0, 1), 0);
  DLTensor *after = tensor_copy(f.memory, t.k_out);
  memcpy(t.k_out->data, before->data, (size_t)(FEW * HEADS * f.kernel->out_dim * 4));
#define REFUSED(error) \
  do { \
    assert_int_equal(f.kernel->encode(&args, 0, 1), error); \
    assert_true(tensor_identical(before, t.k_out)); \
    other = *t.origin; \
  } while (0)
  shape[0] = AXES + 1, other.shape = shape;
  REFUSED(PEGEN_ERROR_ORIGIN); /* P */
  shape[0] = 2, other.ndim = 2, other.shape = shape, other.data = places;
  REFUSED(PEGEN_ERROR_ORIGIN); /* of two batches */
  other.ndim = 0;
  REFUSED(PEGEN_ERROR_ORIGIN);
  other.dtype.bits = 16;
  REFUSED(PEGEN_ERROR_ORIGIN);
  other.data = NULL;
  REFUSED(PEGEN_ERROR_NULL_DATA);
  other.data = t.k_out->data, other.byte_offset = 0;
  REFUSED(PEGEN_ERROR_OVERLAP);
  args.origin = NULL, args.q = t.q, args.q_out = t.q_out;
  args.k = NULL, args.k_out = NULL;
  REFUSED(PEGEN_ERROR_ORIGIN); /* q alone */
  args.struct_size = offsetof(pegen_args, origin); /* of a caller that knows of none */
  REFUSED(PEGEN_ERROR_ORIGIN);
  assert_false(tensor_identical(before, after));
  close_fixture(&f);
}

TEST(origins_are_checked) {
  for (int i = 0; i < TARGETS; i++) origins_are_checked_on(targets[i]);
}

/* Where the description says it no call does, and q and k come alone as they like. */
TEST(fixed_origins) {
  static const char *const options[] = {"grid=14,14", "origin=1000.5,2000"};
  for (int target = 0; target < TARGETS; target++)
    for (int i = 0; i < 2; i++) {
      fixture f = open_fixture(targets[target], options[i]);
      assert_int_equal(f.kernel->has_origin, 0);
      widen_trial t = trial_at(&f, NUMBER_F32, 1, i ? image(&f, 1005) : NULL, SIDE * SIDE);
      double places[AXES] = {0};
      pegen_args args = args_of(&f, &t);
      args.k = NULL, args.k_out = NULL;
      assert_int_equal(f.kernel->encode(&args, 0, 1), 0);
      args.origin = tensor_contiguous(f.memory, NUMBER_F64, 1, (int64_t[]){AXES}, places);
      assert_int_equal(f.kernel->encode(&args, 0, 1), PEGEN_ERROR_ORIGIN);
      close_fixture(&f);
    }
}

/* Rows of k that go to a cache: with an origin to the bit those of a call of both, without one refused. */
TEST(rows_in_slots) {
  enum { FEW = 6, PAGE = 16 };
  fixture f = open_fixture("native", "");
  widen_trial t = trial_at(&f, NUMBER_F32, 1, image(&f, 1e5), FEW);
  pegen_args args = args_of(&f, &t);
  assert_int_equal(f.kernel->encode(&args, 0, 1), 0);
  int64_t cache_shape[] = {1, PAGE, HEADS, f.kernel->out_dim}, slots_shape = FEW;
  double slots[FEW] = {3, 1, 4, 9, 5, 2};
  DLTensor *cache = random_rows(&f, 4, cache_shape);
  args.slots = tensor_contiguous(f.memory, NUMBER_I64, 1, &slots_shape, slots);
  args.k_out = cache;
  assert_int_equal(f.kernel->encode(&args, 0, 1), PEGEN_ERROR_ORIGIN);
  args.origin = t.origin;
  assert_int_equal(f.kernel->encode(&args, 0, 1), 0);
  for (int n = 0; n < FEW; n++)
    for (int h = 0; h < HEADS; h++)
      assert_memory_equal((float *)cache->data + ((int64_t)slots[n] * HEADS + h) * f.kernel->out_dim,
                          tensor_at(t.k_out, 0, h, n, 0), (size_t)f.kernel->out_dim * 4);
  close_fixture(&f);
}

int main(void) { return run_listed(); }
