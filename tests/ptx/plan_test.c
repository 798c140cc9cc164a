/* The launcher's plan and the threads' work, without a driver: however the grid is cut, every
 * element is written once, with the same bits; and what is refused is refused before a thread runs. */
#include "described.h"
#include "scoped.h"
#include "test.h"
#include "verify/oracle.h"
#include "verify/run_threads.h"
#include "verify/trial_attention_backward.h"

#include "runtime/launch.h"

#include <math.h>
#include <string.h>

enum { BATCH = 3, HEADS = 2, K_HEADS = 5, TOKENS = 7 };

typedef struct fixture {
  arena *memory;
  spec *spec;
  trial_operands operands;
  uint64_t random;
} fixture;

static fixture open_spec(const char *line) {
  fixture f = {.memory = arena_create(), .random = 3};
  f.spec = described(f.memory, "%s", line);
  f.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
  return f;
}

static DLTensor *random_positions(fixture *f, int64_t batches) {
  int64_t axes = f->spec->n_axes, shape[] = {batches, TOKENS, axes};
  double *values = arena_array(f->memory, double, batches * TOKENS * axes);
  for (int64_t i = 0; i < batches * TOKENS * axes; i++) values[i] = random_uniform(&f->random, -9, 9);
  return tensor_contiguous(f->memory, NUMBER_F32, batches > 1 ? 3 : 2, shape + (batches == 1), values);
}

static DLTensor *random_rows(fixture *f, number_type type, row_order order, int64_t heads) {
  DLTensor *t = tensor_rows(f->memory, type, order, BATCH, heads, TOKENS, f->spec->head_dim);
  tensor_randomize(t, &f->random);
  return t;
}

/* One thread for all rows, one a row, and between. */
static void any_grid(fixture *f, int64_t k_heads) {
  static const int64_t wanted[] = {1, 100, 3000, (int64_t)1 << 40};
  DLTensor *q = random_rows(f, NUMBER_BF16, ROWS_BNHD, f->spec->heads > 1 ? f->spec->heads : HEADS),
           *k = random_rows(f, NUMBER_BF16, ROWS_BHND, k_heads);
  for (int64_t batches = 1; batches <= BATCH; batches += BATCH - 1) {
    DLTensor *positions = random_positions(f, batches), *first[2] = {NULL};
    for (int i = 0; i < 4; i++) {
      SCOPED_KERNEL *loaded =
          held(run_load_threads(f->memory, f->spec, "sm_80", PEGEN_DTYPE_BF16, 1, wanted[i], false));
      DLTensor *out[2] = {tensor_copy(f->memory, q), tensor_copy(f->memory, k)};
      for (int s = 0; s < 2; s++) tensor_randomize(out[s], &(uint64_t){9});
      assert_int_equal(trial_call(run_kernel(loaded), positions, &f->operands, q, out[0], k, out[1], 1), 0);
      for (int s = 0; s < 2; s++) {
        assert_true(!first[s] || tensor_identical(first[s], out[s]));
        if (!first[s]) first[s] = out[s];
      }
    }
  }
}

TEST(shared_rotors) {
  SCOPED fixture f = open_spec("geope3d");
  any_grid(&f, K_HEADS);
}

TEST(rotors_by_head) {
  SCOPED fixture f = open_spec("care heads=3");
  any_grid(&f, 3);
}

static const number_type OPERAND_TYPES[] = {NUMBER_F32, NUMBER_F64, NUMBER_F16, NUMBER_BF16};
enum { OPERAND_TYPE_COUNT = sizeof OPERAND_TYPES / sizeof *OPERAND_TYPES };

/* Rows of the call against the reference, which reads what the operands hold. */
static void compare_operands(fixture *f, const pegen_kernel *kernel, const trial_operands *operands) {
  int64_t axes = f->spec->n_axes, shape[] = {TOKENS, axes}, heads = f->spec->heads > 1 ? f->spec->heads : HEADS;
  double *values = arena_array(f->memory, double, TOKENS *axes);
  for (int64_t i = 0; i < TOKENS * axes; i++) values[i] = random_uniform(&f->random, -90, 90);
  DLTensor *positions = tensor_contiguous(f->memory, NUMBER_F64, 2, shape, values);
  DLTensor *q = random_rows(f, NUMBER_F32, ROWS_BHND, heads), *out = tensor_copy(f->memory, q);
  trial_error worst = {0};
  assert_int_equal(trial_call(kernel, positions, operands, q, out, NULL, NULL, 1), 0);
  trial_compare_rows(oracle_create(f->memory, f->spec, 1, TOKENS, values, operands), q, out, &worst);
  assert_false(worst.spoilt);
  assert_true(worst.error < 0x1p-20L);
}

