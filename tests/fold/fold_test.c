/* pegen_fold_basis end to end: scores of the kernel with basis=folded on folded weights are those of the reference with
 * basis=channels on the weights as they were, within 2^-18 of |q||k|. And what it refuses, and leaves alone.
 */
#include "base/number.h"
#include "described.h"
#include "scoped.h"
#include "test.h"
#include "verify/reference.h"
#include "verify/trial.h"

#include "pegen/fold.h"

#include <math.h>
#include <string.h>

enum { TOKENS = 7, INPUTS = 33 };
static const double BOUND = 0x1p-18;

typedef struct encoding {
  const char *name, *spec;
  int head_dim, heads, block; /* block 0: a Cayley transform of the head */
  double reach; /* positions are drawn from [-reach, reach] */
  bool narrow; /* weights and frequencies in float32 */
  bool transposed; /* weights stored as [inputs, outputs] */
} encoding;

static const encoding ENCODINGS[] = {
    {"comrope_ap", "comrope_ap", 64, 3, 8, 1, false, false},
    {"comrope_ap, far", "comrope_ap", 64, 1, 8, 60, false, true},
    {"comrope_ap, float32", "comrope_ap", 64, 3, 16, 1, true, false},
    {"comrope_ap, odd blocks", "comrope_ap", 40, 2, 7, 4, false, false},
    {"comrope_ap, one block", "comrope_ap", 64, 2, 64, 1, false, false},
    {"comrope_ld", "comrope_ld", 64, 3, 8, 1, false, false},
    {"comrope_ld, pairs", "comrope_ld", 24, 3, 2, 4, true, true},
    {"string_cayley", "string_cayley", 64, 3, 0, 4, false, false},
    {"string_cayley, float32", "string_cayley", 48, 2, 0, 1, true, true},
};

typedef struct fixture {
  arena *memory;
  const encoding *e;
  spec *plain, *folded;
  uint64_t random;
  trial_operands operands; /* of the plain description */
  double *input; /* [TOKENS][INPUTS] */
  double *positions; /* [TOKENS][axes] */
  double *weight[2]; /* [heads * head_dim][INPUTS], as the tensors hold them */
  double *bias; /* [heads * head_dim], of q */
} fixture;

static spec *load(fixture *f, const char *basis) {
  const char *block = f->e->block ? arena_printf(f->memory, " block=%d", f->e->block) : "";
  return described(f->memory, "%s head_dim=%d heads=%d basis=%s%s", f->e->spec, f->e->head_dim, f->e->heads, basis,
                   block);
}

static double *numbers(fixture *f, int64_t count, double size, bool narrow) {
  double *x = arena_array(f->memory, double, count);
  for (int64_t i = 0; i < count; i++) {
    x[i] = random_uniform(&f->random, -size, size);
    if (narrow) x[i] = (float)x[i];
  }
  return x;
}

static fixture fixture_open(const encoding *e) {
  fixture f = {.memory = arena_create(), .e = e, .random = 20260101};
  f.plain = load(&f, "channels");
  f.folded = load(&f, "folded");
  f.operands = trial_random_operands(f.memory, f.plain, NUMBER_F64, &f.random);
  int64_t rows = e->heads * e->head_dim;
  f.input = numbers(&f, TOKENS * INPUTS, 1, false);
  f.positions = numbers(&f, TOKENS * f.plain->n_axes, e->reach, false);
  f.bias = numbers(&f, rows, 1, e->narrow);
  for (int i = 0; i < 2; i++) f.weight[i] = numbers(&f, rows * INPUTS, 0.3, e->narrow);
  return f;
}

/* A weight as a tensor; stored the other way round where the encoding says so. */
static DLTensor *weight_tensor(fixture *f, const double *values) {
  int64_t rows = f->e->heads * f->e->head_dim;
  number_type type = f->e->narrow ? NUMBER_F32 : NUMBER_F64;
  if (!f->e->transposed) return tensor_contiguous(f->memory, type, 2, (int64_t[]){rows, INPUTS}, values);
  double *turned = arena_array(f->memory, double, rows *INPUTS);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < INPUTS; j++) turned[j * rows + i] = values[i * INPUTS + j];
  DLTensor *t = tensor_contiguous(f->memory, type, 2, (int64_t[]){INPUTS, rows}, turned);
  t->shape[0] = rows, t->shape[1] = INPUTS;
  t->strides[0] = 1, t->strides[1] = rows;
  return t;
}

