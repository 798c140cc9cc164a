/* test_twin.c: both walks over the hand-written twins, and what only a twin can tell:
 * the numbers themselves, and how the driver cut the work.
 */
#include "driver.h"
#include "host.h"
#include "test.h"
#include "twin.h"

#include <math.h>
#include <string.h>

/* ---- the numbers ---- */

static double rate_of(const host *h, int axis, int64_t head, int block) {
  if (h->kernel->n_operands == 0) return twin_rate(axis, block);
  return ((const float *)h->operands[0].dl.data)[(axis * TWIN_HEADS + head) * TWIN_BLOCKS + block];
}

static void assert_turned(const host *h, const host_tensor *in, const host_tensor *out) {
  const float *positions = h->positions.dl.data;
  int axes = h->kernel->n_axes;
  for (int64_t b = 0; b < in->shape[0]; b++)
    for (int64_t head = 0; head < in->shape[1]; head++)
      for (int64_t n = 0; n < in->shape[2]; n++)
        for (int d = 0; d < TWIN_HEAD_DIM; d += 2) {
          double angle = h->kernel->n_operands ? TWIN_ORIGIN(head, d / 2) * (d / 2 < TWIN_BLOCKS) : 0;
          double x = host_value(in, b, head, n, d), y = host_value(in, b, head, n, d + 1);
          for (int a = 0; a < axes; a++)
            if (d / 2 < TWIN_BLOCKS && n >= h->kernel->skip_tokens)
              angle += positions[n * axes + a] * rate_of(h, a, head, d / 2);
          assert_true(fabs(host_value(out, b, head, n, d) - (cos(angle) * x - sin(angle) * y)) < 1e-5);
          assert_true(fabs(host_value(out, b, head, n, d + 1) - (sin(angle) * x + cos(angle) * y)) < 1e-5);
        }
}

TEST(numbers_are_right) {
  const pegen_kernel *kernels[] = {&twin_plain_kernel, &twin_grid_kernel, &twin_learned_kernel, &twin_tabled_kernel};
  for (int i = 0; i < 3; i++) {
    host h;
    host_shape shape = host_usual(kernels[i]);
    host_begin(&h, kernels[i], &shape);
    host_encode(&h, 3);
    assert_turned(&h, &h.q, &h.q_out);
    assert_turned(&h, &h.k, &h.k_out);
    host_end(&h);
  }
}

/* ---- the cut ---- */

static void traced(host *h, int part, int parts) {
  twin_traced.calls = 0;
  assert_int_equal(h->kernel->encode(&h->args, part, parts), 0);
}

TEST(batches_are_outermost) {
  host h;
  host_shape shape = host_usual(&twin_plain_kernel); /* 2 batches of 7 tokens */
  shape.per_batch = 1; /* nothing to share */
  host_begin(&h, &twin_plain_kernel, &shape);
  traced(&h, 0, 1);
  assert_int_equal(twin_traced.calls, 2);
  assert_true(twin_traced.loop[0].rows[1].heads > 0);
  assert_int_equal(twin_traced.loop[0].batch_end, 1);
  assert_int_equal(twin_traced.loop[1].batch_begin, 1);
  assert_int_equal(twin_traced.loop[1].token_end, 7);
  traced(&h, 1, 3); /* items 5 to 10: 5, 6 of batch 0 and 0, 1, 2 of batch 1 */
  assert_int_equal(twin_traced.calls, 2);
  assert_int_equal(twin_traced.loop[0].token_begin, 5);
  assert_int_equal(twin_traced.loop[0].token_end, 7);
  assert_int_equal(twin_traced.loop[1].token_begin, 0);
  assert_int_equal(twin_traced.loop[1].token_end, 3);
  traced(&h, 20, 31); /* more parts than items */
  assert_int_equal(twin_traced.calls, 0);
  host_end(&h);
}

