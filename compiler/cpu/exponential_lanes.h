/* cpu/exponential_lanes: the steps of the exponentials of small matrices, one in each lane (cpu/exponential.h), for
 * functions that go through them, as cpu/exponential_matrix.h has them of one matrix. */
#pragma once

#include "mlir/ir.h"
#include "target/processor.h"

enum { LANES_MOST = 8 }; /* the largest size */

typedef struct lane_matrices {
  ir *b;
  const cpu_target *target;
  bool is_f64;
  int size, lanes;
  MlirType element, vector, integers;
  int64_t bytes; /* of a vector */
} lane_matrices;

ir_value lane_load(const lane_matrices *m, ir_value matrix, int i, int j);
void lane_store(const lane_matrices *m, ir_value v, ir_value matrix, int i, int j);
ir_value lane_number(const lane_matrices *m, double value);

enum { LANES_M, LANES_X, LANES_X2, LANES_X3, LANES_X4, LANES_T, LANES_C, LANES_P, LANES_R, LANES_COUNT };

typedef struct lane_exponential {
  lane_matrices m;
  char square[96], symmetric[96], skew[96], general[96], sum[96], sum_onto[96];
  ir_value buffer[LANES_COUNT];
  ir_value factors; /* room for four vectors */
} lane_exponential;

/* Functions have the names of those of the exponential `name`. */
lane_exponential lane_begin(ir *b, const cpu_target *target, bool is_f64, int size, int lanes, const char *name);
/* Inside of a function: memory, M scaled to norms of at most 1 and its squares. Gives how often each lane is to be
 * squared; *scale: exponents of what M is yet to be scaled by. */
ir_value lane_open(lane_exponential *e, const ir_value *arguments, int n_axes, int64_t angle_step, ir_value *scale);
/* A product of the kinds that its function has: buffers. */
void lane_product(lane_exponential *e, const char *name, int out, int x, int y);
/* exp of the scaled matrices into buffer T, whole. */
void lane_series(lane_exponential *e, ir_value scale_exponent);
/* Squares each lane as often as it wants: lanes that are done keep their matrix. R is scratch. */
void lane_square(lane_exponential *e, ir_value count);
/* The most that a lane wants (i64), and which still want some after `turn` turns. */
ir_value lane_most(const lane_matrices *m, ir_value count);
ir_value lane_wants(const lane_matrices *m, ir_value count, ir_value turn);
