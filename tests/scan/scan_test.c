/* scan_test: pegen_scan_tokens (runtime/scan.c) against sums in long double, for all types, layouts and sequences; the
 * same bits in any number of parts and in pieces that hand on their state; gradients as adjoints; what is refused, and
 * that nothing else is written.
 */
#include "base/arena.h"
#include "base/number.h"
#include "test.h"

#include "pegen/scan.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { ROUNDS = 400, MOST_TOKENS = 40, MOST_SEQUENCES = 5, MOST_PARTS = 7, FILL = 0x5a };

/* A tensor [B,H,N,C] with its memory: dimensions lie in an order of their own, with gaps. */
typedef struct rows {
  DLTensor tensor;
  number_type type;
  int64_t shape[4], strides[4];
  unsigned char *memory;
  size_t bytes;
} rows;

typedef struct world {
  arena *a;
  uint64_t random;
  int64_t batches, heads, tokens, channels, sequences; /* channels 0: [B,H,N] */
  int32_t bounds[MOST_SEQUENCES + 1];
  int64_t n_bounds;
  DLTensor cu_seqlens;
  bool packed; /* sequences follow each other in one batch */
} world;

static int64_t width(const world *w) { return w->channels ? w->channels : 1; }

/* `order`: which dimension is innermost but for channels, and so on outwards. */
static rows *make_rows(world *w, number_type type, const int64_t *shape, int rank, bool backwards) {
  rows *r = arena_new(w->a, rows);
  int last = w->channels ? rank - 1 : rank, order[3] = {0, 1, 2};
  int64_t step = w->channels ? shape[last] : 1, low = 0;
  for (int i = last - 1; i > 0; i--) {
    int other = random_below(&w->random, i + 1), held = order[i];
    order[i] = order[other];
    order[other] = held;
  }
  step += random_below(&w->random, 2);
  for (int i = last - 1; i >= 0; i--) {
    int d = order[i];
    bool falls = backwards && random_below(&w->random, 2);
    r->strides[d] = falls ? -step : step;
    if (falls && shape[d] > 0) low += step * (shape[d] - 1);
    step *= shape[d] > 0 ? shape[d] : 1;
    step += random_below(&w->random, 3);
  }
  if (w->channels) r->strides[last] = 1;
  memcpy(r->shape, shape, (size_t)rank * sizeof *shape);
  r->type = type;
  r->bytes = (size_t)((step + 1) * number_bytes((int)type));
  r->memory = arena_array(w->a, unsigned char, (int64_t)r->bytes);
  memset(r->memory, FILL, r->bytes);
  r->tensor = (DLTensor){.data = r->memory + low * number_bytes((int)type),
                         .device = {kDLCPU, 0},
                         .ndim = rank,
                         .dtype = number_type_info(type)->dl,
                         .shape = r->shape,
                         .strides = r->strides};
  return r;
}

/* The element at a row and channel: sequences' tokens counted from the sequence's begin; tokens < 0: a state. */
static void *element(const world *w, const rows *r, int64_t sequence, int64_t head, int64_t token, int64_t channel) {
  int64_t at = channel;
  if (token < 0) at += sequence * r->strides[0] + head * r->strides[1];
  else
    at += (w->packed ? 0 : sequence) * r->strides[0] + head * r->strides[1] +
          (token + (w->packed ? w->bounds[sequence] : 0)) * r->strides[2];
  return (unsigned char *)r->tensor.data + at * number_bytes((int)r->type);
}

static int64_t length(const world *w, int64_t s) { return w->packed ? w->bounds[s + 1] - w->bounds[s] : w->tokens; }

static world make_world(uint64_t seed) {
  world w = {.a = arena_create(), .random = seed};
  w.batches = 1 + random_below(&w.random, 3);
  w.heads = 1 + random_below(&w.random, 20);
  w.tokens = random_below(&w.random, MOST_TOKENS);
  w.channels =
      random_below(&w.random, 3) ? (random_below(&w.random, 2) ? 16 : 1) * (1 + random_below(&w.random, 3)) : 0;
  w.packed = random_below(&w.random, 2);
  w.sequences = w.batches;
  if (!w.packed) return w;
  w.batches = 1;
  w.sequences = 1 + random_below(&w.random, MOST_SEQUENCES);
  for (int64_t i = 1; i <= w.sequences; i++)
    w.bounds[i] = i == w.sequences ? (int32_t)w.tokens
                                   : w.bounds[i - 1] + random_below(&w.random, (int)(w.tokens - w.bounds[i - 1]) + 1);
  w.n_bounds = w.sequences + 1;
  w.cu_seqlens = (DLTensor){.device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLInt, 32, 1}};
  return w;
}

