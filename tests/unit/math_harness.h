/* math_harness: functions of emit_math compiled as a kernel's would be, and run in this process. */
#ifndef PEGEN_TESTS_MATH_HARNESS_H
#define PEGEN_TESTS_MATH_HARNESS_H

#include "mlir/math.h"
#include "verify/run.h"

/* One way of emitting: the processor, scalar code (lanes 0) or vectors. */
typedef struct math_variant {
  const char *target; /* a name of --target, also LLVM's name of the processor */
  int lanes;
  bool has_fma, exact;
} math_variant;

/* From an array of one type to one of another. */
typedef void math_function(const void *in, void *out, int64_t count);

typedef enum math_type { MATH_F32, MATH_F64, MATH_I16, MATH_I8 } math_type;

typedef struct math_row {
  const char *name; /* the symbol */
  math_type from, to;
  bool needs_fma;
  ir_value (*emit)(ir *b, ir_value x);
} math_row;

/* Ends the test where something does not compile. */
loaded_kernel *math_load(const math_variant *variant, const math_row *rows, int count);

#endif
