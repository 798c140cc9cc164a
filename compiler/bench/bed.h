/* bench/bed: all that the calls of one shape need: tensors, their memory, tables, arguments.
 *
 * A description, a kernel and a shape go in, calls that can be made as often as one likes come out. All memory is
 * aligned to huge pages, so that no run depends on which small pages it got.
 */
#pragma once

#include "base/arena.h"
#include "base/number.h"
#include "bench/shapes.h"
#include "pegen/pegen.h"
#include "spec/spec.h"

/* Everything one shape needs: tensors, their memory, and the call. */
enum { TENSOR_Q, TENSOR_K, TENSOR_Q_OUT, TENSOR_K_OUT, TENSOR_COUNT };
typedef struct bed {
  bench_shape size;
  number_type type;
  size_t bytes;             /* of q, of k */
  size_t out_bytes;         /* of an output, which may have more channels */
  size_t moved;             /* what a call reads and writes, inputs included; a table is read beside it */
  void *table;              /* that calls use; or NULL */
  size_t table_bytes;
  void *data[TENSOR_COUNT]; /* outputs are NULL in place */
  void *scratch[TENSOR_COUNT]; /* what limit loops read and write instead, where outputs have other sizes; or NULL */
  void *input[SPEC_MAX_INPUTS];
  size_t input_bytes[SPEC_MAX_INPUTS];
  DLTensor input_tensor[SPEC_MAX_INPUTS];
  const DLTensor *inputs[SPEC_MAX_INPUTS];
  const char *pattern;      /* random values, repeated over q and k */
  size_t pattern_bytes;
  int64_t dims[4], strides[4], out_dims[4], out_strides[4];
  DLTensor tensor[TENSOR_COUNT], positions, *operand;
  const DLTensor **operands;
  pegen_args args;
  /* Calls of gradients: rows alone, and those of inputs and operands (or, without them, of positions), too; where there
   * is a table these come of a table of gradients, which `all` adds to and `prepare` goes on from. */
  struct {
    void *kept[2], *input[SPEC_MAX_INPUTS], *workspace;
    DLTensor tensor[2], positions, *operand, input_tensor[SPEC_MAX_INPUTS];
    DLTensor **operands, *inputs[SPEC_MAX_INPUTS];
    pegen_grad_args rows_grad, all_grad, prepare_grad;
    pegen_args rows, all, prepare;
    void *torques, *prepare_workspace;
    size_t torque_bytes;
    bool rows_alone; /* of kernels whose operands and positions have no gradients */
  } backward;
} bed;

/* False where memory ran out, of which nothing is left then. */
bool bed_lay(arena *a, bed *b, const spec *s, const pegen_kernel *kernel, const bench_shape *size, number_type type,
             bench_layout layout, bool in_place);
void bed_clear(bed *b);
/* Random values in q and k again. */
void bed_fill(const bed *b);

/* Room for the table, which the kernel then finds in its arguments. The kernel's error, or 0 (without room: b->table is
 * NULL). */
int bed_lay_table(bed *b, const pegen_kernel *kernel);
/* What encode wrote is kept beside the gradients; by a table where there is one. The kernel's error, or 0 (without
 * room: b->backward.workspace is NULL). */
int bed_lay_backward(arena *a, bed *b, const spec *s, const pegen_kernel *kernel);

/* What these are made with. */
void *bed_allocate(size_t bytes);
DLTensor bed_tensor(void *data, number_type type, int rank, int64_t *dims, int64_t *strides);
