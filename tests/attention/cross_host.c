/* cross_host: attention and alibi, compiled for this machine's architecture by a pegen of another, against a plain softmax
 * in double. Linked with the kernels' objects; nothing of the compiler is needed. */
#include "pegen/pegen.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { H = 8, HKV = 2, N = 21, M = 43, D = 24 };

extern const pegen_kernel attention_kernel, alibi_kernel;
static float q[H * N * D], k[HKV * M * D], v[HKV * M * D], out[H * N * D];
static int32_t positions[M];

static void fill(float *x, int count) {
  for (int i = 0; i < count; i++) x[i] = (float)rand() / (float)RAND_MAX * 2 - 1;
}

static DLTensor tensor(void *data, int64_t *shape, int rank, int code) {
  return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = {(uint8_t)code, 32, 1}, .shape = shape};
}

static double score(int h, int i, int j, double slope) {
  double sum = 0;
  for (int c = 0; c < D; c++) sum += (double)q[(h * N + i) * D + c] * k[(h / (H / HKV) * M + j) * D + c];
  return sum / sqrt(D) - slope * abs(positions[j] - positions[i]);
}

static double largest_error(int has_bias) {
  double worst = 0;
  for (int h = 0; h < H; h++)
    for (int i = 0; i < N; i++) {
      double p[M], sum = 0, slope = has_bias ? pow(2, -8.0 * (h + 1) / H) : 0;
      for (int j = 0; j < M; j++) sum += p[j] = exp(score(h, i, j, slope));
      for (int c = 0; c < D; c++) {
        double exact = 0;
        for (int j = 0; j < M; j++) exact += p[j] / sum * v[(h / (H / HKV) * M + j) * D + c];
        worst = fmax(worst, fabs(exact - out[(h * N + i) * D + c]));
      }
    }
  return worst;
}

static int run(const pegen_kernel *kernel, int has_bias) {
  int64_t rows[] = {1, H, N, D}, columns[] = {1, HKV, M, D}, places[] = {N, 1}, key_places[] = {M, 1};
  DLTensor tq = tensor(q, rows, 4, kDLFloat), tk = tensor(k, columns, 4, kDLFloat), tv = tensor(v, columns, 4, kDLFloat);
  DLTensor to = tensor(out, rows, 4, kDLFloat), tp = tensor(positions, places, 2, kDLInt), tkp = tensor(positions, key_places, 2, kDLInt);
  pegen_args args = {.struct_size = sizeof args, .q = &tq, .k = &tk, .v = &tv, .out = &to, .positions = &tp, .k_positions = &tkp};
  int error = kernel->attention(&args, 0, 1);
  double worst = largest_error(has_bias);
  printf("%s: error %d, largest difference %.2g\n", kernel->name, error, worst);
  return error || !(worst < 1e-5);
}

int main(void) {
  fill(q, H * N * D);
  fill(k, HKV * M * D);
  fill(v, HKV * M * D);
  for (int j = 0; j < M; j++) positions[j] = j * j % 37;
  return run(&attention_kernel, 0) | run(&alibi_kernel, 1);
}
