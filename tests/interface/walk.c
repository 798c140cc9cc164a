/* walk.c: everything that the interface promises, asked of one kernel as a host would.
 * Nothing is known of its mathematics: results are compared with each other.
 */
#include "host.h"
#include "test.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const pegen_kernel *kernel;

TEST(describes_itself) {
  assert_true(pegen_kernel_supported(kernel));
  assert_non_null(kernel->name);
  assert_non_null(kernel->encode);
  assert_true(kernel->head_dim > 0 && kernel->out_dim > 0 && kernel->dtypes != 0);
  for (int a = 0; a < kernel->n_axes; a++) assert_non_null(kernel->axes[a]);
  for (int i = 0; i < kernel->n_operands; i++) {
    assert_int_equal(pegen_find_operand(kernel, kernel->operands[i].name), i);
    assert_true(pegen_operand_size(kernel, i) > 0);
  }
  assert_int_equal(pegen_find_operand(kernel, "no such operand"), -1);
  assert_int_equal(pegen_operand_size(kernel, kernel->n_operands), 0);
  assert_int_equal(pegen_operand_size(kernel, -1), 0);
  assert_int_equal(kernel->workspace(NULL), 0);
}

/* Results of `other` must be those of the usual shape with the same sizes. */
static void assert_same_results(const host_shape *usual, const host_shape *other, int parts) {
  host a, b;
  host_begin(&a, kernel, usual);
  host_begin(&b, kernel, other);
  host_encode(&a, 1);
  host_encode(&b, parts);
  host_assert_same_outputs(&a, &b);
  host_end(&a);
  host_end(&b);
}

TEST(parts_agree) {
  static const int parts[] = {2, 3, 5, 7, 14, 31};
  for (int per_batch = 0; per_batch < 2; per_batch++) {
    host_shape usual = host_usual(kernel);
    usual.per_batch = per_batch;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) assert_same_results(&usual, &usual, parts[i]);
    usual.layout = HOST_BNHD;
    usual.in_place = kernel->head_dim == kernel->out_dim;
    assert_same_results(&usual, &usual, 4);
  }
}

TEST(layouts_agree) {
  static const host_number types[] = {HOST_F32, HOST_BF16, HOST_F16};
  for (int t = 0; t < 3; t++) {
    host_shape usual = host_usual(kernel), other;
    if (!host_supports(kernel, types[t])) continue;
    usual.dtype = types[t];
    for (int layout = HOST_BHND; layout <= HOST_FUSED; layout++)
      for (int in_place = 0; in_place <= (kernel->head_dim == kernel->out_dim); in_place++) {
        other = usual;
        other.layout = (host_layout)layout;
        other.in_place = in_place;
        assert_same_results(&usual, &other, 1);
        assert_same_results(&usual, &other, 3);
      }
  }
}

TEST(position_types_agree) {
  static const host_number types[] = {HOST_F32, HOST_F64, HOST_I32, HOST_I64};
  for (int t = 0; t < 4; t++)
    for (int per_batch = 0; per_batch < 2; per_batch++) {
      host_shape usual = host_usual(kernel), other = usual;
      other.positions = types[t];
      other.per_batch = per_batch;
      assert_same_results(&usual, &other, 2);
      other.k_positions = usual.k_positions = 1;
      assert_same_results(&usual, &other, 2);
    }
}

/* [P,N] memory, every second token, from the last to the first; repeated batches. */
TEST(positions_have_strides) {
  host a, b;
  host_shape usual = host_usual(kernel);
  float turned[8 * 2 * 7];
  int64_t axes = kernel->n_axes, tokens = usual.tokens;
  host_begin(&a, kernel, &usual);
  host_begin(&b, kernel, &usual);
  for (int64_t n = 0; n < tokens; n++)
    for (int64_t p = 0; p < axes; p++)
      turned[p * 2 * tokens + 2 * (tokens - 1 - n)] = ((const float *)a.positions.dl.data)[n * axes + p];
  int64_t shape[3] = {usual.batch, tokens, axes}, strides[3] = {0, -2, 2 * tokens};
  b.positions.dl.data = turned;
  b.positions.dl.byte_offset = sizeof(float) * (uint64_t)(2 * (tokens - 1));
  b.positions.dl.ndim = 3;
  b.positions.dl.shape = shape;
  b.positions.dl.strides = strides;
  host_encode(&a, 1);
  host_encode(&b, 2);
  host_assert_same_outputs(&a, &b);
  host_end(&a);
  host_end(&b);
}