static void operand_types_of(const char *line) {
  SCOPED fixture f = open_spec(line);
  SCOPED_KERNEL *loaded = run_load_threads(f.memory, f.spec, "sm_80", PEGEN_DTYPE_F32, 1, 64, false);
  const pegen_kernel *kernel = run_kernel(loaded);
  for (int t = 0; t < OPERAND_TYPE_COUNT; t++) {
    trial_operands operands = trial_random_operands(f.memory, f.spec, OPERAND_TYPES[t], &f.random);
    compare_operands(&f, kernel, &operands);
  }
  /* Numbers that all types hold give the same bits, also where each operand has another type. */
  trial_operands coarse = trial_random_operands(f.memory, f.spec, NUMBER_BF16, &f.random);
  DLTensor *positions = random_positions(&f, 1),
           *q = random_rows(&f, NUMBER_F32, ROWS_BHND, f.spec->heads > 1 ? f.spec->heads : HEADS), *first = NULL;
  for (int t = 0; t < OPERAND_TYPE_COUNT * OPERAND_TYPE_COUNT; t++) {
    trial_operands mixed = coarse;
    const DLTensor *given[8];
    for (int i = 0; i < f.spec->n_operands; i++) {
      double *values = arena_array(f.memory, double, pegen_operand_size(kernel, i));
      for (int64_t j = 0; j < pegen_operand_size(kernel, i); j++)
        values[j] = number_round(NUMBER_F16, coarse.values[i][j]);
      given[i] = tensor_contiguous(f.memory, OPERAND_TYPES[i ? t / OPERAND_TYPE_COUNT : t % OPERAND_TYPE_COUNT],
                                   f.spec->operand[i].rank, f.spec->operand[i].shape, values);
    }
    mixed.tensors = given;
    DLTensor *out = tensor_copy(f.memory, q);
    assert_int_equal(trial_call(kernel, positions, &mixed, q, out, NULL, NULL, 1), 0);
    assert_true(!first || tensor_identical(first, out));
    if (!first) first = out;
  }
}

TEST(operand_types) {
  operand_types_of("quatro");
  operand_types_of("rope_mixed");
  operand_types_of("care heads=3");
}

/* Addresses and strides decide the entry. */
TEST(width_of_access) {
  SCOPED fixture f = open_spec("rope");
  SCOPED_KERNEL *loaded = run_load_threads(f.memory, f.spec, "sm_80", 0, 1, 64, false);
  const pegen_kernel *kernel = run_kernel(loaded);
  DLTensor *positions = random_positions(&f, 1), *q = random_rows(&f, NUMBER_BF16, ROWS_BHND, HEADS);
  assert_int_equal(trial_call(kernel, positions, &f.operands, q, q, NULL, NULL, 1), 0);
  assert_string_equal(run_threads_entry(kernel), "rope_encode_bf16");
  DLTensor *gaps = random_rows(&f, NUMBER_BF16, ROWS_GAPS, HEADS);
  assert_int_equal(trial_call(kernel, positions, &f.operands, gaps, gaps, NULL, NULL, 1), 0);
  assert_string_equal(run_threads_entry(kernel), "rope_encode_bf16_narrow");
  DLTensor *out = tensor_copy(f.memory, q);
  for (uint64_t off = 2; off < 16; off *= 2) { /* one element on and more; tensors have room behind their last */
    DLTensor *moved = tensor_copy(f.memory, q);
    moved->byte_offset = off;
    memmove((char *)moved->data + off, moved->data, (size_t)(BATCH * HEADS * TOKENS * 64 * 2));
    assert_int_equal(trial_call(kernel, positions, &f.operands, moved, out, NULL, NULL, 1), 0);
    assert_string_equal(run_threads_entry(kernel), "rope_encode_bf16_narrow");
  }
  DLTensor *wide = tensor_copy(f.memory, q);
  assert_int_equal(trial_call(kernel, positions, &f.operands, q, wide, NULL, NULL, 1), 0);
  assert_string_equal(run_threads_entry(kernel), "rope_encode_bf16");
  assert_true(tensor_identical(wide, out));
}

