/* host.c: see host.h. */
#include "host.h"
#include "test.h"

#include <string.h>

/* ---- numbers ---- */

static const struct {
  uint8_t code, bits;
  uint32_t kernel_bit;
} numbers[] = {[HOST_F32] = {kDLFloat, 32, PEGEN_DTYPE_F32},
               [HOST_F64] = {kDLFloat, 64, 0},
               [HOST_F16] = {kDLFloat, 16, PEGEN_DTYPE_F16},
               [HOST_BF16] = {kDLBfloat, 16, PEGEN_DTYPE_BF16},
               [HOST_I32] = {kDLInt, 32, 0},
               [HOST_I64] = {kDLInt, 64, 0}};

int host_supports(const pegen_kernel *kernel, host_number dtype) {
  return (kernel->dtypes & numbers[dtype].kernel_bit) != 0;
}

static host_number number_of(const DLTensor *t) {
  for (int i = 0; i <= HOST_I64; i++)
    if (numbers[i].code == t->dtype.code && numbers[i].bits == t->dtype.bits) return (host_number)i;
  fail_msg("no such number type");
  return HOST_F32;
}

/* Values that tests store are small multiples of 1/8: exact in every type. */
static void put(host_number type, unsigned char *at, double value) {
  float single = (float)value;
  uint32_t bits;
  uint16_t half;
  int32_t word = (int32_t)value;
  int64_t quad = (int64_t)value;
  memcpy(&bits, &single, 4);
  switch (type) {
  case HOST_F32: memcpy(at, &single, 4); break;
  case HOST_F64: memcpy(at, &value, 8); break;
  case HOST_I32: memcpy(at, &word, 4); break;
  case HOST_I64: memcpy(at, &quad, 8); break;
  case HOST_BF16:
    half = (uint16_t)(bits >> 16);
    memcpy(at, &half, 2);
    break;
  case HOST_F16:
    half = (uint16_t)(bits >> 16 & 0x8000);
    if (single != 0) half |= (uint16_t)(((bits >> 23 & 255) - 127 + 15) << 10 | (bits >> 13 & 1023));
    memcpy(at, &half, 2);
    break;
  }
}

static double get(host_number type, const unsigned char *at) {
  float single;
  double value;
  uint16_t half;
  uint32_t bits;
  switch (type) {
  case HOST_F32: memcpy(&single, at, 4); return single;
  case HOST_F64: memcpy(&value, at, 8); return value;
  case HOST_BF16:
    memcpy(&half, at, 2);
    bits = (uint32_t)half << 16;
    memcpy(&single, &bits, 4);
    return single;
  default: fail_msg("not needed"); return 0;
  }
}

/* A multiple of 1/8 in [-4, 4], from what it belongs to: fits a bfloat16. */
static double content(uint64_t seed, uint64_t index) {
  uint64_t x = (seed * 0x9e3779b97f4a7c15u + index + 1) * 0xbf58476d1ce4e5b9u;
  x ^= x >> 29;
  x *= 0x94d049bb133111ebu;
  return (double)((int64_t)(x >> 40) % 33) / 8 * (x & 1 ? 1 : -1);
}

/* ---- memory ---- */

static unsigned char *slab(host *h, int64_t size) {
  host_slab *s = &h->slabs[h->n_slabs++];
  assert_true(h->n_slabs <= HOST_SLABS);
  s->size = (size_t)size + 2 * HOST_GUARD;
  s->bytes = aligned_alloc(64, (s->size + 63) / 64 * 64);
  s->before = malloc(s->size);
  assert_non_null(s->bytes);
  assert_non_null(s->before);
  memset(s->bytes, 0xa5, s->size);
  return s->bytes + HOST_GUARD;
}

void host_remember(host *h) {
  for (int i = 0; i < h->n_slabs; i++) memcpy(h->slabs[i].before, h->slabs[i].bytes, h->slabs[i].size);
}

void host_assert_untouched(const host *h) {
  for (int i = 0; i < h->n_slabs; i++) assert_memory_equal(h->slabs[i].bytes, h->slabs[i].before, h->slabs[i].size);
}

unsigned char *host_at(const host_tensor *t, int64_t b, int64_t i, int64_t n, int64_t d) {
  int64_t at = b * t->strides[0] + i * t->strides[1] + n * t->strides[2] + d * t->strides[3];
  return (unsigned char *)t->dl.data + t->dl.byte_offset + at * (t->dl.dtype.bits / 8);
}

