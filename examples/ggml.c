/* ggml: queries of a graph of ggml's turned by a kernel that pegen made, beside ggml's own RoPE.
 *
 *   pegen specs/rope.lua -o rope.o --header rope.h
 *   cc -O2 ggml.c rope.o -I$GGML/include -L$GGML/lib -lggml-cpu -lggml-base -lm -o ggml
 *   ./ggml 2 1024 32                     threads, tokens, heads of 64 channels
 *
 * The kernel is a node of the graph (ggml_map_custom2): ggml allocates its result, orders it among the other nodes, and
 * calls it from all of its threads, each with its number. A kernel's entry takes just that: a part, of parts. Nothing
 * is copied; ggml's sizes and strides are DLPack's the other way round. Any other kernel goes the same way, also one
 * that ggml has no operation for.
 */
#include "rope.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the node ---- */

typedef struct viewed {
  DLTensor tensor;
  int64_t shape[GGML_MAX_DIMS], strides[GGML_MAX_DIMS];
} viewed;

/* order: which of ggml's dimensions each of the tensor's is; rank of them. Types: float32, float16, bfloat16, int32. */
static void view(viewed *v, const struct ggml_tensor *t, int rank, const int *order) {
  static const DLDataType types[GGML_TYPE_COUNT] = {[GGML_TYPE_F32] = {kDLFloat, 32, 1},
                                                    [GGML_TYPE_F16] = {kDLFloat, 16, 1},
                                                    [GGML_TYPE_BF16] = {kDLBfloat, 16, 1},
                                                    [GGML_TYPE_I32] = {kDLInt, 32, 1}};
  v->tensor = (DLTensor){.data = t->data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = types[t->type]};
  for (int i = 0; i < rank; i++) {
    v->shape[i] = t->ne[order[i]];
    v->strides[i] = (int64_t)(t->nb[order[i]] / ggml_type_size(t->type));
  }
  v->tensor.shape = v->shape;
  v->tensor.strides = v->strides;
}

/* rows: [channels, heads, tokens, batches] in ggml's order, as ggml_rope_ext takes them; positions: [tokens]. */
static void encode(struct ggml_tensor *out, const struct ggml_tensor *rows, const struct ggml_tensor *positions,
                   int part, int parts, void *kernel) {
  static const int row_order[] = {3, 1, 2, 0}, position_order[] = {0, 1};
  viewed q, q_out, at;
  view(&q, rows, 4, row_order);
  view(&q_out, out, 4, row_order);
  view(&at, positions, 2, position_order); /* [tokens, 1] */
  pegen_args args = {.struct_size = sizeof args, .q = &q.tensor, .q_out = &q_out.tensor, .positions = &at.tensor};
  int error = ((const pegen_kernel *)kernel)->encode(&args, part, parts);
  if (error) GGML_ABORT("%s refuses: error %d of pegen/pegen.h", ((const pegen_kernel *)kernel)->name, error);
}

/* ---- both graphs ---- */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Microseconds of the graph that ends in `result`: the best of 50. */
static double run(struct ggml_context *context, struct ggml_tensor *result, int threads) {
  struct ggml_cgraph *graph = ggml_new_graph(context);
  double best = INFINITY;
  ggml_build_forward_expand(graph, result);
  for (int i = 0; i < 50; i++) {
    double start = now();
    if (ggml_graph_compute_with_ctx(context, graph, threads) != GGML_STATUS_SUCCESS) GGML_ABORT("the graph failed");
    best = fmin(best, now() - start);
  }
  return 1e6 * best;
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 1, tokens = argc > 2 ? atoi(argv[2]) : 1024;
  int heads = argc > 3 ? atoi(argv[3]) : 32;
  size_t bytes = 4 * (size_t)tokens * (size_t)heads * ROPE_HEAD_DIM;
  struct ggml_init_params room = {.mem_size = 4 * bytes + 200 * ((size_t)64 << 10) + (16 << 20)};
  struct ggml_context *context = ggml_init(room);
  struct ggml_tensor *q = ggml_new_tensor_4d(context, GGML_TYPE_F32, ROPE_HEAD_DIM, heads, tokens, 1);
  struct ggml_tensor *positions = ggml_new_tensor_1d(context, GGML_TYPE_I32, tokens);
  for (int64_t i = 0; i < ggml_nelements(q); i++) ((float *)q->data)[i] = (float)(i * 7919 % 2003) / 1000 - 1;
  for (int i = 0; i < tokens; i++) ((int32_t *)positions->data)[i] = i;

  struct ggml_tensor *own =
      ggml_rope_ext(context, q, positions, NULL, ROPE_HEAD_DIM, GGML_ROPE_TYPE_NORMAL, 0, 10000, 1, 0, 1, 0, 0);
  struct ggml_tensor *ours = ggml_map_custom2(context, q, positions, encode, GGML_N_TASKS_MAX, (void *)&rope_kernel);
  double theirs_us = run(context, own, threads), ours_us = run(context, ours, threads), largest = 0;
  for (int64_t i = 0; i < ggml_nelements(q); i++)
    largest = fmax(largest, fabs((double)((float *)own->data)[i] - ((float *)ours->data)[i]));
  printf("%d tokens, %d heads, %d threads: ggml %.0f us, pegen %.0f us; largest difference %.1e\n", tokens, heads,
         threads, theirs_us, ours_us, largest);
  ggml_free(context);
  return !(largest < 1e-3); /* ggml multiplies its angles up from pair to pair in float32 */
}