/* More batches than a grid has rows: several launches, each from its own batch on. */
TEST(more_batches_than_rows) {
  enum { MANY = 65535 + 2, CHANNELS = 4 };
  SCOPED fixture f = open_spec("rope_mixed heads=2 head_dim=4");
  SCOPED_KERNEL *loaded = run_load_threads(f.memory, f.spec, "sm_80", PEGEN_DTYPE_F32, 1, 64, false);
  int64_t axes = f.spec->n_axes;
  DLTensor *positions = tensor_contiguous(f.memory, NUMBER_F64, 2, (int64_t[]){1, axes}, (double[]){3, 4, 5});
  DLTensor *q = tensor_rows(f.memory, NUMBER_F32, ROWS_BHND, MANY, 2, 1, CHANNELS), *last = NULL;
  tensor_randomize(q, &f.random);
  DLTensor *out = tensor_copy(f.memory, q);
  last = tensor_copy(f.memory, q);
  assert_int_equal(trial_call(run_kernel(loaded), positions, &f.operands, q, out, NULL, NULL, 1), 0);
  for (int64_t first = 0; first < MANY; first += MANY - 2) { /* by two calls that need one each */
    DLTensor two = *q, two_out = *last;
    int64_t shape[] = {first ? 2 : MANY - 2, 2, 1, CHANNELS};
    two.shape = two_out.shape = shape;
    two.byte_offset = two_out.byte_offset = (uint64_t)(first * 2 * CHANNELS) * sizeof(float);
    assert_int_equal(trial_call(run_kernel(loaded), positions, &f.operands, &two, &two_out, NULL, NULL, 1), 0);
  }
  assert_true(tensor_identical(out, last));
}

TEST(nothing_to_launch) {
  SCOPED fixture f = open_spec("rope");
  SCOPED_KERNEL *loaded = run_load_threads(f.memory, f.spec, "sm_80", PEGEN_DTYPE_F32, 1, 64, false);
  DLTensor *q = random_rows(&f, NUMBER_F32, ROWS_BHND, HEADS), *positions = random_positions(&f, 1);
  q->shape[2] = positions->shape[0] = 0;
  assert_int_equal(trial_call(run_kernel(loaded), positions, &f.operands, q, q, NULL, NULL, 1), 0);
  assert_null(run_threads_entry(run_kernel(loaded)));
}

TEST(refusals) {
  SCOPED fixture f = open_spec("care");
  SCOPED_KERNEL *loaded = run_load_threads(f.memory, f.spec, "sm_80", PEGEN_DTYPE_F32, 1, 64, false);
  const pegen_kernel *kernel = run_kernel(loaded);
  DLTensor *positions = random_positions(&f, 1), *q = random_rows(&f, NUMBER_F32, ROWS_BHND, HEADS),
           *out = tensor_copy(f.memory, q);
  DLTensor integers = *f.operands.tensors[0];
  const DLTensor *given[] = {&integers, f.operands.tensors[1]};
  trial_operands wrong = {.values = f.operands.values, .tensors = given};
  integers.dtype.code = kDLInt;
  assert_int_equal(trial_call(kernel, positions, &wrong, q, out, NULL, NULL, 1), PEGEN_ERROR_OPERAND_DTYPE);
  DLTensor *half = random_rows(&f, NUMBER_BF16, ROWS_BHND, HEADS);
  assert_int_equal(trial_call(kernel, positions, &f.operands, half, half, NULL, NULL, 1), PEGEN_ERROR_DTYPE);
  DLTensor overlapping = *q;
  overlapping.byte_offset = 4;
  overlapping.shape = (int64_t[]){1, HEADS, TOKENS, 64};
  DLTensor shorter = *q;
  shorter.shape = overlapping.shape;
  assert_int_equal(trial_call(kernel, positions, &f.operands, &shorter, &overlapping, NULL, NULL, 1),
                   PEGEN_ERROR_OVERLAP);
  DLTensor many = *q; /* as many heads as there are threads' numbers for and more; nothing is read */
  many.data = (void *)((uintptr_t)1 << 44); /* far from all others */
  many.shape = (int64_t[]){1, (int64_t)1 << 31, 1, 64};
  many.strides = (int64_t[]){0, 64, 64, 1};
  DLTensor single = *positions;
  single.shape = (int64_t[]){1, positions->shape[1]};
  assert_int_equal(trial_call(kernel, &single, &f.operands, &many, &many, NULL, NULL, 1), PEGEN_ERROR_SIZE_OVERFLOW);
  out->device.device_type = kDLCUDA;
  assert_int_equal(trial_call(kernel, positions, &f.operands, q, out, NULL, NULL, 1), PEGEN_ERROR_DEVICE);
  assert_int_equal(trial_call(kernel, NULL, &f.operands, q, q, NULL, NULL, 1), PEGEN_ERROR_MISSING_POSITIONS);
  assert_null(run_threads_entry(kernel));
}

