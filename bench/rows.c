/* rows.c: what rows written by hand reach on this processor, as a share of plain scaling in place.
 *
 *     cc -O3 -march=x86-64-v4 bench/rows.c -o rows && ./rows
 *
 * The rows of rope, of blocks of three (GeoPE) and of blocks of eight (CARE) in AVX-512 intrinsics, in the form that
 * compiled kernels use: y = A0 x + A1 rot1(x) + A2 rot2(x), twelve heads to a token. Their coefficients cost nothing
 * here: no position is read and no rotor built, so a kernel that does cannot be faster in memory that the core is fed
 * from as quickly. Rows are asked for 0 (not at all), 1, 2, 4 and 8 KiB ahead, and of each loop the fastest counts.
 * Channels hold no meaningful values; the operations are the ones that count.
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { CHANNELS = 64, HEADS = 12, LANES = 16, VECTORS = CHANNELS / LANES, TERMS = 3, HUGE_PAGE = 2 << 20 };

/* 1 in every run; volatile, or a compiler would know what scaling by 1 does. */
static volatile float one = 1;

typedef struct coefficients {
  __m512 a[TERMS * VECTORS];
  __m512i rot[8]; /* lane permutations */
} coefficients;

/* A row's vectors are loaded once each: a load folded into all of its uses takes a third of the speed. */
static inline void load_row(const float *row, __m512 *x) {
  for (int j = 0; j < VECTORS; j++) {
    x[j] = _mm512_load_ps(row + j * LANES);
    __asm__("" : "+v"(x[j]));
  }
}

static inline __m512 three_terms(const coefficients *c, int j, __m512 x, __m512 x1, __m512 x2) {
  __m512 y = _mm512_mul_ps(c->a[j], x);
  y = _mm512_fmadd_ps(c->a[VECTORS + j], x1, y);
  return _mm512_fmadd_ps(c->a[2 * VECTORS + j], x2, y);
}

static inline void scale_row(const coefficients *c, const __m512 *x, __m512 *y) {
  for (int j = 0; j < VECTORS; j++) y[j] = _mm512_mul_ps(c->a[0], x[j]);
}

static inline void rope_row(const coefficients *c, const __m512 *x, __m512 *y) {
  for (int j = 0; j < VECTORS; j++)
    y[j] = _mm512_fmadd_ps(c->a[VECTORS + j], _mm512_permute_ps(x[j], 0xb1), _mm512_mul_ps(c->a[j], x[j]));
}

/* Triples cross the ends of vectors: those lanes take a permutation of two registers, in the second vector two. */
static inline void triples_row(const coefficients *c, const __m512 *x, __m512 *y) {
  const __m512i *rot = c->rot;
  y[0] =
      three_terms(c, 0, x[0], _mm512_permutex2var_ps(x[0], rot[0], x[1]), _mm512_permutex2var_ps(x[0], rot[1], x[1]));
  y[1] = three_terms(c, 1, x[1], _mm512_permutex2var_ps(_mm512_permutex2var_ps(x[0], rot[2], x[1]), rot[3], x[2]),
                     _mm512_permutex2var_ps(_mm512_permutex2var_ps(x[0], rot[4], x[1]), rot[5], x[2]));
  y[2] =
      three_terms(c, 2, x[2], _mm512_permutex2var_ps(x[2], rot[6], x[1]), _mm512_permutex2var_ps(x[2], rot[7], x[1]));
  y[3] = three_terms(c, 3, x[3], _mm512_permutexvar_ps(rot[0], x[3]), _mm512_permutexvar_ps(rot[1], x[3]));
}

static inline void eights_row(const coefficients *c, const __m512 *x, __m512 *y) {
  for (int j = 0; j < VECTORS; j++)
    y[j] = three_terms(c, j, x[j], _mm512_permutexvar_ps(c->rot[0], x[j]), _mm512_permutexvar_ps(c->rot[1], x[j]));
}

typedef void rows_function(float *data, long tokens, const coefficients *c, long ahead);

/* Lines of the row that lies so many bytes ahead, into the nearest cache. */
static inline void ask_for(const float *row, long ahead) {
  for (int j = 0; j < VECTORS; j++) _mm_prefetch((const char *)(row + j * LANES) + ahead, _MM_HINT_T0);
}

#define ROWS(name) \
  static __attribute__((noinline)) void name##_rows(float *data, long tokens, const coefficients *given, long ahead) { \
    for (long token = 0; token < tokens; token++) { \
      coefficients c = *given; \
      for (int head = 0; head < HEADS; head++, data += CHANNELS) { \
        __m512 x[VECTORS], y[VECTORS]; \
        if (ahead) ask_for(data, ahead); \
        load_row(data, x); \
        name##_row(&c, x, y); \
        for (int j = 0; j < VECTORS; j++) _mm512_store_ps(data + j * LANES, y[j]); \
      } \
    } \
  }
ROWS(scale)
ROWS(rope)
ROWS(triples)
ROWS(eights)

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static coefficients make_coefficients(void) {
  coefficients c;
  int lanes[LANES];
  for (int i = 0; i < TERMS * VECTORS; i++) c.a[i] = _mm512_set1_ps(i < VECTORS ? one : 0);
  for (int r = 0; r < 8; r++) {
    for (int i = 0; i < LANES; i++) lanes[i] = (i * 7 + r) % LANES;
    c.rot[r] = _mm512_loadu_si512(lanes);
  }
  return c;
}

int main(void) {
  static const struct {
    const char *name;
    rows_function *run;
  } loops[] = {{"scale", scale_rows}, {"rope", rope_rows}, {"blocks of 3", triples_rows}, {"blocks of 8", eights_rows}};
  static const long batches_tokens[][2] = {{1, 196}, {8, 196}, {8, 4096}};
  static const long distances[] = {0, 1024, 2048, 4096, 8192}; /* bytes that rows are asked for ahead */
  enum { LOOPS = sizeof loops / sizeof *loops, DISTANCES = sizeof distances / sizeof *distances };
  coefficients c = make_coefficients();
  for (int shape = 0; shape < 3; shape++) {
    long tokens = 2 * batches_tokens[shape][0] * batches_tokens[shape][1]; /* of q and k */
    size_t bytes = (size_t)tokens * HEADS * CHANNELS * sizeof(float), room = bytes + 2 * HUGE_PAGE;
    char *memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      perror("mmap");
      return 1;
    }
    madvise(memory, room, MADV_HUGEPAGE);
    float *data = (float *)(((size_t)memory + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1));
    for (size_t i = 0; i < bytes / sizeof(float); i++) data[i] = 1;
    double best[LOOPS];
    long best_ahead[LOOPS] = {0};
    for (int i = 0; i < LOOPS; i++) best[i] = 1e9;
    for (long round = 0; round < 15 + 400000 / tokens; round++)
      for (int i = 0; i < LOOPS * DISTANCES; i++) {
        int loop = i % LOOPS;
        double begin = seconds();
        loops[loop].run(data, tokens, &c, distances[i / LOOPS]);
        double time = seconds() - begin;
        if (time >= best[loop]) continue;
        best[loop] = time;
        best_ahead[loop] = distances[i / LOOPS];
      }
    printf("[%ld,%ld,%d,%d]", batches_tokens[shape][0], batches_tokens[shape][1], HEADS, CHANNELS);
    for (int i = 0; i < LOOPS; i++)
      printf("  %s %.0f GB/s (%.2f; %ld ahead)", loops[i].name, 2e-9 * (double)bytes / best[i], best[0] / best[i],
             best_ahead[i]);
    printf("\n");
    munmap(memory, room);
  }
  return 0;
}