static rows *tokens_of(world *w, number_type type) {
  int64_t shape[] = {w->batches, w->heads, w->tokens, w->channels};
  return make_rows(w, type, shape, w->channels ? 4 : 3, true);
}

static rows *state_of(world *w) {
  int64_t shape[] = {w->sequences, w->heads, w->channels};
  return make_rows(w, NUMBER_F64, shape, w->channels ? 3 : 2, true);
}

static void fill(world *w, rows *r, bool is_state) {
  for (int64_t s = 0; s < w->sequences; s++)
    for (int64_t h = 0; h < w->heads; h++)
      for (int64_t t = is_state ? -1 : 0; t < (is_state ? 0 : length(w, s)); t++)
        for (int64_t c = 0; c < width(w); c++)
          number_store(r->type, element(w, r, s, h, t, c), random_uniform(&w->random, -3, 3));
}

static unsigned char *copy_of(world *w, const rows *r) {
  unsigned char *copy = arena_array(w->a, unsigned char, (int64_t)r->bytes);
  memcpy(copy, r->memory, r->bytes);
  return copy;
}

typedef struct scene {
  rows *in, *out, *from, *to; /* from, to: may be NULL */
  pegen_scan scan;
} scene;

static scene make_scene(world *w) {
  static const number_type types[] = {NUMBER_F32, NUMBER_F64, NUMBER_F16, NUMBER_BF16};
  scene s = {.in = tokens_of(w, types[random_below(&w->random, 4)])};
  s.out = tokens_of(w, random_below(&w->random, 2) ? NUMBER_F64 : NUMBER_F32);
  if (random_below(&w->random, 2)) s.from = state_of(w);
  if (random_below(&w->random, 2)) s.to = state_of(w);
  fill(w, s.in, false);
  if (s.from) fill(w, s.from, true);
  s.scan = (pegen_scan){.struct_size = sizeof s.scan,
                        .flags = random_below(&w->random, 2) ? PEGEN_SCAN_REVERSE : 0,
                        .in = &s.in->tensor,
                        .out = &s.out->tensor,
                        .state_in = s.from ? &s.from->tensor : NULL,
                        .state_out = s.to ? &s.to->tensor : NULL,
                        .period = random_below(&w->random, 3) ? 0 : 6.283185307179586};
  if (w->packed) {
    w->cu_seqlens.data = w->bounds;
    w->cu_seqlens.shape = &w->n_bounds;
    s.scan.cu_seqlens = &w->cu_seqlens;
  }
  return s;
}

/* Clears all elements of what is written, so that what is left is what must not be touched. */
static void erase(const world *w, rows *r, bool is_state) {
  for (int64_t s = 0; r && s < w->sequences; s++)
    for (int64_t h = 0; h < w->heads; h++)
      for (int64_t t = is_state ? -1 : 0; t < (is_state ? 0 : length(w, s)); t++)
        for (int64_t c = 0; c < width(w); c++)
          memset(element(w, r, s, h, t, c), FILL, (size_t)number_bytes((int)r->type));
}

static void assert_untouched(const rows *r) {
  for (size_t i = 0; r && i < r->bytes; i++) assert_int_equal(r->memory[i], FILL);
}

