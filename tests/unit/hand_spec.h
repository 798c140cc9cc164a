/* hand_spec: descriptions written in C, for tests of the rooms behind the vocabulary. */
#ifndef PEGEN_TESTS_HAND_SPEC_H
#define PEGEN_TESTS_HAND_SPEC_H

#include "spec/spec.h"

typedef struct hand_request {
  spec_algebra algebra;
  spec_combine combine;
  int axes, blocks, heads;
  unsigned grades;  /* bit k: blocks hold grade k, blades in descending order and some with a minus */
  int leftover;     /* channels of no block, in front */
  bool learned;     /* angles are operand 0 [axes][heads][blocks] times the position; else tables */
  bool basis_plane; /* every generator is one basis bivector */
  bool inverse;
  double amplitude;
} hand_request;

/* Generators are simple, and so are their sums where they are summed: there all share the vector e1. */
spec *hand_spec(arena *a, const hand_request *request, uint64_t *random);

/* Random operands and positions, of a size that keeps hyperbolic turns of order 1. */
const double *const *hand_operands(arena *a, const spec *s, uint64_t *random);
void hand_positions(const spec *s, uint64_t *random, double *positions);

#endif
