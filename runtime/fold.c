/* fold.c: pegen_fold_basis; see pegen/fold.h.
 *
 * Arithmetic is float64 whatever the weights are. A matrix is applied to a few columns of a weight at a time, gathered
 * and put back.
 */
#include "pegen/fold.h"

#include "../kernel/float_state.h"
#include "../kernel/number_types.h"
#include "../kernel/skew.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RANK = 4, COLUMNS = 16, OUTPUTS = 5, MAX_HEAD_DIM = 4096 };

/* A tensor that was checked, with strides of its own in bytes. */
typedef struct view {
  const DLTensor *tensor; /* NULL: not given */
  char *data;
  int64_t size[MAX_RANK], stride[MAX_RANK];
} view;

typedef struct folding {
  const pegen_fold *given;
  view raw, frequencies, weight[2], bias[2];
  int64_t heads, blocks, size; /* of the raw matrices */
  double *matrix, *basis;      /* [size][size] */
  double *column, *result;     /* [size][COLUMNS] */
  double lambda[PEGEN_SCHUR_MAX / 2];
} folding;

/* ---- elements ---- */

static void store(const DLTensor *t, char *at, double value) {
  if (t->dtype.bits == 64) *(double *)at = value;
  else *(float *)at = (float)value;
}

static char *at2(const view *v, int64_t i, int64_t j) { return v->data + i * v->stride[0] + j * v->stride[1]; }

/* ---- checks ---- */

static int view_of(const DLTensor *t, int rank, int is_raw, view *v) {
  if (t->ndim != rank) return PEGEN_ERROR_RANK;
  if (!t->shape) return PEGEN_ERROR_NULL_SHAPE;
  if (t->device.device_type != kDLCPU) return PEGEN_ERROR_DEVICE;
  int64_t type = pegen_number_of(t->dtype);
  if (type != PEGEN_NUMBER_F32 && type != PEGEN_NUMBER_F64 && !is_raw) return PEGEN_ERROR_DTYPE;
  if (!pegen_number_is_operand(t->dtype)) return PEGEN_ERROR_OPERAND_DTYPE;
  int64_t bytes = t->dtype.bits / 8, elements = 1;
  for (int d = rank - 1; d >= 0; d--) {
    if (t->shape[d] < 0) return PEGEN_ERROR_NEGATIVE_SIZE;
    int64_t stride = t->strides ? t->strides[d] : elements;
    v->size[d] = t->shape[d];
    if (__builtin_mul_overflow(elements, t->shape[d], &elements) ||
        __builtin_mul_overflow(stride, bytes, &v->stride[d]))
      return PEGEN_ERROR_SIZE_OVERFLOW;
  }
  if (elements > 0 && !t->data) return PEGEN_ERROR_NULL_DATA;
  v->data = (char *)t->data + t->byte_offset;
  if (elements > 0 && (uintptr_t)v->data % (uintptr_t)bytes != 0) return PEGEN_ERROR_ALIGNMENT;
  v->tensor = t;
  return 0;
}

/* [heads * head_dim] rows, of as many heads as there are matrices where those differ. */
static int check_output(const folding *f, const view *v) {
  int64_t dim = f->given->head_dim;
  if (!v->tensor) return 0;
  if (v->size[0] % dim != 0) return PEGEN_ERROR_SHAPE_MISMATCH;
  if (f->heads > 1 && v->size[0] != f->heads * dim) return PEGEN_ERROR_HEADS;
  for (int d = 0; d < v->tensor->ndim; d++)
    if (v->size[d] > 1 && v->stride[d] == 0) return PEGEN_ERROR_STRIDE;
  return 0;
}

/* Views of the raw matrices: [heads, blocks, size, size], with dimensions of one in front where there are fewer. */
static int check_raw(folding *f) {
  const pegen_fold *given = f->given;
  const DLTensor *raw = given->generators ? given->generators : given->cayley;
  int whole = !given->generators, rank = raw->ndim, error;
  if (whole ? rank != 2 && rank != 3 : rank != 4) return PEGEN_ERROR_RANK;
  view v;
  if ((error = view_of(raw, rank, 1, &v)) != 0) return error;
  f->raw = v;
  for (int d = 0; d < MAX_RANK; d++) { /* from the last backwards; a head's one matrix has no dimension of blocks */
    int from = whole ? (d >= 2 ? rank - 4 + d : rank == 3 && d == 0 ? 0 : -1) : d;
    f->raw.size[d] = from < 0 ? 1 : v.size[from];
    f->raw.stride[d] = from < 0 ? 0 : v.stride[from];
  }
  f->heads = f->raw.size[0];
  f->blocks = f->raw.size[1];
  f->size = f->raw.size[2];
  if (f->size != f->raw.size[3] || f->heads < 1 || f->blocks < 1) return PEGEN_ERROR_OPERAND_SHAPE;
  if (whole ? f->size != given->head_dim
            : f->size < 2 || f->size > PEGEN_SCHUR_MAX || f->blocks > given->head_dim / f->size)
    return PEGEN_ERROR_OPERAND_SHAPE;
  return 0;
}