TEST(shared_rotors_cover_batches) {
  host h;
  host_shape shape = host_usual(&twin_learned_kernel);
  shape.layout = HOST_BNHD;
  host_begin(&h, &twin_learned_kernel, &shape);
  traced(&h, 0, 1); /* two tiles of heads, each over all batches */
  assert_int_equal(twin_traced.calls, 2);
  assert_int_equal(twin_traced.loop[0].head_end, 2);
  assert_int_equal(twin_traced.loop[1].head_begin, 2);
  assert_int_equal(twin_traced.loop[1].head_end, 3);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(twin_traced.loop[i].batch_end, 2);
    assert_int_equal((uintptr_t)twin_traced.loop[i].prepared % 64, 0);
    assert_int_equal(twin_traced.loop[i].prepared_stride, 24 * 1024);
  }
  host_end(&h);
  shape.per_batch = 1;
  host_begin(&h, &twin_learned_kernel, &shape);
  traced(&h, 0, 1);
  assert_int_equal(twin_traced.calls, 4);
  host_end(&h);
}

/* Memory in which a head's tokens are neighbours is walked a few heads at a time over tiles of tokens, and a
 * head at a time where each has rotors of its own. */
TEST(far_heads_are_walked_apart) {
  host h;
  host_shape shape = host_usual(&twin_plain_kernel);
  host_begin(&h, &twin_plain_kernel, &shape);
  traced(&h, 0, 1);
  pegen_tuning tuning;
  pegen_tune(&tuning, *twin_plain_driver.chosen);
  assert_int_equal(twin_traced.loop[0].group_rows, tuning.group_rows);
  assert_int_equal(twin_traced.loop[0].tile_tokens, tuning.tile_tokens);
  host_end(&h);
  shape.layout = HOST_BNHD;
  host_begin(&h, &twin_plain_kernel, &shape);
  traced(&h, 0, 1);
  assert_true(twin_traced.loop[0].group_rows > shape.heads + shape.kv_heads);
  host_end(&h);
  shape.batch = 1; /* no other batch shares the rotors */
  host_begin(&h, &twin_plain_kernel, &shape);
  traced(&h, 0, 1);
  assert_int_equal(twin_traced.loop[0].tile_tokens, tuning.tile_once);
  host_end(&h);
  /* Where each head has its own, rotors of a tile serve all batches. */
  for (int batch = 1; batch < 4; batch += 2) {
    shape = host_usual(&twin_learned_kernel);
    shape.layout = HOST_BNHD;
    shape.batch = batch;
    host_begin(&h, &twin_learned_kernel, &shape);
    traced(&h, 0, 1);
    assert_int_equal(twin_traced.loop[0].tile_tokens, batch == 1 ? 1 : tuning.tile_rotors / shape.heads);
    host_end(&h);
  }
  shape = host_usual(&twin_learned_kernel);
  host_begin(&h, &twin_learned_kernel, &shape);
  traced(&h, 0, 1);
  assert_int_equal(twin_traced.calls, shape.heads);
  for (int i = 0; i < shape.heads; i++) {
    assert_int_equal(twin_traced.loop[i].head_begin, i);
    assert_int_equal(twin_traced.loop[i].head_end, i + 1);
  }
  host_end(&h);
}

TEST(streams_apart) {
  host h;
  host_shape shape = host_usual(&twin_plain_kernel);
  shape.k_positions = 1;
  shape.kv_tokens = 4;
  shape.batch = 1;
  host_begin(&h, &twin_plain_kernel, &shape);
  traced(&h, 1, 2); /* its share of q, then its share of k */
  assert_int_equal(twin_traced.calls, 2);
  assert_int_equal(twin_traced.loop[0].rows[1].heads, 0);
  assert_int_equal(twin_traced.loop[0].token_begin, 4);
  assert_int_equal(twin_traced.loop[1].token_begin, 2);
  assert_ptr_equal(twin_traced.loop[1].rows[0].in, h.k.dl.data);
  host_end(&h);
}

