/* verify/run_warp: see verify/run_warp.h. */
#include "verify/run_warp.h"

#include "base/diag.h"
#include "base/number.h"
#include "mlir/ir.h"

#include <string.h>

/* Where a lane stands in a tile of 8 lines, of 4 pairs of numbers each. */
static int line_of(int lane) { return lane / 4; }
static int pair_of(int lane) { return 2 * (lane % 4); }

static void exchange(const run_warp_lane *const *lane) {
  for (int l = 0; l < RUN_WARP; l++) lane[l]->out[0] = lane[(l ^ lane[l]->detail) % RUN_WARP]->in[0];
}

/* ---- matrices ---- */

static float float_of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* All float16, once: a conversion by the definition is slow. */
static const float *all_float16(void) {
  enum { COUNT = 1 << 16 };
  static float value[COUNT];
  static bool made;
  for (uint32_t i = 0; i < COUNT && !made; i++) {
    uint16_t bits = (uint16_t)i;
    value[i] = (float)number_load(NUMBER_F16, &bits);
  }
  made = true;
  return value;
}

static void unpack(const float *float16, int32_t pair, float *two) {
  uint32_t bits = (uint32_t)pair;
  two[0] = float16 ? float16[bits & 0xffff] : float_of_bits(bits << 16);
  two[1] = float16 ? float16[bits >> 16] : float_of_bits(bits & 0xffff0000);
}

/* c += a x, row by row: every product is exact, and the sums of a row's columns go side by side. */
static void multiply(const run_warp_lane *const *lane, const float *float16) {
  enum { ROWS = 16, COLUMNS = 8, SUMMED = 16, A = 4, X = 2, C = 4 };
  float a[ROWS][SUMMED], x[SUMMED][COLUMNS], c[ROWS][COLUMNS];
  for (int l = 0; l < RUN_WARP; l++) {
    const int32_t *in = lane[l]->in;
    int g = line_of(l), t = pair_of(l);
    for (int i = 0; i < A; i++) unpack(float16, in[i], &a[g + 8 * (i % 2)][t + 8 * (i / 2)]);
    for (int i = 0; i < X; i++) {
      float two[2];
      unpack(float16, in[A + i], two);
      for (int k = 0; k < 2; k++) x[t + 8 * i + k][g] = two[k];
    }
  }
  for (int row = 0; row < ROWS; row++) {
    float sum[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) sum[i] = a[row][0] * x[0][i];
    for (int k = 1; k < SUMMED; k++)
      for (int i = 0; i < COLUMNS; i++) sum[i] += a[row][k] * x[k][i];
    memcpy(c[row], sum, sizeof sum);
  }
  for (int l = 0; l < RUN_WARP; l++)
    for (int i = 0; i < C; i++) {
      float sum = float_of_bits((uint32_t)lane[l]->in[A + X + i]) + c[line_of(l) + 8 * (i / 2)][pair_of(l) + i % 2];
      memcpy(&lane[l]->out[i], &sum, sizeof sum);
    }
}

static void load_matrices(const run_warp_lane *const *lane, bool transposed) {
  enum { MATRICES = 4, ROWS = 8 };
  uint16_t m[MATRICES][ROWS][ROWS];
  for (int l = 0; l < RUN_WARP; l++) {
    const void *row;
    memcpy(&row, lane[l]->in, sizeof row);
    if ((uintptr_t)row % sizeof m[0][0]) diag_bug("run_warp", "a row of a matrix is not aligned to 16 bytes");
    memcpy(m[l / ROWS][l % ROWS], row, sizeof m[0][0]);
  }
  for (int l = 0; l < RUN_WARP; l++)
    for (int i = 0; i < MATRICES; i++) {
      int g = line_of(l), t = pair_of(l);
      uint32_t low = transposed ? m[i][t][g] : m[i][g][t], high = transposed ? m[i][t + 1][g] : m[i][g][t + 1];
      lane[l]->out[i] = (int32_t)(low | high << 16);
    }
}

void run_warp_do(const run_warp_lane *const *lane) {
  switch ((ir_warp_op)lane[0]->op) {
  case IR_WARP_EXCHANGE: exchange(lane); break;
  case IR_WARP_MMA_F16: multiply(lane, all_float16()); break;
  case IR_WARP_MMA_BF16: multiply(lane, NULL); break;
  case IR_WARP_LOAD_MATRICES: load_matrices(lane, lane[0]->detail); break;
  default: diag_bug("run_warp", "operation %d", lane[0]->op);
  }
}
