/* refuse.c: every way to call a kernel wrongly has its own error, and no byte is
 * written. Each row of the table spoils one thing of a call that would succeed.
 */
#include "host.h"
#include "test.h"

#include "kernel/arguments.h"

#include <stdio.h>
#include <string.h>

static const pegen_kernel *kernel;

typedef struct mistake {
  const char *what;
  int error, needs; /* the second: of the kernel, else the row is skipped */
} mistake;

enum { NEEDS_NOTHING, NEEDS_OPERANDS, NEEDS_HEADS, NEEDS_NO_GRID, NEEDS_GRID, NEEDS_K_POSITIONS };

/* ---- 1, 2: what is given ---- */
static void unknown_field(host *h) {
  h->args.struct_size += 16;
  h->later[1] = 1;
}
static void last_unknown_field(host *h) {
  h->args.struct_size = PEGEN_ARGS_MOST_SIZE;
  h->later[(PEGEN_ARGS_MOST_SIZE - sizeof h->args) / 8 - 1] = (uint64_t)1 << 63;
}
static void nothing(host *h) {
  h->args.q = h->args.k = NULL;
  h->args.q_out = h->args.k_out = NULL;
}

/* ---- 4: positions, grid, operands ---- */
static void positions_rank_one(host *h) { h->positions.dl.ndim = h->kernel->n_axes > 1; } /* [N] is of one axis */
static void positions_batch(host *h) {
  h->positions.dl.ndim = 3;
  h->positions.shape[2] = h->positions.shape[1];
  h->positions.shape[1] = h->positions.shape[0];
  h->positions.shape[0] = h->shape.batch + 1;
  h->positions.dl.strides = NULL;
}
static void k_tokens(host *h) { h->k.shape[2] = h->k_out.shape[2] = h->shape.tokens - 2; }
static void k_positions_tokens(host *h) { h->args.k_positions = &h->k_positions.dl, h->k_positions.shape[0]--; }
static void grid_tokens(host *h) { /* 7 tokens are given */
  h->args.positions = NULL;
  h->q.shape[2] = h->q_out.shape[2] = h->k.shape[2] = h->k_out.shape[2] = 5;
}
static void grid_tokens_more(host *h) {
  h->args.positions = NULL;
  h->q.shape[2] = h->q_out.shape[2] = h->k.shape[2] = h->k_out.shape[2] = 9;
}
static void grid_k_tokens(host *h) {
  int64_t tokens = kernel->skip_tokens;
  h->args.positions = NULL;
  h->args.q = NULL;
  h->args.q_out = NULL;
  h->k.shape[2] = h->k_out.shape[2] = tokens;
}
static void operand_strides(host *h) {
  for (int i = 0; i < h->operands[0].dl.ndim; i++) h->operands[0].strides[i] *= 2;
}

/* ---- 5: number types ---- */
static void all_float64(host *h) {
  h->q.dl.dtype.bits = h->k.dl.dtype.bits = h->q_out.dl.dtype.bits = h->k_out.dl.dtype.bits = 64;
}
static void all_integers(host *h) {
  h->q.dl.dtype.code = h->k.dl.dtype.code = h->q_out.dl.dtype.code = h->k_out.dl.dtype.code = kDLInt;
}

/* ---- 6: memory ---- */
static void q_batch_huge(host *h) {
  h->args.k = NULL;
  h->args.k_out = NULL;
  h->q.shape[0] = h->q_out.shape[0] = INT64_MAX / 2;
  h->q.dl.strides = h->q_out.dl.strides = NULL;
}

