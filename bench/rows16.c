/* rows16.c: what rows of rope in 16 bits, written by hand, reach with AVX2, as a share of scaling the same bytes.
 *
 *     cc -O3 -march=x86-64-v3 bench/rows16.c -o rows16 && ./rows16
 *     cc -O3 -march=x86-64-v4 -mavx512bf16 bench/rows16.c -o rows16 && ./rows16  # one way more: by an instruction
 *
 * Twelve heads of 64 channels to a token, in place. Coefficients are read from the nearest cache and cost nothing else.
 * bfloat16 is read as even and odd channels, as compiled kernels do, and rounded in three ways that give the same bits;
 * a fourth cuts it off. With AVX512_BF16 there are rows of 3-vectors, too: each channel of a block is a sum of the
 * block's three, brought there by permutations of 16-bit words, or of float32 lanes (float16).
 * docs/notes/2026-11-27.md and 2026-11-29.md have figures.
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { CHANNELS = 64, HEADS = 12, ROW = CHANNELS * 2, VECTOR = 32, VECTORS = ROW / VECTOR, HUGE_PAGE = 2 << 20 };
enum { UPPER = 0xaa, TURNS = 400 };

static __m256 coefficients[4 * VECTORS];

static inline __m256i round_word(__m256 x) {
  __m256i bits = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
}

static inline __m256i pack_joined(__m256 even, __m256 odd) {
  __m256i low = _mm256_srli_epi32(round_word(even), 16);
  __asm__("" : "+x"(low)); /* or it is blended */
  return _mm256_or_si256(_mm256_blend_epi16(_mm256_setzero_si256(), round_word(odd), UPPER), low);
}

static inline __m256i pack_blended(__m256 even, __m256 odd) {
  return _mm256_blend_epi16(_mm256_srli_epi32(round_word(even), 16), round_word(odd), UPPER);
}

static inline __m256i pack_cut(__m256 even, __m256 odd) {
  return _mm256_blend_epi16(_mm256_srli_epi32(_mm256_castps_si256(even), 16), _mm256_castps_si256(odd), UPPER);
}

/* What is cut off of each number decides by its average with 0x7ffe and the number's last bit. */
static inline __m256i pack_averaged(__m256 even, __m256 odd) {
  __m256i kept = pack_cut(even, odd), shifted = _mm256_slli_epi32(_mm256_castps_si256(odd), 16),
          cut = _mm256_blend_epi16(_mm256_castps_si256(even), shifted, UPPER);
  __m256i half = _mm256_or_si256(_mm256_and_si256(kept, _mm256_set1_epi16(1)), _mm256_set1_epi16(0x7ffe));
  return _mm256_add_epi16(kept, _mm256_srli_epi16(_mm256_avg_epu16(cut, half), 15));
}

#define BF16_ROWS(pack) \
  static __attribute__((noinline)) void pack##_rows(char *at, long rows) { \
    for (long i = 0; i < rows * VECTORS; i++, at += VECTOR) { \
      const __m256 *c = coefficients + 4 * (i % VECTORS); \
      __m256i x = _mm256_loadu_si256((const __m256i *)at); \
      __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)), \
             odd = _mm256_castsi256_ps(_mm256_blend_epi16(_mm256_setzero_si256(), x, UPPER)); \
      __m256 y = _mm256_fmadd_ps(odd, c[1], _mm256_mul_ps(even, c[0])), \
             z = _mm256_fmadd_ps(even, c[3], _mm256_mul_ps(odd, c[2])); \
      _mm256_storeu_si256((__m256i *)at, pack(y, z)); \
    } \
  }
