/* tables.c: what a learned table of displacements costs attention's backward at least, beside its five products.
 *
 *     cc -O3 -march=x86-64-v4 -mprefer-vector-width=512 bench/tables.c -o tables && ./tables
 *
 * Backward without a table is at least the multiply-adds of five products, 10 N N D of them a head, at the core's peak,
 * which is measured. A table adds two things: a score gains its bias again, and what scores gain is summed by
 * displacement. Both are timed here alone, on tiles of scores [keys of a row of the grid][queries] in the nearest
 * cache, a row of the grid in whole registers, and printed as shares of the products' time. Sums are made in four ways:
 *
 *     scatter    a pair after the other to its place in a float64 table
 *     rows       registers added where a table by displacement lies in memory, key after key: each reads what the
 *                key before has just written one place beside, which no processor forwards
 *     turns      the same, the rows of queries inside of keys, so that what is read was written long before
 *     diagonals  a row of keys and one of queries at a time, whose displacements are two registers: masked additions
 *                of what lies one place further for each key
 *
 * Where windows share a table (Swin), pairs are summed over them first, "over windows": then any of the four serves
 * them all, once. A head's bias is loaded from a table as long as a row, once for each register. Rows of seven leave
 * more than half of a register idle here: two of them in one would halve what stands beside Swin's.
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LANES = 16, MOST = 14, ROOM = 2 * LANES, RUNS = 201, WINDOWS = 64 };

typedef struct shape {
  const char *name;
  int side, channels, windows; /* of side x side tokens */
} shape;

/* gains[key column][query row][lane]: of one row of keys; of a window, [key row] of these. */
typedef float tile[MOST][MOST][LANES];
static _Alignas(64) struct {
  float before[LANES]; /* read past the first row's begin, and masked */
  tile of[MOST];
} all;
static tile *const gains = all.of;
static _Alignas(64) tile sums[MOST], scores[MOST];
static _Alignas(64) float before[2 * MOST][2 * ROOM], table[2 * MOST][2 * ROOM];
static double wide[2 * MOST][2 * MOST];
static volatile float sink;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the products ---- */

/* Seconds of a multiply-add of a lane. */
static double peak(void) {
  enum { SUMS = 12, TURNS = 200000 };
  double best = 1e9;
  for (int run = 0; run < 15; run++) {
    __m512 sum[SUMS], x = _mm512_set1_ps(1e-9f), y = _mm512_set1_ps(.5f);
    for (int i = 0; i < SUMS; i++) sum[i] = _mm512_set1_ps((float)i); /* alike they would be one */
    double begin = now();
    for (int turn = 0; turn < TURNS; turn++) {
      for (int i = 0; i < SUMS; i++) sum[i] = _mm512_fmadd_ps(x, y, sum[i]);
      __asm__ volatile("" : "+v"(x));
    }
    double took = now() - begin;
    for (int i = 1; i < SUMS; i++) sum[0] = _mm512_add_ps(sum[0], sum[i]);
    sink = _mm512_reduce_add_ps(sum[0]);
    if (took / ((double)TURNS * SUMS * LANES) < best) best = took / ((double)TURNS * SUMS * LANES);
  }
  return best;
}

/* ---- what a table adds ---- */

/* Entry of a key's column with the first lane: tables run against the displacement, in the direction of queries. */
static inline int place(int side, int column) { return side - 1 - column; }

static inline void add(float *to, __m512 x) { _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), x)); }

static void biases(int side) {
  for (int k = 0; k < side; k++)
    for (int c = 0; c < side; c++)
      for (int q = 0; q < side; q++) add(scores[k][c][q], _mm512_loadu_ps(&table[k - q + side - 1][place(side, c)]));
}

static void scatter(int side) {
  for (int k = 0; k < side; k++)
    for (int c = 0; c < side; c++)
      for (int q = 0; q < side; q++)
        for (int i = 0; i < side; i++) wide[k - q + side - 1][place(side, c) + i] += gains[k][c][q][i];
}

static void rows(int side) {
  for (int k = 0; k < side; k++)
    for (int q = 0; q < side; q++)
      for (int c = 0; c < side; c++) add(&before[k - q + side - 1][place(side, c)], _mm512_load_ps(gains[k][c][q]));
}

