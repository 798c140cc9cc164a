/* torques.c: what encode's backward with gradients of operands takes when written by hand, as a multiple of forward.
 *
 *     cc -O3 -march=x86-64-v4 -mprefer-vector-width=512 bench/torques.c -o torques && ./torques 196 && ./torques 4096
 *
 * [8,N,12,64], float32, q and k in one call, eight batches with the same positions. Forward turns rows in place.
 * Backward reads what forward wrote, y, and the gradient ybar, writes xbar over ybar, and sums torques: the products of
 * y with what the rows' matrix has permuted of ybar, one multiply-add a channel for planes and two for blocks of three,
 * over the rows that share a rotor. Rotors cost nothing here, and of torques nothing comes but their sums by token (and
 * head): a kernel that builds the ones and goes on from the others to operands cannot be faster.
 *
 * Each is walked in several ways, that of compiled kernels among them, and the fastest counts: tiles of tokens, whose
 * coefficients and sums lie in scratch, of all batches together or one after the other, with rows asked for ahead or
 * not. Coefficients are those of the identity, so that what is read stays what it is; values are small integers, and
 * sums are compared with those of a plain loop, to the bit.
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { BATCHES = 8, HEADS = 12, CHANNELS = 64, LANES = 16, VECTORS = CHANNELS / LANES, TOKEN = HEADS * CHANNELS };
enum { MOST_TERMS = 2, MOST_TILE = 128, MOST_ROTORS = MOST_TILE * HEADS, HUGE_PAGE = 2 << 20, RUNS = 101, VALUES = 9 };

/* What turns: planes (x[c ^ 1]) or blocks of three (x[c + 1] and x[c + 2] within the block). */
typedef enum block { NOTHING, PLANES, TRIPLES } block;
static const char *const block_name[] = {"scaling, y read", "planes", "blocks of 3"};

typedef struct order {
  const char *name;
  int tile, together, ahead; /* tokens, batches, bytes */
  bool apart; /* a tile's rows of q, then those of k; else both rotor by rotor */
} order;

/* What is turned, and how, is known where rows are walked. */
#define INLINE static inline __attribute__((always_inline))

typedef float vectors[(MOST_TERMS + 1) * VECTORS][LANES];
static _Alignas(64) vectors rotor[MOST_ROTORS];
static _Alignas(64) float torque[MOST_ROTORS][MOST_TERMS * VECTORS][LANES];
static float *gradient[2], *kept[2]; /* of q, of k: what forward turns in place, too */
static long tokens;

/* ---- a row ---- */

/* Lanes of x[term][vector]: blocks of three reach one channel into each neighbour of the second vector. */
static __m512i lanes_of[MOST_TERMS][VECTORS], lanes_beyond[MOST_TERMS];

static int source_of(block of, int term, int channel) {
  if (of == PLANES) return channel ^ 1;
  int base = channel - channel % 3;
  return base + 3 <= CHANNELS ? base + (channel - base + term + 1) % 3 : channel; /* the last one passes through */
}

/* The other vector that a permutation of two reads: the second vector is done in two steps. */
static int neighbour_of(int vector) { return vector == 0 || vector == 2 ? 1 : vector; }

static void lay_permutations(void) {
  for (int term = 0; term < MOST_TERMS; term++) {
    for (int j = 0; j < VECTORS; j++) {
      int lanes[LANES], beyond[LANES], first = j == 1 ? 0 : j, second = j == 1 ? 1 : neighbour_of(j);
      for (int i = 0; i < LANES; i++) {
        int from = source_of(TRIPLES, term, j * LANES + i), vector = from / LANES;
        lanes[i] = vector == first ? from % LANES : vector == second ? LANES + from % LANES : 0;
        beyond[i] = j == 1 && vector == 2 ? LANES + from % LANES : i;
      }
      lanes_of[term][j] = _mm512_loadu_si512(lanes);
      if (j == 1) lanes_beyond[term] = _mm512_loadu_si512(beyond);
    }
  }
}