TEST(streams_are_independent) {
  for (int mode = 0; mode < 2; mode++) {
    host both, alone;
    host_shape usual = host_usual(kernel);
    if (mode == 1) { /* other sizes and positions of k */
      usual.k_positions = 1;
      usual.kv_tokens = 4;
      usual.per_batch = 1;
      if (kernel->heads == 0) usual.kv_heads = 1;
    }
    host_begin(&both, kernel, &usual);
    host_encode(&both, 3);
    host_begin(&alone, kernel, &usual);
    alone.args.k = NULL;
    alone.args.k_out = NULL;
    host_encode(&alone, 2);
    host_assert_same(&both.q_out, &alone.q_out);
    host_end(&alone);
    host_begin(&alone, kernel, &usual);
    alone.args.q = NULL;
    alone.args.q_out = NULL;
    if (mode == 1) alone.args.positions = NULL; /* nobody reads it */
    host_encode(&alone, 2);
    host_assert_same(&both.k_out, &alone.k_out);
    host_end(&alone);
    host_end(&both);
  }
}

TEST(grouped_heads) {
  host many, few;
  host_shape usual = host_usual(kernel), grouped = usual;
  if (kernel->heads > 0) skip();
  grouped.kv_heads = 1;
  host_begin(&many, kernel, &usual);
  host_begin(&few, kernel, &grouped);
  host_encode(&many, 1);
  host_encode(&few, 3);
  host_assert_same(&many.q_out, &few.q_out);
  many.k_out.shape[1] = 1; /* head 0 is what both have */
  host_assert_same(&many.k_out, &few.k_out);
  host_end(&many);
  host_end(&few);
}

TEST(operand_types_agree) {
  static const host_number types[] = {HOST_F64, HOST_F16, HOST_BF16};
  if (kernel->n_operands == 0) skip();
  for (int t = 0; t < 3; t++) {
    host_shape usual = host_usual(kernel), other = usual;
    other.operands = types[t];
    assert_same_results(&usual, &other, 2);
  }
}

TEST(nothing_to_encode) {
  for (int what = 0; what < 3; what++) {
    host h;
    host_shape shape = host_usual(kernel);
    if (what == 0) shape.tokens = shape.kv_tokens = 0;
    else if (what == 1) shape.batch = 0;
    else if (kernel->heads == 0) shape.heads = 0; /* k is still encoded */
    host_begin(&h, kernel, &shape);
    if (what < 2) h.q.dl.data = h.q_out.dl.data = h.k.dl.data = h.k_out.dl.data = NULL;
    for (int d = 0; d < 4; d++) /* NumPy's strides of an array without elements */
      h.q.strides[d] = h.q_out.strides[d] = what < 2 || kernel->heads == 0 ? 0 : h.q.strides[d];
    host_encode(&h, 1);
    host_encode(&h, 2);
    host_end(&h);
  }
}

TEST(front_tokens_pass) {
  host h;
  host_shape usual = host_usual(kernel);
  if (kernel->skip_tokens == 0) skip();
  usual.tokens = usual.kv_tokens = kernel->skip_tokens + 3;
  usual.layout = HOST_PADDED;
  host_begin(&h, kernel, &usual);
  host_encode(&h, 3);
  h.q.shape[2] = h.q_out.shape[2] = h.k.shape[2] = h.k_out.shape[2] = kernel->skip_tokens;
  host_assert_same(&h.q, &h.q_out);
  host_assert_same(&h.k, &h.k_out);
  host_end(&h);
  usual.tokens = usual.kv_tokens = 1; /* fewer than there are to skip, or just as many */
  host_begin(&h, kernel, &usual);
  host_encode(&h, 2);
  host_assert_same(&h.q, &h.q_out);
  host_end(&h);
}

TEST(grid_is_built_in) {
  host listed, built_in;
  host_shape usual = host_usual(kernel);
  int64_t points = 1;
  if (!kernel->grid) skip();
  for (int a = 0; a < kernel->n_axes; a++) points *= kernel->grid[a];
  usual.tokens = usual.kv_tokens = kernel->skip_tokens + points;
  host_begin(&listed, kernel, &usual);
  host_begin(&built_in, kernel, &usual);
  float *at = listed.positions.dl.data;
  for (int64_t n = 0; n < points; n++)
    for (int64_t a = kernel->n_axes - 1, rest = n; a >= 0; rest /= kernel->grid[a], a--)
      at[(kernel->skip_tokens + n) * kernel->n_axes + a] = (float)(rest % kernel->grid[a]);
  host_remember(&listed);
  built_in.args.positions = NULL;
  host_encode(&listed, 1);
  host_encode(&built_in, 3);
  host_assert_same_outputs(&listed, &built_in);
  if (kernel->prepare) { /* a table knows the grid, too */
    built_in.args.table_bytes = kernel->table_bytes(&built_in.args);
    void *table = built_in.args.table = aligned_alloc(64, (built_in.args.table_bytes + 63) / 64 * 64);
    assert_int_equal(kernel->prepare(&built_in.args, 1, 2) | kernel->prepare(&built_in.args, 0, 2), 0);
    host_encode(&built_in, 2);
    host_assert_same_outputs(&listed, &built_in);
    free(table);
  }
  host_end(&listed);
  host_end(&built_in);
}

