/* decode.c: what one query of three heads that share keys and values can cost, by hand in AVX-512 intrinsics.
 *
 *     cc -O3 -march=x86-64-v4 bench/decode.c -o decode && ./decode 1024
 *
 * Four heads of so many keys of 64 channels, as float32, bfloat16 and float16: one reading of keys and values (asked
 * for 4 KiB ahead), the fused multiply-adds alone from registers, and then what attention does with rows in memory, a
 * part after the other: the multiply-adds of both products with keys and values converted on their way; the same with
 * the sums across the lanes of scores; the same with exponentials of all scores. No maximum, bias or mask: these are
 * limits, and not attention. docs/speed.md has figures ("Few queries against many keys").
 */
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HEADS = 3, SHARED = 4, CHANNELS = 64, REGISTERS = CHANNELS / 16, TILE = 64, TURNS = 400 };
enum { F32, BF16, F16, TYPES };
enum { PRODUCTS, SUMS, POWERS, STEPS };

static const char *const type_names[] = {"f32", "bf16", "f16"};
static const int bytes_of[] = {4, 2, 2};
static __m512 query[HEADS][REGISTERS], out[HEADS][REGISTERS];
static float scores[HEADS][TILE];

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A row in registers; of bfloat16 even channels and odd ones, an instruction each. */
static inline __attribute__((always_inline)) void load_row(int type, const char *at, __m512 *x) {
  for (int i = 0; i < REGISTERS; i += 2) {
    if (type == F32) {
      x[i] = _mm512_loadu_ps(at + i * 64);
      x[i + 1] = _mm512_loadu_ps(at + i * 64 + 64);
    } else if (type == F16) {
      x[i] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(at + i * 32)));
      x[i + 1] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(at + i * 32 + 32)));
    } else {
      __m512i words = _mm512_loadu_si512(at + i * 32);
      x[i] = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
      x[i + 1] = _mm512_castsi512_ps(_mm512_and_epi32(words, _mm512_set1_epi32((int)0xffff0000u)));
    }
  }
}

static inline __attribute__((always_inline)) void ask(int type, const char *at) {
  for (int line = 0; line < CHANNELS * bytes_of[type]; line += 64) _mm_prefetch(at + line, _MM_HINT_T0);
}

/* Four registers' lanes of every four, added up. */
static inline __attribute__((always_inline)) __m512 quad(const __m512 *x) {
  const __mmask16 upper = 0xcccc;
  __m512 low = _mm512_add_ps(_mm512_mask_blend_ps(upper, x[0], x[1]), _mm512_shuffle_ps(x[0], x[1], 0x4e)),
         high = _mm512_add_ps(_mm512_mask_blend_ps(upper, x[2], x[3]), _mm512_shuffle_ps(x[2], x[3], 0x4e));
  return _mm512_add_ps(_mm512_shuffle_ps(low, high, 0x88), _mm512_shuffle_ps(low, high, 0xdd));
}

/* Fours of lanes of four registers, added up. */
static inline __attribute__((always_inline)) __m512 fours(const __m512 *x) {
  __m512 even = _mm512_add_ps(_mm512_mask_blend_ps(0xff00, x[0], x[2]), _mm512_shuffle_f32x4(x[0], x[2], 0x4e)),
         odd = _mm512_add_ps(_mm512_mask_blend_ps(0xff00, x[1], x[3]), _mm512_shuffle_f32x4(x[1], x[3], 0x4e));
  const __m512i other = _mm512_set_epi32(27, 26, 25, 24, 15, 14, 13, 12, 19, 18, 17, 16, 7, 6, 5, 4);
  return _mm512_add_ps(_mm512_mask_blend_ps(0xf0f0, even, odd), _mm512_permutex2var_ps(even, other, odd));
}

/* 2^x by a polynomial, in as many operations as the kernel's. */
static inline __attribute__((always_inline)) __m512 power(__m512 x) {
  const __m512 rounder = _mm512_set1_ps(0x1.8p23f + 101);
  __m512 shifted = _mm512_add_ps(_mm512_max_ps(x, _mm512_set1_ps(-101)), rounder);
  __m512 f = _mm512_sub_ps(x, _mm512_sub_ps(shifted, rounder)), sum = _mm512_set1_ps(0.0013f);
  static const float c[] = {0.0096f, 0.0555f, 0.2402f, 0.6931f, 1};
  for (int i = 0; i < 5; i++) sum = _mm512_fmadd_ps(sum, f, _mm512_set1_ps(c[i]));
  return _mm512_mul_ps(sum, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(shifted), 23)));
}

static inline __attribute__((always_inline)) void score_tile(int type, int steps, const char *k, const char *ahead) {
  const int row = CHANNELS * bytes_of[type];
  __m512 put_by[HEADS][4];
  for (int key = 0; key < TILE; key += 4) {
    __m512 sums[HEADS][4];
    for (int h = 0; h < HEADS; h++)
      for (int j = 0; j < 4; j++) sums[h][j] = _mm512_setzero_ps();
    for (int j = 0; j < 4; j++) {
      __m512 x[REGISTERS];
      load_row(type, k + (key + j) * row, x);
      ask(type, ahead + (key + j) * row);
      for (int i = 0; i < REGISTERS; i++)
        for (int h = 0; h < HEADS; h++) sums[h][j] = _mm512_fmadd_ps(x[i], query[h][i], sums[h][j]);
    }
    for (int h = 0; h < HEADS; h++) {
      put_by[h][key / 4 % 4] = steps >= SUMS ? quad(sums[h]) : sums[h][0];
      if (steps < SUMS) /* all of them are wanted, at the price of a store */
        for (int j = 1; j < 4; j++) __asm__ volatile("" : : "v"(sums[h][j]));
      if (key / 4 % 4 < 3) continue;
      __m512 s = steps >= SUMS ? fours(put_by[h]) : put_by[h][0];
      if (steps >= POWERS) s = power(s);
      _mm512_storeu_ps(&scores[h][key / 16 * 16], s);
    }
  }
}