/* Every kind of processor, as a machine whose last cache does or does not hold what the call reads and writes. */
TEST(large_calls_stream) {
  static const pegen_processor_id kinds[] = {{PEGEN_VENDOR_INTEL, 6, 0, 0},
                                             {PEGEN_VENDOR_AMD, 0x19, 0, 0},
                                             {PEGEN_VENDOR_AMD, 0x1a, 0, 0},
                                             {PEGEN_VENDOR_ARM, 0, 0, 0},
                                             {PEGEN_VENDOR_ANY, 0, 0, 0}};
  enum { KINDS = sizeof kinds / sizeof *kinds };
  const int64_t mib = 1 << 20;
  host h;
  host_shape shape = host_usual(&twin_plain_kernel);
  host_begin(&h, &twin_plain_kernel, &shape);
  traced(&h, 0, 1);
  assert_int_equal(twin_traced.loop[0].prefetch, 0);
  assert_int_equal(twin_traced.streaming[0], 0);
  host_end(&h);
  int32_t own = *twin_plain_driver.chosen;
  shape.tokens = shape.kv_tokens = 40960; /* 30 MiB of q and k together */
  for (int in_place = 0; in_place < 2; in_place++)
    for (int layout = HOST_BHND; layout <= HOST_BNHD; layout++)
      for (int i = 0; i < 2 * KINDS; i++) {
        int fits = i % 2, intel = kinds[i / 2].vendor == PEGEN_VENDOR_INTEL, zen_5 = kinds[i / 2].family == 0x1a;
        shape.in_place = in_place;
        shape.layout = (host_layout)layout;
        *twin_plain_driver.chosen = pegen_choice((own & PEGEN_CHOSEN_TARGET) - 1, pegen_processor_row(&kinds[i / 2]),
                                                 fits ? 128 * mib : 16 * mib);
        host_begin(&h, &twin_plain_kernel, &shape);
        traced(&h, 0, 1);
        int gains = intel || (zen_5 && !fits);
        assert_int_equal(twin_traced.loop[0].prefetch, gains ? (intel ? 2048 : 4096) : 0);
        /* Rows of several heads, far apart, take turns: no processor sees by itself what comes next. */
        assert_int_equal(twin_traced.loop[0].prefetch_second, !gains && layout == HOST_BHND ? 4096 : 0);
        assert_int_equal(twin_traced.streaming[0], !in_place && !fits);
        host_end(&h);
      }
  shape.in_place = 0;
  shape.layout = HOST_PADDED; /* rows are not whole lines */
  *twin_plain_driver.chosen = pegen_choice((own & PEGEN_CHOSEN_TARGET) - 1, 0, mib);
  host_begin(&h, &twin_plain_kernel, &shape);
  traced(&h, 0, 1);
  assert_int_equal(twin_traced.streaming[0], 0);
  host_end(&h);
  *twin_plain_driver.chosen = own;
}

/* Where heads have rotors of their own, rows are asked for while these are built, where that was measured to be better
 * than asking ahead: within the last cache of a Xeon. */
TEST(rows_are_asked_for_while_rotors_are_built) {
  static const pegen_processor_id kinds[] = {{PEGEN_VENDOR_INTEL, 6, 0, 0}, {PEGEN_VENDOR_AMD, 0x1a, 0, 0}};
  const int64_t mib = 1 << 20;
  int32_t own = *twin_learned_driver.chosen;
  for (int i = 0; i < 2 * (int)(sizeof kinds / sizeof *kinds); i++) {
    int fits = i % 2, intel = kinds[i / 2].vendor == PEGEN_VENDOR_INTEL;
    for (int is_small = 0; is_small < 2; is_small++) {
      host h;
      host_shape shape = host_usual(&twin_learned_kernel);
      shape.layout = HOST_BNHD;
      shape.in_place = 1;
      if (!is_small) shape.tokens = shape.kv_tokens = 40960; /* above 16 MiB and below 80 */
      *twin_learned_driver.chosen = pegen_choice((own & PEGEN_CHOSEN_TARGET) - 1, pegen_processor_row(&kinds[i / 2]),
                                                 fits ? 256 * mib : 16 * mib);
      host_begin(&h, &twin_learned_kernel, &shape);
      traced(&h, 0, 1);
      int is_built = intel && fits && !is_small;
      assert_int_equal(twin_traced.loop[0].prefetch_built, is_built);
      if (is_built) assert_int_equal(twin_traced.loop[0].prefetch, 0);
      else if (intel && !is_small) assert_int_equal(twin_traced.loop[0].prefetch, 2048);
      host_end(&h);
    }
  }
  *twin_learned_driver.chosen = own;
}

