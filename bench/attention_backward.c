/* attention_backward.c: what gradients of attention cost when written by hand in AVX-512 intrinsics.
 *
 *     cc -O3 -march=x86-64-v4 -mprefer-vector-width=512 bench/attention_backward.c -o attention_backward -lm
 *     ./attention_backward 8
 *
 * [B,12,196,64], float32, one thread: gradients of q, k and v from q, k, v, out, its gradient and lse, without bias or
 * mask, as a share of the multiply-adds that the processor can. Tiles of 32 queries go through tiles of 64 keys, and
 * accumulators are 8 x 2 registers: of scores and of what they gain queries are in the lanes, of the three sums
 * channels are, so that these three waste nothing on 196 = 6 * 32 + 4. The four that are left are rows, too: a product
 * with a key is a sum of lanes, of which 16 are added together. Rows of queries are multiplied where they are, and what
 * is read and written next is asked for between groups of 8 keys. A plain loop in float64 says whether it is right.
 *
 * The next larger accumulators, 14 x 2 (196 = 14 * 14), were no faster, with tiles of 28, 56 and 196 keys.
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HEADS = 12, TOKENS = 196, CHANNELS = 64, LANES = 16, REGISTERS = CHANNELS / LANES, HEAD = TOKENS * CHANNELS };
enum { TILE = 32, KEYS = 64, GROUP = 8, FEW = 4, TURNS = 60, CHAINS = 12, PEAK_TURNS = 1 << 18, ROWS_ASKED = 8 };
static const float SCALE = 0.125f, LOG2_E = 1.44269504f;

/* What is known where the code is made. */
#define INLINE static inline __attribute__((always_inline))
/* A register that is loaded once: else a load is folded into each of its uses. */
#define KEEP(x) __asm__("" : "+v"(x))

typedef float columns[CHANNELS][TILE], pairs[KEYS][TILE];

static _Alignas(64) columns q_columns, g_columns;
static _Alignas(64) pairs weights, turned;
static _Alignas(64) float q_sums[TILE][CHANNELS], key_sums[TOKENS][CHANNELS], value_sums[TOKENS][CHANNELS];
static _Alignas(64) float lse_of[TILE], less_of[TILE], few_weights[TOKENS][FEW], few_turned[TOKENS][FEW];

typedef struct tensors {
  float *q, *k, *v, *out, *g_out, *g_q, *g_k, *g_v, *lse;
} tensors;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- what is asked for ---- */

static const char *asked[ROWS_ASKED];
static long ask_step;

INLINE void ask(void) {
  for (int i = 0; i < ROWS_ASKED; i++, asked[i - 1] += ask_step)
    for (long at = 0; at < ask_step; at += 64) _mm_prefetch(asked[i] + at, _MM_HINT_T1);
}

/* During a head: what the next one reads and its queries gain, and what this one's keys gain. */
static void ask_during(const tensors *t, long head, long heads) {
  long at = head * HEAD, next = head + 1 < heads ? at + HEAD : at;
  const float *of[] = {t->q + next,     t->k + next,   t->v + next, t->out + next,
                       t->g_out + next, t->g_q + next, t->g_k + at, t->g_v + at};
  int groups = (TOKENS + GROUP - 1) / GROUP, calls = 4 * groups * (TOKENS / TILE);
  for (int i = 0; i < ROWS_ASKED; i++) asked[i] = (const char *)of[i];
  ask_step = (HEAD * 4 / calls + 63) & -64;
}

/* ---- numbers ---- */

/* 2^x as kernels compute it, 0 below 2^-100.5. */
INLINE __m512 power_of_two(__m512 x) {
  const float factor = 1 << 26;
  static const float c[] = {0.0013264727f, 0.009671513f, 0.055507336f, 0.24022242f, 0.693147f, 1};
  x = _mm512_max_ps(x, _mm512_set1_ps(-101));
  __m512 rounder = _mm512_set1_ps(0x1.8p23f + 101), shifted = _mm512_add_ps(x, rounder),
         f = _mm512_sub_ps(x, _mm512_sub_ps(shifted, rounder)), sum = _mm512_set1_ps(c[0] * factor);
  for (int i = 1; i < 6; i++) sum = _mm512_fmadd_ps(sum, f, _mm512_set1_ps(c[i] * factor));
  return _mm512_mul_ps(sum, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(shifted), 23)));
}