/* Sums of one lane against their definition: within the errors of as many additions and of the output's type. */
static void assert_lane(const world *w, const scene *s, int64_t sequence, int64_t head, int64_t channel) {
  int64_t n = length(w, sequence);
  long double sum = s->from ? number_load(NUMBER_F64, element(w, s->from, sequence, head, -1, channel)) : 0;
  long double size = fabsl(sum), period = s->scan.period;
  for (int64_t i = 0; i < n; i++) {
    int64_t t = s->scan.flags & PEGEN_SCAN_REVERSE ? n - 1 - i : i;
    long double x = number_load(s->in->type, element(w, s->in, sequence, head, t, channel));
    sum += x;
    size += fabsl(x);
    long double found = number_load(s->out->type, element(w, s->out, sequence, head, t, channel)), off = found - sum;
    if (period > 0) {
      off = remainderl(off, period);
      assert_true(fabsl(found) <= period / 2 * (1 + 0x1p-20L));
    }
    long double bound = (long double)(i + 4) * 0x1p-53L * size + number_half_ulp(s->out->type, found);
    assert_true(fabsl(off) <= bound);
  }
  if (!s->to) return;
  long double found = number_load(NUMBER_F64, element(w, s->to, sequence, head, -1, channel));
  assert_true(fabsl(found - sum) <= (long double)(n + 1) * 0x1p-53L * size);
}

TEST(sums_are_right) {
  for (uint64_t round = 0; round < ROUNDS; round++) {
    world w = make_world(round);
    scene s = make_scene(&w);
    assert_int_equal(pegen_scan_tokens(&s.scan, 0, 1), 0);
    for (int64_t i = 0; i < w.sequences; i++)
      for (int64_t h = 0; h < w.heads; h++)
        for (int64_t c = 0; c < width(&w); c++) assert_lane(&w, &s, i, h, c);
    unsigned char *out = copy_of(&w, s.out), *to = s.to ? copy_of(&w, s.to) : NULL;
    for (int parts = 2; parts <= MOST_PARTS; parts++) {
      erase(&w, s.out, false);
      erase(&w, s.to, true);
      assert_untouched(s.out);
      assert_untouched(s.to);
      for (int part = parts - 1; part >= 0; part--) assert_int_equal(pegen_scan_tokens(&s.scan, part, parts), 0);
      assert_memory_equal(out, s.out->memory, s.out->bytes);
      if (s.to) assert_memory_equal(to, s.to->memory, s.to->bytes);
    }
    erase(&w, s.out, false);
    assert_int_equal(pegen_scan_parallel(&s.scan, 3), 0);
    assert_memory_equal(out, s.out->memory, s.out->bytes);
    erase(&w, s.out, false);
    erase(&w, s.to, true);
    assert_untouched(s.out);
    assert_untouched(s.to);
    arena_destroy(w.a);
  }
}

/* A prompt in pieces whose states are handed on, in the tensor that they are read from, and in place: the same bits. */
TEST(pieces_are_the_whole) {
  for (uint64_t round = 0; round < ROUNDS; round++) {
    world w = make_world(round);
    if (w.packed || w.tokens < 1) {
      arena_destroy(w.a);
      continue;
    }
    rows *in = tokens_of(&w, NUMBER_F32), *out = tokens_of(&w, NUMBER_F32), *to = state_of(&w), *carried = state_of(&w);
    fill(&w, in, false);
    fill(&w, carried, true);
    bool is_reversed = random_below(&w.random, 2);
    pegen_scan scan = {.struct_size = sizeof scan,
                       .flags = is_reversed ? PEGEN_SCAN_REVERSE : 0,
                       .in = &in->tensor,
                       .out = &out->tensor,
                       .state_in = &carried->tensor,
                       .state_out = &to->tensor};
    assert_int_equal(pegen_scan_tokens(&scan, 0, 1), 0);
    scan.out = &in->tensor;
    scan.state_out = &carried->tensor;
    for (int64_t done = 0, count; done < w.tokens; done += count) {
      count = 1 + random_below(&w.random, (int)(w.tokens - done));
      int64_t first = is_reversed ? w.tokens - done - count : done;
      in->shape[2] = count;
      in->tensor.byte_offset = 0;
      unsigned char *data = in->tensor.data;
      in->tensor.data = data + first * in->strides[2] * 4;
      assert_int_equal(pegen_scan_tokens(&scan, 0, 1), 0);
      in->tensor.data = data;
    }
    for (int64_t i = 0; i < w.sequences; i++)
      for (int64_t h = 0; h < w.heads; h++)
        for (int64_t c = 0; c < width(&w); c++) {
          for (int64_t t = 0; t < w.tokens; t++)
            assert_memory_equal(element(&w, in, i, h, t, c), element(&w, out, i, h, t, c), 4);
          assert_memory_equal(element(&w, carried, i, h, -1, c), element(&w, to, i, h, -1, c), 8);
        }
    arena_destroy(w.a);
  }
}

