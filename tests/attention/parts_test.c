/* parts_test: parts of the gradients of attention run at the same time, so no byte is written by two of them; sizes of
 * calls without rows may be any; and a list of gradients is as long as its caller says. */
#include "described.h"
#include "scoped.h"
#include "test.h"
#include "verify/trial_attention_backward.h"

#include <string.h>

/* Few units of heads: the table of displacements has more elements than the heads of q that share a unit. */
enum { HEADS = 16, TOKENS = 40, DIM = 16, MOST_PARTS = 20 };
enum { ROWS = HEADS * TOKENS * DIM, TABLE = 13 * 13 * HEADS };

typedef struct call {
  arena *memory;
  loaded_kernel *loaded;
  const pegen_kernel *kernel;
  float read[6][ROWS], lse[HEADS * TOKENS], places[TOKENS * 2], table[TABLE];
  DLTensor tensor[12];
  int64_t rows[4], tokens[2], displacements[3];
  const DLTensor *operands[1];
  DLTensor *operand_gradients[1];
  pegen_grad_args grad;
  pegen_args args;
  char *written; /* gradients of q, k, v and of the table, and the workspace */
  size_t bytes;
} call;

static DLTensor *tensor(call *c, int i, void *data, int rank, int64_t *shape) {
  c->tensor[i] =
      (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  return &c->tensor[i];
}

static void place_gradients(call *c) {
  DLTensor **to[] = {&c->grad.q, &c->grad.k, &c->grad.v};
  for (int i = 0; i < 3; i++) *to[i] = tensor(c, 8 + i, c->written + i * ROWS * sizeof(float), 4, c->rows);
  c->operand_gradients[0] = tensor(c, 11, c->written + 3 * ROWS * sizeof(float), 3, c->displacements);
  c->args.workspace = c->written + (3 * ROWS + TABLE) * sizeof(float);
}

static call *open_call(void) {
  arena *a = arena_create();
  call *c = arena_new(a, call);
  const spec *s = described(a, "relative_bias_table heads=16 head_dim=16");
  memset(c, 0, sizeof *c);
  c->memory = a;
  c->loaded = held(trial_load_gradients(a, s, NULL, 0, 2));
  c->kernel = run_kernel(c->loaded);
  for (int t = 0; t < 6; t++)
    for (int i = 0; i < ROWS; i++) c->read[t][i] = (float)((i * 37 + t * 11) % 101) / 50 - 1;
  for (int i = 0; i < 2 * TOKENS; i++) c->places[i] = (float)(i % 2 ? i / 2 % 7 : i / 14);
  memcpy(c->rows, (int64_t[]){1, HEADS, TOKENS, DIM}, sizeof c->rows);
  memcpy(c->tokens, (int64_t[]){TOKENS, 2}, sizeof c->tokens);
  memcpy(c->displacements, (int64_t[]){13, 13, HEADS}, sizeof c->displacements);
  c->operands[0] = tensor(c, 0, c->table, 3, c->displacements);
  c->grad = (pegen_grad_args){.struct_size = sizeof c->grad, .operands = c->operand_gradients};
  c->grad.out = tensor(c, 1, c->read[4], 4, c->rows);
  c->args = (pegen_args){.struct_size = sizeof c->args, .n_operands = 1, .operands = c->operands, .grad = &c->grad};
  c->args.q = tensor(c, 2, c->read[0], 4, c->rows);
  c->args.k = tensor(c, 3, c->read[1], 4, c->rows);
  c->args.v = tensor(c, 4, c->read[2], 4, c->rows);
  c->args.out = tensor(c, 5, c->read[3], 4, c->rows);
  c->args.lse = tensor(c, 6, c->lse, 3, c->rows);
  c->args.positions = tensor(c, 7, c->places, 2, c->tokens);
  assert_int_equal(c->kernel->attention(&c->args, 0, 1), 0);
  c->written = arena_alloc(a, 1 << 20);
  place_gradients(c);
  c->args.workspace_bytes = c->kernel->attention_backward_workspace(&c->args);
  c->bytes = (3 * ROWS + TABLE) * sizeof(float) + c->args.workspace_bytes;
  assert_in_range(c->bytes, 1, 1 << 20);
  return c;
}

static void close_call(call *c) {
  run_unload(c->loaded);
  arena_destroy(c->memory);
}

/* What a part writes differs from one of two fillings at least. */
static void mark(call *c, int part, int parts, unsigned char *marks) {
  char *before = c->written, *other = arena_alloc(c->memory, 1 << 20);
  memset(c->written, 0xa5, c->bytes);
  assert_int_equal(c->kernel->attention_backward(&c->args, part, parts), 0);
  c->written = other;
  place_gradients(c);
  memset(c->written, 0x5a, c->bytes);
  assert_int_equal(c->kernel->attention_backward(&c->args, part, parts), 0);
  for (size_t i = 0; i < c->bytes; i++) marks[i] = (char)before[i] != (char)0xa5 || other[i] != 0x5a;
  c->written = before;
  place_gradients(c);
}

TEST(no_byte_is_of_two_parts) {
  static const int parts[] = {2, 3, 4, 5, 17, MOST_PARTS};
  for (int rows_alone = 0; rows_alone < 2; rows_alone++) {
    call *c = open_call();
    if (rows_alone) c->grad.operands = NULL;
    unsigned char *seen = arena_alloc(c->memory, c->bytes), *marks = arena_alloc(c->memory, c->bytes);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
      memset(seen, 0, c->bytes);
      for (int part = 0; part < parts[i]; part++) {
        mark(c, part, parts[i], marks);
        for (size_t at = 0; at < c->bytes; at++) {
          if (marks[at] && seen[at]) fail_msg("byte %zu of %zu is written by two of %d parts", at, c->bytes, parts[i]);
          seen[at] |= marks[at];
        }
      }
      for (size_t at = 0; at < 3 * ROWS * sizeof(float); at++) assert_true(seen[at]);
    }
    close_call(c);
  }
}

