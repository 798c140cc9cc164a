/* gpu/finish: what entries that finish gradients have in common; see gpu/gradient.h. */
#ifndef PEGEN_GPU_FINISH_H
#define PEGEN_GPU_FINISH_H

#include "gpu/entries.h"
#include "mlir/two_float.h"

typedef struct finisher {
  ir *b;
  arena *memory;
  const gpu_program *program;
  const gpu_entry *entry;
  const ir_value *parameter;
  ir_value line; /* i32: the thread */
} finisher;

void finish_open(finisher *f, int count, bool host);
/* The address of a number (i64) of an array. */
ir_value finish_number_at(ir *b, ir_value array, ir_value index);
/* A sum as float32 or float64, added to what is there. */
void finish_store(ir *b, ir_value is_f64, ir_value adds, two_float sum, ir_value at);

/* The matrix of an encode program that is made of what operands hold. */
const program_op *gpu_learned_matrix(const program *encode);
/* Whether an operand holds what it is made of. */
bool gpu_generates(const program_op *matrix, int operand);
/* Appends what finishes a call's gradients of it, and of program->of; thread_bytes: of gpu_matrices. */
void gpu_finish_matrices(arena *a, gpu_program *program, int thread_bytes);
/* gpu/finish_matrices: PEGEN_PTX_MATRICES_SUMS and what follows. */
void finish_matrices(finisher *f, bool host);

#endif
