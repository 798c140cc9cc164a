/* verify/trial: runs kernels on tensors of its own making and compares them with the reference.
 *
 * What check and the tests share: tensors in the memory orders callers have, random
 * operands, calls in parts, and the reference's matrices, computed once per (positions,
 * token, head, block) however many kernels are compared with them.
 */
#pragma once

#include "base/arena.h"
#include "base/number.h"
#include "pegen/pegen.h"
#include "spec/spec.h"
#include "target/request.h"
#include "verify/run.h"

#include <stdbool.h>

/* ---- tensors; all memory is the arena's ---- */

/* Memory of [B,H,N,D] rows: as the shape says, [B,N,H,D], and with gaps of odd sizes between rows. */
typedef enum row_order { ROWS_BHND, ROWS_BNHD, ROWS_GAPS, ROW_ORDER_COUNT } row_order;

DLTensor *tensor_rows(arena *a, number_type type, row_order order, int64_t batch, int64_t heads, int64_t tokens,
                      int64_t channels);
/* values NULL: zeros. */
DLTensor *tensor_contiguous(arena *a, number_type type, int rank, const int64_t *shape, const double *values);
/* From the first element to behind the last one; strides are not negative. */
size_t tensor_bytes(const DLTensor *t);
int64_t tensor_elements(const DLTensor *t);
/* A copy with the same strides and bytes, gaps included. */
DLTensor *tensor_copy(arena *a, const DLTensor *rows);
void *tensor_at(const DLTensor *rows, int64_t b, int64_t h, int64_t n, int64_t c);
/* The number at a place of a tensor of any type. */
double tensor_get(const DLTensor *rows, int64_t b, int64_t h, int64_t n, int64_t c);
void tensor_set(const DLTensor *rows, int64_t b, int64_t h, int64_t n, int64_t c, double value);
/* The numbers of a head's rows, [tokens][channels]. */
const double *tensor_head(arena *a, const DLTensor *rows, int64_t b, int64_t h);
/* A tensor of the same shape, whose numbers are not set; and one with the same numbers times a factor, rounded. */
DLTensor *tensor_like(arena *a, const DLTensor *rows, number_type type, row_order order);
DLTensor *tensor_converted(arena *a, const DLTensor *rows, number_type type, row_order order, float factor);
/* Loops over all rows, and over all numbers of them. */
#define EACH_ROW(t, b, h, n) \
  for (int64_t b = 0; b < (t)->shape[0]; b++) \
    for (int64_t h = 0; h < (t)->shape[1]; h++) \
      for (int64_t n = 0; n < (t)->shape[2]; n++)
#define EACH_NUMBER(t, b, h, n, c) EACH_ROW(t, b, h, n) for (int c = 0; c < (t)->shape[3]; c++)
/* Fills with random numbers of [-1, 1]. */
void tensor_randomize(DLTensor *rows, uint64_t *random);
/* Whether all elements have the same bits; the memory orders may differ. */
bool tensor_identical(const DLTensor *x, const DLTensor *y);
/* Whether the bytes between the rows are the same; one memory order. */
bool tensor_gaps_identical(const DLTensor *x, const DLTensor *y);

/* ---- kernels ---- */

/* Whether this machine runs code of the target; a GPU's it runs thread by thread (verify/run_threads.h). */
bool trial_runnable(const char *target);
/* The targets of the list (NULL: all processors) that this machine runs; returns their number. A
 * target that no compiler has comes back too, so that compile() reports it. */
int trial_targets(arena *a, const char *list, const char ***names);

/* Compiles and loads; NULL after a diag_error. The caller unloads. dtypes as in compile_options. Without entries of
 * gradients, which take as long to compile as all the others; and with them. */
loaded_kernel *trial_load(arena *a, const spec *s, const char *targets, unsigned dtypes, int optimize);
loaded_kernel *trial_load_gradients(arena *a, const spec *s, const char *targets, unsigned dtypes, int optimize);
/* Compiles an object as the options say, and loads it; processors alone, or PTX beside them. NULL after a diag_error.
 */
