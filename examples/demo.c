/* demo: how a program uses a kernel that pegen made.
 *
 *   pegen specs/geope3d.lua -o geope3d.o --header geope3d.h
 *   cc demo.c geope3d.o -lpegen -lm
 *
 * A volume of 4 x 4 x 4 patches, two heads. Queries and keys lie in memory as
 * [B,N,H,D], the way a projection writes them; the kernel takes [B,H,N,D] with
 * any strides, so nothing is transposed. Encodes in place, then checks what a
 * rotation must keep: the length of every block, and the token at the origin.
 */
#include "geope3d.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 4, BATCHES = 1, TOKENS = SIDE * SIDE * SIDE, HEADS = 2, DIM = GEOPE3D_HEAD_DIM, BLOCK = 3 };
enum { ELEMENTS = BATCHES * TOKENS * HEADS * DIM };

static float q[ELEMENTS], k[ELEMENTS], before[ELEMENTS];
static int32_t positions[TOKENS][GEOPE3D_AXES];

static double length(const float *block) {
  double sum = 0;
  for (int i = 0; i < BLOCK; i++) sum += (double)block[i] * block[i];
  return sqrt(sum);
}

static void print_block(const char *what, const float *block) {
  printf("  %-7s (% .6f, % .6f, % .6f)  length %.6f\n", what, block[0], block[1], block[2], length(block));
}

int main(void) {
  for (int i = 0; i < ELEMENTS; i++) {
    q[i] = before[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    k[i] = (float)rand() / (float)RAND_MAX - 0.5f;
  }
  for (int n = 0; n < TOKENS; n++) {
    positions[n][0] = n / (SIDE * SIDE);
    positions[n][1] = n / SIDE % SIDE;
    positions[n][2] = n % SIDE;
  }

  /* Tensors are DLPack's. Strides are in elements: batch, head, token, channel. */
  int64_t shape[4] = {BATCHES, HEADS, TOKENS, DIM};
  int64_t strides[4] = {(int64_t)TOKENS * HEADS * DIM, DIM, (int64_t)HEADS * DIM, 1};
  int64_t positions_shape[2] = {TOKENS, GEOPE3D_AXES};
  DLTensor tensor_q = {
      .data = q, .device = {kDLCPU, 0}, .ndim = 4, .dtype = {kDLFloat, 32, 1}, .shape = shape, .strides = strides};
  DLTensor tensor_k = tensor_q;
  tensor_k.data = k;
  DLTensor tensor_positions = {
      .data = positions, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLInt, 32, 1}, .shape = positions_shape};
  pegen_args args = {.struct_size = sizeof args,
                     .q = &tensor_q,
                     .k = &tensor_k,
                     .q_out = &tensor_q,
                     .k_out = &tensor_k,
                     .positions = &tensor_positions};

  int error = pegen_parallel(geope3d_encode, &args, 2); /* or geope3d_encode(&args, 0, 1) */
  if (error) {
    fprintf(stderr, "geope3d_encode: %s: %s\n", pegen_error_name(error), pegen_strerror(error));
    return 1;
  }

  int last = TOKENS - 1;
  const size_t at = (size_t)last * HEADS * DIM;
  printf("%s: %s\n", geope3d_kernel.name, geope3d_kernel.doc);
  printf("query of token %d at (%d, %d, %d), head 0, block 0:\n", last, positions[last][0], positions[last][1],
         positions[last][2]);
  print_block("before", before + at);
  print_block("after", q + at);

  double worst = 0;
  for (size_t row = 0; row < ELEMENTS; row += DIM)
    for (int c = 0; c + BLOCK <= DIM; c += BLOCK)
      worst = fmax(worst, fabs(length(q + row + c) / length(before + row + c) - 1));
  int origin_kept = !memcmp(q, before, sizeof(float) * HEADS * DIM);
  printf("largest relative change of a block's length: %.1e\n", worst);
  printf("the token at the origin is %s\n", origin_kept ? "unchanged" : "CHANGED");
  return origin_kept && worst < 1e-6 ? 0 : 1;
}
