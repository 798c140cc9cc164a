/* rotors.c: what rows whose rotors differ from head to head reach when written by hand, as a share of plain scaling.
 *
 *     cc -O3 -march=x86-64-v4 -mprefer-vector-width=512 bench/rotors.c -lm -o rotors && ./rotors
 *
 * q and k of [8,196,12,64] in place; every head has rotors of its own, which serve eight batches. The rotors of one or
 * two tokens are built, then their rows are walked, `together` batches of q and of k at a time while a head's
 * coefficients are in registers: the order of compiled kernels is one batch at a time. "rows" have their coefficients
 * for nothing, "with rotors" build them from a position and learned frequencies: 32 turns of planes a head, phases in
 * float64, sines and cosines in float32, as accurate as those of kernels; of blocks of eight two turns a block, their
 * product as a quaternion, its matrix laid out in three terms; of blocks of 3, QuatRo's, two turns a block, too, but in
 * float64 up to the quaternion, so that entries are within 2^-22 at positions up to 10^6, as kernels' are (it is
 * measured and printed): float32 sines of half angles are not enough. "Rows asked for": requests of rows while their
 * rotors are built, when memory has nothing else to do. Channels hold ones; what blocks of eight do to them is of no
 * meaning, the operations are the ones that count.
 *
 * Then one batch, [1,196,12,64] in place, whose heads share a token's rotor: with coefficients for nothing, and with
 * the rotor built before the token's rows, for planes and for blocks of eight as CARE turns them in two axes.
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { BATCHES = 8, TOKENS = 196, GRID = 14, HEADS = 12, CHANNELS = 64, LANES = 16, VECTORS = CHANNELS / LANES };
enum { PLANES = CHANNELS / 2, TERMS = 3, MOST_TOKENS = 2, HUGE_PAGE = 2 << 20, RUNS = 101 };
static const long BATCH = (long)TOKENS * HEADS * CHANNELS;

/* 1 in every run; volatile, or a compiler would know what scaling by 1 does. */
static volatile float one = 1;

typedef float coefficients[TERMS * VECTORS][LANES];
static _Alignas(64) coefficients rotor[MOST_TOKENS * HEADS];
static _Alignas(64) double frequency[HEADS][2][PLANES];
static float *q, *k;
static __m512i rot[2];

/* ---- a rotor: 32 angles ---- */

static inline __m512 all(double x) { return _mm512_set1_ps((float)x); }

/* c[0] + x (c[1] + ...). */
static inline __m512 polynomial(__m512 x, const double *c, int count) {
  __m512 sum = all(c[count - 1]);
  for (int i = count - 2; i >= 0; i--) sum = _mm512_fmadd_ps(sum, x, all(c[i]));
  return sum;
}

/* Cosines and sines of 16 phases in quarter turns, x f[0] + y f[1]. */
static inline void turns(const double *fx, const double *fy, double x, double y, __m512 *c, __m512 *s) {
  static const double sine[] = {-4.371139006309477e-08, -0.6459634774822325, 0.07967967137586274,
                                -0.004600198280269498};
  static const double cosine[] = {1.0, -1.2337005433534842, 0.2536692440299347, -0.020860288508130834,
                                  0.000904021670403158};
  const __m512d rounder = _mm512_set1_pd(0x1.8p52);
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  __m512d shifted[2];
  __m256 fraction[2];
  for (int i = 0; i < 2; i++) {
    __m512d of_y = _mm512_mul_pd(_mm512_set1_pd(y), _mm512_load_pd(fy + 8 * i));
    __m512d phase = _mm512_fmadd_pd(_mm512_set1_pd(x), _mm512_load_pd(fx + 8 * i), of_y);
    shifted[i] = _mm512_add_pd(phase, rounder);
    fraction[i] = _mm512_cvtpd_ps(_mm512_sub_pd(phase, _mm512_sub_pd(shifted[i], rounder)));
  }
  __m512 f = _mm512_insertf32x8(_mm512_castps256_ps512(fraction[0]), fraction[1], 1), square = _mm512_mul_ps(f, f);
  __m512i quadrant = _mm512_permutex2var_epi32(_mm512_castpd_si512(shifted[0]), even, _mm512_castpd_si512(shifted[1]));
  __m512 of_sine = _mm512_fmadd_ps(f, all(1.5707963705062866), _mm512_mul_ps(f, polynomial(square, sine, 4)));
  __m512 of_cosine = polynomial(square, cosine, 5);
  __mmask16 odd = _mm512_test_epi32_mask(quadrant, _mm512_set1_epi32(1));
  const __m512i sign = _mm512_set1_epi32((int)0x80000000), up = _mm512_slli_epi32(quadrant, 30);
  __m512i s_sign = _mm512_and_si512(up, sign);
  __m512i c_sign = _mm512_and_si512(_mm512_add_epi32(up, _mm512_set1_epi32(0x40000000)), sign);
  *s = _mm512_xor_ps(_mm512_mask_blend_ps(odd, of_sine, of_cosine), _mm512_castsi512_ps(s_sign));
  *c = _mm512_xor_ps(_mm512_mask_blend_ps(odd, of_cosine, of_sine), _mm512_castsi512_ps(c_sign));
}

