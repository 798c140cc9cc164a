/* refuse_test [TARGET]: what a call of attention refuses, each in a call that is right but for one thing, and that
 * nothing is written then. */
#include "described.h"
#include "runtime/launch.h"
#include "scoped.h"
#include "test.h"
#include "verify/trial_attention.h"

#include <math.h>
#include <string.h>

#define TABLE "relative_bias_table head_dim=8 heads=4 window_h=3 window_w=3 value_dim=12"

enum { B = 2, H = 4, HKV = 2, N = 5, M = 7, D = 8, DV = 12 };

typedef struct call {
  arena *memory;
  DLTensor q, k, v, out, positions, k_positions, table, lse;
  int64_t q_shape[4], k_shape[4], v_shape[4], out_shape[4], place_shape[3], k_place_shape[3], table_shape[3],
      lse_shape[4];
  int64_t strides[4];
  _Alignas(16) float memory_of[8][1024]; /* rows are aligned, so that calls on GPUs need no workspace */
  const DLTensor *operands[1];
  pegen_args args;
} call;

static const pegen_kernel *kernel;
static const char *target = "native";
static call only, *const c = &only;

static DLTensor tensor(void *data, int rank, int64_t *shape, DLDataType type) {
  return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = type, .shape = shape};
}

static void fill(void) {
  const DLDataType f32 = {kDLFloat, 32, 1};
  memset(c, 0, sizeof *c);
  memcpy(c->q_shape, (int64_t[]){B, H, N, D}, sizeof c->q_shape);
  memcpy(c->k_shape, (int64_t[]){B, HKV, M, D}, sizeof c->k_shape);
  memcpy(c->v_shape, (int64_t[]){B, HKV, M, DV}, sizeof c->v_shape);
  memcpy(c->out_shape, (int64_t[]){B, H, N, DV}, sizeof c->out_shape);
  memcpy(c->place_shape, (int64_t[]){N, 2}, 2 * sizeof(int64_t));
  memcpy(c->k_place_shape, (int64_t[]){M, 2}, 2 * sizeof(int64_t));
  memcpy(c->table_shape, (int64_t[]){5, 5, 4}, sizeof c->table_shape);
  c->q = tensor(c->memory_of[0], 4, c->q_shape, f32);
  c->k = tensor(c->memory_of[1], 4, c->k_shape, f32);
  c->v = tensor(c->memory_of[2], 4, c->v_shape, f32);
  c->out = tensor(c->memory_of[3], 4, c->out_shape, f32);
  c->positions = tensor(c->memory_of[4], 2, c->place_shape, f32);
  c->k_positions = tensor(c->memory_of[5], 2, c->k_place_shape, f32);
  c->table = tensor(c->memory_of[6], 3, c->table_shape, f32);
  memcpy(c->lse_shape, (int64_t[]){B, H, N}, 3 * sizeof(int64_t));
  c->lse = tensor(c->memory_of[7], 3, c->lse_shape, f32);
  c->operands[0] = &c->table;
  c->args = (pegen_args){.struct_size = sizeof(pegen_args),
                         .n_operands = 1,
                         .q = &c->q,
                         .k = &c->k,
                         .v = &c->v,
                         .out = &c->out,
                         .positions = &c->positions,
                         .k_positions = &c->k_positions,
                         .operands = c->operands};
  memset(c->memory_of[3], 0x5a, sizeof c->memory_of[3]);
}

/* Runs it; where it was refused, the output must be as before. */
static int run(void) {
  int error = kernel->attention(&c->args, 0, 1);
  for (size_t i = 0; error && i < sizeof c->memory_of[3]; i++)
    assert_int_equal(((unsigned char *)c->memory_of[3])[i], 0x5a);
  return error;
}