/* The scan from the other end is the adjoint: <out, g> + <state_out, gs> = <in, out'> + <state_in, state_out'>. */
TEST(reverse_is_the_gradient) {
  for (uint64_t round = 0; round < ROUNDS; round++) {
    world w = make_world(round);
    scene s = make_scene(&w);
    if (!s.from) s.from = state_of(&w), fill(&w, s.from, true), s.scan.state_in = &s.from->tensor;
    if (!s.to) s.to = state_of(&w), s.scan.state_out = &s.to->tensor;
    s.out = tokens_of(&w, NUMBER_F64);
    s.scan.out = &s.out->tensor;
    s.scan.period = 0;
    rows *g = tokens_of(&w, NUMBER_F64), *gs = state_of(&w), *gained = tokens_of(&w, NUMBER_F64), *at = state_of(&w);
    fill(&w, g, false);
    fill(&w, gs, true);
    pegen_scan back = s.scan;
    back.flags ^= PEGEN_SCAN_REVERSE;
    back.in = &g->tensor;
    back.out = &gained->tensor;
    back.state_in = &gs->tensor;
    back.state_out = &at->tensor;
    assert_int_equal(pegen_scan_tokens(&s.scan, 0, 1), 0);
    assert_int_equal(pegen_scan_tokens(&back, 0, 1), 0);
    long double left = 0, right = 0, size = 0;
    for (int64_t i = 0; i < w.sequences; i++)
      for (int64_t h = 0; h < w.heads; h++)
        for (int64_t c = 0; c < width(&w); c++)
          for (int64_t t = -1; t < length(&w, i); t++) {
            long double y = number_load(NUMBER_F64, element(&w, t < 0 ? s.to : s.out, i, h, t, c));
            long double x = t < 0 ? number_load(NUMBER_F64, element(&w, s.from, i, h, t, c))
                                  : number_load(s.in->type, element(&w, s.in, i, h, t, c));
            left += y * (long double)number_load(NUMBER_F64, element(&w, t < 0 ? gs : g, i, h, t, c));
            right += x * (long double)number_load(NUMBER_F64, element(&w, t < 0 ? at : gained, i, h, t, c));
            size += fabsl(y) * 3;
          }
    assert_true(fabsl(left - right) <= 0x1p-45L * (size + 1));
    arena_destroy(w.a);
  }
}

static int try(const pegen_scan *scan, int part, int parts) { return pegen_scan_tokens(scan, part, parts); }

