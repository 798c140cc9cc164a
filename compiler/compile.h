/* compile: the pipeline from a validated description to bytes.
 *
 *   spec -> form (normal form, plan, program) -> cpu (MLIR) -> object/target (LLVM, object)
 *                                             -> gpu (MLIR) -> gpu/target (LLVM, PTX or assembly)
 *
 * compile() is the pipeline, one stage a line; it reports users' errors through
 * base/diag.h and returns false, writing nothing anywhere.
 */
#ifndef PEGEN_COMPILE_H
#define PEGEN_COMPILE_H

#include "base/arena.h"
#include "spec/spec.h"

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
  EMIT_PTX,
  EMIT_KIND_COUNT
} emit_kind;

typedef struct compile_options {
  emit_kind emit;
  const char *targets; /* comma list of target_names(), or NULL: the default for this machine's architecture */
  unsigned dtypes;     /* PEGEN_DTYPE_ bits; 0: all */
  int optimize;        /* 0..3 of -O */
} compile_options;

typedef struct compile_output {
  char *data; /* malloc'ed; text forms are not NUL-terminated */
  size_t size;
} compile_output;

/* Compiles; on success the caller frees out->data. */
bool compile(arena *a, const spec *s, const compile_options *options, compile_output *out);

/* The targets --target takes, with a one-line description each, for --target=help. */
typedef struct target_info {
  const char *name, *description;
} target_info;
int target_list(const target_info **list);

#endif