/* ---- 7: overlap ---- */
static void q_out_shifted(host *h) { /* one row on */
  h->q_out.dl = h->q.dl;
  h->q_out.dl.byte_offset = (uint64_t)h->kernel->head_dim * (h->q.dl.dtype.bits / 8);
}
static void q_out_other_strides(host *h) { /* same memory, heads and tokens swapped */
  h->q_out.dl.data = h->q.dl.data;
  h->q_out.strides[1] = h->kernel->head_dim;
  h->q_out.strides[2] = h->kernel->head_dim * h->shape.heads;
}
static void one_tensor_in_place(host *h) { h->q_out.dl.data = h->k_out.dl.data = h->k.dl.data = h->q.dl.data; }
static void k_positions_in_q_out(host *h) { /* q has others */
  h->args.k_positions = &h->k_positions.dl;
  h->k_positions.dl.data = (char *)h->q_out.dl.data + 64;
}
static void k_positions_in_k_out(host *h) {
  h->args.k_positions = &h->k_positions.dl;
  h->k_positions.dl.data = h->k_out.dl.data;
}
static void positions_in_k_out_alone(host *h) { /* k has others */
  h->args.k_positions = &h->k_positions.dl;
  h->positions.dl.data = h->k_out.dl.data;
}

/* X(what is wrong, its error, what the kernel needs to have, what makes it so): host *h is the call. */
#define MISTAKES(X) \
  X("struct_size too small", STRUCT_SIZE, NOTHING, h->args.struct_size = PEGEN_ARGS_FIRST_SIZE - 8) \
  X("struct_size too large", STRUCT_SIZE, NOTHING, h->args.struct_size = PEGEN_ARGS_MOST_SIZE + 8) \
  X("struct_size between fields", STRUCT_SIZE, NOTHING, h->args.struct_size = PEGEN_ARGS_FIRST_SIZE + 4) \
  X("struct_size zero", STRUCT_SIZE, NOTHING, h->args.struct_size = 0) \
  X("a field of a later version", UNKNOWN_FIELD, NOTHING, unknown_field(h)) \
  X("the last field of a later version", UNKNOWN_FIELD, NOTHING, last_unknown_field(h)) \
  X("q_out without q", MISSING_OUTPUT, NOTHING, h->args.q = NULL) \
  X("q without q_out", MISSING_OUTPUT, NOTHING, h->args.q_out = NULL) \
  X("k_out without k", MISSING_OUTPUT, NOTHING, h->args.k = NULL) \
  X("k without k_out", MISSING_OUTPUT, NOTHING, h->args.k_out = NULL) \
  X("neither q nor k", NOTHING_TO_DO, NOTHING, nothing(h)) \
  X("no positions", MISSING_POSITIONS, NO_GRID, h->args.positions = NULL) \
  X("operands NULL", MISSING_OPERAND, OPERANDS, h->args.operands = NULL) \
  X("an operand too few", MISSING_OPERAND, OPERANDS, h->args.n_operands--) \
  X("an operand NULL", MISSING_OPERAND, OPERANDS, h->operand_pointers[h->kernel->n_operands - 1] = NULL) \
  X("rank of q", RANK, NOTHING, h->q.dl.ndim = 3) \
  X("negative rank of q", RANK, NOTHING, h->q.dl.ndim = -1) \
  X("rank of k_out", RANK, NOTHING, h->k_out.dl.ndim = 5) \
  X("q without shape", NULL_SHAPE, NOTHING, h->q.dl.shape = NULL) \
  X("k_out without shape", NULL_SHAPE, NOTHING, h->k_out.dl.shape = NULL) \
  X("negative tokens of q", NEGATIVE_SIZE, NOTHING, h->q.shape[2] = -1) \
  X("negative batch of k_out", NEGATIVE_SIZE, NOTHING, h->k_out.shape[0] = -2) \
  X("channels of q", HEAD_DIM, NOTHING, h->q.shape[3]--) \
  X("channels of q_out", HEAD_DIM, NOTHING, h->q_out.shape[3]++) \
  X("channels of k", HEAD_DIM, NOTHING, h->k.shape[3] = 0) \
  X("tokens of q_out", SHAPE_MISMATCH, NOTHING, h->q_out.shape[2]--) \
  X("heads of q_out", SHAPE_MISMATCH, NOTHING, h->q_out.shape[1]--) \
  X("batch of k_out", SHAPE_MISMATCH, NOTHING, h->k_out.shape[0]--) \
  X("batch of k against q", SHAPE_MISMATCH, NOTHING, h->k.shape[0] = h->k_out.shape[0] = 1) \
  X("heads of q", HEADS, HEADS, h->q.shape[1] = h->q_out.shape[1] = kernel->heads - 1) \
  X("heads of k", HEADS, HEADS, h->k.shape[1] = h->k_out.shape[1] = kernel->heads - 1) \
  X("positions of rank 1", POSITIONS_SHAPE, NOTHING, positions_rank_one(h)) \
  X("positions of rank 4", POSITIONS_SHAPE, NOTHING, h->positions.dl.ndim = 4) \
  X("positions without shape", NULL_SHAPE, NOTHING, h->positions.dl.shape = NULL) \
  X("axes of positions", POSITIONS_SHAPE, NOTHING, h->positions.shape[1]++) \
  X("tokens of positions", POSITIONS_SHAPE, NOTHING, h->positions.shape[0]--) \
  X("batch of positions", POSITIONS_SHAPE, NOTHING, positions_batch(h)) \
  X("tokens of k without k_positions", POSITIONS_SHAPE, NOTHING, k_tokens(h)) \
  X("tokens of k_positions", POSITIONS_SHAPE, K_POSITIONS, k_positions_tokens(h)) \
  X("tokens of the grid", GRID_SIZE, GRID, grid_tokens(h)) \
  X("more tokens than the grid has", GRID_SIZE, GRID, grid_tokens_more(h)) \
  X("tokens of the grid, k", GRID_SIZE, GRID, grid_k_tokens(h)) \
  X("rank of an operand", OPERAND_SHAPE, OPERANDS, h->operands[0].dl.ndim--) \
  X("operand without shape", NULL_SHAPE, OPERANDS, h->operands[0].dl.shape = NULL) \
  X("shape of an operand", OPERAND_SHAPE, OPERANDS, h->operands[0].shape[0]++) \
  X("strides of an operand", OPERAND_SHAPE, OPERANDS, operand_strides(h)) \
  X("float64 rows", DTYPE, NOTHING, all_float64(h)) \
  X("integer rows", DTYPE, NOTHING, all_integers(h)) \
  X("vector elements", DTYPE, NOTHING, h->q.dl.dtype.lanes = 4) \
  X("type of k", DTYPE_MISMATCH, NOTHING, h->k.dl.dtype.code = kDLInt) \
  X("type of q_out", DTYPE_MISMATCH, NOTHING, h->q_out.dl.dtype.bits = 64) \
  X("lanes of k_out", DTYPE_MISMATCH, NOTHING, h->k_out.dl.dtype.lanes = 2) \
  X("16-bit positions", POSITIONS_DTYPE, NOTHING, h->positions.dl.dtype.bits = 16) \
  X("unsigned positions", POSITIONS_DTYPE, NOTHING, h->positions.dl.dtype.code = kDLUInt) \
  X("integer operand", OPERAND_DTYPE, OPERANDS, h->operands[0].dl.dtype.code = kDLInt) \
  X("q on a GPU", DEVICE, NOTHING, h->q.dl.device.device_type = kDLCUDA) \
  X("k_out on a GPU", DEVICE, NOTHING, h->k_out.dl.device.device_type = kDLROCM) \
  X("positions on a GPU", DEVICE, NOTHING, h->positions.dl.device.device_type = kDLCUDA) \
  X("operand on a GPU", DEVICE, OPERANDS, h->operands[0].dl.device.device_type = kDLCUDA) \
  X("q without data", NULL_DATA, NOTHING, h->q.dl.data = NULL) \
  X("k_out without data", NULL_DATA, NOTHING, h->k_out.dl.data = NULL) \
  X("positions without data", NULL_DATA, NOTHING, h->positions.dl.data = NULL) \
  X("operand without data", NULL_DATA, OPERANDS, h->operands[0].dl.data = NULL) \
  X("channel stride of q", CHANNEL_STRIDE, NOTHING, h->q.strides[3] = 2) \
  X("channel stride of k_out", CHANNEL_STRIDE, NOTHING, h->k_out.strides[3] = -1) \
  X("q misaligned", ALIGNMENT, NOTHING, h->q.dl.byte_offset = 1) \
  X("k_out misaligned", ALIGNMENT, NOTHING, h->k_out.dl.byte_offset = 1) \
  X("positions misaligned", ALIGNMENT, NOTHING, h->positions.dl.byte_offset = 2) \
  X("operand misaligned", ALIGNMENT, OPERANDS, h->operands[0].dl.byte_offset = 1) \
  X("batches of q_out at one place", STRIDE, NOTHING, h->q_out.strides[0] = 0) \
  X("rows of k_out overlap", STRIDE, NOTHING, h->k_out.strides[2] = h->kernel->head_dim - 1) \
  X("heads and tokens of k_out coincide", STRIDE, NOTHING, h->k_out.strides[1] = h->k_out.strides[2]) \
  X("stride of q_out overflows", STRIDE, NOTHING, h->q_out.strides[0] = INT64_MAX) \
  X("stride of q overflows", SIZE_OVERFLOW, NOTHING, h->q.strides[0] = INT64_MIN) \
  X("size of q overflows", SIZE_OVERFLOW, NOTHING, q_batch_huge(h)) \
  X("offset of q overflows", SIZE_OVERFLOW, NOTHING, h->q.dl.byte_offset = UINT64_MAX - 15) \
  X("q_out one row into q", OVERLAP, NOTHING, q_out_shifted(h)) \
  X("q_out is q transposed", OVERLAP, NOTHING, q_out_other_strides(h)) \
  X("q_out is k", OVERLAP, NOTHING, h->q_out.dl.data = h->k.dl.data) \
  X("k_out is q", OVERLAP, NOTHING, h->k_out.dl.data = h->q.dl.data) \
  X("q_out is k_out", OVERLAP, NOTHING, h->k_out.dl.data = h->q_out.dl.data) \
  X("q and k are one tensor, in place", OVERLAP, NOTHING, one_tensor_in_place(h)) \
  X("positions inside q_out", OVERLAP, NOTHING, h->positions.dl.data = h->q_out.dl.data) \
  X("positions inside k_out", OVERLAP, NOTHING, h->positions.dl.data = (char *)h->k_out.dl.data + 64) \
  X("k_positions inside q_out", OVERLAP, K_POSITIONS, k_positions_in_q_out(h)) \
  X("k_positions inside k_out", OVERLAP, K_POSITIONS, k_positions_in_k_out(h)) \
  X("positions of q inside k_out", OVERLAP, K_POSITIONS, positions_in_k_out_alone(h)) \
  X("operand inside k_out", OVERLAP, OPERANDS, h->operands[0].dl.data = h->k_out.dl.data) \
  X("operand inside q_out", OVERLAP, OPERANDS, h->operands[0].dl.data = (char *)h->q_out.dl.data + 64)

