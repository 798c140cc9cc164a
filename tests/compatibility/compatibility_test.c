/* One caller, compiled with the header of one version and linked with objects of another: every entry beside sums that
 * are written out here, what an object says of itself, and what it refuses rather than leave out. */
#include "test.h"
#include <math.h>
#include <string.h>

#include "rope_mixed.h"
#ifndef FIRST_OBJECT /* encode is all that it has */
#include "alibi.h"
#endif

enum { B = 2, H = 2, N = 5, D = 16, AXES = 2, PAIRS = D / 2 };
static float q[B][H][N][D], k[B][H][N][D], out[B][H][N][D], back[B][H][N][D];
static float places[N][AXES], freqs[AXES][H][PAIRS];
static int64_t row_shape[] = {B, H, N, D}, place_shape[] = {N, AXES};
static int64_t freq_shape[] = {AXES, H, PAIRS};

static DLTensor tensor(void *data, int rank, int64_t *shape) {
  return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = {kDLFloat, 32, 1}, .shape = shape};
}

static int set_up(void **state) {
  (void)state;
  float *arrays[] = {&q[0][0][0][0], &k[0][0][0][0], &places[0][0], &freqs[0][0][0]};
  size_t sizes[] = {B * H * N * D, B * H * N * D, N * AXES, AXES * H * PAIRS};
  for (int a = 0; a < 4; a++)
    for (size_t i = 0; i < sizes[a]; i++) arrays[a][i] = (float)((i * 37 + (size_t)a * 11) % 101) / 50 - 1;
  memset(out, 0, sizeof out);
  memset(back, 0, sizeof back);
  return 0;
}

static double angle_of(int h, int n, int pair) {
  double angle = 0;
  for (int axis = 0; axis < AXES; axis++) angle += (double)places[n][axis] * freqs[axis][h][pair];
  return angle;
}

static void expect_near(double value, double expected) {
  if (fabs(value - expected) > 2e-6 * fmax(1, fabs(expected))) fail_msg("%.9g, expected %.9g", value, expected);
}

/* sense 1: rows turned; -1: turned back. */
static void expect_turned(float (*x)[H][N][D], float (*y)[H][N][D], int sense) {
  for (int b = 0; b < B; b++)
    for (int h = 0; h < H; h++)
      for (int n = 0; n < N; n++)
        for (int pair = 0; pair < PAIRS; pair++) {
          double c = cos(angle_of(h, n, pair)), s = sense * sin(angle_of(h, n, pair));
          const float *from = &x[b][h][n][2 * pair], *to = &y[b][h][n][2 * pair];
          expect_near(to[0], c * from[0] - s * from[1]);
          expect_near(to[1], s * from[0] + c * from[1]);
        }
}

TEST_BETWEEN(test_described, set_up, NULL) {
  assert_int_equal(pegen_kernel_supported(&rope_mixed_kernel), 1);
  assert_string_equal(rope_mixed_kernel.name, "rope_mixed");
  assert_int_equal(rope_mixed_kernel.head_dim, D);
  assert_int_equal(rope_mixed_kernel.heads, H);
  assert_int_equal(pegen_find_operand(&rope_mixed_kernel, "freqs"), 0);
  assert_int_equal(pegen_operand_size(&rope_mixed_kernel, 0), AXES * H * PAIRS);
  assert_ptr_equal(rope_mixed_kernel.encode, rope_mixed_encode);
#ifndef FIRST_OBJECT
  assert_int_equal(pegen_kernel_supported(&alibi_kernel), 1);
  assert_ptr_equal(rope_mixed_kernel.encode_backward, rope_mixed_encode_backward);
  assert_ptr_equal(alibi_kernel.attention, alibi_attention);
#endif
  assert_string_equal(pegen_strerror(44), pegen_strerror(PEGEN_ERROR_UNKNOWN_FIELD));
}

TEST_BETWEEN(test_encode, set_up, NULL) {
  DLTensor x = tensor(q, 4, row_shape), y = tensor(out, 4, row_shape), at = tensor(places, 2, place_shape);
  DLTensor f = tensor(freqs, 3, freq_shape);
  const DLTensor *operands[] = {&f};
  pegen_args args = {
      .struct_size = sizeof args, .n_operands = 1, .q = &x, .q_out = &y, .positions = &at, .operands = operands};
#ifdef FIRST_OBJECT /* from before structs grew: it knows one size */
  assert_int_equal(rope_mixed_encode(&args, 0, 1), PEGEN_ERROR_STRUCT_SIZE);
  args.struct_size = PEGEN_ARGS_FIRST_SIZE;
#endif
  assert_int_equal(pegen_parallel(rope_mixed_encode, &args, 2), 0);
  expect_turned(q, out, 1);
  args.positions = NULL;
  assert_int_equal(rope_mixed_encode(&args, 0, 1), PEGEN_ERROR_MISSING_POSITIONS);
}

#ifndef FIRST_OBJECT
static double workspace[1 << 14];
static _Alignas(64) char table[1 << 14];
static float gained[AXES][H][PAIRS];
static int64_t line_shape[] = {N, 1};