/* A cache that is not known, or larger than the number has room for. */
TEST(caches_of_any_size) {
  static const pegen_processor_id zen_5 = {PEGEN_VENDOR_AMD, 0x1a, 0, 0};
  pegen_tuning tuning;
  pegen_tune(&tuning, pegen_choice(3, pegen_processor_row(&zen_5), 0));
  assert_int_equal(tuning.stream_above, 16 << 20);
  int32_t large = pegen_choice(254, pegen_processor_row(&zen_5), INT64_MAX);
  assert_int_equal(large & PEGEN_CHOSEN_TARGET, 255);
  pegen_tune(&tuning, large);
  assert_true(tuning.stream_above > (int64_t)1 << 33);
  /* A Xeon's cache of a whole socket: no program has it to itself. */
  static const pegen_processor_id xeon = {PEGEN_VENDOR_INTEL, 6, 0, 0};
  pegen_tune(&tuning, pegen_choice(3, pegen_processor_row(&xeon), (int64_t)480 << 20));
  assert_int_equal(tuning.stream_above, 80 << 20);
  pegen_tune(&tuning, pegen_choice(3, pegen_processor_row(&xeon), (int64_t)24 << 20));
  assert_int_equal(tuning.stream_above, 24 << 20);
  assert_int_equal(tuning.tile_tokens, 128);
}

/* Where instructions for bfloat16 are faster, and only where the processor has them, whatever its cache. */
TEST(bfloat16_where_it_pays) {
  static const pegen_processor_id zen_4 = {PEGEN_VENDOR_AMD, 0x19, 0, 1}, xeon = {PEGEN_VENDOR_INTEL, 6, 0, 1};
  int32_t any = pegen_choice(254, pegen_processor_row(&zen_4), INT64_MAX);
  pegen_tuning with, without;
  pegen_tune(&without, any);
  pegen_tune(&with, any | PEGEN_CHOSEN_DOTS);
  assert_int_equal(without.dots, 0);
  assert_int_equal(with.dots, 1);
  assert_int_equal(without.rounds, 0);
  assert_int_equal(with.rounds, 1);
  assert_int_equal(with.stream_above, without.stream_above);
  assert_int_equal((any | PEGEN_CHOSEN_DOTS) & PEGEN_CHOSEN_TARGET, 255);
  pegen_tune(&with, pegen_choice(3, pegen_processor_row(&xeon), 0) | PEGEN_CHOSEN_DOTS);
  assert_int_equal(with.dots, 0);
  assert_int_equal(with.rounds, 0);
}

TEST(no_code_for_processor) {
  host h;
  host_shape shape = host_usual(&twin_plain_kernel);
  int32_t chosen = 0;
  host_begin(&h, &twin_plain_kernel, &shape);
  pegen_driver driver = twin_plain_driver;
  driver.n_targets = 1; /* the one that no processor can run */
  driver.chosen = &chosen;
  assert_int_equal(pegen_driver_encode(&driver, &h.args, 0, 1), PEGEN_ERROR_PROCESSOR);
  assert_int_equal(chosen, 0);
  host_assert_untouched(&h);
  driver.n_targets = 2;
  assert_int_equal(pegen_driver_encode(&driver, &h.args, 0, 1), 0);
  assert_int_equal(chosen & PEGEN_CHOSEN_TARGET, 2);
  host_end(&h);
}

TEST(float16_operands) {
  /* Every kind of float16, against the definition: through the learned twin, whose angle is
   * rate * position with position 1 on one axis. Subnormals and infinity are read as doubles. */
  static const struct {
    uint16_t bits;
    double value;
  } cases[] = {{0x0000, 0}, {0x8000, 0},  {0x0001, 0x1p-24},    {0x83ff, -0x3ffp-24}, {0x0400, 0x1p-14},
               {0x3c00, 1}, {0xbc00, -1}, {0x3555, 0x1.554p-2}, {0x7bff, 65504}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    host h;
    host_shape shape = host_usual(&twin_learned_kernel);
    shape.operands = HOST_F16;
    shape.in_place = 0;
    host_begin(&h, &twin_learned_kernel, &shape);
    uint16_t *rates = h.operands[0].dl.data;
    float *positions = h.positions.dl.data;
    for (int i = 0; i < 2 * TWIN_HEADS * TWIN_BLOCKS; i++) rates[i] = i < TWIN_HEADS * TWIN_BLOCKS ? cases[c].bits : 0;
    for (int n = 0; n < 7; n++) positions[2 * n] = 1;
    host_remember(&h);
    host_encode(&h, 1);
    double x = host_value(&h.q, 0, 0, 0, 0), y = host_value(&h.q, 0, 0, 0, 1);
    double angle = cases[c].value + TWIN_ORIGIN(0, 0);
    assert_true(fabs(host_value(&h.q_out, 0, 0, 0, 0) - (cos(angle) * x - sin(angle) * y)) < 1e-6);
    host_end(&h);
  }
}