static void build(int token, int head, coefficients out) {
  const __m512i low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  const __m512 minus = _mm512_castsi512_ps(_mm512_set1_epi64(0x80000000));
  double x = token / GRID, y = token % GRID; /* NOLINT(bugprone-integer-division): coordinates of a grid */
  for (int i = 0; i < 2; i++) {
    __m512 c, s;
    turns(frequency[head][0] + i * LANES, frequency[head][1] + i * LANES, x, y, &c, &s);
    _mm512_store_ps(out[2 * i], _mm512_permutexvar_ps(low, c));
    _mm512_store_ps(out[2 * i + 1], _mm512_permutexvar_ps(high, c));
    _mm512_store_ps(out[VECTORS + 2 * i], _mm512_xor_ps(_mm512_permutexvar_ps(low, s), minus));
    _mm512_store_ps(out[VECTORS + 2 * i + 1], _mm512_xor_ps(_mm512_permutexvar_ps(high, s), minus));
  }
}

/* ---- a rotor: 8 products of two turns ---- */

/* Learned unit axes of 8 blocks, and what their products are made of. */
static _Alignas(64) float axes[2][3][8], dots[8], crosses[3][8];
static _Alignas(64) double eights_frequency[2][LANES]; /* lanes 0 to 7 turn about the first axes, 8 to 15 the second */
static __m512i term[TERMS]; /* where two blocks' channels find their entries among a matrix's nine and a one */

#define MUL _mm256_mul_ps
#define FMA _mm256_fmadd_ps

/* Quaternions of 8 blocks: (c0 + s0 a) (c1 + s1 b). */
static inline void product(__m512 c, __m512 s, __m256 *w, __m256 v[3]) {
  __m256 c0 = _mm512_castps512_ps256(c), c1 = _mm512_extractf32x8_ps(c, 1);
  __m256 s0 = _mm512_castps512_ps256(s), s1 = _mm512_extractf32x8_ps(s, 1), both = MUL(s0, s1);
  __m256 of_a = MUL(s0, c1), of_b = MUL(c0, s1);
  *w = _mm256_fnmadd_ps(both, _mm256_load_ps(dots), MUL(c0, c1));
  for (int i = 0; i < 3; i++)
    v[i] = FMA(of_a, _mm256_load_ps(axes[0][i]),
               FMA(of_b, _mm256_load_ps(axes[1][i]), MUL(both, _mm256_load_ps(crosses[i]))));
}

/* Rows of 8 floats to columns: lane b of row e becomes lane e of out[b]. */
static inline void transpose(const __m256 row[8], float out[8][LANES]) {
  __m256 pair[8], four[8];
  for (int i = 0; i < 8; i += 2) {
    pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
    pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; j++) {
      four[i + 2 * j] = _mm256_shuffle_ps(pair[i + j], pair[i + 2 + j], 0x44);
      four[i + 2 * j + 1] = _mm256_shuffle_ps(pair[i + j], pair[i + 2 + j], 0xee);
    }
  for (int i = 0; i < 4; i++) {
    _mm256_store_ps(out[i], _mm256_permute2f128_ps(four[i], four[i + 4], 0x20));
    _mm256_store_ps(out[i + 4], _mm256_permute2f128_ps(four[i], four[i + 4], 0x31));
  }
}

