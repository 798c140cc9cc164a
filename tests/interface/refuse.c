/* refuse.c: every way to call a kernel wrongly has its own error, and no byte is
 * written. Each row of the table spoils one thing of a call that would succeed.
 */
#include "host.h"

#include "kernel/arguments.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const pegen_kernel *kernel;

typedef struct mistake {
  const char *what;
  int error;
  void (*make)(host *h);
  int needs; /* of the kernel; else the row is skipped */
} mistake;

enum { NEEDS_NOTHING, NEEDS_OPERANDS, NEEDS_HEADS, NEEDS_NO_GRID, NEEDS_GRID };

/* ---- 1, 2: what is given ---- */
static void size_too_small(host *h) { h->args.struct_size = PEGEN_ARGS_FIRST_SIZE - 8; }
static void size_too_large(host *h) { h->args.struct_size = PEGEN_ARGS_MOST_SIZE + 8; }
static void size_between_fields(host *h) { h->args.struct_size = PEGEN_ARGS_FIRST_SIZE + 4; }
static void size_zero(host *h) { h->args.struct_size = 0; }
static void unknown_field(host *h) {
  h->args.struct_size += 16;
  h->later[1] = 1;
}
static void last_unknown_field(host *h) {
  h->args.struct_size = PEGEN_ARGS_MOST_SIZE;
  h->later[(PEGEN_ARGS_MOST_SIZE - sizeof h->args) / 8 - 1] = (uint64_t)1 << 63;
}
static void no_q(host *h) { h->args.q = NULL; }
static void no_q_out(host *h) { h->args.q_out = NULL; }
static void no_k(host *h) { h->args.k = NULL; }
static void no_k_out(host *h) { h->args.k_out = NULL; }
static void nothing(host *h) {
  h->args.q = h->args.k = NULL;
  h->args.q_out = h->args.k_out = NULL;
}
static void no_positions(host *h) { h->args.positions = NULL; }
static void no_operands(host *h) { h->args.operands = NULL; }
static void few_operands(host *h) { h->args.n_operands--; }
static void null_operand(host *h) { h->operand_pointers[h->kernel->n_operands - 1] = NULL; }

/* ---- 3: shapes of rows ---- */
static void q_rank(host *h) { h->q.dl.ndim = 3; }
static void q_rank_negative(host *h) { h->q.dl.ndim = -1; }
static void k_out_rank(host *h) { h->k_out.dl.ndim = 5; }
static void q_shape_null(host *h) { h->q.dl.shape = NULL; }
static void k_out_shape_null(host *h) { h->k_out.dl.shape = NULL; }
static void q_size_negative(host *h) { h->q.shape[2] = -1; }
static void k_out_size_negative(host *h) { h->k_out.shape[0] = -2; }
static void q_head_dim(host *h) { h->q.shape[3]--; }
static void q_out_head_dim(host *h) { h->q_out.shape[3]++; }
static void k_head_dim(host *h) { h->k.shape[3] = 0; }
static void q_out_tokens(host *h) { h->q_out.shape[2]--; }
static void q_out_heads(host *h) { h->q_out.shape[1]--; }
static void k_out_batch(host *h) { h->k_out.shape[0]--; }
static void k_batch(host *h) { h->k.shape[0] = h->k_out.shape[0] = 1; }
static void q_heads(host *h) { h->q.shape[1] = h->q_out.shape[1] = kernel->heads - 1; }
static void k_heads(host *h) { h->k.shape[1] = h->k_out.shape[1] = kernel->heads - 1; }

