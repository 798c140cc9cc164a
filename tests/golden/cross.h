/* cross: the file by which golden cases reach a program of another architecture.
 *
 * cross_write.c, on this machine, compiles every case and works out what is right;
 * cross_run.c, linked with those objects for the other machine, calls the kernels and
 * compares. It shares no code with the compiler, and reads numbers alone: the case's
 * sizes and inputs, and for each number type the bytes of q and k, what should come
 * out, and how far off each channel may be.
 *
 * A file is a sequence of int64 and float64, little-endian:
 *   CROSS_MAGIC, number of cases; then per case, in the order of cross_kernels[],
 *     cross_sizes, positions, elements of each operand, and per number type
 *       for q, then k: input (as bytes, padded to 8), expected, tolerance
 */
#ifndef PEGEN_TESTS_CROSS_H
#define PEGEN_TESTS_CROSS_H

#include <stdint.h>

#define CROSS_MAGIC INT64_C(0x65736143676550) /* "PegCase" */

enum { CROSS_TYPES = 3, CROSS_STREAMS = 2 }; /* f32, bf16, f16 in the order of PEGEN_DTYPE_ bits; q, k */

typedef struct cross_sizes {
  int64_t batch, heads, tokens, channels;
  int64_t axes, position_batches; /* 0: positions are shared by the batch */
  int64_t operands;
} cross_sizes;

#endif