static inline void build_eights(int token, coefficients out) {
  static _Alignas(64) float entry[8][LANES]; /* of a block: eight of the nine, the ninth, a one */
  double x = token / GRID, y = token % GRID; /* NOLINT(bugprone-integer-division): coordinates of a grid */
  __m512 c, s;
  __m256 w, v[3], row[8], two = _mm256_set1_ps(2), unit = _mm256_set1_ps(one);
  turns(eights_frequency[0], eights_frequency[1], x, y, &c, &s);
  product(c, s, &w, v);
  __m256 x2 = MUL(two, v[0]), y2 = MUL(two, v[1]), z2 = MUL(two, v[2]);
  __m256 xx = MUL(x2, v[0]), yy = MUL(y2, v[1]), zz = MUL(z2, v[2]), wz = MUL(z2, w), wy = MUL(y2, w), wx = MUL(x2, w);
  row[0] = _mm256_sub_ps(unit, _mm256_add_ps(yy, zz));
  row[1] = _mm256_fmsub_ps(x2, v[1], wz);
  row[2] = FMA(x2, v[2], wy);
  row[3] = FMA(x2, v[1], wz);
  row[4] = _mm256_sub_ps(unit, _mm256_add_ps(xx, zz));
  row[5] = _mm256_fmsub_ps(y2, v[2], wx);
  row[6] = _mm256_fmsub_ps(x2, v[2], wy);
  row[7] = FMA(y2, v[2], wx);
  transpose(row, entry);
  _Alignas(32) float ninth[8];
  _mm256_store_ps(ninth, _mm256_sub_ps(unit, _mm256_add_ps(xx, yy)));
  for (int b = 0; b < 8; b++) entry[b][8] = ninth[b], entry[b][9] = one;
  for (int j = 0; j < VECTORS; j++) {
    __m512 first = _mm512_load_ps(entry[2 * j]), second = _mm512_load_ps(entry[2 * j + 1]);
    for (int t = 0; t < TERMS; t++)
      _mm512_store_ps(out[t * VECTORS + j], _mm512_permutex2var_ps(first, term[t], second));
  }
}

static void begin_eights(void) {
  /* Channels 1, e1, e2, e3, e12, e13, e23, e123: the scalar kinds pass, vectors and bivectors turn. */
  static const int of[TERMS][8] = {{9, 0, 4, 8, 0, 4, 8, 9}, {10, 1, 5, 6, 1, 5, 6, 10}, {10, 2, 3, 7, 2, 3, 7, 10}};
  int index[LANES];
  for (int t = 0; t < TERMS; t++) {
    for (int i = 0; i < LANES; i++) index[i] = of[t][i % 8] + (i < 8 ? 0 : LANES);
    term[t] = _mm512_loadu_si512(index);
  }
  for (int b = 0; b < 8; b++) {
    const float a[3] = {.6f, .8f, 0}, c[3] = {b % 2 ? .6f : 0, b % 2 ? 0 : .6f, .8f};
    dots[b] = 0;
    for (int i = 0; i < 3; i++) {
      axes[0][i][b] = a[i], axes[1][i][b] = c[i], dots[b] += a[i] * c[i];
      crosses[i][b] = a[(i + 1) % 3] * c[(i + 2) % 3] - a[(i + 2) % 3] * c[(i + 1) % 3];
    }
    eights_frequency[0][b] = .1 + .03 * b, eights_frequency[1][8 + b] = .2 - .01 * b;
  }
}

/* ---- a rotor: 21 products of two turns, of blocks of 3 ---- */

/* Data of a head and an axis: half turns of half the angle a unit of position; unit axes and what their products are
 * made of. Blocks 21 to 23 are empty and do not turn: the channel that is left over passes as the first of them. */