#define REFUSED(error, change) \
  do { \
    fill(); \
    change; \
    assert_int_equal(run(), PEGEN_ERROR_##error); \
  } while (0)

TEST(refusals) {
  fill();
  assert_int_equal(run(), 0);
  assert_int_equal(kernel->attention(NULL, 0, 1), PEGEN_ERROR_NULL_ARGS);
  assert_int_equal(kernel->attention(&c->args, 1, 1), PEGEN_ERROR_PART);
  REFUSED(STRUCT_SIZE, c->args.struct_size -= 1);
  REFUSED(MISSING_TENSOR, c->args.q = NULL);
  REFUSED(MISSING_TENSOR, c->args.k = NULL);
  REFUSED(MISSING_TENSOR, c->args.v = NULL);
  REFUSED(MISSING_TENSOR, c->args.out = NULL);
  REFUSED(MISSING_POSITIONS, c->args.positions = NULL);
  REFUSED(MISSING_OPERAND, c->args.n_operands = 0);
  REFUSED(MISSING_OPERAND, c->operands[0] = NULL);
  REFUSED(SCALE, c->args.scale = NAN);
  REFUSED(SCALE, c->args.scale = INFINITY);
  REFUSED(RANK, c->v.ndim = 3);
  REFUSED(NULL_SHAPE, c->k.shape = NULL);
  REFUSED(NEGATIVE_SIZE, c->q_shape[2] = -1);
  REFUSED(HEAD_DIM, c->k_shape[3] = D + 1);
  REFUSED(VALUE_DIM, c->v_shape[3] = DV + 1);
  REFUSED(VALUE_DIM, c->out_shape[3] = D);
  REFUSED(SHAPE_MISMATCH, c->v_shape[2] = M - 1);
  REFUSED(SHAPE_MISMATCH, c->v_shape[1] = 1);
  REFUSED(SHAPE_MISMATCH, c->out_shape[2] = N - 1);
  REFUSED(SHAPE_MISMATCH, (c->k_shape[0] = 1, c->v_shape[0] = 1));
  REFUSED(HEADS, (c->q_shape[1] = 2, c->out_shape[1] = 2));
  REFUSED(HEAD_GROUPS, (c->k_shape[1] = 3, c->v_shape[1] = 3));
  REFUSED(HEAD_GROUPS, (c->k_shape[1] = 0, c->v_shape[1] = 0));
  REFUSED(POSITIONS_SHAPE, c->place_shape[0] = N + 1);
  REFUSED(POSITIONS_SHAPE, c->args.k_positions = NULL);
  REFUSED(POSITIONS_SHAPE, c->k_place_shape[1] = 3);
  REFUSED(OPERAND_SHAPE, c->table_shape[0] = 4);
  REFUSED(DTYPE, (c->q.dtype.bits = c->k.dtype.bits = c->v.dtype.bits = c->out.dtype.bits = 64));
  REFUSED(DTYPE_MISMATCH, c->v.dtype.bits = 16);
  REFUSED(DTYPE_MISMATCH, c->out.dtype.bits = 16);
  REFUSED(POSITIONS_DTYPE, c->positions.dtype.bits = 16);
  REFUSED(POSITIONS_DTYPE, c->k_positions.dtype.bits = 8);
  REFUSED(INDEXED_OPERAND, c->table.dtype.bits = 64);
  REFUSED(OPERAND_DTYPE, c->table.dtype.bits = 8);
  REFUSED(DEVICE, c->v.device.device_type = kDLCUDA);
  REFUSED(CHANNEL_STRIDE, (memcpy(c->strides, (int64_t[]){1, 1, 1, 2}, sizeof c->strides), c->v.strides = c->strides));
  REFUSED(STRIDE, (memcpy(c->strides, (int64_t[]){1, 1, 1, 1}, sizeof c->strides), c->out.strides = c->strides));
  REFUSED(NULL_DATA, c->k.data = NULL);
  REFUSED(ALIGNMENT, c->q.byte_offset = 2);
  REFUSED(OVERLAP, c->q.data = c->memory_of[3]);
  REFUSED(OVERLAP, c->v.data = c->memory_of[3]);
  REFUSED(OVERLAP, c->positions.data = c->memory_of[3] + 100);
  REFUSED(OVERLAP, c->k_positions.data = c->memory_of[3] + 100);
  REFUSED(OVERLAP, c->k.data = c->memory_of[3]);
  REFUSED(OVERLAP, c->table.data = c->memory_of[3]);
  REFUSED(LSE, (c->args.lse = &c->lse, c->lse.ndim = 4));
  REFUSED(LSE, (c->args.lse = &c->lse, c->lse.shape = NULL));
  REFUSED(LSE, (c->args.lse = &c->lse, c->lse_shape[2] = M));
  REFUSED(LSE, (c->args.lse = &c->lse, c->lse.dtype.bits = 64));
  if (strncmp(target, "sm_", 3)) REFUSED(DEVICE, (c->args.lse = &c->lse, c->lse.device.device_type = kDLCUDA));
  REFUSED(NULL_DATA, (c->args.lse = &c->lse, c->lse.data = NULL));
  REFUSED(ALIGNMENT, (c->args.lse = &c->lse, c->lse.byte_offset = 2));
  REFUSED(STRIDE, (c->args.lse = &c->lse, memcpy(c->strides, (int64_t[]){1, 1, 1}, 24), c->lse.strides = c->strides));
  REFUSED(OVERLAP, (c->args.lse = &c->lse, c->lse.data = c->memory_of[3]));
  REFUSED(OVERLAP, (c->args.lse = &c->lse, c->lse.data = c->memory_of[0]));
  REFUSED(OVERLAP, (c->args.lse = &c->lse, c->lse.data = c->memory_of[2] + 20));
  REFUSED(OVERLAP, (c->args.lse = &c->lse, c->lse.data = c->memory_of[6]));
}

/* A kernel with tables of its grid takes no other positions, and as many tokens as the grid has. */
TEST(grid_alone) {
  SCOPED arena *a = arena_create();
  spec *s = described(a, TABLE " grid=1,5");
  SCOPED_KERNEL *loaded = held(trial_load(a, s, target, PEGEN_DTYPE_F32, 1));
  const pegen_kernel *other = kernel;
  kernel = run_kernel(loaded);
  REFUSED(GRID_ONLY, c->args.positions = NULL);
  REFUSED(GRID_ONLY, c->args.k_positions = NULL);
  REFUSED(GRID_SIZE, c->args.positions = c->args.k_positions = NULL);
  kernel = other;
}

/* PTX that was compiled before attention wrote the log-sum-exp has no parameters for it. */
TEST(without_lse) {
  fill();
  pegen_kernel old = *kernel;
  if (!old.ptx) return;
  pegen_ptx ptx = *old.ptx;
  pegen_ptx_attention attention = *ptx.attention;
  old.ptx = &ptx;
  ptx.attention = &attention;
  pegen_launch_request request = {.kernel = &old, .entry = PEGEN_LAUNCH_attention, .args = &c->args};
  c->args.lse = &c->lse;
  assert_int_equal(pegen_launch_check(&request), 0);
  attention.n_parameters -= PEGEN_PTX_ROWS_COUNT;
  assert_int_equal(pegen_launch_check(&request), PEGEN_ERROR_UNKNOWN_FIELD);
  c->args.lse = NULL;
  assert_int_equal(pegen_launch_check(&request), 0);
}

/* Indices of a learned table are of displacements, which may be anything: what is read lies inside the table, here of
 * ones, and the mean of rows of ones is one. */
TEST(places_that_are_none) {
  static const float odd[] = {NAN, -NAN, INFINITY, -INFINITY, 0x1p31f, -0x1p31f, 1e30f, -1e30f, 0x1p-149f, -0.5f};
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
    for (int where = 0; where < 2; where++) {
      fill();
      for (int k = 0; k < B * HKV * M * DV; k++) c->memory_of[2][k] = 1;
      for (int k = 0; k < 5 * 5 * 4; k++) c->memory_of[6][k] = 1;
      for (int k = 0; k < 2 * N; k++) c->memory_of[4 + where][k] = odd[i];
      assert_int_equal(run(), 0);
      for (int k = 0; k < B * H * N * DV; k++) assert_float_equal(c->memory_of[3][k], 1, 1e-5);
    }
}

/* A launch counts blocks and tokens in 32 bits. */
TEST(blocks_are_counted) {
  const int64_t most = INT32_MAX - 1024; /* launch_attention.c */
  assert_int_equal(pegen_launch_tiles(0, 16, 4, 2), 0);
  assert_int_equal(pegen_launch_tiles(17, 16, 0, 2), 0);
  assert_int_equal(pegen_launch_tiles(17, 16, 4, 0), 0);
  assert_int_equal(pegen_launch_tiles(17, 16, 4, 3), 24);
  assert_int_equal(pegen_launch_tiles(most, 1, 1, 1), most);
  assert_int_equal(pegen_launch_tiles(most + 1, 1, 1, 1), -1);
  assert_int_equal(pegen_launch_tiles(most + 1, 64, 1, 1), -1);
  assert_int_equal(pegen_launch_tiles(16, 16, most, 1), most);
  assert_int_equal(pegen_launch_tiles(16, 16, 1, most + 1), -1);
  assert_int_equal(pegen_launch_tiles(32, 16, INT64_MAX / 2 + 1, 1), -1);
  assert_int_equal(pegen_launch_tiles(16, 16, INT64_MAX / 2, 3), -1);
  for (int more = 0; kernel->ptx && more < 2; more++) {
    fill(); /* keys in memory that nobody looks at, far from all other tensors */
    c->k_shape[2] = c->v_shape[2] = c->k_place_shape[0] = most + more;
    c->k.data = (void *)((uintptr_t)1 << 44);
    c->v.data = (void *)((uintptr_t)1 << 45);
    c->k_positions.data = (void *)((uintptr_t)1 << 46);
    pegen_launch_request request = {.kernel = kernel, .entry = PEGEN_LAUNCH_attention, .args = &c->args};
    assert_int_equal(pegen_launch_check(&request), more ? PEGEN_ERROR_SIZE_OVERFLOW : 0);
  }
}

/* Every refusal has a sentence of its own. */
TEST(sentences) {
  static const int errors[] = {PEGEN_ERROR_MISSING_TENSOR, PEGEN_ERROR_VALUE_DIM,       PEGEN_ERROR_HEAD_GROUPS,
                               PEGEN_ERROR_SCALE,          PEGEN_ERROR_INDEXED_OPERAND, PEGEN_ERROR_LSE};
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    assert_string_not_equal(pegen_strerror(errors[i]), "unknown error");
}

int main(int argc, char **argv) {
  SCOPED arena *a = arena_create();
  if (argc > 1) target = argv[1];
  SCOPED_KERNEL *loaded = held(trial_load(a, described(a, TABLE), target, PEGEN_DTYPE_F32, 1));
  kernel = run_kernel(loaded);
  return run_listed();
}
