/* loader: from a spec file to the validated description.
 *
 * The one room that knows Lua. A spec is untrusted input: it runs in a state
 * without io, os, package, debug or bytecode, under an instruction budget and a
 * memory cap, and `require` reaches the vocabulary and files beside the spec. And
 * because interpreters have holes, loader_load_isolated runs it in a process that
 * can reach nothing; docs/security.md.
 */
#pragma once

#include "base/arena.h"
#include "spec/spec.h"

typedef struct loader_define {
  const char *name, *value; /* of -D name=value */
} loader_define;

/* file: the spec, as given by the user (messages name it so). dsl_dir: the folder of
 * pegen.lua. NULL after a diag_error. Everything in the result lives in the arena. */
spec *loader_load(arena *a, const char *file, const char *dsl_dir, int n_defines, const loader_define *defines);

/* How long the process may take that a spec is run in, in seconds: of processor time, and by the clock. */
typedef struct loader_bounds {
  double processor, clock;
} loader_bounds;

/* Loads in a process of its own that has given up all it could do to the machine (confine.h), and whose answer is
 * believed in nothing (spec/wire.h). Refuses where the system cannot do this. bounds: NULL, or others than usual, for
 * tests. Forks: for programs that have one thread. */
spec *loader_load_isolated(arena *a, const char *file, const char *dsl_dir, int n_defines, const loader_define *defines,
                           const loader_bounds *bounds);