enum { THREES = 24, EIGHT = 8 };
typedef struct threes {
  _Alignas(64) double frequency[2][THREES], axes[2][3][THREES], dot[THREES], cross[3][THREES];
} threes;
static threes learned[HEADS];
static __m512i of_block[VECTORS]; /* where a vector's channels find their block */
static __m512i spread[VECTORS][3][2]; /* where they find x, y and z of it in turn: of x and y, of those and z */
static __m512i mixed[VECTORS][2]
                    [2]; /* and the channels that they mix with: of a vector and the last, of those and the next */

static inline __m512d polynomial_64(__m512d x, const double *c, int count) {
  __m512d sum = _mm512_set1_pd(c[count - 1]);
  for (int i = count - 2; i >= 0; i--) sum = _mm512_fmadd_pd(sum, x, _mm512_set1_pd(c[i]));
  return sum;
}

/* Cosines and sines of 8 phases in half turns, both of either sign, within 2^-28: errors of half angles count twice. */
static inline void folded(const double *frequency, double position, __m512d *c, __m512d *s) {
  static const double sine[] = {3.1415925800444833, -5.167706878910712, 2.5500313770164156, -0.5980451725106194,
                                0.07722012572797149};
  static const double cosine[] = {0.99999999978066,    -4.934802137228911, 4.058709164351962,
                                  -1.3352120567237669, 0.2349375590661747, -0.02439671660860726};
  const __m512d rounder = _mm512_set1_pd(0x1.8p52), x = _mm512_set1_pd(position), y = _mm512_load_pd(frequency);
  __m512d f = _mm512_fmsub_pd(x, y, _mm512_sub_pd(_mm512_fmadd_pd(x, y, rounder), rounder)), square = f * f;
  *s = f * polynomial_64(square, sine, 5);
  *c = polynomial_64(square, cosine, 6);
}

/* Quaternions of 8 blocks from `at` on: (c0 + s0 a) (c1 + s1 b). */
static inline void product_64(int head, int at, double x, double y, __m256 q[4]) {
  __m512d c0, s0, c1, s1;
  folded(learned[head].frequency[0] + at, x, &c0, &s0);
  folded(learned[head].frequency[1] + at, y, &c1, &s1);
  __m512d both = s0 * s1, of_a = s0 * c1, of_b = c0 * s1;
  q[3] = _mm512_cvtpd_ps(_mm512_fnmadd_pd(both, _mm512_load_pd(learned[head].dot + at), c0 * c1));
  for (int i = 0; i < 3; i++) {
    __m512d sum = _mm512_fmadd_pd(of_b, _mm512_load_pd(learned[head].axes[1][i] + at),
                                  both * _mm512_load_pd(learned[head].cross[i] + at));
    q[i] = _mm512_cvtpd_ps(_mm512_fmadd_pd(of_a, _mm512_load_pd(learned[head].axes[0][i] + at), sum));
  }
}

/* A vector's coefficients of 16 blocks' quaternions x, y, z, w. */
static inline void threes_vector(int j, const __m512 q[4], coefficients out) {
  __m512 x[3], unit = all(one), two = all(2), w = two * _mm512_permutexvar_ps(of_block[j], q[3]);
  for (int i = 0; i < 3; i++) /* x_c, x_c+1 and x_c+2 of a block's channel c */
    x[i] = _mm512_permutex2var_ps(_mm512_permutex2var_ps(q[0], spread[j][i][0], q[1]), spread[j][i][1], q[2]);
  __m512 y2 = two * x[1], z2 = two * x[2];
  _mm512_store_ps(out[j], _mm512_fnmadd_ps(z2, x[2], _mm512_fnmadd_ps(y2, x[1], unit)));
  _mm512_store_ps(out[VECTORS + j], _mm512_fmsub_ps(x[0], y2, w * x[2]));
  _mm512_store_ps(out[2 * VECTORS + j], _mm512_fmadd_ps(x[0], z2, w * x[1]));
}

static inline void build_threes_at(double x, double y, int head, coefficients out) {
  __m256 q[3][4];
  __m512 first[4], second[4];
  for (int i = 0; i < 3; i++) product_64(head, i * EIGHT, x, y, q[i]);
  for (int i = 0; i < 4; i++) {
    first[i] = _mm512_insertf32x8(_mm512_castps256_ps512(q[0][i]), q[1][i], 1);
    second[i] = _mm512_castps256_ps512(q[2][i]);
  }
  for (int j = 0; j < VECTORS; j++) threes_vector(j, j < 3 ? first : second, out);
}