static const mistake mistakes[] = {
#define X(what, error, needs, ...) {what, PEGEN_ERROR_##error, NEEDS_##needs},
    MISTAKES(X)
#undef X
};

static void make_mistake(host *h, size_t row) {
  size_t i = 0;
#define X(what, error, needs, ...) \
  if (i++ == row) { \
    __VA_ARGS__; \
  }
  MISTAKES(X)
#undef X
}

static int applies(const mistake *m) {
  switch (m->needs) {
  case NEEDS_OPERANDS: return kernel->n_operands > 0 && kernel->operands[0].rank > 0;
  case NEEDS_HEADS: return kernel->heads > 1;
  case NEEDS_NO_GRID: return !kernel->grid;
  case NEEDS_GRID: return kernel->grid != NULL;
  default: return 1;
  }
}

TEST(each_mistake_has_its_error) {
  for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
    const mistake *m = &mistakes[i];
    host h;
    host_shape shape = host_usual(kernel);
    if (!applies(m)) continue;
    shape.k_positions = m->needs == NEEDS_K_POSITIONS;
    for (int part = 0; part < 2; part++) { /* every part of the work must refuse */
      host_begin(&h, kernel, &shape);
      make_mistake(&h, i);
      host_remember(&h);
      int error = kernel->encode(&h.args, part, 2);
      if (error != m->error)
        fail_msg("%s: expected %s, got %s", m->what, pegen_error_name(m->error), pegen_error_name(error));
      host_assert_untouched(&h);
      host_end(&h);
    }
  }
}