static double element(const DLTensor *t, int64_t i, int64_t j) {
  int64_t at = i * t->strides[0] + (t->ndim > 1 ? j * t->strides[1] : 0);
  return number_load(number_type_of(t->dtype), (char *)t->data + at * (t->dtype.bits / 8));
}

/* W x + b of a token. bias may be NULL. */
static double projected(const fixture *f, const double *weight, const double *bias, int64_t token, int64_t row) {
  double sum = bias ? bias[row] : 0;
  for (int i = 0; i < INPUTS; i++) sum += weight[row * INPUTS + i] * f->input[token * INPUTS + i];
  return sum;
}

static double projected_by(const fixture *f, const DLTensor *weight, const DLTensor *bias, int64_t token, int64_t row) {
  double sum = bias ? element(bias, row, 0) : 0;
  for (int i = 0; i < INPUTS; i++) sum += element(weight, row, i) * f->input[token * INPUTS + i];
  return sum;
}

static int operand_index(const spec *s, const char *name) {
  for (int i = 0; i < s->n_operands; i++)
    if (strcmp(s->operand[i].name, name) == 0) return i;
  return -1;
}

/* The operands of the folded description: those of the plain one by name, and the frequencies. */
static trial_operands folded_operands(fixture *f, const DLTensor *frequencies) {
  const spec *s = f->folded;
  trial_operands o = {.values = arena_array(f->memory, const double *, s->n_operands),
                      .tensors = arena_array(f->memory, const DLTensor *, s->n_operands)};
  for (int i = 0; i < s->n_operands; i++) {
    int from = operand_index(f->plain, s->operand[i].name);
    o.tensors[i] = from < 0 ? frequencies : f->operands.tensors[from];
  }
  return o;
}

/* Rows that the folded kernel makes of weights that were folded; [1, heads, TOKENS, head_dim]. */
static DLTensor *encoded_rows(fixture *f, const pegen_kernel *kernel, const trial_operands *operands,
                              const DLTensor *weight, const DLTensor *bias) {
  const encoding *e = f->e;
  DLTensor *rows = tensor_rows(f->memory, NUMBER_F32, ROWS_BHND, 1, e->heads, TOKENS, e->head_dim);
  for (int64_t h = 0; h < e->heads; h++)
    for (int64_t n = 0; n < TOKENS; n++)
      for (int64_t c = 0; c < e->head_dim; c++)
        number_store(NUMBER_F32, tensor_at(rows, 0, h, n, c), projected_by(f, weight, bias, n, h * e->head_dim + c));
  DLTensor *positions =
      tensor_contiguous(f->memory, NUMBER_F64, 2, (int64_t[]){TOKENS, f->folded->n_axes}, f->positions);
  assert_int_equal(trial_call(kernel, positions, operands, rows, rows, NULL, NULL, 1), 0);
  return rows;
}

/* What the reference makes of the weights as they were. */
static void reference_rows(fixture *f, const double *weight, const double *bias, long double *out) {
  const encoding *e = f->e;
  double row[SPEC_MAX_HEAD_DIM];
  for (int64_t h = 0; h < e->heads; h++)
    for (int64_t n = 0; n < TOKENS; n++) {
      for (int64_t c = 0; c < e->head_dim; c++) row[c] = projected(f, weight, bias, n, h * e->head_dim + c);
      reference_row(f->plain, f->positions + n * f->plain->n_axes, f->operands.values, e->heads > 1 ? (int)h : 0, row,
                    out + (h * TOKENS + n) * e->head_dim);
    }
}