/* ---- the lattice, against looking at every byte ---- */

static uint64_t seed = 88172645463325252u;

static int64_t random_below(int64_t n) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return (int64_t)(seed % (uint64_t)n);
}

enum { ARENA = 8192 };

static void random_view(pegen_view *v, const int64_t *strides) {
  int64_t low = 0, high = v->width = 1 + random_below(9);
  for (int i = 0; i < 3; i++) {
    v->size[i] = 1 + random_below(5);
    v->stride[i] = v->size[i] == 1 ? 0 : strides[i];
    int64_t span = v->stride[i] * (v->size[i] - 1);
    low += span < 0 ? span : 0;
    high += span > 0 ? span : 0;
  }
  v->empty = 0;
  v->base = (uintptr_t)(ARENA / 2 + random_below(200));
  v->low = v->base - (uintptr_t)-low;
  v->high = v->base + (uintptr_t)high;
}

/* Marks the bytes of v; returns how many were marked already. */
static int mark(const pegen_view *v, unsigned char *bytes) {
  int twice = 0;
  for (int64_t i = 0; i < v->size[0]; i++)
    for (int64_t j = 0; j < v->size[1]; j++)
      for (int64_t k = 0; k < v->size[2]; k++)
        for (int64_t w = 0; w < v->width; w++) {
          int64_t at = (int64_t)v->base + i * v->stride[0] + j * v->stride[1] + k * v->stride[2] + w;
          twice += bytes[at];
          bytes[at] = 1;
        }
  return twice;
}

TEST(overlap_is_exact) {
  static unsigned char bytes[ARENA], other[ARENA];
  int met = 0, apart_in_range = 0, nested = 0;
  for (int round = 0; round < 20000; round++) {
    pegen_view a, b;
    int64_t strides[3];
    for (int i = 0; i < 3; i++)
      strides[i] = (1 + random_below(i == 0 ? 200 : i == 1 ? 60 : 20)) * (random_below(4) ? 1 : -1);
    random_view(&a, strides);
    if (random_below(3) == 0) /* views of other strides, too */
      strides[random_below(3)] = random_below(60);
    random_view(&b, strides);
    memset(bytes, 0, sizeof bytes);
    memset(other, 0, sizeof other);
    int shares = mark(&a, bytes) > 0;
    if (shares) assert_false(pegen_view_nests(&a)); /* the rule may refuse more, never less */
    else nested += pegen_view_nests(&a);
    mark(&b, other);
    int meet = 0;
    for (int i = 0; i < ARENA; i++) meet |= bytes[i] & other[i];
    assert_int_equal(pegen_views_meet(&a, &b), meet);
    assert_int_equal(pegen_views_meet(&b, &a), meet);
    met += meet;
    apart_in_range += !meet && a.low < b.high && b.low < a.high;
  }
  assert_true(met > 1000 && apart_in_range > 1000 && nested > 1000);
}

/* With the argument "refusals": those alone; without, all else. */
int main(int argc, char **argv) {
  const pegen_kernel *kernels[] = {&twin_plain_kernel, &twin_grid_kernel, &twin_learned_kernel, &twin_tabled_kernel};
  int failures = 0, refusals = argc > 1 && !strcmp(argv[1], "refusals");
  for (size_t i = 0; refusals && i < sizeof kernels / sizeof *kernels; i++) failures += walk_refusals(kernels[i]);
  if (refusals) return failures != 0;
  failures = run_listed();
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) failures += walk_interface(kernels[i]);
  return failures != 0;
}