static int check(folding *f) {
  const pegen_fold *given = f->given;
  int error;
  if (given->struct_size != sizeof *given) return PEGEN_ERROR_STRUCT_SIZE;
  if (!given->generators == !given->cayley) return PEGEN_ERROR_NOTHING_TO_DO;
  if (given->head_dim < 1 || given->head_dim > MAX_HEAD_DIM) return PEGEN_ERROR_HEAD_DIM;
  if ((given->rule != PEGEN_SKEW_UPPER && given->rule != PEGEN_SKEW_DIFFERENCE) ||
      (given->frequencies && given->cayley))
    return PEGEN_ERROR_SHAPE_MISMATCH;
  if ((error = check_raw(f)) != 0) return error;
  const struct {
    const DLTensor *tensor;
    int rank;
    view *view;
  } outputs[OUTPUTS] = {{given->q_weight, 2, &f->weight[0]},
                        {given->k_weight, 2, &f->weight[1]},
                        {given->q_bias, 1, &f->bias[0]},
                        {given->k_bias, 1, &f->bias[1]},
                        {given->frequencies, 3, &f->frequencies}};
  for (int i = 0; i < OUTPUTS; i++) {
    if (outputs[i].tensor && (error = view_of(outputs[i].tensor, outputs[i].rank, 0, outputs[i].view)) != 0)
      return error;
    for (int j = 0; j < i; j++)
      if (outputs[i].tensor && outputs[j].tensor && outputs[i].view->data &&
          outputs[i].view->data == outputs[j].view->data)
        return PEGEN_ERROR_OVERLAP;
  }
  for (int i = 0; i < 2; i++)
    if ((error = check_output(f, &f->weight[i])) != 0 || (error = check_output(f, &f->bias[i])) != 0) return error;
  const view *lambda = &f->frequencies;
  if (lambda->tensor && (lambda->size[0] != f->heads || lambda->size[1] != f->blocks || lambda->size[2] != f->size / 2))
    return PEGEN_ERROR_SHAPE_MISMATCH;
  return 0;
}

/* ---- work ---- */

/* The basis of a head's block, and its frequencies. */
static void find_basis(folding *f, int64_t head, int64_t block) {
  int n = (int)f->size;
  const char *from = f->raw.data + head * f->raw.stride[0] + block * f->raw.stride[1];
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++)
      f->matrix[i * n + j] =
          pegen_number_load(pegen_number_of(f->raw.tensor->dtype), from + i * f->raw.stride[2] + j * f->raw.stride[3]);
  pegen_skew_make(n, f->given->rule, f->matrix);
  if (f->given->cayley) {
    pegen_cayley(n, f->matrix, f->basis);
    return;
  }
  pegen_schur(n, f->matrix, f->basis, f->lambda);
  for (int k = 0; k < n / 2 && f->frequencies.tensor; k++)
    store(f->frequencies.tensor, at2(&f->frequencies, head, block) + k * f->frequencies.stride[2], f->lambda[k]);
}

/* Rows [row, row + size) of a weight or bias are multiplied by the basis from the left. */
static void multiply_rows(const folding *f, const view *v, int64_t row) {
  int64_t n = f->size, columns = v->tensor->ndim > 1 ? v->size[1] : 1, step = v->tensor->ndim > 1 ? v->stride[1] : 0;
  for (int64_t begin = 0; begin < columns; begin += COLUMNS) {
    int64_t width = columns - begin < COLUMNS ? columns - begin : COLUMNS;
    char *corner = v->data + row * v->stride[0] + begin * step;
    for (int64_t i = 0; i < n; i++)
      for (int64_t c = 0; c < width; c++)
        f->column[i * COLUMNS + c] =
            pegen_number_load(pegen_number_of(v->tensor->dtype), corner + i * v->stride[0] + c * step);
    for (int64_t i = 0; i < n; i++) {
      double *result = f->result + i * COLUMNS;
      for (int64_t c = 0; c < COLUMNS; c++) result[c] = 0;
      for (int64_t k = 0; k < n; k++)
        for (int64_t c = 0; c < width; c++) result[c] += f->basis[i * n + k] * f->column[k * COLUMNS + c];
    }
    for (int64_t i = 0; i < n; i++)
      for (int64_t c = 0; c < width; c++)
        store(v->tensor, corner + i * v->stride[0] + c * step, f->result[i * COLUMNS + c]);
  }
}

static void fold_block(folding *f, int64_t head, int64_t block) {
  int64_t dim = f->given->head_dim;
  find_basis(f, head, block);
  for (int i = 0; i < 2; i++) {
    const view *outputs[] = {&f->weight[i], &f->bias[i]};
    for (int o = 0; o < 2; o++) {
      if (!outputs[o]->tensor) continue;
      /* Matrices that all heads share serve every head there is. */
      int64_t first = f->heads > 1 ? head : 0, last = f->heads > 1 ? head + 1 : outputs[o]->size[0] / dim;
      for (int64_t h = first; h < last; h++) multiply_rows(f, outputs[o], h * dim + block * f->size);
    }
  }
}

/* Not inlined: no arithmetic of it may move past what sets its floating-point state. */
static __attribute__((noinline)) int fold_basis(const pegen_fold *fold) {
  folding f;
  if (!fold) return PEGEN_ERROR_NULL_ARGS;
  memset(&f, 0, sizeof f);
  f.given = fold;
  int error = check(&f);
  if (error) return error;
  size_t square = (size_t)(f.size * f.size), columns = (size_t)(f.size * COLUMNS);
  double *memory = malloc(2 * (square + columns) * sizeof *memory);
  if (!memory) return PEGEN_ERROR_NO_MEMORY;
  f.matrix = memory;
  f.basis = f.matrix + square;
  f.column = f.basis + square;
  f.result = f.column + columns;
  for (int64_t head = 0; head < f.heads; head++)
    for (int64_t block = 0; block < f.blocks; block++) fold_block(&f, head, block);
  free(memory);
  return 0;
}

int pegen_fold_basis(const pegen_fold *fold) {
  uint64_t found = pegen_float_begin();
  int error = fold_basis(fold);
  pegen_float_end(found);
  return error;
}