static void compare_scores(const fixture *f, const DLTensor *q, const DLTensor *k, const long double *q_exact,
                           const long double *k_exact) {
  const encoding *e = f->e;
  for (int64_t h = 0; h < e->heads; h++)
    for (int64_t i = 0; i < TOKENS; i++)
      for (int64_t j = 0; j < TOKENS; j++) {
        const long double *x = q_exact + (h * TOKENS + i) * e->head_dim, *y = k_exact + (h * TOKENS + j) * e->head_dim;
        long double exact = 0, got = 0, xx = 0, yy = 0;
        for (int c = 0; c < e->head_dim; c++) {
          exact += x[c] * y[c], xx += x[c] * x[c], yy += y[c] * y[c];
          got += (long double)number_load(NUMBER_F32, tensor_at(q, 0, h, i, c)) *
                 number_load(NUMBER_F32, tensor_at(k, 0, h, j, c));
        }
        if (!(fabsl(got - exact) <= BOUND * sqrtl(xx * yy)))
          fail_msg("head %d, tokens %d and %d: score %Lg, exact %Lg", (int)h, (int)i, (int)j, got, exact);
      }
}

static void scores_are_kept(void **state) {
  SCOPED fixture f = fixture_open(*state);
  const encoding *e = f.e;
  number_type type = e->narrow ? NUMBER_F32 : NUMBER_F64;
  const DLTensor *raw = f.operands.tensors[operand_index(f.plain, e->block ? "generators" : "cayley")];
  DLTensor *q_weight = weight_tensor(&f, f.weight[0]), *k_weight = weight_tensor(&f, f.weight[1]), *frequencies = NULL;
  DLTensor *q_bias = tensor_contiguous(f.memory, type, 1, (int64_t[]){e->heads * e->head_dim}, f.bias);
  if (e->block) {
    int64_t shape[] = {e->heads, e->head_dim / e->block, e->block / 2};
    frequencies = tensor_contiguous(f.memory, type, 3, shape, numbers(&f, shape[0] * shape[1] * shape[2], 1, false));
  }
  pegen_fold fold = {.struct_size = sizeof fold,
                     .rule = e->block ? PEGEN_SKEW_DIFFERENCE : PEGEN_SKEW_UPPER,
                     .head_dim = e->head_dim,
                     .generators = e->block ? raw : NULL,
                     .frequencies = frequencies,
                     .cayley = e->block ? NULL : raw,
                     .q_weight = q_weight,
                     .k_weight = k_weight,
                     .q_bias = q_bias};
  assert_int_equal(pegen_fold_basis(&fold), 0);

  SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.folded, NULL, 0, 2));
  trial_operands operands = folded_operands(&f, frequencies);
  DLTensor *q = encoded_rows(&f, run_kernel(loaded), &operands, q_weight, q_bias);
  DLTensor *k = encoded_rows(&f, run_kernel(loaded), &operands, k_weight, NULL);
  int64_t count = e->heads * TOKENS * e->head_dim;
  long double *q_exact = arena_array(f.memory, long double, count),
              *k_exact = arena_array(f.memory, long double, count);
  reference_rows(&f, f.weight[0], f.bias, q_exact);
  reference_rows(&f, f.weight[1], NULL, k_exact);
  compare_scores(&f, q, k, q_exact, k_exact);
}

/* ---- refusals, and what is left alone ---- */

enum { HEADS = 2, BLOCKS = 3, SIZE = 4, DIM = 14 }; /* two channels of a head in no block */

typedef struct pieces {
  double raw[HEADS * BLOCKS * SIZE * SIZE], lambda[HEADS * BLOCKS * SIZE / 2], weight[2][HEADS * DIM * 5],
      bias[2][HEADS * DIM];
  int64_t raw_shape[4], lambda_shape[3], weight_shape[2][2], bias_shape[2][1];
  DLTensor raw_tensor, lambda_tensor, weights[2], biases[2];
  pegen_fold fold;
} pieces;

static DLTensor tensor(void *data, int rank, int64_t *shape) {
  return (DLTensor){data, {kDLCPU, 0}, rank, {kDLFloat, 64, 1}, shape, NULL, 0};
}