/* Sends rows through entries of gradients, on any grid, for the adjoint identity and to see which entry ran. */
static int backward(const fixture *f, const pegen_kernel *kernel, const DLTensor *positions, const DLTensor *in,
                    DLTensor *out, DLTensor *sums) {
  pegen_grad_args grad = {.struct_size = sizeof grad, .q_out = in, .q = out, .positions = sums};
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = kernel->n_operands,
                     .operands = f->operands.tensors,
                     .positions = positions,
                     .q = sums ? in : NULL,
                     .grad = &grad};
  return kernel->encode_backward(&args, 0, 1);
}

static double product(const DLTensor *x, const DLTensor *y, double *size) {
  double sum = 0;
  for (int64_t b = 0; b < x->shape[0]; b++)
    for (int64_t h = 0; h < x->shape[1]; h++)
      for (int64_t n = 0; n < x->shape[2]; n++)
        for (int64_t c = 0; c < x->shape[3]; c++) {
          double term =
              number_load(NUMBER_F32, tensor_at(x, b, h, n, c)) * number_load(NUMBER_F32, tensor_at(y, b, h, n, c));
          sum += term, *size += fabs(term);
        }
  return sum;
}

/* of_positions: what becomes of a call that asks for their gradients without a workspace. */
static void gradients_of(const char *line, int of_positions) {
  static const int64_t wanted[] = {1, (int64_t)1 << 40};
  SCOPED fixture f = open_spec(line);
  int64_t heads = f.spec->heads > 1 ? f.spec->heads : HEADS;
  DLTensor *positions = random_positions(&f, 1), *x = random_rows(&f, NUMBER_F32, ROWS_BHND, heads),
           *g = random_rows(&f, NUMBER_F32, ROWS_BNHD, heads), *first = NULL;
  for (int i = 0; i < 2; i++) {
    SCOPED_KERNEL *loaded = held(run_load_threads(f.memory, f.spec, "sm_80", PEGEN_DTYPE_F32, 1, wanted[i], true));
    const pegen_kernel *kernel = run_kernel(loaded);
    DLTensor *y = tensor_copy(f.memory, x);
    assert_int_equal(trial_call(kernel, positions, &f.operands, x, y, NULL, NULL, 1), 0);
    assert_null(strstr(run_threads_entry(kernel), "backward"));
    for (int order = 0; order < ROW_ORDER_COUNT; order++) {
      DLTensor *out = random_rows(&f, NUMBER_F32, (row_order)order, heads);
      assert_int_equal(backward(&f, kernel, positions, g, out, NULL), 0);
      assert_non_null(strstr(run_threads_entry(kernel), "_encode_backward_f32"));
      double size = 0, left = product(g, y, &size), right = product(out, x, &size);
      assert_true(fabs(left - right) <= 0x1p-20 * size && size > 0);
      assert_true(!first || tensor_identical(first, out));
      if (!first) first = out;
    }
    /* In place. */
    DLTensor *here = tensor_copy(f.memory, g);
    assert_int_equal(backward(&f, kernel, positions, here, here, NULL), 0);
    assert_true(tensor_identical(here, first));
    assert_int_equal(backward(&f, kernel, positions, g, here, positions), of_positions);
  }
}