TEST_BETWEEN(test_table, set_up, NULL) {
  DLTensor x = tensor(q, 4, row_shape), y = tensor(out, 4, row_shape), at = tensor(places, 2, place_shape);
  DLTensor f = tensor(freqs, 3, freq_shape);
  const DLTensor *operands[] = {&f};
  pegen_args args = {
      .struct_size = sizeof args, .n_operands = 1, .q = &x, .q_out = &y, .positions = &at, .operands = operands};
  args.table_bytes = rope_mixed_table_bytes(&args);
  assert_in_range(args.table_bytes, 1, sizeof table);
  args.table = table;
  assert_int_equal(rope_mixed_prepare(&args, 0, 1), 0);
  args.positions = NULL;
  args.n_operands = 0;
  assert_int_equal(rope_mixed_encode(&args, 0, 1), 0);
  expect_turned(q, out, 1);
  args.table = NULL;
  assert_int_equal(rope_mixed_encode(&args, 0, 1), PEGEN_ERROR_MISSING_POSITIONS);
}

TEST_BETWEEN(test_backward, set_up, NULL) {
  DLTensor y = tensor(q, 4, row_shape), g = tensor(k, 4, row_shape), at = tensor(places, 2, place_shape);
  DLTensor f = tensor(freqs, 3, freq_shape), x = tensor(back, 4, row_shape), sums = tensor(gained, 3, freq_shape);
  const DLTensor *operands[] = {&f};
  DLTensor *gradients[] = {&sums};
  pegen_grad_args grad = {.struct_size = sizeof grad, .q_out = &g, .q = &x, .operands = gradients};
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = 1,
                     .q = &y,
                     .positions = &at,
                     .operands = operands,
                     .workspace = workspace,
                     .grad = &grad};
  assert_in_range(rope_mixed_encode_backward_workspace(&args), 1, sizeof workspace);
  for (int part = 0; part < 3; part++) assert_int_equal(rope_mixed_encode_backward(&args, part, 3), 0);
  assert_int_equal(rope_mixed_encode_backward_finish(&args, 0, 1), 0);
  expect_turned(k, back, -1);
  for (int axis = 0; axis < AXES; axis++)
    for (int h = 0; h < H; h++)
      for (int pair = 0; pair < PAIRS; pair++) {
        double sum = 0;
        for (int b = 0; b < B; b++)
          for (int n = 0; n < N; n++) {
            const float *row = &q[b][h][n][2 * pair], *of = &k[b][h][n][2 * pair]; /* what encode wrote; its gradient */
            sum += (double)places[n][axis] * ((double)row[0] * of[1] - (double)row[1] * of[0]);
          }
        expect_near(gained[axis][h][pair], sum);
      }
}

TEST_BETWEEN(test_attention, set_up, NULL) {
  DLTensor x = tensor(q, 4, row_shape), y = tensor(k, 4, row_shape), o = tensor(out, 4, row_shape);
  DLTensor at = tensor(places, 2, line_shape);
  pegen_args args = {
      .struct_size = sizeof args, .q = &x, .k = &y, .v = &y, .out = &o, .positions = &at, .causal = 1, .scale = 0.5};
  assert_int_equal(alibi_attention(&args, 0, 1), 0);
  const float *line = &places[0][0];
  for (int b = 0; b < B; b++)
    for (int h = 0; h < H; h++)
      for (int i = 0; i < N; i++) {
        double sum = 0, mixed[D] = {0}, slope = pow(2, -8.0 * (h + 1) / H);
        for (int j = 0; j <= i; j++) {
          double score = -slope * fabs((double)line[j] - line[i]);
          for (int c = 0; c < D; c++) score += 0.5 * q[b][h][i][c] * k[b][h][j][c];
          sum += exp(score);
          for (int c = 0; c < D; c++) mixed[c] += exp(score) * k[b][h][j][c];
        }
        for (int c = 0; c < D; c++) expect_near(out[b][h][i][c], mixed[c] / sum);
      }
}

/* What an object does not know it refuses; a struct that is longer and 0 behind what it knows is as good as its own. */
TEST_BETWEEN(test_grown, set_up, NULL) {
  struct {
    pegen_args args;
    uint64_t later[16]; /* more than the interface has grown by since the oldest caller here */
  } grown;
  DLTensor x = tensor(q, 4, row_shape), o = tensor(out, 4, row_shape), at = tensor(places, 2, line_shape);
  memset(&grown, 0, sizeof grown);
  grown.args = (pegen_args){.struct_size = sizeof grown, .q = &x, .k = &x, .v = &x, .out = &o, .positions = &at};
  assert_int_equal(alibi_attention(&grown.args, 0, 1), 0);
  grown.later[15] = 1;
  assert_int_equal(alibi_attention(&grown.args, 0, 1), PEGEN_ERROR_UNKNOWN_FIELD);
#ifdef NEW_CALLER
  int64_t lse_shape[] = {B, H, N};
  float sums[B][H][N];
  DLTensor lse = tensor(sums, 3, lse_shape);
  pegen_args args = grown.args;
  args.struct_size = sizeof args;
  args.lse = &lse; /* came with 0.2 */
#ifdef OLD_OBJECT
  assert_int_equal(alibi_attention(&args, 0, 1), PEGEN_ERROR_UNKNOWN_FIELD);
#else
  assert_int_equal(alibi_attention(&args, 0, 1), 0);
#endif
#endif
}
#endif

int main(void) { return run_listed(); }
