/* train.c: gradient descent on the axes of QuatRo's turns through attention, in C alone.
 *
 * A teacher's axes say what attention gives; a student that begins elsewhere finds them again. All derivatives come
 * from the kernels: attention hands the gradients of its q and k to encode, which makes those of the axes of them.
 *
 *     pegen specs/quatro.lua -o quatro.o --header quatro.h -D head_dim=24
 *     pegen specs/attention.lua -o attention.o --header attention.h -D head_dim=24
 *     cc -O2 -I. examples/train.c quatro.o attention.o -lm -o train && ./train
 */
#include "attention.h"
#include "quatro.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 4, SIDE = 6, TOKENS = SIDE * SIDE, CHANNELS = 24, AXES = 2 * (CHANNELS / 3) * 3, STEPS = 60 };
enum { ROWS = HEADS * TOKENS * CHANNELS };

static float x[2][ROWS], turned[2][ROWS], v[ROWS], out[ROWS], wanted[ROWS], of_out[ROWS], of_turned[2][ROWS];
static float lse[HEADS * TOKENS], position[TOKENS][2], number[TOKENS], theta[AXES], of_theta[AXES];
static int64_t shape[] = {1, HEADS, TOKENS, CHANNELS}, places[] = {TOKENS, 2}, order[] = {TOKENS, 1};
static int64_t of_heads[] = {1, HEADS, TOKENS}, of_axes[] = {2, 1, CHANNELS / 3, 3};

static DLTensor tensor(float *data, int rank, int64_t *sizes) {
  return pegen_tensor(data, kDLFloat, 32, rank, sizes, NULL);
}

static void must(int error) {
  if (error) fprintf(stderr, "pegen_error %d\n", error), exit(1);
}

static float uniform(void) { return (float)(2.0 * rand() / RAND_MAX - 1); }

static void *room(size_t bytes) {
  void *memory = calloc(1, bytes + 8);
  return memory ? memory : (exit(1), NULL);
}

int main(void) {
  for (int i = 0; i < ROWS; i++) x[0][i] = 2 * uniform(), x[1][i] = 2 * uniform(), v[i] = uniform();
  for (int i = 0; i < TOKENS; i++)
    number[i] = (float)i, position[i][0] = (float)(i / SIDE) / SIDE, position[i][1] = (float)(i % SIDE) / SIDE;
  for (int i = 0; i < AXES; i++) theta[i] = uniform();

  DLTensor q = tensor(x[0], 4, shape), k = tensor(x[1], 4, shape), values = tensor(v, 4, shape);
  DLTensor q_out = tensor(turned[0], 4, shape), k_out = tensor(turned[1], 4, shape), result = tensor(out, 4, shape);
  DLTensor grid = tensor(*position, 2, places), line = tensor(number, 2, order), axes = tensor(theta, 4, of_axes);
  DLTensor g_out = tensor(of_out, 4, shape), g_q = tensor(of_turned[0], 4, shape), g_k = tensor(of_turned[1], 4, shape);
  DLTensor g_axes = tensor(of_theta, 4, of_axes), sums = tensor(lse, 3, of_heads);
  const DLTensor *operands[] = {&axes};
  DLTensor *const g_operands[] = {&g_axes};

  /* Forward, and backward with what forward wrote. */
  pegen_args encode = {.struct_size = sizeof encode,
                       .n_operands = 1,
                       .operands = operands,
                       .positions = &grid,
                       .q = &q,
                       .k = &k,
                       .q_out = &q_out,
                       .k_out = &k_out};
  pegen_args attention = {.struct_size = sizeof attention,
                          .q = &q_out,
                          .k = &k_out,
                          .v = &values,
                          .out = &result,
                          .positions = &line,
                          .lse = &sums};
  pegen_grad_args through_attention = {.struct_size = sizeof through_attention, .out = &g_out, .q = &g_q, .k = &g_k};
  pegen_grad_args through_encode = {
      .struct_size = sizeof through_encode, .q_out = &g_q, .k_out = &g_k, .operands = g_operands};
  pegen_args attention_back = attention, encode_back = encode;
  attention_back.grad = &through_attention;
  attention_back.workspace = room(attention_attention_backward_workspace(&attention_back));
  encode_back.q = &q_out, encode_back.k = &k_out, encode_back.q_out = encode_back.k_out = NULL;
  encode_back.grad = &through_encode;
  encode_back.workspace = room(quatro_encode_backward_workspace(&encode_back));

  must(quatro_encode(&encode, 0, 1)); /* the teacher's */
  must(attention_attention(&attention, 0, 1));
  memcpy(wanted, out, sizeof wanted);
  for (int i = 0; i < AXES; i++) theta[i] += .5f * uniform();

  for (int step = 0; step <= STEPS; step++) {
    double loss = 0;
    must(quatro_encode(&encode, 0, 1));
    must(attention_attention(&attention, 0, 1));
    for (int i = 0; i < ROWS; i++) of_out[i] = out[i] - wanted[i], loss += .5 * of_out[i] * of_out[i];
    if (step % 10 == 0) printf("step %2d: loss %.6f\n", step, loss);
    must(attention_attention_backward(&attention_back, 0, 1));
    must(quatro_encode_backward(&encode_back, 0, 1));
    must(quatro_encode_backward_finish(&encode_back, 0, 1));
    for (int i = 0; i < AXES; i++) theta[i] -= .01f * of_theta[i];
  }
  free(attention_back.workspace);
  free(encode_back.workspace);
  return 0;
}