BF16_ROWS(pack_joined)
BF16_ROWS(pack_blended)
BF16_ROWS(pack_averaged)
BF16_ROWS(pack_cut)
#ifdef __AVX512BF16__
static inline __m256i pack_instructed(__m256 even, __m256 odd) {
  const __m256i in_order = _mm256_set_epi16(15, 7, 14, 6, 13, 5, 12, 4, 11, 3, 10, 2, 9, 1, 8, 0);
  return _mm256_permutexvar_epi16(in_order, (__m256i)_mm256_cvtne2ps_pbh(odd, even));
}
BF16_ROWS(pack_instructed)

enum { BLOCKS = CHANNELS / 3, LANES = 16, TERMS = 3, PARTS = CHANNELS / LANES };

static float threes[TERMS][CHANNELS];
static uint16_t words[TERMS][CHANNELS]; /* the channel that each takes in a term, of the whole row */
static int32_t lanes[TERMS][PARTS][LANES]; /* the same of a register and the one before, of the first and the next */

static void set_threes(void) {
  for (int term = 0; term < TERMS; term++)
    for (int c = 0; c < CHANNELS; c++) {
      int source = c < 3 * BLOCKS ? c / 3 * 3 + (c + term) % 3 : c, part = c / LANES;
      threes[term][c] = term == 0;
      words[term][c] = (uint16_t)source;
      lanes[term][part][c % LANES] = source - (part ? part - 1 : 0) * LANES; /* of the second 2 LANES in the third */
    }
}

static inline __m512 low_half(__m512i word) { return _mm512_castsi512_ps(_mm512_slli_epi32(word, 16)); }
static inline __m512 high_half(__m512i word) {
  return _mm512_castsi512_ps(_mm512_and_si512(word, _mm512_set1_epi32((int)0xffff0000)));
}

/* The even and the odd numbers of 32 coefficients. */
static inline __m512 every_second(const float *from, int odd) {
  float values[LANES];
  for (int i = 0; i < LANES; i++) values[i] = from[2 * i + odd];
  return _mm512_loadu_ps(values);
}

static __attribute__((noinline)) void bf16_threes_rows(char *at, long rows) {
  __m512 c[TERMS][2][2];
  __m512i from[TERMS][2], in_order;
  uint16_t order[2 * LANES];
  for (int i = 0; i < 2 * LANES; i++) order[i] = (uint16_t)(i / 2 + i % 2 * LANES);
  in_order = _mm512_loadu_si512(order);
  for (int term = 0; term < TERMS; term++)
    for (int half = 0; half < 2; half++) {
      from[term][half] = _mm512_loadu_si512(words[term] + half * 2 * LANES);
      for (int odd = 0; odd < 2; odd++) c[term][half][odd] = every_second(threes[term] + half * 2 * LANES, odd);
    }
  for (long i = 0; i < rows; i++, at += ROW) {
    __m512i x[2] = {_mm512_loadu_si512(at), _mm512_loadu_si512(at + 64)};
    for (int half = 0; half < 2; half++) {
      __m512 even = _mm512_mul_ps(low_half(x[half]), c[0][half][0]),
             odd = _mm512_mul_ps(high_half(x[half]), c[0][half][1]);
      for (int term = 1; term < TERMS; term++) {
        __m512i taken = _mm512_permutex2var_epi16(x[0], from[term][half], x[1]);
        even = _mm512_fmadd_ps(low_half(taken), c[term][half][0], even);
        odd = _mm512_fmadd_ps(high_half(taken), c[term][half][1], odd);
      }
      __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
      _mm512_storeu_si512(at + 64 * half, _mm512_permutexvar_epi16(in_order, rounded));
    }
  }
}

