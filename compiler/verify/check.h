/* verify/check: `pegen check SPEC.lua`, a description's kernels against the slow reference.
 *
 * Compiles the description for every target asked for that this machine runs,
 * loads the object, calls its C interface on random data and prints the largest
 * errors per number type beside the bounds that kernels promise:
 *
 *   rotor entries   2^-22 for |phase| up to 2^24 radians (times the amplitude where that
 *                   is above 1, and times the growth of a group that is not compact)
 *                   For exp(M) of a dense block 2^-22 and 2^-20 below are times the larger of 1 and ||M||,
 *                   for ||M|| up to 2^9
 *   rows, f32       2^-20 of the norm of each block
 *   rows, bf16 f16  half a unit in the last place and 2^-20 of the norm of each block
 *   to the bit      in place, parts, position types, leftover channels, and what an infinity
 *                   in one block leaves of the others
 *
 * What is added to channels (sums):
 *
 *   rows            2^-22 of the larger of 1 and what is added, for positions up to 2^20; 16-bit types half a unit in
 *   the
 *                   last place more. To the bit: in place, parts, memory orders
 *
 * Attention:
 *
 *   outputs         2^-18 of the row's largest score (1 at least) times the largest value; 16-bit types half a unit in
 *                   the last place more; on tensor cores, which round weights to the type, u times the sum of (weight +
 *                   the type's least normal number) |v| more, u half a unit in the last place of 1: 2^-8 of bf16, 2^-11
 *                   of f16. To the bit: parts and strides
 *   log-sum-exp     2^-18 of the row's largest score (1 at least); of a polynomial, whose scores are multiplied out in
 *                   float32 around the middle of a tile of queries, 2^-15
 *   gradients       2^-18 of the sum of absolute values of what is added times the largest score; 16-bit types half a
 *   of rows         unit in the last place more, once of the result and once of that sum; on tensor cores three times
 * of that sum, in which a factor of less than the type's least normal number counts as that number. To the bit: parts
 *
 * Gradients of encodings (not of those whose rows stay in a basis of their own):
 *
 *   rows            as the rows themselves; of each call, whether it asks for them alone or for sums, too
 *   operands and    2^-18 of the sum over rows of |gradient| |derivative of the block's matrix| |row|; where what was
 *   positions       written is taken in 16 bits, half a unit in their last place; of exponentials in float32 2^-22
 *                   times the largest |M|, where that is more. To the bit: parts
 *
 * Columns that widen q and k, by scores of the widened rows against the product plus the bias as it is written:
 *
 *   f32             2^-18 of the largest score in the row
 *   bf16 f16        2^-13, above degree 3 2^-11 (with columns split). To the bit: parts, memory orders, q and k apart
 */
#pragma once

#include "base/arena.h"
#include "spec/spec.h"

#include <stdint.h>

/* What is printed of the checks; after them a line with the result, but for JSON. */
typedef enum check_print {
  CHECK_FAILURES,
  CHECK_EVERYTHING,
  CHECK_JSON, /* one object, of all checks */
} check_print;

typedef struct check_options {
  const char *targets; /* comma list; NULL: every target that this machine runs */
  unsigned dtypes;     /* PEGEN_DTYPE_ bits; 0: all */
  int optimize;        /* 0..3 of -O */
  bool gradients;      /* of the kernel, too: processors' targets compile twice as long */
  uint64_t seed;       /* of the random data; 0: a fixed one; printed either way */
  check_print print;
} check_options;

/* Prints to standard output. 0 where all passed, 1 where something failed or did not compile. */
int check_spec(arena *a, const spec *s, const check_options *options);
