/* cpu/dense: the functions of programs whose rows are multiplied with matrices, for one target; see kernel/dense.h for
 * what they are called with. */
#pragma once

#include "cpu/apply.h"
#include "cpu/names.h"

/* How a target makes and applies the matrices of a program. */
typedef struct dense_shape {
  const program_op *matrix, *apply; /* of rows that are encoded */
  bool per_head;                    /* matrices differ from head to head */
  matrix_layout layout;
  int unit;            /* blocks that are made together */
  bool in_lanes;       /* a block in each lane */
  int64_t angle_bytes; /* of what a token gives for each of the matrix' terms: angles, or coefficient vectors */
} dense_shape;

/* encode: a program in the order of the target (cpu/schedule). */
dense_shape dense_shape_of(arena *a, const program *encode, const cpu_target *target);

void emit_dense(ir *b, arena *a, const program *encode, const cpu_target *target, unsigned dtypes);

/* Names of the emitted functions, as the descriptor needs them. rest: of what is left of the last unit. */
const char *emit_angles_name(arena *a, const dense_shape *shape, const cpu_target *target);
const char *emit_matrix_name(arena *a, const cpu_target *target, bool rest);