loaded_kernel *trial_load_as(arena *a, const spec *s, const compile_options *options);

typedef struct trial_operands {
  const double **values;    /* what the reference reads: exactly what the tensors hold */
  const DLTensor **tensors;
  /* For descriptions that rotate rows by inputs, whose reference reads a row of each input behind the operands' values:
   * that row, which stands for all (trial_typical_inputs), is what calls are given where this is NULL. */
  const DLTensor **inputs;
} trial_operands;

void trial_typical_inputs(arena *a, const spec *s, uint64_t *random, const double **rows);
/* The typical row of each input for all rows of so many tokens, as tensors. */
const DLTensor **trial_repeated_inputs(arena *a, const pegen_kernel *kernel, const trial_operands *operands,
                                       int64_t tokens);

/* Uniform in [-test_scale, test_scale], and across the description's kinks beyond (verify/kinks.h), as a tensor of the
 * type. */
trial_operands trial_random_operands(arena *a, const spec *s, number_type type, uint64_t *random);
/* Operands of given float64 values; and these values rounded to another type, for the reference too. */
trial_operands trial_given_operands(arena *a, const spec *s, const double *const *values);
trial_operands trial_rounded_operands(arena *a, const spec *s, const double *const *values, number_type type);

/* Rows of the query tokens beside q. */
typedef struct trial_inputs {
  const double **values; /* [B][H][N][size], exactly what the tensors hold */
  const DLTensor **tensors;
} trial_inputs;

/* Uniform in [-test_scale, test_scale], contiguous tensors of the type. */
trial_inputs trial_random_inputs(arena *a, const spec *s, number_type type, int64_t batch, int64_t heads,
                                 int64_t tokens, uint64_t *random);
/* Random inputs beside queries of [B][H][N], or the keys of their heads; those of scores are float32. */
trial_inputs trial_pair_inputs(arena *a, const spec *s, number_type type, const int64_t *q_sizes, int64_t keys,
                               uint64_t *random);
/* The row of each input that belongs to a query; rows [inputs]. */
void trial_input_rows(const spec *s, const trial_inputs *inputs, int64_t query, const double **rows);

/* One call of an entry, from the last part to the first, whose order must not matter, with a workspace of as many bytes
 * as `needs` says, and then of the entry that finishes it (NULL: none). Returns the first error. */
typedef int trial_entry(const pegen_args *args, int part, int parts);
int trial_run(pegen_args *args, size_t (*needs)(const pegen_args *args), trial_entry *entry, trial_entry *finish,
              int parts);

/* Arguments of a call: operands with their inputs, and positions; the rest is the caller's to set. */
pegen_args trial_args(const pegen_kernel *kernel, const trial_operands *operands, const DLTensor *positions);

/* One call, as `parts` parts in a scrambled order; the first error. q or k may be NULL with its output. */
int trial_call(const pegen_kernel *kernel, const DLTensor *positions, const trial_operands *operands, const DLTensor *q,
               DLTensor *q_out, const DLTensor *k, DLTensor *k_out, int parts);

/* One call with scales of outputs. */
int trial_call_scaled(const pegen_kernel *kernel, const DLTensor *positions, const trial_operands *operands,
                      const DLTensor *q, DLTensor *q_out, const DLTensor *k, DLTensor *k_out, const DLTensor *q_scale,
                      const DLTensor *k_scale, int parts);

/* ---- phases ---- */

/* The largest |angle| * |bivector| over axes, heads and blocks, or the norm of the exponent of dense blocks:
 * what phases are called here. */
double trial_largest_phase(const spec *s, const double *positions, const trial_operands *operands);

/* The step of positions, 1 or a power of two below, at which 16 steps turn nothing by more than 2^24 radians. */
double trial_unit(const spec *s, const trial_operands *operands);

/* Warns where phases grow so fast that float64 loses their fraction at positions that texts and images have. */
void trial_warn_of_phases(const spec *s, const trial_operands *operands);
