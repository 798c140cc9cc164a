/* dots.c: what attention in bfloat16 can reach with dot products of pairs, by hand in AVX-512 intrinsics, one thread.
 *
 *     clang -O3 -march=x86-64-v4 -mavx512bf16 bench/dots.c -o dots && ./dots
 *
 * The loops are a kernel's own: 32 queries in the lanes of two registers, 64 keys to a tile, online softmax. In float32
 * rows of bfloat16 are widened a tile of keys at a time and multiplied by fused multiply-adds, as kernels do without
 * vdpbf16ps. With it a dword of a row of keys, two channels, is spread over the lanes where it lies, and rows of values
 * are interleaved by pairs of keys; weights are rounded to bfloat16. No bias or mask. The two take turns; printed are
 * the fastest of both in GFLOP/s, beside the same instructions on registers alone.
 */
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LANES = 16, VECTORS = 2, QUERIES = LANES * VECTORS, KEYS = 64, ROWS = 8, MOST = 128, TURNS = 15 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 2^x of x <= 0, with the operations of a kernel's. */
static inline __m512 exp2_of(__m512 x) {
  static const float c[] = {1.0f, 0.693147004f, 0.240222424f, 0.0555073358f, 0.00967151299f, 0.00132647271f};
  __m512 rounder = _mm512_set1_ps(0x1.8p23f + 127), shifted, f, sum = _mm512_set1_ps(c[5]);
  x = _mm512_max_ps(x, _mm512_set1_ps(-126));
  shifted = _mm512_add_ps(x, rounder);
  f = _mm512_sub_ps(x, _mm512_sub_ps(shifted, rounder));
  for (int i = 4; i >= 0; i--) sum = _mm512_fmadd_ps(sum, f, _mm512_set1_ps(c[i]));
  return _mm512_mul_ps(sum, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(shifted), 23)));
}

static inline __m512 dot(__m512 sum, int32_t pair, __m512i by) {
  return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)by);
}

static inline __m512 widened(const uint16_t *at) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at)), 16));
}

static inline int32_t pair_at(const uint16_t *at) {
  int32_t pair;
  memcpy(&pair, at, sizeof pair);
  return pair;
}

typedef struct tile {
  float scores[KEYS][QUERIES], out[MOST][QUERIES], maximum[QUERIES], sum[QUERIES];
  float queries[MOST][QUERIES], keys[KEYS][MOST], values[KEYS][MOST];
  int32_t query_pairs[MOST / 2][QUERIES], value_pairs[KEYS / 2][MOST], weights[KEYS / 2][QUERIES];
} tile;

/* Scores to powers; both sums of pairs of keys follow each other. */
static inline void soften(tile *t, int pairs, __m512 *decay, float scale) {
  const __m512i woven = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  for (int x = 0; x < VECTORS; x++) {
    __m512 was = _mm512_load_ps(t->maximum + x * LANES), top = was, sum, scales = _mm512_set1_ps(scale);
    for (int k = 0; k < KEYS; k++) top = _mm512_max_ps(top, _mm512_load_ps(t->scores[k] + x * LANES));
    decay[x] = exp2_of(_mm512_mul_ps(_mm512_sub_ps(was, top), scales));
    _mm512_store_ps(t->maximum + x * LANES, top);
    sum = _mm512_mul_ps(_mm512_load_ps(t->sum + x * LANES), decay[x]);
    top = _mm512_mul_ps(top, scales);
    for (int k = 0; k < KEYS; k += 2) {
      __m512 a = exp2_of(_mm512_fmsub_ps(_mm512_load_ps(t->scores[k] + x * LANES), scales, top)),
             b = exp2_of(_mm512_fmsub_ps(_mm512_load_ps(t->scores[k + 1] + x * LANES), scales, top));
      sum = _mm512_add_ps(sum, _mm512_add_ps(a, b));
      if (pairs)
        _mm512_store_si512(t->weights[k / 2] + x * LANES,
                           _mm512_permutexvar_epi16(woven, (__m512i)_mm512_cvtne2ps_pbh(b, a)));
      else {
        _mm512_store_ps(t->scores[k] + x * LANES, a);
        _mm512_store_ps(t->scores[k + 1] + x * LANES, b);
      }
    }
    _mm512_store_ps(t->sum + x * LANES, sum);
  }
}