TEST(gradients) {
  const int workspace = PEGEN_ERROR_WORKSPACE;
  gradients_of("geope3d", workspace);
  gradients_of("geope2d layout=split skip_tokens=2", workspace); /* staged */
  gradients_of("quatro heads=3 inverse=true", workspace);
  gradients_of("liere block=6 skip_tokens=1", workspace);
  gradients_of("liere block=12 heads=3 head_dim=39", workspace);
  gradients_of("comrope_ld block=8 basis=schur skip_tokens=2", workspace);
  gradients_of("string_cayley head_dim=16 skip_tokens=1", workspace);
  gradients_of("liere block=8 prepare=float64", workspace);
  SCOPED fixture f = open_spec("rope");
  SCOPED_KERNEL *without = run_load_threads(f.memory, f.spec, "sm_80", PEGEN_DTYPE_F32, 1, 64, false);
  assert_null(run_kernel(without)->encode_backward);
}

/* ---- rows of attention that are copied ---- */

/* Copies rows to odd addresses and strides. */
static DLTensor *moved(arena *a, const DLTensor *rows) {
  const int64_t *n = rows->shape;
  int64_t element = rows->dtype.bits / 8;
  DLTensor *t = tensor_rows(a, element == 4 ? NUMBER_F32 : NUMBER_BF16, ROWS_GAPS, n[0], n[1], n[2], n[3]);
  t->byte_offset = (uint64_t)element;
  for (int64_t row = 0; row < n[0] * n[1] * n[2]; row++) {
    int64_t b = row / n[2] / n[1], h = row / n[2] % n[1], i = row % n[2];
    memcpy(tensor_at(t, b, h, i, 0), tensor_at(rows, b, h, i, 0), (size_t)(n[3] * element));
  }
  return t;
}

static void move_rows(arena *a, attention_gradients *g) {
  DLTensor **rows[] = {&g->forward.q, &g->forward.k, &g->forward.v, &g->out, &g->g_out, &g->q, &g->k, &g->v};
  for (int i = 0; i < 8; i++) *rows[i] = moved(a, *rows[i]);
}

/* Rows that lie anyhow have the bits of those that are aligned, and only these take none of the workspace. */
static void rows_lie_anyhow(const char *line, const char *target, number_type type) {
  SCOPED fixture f = open_spec(line);
  arena *a = f.memory;
  const spec *s = f.spec;
  SCOPED_KERNEL *loaded = held(run_load_threads(a, s, target, 1u << type, 0, 64, true));
  const pegen_kernel *kernel = run_kernel(loaded);
  int64_t heads = s->heads > 1 ? s->heads : 4, k_heads = heads % 2 ? heads : heads / 2;
  attention_trial t = {.spec = s, .causal = true};
  attention_trial_fill(a, &t, &(attention_sizes){2, heads, k_heads, TOKENS, TOKENS}, type, ROWS_BHND, &f.random);
  t.operands = trial_random_operands(a, s, NUMBER_F32, &f.random);
  t.positions = random_positions(&f, 1);
  attention_gradients g;
  assert_int_equal(attention_gradients_fill(a, &g, &t, kernel, true, 1, ROWS_BHND, &f.random), 0);
  if (kernel->ptx->attention->gaining != (1u << s->n_operands) - 1)
    g.operands = NULL; /* some that rotate gain nothing */
  attention_gradients other = attention_gradients_room(a, &g);
  assert_int_equal(attention_gradients_call(kernel, &g, 1), 0);
  move_rows(a, &other);
  pegen_args aligned = attention_trial_args(kernel, &t, g.out),
             args = attention_trial_args(kernel, &other.forward, other.out);
  assert_true(kernel->attention_workspace(&args) > kernel->attention_workspace(&aligned));
  tensor_randomize(other.out, &f.random);
  assert_int_equal(kernel->attention(&args, 0, 1), PEGEN_ERROR_WORKSPACE);
  assert_int_equal(attention_trial_call(kernel, &other.forward, other.out, 1), 0);
  assert_true(tensor_identical(g.out, other.out));
  assert_int_equal(attention_gradients_call(kernel, &other, 1), 0);
  assert_true(attention_gradients_same(&g, &other));
}