/* A call of nothing but an argument that the entry refuses, as the table says. */
TEST(arguments_of_other_entries) {
  static const struct {
    const char *name, *uses;
    int is_number, error;
    size_t offset;
  } rows[] = {
#define OFFSET_args(field) offsetof(pegen_args, field)
#define OFFSET_grad(field) 0
#define X(of, field, kind, shape, type, uses, wrong, refused) \
  {#field, uses, PEGEN_ARGUMENT_##kind == PEGEN_ARGUMENT_NUMBER, PEGEN_ERROR_##refused, OFFSET_##of(field)},
      PEGEN_ARGUMENTS(X)
#undef X
  };
  pegen_entry *const entries[] = {
      [PEGEN_USE_encode] = kernel->encode,
      [PEGEN_USE_attention] = kernel->attention,
      [PEGEN_USE_append] = kernel->append,
      [PEGEN_USE_prepare] = kernel->prepare,
      [PEGEN_USE_encode_backward] = kernel->encode_backward,
      [PEGEN_USE_attention_backward] = kernel->attention_backward,
      [PEGEN_USE_prepare_backward] = kernel->prepare_backward,
      [PEGEN_USE_attention_tangent] = kernel->attention_tangent,
  };
  static DLTensor tensor;
  const int64_t given[] = {(int64_t)(uintptr_t)&tensor, 1};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (size_t entry = 0; entry < sizeof entries / sizeof *entries && rows[i].error; entry++) {
      pegen_args args = {.struct_size = sizeof args};
      memcpy((char *)&args + rows[i].offset, &given[rows[i].is_number], sizeof *given);
      if (!entries[entry] || rows[i].uses[entry] != '.') continue;
      int error = entries[entry](&args, 0, 1);
      if (error != rows[i].error)
        fail_msg("%s, entry %zu: expected %s, got %s", rows[i].name, entry, pegen_error_name(rows[i].error),
                 pegen_error_name(error));
    }
}

TEST(args_and_parts) {
  static const int wrong[][2] = {{-1, 1}, {1, 1}, {0, 0}, {0, -1}, {-2, -1}, {3, 2}};
  host h;
  host_shape shape = host_usual(kernel);
  assert_int_equal(kernel->encode(NULL, 0, 1), PEGEN_ERROR_NULL_ARGS);
  host_begin(&h, kernel, &shape);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_int_equal(kernel->encode(&h.args, wrong[i][0], wrong[i][1]), PEGEN_ERROR_PART);
  host_assert_untouched(&h);
  host_end(&h);
}

/* Strides of dimensions of size 1 mean nothing, and are not looked at. */
TEST(strides_of_single_sizes) {
  host a, b;
  host_shape shape = host_usual(kernel);
  shape.batch = shape.tokens = shape.kv_tokens = 1;
  host_begin(&a, kernel, &shape);
  host_begin(&b, kernel, &shape);
  b.q.strides[0] = INT64_MIN;
  b.q_out.strides[0] = 0;
  b.k.strides[2] = -17;
  b.k_out.strides[2] = INT64_MAX;
  b.positions.strides[0] = INT64_MAX;
  host_encode(&a, 1);
  assert_int_equal(kernel->encode(&b.args, 0, 1), 0);
  for (int i = 0; i < 3; i++) {
    b.q_out.strides[i] = a.q_out.strides[i];
    b.k_out.strides[i] = a.k_out.strides[i];
  }
  host_assert_same_outputs(&a, &b);
  host_end(&a);
  host_end(&b);
}

TEST(strides_may_be_missing) {
  host a, b;
  host_shape shape = host_usual(kernel);
  host_begin(&a, kernel, &shape);
  host_begin(&b, kernel, &shape);
  b.q.dl.strides = b.k.dl.strides = b.q_out.dl.strides = b.k_out.dl.strides = b.positions.dl.strides = NULL;
  for (int i = 0; i < kernel->n_operands; i++) b.operands[i].dl.strides = NULL;
  b.q.dl.device.device_type = kDLCUDAHost; /* pinned memory is host memory */
  host_encode(&a, 1);
  host_encode(&b, 1);
  host_assert_same_outputs(&a, &b);
  host_end(&a);
  host_end(&b);
}

int walk_refusals(const pegen_kernel *tested) {
  kernel = tested;
  printf("refusals of %s\n", kernel->name);
  return run_listed();
}