double host_value(const host_tensor *t, int64_t b, int64_t i, int64_t n, int64_t d) {
  return get(number_of(&t->dl), host_at(t, b, i, n, d));
}

#define EACH_ELEMENT(t) \
  for (int64_t b = 0; b < (t)->shape[0]; b++) \
    for (int64_t i = 0; i < (t)->shape[1]; i++) \
      for (int64_t n = 0; n < (t)->shape[2]; n++) \
        for (int64_t d = 0; d < (t)->shape[3]; d++)

static void accept(const host *h, const host_tensor *t) { /* what the call wrote there is its right */
  size_t bytes = t->dl.dtype.bits / 8;
  EACH_ELEMENT(t) {
    unsigned char *at = host_at(t, b, i, n, d);
    for (int s = 0; s < h->n_slabs; s++)
      if (at >= h->slabs[s].bytes && at < h->slabs[s].bytes + h->slabs[s].size)
        memcpy(h->slabs[s].before + (at - h->slabs[s].bytes), at, bytes);
  }
}

void host_assert_only_outputs(const host *h) {
  if (h->args.q_out) accept(h, &h->q_out);
  if (h->args.k_out) accept(h, &h->k_out);
  host_assert_untouched(h);
}

/* ---- tensors ---- */

static void describe(host_tensor *t, void *data, host_number type, int rank, const int64_t *shape,
                     const int64_t *strides) {
  memset(t, 0, sizeof *t);
  for (int i = rank - 1; i >= 0; i--) {
    t->shape[i] = shape[i];
    t->strides[i] = strides ? strides[i] : i == rank - 1 ? 1 : t->strides[i + 1] * shape[i + 1];
  }
  t->dl.data = data;
  t->dl.device.device_type = kDLCPU;
  t->dl.ndim = rank;
  t->dl.dtype.code = numbers[type].code;
  t->dl.dtype.bits = numbers[type].bits;
  t->dl.dtype.lanes = 1;
  t->dl.shape = t->shape;
  t->dl.strides = t->strides;
}

static void describe_rows(host *h, host_tensor *t, int64_t heads, int64_t tokens, int64_t channels, void *fused,
                          int64_t first_head) {
  const host_shape *s = &h->shape;
  int64_t all = s->heads + 2 * s->kv_heads, element = numbers[s->dtype].bits / 8;
  int64_t shape[4] = {s->batch, heads, tokens, channels};
  int64_t strides[4] = {heads * tokens * channels, tokens * channels, channels, 1};
  if (s->layout == HOST_BNHD) {
    strides[1] = channels;
    strides[2] = heads * channels;
  } else if (s->layout == HOST_PADDED) {
    strides[1] = channels + 3;
    strides[2] = heads * (channels + 3) + 5;
    strides[0] = tokens * strides[2] + 7;
  } else if (s->layout == HOST_FUSED) {
    strides[1] = channels;
    strides[2] = all * channels;
    strides[0] = tokens * all * channels;
  }
  if (fused) fused = (char *)fused + first_head * channels * element;
  else fused = slab(h, s->batch * (strides[0] > 0 ? strides[0] : 1) * element);
  describe(t, fused, s->dtype, 4, shape, strides);
}

static void fill_rows(const host_tensor *t, uint64_t seed) {
  EACH_ELEMENT(t)
  put(number_of(&t->dl), host_at(t, b, i, n, d), content(seed, (uint64_t)(((b * 1000 + i) * 10000 + n) * 1000 + d)));
}

/* Coordinates are whole numbers that do not depend on the batch, so that
 * shared and per-batch positions mean the same. */
static void make_positions(host *h, host_tensor *t, int64_t tokens, uint64_t seed) {
  const host_shape *s = &h->shape;
  int64_t axes = h->kernel->n_axes, bytes = numbers[s->positions].bits / 8, batches = s->per_batch ? s->batch : 1;
  int64_t shape[3] = {s->batch, tokens, axes};
  char *data = (char *)slab(h, batches * tokens * axes * bytes);
  for (int64_t i = 0; i < batches * tokens * axes; i++)
    put(s->positions, (unsigned char *)data + i * bytes, content(seed, (uint64_t)(i % (tokens * axes))) * 8);
  describe(t, data, s->positions, s->per_batch ? 3 : 2, s->per_batch ? shape : shape + 1, NULL);
}

