/* twin.h: kernels written by hand in the shape that the compiler emits. */
#ifndef PEGEN_TESTS_TWIN_H
#define PEGEN_TESTS_TWIN_H

#include "loop.h"

extern const pegen_kernel twin_plain_kernel;   /* one axis, any heads, no operands */
extern const pegen_kernel twin_grid_kernel;    /* two axes, grid of 2 x 3, one token passes through */
extern const pegen_kernel twin_learned_kernel; /* two axes, three heads, operand rate [axes, heads, blocks] */
extern const pegen_kernel twin_tabled_kernel;  /* as plain, with prepare and tables */
extern const pegen_driver twin_plain_driver, twin_learned_driver;

/* Elements of a number type. */
typedef struct twin_number {
  int64_t bytes;
  float (*load)(const char *at);
  void (*store)(char *at, float value);
} twin_number;
extern const twin_number twin_f32, twin_bf16;

/* What the emitted functions were called with, for tests of the driver. */
enum { TWIN_TRACE = 64 };
typedef struct twin_trace {
  int calls; /* may exceed TWIN_TRACE; later ones are not kept */
  pegen_loop loop[TWIN_TRACE];
  int streaming[TWIN_TRACE];
} twin_trace;
extern _Thread_local twin_trace twin_traced;

enum { TWIN_HEAD_DIM = 16, TWIN_BLOCKS = 6, TWIN_HEADS = 3 }; /* 4 channels are left over */

/* Radians per unit of position of a block of the twins without operands. */
double twin_rate(int axis, int block);
/* The learned twin's phase at position 0, in radians: constants that differ from head to head. */
#define TWIN_ORIGIN(head, block) (0.25 * (head) + 0.5 * (block))

#endif
