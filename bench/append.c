/* append.c: what one call to serve tokens can cost in bfloat16, by hand in AVX-512 intrinsics.
 *
 *     cc -O3 -march=x86-64-v4 -mavx512bf16 bench/append.c -o append && ./append 64
 *
 * RoPE of so many tokens, 32 heads of 128 channels in pairs of neighbours: rows of q are turned in place, those of k on
 * their way to slots of a cache in pages, those of v moved to slots of another. Cosines and sines are given for
 * nothing. A register of 32 channels is two of float32, of even channels and of odd ones, an instruction each, so that
 * pairs need no permutation, and what is turned is put together again. One step more of the way back to bfloat16 is
 * taken each time: cut off, rounded to nearest even, the same that keeps NaN (as kernels do it), and by the processor's
 * own instruction, which takes denormals for zeros: other bits than on other targets. Beside them the same bytes are
 * moved. No check, no norm: these are limits, and not append. docs/speed.md has figures ("One call to serve a token").
 * The two ways that keep NaN are compared element by element first.
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HEADS = 32, CHANNELS = 128, LANES = 32, REGISTERS = CHANNELS / LANES, ROW = HEADS * CHANNELS, TURNS = 60 };
enum { MOVED, CUT, ROUNDED, KEEPING, BY_INSTRUCTION, WAYS };

static const char *const way_names[] = {"moved", "turned, cut off", "rounded", "rounded, keeping NaN",
                                        "rounded by vcvtne2ps2bf16"};

typedef struct world {
  long tokens;
  uint16_t *q, *k, *v, *k_cache, *v_cache;
  long *slot;
  float *turns; /* [tokens][2][CHANNELS / 2] */
} world;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define INLINE static inline __attribute__((always_inline))

/* The upper halves are what is left: to nearest even, infinite where it is too large. */
INLINE __m512i to_even(__m512i bits) {
  __m512i last = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), last);
}

/* NaN stays one, and is made quiet. */
INLINE __m512i to_even_or_nan(__m512 x) {
  __m512i bits = _mm512_castps_si512(x);
  __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(to_even(bits), is_nan, bits, _mm512_set1_epi32(0x400000));
}

INLINE __m512i narrow(__m512 even, __m512 odd, int way) {
  __m512i low = _mm512_castps_si512(even), high = _mm512_castps_si512(odd);
  if (way == BY_INSTRUCTION) {
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
  }
  if (way == ROUNDED) low = to_even(low), high = to_even(high);
  if (way == KEEPING) low = to_even_or_nan(even), high = to_even_or_nan(odd);
  return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(low, 16), high);
}

/* Rows of all heads of a token. */
INLINE void token(uint16_t *to, const uint16_t *from, const __m512 *cosine, const __m512 *sine, int way) {
  for (int at = 0; at < ROW; at += CHANNELS)
    for (int i = 0; i < REGISTERS; i++) {
      __m512i words = _mm512_loadu_si512(from + at + i * LANES);
      if (way != MOVED) {
        __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)),
               odd = _mm512_castsi512_ps(_mm512_and_epi32(words, _mm512_set1_epi32((int)0xffff0000u)));
        words = narrow(_mm512_fmsub_ps(even, cosine[i], _mm512_mul_ps(odd, sine[i])),
                       _mm512_fmadd_ps(even, sine[i], _mm512_mul_ps(odd, cosine[i])), way);
      }
      _mm512_storeu_si512(to + at + i * LANES, words);
    }
}

INLINE void all(const world *w, int way) {
  for (long t = 0; t < w->tokens; t++) {
    __m512 cosine[REGISTERS], sine[REGISTERS];
    for (int i = 0; i < REGISTERS; i++) {
      cosine[i] = _mm512_loadu_ps(w->turns + t * CHANNELS + i * 16);
      sine[i] = _mm512_loadu_ps(w->turns + t * CHANNELS + CHANNELS / 2 + i * 16);
    }
    token(w->q + t * ROW, w->q + t * ROW, cosine, sine, way);
    token(w->k_cache + w->slot[t] * ROW, w->k + t * ROW, cosine, sine, way);
    token(w->v_cache + w->slot[t] * ROW, w->v + t * ROW, cosine, sine, MOVED);
  }
}

static void moved(const world *w) { all(w, MOVED); }
static void cut(const world *w) { all(w, CUT); }
static void rounded(const world *w) { all(w, ROUNDED); }
static void keeping(const world *w) { all(w, KEEPING); }
static void by_instruction(const world *w) { all(w, BY_INSTRUCTION); }
static void (*const ways[])(const world *) = {moved, cut, rounded, keeping, by_instruction};

/* Every upper half of every float32 sign, exponent and first bits, with some lower halves: how many differ. */
static void compare(void) {
  static const uint32_t lower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  long tiny = 0, other = 0;
  for (uint32_t upper = 0; upper < 0x10000; upper++)
    for (int i = 0; i < 6; i++) {
      uint32_t bits = upper << 16 | lower[i];
      __m512 x = _mm512_castsi512_ps(_mm512_set1_epi32((int)bits));
      uint16_t kept[LANES], made[LANES];
      _mm512_storeu_si512(kept, narrow(x, x, KEEPING));
      _mm512_storeu_si512(made, narrow(x, x, BY_INSTRUCTION));
      if (kept[0] == made[0] && kept[1] == made[1]) continue;
      if ((bits & 0x7fffffff) < 0x00800000) tiny++;
      else other++;
    }
  printf("vcvtne2ps2bf16 differs at %ld denormals, and %ld other numbers\n", tiny, other);
}

static void *room(size_t bytes) {
  void *at = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!at) abort();
  memset(at, 0, bytes); /* zeros stay zeros, however often they are turned */
  return at;
}

static world make(long tokens) {
  size_t bytes = (size_t)tokens * ROW * sizeof(uint16_t);
  world w = {tokens, room(bytes), room(bytes), room(bytes), room(bytes), room(bytes), NULL, NULL};
  w.slot = room((size_t)tokens * sizeof(long));
  w.turns = room((size_t)tokens * CHANNELS * sizeof(float));
  for (long t = 0; t < tokens; t++) w.slot[t] = t;
  srand(1);
  for (long t = tokens - 1; t > 0; t--) {
    long other = rand() % (t + 1), held = w.slot[t];
    w.slot[t] = w.slot[other];
    w.slot[other] = held;
  }
  for (long i = 0; i < tokens * CHANNELS; i++) w.turns[i] = 0.7071F;
  for (long i = 0; i < tokens * ROW; i++) w.q[i] = w.k[i] = (uint16_t)(0x3f00 + rand() % 256);
  return w;
}

int main(int count, char **words) {
  world w = make(count > 1 ? atol(words[1]) : 64);
  double best[WAYS];
  compare();
  for (int turn = 0; turn < TURNS; turn++)
    for (int way = 0; way < WAYS; way++) {
      double begin = now();
      ways[way](&w);
      double took = now() - begin;
      if (!turn || took < best[way]) best[way] = took;
    }
  for (int way = 0; way < WAYS; way++)
    printf("%-26s %8.1f us, moving takes %.2f of it\n", way_names[way], 1e6 * best[way], best[MOVED] / best[way]);
  return 0;
}