static inline __attribute__((always_inline)) void value_tile(int type, const char *v, const char *ahead) {
  const int row = CHANNELS * bytes_of[type];
  __m512 sums[HEADS][REGISTERS];
  memcpy(sums, out, sizeof sums);
  for (int key = 0; key < TILE; key++) {
    __m512 x[REGISTERS];
    load_row(type, v + key * row, x);
    ask(type, ahead + key * row);
    for (int h = 0; h < HEADS; h++)
      for (int i = 0; i < REGISTERS; i++)
        sums[h][i] = _mm512_fmadd_ps(x[i], _mm512_set1_ps(scores[h][key]), sums[h][i]);
  }
  memcpy(out, sums, sizeof sums);
}

static inline __attribute__((always_inline)) void attend(int type, int steps, const char *k, const char *v, int keys) {
  const int tile = TILE * CHANNELS * bytes_of[type];
  for (int i = 0; i < SHARED * keys / TILE; i++) {
    score_tile(type, steps, k + (size_t)i * tile, v + (size_t)i * tile);
    value_tile(type, v + (size_t)i * tile, k + (size_t)(i + 1) * tile);
  }
}

#define ATTEND(type, steps) \
  static __attribute__((noinline)) void attend_##type##_##steps(const char *k, const char *v, int keys) { \
    attend(type, steps, k, v, keys); \
  }
#define ATTEND_ALL(type) ATTEND(type, PRODUCTS) ATTEND(type, SUMS) ATTEND(type, POWERS)
ATTEND_ALL(F32)
ATTEND_ALL(BF16)
ATTEND_ALL(F16)
typedef void attend_function(const char *k, const char *v, int keys);
#define ROW(type) {attend_##type##_PRODUCTS, attend_##type##_SUMS, attend_##type##_POWERS}
static attend_function *const functions[TYPES][STEPS] = {ROW(F32), ROW(BF16), ROW(F16)};

static void read_once(const char *at, size_t bytes) {
  __m512 sum[8] = {0};
  for (size_t i = 0; i < bytes; i += 512)
    for (int j = 0; j < 8; j++) {
      _mm_prefetch(at + i + j * 64 + 4096, _MM_HINT_T0);
      sum[j] = _mm512_add_ps(sum[j], _mm512_loadu_ps(at + i + j * 64));
    }
  for (int j = 1; j < 8; j++) sum[0] = _mm512_add_ps(sum[0], sum[j]);
  out[0][0] = sum[0];
}

/* Seconds of as many multiply-adds from registers. */
static double arithmetic(int64_t count) {
  __m512 chain[12], factor = _mm512_set1_ps(scores[0][0]);
  for (int i = 0; i < 12; i++) chain[i] = _mm512_set1_ps((float)i);
  double start = now();
  for (int64_t turn = 0; turn < count / (12 * 16); turn++)
    for (int i = 0; i < 12; i++) {
      chain[i] = _mm512_fmadd_ps(chain[i], factor, factor);
      __asm__ volatile("" : "+v"(chain[i]));
    }
  double seconds = now() - start;
  for (int i = 0; i < 12; i++) out[0][0] = _mm512_add_ps(out[0][0], chain[i]);
  return seconds;
}

static void keep_least(double *best, double seconds) {
  if (*best == 0 || seconds < *best) *best = seconds;
}

/* Numbers that no compiler knows: of queries that are never written it computes one head for all of them. */
static void set_queries(volatile float number) {
  for (int h = 0; h < HEADS; h++)
    for (int i = 0; i < REGISTERS; i++) query[h][i] = _mm512_set1_ps(number + (float)(h * REGISTERS + i));
}

static int measure(int type, int keys) {
  size_t bytes = (size_t)SHARED * keys * CHANNELS * bytes_of[type];
  char *k = aligned_alloc(64, bytes + 8192), *v = aligned_alloc(64, bytes + 8192);
  double reading = 0, adding = 0, least[STEPS] = {0};
  if (!k || !v) return 1;
  set_queries(0.5F);
  memset(k, 0, bytes + 8192); /* +0.0 of every type */
  memset(v, 0, bytes + 8192);
  for (int turn = 0; turn < TURNS; turn++) {
    double start = now();
    read_once(k, bytes);
    read_once(v, bytes);
    keep_least(&reading, now() - start);
    keep_least(&adding, arithmetic((int64_t)2 * HEADS * SHARED * keys * CHANNELS));
    for (int steps = 0; steps < STEPS; steps++) {
      start = now();
      functions[type][steps](k, v, keys);
      keep_least(&least[steps], now() - start);
    }
  }
  printf("%-4s %6d keys: reading %.4f ms, multiply-adds %.4f; both products %.4f, and sums of lanes %.4f, and powers "
         "%.4f\n",
         type_names[type], keys, reading * 1e3, adding * 1e3, least[PRODUCTS] * 1e3, least[SUMS] * 1e3,
         least[POWERS] * 1e3);
  free(k);
  free(v);
  return 0;
}

int main(int count, char **arguments) {
  int keys = count > 1 ? atoi(arguments[1]) : 1024;
  if (keys < TILE || keys % TILE) {
    fprintf(stderr, "decode: expected a multiple of %d keys\n", TILE);
    return 2;
  }
  int status = 0;
  for (int type = 0; type < TYPES && !status; type++) status = measure(type, keys);
  return status;
}