/* Lane i: the sum of the lanes of x[i], up to the permutation `order`. */
INLINE __m512 added_lanes(__m512 *x) {
  for (int n = 8; n; n /= 2)
    for (int i = 0; i < n; i++) {
      __m512 a = x[2 * i], b = x[2 * i + 1];
      if (n >= 4) x[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
      else if (n == 2) x[i] = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
      else x[i] = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
    }
  return x[0];
}

static __m512i order;

static void find_order(void) {
  int from[LANES];
  float lane[LANES];
  __m512 x[LANES];
  for (int i = 0; i < LANES; i++) x[i] = _mm512_maskz_mov_ps(1, _mm512_set1_ps((float)i));
  _mm512_storeu_ps(lane, added_lanes(x));
  for (int i = 0; i < LANES; i++) from[(int)lane[i]] = i;
  order = _mm512_loadu_si512(from);
}

/* A square of 16 x 16, times a factor, turned. */
INLINE void turn(const float *from, float *to, __m512 factor) {
  __m512 x[LANES], y[LANES];
  for (int i = 0; i < LANES; i++) x[i] = _mm512_mul_ps(_mm512_loadu_ps(from + i * CHANNELS), factor);
  for (int i = 0; i < LANES; i += 2) {
    y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
  }
  for (int i = 0; i < LANES; i++) {
    __m512d a = _mm512_castps_pd(y[i / 4 * 4 + i / 2 % 2]), b = _mm512_castps_pd(y[i / 4 * 4 + i / 2 % 2 + 2]);
    x[i] = _mm512_castpd_ps(i % 2 ? _mm512_unpackhi_pd(a, b) : _mm512_unpacklo_pd(a, b));
  }
  for (int i = 0; i < LANES; i++) {
    int pair = i / 8 * 8 + i % 4;
    y[i] =
        i / 4 % 2 ? _mm512_shuffle_f32x4(x[pair], x[pair + 4], 0xdd) : _mm512_shuffle_f32x4(x[pair], x[pair + 4], 0x88);
  }
  for (int i = 0; i < LANES; i++)
    _mm512_store_ps(to + i * TILE, i / 8 ? _mm512_shuffle_f32x4(y[i % 8], y[i % 8 + 8], 0xdd)
                                         : _mm512_shuffle_f32x4(y[i % 8], y[i % 8 + 8], 0x88));
}

/* ---- a tile of queries ---- */

/* Products of n rows with two registers of queries. */
INLINE void multiply(const float *row, const columns of, int n, __m512 *sums) {
  for (int i = 0; i < 2 * n; i++) sums[i] = _mm512_setzero_ps();
#pragma GCC unroll 2
  for (int c = 0; c < CHANNELS; c++) {
    __m512 low = _mm512_load_ps(of[c]), high = _mm512_load_ps(of[c] + LANES);
    KEEP(low);
    KEEP(high);
    for (int r = 0; r < n; r++) {
      __m512 x = _mm512_set1_ps(row[r * CHANNELS + c]);
      KEEP(x);
      sums[2 * r] = _mm512_fmadd_ps(x, low, sums[2 * r]);
      sums[2 * r + 1] = _mm512_fmadd_ps(x, high, sums[2 * r + 1]);
    }
  }
}

INLINE void weigh(const float *k, int n, float (*to)[TILE]) {
  __m512 sums[2 * GROUP];
  multiply(k, q_columns, n, sums);
  for (int i = 0; i < 2 * n; i++) {
    __m512 lse = _mm512_load_ps(lse_of + i % 2 * LANES);
    _mm512_store_ps(to[i / 2] + i % 2 * LANES, power_of_two(_mm512_sub_ps(sums[i], lse)));
  }
}

INLINE void gain(const float *v, int n, float (*p)[TILE], float (*to)[TILE]) {
  __m512 sums[2 * GROUP];
  multiply(v, g_columns, n, sums);
  for (int i = 0; i < 2 * n; i++) {
    __m512 less = _mm512_load_ps(less_of + i % 2 * LANES), weight = _mm512_load_ps(p[i / 2] + i % 2 * LANES);
    _mm512_store_ps(to[i / 2] + i % 2 * LANES, _mm512_mul_ps(weight, _mm512_sub_ps(sums[i], less)));
  }
}

/* sums [n][64] += weights times rows; weight of sum i and row j: w[i own + j other]. */
INLINE void add(const float *w, ptrdiff_t own, ptrdiff_t other, const float *row, int count, int n, float *sums) {
  for (int half = 0; half < CHANNELS; half += 2 * LANES) {
    __m512 x[2 * GROUP];
    for (int i = 0; i < 2 * n; i++) x[i] = _mm512_load_ps(sums + i / 2 * CHANNELS + half + i % 2 * LANES);
#pragma GCC unroll 2
    for (int j = 0; j < count; j++) {
      const float *at = row + j * CHANNELS + half;
      __m512 low = _mm512_loadu_ps(at), high = _mm512_loadu_ps(at + LANES);
      KEEP(low);
      KEEP(high);
      for (int i = 0; i < n; i++) {
        __m512 factor = _mm512_set1_ps(w[i * own + j * other]);
        KEEP(factor);
        x[2 * i] = _mm512_fmadd_ps(factor, low, x[2 * i]);
        x[2 * i + 1] = _mm512_fmadd_ps(factor, high, x[2 * i + 1]);
      }
    }
    for (int i = 0; i < 2 * n; i++) _mm512_store_ps(sums + i / 2 * CHANNELS + half + i % 2 * LANES, x[i]);
  }
}

/* A group of 8 keys, or of the 4 that are left. */
#define OF_GROUP(left, work) \
  do { \
    if ((left) >= GROUP) { \
      enum { N = GROUP }; \
      work; \
      ask(); \
    } else { \
      enum { N = FEW }; \
      work; \
    } \
  } while (0)

static void open_tile(const float *q, const float *out, const float *g, const float *lse) {
  __m512 one = _mm512_set1_ps(1), scale = _mm512_set1_ps(SCALE * LOG2_E);
  for (int i = 0; i < TILE; i += LANES)
    for (int c = 0; c < CHANNELS; c += LANES) {
      turn(q + i * CHANNELS + c, &q_columns[c][i], scale);
      turn(g + i * CHANNELS + c, &g_columns[c][i], one);
    }
  for (int i = 0; i < TILE; i++) {
    __m512 sum = _mm512_setzero_ps();
    for (int at = i * CHANNELS; at < (i + 1) * CHANNELS; at += LANES)
      sum = _mm512_fmadd_ps(_mm512_loadu_ps(out + at), _mm512_loadu_ps(g + at), sum);
    less_of[i] = _mm512_reduce_add_ps(sum);
    lse_of[i] = lse[i] * LOG2_E;
  }
  memset(q_sums, 0, sizeof q_sums);
}

static void go_through_keys(const float *q, const float *k, const float *v, const float *g) {
  for (int first = 0; first < TOKENS; first += KEYS) {
    int count = TOKENS - first < KEYS ? TOKENS - first : KEYS;
    const float *keys = k + first * CHANNELS, *values = v + first * CHANNELS;
    for (int i = 0; i < count; i += GROUP) OF_GROUP(count - i, weigh(keys + i * CHANNELS, N, weights + i));
    for (int i = 0; i < count; i += GROUP)
      OF_GROUP(count - i, add(weights[i], TILE, 1, g, TILE, N, value_sums[first + i]));
    for (int i = 0; i < count; i += GROUP) OF_GROUP(count - i, gain(values + i * CHANNELS, N, weights + i, turned + i));
    for (int i = 0; i < count; i += GROUP)
      OF_GROUP(count - i, add(turned[i], TILE, 1, q, TILE, N, key_sums[first + i]));
    for (int i = 0; i < TILE; i += GROUP) add(&turned[0][i], 1, TILE, keys, count, GROUP, q_sums[i]);
  }
}

static void store(const float *sums, float *to, int rows_of_sums, float factor) {
  for (int at = 0; at < rows_of_sums * CHANNELS; at += LANES)
    _mm512_storeu_ps(to + at, _mm512_mul_ps(_mm512_load_ps(sums + at), _mm512_set1_ps(factor)));
}

/* ---- the four queries that are left ---- */

/* Products of four keys with them, key by key. */
INLINE __m512 multiply_few(const float *row, __m512 q[FEW][REGISTERS]) {
  __m512 sums[FEW * FEW];
  for (int key = 0; key < FEW; key++)
    for (int c = 0; c < REGISTERS; c++) {
      __m512 x = _mm512_loadu_ps(row + key * CHANNELS + c * LANES);
      KEEP(x);
      for (int i = 0; i < FEW; i++) {
        __m512 *sum = &sums[key * FEW + i];
        *sum = c ? _mm512_fmadd_ps(x, q[i][c], *sum) : _mm512_mul_ps(x, q[i][c]);
      }
    }
  return _mm512_permutexvar_ps(order, added_lanes(sums));
}

static void few_pairs(const float *q, const float *k, const float *v, const float *out, const float *g,
                      const float *lse) {
  __m512 q_rows[FEW][REGISTERS], g_rows[FEW][REGISTERS];
  float lse_lanes[LANES], less_lanes[LANES];
  for (int i = 0; i < FEW; i++) {
    __m512 sum = _mm512_setzero_ps();
    for (int c = 0; c < REGISTERS; c++) {
      int at = i * CHANNELS + c * LANES;
      q_rows[i][c] = _mm512_mul_ps(_mm512_loadu_ps(q + at), _mm512_set1_ps(SCALE * LOG2_E));
      g_rows[i][c] = _mm512_loadu_ps(g + at);
      sum = _mm512_fmadd_ps(g_rows[i][c], _mm512_loadu_ps(out + at), sum);
    }
    for (int lane = i; lane < LANES; lane += FEW) {
      lse_lanes[lane] = lse[i] * LOG2_E;
      less_lanes[lane] = _mm512_reduce_add_ps(sum);
    }
  }
  __m512 lse_of_lanes = _mm512_loadu_ps(lse_lanes), less = _mm512_loadu_ps(less_lanes);
  for (int key = 0; key < TOKENS; key += FEW)
    _mm512_store_ps(few_weights[key],
                    power_of_two(_mm512_sub_ps(multiply_few(k + key * CHANNELS, q_rows), lse_of_lanes)));
  for (int key = 0; key < TOKENS; key += FEW)
    _mm512_store_ps(few_turned[key], _mm512_mul_ps(_mm512_load_ps(few_weights[key]),
                                                   _mm512_sub_ps(multiply_few(v + key * CHANNELS, g_rows), less)));
}

static void few_sums(const float *q, const float *k, const float *g, float *g_q) {
  __m512 x[FEW][REGISTERS];
  int key = 0;
  for (; key + GROUP <= TOKENS; key += GROUP) {
    add(few_weights[key], FEW, 1, g, FEW, GROUP, value_sums[key]);
    add(few_turned[key], FEW, 1, q, FEW, GROUP, key_sums[key]);
  }
  add(few_weights[key], FEW, 1, g, FEW, FEW, value_sums[key]);
  add(few_turned[key], FEW, 1, q, FEW, FEW, key_sums[key]);
  for (int i = 0; i < FEW * REGISTERS; i++) x[i / REGISTERS][i % REGISTERS] = _mm512_setzero_ps();
  for (key = 0; key < TOKENS; key++)
    for (int c = 0; c < REGISTERS; c++) {
      __m512 row = _mm512_loadu_ps(k + key * CHANNELS + c * LANES);
      KEEP(row);
      for (int i = 0; i < FEW; i++) x[i][c] = _mm512_fmadd_ps(_mm512_set1_ps(few_turned[key][i]), row, x[i][c]);
    }
  for (int i = 0; i < FEW * REGISTERS; i++)
    _mm512_storeu_ps(g_q + i * LANES, _mm512_mul_ps(x[i / REGISTERS][i % REGISTERS], _mm512_set1_ps(SCALE)));
}

/* ---- a call ---- */

static void backward(const tensors *t, long heads) {
  for (long head = 0; head < heads; head++) {
    const float *k = t->k + head * HEAD, *v = t->v + head * HEAD, *lse = t->lse + head * TOKENS;
    memset(key_sums, 0, sizeof key_sums);
    memset(value_sums, 0, sizeof value_sums);
    ask_during(t, head, heads);
    for (int i = 0; i < TOKENS; i += TILE) {
      long at = head * HEAD + i * CHANNELS;
      const float *q = t->q + at, *out = t->out + at, *g = t->g_out + at;
      if (i + TILE <= TOKENS) {
        open_tile(q, out, g, lse + i);
        go_through_keys(q, k, v, g);
        store(q_sums[0], t->g_q + at, TILE, SCALE);
      } else {
        few_pairs(q, k, v, out, g, lse + i);
        few_sums(q, k, g, t->g_q + at);
      }
    }
    store(key_sums[0], t->g_k + head * HEAD, TOKENS, SCALE);
    store(value_sums[0], t->g_v + head * HEAD, TOKENS, 1);
  }
}

/* ---- plain loops ---- */

static double dot(const float *x, const float *y) {
  double sum = 0;
  for (int c = 0; c < CHANNELS; c++) sum += (double)x[c] * y[c];
  return sum;
}

static void forward(const tensors *t, long head) {
  const float *k = t->k + head * HEAD, *v = t->v + head * HEAD;
  for (int i = 0; i < TOKENS; i++) {
    const float *q = t->q + head * HEAD + i * CHANNELS;
    double sum = 0, out[CHANNELS] = {0};
    for (int j = 0; j < TOKENS; j++) {
      double p = exp(SCALE * dot(q, k + j * CHANNELS));
      sum += p;
      for (int c = 0; c < CHANNELS; c++) out[c] += p * v[j * CHANNELS + c];
    }
    t->lse[head * TOKENS + i] = (float)log(sum);
    for (int c = 0; c < CHANNELS; c++) t->out[head * HEAD + i * CHANNELS + c] = (float)(out[c] / sum);
  }
}

/* The largest difference from a plain loop, of the largest gradient. */
static double compare(const tensors *t, long head) {
  static double of_q[HEAD], of_k[HEAD], of_v[HEAD];
  const float *q = t->q + head * HEAD, *k = t->k + head * HEAD, *v = t->v + head * HEAD, *g = t->g_out + head * HEAD;
  memset(of_q, 0, sizeof of_q);
  memset(of_k, 0, sizeof of_k);
  memset(of_v, 0, sizeof of_v);
  for (int i = 0; i < TOKENS; i++) {
    double less = dot(t->out + head * HEAD + i * CHANNELS, g + i * CHANNELS);
    for (int j = 0; j < TOKENS; j++) {
      double p = exp(SCALE * dot(q + i * CHANNELS, k + j * CHANNELS) - t->lse[head * TOKENS + i]),
             s = SCALE * p * (dot(g + i * CHANNELS, v + j * CHANNELS) - less);
      for (int c = 0; c < CHANNELS; c++) {
        of_q[i * CHANNELS + c] += s * k[j * CHANNELS + c];
        of_k[j * CHANNELS + c] += s * q[i * CHANNELS + c];
        of_v[j * CHANNELS + c] += p * g[i * CHANNELS + c];
      }
    }
  }
  double most = 0, worst = 0;
  const float *given[] = {t->g_q + head * HEAD, t->g_k + head * HEAD, t->g_v + head * HEAD};
  const double *right[] = {of_q, of_k, of_v};
  for (int n = 0; n < 3; n++)
    for (int i = 0; i < HEAD; i++) {
      most = fmax(most, fabs(right[n][i]));
      worst = fmax(worst, fabs(right[n][i] - given[n][i]));
    }
  return worst / most;
}

/* Flops a second of chains of multiply-adds that do not wait for each other. */
static double peak(void) {
  __m512 chain[CHAINS], factor = _mm512_set1_ps(0.5f);
  for (int i = 0; i < CHAINS; i++) chain[i] = _mm512_set1_ps((float)i);
  double start = now();
  for (int turn = 0; turn < PEAK_TURNS; turn++)
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++) {
      chain[i] = _mm512_fmadd_ps(chain[i], factor, factor);
      KEEP(chain[i]);
    }
  double seconds = now() - start;
  for (int i = 1; i < CHAINS; i++) chain[0] = _mm512_add_ps(chain[0], chain[i]);
  volatile float sum = _mm512_reduce_add_ps(chain[0]); /* of all chains, or they are left out */
  (void)sum;
  return 2.0 * LANES * CHAINS * PEAK_TURNS / seconds;
}

