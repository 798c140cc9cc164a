/* Rows that turn by inputs: programs in both orders of their loops against the reference, each row by its own inputs;
 * kernels on inputs of any strides, and of one batch or head for all, against the same on whole tensors; refusals.
 * Usage: inputs_test [TARGET], of kernels.
 */
#include "scoped.h"
#include "test.h"
#include "cpu/schedule.h"
#include "described.h"
#include "verify/oracle.h"
#include "verify/reference.h"
#include "interpret/trial.h"

#include <math.h>
#include <string.h>

static const char *wanted; /* NULL: the processor's */

enum { BATCHES = 2, HEADS = 2, TOKENS = 7, HEAD_DIM = 20 };

typedef struct fixture {
  arena *memory;
  const spec *spec;
  uint64_t random;
  double *values;
  DLTensor *positions;
  trial_operands operands;
  trial_inputs inputs;
} fixture;

static fixture open_fixture(const char *kind, const char *heads) {
  fixture f = {.memory = arena_create(), .random = 11};
  f.spec = described(f.memory, "./inputs kind=%s heads=%s skip_tokens=1", kind, heads);
  int64_t count = TOKENS * f.spec->n_axes;
  f.values = arena_array(f.memory, double, count);
  for (int64_t i = 0; i < count; i++) f.values[i] = random_uniform(&f.random, -9, 9);
  f.positions = tensor_contiguous(f.memory, NUMBER_F64, 2, (int64_t[]){TOKENS, f.spec->n_axes}, f.values);
  f.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
  f.inputs = trial_random_inputs(f.memory, f.spec, NUMBER_F32, BATCHES, HEADS, TOKENS, &f.random);
  f.operands.inputs = f.inputs.tensors;
  return f;
}

/* ---- programs ---- */

static void gives_rows(fixture *f, const program *p) {
  const spec *s = f->spec;
  int64_t count = BATCHES * HEADS * TOKENS * HEAD_DIM;
  double *x[2];
  program_call call = {.tokens = TOKENS,
                       .batches = BATCHES,
                       .heads = {HEADS, HEADS},
                       .positions = f->values,
                       .operands = f->operands.values,
                       .tile_tokens = 3,
                       .group_rows = 2,
                       .run_heads = 1};
  for (int i = 0; i < s->n_inputs; i++) call.inputs[i] = f->inputs.values[i];
  for (int t = 0; t < 2; t++) {
    x[t] = arena_array(f->memory, double, count);
    for (int64_t i = 0; i < count; i++) x[t][i] = random_uniform(&f->random, -1, 1);
    call.rows[0][t] = x[t];
    call.results[1][t] = arena_array(f->memory, long double, count);
  }
  assert_null(program_fault(f->memory, p));
  program_interpret(p, &call);
  oracle *o = oracle_create(f->memory, s, 1, TOKENS, f->values, &f->operands);
  oracle_set_inputs(o, &f->inputs, BATCHES, HEADS);
  for (int t = 0; t < 2; t++)
    for (int64_t row = 0; row < count / HEAD_DIM; row++) {
      long double exact[HEAD_DIM], unit[HEAD_DIM];
      oracle_row(o, row / TOKENS / HEADS, row % TOKENS, (int)(row / TOKENS % HEADS), x[t] + row * HEAD_DIM, exact, unit);
      for (int c = 0; c < HEAD_DIM; c++) {
        long double error = fabsl(call.results[1][t][row * HEAD_DIM + c] - exact[c]);
        if (!(error <= 0x1p-40L * fmaxl(1, unit[c]))) fail_msg("%s: row %lld: %Lg", s->name, (long long)row, error);
      }
    }
}

TEST(programs) {
  static const char *const kinds[] = {"phase", "amplitude", "generator", "chordal", "boost"};
  for (int k = 0; k < 10; k++) {
    SCOPED fixture f = open_fixture(kinds[k / 2], k % 2 ? "2" : "1");
    const program *p = trial_program(f.memory, f.spec, "encode");
    gives_rows(&f, p);
    gives_rows(&f, cpu_schedule(f.memory, p));
  }
}

