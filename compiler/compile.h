/* compile: the pipeline from a validated description to bytes.
 *
 *   spec -> form (normal form, plan, program) -> cpu (MLIR) -> object/target (LLVM, object)
 *                                             -> gpu (MLIR) -> gpu/target (LLVM, PTX or assembly)
 *
 * compile() is the pipeline, one stage a line; it reports users' errors through
 * base/diag.h and returns false, writing nothing anywhere.
 */
#pragma once

#include "base/arena.h"
#include "forms/form.h"
#include "spec/spec.h"
#include "target/request.h"

/* Compiles; on success the caller frees out->data. */
bool compile(arena *a, const spec *s, const compile_options *options, compile_output *out);

/* Which entries an object of these options has. */
entry_option compile_entries(const compile_options *options);

/* The targets --target takes, with a one-line description each, for --target=help. */
typedef struct target_info {
  const char *name, *description;
} target_info;
int target_list(const target_info **list);
