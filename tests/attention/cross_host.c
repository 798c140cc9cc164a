/* cross_host: attention, alibi and parabolas, compiled for this machine's architecture by a pegen of another, against a
 * plain softmax in double, and in every floating-point state of the caller's. Linked with the kernels' objects; nothing
 * of the compiler is needed. */
#include "pegen/pegen.h"

#include "../interface/float_states.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H = 8, HKV = 2, N = 21, M = 43, D = 24, PARABOLAS = 5 };
typedef enum bias { BIAS_NONE, BIAS_DISTANCE, BIAS_PARABOLAS } bias;

extern const pegen_kernel attention_kernel, alibi_kernel, pape_kernel;
static float q[H * N * D], k[HKV * M * D], v[HKV * M * D], out[H * N * D], usual[H * N * D];
static float projection[PARABOLAS], a[H * N * PARABOLAS], b[H * N * PARABOLAS];
static int32_t positions[M];

static void fill(float *x, int count) {
  for (int i = 0; i < count; i++) x[i] = (float)rand() / (float)RAND_MAX * 2 - 1;
}

static DLTensor tensor(void *data, int64_t *shape, int rank, int code) {
  return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = {(uint8_t)code, 32, 1}, .shape = shape};
}

static double score(int h, int i, int j, bias kind) {
  double sum = 0, delta = positions[j] - positions[i], scale = 1 / sqrt(D);
  for (int c = 0; c < D; c++) sum += (double)q[(h * N + i) * D + c] * k[(h / (H / HKV) * M + j) * D + c];
  if (kind == BIAS_DISTANCE) return scale * sum - pow(2, -8.0 * (h + 1) / H) * fabs(delta);
  for (int l = 0; kind == BIAS_PARABOLAS && l < PARABOLAS; l++) {
    double x = projection[l] * delta;
    sum += -log1p(exp(a[(h * N + i) * PARABOLAS + l])) * x * x + b[(h * N + i) * PARABOLAS + l] * x;
  }
  return scale * sum;
}

static double largest_error(bias kind) {
  double worst = 0;
  for (int h = 0; h < H; h++)
    for (int i = 0; i < N; i++) {
      double p[M], sum = 0;
      for (int j = 0; j < M; j++) sum += p[j] = exp(score(h, i, j, kind));
      for (int c = 0; c < D; c++) {
        double exact = 0;
        for (int j = 0; j < M; j++) exact += p[j] / sum * v[(h / (H / HKV) * M + j) * D + c];
        worst = fmax(worst, fabs(exact - out[(h * N + i) * D + c]));
      }
    }
  return worst;
}

static int run(const pegen_kernel *kernel, bias kind) {
  int64_t rows[] = {1, H, N, D}, columns[] = {1, HKV, M, D}, places[] = {N, 1}, key_places[] = {M, 1};
  int64_t projections[] = {1, PARABOLAS, 1}, of_queries[] = {1, H, N, PARABOLAS};
  DLTensor tq = tensor(q, rows, 4, kDLFloat), tk = tensor(k, columns, 4, kDLFloat),
           tv = tensor(v, columns, 4, kDLFloat);
  DLTensor to = tensor(out, rows, 4, kDLFloat), tp = tensor(positions, places, 2, kDLInt),
           tkp = tensor(positions, key_places, 2, kDLInt);
  DLTensor operand = tensor(projection, projections, 3, kDLFloat), ta = tensor(a, of_queries, 4, kDLFloat),
           tb = tensor(b, of_queries, 4, kDLFloat);
  const DLTensor *operands[] = {&operand}, *inputs[] = {&ta, &tb};
  pegen_args args = {.struct_size = sizeof args,
                     .q = &tq,
                     .k = &tk,
                     .v = &tv,
                     .out = &to,
                     .positions = &tp,
                     .k_positions = &tkp,
                     .n_operands = kernel->n_operands,
                     .operands = operands,
                     .n_inputs = kernel->n_inputs,
                     .inputs = inputs};
  int error = kernel->attention(&args, 0, 1), states = 0;
  double worst = largest_error(kind);
  memcpy(usual, out, sizeof out);
  for (int state = 0; state < FLOAT_STATES; state++) {
    memset(out, 0, sizeof out);
    uint64_t entered = float_states_enter(state);
    int failed = kernel->attention(&args, 0, 1);
    states += float_states_leave(entered) && !failed && !memcmp(usual, out, sizeof out);
  }
  printf("%s: error %d, largest difference %.2g, the same in %d of %d floating-point states\n", kernel->name, error,
         worst, states, FLOAT_STATES);
  return error || !(worst < 1e-5) || states != FLOAT_STATES;
}

int main(void) {
  fill(q, H * N * D);
  fill(k, HKV * M * D);
  fill(v, HKV * M * D);
  fill(projection, PARABOLAS);
  fill(a, H * N * PARABOLAS);
  fill(b, H * N * PARABOLAS);
  for (int l = 0; l < PARABOLAS; l++) projection[l] /= 16;
  for (int j = 0; j < M; j++) positions[j] = j * j % 37;
  return run(&attention_kernel, BIAS_NONE) | run(&alibi_kernel, BIAS_DISTANCE) | run(&pape_kernel, BIAS_PARABOLAS);
}
