/* target/processor: the processors that code is made for. */
#pragma once

#include "base/arena.h"
#include "base/number.h"

#include <stdbool.h>

#define TARGET_X86_TRIPLE "x86_64-unknown-linux-gnu"
#define TARGET_ARM_TRIPLE "aarch64-unknown-linux-gnu"

/* A row of the target table: numbers, no code. */
typedef struct cpu_target {
  const char *name;        /* of --target */
  const char *description;
  const char *suffix;      /* of internal symbols */
  const char *triple;
  const char *cpu;         /* LLVM's name */
  const char *features;    /* "+avx2,+fma", beyond what cpu implies */
  const char *dots;        /* features for bfloat16, which the driver asks for; NULL: not used */
  int level;               /* pegen_level that the driver checks */
  int lanes;               /* float32 in a vector register */
  int registers;           /* vector registers */
  bool has_fma;            /* fused multiply-add in hardware */
  unsigned native;         /* number types that it converts itself, of mlir/number.h */
  bool has_streaming;      /* a second set of rows that stores past the caches: where its gain was measured */
  bool is_compact; /* rows are loops over chunks, and one body is for those that a call normalises and those that
                    * it does not: the last resort, which few run, is not worth the time to compile more */
} cpu_target;

enum { TARGET_MAX = 4 };

/* Reads a comma list into rows, best first, doubles dropped; NULL: the default list of this machine's
 * architecture. 0 after a diag_error (unknown name, architectures mixed). */
int target_parse(arena *a, const char *list, const cpu_target **out);

/* Whether kernels on this processor multiply bfloat16 by dot products. */
bool target_wants_dots(void);

/* The target's features with those for bfloat16. */
const char *target_dot_features(arena *a, const cpu_target *target);

/* The i-th row, best first within an architecture; NULL after the last. */
const cpu_target *target_at(int i);