/* Inputs of every head are those of the first. */
static void share(fixture *f) {
  for (int i = 0; i < f->spec->n_inputs; i++) {
    const DLTensor *t = f->inputs.tensors[i];
    int64_t head = TOKENS * (t->ndim == 4 ? t->shape[3] : 1);
    for (int64_t from = 0; from < BATCHES * HEADS * head; from++) {
      int64_t of = from / (HEADS * head) * HEADS * head + from % head;
      ((float *)t->data)[from] = ((float *)t->data)[of];
      ((double *)f->inputs.values[i])[from] = f->inputs.values[i][of];
    }
  }
}

TEST(programs_of_tokens) {
  static const char *const kinds[] = {"phase", "amplitude", "generator", "chordal", "boost"};
  for (int k = 0; k < 5; k++) {
    SCOPED fixture f = open_fixture(kinds[k], "1");
    share(&f);
    gives_rows(&f, cpu_schedule_of_tokens(f.memory, trial_program(f.memory, f.spec, "encode")));
  }
}

/* Numbers of a token, outside of its rows, cannot be made of inputs. */
TEST(outside_of_rows) {
  SCOPED fixture f = open_fixture("phase", "1");
  const program *p = trial_program(f.memory, f.spec, "encode");
  const plan *how = program_plan(p);
  program_builder b = program_begin(f.memory, f.spec, "encode");
  program_for(&b, SPACE_TOKENS, PART_ALL);
  program_eval(&b, how, how->value, how->n_values, NULL, 0);
  program_end_for(&b, 0);
  assert_non_null(strstr(program_fault(f.memory, b.p), "is of a row, outside of rows"));
}

/* ---- kernels ---- */

/* The same numbers with other strides: gaps, negative ones. */
static DLTensor *strided(arena *a, const DLTensor *t) {
  DLTensor *other = arena_new(a, DLTensor);
  *other = *t;
  other->strides = arena_array(a, int64_t, 4);
  int64_t width = t->ndim == 4 ? t->shape[3] : 1, step = width + 3;
  int64_t strides[] = {-t->shape[1] * t->shape[2] * step, step, t->shape[1] * step, 1};
  memcpy(other->strides, strides, sizeof strides);
  int64_t first = -strides[0] * (t->shape[0] - 1);
  float *data = arena_alloc(a, sizeof(float) * (size_t)(first + t->shape[1] * t->shape[2] * step));
  for (int64_t i = 0; i < first + t->shape[1] * t->shape[2] * step; i++) data[i] = NAN;
  other->data = data;
  other->byte_offset = (uint64_t)first * sizeof(float);
  for (int64_t b = 0; b < t->shape[0]; b++)
    for (int64_t h = 0; h < t->shape[1]; h++)
      for (int64_t n = 0; n < t->shape[2]; n++)
        memcpy(data + first + b * strides[0] + h * strides[1] + n * strides[2],
               (const float *)t->data + ((b * t->shape[1] + h) * t->shape[2] + n) * width, sizeof(float) * (size_t)width);
  return other;
}

/* Another shape of the same memory. */
static const DLTensor *shaped(arena *a, const DLTensor *t, int dimension, int64_t size) {
  DLTensor *other = arena_new(a, DLTensor);
  *other = *t;
  other->shape = arena_array(a, int64_t, 4);
  memcpy(other->shape, t->shape, sizeof(int64_t) * (size_t)t->ndim);
  other->shape[dimension] = size;
  return other;
}

typedef struct call {
  fixture f;
  loaded_kernel *loaded;
  const pegen_kernel *kernel;
  DLTensor *q, *k, *q_out, *k_out;
} call;

static call open_call(void) {
  call c = {.f = open_fixture("phase", "1")};
  c.loaded = trial_load(c.f.memory, c.f.spec, wanted, PEGEN_DTYPE_F32 | PEGEN_DTYPE_BF16, 1);
  c.kernel = run_kernel(c.loaded);
  DLTensor **rows[] = {&c.q, &c.k, &c.q_out, &c.k_out};
  for (int i = 0; i < 4; i++) {
    *rows[i] = tensor_rows(c.f.memory, NUMBER_F32, ROWS_BNHD, BATCHES, HEADS, TOKENS, HEAD_DIM);
    tensor_randomize(*rows[i], &c.f.random);
  }
  return c;
}

static void close_call(call *c) {
  run_unload(c->loaded);
  arena_destroy(c->f.memory);
}

static void encode(call *c, const DLTensor **inputs, DLTensor *q_out, DLTensor *k_out) {
  trial_operands operands = c->f.operands;
  operands.inputs = inputs;
  assert_int_equal(trial_call(c->kernel, c->f.positions, &operands, q_out ? c->q : NULL, q_out, k_out ? c->k : NULL,
                              k_out, 2),
                   0);
}