static void turns(int side) {
  for (int k = 0; k < side; k++)
    for (int c = 0; c < side; c++)
      for (int q = 0; q < side; q++) add(&before[k - q + side - 1][place(side, c)], _mm512_load_ps(gains[k][c][q]));
}

/* The low and the high register of the row's displacements. */
static void diagonals(int side) {
  for (int k = 0; k < side; k++)
    for (int q = 0; q < side; q++) {
      float *to = before[k - q + side - 1];
      __m512 low = _mm512_loadu_ps(to), high = _mm512_loadu_ps(to + LANES);
      for (int c = 0; c < side; c++) {
        int s = place(side, c), mask = ((1 << side) - 1) << s;
        low = _mm512_mask_add_ps(low, (__mmask16)mask, low, _mm512_loadu_ps(gains[k][c][q] - s));
        if (mask >> LANES)
          high = _mm512_mask_add_ps(high, (__mmask16)(mask >> LANES), high,
                                    _mm512_maskz_loadu_ps((__mmask16)(mask >> LANES), gains[k][c][q] + LANES - s));
      }
      _mm512_storeu_ps(to, low);
      _mm512_storeu_ps(to + LANES, high);
    }
}

static void over_windows(int side) {
  for (int k = 0; k < side; k++)
    for (int c = 0; c < side; c++)
      for (int q = 0; q < side; q++) add(sums[k][c][q], _mm512_load_ps(gains[k][c][q]));
}

/* ---- timing ---- */

typedef void work(int side);

static double seconds(work *of, int side) {
  double best = 1e9;
  for (int run = 0; run < RUNS; run++) {
    double begin = now();
    for (int i = 0; i < 16; i++) of(side);
    double took = (now() - begin) / 16;
    if (took < best) best = took;
  }
  return best;
}

/* All ways give what one pair after the other does. */
static void compare(const char *name, work *of, int side) {
  memset(before, 0, sizeof before);
  memset(wide, 0, sizeof wide);
  scatter(side);
  of(side);
  for (int i = 0; i < 2 * side - 1; i++)
    for (int j = 0; j < 2 * side - 1; j++)
      if (before[i][j] - wide[i][j] > 1e-4 || wide[i][j] - before[i][j] > 1e-4) {
        fprintf(stderr, "%s: %g at %d, %d, not %g\n", name, (double)before[i][j], i, j, wide[i][j]);
        exit(1);
      }
}

static void fill(int side) {
  memset(&all, 0, sizeof all);
  memset(scores, 0, sizeof scores);
  for (int k = 0; k < side; k++)
    for (int c = 0; c < side; c++)
      for (int q = 0; q < side; q++)
        for (int i = 0; i < side; i++) gains[k][c][q][i] = (float)(rand() % 1000 - 500) / 1000;
}

static void report(const shape *s, double multiply_add) {
  static const struct {
    const char *name;
    work *of;
  } ways[] = {{"scatter", scatter}, {"rows", rows}, {"turns", turns}, {"diagonals", diagonals}};
  double tokens = (double)s->side * s->side, products = 5 * tokens * tokens * s->channels * multiply_add;
  fill(s->side);
  for (int i = 1; i < 4; i++) compare(ways[i].name, ways[i].of, s->side);
  double of_biases = seconds(biases, s->side), least = 1e9;
  printf("%s: products %.1f us a head at the peak; in shares of that: biases %.3f", s->name, products * 1e6,
         of_biases / products);
  for (int i = 0; i < 4; i++) {
    double took = seconds(ways[i].of, s->side);
    if (took < least) least = took;
    printf(", %s %.3f", ways[i].name, took / products);
  }
  double kept = seconds(over_windows, s->side), shared = (kept + least / s->windows) / products;
  if (s->windows > 1) printf(", over windows %.3f", kept / products);
  double sum = s->windows > 1 && shared < least / products ? shared : least / products;
  printf("; at least %.3f of plain backward\n", 1 + of_biases / products + sum);
}

int main(void) {
  static const shape shapes[] = {{"14x14, 64 channels", 14, 64, 1}, {"Swin 7x7, 32 channels", 7, 32, WINDOWS}};
  double multiply_add = peak();
  for (int i = 0; i < 2; i++) report(&shapes[i], multiply_add);
  return 0;
}