INLINE __m512 permuted(block of, const __m512 *x, int term, int j) {
  if (of == PLANES) return _mm512_permute_ps(x[j], 0xb1);
  if (j == 3) return _mm512_permutexvar_ps(lanes_of[term][j], x[j]);
  if (j != 1) return _mm512_permutex2var_ps(x[j], lanes_of[term][j], x[neighbour_of(j)]);
  return _mm512_permutex2var_ps(_mm512_permutex2var_ps(x[0], lanes_of[term][1], x[1]), lanes_beyond[term], x[2]);
}

/* x: loaded once, or a load would be folded into all of its uses. */
INLINE void load_row(const float *row, __m512 *x) {
  for (int j = 0; j < VECTORS; j++) {
    x[j] = _mm512_load_ps(row + j * LANES);
    __asm__("" : "+v"(x[j]));
  }
}

INLINE int terms_of(block of) { return of == NOTHING ? 0 : of == PLANES ? 1 : 2; }

/* row = A row, in place; backward: sums += y P_term row of each term. */
INLINE void turn_row(block of, bool backward, const __m512 *a, float *row, const float *y, int ahead, __m512 *sums) {
  __m512 x[VECTORS], out[VECTORS];
  for (int line = 0; ahead && line < VECTORS; line++) {
    _mm_prefetch((const char *)(row + line * LANES) + ahead, _MM_HINT_T0);
    if (backward) _mm_prefetch((const char *)(y + line * LANES) + ahead, _MM_HINT_T0);
  }
  load_row(row, x);
  for (int j = 0; j < VECTORS; j++) {
    out[j] = _mm512_mul_ps(a[j], x[j]);
    if (of == NOTHING && backward) out[j] = _mm512_fmadd_ps(a[VECTORS], _mm512_load_ps(y + j * LANES), out[j]);
    for (int term = 0; term < terms_of(of); term++) {
      __m512 other = permuted(of, x, term, j), *sum = &sums[term * VECTORS + j];
      out[j] = _mm512_fmadd_ps(a[(term + 1) * VECTORS + j], other, out[j]);
      if (backward) *sum = _mm512_fmadd_ps(_mm512_load_ps(y + j * LANES), other, *sum);
    }
  }
  for (int j = 0; j < VECTORS; j++) _mm512_store_ps(row + j * LANES, out[j]);
}

/* ---- walks ---- */

INLINE int slots_of(block of) { return terms_of(of) * VECTORS; }

INLINE void load_rotor(block of, int which, __m512 *a) {
  for (int i = 0; i < slots_of(of) + VECTORS + (of == NOTHING); i++) a[i] = _mm512_load_ps(rotor[which][i]);
}

INLINE void add_torques(block of, int which, const __m512 *sums) {
  for (int i = 0; i < slots_of(of); i++)
    _mm512_store_ps(torque[which][i], _mm512_add_ps(_mm512_load_ps(torque[which][i]), sums[i]));
}

/* Rotates by one rotor `heads` rows of tensors [first, last). */
INLINE void turn_rows(block of, bool backward, const order *o, int which, long at, int heads, int first, int last) {
  __m512 a[(MOST_TERMS + 1) * VECTORS], sums[MOST_TERMS * VECTORS];
  load_rotor(of, which, a);
  for (int i = 0; i < slots_of(of); i++) sums[i] = _mm512_setzero_ps();
  for (int tensor = first; tensor < last; tensor++)
    for (long row = at; row < at + (long)heads * CHANNELS; row += CHANNELS)
      turn_row(of, backward, a, gradient[tensor] + row, kept[tensor] + row, o->ahead, sums);
  if (backward) add_torques(of, which, sums);
}