/* k has fewer heads than q, and inputs are those of all heads: its rows are what they are beside as many heads. */
static void fewer_heads(call *c, const DLTensor **inputs) {
  arena *a = c->f.memory;
  trial_operands operands = c->f.operands;
  DLTensor *few = tensor_rows(a, NUMBER_F32, ROWS_BNHD, BATCHES, 1, TOKENS, HEAD_DIM), *out = tensor_copy(a, few);
  operands.inputs = inputs;
  for (int64_t b = 0; b < BATCHES; b++)
    for (int64_t n = 0; n < TOKENS; n++)
      memcpy(tensor_at(few, b, 0, n, 0), tensor_at(c->k, b, 0, n, 0), sizeof(float) * HEAD_DIM);
  encode(c, inputs, c->q_out, c->k_out);
  DLTensor *q = tensor_copy(a, c->q_out);
  assert_int_equal(trial_call(c->kernel, c->f.positions, &operands, c->q, q, few, out, 2), 0);
  assert_true(tensor_identical(q, c->q_out));
  for (int64_t b = 0; b < BATCHES; b++)
    for (int64_t n = 0; n < TOKENS; n++)
      assert_memory_equal(tensor_at(out, b, 0, n, 0), tensor_at(c->k_out, b, 0, n, 0), sizeof(float) * HEAD_DIM);
}

TEST(any_inputs) {
  call c = open_call();
  arena *a = c.f.memory;
  const DLTensor *other[2], *repeated[2], *whole[2];
  DLTensor *q = tensor_copy(a, c.q_out), *k = tensor_copy(a, c.q_out);
  for (int i = 0; i < 2; i++) other[i] = strided(a, c.f.inputs.tensors[i]);
  encode(&c, c.f.inputs.tensors, c.q_out, c.k_out);
  encode(&c, other, q, k);
  assert_true(tensor_identical(q, c.q_out) && tensor_identical(k, c.k_out));
  encode(&c, c.f.inputs.tensors, NULL, k); /* k alone */
  assert_true(tensor_identical(k, c.k_out));
  for (int dimension = 0; dimension < 2; dimension++) {
    for (int i = 0; i < 2; i++) {
      DLTensor *expanded = arena_new(a, DLTensor);
      repeated[i] = shaped(a, c.f.inputs.tensors[i], dimension, 1);
      *expanded = *c.f.inputs.tensors[i];
      expanded->strides = memcpy(arena_array(a, int64_t, 4), expanded->strides, sizeof(int64_t) * (size_t)expanded->ndim);
      expanded->strides[dimension] = 0;
      whole[i] = expanded;
    }
    encode(&c, whole, c.q_out, c.k_out);
    encode(&c, repeated, q, k);
    assert_true(tensor_identical(q, c.q_out) && tensor_identical(k, c.k_out));
  }
  fewer_heads(&c, repeated);
  close_call(&c);
}

static double product(const DLTensor *x, const DLTensor *y) {
  double sum = 0;
  for (int64_t b = 0; b < BATCHES; b++)
    for (int64_t h = 0; h < HEADS; h++)
      for (int64_t n = 0; n < TOKENS; n++)
        for (int c = 0; c < HEAD_DIM; c++)
          sum += (double)*(float *)tensor_at(x, b, h, n, c) * *(float *)tensor_at(y, b, h, n, c);
  return sum;
}

/* Of some shape the same as input + step * direction, contiguous; direction: random, or that of before. */
static DLTensor *moved(fixture *f, const DLTensor *input, double step, double *direction) {
  int64_t width = input->ndim == 4 ? input->shape[3] : 1, at = 0;
  double *values = arena_array(f->memory, double, BATCHES * HEADS * TOKENS * width);
  for (int64_t b = 0; b < input->shape[0]; b++)
    for (int64_t h = 0; h < input->shape[1]; h++)
      for (int64_t row = 0; row < TOKENS * width; row++, at++) {
        const float *from = (const float *)input->data + b * input->strides[0] + h * input->strides[1];
        values[at] = from[row] + step * direction[at];
      }
  return tensor_contiguous(f->memory, NUMBER_F32, input->ndim, input->shape, values);
}