/* Batches from the last to the first; one head repeated for all. */
TEST(inputs_may_run_backwards) {
  host a, b;
  host_shape usual = host_usual(kernel);
  host_begin(&a, kernel, &usual);
  host_begin(&b, kernel, &usual);
  b.q.dl.byte_offset = (uint64_t)(host_at(&b.q, usual.batch - 1, 0, 0, 0) - (unsigned char *)b.q.dl.data);
  b.q.strides[0] = -b.q.strides[0];
  b.k.strides[1] = 0;
  for (int64_t batch = 0; batch < usual.batch; batch++)
    for (int64_t head = 0; head < usual.heads; head++)
      for (int64_t n = 0; n < usual.tokens; n++) {
        size_t row = (size_t)kernel->head_dim * (a.q.dl.dtype.bits / 8);
        memcpy(host_at(&a.q, batch, head, n, 0), host_at(&b.q, batch, head, n, 0), row);
        memcpy(host_at(&a.k, batch, head, n, 0), host_at(&b.k, batch, 0, n, 0), row);
      }
  host_remember(&a);
  host_encode(&a, 1);
  host_encode(&b, 2);
  host_assert_same_outputs(&a, &b);
  host_end(&a);
  host_end(&b);
}

/* Big enough that the driver prefetches and, out of place, streams past the caches (of up to 72 MiB). */
TEST(large_calls_agree) {
  host_shape usual = host_usual(kernel), other;
  usual.tokens = usual.kv_tokens = 1 + (36 << 20) / (4 * usual.batch * usual.heads * kernel->head_dim * 4);
  for (int layout = HOST_BHND; layout <= HOST_PADDED; layout++) {
    other = usual;
    other.layout = (host_layout)layout;
    other.in_place = layout != HOST_BHND && kernel->head_dim == kernel->out_dim;
    assert_same_results(&usual, &other, 2);
  }
}

TEST(threads_agree) {
  for (int threads = 0; threads < 6; threads++) {
    host a, b;
    host_shape usual = host_usual(kernel);
    host_begin(&a, kernel, &usual);
    host_begin(&b, kernel, &usual);
    host_encode(&a, 1);
    assert_int_equal(pegen_parallel(kernel->encode, &b.args, threads), 0);
    host_assert_only_outputs(&b);
    host_assert_same_outputs(&a, &b);
    b.args.q_out = NULL;
    host_remember(&b);
    assert_int_equal(pegen_parallel(kernel->encode, &b.args, threads), PEGEN_ERROR_MISSING_OUTPUT);
    host_assert_untouched(&b);
    host_end(&a);
    host_end(&b);
  }
}

/* Callers whose struct ends earlier or later than the kernel's: what both know is all there is. */
TEST(callers_of_other_versions) {
  host_shape usual = host_usual(kernel);
  host a;
  host_begin(&a, kernel, &usual);
  host_encode(&a, 1);
  for (uint32_t size = PEGEN_ARGS_FIRST_SIZE; size <= PEGEN_ARGS_MOST_SIZE; size += 8) {
    bool ends = kernel->n_inputs > 0 && size < offsetof(pegen_args, n_inputs) + sizeof a.args.n_inputs;
    if (ends || (size > sizeof a.args + 16 && size < PEGEN_ARGS_MOST_SIZE)) continue;
    host b;
    host_begin(&b, kernel, &usual);
    b.args.struct_size = size;
    if (size < sizeof b.args) memset((char *)&b.args + size, 0x5a, sizeof b.args - size); /* not the struct's */
    host_remember(&b);
    host_encode(&b, 1);
    host_assert_same_outputs(&a, &b);
    host_end(&b);
  }
  host_end(&a);
}

TEST(gradients_by_table) { host_gradients_by_table(kernel); }

int walk_interface(const pegen_kernel *tested) {
  kernel = tested;
  printf("interface of %s\n", kernel->name);
  return run_listed();
}
