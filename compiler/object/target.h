/* object/target: the machines code is made for, and the way from MLIR to bytes. */
#ifndef PEGEN_OBJECT_TARGET_H
#define PEGEN_OBJECT_TARGET_H

#include "compile.h"
#include "mlir/ir.h"
#include "mlir/number.h"

/* A row of the target table: numbers, no code. */
typedef struct cpu_target {
  const char *name;        /* of --target */
  const char *description;
  const char *suffix;      /* of internal symbols */
  const char *triple;
  const char *cpu;         /* LLVM's name */
  const char *features;    /* "+avx2,+fma", beyond what cpu implies */
  int level;               /* pegen_level that the driver checks */
  int lanes;               /* float32 in a vector register */
  int registers;           /* vector registers */
  bool has_fma;            /* fused multiply-add in hardware */
  unsigned native;         /* number types that it converts itself, of mlir/number.h */
  bool has_streaming;      /* a second set of rows that stores past the caches: where its gain was measured */
} cpu_target;

enum { TARGET_MAX = 4 };

/* Reads a comma list into rows, best first, doubles dropped; NULL: the default list of this machine's
 * architecture. 0 after a diag_error (unknown name, architectures mixed). */
int target_parse(arena *a, const char *list, const cpu_target **out);

/* Lowers the module's MLIR, optimizes, adds the driver and the descriptor, and writes the form asked for. */
typedef struct describe_request describe_request;
bool target_write(ir *b, const cpu_target *const *targets, int n_targets, const compile_options *options,
                  const describe_request *describe, compile_output *out);

#endif
