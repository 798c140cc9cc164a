/* bench/shapes: what bench measures: shapes by name or by number, memory orders, in place or not. */
#pragma once

#include "base/arena.h"
#include "bench/request.h"
#include "pegen/pegen.h"

#include <stdbool.h>

/* Machines that a shape fits. */
enum { BENCH_ON_CPU = 1, BENCH_ON_GPU = 2 };

typedef struct bench_shape {
  const char *name;
  int64_t batches, tokens, heads, head_dim;
  bool shares_inputs; /* inputs have one head, for all */
  bool time_only; /* too small for a copy to say anything */
  unsigned on;    /* BENCH_ON_ bits; a shape that is named is measured on any */
} bench_shape;

/* Calls for every shape, memory order and place that the options ask for, until one returns another
 * exit code than STATUS_OK; what the kernel was made for replaces what a shape says. An exit code. */
typedef int bench_visit(void *context, const bench_shape *size, bench_layout layout, bool in_place);
int bench_each_shape(const pegen_kernel *kernel, const bench_options *bench, unsigned on, bench_visit *visit,
                     void *context);

/* Is it B,N,H or B,N,H,D, or the name of a shape? (What --shape takes; the kernel may still refuse it.) */
bool bench_shape_known(const char *text);
/* The built-in shape of this name; NULL: there is none. */
const bench_shape *bench_shape_find(const char *name);
/* The name of the i-th built-in shape, NULL beyond the last. */
const char *bench_shape_name(int i);

/* Prints the first columns of a row of figures: the shape, its memory order and whether it is in place. */
void bench_print_shape(const bench_shape *size, bench_layout layout, bool in_place);
/* A message; the exit code. */
int bench_no_memory(const bench_shape *size);

/* Strides of [B,H,N,D] in elements. */
void bench_strides(const bench_shape *size, bench_layout layout, int64_t strides[4]);

/* Row-major positions [tokens][axes] of the smallest cube that holds all tokens, as images and volumes have. */
float *bench_positions(arena *a, int64_t tokens, int axes);