static inline __attribute__((always_inline)) void attend_tile(tile *t, const uint16_t *q, const uint16_t *k,
                                                              const uint16_t *v, uint16_t *out, int n, int d,
                                                              int pairs) {
  float scale = 1.44269504f / __builtin_sqrtf((float)d);
  for (int i = 0; i < QUERIES; i++) {
    t->maximum[i] = -0x1p126f, t->sum[i] = 0;
    for (int c = 0; c < d; c += 2) t->query_pairs[c / 2][i] = pair_at(q + i * d + c);
    for (int c = 0; c < d; c++) {
      uint32_t bits = (uint32_t)q[i * d + c] << 16;
      memcpy(&t->queries[c][i], &bits, 4), t->out[c][i] = 0;
    }
  }
  for (int first = 0; first < n; first += KEYS) {
    const uint16_t *keys = k + (size_t)first * d, *values = v + (size_t)first * d;
    if (!pairs)
      for (int key = 0; key < KEYS; key++)
        for (int c = 0; c < d; c += LANES) _mm512_store_ps(t->keys[key] + c, widened(keys + key * d + c));
    for (int key = 0; key < KEYS; key += ROWS) {
      __m512 sums[ROWS][VECTORS];
      for (int r = 0; r < ROWS; r++)
        for (int x = 0; x < VECTORS; x++) sums[r][x] = _mm512_setzero_ps();
      if (pairs)
#pragma clang loop unroll_count(2)
        for (int c = 0; c < d / 2; c++) {
          __m512i query[VECTORS];
          for (int x = 0; x < VECTORS; x++) query[x] = _mm512_load_si512(t->query_pairs[c] + x * LANES);
#pragma clang loop unroll(full)
          for (int r = 0; r < ROWS; r++)
            for (int x = 0; x < VECTORS; x++)
              sums[r][x] = dot(sums[r][x], pair_at(keys + (key + r) * d + 2 * c), query[x]);
        }
      else
#pragma clang loop unroll_count(2)
        for (int c = 0; c < d; c++) {
          __m512 query[VECTORS];
          for (int x = 0; x < VECTORS; x++) query[x] = _mm512_load_ps(t->queries[c] + x * LANES);
#pragma clang loop unroll(full)
          for (int r = 0; r < ROWS; r++)
            for (int x = 0; x < VECTORS; x++)
              sums[r][x] = _mm512_fmadd_ps(_mm512_set1_ps(t->keys[key + r][c]), query[x], sums[r][x]);
        }
      for (int r = 0; r < ROWS; r++)
        for (int x = 0; x < VECTORS; x++) _mm512_store_ps(t->scores[key + r] + x * LANES, sums[r][x]);
    }
    __m512 decay[VECTORS];
    soften(t, pairs, decay, scale);
    if (pairs) {
      const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                                           37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0),
                    high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
      for (int key = 0; key < KEYS; key += 2)
        for (int c = 0; c < d; c += 2 * LANES) {
          __m512i a = _mm512_loadu_si512(values + key * d + c), b = _mm512_loadu_si512(values + (key + 1) * d + c);
          _mm512_store_si512(t->value_pairs[key / 2] + c, _mm512_permutex2var_epi16(a, low, b));
          _mm512_store_si512(t->value_pairs[key / 2] + c + LANES, _mm512_permutex2var_epi16(a, high, b));
        }
    } else {
      for (int key = 0; key < KEYS; key++)
        for (int c = 0; c < d; c += LANES) _mm512_store_ps(t->values[key] + c, widened(values + key * d + c));
    }
    for (int c = 0; c < d; c += ROWS) {
      __m512 sums[ROWS][VECTORS];
      for (int r = 0; r < ROWS; r++)
        for (int x = 0; x < VECTORS; x++)
          sums[r][x] = _mm512_mul_ps(_mm512_load_ps(t->out[c + r] + x * LANES), decay[x]);
      if (pairs)
#pragma clang loop unroll_count(2)
        for (int key = 0; key < KEYS / 2; key++)
#pragma clang loop unroll(full)
          for (int r = 0; r < ROWS; r++)
            for (int x = 0; x < VECTORS; x++)
              sums[r][x] = dot(sums[r][x], t->value_pairs[key][c + r], _mm512_load_si512(t->weights[key] + x * LANES));
      else
#pragma clang loop unroll_count(2)
        for (int key = 0; key < KEYS; key++)
#pragma clang loop unroll(full)
          for (int r = 0; r < ROWS; r++)
            for (int x = 0; x < VECTORS; x++)
              sums[r][x] = _mm512_fmadd_ps(_mm512_set1_ps(t->values[key][c + r]),
                                           _mm512_load_ps(t->scores[key] + x * LANES), sums[r][x]);
      for (int r = 0; r < ROWS; r++)
        for (int x = 0; x < VECTORS; x++) _mm512_store_ps(t->out[c + r] + x * LANES, sums[r][x]);
    }
  }
  for (int i = 0; i < QUERIES; i++)
    for (int c = 0; c < d; c++) {
      uint32_t bits;
      float y = t->out[c][i] / t->sum[i];
      memcpy(&bits, &y, 4);
      out[i * d + c] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

static __attribute__((noinline)) void attend(const uint16_t *q, const uint16_t *k, const uint16_t *v, uint16_t *out,
                                             int heads, int n, int d, int pairs) {
  static tile t __attribute__((aligned(64)));
  for (int h = 0; h < heads; h++)
    for (int i = 0; i < n; i += QUERIES) {
      size_t head = (size_t)h * n * d, at = head + (size_t)i * d;
      if (pairs && d == 64) attend_tile(&t, q + at, k + head, v + head, out + at, n, 64, 1);
      else if (pairs) attend_tile(&t, q + at, k + head, v + head, out + at, n, 128, 1);
      else if (d == 64) attend_tile(&t, q + at, k + head, v + head, out + at, n, 64, 0);
      else attend_tile(&t, q + at, k + head, v + head, out + at, n, 128, 0);
    }
}

/* GFLOP/s of sixteen independent sums in registers. */
static double peak(int pairs) {
  __m512 s[16], a = _mm512_set1_ps(0x1p-30f), b = _mm512_set1_ps(0x1p-10f);
  double best = 1e9;
  for (int i = 0; i < 16; i++) s[i] = a;
  for (int turn = 0; turn < TURNS; turn++) {
    double start = now();
    for (int n = 0; n < 50000; n++)
#pragma clang loop unroll(full)
      for (int i = 0; i < 16; i++) {
        if (pairs) s[i] = _mm512_dpbf16_ps(s[i], (__m512bh)a, (__m512bh)b);
        else s[i] = _mm512_fmadd_ps(a, b, s[i]);
        __asm__("" : "+v"(s[i]));
      }
    double took = now() - start;
    if (took < best) best = took;
  }
  return 16.0 * 50000 * (pairs ? 64 : 32) / best * 1e-9;
}

int main(void) {
  static const int shapes[][3] = {{12, 1024, 64}, {12, 1024, 128}, {12, 4096, 64}};
  printf("on registers: fused multiply-adds %.0f GFLOP/s, dot products of pairs %.0f\n", peak(0), peak(1));
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
    int heads = shapes[s][0], n = shapes[s][1], d = shapes[s][2];
    size_t count = (size_t)heads * n * d;
    uint16_t *rows = malloc(5 * count * sizeof *rows);
    double best[2] = {1e9, 1e9}, worst = 0, flops = 4.0 * heads * n * n * d;
    if (!rows) return 1;
    for (size_t i = 0; i < 3 * count; i++) {
      float x = (float)(rand() % 2001 - 1000) * 1.7e-3f;
      uint32_t bits;
      memcpy(&bits, &x, 4);
      rows[i] = (uint16_t)(bits >> 16);
    }
    for (int turn = 0; turn < TURNS; turn++)
      for (int pairs = 0; pairs < 2; pairs++) {
        double start = now();
        attend(rows, rows + count, rows + 2 * count, rows + (3 + pairs) * count, heads, n, d, pairs);
        double took = now() - start;
        if (took < best[pairs]) best[pairs] = took;
      }
    for (size_t i = 0; i < count; i++) {
      uint32_t a = (uint32_t)rows[3 * count + i] << 16, b = (uint32_t)rows[4 * count + i] << 16;
      float x, y;
      memcpy(&x, &a, 4), memcpy(&y, &b, 4);
      if (__builtin_fabsf(x - y) > worst) worst = __builtin_fabsf(x - y);
    }
    printf("[%d,%d,%d]: float32 %.1f GFLOP/s, pairs %.1f, %.2f times; difference %.1e\n", heads, n, d,
           flops / best[0] * 1e-9, flops / best[1] * 1e-9, best[0] / best[1], worst);
    free(rows);
  }
  return 0;
}