/* ---- 4: positions, grid, operands ---- */
static void positions_rank_one(host *h) { h->positions.dl.ndim = h->kernel->n_axes > 1; } /* [N] is of one axis */
static void positions_rank_four(host *h) { h->positions.dl.ndim = 4; }
static void positions_shape_null(host *h) { h->positions.dl.shape = NULL; }
static void positions_axes(host *h) { h->positions.shape[1]++; }
static void positions_tokens(host *h) { h->positions.shape[0]--; }
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
static void operand_rank(host *h) { h->operands[0].dl.ndim--; }
static void operand_shape_null(host *h) { h->operands[0].dl.shape = NULL; }
static void operand_shape(host *h) { h->operands[0].shape[0]++; }
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
static void q_lanes(host *h) { h->q.dl.dtype.lanes = 4; }
static void k_type(host *h) { h->k.dl.dtype.code = kDLInt; }
static void q_out_type(host *h) { h->q_out.dl.dtype.bits = 64; }
static void k_out_lanes(host *h) { h->k_out.dl.dtype.lanes = 2; }
static void positions_type(host *h) { h->positions.dl.dtype.bits = 16; }
static void positions_unsigned(host *h) { h->positions.dl.dtype.code = kDLUInt; }
static void operand_type(host *h) { h->operands[0].dl.dtype.code = kDLInt; }

/* ---- 6: memory ---- */
static void q_device(host *h) { h->q.dl.device.device_type = kDLCUDA; }
static void k_out_device(host *h) { h->k_out.dl.device.device_type = kDLROCM; }
static void positions_device(host *h) { h->positions.dl.device.device_type = kDLCUDA; }
static void operand_device(host *h) { h->operands[0].dl.device.device_type = kDLCUDA; }
static void q_null(host *h) { h->q.dl.data = NULL; }
static void k_out_null(host *h) { h->k_out.dl.data = NULL; }
static void positions_null(host *h) { h->positions.dl.data = NULL; }
static void operand_null(host *h) { h->operands[0].dl.data = NULL; }
static void q_channel_stride(host *h) { h->q.strides[3] = 2; }
static void k_out_channel_stride(host *h) { h->k_out.strides[3] = -1; }
static void q_misaligned(host *h) { h->q.dl.byte_offset = 1; }
static void k_out_misaligned(host *h) { h->k_out.dl.byte_offset = 1; }
static void positions_misaligned(host *h) { h->positions.dl.byte_offset = 2; }
static void operand_misaligned(host *h) { h->operands[0].dl.byte_offset = 1; }
static void q_out_stride_zero(host *h) { h->q_out.strides[0] = 0; }
static void k_out_stride_short(host *h) { h->k_out.strides[2] = h->kernel->head_dim - 1; }
static void k_out_strides_equal(host *h) { h->k_out.strides[1] = h->k_out.strides[2]; }
static void q_out_stride_huge(host *h) { h->q_out.strides[0] = INT64_MAX; }
static void q_stride_huge(host *h) { h->q.strides[0] = INT64_MIN; }
static void q_batch_huge(host *h) {
  h->args.k = NULL;
  h->args.k_out = NULL;
  h->q.shape[0] = h->q_out.shape[0] = INT64_MAX / 2;
  h->q.dl.strides = h->q_out.dl.strides = NULL;
}
static void q_offset_huge(host *h) { h->q.dl.byte_offset = UINT64_MAX - 15; }

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
static void q_out_is_k(host *h) { h->q_out.dl.data = h->k.dl.data; }
static void k_out_is_q(host *h) { h->k_out.dl.data = h->q.dl.data; }
static void outputs_are_one(host *h) { h->k_out.dl.data = h->q_out.dl.data; }
static void one_tensor_in_place(host *h) { h->q_out.dl.data = h->k_out.dl.data = h->k.dl.data = h->q.dl.data; }
static void positions_in_output(host *h) { h->positions.dl.data = h->q_out.dl.data; }
static void positions_in_k_out(host *h) { h->positions.dl.data = (char *)h->k_out.dl.data + 64; }
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
static void operand_in_q_out(host *h) { h->operands[0].dl.data = (char *)h->q_out.dl.data + 64; }
static void operand_in_output(host *h) { h->operands[0].dl.data = h->k_out.dl.data; }

