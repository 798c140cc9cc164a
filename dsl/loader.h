/* loader: from a spec file to the validated description.
 *
 * The one room that knows Lua. A spec is untrusted input: it runs in a state
 * without io, os, package, debug or bytecode, under an instruction budget and a
 * memory cap, and `require` reaches the vocabulary and files beside the spec.
 */
#ifndef PEGEN_LOADER_H
#define PEGEN_LOADER_H

#include "base/arena.h"
#include "spec/spec.h"

typedef struct loader_define {
  const char *name, *value; /* of -D name=value */
} loader_define;

/* file: the spec, as given by the user (messages name it so). dsl_dir: the folder of
 * pegen.lua. NULL after a diag_error. Everything in the result lives in the arena. */
spec *loader_load(arena *a, const char *file, const char *dsl_dir, int n_defines, const loader_define *defines);

#endif