TEST(mistakes_are_refused) {
  float in[24] = {0}, out[24] = {0};
  double sums[24] = {0};
  int32_t bounds[] = {0, 1, 3}, wrong[] = {0, 2, 1}, more[] = {0, 1, 4};
  int64_t shape[] = {1, 2, 3, 4}, other[] = {1, 2, 3, 3}, states[] = {1, 2, 4}, n_bounds[] = {3},
          huge[] = {1, 2, -3, 4};
  int64_t far[] = {INT64_MAX, INT64_MAX, 1, 1}, same[] = {0, 0, 0, 1};
  DLTensor x = {in, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, shape, NULL, 0}, y = x, s = x, b = x, bad;
  y.data = out;
  s = (DLTensor){sums, {kDLCPU, 0}, 3, {kDLFloat, 64, 1}, states, NULL, 0};
  b = (DLTensor){bounds, {kDLCPU, 0}, 1, {kDLInt, 32, 1}, n_bounds, NULL, 0};
  const pegen_scan good = {.struct_size = sizeof good, .in = &x, .out = &y};
  assert_int_equal(try(&good, 0, 1), 0);
  assert_int_equal(try(NULL, 0, 1), PEGEN_ERROR_NULL_ARGS);
  assert_int_equal(try(&good, 1, 1), PEGEN_ERROR_PART);
  assert_int_equal(try(&good, -1, 1), PEGEN_ERROR_PART);
#define REFUSED(error, ...) \
  do { \
    pegen_scan scan = good; \
    __VA_ARGS__; \
    assert_int_equal(try(&scan, 0, 1), PEGEN_ERROR_##error); \
  } while (0)
  REFUSED(STRUCT_SIZE, scan.struct_size--);
  REFUSED(SCAN, scan.in = NULL);
  REFUSED(SCAN, scan.out = NULL);
  REFUSED(SCAN, scan.flags = 2);
  REFUSED(SCAN, scan.period = -1);
  REFUSED(SCAN, scan.period = (double)NAN);
  REFUSED(SCAN, scan.period = (double)INFINITY);
  REFUSED(SCAN, bad = x; bad.ndim = 2; scan.in = &bad);
  REFUSED(RANK, bad = y; bad.ndim = 3; scan.out = &bad);
  REFUSED(RANK, bad = s; bad.ndim = 2; scan.state_in = &bad);
  REFUSED(NULL_SHAPE, bad = x; bad.shape = NULL; scan.in = &bad);
  REFUSED(DEVICE, bad = x; bad.device.device_type = kDLCUDA; scan.in = &bad);
  REFUSED(DTYPE, bad = x; bad.dtype.code = kDLInt; scan.in = &bad);
  REFUSED(DTYPE, bad = y; bad.dtype.bits = 16; scan.out = &bad);
  REFUSED(DTYPE, bad = s; bad.dtype.bits = 32; scan.state_in = &bad);
  REFUSED(NEGATIVE_SIZE, bad = x; bad.shape = huge; scan.in = &bad);
  REFUSED(SHAPE_MISMATCH, bad = y; bad.shape = other; scan.out = &bad);
  REFUSED(SHAPE_MISMATCH, bad = s; bad.shape = other; scan.state_out = &bad);
  REFUSED(NULL_DATA, bad = x; bad.data = NULL; scan.in = &bad);
  REFUSED(ALIGNMENT, bad = x; bad.byte_offset = 2; scan.in = &bad);
  REFUSED(CHANNEL_STRIDE, bad = x; bad.strides = (int64_t[]){24, 12, 1, 3}; scan.in = &bad);
  REFUSED(SIZE_OVERFLOW, bad = x; bad.strides = far; scan.in = &bad);
  REFUSED(STRIDE, bad = y; bad.strides = same; scan.out = &bad);
  REFUSED(OVERLAP, bad = x; bad.data = in + 1; scan.out = &bad);
  REFUSED(OVERLAP, scan.state_in = &s; bad = s; bad.byte_offset = 8; scan.state_out = &bad);
  REFUSED(OVERLAP, bad = y; bad.data = sums; scan.out = &bad; scan.state_out = &s);
  REFUSED(OVERLAP, bad = s; bad.data = out; scan.state_in = &bad);
  union {
    float rows[24];
    double sums[16];
    int32_t bounds[3];
  } shared = {.bounds = {0, 1, 3}};
  int64_t two_states[] = {2, 2, 4};
  DLTensor meets = b;
  meets.data = shared.bounds;
  REFUSED(OVERLAP, bad = y; bad.data = shared.rows; scan.out = &bad; scan.cu_seqlens = &meets);
  REFUSED(OVERLAP, bad = s; bad.data = shared.sums; bad.shape = two_states; scan.state_out = &bad;
          scan.cu_seqlens = &meets);
  REFUSED(BOUNDS, bad = b; bad.data = wrong; scan.cu_seqlens = &bad);
  REFUSED(BOUNDS, bad = b; bad.data = more; scan.cu_seqlens = &bad);
  REFUSED(SEQUENCES, bad = b; bad.dtype.bits = 64; scan.cu_seqlens = &bad);
  REFUSED(SHAPE_MISMATCH, scan.cu_seqlens = &b; scan.state_out = &s);
#undef REFUSED
}

/* Gates that are 0 have a logarithm of -infinity: it stays one, and reaches no other lane. */
TEST(infinities_stay_in_their_lane) {
  float in[2 * 3] = {0, -INFINITY, 1, 2, 3, 4}, out[2 * 3];
  int64_t shape[] = {1, 2, 3};
  DLTensor x = {in, {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, shape, NULL, 0}, y = x;
  y.data = out;
  pegen_scan scan = {.struct_size = sizeof scan, .in = &x, .out = &y};
  assert_int_equal(pegen_scan_tokens(&scan, 0, 1), 0);
  assert_true(out[0] == 0 && isinf(out[1]) && isinf(out[2]) && out[3] == 2 && out[4] == 5 && out[5] == 9);
}

int main(void) { return run_listed(); }