static const mistake mistakes[] = {
    {"struct_size too small", PEGEN_ERROR_STRUCT_SIZE, size_too_small, 0},
    {"struct_size too large", PEGEN_ERROR_STRUCT_SIZE, size_too_large, 0},
    {"struct_size between fields", PEGEN_ERROR_STRUCT_SIZE, size_between_fields, 0},
    {"struct_size zero", PEGEN_ERROR_STRUCT_SIZE, size_zero, 0},
    {"a field of a later version", PEGEN_ERROR_UNKNOWN_FIELD, unknown_field, 0},
    {"the last field of a later version", PEGEN_ERROR_UNKNOWN_FIELD, last_unknown_field, 0},
    {"q_out without q", PEGEN_ERROR_MISSING_OUTPUT, no_q, 0},
    {"q without q_out", PEGEN_ERROR_MISSING_OUTPUT, no_q_out, 0},
    {"k_out without k", PEGEN_ERROR_MISSING_OUTPUT, no_k, 0},
    {"k without k_out", PEGEN_ERROR_MISSING_OUTPUT, no_k_out, 0},
    {"neither q nor k", PEGEN_ERROR_NOTHING_TO_DO, nothing, 0},
    {"no positions", PEGEN_ERROR_MISSING_POSITIONS, no_positions, NEEDS_NO_GRID},
    {"operands NULL", PEGEN_ERROR_MISSING_OPERAND, no_operands, NEEDS_OPERANDS},
    {"an operand too few", PEGEN_ERROR_MISSING_OPERAND, few_operands, NEEDS_OPERANDS},
    {"an operand NULL", PEGEN_ERROR_MISSING_OPERAND, null_operand, NEEDS_OPERANDS},
    {"rank of q", PEGEN_ERROR_RANK, q_rank, 0},
    {"negative rank of q", PEGEN_ERROR_RANK, q_rank_negative, 0},
    {"rank of k_out", PEGEN_ERROR_RANK, k_out_rank, 0},
    {"q without shape", PEGEN_ERROR_NULL_SHAPE, q_shape_null, 0},
    {"k_out without shape", PEGEN_ERROR_NULL_SHAPE, k_out_shape_null, 0},
    {"negative tokens of q", PEGEN_ERROR_NEGATIVE_SIZE, q_size_negative, 0},
    {"negative batch of k_out", PEGEN_ERROR_NEGATIVE_SIZE, k_out_size_negative, 0},
    {"channels of q", PEGEN_ERROR_HEAD_DIM, q_head_dim, 0},
    {"channels of q_out", PEGEN_ERROR_HEAD_DIM, q_out_head_dim, 0},
    {"channels of k", PEGEN_ERROR_HEAD_DIM, k_head_dim, 0},
    {"tokens of q_out", PEGEN_ERROR_SHAPE_MISMATCH, q_out_tokens, 0},
    {"heads of q_out", PEGEN_ERROR_SHAPE_MISMATCH, q_out_heads, 0},
    {"batch of k_out", PEGEN_ERROR_SHAPE_MISMATCH, k_out_batch, 0},
    {"batch of k against q", PEGEN_ERROR_SHAPE_MISMATCH, k_batch, 0},
    {"heads of q", PEGEN_ERROR_HEADS, q_heads, NEEDS_HEADS},
    {"heads of k", PEGEN_ERROR_HEADS, k_heads, NEEDS_HEADS},
    {"positions of rank 1", PEGEN_ERROR_POSITIONS_SHAPE, positions_rank_one, 0},
    {"positions of rank 4", PEGEN_ERROR_POSITIONS_SHAPE, positions_rank_four, 0},
    {"positions without shape", PEGEN_ERROR_NULL_SHAPE, positions_shape_null, 0},
    {"axes of positions", PEGEN_ERROR_POSITIONS_SHAPE, positions_axes, 0},
    {"tokens of positions", PEGEN_ERROR_POSITIONS_SHAPE, positions_tokens, 0},
    {"batch of positions", PEGEN_ERROR_POSITIONS_SHAPE, positions_batch, 0},
    {"tokens of k without k_positions", PEGEN_ERROR_POSITIONS_SHAPE, k_tokens, 0},
    {"tokens of k_positions", PEGEN_ERROR_POSITIONS_SHAPE, k_positions_tokens, 0},
    {"tokens of the grid", PEGEN_ERROR_GRID_SIZE, grid_tokens, NEEDS_GRID},
    {"more tokens than the grid has", PEGEN_ERROR_GRID_SIZE, grid_tokens_more, NEEDS_GRID},
    {"tokens of the grid, k", PEGEN_ERROR_GRID_SIZE, grid_k_tokens, NEEDS_GRID},
    {"rank of an operand", PEGEN_ERROR_OPERAND_SHAPE, operand_rank, NEEDS_OPERANDS},
    {"operand without shape", PEGEN_ERROR_NULL_SHAPE, operand_shape_null, NEEDS_OPERANDS},
    {"shape of an operand", PEGEN_ERROR_OPERAND_SHAPE, operand_shape, NEEDS_OPERANDS},
    {"strides of an operand", PEGEN_ERROR_OPERAND_SHAPE, operand_strides, NEEDS_OPERANDS},
    {"float64 rows", PEGEN_ERROR_DTYPE, all_float64, 0},
    {"integer rows", PEGEN_ERROR_DTYPE, all_integers, 0},
    {"vector elements", PEGEN_ERROR_DTYPE, q_lanes, 0},
    {"type of k", PEGEN_ERROR_DTYPE_MISMATCH, k_type, 0},
    {"type of q_out", PEGEN_ERROR_DTYPE_MISMATCH, q_out_type, 0},
    {"lanes of k_out", PEGEN_ERROR_DTYPE_MISMATCH, k_out_lanes, 0},
    {"16-bit positions", PEGEN_ERROR_POSITIONS_DTYPE, positions_type, 0},
    {"unsigned positions", PEGEN_ERROR_POSITIONS_DTYPE, positions_unsigned, 0},
    {"integer operand", PEGEN_ERROR_OPERAND_DTYPE, operand_type, NEEDS_OPERANDS},
    {"q on a GPU", PEGEN_ERROR_DEVICE, q_device, 0},
    {"k_out on a GPU", PEGEN_ERROR_DEVICE, k_out_device, 0},
    {"positions on a GPU", PEGEN_ERROR_DEVICE, positions_device, 0},
    {"operand on a GPU", PEGEN_ERROR_DEVICE, operand_device, NEEDS_OPERANDS},
    {"q without data", PEGEN_ERROR_NULL_DATA, q_null, 0},
    {"k_out without data", PEGEN_ERROR_NULL_DATA, k_out_null, 0},
    {"positions without data", PEGEN_ERROR_NULL_DATA, positions_null, 0},
    {"operand without data", PEGEN_ERROR_NULL_DATA, operand_null, NEEDS_OPERANDS},
    {"channel stride of q", PEGEN_ERROR_CHANNEL_STRIDE, q_channel_stride, 0},
    {"channel stride of k_out", PEGEN_ERROR_CHANNEL_STRIDE, k_out_channel_stride, 0},
    {"q misaligned", PEGEN_ERROR_ALIGNMENT, q_misaligned, 0},
    {"k_out misaligned", PEGEN_ERROR_ALIGNMENT, k_out_misaligned, 0},
    {"positions misaligned", PEGEN_ERROR_ALIGNMENT, positions_misaligned, 0},
    {"operand misaligned", PEGEN_ERROR_ALIGNMENT, operand_misaligned, NEEDS_OPERANDS},
    {"batches of q_out at one place", PEGEN_ERROR_STRIDE, q_out_stride_zero, 0},
    {"rows of k_out overlap", PEGEN_ERROR_STRIDE, k_out_stride_short, 0},
    {"heads and tokens of k_out coincide", PEGEN_ERROR_STRIDE, k_out_strides_equal, 0},
    {"stride of q_out overflows", PEGEN_ERROR_STRIDE, q_out_stride_huge, 0},
    {"stride of q overflows", PEGEN_ERROR_SIZE_OVERFLOW, q_stride_huge, 0},
    {"size of q overflows", PEGEN_ERROR_SIZE_OVERFLOW, q_batch_huge, 0},
    {"offset of q overflows", PEGEN_ERROR_SIZE_OVERFLOW, q_offset_huge, 0},
    {"q_out one row into q", PEGEN_ERROR_OVERLAP, q_out_shifted, 0},
    {"q_out is q transposed", PEGEN_ERROR_OVERLAP, q_out_other_strides, 0},
    {"q_out is k", PEGEN_ERROR_OVERLAP, q_out_is_k, 0},
    {"k_out is q", PEGEN_ERROR_OVERLAP, k_out_is_q, 0},
    {"q_out is k_out", PEGEN_ERROR_OVERLAP, outputs_are_one, 0},
    {"q and k are one tensor, in place", PEGEN_ERROR_OVERLAP, one_tensor_in_place, 0},
    {"positions inside q_out", PEGEN_ERROR_OVERLAP, positions_in_output, 0},
    {"positions inside k_out", PEGEN_ERROR_OVERLAP, positions_in_k_out, 0},
    {"k_positions inside q_out", PEGEN_ERROR_OVERLAP, k_positions_in_q_out, 0},
    {"k_positions inside k_out", PEGEN_ERROR_OVERLAP, k_positions_in_k_out, 0},
    {"positions of q inside k_out", PEGEN_ERROR_OVERLAP, positions_in_k_out_alone, 0},
    {"operand inside k_out", PEGEN_ERROR_OVERLAP, operand_in_output, NEEDS_OPERANDS},
    {"operand inside q_out", PEGEN_ERROR_OVERLAP, operand_in_q_out, NEEDS_OPERANDS},
};