static void pieces_set(pieces *p) {
  memset(p, 0, sizeof *p);
  for (size_t i = 0; i < sizeof p->raw / sizeof *p->raw; i++) p->raw[i] = sin(1.3 * (double)i);
  for (int i = 0; i < 2; i++)
    for (int k = 0; k < HEADS * DIM * 5; k++) p->weight[i][k] = cos(0.7 * k + i);
  memcpy(p->raw_shape, (int64_t[]){HEADS, BLOCKS, SIZE, SIZE}, sizeof p->raw_shape);
  memcpy(p->lambda_shape, (int64_t[]){HEADS, BLOCKS, SIZE / 2}, sizeof p->lambda_shape);
  p->raw_tensor = tensor(p->raw, 4, p->raw_shape);
  p->lambda_tensor = tensor(p->lambda, 3, p->lambda_shape);
  for (int i = 0; i < 2; i++) {
    p->weight_shape[i][0] = p->bias_shape[i][0] = HEADS * DIM, p->weight_shape[i][1] = 5;
    p->weights[i] = tensor(p->weight[i], 2, p->weight_shape[i]);
    p->biases[i] = tensor(p->bias[i], 1, p->bias_shape[i]);
  }
  p->fold = (pegen_fold){.struct_size = sizeof p->fold,
                         .rule = PEGEN_SKEW_DIFFERENCE,
                         .head_dim = DIM,
                         .generators = &p->raw_tensor,
                         .frequencies = &p->lambda_tensor,
                         .q_weight = &p->weights[0],
                         .k_weight = &p->weights[1],
                         .q_bias = &p->biases[0],
                         .k_bias = &p->biases[1]};
}

/* Refused with this error, and nothing was written. */
static void refused(pieces *p, int error) {
  pieces before;
  memcpy(&before, p, sizeof before);
  assert_int_equal(pegen_fold_basis(&p->fold), error);
  assert_memory_equal(p, &before, sizeof before);
  pieces_set(p);
}

TEST(wrong_calls_are_refused) {
  static pieces p;
  pieces_set(&p);
  assert_int_equal(pegen_fold_basis(NULL), PEGEN_ERROR_NULL_ARGS);
  p.fold.struct_size--, refused(&p, PEGEN_ERROR_STRUCT_SIZE);
  p.fold.generators = NULL, refused(&p, PEGEN_ERROR_NOTHING_TO_DO);
  p.fold.cayley = &p.raw_tensor, refused(&p, PEGEN_ERROR_NOTHING_TO_DO);
  p.fold.rule = 2, refused(&p, PEGEN_ERROR_SHAPE_MISMATCH);
  p.fold.head_dim = 0, refused(&p, PEGEN_ERROR_HEAD_DIM);
  p.fold.head_dim = 11, refused(&p, PEGEN_ERROR_OPERAND_SHAPE); /* three blocks of four do not fit */
  p.fold.head_dim = 13, refused(&p, PEGEN_ERROR_SHAPE_MISMATCH);
  p.raw_tensor.ndim = 3, refused(&p, PEGEN_ERROR_RANK);
  p.raw_shape[3] = 3, refused(&p, PEGEN_ERROR_OPERAND_SHAPE);
  p.raw_shape[0] = 0, refused(&p, PEGEN_ERROR_OPERAND_SHAPE);
  p.raw_shape[2] = -4, refused(&p, PEGEN_ERROR_NEGATIVE_SIZE);
  p.raw_tensor.dtype.code = kDLInt, refused(&p, PEGEN_ERROR_OPERAND_DTYPE);
  p.raw_tensor.data = NULL, refused(&p, PEGEN_ERROR_NULL_DATA);
  p.raw_tensor.shape = NULL, refused(&p, PEGEN_ERROR_NULL_SHAPE);
  p.raw_tensor.device.device_type = kDLCUDA, refused(&p, PEGEN_ERROR_DEVICE);
  p.lambda_shape[2] = 3, refused(&p, PEGEN_ERROR_SHAPE_MISMATCH);
  p.lambda_tensor.dtype = (DLDataType){kDLBfloat, 16, 1}, refused(&p, PEGEN_ERROR_DTYPE);
  p.weights[1].dtype = (DLDataType){kDLFloat, 16, 1}, refused(&p, PEGEN_ERROR_DTYPE);
  p.weight_shape[0][0] = DIM, refused(&p, PEGEN_ERROR_HEADS); /* one head, matrices of two */
  p.weights[0].ndim = 1, refused(&p, PEGEN_ERROR_RANK);
  p.weights[0].strides = (int64_t[]){5, 0}, refused(&p, PEGEN_ERROR_STRIDE);
  p.weights[0].byte_offset = 4, refused(&p, PEGEN_ERROR_ALIGNMENT);
  p.weights[1].data = p.weight[0], refused(&p, PEGEN_ERROR_OVERLAP);
  p.bias_shape[1][0] = 27, refused(&p, PEGEN_ERROR_SHAPE_MISMATCH);
  p.raw_shape[0] = p.raw_shape[1] = INT64_C(1) << 40, refused(&p, PEGEN_ERROR_SIZE_OVERFLOW);
}