static __attribute__((noinline)) void f16_threes_rows(char *at, long rows) {
  __m512 c[TERMS][PARTS];
  __m512i from[TERMS][PARTS], of_third[TERMS];
  for (int term = 0; term < TERMS; term++)
    for (int part = 0; part < PARTS; part++) {
      c[term][part] = _mm512_loadu_ps(threes[term] + part * LANES);
      from[term][part] = _mm512_loadu_si512(lanes[term][part]);
    }
  for (int term = 0; term < TERMS; term++) { /* the second register's channels that the third has */
    int32_t stays[LANES];
    for (int i = 0; i < LANES; i++) stays[i] = lanes[term][1][i] < 2 * LANES ? i : lanes[term][1][i] - LANES;
    of_third[term] = _mm512_loadu_si512(stays);
  }
  for (long i = 0; i < rows; i++, at += ROW) {
    __m512 x[PARTS];
    for (int part = 0; part < PARTS; part++)
      x[part] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(at + 32 * part)));
    for (int part = 0; part < PARTS; part++) {
      __m512 y = _mm512_mul_ps(x[part], c[0][part]);
      for (int term = 1; term < TERMS; term++) {
        __m512 taken = _mm512_permutex2var_ps(x[part ? part - 1 : 0], from[term][part], x[part ? part : 1]);
        if (part == 1) taken = _mm512_permutex2var_ps(taken, of_third[term], x[2]);
        y = _mm512_fmadd_ps(taken, c[term][part], y);
      }
      _mm256_storeu_si256((__m256i *)(at + 32 * part), _mm512_cvtps_ph(y, 0));
    }
  }
}
#endif

static __attribute__((noinline)) void f16_rows(char *at, long rows) {
  for (long i = 0; i < rows * 2 * VECTORS; i++, at += VECTOR / 2) {
    const __m256 *c = coefficients + 2 * (i % (2 * VECTORS));
    __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at));
    __m256 y = _mm256_fmadd_ps(_mm256_permute_ps(x, 0xb1), c[1], _mm256_mul_ps(x, c[0]));
    _mm_storeu_si128((__m128i *)at, _mm256_cvtps_ph(y, 0));
  }
}

static __attribute__((noinline)) void scale_rows(char *at, long rows) {
  __m256 factor = coefficients[0];
  for (long i = 0; i < rows * VECTORS; i++, at += VECTOR)
    _mm256_storeu_ps((float *)at, _mm256_mul_ps(factor, _mm256_loadu_ps((const float *)at)));
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void) {
  static const struct {
    const char *name;
    void (*run)(char *at, long rows);
  } loops[] = {
      {"scaling", scale_rows},
      {"joined", pack_joined_rows},
      {"blended", pack_blended_rows},
      {"averaged", pack_averaged_rows},
      {"cut off", pack_cut_rows},
      {"f16", f16_rows},
#ifdef __AVX512BF16__
      {"instructed", pack_instructed_rows},
      {"3-vectors, bf16", bf16_threes_rows},
      {"3-vectors, f16", f16_threes_rows},
#endif
  };
  enum { LOOPS = sizeof loops / sizeof *loops };
#ifdef __AVX512BF16__
  set_threes();
#endif
  for (int i = 0; i < 4 * VECTORS; i++) coefficients[i] = _mm256_set1_ps(i % 2 == 0);
  for (long batch = 1; batch <= 8; batch *= 8) {
    long rows = 2 * batch * 196 * HEADS;
    size_t room = (size_t)rows * ROW + 2 * HUGE_PAGE;
    char *memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      perror("rows16");
      return 1;
    }
    madvise(memory, room, MADV_HUGEPAGE);
    char *at = (char *)(((size_t)memory + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1));
    memset(at, 0, (size_t)rows * ROW);
    double best[LOOPS] = {0};
    for (int turn = 0; turn < TURNS; turn++)
      for (int i = 0; i < LOOPS; i++) {
        double begin = seconds();
        loops[i].run(at, rows);
        double time = seconds() - begin;
        if (!turn || time < best[i]) best[i] = time;
      }
    printf("[%ld,196,%d,%d]", batch, HEADS, CHANNELS);
    for (int i = 0; i < LOOPS; i++) printf("  %s %.1f us (%.2f)", loops[i].name, best[i] * 1e6, best[0] / best[i]);
    printf("\n");
    munmap(memory, room);
  }
  return 0;
}