static int applies(const mistake *m) {
  switch (m->needs) {
  case NEEDS_OPERANDS: return kernel->n_operands > 0 && kernel->operands[0].rank > 0;
  case NEEDS_HEADS: return kernel->heads > 1;
  case NEEDS_NO_GRID: return !kernel->grid;
  case NEEDS_GRID: return kernel->grid != NULL;
  default: return 1;
  }
}

static void each_mistake_has_its_error(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
    const mistake *m = &mistakes[i];
    host h;
    host_shape shape = host_usual(kernel);
    if (!applies(m)) continue;
    shape.k_positions = m->make == k_positions_tokens || m->make == k_positions_in_q_out ||
                        m->make == k_positions_in_k_out || m->make == positions_in_k_out_alone;
    for (int part = 0; part < 2; part++) { /* every part of the work must refuse */
      host_begin(&h, kernel, &shape);
      m->make(&h);
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
static void arguments_of_other_entries(void **state) {
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
  };
  static DLTensor tensor;
  const int64_t given[] = {(int64_t)(uintptr_t)&tensor, 1};
  (void)state;
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

static void args_and_parts(void **state) {
  static const int wrong[][2] = {{-1, 1}, {1, 1}, {0, 0}, {0, -1}, {-2, -1}, {3, 2}};
  host h;
  host_shape shape = host_usual(kernel);
  (void)state;
  assert_int_equal(kernel->encode(NULL, 0, 1), PEGEN_ERROR_NULL_ARGS);
  host_begin(&h, kernel, &shape);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_int_equal(kernel->encode(&h.args, wrong[i][0], wrong[i][1]), PEGEN_ERROR_PART);
  host_assert_untouched(&h);
  host_end(&h);
}

/* Strides of dimensions of size 1 mean nothing, and are not looked at. */
static void strides_of_single_sizes(void **state) {
  host a, b;
  host_shape shape = host_usual(kernel);
  (void)state;
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

static void strides_may_be_missing(void **state) {
  host a, b;
  host_shape shape = host_usual(kernel);
  (void)state;
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
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_mistake_has_its_error),
      cmocka_unit_test(arguments_of_other_entries),
      cmocka_unit_test(args_and_parts),
      cmocka_unit_test(strides_of_single_sizes),
      cmocka_unit_test(strides_may_be_missing),
  };
  kernel = tested;
  printf("refusals of %s\n", kernel->name);
  return cmocka_run_group_tests_name(kernel->name, tests, NULL, NULL);
}