INLINE void turn_tokens(block of, bool backward, bool shared, const order *o, int batch, long begin, long end) {
  int parts = o->apart ? 2 : 1, rotors = shared ? 1 : HEADS, heads = HEADS / rotors;
  for (int part = 0; part < parts; part++)
    for (long t = begin; t < end; t++)
      for (int r = 0; r < rotors; r++)
        turn_rows(of, backward, o, (int)(t - begin) * rotors + r, (batch * tokens + t) * TOKEN + (long)r * CHANNELS,
                  heads, part, part + 3 - parts);
}

INLINE void walk(block of, bool backward, bool shared, const order *o) {
  for (int batch = 0; batch < BATCHES; batch += o->together)
    for (long begin = 0; begin < tokens; begin += o->tile) {
      long end = begin + o->tile < tokens ? begin + o->tile : tokens;
      if (backward) memset(torque, 0, (size_t)(end - begin) * (shared ? 1 : HEADS) * sizeof *torque);
      for (int b = batch; b < batch + o->together; b++) turn_tokens(of, backward, shared, o, b, begin, end);
    }
}

typedef void walk_function(const order *o);
#define WALK(name, of, backward, shared) \
  static __attribute__((noinline)) void name(const order *o) { walk(of, backward, shared, o); }
#define WALKS(of, block) \
  WALK(of##_forward_shared, block, false, true) \
  WALK(of##_backward_shared, block, true, true) \
  WALK(of##_forward_heads, block, false, false) \
  WALK(of##_backward_heads, block, true, false)
WALKS(nothing, NOTHING)
WALKS(planes, PLANES)
WALKS(triples, TRIPLES)

/* [block][shared][backward] */
#define ROW(of) \
  { \
    {of##_forward_heads, of##_backward_heads}, { of##_forward_shared, of##_backward_shared } \
  }
static walk_function *const walks[3][2][2] = {ROW(nothing), ROW(planes), ROW(triples)};

static const order of_shared[] = {{"in order of memory", 1, 1, 0, false},
                                  {"in order of memory, 4 KiB ahead", 1, 1, 4096, false},
                                  {"128 tokens of q, then of k", 128, 1, 0, true},
                                  {"128 tokens, of all batches", 128, BATCHES, 0, false},
                                  {"128 tokens, of all batches, 4 KiB ahead", 128, BATCHES, 4096, false}};
static const order of_heads[] = {{"2 tokens, of all batches", 2, BATCHES, 0, false},
                                 {"2 tokens, of all batches, 1.5 KiB ahead", 2, BATCHES, 1536, false},
                                 {"1 token, of all batches, 1.5 KiB ahead", 1, BATCHES, 1536, false},
                                 {"1 token of q, then of k, of all batches, 3 KiB ahead", 1, BATCHES, 3072, true},
                                 {"4 tokens of q, then of k, of all batches, 4 KiB ahead", 4, BATCHES, 4096, true}};
enum { ORDERS = sizeof of_shared / sizeof *of_shared };
_Static_assert(sizeof of_heads == sizeof of_shared, "as many orders of either");

/* ---- data ---- */

/* Small integers, whose sums are exact: another one of each channel, row and tensor. */
static float value_at(long i, int tensor) { return (float)((i * 5 + i / CHANNELS * 7 + tensor * 2L) % VALUES - 4); }

static float *allocate(long count, int tensor) {
  size_t room = sizeof(float) * (size_t)count + 2 * (size_t)HUGE_PAGE;
  char *memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    perror("mmap");
    exit(1);
  }
  madvise(memory, room, MADV_HUGEPAGE);
  float *data = (float *)(((size_t)memory + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1));
  for (long i = 0; i < count; i++) data[i] = value_at(i, tensor);
  return data;
}

/* 1 in every run; volatile, or a compiler would know what scaling by 1 does. */
static volatile float one = 1;

static void lay_rotors(void) {
  for (int r = 0; r < MOST_ROTORS; r++)
    for (int i = 0; i < (MOST_TERMS + 1) * VECTORS * LANES; i++) ((float *)rotor[r])[i] = i < CHANNELS ? one : 0;
}

static void refuse(block of, const order *o, const char *what, int channel) {
  fprintf(stderr, "%s, %s: a %s is wrong in channel %d\n", block_name[of], o->name, what, channel);
  exit(1);
}

/* Sums of the last tile's first rotor, and rows as they were, after a walk backward. */
static void check(block of, bool shared, const order *o) {
  long last = (tokens - 1) / o->tile * o->tile;
  for (int term = 0; term < terms_of(of); term++)
    for (int c = 0; c < CHANNELS; c++) {
      float sum = 0;
      for (int tensor = 0; tensor < 2; tensor++)
        for (int b = BATCHES - o->together; b < BATCHES; b++)
          for (int h = 0; h < (shared ? HEADS : 1); h++) {
            long row = (b * tokens + last) * TOKEN + (long)h * CHANNELS;
            if (gradient[tensor][row + c] != value_at(row + c, tensor)) refuse(of, o, "row", c);
            sum += kept[tensor][row + c] * gradient[tensor][row + source_of(of, term, c)];
          }
      if (torque[0][term * VECTORS + c / LANES][c % LANES] != sum) refuse(of, o, "torque", c);
    }
}

/* ---- measuring ---- */

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

/* Every way in turns, each after a call that is not timed; medians. */
static void measure(block of, bool shared) {
  static double sample[2][ORDERS][RUNS];
  const order *orders = shared ? of_shared : of_heads;
  const int runs = tokens < 1024 ? RUNS : RUNS / 9;
  for (int run = 0; run < runs; run++)
    for (int i = 0; i < ORDERS; i++)
      for (int backward = 0; backward < 2; backward++) {
        walks[of][shared][backward](&orders[i]);
        double begin = seconds();
        walks[of][shared][backward](&orders[i]);
        sample[backward][i][run] = seconds() - begin;
        if (backward && run == 0) check(of, shared, &orders[i]);
      }
  int best[2] = {0, 0};
  for (int backward = 0; backward < 2; backward++)
    for (int i = 0; i < ORDERS; i++) {
      qsort(sample[backward][i], (size_t)runs, sizeof(double), ascending);
      if (sample[backward][i][runs / 2] < sample[backward][best[backward]][runs / 2]) best[backward] = i;
    }
  double forward = sample[0][best[0]][runs / 2], back = sample[1][best[1]][runs / 2];
  printf("%s, %s: forward %.1f us  backward %.1f us  %.2f\n", block_name[of],
         shared ? "heads share rotors" : "heads have rotors of their own", 1e6 * forward, 1e6 * back, back / forward);
  for (int i = 0; i < ORDERS; i++)
    printf("  %-52s %8.1f%c %8.1f%c\n", orders[i].name, 1e6 * sample[0][i][runs / 2], i == best[0] ? '*' : ' ',
           1e6 * sample[1][i][runs / 2], i == best[1] ? '*' : ' ');
}

int main(int count, char **arguments) {
  tokens = count > 1 ? strtol(arguments[1], NULL, 10) : 196;
  if (tokens < 1 || tokens > 1 << 20) {
    fprintf(stderr, "usage: torques [TOKENS]\n");
    return 2;
  }
  for (int tensor = 0; tensor < 2; tensor++) {
    gradient[tensor] = allocate(BATCHES * tokens * TOKEN, tensor);
    kept[tensor] = allocate(BATCHES * tokens * TOKEN, tensor + 2);
  }
  lay_permutations();
  lay_rotors();
  printf("[%d,%ld,%d,%d]\n", BATCHES, tokens, HEADS, CHANNELS);
  for (int of = NOTHING; of <= TRIPLES; of++)
    for (int shared = 1; shared >= 0; shared--) measure(of, shared);
  return 0;
}