static inline void build_threes(int token, int head, coefficients out) {
  build_threes_at(token / GRID, token % GRID, head, out); /* NOLINT(bugprone-integer-division): coordinates of a grid */
}

static void place_threes(int j) {
  int at[3][2][LANES], block[LANES], other[2][2][LANES];
  for (int l = 0; l < LANES; l++) {
    int channel = j * LANES + l, b = channel / 3 % LANES;
    block[l] = b;
    for (int i = 0; i < 3; i++) {
      int component = (channel + i) % 3;
      at[i][0][l] = component == 1 ? LANES + b : b;
      at[i][1][l] = component == 2 ? LANES + b : l;
    }
    for (int t = 0; t < 2; t++) {
      int source = channel == CHANNELS - 1 ? l : channel / 3 * 3 + (channel + t + 1) % 3 - j * LANES;
      other[t][0][l] = source < 0 ? 2 * LANES + source : source < LANES ? source : 0;
      other[t][1][l] = source >= LANES ? source : l;
    }
  }
  of_block[j] = _mm512_loadu_si512(block);
  for (int i = 0; i < 3; i++)
    for (int k = 0; k < 2; k++) spread[j][i][k] = _mm512_loadu_si512(at[i][k]);
  for (int t = 0; t < 2; t++)
    for (int k = 0; k < 2; k++) mixed[j][t][k] = _mm512_loadu_si512(other[t][k]);
}

static void begin_threes(void) {
  for (int h = 0; h < HEADS; h++)
    for (int b = 0; b < CHANNELS / 3; b++) {
      double tilt = .1 * h + .2 * b, a[3] = {cos(tilt), sin(tilt), 0}, c[3] = {0, .6, .8};
      learned[h].frequency[0][b] = .05 + .01 * b + .02 * h;
      learned[h].frequency[1][b] = .11 - .004 * b + .03 * h;
      for (int i = 0; i < 3; i++) {
        learned[h].axes[0][i][b] = a[i], learned[h].axes[1][i][b] = c[i], learned[h].dot[b] += a[i] * c[i];
        learned[h].cross[i][b] = a[(i + 1) % 3] * c[(i + 2) % 3] - a[(i + 2) % 3] * c[(i + 1) % 3];
      }
    }
  for (int j = 0; j < VECTORS; j++) place_threes(j);
}

/* A turn by 2 `half` half turns about u (Rodrigues), times m. */
static void turn(const double u[3], long double half, long double m[3][3]) {
  long double c = cosl(2 * acosl(-1) * half), s = sinl(2 * acosl(-1) * half), r[3][3], product[3][3] = {{0}};
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) {
      int k = 3 - i - j;
      long double across = i == j ? 0 : (j == (i + 1) % 3 ? -s : s) * u[k];
      r[i][j] = (i == j ? c : 0) + (1 - c) * u[i] * u[j] + across;
    }
  for (int i = 0; i < 9; i++)
    for (int k = 0; k < 3; k++) product[i / 3][i % 3] += r[i / 3][k] * m[k][i % 3];
  memcpy(m, product, sizeof product);
}

