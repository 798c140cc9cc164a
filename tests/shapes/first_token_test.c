/* first_token_test: rows that begin behind their sequence's first token (a token that is generated, a chunk of a
 * prompt) are what they are in a call of all, to the bit, and so are gradients of rows; who does not take them refuses.
 */
#include "described.h"
#include "test.h"
#include "verify/trial.h"

#include <string.h>

enum { BATCH = 2, HEADS = 2, TOKENS = 23 };

/* Rotors, what is added to rows, matrices of exponentials, with a change of basis, and columns. */
static const char *const encodings[] = {
    "rope skip_tokens=3 head_dim=24",
    "rope_mixed skip_tokens=3 heads=2",
    "sincos skip_tokens=3 channels=24",
    "liere skip_tokens=3 heads=2 head_dim=24",
    "string_cayley skip_tokens=3 heads=2 head_dim=16",
    "pape skip_tokens=3 heads=2 head_dim=20 origin=0,0",
};

/* What a call of all rows has. */
typedef struct world {
  arena *memory;
  spec *spec;
  loaded_kernel *loaded;
  uint64_t random;
  trial_operands operands;
  trial_inputs inputs;
  const DLTensor *positions;
} world;

static world open_world(const char *line) {
  world w = {.memory = arena_create(), .random = 5};
  w.spec = described(w.memory, "%s", line);
  w.loaded = trial_load_gradients(w.memory, w.spec, "native", PEGEN_DTYPE_F32, 1);
  assert_non_null(w.loaded);
  w.operands = trial_random_operands(w.memory, w.spec, NUMBER_F32, &w.random);
  w.inputs = trial_random_inputs(w.memory, w.spec, NUMBER_F32, BATCH, HEADS, TOKENS, &w.random);
  double places[TOKENS * SPEC_MAX_AXES];
  for (int i = 0; i < TOKENS * w.spec->n_axes; i++) places[i] = random_uniform(&w.random, 0, 14);
  w.positions = tensor_contiguous(w.memory, NUMBER_F32, 2, (int64_t[]){TOKENS, w.spec->n_axes}, places);
  return w;
}

static void close_world(world *w) {
  run_unload(w->loaded);
  arena_destroy(w->memory);
}

/* Tokens [first, TOKENS) of a contiguous tensor, which are its dimension `axis`. */
static DLTensor *from_token(arena *a, const DLTensor *all, int axis, int64_t first) {
  DLTensor *t = arena_new(a, DLTensor);
  int64_t stride = 1;
  *t = *all;
  t->shape = arena_array(a, int64_t, all->ndim);
  t->strides = arena_array(a, int64_t, all->ndim);
  for (int i = all->ndim - 1; i >= 0; i--) {
    t->shape[i] = all->shape[i];
    t->strides[i] = stride;
    stride *= all->shape[i];
  }
  t->byte_offset += (uint64_t)(first * t->strides[axis] * (t->dtype.bits / 8));
  t->shape[axis] -= first;
  return t;
}

static pegen_args args_from(world *w, int64_t first) {
  const pegen_kernel *kernel = run_kernel(w->loaded);
  const DLTensor **inputs = arena_array(w->memory, const DLTensor *, kernel->n_inputs + 1);
  for (int i = 0; i < kernel->n_inputs; i++) inputs[i] = from_token(w->memory, w->inputs.tensors[i], 2, first);
  return (pegen_args){.struct_size = sizeof(pegen_args),
                      .n_operands = kernel->n_operands,
                      .operands = w->operands.tensors,
                      .n_inputs = kernel->n_inputs,
                      .inputs = inputs,
                      .positions = from_token(w->memory, w->positions, 0, first),
                      .first_token = first};
}

static void assert_same_from(world *w, const DLTensor *all, int64_t first, const DLTensor *some, const char *what) {
  if (!tensor_identical(from_token(w->memory, all, 2, first), some)) fail_msg("%s from token %d", what, (int)first);
}

static DLTensor *rows(world *w, int64_t tokens, int64_t width) {
  return tensor_rows(w->memory, NUMBER_F32, ROWS_BHND, BATCH, HEADS, tokens, width);
}