static int by_size(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

int main(int argc, char **argv) {
  long batches = argc > 1 ? atol(argv[1]) : 8, heads = batches * HEADS;
  if (batches < 1 || batches > 1024) {
    fprintf(stderr, "attention_backward [BATCHES]: 1 to 1024 batches were expected\n");
    return 2;
  }
  size_t numbers = (size_t)heads * HEAD;
  float *room[8];
  for (int i = 0; i < 8; i++) {
    room[i] = aligned_alloc(64, numbers * 4);
    for (size_t j = 0; j < numbers; j++) room[i][j] = (float)drand48() * 2 - 1;
  }
  float *lse = malloc((size_t)(heads * TOKENS) * 4);
  tensors t = {room[0], room[1], room[2], room[3], room[4], room[5], room[6], room[7], lse};
  double share[TURNS], best = 0, worst = 0, flops = 10.0 * (double)heads * TOKENS * TOKENS * CHANNELS;
  find_order();
  for (long head = 0; head < heads; head++) forward(&t, head);
  for (int turn = 0; turn < TURNS; turn++) {
    double start = now();
    backward(&t, heads);
    double seconds = now() - start;
    share[turn] = flops / seconds / peak(); /* the clock is not the same from turn to turn */
    if (!turn || seconds < best) best = seconds;
  }
  qsort(share, TURNS, sizeof *share, by_size);
  for (long head = 0; head < heads; head += heads - 1) worst = fmax(worst, compare(&t, head));
  printf("[%ld,%d,%d,%d] %.3f ms at best; of the multiply-adds' peak .%02.0f in the median turn, .%02.0f to .%02.0f in "
         "half of them; off by %.1e of the largest\n",
         batches, HEADS, TOKENS, CHANNELS, best * 1e3, share[TURNS / 2] * 100, share[TURNS / 4] * 100,
         share[3 * TURNS / 4] * 100, worst);
  return worst < 1e-5 ? 0 : 1;
}
