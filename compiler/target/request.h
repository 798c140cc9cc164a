/* target/request: what a compilation is asked for, and what it gives. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Forms a compilation can end in; the words of --emit.        ORDER EMIT_KIND */
typedef enum emit_kind {
  EMIT_OBJ,
  EMIT_ASM,
  EMIT_LLVM,
  EMIT_MLIR,
  EMIT_EXPR,
  EMIT_PROGRAM,
  EMIT_TILE,
  EMIT_PTX,
  EMIT_SHARED,
  EMIT_KIND_COUNT
} emit_kind;

typedef struct compile_options {
  emit_kind emit;
  const char *targets; /* comma list of target_names(), or NULL: the default for this machine's architecture */
  unsigned dtypes;     /* PEGEN_DTYPE_ bits; 0: all */
  int optimize;        /* 0..3 of -O */
  bool no_gradients;   /* entries of gradients are left out */
  bool tangents;       /* an entry of forward mode, of attention */
  bool cubin;          /* machine code of the GPU's chip beside its PTX */
  bool tvm_ffi;        /* entries are TVM-FFI's packed functions, too */
  bool launches_alone; /* what checks and launches a GPU's code, without that; tests run it on the host */
} compile_options;

typedef struct compile_output {
  char *data; /* malloc'ed; text forms are not NUL-terminated */
  size_t size;
  const struct gpu_program *gpu; /* what was written, where that is for a GPU alone; else NULL */
} compile_output;