/* Nothing is gained of no rows, at once, however many heads and batches they are of. */
TEST(no_rows_of_any_size) {
  call *c = open_call();
  memcpy(c->rows, (int64_t[]){(int64_t)1 << 40, HEADS, 0, DIM}, sizeof c->rows);
  c->tokens[0] = 0;
  memset(c->written, 0x5a, c->bytes);
  for (int part = 0; part < 2; part++) assert_int_equal(c->kernel->attention_backward(&c->args, part, 2), 0);
  assert_int_equal(c->kernel->attention_backward_finish(&c->args, 0, 1), 0);
  const float *gained = c->operand_gradients[0]->data;
  for (int i = 0; i < TABLE; i++) assert_true(gained[i] == 0);
  c->rows[0] = c->rows[1] = INT64_MAX;
  assert_int_equal(c->kernel->attention_backward(&c->args, 0, 1), PEGEN_ERROR_HEADS);
  close_call(c);
}

/* Inputs' gradients are as many as inputs. */
TEST(short_lists) {
  SCOPED arena *a = arena_create();
  const spec *s = described(a, "pape role=pairwise");
  SCOPED_KERNEL *loaded = trial_load_gradients(a, s, NULL, 0, 2);
  DLTensor **none = malloc(1); /* nothing that may be read */
  pegen_grad_args grad = {.struct_size = sizeof grad, .inputs = none};
  pegen_args args = {.struct_size = sizeof args, .grad = &grad};
  assert_in_range(run_kernel(loaded)->n_inputs, 1, 8);
  assert_int_equal(run_kernel(loaded)->attention_backward(&args, 0, 1), PEGEN_ERROR_MISSING_INPUT);
  free(none);
}

int main(void) { return run_listed(); }