/* The largest error of an entry, at positions up to 10^6. */
static long double error_of_threes(void) {
  long double worst = 0;
  for (int sample = 0; sample < 2000; sample++) {
    double x = sample * 4999999. / 10000, y = 1e6 - 37. * sample * sample / 200;
    int h = sample % HEADS;
    build_threes_at(x, y, h, rotor[0]);
    for (int b = 0; b < CHANNELS / 3; b++) {
      long double m[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
      double u[2][3];
      for (int i = 0; i < 6; i++) u[i / 3][i % 3] = learned[h].axes[i / 3][i % 3][b];
      turn(u[1], fmodl((long double)learned[h].frequency[1][b] * y, 1), m);
      turn(u[0], fmodl((long double)learned[h].frequency[0][b] * x, 1), m);
      for (int i = 0; i < 9; i++) {
        int c = 3 * b + i / 3, term = (i % 3 - i / 3 + 3) % 3;
        long double error = fabsl(rotor[0][term * VECTORS + c / LANES][c % LANES] - m[i / 3][i % 3]);
        worst = error > worst ? error : worst;
      }
    }
  }
  return worst;
}

/* ---- rows ---- */

static inline void scale_row(const __m512 *a, const __m512 *x, __m512 *y) {
  for (int j = 0; j < VECTORS; j++) y[j] = _mm512_mul_ps(a[0], x[j]);
}

static inline void planes_row(const __m512 *a, const __m512 *x, __m512 *y) {
  for (int j = 0; j < VECTORS; j++)
    y[j] = _mm512_fmadd_ps(a[VECTORS + j], _mm512_permute_ps(x[j], 0xb1), _mm512_mul_ps(a[j], x[j]));
}

static inline void eights_row(const __m512 *a, const __m512 *x, __m512 *y) {
  for (int j = 0; j < VECTORS; j++) {
    __m512 sum = _mm512_fmadd_ps(a[VECTORS + j], _mm512_permutexvar_ps(rot[0], x[j]), _mm512_mul_ps(a[j], x[j]));
    y[j] = _mm512_fmadd_ps(a[2 * VECTORS + j], _mm512_permutexvar_ps(rot[1], x[j]), sum);
  }
}

/* Channels of a block are in one vector or in two. */
static inline void threes_row(const __m512 *a, const __m512 *x, __m512 *y) {
  for (int j = 0; j < VECTORS; j++) {
    y[j] = _mm512_mul_ps(a[j], x[j]);
    for (int t = 0; t < 2; t++) {
      __m512 other = j % 3 == 0 ? _mm512_permutexvar_ps(mixed[j][t][0], x[j])
                                : _mm512_permutex2var_ps(x[j], mixed[j][t][0], x[j - 1]);
      if (j < 2) other = _mm512_permutex2var_ps(other, mixed[j][t][1], x[j + 1]);
      y[j] = _mm512_fmadd_ps(a[(t + 1) * VECTORS + j], other, y[j]);
    }
  }
}

#define TURN(name, row) \
  do { \
    __m512 x[VECTORS], y[VECTORS]; \
    for (int j = 0; j < VECTORS; j++) { \
      x[j] = _mm512_load_ps((row) + j * LANES); \
      __asm__("" : "+v"(x[j])); \
    } \
    name##_row(a, x, y); \
    for (int j = 0; j < VECTORS; j++) _mm512_store_ps((row) + j * LANES, y[j]); \
  } while (0)

/* Tiles of `tile` tokens; `count` coefficient vectors a head, made by `build_one` of a token and head into out. */
#define WALK(name, of, count, together, build_one) \
  static __attribute__((noinline)) void name(int tile) { \
    for (int first = 0; first < TOKENS; first += tile) { \
      int last = first + tile < TOKENS ? first + tile : TOKENS; \
      for (int t = first; t < last; t++) \
        for (int h = 0; h < HEADS; h++) { \
          float (*out)[LANES] = rotor[(t - first) * HEADS + h]; \
          (void)out; \
          build_one; \
        } \
      for (int b = 0; b < BATCHES; b += (together)) \
        for (int t = first; t < last; t++) \
          for (int h = 0; h < HEADS; h++) { \
            __m512 a[TERMS * VECTORS]; \
            for (int i = 0; i < (count); i++) a[i] = _mm512_load_ps(rotor[(t - first) * HEADS + h][i]); \
            for (long other = 0; other < (together); other++) { \
              long at = (b + other) * BATCH + ((long)t * HEADS + h) * CHANNELS; \
              TURN(of, q + at); \
              TURN(of, k + at); \
            } \
          } \
    } \
  }
WALK(planes_1, planes, 2 * VECTORS, 1, (void)0)
WALK(planes_4, planes, 2 * VECTORS, 4, (void)0)
WALK(built_1, planes, 2 * VECTORS, 1, build(t, h, out))
WALK(built_4, planes, 2 * VECTORS, 4, build(t, h, out))
WALK(eights_1, eights, 3 * VECTORS, 1, (void)0)
WALK(eights_4, eights, 3 * VECTORS, 4, (void)0)
WALK(eights_built_1, eights, 3 * VECTORS, 1, build_eights(t, out))
WALK(threes_1, threes, 3 * VECTORS, 1, (void)0)
WALK(threes_built_1, threes, 3 * VECTORS, 1, build_threes(t, h, out))

/* Builds rotors, and with each makes a request for the first halves of its rows, two of four lines: more wait for one
 * another, and of two the hardware finds the others. Inlined early: GCC leaves out calls of what only asks. */
static inline __attribute__((always_inline)) void ask(int t, int h) {
  for (int b = 0; b < BATCHES; b++) {
    long at = b * BATCH + ((long)t * HEADS + h) * CHANNELS;
    for (int line = 0; line < 2; line++) {
      _mm_prefetch((const char *)(q + at + line * LANES), _MM_HINT_T1);
      _mm_prefetch((const char *)(k + at + line * LANES), _MM_HINT_T1);
    }
  }
}
WALK(threes_asked, threes, 3 * VECTORS, 1, (build_threes(t, h, out), ask(t, h)))
WALK(eights_asked, eights, 3 * VECTORS, 1, (build_eights(t, out), ask(t, h)))
WALK(planes_asked, planes, 2 * VECTORS, 1, (build(t, h, out), ask(t, h)))

/* One batch, its heads share a token's rotor. */
#define WALK_ONE(name, of, count, build_one) \
  static __attribute__((noinline)) void name(int tile) { \
    (void)tile; \
    for (int t = 0; t < TOKENS; t++) { \
      __m512 a[TERMS * VECTORS]; \
      build_one; \
      for (int i = 0; i < (count); i++) a[i] = _mm512_load_ps(rotor[0][i]); \
      for (int h = 0; h < HEADS; h++) { \
        TURN(of, q + ((long)t * HEADS + h) * CHANNELS); \
        TURN(of, k + ((long)t * HEADS + h) * CHANNELS); \
      } \
    } \
  }
WALK_ONE(one_planes, planes, 2 * VECTORS, (void)0)
WALK_ONE(one_planes_built, planes, 2 * VECTORS, build(t, 0, rotor[0]))
WALK_ONE(one_eights, eights, 3 * VECTORS, (void)0)
WALK_ONE(one_eights_built, eights, 3 * VECTORS, build_eights(t, rotor[0]))

static __attribute__((noinline)) void one_scale(int tile) {
  (void)tile;
  const __m512 a[1] = {_mm512_set1_ps(one)};
  for (float *row = q; row < q + BATCH; row += CHANNELS) TURN(scale, row);
  for (float *row = k; row < k + BATCH; row += CHANNELS) TURN(scale, row);
}

/* The limit: rows in order of memory, which are asked for so many bytes ahead; 0: they are not. */
static __attribute__((noinline)) void scale(int ahead) {
  const __m512 a[1] = {_mm512_set1_ps(one)};
  float *tensor[2] = {q, k};
  for (int t = 0; t < 2; t++)
    for (float *row = tensor[t]; row < tensor[t] + BATCHES * BATCH; row += CHANNELS) {
      for (int j = 0; ahead && j < VECTORS; j++) _mm_prefetch((const char *)(row + j * LANES) + ahead, _MM_HINT_T0);
      TURN(scale, row);
    }
}

static __attribute__((noinline)) void only_rotors(int tile) {
  (void)tile;
  for (int t = 0; t < TOKENS; t++)
    for (int h = 0; h < HEADS; h++) build(t, h, rotor[h]);
}

static __attribute__((noinline)) void only_threes(int tile) {
  (void)tile;
  for (int t = 0; t < TOKENS; t++)
    for (int h = 0; h < HEADS; h++) build_threes(t, h, rotor[h]);
}

/* ---- measuring ---- */

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *allocate(void) {
  size_t bytes = sizeof(float) * (size_t)(BATCHES * BATCH);
  char *memory = mmap(NULL, bytes + 2 * HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    perror("mmap");
    exit(1);
  }
  madvise(memory, bytes + 2 * HUGE_PAGE, MADV_HUGEPAGE);
  float *data = (float *)(((size_t)memory + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1));
  for (long i = 0; i < BATCHES * BATCH; i++) data[i] = 1;
  return data;
}

static int ascending(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

int main(void) {
  static const struct {
    const char *what;
    void (*run)(int tile);
    int tile;
  } loops[] = {{"scaling, in order of memory, 8 KiB ahead", scale, 8192},
               {"scaling, in order of memory", scale, 0},
               {"planes: rotors alone", only_rotors, 0},
               {"planes: rows, 1 batch, 2 tokens", planes_1, 2},
               {"planes: rows, 4 batches, 1 token", planes_4, 1},
               {"planes: with rotors, 1 batch, 2 tokens", built_1, 2},
               {"planes: with rotors, 4 batches, 1 token", built_4, 1},
               {"planes: with rotors, rows asked for, 1 token", planes_asked, 1},
               {"blocks of 8: rows, 1 batch, 2 tokens", eights_1, 2},
               {"blocks of 8: rows, 4 batches, 1 token", eights_4, 1},
               {"blocks of 8: with rotors, 1 batch, 2 tokens", eights_built_1, 2},
               {"blocks of 8: the same, rows asked for, 1 token", eights_asked, 1},
               {"blocks of 3: rotors alone", only_threes, 0},
               {"blocks of 3: rows, 1 batch, 1 token", threes_1, 1},
               {"blocks of 3: with rotors, 1 batch, 1 token", threes_built_1, 1},
               {"blocks of 3: the same, rows asked for", threes_asked, 1},
               {"one batch, heads alike: scaling", one_scale, 0},
               {"planes: rows", one_planes, 0},
               {"planes: with rotors", one_planes_built, 0},
               {"blocks of 8: rows", one_eights, 0},
               {"blocks of 8: with rotors of two turns", one_eights_built, 0}};
  enum {
    LOOPS = sizeof loops / sizeof *loops,
    ALONE = 2,
    EIGHTS = 8,
    THREES_ALONE = 12,
    ONE_BATCH = 16,
    ONE_EIGHTS = 19
  };
  static double sample[LOOPS][RUNS];
  begin_eights();
  begin_threes();
  q = allocate();
  k = allocate();
  for (int h = 0; h < HEADS; h++)
    for (int i = 0; i < PLANES; i++) frequency[h][0][i] = .01 * i + .1 * h, frequency[h][1][i] = .02 * i - .03 * h;
  int lanes[2][LANES];
  for (int i = 0; i < LANES; i++) lanes[0][i] = (i * 5 + 1) % LANES, lanes[1][i] = (i * 7 + 2) % LANES;
  for (int r = 0; r < 2; r++) rot[r] = _mm512_loadu_si512(lanes[r]);
  for (int round = 0; round < RUNS; round++)
    for (int i = 0; i < LOOPS; i++) {
      if (i == EIGHTS || i == THREES_ALONE + 1 || i == ONE_BATCH + 1 ||
          i == ONE_EIGHTS) /* what is left of others would shrink channels to nothing */
        for (int r = 0; r < MOST_TOKENS * HEADS; r++)
          for (int j = 0; j < TERMS * VECTORS * LANES; j++) ((float *)rotor[r])[j] = j < VECTORS * LANES ? one : 0;
      loops[i].run(loops[i].tile);
      double begin = seconds();
      loops[i].run(loops[i].tile);
      sample[i][round] = seconds() - begin;
    }
  for (int i = 0; i < LOOPS; i++) qsort(sample[i], RUNS, sizeof(double), ascending);
  int limit = sample[0][RUNS / 2] < sample[1][RUNS / 2] ? 0 : 1; /* the faster one */
  for (int i = 0; i < LOOPS; i++) {
    printf("%-46s %6.1f us", loops[i].what, 1e6 * sample[i][RUNS / 2]);
    printf(i == ALONE || i == THREES_ALONE ? "\n" : "  %.2f\n",
           sample[i < ONE_BATCH ? limit : ONE_BATCH][RUNS / 2] / sample[i][RUNS / 2]);
  }
  printf("blocks of 3: largest error of an entry 2^%.1f\n", (double)log2l(error_of_threes()));
  return 0;
}