/* Channels of no block keep their bits; a block of matrices that are not numbers spoils itself alone. */
TEST(blocks_stand_alone) {
  static pieces p, clean;
  enum { BAD_HEAD = 1, BAD_BLOCK = 2 };
  pieces_set(&clean);
  assert_int_equal(pegen_fold_basis(&clean.fold), 0);
  pieces_set(&p);
  p.raw[(BAD_HEAD * BLOCKS + BAD_BLOCK) * SIZE * SIZE + 1] = NAN;
  double before[HEADS * DIM * 5];
  memcpy(before, p.weight[0], sizeof before);
  assert_int_equal(pegen_fold_basis(&p.fold), 0);
  for (int row = 0; row < HEADS * DIM; row++)
    for (int i = 0; i < 5; i++) {
      int channel = row % DIM, at = row * 5 + i;
      bool bad = row / DIM == BAD_HEAD && channel / SIZE == BAD_BLOCK;
      if (bad) assert_true(isnan(p.weight[0][at]) && isnan(p.weight[1][at]) && isnan(p.bias[0][row]));
      else if (channel >= BLOCKS * SIZE) assert_true(p.weight[0][at] == before[at]);
      else assert_true(p.weight[0][at] == clean.weight[0][at]);
    }
  for (int i = 0; i < HEADS * BLOCKS * SIZE / 2; i++)
    assert_true(isnan(p.lambda[i]) == (i / (SIZE / 2) == BAD_HEAD * BLOCKS + BAD_BLOCK));
}

/* Matrices that all heads share fold any number of heads, and q and k may differ in theirs. */
TEST(shared_matrices_serve_all_heads) {
  static pieces p, one;
  pieces_set(&p);
  p.raw_shape[0] = p.lambda_shape[0] = 1;
  p.weight_shape[1][0] = p.bias_shape[1][0] = DIM;
  pieces_set(&one);
  one.raw_shape[0] = one.lambda_shape[0] = 1;
  one.weight_shape[0][0] = one.bias_shape[0][0] = DIM;
  one.weights[0].data = one.weight[0] + DIM * 5; /* the second head alone */
  assert_int_equal(pegen_fold_basis(&p.fold), 0);
  assert_int_equal(pegen_fold_basis(&one.fold), 0);
  for (int i = 0; i < DIM * 5; i++) assert_true(p.weight[0][DIM * 5 + i] == one.weight[0][DIM * 5 + i]);
  for (int i = DIM * 5; i < HEADS * DIM * 5; i++) assert_true(p.weight[1][i] == cos(0.7 * i + 1));
}

int main(void) {
  for (size_t i = 0; i < sizeof ENCODINGS / sizeof *ENCODINGS; i++)
    list_row(ENCODINGS[i].name, scores_are_kept, &ENCODINGS[i]);
  return run_listed();
}