/* What rows of inputs gain, each of its own, against differences of what is encoded by inputs nearby; the same of
 * inputs that stand for all batches or heads. */
static void inputs_gain(fixture *f, const pegen_kernel *kernel, DLTensor **x, DLTensor **y, DLTensor **g,
                        const pegen_args *rows) {
  const double step = 0x1p-11;
  arena *a = f->memory;
  pegen_grad_args grad = *rows->grad;
  pegen_args args = *rows;
  for (int shape = 0; shape < 3; shape++) {
    trial_operands operands = f->operands;
    DLTensor *gained[2];
    const DLTensor *given[2], *nearby[2][2];
    double *direction[2], slope = 0, expected = 0, size = 0;
    int64_t count[2];
    for (int i = 0; i < 2; i++) {
      const DLTensor *whole = f->inputs.tensors[i];
      given[i] = shape ? shaped(a, whole, shape - 1, 1) : whole;
      count[i] = given[i]->shape[0] * given[i]->shape[1] * TOKENS * (whole->ndim == 4 ? whole->shape[3] : 1);
      direction[i] = arena_array(a, double, count[i]);
      gained[i] = moved(f, given[i], 0, direction[i]);
      for (int64_t k = 0; k < count[i]; k++) direction[i][k] = random_uniform(&f->random, -1, 1);
      for (int side = 0; side < 2; side++) nearby[side][i] = moved(f, given[i], side ? step : -step, direction[i]);
    }
    for (int side = 0; side < 2; side++) {
      operands.inputs = nearby[side];
      assert_int_equal(trial_call(kernel, f->positions, &operands, x[0], y[0], x[1], y[1], 1), 0);
      for (int t = 0; t < 2; t++) expected += (side ? 1 : -1) * product(g[t], y[t]) / (2 * step);
    }
    args.grad = &grad;
    args.q = x[0], args.k = x[1];
    args.inputs = given;
    grad.flags = PEGEN_GRAD_FROM_INPUT;
    grad.inputs = gained;
    args.workspace = arena_alloc(a, kernel->encode_backward_workspace(&args) + 8); /* none on processors */
    for (int part = 2; part >= 0; part--) assert_int_equal(kernel->encode_backward(&args, part, 3), 0);
    for (int i = 0; i < 2; i++)
      for (int64_t k = 0; k < count[i]; k++) {
        slope += ((float *)gained[i]->data)[k] * direction[i][k];
        size += fabs(((float *)gained[i]->data)[k] * direction[i][k]);
      }
    assert_true(size > 1);
    if (!(fabs(slope - expected) <= 1e-3 * size + 1e-2)) fail_msg("shape %d: %g, not %g of %g", shape, slope, expected, size);
    gained[1]->device.device_type = kDLCUDA;
    assert_int_equal(kernel->encode_backward(&args, 0, 1), PEGEN_ERROR_DEVICE);
  }
}

/* <g, M x> = <M^T g, x>, each row by its own inputs; gradients of anything but rows are refused. */
TEST(gradients) {
  SCOPED fixture f = open_fixture("phase", "2");
  SCOPED_KERNEL *loaded = trial_load_gradients(f.memory, f.spec, wanted, PEGEN_DTYPE_F32, 1);
  const pegen_kernel *kernel = run_kernel(loaded);
  DLTensor *x[2], *g[2], *y[2], *back[2];
  for (int t = 0; t < 2; t++) {
    DLTensor **rows[] = {&x[t], &g[t], &y[t], &back[t]};
    for (int i = 0; i < 4; i++) {
      *rows[i] = tensor_rows(f.memory, NUMBER_F32, t ? ROWS_BNHD : ROWS_BHND, BATCHES, HEADS, TOKENS, HEAD_DIM);
      tensor_randomize(*rows[i], &f.random);
    }
  }
  assert_int_equal(trial_call(kernel, f.positions, &f.operands, x[0], y[0], x[1], y[1], 1), 0);
  pegen_grad_args grad = {.struct_size = sizeof grad, .q_out = g[0], .k_out = g[1], .q = back[0], .k = back[1]};
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = 1,
                     .operands = f.operands.tensors,
                     .positions = f.positions,
                     .inputs = f.inputs.tensors,
                     .n_inputs = 2,
                     .grad = &grad};
  assert_int_equal(kernel->encode_backward_workspace(&args), 0);
  for (int part = 2; part >= 0; part--) assert_int_equal(kernel->encode_backward(&args, part, 3), 0);
  for (int t = 0; t < 2; t++)
    for (int64_t row = 0; row < BATCHES * HEADS * TOKENS; row++) {
      int64_t b = row / TOKENS / HEADS, h = row / TOKENS % HEADS, n = row % TOKENS;
      double there = 0, here = 0;
      for (int c = 0; c < HEAD_DIM; c++) {
        there += (double)*(float *)tensor_at(g[t], b, h, n, c) * *(float *)tensor_at(y[t], b, h, n, c);
        here += (double)*(float *)tensor_at(back[t], b, h, n, c) * *(float *)tensor_at(x[t], b, h, n, c);
      }
      if (!(fabs(there - here) <= 0x1p-18)) fail_msg("row %lld: %g and %g", (long long)row, there, here);
    }
  inputs_gain(&f, kernel, x, y, g, &args);
  args.inputs = NULL;
  assert_int_equal(kernel->encode_backward(&args, 0, 1), PEGEN_ERROR_MISSING_INPUT);
}