TEST(rows_are_copied) {
  rows_lie_anyhow("alibi head_dim=24", "sm_75", NUMBER_BF16);
  rows_lie_anyhow("lingeope head_dim=16", "sm_80", NUMBER_BF16);
  rows_lie_anyhow("more/gta head_dim=8", "sm_80", NUMBER_F32);
  rows_lie_anyhow("../tests/attention/values kind=learned", "sm_80", NUMBER_F32);
}

/* ---- entries that a device has room for ---- */

typedef struct launched {
  const pegen_kernel *kernel;
  int64_t shared; /* bytes that a block may have */
  const char *keys, *values; /* names of the entries that make gradients of k, and of v where that is its own */
} launched;

static int note_launched(void *context, const pegen_launch_step *step) {
  launched *l = context;
  assert_true(pegen_launch_shared_of(l->kernel, step->entry) <= l->shared);
  if (strstr(step->entry->name, "_keys_")) l->keys = step->entry->name;
  if (strstr(step->entry->name, "_values_")) l->values = step->entry->name;
  return 0;
}

/* A device may have room for tensor cores' tiles of keys and not for those of values: both are then taken from the next
 * machine, since one leaves to the other what it does not store. */
TEST(keys_and_values_by_one_machine) {
  SCOPED fixture f = open_spec("attention head_dim=256 value_dim=256");
  arena *a = f.memory;
  SCOPED_KERNEL *loaded = held(run_load_threads(a, f.spec, "sm_80", PEGEN_DTYPE_BF16, 0, 64, true));
  const pegen_kernel *kernel = run_kernel(loaded);
  attention_trial t = {.spec = f.spec};
  attention_trial_fill(a, &t, &(attention_sizes){1, 1, 1, TOKENS, TOKENS}, NUMBER_BF16, ROWS_BHND, &f.random);
  attention_gradients g;
  assert_int_equal(attention_gradients_fill(a, &g, &t, kernel, false, 1, ROWS_BHND, &f.random), 0);
  pegen_args args = attention_trial_args(kernel, &g.forward, g.out);
  pegen_grad_args grad = attention_gradients_args(&g);
  args.grad = &grad;
  int with_values = 0, without = 0;
  for (int64_t shared = 90 << 10; shared <= 110 << 10; shared += 64) {
    launched l = {.kernel = kernel, .shared = shared};
    pegen_launch_request request = {
        .kernel = kernel, .entry = PEGEN_LAUNCH_attention_backward, .args = &args, .threads = 64, .shared = shared};
    args.workspace_bytes = pegen_launch_workspace(&request);
    args.workspace = arena_array(a, char, (int64_t)args.workspace_bytes + 1);
    int error = pegen_launch_plan(&request, note_launched, &l);
    if (error && !with_values && !without) continue; /* no machine fits yet */
    assert_int_equal(error, 0);
    assert_non_null(l.keys);
    assert_non_null(strstr(l.keys, l.values ? "_mma" : "_simt"));
    assert_true(!l.values || strstr(l.values, "_mma"));
    *(l.values ? &with_values : &without) += 1;
  }
  assert_true(with_values && without);
}

/* A launch's device is that of rows it reads: a gradient that comes in and goes nowhere is not looked at. */
TEST(device_of_gradients) {
  DLTensor host = {.device = {kDLCPU, 0}}, second = {.device = {kDLCUDA, 1}};
  pegen_grad_args grad = {.struct_size = sizeof grad, .q_out = &host, .k_out = &second, .k = &second};
  const pegen_args args = {.struct_size = sizeof args, .grad = &grad};
  const pegen_launch_request request = {.entry = PEGEN_LAUNCH_encode_backward, .args = &args};
  assert_ptr_equal(pegen_launch_rows(&request), &second);
  grad.q = &host;
  assert_ptr_equal(pegen_launch_rows(&request), &host);
}

int main(void) { return run_listed(); }
