/* gpu/vendor: what differs from one vendor of GPUs to the next. A vendor is a file with a row and its chips. */
#pragma once

#include "mlir/ir.h"
#include "target/request.h"

typedef struct gpu_vendor gpu_vendor;

/* A chip. */
typedef struct gpu_target {
  const char *name; /* of --target, and LLVM's and the vendor's */
  const char *description;
  const char *features; /* of LLVM's code generator; NVIDIA's: the least version of PTX that knows the chip */
  const char *float8_features; /* the same of modules that convert to float8; NULL: no other */
  int level;            /* code of a lower level runs on chips of a higher one, where the vendor's is portable */
  unsigned native;      /* number types that it converts itself, of mlir/number.h */
  bool has_mma;         /* mma.sync of 16-bit numbers, ldmatrix, cp.async and packed conversions (gpu/mma.h) */
  int shared;           /* bytes of shared memory that it and every later one gives a block */
  int registers; /* of sums and weights of a tile program (gpu/mma.h) that its compiler has room for beside others */
  const gpu_vendor *vendor;
} gpu_target;

struct gpu_vendor {
  const char *name;
  const char *triple;
  ir_gpu ir;
  emit_kind assembly; /* what --emit asm writes: EMIT_PTX, or EMIT_ASM */
  bool is_portable; /* see gpu_target.level */
  bool is_embedded; /* objects for processors take the text in, and runtime/ launches it */
  bool has_objects; /* LLVM writes objects */
  void (*initialize)(void); /* LLVM's code generator */
  const gpu_target *chips; /* lowest level first; the last one has no name */
};

/* gpu_nvidia, ... in the order of gpu_target_at. */
#define GPU_VENDORS(X) X(gpu_nvidia) X(gpu_amd)

#define DECLARE(vendor) extern const gpu_vendor vendor;
GPU_VENDORS(DECLARE)
#undef DECLARE
