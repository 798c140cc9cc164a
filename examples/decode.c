/* decode.c: tokens are generated from caches in pages, by two threads: packed projections, grouped heads, one call that
 * encodes and appends, one that attends.
 *
 *     pegen specs/rope.lua -o rope.o --header rope.h
 *     pegen specs/attention.lua -o attention.o --header attention.h
 *     cc -O2 -I. examples/decode.c rope.o attention.o -pthread -lm -o decode && ./decode
 *
 * A token's projection writes q, k and v of all heads side by side, [HEADS + 2 KV_HEADS, DIM]. Two sequences of
 * different lengths share one memory of pages, which they take when they need them. In the end each sequence is
 * computed at once, without a cache: the outputs are the same.
 */
#include "attention.h"
#include "rope.h"

#include "pool.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HEADS = 8, KV_HEADS = 2, DIM = ROPE_HEAD_DIM, WIDTH = (HEADS + 2 * KV_HEADS) * DIM, SEQUENCES = 2 };
enum { MOST = 100, PAGE = 16, PAGES = 16, MOST_PAGES = (MOST + PAGE - 1) / PAGE };

static float packed[SEQUENCES * MOST * WIDTH], whole[SEQUENCES * MOST * WIDTH];
static float k_cache[PAGES * PAGE * KV_HEADS * DIM], v_cache[PAGES * PAGE * KV_HEADS * DIM];
static float out[SEQUENCES * MOST * HEADS * DIM], expected[MOST * HEADS * DIM];
static const int tokens[SEQUENCES] = {MOST, 61};

static void run(pegen_entry *entry, const pegen_args *args) {
  int error = pool_run(enter, &(entry_call){entry, args});
  if (error) fprintf(stderr, "decode: pegen_error %d\n", error), exit(1);
}

/* Heads from `first` on of packed rows, [batches, heads, n, DIM]; `apart`: numbers from batch to batch. */
typedef struct heads {
  int64_t shape[4], strides[4];
  DLTensor tensor;
} heads;

static DLTensor *view(heads *h, float *row, int first, int count, int64_t batches, int64_t n, int64_t apart,
                      int64_t width) {
  *h = (heads){.shape = {batches, count, n, DIM}, .strides = {apart, DIM, width, 1}};
  h->tensor = pegen_tensor(row + first * DIM, kDLFloat, 32, 4, h->shape, h->strides);
  return &h->tensor;
}

static int32_t table[SEQUENCES][MOST_PAGES], lengths[SEQUENCES];

/* A token of each sequence that still goes on. */
static void step(int at, int64_t running) {
  static int next_page;
  int64_t slot[SEQUENCES], of_slots[] = {running, 1}, of_table[] = {running, MOST_PAGES};
  int32_t place = at;
  for (int b = 0; b < running; b++) {
    if (at % PAGE == 0) table[b][at / PAGE] = next_page++;
    slot[b] = table[b][at / PAGE] * PAGE + at % PAGE, lengths[b] = at + 1;
  }
  int64_t of_pages[] = {PAGES, PAGE, KV_HEADS, DIM}, one[] = {1, 1};
  DLTensor slots = pegen_tensor(slot, kDLInt, 64, 2, of_slots, NULL);
  DLTensor positions = pegen_tensor(&place, kDLInt, 32, 2, one, NULL);
  DLTensor pages = pegen_tensor(table, kDLInt, 32, 2, of_table, NULL);
  DLTensor seen = pegen_tensor(lengths, kDLInt, 32, 1, of_slots, NULL);
  DLTensor keys = pegen_tensor(k_cache, kDLFloat, 32, 4, of_pages, NULL);
  DLTensor values = pegen_tensor(v_cache, kDLFloat, 32, 4, of_pages, NULL);
  heads q, k, v, result;
  pegen_args args = {.struct_size = sizeof args, .positions = &positions, .slots = &slots};
  args.q = args.q_out = view(&q, packed + at * WIDTH, 0, HEADS, running, 1, MOST * WIDTH, WIDTH);
  args.k = view(&k, packed + at * WIDTH, HEADS, KV_HEADS, running, 1, MOST * WIDTH, WIDTH), args.k_out = &keys;
  args.v = view(&v, packed + at * WIDTH, HEADS + KV_HEADS, KV_HEADS, running, 1, MOST * WIDTH, WIDTH),
  args.v_out = &values;
  run(rope_append, &args);
  pegen_args attend = {.struct_size = sizeof attend, .q = args.q, .k = &keys, .v = &values, .causal = 1};
  attend.block_table = &pages, attend.lengths = &seen;
  attend.out = view(&result, out + at * HEADS * DIM, 0, HEADS, running, 1, MOST * HEADS * DIM, HEADS * DIM);
  run(attention_attention, &attend);
}

/* The largest difference between what was decoded and the whole sequence at once. */
static double difference(int b) {
  int64_t n = tokens[b], line[] = {n, 1};
  int32_t places[MOST];
  for (int i = 0; i < n; i++) places[i] = i;
  DLTensor positions = pegen_tensor(places, kDLInt, 32, 2, line, NULL);
  heads q, k, v, result;
  pegen_args args = {.struct_size = sizeof args, .positions = &positions, .causal = 1};
  args.q = args.q_out = view(&q, whole + b * MOST * WIDTH, 0, HEADS, 1, n, 0, WIDTH);
  args.k = args.k_out = view(&k, whole + b * MOST * WIDTH, HEADS, KV_HEADS, 1, n, 0, WIDTH);
  run(rope_encode, &args);
  args.v = view(&v, whole + b * MOST * WIDTH, HEADS + KV_HEADS, KV_HEADS, 1, n, 0, WIDTH),
  args.q_out = args.k_out = NULL;
  args.out = view(&result, expected, 0, HEADS, 1, n, 0, HEADS * DIM);
  run(attention_attention, &args);
  double most = 0;
  for (int64_t i = 0; i < n * HEADS * DIM; i++)
    most = fmax(most, fabs((double)expected[i] - out[b * MOST * HEADS * DIM + i]));
  return most;
}

int main(void) {
  double most = 0;
  pool_start(2);
  for (size_t i = 0; i < sizeof packed / sizeof(float); i++) packed[i] = (float)rand() / (float)RAND_MAX - 0.5f;
  memcpy(whole, packed, sizeof whole);
  for (int at = 0; at < MOST; at++) step(at, at < tokens[1] ? 2 : 1);
  for (int b = 0; b < SEQUENCES; b++) most = fmax(most, difference(b));
  printf("%d and %d tokens, decoded by 2 threads: off by at most %.1e\n", tokens[0], tokens[1], most);
  return most > 1e-5;
}
