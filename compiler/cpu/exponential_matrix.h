/* cpu/exponential_matrix: the steps of the exponential of one matrix, in tiles (cpu/exponential.h), for functions that
 * go through them: the exponential itself, and what its matrix gains of a torque (cpu/exponential.h). */
#pragma once

#include "cpu/product.h"
#include "spec/spec.h"

enum {
  EXPONENTIAL_M,
  EXPONENTIAL_X,
  EXPONENTIAL_X2,
  EXPONENTIAL_X3,
  EXPONENTIAL_X4,
  EXPONENTIAL_T,
  EXPONENTIAL_C,
  EXPONENTIAL_P,
  EXPONENTIAL_COUNT
};

typedef struct exponential {
  ir *b;
  const matrix_shape *m;
  MlirType vector;
  int n_axes;
  ir_value generators, angles[SPEC_MAX_AXES]; /* spread over the lanes */
  ir_value buffer[EXPONENTIAL_COUNT];
  ir_value
      factor[4]; /* of the polynomial that is being added up: of I, X, X2, X3; spread over the lanes but the first */
  ir_value out, base; /* of the polynomial */
  char upper[96], full[96], mirror[96];
} exponential;

/* A vector of a matrix, `offset` bytes behind its first element. */
static inline ir_value exponential_load(const exponential *e, ir_value matrix, ir_value offset) {
  return ir_load(e->b, e->vector, ir_offset(e->b, matrix, offset), e->m->bytes);
}
static inline void exponential_store(const exponential *e, ir_value v, ir_value matrix, ir_value offset) {
  ir_store(e->b, v, ir_offset(e->b, matrix, offset), e->m->bytes, false);
}

/* Opens `function`, of so many pointers (a letter each), whose products are those of `name`, with buffers and angles.
 */
exponential exponential_open(ir *b, const matrix_shape *m, const char *name, const char *function, int n_axes,
                             int64_t angle_step, const char *types, ir_value *arguments);
void exponential_call(exponential *e, const char *name, ir_value out, ir_value x, ir_value y);
/* out = x y, which is symmetric: buffers. */
void exponential_symmetric(exponential *e, int out, int x, int y);
ir_value exponential_power_of_two(exponential *e, ir_value n);
/* Sets M, scaled to a norm of at most 1, and gives the exponent of the scale. */
ir_value exponential_scale(exponential *e);
/* The norm that matrices are scaled to; how often to halve M for a norm, from X2 and the scale that M has. */
double exponential_reach(const matrix_shape *m);
ir_value exponential_squarings(exponential *e, ir_value exponent, double reach);
/* exp of the scaled M into buffer T; P is scratch. */
void exponential_series(exponential *e, ir_value scale_exponent);
/* T squared so often; the buffer that it is in then, T or P. */
ir_value exponential_square(exponential *e, ir_value count);