TEST(refusals) {
  call c = open_call();
  arena *a = c.f.memory;
  const DLTensor *given[2] = {c.f.inputs.tensors[0], c.f.inputs.tensors[1]}, *inputs[2];
  DLTensor bf16 = *given[0], unaligned = *given[0], elsewhere = *given[0];
  DLTensor *less = tensor_rows(a, NUMBER_F32, ROWS_BNHD, BATCHES, HEADS - 1, TOKENS, HEAD_DIM);
  bf16.dtype = (DLDataType){kDLBfloat, 16, 1};
  unaligned.byte_offset = 2;
  elsewhere.device.device_type = kDLCUDA;
  const pegen_args sound = {.struct_size = sizeof sound,
                            .n_operands = 1,
                            .operands = c.f.operands.tensors,
                            .positions = c.f.positions,
                            .q = c.q,
                            .q_out = c.q_out,
                            .k = c.k,
                            .k_out = c.k_out,
                            .inputs = inputs,
                            .n_inputs = 2};
  pegen_args args;
#define REFUSED(error, change) \
  do { \
    memcpy(inputs, given, sizeof inputs); \
    args = sound; \
    change; \
    assert_int_equal(c.kernel->encode(&args, 0, 1), PEGEN_ERROR_##error); \
  } while (0)
  REFUSED(OK, (void)0);
  REFUSED(MISSING_INPUT, args.inputs = NULL);
  REFUSED(MISSING_INPUT, args.n_inputs = 1);
  REFUSED(MISSING_INPUT, inputs[1] = NULL);
  REFUSED(MISSING_INPUT, (args.q = NULL, args.q_out = NULL, inputs[0] = NULL));
  REFUSED(INPUT_SHAPE, inputs[0] = shaped(a, given[0], 2, TOKENS - 1));
  REFUSED(INPUT_SHAPE, inputs[0] = shaped(a, given[0], 2, 1));
  REFUSED(INPUT_SHAPE, inputs[0] = shaped(a, given[0], 1, -1));
  REFUSED(INPUT_SHAPE, inputs[0] = shaped(a, given[0], 3, 1));
  REFUSED(INPUT_SHAPE, inputs[0] = given[1]);
  REFUSED(INPUT_SHAPE, (args.k = less, args.k_out = less));
  REFUSED(OK, (args.k = less, args.k_out = less, inputs[0] = shaped(a, given[0], 1, 1), inputs[1] = shaped(a, given[1], 1, 1)));
  REFUSED(INPUT_DTYPE, inputs[0] = &bf16);
  REFUSED(ALIGNMENT, inputs[0] = &unaligned);
  REFUSED(DEVICE, inputs[0] = &elsewhere);
  REFUSED(OVERLAP, (inputs[0] = &elsewhere, elsewhere = *given[0], elsewhere.data = c.q_out->data));
  REFUSED(OVERLAP, (inputs[0] = &elsewhere, elsewhere = *given[0], elsewhere.data = c.k_out->data, args.q = NULL,
                    args.q_out = NULL));
  REFUSED(MISSING_POSITIONS, args.positions = NULL);
  assert_null(c.kernel->prepare); /* a table has nothing to hold */
  close_call(&c);
}

int main(int argc, char **argv) {
  wanted = argc > 1 ? argv[1] : NULL;
  return run_listed();
}