static void make_operands(host *h) {
  const pegen_kernel *kernel = h->kernel;
  int64_t bytes = numbers[h->shape.operands].bits / 8;
  assert_true(kernel->n_operands <= HOST_OPERANDS);
  for (int i = 0; i < kernel->n_operands; i++) {
    int64_t count = pegen_operand_size(kernel, i);
    char *data = (char *)slab(h, count * bytes);
    assert_true(kernel->operands[i].rank <= 4);
    for (int64_t at = 0; at < count; at++)
      put(h->shape.operands, (unsigned char *)data + at * bytes, content(7 + (uint64_t)i, (uint64_t)at) / 4);
    describe(&h->operands[i], data, h->shape.operands, kernel->operands[i].rank, kernel->operands[i].shape, NULL);
    h->operand_pointers[i] = &h->operands[i].dl;
  }
}

host_shape host_usual(const pegen_kernel *kernel) {
  host_shape s;
  memset(&s, 0, sizeof s);
  s.batch = 2;
  s.heads = s.kv_heads = kernel->heads > 0 ? kernel->heads : 3;
  s.tokens = s.kv_tokens = 7;
  s.dtype = host_supports(kernel, HOST_F32) ? HOST_F32 : host_supports(kernel, HOST_BF16) ? HOST_BF16 : HOST_F16;
  return s;
}

void host_begin(host *h, const pegen_kernel *kernel, const host_shape *shape) {
  void *in = NULL, *out = NULL;
  memset(h, 0, sizeof *h);
  h->kernel = kernel;
  h->shape = *shape;
  if (shape->layout == HOST_FUSED) {
    int64_t rows = shape->batch * shape->tokens * (shape->heads + 2 * shape->kv_heads);
    assert_int_equal(shape->tokens, shape->kv_tokens);
    in = slab(h, rows * kernel->head_dim * numbers[shape->dtype].bits / 8);
    out = shape->in_place ? in : slab(h, rows * kernel->out_dim * numbers[shape->dtype].bits / 8);
  }
  describe_rows(h, &h->q, shape->heads, shape->tokens, kernel->head_dim, in, 0);
  describe_rows(h, &h->k, shape->kv_heads, shape->kv_tokens, kernel->head_dim, in, shape->heads);
  if (shape->in_place) {
    h->q_out = h->q;
    h->k_out = h->k;
    h->q_out.dl.shape = h->q_out.shape;
    h->q_out.dl.strides = h->q_out.strides;
    h->k_out.dl.shape = h->k_out.shape;
    h->k_out.dl.strides = h->k_out.strides;
  } else {
    describe_rows(h, &h->q_out, shape->heads, shape->tokens, kernel->out_dim, out, 0);
    describe_rows(h, &h->k_out, shape->kv_heads, shape->kv_tokens, kernel->out_dim, out, shape->heads);
  }
  fill_rows(&h->q, 1);
  fill_rows(&h->k, 2);
  make_positions(h, &h->positions, shape->tokens, 3);
  if (shape->k_positions) make_positions(h, &h->k_positions, shape->kv_tokens, 4);
  make_operands(h);
  h->args.struct_size = sizeof h->args;
  h->args.q = &h->q.dl;
  h->args.k = &h->k.dl;
  h->args.q_out = &h->q_out.dl;
  h->args.k_out = &h->k_out.dl;
  h->args.positions = &h->positions.dl;
  h->args.k_positions = shape->k_positions ? &h->k_positions.dl : NULL;
  h->args.n_operands = kernel->n_operands;
  h->args.operands = h->operand_pointers;
  host_remember(h);
}

void host_end(host *h) {
  for (int i = 0; i < h->n_slabs; i++) {
    free(h->slabs[i].bytes);
    free(h->slabs[i].before);
  }
  h->n_slabs = 0;
}

void host_encode(host *h, int parts) {
  for (int part = parts - 1; part >= 0; part--)
    assert_int_equal(h->kernel->encode(&h->args, part, parts), PEGEN_ERROR_OK);
  host_assert_only_outputs(h);
}

void host_assert_same(const host_tensor *x, const host_tensor *y) {
  for (int i = 0; i < 4; i++) assert_int_equal(x->shape[i], y->shape[i]);
  assert_int_equal(x->dl.dtype.bits, y->dl.dtype.bits);
  EACH_ELEMENT(x)
  assert_memory_equal(host_at(x, b, i, n, d), host_at(y, b, i, n, d), x->dl.dtype.bits / 8);
}

void host_assert_same_outputs(const host *a, const host *b) {
  host_assert_same(&a->q_out, &b->q_out);
  host_assert_same(&a->k_out, &b->k_out);
}