static int64_t width_of(const pegen_kernel *kernel) {
  return kernel->widths ? kernel->widths[NUMBER_F32].out_dim : kernel->out_dim;
}

static void encode(world *w, DLTensor *q, DLTensor *out, int64_t first) {
  pegen_args args = args_from(w, first);
  args.q = q;
  args.q_out = out;
  for (int part = 0; part < 2; part++) assert_int_equal(run_kernel(w->loaded)->encode(&args, part, 2), 0);
}

static void encode_backward(world *w, DLTensor *gained, DLTensor *q, int64_t first) {
  const pegen_kernel *kernel = run_kernel(w->loaded);
  pegen_args args = args_from(w, first);
  pegen_grad_args grad = {.struct_size = sizeof grad, .q_out = gained, .q = q};
  args.grad = &grad;
  args.workspace_bytes = kernel->encode_backward_workspace(&args);
  if (args.workspace_bytes) args.workspace = malloc(args.workspace_bytes);
  for (int part = 0; part < 2; part++) assert_int_equal(kernel->encode_backward(&args, part, 2), 0);
  free(args.workspace);
}

TEST(rows_from_a_token) {
  static const int64_t firsts[] = {1, 3, 4, TOKENS - 1};
  for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++) {
    world w = open_world(encodings[i]);
    const pegen_kernel *kernel = run_kernel(w.loaded);
    DLTensor *q = rows(&w, TOKENS, w.spec->head_dim), *out = rows(&w, TOKENS, width_of(kernel)),
             *gained = rows(&w, TOKENS, width_of(kernel)), *back = rows(&w, TOKENS, w.spec->head_dim);
    tensor_randomize(q, &w.random);
    tensor_randomize(gained, &w.random);
    encode(&w, q, out, 0);
    encode_backward(&w, gained, back, 0);
    for (size_t k = 0; k < sizeof firsts / sizeof *firsts; k++) {
      int64_t first = firsts[k];
      DLTensor *some = rows(&w, TOKENS - first, width_of(kernel)),
               *back_of_some = rows(&w, TOKENS - first, w.spec->head_dim);
      encode(&w, from_token(w.memory, q, 2, first), some, first);
      assert_same_from(&w, out, first, some, encodings[i]);
      encode_backward(&w, from_token(w.memory, gained, 2, first), back_of_some, first);
      assert_same_from(&w, back, first, back_of_some, arena_printf(w.memory, "gradients of %s", encodings[i]));
    }
    close_world(&w);
  }
}

TEST(refusals) {
  world w = open_world(encodings[0]);
  const pegen_kernel *kernel = run_kernel(w.loaded);
  DLTensor *q = rows(&w, TOKENS, w.spec->head_dim);
  pegen_args args = args_from(&w, 0);
  args.q = args.q_out = q;
  args.first_token = -1;
  assert_int_equal(kernel->encode(&args, 0, 1), PEGEN_ERROR_FIRST_TOKEN);
  args.first_token = 1;
  assert_int_equal(kernel->prepare(&args, 0, 1), PEGEN_ERROR_FIRST_TOKEN);
  close_world(&w);

  const char *on_grid = "rope_axial skip_tokens=3 grid=4,5";
  w = open_world(on_grid);
  args = args_from(&w, 1);
  args.positions = NULL;
  args.q = args.q_out = rows(&w, TOKENS, w.spec->head_dim);
  assert_int_equal(run_kernel(w.loaded)->encode(&args, 0, 1), PEGEN_ERROR_FIRST_TOKEN);
  args.first_token = 0;
  assert_int_equal(run_kernel(w.loaded)->encode(&args, 0, 1), 0);
  close_world(&w);

  const char *attention = "alibi skip_tokens=3 head_dim=8";
  w = open_world(attention);
  args = args_from(&w, 0);
  args.first_token = 1;
  args.q = args.k = args.v = args.out = rows(&w, TOKENS, 8);
  assert_int_equal(run_kernel(w.loaded)->attention(&args, 0, 1), PEGEN_ERROR_FIRST_TOKEN);
  close_world(&w);
}

int main(void) { return run_listed(); }
